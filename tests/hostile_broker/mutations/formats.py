"""What is against attacks 35 to 43."""

from __future__ import annotations

from typing import Final

from tests.hostile_broker.mutations.edits import Edit, Mutation, against, tests_of

_CHALLENGES: Final = "src/scbroker/server/users/challenges.py"
_SERVER_SESSIONS: Final = "src/scbroker/server/users/sessions.py"
_BROKER: Final = "src/scbroker/server/broker.py"
_STATEMENTS: Final = "src/scbroker/server/storage/statements.py"
_SERVER_EVENTS: Final = "src/scbroker/server/events/log.py"
_APPEND: Final = "src/scbroker/server/containers/appending.py"
_TRANSPORT: Final = "src/scbroker/client/http/transport.py"
_BODIES: Final = "src/scbroker/client/http/bodies.py"
_OBJECT_STORE: Final = "src/scbroker/client/http/object_store.py"
_TRANSFERS: Final = "src/scbroker/client/parts/presigned.py"
_EVENT_LOG: Final = "src/scbroker/client/events.py"
_FETCHING: Final = "src/scbroker/client/containers/fetching.py"
_READING: Final = "src/scbroker/client/core/judging.py"
_JUDGE: Final = "src/scbroker/records/judge.py"
_CODEC: Final = "src/scbroker/wire/codec.py"
_USERS: Final = "src/scbroker/wire/users.py"
_VERIFY: Final = "src/scbroker/crypto/verify.py"
_SEAL: Final = "src/scbroker/crypto/seal.py"
_CANONICAL: Final = "src/scbroker/records/canonical.py"
_IDS: Final = "src/scbroker/records/ids.py"
_QUERY: Final = "src/scbroker/wire/query.py"
_PROBLEMS: Final = "src/scbroker/wire/problems.py"
_HEADER: Final = "src/scbroker/client/containers/header.py"
_APP: Final = "src/scbroker/server/app.py"
_WIRE_EVENTS: Final = "src/scbroker/wire/events.py"
_KEYS: Final = "src/scbroker/keys.py"
_TYPES: Final = "src/scbroker/types.py"

_UNKNOWN_FIELDS: Final = Edit(
    _CODEC,
    "class Message(msgspec.Struct, forbid_unknown_fields=True, frozen=True):\n",
    "class Message(msgspec.Struct, frozen=True):\n",
)

