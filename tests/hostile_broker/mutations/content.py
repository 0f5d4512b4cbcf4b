"""What is against attacks 16 to 24."""

from __future__ import annotations

from typing import Final

from tests.hostile_broker.mutations.edits import Edit, Mutation, against, tests_of

_DOWNLOADS: Final = "src/scbroker/client/parts/downloads.py"
_SEALING: Final = "src/scbroker/client/core/sealing.py"
_FETCHING: Final = "src/scbroker/client/containers/fetching.py"
_EVIDENCE: Final = "src/scbroker/client/containers/evidence.py"
_CONTENT: Final = "src/scbroker/client/parts/content.py"
_SEAL: Final = "src/scbroker/crypto/seal.py"
_READING: Final = "src/scbroker/client/core/judging.py"
_READING_MANY: Final = "src/scbroker/client/containers/reading_many.py"
_WRITING: Final = "src/scbroker/client/containers/writing.py"
_SENDING: Final = "src/scbroker/client/containers/sending.py"
_CHANGE: Final = "src/scbroker/client/containers/change.py"
_JUDGE: Final = "src/scbroker/records/judge.py"
_VERIFY: Final = "src/scbroker/crypto/verify.py"

_NO_SIGNED_SEGMENT: Final = Edit(
    _SEALING, "        if sha256(sealed) != expected_hash:\n", "        if False:\n"
)
_NO_SIGNED_LIST: Final = Edit(
    _DOWNLOADS,
    "        await io_thread.in_pool(check_segment_hashes, opened.part, hashes)\n",
    "        pass\n",
)
_NO_SIGNED_PART: Final = Edit(
    _FETCHING, "        check_segment_hashes(part, sha256(sealed))\n", "        del part\n"
)
_NO_LENGTH: Final = Edit(
    _SEALING,
    "        if len(sealed) != sealed_size(padded):\n",
    "        if False:\n",
)
_RELEASED_EARLY: Final = Edit(
    _SEAL,
    "    try:\n"
    "        size = decryptor.update_into(sealed, target)\n"
    "        rest = decryptor.finalize()\n"
    "    except InvalidTag:\n",
    '    size, rest = 0, b""\n'
    "    try:\n"
    "        size = decryptor.update_into(sealed, target)\n"
    "        rest = decryptor.finalize()\n"
    "    except InvalidTag:\n"
    "        if size:\n"
    "            return size\n",
)

