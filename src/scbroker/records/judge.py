"""Decide whether a record may follow those before it, by rules 1 to 5 of docs/spec/container.md, section 7.

The broker applies the rules before it stores a record, the client before it trusts one. The inputs are parsed
objects whose hashes were checked, and a time. "At hand" is the specification's term for a parent or a
departure that the caller has.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from msgspec.structs import replace

from scbroker.crypto.verify import SIGNATURE_SIZE, VerifyingKey, labelled_hash
from scbroker.errors import ClockError, IntegrityError
from scbroker.records import batch, departure
from scbroker.records import container_record as records
from scbroker.records.canonical import container_id_of
from scbroker.records.container_record import AccessList, ContainerRecord, Entry, Part, Role
from scbroker.records.key_record import READER_TOLERANCE, KeyChain, Signed
from scbroker.records.roster import cut_entry
from scbroker.vocabulary import ContainerAccessLevel

K = TypeVar("K")
_DEPARTURES: Final = 1024
"""Number of verified departures that are remembered, of about 6 kB each. Failures are not remembered."""
ALL: Final = int(ContainerAccessLevel.DefaultOwnerPermissions)
_FOREVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Grant:
    """The access that one user or group gets. `expiresAt` is in microseconds since 1970."""

    permissions: int
    expiresAt: int | None
    fingerprint: bytes | None = None
    """That of the user or the group, if the caller gave it: the keys that are wrapped to must have it."""
    is_group: bool = False
    """Whether the caller gave a Group. If the caller gave an id, it can be that of a group as well."""


Rights = Entry | Grant
"""A user's permissions and their expiry, in a list or before it is made."""


@dataclass(frozen=True, slots=True)
class Known:
    """A record with its hash. It was judged, or a judged record names its hash."""

    record: ContainerRecord
    hash: bytes
    bare: bytes = dataclasses.field(default=b"", repr=False, compare=False)
    """The record's bare form, which its hash and its signature cover."""

    @classmethod
    def parse(cls, body: bytes) -> Known:
        record, parsed = records.parse_record(body), records.parse_either(body)
        return cls(record, parsed.hash, parsed.bare)

    @classmethod
    def of(cls, record: ContainerRecord) -> Known:
        """Return a whole record that is well-formed by itself, as `parse` returns it."""
        bare = records.bare_form(record)
        return cls(record, labelled_hash(records.LABEL, bare), bare)

    @classmethod
    def parse_bare(cls, body: bytes) -> Known:
        """Parse a record of a deleted container, whose parts are not judged (section 8)."""
        parsed = records.parse_either(body)
        return cls(replace(parsed.record, header=None, content=None), parsed.hash, parsed.bare)


@dataclass(frozen=True, slots=True)
class Acting:
    """The group for which a record's author acts, and what is verified of it (groups.md, 6).

    Times are in microseconds since 1970.
    """

    group: bytes
    role: int
    since: int
    """The time of the group's record that proves the membership."""
    ended: int | None
    """The time at which the epoch ended; None if it is the group's latest."""
    deleted: int | None
    """The time of the group's tombstone; None if it has none."""

    def entry_in(self, governing: InForce, record: ContainerRecord) -> Entry | None:
        """Return the group's entry, cut to the permissions that the author's role allows."""
        entry = governing.entry_of(self.group, record.time)
        return entry and cut_entry(entry, self.role)