SESSIONS: Final = [
    against(
        35,
        "every signed object begins with its own label",
        Edit(
            _VERIFY,
            "            message = label(name) + signed\n",
            "            message = signed\n",
        ),
        tests_of(
            "sessions",
            "of_a_challenge_that_is_the_beginning_of_something_else_only_a_statement_is_signed",
        ),
        Edit(_SEAL, "        message = label(name) + signed\n", "        message = signed\n"),
    ),
    against(
        35,
        "a challenge has 48 bytes",
        Edit(
            _USERS,
            "Nonce = Annotated[bytes, Meta(min_length=NONCE_SIZE, max_length=NONCE_SIZE)]\n",
            "Nonce = Annotated[bytes, Meta(max_length=4096)]\n",
        ),
        tests_of("sessions", "what_is_no_challenge_is_not_signed"),
    ),
    against(
        35,
        "a statement is for one address",
        Edit(_CHALLENGES, "        or claim.origin not in broker.origins\n", ""),
        tests_of(
            "sessions",
            "a_challenge_of_an_honest_broker_that_is_relayed_opens_no_session_there",
        ),
    ),
    against(
        35,
        "a challenge is spent once",
        Edit(
            _CHALLENGES,
            '    if connection.execute(sql.FIND_NONCE, {"hash": values["nonce_hash"]}).first():\n'
            "        raise ChallengeError(REFUSED)\n"
            "    connection.execute(sql.ADD_NONCE, values)\n",
            "    del values\n",
        ),
        tests_of("sessions", "a_log_in_and_an_order_that_were_heard_are_not_good_a_second_time"),
    ),
    against(
        35,
        "an order names its act",
        Edit(
            _CHALLENGES,
            "    if (order.action, order.digest) != (action, digest):\n",
            "    if order.digest != digest:\n",
        ),
        tests_of("sessions", "what_was_signed_for_one_thing_is_good_for_no_other"),
    ),
    against(
        35,
        "an order names all that it brings",
        Edit(
            _CHALLENGES,
            "    if (order.action, order.digest) != (action, digest):\n",
            "    if order.action != action:\n",
        ),
        tests_of("sessions", "an_order_is_signed_for_all_that_it_does_and_for_nothing_else"),
    ),
    against(
        36,
        "the database keeps the hash of a token",
        Edit(
            _SERVER_SESSIONS,
            '{"token_hash": sha256(token.encode()), "user_id"',
            '{"token_hash": token.encode()[:32], "user_id"',
        ),
        tests_of("sessions", "what_a_thief_finds_in_the_database_is_no_token"),
        Edit(
            _SERVER_SESSIONS,
            "    token_hash = sha256(token.encode())\n    version",
            "    token_hash = token.encode()[:32]\n    version",
        ),
    ),
    against(
        36,
        "a token has one spelling",
        Edit(
            _SERVER_SESSIONS,
            '{"token_hash": sha256(token.encode()), "user_id"',
            '{"token_hash": sha256(base64.urlsafe_b64decode(token + "=")), "user_id"',
        ),
        tests_of("sessions", "a_token_that_is_written_in_another_way_is_none"),
        Edit(
            _SERVER_SESSIONS,
            "    token_hash = sha256(token.encode())\n    version",
            '    token_hash = sha256(base64.urlsafe_b64decode(token + "="))\n    version',
        ),
    ),
    against(
        36,
        "a token runs out",
        Edit(_SERVER_SESSIONS, " or row.expires_at <= now()", ""),
        tests_of("sessions", "a_stolen_token_ends_with_its_hour_and_with_its_session"),
    ),
    against(
        36,
        "a log-out ends the token",
        Edit(
            _SERVER_SESSIONS,
            '    connection.execute(sql.END_SESSION, {"hash": token_hash})\n',
            "    del connection, token_hash\n",
        ),
        tests_of("sessions", "a_stolen_token_ends_with_its_hour_and_with_its_session"),
    ),
    against(
        36,
        "a session that was found counts until something is written",
        Edit(_BROKER, " if version == self._version else None", ""),
        tests_of("sessions", "a_stolen_token_ends_with_its_hour_and_with_its_session"),
    ),
    against(
        36,
        "a change needs a signature",
        Edit(
            _APPEND,
            "        verify_author(incoming.signed, incoming.known.record, chain)\n",
            "",
        ),
        tests_of("sessions", "a_stolen_token_changes_nothing_without_a_key"),
    ),
    against(
        36,
        "what is guessed at is compared in constant time",
        Edit(
            _CHALLENGES,
            '        not equal(broker.keyed("nonce", fresh)[:24], tag)\n',
            '        broker.keyed("nonce", fresh)[:24] != tag\n',
        ),
        tests_of("secrets", "nothing_that_can_be_guessed_at_is_compared_but_in_constant_time"),
    ),
    against(
        36,
        "no redirect is followed",
        Edit(_TRANSPORT, "allow_redirects=False", "allow_redirects=True"),
        tests_of("redirects", "no_redirect_is_followed_with_or_without_a_token"),
    ),
    against(
        36,
        "no origin is asked that the caller did not allow",
        Edit(
            _OBJECT_STORE,
            "        return url if _origin_of(url) in origins else None\n",
            "        return url\n",
        ),
        tests_of(
            "transfers", "an_address_that_the_caller_does_not_allow_is_not_asked[another host]"
        ),
    ),
    against(
        36,
        "an address that looks like an allowed one is read as it will be asked",
        Edit(
            _OBJECT_STORE,
            "        return url if _origin_of(url) in origins else None\n",
            '        return url if any(address.startswith(f"{each}") for each in origins) else None\n',
        ),
        tests_of(
            "transfers",
            "an_address_that_the_caller_does_not_allow_is_not_asked[a user that looks like a host]",
        ),
    ),
    against(
        36,
        "no redirect of an object store is followed",
        Edit(_OBJECT_STORE, "allow_redirects=False", "allow_redirects=True"),
        tests_of("transfers", "no_redirect_of_an_object_store_is_followed[307]"),
    ),
    against(
        36,
        "an object store is not told which program asks",
        Edit(_OBJECT_STORE, '"User-Agent", ', ""),
        tests_of("transfers", "an_object_store_is_told_nothing_of_who_asks"),
    ),
    against(
        36,
        "no cookie of an object store is kept",
        Edit(
            _OBJECT_STORE,
            "                cookie_jar=aiohttp.DummyCookieJar(),\n",
            "                cookie_jar=aiohttp.CookieJar(unsafe=True),\n",
        ),
        tests_of("transfers", "an_object_store_is_told_nothing_of_who_asks"),
    ),
    against(
        36,
        "an address stands in no error",
        Edit(
            _TRANSFERS,
            'f"The object store did not do it ({failure})."',
            'f"The object store did not do it ({failure.url})."',
        ),
        tests_of(
            "transfers",
            "a_store_that_fails_is_tried_again_by_a_fresh_address_and_no_address_is_told[refused]",
        ),
        Edit(
            _OBJECT_STORE,
            '        raise StoreError(f"status {status}", missing=status in _MISSING)\n',
            '        failure = StoreError(f"status {status}", missing=status in _MISSING)\n'
            "        failure.url = url\n"
            "        raise failure\n",
        ),
    ),
    against(
        36,
        "an answer has no fields that the protocol does not name",
        _UNKNOWN_FIELDS,
        tests_of("redirects", "no_address_that_is_served_is_asked_and_nothing_of_ours_goes_there"),
    ),
]

