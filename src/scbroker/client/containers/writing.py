"""Create and change containers: seal, draft, sign, judge as a reader would, send, raise the mark.

One container and a batch run the same code; they differ in the request that carries the records (`sending`).
Sealing needs no container key. New parts are sealed, and large ones uploaded, before the record is drafted:
the record's time is then recent when it is sent, and a second attempt uploads nothing again.

An id does not say whether it is a user's or a group's: the chain that the broker serves for it proves it. The
broker also names the groups of a list; that is only a hint, which saves a request that would fail.
Spec: docs/spec/container.md, 7 and 9; docs/spec/groups.md, 1, 5 and 7; docs/spec/protocol.md, section 5.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

import msgspec
import msgspec.structs

from scbroker import errors
from scbroker.client import parts
from scbroker.client.arguments import Content, Progress, Segment, no_progress, now
from scbroker.client.calls import tasks
from scbroker.client.calls.tasks import io_thread
from scbroker.client.containers import fetching, sending
from scbroker.client.containers.fetching import Fetched, Opened, epoch_of, groups_exist
from scbroker.client.containers.sending import (
    Sending,
    cut,
    outcomes_said,
    send_many,
    send_one,
    until_stored,
)
from scbroker.client.core.judging import State, open_type
from scbroker.client.core.sealing import (
    NewAccess,
    NewPart,
    Recipient,
    make_access,
    make_type,
    recipient_of,
)
from scbroker.client.groups.opening import OpenGroup
from scbroker.client.http.requests import Query
from scbroker.client.parts import RUN, Upload, begin_upload
from scbroker.client.users.session import Session
from scbroker.crypto.seal import KEY_SIZE, Octets, random_bytes
from scbroker.crypto.verify import HASH_SIZE, sha256
from scbroker.errors import BrokerError
from scbroker.records import batch
from scbroker.records.canonical import MAX_UINT, container_id_of, encode_object, user_id_of, uuid8
from scbroker.records.container_record import (
    LABEL,
    MAX_ENTRIES,
    OWN_TYPES,
    AccessList,
    ContainerRecord,
    Entry,
    Link,
    Part,
    Role,
    Via,
    check_form,
    wrap_hash,
)
from scbroker.records.judge import Acting, Grant, Known, check_delegation, judge_first, judge_next
from scbroker.records.key_record import KnownKey, Signed
from scbroker.types import SecuredContainer
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire import containers
from scbroker.wire.containers import (
    MAX_INLINE,
    ContainerView,
    RecordRequest,
    SignedRecord,
    TypeText,
)
from scbroker.wire.rosters import GroupState

MANY_WRAPS: Final = 8
"""More wraps than this are made in the pool: each takes about 0.1 ms of the event loop's time."""
_MERGES: Final = 16
"""Attempts of a merge: if as many devices change one access list at once, each of them succeeds."""
Recipients = Mapping[uuid.UUID, Recipient]
Keep = msgspec.UnsetType
KEEP: Final = msgspec.UNSET
"""In place of a field's new value: leave the field as it is."""
OWNER: Final = Grant(int(ContainerAccessLevel.DefaultOwnerPermissions), None)
Grants = Mapping[uuid.UUID, Grant]


def check_own_type(user: uuid.UUID, type: str | None, access: Collection[uuid.UUID]) -> None:
    """Raise `InvalidArgumentError` if others get access to a container of a type for own documents."""
    if (type or "").startswith(OWN_TYPES) and {*access} - {user}:
        raise errors.InvalidArgumentError(
            f"Type {type} is for your contacts and your links, like every type that begins with "
            f"{OWN_TYPES}: nobody else can have access to such a container. Choose another type, or leave it "
            "out."
        )


@dataclass(frozen=True, slots=True)
class Merge:
    """A change of some entries of an access list; it applies to whatever list is in force."""

    add: Grants
    """The entries that these users get, in place of any that they have."""
    remove: frozenset[uuid.UUID]

    def into(self, present: Grants) -> Grants:
        kept = {user: grant for user, grant in present.items() if user not in self.remove}
        return {**kept, **self.add}


@dataclass(frozen=True, slots=True)
class Swap(Merge):
    """A change that gives another group the access of the one that is removed."""

    new: uuid.UUID
    name: bytes

    def into(self, present: Grants) -> Grants:
        kept = {user: grant for user, grant in present.items() if user not in self.remove}
        for old in self.remove & present.keys():
            grant = replace(present[old], fingerprint=self.name, is_group=True)
            kept[self.new] = _both(grant, present.get(self.new))
        return kept


def _both(grant: Grant, other: Grant | None) -> Grant:
    """Return a grant with both permissions and the later expiry."""
    if other is None:
        return grant
    ends = (grant.expiresAt, other.expiresAt)
    expires = None if None in ends else max(end for end in ends if end is not None)
    return replace(grant, permissions=grant.permissions | other.permissions, expiresAt=expires)


