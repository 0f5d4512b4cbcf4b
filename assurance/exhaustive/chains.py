"""Compare `records.judge` with the oracle for every history of one container, up to a bound.

A history is a sequence of acts. If two histories lead to the same world, but for the names of the users,
only one of them is continued. Each kind of act is also tried with every lie: one field of the record is
falsified that an honest client would set otherwise. Signatures are left out, because a dishonest author can
sign anything: so each act stands for every set of users who act together.
"""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final, cast
from unittest import mock

from msgspec.structs import replace

from assurance.exhaustive import acts
from assurance.exhaustive.acts import Act, Alphabet, Rights, World
from scbroker.errors import BrokerError
from scbroker.records import judge
from scbroker.records.canonical import container_id_of, encode_object, encode_value, group_name_of
from scbroker.records.container_record import (
    AccessList,
    ContainerRecord,
    Entry,
    Governing,
    Link,
    Part,
    SaltedEntry,
    list_hash,
    record_hash,
)
from scbroker.records.departure import Departure
from scbroker.records.judge import InForce, Known
from scbroker.records.key_record import KeyChain, Signed

NAMES: Final = [letter.encode() * 32 for letter in acts.USERS]
NONCE: Final = bytes(32)
BOX: Final = container_id_of(NAMES[0], NONCE).bytes
GROUP_NONCE: Final = b"g" * 32
GROUP: Final = group_name_of(NAMES[0], GROUP_NONCE)
LATE: Final = 10
LISTED: Final = [*NAMES, GROUP]


@dataclass(frozen=True, slots=True)
class History:
    """A world with the records by which the judge knows it."""

    world: World
    head: Known
    in_force: InForce
    number: int = 0
    """Counts the acts, so that keys and parts get names that were not used."""


@cache
def list_of(rights: Rights) -> AccessList:
    entries = [
        Entry(
            LISTED[user],
            right.index,
            right.bits,
            None if right.end == acts.FOREVER else right.end,
            bytes(32) if right.bits & acts.DECRYPT else None,
        )
        for user, right in enumerate(rights)
        if right is not None
    ]
    entries.sort(key=lambda entry: entry.fingerprint)
    return AccessList.whole([SaltedEntry(bytes(32), encode_value(entry)) for entry in entries])


def created(act: Act) -> tuple[ContainerRecord, AccessList]:
    """Return the record that creates a container, and its list."""
    access = list_of(act.rights or ())
    governing = Governing(1, NAMES[0], _hash_of(1, access), _name("key", 1), _name("type", 0))
    content = Part(
        _name("part", 1)[:16], NAMES[0], 0, bytes(32), _name("sealed", 1) * 3 + bytes(16)
    )
    first = ContainerRecord(
        BOX, NONCE, 1, None, NAMES[act.author], 0, act.time, None, governing, None, content, False
    )
    return first, access


def drafted(history: History, act: Act) -> tuple[ContainerRecord, AccessList | None]:
    """Return the record of an act as an honest client of the author would make it, rightful or not."""
    before, number = history.in_force.governing, history.number + 1
    version = history.head.record.version + 1
    kind = _name("type", number) if act.changes_type else before.type
    access, governing = None, None
    if act.rights is not None:
        access = list_of(act.rights)
        governing = Governing(
            version, NAMES[act.author], _hash_of(version, access), _name("key", number), kind
        )
    elif act.changes_type:
        governing = replace(before, type=kind)
    content = history.head.record.content
    if act.content == "new":
        sealed = _name("sealed", number) * 3 + bytes(16)
        content = Part(_name("part", number)[:16], NAMES[act.author], 0, bytes(32), sealed)
    elif act.content == "drop" or act.deletes:
        content = None
    elif content is not None and access is not None:
        content = replace(content, sealedKey=_name("sealed", number) * 3 + bytes(16))
    in_force = history.in_force.known
    record = ContainerRecord(
        BOX, None, version, history.head.hash, NAMES[act.author], 0, act.time,
        Link(in_force.record.version, in_force.hash), governing, None, content, act.deletes,
    )  # fmt: skip
    return record, access


class AnyKeys:
    """The chain of a user who signs whatever is wanted: signatures are left out."""

    def __init__(self, user: int) -> None:
        self.fingerprint, self.raw = NAMES[user], b""

    def signing_key(self, index: int, time: int) -> "AnyKeys":
        del index, time
        return self

    def verify(self, label: str, body: bytes, signature: bytes) -> None:
        """Accept everything."""


def departure(history: History, act: Act) -> Departure:
    """Return what a user signs who leaves the list in force."""
    governing = history.in_force.governing
    return Departure(
        BOX, governing.accessVersion, governing.accessList, NAMES[act.author], 0, act.time
    )


