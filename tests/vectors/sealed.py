"""Wraps, sealed part keys, segments, lists of segments, types: docs/spec/container.md, 3, 5 and 6."""

import base64
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from scbroker.client.core.sealing import seal_part_key
from scbroker.crypto.seal import seal, wrap_key
from scbroker.crypto.verify import labelled_hash, sha256
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import (
    GROUP_TYPE,
    SEGMENT,
    Governing,
    Role,
    key_commitment,
    segment_context,
    segments_hash,
    type_hash,
    wrap_info,
)
from scbroker.records.roster import group_type
from tests.vectors.cast import cast, chosen, decryption_key
from tests.vectors.files import Vector, flipped, invalid, store, valid
from tests.vectors.groups import Team

BOX, OTHER_BOX = chosen("box", size=16), chosen("other box", size=16)
PART, OTHER_PART = chosen("part", size=16), chosen("other part", size=16)
CONTAINER_KEY, PART_KEY = chosen("container key"), chosen("part key")
DECRYPTION, INTEGRITY = "decryption", "integrity"


def make() -> None:
    store(
        "wraps",
        "docs/spec/container.md, 3. `wrap` opens with encryption key `privateIndex` of `private` "
        "(people.json) and the info made of the other fields. `commits`: whether the key is the one "
        "of keyCommitment.",
        wraps(),
    )
    store(
        "segments",
        "docs/spec/container.md, 3 and 6. kind `segment`: one sealed segment and its context. kind "
        "`sealed key`: a part key under the container key. kind `part`: a part as a reader opens it "
        "whole. kind `list`: the hash that a part names. kind `size`: what follows from paddedLength.",
        [*segments(), *sealed_keys(), *parts(), *lists(), *sizes()],
    )
    store(
        "types",
        "docs/spec/container.md, 5, and docs/spec/groups.md, 2: the hash of a type. With `roster` the "
        "container is a group's, and else an ordinary one.",
        types(),
    )


def wraps() -> list[Vector]:
    people = cast()
    alice, bob, erin = people["alice"], people["bob"], people["erin"]
    governing = Governing(7, alice.fingerprint, b"", b"", b"")
    fields: dict[str, Any] = {
        "containerId": BOX,
        "accessVersion": 7,
        "accessAuthor": alice.fingerprint,
        "recipient": erin.fingerprint,
        "keyIndex": 1,
        "private": "erin",
        "privateIndex": 1,
        "keyCommitment": key_commitment(BOX, CONTAINER_KEY),
        "commits": True,
    }
    info = wrap_info(BOX, governing, erin.fingerprint, 1)
    public = decryption_key("erin", 1).public
    wrap = wrap_key(public, info, CONTAINER_KEY)
    other = wrap_key(public, info, chosen("another key"))
    found = [
        valid("wrap", "Alice to Erin.", **fields, wrap=wrap, key=CONTAINER_KEY),
        valid("wrap to key 0", "Alice to Erin, before she had another.",
              **{**fields, "keyIndex": 0, "privateIndex": 0}, key=CONTAINER_KEY,
              wrap=(earlier := wrap_key(decryption_key("erin").public,
                                        wrap_info(BOX, governing, erin.fingerprint, 0), CONTAINER_KEY))),
        valid("wrap of another key", "It opens, and the commitment shows it.",
              **{**fields, "commits": False}, wrap=other, key=chosen("another key")),
    ]  # fmt: skip
    moved: dict[str, dict[str, Any]] = {
        "to another container": {"containerId": OTHER_BOX},
        "to another version": {"accessVersion": 8},
        "to another author": {"accessAuthor": bob.fingerprint},
        "to another recipient": {"recipient": bob.fingerprint},
        "to another index": {"keyIndex": 0},
        "to another key": {"privateIndex": 0},
        "to another user's key": {
            "private": "bob",
            "keyIndex": 0,
            "privateIndex": 0,
            "wrap": earlier,
        },
    }
    for name, changes in moved.items():
        found.append(
            invalid(f"wrap moved {name}", "The info or the key differs.", DECRYPTION,
                    **{**fields, "wrap": wrap, **changes})
        )  # fmt: skip
    changed = {
        "ML-KEM ciphertext changed": flipped(wrap, 0),
        "X25519 share changed": flipped(wrap, 1100),
        "X25519 share of small order": wrap[:1088] + bytes(32) + wrap[1120:],
        "ciphertext changed": flipped(wrap, 1121),
        "tag changed": flipped(wrap, 1167),
        "wrap truncated": wrap[:-1],
        "wrap with a byte more": wrap + b"\0",
        "empty wrap": b"",
    }
    for name, data in changed.items():
        found.append(invalid(name, "It does not open.", DECRYPTION, **fields, wrap=data))
    return found


def place() -> dict[str, Any]:
    return {"containerId": BOX, "partId": PART, "role": 1, "author": cast()["alice"].fingerprint}


def context(index: int, last: bool, role: Role = Role.Content) -> bytes:
    return segment_context(BOX, PART, role, cast()["alice"].fingerprint, index, last)


