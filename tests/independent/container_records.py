"""Container records and their rules: docs/spec/container.md, 2, 5, 7 and 8, and docs/spec/groups.md, 6."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated

from tests.independent import batches, departures, rosters
from tests.independent import encodings as e
from tests.independent.access_lists import (
    DECRYPT,
    DELETE,
    EVERYTHING,
    MODIFY_ACCESS,
    MODIFY_TYPE,
    UPLOAD,
    AccessList,
    Entry,
)
from tests.independent.encodings import (
    RefusedError,
    UndecodableError,
    Value,
    decodes,
    labelled_hash,
    need,
)
from tests.independent.ids import container_id_of
from tests.independent.key_records import MINUTE, KeyChain, Signable, Signed
from tests.independent.keys import SigningKey
from tests.independent.segments import HEADER, LONGEST, Part

ENDLESS = e.TIME + 1


# 5 Type


NOT_IN_TEXT = (
    *range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
)  # fmt: skip


def type_hash(container_id: bytes, salt: bytes, container_type: str | None) -> bytes:
    need(container_type is None or len(container_type.encode()) <= 256, "a type too long")
    shown = all(ord(each) not in NOT_IN_TEXT for each in container_type or "")
    need(shown, "a type that moves the cursor or turns the text")
    return labelled_hash("type", container_id + salt + e.encode(container_type))


def check_ordinary(container_type: str | None) -> None:
    """Of every container but a group's."""
    need(not rosters.is_group_type(container_type), "a group's type in another container")


# 2 ContainerRecord


@dataclass(frozen=True)
class Via(e.Object):
    group: e.Hash
    epoch: e.EntryIndex
    version: e.UInt
    """With the hash, the record of the group whose roster proves the membership."""
    hash: e.Hash


@dataclass(frozen=True)
class Governing(e.Object):
    access_version: e.UInt
    access_author: e.Hash
    access_list: e.Hash
    key_commitment: e.Hash
    type: e.Hash
    access_via: e.Hash | None = None
    """The group for which access_author acted."""


def _link(value: Value) -> tuple[int, bytes]:
    version, digest = e.array(value, 2)
    return e.uint(version), e.octets(digest, 32)


@dataclass(frozen=True)
class ContainerRecord(Signable):
    name = "container-record"
    container_id: e.Id
    nonce: e.Hash | None
    version: e.Version
    parent: e.Hash | None
    author: e.Hash
    key_index: e.KeyIndex
    time: e.Time
    link: Annotated[tuple[int, bytes], _link] | None
    governing: Governing | None
    header: Part | None
    content: Part | None
    tombstone: e.Bool
    via: Via | None = None

    def signed_by(self, key: SigningKey) -> Signed:
        return Signed(self.stored(), key.sign(self.name, bare(self.stored())))

    @property
    def changes_access(self) -> bool:
        return self.governing is not None and self.governing.access_version == self.version


def parse(body: bytes) -> ContainerRecord:
    # The limit of 2,048 bytes needs no check: no record of this grammar is longer.
    record = ContainerRecord.parse(body)
    header = record.header
    decodes(
        header is None or header.padded_length <= LONGEST[HEADER], "no integer from 0 to 262144"
    )
    first = record.version == 1
    need(record.nonce is None or first, "the nonce stands in version 1 only")
    need((record.parent is None) == first, "only version 1 has no parent")
    need(record.link is None or not first, "version 1 has no link")  # other versions: it names G
    need(record.via is None or not first, "version 1 has no via")
    access_via = None if record.governing is None else record.governing.access_via
    need(access_via is None or not first, "version 1 has no accessVia")
    parts = [part.part_id for part in (record.header, record.content) if part is not None]
    need(len(set(parts)) == len(parts), "one id for two parts")
    return record


def bare(body: bytes) -> bytes:
    """The bare form: what is hashed and signed, and what outlives a deletion."""
    fields = e.stored(body, 13)
    for at in (9, 10):
        if isinstance(fields[at], list):
            fields[at] = labelled_hash("part", e.encode(fields[at]))
    return e.store(fields)


def parse_bare(body: bytes) -> ContainerRecord:
    """A record of a deleted container: its parts are not looked at."""
    fields = e.stored(body, 13)
    for at in (9, 10):
        if isinstance(fields[at], bytes):
            e.octets(fields[at], 32)
            fields[at] = None
    return replace(parse(e.store(fields)), header=None, content=None)


