"""Compare `records.judge` with the oracle for every history of one container, up to a bound.

A history is a sequence of acts. If two histories lead to the same world, but for the names of the users,
only one of them is continued. Each kind of act is also tried with every lie: one field of the record is
falsified that an honest client would set otherwise. Signatures are left out, because a dishonest author can
sign anything: so each act stands for every set of users who act together.
"""

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, cast
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
from scbroker.records.judge import Acting, InForce, Known
from scbroker.records.key_record import KeyChain, Signed

if TYPE_CHECKING:
    from assurance.exhaustive.groups import Reader

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


def drafted(
    history: History, act: Act, reader: "Reader | None" = None
) -> tuple[ContainerRecord, AccessList | None]:
    """Return the record of an act as an honest client of the author would make it, rightful or not."""
    before, number = history.in_force.governing, history.number + 1
    version, author = history.head.record.version + 1, NAMES[act.author]
    via = None if reader is None or act.version is None else reader.via(act.version)
    kind = _name("type", number) if act.changes_type else before.type
    access, governing = None, None
    if act.rights is not None:
        access = list_of(act.rights)
        governing = Governing(
            version,
            author,
            _hash_of(version, access),
            _name("key", number),
            kind,
            None if via is None else GROUP,
        )
    elif act.changes_type:
        governing = replace(before, type=kind)
    content = history.head.record.content
    if act.content == "new":
        content = Part(_name("part", number)[:16], author, 0, bytes(32), _sealed(number))
    elif act.content == "drop" or act.deletes:
        content = None
    elif content is not None and access is not None:
        content = replace(content, sealedKey=_sealed(number))
    in_force = history.in_force.known
    record = ContainerRecord(
        BOX, None, version, history.head.hash, author, 0, act.time,
        Link(in_force.record.version, in_force.hash), governing, None, content, act.deletes, via,
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


def accepted(
    history: History,
    record: ContainerRecord,
    access: AccessList | None,
    acting: Acting | None = None,
) -> bool:
    """Return whether the judge accepts the record."""
    known = Known(record, b"?" * 32)
    try:
        judge.judge_next(known, history.in_force, access, history.head, LATE, acting)
    except BrokerError:
        return False
    return True


def known_of(record: ContainerRecord) -> Known:
    return Known(record, record_hash(encode_object(record)))


def followed(history: History, act: Act, world: World, reader: "Reader | None") -> History:
    """Return the history that an accepted act leads to."""
    if act.leaves:
        in_force = left(history, act, departure(history, act))
        assert in_force is not None
        return dataclasses.replace(history, world=world, in_force=in_force)
    record, access = drafted(history, act, reader)
    known, acting = known_of(record), None if reader is None else reader.acting(act)
    in_force = judge.judge_next(known, history.in_force, access, history.head, LATE, acting)
    return History(world, known, in_force, history.number + 1)


def begun(act: Act) -> History | None:
    """Return the history of a creation; None if the judge refuses it."""
    access, author = list_of(act.rights or ()), NAMES[act.author]
    governing = Governing(1, NAMES[0], _hash_of(1, access), _name("key", 1), _name("type", 0))
    content = Part(_name("part", 1)[:16], NAMES[0], 0, bytes(32), _sealed(1))
    record = ContainerRecord(
        BOX, NONCE, 1, None, author, 0, act.time, None, governing, None, content, False
    )
    try:
        in_force = judge.judge_first(known_of(record), access, LATE)
    except BrokerError:
        return None
    return History(acts.created(act), in_force.known, in_force, 1)


Lies = Mapping[str, ContainerRecord | None]


def lies(history: History, record: ContainerRecord) -> Lies:
    """Return the ways to falsify a record, by name; None where one would change nothing."""
    before, forced = history.head.record, history.in_force.governing
    part, old, changes_access = record.content, before.content, record.changes_access
    is_new = part is not None and (old is None or old.partId != part.partId)
    other = NAMES[(NAMES.index(record.author) + 1) % len(NAMES)]

    def governing(applies: bool = True, **changed: object) -> ContainerRecord | None:
        if record.governing is None or not applies:
            return None
        return replace(record, governing=replace(record.governing, **changed))

    def content(applies: bool, **changed: object) -> ContainerRecord | None:
        if part is None or not applies:
            return None
        return replace(record, content=replace(part, **changed))

    return {
        "another parent": replace(record, parent=bytes(32)),
        "a version left out": replace(record, version=record.version + 1),
        "a version again": replace(record, version=record.version - 1),
        "a link to another record": replace(
            record, link=Link(record.link.version if record.link else 1, bytes(32))
        ),
        "a link past the governing record": replace(
            record, link=Link(before.version, history.head.hash)
        ),
        "another container": replace(record, containerId=bytes(16)),
        "dated far ahead": replace(record, time=2**50),
        "governs, and changes nothing": (
            replace(record, governing=forced) if record.governing is None else None
        ),
        "access of another author": governing(accessAuthor=other),
        "another list": governing(accessList=bytes(32)),
        "the container key of before": governing(
            changes_access, keyCommitment=forced.keyCommitment
        ),
        "another container key": governing(not changes_access, keyCommitment=bytes(32)),
        "another access version": governing(accessVersion=forced.accessVersion - 1),
        "a part of another author": content(is_new, author=other),
        "a carried part of another author": content(not is_new, author=bytes(32)),
        "a carried part of other bytes": content(not is_new, segments=b"x" * 32),
        "a carried part under its old sealed key, or a new one": content(
            not is_new, sealedKey=old.sealedKey if old and changes_access else bytes(112)
        ),
        "a new part under the sealed key of before": content(
            is_new and old is not None, sealedKey=old and old.sealedKey
        ),
        "a tombstone with a part": (
            replace(record, content=old) if record.tombstone and old else None
        ),
        "a tombstone that governs": replace(record, governing=forced) if record.tombstone else None,
    }


def _hash_of(version: int, access: AccessList) -> bytes:
    return list_hash(BOX, version, access.entryHashes)


def _name(kind: str, number: int) -> bytes:
    return f"{kind} {number}".encode().ljust(32)


def _sealed(number: int) -> bytes:
    return _name("sealed", number) * 3 + bytes(16)


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


def _verified(*_: object) -> None:
    """Stand in for the verification of a signature; a mock would keep all of its calls."""


def search(alphabet: Alphabet, length: int) -> Count:
    """Try all histories of up to `length` records; raise `AssertionError` where judge and oracle differ."""
    count, started = Count(), time.monotonic()  # about time
    with mock.patch.object(judge, "_verify_departure", _verified):
        try_all(count, alphabet, length)
    count.seconds = time.monotonic() - started  # about time
    return count


def try_all(count: Count, alphabet: Alphabet, length: int, reader: "Reader | None" = None) -> None:
    """Try all histories of a container that are tried, and of one that a group has access to with a reader.

    Lies are about links, hashes, parts and groups: they are told of one act of each kind.
    """
    seen, told = set[World](), set[object]()
    versions = 0 if reader is None else len(reader.groups)

    def is_new(world: World) -> bool:
        """Return whether no history has led to this world, but for the names of the users."""
        before = len(seen)
        seen.add(acts.canonical(world) if reader is None else world)
        return len(seen) > before

    begun_by = [_begin(count, act) for act in alphabet.first()]
    layer = [each for each in begun_by if each is not None and is_new(each.world)]
    for depth in range(2, length + 1):
        before, layer = layer, []
        for history in before:
            if reader is None:
                told.clear()
            for act in alphabet.next(versions):
                world = _try(count, history, act, reader)
                if world is None:
                    continue
                kind = dataclasses.replace(act, rights=act.rights and ())
                about = kind if reader is None else reader.about(history, kind)
                if about not in told:
                    told.add(about)
                    (_lie if reader is None else reader.lie)(count, history, act)
                if depth < length and is_new(world):
                    layer.append(followed(history, act, world, reader))
    count.worlds += len(seen)


def _begin(count: Count, act: Act) -> History | None:
    count.acts += 1
    # The creator of a container may give any rights from the start, also none to themselves.
    history, expected = begun(act), all(r is None or act.time < r.end for r in act.rights or ())
    assert (history is not None) == expected, act
    return history


def _try(count: Count, history: History, act: Act, reader: "Reader | None") -> World | None:
    """Return the world after an act, on which judge and oracle must agree; None if they refuse it."""
    count.acts += 1
    groups = () if reader is None else reader.groups
    if act.leaves:
        is_accepted = left(history, act, departure(history, act)) is not None
    else:
        is_accepted = accepted(
            history, *drafted(history, act, reader), None if reader is None else reader.acting(act)
        )
    world = acts.rightful(history.world, act, groups)
    assert is_accepted == (world is not None), f"{groups}: {history.world}: {act}"
    if world is not None:
        count.accepted += 1
        _check_key(history, act, groups)
    return world


def _lie(count: Count, history: History, act: Act) -> None:
    if act.leaves:
        said = departure(history, act)
        for changes in (
            {"containerId": bytes(16)}, {"accessVersion": said.accessVersion + 1},
            {"accessList": bytes(32)}, {"fingerprint": bytes(32)},
            {"time": history.world.listed_at - 1}, {"time": 2**50},
        ):  # fmt: skip
            count.lies += 1
            assert left(history, act, replace(said, **changes)) is None, (
                f"{changes}: {history.world}"
            )
        return
    record, access = drafted(history, act)
    for name, false in lies(history, record).items():
        if false is not None and false != record:
            count.lies += 1
            assert not accepted(history, false, access), f"{name}: {history.world}: {act}"


def _check_key(history: History, act: Act, groups: acts.Groups) -> None:
    """Check that new content, by a writer who renews where needed, is for members alone (groups.md, 7)."""
    world = history.world
    listed = world.rights[acts.GROUP] if groups else None
    is_old = listed is not None and listed.index != groups[-1].epoch
    if act.content != "new" or is_old or history.in_force.needs_renewal(act.time):
        return
    may = acts.readers(world, act.time, groups)
    assert acts.key_holders(world, groups) <= may, f"{groups}: {world}: {act}"
