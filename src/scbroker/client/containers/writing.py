"""Create and change containers: seal, draft, sign, judge as a reader would, send, raise the mark.

One container and a batch run the same code; they differ in the request that carries the records (`sending`).
Spec: docs/spec/container.md, section 9; docs/spec/protocol.md, section 5.
"""

import contextlib
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Self, TypeVar

from scbroker import errors
from scbroker.client.arguments import Content, now
from scbroker.client.calls import tasks
from scbroker.client.calls.tasks import io_thread
from scbroker.client.containers import drafting, fetching, opening, sending
from scbroker.client.containers.change import KEEP, Change, Grants, Merge, seal_parts
from scbroker.client.containers.drafting import (
    Draft,
    Holders,
    Recipients,
    check_living,
    is_outdated,
    recipients_of,
)
from scbroker.client.containers.opening import Fetched, Opened
from scbroker.client.containers.sending import (
    Sending,
    cut,
    outcomes_said,
    send_many,
    send_one,
    until_stored,
)
from scbroker.client.core.judging import State
from scbroker.client.core.sealing import Recipient
from scbroker.client.users.session import Session
from scbroker.crypto.seal import SigningKey, random_bytes
from scbroker.crypto.verify import HASH_SIZE
from scbroker.errors import BrokerError
from scbroker.records import batch
from scbroker.records.canonical import MAX_UINT, container_id_of, encode_object
from scbroker.records.container_record import LABEL, AccessList, Part, Role, check_form, wrap_hash
from scbroker.records.judge import Known, judge_first, judge_next
from scbroker.records.key_record import KnownKey, Signed
from scbroker.types import SecuredContainer
from scbroker.wire import containers
from scbroker.wire.containers import RecordRequest, SignedRecord

T = TypeVar("T")
_MERGES: Final = 16
"""Attempts of a merge: if as many devices change one access list at once, each of them succeeds."""


@dataclass(slots=True)
class Attempt:
    """A record that a reader would accept once it is signed, with the data for the operation's result."""

    draft: Draft
    state: State
    """The container after the record, judged as a reader will judge it."""
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
        draft, fetched = self.draft, self.fetched
        signed = Signed(self.state.signed.body, signature)
        self.state = replace(self.state, signed=signed)
        self.request = RecordRequest(
            record=SignedRecord.of(signed),
            accessList=list(draft.access.entries) if draft.access is not None else None,
            type=draft.type,
            header=self.inline.get(Role.Header),
            content=self.inline.get(Role.Content),
            departures=0 if fetched is None else len(fetched.state.governing.left),
        )

    def result(self, session: Session) -> SecuredContainer:
        """Return the container as the broker would serve it to the author after this record."""
        fetched, entry = self.fetched, self.state.entry
        can_open = entry is not None and entry.wrapHash is not None
        length = self.draft.length if can_open else None
        wrap = fetched.view.wrap if fetched is not None else None
        if wrap is not None and (entry is None or wrap_hash(wrap) != entry.wrapHash):
            # Not the signed wrap. A change that seals nothing never opens the wrap, so it is checked here.
            wrap = None
        if self.request.accessList is not None:
            entries = zip(self.state.governing.access.entries, self.request.accessList, strict=True)
            wrap = next((item.wrap for name, item in entries if name == self.state.reader), None)
        group = None if fetched is None else fetched.group
        return opening.secured_of(
            session, self.state, group, length, self.draft.text, wrap, self.sealed
        )


@dataclass(frozen=True, slots=True)
class Basis:
    """A reading of a container, and the signing key, time and access list of its next record."""

    fetched: Fetched
    key: KnownKey
    time: int
    """The clock's time when the record is drafted."""
    grants: Grants | None
    """The access list of the record; None if it does not change access."""


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
            if follower not in (None, attempt.known.hash):
                version, hash_of = (
                    attempt.known.record.version,
                    {attempt.known.record.version: follower}.get,
                )
                only = [attempt.known.hash]
                sending.settle_by(session, self.container_id, hash_of, version - 1, version, only)
                self.uncertain.remove(attempt)  # void, even if its entry was dropped

    async def keep(self, session: Session) -> None:
        attempt = self.attempt
        before = None if attempt.fetched is None else attempt.fetched.state
        await _keep_own(session, before, attempt.state)

    def result(self, session: Session) -> SecuredContainer:
        self.check_stored()
        return self.present or self.attempt.result(session)