def record_hash(body: bytes) -> bytes:
    return labelled_hash("container-record", bare(body))


# 7 What makes a record valid


@dataclass(frozen=True)
class Judged:
    """A record that was found valid."""

    record: ContainerRecord
    hash: bytes


@dataclass(frozen=True)
class InForce:
    """A governing record that was found valid, with the list that it names: G."""

    record: ContainerRecord
    hash: bytes
    governing: Governing
    access: AccessList
    made: int
    """The time of the record that made the list."""
    left: frozenset[bytes] = frozenset()
    """The users who have left the list: 4.1."""

    def unexpired(self, time: int) -> dict[bytes, Entry]:
        """P"""
        entries = self.access.entries.items()
        return {user: entry for user, entry in entries if not entry.is_expired_at(time)}


@dataclass(frozen=True)
class Acting:
    """What a judge knows of the group of a record's via, once V2 holds but for the entry."""

    role: int
    since: int
    """The time of the group's record that the via names."""
    end: int | None
    """The time of the record that begins the next epoch."""
    deleted: int | None
    """The time of the group's tombstone."""


NO_GROUPS: Mapping[bytes, Acting] = MappingProxyType({})


@dataclass(frozen=True)
class Judge:
    now: int
    chains: Mapping[bytes, KeyChain]
    deleted: bool = False
    """8: the head is a tombstone, and governing records are read in their bare form."""

    def _read(self, body: bytes) -> ContainerRecord:
        governs = self.deleted and parse_bare(body).governing is not None
        return parse_bare(body) if governs else parse(body)

    def first(self, signed: Signed, access: AccessList) -> InForce:
        """Rule 1."""
        record = self._read(signed.body)
        governing = record.governing
        # Without a nonce, as in every other version, no id is that of author and nonce.
        expected = container_id_of(record.author, record.nonce or b"")
        need(expected == record.container_id, "not the id of author and nonce")
        if governing is None:
            raise UndecodableError("integrity", "the first record governs")
        need(governing.access_version == 1, "another accessVersion than 1")
        need(governing.access_author == record.author, "another accessAuthor")
        need(not record.tombstone, "a tombstone as first record")
        parts = [part for part in (record.header, record.content) if part is not None]
        need(all(part.author == record.author for part in parts), "another part author")
        self._key(signed, record)
        self._not_ahead(record)
        _change_of_access(record, access, None, None)
        return InForce(record, record_hash(signed.body), governing, access, record.time)

    def next(
        self,
        signed: Signed,
        governing: InForce,
        access: AccessList | None,
        parent: Judged | InForce | None,
        acting: Acting | None = None,
    ) -> Judged | InForce:
        """Rules 2 to 5, and V1 to V7.

        `access` is the list of a change of access; `parent` may not be at hand. `acting` comes with a record
        that has a via.
        """
        record, g = self._read(signed.body), governing
        digest = record_hash(signed.body)
        need(record.container_id == g.record.container_id, "another container's")
        need(record.link == (g.record.version, g.hash), "the link does not name G")
        if parent is None and record.version == g.record.version + 1:
            parent = g
        if parent is None:
            need(record.version > g.record.version, "not above G")
        else:
            _chain(record, parent)
        author = _author(record, g, acting)
        if acting is not None:
            _through_a_group(record, author, acting, access)
        if record.tombstone:
            held = (record.header, record.content, record.governing)
            need(held == (None, None, None), "a tombstone that holds something")
        if record.governing is not None:
            _governs(record, record.governing, g.governing)
        if parent is not None:
            _parts(record, parent.record)
        self._key(signed, record)
        earlier = [g.record.time] if parent is None else [g.record.time, parent.record.time]
        need(all(time <= record.time for time in earlier), "rule 3: before parent or G")
        self._not_ahead(record)
        if record.governing is None:
            return Judged(record, digest)
        if not record.changes_access:
            return replace(g, record=record, hash=digest, governing=record.governing)
        if access is None:
            raise UndecodableError("integrity", "a change of access without its list")
        _change_of_access(record, access, g, author)
        return InForce(record, digest, record.governing, access, record.time)

    def departed(self, g: InForce, served: Sequence[Signed]) -> InForce:
        """4.1: G with the users who have left its list, by the departures that came with the list."""
        users, governing = frozenset(g.access.entries), g.governing
        listed = g.record.container_id, governing.access_version, governing.access_list
        departures.check_order(served)
        left = [departures.parse(signed.body).fingerprint for signed in served]
        for user, signed in zip(left, served, strict=True):
            decodes(user in self.chains, "an author without a key chain")
            departures.check(
                signed, departures.Left(*listed, g.made, users), self.chains[user], self.now
            )
        return replace(g, left=frozenset(left))

    def _key(self, signed: Signed, record: ContainerRecord) -> None:
        decodes(record.author in self.chains, "an author without a key chain")
        public = self.chains[record.author].signing_key(record.key_index, record.time)
        if signed.signature is not None:
            batches.check_record(public, bare(signed.body), signed.signature)

    def _not_ahead(self, record: ContainerRecord) -> None:
        need(record.time <= self.now + 15 * MINUTE, "rule 3: of the future", "clock")

    def fresh(
        self,
        governing: Sequence[tuple[Signed, AccessList | None]],
        head: Signed | None,
        acting: Mapping[bytes, Acting] = NO_GROUPS,
    ) -> Judged | InForce:
        """8: what a fresh reader judges, G1 to Gk with their lists, and the head unless it is Gk.

        `acting` is by the body of the record.
        """
        (first, access), *others = governing
        if access is None:
            raise UndecodableError("integrity", "the first list is served")
        g = self.first(first, access)
        for signed, access in others:
            judged = self.next(signed, g, access, None, acting.get(signed.body))
            if not isinstance(judged, InForce):
                raise UndecodableError("integrity", "governing records govern")
            g = judged
        return g if head is None else self.next(head, g, None, None, acting.get(head.body))