@dataclass(frozen=True)
class InForce:
    """A valid governing record, the access list that it names, and the users who have left that list."""

    known: Known
    access: AccessList
    since: int
    """The time of the record that made the list; 0 if it is not known. Microseconds since 1970."""
    left: frozenset[bytes] = frozenset()
    """Fingerprints of users whose departure from this list is at hand (section 4.1)."""

    @property
    def record(self) -> ContainerRecord:
        return self.known.record

    @property
    def governing(self) -> records.Governing:
        return governing_of(self.known.record)

    def entry_of(self, fingerprint: bytes, time: int) -> Entry | None:
        return self.access.entry_of(fingerprint, time)

    def present(self, time: int) -> dict[bytes, Entry]:
        """Return the unexpired entries of the users who have not left."""
        unexpired = self.access.unexpired(time)
        return {name: entry for name, entry in unexpired.items() if name not in self.left}

    def needs_renewal(self, time: int) -> bool:
        """Whether a user without access knows the container key (rule 5; newer keys are another reason)."""
        author = self.entry_of(self.governing.accessVia or self.governing.accessAuthor, time)
        return (
            author is None
            or not author.allows(ContainerAccessLevel.Decrypt)
            or self.access.has_expired(time)
            or any(
                self.access.entries[name].allows(ContainerAccessLevel.Decrypt) for name in self.left
            )
        )


def governing_of(record: ContainerRecord) -> records.Governing:
    """Return the governing field; raise `IntegrityError` for a record without one."""
    if record.governing is None:
        raise IntegrityError("A record without a governing field was served as a governing record.")
    return record.governing


def verify_author(known: Known, signature: bytes, chain: KeyChain) -> None:
    """Verify that the author's key was in force at the record's time, and both signatures (rule 2, *key*)."""
    record = known.record
    if chain.fingerprint != record.author:
        raise IntegrityError("A record was served with another user's keys than its author's.")
    _verify_record(chain.signing_key(record.keyIndex, record.time), known, signature)


def _verify_record(key: VerifyingKey, known: Known, signature: bytes) -> None:
    """Verify a record's own signature, or that of the batch in which it was signed (ids.md, 2.2 and 2.7)."""
    if len(signature) == SIGNATURE_SIZE:
        key.verify(records.LABEL, known.bare, signature)
    else:
        batch.verify(key.raw, known.hash, signature)


def verify_departure(signed: Signed, governing: InForce, chain: KeyChain, now: int) -> None:
    """Verify that the user with this chain signed that they leave the list in force (section 4.1).

    Without the lower bound on the time, a thief of a retired key could sign a departure from any later list.
    """
    said = departure.parse_departure(signed.body)
    if chain.fingerprint != said.fingerprint:
        raise IntegrityError("A departure was served with another user's keys than the leaver's.")
    key = chain.signing_key(said.keyIndex, said.time)
    _verify_departure(key.raw, signed.body, signed.signature)
    container, in_force = governing.record.containerId, governing.governing
    left = (said.containerId, said.accessVersion, said.accessList)
    if left != (container, in_force.accessVersion, in_force.accessList):
        raise IntegrityError("A departure names another access list than the one in force.")
    if said.fingerprint not in governing.access.entries:
        raise IntegrityError("A departure names a user without an entry in the access list.")
    if said.time < governing.since:
        raise IntegrityError("A departure is older than the access list that it names.")
    if said.time > now + READER_TOLERANCE:
        raise ClockError(
            "A departure's time is more than 15 minutes ahead: check this machine's clock."
        )


@functools.lru_cache(_DEPARTURES)
def _verify_departure(key: bytes, body: bytes, signature: bytes) -> None:
    """Verify a departure's signatures. Cached: each read of a container gets the same departures again."""
    VerifyingKey(key).verify(departure.LABEL, body, signature)


def judge_first(known: Known, access: AccessList, now: int) -> InForce:
    """Judge a first record by rules 1, 3 and 4, once its signature was verified."""
    record = known.record
    if record.version != 1 or record.nonce is None:
        raise IntegrityError("The first served record is not a container's first (rule 1).")
    if container_id_of(record.author, record.nonce).bytes != record.containerId:
        raise IntegrityError("A container's id is not the one of its creator and nonce (rule 1).")
    if record.tombstone or not record.changes_access:
        raise IntegrityError(
            "A first record is a tombstone or has no access list of its own (rule 1)."
        )
    own = [part for part in (record.header, record.content) if part is not None]
    if any(part.author != record.author for part in own):
        raise IntegrityError("A new part is not its author's own (rule 1).")
    creator = Entry(record.author, 0, ALL, None, None)
    _check_time(record, None, None, now)
    _check_new_list(record, access)
    check_delegation(creator, {}, access.entries, complete=access.complete)
    return InForce(known, access, record.time)


