"""What is against attacks 1 to 15."""

from __future__ import annotations

from typing import Final

from tests.hostile_broker.mutations.edits import Edit, Mutation, against, tests_of

_DIRECTORY: Final = "src/scbroker/client/users/directory.py"
_READING: Final = "src/scbroker/client/core/judging.py"
_FETCHING: Final = "src/scbroker/client/containers/fetching.py"
_SEALING: Final = "src/scbroker/client/core/sealing.py"
_WRITING: Final = "src/scbroker/client/containers/writing.py"
_SENDING: Final = "src/scbroker/client/containers/sending.py"
_ACCOUNTS: Final = "src/scbroker/client/users/accounts.py"
_JUDGE: Final = "src/scbroker/records/judge.py"
_LISTS: Final = "src/scbroker/records/access_list.py"
_RECORD: Final = "src/scbroker/records/container_record.py"
_CHAIN: Final = "src/scbroker/records/key_record.py"
_VERIFY: Final = "src/scbroker/crypto/verify.py"
_REGISTRATION: Final = "src/scbroker/server/users/registration.py"

_NO_SIGNATURE: Final = Edit(
    _JUDGE, "    key.verify(LABEL, bare_body(signed.body), signed.signature)\n", "    del key\n"
)
_ANY_AUTHOR: Final = Edit(
    _JUDGE,
    "    author = governing.entry_of(record.author, record.time)\n    if author is None:\n",
    "    author = governing.entry_of(record.author, record.time) or Entry(\n"
    "        record.author, 0, ALL, None, None\n    )\n    if author is None:\n",
)
_NO_MARKS: Final = Edit(
    _FETCHING,
    "        mark = None if stored is None else Mark.decode(stored)\n",
    "        mark = None\n",
)
_NO_OWN_PART: Final = Edit(_JUDGE, "elif part.author != record.author or any(", "elif any(")
_SENT_PARTS_STAY: Final = Edit(
    _SENDING,
    "        sealed.sent_under = state.governing.governing.keyCommitment\n",
    "        del sealed\n",
)