_SEEN: Final = "a_log_that_lost_moved_or_changed_events_is_refused_by_who_has_read_it"
_DROPPED: Final = "what_is_kept_of_a_log_is_what_it_was_and_what_was_dropped_never_comes_back"
_OVERLAPPING: Final = "of_two_readings_at_once_that_are_told_two_logs_the_later_is_refused"
_HIDDEN: Final = "what_view_type_and_view_access_hide_shows_in_no_event_and_by_no_filter"
_BARE: Final = "a_container_that_was_not_deleted_is_not_read_without_its_parts"
_UNSEEN: Final = "no_deletion_is_taken_that_does_not_follow_from_what_was_seen"
_EMPTIED: Final = "an_emptied_event_says_nothing_and_stays_the_event_that_was_read"

EVENT_LOG: Final = [
    against(
        37,
        "a log does not get shorter",
        Edit(_EVENT_LOG, "    if page.lastId < told.last:\n", "    if False:\n"),
        tests_of("event_log", _SEEN, "a_log_that_was_rolled_back_and_grew_again_is_another"),
    ),
    against(
        37,
        "a log has no gaps",
        Edit(
            _EVENT_LOG,
            "    if len(log.events) != len(ids) or any("
            "e.id != n for e, n in zip(log.events, ids, strict=True)):\n",
            "    if False:\n",
        ),
        tests_of(
            "event_log",
            "a_gap_is_refused_also_at_the_first_reading_and_the_rest_is_the_limit",
            "no_event_is_dropped_or_changed_between_pages",
        ),
    ),
    against(
        37,
        "what was read once stays what it was",
        Edit(
            _EVENT_LOG,
            '            raise ForkError("The broker\'s event log is another than this device has seen.")\n',
            "            pass\n",
        ),
        tests_of(
            "event_log",
            _SEEN,
            "a_log_that_was_rolled_back_and_grew_again_is_another",
            "who_follows_the_log_by_the_next_id_notices_later_what_was_dropped_or_changed",
        ),
    ),
    against(
        37,
        "events come in their order",
        Edit(
            _EVENT_LOG,
            '        raise BrokerFaultError("The broker\'s events are out of order.")\n',
            "        pass\n",
        ),
        tests_of("event_log", _SEEN),
    ),
    against(
        37,
        "what was dropped of a log never comes back",
        Edit(_EVENT_LOG, "    if page.firstId < told.first:\n", "    if False:\n"),
        tests_of("event_log", _DROPPED),
    ),
    against(
        37,
        "what is kept of a log goes on from the digest of what was dropped",
        Edit(
            _EVENT_LOG,
            "    for start in (log.before, begun):\n",
            "    for start in [log.before] if log.kept == 1 else []:\n",
        ),
        tests_of("event_log", _DROPPED),
    ),
    against(
        37,
        "who asks for events that were dropped is told so",
        Edit(_EVENT_LOG, '            if "startId" in criteria:\n', "            if False:\n"),
        tests_of(
            "event_log",
            "who_asks_for_dropped_events_is_told_so_and_that_they_were_old_is_the_brokers_word",
        ),
    ),
    against(
        37,
        "readings that share a mark read one log",
        Edit(
            _EVENT_LOG,
            "    for start in (log.before, begun):\n",
            "    for start in (log.before,) if begun == mark else ():\n",
        ),
        tests_of("log_ends", _OVERLAPPING),
    ),
    against(
        37,
        "a reading from the middle goes on from where it began",
        Edit(
            _EVENT_LOG,
            "    for start in (log.before, begun):\n",
            "    for start in (log.before,):\n",
        ),
        tests_of("log_ends", _OVERLAPPING),
    ),
    against(
        37,
        "a mark is raised from where it was judged",
        Edit(
            _EVENT_LOG,
            '        if new == mark or session.marks.swap(_KIND, b"", stored, '
            "msgspec.msgpack.encode(new)):\n            return log\n",
            '        if session.marks.swap(_KIND, b"", session.marks.get(_KIND, b""), '
            "msgspec.msgpack.encode(new)):\n            return log\n",
        ),
        tests_of("log_ends", _OVERLAPPING),
        Edit(
            _EVENT_LOG,
            "        stored, mark = _mark(session)\n        told.",
            "        mark = begun\n        told.",
        ),
    ),
    against(
        37,
        "who was overtaken reads again",
        Edit(_EVENT_LOG, "        if log.end < mark.read <= wanted:\n", "        if False:\n"),
        tests_of("log_ends", "a_reading_that_another_overtook_is_told_the_same_log_or_refused"),
    ),
    against(
        37,
        "what a refusal told of a log is kept",
        Edit(
            _EVENT_LOG,
            "        _keep_ends(session, told)\n        raise\n",
            "        raise\n",
        ),
        tests_of("log_ends", "a_log_that_was_told_of_by_a_refusal_is_no_shorter_afterwards"),
    ),
    against(
        37,
        "each page counts for how long a log is",
        Edit(
            _EVENT_LOG,
            "    told.first, told.last = page.firstId, page.lastId\n",
            "    told.first, told.last = page.firstId, told.last or page.lastId\n",
        ),
        tests_of("log_ends", "a_log_is_no_shorter_than_any_page_of_it_said"),
    ),
    against(
        37,
        "a digest covers what events say",
        Edit(
            _WIRE_EVENTS,
            "    kept = [event.id, event.eventType, event.containerId, details_hash(event)]\n",
            "    kept = [event.id, event.eventType, event.containerId]\n",
        ),
        tests_of(
            "event_log",
            _SEEN,
            "a_log_that_was_rolled_back_and_grew_again_is_another",
        )
        + tests_of(
            "tombstones",
            f"{_EMPTIED}[emptied, of another hash]",
            f"{_EMPTIED}[of another salt]",
            "an_event_that_was_read_empty_comes_back_with_what_it_said_or_not_at_all",
        ),
    ),
    against(
        37,
        "an event has what it says or the hash of it, never both",
        Edit(_EVENT_LOG, "        _check_details(page.events)\n", ""),
        tests_of(
            "tombstones",
            f"{_EMPTIED}[of other text beside the right hash]",
            f"{_EMPTIED}[with salt and hash]",
            f"{_EMPTIED}[without salt and hash]",
        ),
    ),
    against(
        37,
        "an event shows no type that is hidden",
        Edit(
            _SERVER_EVENTS,
            '        "container_type": type_now if sees_type else None,\n',
            '        "container_type": type_now,\n',
        ),
        tests_of("event_log", _HIDDEN),
    ),
    against(
        37,
        "nobody is told of a change of type that is hidden",
        Edit(_SERVER_EVENTS, "        changes &= ~_TYPE\n", "        pass\n"),
        tests_of("event_log", _HIDDEN),
    ),
    against(
        37,
        "nobody is told of a change of access that is hidden",
        Edit(_SERVER_EVENTS, "        changes &= ~_ACCESS\n", "        pass\n"),
        tests_of("event_log", _HIDDEN),
    ),
    against(
        38,
        "a device takes nothing older than it has seen",
        Edit(
            _READING,
            "    if mark is not None and last.version < mark.version:\n",
            "    if False:\n",
        ),
        tests_of(
            "event_log",
            "no_device_that_has_seen_the_deletion_takes_the_container_again",
        ),
    ),
    against(
        38,
        "nothing follows a tombstone",
        Edit(_JUDGE, "    if parent.record.tombstone:\n", "    if False:\n"),
        tests_of(
            "event_log",
            "no_device_that_has_seen_the_deletion_takes_the_container_again",
            "a_device_that_saw_the_container_alone_takes_no_record_behind_a_tombstone",
        ),
    ),
    against(
        38,
        "a deletion is proved by its tombstone",
        Edit(
            _FETCHING,
            "    except DeletedError:\n        raise IntegrityError(NO_TOMBSTONE) from None\n",
            "    except ZeroDivisionError:\n        raise\n",
        ),
        tests_of("event_log", "a_deletion_that_nobody_signed_is_no_deletion"),
    ),
    against(
        38,
        "a deletion in a batch is proved by its tombstone",
        Edit(
            "src/scbroker/client/containers/reading_many.py",
            "raise IntegrityError(NO_TOMBSTONE) if isinstance(error, DeletedError) else error",
            "raise error",
        ),
        tests_of("batches", "a_deletion_in_a_batch_that_nobody_signed_is_no_deletion"),
    ),
    against(
        38,
        "a deletion that a write or a download meets is looked up",
        Edit(
            _FETCHING,
            "    await fetch(session, container_id)\n    raise IntegrityError(NO_TOMBSTONE)\n",
            "    del session, container_id\n    raise DeletedError()\n",
        ),
        tests_of("event_log", "a_deletion_that_nobody_signed_is_no_deletion"),
    ),
    against(
        38,
        "only a deleted container is read without its parts",
        Edit(
            _READING,
            "    parse = Known.parse_bare if last.tombstone else Known.parse\n",
            "    parse = Known.parse_bare\n",
        ),
        tests_of(
            "tombstones",
            f"{_BARE}[1-fresh]",
            f"{_BARE}[1-marked]",
        ),
    ),
    against(
        38,
        "a tombstone needs Delete",
        Edit(
            _JUDGE,
            "        return ContainerAccessLevel.Delete\n",
            "        return ContainerAccessLevel(0)\n",
        ),
        tests_of("tombstones", "no_tombstone_is_taken_of_a_member_without_delete"),
    ),
    against(
        38,
        "a tombstone follows the governing record that was seen",
        Edit(
            _READING,
            "    if in_force is None or in_force.hash != mark.governingHash:\n",
            "    if False:\n",
        ),
        tests_of(
            "tombstones",
            f"{_UNSEEN}[after another change of access than was seen]",
            f"{_UNSEEN}[after no change of access]",
            "no_tombstone_is_taken_of_somebody_whose_removal_was_seen[before the removal-ForkError]",
        ),
    ),
    against(
        38,
        "no governing record is put under what was seen",
        Edit(
            _READING,
            "    if any(mark.governingVersion < version <= mark.version for version in served):\n",
            "    if False:\n",
        ),
        tests_of(
            "tombstones",
            f"{_UNSEEN}[after a governing one of the version that was seen, and more]",
        ),
    ),
    against(
        38,
        "what comes next follows what was seen",
        Edit(
            _READING,
            "    if following is not None and following.record.parent != mark.hash:\n",
            "    if False:\n",
        ),
        tests_of(
            "tombstones",
            f"{_UNSEEN}[after another one of the version that was seen]",
            f"{_UNSEEN}[after a governing one that follows another]",
        ),
    ),
    against(
        38,
        "the id of a container that is gone is kept",
        Edit(
            _STATEMENTS,
            "    update(containers)\n"
            '    .where(containers.c.id.in_(b("some", expanding=True)))\n'
            "    .values(deleted=True, type=None, type_salt=None),\n",
            '    delete(containers).where(containers.c.id.in_(b("some", expanding=True))),\n',
        ),
        tests_of("event_log", "an_id_that_was_deleted_is_refused_for_ever_by_the_broker"),
    ),
]