SEALED: Final = [
    against(
        16,
        "a segment is the one that was signed",
        _NO_SIGNED_SEGMENT,
        tests_of("content", "no_segment_is_moved_doubled_dropped_cut_or_added"),
    ),
    against(
        16,
        "the list of segments is the one that was signed",
        _NO_SIGNED_LIST,
        tests_of("content", "no_segment_is_moved_doubled_dropped_cut_or_added"),
    ),
    against(
        16,
        "as many bytes come as there are segments",
        Edit(
            _DOWNLOADS,
            "        if size <= (count - 1) * SEALED_SEGMENT:\n",
            "        if False:\n",
        ),
        tests_of("content", "no_segment_is_moved_doubled_dropped_cut_or_added[2097152]"),
    ),
    against(
        16,
        "a small content is the one that was signed",
        _NO_SIGNED_PART,
        tests_of("content", "no_chunk_of_a_segment_is_moved_or_cut_at_any_boundary"),
    ),
    against(
        16,
        "the sealing has an end",
        _RELEASED_EARLY,
        tests_of("content", "no_chunk_is_moved_or_cut_even_where_a_writer_signs_for_it"),
        _NO_LENGTH,
    ),
    against(
        17,
        "nothing yet is not the end",
        Edit(
            _CONTENT,
            "    while piece := _checked(file.read(_READ)):\n",
            "    while piece := file.read(_READ):\n",
        ),
        tests_of("short_reads", "a_file_that_has_nothing_yet_is_an_error_and_nothing_is_created"),
    ),
    against(
        17,
        "a file is read to its end",
        Edit(
            _CONTENT,
            "    while piece := _checked(file.read(_READ)):\n",
            "    if piece := _checked(file.read(_READ)):\n",
        ),
        tests_of("short_reads", "a_network_and_a_file_that_give_one_byte_at_a_time_work"),
    ),
    against(
        17,
        "a content is as long as it was signed for",
        _NO_SIGNED_SEGMENT,
        tests_of(
            "short_reads",
            "an_answer_that_is_torn_off_is_an_error_and_no_file_is_left[the segments]",
        ),
        _NO_LENGTH,
    ),
    against(
        17,
        "there are as many segments as were signed for",
        _NO_SIGNED_LIST,
        tests_of(
            "short_reads",
            "an_answer_that_is_torn_off_is_an_error_and_no_file_is_left[the hashes]",
        ),
        _NO_SIGNED_SEGMENT,
    ),
    against(
        18,
        "a segment is looked at whole before it is opened",
        _NO_SIGNED_SEGMENT,
        tests_of(
            "content", "a_reader_sees_nothing_of_a_content_whose_last_byte_was_changed[large]"
        ),
    ),
    against(
        18,
        "what comes early is kept back until the end has proved right",
        _RELEASED_EARLY,
        tests_of(
            "content",
            "a_reader_sees_nothing_of_it_even_where_a_writer_signs_for_the_changed_byte",
        ),
        _NO_LENGTH,
    ),
    against(
        18,
        "a header is looked at before it is opened",
        _NO_SIGNED_PART,
        tests_of(
            "content",
            "a_reader_sees_nothing_of_a_content_whose_last_byte_was_changed[small]",
            "a_reader_sees_nothing_of_a_container_whose_header_was_changed",
        ),
    ),
    against(
        19,
        "header and content are those of the record",
        _NO_SIGNED_PART,
        tests_of(
            "content", "no_header_and_content_are_put_together_that_were_not_written_together"
        ),
    ),
    against(
        19,
        "what is handed out unopened is looked at as well",
        Edit(
            _FETCHING,
            "{role: sealed_part(session, fetched, role) for role in Role}",
            "{Role.Header: fetched.view.header, Role.Content: fetched.view.content}",
        ),
        tests_of(
            "content",
            "no_header_and_content_are_put_together_that_were_not_written_together",
            "a_reader_sees_nothing_of_a_container_whose_header_was_changed",
        ),
    ),
    against(
        19,
        "a large content is that of the record",
        _NO_SIGNED_LIST,
        tests_of("content", "no_large_content_is_put_in_the_place_of_another"),
    ),
]

_NO_SIGNATURE: Final = Edit(
    _JUDGE, "    key.verify(LABEL, bare_body(signed.body), signed.signature)\n", "    del key\n"
)
_HANDED_OUT: Final = "nothing_that_is_handed_out_unopened_is_the_brokers_word"
_SHOWN: Final = "nothing_that_is_shown_of_a_container_is_the_brokers_word"
_NOT_SIGNED: Final = "no_container_is_shown_as_a_users_own_that_they_did_not_sign_for"

