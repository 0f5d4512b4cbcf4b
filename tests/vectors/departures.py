"""Departures from access lists: docs/spec/container.md, section 4.1."""

from typing import Any

import msgspec
from msgspec.structs import replace

from scbroker.records import container_record
from scbroker.records.canonical import VERSION, encode_object
from scbroker.records.departure import LABEL, Departure
from scbroker.records.key_record import Signed
from tests.vectors.cast import MINUTE, Person, chosen, day
from tests.vectors.container_records import Stage
from tests.vectors.files import Vector, encoded, flipped, invalid, put, store, valid
from tests.vectors.story import Made, departure, leave

INTEGRITY, CLOCK = "integrity", "clock"
FIRST, TYPED, SHARED = ["create"], ["create", "change type"], ["create", "change type", "share"]
NOW = day(40)


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
        shown["accessList"] = made.access.shown
    return shown


def given(signed: Signed, governing: list[str], now: int = NOW, **fields: Any) -> dict[str, Any]:
    return {
        "governing": governing, "now": now, "body": signed.body, "signature": signed.signature, **fields,
    }  # fmt: skip


def _without(made: Made, person: Person) -> list[int]:
    """The positions of a list without one person's."""
    entries = enumerate(made.listed.salted)
    return [n for n, item in entries if person.fingerprint not in item.entry]


def _valid(stage: Stage) -> list[Vector]:
    first, typed, shared = stage.first, stage.typed, stage.shared
    bob, erin = stage.bob, stage.erin
    bobs = leave(first, bob, day(2))
    return [
        valid("departure", "Bob leaves the first list.", **given(bobs, FIRST)),
        valid("after a change of type", "It keeps the list, so the departure stays.", **given(bobs, TYPED)),
        valid("at the time of the list", "The earliest.", **given(
            leave(first, bob, day(1)), TYPED)),
        valid("15 minutes ahead", "The latest.", **given(
            leave(first, bob, NOW + 15 * MINUTE), FIRST)),
        valid("by the author of the list", "Alice.", **given(leave(typed, stage.alice, NOW), TYPED)),
        valid("by a second key", "Erin's.", **given(leave(shared, erin, day(13), 1), SHARED)),
        valid("by a key that was retired later", "Erin's first.", **given(
            leave(shared, erin, day(20) - 1), SHARED)),
        valid("of an expired entry", "Carol's.", **given(leave(first, stage.carol, NOW), FIRST)),
        valid("of a user who is disclosed", "Carol's entry is hidden.", **given(
            bobs, FIRST, disclosed=_without(first, stage.carol))),
    ]  # fmt: skip


def _formats(stage: Stage) -> list[Vector]:
    said = departure(stage.first, stage.bob, day(2))
    body, row = encode_object(said), msgspec.structs.astuple(said)
    found = list[Vector]()

    def spoiled(name: str, comment: str, changed: bytes) -> None:
        if changed == body:
            raise ValueError(f"{name} changes nothing.")
        signed = stage.bob.sign(changed, LABEL)
        found.append(invalid(name, comment, INTEGRITY, **given(signed, FIRST)))

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
    spoiled("one element more", "Seven elements.", encoded([*row, None]))
    spoiled("one element fewer", "No time.", encoded(row[:-1]))
    spoiled("short id", "An id of 15 bytes.", put(row, 0, said.containerId[:15]))
    spoiled("version as text", "accessVersion.", put(row, 1, "1"))
    spoiled("version too large", "2^53.", put(row, 1, 2**53))
    spoiled("long hash", "An accessList of 33 bytes.", put(row, 2, said.accessList + b"\0"))
    spoiled("fingerprint as text", "A str of 32 bytes.", put(row, 3, "a" * 32))
    spoiled("fingerprint nil", "Nobody leaves.", put(row, 3, None))
    spoiled("key index too large", "256.", put(row, 4, 256))
    spoiled("key index as bool", "false in place of 0.", put(row, 4, False))
    spoiled("negative time", "-1.", put(row, 5, -1))
    spoiled("time too large", "One more than the largest time.", put(row, 5, 253402300800000000))
    spoiled("time as float", "Floating point.", put(row, 5, float(said.time)))
    return found


def _signatures(stage: Stage) -> list[Vector]:
    body, signature = leave(stage.first, stage.bob, day(2))

    def spoiled(name: str, comment: str, changed: bytes) -> Vector:
        return invalid(name, comment, INTEGRITY, **given(Signed(body, changed), FIRST))

    return [
        spoiled("Ed25519 half", "A bit of it.", flipped(signature, 0)),
        spoiled("ML-DSA half", "A bit of it.", flipped(signature, 100)),
        spoiled("signed by another user", "Carol.", stage.carol.sign(body, LABEL).signature),
        spoiled("another label", "That of records.",
                stage.bob.sign(body, container_record.LABEL).signature),
    ]  # fmt: skip


def _others(stage: Stage) -> list[Vector]:
    first, shared, bob, erin = stage.first, stage.shared, stage.bob, stage.erin
    said = departure(first, bob, day(2))

    def spoiled(name: str, comment: str, error: str = INTEGRITY, **changes: Any) -> Vector:
        changed: Departure = replace(said, **changes)
        signed = bob.sign(encode_object(changed), LABEL, changed.keyIndex)
        return invalid(name, comment, error, **given(signed, FIRST))

    def refused(
        name: str, comment: str, signed: Signed, governing: list[str], **fields: Any
    ) -> Vector:
        return invalid(name, comment, INTEGRITY, **given(signed, governing, **fields))

    renewed = departure(shared, bob, day(13))
    old = replace(renewed, accessVersion=1, accessList=said.accessList)
    return [
        spoiled("another container", "A chosen id.", containerId=chosen("box", size=16)),
        spoiled("another version", "The list is of version 1.", accessVersion=2),
        spoiled("another list", "A chosen hash.", accessList=chosen("list")),
        refused("the list before, under the version of the new one", "Bob is in both lists.", bob.sign(
            encode_object(replace(old, accessVersion=4)), LABEL), SHARED),
        refused("user without an entry", "Dora.", leave(first, stage.dora, day(2)), FIRST),
        refused("user whose entry is not disclosed", "Bob.", leave(first, bob, day(2)), FIRST,
                disclosed=_without(first, bob)),
        spoiled("time before the list", "A microsecond.", time=day(1) - 1),
        refused("time before the list, after a change of type", "A microsecond before create.",
                leave(first, bob, day(1) - 1), TYPED),
        refused("key retired before the list was made", "Erin's first, in a list of a later time.",
                leave(stage.renewed, erin, day(19)), [*SHARED, "renew"]),
        refused("retired key", "Erin's first, when it is retired.", leave(
            shared, erin, day(20)), SHARED),
        refused("key before its introduction", "Erin's second.", leave(
            first, erin, day(10) - 1, 1), FIRST),
        refused("key that does not exist", "Bob's second.", leave(first, bob, day(2), 1), FIRST),
        spoiled("more than 15 minutes ahead", "A microsecond.", CLOCK, time=NOW + 15 * MINUTE + 1),
    ]  # fmt: skip
