"""What is against attacks 25 to 34."""

from __future__ import annotations

from typing import Final

from tests.hostile_broker.mutations.edits import Edit, Mutation, against, tests_of

_KEYS: Final = "src/scbroker/keys.py"
_SEAL: Final = "src/scbroker/crypto/seal.py"
_CODEC: Final = "src/scbroker/wire/codec.py"
_MARKS: Final = "src/scbroker/client/users/key_files.py"
_CHAIN: Final = "src/scbroker/records/key_record.py"
_CLIENT: Final = "src/scbroker/client/users/credentials.py"
_RELEASE: Final = "src/scbroker/server/users/key_files.py"
_SESSIONS: Final = "src/scbroker/server/users/sessions.py"
_REMINDERS: Final = "src/scbroker/server/users/registration.py"
_DELETION: Final = "src/scbroker/server/users/deletion.py"
_GUESSES: Final = "src/scbroker/server/users/throttle.py"
_PASSES: Final = "src/scbroker/server/users/device_passes.py"
_DATABASE: Final = "src/scbroker/server/storage/database.py"
_NOT_OWN: Final = Edit(_DELETION, "        _check_own(user_id, order, message)\n", "")

_OPENING: Final = (
    "    decryptor = Cobblestone256Decryptor(key, context)\n"
    "    try:\n"
    "        return decryptor.update(sealed) + decryptor.finalize()\n"
)
# Cobblestone's one chunk by hand, as far as each mutation wants it.
_BY_HAND: Final = (
    "    from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes\n"
    "    from cryptography.hazmat.primitives.hashes import SHA512\n"
    "    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand\n"
    '    info = b"c2sp.org/chunked-encryption@v1+AEAD_AES_256_GCM\\0" + sealed[:24] + context\n'
    "    okm = HKDFExpand(SHA512(), 76, info).derive(key)\n"
    "    try:\n"
)
_NO_COMMITMENT: Final = Edit(
    _SEAL,
    _OPENING,
    f'{_BY_HAND}        return aead.AESGCM(okm[:32]).decrypt(okm[32:44], bytes(sealed[56:]), b"")\n',
)
_NO_AUTHENTICATION: Final = Edit(
    _SEAL,
    _OPENING,
    f'{_BY_HAND}        counter = modes.CTR(okm[32:44] + b"\\0\\0\\0\\2")\n'
    "        cipher = Cipher(algorithms.AES256(okm[:32]), counter)\n"
    "        return cipher.decryptor().update(bytes(sealed[56:-16]))\n",
)
_COST: Final = "salt=salt, length=HASH_SIZE, iterations=3, lanes=4, memory_cost=65_536\n"
_PARSED: Final = (
    "    return decode_object(_KeyFileBytes, data[len(MAGIC) :], MAX_KEY_FILE - len(MAGIC))\n"
)