@dataclass(slots=True)
class Change:
    """The new values of a container's fields, with parts that were sealed by an earlier attempt."""

    header: bytes | Keep | None = KEEP
    content: Content | Keep | None = KEEP
    type: str | Keep | None = KEEP
    grants: Grants | Merge | Keep = KEEP
    """With an empty list, only the container's creator gets access, with owner permissions."""
    delete: bool = False
    nonce: bytes | None = None
    """The nonce of a new container whose id is known beforehand; else one is drawn."""
    renews: bool = False
    """Give the container a new key if rule 5 allows one, although nothing new is sealed."""
    progress: Progress = no_progress
    upload: Upload | None = None
    sealed: dict[Role, SealedPart] = field(default_factory=dict)

    @property
    def recipients(self) -> Grants:
        """Return the access of a new container's members."""
        return self.grants if isinstance(self.grants, Mapping) else {}

    @property
    def names_whole_list(self) -> bool:
        """Return whether this replaces the whole list: it cannot be repeated after others changed access."""
        return isinstance(self.grants, Mapping)

    def keeps(self, role: Role) -> bool:
        """Return whether the container's part of this role stays as it is."""
        return (self.header if role is Role.Header else self.content) is KEEP

    def carries(self, role: Role) -> bool:
        """Return whether this part stays while the other one is replaced: the result holds both."""
        return self.keeps(role) and not all(self.keeps(each) for each in Role)

    @property
    def may_renew(self) -> bool:
        """Return whether this record may have to renew the container key, though access stays (rule 5)."""
        seals = self.renews or not all(self.keeps(role) for role in Role)
        return not self.delete and self.grants is KEEP and seals

    async def begin_upload(
        self, session: Session, container_id: bytes | None, query: Query
    ) -> None:
        """Prepare the upload of a large file, or resume one of the same file that was interrupted.

        A file of one chunk is sent without a journal: there would be nothing to skip, and a folder of photos
        would write and sync a journal for each.
        """
        content = self.content
        if isinstance(content, Content) and content.identity and (content.total or 0) > RUN:
            self.upload = await begin_upload(session, content, container_id, query)

    def end_upload(self) -> None:
        """Drop the resume journal: from here on this part must not be reused.

        Called before a record that names the part is sent (docs/spec/container.md, section 9).
        """
        if self.upload is not None:
            self.upload.journal.end()
            self.upload = None

    def close(self) -> None:
        """Close the resume journal if it was not dropped, so that the upload can resume later."""
        if self.upload is not None:
            self.upload.journal.close()

    def needed(self) -> ContainerAccessLevel:
        """Return the permissions that the author of this change needs."""
        if self.delete:
            return ContainerAccessLevel.Delete
        needed = ContainerAccessLevel.Upload
        if self.type is not KEEP:
            needed |= ContainerAccessLevel.ModifyType
        if self.grants is not KEEP:
            needed |= ContainerAccessLevel.ModifyAccess
        return needed


@dataclass(slots=True)
class SealedPart:
    """A new part, sealed; a large one is uploaded before its record.

    `sent_under` is the commitment of the container key under which a record that names the part was sent.
    From then on the part belongs to that key: a removed member may hold it (docs/spec/container.md, 9).
    """

    part: NewPart
    length: int
    hashes: bytes
    inline: bytes | None
    """The sealed bytes if they go with the record, else None."""
    sent_under: bytes | None = None

    def finish(self, container_key: bytes, commitment: bytes) -> Part:
        """Return the part as a record names it, its key sealed under the container key."""
        if self.sent_under not in (None, commitment):
            raise errors.ConflictError("Access was changed meanwhile: read the container again.")
        return self.part.finish(container_key, self.length, self.hashes)


@dataclass(slots=True)
class Attempt:
    """A record that a reader would accept once it is signed, with the data for the operation's result."""

    state: State
    """The container after the record, judged as a reader will judge it."""
    access: NewAccess | None
    type: TypeText | None
    text: str | None
    """The container's type after this record, as far as its author may see it."""
    length: int | None
    """The number of bytes of the content; None without one, or if its part cannot be opened."""
    fetched: Fetched | None
    """The container that the record changes; None if the record creates it."""
    sealed: Mapping[Role, bytes | None]
    """The parts as a view would have them, new or carried over."""
    inline: Mapping[Role, bytes | None]
    """The parts of them that are sent with the record."""
    request: RecordRequest = field(init=False)
    """The signed record as it is sent."""

    @property
    def known(self) -> Known:
        return self.state.head

    def sign(self, signature: bytes) -> None:
        fetched = self.fetched
        signed = Signed(self.state.signed.body, signature)
        self.state = replace(self.state, signed=signed)
        self.request = RecordRequest(
            record=SignedRecord.of(signed),
            accessList=None if self.access is None else list(self.access.entries),
            type=self.type,
            header=self.inline.get(Role.Header),
            content=self.inline.get(Role.Content),
            departures=0 if fetched is None else len(fetched.state.governing.left),
        )

    def result(self, session: Session) -> SecuredContainer:
        """Return the container as the broker would serve it to the author after this record."""
        fetched, entry = self.fetched, self.state.entry
        can_open = entry is not None and entry.wrapHash is not None
        wrap = fetched.view.wrap if fetched is not None else None
        if wrap is not None and (entry is None or wrap_hash(wrap) != entry.wrapHash):
            # Not the signed wrap. A change that seals nothing never opens the wrap, so it is checked here.
            wrap = None
        if self.access is not None:
            entries = zip(self.state.governing.access.entries, self.access.entries, strict=True)
            wrap = next((item.wrap for name, item in entries if name == self.state.reader), None)
        group = None if fetched is None else fetched.group
        length = self.length if can_open else None
        return fetching.secured_of(session, self.state, group, length, self.text, wrap, self.sealed)


@dataclass(frozen=True, slots=True)
class Basis:
    """A reading of a container, and the signing key, time and access list of its next record."""

    fetched: Fetched | None
    """None if the record creates the container."""
    key: KnownKey
    time: int
    """The clock's time when the record is drafted."""
    grants: Grants | None
    """The access list of the record; None if it does not change access."""


@dataclass(frozen=True, slots=True)
class Holders:
    """The users and groups of a new access list: its grants, the present members, and the known groups."""

    ids: Collection[uuid.UUID]
    members: Collection[uuid.UUID]
    """Those of the list in force, who may have been deleted."""
    groups: Collection[uuid.UUID]
    """Which of them are groups, as far as the caller or the broker says so."""

    @classmethod
    def of(cls, fetched: Fetched | None, grants: Grants | None) -> Self:
        """Return those of a change of the list, for a container that was read or is to be created."""
        groups = {each for each, grant in (grants or {}).items() if grant.is_group}
        if fetched is None:
            return cls(grants or {}, (), groups)
        named = map(uuid.UUID, fetched.view.groups)
        return cls(grants or {}, members_of(fetched.state), groups.union(named))