KEYS: Final = [
    against(
        1,
        "a chain belongs to the user id that it was asked for",
        Edit(_DIRECTORY, "    if user_id_of(chain.fingerprint) != user:\n", "    if False:\n"),
        tests_of(
            "keys",
            "keys_of_somebody_else_are_refused_at_the_first_contact_and_nothing_is_wrapped",
            "keys_that_change_after_the_first_contact_are_refused_also_after_a_restart",
        ),
    ),
    against(
        1,
        "nothing is sent before the recipients' keys were verified",
        Edit("src/scbroker/client/containers/change.py", "    await verify_recipients()\n", ""),
        tests_of(
            "keys",
            "no_large_content_is_uploaded_for_a_recipient_whose_keys_are_somebody_elses",
        ),
    ),
    against(
        1,
        "every key record is signed by signing key 0",
        Edit(_CHAIN, "        self._root.verify(LABEL, signed.body, signed.signature)\n", ""),
        tests_of(
            "keys",
            "keys_that_change_after_the_first_contact_are_refused_also_after_a_restart",
        ),
    ),
    against(
        1,
        "a chain leads through the mark",
        Edit(_DIRECTORY, "            chain.check_mark(mark.sequence, mark.hash)\n", ""),
        tests_of("keys", "who_saw_a_key_retired_is_not_brought_to_use_it_again"),
    ),
    against(
        2,
        "a container's id is its creator's",
        Edit(
            _JUDGE,
            "    if container_id_of(record.author, record.nonce).bytes != record.containerId:\n",
            "    if False:\n",
        ),
        tests_of(
            "keys",
            "a_container_under_the_brokers_key_is_neither_read_nor_written_to[fresh-by_the_broker]",
        ),
    ),
    against(
        2,
        "a record's signature",
        _NO_SIGNATURE,
        tests_of(
            "keys",
            "a_container_under_the_brokers_key_is_neither_read_nor_written_to"
            "[fresh-in_the_victims_name]",
        ),
    ),
    against(
        2,
        "the mark of a container",
        _NO_MARKS,
        tests_of(
            "keys",
            "a_container_under_the_brokers_key_is_neither_read_nor_written_to[marked-by_the_broker]",
        ),
    ),
    against(
        2,
        "a change of access is by a member",
        _ANY_AUTHOR,
        tests_of("keys", "a_key_that_a_stranger_puts_in_force_is_not_written_under"),
    ),
    against(
        2,
        "the wrap is the one that was signed, of the key that was signed",
        Edit(
            _READING,
            "    if wrap is None or wrap_hash(wrap) != entry.wrapHash:\n",
            "    if wrap is None:\n",
        ),
        tests_of("keys", "a_wrap_of_the_brokers_key_is_not_opened_and_nothing_is_sealed_under_it"),
        Edit(
            _READING,
            "    if not equal(key_commitment(state.container_id, key), governing.keyCommitment):\n",
            "    if False:\n",
        ),
    ),
    against(
        4,
        "nothing is sealed without the container's key",
        Edit(
            _WRITING,
            "            raise DecryptionError(\n"
            '                "The container\'s key does not open, so nothing can be sealed under it."\n'
            "            )\n",
            "            container_key = random_bytes(KEY_SIZE)\n",
        ),
        tests_of("broken_keys", "no_key_is_invented_for_a_container_whose_wrap_is_missing"),
    ),
    against(
        4,
        "a missing wrap is an error",
        Edit(
            _READING,
            "    if wrap is None or wrap_hash(wrap) != entry.wrapHash:\n",
            "    if wrap is None:\n        return None\n    if wrap_hash(wrap) != entry.wrapHash:\n",
        ),
        tests_of(
            "broken_keys",
            "no_missing_field_of_a_container_makes_a_client_read_or_write_without_it",
        ),
    ),
    against(
        4,
        "a user has an encryption key",
        Edit(_CHAIN, "        if len(chain.records) < 2:\n", "        if False:\n"),
        tests_of(
            "broken_keys", "no_missing_field_of_a_users_keys_makes_a_client_share_without_them"
        ),
    ),
    against(
        5,
        "a log-in compares the directory with the KeyRing",
        Edit(_ACCOUNTS, "    ring.check_chain(chain)\n", "    del chain\n"),
        tests_of(
            "keys",
            "a_log_in_fails_where_the_directory_has_not_exactly_the_key_rings_keys",
            "a_thief_who_adds_keys_to_an_account_does_not_go_unnoticed_at_the_next_log_in",
        ),
    ),
    against(
        6,
        "a broker gives no known id again",
        Edit(
            _REGISTRATION,
            "    if found is None or found.key_file != key_file or"
            " sql.key_chain(connection, user_id) != records:\n",
            "    if False:\n",
        ),
        tests_of("keys", "nobody_registers_other_keys_under_an_id_that_is_known_or_was_deleted"),
    ),
    against(
        6,
        "a fingerprint is that of the first key",
        Edit(
            _CHAIN,
            "        if fingerprint_of(first.publicKey) != first.fingerprint:\n",
            "        if False:\n",
        ),
        tests_of("keys", "nobody_registers_other_keys_under_an_id_that_is_known_or_was_deleted"),
    ),
    against(
        6,
        "a chain belongs to the user id that it was asked for",
        Edit(_DIRECTORY, "    if user_id_of(chain.fingerprint) != user:\n", "    if False:\n"),
        tests_of("keys", "a_broker_that_gives_a_known_id_to_somebody_else_is_refused_for_good"),
    ),
    against(
        6,
        "the pin",
        Edit(
            _DIRECTORY,
            "            if mark.fingerprint != chain.fingerprint:\n",
            "            if False:\n",
        ),
        tests_of("keys", "even_two_keys_of_one_user_id_are_told_apart_by_the_pin_and_the_mark"),
        Edit(_DIRECTORY, "            chain.check_mark(mark.sequence, mark.hash)\n", ""),
    ),
    against(
        6,
        "nothing follows the record that closes a chain",
        Edit(
            _CHAIN,
            "        if self.closed:\n"
            '            raise IntegrityError("A key record follows the one that closed the chain (K8).")\n',
            "",
        ),
        tests_of(
            "keys", "a_user_who_was_deleted_gets_no_key_any_more_of_a_device_that_has_seen_it"
        ),
    ),
    against(
        7,
        "signing keys of small order are refused",
        Edit(
            _VERIFY, "        if y >= _P or y in _ED25519_SMALL_ORDER_Y:\n", "        if False:\n"
        ),
        tests_of(
            "broken_keys",
            "nobody_registers_with_a_key_that_verifies_everything",
            "a_key_that_verifies_everything_is_refused_wherever_it_stands_in_a_chain",
        ),
    ),
    against(
        7,
        "encryption keys of small order are refused",
        Edit(_VERIFY, "    if u >= _P or u in _X25519_SMALL_ORDER_U:\n", "    if False:\n"),
        tests_of(
            "broken_keys",
            "nobody_registers_with_a_key_that_verifies_everything",
            "a_key_that_verifies_everything_is_refused_wherever_it_stands_in_a_chain",
        ),
    ),
    against(
        7,
        "signing keys that come later are looked at as well",
        Edit(
            _CHAIN,
            "        if kind is KeyType.Signing:\n            VerifyingKey(record.publicKey)\n"
            "        else:\n",
            "        if kind is not KeyType.Signing:\n",
        ),
        tests_of(
            "broken_keys",
            "a_key_that_verifies_everything_is_refused_wherever_it_stands_in_a_chain[later]",
        ),
    ),
    against(
        12,
        "a chain belongs to the user id that it was asked for",
        Edit(_DIRECTORY, "    if user_id_of(chain.fingerprint) != user:\n", "    if False:\n"),
        tests_of(
            "keys",
            "a_co_recipients_keys_are_not_swapped_when_access_changes_or_is_renewed[never met]",
        ),
    ),
    against(
        12,
        "who may decrypt and was given no key is told so",
        Edit(
            _READING,
            "    if entry.wrapHash is None:\n        if entry.allows(ContainerAccessLevel.Decrypt):\n",
            "    if entry.wrapHash is None:\n        if False:\n",
        ),
        tests_of("own_writes", "a_member_whom_a_writer_was_made_to_give_no_key_is_told_so"),
    ),
    against(
        12,
        "every key record is signed by signing key 0",
        Edit(_CHAIN, "        self._root.verify(LABEL, signed.body, signed.signature)\n", ""),
        tests_of(
            "keys",
            "a_co_recipients_keys_are_not_swapped_when_access_changes_or_is_renewed[met before]",
        ),
    ),
]