DERIVATION: Final = [
    against(
        25,
        "a KeyFile has its own fields and no others",
        Edit(
            _KEYS,
            _PARSED,
            "    import msgspec\n"
            "    row = msgspec.msgpack.decode(data[len(MAGIC) + 1 :])\n"
            "    return _KeyFileBytes(*list(row)[:4])\n",
        ),
        tests_of("key_files", "no_key_file_names_a_derivation_and_nothing_but_auth_is_sent"),
    ),
    against(
        25,
        "the passes are the format's",
        Edit(_SEAL, _COST, _COST.replace("iterations=3", "iterations=1 + salt[0] % 2")),
        tests_of(
            "key_files",
            "no_key_file_names_a_derivation_and_nothing_but_auth_is_sent",
            "no_refusal_makes_a_client_derive_again_in_another_way",
            "a_log_in_derives_twice_at_the_same_cost_and_only_the_salt_is_the_key_files",
        ),
    ),
    against(
        25,
        "the salt of the passphrase is no broker's to choose",
        Edit(
            _KEYS,
            '        salt = labelled_hash("passphrase-salt", user_id.bytes)\n',
            "        salt = bytes(32)\n",
        ),
        tests_of("key_files", "no_key_file_names_a_derivation_and_nothing_but_auth_is_sent"),
    ),
    against(
        25,
        "an answer has no further fields",
        Edit(
            _CODEC,
            "class Message(msgspec.Struct, forbid_unknown_fields=True, frozen=True):\n",
            "class Message(msgspec.Struct, forbid_unknown_fields=False, frozen=True):\n",
        ),
        tests_of("key_files", "no_answer_of_a_log_in_carries_parameters"),
    ),
    against(
        26,
        "a salt is 32 bytes",
        Edit(_KEYS, "    passwordSalt: Bin32\n", "    passwordSalt: bytes\n"),
        tests_of(
            "key_files", "no_length_and_no_count_of_a_key_file_reaches_argon2id_or_the_memory"
        ),
    ),
    against(
        26,
        "the memory is the format's",
        Edit(_SEAL, _COST, _COST.replace("65_536", "65_536 + salt[0] + 1")),
        tests_of(
            "key_files",
            "no_length_and_no_count_of_a_key_file_reaches_argon2id_or_the_memory",
            "a_log_in_derives_twice_at_the_same_cost_and_only_the_salt_is_the_key_files",
        ),
    ),
    against(
        26,
        "parts have a limit",
        Edit(
            _KEYS,
            "    passwordPart: Annotated[bytes, Meta(max_length=49_152)]\n",
            "    passwordPart: bytes\n",
        ),
        tests_of(
            "key_files", "no_length_and_no_count_of_a_key_file_reaches_argon2id_or_the_memory"
        ),
    ),
]

KEY_FILE: Final = [
    against(
        27,
        "what is sealed is committed to one key",
        _NO_COMMITMENT,
        tests_of("key_files", "no_key_file_opens_under_two_passphrases_and_all_of_them_fail_alike"),
    ),
    against(
        27,
        "a wrong secret and a damaged file are one error",
        Edit(
            _KEYS,
            "    except DecryptionError:  # whichever step it was\n"
            "        raise DecryptionError(_WRONG) from None\n",
            "    except DecryptionError:\n        raise\n",
        ),
        tests_of("key_files", "no_key_file_opens_under_two_passphrases_and_all_of_them_fail_alike"),
        Edit(
            _SEAL,
            "        return decryptor.update(sealed) + decryptor.finalize()\n"
            "    except InvalidTag:\n"
            "        raise DecryptionError(_CANNOT_OPEN) from None\n",
            "        return decryptor.update(sealed) + decryptor.finalize()\n"
            "    except InvalidTag:\n"
            "        raise DecryptionError(f'{_CANNOT_OPEN} {len(sealed)}') from None\n",
        ),
    ),
    against(
        28,
        "what is sealed is authenticated",
        _NO_AUTHENTICATION,
        tests_of(
            "key_files",
            "a_key_file_with_any_byte_flipped_opens_with_neither_secret",
            "a_log_in_with_a_flipped_byte_fails_before_anything_is_signed",
        ),
    ),
    against(
        28,
        "the passphrase part is for one password part",
        Edit(
            _KEYS,
            '    return label("keyfile-passphrase") + fingerprint + sha256(salt + password_part)\n',
            '    return label("keyfile-passphrase") + fingerprint\n',
        ),
        tests_of("key_files", "nothing_of_an_older_key_file_is_spliced_into_a_newer_one"),
    ),
    against(
        28,
        "a KeyRing is the one of the file's fingerprint",
        Edit(
            _KEYS,
            "        _overwrite(plaintext)\n    if ring.rawFingerprint != found.fingerprint:\n",
            "        _overwrite(plaintext)\n    if False:\n",
        ),
        tests_of(
            "key_files", "a_key_ring_of_the_attackers_does_not_open_even_under_the_right_secrets"
        ),
    ),
    against(
        31,
        "a file is for the user that was asked for",
        Edit(_KEYS, "    if user_id_of(found.fingerprint) != user_id:\n", "    if False:\n"),
        tests_of(
            "key_files",
            "another_users_key_file_is_refused_by_its_name_and_under_ones_own_name_does_not_open",
            "a_user_who_knows_the_passphrase_does_not_pass_their_key_ring_off_as_its_owners",
        ),
    ),
    against(
        31,
        "a KeyRing is the one of the file's fingerprint",
        Edit(
            _KEYS,
            "        _overwrite(plaintext)\n    if ring.rawFingerprint != found.fingerprint:\n",
            "        _overwrite(plaintext)\n    if False:\n",
        ),
        tests_of(
            "key_files",
            "a_user_who_knows_the_passphrase_does_not_pass_their_key_ring_off_as_its_owners",
        ),
    ),
]