class Writing(Sending[Attempt]):
    """A change of a container on its way to the broker. With a nonce, it creates the container."""

    def __init__(
        self,
        change: Change,
        container_id: bytes,
        nonce: bytes | None = None,
        if_version: int | None = None,
    ) -> None:
        super().__init__(container_id)
        self.change: Change = change
        self.nonce: bytes | None = nonce
        self.if_version: int | None = if_version
        self.first_read: Fetched | None = None
        self.basis: Basis
        """That of the newest attempt, once its parts are sealed."""
        self.via: uuid.UUID | None = None
        """The group through which the change is made, if the user's own entry does not allow it."""
        self.present: SecuredContainer | None = None
        """The container as it was read, if there was nothing to change."""
        if isinstance(change.grants, Merge):
            self.most_attempts = _MERGES

    @property
    def is_done(self) -> bool:
        return self.is_stored or self.present is not None

    @property
    def is_open(self) -> bool:
        return not self.is_done and self.error is None

    @property
    def can_follow_others(self) -> bool:
        is_replayable = not self.change.names_whole_list and self.if_version is None
        return self.nonce is None and is_replayable

    @classmethod
    def creating(cls, session: Session, change: Change) -> Self:
        """Take one nonce for all attempts: a lost answer then creates no second container."""
        uploaded = change.upload.nonce if change.upload is not None else None
        nonce = change.nonce or uploaded or random_bytes(HASH_SIZE)
        return cls(change, container_id_of(session.fingerprint, nonce).bytes, nonce)

    def send(self, session: Session) -> None:
        self.change.end_upload()
        super().send(session)

    async def read(self, session: Session) -> None:
        container_id = uuid.UUID(bytes=self.container_id)
        await fetching.fetch(session, container_id)
        self.settle(session)
        for attempt in list(self.uncertain):
            # Another program of this device has raised the mark to the attempt's version or beyond, so
            # `settle` could not decide. The history from the record before the attempt shows which record has
            # that version.
            mark = None if attempt.fetched is None else attempt.fetched.state.mark
            follower = (await fetching.fetch_after(session, container_id, mark)).state.follower
            known, version = attempt.known, attempt.known.record.version
            if follower not in (None, known.hash):
                hash_of = {version: follower}.get
                sending.settle_by(
                    session, self.container_id, hash_of, version - 1, version, [known.hash]
                )
                self.uncertain.remove(attempt)  # void, even if its entry was dropped

    async def keep(self, session: Session) -> None:
        attempt = self.attempt
        before = None if attempt.fetched is None else attempt.fetched.state
        await _keep_own(session, before, attempt.state)

    def result(self, session: Session) -> SecuredContainer:
        self.check_stored()
        return self.present or self.attempt.result(session)


async def create(session: Session, change: Change) -> SecuredContainer:
    await change.begin_upload(session, None, {})
    return (await _write(session, Writing.creating(session, change))).result(session)


async def update(
    session: Session, container_id: uuid.UUID, change: Change, if_version: int | None
) -> SecuredContainer:
    """Append a change; return the container as its author is served it afterwards.

    If others change other fields meanwhile, the change is appended after their records.
    """
    item = Writing(change, container_id.bytes, if_version=if_version)
    return (await _write(session, item)).result(session)


async def append(
    session: Session, container_id: uuid.UUID, change: Change, if_version: int | None
) -> None:
    """Append a change as `update` does; after a deletion there is no result."""
    await _write(session, Writing(change, container_id.bytes, if_version=if_version))


async def create_each(
    session: Session, changes: Sequence[Change]
) -> list[SecuredContainer | BrokerError]:
    """Create containers; return each or its error, in the order of the changes."""
    return await _write_each(session, [Writing.creating(session, change) for change in changes])


async def update_each(
    session: Session, changes: Mapping[uuid.UUID, Change]
) -> list[SecuredContainer | BrokerError]:
    """Append a change to each container; return each container or its error, in the order of the changes.

    All changes are of the same fields, and none has a content.
    """
    items = [Writing(change, container_id.bytes) for container_id, change in changes.items()]
    return await _write_each(session, items)


async def _write(session: Session, item: Writing) -> Writing:
    try:
        async with outcomes_said(session, [item]):
            await _store(session, [item])
        item.check_stored()
        return item
    finally:
        item.change.close()


