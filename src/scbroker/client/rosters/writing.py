"""Create, change and delete groups: plan, draft, judge as a member will, send, raise pin and mark.

A record of a group is a container record: `sending` sends it and says whether it took effect. After a
conflict the group is read again and the caller's intents apply to the new state; each attempt that begins an
epoch has a fresh secret.
Spec: docs/spec/groups.md, 2, 4, 8 and 10.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec.structs

from scbroker import errors
from scbroker.client.arguments import now
from scbroker.client.calls import tasks
from scbroker.client.calls.tasks import io_thread
from scbroker.client.containers import sending
from scbroker.client.containers.drafting import MANY_WRAPS, beyond_own_access
from scbroker.client.containers.sending import Sending, outcomes_said, send_one, until_stored
from scbroker.client.core import group_records
from scbroker.client.core.group_records import NewRoster, Present, Secret, Texts, make_roster
from scbroker.client.core.sealing import NewAccess, make_access, make_type
from scbroker.client.groups.opening import OpenGroup
from scbroker.client.rosters.planning import Intents, Plan, plan_first, plan_next
from scbroker.client.users.session import Session
from scbroker.crypto.seal import KEY_SIZE, random_bytes
from scbroker.crypto.verify import HASH_SIZE
from scbroker.errors import IntegrityError
from scbroker.records import group as rules
from scbroker.records import roster
from scbroker.records.canonical import container_id_of, group_name_of, uuid8
from scbroker.records.container_record import LABEL, ContainerRecord, Link
from scbroker.records.group import GroupChain, Served
from scbroker.records.judge import Known
from scbroker.records.key_record import KnownKey, Signed
from scbroker.records.roster import Info
from scbroker.wire.containers import RecordRequest, SignedRecord, TypeText


@dataclass(frozen=True, slots=True, repr=False)
class RosterAttempt:
    """A signed record of a group, with the group after it."""

    request: RecordRequest
    known: Known
    chain: GroupChain
    opened: OpenGroup | None
    """None after the tombstone."""
    dropped: tuple[uuid.UUID, ...] = ()
    """Members who were removed because the broker alone says that they were deleted."""


@dataclass(frozen=True, slots=True, repr=False)
class _Draft:
    """A record that is ready to be signed, with the data that is sent with it."""

    record: ContainerRecord
    access: NewAccess | None = None
    type: TypeText | None = None
    made: NewRoster | None = None


def draft_first(
    session: Session, nonce: bytes, plan: Plan, key: KnownKey, time: int
) -> RosterAttempt:
    """Return the first record of a new group, with a fresh secret."""
    name = group_name_of(session.fingerprint, nonce)
    group_id = uuid8(name)
    secret = Secret(0, group_records.new_secret(), [])
    made = make_roster(name, 1, session.fingerprint, plan.seats or {}, secret, plan.texts, None)
    text, digest = make_type(group_id.bytes, roster.group_type(made.data))
    access = _access(session, group_id, 1, digest, plan)
    record = ContainerRecord(
        containerId=group_id.bytes,
        nonce=nonce,
        version=1,
        parent=None,
        author=session.fingerprint,
        keyIndex=key.index,
        time=max(time, key.introduced),
        link=None,
        governing=access.governing,
        header=None,
        content=None,
        tombstone=False,
    )
    draft = _Draft(record, access, text, made)
    signed, known = _signed(session, draft)
    chain = _judged(None, draft, known, time)
    opened = OpenGroup(
        group_id=group_id,
        fingerprint=session.fingerprint,
        chain=chain,
        leaves=made.leaves,
        members=made.members,
        left=frozenset(),
        owed=frozenset(),
        deleted=frozenset(),
        unproved=frozenset(),
        accepted=True,
        sealed_info=made.sealed_info,
        wrap=made.own_wrap,
        info=_info(plan, secret),
        secrets={0: secret.secret},
    )
    return RosterAttempt(_request(draft, signed, 0), known, chain, opened)


def draft_next(
    session: Session, group: OpenGroup, plan: Plan, key: KnownKey, time: int
) -> RosterAttempt:
    """Return the record that follows the group as it was read. A new epoch has a fresh secret each time."""
    chain, version = group.chain, group.chain.version + 1
    before = chain.in_force.governing
    secret, made, text, digest = _secret(group, plan), None, None, before.type
    if plan.seats is not None:
        present = Present(chain.roster, group.leaves, group.members, group.sealed_info)
        made = make_roster(
            group.name, version, session.fingerprint, plan.seats, secret, plan.texts, present
        )
        text, digest = make_type(group.group_id.bytes, roster.group_type(made.data))
    access = None
    governing = msgspec.structs.replace(before, type=digest)
    if plan.managers is not None:
        access = _access(session, group.group_id, version, digest, plan)
        governing = access.governing
    record = _following(session, group, key, time, tombstone=False)
    draft = _Draft(msgspec.structs.replace(record, governing=governing), access, text, made)
    signed, known = _signed(session, draft)
    after = _judged(group, draft, known, time)
    opened = replace(group, chain=after)
    if made is not None:
        opened = _after(group, opened, made, plan, secret)
    request = _request(draft, signed, len(group.left))
    return RosterAttempt(request, known, after, opened, plan.dropped)


def draft_tombstone(session: Session, group: OpenGroup, key: KnownKey, time: int) -> RosterAttempt:
    draft = _Draft(_following(session, group, key, time, tombstone=True))
    signed, known = _signed(session, draft)
    chain = _judged(group, draft, known, time)
    return RosterAttempt(_request(draft, signed, 0), known, chain, None)


def _secret(group: OpenGroup, plan: Plan) -> Secret:
    epoch = group.epoch + 1 if plan.rises else group.epoch
    secret = group_records.new_secret() if plan.rises else group.secrets[epoch]
    return Secret(epoch, secret, [group.secrets.get(each) for each in range(epoch)])


def _info(plan: Plan, secret: Secret) -> Info:
    texts = plan.texts or Texts("", "")
    return Info(texts.name, texts.description, list(secret.earlier))


def _after(
    group: OpenGroup, opened: OpenGroup, made: NewRoster, plan: Plan, secret: Secret
) -> OpenGroup:
    """Return the group with its next roster."""
    kept = {name for name, member in made.members.items() if group.members.get(name) == member}
    return replace(
        opened,
        leaves=made.leaves,
        members=made.members,
        left=group.left & kept,
        owed=frozenset(),
        deleted=group.deleted & kept,
        unproved=group.unproved & kept,
        sealed_info=made.sealed_info,
        wrap=made.own_wrap or group.wrap,
        info=group.info if plan.texts is None else _info(plan, secret),
        secrets={**group.secrets, secret.epoch: secret.secret},
        _keys=dict(group._keys),
    )


def _access(
    session: Session, group_id: uuid.UUID, version: int, digest: bytes, plan: Plan
) -> NewAccess:
    """Return the list of managers. Its container key is wrapped to them and seals nothing (section 2)."""
    return make_access(
        group_id.bytes,
        version,
        session.fingerprint,
        digest,
        random_bytes(KEY_SIZE),
        plan.managers or {},
        plan.recipients,
        {},
    )


def _following(
    session: Session, group: OpenGroup, key: KnownKey, time: int, *, tombstone: bool
) -> ContainerRecord:
    """Return a record after the group's head, still without a governing field."""
    chain = group.chain
    return ContainerRecord(
        containerId=group.group_id.bytes,
        nonce=None,
        version=chain.version + 1,
        parent=chain.head.hash,
        author=session.fingerprint,
        keyIndex=key.index,
        time=max(time, key.introduced, chain.head.record.time),
        link=Link(chain.in_force.record.version, chain.in_force.known.hash),
        governing=None,
        header=None,
        content=None,
        tombstone=tombstone,
    )