OLD_KEY_FILE: Final = [
    against(
        29,
        "the mark of the newest KeyFile",
        Edit(
            _MARKS,
            "    if opened.ring.generation < mark.generation:\n"
            "        raise RollbackError(_OLDER)\n"
            "    if opened.ring.generation == mark.generation:\n",
            "    if opened.ring.generation == mark.generation:\n",
        ),
        tests_of(
            "old_key_files",
            "an_old_key_file_is_a_rollback_where_a_newer_one_was_seen_also_after_a_restart",
        ),
    ),
    against(
        29,
        "of one generation there is one KeyFile",
        Edit(_MARKS, "    if found != seen:\n", "    if False:\n"),
        tests_of(
            "old_key_files",
            "nothing_is_stored_in_the_place_of_an_old_key_file_that_the_broker_names",
        ),
    ),
    against(
        29,
        "what the broker says is stored is nothing older than the mark",
        Edit(
            _MARKS,
            "    if mark is not None and state.generation < mark.generation:\n",
            "    if False:\n",
        ),
        tests_of(
            "old_key_files",
            "nothing_is_stored_in_the_place_of_an_old_key_file_that_the_broker_names",
        ),
    ),
    against(
        29,
        "a KeyFile has every published key",
        Edit(_KEYS, "            if len(keys) > shared:\n", "            if False:\n"),
        tests_of(
            "old_key_files",
            "an_old_key_file_on_a_fresh_device_is_the_limit_unless_keys_were_added_since",
        ),
    ),
    against(
        30,
        "a rotation makes new keys",
        Edit(
            _MARKS,
            "fresh=compromised)\n",
            "fresh=False)\n",
        ),
        tests_of(
            "old_key_files",
            "after_a_rotation_an_old_key_file_opens_what_was_wrapped_before_as_the_limit_and_no_new_wrap",
        ),
    ),
    against(
        30,
        "a rotation retires the old keys",
        Edit(
            _KEYS,
            "        return self._sign([*introduced, *retired], len(chain.records), chain.hashes[-1])\n",
            "        return self._sign(introduced, len(chain.records), chain.hashes[-1])\n",
        ),
        tests_of(
            "old_key_files",
            "no_record_of_a_retired_key_is_taken_from_its_retirement_on_and_backdating_is_the_limit",
        ),
    ),
    against(
        30,
        "a retired key signs nothing that is dated after its retirement",
        Edit(
            _CHAIN,
            "        if key is None or not key.is_good_at(time):\n",
            "        if key is None:\n",
        ),
        tests_of(
            "old_key_files",
            "no_record_of_a_retired_key_is_taken_from_its_retirement_on_and_backdating_is_the_limit",
        ),
    ),
    against(
        30,
        "a broker takes nothing that a retired key signed",
        Edit(
            _CHAIN,
            "        if key is None or key.retired is not None:\n",
            "        if key is None:\n",
        ),
        tests_of(
            "old_key_files",
            "no_record_of_a_retired_key_is_taken_from_its_retirement_on_and_backdating_is_the_limit",
        ),
    ),
    against(
        30,
        "new wraps go to the latest active key",
        Edit(
            _CHAIN,
            "        return self.of_type(kind)[-1]\n",
            "        return self.of_type(kind)[0 if kind is KeyType.Encryption else -1]\n",
        ),
        tests_of(
            "old_key_files",
            "after_a_rotation_an_old_key_file_opens_what_was_wrapped_before_as_the_limit_and_no_new_wrap",
        ),
    ),
]