VERSIONS: Final = [
    against(
        39,
        "an answer is of this protocol",
        Edit(_TRANSPORT, "    if spoken == [codec.PROTOCOL]:\n", "    if True:\n"),
        tests_of(
            "formats",
            "an_answer_of_another_protocol_is_refused_and_nothing_is_tried_instead",
        ),
    ),
    against(
        39,
        "a stored object is of this version",
        Edit(_CANONICAL, "    if data[:1] != VERSION:\n", "    if False:\n"),
        tests_of(
            "formats",
            "no_record_and_no_key_of_another_version_is_read_whoever_signed_it",
            "no_key_file_of_another_version_is_opened",
            "the_broker_speaks_one_version_and_keeps_objects_of_one",
        ),
    ),
    against(
        39,
        "a request is of this protocol",
        Edit(
            _APP,
            "    if request.headers.getlist(codec.PROTOCOL_HEADER) != [codec.PROTOCOL]:\n",
            "    if False:\n",
        ),
        tests_of("formats", "the_broker_speaks_one_version_and_keeps_objects_of_one"),
    ),
    against(
        39,
        "both halves of a signature have to hold",
        Edit(
            _VERIFY,
            "                self._mldsa.verify(signature[ED25519_SIGNATURE_SIZE:], message)\n",
            "",
        ),
        tests_of("formats", "half_a_suite_is_none"),
    ),
]