def judge_next(
    known: Known,
    governing: InForce,
    access: AccessList | None,
    parent: Known | None,
    now: int,
    acting: Acting | None = None,
) -> InForce:
    """Judge a later record by rules 2 to 5, once its signature was verified; return what it puts in force.

    `access` is the new list if the record changes access, else None; `parent` is None if it is not at hand.
    `acting` is the verified membership in the group that the record's `via` names; None without a via.
    """
    record = known.record
    if parent is None and record.version == governing.record.version + 1:
        parent = governing.known  # the governing record is the record before this one
    _check_chain(record, governing, parent)
    _check_time(record, governing.record, parent.record if parent else None, now)
    author = author_of(record, governing, acting)
    if author is None:
        raise IntegrityError("A record's author had no access at its time (rule 2).")
    if acting is not None:
        _check_acting(record, acting, author, access)
    renewal = record.changes_access and not author.allows(ContainerAccessLevel.ModifyAccess)
    needed = needed_permissions(record, governing)
    if renewal:
        needed &= ~ContainerAccessLevel.ModifyAccess
    if not author.allows(needed):
        raise IntegrityError("A record's author lacked the permissions for it (rule 2).")
    _check_governing(record, governing)
    if parent is not None:
        _check_parts(record, parent.record)
    if not record.changes_access:
        return (
            governing if record.governing is None else dataclasses.replace(governing, known=known)
        )
    if access is None:
        raise IntegrityError("A change of access came without its list (rule 4).")
    _check_new_list(record, access)
    _check_key_indices(record.author, governing.access, access)
    if renewal:
        _check_renewal(record, governing, access)
    else:
        before, left = governing.access.unexpired(record.time), governing.left
        check_delegation(author, before, access.entries, complete=access.complete, left=left)
    return InForce(known, access, record.time)


def author_of(record: ContainerRecord, governing: InForce, acting: Acting | None) -> Entry | None:
    """Return the entry by which the author acts, with their own permissions; None without access (V1, V2)."""
    if (record.via.group if record.via else None) != (acting.group if acting else None):
        raise IntegrityError("A record was made through a group that was not verified (V2).")
    if acting is None:
        return governing.entry_of(record.author, record.time)
    return acting.entry_in(governing, record)


def _check_acting(
    record: ContainerRecord, acting: Acting, entry: Entry, access: AccessList | None
) -> None:
    """Check the times and epochs of a record that was made through a group (V3 to V7)."""
    epoch = record.via.epoch if record.via else 0
    if epoch < entry.keyIndex:
        raise IntegrityError("A record was made in an epoch before that of the access list (V3).")
    for end in (acting.ended, acting.deleted):
        if end is not None and record.time >= end + READER_TOLERANCE:
            raise IntegrityError(
                "A record was made through a group after its epoch ended (V4, V7)."
            )
    if record.time < acting.since:
        raise IntegrityError("A record is older than the membership of its author (V5).")
    own = access.entries.get(acting.group) if access is not None else None
    if own is not None and own.keyIndex != epoch:
        raise IntegrityError("A change of access names another epoch than its author's (V6).")


def check_skipped(known: Known, governing: Known, parent: Known, now: int) -> None:
    """Check structure and time of a body between a mark and the head (rules 2 and 3; section 8)."""
    _check_link(known.record, governing)
    _check_parent(known.record, parent, governing)
    _check_time(known.record, governing.record, parent.record, now)
    _check_parts(known.record, parent.record)