def _chain(record: ContainerRecord, parent: Judged | InForce) -> None:
    need(record.parent == parent.hash, "not the parent's hash")
    need(record.version == parent.record.version + 1, "not the parent's version and one")
    governs = isinstance(parent, InForce)
    link = (parent.record.version, parent.hash) if governs else parent.record.link
    need(record.link == link, "another link than the parent leads to")
    need(not falls(parent.record, record), "V3: an epoch before the parent's")
    need(not parent.record.tombstone, "nothing follows a tombstone")


def falls(parent: ContainerRecord, record: ContainerRecord) -> bool:
    """Return whether a record is made through a lower epoch of the group than its parent."""
    before, via = parent.via, record.via
    if before is None or via is None or before.group != via.group:
        return False
    return via.epoch < before.epoch


def _author(record: ContainerRecord, g: InForce, acting: Acting | None) -> Entry | None:
    """V1 and V2: the entry by which the author acts, with the permissions that they have by it."""
    user = record.author if record.via is None or acting is None else record.via.group
    entry = g.unexpired(record.time).get(user)
    if entry is not None and acting is not None:
        entry = replace(entry, permissions=entry.permissions & rosters.MASKS[acting.role])
    needed = DELETE if record.tombstone else UPLOAD
    governing = None if record.tombstone else record.governing
    if governing is not None and governing.type != g.governing.type:
        needed |= MODIFY_TYPE
    need(entry is not None and entry.permissions & needed == needed, "an author without permission")
    return entry


def _through_a_group(
    record: ContainerRecord, entry: Entry | None, acting: Acting, access: AccessList | None
) -> None:
    """V3 to V7"""
    assert record.via is not None
    group, epoch, slack = record.via.group, record.via.epoch, 15 * MINUTE
    low = entry is not None and epoch < entry.key_index
    need(not low, "V3: an epoch before that of the group's entry")
    ended = acting.end is not None and record.time >= acting.end + slack
    need(not ended, "V4: after the end of the epoch")
    need(record.time >= acting.since, "V5: before the group's record")
    own = None if access is None else access.entries.get(group)
    need(own is None or own.key_index == epoch, "V6: another epoch of the own group")
    gone = acting.deleted is not None and record.time >= acting.deleted + slack
    need(not gone, "V7: after the group's tombstone")