def left(history: History, act: Act, said: Departure) -> InForce | None:
    """Return what is in force after a departure; None if it is not valid."""
    keys, signed = cast(KeyChain, AnyKeys(act.author)), Signed(encode_object(said), b"")
    try:
        judge.verify_departure(signed, history.in_force, keys, LATE)
    except BrokerError:
        return None
    users = history.in_force.left | {NAMES[act.author]}
    return dataclasses.replace(history.in_force, left=users)


def accepted(history: History, record: ContainerRecord, access: AccessList | None) -> bool:
    """Return whether the judge accepts the record."""
    known = Known(record, b"?" * 32)
    try:
        judge.judge_next(known, history.in_force, access, history.head, LATE)
    except BrokerError:
        return False
    return True


def followed(history: History, act: Act, world: World) -> History:
    """Return the history that an accepted act leads to."""
    if act.leaves:
        in_force = left(history, act, departure(history, act))
        assert in_force is not None
        return dataclasses.replace(history, world=world, in_force=in_force)
    record, access = drafted(history, act)
    known = Known(record, record_hash(encode_object(record)))
    in_force = judge.judge_next(known, history.in_force, access, history.head, LATE)
    return History(world, known, in_force, history.number + 1)


def begun(act: Act) -> History | None:
    """Return the history of a creation; None if the judge refuses it."""
    record, access = created(act)
    known = Known(record, record_hash(encode_object(record)))
    try:
        in_force = judge.judge_first(known, access, LATE)
    except BrokerError:
        return None
    world = World(act.rights or (), 0, act.time, act.time, True, True, listed_at=act.time)
    return History(world, known, in_force, 1)


Lie = Callable[[History, ContainerRecord], ContainerRecord | None]


def lies() -> dict[str, Lie]:
    """Return the ways to falsify a record, by name; a lie gives None where it would change nothing."""

    def governing(record: ContainerRecord, **changed: object) -> ContainerRecord | None:
        if record.governing is None:
            return None
        return replace(record, governing=replace(record.governing, **changed))

    def content(record: ContainerRecord, **changed: object) -> ContainerRecord | None:
        if record.content is None:
            return None
        return replace(record, content=replace(record.content, **changed))

    def other(record: ContainerRecord) -> bytes:
        return NAMES[(NAMES.index(record.author) + 1) % len(NAMES)]

    def link(record: ContainerRecord, version: int, digest: bytes) -> ContainerRecord | None:
        changed = Link(version, digest)
        return None if changed == record.link else replace(record, link=changed)

    def forced(history: History) -> Governing:
        return history.in_force.governing

    return {
        "another parent": lambda _, r: replace(r, parent=bytes(32)),
        "a version left out": lambda _, r: replace(r, version=r.version + 1),
        "a version again": lambda _, r: replace(r, version=r.version - 1),
        "a link to another record": lambda _, r: link(
            r, r.link.version if r.link else 1, bytes(32)
        ),
        "a link past the governing record": lambda h, r: link(
            r, h.head.record.version, h.head.hash
        ),
        "another container": lambda _, r: replace(r, containerId=bytes(16)),
        "dated far ahead": lambda _, r: replace(r, time=2**50),
        "governs, and changes nothing": lambda h, r: (
            replace(r, governing=forced(h)) if r.governing is None else None
        ),
        "access of another author": lambda _, r: governing(r, accessAuthor=other(r)),
        "another list": lambda _, r: governing(r, accessList=bytes(32)),
        "the container key of before": lambda h, r: (
            governing(r, keyCommitment=forced(h).keyCommitment) if r.changes_access else None
        ),
        "another container key": lambda _, r: (
            None if r.changes_access else governing(r, keyCommitment=bytes(32))
        ),
        "another access version": lambda h, r: (
            governing(r, accessVersion=forced(h).accessVersion - 1) if r.governing else None
        ),
        "a part of another author": lambda h, r: (
            content(r, author=other(r)) if _is_new(h, r) else None
        ),
        "a carried part of another author": lambda h, r: (
            None if r.content is None or _is_new(h, r) else content(r, author=bytes(32))
        ),
        "a carried part of other bytes": lambda h, r: (
            None if _is_new(h, r) else content(r, segments=b"x" * 32)
        ),
        "a carried part under its old sealed key, or a new one": lambda h, r: (
            None if _is_new(h, r) else content(r, sealedKey=_carried_wrongly(h, r))
        ),
        "a new part under the sealed key of before": lambda h, r: (
            content(r, sealedKey=h.head.record.content.sealedKey)
            if _is_new(h, r) and h.head.record.content
            else None
        ),
        "a tombstone with a part": lambda h, r: (
            replace(r, content=h.head.record.content)
            if r.tombstone and h.head.record.content
            else None
        ),
        "a tombstone that governs": lambda h, r: (
            replace(r, governing=forced(h)) if r.tombstone else None
        ),
    }