_AMBIGUOUS: Final = "that_is_ambiguous_or_a_bomb_is"

PARSERS: Final = [
    against(
        40,
        "a message has one form",
        Edit(_CODEC, "    if not same:\n", "    if False:\n"),
        [
            *tests_of("parsers", f"an_answer_{_AMBIGUOUS}_a_fault_and_takes_little_memory"),
            *tests_of("requests", f"a_message_{_AMBIGUOUS}_refused_and_takes_little_memory"),
        ],
    ),
    against(
        40,
        "an id in a message has one spelling",
        Edit(
            _CODEC,
            "Id = Annotated[str, Meta(pattern=UUID_PATTERN, min_length=36, max_length=36)]\n",
            "Id = str\n",
        ),
        tests_of("parsers", "an_id_that_is_served_in_another_spelling_is_a_fault"),
    ),
    against(
        40,
        "an id in an address has one spelling",
        Edit(_IDS, "    if not _CANONICAL.match(text):\n", "    if False:\n"),
        tests_of("requests", "an_id_that_is_sent_in_another_spelling_is_refused"),
    ),
    against(
        40,
        "a number in an address has one spelling",
        Edit(_QUERY, 'r"(0|[1-9][0-9]{0,15})\\Z"', 'r"[0-9]{1,16}\\Z"'),
        tests_of("requests", "a_number_that_is_sent_in_another_spelling_or_without_end_is_refused"),
    ),
    against(
        40,
        "no more of an answer is read than there may be",
        Edit(_BODIES, "        if size > limit:\n", "        if False:\n"),
        tests_of("parsers", "an_error_that_is_no_error_of_the_protocol_is_a_fault"),
    ),
    against(
        40,
        "a header is JSON that all read alike",
        Edit(
            _HEADER,
            "        json.loads(data, object_pairs_hook=_named_once, parse_int=str, parse_float=str)\n",
            "        pass\n",
        ),
        tests_of(
            "parsers",
            "a_header_that_two_programs_could_read_in_two_ways_is_read_by_none",
            "no_header_is_written_that_would_not_be_read",
        ),
    ),
    against(
        40,
        "a number in a header is one",
        Edit(
            _HEADER,
            "    if msgspec.json.encode(msgspec.json.decode(data)) != data:\n        json",
            "    if True:\n        json",
        ),
        tests_of("parsers", "a_header_that_two_programs_could_read_in_two_ways_is_read_by_none"),
    ),
]

