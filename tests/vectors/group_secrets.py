"""Secrets of epochs, their wraps, and infos: docs/spec/groups.md, 3.2 to 3.4."""

from collections.abc import Callable, Sequence
from typing import Any

from scbroker.crypto.seal import DecryptionKey, derive_key
from scbroker.crypto.verify import sha256
from scbroker.records.canonical import encode_object
from scbroker.records.roster import Info, commitment_of
from tests.vectors.cast import cast, chosen
from tests.vectors.files import Vector, encoded, flipped, invalid, store, valid
from tests.vectors.groups import WRITER, Group, Seat, key_of, seal_info

DECRYPTION, INTEGRITY = "decryption", "integrity"
NAME = "Ärzte & Söhne"
SECRETS = 3


def make() -> None:
    group = Group("team", cast()["alice"])
    store(
        "group_secrets",
        "docs/spec/groups.md, 3.2 to 3.4. kind `secret`: the secret of an epoch, of which the Roster has "
        "`commitment` and `publicKey`. kind `wrap`: it opens with encryption key `privateIndex` of `private` "
        "(people.json) and the info made of the other fields. kind `info`: what is sealed under a secret, of "
        "which the Roster has the SHA-256 in `info`, made of `opened`; `commitments` are those of the epochs "
        "before. A reader compares each older secret with them before it uses it: an info with another one "
        "is invalid here.",
        [*_secrets(group), *_wraps(group), *_infos(group)],
    )


def _secrets(group: Group) -> list[Vector]:
    name = group.fingerprint

    def given(epoch: int, **changes: Any) -> dict[str, Any]:
        secret = group.secret(epoch)
        return {
            "kind": "secret", "groupName": name, "epoch": epoch, "secret": secret,
            "commitment": group.commitment(epoch), "publicKey": group.encryption(epoch).public, **changes,
        }  # fmt: skip

    def seeds(epoch: int) -> list[bytes]:
        return [
            derive_key(group.secret(epoch), "group-kem", name + bytes([n])) for n in range(SECRETS)
        ]

    first, second, third = seeds(0)
    turned, longer = DecryptionKey(second + third, first), DecryptionKey(third + first, second)
    other = Group("others", cast()["alice"])
    return [
        valid("first epoch", "0.", **given(0), seeds=seeds(0)),
        valid("last epoch", "16,383.", **given(16_383), seeds=seeds(16_383)),
        invalid("commitment of another epoch", "1.", INTEGRITY, **given(
            0, commitment=commitment_of(name, 1, group.secret(0)))),
        invalid("commitment of another group", "By the same creator.", INTEGRITY, **given(
            0, commitment=commitment_of(other.fingerprint, 0, group.secret(0)))),
        invalid("commitment to another secret", "That of epoch 1.", INTEGRITY, **given(
            0, commitment=commitment_of(name, 0, group.secret(1)))),
        invalid("public key of another secret", "That of epoch 1.", INTEGRITY, **given(
            0, publicKey=group.encryption(1).public)),
        invalid("public key of another group", "Derived from the same secret.", INTEGRITY, **given(
            0, publicKey=key_of(other.fingerprint, group.secret(0)).public)),
        invalid("X25519 seed as ML-KEM seed", "The third and the first seed.", INTEGRITY, **given(
            0, publicKey=longer.public)),
        invalid("seeds turned", "The second and the third for ML-KEM.", INTEGRITY, **given(
            0, publicKey=turned.public)),
    ]  # fmt: skip


def _wraps(group: Group) -> list[Vector]:
    people = cast()
    bob, erin = people["bob"], people["erin"]
    name, epoch = group.fingerprint, 2
    fields: dict[str, Any] = {
        "kind": "wrap",
        "groupName": name,
        "epoch": epoch,
        "commitment": group.commitment(epoch),
        "fingerprint": erin.fingerprint,
        "keyIndex": 1,
        "private": "erin",
        "privateIndex": 1,
    }
    wrap = group.wrap(epoch, Seat(erin, WRITER, 1))
    earlier = group.wrap(epoch, Seat(erin, WRITER, 0))
    other = group.wrap_of(chosen("another secret"), epoch, Seat(erin, WRITER, 1))
    found = [
        valid("wrap", "To Erin's second key.", **fields, wrap=wrap, secret=group.secret(epoch)),
        valid("wrap to key 0", "Erin's first.", **{**fields, "keyIndex": 0, "privateIndex": 0}, wrap=earlier,
              secret=group.secret(epoch)),
        valid("wrap of another secret", "It opens, and the commitment shows it.", **fields,
              wrap=other, secret=chosen("another secret")),
    ]  # fmt: skip
    moved: dict[str, dict[str, Any]] = {
        "to another group": {"groupName": Group("others", people["alice"]).fingerprint},
        "to another epoch": {"epoch": 3},
        "to another commitment": {"commitment": group.commitment(3)},
        "to another member": {"fingerprint": bob.fingerprint},
        "to another key index": {"keyIndex": 0},
        "to another key": {"privateIndex": 0},
    }
    for title, changes in moved.items():
        found.append(invalid(f"wrap moved {title}", "The info or the key differs.", DECRYPTION,
                             **{**fields, "wrap": wrap, **changes}))  # fmt: skip
    changed = {"wrap truncated": wrap[:-1], "wrap with a byte more": wrap + b"\0", "no wrap": b""}
    for title, octets in changed.items():
        found.append(invalid(title, "It has 1,168 bytes.", DECRYPTION, **fields, wrap=octets))
    return found