def _signed(session: Session, draft: _Draft) -> tuple[Signed, Known]:
    known = Known.of(draft.record)
    key = session.keys.ring.signing[draft.record.keyIndex]
    # A record of a group has no parts, so its bare form is the record.
    return Signed(known.bare, key.sign(LABEL, known.bare)), known


def _request(draft: _Draft, signed: Signed, departures: int) -> RecordRequest:
    return RecordRequest(
        record=SignedRecord.of(signed),
        accessList=None if draft.access is None else list(draft.access.entries),
        type=draft.type,
        departures=departures,
        roster=None if draft.made is None else draft.made.request,
    )


def _judged(group: OpenGroup | None, draft: _Draft, known: Known, time: int) -> GroupChain:
    """Judge a record as a member who has read the group before would judge it (C1 to C9)."""
    access, text, made = draft.access, draft.type, draft.made
    served = Served(
        known,
        None if access is None else access.list,
        None if text is None else (text.salt, text.type),
        None if made is None else made.data,
    )
    try:
        before = None if group is None else group.chain
        chain = rules.extend(before, served, time) if before else rules.begin(served, time)
        if made is not None:
            members: Mapping[bytes, roster.Member] = roster.parse_leaves(chain.roster, made.leaves)
        else:
            members = {} if group is None else group.members
        rules.check_roster(chain, members)
        if group is not None:
            rules.check_since((group.chain.roster, group.members), (chain.roster, members))
    except IntegrityError as error:
        raise beyond_own_access(error) from None
    return chain