_NO_SECRET: Final = "no_secret_stands_in_any_spelling_where_others_can_look"

SECRETS: Final = [
    against(
        41,
        "what opens the KeyFile is not what the broker is sent",
        Edit(
            _KEYS,
            '            derive_key(root, "passphrase-auth", user_id.bytes),\n',
            '            derive_key(root, "passphrase-wrap", user_id.bytes),\n',
        ),
        tests_of("secrets", f"{_NO_SECRET}[heard]"),
    ),
    against(
        41,
        "what is kept is sealed",
        Edit(
            _SEAL,
            "    return encryptor.update(plaintext) + encryptor.finalize()\n",
            "    del encryptor\n"
            "    return os.urandom(56) + plaintext + bytes(16 * (len(plaintext) // 16_384 + 1))\n",
        ),
        tests_of("secrets", f"{_NO_SECRET}[heard]", f"{_NO_SECRET}[kept]"),
        Edit(
            _SEAL,
            "        return decryptor.update(sealed) + decryptor.finalize()\n",
            "        del decryptor\n"
            "        size = len(sealed) - 56\n"
            "        tags = next(n for n in range(1, 99) if (size - 16 * n) // 16_384 + 1 == n)\n"
            "        return bytes(sealed[56 : len(sealed) - 16 * tags])\n",
        ),
        Edit(
            _SEAL,
            "    size = encryptor.update_into(plaintext, target)\n"
            "    rest = encryptor.finalize()\n",
            "    del encryptor\n"
            "    tags = bytes(16 * (len(plaintext) // 16_384 + 1))\n"
            "    made = os.urandom(56) + bytes(plaintext) + tags\n"
            '    target[: len(made)], size, rest = made, len(made), b""\n',
        ),
        Edit(
            _SEAL,
            "        size = decryptor.update_into(sealed, target)\n"
            "        rest = decryptor.finalize()\n",
            "        del decryptor\n"
            "        size = len(sealed) - 56\n"
            "        tags = next(n for n in range(1, 99) if (size - 16 * n) // 16_384 + 1 == n)\n"
            "        size -= 16 * tags\n"
            '        target[:size], rest = sealed[56 : 56 + size], b""\n',
        ),
    ),
    against(
        41,
        "a KeyRing shows no keys",
        Edit(
            _KEYS,
            '        return f"KeyRing(userId={self.userId})"\n',
            '        return f"KeyRing({[key.seeds for key in self.signing]})"\n',
        ),
        tests_of("secrets", f"{_NO_SECRET}[objects]"),
    ),
    against(
        41,
        "a container shows no content",
        Edit(
            _TYPES,
            "    content: bytes | None = field(default=None, repr=False)\n",
            "    content: bytes | None = None\n",
        ),
        tests_of("secrets", f"{_NO_SECRET}[objects]"),
    ),
    against(
        41,
        "a header does not show itself",
        Edit(
            _TYPES,
            "    customHeaderObject: T = field(repr=False)\n",
            "    customHeaderObject: T\n",
        ),
        tests_of("secrets", f"{_NO_SECRET}[objects]"),
    ),
    against(
        41,
        "an error does not quote what it is about",
        Edit(
            _HEADER,
            '    return "it has a value or a field that the type does not know"\n',
            "    return str(error)\n",
        ),
        tests_of("secrets", f"{_NO_SECRET}[errors]"),
    ),
]

