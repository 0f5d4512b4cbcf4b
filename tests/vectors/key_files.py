"""KeyFiles, with Argon2id at its real price: docs/spec/keyfile.md."""

from functools import cache
from typing import Any

import msgspec

from scbroker.crypto.seal import derive_key, pad_secret, seal, secret_bytes, stretch
from scbroker.crypto.verify import label, labelled_hash, sha256
from scbroker.keys import MAGIC, PassphraseKeys
from scbroker.records.canonical import VERSION
from tests.vectors.cast import Person, cast, chosen, decryption_key, signing_key
from tests.vectors.files import Vector, encoded, flipped, invalid, store, valid

PASSWORD, PASSPHRASE = "correct horse", "eight words that nobody else would think of"
INTEGRITY, DECRYPTION, SUBSTITUTION = "integrity", "decryption", "key-substitution"


@cache
def passphrase_keys(passphrase: str, who: Person) -> PassphraseKeys:
    return PassphraseKeys.derive(passphrase, who.chain().userId)


@cache
def password_key(password: bytes, salt: bytes, fingerprint: bytes) -> bytes:
    return derive_key(stretch(password, salt), "password-wrap", fingerprint)


def ring_row(who: Person, generation: int = 1, keys: int = 1) -> list[Any]:
    return [
        who.fingerprint,
        generation,
        [list(signing_key(who.name, n).seeds) for n in range(keys)],
        [list(decryption_key(who.name, n).seeds) for n in range(keys)],
    ]


def written(
    ring: bytes,
    *,
    password: bytes = PASSWORD.encode(),
    padded: bytes | None = None,
    salt: bytes = chosen("password salt"),
    owner: Person | None = None,
    wrap: bytes | None = None,
) -> bytes:
    """A KeyFile, of Alice's unless said, by the words of the spec; `padded` puts something else in."""
    owner = owner or cast()["alice"]
    fingerprint = owner.fingerprint
    password_part = seal(
        password_key(password, salt, fingerprint),
        label("keyfile-password") + fingerprint + salt,
        ring,
    )
    passphrase_part = seal(
        passphrase_keys(PASSPHRASE, owner).wrap if wrap is None else wrap,
        label("keyfile-passphrase") + fingerprint + sha256(salt + password_part),
        pad_secret(password) if padded is None else padded,
    )
    fields = [fingerprint, salt, passphrase_part, password_part]
    return assembled(fields)


def parts_of(file: bytes) -> list[Any]:
    return list(msgspec.msgpack.decode(file[17:]))


def assembled(fields: list[Any]) -> bytes:
    return MAGIC + VERSION + msgspec.msgpack.encode(fields)


def make() -> None:
    alice = cast()["alice"]
    good = encoded(ring_row(alice))
    file, salted = written(good), written(good, salt=chosen("another password salt"))
    keys = passphrase_keys(PASSPHRASE, alice)
    fields = {"userId": str(alice.chain().userId), "passphrase": PASSPHRASE, "password": None}
    both = {**fields, "password": PASSWORD}
    generation_2 = encoded(ring_row(alice, 2, 2))
    ligature = "e\u0301\ufb01 ①"  # what NFKC changes
    longest = "ö" * 511 + "x"
    vectors: list[Vector] = [
        valid("key file", "With the passphrase alone.", **fields, keyFile=file, keyRing=good,
              auth=keys.auth, wrap=keys.wrap, generation=1,
              passwordKey=password_key(PASSWORD.encode(), chosen("password salt"),
                                       alice.fingerprint)),
        valid("with both secrets", "The password is the one inside.", **both, keyFile=file,
              keyRing=good, auth=keys.auth, wrap=keys.wrap, generation=1),
        valid("another password salt", "The other values are those of the first file.", **fields,
              keyFile=salted, keyRing=good, auth=keys.auth, wrap=keys.wrap, generation=1,
              passwordKey=password_key(PASSWORD.encode(), chosen("another password salt"),
                                       alice.fingerprint)),
        valid("two keys of each type", "Generation 2.", **both, keyFile=written(generation_2),
              keyRing=generation_2, auth=keys.auth, wrap=keys.wrap, generation=2),
        valid("password under NFKC", "Written in one form, given in another.",
              **{**fields, "password": ligature},
              keyFile=written(good, password=secret_bytes("éfi 1")), keyRing=good, auth=keys.auth,
              wrap=keys.wrap, generation=1),
        valid("password beyond Unicode 3.2", "U+1E030 and U+1F110 stay, the ligature between them does not.",
              **{**fields, "password": "\U0001e030\ufb01\U0001f110"},
              keyFile=written(good, password="\U0001e030fi\U0001f110".encode()), keyRing=good,
              auth=keys.auth, wrap=keys.wrap, generation=1),
        valid("password whose runs are not joined", "A mark of Unicode 4.1 stays between two of Unicode 3.2.",
              **{**fields, "password": "e\u1dc3\u0327\u0301"},
              keyFile=written(good, password="e\u1dc3\u0327\u0301".encode()), keyRing=good,
              auth=keys.auth, wrap=keys.wrap, generation=1),
        valid("longest password", "1,023 bytes.", **{**fields, "password": longest},
              keyFile=written(good, password=longest.encode()), keyRing=good, auth=keys.auth,
              wrap=keys.wrap, generation=1),
        *formats(file, fields),
        *wrong_secrets(file, fields),
        *spliced(file, salted, good, fields),
        *paddings(file, good, fields),
        *foreign(good, fields),
        *rings(fields),
    ]  # fmt: skip
    store(
        "key_files",
        "docs/spec/keyfile.md, 2. `keyFile` is opened for `userId` with `passphrase` and, where it is "
        "not null, `password`; `keyRing` is what the password part holds. The password salt is the same in "
        "all files but one, to save time.",
        vectors,
    )


