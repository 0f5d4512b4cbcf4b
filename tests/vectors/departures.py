"""Departures from access lists: docs/spec/container.md, section 4.1."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from scbroker.records import container_record
from scbroker.records.canonical import VERSION, encode_object
from scbroker.records.departure import LABEL, Departure
from scbroker.records.key_record import Signed
from tests.vectors.cast import DAY, MINUTE, START, Person, chosen
from tests.vectors.container_records import Stage, access_of
from tests.vectors.files import Vector, invalid, store, valid
from tests.vectors.story import Made, departure, leave

INTEGRITY, CLOCK = "integrity", "clock"
FIRST, TYPED, SHARED = ["create"], ["create", "change type"], ["create", "change type", "share"]
NOW = START + 40 * DAY


def make() -> None:
    stage = Stage()
    records = {
        "create": stage.first, "change type": stage.typed, "share": stage.shared, "renew": stage.renewed,
    }  # fmt: skip
    store(
        "departures",
        "docs/spec/container.md, 4.1. `governing` names the governing records up to G, of which all but G "
        "and their lists are valid. The departure `body` with its `signature` is judged for G and its "
        "list at `now`. `disclosed` gives the positions that the reader sees of G's list; else all are "
        "seen. Key records of the user who leaves: people.json.",
        [*_valid(stage), *_formats(stage), *_signatures(stage), *_others(stage)],
        containerId=stage.box.id,
        records={name: _shown(made) for name, made in records.items()},
    )


def _shown(made: Made) -> dict[str, Any]:
    shown: dict[str, Any] = {"body": made.signed.body}
    if made.access is not None:
        shown["accessList"] = [
            {"salt": item.salt, "entry": item.entry} for item in made.access.salted
        ]
    return shown


def given(signed: Signed, governing: list[str], now: int = NOW, **fields: Any) -> dict[str, Any]:
    return {
        "governing": governing, "now": now, "body": signed.body, "signature": signed.signature, **fields,
    }  # fmt: skip


def _without(made: Made, person: Person) -> list[int]:
    """The positions of a list without one person's."""
    entries = enumerate(access_of(made).salted)
    return [n for n, item in entries if person.fingerprint not in item.entry]


def _valid(stage: Stage) -> list[Vector]:
    first, typed, shared = stage.first, stage.typed, stage.shared
    bob, erin = stage.bob, stage.erin
    bobs = leave(first, bob, START + 2 * DAY)
    return [
        valid("departure", "Bob leaves the first list.", **given(bobs, FIRST)),
        valid("after a change of type", "It keeps the list, so the departure stays.", **given(bobs, TYPED)),
        valid("at the time of the list", "The earliest.", **given(
            leave(first, bob, START + DAY), TYPED)),
        valid("15 minutes ahead", "The latest.", **given(
            leave(first, bob, NOW + 15 * MINUTE), FIRST)),
        valid("by the author of the list", "Alice.", **given(leave(typed, stage.alice, NOW), TYPED)),
        valid("by a second key", "Erin's.", **given(leave(shared, erin, START + 13 * DAY, 1), SHARED)),
        valid("by a key that was retired later", "Erin's first.", **given(
            leave(shared, erin, START + 20 * DAY - 1), SHARED)),
        valid("of an expired entry", "Carol's.", **given(leave(first, stage.carol, NOW), FIRST)),
        valid("of a user who is disclosed", "Carol's entry is hidden.", **given(
            bobs, FIRST, disclosed=_without(first, stage.carol))),
    ]  # fmt: skip