async def _write_each(
    session: Session, items: Sequence[Writing]
) -> list[SecuredContainer | BrokerError]:
    size = tasks.group_size(len(items), containers.MAX_BATCH)

    def entries(item: Writing) -> int:
        # The least weight limits a group to about `size` containers.
        return max(len(item.change.recipients), containers.MAX_BATCH_ENTRIES // size)

    groups = cut(items, entries, containers.MAX_BATCH_ENTRIES)
    async with outcomes_said(session, items):
        await tasks.a_few_at_once(_store(session, group) for group in groups)
    return [item.error or item.result(session) for item in items]


async def _store(session: Session, items: Sequence[Writing]) -> None:
    await until_stored(session, items, _attempt)
    for item in items:
        if isinstance(item.error, errors.DeletedError) and item.is_refused:
            try:
                async with fetching.deletion_proved(session, uuid.UUID(bytes=item.container_id)):
                    item.check_stored()
            except BrokerError as error:
                item.fail(error)


async def _attempt(session: Session, items: Sequence[Writing]) -> None:
    """Read containers that are not new; seal, draft, sign and send a record of each.

    All create containers, or all change some. A single one is not sent as a batch.
    """
    if items[0].nonce is not None:
        for item in items:
            with tasks.alone(item.fail):
                _check_ends(session, item.change)
                await seal_parts(session, item, None, item.change.recipients)
        # Dated once all are uploaded, which may take hours: a broker refuses a record of long ago.
        key, time = await session.signing_key(), now()
        for item in items:
            item.basis = Basis(None, key, time, item.change.recipients)
    else:
        for item, fetched in await _read_each(session, items):
            with tasks.alone(item.fail):
                # A deletion with which the broker answers an upload must be proved by the tombstone.
                async with fetching.deletion_proved(session, fetched.container_id):
                    await _seal(session, item, fetched)
    left = await _signed(session, [item for item in items if item.is_open])
    await (send_many if len(items) > 1 else send_one)(session, left)


async def _signed(session: Session, items: Sequence[Writing]) -> list[Writing]:
    """Draft and sign the records of these items; return those that have not failed."""
    recipients = await _recipients(session, items)
    for item in items:
        # Fetching the keys of a new access list may have brought a later epoch of the group. The author then
        # has to act in that epoch (docs/spec/groups.md, rule V6).
        fetched = item.basis.fetched
        if fetched is not None and (group := fetched.group) is not None:
            with tasks.alone(item.fail):
                group = await session.groups.opened(group.group_id)
                item.basis = replace(item.basis, fetched=replace(fetched, group=group))
    items = [item for item in items if item.is_open]
    wraps = sum(len(item.basis.grants or ()) for item in items)
    if len(items) == 1 and wraps <= MANY_WRAPS:
        _sign_each(session, items, recipients)
    elif items:
        # One thread drafts them all: more would wait for each other, as a wrap keeps the interpreter's lock.
        await io_thread.in_pool(_sign_each, session, items, recipients)
    return [item for item in items if item.is_open]


def _sign_each(session: Session, items: Sequence[Writing], recipients: Recipients) -> None:
    """Draft and sign the records of these items, several by one key as a batch (docs/spec/ids.md, 2.7)."""
    by_key = defaultdict[int, list[Attempt]](list)
    for item in items:
        try:
            item.attempt = draft(session, item, recipients)
        except BrokerError as error:
            item.fail(error)
        else:
            by_key[item.basis.key.index].append(item.attempt)
    for index, attempts in by_key.items():
        key = session.keys.ring.signing[index]
        for at in range(0, len(attempts), batch.MAX_SIZE):
            some = attempts[at : at + batch.MAX_SIZE]
            if len(some) == 1:
                signatures = [key.sign(LABEL, some[0].known.bare)]
            else:
                salts = [random_bytes(HASH_SIZE) for _ in some]
                signatures = batch.sign_each(key.sign, [each.known.hash for each in some], salts)
            for attempt, signature in zip(some, signatures, strict=True):
                attempt.sign(signature)


def _wanted(change: Change) -> dict[str, bool]:
    """Return the arguments of `fetching.fetch` for the parts that a change needs."""
    return {
        "header": change.carries(Role.Header),
        "content": change.carries(Role.Content),
        "recipients": change.may_renew,
        "any_keys": change.delete or change.grants is not KEEP,
    }


async def _read_each(session: Session, items: Sequence[Writing]) -> list[tuple[Writing, Fetched]]:
    """Read the containers of these changes, which are all of the same fields.

    Leave out those that cannot be read, and those whose earlier attempt turns out to be stored.
    """
    wanted = _wanted(items[0].change)
    ids = [uuid.UUID(bytes=item.container_id) for item in items]
    found: Sequence[Fetched | BrokerError] = ()
    if len(items) > 1:
        vias = {each: item.via for each, item in zip(ids, items, strict=True) if item.via}
        found = await fetching.fetch_many(session, ids, **wanted, vias=vias)
    else:
        with tasks.alone(items[0].fail):
            found = [await fetching.fetch(session, ids[0], **wanted, via=items[0].via)]
    left = []
    for item, fetched in zip(items, found, strict=False):
        if isinstance(fetched, BrokerError):
            item.fail(fetched)
            continue
        item.settle(session)
        if not item.is_stored:  # an earlier attempt may have been stored without a confirmation
            left.append((item, fetched))
    return left


async def _seal(session: Session, item: Writing, fetched: Fetched) -> None:
    """Check a change and seal its new parts, unless it changes nothing or is outdated."""
    change = item.change
    _check_unchanged(item, fetched)
    allowed = await _allowed(session, item, fetched)
    if allowed.state is not fetched.state:  # another reading, through a group
        _check_unchanged(item, allowed)
    fetched, state = allowed, allowed.state
    _check_ends(session, change)
    if changes_nothing(state, change, fetched.time):
        item.present = await fetching.secured(session, fetched, asked=())
        return
    newer_keys = change.may_renew and await is_outdated(
        session, state.governing.access, fetched.view
    )
    grants = new_grants(state, change, fetched.time, newer_keys=newer_keys)
    if change.renews and grants is None:
        item.present = await fetching.secured(session, fetched, asked=())
        return
    _check_settled(state, change, grants)
    if Role.Content not in change.sealed and change.upload is None:
        await change.begin_upload(session, item.container_id, fetched.query)
    await seal_parts(session, item, fetched, grants)
    # An upload may have taken hours. If the mark was raised meanwhile, later readings could not show whether
    # this record took effect: start again from the new head.
    _, mark = fetching.mark_of(session, item.container_id)
    if mark is not None and mark.version > state.record.version:
        item.refuse(errors.ConflictError("The container was changed meanwhile: read it again."))
        return
    time, key = now(), await session.signing_key()
    after = time_after(fetched, key, time)
    grants = new_grants(state, change, after, newer_keys=newer_keys)
    item.basis = Basis(fetched, key, time, grants)


async def seal_parts(
    session: Session, item: Writing, fetched: Fetched | None, grants: Grants | None
) -> None:
    """Seal the change's new parts, and again those sent under a container key that was replaced since."""
    change, content = item.change, item.change.content
    commitment = None  # of the key in use, unless the record brings a new key
    if fetched is not None and not grants:
        commitment = fetched.state.governing.governing.keyCommitment
    for role, old in list(change.sealed.items()):
        if old.sent_under not in (None, commitment):
            if role is Role.Content and isinstance(content, Content) and not content.repeatable:
                raise errors.ConflictError(
                    "Access was changed meanwhile, and this content can be read only once: pass it again."
                )
            del change.sealed[role]
    if isinstance(change.header, bytes) and Role.Header not in change.sealed:
        new = NewPart.begin(item.container_id, Role.Header, session.fingerprint)
        change.sealed[Role.Header] = _seal_small(new, change.header)
    if isinstance(content, Content) and Role.Content not in change.sealed:
        change.sealed[Role.Content] = await _seal_content(session, item, content, fetched, grants)


def _seal_small(part: NewPart, plaintext: Octets) -> SealedPart:
    segment = part.seal_segment(0, True, plaintext)
    return SealedPart(part, len(plaintext), sha256(segment), segment)


async def _seal_content(
    session: Session,
    item: Writing,
    content: Content,
    fetched: Fetched | None,
    grants: Grants | None,
) -> SealedPart:
    """Seal a small content to go with the record; seal and upload a large one in chunks.

    Nothing is uploaded before the recipients' keys were verified.
    """
    change, begun = item.change, item.change.upload
    container_id, author = item.container_id, session.fingerprint
    part = begun.part if begun else NewPart.begin(container_id, Role.Content, author)
    if content.small is not None:
        change.progress(len(content.small), content.total)
        return _seal_small(part, content.small)
    segments = content.segments()
    run = io_thread.in_own_thread if content.waits else io_thread.in_pool
    try:
        first: Segment = await run(next, segments)
        if len(first[0]) <= MAX_INLINE:
            change.progress(len(first[0]), content.total)
            return _seal_small(part, first[0])
        await recipients_of(session, Holders.of(fetched, grants))
        upload = begun or Upload(part, {} if fetched is None else fetched.query)
        whole: Iterator[Segment] = itertools.chain([first], segments)
        length, hashes = await parts.send(session, upload, content, whole, change.progress)
        return SealedPart(part, length, hashes, None)
    finally:
        # After a cancellation a thread may still be running the generator, which then cannot be closed.
        with contextlib.suppress(ValueError):
            segments.close()


def _check_ends(session: Session, change: Change) -> None:
    """Raise `ClockError` for access that has expired already by the broker's clock, which decides."""
    grants = change.grants
    added = grants.add if isinstance(grants, Merge) else grants if grants is not KEEP else {}
    ends = [each.expiresAt for each in added.values() if each.expiresAt is not None]
    if ends and min(ends) <= now() + (lag := session.requests.lag):
        raise errors.ClockError(
            f"The access would have ended already: this machine's clock is {lag // 1_000_000} seconds "
            "behind the broker's. Set it right, or choose a later expiresAt."
        )


def _check_unchanged(item: Writing, fetched: Fetched) -> None:
    """Raise `ConflictError` if others changed the same fields, or if the version is not `if_version`."""
    state = fetched.state
    if state.record.version == MAX_UINT:
        raise errors.TooLargeError(
            f"The container is at version {MAX_UINT}, the last one: nothing can follow. No honest history is "
            "so long: resetContainerMark accepts a shorter one that the broker serves."
        )
    if item.first_read is not None:
        _check_no_conflict(item.first_read.state, state, item.change)
    item.first_read = item.first_read or fetched
    if item.if_version is not None and state.record.version != item.if_version:
        raise errors.ConflictError(
            f"The container is at version {state.record.version}, not {item.if_version}."
        )


async def _allowed(session: Session, item: Writing, fetched: Fetched) -> Fetched:
    """Return a reading by which the user may make a change: this one, or one through another group.

    Raises `PermissionDeniedError` if neither the user's own entry nor that of one of their groups allows it.
    """
    fetched = await _accepted(session, fetched)
    try:
        await check_allowed(session, fetched, item.change)
    except errors.PermissionDeniedError as denied:
        refused = denied
    else:
        return fetched
    # If the list names no group, no request is made.
    named = set(fetched.view.groups) - {fetched.view.via}
    for group in await session.groups.listed() if named else []:
        if group.accepted and str(group.group_id) in named:
            wanted = _wanted(item.change)
            found = await fetching.fetch(
                session, fetched.container_id, **wanted, via=group.group_id
            )
            with contextlib.suppress(errors.PermissionDeniedError):
                await check_allowed(session, found, item.change)
                item.via = group.group_id
                return found
    raise refused


async def _accepted(session: Session, fetched: Fetched) -> Fetched:
    """Raise `PermissionDeniedError` if the user reads through a group that they have not accepted."""
    group = fetched.group
    if group is not None and not group.accepted:  # another device may have accepted it since
        group = await session.groups.opened(group.group_id, fresh=True)
        if not group.accepted:
            raise errors.PermissionDeniedError(
                f"You have not accepted group {group.group_id}: call acceptGroup before you write through it."
            )
    return replace(fetched, group=group)


def _check_settled(state: State, change: Change, grants: Grants | None) -> None:
    """Raise `UnsettledAccessError` for new parts or wraps while a change of access awaits confirmation.

    That is a change by somebody who is not a member of their group any more (groups.md, 7). A new whole list
    settles it, because its caller has decided on every entry.
    """
    seals = isinstance(change.header, bytes) or isinstance(change.content, Content)
    if state.unsettled is not None and (grants or seals) and not change.names_whole_list:
        error = errors.UnsettledAccessError(
            version=state.unsettled.version, hash=state.unsettled.hash
        )
        error.containerId = uuid.UUID(bytes=state.container_id)
        raise error


def _check_no_conflict(first: State, latest: State, change: Change) -> None:
    """Raise `ConflictError` if another member changed a field that this change changes too."""
    changes = {
        "access": change.names_whole_list,
        "header": change.header is not KEEP,
        "content": change.content is not KEEP,
        "type": change.type is not KEEP,
    }
    before, after = _fields(first), _fields(latest)
    changed = [name for name in before if changes[name] and before[name] != after[name]]
    if changed:
        raise errors.ConflictError(
            f"Somebody else changed the {' and '.join(changed)} meanwhile: read it again."
        )


def _fields(state: State) -> dict[str, object]:
    """Return what identifies the present value of each field."""
    header, content = state.record.header, state.record.content
    return {
        "access": state.governing.known.hash,
        "header": header and header.partId,
        "content": content and content.partId,
        "type": state.governing.governing.type,
    }


def draft(session: Session, item: Writing, recipients: Recipients) -> Attempt:
    """Return the record that applies a change to the head that was read, or creates the container.

    The author acts for the group through which they read, if any. `recipients` have the keys of the users and
    groups of a new access list.
    """
    change, key, fetched = item.change, item.basis.key, item.basis.fetched
    container_id, author, opened = item.container_id, session.fingerprint, None
    before, salted, container_key = None, None, None
    if fetched is None:
        version, parent, link, via = 1, None, None, None
        time = max(item.basis.time, key.introduced)
        text = None if change.type is KEEP else change.type
        salted, digest = make_type(container_id, text)
    else:
        opened = _opened(session, fetched)
        state, container_key = opened.state, opened.container_key
        version, parent = state.record.version + 1, state.head.hash
        link = Link(state.governing.record.version, state.governing.known.hash)
        via = None if opened.group is None else via_at(opened.group, item.basis.time)
        time = time_after(opened, key, item.basis.time)
        before, served = state.governing.governing, opened.view.type
        text, digest = open_type(state, served), before.type
        if change.type is not KEEP and (served is None or change.type != text):
            text = change.type
            salted, digest = make_type(container_id, text)
    access, governing = None, None
    commitment = b"" if before is None else before.keyCommitment
    if item.basis.grants is not None:
        container_key = random_bytes(KEY_SIZE)
        access = make_access(
            container_id, version, author, digest, container_key, item.basis.grants, recipients,
            {} if opened is None else members_of(opened.state), None if via is None else via.group,
        )  # fmt: skip
        governing, commitment = access.governing, access.governing.keyCommitment
    elif before is not None and digest != before.type:
        governing = msgspec.structs.replace(before, type=digest)
    is_resealed = access is not None
    parts = {
        role: _part(change, role, opened, container_key, commitment, is_resealed=is_resealed)
        for role in Role
    }
    record = ContainerRecord(
        containerId=container_id,
        nonce=item.nonce,
        version=version,
        parent=parent,
        author=author,
        keyIndex=key.index,
        time=time,
        link=link,
        governing=governing,
        header=parts[Role.Header],
        content=parts[Role.Content],
        tombstone=change.delete,
        via=via,
    )
    content = change.sealed.get(Role.Content)
    length = None if content is None else content.length
    if opened is not None and content is None and record.content is not None:
        # Another member may have sealed an invalid part key. It must not keep the author from other changes.
        with contextlib.suppress(errors.DecryptionError, errors.IntegrityError):
            length = opened.length
    return _judged(item, record, access, salted, text, length)


def _opened(session: Session, fetched: Fetched) -> Opened:
    """Open a container; without its key a member can still remove or replace its parts."""
    try:
        return fetching.open_fetched(session, fetched)
    except (errors.DecryptionError, errors.IntegrityError):
        return Opened(fetched.state, fetched.view, fetched.time, fetched.group, None)


def _judged(
    item: Writing,
    record: ContainerRecord,
    access: NewAccess | None,
    salted: TypeText | None,
    text: str | None,
    length: int | None,
) -> Attempt:
    """Judge a record as a reader would; raise `PermissionDeniedError` if one would refuse it.

    The record is judged as it is, not parsed from its encoding.
    """
    change, fetched, time = item.change, item.basis.fetched, item.basis.time
    known, unsigned = Known.of(record), Signed(encode_object(record), b"")
    listed = None if access is None else access.list
    try:
        check_form(record)
        if fetched is None:
            after = judge_first(known, listed or AccessList.whole([]), time)
            state = State(known, unsigned, after, True, record.author, record.time, record.author)
        else:
            before, acting = fetched.state, None
            if fetched.group is not None and record.via is not None:
                acting = acting_by(fetched.group, record.via)
            after = judge_next(known, before.governing, listed, before.head, time, acting)
            state = replace(
                before,
                head=known,
                signed=unsigned,
                governing=after,
                complete=before.complete and after.access.complete,
                follower=None,
                unsettled=None if change.names_whole_list else before.unsettled,
            )
    except errors.IntegrityError as error:
        raise beyond_own_access(error) from None
    for sealed in change.sealed.values():
        sealed.sent_under = after.governing.keyCommitment
    inline = {role: sealed.inline for role, sealed in change.sealed.items()}
    carried = {
        role: fetching.sealed_part(fetched, role)
        for role in Role
        if fetched is not None and change.carries(role)
    }
    return Attempt(state, access, salted, text, length, fetched, {**carried, **inline}, inline)


def via_at(group: OpenGroup, time: int) -> Via:
    """Return the via of a record that the user makes through a group at this time.

    It names the newest record of the group in its latest epoch. If a manager's clock was ahead, it names an
    older one with the same leaf of the user: a record must not be dated before the one that it names (V5).
    """
    chain, leaf = group.chain, group.members[group.fingerprint]
    named = leaf.version
    for version in reversed(chain.moments):
        moment = chain.moments[version]
        if moment.epoch < group.epoch or version < leaf.version:
            break
        named = version
        if moment.time <= time:
            break
    return Via(chain.name, group.epoch, named, chain.moments[named].hash)


def acting_by(group: OpenGroup, via: Via) -> Acting:
    """Return the user's own membership, without a proof: this device has verified all leaves."""
    chain = group.chain
    since = chain.moments[via.version].time
    return Acting(via.group, group.role, since, chain.end_of(via.epoch), chain.ended)


def new_grants(
    state: State, change: Change, time: int, *, newer_keys: bool = False
) -> Grants | None:
    """Return the grants of the record's access list; None if the record does not change access.

    They are the grants asked for, or those in force if rule 5 demands a renewal: a user without access knows
    the container key, or it is wrapped to a key that its user has replaced (`newer_keys`). Users who have
    left are in neither, unless they are asked for. A record that seals nothing new is never a renewal.
    """
    if change.grants is not KEEP and not change.delete:
        return _asked(state, change.grants, time)
    if not change.may_renew or not (newer_keys or state.governing.needs_renewal(time)):
        return None
    return _present(state, time)


def changes_nothing(state: State, change: Change, time: int) -> bool:
    """Return whether a merge would leave the access list as it is.

    The removal of a user whose entry has expired, or who has left, is a change: they have the container key.
    """
    if not isinstance(change.grants, Merge) or change.grants.remove & members_of(state).keys():
        return False
    present = {user_id_of(each): entry for each, entry in state.governing.present(time).items()}
    return all(_has(present.get(user), grant) for user, grant in change.grants.add.items())


def _has(entry: Entry | None, grant: Grant) -> bool:
    """Return whether an entry gives exactly this access, to this fingerprint if the caller gave one."""
    return (
        entry is not None
        and (entry.permissions, entry.expiresAt) == (grant.permissions, grant.expiresAt)
        and grant.fingerprint in (None, entry.fingerprint)
    )


def time_after(fetched: Fetched, key: KnownKey, time: int) -> int:
    """Return `time`, the clock's, or the earliest later time that a record after this state may have."""
    state, group = fetched.state, fetched.group
    after = max(time, key.introduced, state.record.time, state.governing.record.time)
    if group is None:
        return after
    return max(after, group.chain.moments[via_at(group, time).version].time)


def members_of(state: State) -> dict[uuid.UUID, Entry]:
    """Return the entries in force by user or group id. Deleted users and groups among them have no keys."""
    return {user_id_of(name): entry for name, entry in state.governing.access.entries.items()}


async def check_allowed(session: Session, fetched: Fetched, change: Change) -> None:
    """Raise `PermissionDeniedError` for a change that the author's access, or rule 4, does not allow.

    Raises `InvalidArgumentError` if access goes to the creator by default and the creator was deleted, and
    if others would get access to the author's own address book or list of links.
    """
    state, time = fetched.state, fetched.time
    entry = state.entry
    if entry is None or entry.is_expired(time):
        raise errors.PermissionDeniedError("Your access to this container has expired.")
    missing = ContainerAccessLevel(change.needed() & ~entry.permissions)
    if missing:
        raise errors.PermissionDeniedError(f"Your access to this container lacks {missing.name}.")
    present = _present(state, time)
    asked = present if change.grants is KEEP else _asked(state, change.grants, time)
    if change.type is not KEEP:
        check_own_type(session.userId, change.type, asked)
    if change.grants is KEEP:
        return
    if added := asked.keys() - present.keys():
        check_own_type(session.userId, open_type(state, fetched.view.type), added)
    try:
        before = _grants(state.governing.access.unexpired(time))
        left = {user_id_of(fingerprint) for fingerprint in state.governing.left}
        check_delegation(entry, before, asked, complete=True, left=left)
    except errors.IntegrityError as error:
        raise beyond_own_access(error) from None
    if not change.grants:
        creator = user_id_of(state.createdBy)
        try:
            await recipients_of(session, Holders([creator], (), ()))
        except errors.NotFoundError:
            raise errors.InvalidArgumentError(
                "accessLevels must name users: by default they name the container's creator, "
                f"user {creator}, who was deleted"
            ) from None


def beyond_own_access(error: errors.IntegrityError) -> errors.PermissionDeniedError:
    """Return the error for a change that a reader would refuse."""
    return errors.PermissionDeniedError(f"This change is beyond your own access: {error}")


def _asked(state: State, grants: Grants | Merge, time: int) -> Grants:
    """Return the whole access list after a change; an empty one gives access to the creator.

    Raises `ClockError` for access that ends before `time`, which is never before the newest record's.
    """
    added = grants.add if isinstance(grants, Merge) else grants
    if any(each.expiresAt is not None and each.expiresAt <= time for each in added.values()):
        raise errors.ClockError(
            "The access would end before the container was changed last: set this machine's clock right, or "
            "choose a later expiresAt."
        )
    if not isinstance(grants, Merge):
        return grants or {user_id_of(state.createdBy): OWNER}
    merged = grants.into(_present(state, time))
    if not merged:
        raise errors.InvalidArgumentError(
            "Nobody would have access to the container: delete it with deleteContainer instead."
        )
    if len(merged) > MAX_ENTRIES:
        raise errors.TooLargeError(
            f"{len(merged)} users would have access to the container: it takes at most {MAX_ENTRIES}."
        )
    return merged


def _present(state: State, time: int) -> Grants:
    """Return the access in force that has not expired, without the users who have left."""
    return _grants(state.governing.present(time))


def _grants(entries: Mapping[bytes, Entry]) -> Grants:
    return {
        user_id_of(fingerprint): Grant(entry.permissions, entry.expiresAt)
        for fingerprint, entry in entries.items()
    }


def _part(
    change: Change,
    role: Role,
    opened: Opened | None,
    container_key: bytes | None,
    commitment: bytes,
    *,
    is_resealed: bool,
) -> Part | None:
    """Return a part of the next record: none, new, or carried (resealed for a new container key)."""
    if change.delete:
        return None
    if role in change.sealed:
        if container_key is None:
            raise errors.DecryptionError(
                "The container's key does not open, so nothing can be sealed under it: replace the "
                "whole container with updateContainer."
            )
        return change.sealed[role].finish(container_key, commitment)
    if opened is None or not change.keeps(role):
        return None
    part = opened.state.record.part(role)
    if part is None or not is_resealed:
        return part
    found = opened.part(role)
    if found is None or container_key is None:
        raise errors.DecryptionError(
            f"The container's {role.name.lower()} does not open and cannot be carried over: replace "
            "it with updateContainer, or delete the container."
        )
    return found.reseal(container_key)


async def _keep_own(session: Session, before: State | None, own: State) -> None:
    """Raise the mark to a record of one's own, which the broker stored after `before`.

    Other operations and programs may share the marks and have read the container meanwhile:

    | the mark by now                       | what follows                                             |
    |---------------------------------------|----------------------------------------------------------|
    | none, or the record before            | Raise it to the own record; if it moved, begin again.    |
    | the own record                        | Done.                                                    |
    | another record of no later version    | `ForkError`: the broker showed another history.          |
    | a record of a later version           | Fetch the head twice: it must follow from the own record |
    |                                       | and from the mark. `ForkError` if the two heads differ;  |
    |                                       | if the head moved in between, begin again.               |

    Raises `ConflictError` if others change the container faster than it is read. The change is stored
    in every case.
    """
    container_id = uuid.UUID(bytes=own.container_id)
    new = own.mark.encode()
    if before is None and session.marks.swap(fetching.KIND, own.container_id, None, new):
        return
    for _ in range(fetching.ROUNDS):
        stored, mark = fetching.mark_of(session, own.container_id)
        if mark is None or (before is not None and mark.hash == before.head.hash):
            is_done = session.marks.swap(fetching.KIND, own.container_id, stored, new)
        elif mark.version <= own.record.version:
            if mark.hash != own.head.hash:
                raise _fork()
            is_done = True
        else:
            ours = (await fetching.fetch_after(session, container_id, own.mark)).state
            theirs = (await fetching.fetch_after(session, container_id, mark)).state
            is_done = ours.record.version == theirs.record.version
            if is_done and ours.head.hash != theirs.head.hash:
                raise _fork()
        if is_done:
            return
    raise errors.ConflictError(
        "The change is stored, but others change the container faster than it can be read: read it again."
    )


def _fork() -> errors.ForkError:
    return errors.ForkError(
        "The broker served another history than the one of the change that it stored."
    )


async def _recipients(session: Session, items: Sequence[Writing]) -> Recipients:
    """Return the keys of the users and groups of all new lists.

    That takes one request for all users and one for all groups. If it fails, the keys are fetched for each
    container alone, so that the error is that of the container which caused it.
    """
    found: dict[uuid.UUID, Recipient] = {}
    each_of = {item: Holders.of(item.basis.fetched, item.basis.grants) for item in items}
    if len(items) > 1:
        everybody = {each for holders in each_of.values() for each in holders.ids}
        groups = {each for holders in each_of.values() for each in holders.groups}
        with tasks.alone(lambda _: None):
            found |= await recipients_of(session, Holders(everybody, everybody, groups))
    has_all = bool(found)
    for item, holders in each_of.items():
        with tasks.alone(item.fail):
            if has_all:
                check_living(holders, found)
            else:
                found |= await recipients_of(session, holders)
    return found


async def recipients_of(session: Session, holders: Holders) -> Recipients:
    """Return the verified current keys of users and groups. Makes no request for the session's user.

    Deleted users are left out. Raises `NotFoundError` for a deleted user or group that is not a member
    already: the entry of one that was deleted may stay, but a new one must not be made.
    """
    found = {session.userId: recipient_of(session.directory.own)}
    others = set(holders.ids) - found.keys()
    if not others:
        return found
    groups = {each for each in others if each in holders.groups or _is_pinned(session, each)}
    try:
        users = await session.directory.latest(others - groups)
    except errors.NotFoundError:  # a request for users' keys fails if it names a group
        unknown = [each for each in others - groups if not session.directory.knows(each)]
        more = await session.groups.among(unknown)
        if not more:
            raise
        groups |= more
        users = await session.directory.latest(others - groups)
    found |= {user: recipient_of(chain) for user, chain in users.items() if not chain.closed}
    chains = await session.groups.chains(dict.fromkeys(groups, MAX_UINT))
    for chain in chains.values():
        # A list keeps a deleted group, under its last key, until somebody removes it (groups.md, 10).
        if chain.ended is None or uuid8(chain.name) in holders.members:
            found[uuid8(chain.name)] = Recipient(
                chain.name, chain.roster.epoch, chain.roster.publicKey
            )
    check_living(holders, found)
    return found


def check_living(holders: Holders, found: Recipients) -> None:
    """Raise `NotFoundError` for a user or group without current keys that is not a member already."""
    for each in holders.ids:
        if each not in found and each not in holders.members:
            kind = "group" if each in holders.groups else "user"
            raise errors.NotFoundError(
                f"{kind.capitalize()} {each} was deleted: remove the {kind} from accessLevels."
            )


async def is_outdated(session: Session, access: AccessList, view: ContainerView) -> bool:
    """Return whether some wrap of a list is for a key or an epoch that has been replaced (rule 5).

    The view names users and groups that have newer ones. The keys of users that this session knows count as
    well, and the groups that this device knows. If a group that the session's user manages owes an epoch, it
    is raised first (groups.md, 3.5).
    """
    await _raise_owed(session, access, view.groupRecipients)
    return await session.directory.has_newer_key(access, view.recipients) or await _has_newer_epoch(
        session, access, view.groupRecipients
    )


async def _raise_owed(session: Session, access: AccessList, stated: Sequence[GroupState]) -> None:
    """Make new keys (epochs) for groups in a list that need one, if the session's user manages them.

    A group needs one if the broker says so, or if the members that this session has read show it.
    """
    if session.groups.raise_owed is None:
        return
    epochs = {uuid.UUID(each.groupId): each.epoch for each in stated if each.owed}
    chains = session.groups.verified
    for name in (name for name, entry in access.entries.items() if entry.wrapHash is not None):
        group_id, known = uuid8(name), chains.get(name)
        is_stated = group_id in epochs and (known is None or known.roster.epoch <= epochs[group_id])
        if is_stated or session.groups.owes(group_id):
            with contextlib.suppress(
                errors.NotFoundError, errors.PermissionDeniedError
            ):  # not a manager now
                await session.groups.raise_owed(group_id)


async def _has_newer_epoch(
    session: Session, access: AccessList, stated: Sequence[GroupState]
) -> bool:
    if stated:
        versions = {uuid.UUID(each.groupId): each.version for each in stated}
        listed = versions.keys() & set(map(uuid8, access.entries))
        with groups_exist():
            await session.groups.chains({each: versions[each] for each in listed})
    return any(
        entry.wrapHash is not None and entry.keyIndex < (epoch_of(session, entry) or 0)
        for entry in access.entries.values()
    )


def _is_pinned(session: Session, holder: uuid.UUID) -> bool:
    """Return whether this device has pinned a group of this id. Skips the lookup for known users."""
    return not session.directory.knows(holder) and session.groups.known(holder) is not None