def formats(file: bytes, fields: dict[str, Any]) -> list[Vector]:
    def put(position: int, value: Any) -> bytes:
        row = parts_of(file)
        row[position] = value
        return assembled(row)

    faults = {
        "wrong magic": ("Upper case.", b"S" + file[1:]),
        "no magic": ("The rest of it.", file[16:]),
        "wrong version byte": ("02.", file[:16] + b"\x02" + file[17:]),
        "trailing byte": ("00.", file + b"\0"),
        "truncated": ("A byte is missing.", file[:-1]),
        "magic alone": ("16 bytes.", file[:16]),
        "empty": ("No bytes.", b""),
        "not shortest": ("The fingerprint with c5 0020.", file[:18] + b"\xc5\0" + file[19:]),
        "three elements": ("No password part.", assembled(parts_of(file)[:3])),
        "short salt": ("31 bytes.", put(1, bytes(31))),
        "password part too large": ("49,153 bytes.", put(3, bytes(49_153))),
    }
    found = [
        invalid(name, comment, INTEGRITY, **fields, keyFile=data)
        for name, (comment, data) in faults.items()
    ]
    alice = cast()["alice"].fingerprint
    found.append(
        invalid("a fingerprint with the same id", "It differs behind the first 122 bits.",
                DECRYPTION, **fields, keyFile=put(0, flipped(alice, 31)))
    )  # fmt: skip
    return found


def foreign(ring: bytes, fields: dict[str, Any]) -> list[Vector]:
    """Files that open for the user who is asked for, and are another user's."""
    alice, bob = cast()["alice"], cast()["bob"]
    for_bob = {**fields, "userId": str(bob.chain().userId)}
    return [
        invalid("asked for another user", "Alice's file, sealed under Bob's id.", SUBSTITUTION, **for_bob,
                keyFile=written(ring, wrap=passphrase_keys(PASSPHRASE, bob).wrap)),
        invalid("another fingerprint", "Bob's file, sealed under Alice's id.", SUBSTITUTION, **fields,
                keyFile=written(encoded(ring_row(bob)), owner=bob,
                                wrap=passphrase_keys(PASSPHRASE, alice).wrap)),
        invalid("empty passphrase", "The file is sealed under none.", "invalid",
                **{**fields, "passphrase": ""}, keyFile=written(ring, wrap=wrap_of(b"", alice))),
    ]  # fmt: skip


def wrap_of(passphrase: bytes, who: Person) -> bytes:
    """By the words of the spec: the writer refuses a passphrase of no bytes."""
    user_id = who.chain().userId.bytes
    root = stretch(passphrase, labelled_hash("passphrase-salt", user_id))
    return derive_key(root, "passphrase-wrap", user_id)