def needed_permissions(record: ContainerRecord, governing: InForce) -> ContainerAccessLevel:
    """Return the permissions that a record's author needs in the list in force (rule 2)."""
    if record.tombstone:
        return ContainerAccessLevel.Delete
    needed = ContainerAccessLevel.Upload
    before, after = governing.governing, record.governing
    if after is not None and after.type != before.type:
        needed |= ContainerAccessLevel.ModifyType
    if record.changes_access:
        needed |= ContainerAccessLevel.ModifyAccess
    return needed


def _check_chain(record: ContainerRecord, governing: InForce, parent: Known | None) -> None:
    if record.version < 2:
        raise IntegrityError("A first record follows others (rule 2).")
    _check_link(record, governing.known)
    if parent is not None:
        _check_parent(record, parent, governing.known)


def _check_link(record: ContainerRecord, governing: Known) -> None:
    link = record.link
    if (
        link is None
        or (link.version, link.hash) != (governing.record.version, governing.hash)
        or record.version <= governing.record.version
        or record.containerId != governing.record.containerId
    ):
        raise IntegrityError("A record does not link to the governing record (rule 2).")


def _check_parent(record: ContainerRecord, parent: Known, governing: Known) -> None:
    if (
        record.parent != parent.hash
        or record.version != parent.record.version + 1
        or record.containerId != parent.record.containerId
    ):
        raise IntegrityError("A record's parent is not the record before it (rule 2).")
    via, before = record.via, parent.record.via
    if via and before and via.group == before.group and via.epoch < before.epoch:
        raise IntegrityError("A record was made in an epoch before that of its parent (V3).")
    if parent.record.tombstone:
        raise IntegrityError("A record follows the tombstone (rule 2).")
    if parent.record.governing is not None:
        if parent.hash != governing.hash:
            raise IntegrityError("A record does not link to the governing record (rule 2).")
    elif record.link != parent.record.link:
        raise IntegrityError("A record does not link to the governing record (rule 2).")


def _check_time(
    record: ContainerRecord,
    governing: ContainerRecord | None,
    parent: ContainerRecord | None,
    now: int,
) -> None:
    if any(before is not None and record.time < before.time for before in (governing, parent)):
        raise IntegrityError("A record is older than the one before it (rule 3).")
    if record.time > now + READER_TOLERANCE:
        raise ClockError(
            "A record's time is more than 15 minutes ahead (rule 3): check this machine's clock."
        )


def _check_governing(record: ContainerRecord, governing: InForce) -> None:
    before, after = governing.governing, record.governing
    if record.tombstone:
        if after is not None or record.header is not None or record.content is not None:
            raise IntegrityError(
                "A tombstone has a governing field, a header or a content (rule 2)."
            )
    elif after is None:
        return
    elif after.accessVersion == record.version:
        made_by = after.accessAuthor, after.accessVia
        if (
            made_by != (record.author, record.via and record.via.group)
            or after.keyCommitment == before.keyCommitment
        ):
            raise IntegrityError(
                "A change of access names another author, or keeps the container key (rule 2)."
            )
    elif after.type == before.type or replace(after, type=before.type) != before:
        raise IntegrityError(
            "A governing record without a change of access must change the type and nothing else (rule 2)."
        )


def _check_parts(record: ContainerRecord, parent: ContainerRecord) -> None:
    if record.tombstone:
        return
    for role in Role:
        part, before = record.part(role), parent.part(role)
        if part is None:
            continue
        others = [old for old in (parent.header, parent.content) if old is not None]
        if before is not None and part.partId == before.partId:
            _check_carried(part, before, resealed=record.changes_access)
        elif part.author != record.author or any(
            part.partId == old.partId or part.sealedKey == old.sealedKey for old in others
        ):
            raise IntegrityError("A new part is not its author's own (rule 2).")


def _check_carried(part: Part, before: Part, *, resealed: bool) -> None:
    is_changed = replace(part, sealedKey=before.sealedKey) != before
    if is_changed or (part.sealedKey == before.sealedKey) == resealed:
        raise IntegrityError("A part that was carried over was changed (rule 2).")