def _formats(stage: Stage) -> list[Vector]:
    said = departure(stage.first, stage.bob, START + 2 * DAY)
    body = encode_object(said)
    found = list[Vector]()

    def spoiled(name: str, comment: str, changed: bytes) -> None:
        if changed == body:
            raise ValueError(f"{name} changes nothing.")
        signed = stage.bob.sign(changed, LABEL)
        found.append(invalid(name, comment, INTEGRITY, **given(signed, FIRST)))

    def rewritten(name: str, comment: str, change: Callable[[list[Any]], Any]) -> None:
        fields = list(msgspec.structs.astuple(said))
        change(fields)
        spoiled(name, comment, VERSION + msgspec.msgpack.encode(fields))

    def put(position: int, value: Any) -> Callable[[list[Any]], Any]:
        return lambda fields: fields.__setitem__(position, value)

    spoiled("wrong version byte", "02 in place of 01.", b"\x02" + body[1:])
    spoiled("trailing byte", "One zero byte behind the value.", body + b"\0")
    spoiled("truncated", "The last byte is missing.", body[:-1])
    spoiled("empty", "No bytes.", b"")
    spoiled("no value", "The version byte alone.", VERSION)
    version = body.index(b"\x01\xc4\x20", 2)
    spoiled(
        "integer not shortest", "Version 1 as cc 01.", body[:version] + b"\xcc" + body[version:]
    )
    spoiled("bin not shortest", "The id with c5 0010.", body.replace(b"\xc4\x10", b"\xc5\0\x10", 1))
    spoiled("array not shortest", "Six elements as dc 0006.", b"\x01\xdc\0\x06" + body[2:])
    rewritten("one element more", "Seven elements.", lambda fields: fields.append(None))
    rewritten("one element fewer", "No time.", lambda fields: fields.pop())
    rewritten("short id", "An id of 15 bytes.", put(0, said.containerId[:15]))
    rewritten("version as text", "accessVersion.", put(1, "1"))
    rewritten("version too large", "2^53.", put(1, 2**53))
    rewritten("long hash", "An accessList of 33 bytes.", put(2, said.accessList + b"\0"))
    rewritten("fingerprint as text", "A str of 32 bytes.", put(3, "a" * 32))
    rewritten("fingerprint nil", "Nobody leaves.", put(3, None))
    rewritten("key index too large", "256.", put(4, 256))
    rewritten("key index as bool", "false in place of 0.", put(4, False))
    rewritten("negative time", "-1.", put(5, -1))
    rewritten("time too large", "One more than the largest time.", put(5, 253402300800000000))
    rewritten("time as float", "Floating point.", put(5, float(said.time)))
    return found


def _signatures(stage: Stage) -> list[Vector]:
    body, signature = leave(stage.first, stage.bob, START + 2 * DAY)

    def spoiled(name: str, comment: str, changed: bytes) -> Vector:
        return invalid(name, comment, INTEGRITY, **given(Signed(body, changed), FIRST))

    def flipped(at: int) -> bytes:
        return signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :]

    return [
        spoiled("Ed25519 half", "A bit of it.", flipped(0)),
        spoiled("ML-DSA half", "A bit of it.", flipped(100)),
        spoiled("signed by another user", "Carol.", stage.carol.sign(body, LABEL).signature),
        spoiled("another label", "That of records.",
                stage.bob.sign(body, container_record.LABEL).signature),
    ]  # fmt: skip


def _others(stage: Stage) -> list[Vector]:
    first, shared, bob, erin = stage.first, stage.shared, stage.bob, stage.erin
    said = departure(first, bob, START + 2 * DAY)

    def spoiled(name: str, comment: str, error: str = INTEGRITY, **changes: Any) -> Vector:
        changed: Departure = replace(said, **changes)
        signed = bob.sign(encode_object(changed), LABEL, changed.keyIndex)
        return invalid(name, comment, error, **given(signed, FIRST))

    def refused(
        name: str, comment: str, signed: Signed, governing: list[str], **fields: Any
    ) -> Vector:
        return invalid(name, comment, INTEGRITY, **given(signed, governing, **fields))

    renewed = departure(shared, bob, START + 13 * DAY)
    old = replace(renewed, accessVersion=1, accessList=said.accessList)
    return [
        spoiled("another container", "A chosen id.", containerId=chosen("box", size=16)),
        spoiled("another version", "The list is of version 1.", accessVersion=2),
        spoiled("another list", "A chosen hash.", accessList=chosen("list")),
        refused("the list before, under the version of the new one", "Bob is in both lists.", bob.sign(
            encode_object(replace(old, accessVersion=4)), LABEL), SHARED),
        refused("user without an entry", "Dora.", leave(first, stage.dora, START + 2 * DAY), FIRST),
        refused("user whose entry is not disclosed", "Bob.", leave(first, bob, START + 2 * DAY), FIRST,
                disclosed=_without(first, bob)),
        spoiled("time before the list", "A microsecond.", time=START + DAY - 1),
        refused("time before the list, after a change of type", "A microsecond before create.",
                leave(first, bob, START + DAY - 1), TYPED),
        refused("key retired before the list was made", "Erin's first, in a list of a later time.",
                leave(stage.renewed, erin, START + 19 * DAY), [*SHARED, "renew"]),
        refused("retired key", "Erin's first, when it is retired.", leave(
            shared, erin, START + 20 * DAY), SHARED),
        refused("key before its introduction", "Erin's second.", leave(
            first, erin, START + 10 * DAY - 1, 1), FIRST),
        refused("key that does not exist", "Bob's second.", leave(first, bob, START + 2 * DAY, 1), FIRST),
        spoiled("more than 15 minutes ahead", "A microsecond.", CLOCK, time=NOW + 15 * MINUTE + 1),
    ]  # fmt: skip