_MERGES: Final = 16
"""Attempts of a change: if as many managers change one group at once, each of them succeeds."""
_LATE_EPOCH: Final = 16_000
_log = logging.getLogger("scbroker")


class RosterWriting(Sending[RosterAttempt]):
    """A change of a group on its way to the broker. With a nonce, it creates the group."""

    most_attempts = _MERGES

    def __init__(self, group_id: uuid.UUID, intents: Intents, nonce: bytes | None = None) -> None:
        super().__init__(group_id.bytes)
        self.group_id: uuid.UUID = group_id
        self.intents: Intents = intents
        self.nonce: bytes | None = nonce
        self.first: OpenGroup | None = None
        """The group as it was read first."""
        self.present: OpenGroup | None = None
        """The group as it was read, if there was nothing to change."""

    @property
    def is_done(self) -> bool:
        return self.is_stored or self.present is not None

    @property
    def can_follow_others(self) -> bool:
        return self.nonce is None

    def is_told_by_reading(self, error: errors.BrokerError) -> bool:
        """Return whether reading the group shows the outcome: its chain is served to former managers too."""
        return self.nonce is None and not isinstance(error, tasks.EVERYTHING)

    async def read(self, session: Session) -> None:
        settle(session, self.group_id, await session.groups.chain(self.group_id, fresh=True))

    async def keep(self, session: Session) -> None:
        attempt = self.attempt
        await session.groups.adopt(self.group_id, attempt.chain, attempt.opened)
        sending.forget(session, self.container_id, attempt.known.hash)

    def result(self) -> tuple[OpenGroup, tuple[uuid.UUID, ...]]:
        """Return the group after the change, and the members whom the broker's word alone has removed."""
        self.check_stored()
        if self.present is not None:
            return self.present, ()
        if self.attempt.opened is None:
            raise errors.DeletedError("The group was deleted.")
        return self.attempt.opened, self.attempt.dropped


def settle(session: Session, group_id: uuid.UUID, chain: GroupChain) -> None:
    """Settle records that were sent without confirmation, by a group's verified chain."""
    sending.settle_by(session, group_id.bytes, chain.hash_at, 0, chain.version)


async def create(session: Session, intents: Intents) -> OpenGroup:
    """Create a group, with one nonce for all attempts: a lost answer then creates no second group."""
    nonce = random_bytes(HASH_SIZE)
    item = RosterWriting(container_id_of(session.fingerprint, nonce), intents, nonce)
    async with outcomes_said(session, [item]):
        await until_stored(session, [item], _attempt_creation)
    return item.result()[0]


async def change(
    session: Session, group_id: uuid.UUID, intents: Intents
) -> tuple[OpenGroup, tuple[uuid.UUID, ...]]:
    """Change a group on top of what other managers changed; see `RosterWriting.result`."""
    item = RosterWriting(group_id, intents)
    async with outcomes_said(session, [item]):
        await until_stored(session, [item], _attempt_change)
    return item.result()


async def delete(session: Session, group_id: uuid.UUID) -> None:
    """Delete a group: begin an epoch that the author alone is in, then append the tombstone (section 10).

    After a stop in between, a repeated call does what is left.
    """
    await change(session, group_id, Intents(only_author=True))
    item = RosterWriting(group_id, Intents(only_author=True))
    async with outcomes_said(session, [item]):
        await until_stored(session, [item], _attempt_tombstone)
    item.check_stored()