SHARING: Final = [
    against(
        3,
        "the list is the one that was signed",
        Edit(
            _JUDGE,
            "    if governing.accessList != list_hash(\n"
            "        record.containerId, governing.accessVersion, access.entryHashes\n"
            "    ):\n",
            "    if False:\n",
        ),
        tests_of("sharing", "nobody_is_let_in_by_a_list_that_the_broker_changed_before_a_write"),
    ),
    against(
        3,
        "an entry is the one that was signed",
        Edit(
            _LISTS,
            "            if salted.hash !="
            " entry_hashes[position * HASH_SIZE : (position + 1) * HASH_SIZE]:\n",
            "            if False:\n",
        ),
        tests_of("sharing", "nobody_is_let_in_by_a_list_that_the_broker_changed_before_a_write"),
    ),
    against(
        8,
        "the author's right to what a record does",
        Edit(_JUDGE, "    if not author.allows(needed):\n", "    if False:\n"),
        tests_of(
            "sharing",
            *(
                f"a_reader_who_has_the_container_key_replaces_and_deletes_nothing[{seen}-{what}]"
                for seen in ("fresh", "marked")
                for what in ("in their own name", "a header", "nothing", "a tombstone")
            ),
        ),
    ),
    against(
        8,
        "a record's signature",
        _NO_SIGNATURE,
        tests_of(
            "sharing",
            "a_reader_who_has_the_container_key_replaces_and_deletes_nothing"
            "[fresh-in the owner's name]",
        ),
    ),
    against(
        8,
        "the bytes of a part are those that were signed for",
        Edit(
            _RECORD,
            "\n        or segments_hash(part.paddedLength, hashes) != part.segments\n",
            "\n",
        ),
        tests_of("sharing", "a_reader_who_has_the_part_key_puts_no_other_bytes_in_a_part"),
    ),
    against(
        9,
        "nobody gives or takes what they do not hold (rule 4)",
        Edit(_JUDGE, "        if not author.allows(changed):\n", "        if False:\n"),
        tests_of(
            "sharing",
            *(
                f"nobody_gives_or_takes_what_they_do_not_hold[fresh-a manager {what}]"
                for what in (
                    "takes one right more",
                    "gives what they have not",
                    "takes the owner out",
                    "takes a right from the owner",
                )
            ),
        ),
    ),
    against(
        9,
        "who may not change access renews it at most (rule 5)",
        Edit(
            _JUDGE,
            "        _check_renewal(record, governing, access)\n    else:\n",
            "        pass\n    else:\n",
        ),
        tests_of(
            "sharing",
            *(
                f"nobody_gives_or_takes_what_they_do_not_hold[marked-a writer {what}]"
                for what in ("becomes a manager", "shares", "takes the owner out")
            ),
            "a_right_that_was_never_given_carries_no_later_record",
        ),
    ),
    against(
        9,
        "a renewal has a reason (rule 5)",
        Edit(
            _JUDGE,
            "    if governing.access.complete and not governing.needs_renewal(record.time):\n",
            "    if False:\n",
        ),
        tests_of(
            "sharing",
            "nobody_gives_or_takes_what_they_do_not_hold[fresh-a writer renews without a reason]",
        ),
    ),
    against(
        9,
        "nobody gives for longer than they have (rule 4)",
        Edit(
            _JUDGE,
            "        if (new_bits & ~old_bits or prolonged) and _end(new) > _end(author):\n",
            "        if False:\n",
        ),
        tests_of("sharing", "nobody_prolongs_access_beyond_the_end_of_their_own"),
    ),
    against(
        9,
        "key indices never fall (rule 4)",
        Edit(
            _JUDGE,
            "old is not None and entry.keyIndex < old.keyIndex and fingerprint != author:\n",
            "False:\n",
        ),
        tests_of("sharing", "no_member_moves_another_back_to_a_key_that_was_retired"),
    ),
    against(
        9,
        "but for one's own (rule 4)",
        Edit(
            _JUDGE,
            "entry.keyIndex < old.keyIndex and fingerprint != author:\n",
            "entry.keyIndex < old.keyIndex:\n",
        ),
        tests_of("sharing", "no_renewal_by_a_writer_keeps_an_owner_from_changing_access"),
    ),
    against(
        9,
        "a reader stands in the list that they are served",
        Edit(
            _READING,
            "    if not state.own_entry(reader).allows(ContainerAccessLevel.ViewAccess):\n",
            "    own = state.governing.access.entries.get(reader)\n"
            "    if own is None or not own.allows(ContainerAccessLevel.ViewAccess):\n",
        ),
        tests_of(
            "sharing",
            "a_writer_does_not_make_an_owners_device_believe_that_the_owner_was_removed",
        ),
    ),
    against(
        10,
        "the author is in the context of a segment",
        Edit(_RECORD, "        + author\n        + index", "        + index"),
        tests_of("sharing", "nobody_opens_the_owners_ciphertext_as_somebody_elses[fresh]"),
    ),
    against(
        10,
        "a carried part keeps its author (rule 2)",
        Edit(
            _JUDGE,
            "    same = (part.author, part.paddedLength, part.segments) == (\n"
            "        before.author,\n",
            "    same = (part.paddedLength, part.segments) == (\n",
        ),
        tests_of("sharing", "nobody_opens_the_owners_ciphertext_as_somebody_elses[marked]"),
        Edit(
            _JUDGE,
            "    if not same or (part.sealedKey == before.sealedKey) == resealed:\n",
            "    del resealed\n    if not same:\n",
        ),
    ),
    against(
        10,
        "a new part is its author's own (rule 2)",
        _NO_OWN_PART,
        tests_of("sharing", "a_record_whose_signature_was_stripped_is_nobody_elses"),
    ),
    against(
        10,
        "a segment opens where it was sealed",
        Edit(
            _RECORD,
            '        label("segment")\n        + container_id\n        + part_id\n'
            '        + bytes([role])\n        + author\n        + index.to_bytes(8, "big")\n',
            '        label("segment")\n        + index.to_bytes(8, "big")\n',
        ),
        tests_of("sharing", "a_ciphertext_does_not_open_in_a_container_of_somebody_elses"),
    ),
]