def _infos(group: Group) -> list[Vector]:
    name = group.fingerprint

    def older(epoch: int) -> list[bytes | None]:
        return [group.secret(n) for n in range(epoch)]

    def sealed(epoch: int, octets: bytes) -> dict[str, Any]:
        message = seal_info(name, epoch, group.secret(epoch), octets)
        return {
            "kind": "info", "groupName": name, "epoch": epoch, "secret": group.secret(epoch),
            "info": sha256(message), "sealed": message, "opened": octets,
            "commitments": [group.commitment(n) for n in range(epoch)],
        }  # fmt: skip

    def opens(
        title: str, comment: str, text: str, more: str, secrets: Sequence[bytes | None]
    ) -> Vector:
        fields = sealed(len(secrets), encode_object(Info(text, more, list(secrets))))
        return valid(title, comment, **fields, name=text, description=more, secrets=list(secrets))

    def refused(
        title: str, comment: str, text: str, more: str, secrets: Sequence[bytes | None] = ()
    ) -> Vector:
        octets = encode_object(Info(text, more, list(secrets)))
        return invalid(title, comment, INTEGRITY, **sealed(len(secrets), octets))

    def counted(title: str, comment: str, epoch: int, secrets: list[bytes | None]) -> Vector:
        octets = encode_object(Info(NAME, "", secrets))
        return invalid(title, comment, INTEGRITY, **sealed(epoch, octets))

    good = sealed(1, encode_object(Info(NAME, "For all.", older(1))))
    three = older(SECRETS)
    sealed_anew = flipped(good["sealed"], -1)
    return [
        opens("info of epoch 0", "No secrets.", NAME, "", []),
        valid("info of epoch 1", "One secret.", **good, name=NAME, description="For all.", secrets=older(1)),
        opens("info of epoch 3", "Three secrets.", NAME, "For all.\nIn two lines.", three),
        opens("secret left out", "The author lacked that of epoch 1.", NAME, "", [three[0], None, three[2]]),
        opens("shortest name", "One byte.", "n", "", []),
        opens("longest name", "256 bytes.", "x" * 254 + "ä", "", []),
        opens("longest description", "4,096 bytes.", "n", "x" * 4096, []),
        opens("name among spaces", "Only the whole of it must not be blank.", " n ", "", []),
        invalid("another hash of the info", "That of nothing.", INTEGRITY, **{
            **good, "info": chosen("no info")}),
        invalid("info of another epoch", "It was sealed for 1.", DECRYPTION, **{**good, "epoch": 2}),
        invalid("info of another group", "By the same creator.", DECRYPTION, **{
            **good, "groupName": Group("others", cast()["alice"]).fingerprint}),
        invalid("info under another secret", "That of epoch 0.", DECRYPTION, **{
            **good, "secret": group.secret(0)}),
        invalid("info changed", "The last bit; the hash fits.", DECRYPTION, **{
            **good, "sealed": sealed_anew, "info": sha256(sealed_anew)}),
        counted("a secret fewer", "None, in epoch 1.", 1, []),
        counted("a secret more", "Two, in epoch 1.", 1, older(2)),
        refused("secrets out of order", "Of epochs 0 and 1.", NAME, "", [three[1], three[0]]),
        refused("a secret that misses its commitment", "That of epoch 1.", NAME, "", [
            three[0], chosen("no secret"), three[2]]),
        refused("empty name", "At least one byte.", "", ""),
        refused("blank name", "Two spaces and a no-break space.", "  \u00a0", ""),
        refused("name with NUL", "U+0000.", "n\0", ""),
        refused("name with a line feed", "U+000A.", "n\nm", ""),
        refused("name with a right-to-left override", "U+202E.", "n\u202em", ""),
        refused("name of 257 bytes", "One more than the most.", "x" * 255 + "ä", ""),
        refused("description with NUL", "U+0000.", "n", "\0"),
        refused("description with a carriage return", "U+000D.", "n", "one\r\ntwo"),
        refused("description with a line separator", "U+2028.", "n", "one\u2028two"),
        refused("description of 4,097 bytes", "One more than the most.", "n", "x" * 4097),
        *_formats(sealed),
    ]  # fmt: skip


def _formats(sealed: Callable[[int, bytes], dict[str, Any]]) -> list[Vector]:
    body = encode_object(Info("n", "", []))
    rows: dict[str, tuple[str, bytes]] = {
        "info with another version byte": ("02.", b"\x02" + body[1:]),
        "info with a trailing byte": ("00.", body + b"\0"),
        "info truncated": ("The last byte is missing.", body[:-1]),
        "info not shortest": ("The name with d9 01.", body.replace(b"\xa1n", b"\xd9\x01n")),
        "info with an element more": ("nil.", encoded(["n", "", [], None])),
        "info with an element fewer": ("No secrets.", encoded(["n", ""])),
        "name as bin": ("One byte.", encoded([b"n", "", []])),
        "description as nil": ("It may be empty.", encoded(["n", None, []])),
    }  # fmt: skip
    found = [
        invalid(title, comment, INTEGRITY, **sealed(0, octets))
        for title, (comment, octets) in rows.items()
    ]
    row = [NAME, "For all.", [bytes(31)]]
    short = sealed(1, encoded(row))
    return [*found, invalid("short secret in an info", "31 bytes.", INTEGRITY, **short)]