async def _attempt_creation(session: Session, items: Sequence[RosterWriting]) -> None:
    for item in items:
        with tasks.alone(item.fail):
            intents = item.intents
            texts = Texts(intents.name or "", intents.description or "")
            plan = await plan_first(session, intents.add, intents.managers or {}, texts)
            key = await session.signing_key()
            draft = partial(draft_first, session, item.nonce or b"", plan, key, now())
            item.attempt = await _drafted(plan, draft)
            await send_one(session, [item])


async def _attempt_change(session: Session, items: Sequence[RosterWriting]) -> None:
    for item in items:
        with tasks.alone(item.fail):
            group = await _read(session, item)
            if group is None:
                continue
            plan = await plan_next(session, group, item.intents)
            if plan is None:
                item.present = group
                continue
            key = await session.signing_key()
            draft = partial(draft_next, session, group, plan, key, now())
            item.attempt = await _drafted(plan, draft)
            await send_one(session, [item])
            if item.is_refused and isinstance(item.error, errors.NotFoundError):
                await _read(session, item)  # raises the error that tells the reason
            if item.is_stored and plan.rises and group.epoch >= _LATE_EPOCH:
                _log.warning(
                    "Group %s: its key was replaced %d times, and 16,383 times is the most: create another "
                    "group soon, and call replaceGroup.",
                    item.group_id,
                    group.epoch + 1,
                )


async def _attempt_tombstone(session: Session, items: Sequence[RosterWriting]) -> None:
    for item in items:
        with tasks.alone(item.fail):
            group = await _read(session, item)
            if group is None:
                continue
            if group.members.keys() != {session.fingerprint}:
                raise errors.ConflictError(
                    "Another owner added a member meanwhile: read the members, then call deleteGroup again."
                )
            key = await session.signing_key()
            item.attempt = draft_tombstone(session, group, key, now())
            await send_one(session, [item])
            if item.is_refused and isinstance(item.error, errors.DeletedError):
                await _take_deletion(session, item)


async def _take_deletion(session: Session, item: RosterWriting) -> None:
    """After a refused tombstone, end with success if the group is deleted.

    Either an earlier answer got lost, or another device deleted the group first. If the broker does not know
    the group any more, because no container names it, this tombstone becomes the mark: the broker may have
    stored it.
    """
    try:
        chain = await session.groups.chain(item.group_id, fresh=True)
    except errors.NotFoundError:
        await item.keep(session)
    else:
        if chain.ended is None:
            raise errors.IntegrityError(
                "The broker reports a group as deleted without the tombstone that would prove it."
            )
        settle(session, item.group_id, chain)
    item.error, item.uncertain = None, []


async def _drafted(plan: Plan, draft: Callable[[], RosterAttempt]) -> RosterAttempt:
    """Draft a record here, or in the pool if it has many wraps."""
    return await io_thread.in_pool(draft) if len(plan.seats or ()) > MANY_WRAPS else draft()


async def _read(session: Session, item: RosterWriting) -> OpenGroup | None:
    """Read the group for another attempt; None if an earlier one turns out to be stored.

    Raises `PermissionDeniedError` for a change that the author may not make, and `ConflictError` if another
    manager changed the same things.
    """
    try:
        group = await session.groups.opened(item.group_id, fresh=True)
    except (errors.NotFoundError, errors.DeletedError):
        # Every user can read the chain, also after a removal or the tombstone. It shows what was stored.
        with contextlib.suppress(errors.NotFoundError, errors.DeletedError):
            settle(session, item.group_id, await session.groups.chain(item.group_id))
        item.settle(session)
        if item.is_stored:
            return None
        raise
    except (errors.DecryptionError, errors.IntegrityError):
        if not item.intents.replaces_texts:
            raise
        # Another manager gave the user a wrong secret or info: the next epoch, with new texts, repairs that.
        group = await session.groups.unopened(item.group_id)
        item.intents = replace(item.intents, new_epoch=True)
    settle(session, item.group_id, group.chain)
    item.settle(session)
    if item.is_stored:
        return None
    intents = item.intents
    intents.check_allowed(group)
    if item.first is None:
        intents.check_known(group)
        item.first = group
    intents.check_no_conflict(item.first, group)
    return group
