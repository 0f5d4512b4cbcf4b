"""Departures from groups: docs/spec/groups.md, section 9."""

from typing import Any

import msgspec

from scbroker.records.canonical import encode_object
from scbroker.records.key_record import Signed
from scbroker.records.roster import DEPARTURE_LABEL as LABEL
from tests.vectors.cast import MINUTE, Person, day
from tests.vectors.files import Vector, encoded, flipped, invalid, put, store, valid
from tests.vectors.groups import Group, Team, shown_step

INTEGRITY, CLOCK = "integrity", "clock"
NOW = day(40)
SERVED = 8
"""Records of the story that the vectors use."""


def make() -> None:
    team = Team()
    names = Team.NAMES[:SERVED]
    store(
        "group_departures",
        "docs/spec/groups.md, 9. `records` names the records of a group from version 1 on, which are valid, "
        "and whose last roster has the leaves beside it. The departures are those that the broker serves "
        "with them, at `now`; `left` names the users who have left then. Key records: people.json.",
        [*_valid(team), *_formats(team), *_signatures(team), *_others(team)],
        groupName=team.group.fingerprint,
        records={
            name: shown_step(step) for name, step in zip(names, team.steps[:SERVED], strict=True)
        },
    )


def given(count: int, *departures: Signed, now: int = NOW) -> dict[str, Any]:
    return {
        "records": list(Team.NAMES[:count]), "now": now,
        "departures": [{"body": one.body, "signature": one.signature} for one in departures],
    }  # fmt: skip


def _valid(team: Team) -> list[Vector]:
    group, steps, erin = team.group, team.steps, team.erin
    carol, bob = team.carol, team.bob

    def leaves(
        name: str,
        comment: str,
        count: int,
        leaver: Person,
        time: int,
        index: int = 0,
        now: int = NOW,
    ) -> Vector:
        signed = group.leave(steps[count - 1], leaver, time, index)
        return valid(name, comment, **given(count, signed, now=now), left=[leaver.name])

    both = sorted((carol, bob), key=lambda one: one.fingerprint)
    two = [group.leave(steps[1], one, day(3)) for one in both]
    return [
        valid("no departure", "Everybody stays.", **given(2), left=[]),
        leaves("a member", "Carol.", 2, carol, day(3)),
        leaves("a manager", "Bob, who stays in the list of managers.", 4, bob, day(5)),
        leaves("the only owner", "Alice.", 2, team.alice, day(3)),
        leaves("after other records", "Carol's leaf is still that of version 1.", 4, carol, day(2)),
        leaves("at the time of the leaf", "The earliest.", 2, carol, day(1)),
        leaves("15 minutes ahead", "The latest.", 2, carol, NOW + 15 * MINUTE),
        leaves("by a second key", "Erin's.", 7, erin, day(13), 1),
        leaves("by a key that was retired later", "Erin's first.", 7, erin, day(20) - 1),
        valid("two users", "Ascending by fingerprint.", **given(2, *two), left=[one.name for one in both]),
        leaves("from a new leaf", "Carol's of version 8, in the roster of version 8.", 8, carol,
               day(14)),
    ]  # fmt: skip


def _formats(team: Team) -> list[Vector]:
    said = team.group.departure(team.steps[1], team.carol, day(3))
    body, row = encode_object(said), msgspec.structs.astuple(said)
    found = list[Vector]()

    def spoiled(name: str, comment: str, changed: bytes) -> None:
        if changed == body:
            raise ValueError(f"{name} changes nothing.")
        found.append(invalid(name, comment, INTEGRITY, **given(2, team.carol.sign(changed, LABEL))))

    spoiled("wrong version byte", "02 in place of 01.", b"\x02" + body[1:])
    spoiled("trailing byte", "One zero byte behind the value.", body + b"\0")
    spoiled("truncated", "The last byte is missing.", body[:-1])
    spoiled("integer not shortest", "Version 1 as cc 01.", body[:36] + b"\xcc" + body[36:])
    spoiled("array not shortest", "Five elements as dc 0005.", b"\x01\xdc\0\x05" + body[2:])
    spoiled("one element more", "Six elements.", encoded([*row, None]))
    spoiled("one element fewer", "No time.", encoded(row[:-1]))
    spoiled("short group", "31 bytes.", put(row, 0, said.group[:-1]))
    spoiled("version as bool", "true.", put(row, 1, True))
    spoiled("long fingerprint", "33 bytes.", put(row, 2, said.fingerprint + b"\0"))
    spoiled("key index too large", "256.", put(row, 3, 256))
    spoiled("time as float", "3.0.", put(row, 4, 3.0))
    spoiled("time too large", "The year 10000.", put(row, 4, 253402300800000000))
    return found


def _signatures(team: Team) -> list[Vector]:
    carol, bob = team.carol, team.bob
    body, signature = team.group.leave(team.steps[1], carol, day(3))

    def refused(name: str, comment: str, changed: bytes) -> Vector:
        return invalid(name, comment, INTEGRITY, **given(2, Signed(body, changed)))

    by_bob = bob.sign(body, LABEL).signature
    return [
        refused("signature changed", "A bit of the ML-DSA half.", flipped(signature, 100)),
        refused("no ML-DSA half", "The Ed25519 signature alone.", signature[:64]),
        refused("halves of two users", "Carol's Ed25519, Bob's ML-DSA.", signature[:64] + by_bob[64:]),
        refused("another user's key", "Bob in Carol's name.", by_bob),
        refused("signature under another label", "Signed as a departure from a container.",
                carol.sign(body, "departure").signature),
    ]  # fmt: skip


def _others(team: Team) -> list[Vector]:
    group, steps, carol, erin = team.group, team.steps, team.carol, team.erin
    time = day(3)

    def refused(
        name: str, comment: str, *signed: Signed, count: int = 2, error: str = INTEGRITY
    ) -> Vector:
        return invalid(name, comment, error, **given(count, *signed))

    def carols(**changes: Any) -> Signed:
        return group.leave(steps[1], carol, **{"time": time, **changes})

    both = sorted((carol, team.bob), key=lambda one: one.fingerprint)
    two = [group.leave(steps[1], one, time) for one in both]
    other = Group("others", team.alice).fingerprint
    stranger = group.leave(steps[1], team.dora, day(6))
    return [
        refused("another group", "By the same creator.", carols(group=other)),
        refused("another leaf", "Of version 2; Carol's is of version 1.", carols(version=2)),
        refused("a leaf of version 0", "No leaf has it.", carols(version=0)),
        refused("after a new leaf", "Carol's of version 1, in the roster of version 6.", carols(), count=6),
        refused("without a leaf", "Dora was removed by version 5.", stranger, count=5),
        refused("before the leaf", "A microsecond.", carols(time=day(1) - 1)),
        refused("before the new leaf", "Erin's of version 7, a microsecond.",
                group.leave(steps[6], erin, day(12) - 1, 1), count=7),
        refused("retired key", "Erin's first, when it is retired.",
                group.leave(steps[6], erin, day(20)), count=7),
        refused("key before its introduction", "Erin's second.",
                group.leave(steps[1], erin, day(10) - 1, 1)),
        refused("key that does not exist", "Carol's second.", group.leave(steps[1], carol, time, 1)),
        refused("out of order", "Descending by fingerprint.", *two[::-1]),
        refused("twice", "Carol's.", carols(), carols()),
        refused("more than 15 minutes ahead", "A microsecond.", carols(time=NOW + 15 * MINUTE + 1),
                error=CLOCK),
    ]  # fmt: skip