Send = Callable[[Session, list[Writing]], Awaitable[None]]


async def create(session: Session, change: Change) -> SecuredContainer:
    await change.begin_upload(session, None)
    try:
        item = Writing.creating(session, change)
        creation = partial(_attempt_creation, send=send_one)
        async with outcomes_said(session, [item]):
            await until_stored(session, [item], creation)
        return item.result(session)
    finally:
        change.close()


async def create_each(
    session: Session, changes: Sequence[Change]
) -> list[SecuredContainer | BrokerError]:
    """Create containers; return each or its error, in the order of the changes."""
    items = [Writing.creating(session, change) for change in changes]
    attempt = partial(_attempt_creation, send=send_many)

    size = tasks.group_size(len(items), containers.MAX_BATCH)

    def entries(item: Writing) -> int:
        # The least weight limits a group to about `size` containers.
        return max(len(item.change.recipients), containers.MAX_BATCH_ENTRIES // size)

    groups = cut(items, entries, containers.MAX_BATCH_ENTRIES)
    async with outcomes_said(session, items):
        await tasks.a_few_at_once(until_stored(session, group, attempt) for group in groups)
    return [item.error or item.result(session) for item in items]


async def update_each(
    session: Session, changes: Mapping[uuid.UUID, Change]
) -> list[SecuredContainer | BrokerError]:
    """Append a change to each container; return each container or its error, in the order of the changes.

    All changes are of the same fields, and none has a content.
    """
    items = [Writing(change, container_id.bytes) for container_id, change in changes.items()]
    groups = cut(items, lambda _: 1, tasks.group_size(len(items), containers.MAX_BATCH))
    async with outcomes_said(session, items):
        await tasks.a_few_at_once(_append(session, group) for group in groups)
    return [item.error or item.result(session) for item in items]


async def update(
    session: Session, container_id: uuid.UUID, change: Change, if_version: int | None
) -> SecuredContainer:
    """Append a change; return the container as its author is served it afterwards."""
    return (await append(session, container_id, change, if_version)).result(session)


async def append(
    session: Session, container_id: uuid.UUID, change: Change, if_version: int | None
) -> Writing:
    """Append a change; if others change other fields meanwhile, append it after their records."""
    try:
        item = Writing(change, container_id.bytes, if_version=if_version)
        async with outcomes_said(session, [item]):
            await _append(session, [item])
        item.check_stored()
        return item
    finally:
        change.close()


async def _append(session: Session, items: Sequence[Writing]) -> None:
    await until_stored(session, items, _attempt_change)
    for item in items:
        if isinstance(item.error, errors.DeletedError) and item.is_refused:
            try:
                async with fetching.deletion_proved(session, uuid.UUID(bytes=item.container_id)):
                    item.check_stored()
            except BrokerError as error:
                item.fail(error)


async def _attempt_creation(session: Session, items: Sequence[Writing], send: Send) -> None:
    """Seal, draft, sign and send the first records of containers."""
    holders = {item: Holders.of(item.change.recipients) for item in items}
    for item in items:
        with tasks.alone(item.fail):
            _check_ends(session, item.change)
            verify = partial(recipients_of, session, holders[item])
            await seal_parts(session, item.change, item.container_id, None, verify)
    recipients = await _recipients(session, [(item, holders[item]) for item in _open(items)])
    key, time = await session.signing_key(), now()

    def draft(item: Writing) -> Attempt:
        first = drafting.draft_first(
            session, item.change, item.container_id, item.nonce or b"", recipients, key, time
        )
        return _judged(item, first, None, time)

    left = _open(items)
    await _sign_each(session, left, draft, sum(len(holders[item].ids) for item in left))
    await send(session, _open(left))


async def _sign_each(
    session: Session, items: Sequence[Writing], draft: Callable[[Writing], Attempt], wraps: int
) -> None:
    """Draft and sign the records of these items; `wraps` is the number of wraps that they have together.

    Several records are signed as a batch (docs/spec/ids.md, 2.7). One thread drafts them all: more would wait
    for each other, since a wrap keeps the interpreter's lock.
    """

    def make_ready() -> None:
        by_key = defaultdict[int, list[Attempt]](list)
        for item in items:
            try:
                item.attempt = draft(item)
            except BrokerError as error:
                item.fail(error)
            else:
                by_key[item.attempt.known.record.keyIndex].append(item.attempt)
        for index, attempts in by_key.items():
            for at in range(0, len(attempts), batch.MAX_SIZE):
                some = attempts[at : at + batch.MAX_SIZE]
                signatures = _signatures(session.keys.ring.signing[index], some)
                for attempt, signature in zip(some, signatures, strict=True):
                    attempt.sign(signature)

    if len(items) == 1 and wraps <= drafting.MANY_WRAPS:
        make_ready()
    elif items:
        await io_thread.in_pool(make_ready)


def _signatures(key: SigningKey, attempts: Sequence[Attempt]) -> list[bytes]:
    """Sign records by one key: a single one by itself, several as a batch."""
    if len(attempts) == 1:
        return [key.sign(LABEL, attempts[0].known.bare)]
    salts = [random_bytes(HASH_SIZE) for _ in attempts]
    return batch.sign_each(key.sign, [each.known.hash for each in attempts], salts)


async def _attempt_change(session: Session, items: Sequence[Writing]) -> None:
    """Read containers; seal, draft, sign and send a change of each. A single one is not sent as a batch."""
    bases: dict[Writing, Basis] = {}
    for item, fetched in await _read_each(session, items):
        with tasks.alone(item.fail):
            # A deletion with which the broker answers an upload must be proved by the tombstone.
            async with fetching.deletion_proved(session, uuid.UUID(bytes=item.container_id)):
                basis = await _sealed_basis(session, item, fetched)
            if basis is not None:
                bases[item] = basis
    recipients = await _recipients(
        session, [(item, _holders(basis.fetched, basis.grants)) for item, basis in bases.items()]
    )

    for item, basis in bases.items():
        # Fetching the keys of a new access list may have brought a later epoch of the group. The author then
        # has to act in that epoch (docs/spec/groups.md, rule V6).
        if (group := basis.fetched.group) is not None:
            with tasks.alone(item.fail):
                group = await session.groups.opened(group.group_id)
                bases[item] = replace(basis, fetched=replace(basis.fetched, group=group))

    def draft(item: Writing) -> Attempt:
        basis, fetched = bases[item], bases[item].fetched
        try:
            opened = opening.open_fetched(session, fetched)
        except (errors.DecryptionError, errors.IntegrityError):
            # Without the container's key a member can still remove or replace its parts.
            opened = Opened(fetched.state, fetched.view, fetched.time, fetched.group, None)
        following = drafting.draft_next(
            session, item.change, opened, basis.grants, recipients, basis.key, basis.time
        )
        return _judged(item, following, fetched, basis.time)

    left = _open(list(bases))
    await _sign_each(session, left, draft, sum(len(bases[item].grants or ()) for item in left))
    left = _open(left)
    await (send_many if len(items) > 1 else send_one)(session, left)


def _holders(fetched: Fetched, grants: Grants | None) -> Holders:
    """Return the users and groups that a new access list names; the view says which of them are groups."""
    return Holders.of(grants or {}, drafting.members_of(fetched.state), fetched.view.groups)


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


async def _sealed_basis(session: Session, item: Writing, fetched: Fetched) -> Basis | None:
    """Check a change and seal its new parts; None if it changes nothing or is outdated."""
    change = item.change
    _check_unchanged(item, fetched)
    allowed = await _allowed(session, item, fetched)
    if allowed.state is not fetched.state:  # another reading, through a group
        _check_unchanged(item, allowed)
    fetched, state = allowed, allowed.state
    _check_ends(session, change)
    if drafting.changes_nothing(state, change, fetched.time):
        item.present = await opening.secured(session, fetched, asked=())
        return None
    newer_keys = change.may_renew and await is_outdated(
        session, state.governing.access, fetched.view
    )
    grants = drafting.new_grants(state, change, fetched.time, newer_keys=newer_keys)
    if change.renews and grants is None:
        item.present = await opening.secured(session, fetched, asked=())
        return None
    _check_settled(state, change, grants)
    if Role.Content not in change.sealed and change.upload is None:
        await change.begin_upload(session, item.container_id, fetched.query)
    commitment = None if grants else state.governing.governing.keyCommitment
    verify = partial(recipients_of, session, _holders(fetched, grants))
    await seal_parts(session, change, item.container_id, commitment, verify, fetched.query)
    # An upload may have taken hours. If the mark was raised meanwhile, later readings could not show whether
    # this record took effect: start again from the new head.
    _, mark = fetching.mark_of(session, item.container_id)
    if mark is not None and mark.version > state.record.version:
        item.refuse(errors.ConflictError("The container was changed meanwhile: read it again."))
        return None
    time, key = now(), await session.signing_key()
    after = drafting.time_after(fetched, key, time)
    grants = drafting.new_grants(state, change, after, newer_keys=newer_keys)
    return Basis(fetched, key, time, grants)


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
        await drafting.check_allowed(session, fetched, item.change)
    except errors.PermissionDeniedError as denied:
        refused = denied
    else:
        return fetched
    for group_id in await _other_groups(session, fetched):
        found = await fetching.fetch(
            session, fetched.container_id, **_wanted(item.change), via=group_id
        )
        with contextlib.suppress(errors.PermissionDeniedError):
            await drafting.check_allowed(session, found, item.change)
            item.via = group_id
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


async def _other_groups(session: Session, fetched: Fetched) -> list[uuid.UUID]:
    """Return the groups of a container's list that the user has accepted, without the one they read through.

    If the list names no group, no request is made.
    """
    named = set(fetched.view.groups) - {fetched.view.via}
    if not named:
        return []
    listed = await session.groups.listed()
    return [each.group_id for each in listed if each.accepted and str(each.group_id) in named]


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
    before, after = first.governing.governing, latest.governing.governing
    fields = {
        "access": change.names_whole_list
        and first.governing.known.hash != latest.governing.known.hash,
        "header": change.header is not KEEP
        and _id(first.record.header) != _id(latest.record.header),
        "content": change.content is not KEEP
        and _id(first.record.content) != _id(latest.record.content),
        "type": change.type is not KEEP and before.type != after.type,
    }
    if changed := " and ".join(name for name, is_changed in fields.items() if is_changed):
        raise errors.ConflictError(f"Somebody else changed the {changed} meanwhile: read it again.")


def _id(part: Part | None) -> bytes | None:
    return None if part is None else part.partId


def _judged(item: Writing, draft: Draft, fetched: Fetched | None, time: int) -> Attempt:
    """Judge a draft at this time as a reader would; raise `PermissionDeniedError` if one would refuse it."""
    change = item.change
    state = _judge_own(draft, fetched, time)
    if change.names_whole_list and state.unsettled is not None:
        state = replace(state, unsettled=None)
    for sealed in change.sealed.values():
        sealed.sent_under = state.governing.governing.keyCommitment
    inline = {role: sealed.inline for role, sealed in change.sealed.items()}
    carried = {
        role: opening.sealed_part(fetched, role)
        for role in Role
        if fetched is not None and change.carries(role)
    }
    return Attempt(draft, state, fetched, {**carried, **inline}, inline)


def _judge_own(draft: Draft, fetched: Fetched | None, time: int) -> State:
    """Return the container's state after a draft, which is judged as it is, not parsed from its encoding."""
    known, record = Known.of(draft.record), draft.record
    unsigned = Signed(encode_object(record), b"")
    access = None if draft.access is None else draft.access.list
    try:
        check_form(record)
        if fetched is None:
            after = judge_first(known, access or AccessList.whole([]), time)
            return State(known, unsigned, after, True, record.author, record.time, record.author)
        before, acting = fetched.state, None
        if fetched.group is not None and record.via is not None:
            acting = drafting.acting_by(fetched.group, record.via)
        after = judge_next(known, before.governing, access, before.head, time, acting)
    except errors.IntegrityError as error:
        raise drafting.beyond_own_access(error) from None
    return replace(
        before,
        head=known,
        signed=unsigned,
        governing=after,
        complete=before.complete and after.access.complete,
        follower=None,
    )


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


async def _recipients(session: Session, items: Sequence[tuple[Writing, Holders]]) -> Recipients:
    """Return the keys of the users and groups of all new lists.

    That takes one request for all users and one for all groups. If it fails, the keys are fetched for each
    container alone, so that the error is that of the container which caused it.
    """
    found: dict[uuid.UUID, Recipient] = {}
    if len(items) > 1:
        everybody = {each for _, holders in items for each in holders.ids}
        groups = {each for _, holders in items for each in holders.groups}
        with tasks.alone(lambda _: None):
            found |= await recipients_of(session, Holders(everybody, everybody, groups))
    has_all = bool(found)
    for item, holders in items:
        with tasks.alone(item.fail):
            if has_all:
                check_living(holders, found)
            else:
                found |= await recipients_of(session, holders)
    return found


def _open(items: Sequence[Writing]) -> list[Writing]:
    return [item for item in items if not item.is_done and item.error is None]