def wrong_secrets(file: bytes, fields: dict[str, Any]) -> list[Vector]:
    return [
        invalid("wrong passphrase", "A letter more.", DECRYPTION,
                **{**fields, "passphrase": PASSPHRASE + "s"}, keyFile=file),
        invalid("wrong password", "A letter more.", "credentials",
                **{**fields, "password": PASSWORD + "s"}, keyFile=file),
        invalid("password as passphrase", "In its place.", DECRYPTION,
                **{**fields, "passphrase": PASSWORD}, keyFile=file),
        invalid("passphrase as password", "In its place.", "credentials",
                **{**fields, "password": PASSPHRASE}, keyFile=file),
    ]  # fmt: skip


def spliced(file: bytes, salted: bytes, ring: bytes, fields: dict[str, Any]) -> list[Vector]:
    fingerprint, salt, passphrase_part, password_part = parts_of(file)
    other = parts_of(written(ring, salt=salt))
    fresh = parts_of(salted)

    rows = {
        "an older password part": [fingerprint, salt, passphrase_part, other[3]],
        "an older passphrase part": [fingerprint, salt, other[2], password_part],
        "another salt": [fingerprint, fresh[1], passphrase_part, password_part],
        "salt and password part of another file": [fingerprint, *fresh[1:2], passphrase_part,
                                                   fresh[3]],
        "password part twice": [fingerprint, salt, password_part, password_part],
        "passphrase part twice": [fingerprint, salt, passphrase_part, passphrase_part],
        "passphrase part changed": [fingerprint, salt, flipped(passphrase_part, -1), password_part],
        "password part changed": [fingerprint, salt, passphrase_part, flipped(password_part, -1)],
        "passphrase part empty": [fingerprint, salt, b"", password_part],
        "password part empty": [fingerprint, salt, passphrase_part, b""],
    }  # fmt: skip
    return [
        invalid(name, "The parts do not belong together.", DECRYPTION, **fields,
                keyFile=assembled(row))
        for name, row in rows.items()
    ]  # fmt: skip


def paddings(file: bytes, ring: bytes, fields: dict[str, Any]) -> list[Vector]:
    secret = PASSWORD.encode()
    good = pad_secret(secret)
    cases = {
        "no mark": secret + bytes(128 - len(secret)),
        "another mark": secret + b"\x81" + bytes(127 - len(secret)),
        "not zero": good[:-1] + b"\x01",
        "a block more": good + bytes(128),
        "a byte less": good[:-1],
        "no padding": secret,
        "mark alone": secret + b"\x80",
        "empty password": pad_secret(b""),
        "nothing": b"",
        "zeros": bytes(128),
    }
    empty = ("empty password", "nothing", "zeros")
    found = [
        invalid(f"padding, {name}", "Not the one form.", DECRYPTION, **fields,
                keyFile=written(ring, password=b"" if name in empty else secret, padded=padded))
        for name, padded in cases.items()
    ]  # fmt: skip
    found.append(
        invalid("passphrase part too large", "1,201 bytes.", INTEGRITY, **fields, keyFile=assembled(
            [*parts_of(file)[:2], bytes(1201), parts_of(file)[3]]))
    )  # fmt: skip
    return found


def rings(fields: dict[str, Any]) -> list[Vector]:
    alice, bob = cast()["alice"], cast()["bob"]
    good = ring_row(alice)
    swapped = [alice.fingerprint, *ring_row(bob)[1:]]
    cases = {
        "another user's KeyRing": encoded(ring_row(bob)),
        "KeyRing of other keys": encoded(swapped),
        "KeyRing of version 2": b"\x02" + encoded(good)[1:],
        "KeyRing with a trailing byte": encoded(good) + b"\0",
        "KeyRing of generation 0": encoded(ring_row(alice, 0)),
        "KeyRing without signing keys": encoded([*good[:2], [], good[3]]),
        "KeyRing without encryption keys": encoded([*good[:3], []]),
        "KeyRing of 257 signing keys": encoded(
            [
                *good[:2],
                [*good[2], *([chosen("more", n), chosen("seeds", n)] for n in range(256))],
                good[3],
            ]
        ),
        "KeyRing of 257 encryption keys": encoded(
            [
                *good[:3],
                [*good[3], *([chosen("more", n, size=64), chosen("seeds", n)] for n in range(256))],
            ]
        ),
        "KeyRing with a short seed": encoded(
            [*good[:2], [[good[2][0][0][:31], good[2][0][1]]], good[3]]
        ),
        "empty KeyRing": b"",
    }
    return [
        invalid(name, "It opens, and is none.", DECRYPTION, **fields, keyFile=written(ring),
                keyRing=ring)
        for name, ring in cases.items()
    ]  # fmt: skip