GUESSING: Final = [
    against(
        32,
        "the verifier is not what is proved with",
        Edit(
            _RELEASE,
            '    return broker.keyed("verifier", user_id, auth)\n',
            "    del broker, user_id\n    return auth\n",
        ),
        tests_of(
            "guessing",
            "no_value_of_the_stored_row_logs_in_or_opens_the_key_file",
            "the_verifier_is_no_prefix_of_any_key_and_no_key_stands_in_the_database",
        ),
    ),
    against(
        32,
        "the verifier is under a key that is not in the database",
        Edit(
            _RELEASE,
            '    return broker.keyed("verifier", user_id, auth)\n',
            "    del broker\n    return sha256(user_id + auth)\n",
        ),
        tests_of(
            "guessing", "the_verifier_is_no_prefix_of_any_key_and_no_key_stands_in_the_database"
        ),
    ),
    against(
        32,
        "what proves the passphrase opens nothing",
        Edit(
            _KEYS,
            '            derive_key(root, "passphrase-auth", user_id.bytes),\n',
            '            derive_key(root, "passphrase-wrap", user_id.bytes),\n',
        ),
        tests_of("guessing", "no_value_of_the_stored_row_logs_in_or_opens_the_key_file"),
    ),
    against(
        32,
        "a guess costs an Argon2id",
        Edit(_SEAL, _COST, _COST.replace("65_536", "64")),
        tests_of(
            "guessing",
            "a_stolen_key_file_is_guessed_at_for_one_argon2id_each_and_that_is_the_limit",
        ),
    ),
    against(
        33,
        "an unknown user's KeyFile is refused like any other",
        Edit(
            _RELEASE,
            "    if not equal(verifier, stored) or row is None:\n",
            "    if row is None:\n"
            '        raise CredentialsError("There is no KeyFile of this user.")\n'
            "    if not equal(verifier, stored):\n",
        ),
        [
            *tests_of(
                "guessing", "a_stranger_gets_one_answer_for_every_user_known_or_not[KeyFile]"
            ),
            *tests_of(
                "guessing",
                "a_client_tells_a_wrong_passphrase_from_an_unknown_user_no_more_than_the_broker",
            ),
        ],
    ),
    against(
        33,
        "an unknown user's log-in is refused like any other",
        Edit(
            _SESSIONS,
            "        if user is None or user.deleted:\n"
            "            raise ChallengeError(challenges.REFUSED)\n",
            "        if user is None or user.deleted:\n"
            '            raise ChallengeError("There is no such user.")\n',
        ),
        tests_of("guessing", "a_stranger_gets_one_answer_for_every_user_known_or_not[log-in]"),
    ),
    against(
        33,
        "an unknown user's deletion is refused like any other",
        Edit(
            _DELETION,
            "        if user is None:\n            raise ChallengeError(challenges.REFUSED)\n",
            '        if user is None:\n            raise ChallengeError("There is no such user.")\n',
        ),
        tests_of("guessing", "a_stranger_gets_one_answer_for_every_user_known_or_not[deletion]"),
        _NOT_OWN,
    ),
    against(
        33,
        "of a deleted user, too, only their own signature is believed",
        _NOT_OWN,
        tests_of("guessing", "a_stranger_gets_one_answer_for_every_user_known_or_not[deletion]"),
    ),
    against(
        33,
        "an unknown user's reminder is empty like an unset one",
        Edit(
            _REMINDERS,
            '    return ReminderAnswer(reminder="" if row is None else row.reminder)\n',
            "    if row is None:\n"
            '        raise NotFoundError("There is no such user.")\n'
            "    return ReminderAnswer(reminder=row.reminder)\n",
        ),
        tests_of(
            "guessing", "a_stranger_gets_one_answer_for_every_user_known_or_not[unset reminder]"
        ),
    ),
    against(
        33,
        "only who has a session asks for public keys",
        Edit(
            "src/scbroker/server/app.py",
            "              u.KeyRecordsRequest, u.KeyRecords),\n",
            "              u.KeyRecordsRequest, u.KeyRecords, session=False),\n",
        ),
        tests_of(
            "guessing",
            "a_stranger_gets_one_answer_for_every_user_known_or_not[keys without a session]",
        ),
    ),
    against(
        33,
        "a user's KeyFile is compared in their own session alone",
        Edit(
            "src/scbroker/client/server_provider.py",
            "        if userId != session.userId:\n            raise InvalidArgumentError(\n",
            "        if False:\n            raise InvalidArgumentError(\n",
        ),
        tests_of("guessing", "a_sync_says_nothing_of_any_user_but_the_sessions_own"),
    ),
    *(
        against(
            33,
            f"guesses are counted {how}",
            Edit(_GUESSES, line, ""),
            tests_of("guessing", *names),
        )
        for how, line, names in (
            (
                "by user and address",
                '        broker.keyed("guess-pair", user_id, address): settings.guesses,\n',
                ["a_throttled_stranger_gets_one_answer_for_every_user_known_or_not"],
            ),
            (
                "by user",
                '        broker.keyed("guess-user", user_id): settings.guesses_user,\n',
                [
                    "guesses_are_throttled_by_user_and_by_address_and_a_delay_of_new_devices_is_the_limit"
                ],
            ),
            (
                "by address",
                '        broker.keyed("guess-address", address): settings.guesses_address,\n',
                [
                    "guesses_are_throttled_by_user_and_by_address_and_a_delay_of_new_devices_is_the_limit"
                ],
            ),
        )
    ),
]