def _is_new(history: History, record: ContainerRecord) -> bool:
    before = history.head.record.content
    return record.content is not None and (before is None or before.partId != record.content.partId)


def _carried_wrongly(history: History, record: ContainerRecord) -> bytes:
    before = history.head.record.content
    if before is not None and record.changes_access:
        return before.sealedKey
    return bytes(112)


def _hash_of(version: int, access: AccessList) -> bytes:
    return list_hash(BOX, version, access.entryHashes)


def _name(kind: str, number: int) -> bytes:
    return f"{kind} {number}".encode().ljust(32)


_LIES: Final = lies()


@dataclass(slots=True)
class Count:
    """What a search has tried."""

    worlds: int = 0
    acts: int = 0
    accepted: int = 0
    lies: int = 0
    seconds: float = 0.0

    def row(self, name: str, length: int) -> str:
        return (
            f"| {name} | {length} | {self.worlds:,} | {self.acts:,} | {self.accepted:,} | {self.lies:,}"
            f" | {self.seconds:,.0f} s |"
        )


def _signed(*_: object) -> None:
    """Stand in for the verification of a signature."""


def search(alphabet: Alphabet, length: int) -> Count:
    """Try all histories of up to `length` records; raise `AssertionError` where judge and oracle differ."""
    with mock.patch.object(judge, "_verify_departure", _signed):
        return _search(alphabet, length)


def _search(alphabet: Alphabet, length: int) -> Count:
    count, started = Count(), time.monotonic()  # about time
    seen: set[World] = set()

    def is_new(world: World) -> bool:
        """Return whether no history has led to this world, but for the names of the users."""
        named = acts.canonical(world)
        before = len(seen)
        seen.add(named)
        return len(seen) > before

    begun_by = [_begin(count, act) for act in alphabet.first()]
    layer = [each for each in begun_by if each is not None and is_new(each.world)]
    for depth in range(2, length + 1):
        before, layer = layer, []
        for history in before:
            # Lies are about links, hashes and parts: they are told of one list of each kind of act.
            told: set[Act] = set()
            for act in alphabet.next():
                world = _try(count, history, act)
                if world is None:
                    continue
                kind = dataclasses.replace(act, rights=act.rights and ())
                if kind not in told:
                    told.add(kind)
                    _lie(count, history, act)
                if depth < length and is_new(world):
                    layer.append(followed(history, act, world))
    count.worlds, count.seconds = len(seen), time.monotonic() - started  # about time
    return count


def _begin(count: Count, act: Act) -> History | None:
    count.acts += 1
    # The creator of a container may give any rights from the start, also none to themselves.
    history, expected = begun(act), all(r is None or act.time < r.end for r in act.rights or ())
    assert (history is not None) == expected, act
    return history


def _try(count: Count, history: History, act: Act) -> World | None:
    """Return the world after an act, on which judge and oracle must agree; None if they refuse it."""
    count.acts += 1
    if act.leaves:
        is_accepted = left(history, act, departure(history, act)) is not None
    else:
        is_accepted = accepted(history, *drafted(history, act))
    world = acts.rightful(history.world, act)
    assert is_accepted == (world is not None), f"{history.world}: {act}"
    if world is not None:
        count.accepted += 1
        _check_key(history, act)
    return world


def _lie(count: Count, history: History, act: Act) -> None:
    if act.leaves:
        said = departure(history, act)
        for false_one in (
            replace(said, containerId=bytes(16)),
            replace(said, accessVersion=said.accessVersion + 1),
            replace(said, accessList=bytes(32)),
            replace(said, fingerprint=bytes(32)),
            replace(said, time=history.world.listed_at - 1),
            replace(said, time=2**50),
        ):
            count.lies += 1
            assert left(history, act, false_one) is None, f"{false_one}: {history.world}"
        return
    record, access = drafted(history, act)
    for name, lie in _LIES.items():
        false = lie(history, record)
        if false is not None and false != record:
            count.lies += 1
            assert not accepted(history, false, access), f"{name}: {history.world}: {act}"


def _check_key(history: History, act: Act) -> None:
    """Check that new content, by a writer who renews where the judge says so, is for members alone."""
    if act.content != "new" or history.in_force.needs_renewal(act.time):
        return
    alive = [history.world.alive(user, act.time) for user in range(len(acts.USERS))]
    members = {user for user, r in enumerate(alive) if r is not None and r.bits & acts.DECRYPT}
    members -= history.world.left
    assert acts.key_holders(history.world) <= members, f"{history.world}: {act}"