METADATA: Final = [
    against(20, "a record's signature", _NO_SIGNATURE, tests_of("metadata", _SHOWN)),
    against(
        20,
        "the type is the one that was signed",
        Edit(
            _READING,
            "    if type_hash(state.container_id, text.salt, text.type)"
            " != state.governing.governing.type:\n",
            "    if False:\n",
        ),
        tests_of("metadata", f"{_SHOWN}[marked]"),
    ),
    against(
        20,
        "the access list is the one that was signed",
        Edit(
            _JUDGE, "    if governing.accessList != list_hash(\n", "    if False and list_hash(\n"
        ),
        tests_of("metadata", _SHOWN),
    ),
    against(
        20,
        "an author whom the broker does not know is no reason to find no container",
        Edit(
            _EVIDENCE,
            "    except NotFoundError:\n        raise IntegrityError(",
            "    except ZeroDivisionError:\n        raise IntegrityError(",
        ),
        tests_of("metadata", f"{_SHOWN}[fresh]"),
    ),
    against(
        20,
        "a signature that is handed out is looked at",
        Edit(
            _FETCHING,
            "    verify_author(fetched.state.signed, fetched.state.record, chains[author])\n",
            "    del chains\n",
        ),
        tests_of("metadata", f"{_HANDED_OUT}[marked]"),
    ),
    against(
        20,
        "a part that is handed out is looked at",
        _NO_SIGNED_PART,
        tests_of("metadata", f"{_HANDED_OUT}[marked]"),
    ),
    against(
        20,
        "a receipt is for the record that was sent",
        Edit(
            _SENDING,
            "    if (receipt.version, receipt.hash) != "
            "(sent.state.record.version, sent.state.head.hash):\n",
            "    if False:\n",
        ),
        [
            *tests_of("metadata", "what_a_write_gives_back_is_not_the_brokers_word"),
            *tests_of(
                "batches",
                "receipts_that_are_swapped_or_invented_are_found_and_leave_no_mark",
            ),
        ],
    ),
    against(
        22,
        "a record's signature",
        _NO_SIGNATURE,
        tests_of(
            "metadata",
            *(f"{_NOT_SIGNED}[{what}]" for what in ("nothing", "brokers_own", "other_object")),
        ),
    ),
    against(
        22,
        "the second half of a signature",
        Edit(
            _VERIFY,
            "                self._mldsa.verify(signature[ED25519_SIGNATURE_SIZE:], message)\n",
            "",
        ),
        tests_of("metadata", f"{_NOT_SIGNED}[first_half_broken]"),
    ),
    against(
        22,
        "the first half of a signature",
        Edit(
            _VERIFY,
            "                self._ed25519.verify(signature[:ED25519_SIGNATURE_SIZE], message)\n",
            "",
        ),
        tests_of("metadata", f"{_NOT_SIGNED}[second_half_broken]"),
    ),
    against(
        22,
        "every signed object begins with its own label",
        Edit(
            _VERIFY,
            "            message = label(name) + signed\n",
            "            message = signed\n",
        ),
        tests_of("metadata", f"{_NOT_SIGNED}[other_object]"),
        Edit(_SEAL, "        message = label(name) + signed\n", "        message = signed\n"),
    ),
    against(
        22,
        "a record's author is in the list",
        Edit(
            _JUDGE,
            "    author = governing.entry_of(record.author, record.time)\n    if author is None:\n",
            "    author = governing.entry_of(record.author, record.time) or Entry(\n"
            "        record.author, 0, ALL, None, None\n    )\n    if author is None:\n",
        ),
        tests_of("metadata", "nothing_is_shown_in_a_container_by_who_never_had_access"),
    ),
    against(
        22,
        "a container is the one that was asked for",
        Edit(
            _READING,
            "        if known.record.containerId != container_id:\n",
            "        if False:\n",
        ),
        tests_of(
            "metadata",
            "no_container_is_shown_in_the_place_of_another_or_to_who_is_not_in_its_list[fresh]",
        ),
    ),
    against(
        22,
        "a reader is in the list",
        Edit(
            _READING,
            "        if entry is None:\n            raise IntegrityError("
            '"A container is served to somebody who is not in its list.")\n',
            "        if entry is None:\n            return Entry(fingerprint, 0, 511, None, None)\n",
        ),
        tests_of(
            "metadata",
            "no_container_is_shown_in_the_place_of_another_or_to_who_is_not_in_its_list[fresh]",
        ),
    ),
]

_OLDER: Final = "no_older_state_is_taken_by_any_operation_of_a_device_that_was_started_again"
_OTHER: Final = "no_other_history_is_taken_by_any_operation_of_a_device_that_was_started_again"
_NO_MARKS: Final = Edit(
    _FETCHING,
    "        mark = None if stored is None else Mark.decode(stored)\n",
    "        mark = None\n",
)
_ANY_HEAD: Final = Edit(
    _READING, "        if state.head.hash != mark.hash:\n", "        if False:\n"
)