_STOLEN: Final = (
    "a_stolen_pass_buys_as_many_guesses_as_an_address_and_collected_ones_as_many_as_a_user"
)
_TOGETHER: Final = '            broker.keyed("guess-passes", user_id): settings.guesses_user,\n'

DEVICE_PASSES: Final = [
    against(
        33,
        "a device that was in before is counted apart",
        Edit(
            _GUESSES,
            "    if device_pass is not None and device_passes.is_pass_of(broker, user_id, device_pass):\n",
            "    if False:\n",
        ),
        tests_of("guessing", "strangers_who_guess_lock_no_device_out_that_was_in_before"),
    ),
    against(
        33,
        "a device that was in before is not counted with its address",
        Edit(
            _GUESSES,
            _TOGETHER,
            f"{_TOGETHER}            "
            'broker.keyed("guess-address", address_block(call.address)): settings.guesses_address,\n',
        ),
        tests_of("guessing", "strangers_who_guess_lock_no_device_out_that_was_in_before"),
    ),
    against(
        33,
        "a device that was in before is not counted with its user",
        Edit(_GUESSES, 'broker.keyed("guess-passes"', 'broker.keyed("guess-user"'),
        tests_of("guessing", "strangers_who_guess_lock_no_device_out_that_was_in_before"),
    ),
    against(
        33,
        "a pass proves itself",
        Edit(
            _PASSES,
            '    return equal(broker.keyed("device-pass", user_id, device_id), tag)\n',
            "    return len(device_id + tag) == len(device_pass)\n",
        ),
        tests_of("guessing", "a_pass_that_is_made_up_changed_or_another_users_is_worth_nothing"),
    ),
    against(
        33,
        "a pass is for one user",
        Edit(
            _PASSES,
            '    return equal(broker.keyed("device-pass", user_id, device_id), tag)\n',
            '    return equal(broker.keyed("device-pass", device_id), tag)\n',
        ),
        tests_of("guessing", "a_pass_that_is_made_up_changed_or_another_users_is_worth_nothing"),
        Edit(
            _PASSES,
            '    return device_id + broker.keyed("device-pass", user_id, device_id)\n',
            '    return device_id + broker.keyed("device-pass", device_id)\n',
        ),
    ),
    against(
        33,
        "a pass buys few guesses",
        Edit(
            _GUESSES,
            '            broker.keyed("guess-pass", user_id, device_pass): settings.guesses,\n',
            "",
        ),
        tests_of("guessing", _STOLEN),
    ),
    against(
        33,
        "all passes of a user have one limit together",
        Edit(_GUESSES, _TOGETHER, ""),
        tests_of("guessing", _STOLEN),
    ),
]