def _check_new_list(record: ContainerRecord, access: AccessList) -> None:
    if governing_of(record).accessAuthor != record.author:
        raise IntegrityError("A change of access names another author than the record (rule 2).")
    check_list(record, access)
    if any(entry.is_expired(record.time) for entry in access.entries.values()):
        raise IntegrityError("A new access list holds an expired entry (rule 4).")


def check_list(record: ContainerRecord, access: AccessList) -> None:
    """Raise `IntegrityError` unless this is the access list that the record names (rule 2)."""
    governing = governing_of(record)
    if governing.accessList != records.list_hash(
        record.containerId, governing.accessVersion, access.entryHashes
    ):
        raise IntegrityError("An access list is not the one that was signed (rule 2).")


def _check_key_indices(author: bytes, before: AccessList, after: AccessList) -> None:
    """Refuse a list that lowers a user's key index, unless the user is the author (rule 4)."""
    for fingerprint, entry in after.entries.items():
        old = before.entries.get(fingerprint)
        if old is not None and entry.keyIndex < old.keyIndex and fingerprint != author:
            raise IntegrityError("A change of access lowers another user's key index (rule 4).")


def check_delegation(
    author: Entry,
    before: Mapping[K, Rights],
    after: Mapping[K, Rights],
    *,
    complete: bool,
    left: Collection[K] = (),
) -> None:
    """Refuse to give, take or prolong what the author does not hold (rule 4).

    `before` and `after` have the same kind of keys; `complete` says whether `after` has every entry. For a
    user in `left`, a change is also allowed if it would be allowed for a user without access before.
    """
    for user in before.keys() | after.keys():
        old, new = before.get(user), after.get(user)
        if new is None and not complete:
            continue  # the entry may exist, hidden from this reader
        refusal = _refusal(author, old, new)
        if refusal and user in left:
            refusal = _refusal(author, None, new)
        if refusal:
            raise IntegrityError(refusal)


def _refusal(author: Entry, old: Rights | None, new: Rights | None) -> str | None:
    """Return why the author may not change one user's access from `old` to `new`; None if they may."""
    old_bits = old.permissions if old else 0
    new_bits = new.permissions if new else 0
    changed = old_bits ^ new_bits
    if old and new and old.expiresAt != new.expiresAt:
        changed |= old_bits | new_bits
    if not author.allows(changed):
        return "A change of access beyond its author's own rights (rule 4)."
    if new is None:
        return None
    prolonged = _end(new) > (_end(old) if old else 0)
    if (new_bits & ~old_bits or prolonged) and _end(new) > _end(author):
        return "Access is given for longer than its author's own (rule 4)."
    return None


def _check_renewal(record: ContainerRecord, governing: InForce, after: AccessList) -> None:
    """Check that a renewal keeps all users with their rights, and that it was due (rule 5)."""
    given = {name: (entry.permissions, entry.expiresAt) for name, entry in after.entries.items()}
    allowed = {
        name: (entry.permissions, entry.expiresAt)
        for name, entry in governing.access.unexpired(record.time).items()
        if name in given or (after.complete and name not in governing.left)
    }
    if given != allowed or governing_of(record).type != governing.governing.type:
        raise IntegrityError("A renewal changes somebody's access (rule 5).")
    is_due = governing.needs_renewal(record.time) or _raises_key_index(governing.access, after)
    if governing.access.complete and after.complete and not is_due:
        raise IntegrityError(
            "A change of access by an author without ModifyAccess, and no renewal is due (rule 5)."
        )


def _raises_key_index(before: AccessList, after: AccessList) -> bool:
    """Return whether some user gets a wrap to a newer key than in the list before (rule 5)."""
    return any(
        name in before.entries and entry.keyIndex > before.entries[name].keyIndex
        for name, entry in after.entries.items()
    )


def _end(rights: Rights) -> float:
    return _FOREVER if rights.expiresAt is None else rights.expiresAt