def _unbound(axis: str, what: str, edit: Edit, tests: list[str]) -> Mutation:
    return against(11, f"{what} is bound to its {axis}", edit, tests)


_PART_KEY: Final = (
    '    return label("part-key") + container_id + part_id + bytes([role]) + author\n'
)

SWAPS: Final = [
    *(
        _unbound(
            axis,
            "a wrap",
            Edit(_RECORD, old, new),
            tests_of(
                "swaps", f"a_wrap_opens_in_its_own_place_alone_whoever_signs_for_another[{move}]"
            ),
        )
        for axis, move, old, new in (
            (
                "container",
                "from_another_container",
                '        label("wrap")\n        + container_id\n',
                '        label("wrap")\n',
            ),
            (
                "version",
                "from_another_version",
                '        + governing.accessVersion.to_bytes(8, "big")\n',
                "",
            ),
            ("author", "from_another_author", "        + governing.accessAuthor\n", ""),
            ("recipient", "from_another_user", "        + recipient\n", ""),
        )
    ),
    against(
        11,
        "a wrap is opened with the key that its entry names",
        Edit(
            _READING,
            "    key = unwrap(entry.keyIndex, wrap, info)\n",
            "    info = wrap_info(state.container_id, governing, fingerprint, 0)\n"
            "    key = unwrap(0, wrap, info)\n",
        ),
        tests_of(
            "swaps",
            "a_wrap_opens_in_its_own_place_alone_whoever_signs_for_another[from_another_key]",
        ),
    ),
    *(
        _unbound(
            axis,
            "a part key",
            Edit(_RECORD, _PART_KEY, _PART_KEY.replace(term, "")),
            tests_of(
                "swaps",
                f"a_sealed_part_key_opens_in_its_own_place_alone_whoever_signs_for_another[{axis}]",
            ),
        )
        for axis, term in (
            ("container", " + container_id"),
            ("part", " + part_id"),
            ("role", " + bytes([role])"),
            ("author", " + author"),
        )
    ),
    *(
        _unbound(
            axis,
            "a segment",
            Edit(_RECORD, old, new),
            tests_of(
                "swaps",
                f"a_segment_opens_in_its_own_place_alone_whoever_signs_for_another[{axis}]",
            ),
        )
        for axis, old, new in (
            ("container", 'label("segment")\n        + container_id\n', 'label("segment")\n'),
            ("part", "+ container_id\n        + part_id\n", "+ container_id\n"),
            ("role", "+ part_id\n        + bytes([role])\n", "+ part_id\n"),
            ("author", "+ author\n        + index", "+ index"),
            ("index", '        + index.to_bytes(8, "big")\n', ""),
            ("last", "        + bytes([last])\n", ""),
        )
    ),
    against(
        11,
        "the wrap is the one that was signed",
        Edit(
            _READING,
            "    if wrap is None or wrap_hash(wrap) != entry.wrapHash:\n",
            "    if wrap is None:\n",
        ),
        tests_of("swaps", "no_wrap_or_part_is_taken_from_another_user_container_version_or_role"),
    ),
    against(
        11,
        "the segments are those that were signed",
        Edit(_SEALING, "        if sha256(sealed) != expected_hash:\n", "        if False:\n"),
        tests_of("swaps", "no_segment_is_taken_from_another_index_part_or_version"),
    ),
]

