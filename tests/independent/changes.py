"""Records valid and not, drawn to compare two judges on rules 1 to 5, and V3 to V7 of groups.

Each draw starts from a record that is valid, or nearly, and changes a little of it or of its list. Draws
come from a seeded generator rather than from Hypothesis: most faults show in one draw of a thousand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.independent import access_lists
from tests.independent.access_lists import EVERYTHING, NEEDS, AccessList, Entry, Salted
from tests.independent.container_records import (
    Acting,
    ContainerRecord,
    Governing,
    InForce,
    Judge,
    Judged,
    Via,
    record_hash,
)
from tests.independent.encodings import RefusedError, sha256
from tests.independent.ids import container_id_of
from tests.independent.key_records import (
    ENCRYPTION,
    MINUTE,
    SIGNING,
    KeyChain,
    PublishedKey,
    Signed,
)
from tests.independent.rosters import SHARER
from tests.independent.segments import Part

USERS = sorted(sha256(bytes([n])) for n in range(3))
NONCE, SALT = bytes(32), bytes(32)
CREATOR = USERS[0]
CONTAINER = container_id_of(CREATOR, NONCE)
BORN = 1_800_000_000_000_000
TIME = BORN + 60 * MINUTE
"""Of the record that is judged."""
SLACK = 15 * MINUTE
KEY = {SIGNING: [PublishedKey(b"", 0)], ENCRYPTION: list[PublishedKey]()}
JUDGE = Judge(TIME, {user: KeyChain(user, keys=KEY) for user in USERS})

COMBINATIONS = [
    permissions
    for permissions in range(1, EVERYTHING + 1)
    if all(not permissions & one or permissions & more == more for one, more in NEEDS.items())
]
USUAL = [3, 11, 15, 31, 63, 256, EVERYTHING]
EXPIRIES = [None, None, TIME + MINUTE, TIME + 1, TIME, TIME - 1]
# What an author needs for a change of a kind; of access, who has less than the first may renew.
NEEDED = {
    "edit": [15],
    "type": [15 | 32],
    "access": [31, 15, 31 | 256],
    "both": [63, 15 | 32],
    "tombstone": [256],
}
PART_FIELDS: dict[str, Sequence[Any]] = {
    "part_id": [b"1" * 16, b"2" * 16, b"3" * 16],
    "author": USERS[:2],
    "padded_length": [1, 2],
    "segments": [b"a" * 32, b"b" * 32],
    "sealed_key": [b"x" * 112, b"y" * 112, b"z" * 112],
}


@dataclass(frozen=True)
class SeenList:
    """A list and the positions that the reader sees."""

    entries: list[Salted]
    positions: list[int]

    @property
    def hashes(self) -> bytes:
        return b"".join(entry.hash for entry in self.entries)

    @property
    def seen(self) -> Sequence[tuple[int, Salted]]:
        return [(position, self.entries[position]) for position in self.positions]

    def access(self, version: int) -> AccessList:
        return access_lists.disclosed(CONTAINER, version, self.hashes, self.seen)


@dataclass(frozen=True)
class Change:
    """Record 1 with its list, maybe record 2, and a record after them with its list."""

    first: ContainerRecord
    old: SeenList
    parent: ContainerRecord | None
    record: ContainerRecord
    new: SeenList | None
    left: frozenset[bytes]
    acting: Acting | None
    """Of the group of the record's via, which is verified but for its entry."""

    def is_valid(self) -> bool:
        body = self.first.stored()
        assert self.first.governing is not None
        digest, access = record_hash(body), self.old.access(1)
        governing = InForce(
            self.first, digest, self.first.governing, access, self.first.time, self.left
        )
        parent: Judged | InForce | None = None
        if self.parent is not None:
            parent = Judged(self.parent, record_hash(self.parent.stored()))
        if self.parent == self.first:
            parent = governing
        access_or_none = None if self.new is None else self.new.access(self.record.version)
        signed = Signed(self.record.stored(), None)
        try:
            JUDGE.next(signed, governing, access_or_none, parent, self.acting)
        except RefusedError:
            return False
        return True


@dataclass(frozen=True)
class Beginning:
    """A first record with its list."""

    record: ContainerRecord
    access: SeenList

    def is_valid(self) -> bool:
        try:
            JUDGE.first(Signed(self.record.stored(), None), self.access.access(1))
        except RefusedError:
            return False
        return True