ROLLBACK: Final = [
    against(
        21,
        "the mark of a container",
        _NO_MARKS,
        tests_of(
            "rollback",
            _OLDER,
            _OTHER,
            "two_histories_that_honest_writers_were_shown_are_never_joined",
            "no_page_leads_from_what_was_seen_to_another_history",
            "a_state_that_is_rolled_back_between_two_attempts_of_a_write_is_noticed",
        ),
    ),
    against(
        21,
        "each container of a batch is judged by its own mark",
        Edit(
            _READING_MANY,
            "await collect(session, each, marks[each], view)",
            "await collect(session, each, None, view)",
        ),
        tests_of(
            "batches",
            "an_older_state_among_newer_ones_is_refused_and_the_others_are_read",
            "another_history_among_true_ones_is_a_fork_also_once_the_device_was_started_again",
        ),
    ),
    against(
        21,
        "a mark outlives the program",
        Edit(
            "src/scbroker/client/users/trust_store.py",
            '            return _FileMarks(self.directory / f"{userId}.trust", secret)\n',
            "            return _MemoryMarks()\n",
        ),
        tests_of("rollback", _OLDER, _OTHER),
    ),
    against(
        21,
        "a lower version is a rollback",
        Edit(
            _READING,
            "    if mark is not None and last.version < mark.version:\n",
            "    if False:\n",
        ),
        tests_of(
            "rollback",
            _OLDER,
            "a_state_that_is_rolled_back_between_two_attempts_of_a_write_is_noticed",
        ),
    ),
    against(
        21,
        "another head of the same version is a fork",
        _ANY_HEAD,
        tests_of("rollback", f"{_OTHER}[content]", f"{_OTHER}[nothing]"),
    ),
    against(
        21,
        "what was seen during a change follows from it",
        Edit(_FETCHING, "        if not same:\n", "        if False:\n"),
        tests_of(
            "own_writes",
            "a_fork_that_begins_at_ones_own_write_is_noticed_whatever_was_read_meanwhile",
        ),
    ),
    against(
        21,
        "another governing record at the mark is a fork",
        Edit(
            _READING,
            "    if (known.record.version, known.hash)"
            " != (mark.governingVersion, mark.governingHash):\n",
            "    if False:\n",
        ),
        tests_of("rollback", f"{_OTHER}[access]", f"{_OTHER}[type]"),
        _ANY_HEAD,
    ),
    against(
        21,
        "what leads to the head begins with what was seen",
        Edit(
            _READING,
            "            if (known.record.version, known.hash, self._in_force.hash) != seen:\n",
            "            if False:\n",
        ),
        tests_of(
            "rollback",
            f"{_OTHER}[access]",
            "two_histories_that_honest_writers_were_shown_are_never_joined",
        ),
    ),
    against(
        21,
        "each record names the one before it",
        Edit(_JUDGE, "        record.parent != parent.hash\n        or record", "        record"),
        tests_of(
            "rollback",
            "two_histories_that_honest_writers_were_shown_are_never_joined",
            "no_page_leads_from_what_was_seen_to_another_history[another history]",
        ),
    ),
    against(
        21,
        "a fork is told as one before anything else of it",
        Edit(
            _READING,
            "    if mark is not None:\n        _check_mark(state, views, walk, mark)\n"
            "    _check_disclosed(state, reader, [view.accessList for view in views])\n",
            "    _check_disclosed(state, reader, [view.accessList for view in views])\n"
            "    if mark is not None:\n        _check_mark(state, views, walk, mark)\n",
        ),
        tests_of("rollback", f"{_OTHER}[removal]"),
    ),
]

_AGAIN: Final = "a_program_that_is_made_to_write_again_uses_no_key_salt_or_nonce_twice"
_OVER_ACCESS: Final = "a_content_that_is_sealed_again_over_a_change_of_access_has_another_key"