_NO_LINK: Final = Edit(
    _JUDGE,
    "        or (link.version, link.hash) != (governing.record.version, governing.hash)\n",
    "",
)
_NO_PARENTS_LINK: Final = Edit(
    _JUDGE, "    elif record.link != parent.record.link:\n", "    elif False:\n"
)
_SAME_KEY: Final = Edit(
    _JUDGE,
    "        if after.accessAuthor != record.author or"
    " after.keyCommitment == before.keyCommitment:\n",
    "        if after.accessAuthor != record.author:\n",
)
_KEY_STAYS: Final = Edit(
    _WRITING,
    "        container_key = random_bytes(KEY_SIZE)\n        access =",
    "        container_key = container_key or random_bytes(KEY_SIZE)\n        access =",
)
_RENEWAL: Final = "who_chose_the_key_and_is_out_has_no_key_that_later_writes_use"

REVOCATION: Final = [
    against(
        13,
        "a record links to the access in force, and that is what its author's right is judged by",
        _NO_LINK,
        tests_of(
            "revocation",
            "who_saw_the_revocation_takes_no_record_of_the_leavers_over_an_older_link"
            "[after what came later]",
            "who_saw_the_revocation_takes_no_record_of_the_leavers_over_an_older_link"
            "[beside what came later]",
        ),
        _NO_PARENTS_LINK,
        _ANY_AUTHOR,
        _NO_MARKS,
    ),
    against(
        13,
        "the mark of a container",
        _NO_MARKS,
        tests_of(
            "revocation",
            "who_saw_the_revocation_takes_no_record_of_the_leavers_over_an_older_link"
            "[beside the revocation]",
            "what_was_served_before_the_revocation_is_a_rollback_for_who_saw_it",
            "who_saw_the_revocation_is_not_made_to_forget_it_by_hiding_it",
        ),
    ),
    against(
        13,
        "an older head is a rollback",
        Edit(
            _READING,
            "    if mark is not None and last.version < mark.version:\n",
            "    if False:\n",
        ),
        tests_of(
            "revocation", "what_was_served_before_the_revocation_is_a_rollback_for_who_saw_it"
        ),
    ),
    against(
        13,
        "a change of access makes a container key of its own",
        _KEY_STAYS,
        tests_of(
            "revocation",
            "who_was_removed_opens_nothing_that_is_written_afterwards",
            "who_joins_or_comes_back_opens_nothing_that_was_overwritten_meanwhile",
        ),
        _SAME_KEY,
    ),
    *(
        against(
            13,
            f"the key is renewed where who chose it is {left}",
            Edit(_JUDGE, old, new),
            tests_of("revocation", f"{_RENEWAL}[{left}]"),
        )
        for left, old, new in (
            (
                "not in the list",
                "            author is None\n            or not author.allows",
                "            author is not None\n            and not author.allows",
            ),
            (
                "without Decrypt",
                "            or not author.allows(ContainerAccessLevel.Decrypt)\n",
                "",
            ),
        )
    ),
    against(
        13,
        "the key is renewed where who chose it is expired",
        Edit(
            _JUDGE,
            "            author is None\n            or not",
            "            False\n            or not",
        ),
        tests_of("revocation", f"{_RENEWAL}[expired]"),
    ),
    against(
        13,
        "a part that was sent under one container key is not used under another",
        _SENT_PARTS_STAY,
        tests_of(
            "revocation",
            "a_write_that_is_tried_again_over_a_revocation_uses_nothing_that_the_leaver_has",
        ),
    ),
    against(
        14,
        "who has expired has no rights",
        Edit(
            _LISTS,
            "        return None if entry is None or entry.is_expired(time) else entry\n",
            "        del time\n        return entry\n",
        ),
        tests_of("revocation", "who_has_expired_writes_nothing_even_before_the_next_write"),
    ),
    against(
        14,
        "the key is renewed where somebody has expired",
        Edit(
            _JUDGE,
            "            or any(entry.is_expired(time) for entry in self.access.entries.values())\n",
            "",
        ),
        tests_of(
            "revocation",
            "from_the_next_write_on_who_has_expired_opens_and_writes_nothing",
        ),
    ),
    against(
        14,
        "a renewal changes nobody's access (rule 5)",
        Edit(
            _JUDGE,
            "    if given != allowed or governing_of(record).type != governing.governing.type:\n",
            "    if governing_of(record).type != governing.governing.type:\n",
        ),
        tests_of("revocation", "nobody_ends_the_owners_access_by_an_expiry[fresh-a writer]"),
    ),
    against(
        14,
        "another expiry takes every right that it concerns (rule 4)",
        Edit(
            _JUDGE,
            "        if old and new and old.expiresAt != new.expiresAt:\n",
            "        if False:\n",
        ),
        tests_of("revocation", "nobody_ends_the_owners_access_by_an_expiry[marked-a manager]"),
    ),
    against(
        14,
        "no record is dated far ahead (rule 3)",
        Edit(_JUDGE, "    if record.time > now + READER_TOLERANCE:\n", "    if False:\n"),
        tests_of("revocation", "no_record_of_the_future_drops_who_has_not_expired_yet"),
    ),
]