class Draw:
    """One draw; its number leads to it again."""

    def __init__(self, number: int) -> None:
        self._random = Random(number)

    def _one_in(self, count: int) -> bool:
        return self._random.randrange(count) == 0

    def _of(self, choices: Sequence[Any]) -> Any:
        return self._random.choice(choices)

    def beginning(self) -> Beginning:
        author = CREATOR
        access = self._seen({user: self._entry(user) for user in USERS}, author)
        header, content = self._parts()
        own = [None if part is None else replace(part, author=author) for part in (header, content)]
        governing = Governing(1, author, access.access(1).hash, b"k" * 32, b"t" * 32)
        record = _first(governing, own[0], own[1])
        return Beginning(self._altered(record) if self._one_in(2) else record, access)

    def change(self) -> Change:
        holder = author = self._of(USERS)
        via, acting = None, None
        if self._one_in(2):  # the holder of the entry is a group, and somebody else acts for it
            author = self._of([user for user in USERS if user != holder])
            via, acting = self._via(holder), self._acting()
        kind = self._of(["edit", "type", "access", "access", "access", "both", "tombstone"])
        before = {user: self._entry(user) for user in USERS if self._one_in(2)}
        before[holder] = self._author(holder, kind)
        old = self._seen(before, holder)
        seen = [user for n, user in enumerate(sorted(before)) if n in old.positions]
        left = frozenset(user for user in seen if self._one_in(3))
        governing = Governing(1, CREATOR, old.access(1).hash, b"k" * 32, b"t" * 32)
        first = _first(governing, *self._parts())
        second = _following(first, governing=None)
        if self._one_in(3):
            second = replace(second, via=self._via(self._of(USERS)))
        dead = replace(second, header=None, content=None, tombstone=True)
        parent = self._of([first] * 6 + [second] * 6 + [dead])
        record = replace(_following(parent), author=author, time=TIME, via=via)
        new = None
        if kind == "edit" and self._one_in(2):
            part = self._part()
            own = replace(part, part_id=b"4" * 16, author=author, sealed_key=b"w" * 112)
            record = replace(record, content=own)
        if kind == "tombstone":
            record = replace(record, header=None, content=None, tombstone=True)
        if kind == "type":
            record = replace(record, governing=replace(governing, type=b"u" * 32))
        if kind in ("access", "both"):
            after = self._after(before, holder, left)
            if via is not None and holder in after and not self._one_in(6):
                after[holder] = replace(after[holder], key_index=via.epoch)
            new = self._seen(after, holder)
            record = _changed(record, new, b"u" * 32 if kind == "both" else b"t" * 32)
        if self._one_in(2):
            record = self._altered(record)
        at_hand = parent == first or not self._one_in(3)
        acting = None if record.via is None else acting or self._acting()
        return Change(first, old, parent if at_hand else None, record, new, left, acting)

    def _via(self, group: bytes) -> Via:
        return Via(group, self._of([0, 1, 1, 2]), 1, b"h" * 32)

    def _acting(self) -> Acting:
        """Of a sharer in an epoch that has not ended, more often than not."""
        if not self._one_in(3):
            return Acting(SHARER, BORN, None, None)
        times = [None, TIME, TIME - SLACK, TIME - SLACK + 1]
        since = self._of([BORN, TIME, TIME + 1])
        return Acting(self._of([0, 1, 2]), since, self._of(times), self._of(times))

    def _entry(self, user: bytes) -> Entry:
        permissions = self._of(self._of([USUAL, COMBINATIONS]))
        return Entry(user, self._of([0, 1]), permissions, self._of(EXPIRIES), None)

    def _author(self, user: bytes, kind: str) -> Entry:
        """Somebody who may do what they do, more often than not."""
        if self._one_in(6):
            return self._entry(user)
        permissions = self._of([*NEEDED[kind], EVERYTHING])
        return Entry(user, self._of([0, 1]), permissions, self._of([None, None, TIME + 1]), None)

    def _after(
        self, before: dict[bytes, Entry], author: bytes, left: frozenset[bytes]
    ) -> dict[bytes, Entry]:
        """The unexpired entries of before, of which some are gone, or new, or other in one field."""
        after = {user: one for user, one in before.items() if not one.is_expired_at(TIME)}
        for user in self._random.sample(USERS, self._of([0, 1, 1, 2])):
            fate = self._of(["gone", "new", "key_index", "permissions", "expires_at"])
            fresh = self._entry(user)
            if fate == "gone":
                after.pop(user, None)
            elif fate == "new" or user not in after:
                after[user] = fresh
            else:
                changes: dict[str, Any] = {fate: getattr(fresh, fate)}
                after[user] = replace(after[user], **changes)
        for user in sorted(left & after.keys()):
            if self._one_in(2):
                del after[user]
        if self._one_in(20):
            after |= {user: one for user, one in before.items() if one.is_expired_at(TIME)}
        return after or {author: self._entry(author)}

    def _seen(self, wanted: dict[bytes, Entry], author: bytes) -> SeenList:
        """Whole, or in part; of who is judged the entry is disclosed."""
        users = [user for user in USERS if user in wanted]
        salted = [Salted(SALT, wanted[user].stored()) for user in users]
        hides = self._one_in(4)
        positions = [
            n for n, user in enumerate(users) if user == author or not hides or self._one_in(2)
        ]
        return SeenList(salted, positions)

    def _part(self) -> Part:
        return Part(**{name: self._of(values) for name, values in PART_FIELDS.items()})

    def _parts(self) -> tuple[Part | None, Part | None]:
        header, content = self._of([None, self._part()]), self._of([None, self._part()])
        if header is not None and content is not None and header.part_id == content.part_id:
            return header, None
        return header, content

    def _altered(self, record: ContainerRecord) -> ContainerRecord:
        """The record with one field changed, also of its governing field and parts, or those swapped."""
        if self._one_in(16):
            return replace(record, header=record.content, content=record.header)
        limit = TIME + 15 * MINUTE
        alterations: dict[str, Sequence[Any]] = {
            "container_id": [bytes(16)],
            "version": [1, 2, 3, 4],
            "parent": [bytes(32)],
            "link": [(1, bytes(32)), (2, record.parent), (1, record.parent), None],
            "nonce": [None, bytes([1] * 32)],
            "author": USERS,
            "time": [BORN - 1, BORN, TIME - 1, TIME + 1, limit, limit + 1],
            "header": [None, self._part(), self._like(record.header), self._like(record.header)],
            "content": [None, self._part(), self._like(record.content), self._like(record.content)],
            "governing": [None, self._governing_like(record.governing)],
            "tombstone": [True],
            "via": [None, self._via(USERS[0]), self._via(USERS[1])],
        }
        name = self._of([*alterations, "header", "content", "governing", "governing"])
        changes = {name: self._of(alterations[name])}
        return replace(record, **changes)

    def _like(self, part: Part | None) -> Part | None:
        if part is None:
            return None
        name = self._of(list(PART_FIELDS))
        changes = {name: self._of(PART_FIELDS[name])}
        return replace(part, **changes)

    def _governing_like(self, governing: Governing | None) -> Governing | None:
        if governing is None:
            return None
        changes: dict[str, Any] = self._of(
            [
                {"access_version": 1},
                {"access_version": 4},
                {"access_author": USERS[1]},
                {"access_via": USERS[1]},
                {"access_via": None},
                {"access_list": bytes(32)},
                {"key_commitment": b"k" * 32},
                {"type": b"t" * 32},
                {"type": b"v" * 32},
            ]
        )
        return replace(governing, **changes)


def _first(governing: Governing, header: Part | None, content: Part | None) -> ContainerRecord:
    return ContainerRecord(
        CONTAINER, NONCE, 1, None, CREATOR, 0, BORN, None, governing, header, content, False
    )


def _following(parent: ContainerRecord, governing: Governing | None = None) -> ContainerRecord:
    """The next record, that changes nothing yet."""
    digest = record_hash(parent.stored())
    return replace(
        parent,
        nonce=None,
        version=parent.version + 1,
        parent=digest,
        time=BORN + MINUTE,
        link=parent.link if parent.governing is None else (parent.version, digest),
        governing=governing,
        tombstone=False,
    )


def _changed(record: ContainerRecord, new: SeenList, container_type: bytes) -> ContainerRecord:
    """The record as a change of access, with the keys of its parts sealed again."""
    digest = new.access(record.version).hash
    return replace(
        record,
        governing=Governing(
            record.version,
            record.author,
            digest,
            b"l" * 32,
            container_type,
            None if record.via is None else record.via.group,
        ),
        header=None if record.header is None else replace(record.header, sealed_key=b"v" * 112),
        content=None if record.content is None else replace(record.content, sealed_key=b"v" * 112),
    )