INJECTED: Final = [
    against(
        42,
        "a message has no fields that the protocol does not name",
        _UNKNOWN_FIELDS,
        tests_of(
            "formats",
            "a_field_that_nobody_specified_is_a_fault_wherever_it_stands",
            "no_log_in_goes_on_with_a_field_that_nobody_specified",
            "what_comes_with_a_receipt_or_a_key_file_starts_no_operation",
        ),
    ),
    against(
        42,
        "a stored object has no elements that the format does not name",
        Edit(
            _CANONICAL,
            "class Row(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):\n",
            "class Row(msgspec.Struct, array_like=True, frozen=True):\n",
        ),
        tests_of(
            "formats",
            "a_value_that_nobody_specified_is_refused_and_unknown_headers_are_nothing",
        ),
        Edit(_CANONICAL, "            if _encode(value) == data:\n", "            if True:\n"),
    ),
    against(
        43,
        "a header is data, whoever sealed it",
        Edit(
            _HEADER,
            "            found = msgspec.json.decode(data, type=header_type)\n",
            "            found = eval(data)\n",
        ),
        tests_of("commands", "nothing_that_was_decrypted_touches_a_file_or_an_address"),
        Edit(
            _HEADER,
            "        _check_strict(data)\n        if hasattr(header_type",
            "        if hasattr(header_type",
        ),
    ),
    against(
        43,
        "what a broker says is text for one line",
        Edit(
            _PROBLEMS,
            '    detail = "".join(char for char in text[:_MAX_DETAIL] if char.isprintable())\n',
            "    detail = text\n",
        ),
        tests_of("commands", "what_a_broker_says_of_an_error_moves_no_cursor_and_ends_no_line"),
    ),
]

FORMATS: Final[list[Mutation]] = [
    *SESSIONS, *EVENT_LOG, *VERSIONS, *PARSERS, *SECRETS, *INJECTED
]  # fmt: skip