def _governs(record: ContainerRecord, new: Governing, old: Governing) -> None:
    if record.changes_access:
        need(new.access_author == record.author, "a change of access in another's name")
        via = None if record.via is None else record.via.group
        need(new.access_via == via, "a change of access for another group")
        need(new.key_commitment != old.key_commitment, "a change of access with the old key")
    else:
        need(new == replace(old, type=new.type), "access changed without saying so")
        need(new.type != old.type, "nothing changed")


def _parts(record: ContainerRecord, parent: ContainerRecord) -> None:
    before = [part for part in (parent.header, parent.content) if part is not None]
    ids, keys = {part.part_id for part in before}, {part.sealed_key for part in before}
    for part, old in ((record.header, parent.header), (record.content, parent.content)):
        if part is None:
            continue
        if old is not None and part.part_id == old.part_id:
            need(part == replace(old, sealed_key=part.sealed_key), "a carried part that changed")
            sealed_again = part.sealed_key != old.sealed_key
            need(sealed_again == record.changes_access, "sealed again, or not, without reason")
        else:
            need(part.author == record.author, "a new part of another author")
            need(part.part_id not in ids, "a new part under an old id")
            need(part.sealed_key not in keys, "a new part with an old sealed key")


# Rules 4 and 5


def _change_of_access(
    record: ContainerRecord, access: AccessList, g: InForce | None, author: Entry | None
) -> None:
    """`access` is N; without g it is the first record, whose author holds everything."""
    named = record.governing is not None and access.hash == record.governing.access_list
    need(named, "not the list that the record names")
    old = {} if g is None else g.unexpired(record.time)
    new = access.entries
    need(not any(entry.is_expired_at(record.time) for entry in new.values()), "expired entries")
    held, until = EVERYTHING, ENDLESS
    if g is not None:
        assert author is not None
        held, until = author.permissions, _end(author)
    for user in old.keys() | new.keys():
        if user in new or access.complete:  # who is missing from a list not wholly seen is not out
            gone = g is not None and user in g.left
            if not gone or not _may_change(None, new.get(user), held, until):
                _difference(old.get(user), new.get(user), held, until)
    if g is not None:
        for user, entry in g.access.entries.items():
            falls = user in new and new[user].key_index < entry.key_index
            need(not falls or user == record.author, "a key index that falls")
        if not held & MODIFY_ACCESS:
            _renewal(record, access, g)


def _may_change(old: Entry | None, new: Entry | None, held: int, until: int) -> bool:
    try:
        _difference(old, new, held, until)
    except RefusedError:
        return False
    return True


def _difference(old: Entry | None, new: Entry | None, held: int, until: int) -> None:
    before, after = (0 if entry is None else entry.permissions for entry in (old, new))
    need(not (before ^ after) & ~held, "a bit given or taken that the author does not hold")
    later = False
    if old is not None and new is not None and old.expires_at != new.expires_at:
        need(
            not (before | after) & ~held, "an expiry changed of bits that the author does not hold"
        )
        later = _end(new) > _end(old)
    if new is not None and (after & ~before or later):
        need(_end(new) <= until, "given for longer than the author's own")


def _end(entry: Entry) -> int:
    return ENDLESS if entry.expires_at is None else entry.expires_at


def _renewal(record: ContainerRecord, access: AccessList, g: InForce) -> None:
    old, new = g.unexpired(record.time), access.entries
    same_type = record.governing is not None and record.governing.type == g.governing.type
    need(same_type, "a renewal that changes the type")
    for user in old.keys() | new.keys():
        if user not in new and (not access.complete or user in g.left):
            continue
        if user in new and new[user].is_expired_at(record.time):
            continue  # rule 4
        both = user in old and user in new
        need(both and _rights(old[user]) == _rights(new[user]), "a renewal that gives or takes")
    if g.access.complete and access.complete:
        expired = len(old) < len(g.access.entries)
        chooser = old.get(g.governing.access_via or g.governing.access_author)
        left = chooser is None or not chooser.permissions & DECRYPT
        rises = any(
            new[user].key_index > entry.key_index for user, entry in old.items() if user in new
        )
        gone = any(g.access.entries[user].permissions & DECRYPT for user in g.left)
        need(expired or left or rises or gone, "a renewal without need")


def _rights(entry: Entry) -> tuple[int, int | None]:
    return entry.permissions, entry.expires_at