SPLIT_VIEWS: Final = [
    against(
        15,
        "the commitment to the container key",
        Edit(
            _READING,
            "    if not equal(key_commitment(state.container_id, key), governing.keyCommitment):\n",
            "    if False:\n",
        ),
        tests_of(
            "split_views",
            "a_member_who_is_given_another_key_than_the_others_notices_and_writes_nothing_under_it",
        ),
    ),
    against(
        15,
        "a container's id is its creator's",
        Edit(
            _JUDGE,
            "    if container_id_of(record.author, record.nonce).bytes != record.containerId:\n",
            "    if False:\n",
        ),
        tests_of("split_views", "a_container_has_one_beginning_and_it_is_its_creators[fresh]"),
    ),
    against(
        15,
        "the mark of a container",
        _NO_MARKS,
        tests_of(
            "split_views",
            "a_container_has_one_beginning_and_it_is_its_creators[marked]",
            "of_two_records_of_one_version_that_a_writer_was_made_to_sign_one_is_believed",
        ),
    ),
    against(
        15,
        "a change of type needs ModifyType",
        Edit(
            _JUDGE,
            "    if after is not None and after.type != before.type:\n",
            "    if False:\n",
        ),
        tests_of(
            "split_views",
            "no_change_of_type_is_hidden_in_another_change[fresh-in a change of content]",
            "no_change_of_type_is_hidden_in_another_change[marked-in a change of access]",
        ),
    ),
    against(
        15,
        "a renewal keeps the type (rule 5)",
        Edit(
            _JUDGE,
            "    if given != allowed or governing_of(record).type != governing.governing.type:\n",
            "    if given != allowed:\n",
        ),
        tests_of(
            "split_views", "no_change_of_type_is_hidden_in_another_change[fresh-in a renewal]"
        ),
    ),
    against(
        15,
        "the type is the one that was signed",
        Edit(
            _READING,
            "    if type_hash(state.container_id, text.salt, text.type)"
            " != state.governing.governing.type:\n",
            "    if False:\n",
        ),
        tests_of("split_views", "two_members_are_not_shown_two_types_of_one_record"),
    ),
    against(
        15,
        "a new part is its author's own (rule 2)",
        _NO_OWN_PART,
        tests_of("split_views", "no_stale_part_comes_back_in_a_change_of_type"),
    ),
    against(
        15,
        "a part that was sent under one container key is not used under another",
        _SENT_PARTS_STAY,
        tests_of(
            "split_views",
            "two_renewals_that_a_writer_was_made_to_sign_share_neither_key_nor_part",
        ),
    ),
]

KEYS_AND_SHARING: Final[list[Mutation]] = [*KEYS, *SHARING, *SWAPS, *REVOCATION, *SPLIT_VIEWS]