REUSE: Final = [
    against(
        23,
        "every part has a key of its own",
        Edit(
            _SEALING,
            "random_bytes(16), random_bytes(KEY_SIZE))\n",
            "random_bytes(16), bytes(KEY_SIZE))\n",
        ),
        tests_of("reuse", *(f"{_AGAIN}[{what}]" for what in ("header", "content")), _OVER_ACCESS),
    ),
    against(
        23,
        "what is sealed again is a part of its own",
        Edit(
            _CHANGE,
            "    upload = change.upload or Upload(\n"
            '        NewPart.begin(container_id, Role.Content, session.fingerprint), b""\n'
            "    )\n",
            "    old = change.sealed.get(Role.Content)\n"
            "    upload = change.upload or Upload(\n"
            "        old.part if old"
            ' else NewPart.begin(container_id, Role.Content, session.fingerprint), b""\n'
            "    )\n",
        ),
        tests_of("reuse", f"{_AGAIN}[large content]"),
    ),
    against(
        23,
        "an upload is not taken up again once its record was sent",
        Edit(_WRITING, "    change.end_upload()\n", ""),
        tests_of("reuse", "a_file_whose_record_was_sent_is_sent_again_under_another_key"),
    ),
    against(
        23,
        "a part that was sent under one container key is not used under another",
        Edit(
            _SENDING,
            "        sealed.sent_under = state.governing.governing.keyCommitment\n",
            "        del sealed\n",
        ),
        tests_of("reuse", _OVER_ACCESS),
    ),
    against(
        23,
        "every attempt at a first record has a container key of its own",
        Edit(
            _WRITING,
            "    container_key = random_bytes(KEY_SIZE)\n    text = None",
            "    container_key = nonce\n    text = None",
        ),
        tests_of("reuse", f"{_AGAIN}[header]"),
    ),
    against(
        23,
        "every attempt at a change of access has a container key of its own",
        Edit(
            _WRITING,
            "        container_key = random_bytes(KEY_SIZE)\n        access =",
            "        container_key = container_key or random_bytes(KEY_SIZE)\n        access =",
        ),
        tests_of("reuse", f"{_AGAIN}[access]"),
        Edit(
            _JUDGE,
            "        if after.accessAuthor != record.author or"
            " after.keyCommitment == before.keyCommitment:\n",
            "        if after.accessAuthor != record.author:\n",
        ),
    ),
    against(
        23,
        "every KeyFile has a salt of its own",
        Edit(
            "src/scbroker/keys.py",
            "    fingerprint, salt = ring.rawFingerprint, random_bytes(HASH_SIZE)\n",
            "    fingerprint, salt = ring.rawFingerprint, bytes(HASH_SIZE)\n",
        ),
        tests_of(
            "reuse", "a_key_file_that_is_sealed_again_under_the_same_secrets_uses_no_salt_twice"
        ),
    ),
]

_EQUAL: Final = "equal_containers_and_equal_versions_share_no_run_of_bytes_in_storage"
_PADDED: Final = (
    "what_another_program_padded_is_read_without_and_padding_that_says_something_is_refused"
)

LEAKS: Final = [
    against(
        24,
        "entries are salted",
        Edit(
            _SEALING,
            "        AccessEntry(salt=random_bytes(HASH_SIZE), entry",
            "        AccessEntry(salt=sha256(encode_entry(entry)), entry",
        ),
        tests_of("leaks", _EQUAL),
    ),
    against(
        24,
        "nothing is compressed",
        Edit(
            _CHANGE,
            "    segment = part.seal_segment(0, True, plaintext)\n",
            '    plaintext = __import__("zlib").compress(plaintext)\n'
            "    segment = part.seal_segment(0, True, plaintext)\n",
        ),
        tests_of(
            "leaks", "nothing_is_compressed_so_that_the_stored_size_tells_the_length_alone[16384]"
        ),
    ),
    against(
        24,
        "padding is zero",
        Edit(_SEALING, "        if any(target[real:padded]):\n", "        if False:\n"),
        tests_of("leaks", _PADDED),
    ),
    against(
        24,
        "a length lies within the padding",
        Edit(
            _SEALING,
            "        if len(opened) != KEY_SIZE + _LENGTH_SIZE or length > part.paddedLength:\n",
            "        if len(opened) != KEY_SIZE + _LENGTH_SIZE:\n",
        ),
        tests_of("leaks", _PADDED),
    ),
]

CONTENT: Final[list[Mutation]] = [*SEALED, *METADATA, *ROLLBACK, *REUSE, *LEAKS]