REMINDERS: Final = [
    against(
        34,
        "no log has what a statement was given",
        Edit(
            _DATABASE,
            "        hide_parameters=True,  # an error is logged, and what users sent is not for a log\n",
            "",
        ),
        tests_of(
            "guessing", "a_fault_of_the_brokers_database_puts_nothing_of_the_request_into_its_log"
        ),
    ),
    against(
        34,
        "no log has what a statement was given, on PostgreSQL",
        Edit(_DATABASE, "            hide_parameters=True,\n", ""),
        tests_of(
            "guessing",
            "the_other_engine_keeps_what_a_statement_was_given_out_of_its_errors_as_well",
        ),
    ),
    against(
        34,
        "reminders are throttled",
        Edit(_REMINDERS, "    await throttle.count_reminder(broker, call)\n", ""),
        tests_of("guessing", "reminders_are_throttled_by_address_known_users_or_not"),
    ),
    against(
        34,
        "a reminder with a secret in it is refused",
        Edit(
            _CLIENT,
            "    return any(_folded(secret) in _folded(reminder) for secret in secrets)\n",
            "    return reminder in secrets\n",
        ),
        tests_of(
            "guessing",
            *(
                "a_reminder_with_a_secret_in_any_spelling_is_refused_before_anything_is_sent"
                f"[{which}]"
                for which in ("the password", "the passphrase", "in capitals")
            ),
        ),
    ),
    against(
        34,
        "a secret is found in every spelling",
        Edit(
            _CLIENT,
            '    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())\n',
            "    return text.casefold()\n",
        ),
        tests_of(
            "guessing",
            *(
                "a_reminder_with_a_secret_in_any_spelling_is_refused_before_anything_is_sent"
                f"[{which}]"
                for which in (
                    "in wide letters",
                    "with the accent apart",
                    "in capitals with the accent apart",
                )
            ),
        ),
    ),
    against(
        34,
        "a reminder that stays is looked at beside new secrets",
        Edit(_MARKS, "    if given is None:\n", "    if False:\n"),
        tests_of(
            "guessing", "a_reminder_that_stays_does_not_come_to_contain_the_secret_that_is_chosen"
        ),
    ),
    against(
        34,
        "the reminder is in the answer to its question alone",
        Edit(
            _RELEASE,
            "            hash=None if stored is None else stored.key_file_hash,\n",
            "            hash=None if stored is None else stored.key_file_hash,\n"
            '            reminder="" if stored is None else stored.reminder,\n',
        ),
        tests_of("guessing", "a_reminder_travels_by_its_own_operation_alone"),
        Edit(
            "src/scbroker/wire/users.py",
            "class KeyFileState(Message, frozen=True, kw_only=True):\n",
            'class KeyFileState(Message, frozen=True, kw_only=True):\n    reminder: str = ""\n',
        ),
    ),
]

CREDENTIALS: Final[list[Mutation]] = [
    *DERIVATION,
    *KEY_FILE,
    *OLD_KEY_FILE,
    *GUESSING,
    *DEVICE_PASSES,
    *REMINDERS,
]