def segments() -> list[Vector]:
    base: dict[str, Any] = {"kind": "segment", "partKey": PART_KEY, **place()}
    fields = {**base, "index": 2, "last": True}
    sealed = seal(PART_KEY, context(2, True), b"the end")
    found = [
        valid("segment", "The last of three.", **fields, sealed=sealed, plaintext=b"the end"),
        valid("segment in the middle", "Shorter than they are, for brevity.",
              **{**base, "index": 1, "last": False}, plaintext=b"middle",
              sealed=seal(PART_KEY, context(1, False), b"middle")),
        valid("empty segment", "The only one of an empty part.",
              **{**base, "index": 0, "last": True}, plaintext=b"",
              sealed=seal(PART_KEY, context(0, True), b"")),
        valid("segment of one byte", "00.", **{**base, "index": 0, "last": True},
                   plaintext=b"\0", sealed=seal(PART_KEY, context(0, True), b"\0")),
    ]  # fmt: skip
    moved: dict[str, dict[str, Any]] = {
        "to another container": {"containerId": OTHER_BOX},
        "to another part": {"partId": OTHER_PART},
        "to another role": {"role": 0},
        "to another author": {"author": cast()["bob"].fingerprint},
        "to another index": {"index": 1},
        "away from the end": {"last": False},
        "to another key": {"partKey": chosen("another part key")},
    }
    for name, changes in moved.items():
        found.append(
            invalid(f"segment moved {name}", "The context or the key differs.", DECRYPTION,
                    **{**fields, **changes}, sealed=sealed)
        )  # fmt: skip
    changed = {
        "salt changed": flipped(sealed, 0),
        "commitment changed": flipped(sealed, 40),
        "ciphertext changed": flipped(sealed, 57),
        "tag changed": flipped(sealed, len(sealed) - 1),
        "segment truncated": sealed[:-1],
        "segment without its chunk": sealed[:56],
        "segment with a byte more": sealed + b"\0",
        "segment twice": sealed + sealed,
        "no segment": b"",
    }
    for name, data in changed.items():
        found.append(invalid(name, "It does not open.", DECRYPTION, **fields, sealed=data))
    return found


def sealed_keys() -> list[Vector]:
    fields: dict[str, Any] = {"kind": "sealed key", "containerKey": CONTAINER_KEY, **place()}
    author = cast()["alice"].fingerprint

    def key(length: int) -> bytes:
        return seal_part_key(CONTAINER_KEY, BOX, PART, Role.Content, author, PART_KEY, length)

    sealed = key(7)
    found = [
        valid("sealed key", "A content of 7 bytes in 16.", **fields, paddedLength=16,
              sealedKey=sealed, partKey=PART_KEY, length=7),
        valid("sealed key, no padding", "length may be paddedLength.", **fields, paddedLength=7,
              sealedKey=sealed, partKey=PART_KEY, length=7),
        invalid("length beyond the padding", "length is at most paddedLength.", INTEGRITY, **fields,
                paddedLength=6, sealedKey=sealed),
    ]  # fmt: skip
    moved: dict[str, dict[str, Any]] = {
        "to another container": {"containerId": OTHER_BOX},
        "to another part": {"partId": OTHER_PART},
        "to another role": {"role": 0},
        "to another author": {"author": cast()["bob"].fingerprint},
        "to another container key": {"containerKey": chosen("another container key")},
    }
    for name, changes in moved.items():
        found.append(
            invalid(f"sealed key moved {name}", "The context or the key differs.", DECRYPTION,
                    **{**fields, **changes}, paddedLength=16, sealedKey=sealed)
        )  # fmt: skip
    found.append(
        invalid("sealed key changed", "A bit.", DECRYPTION, **fields, paddedLength=16,
                sealedKey=flipped(sealed, 60))
    )  # fmt: skip
    return found


def parts() -> list[Vector]:
    """Parts of one segment: what is checked besides the seal."""
    alice = cast()["alice"].fingerprint

    def part(
        plaintext: bytes, length: int, padded: int, change: Callable[[bytes], bytes] = bytes
    ) -> Any:
        sealed = seal(PART_KEY, context(0, True), plaintext)
        hashes = change(sha256(sealed))
        return {
            "kind": "part", "containerKey": CONTAINER_KEY, **place(),
            "paddedLength": padded, "segments": segments_hash(padded, hashes),
            "sealedKey": seal_part_key(
                CONTAINER_KEY, BOX, PART, Role.Content, alice, PART_KEY, length
            ),
            "hashes": hashes, "sealed": [sealed],
        }  # fmt: skip

    def listed(change: Callable[[bytes], bytes]) -> Any:
        return part(b"seven b" + bytes(9), 7, 16, change)

    good = part(b"seven b" + bytes(9), 7, 16)
    return [
        valid("part", "7 bytes, padded to 16.", **good, plaintext=b"seven b"),
        valid("empty part", "No bytes, no padding.", **part(b"", 0, 0), plaintext=b""),
        valid("part of padding alone", "No bytes in 16.", **part(bytes(16), 0, 16), plaintext=b""),
        invalid("padding not zero", "The last byte is 01.", INTEGRITY,
                **part(b"seven b" + bytes(8) + b"\1", 7, 16)),
        invalid("padding not zero at once", "The first byte of it is 01.", INTEGRITY,
                **part(b"seven b\1" + bytes(8), 7, 16)),
        invalid("segment too short", "15 bytes where paddedLength says 16.", INTEGRITY,
                **part(b"seven b" + bytes(8), 7, 16)),
        invalid("segment too long", "17 bytes where paddedLength says 16.", INTEGRITY,
                **part(b"seven b" + bytes(10), 7, 16)),
        invalid("another segment", "It opens, and its hash is not the signed one.", INTEGRITY,
                **{**good, "sealed": [seal(PART_KEY, context(0, True), b"seven c" + bytes(9))]}),
        invalid("another list", "It fits the segment, and its hash is not the signed one.", INTEGRITY,
                **{**good, "segments": segments_hash(16, bytes(32))}),
        invalid("list too long", "Two hashes for one segment.", INTEGRITY,
                **listed(lambda one: one + bytes(32))),
        invalid("list cut inside a hash", "63 bytes.", INTEGRITY,
                **listed(lambda one: one + bytes(31))),
        invalid("no list", "Neither a hash nor a segment where paddedLength says one.", INTEGRITY,
                **{**listed(lambda _: b""), "sealed": []}),
    ]  # fmt: skip


def lists() -> list[Vector]:
    return [
        valid(f"list of {count}", "H of u64(paddedLength) and the hashes.", kind="list",
              paddedLength=padded, hashes=hashes, segments=segments_hash(padded, hashes))
        for count, padded, hashes in (
            (1, 0, sha256(b"0")),
            (2, SEGMENT + 1, sha256(b"0") + sha256(b"1")),
            (3, 3 * SEGMENT, sha256(b"0") + sha256(b"1") + sha256(b"2")),
        )
    ]  # fmt: skip


def sizes() -> list[Vector]:
    found = []
    for padded in (0, 1, 16_383, 16_384, SEGMENT - 1, SEGMENT, SEGMENT + 1, 10 * SEGMENT, 2**40):
        count = max(1, -(-padded // SEGMENT))
        last = padded - (count - 1) * SEGMENT
        found.append(
            valid(f"sizes of {padded}", "Segments, and the sealed size of the last.", kind="size",
                  paddedLength=padded, count=count, lastSealed=last + 56 + 16 * (last // 16_384 + 1))
        )  # fmt: skip
    return found


def types() -> list[Vector]:
    salt = chosen("type salt")
    found = encode_object(replace(Team().steps[0].roster, info=chosen("info of a type")))
    text = group_type(found)
    groups = {
        "another type in R": ("note", "The container is a group's, with this roster."),
        "no type in R": (None, "The container is a group's, with this roster."),
        "padding in the base64url": (text + "=", "A character more."),
        "base64 in place of base64url": (
            GROUP_TYPE + base64.b64encode(labelled_hash("roster", found)).rstrip(b"=").decode(),
            "With + and / of the other alphabet.",
        ),
        "the type of another roster": (group_type(found[:-1] + b"\0"), "Its last byte differs."),
    }
    if groups["base64 in place of base64url"][0] == text:
        raise ValueError("The hash is spelled alike in both alphabets.")
    cases = {
        "none": None,
        "empty": "",
        "text": "note",
        "not ASCII": "Größe ☃",
        "32 bytes": "x" * 32,
        "256 bytes": "x" * 256,
    }
    refused = {
        "NUL": "no\0te",
        "a C0 control": "no\x1b[2Jte",
        "a line feed at the end": "note\n",
        "DEL": "no\x7fte",
        "a C1 control": "no\x9b2Jte",
        "an Arabic letter mark": "no\u061cte",
        "a right-to-left mark": "no\u200fte",
        "a line separator": "no\u2028te",
        "a right-to-left override": "no\u202ete",
        "a first strong isolate": "no\u2068te",
        "257 bytes": "x" * 255 + "ä",
    }
    return [
        *(
            valid(f"type, {name}", "H over id, salt and MessagePack.", containerId=BOX, salt=salt,
                  type=text, hash=type_hash(BOX, salt, text))
            for name, text in cases.items()
        ),
        *(
            invalid(f"type with {name}", "The hash is right.", INTEGRITY, containerId=BOX, salt=salt,
                    type=text, hash=type_hash(BOX, salt, text))
            for name, text in refused.items()
        ),
        valid("type of a group", "Of this roster.", containerId=BOX, salt=salt, roster=found, type=text,
              hash=type_hash(BOX, salt, text)),
        invalid("group type in another container", "It has no roster.", INTEGRITY, containerId=BOX,
                salt=salt, type=text, hash=type_hash(BOX, salt, text)),
        invalid("a short group type in another container", "It begins as one.", INTEGRITY, containerId=BOX,
                salt=salt, type=GROUP_TYPE, hash=type_hash(BOX, salt, GROUP_TYPE)),
        *(
            invalid(name, comment, INTEGRITY, containerId=BOX, salt=salt, roster=found, type=spelled,
                    hash=type_hash(BOX, salt, spelled))
            for name, (spelled, comment) in groups.items()
        ),
    ]  # fmt: skip
