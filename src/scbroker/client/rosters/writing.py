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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec.structs

from scbroker import errors
from scbroker.client.arguments import now
from scbroker.client.calls import tasks
from scbroker.client.calls.tasks import io_thread
from scbroker.client.containers import sending
from scbroker.client.containers.sending import Sending, outcomes_said, send_one, until_stored
from scbroker.client.containers.writing import beyond_own_access
from scbroker.client.core import group_records
from scbroker.client.core.group_records import NewRoster, Present, Secret, Texts, make_roster
from scbroker.client.core.sealing import make_access, make_type
from scbroker.client.groups.opening import OpenGroup
from scbroker.client.rosters.planning import Intents, Plan, plan_next
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
from scbroker.wire.containers import RecordRequest, SignedRecord


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


def draft(
    session: Session,
    group: OpenGroup | None,
    nonce: bytes | None,
    plan: Plan | None,
    key: KnownKey,
    time: int,
) -> RosterAttempt:
    """Return the record that follows a group as it was read, or the first one of a new group with this nonce.

    Without a plan it is the tombstone. A record that begins an epoch has a fresh secret each time.
    """
    author = session.fingerprint
    name: bytes = group_name_of(author, nonce or b"")
    chain = before = secret = made = text = access = governing = None
    version, departures, digest = 1, 0, b""
    if group is not None:
        name, chain, before = group.name, group.chain, group.chain.in_force
        version, digest = chain.version + 1, before.governing.type
    group_id = uuid8(name).bytes
    if plan is not None:
        departures = 0 if group is None else len(group.left)
        secret = _secret(group, plan)
        if plan.seats is not None:
            present = None
            if group is not None:
                roster_before = group.chain.roster
                present = Present(roster_before, group.leaves, group.members, group.sealed_info)
            made = make_roster(name, version, author, plan.seats, secret, plan.texts, present)
            text, digest = make_type(group_id, roster.group_type(made.data))
        if plan.managers is not None:
            # The container key is wrapped to the managers, and seals nothing (section 2).
            access = make_access(
                group_id,
                version,
                author,
                digest,
                random_bytes(KEY_SIZE),
                plan.managers,
                plan.recipients,
                {},
            )
            governing = access.governing
        elif before is not None:
            governing = msgspec.structs.replace(before.governing, type=digest)
    record = ContainerRecord(
        containerId=group_id,
        nonce=nonce,
        version=version,
        parent=None if chain is None else chain.head.hash,
        author=author,
        keyIndex=key.index,
        time=max(time, key.introduced, 0 if chain is None else chain.head.record.time),
        link=None if before is None else Link(before.record.version, before.known.hash),
        governing=governing,
        header=None,
        content=None,
        tombstone=plan is None,
    )
    known = Known.of(record)
    # A record of a group has no parts, so its bare form is the record.
    signed = Signed(known.bare, session.keys.ring.signing[key.index].sign(LABEL, known.bare))
    served = Served(
        known,
        None if access is None else access.list,
        None if text is None else (text.salt, text.type),
        None if made is None else made.data,
    )
    after = _judged(group, served, made, time)
    request = RecordRequest(
        record=SignedRecord.of(signed),
        accessList=None if access is None else list(access.entries),
        type=text,
        departures=departures,
        roster=None if made is None else made.request,
    )
    opened = None
    if made is not None and plan is not None and secret is not None:
        opened = _opened(session, group, after, plan, made, secret)
    elif plan is not None and group is not None:
        opened = replace(group, chain=after)
    return RosterAttempt(request, known, after, opened, () if plan is None else plan.dropped)


def _secret(group: OpenGroup | None, plan: Plan) -> Secret:
    """Return the secret of the next roster's epoch."""
    known = {} if group is None else group.secrets
    epoch = 0 if group is None else group.epoch + plan.rises
    secret = group_records.new_secret() if plan.rises else known[epoch]
    return Secret(epoch, secret, [known.get(each) for each in range(epoch)])


def _judged(
    group: OpenGroup | None, served: Served, made: NewRoster | None, time: int
) -> GroupChain:
    """Judge a record as a member who has read the group before would judge it (C1 to C9)."""
    try:
        chain = rules.extend(group.chain, served, time) if group else rules.begin(served, time)
        members: Mapping[bytes, roster.Member] = {} if group is None else group.members
        if made is not None:
            members = roster.parse_leaves(chain.roster, made.leaves)
        rules.check_roster(chain, members)
        if group is not None:
            rules.check_since((group.chain.roster, group.members), (chain.roster, members))
    except IntegrityError as error:
        raise beyond_own_access(error) from None
    return chain


def _opened(
    session: Session,
    group: OpenGroup | None,
    chain: GroupChain,
    plan: Plan,
    made: NewRoster,
    secret: Secret,
) -> OpenGroup:
    """Return the group with its next roster, as the author would read it."""
    texts = plan.texts or Texts("", "")
    info = Info(texts.name, texts.description, list(secret.earlier))
    if group is None:
        return OpenGroup(
            fingerprint=session.fingerprint,
            chain=chain,
            leaves=made.leaves,
            members=made.members,
            sealed_info=made.sealed_info,
            wrap=made.own_wrap,
            info=info,
            secrets={0: secret.secret},
        )
    kept = {name for name, member in made.members.items() if group.members.get(name) == member}
    return replace(
        group,
        chain=chain,
        leaves=made.leaves,
        members=made.members,
        left=group.left & kept,
        owed=frozenset(),
        deleted=group.deleted & kept,
        unproved=group.unproved & kept,
        sealed_info=made.sealed_info,
        wrap=made.own_wrap or group.wrap,
        info=group.info if plan.texts is None else info,
        secrets={**group.secrets, secret.epoch: secret.secret},
        _keys=dict(group._keys),
    )


_MERGES: Final = 16
"""Attempts of a change: if as many managers change one group at once, each of them succeeds."""
_LATE_EPOCH: Final = 16_000
_log = logging.getLogger("scbroker")


class RosterWriting(Sending[RosterAttempt]):
    """A change of a group on its way to the broker. With a nonce, it creates the group.

    `deletes` appends the tombstone to a group whose only member is the author.
    """

    most_attempts = _MERGES

    def __init__(
        self,
        group_id: uuid.UUID,
        intents: Intents,
        nonce: bytes | None = None,
        *,
        deletes: bool = False,
    ) -> None:
        super().__init__(group_id.bytes)
        self.deletes = deletes
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
    await _write(session, item)
    return item.result()[0]


async def change(
    session: Session, group_id: uuid.UUID, intents: Intents
) -> tuple[OpenGroup, tuple[uuid.UUID, ...]]:
    """Change a group on top of what other managers changed; see `RosterWriting.result`."""
    item = RosterWriting(group_id, intents)
    await _write(session, item)
    return item.result()


async def delete(session: Session, group_id: uuid.UUID) -> None:
    """Delete a group: begin an epoch that the author alone is in, then append the tombstone (section 10).

    After a stop in between, a repeated call does what is left.
    """
    intents = Intents(only_author=True)
    await change(session, group_id, intents)
    item = RosterWriting(group_id, intents, deletes=True)
    await _write(session, item)
    item.check_stored()


async def _write(session: Session, item: RosterWriting) -> None:
    async with outcomes_said(session, [item]):
        await until_stored(session, [item], _attempt)


async def _attempt(session: Session, items: Sequence[RosterWriting]) -> None:
    for item in items:
        with tasks.alone(item.fail):
            group = plan = None
            if item.nonce is None:
                group = await _read(session, item)
                if group is None:
                    continue
            if not item.deletes:
                plan = await plan_next(session, group, item.intents)
                if plan is None:
                    item.present = group
                    continue
            elif group is not None and group.members.keys() != {session.fingerprint}:
                raise errors.ConflictError(
                    "Another owner added a member meanwhile: read the members, then call deleteGroup again."
                )
            key = await session.signing_key()
            # In the pool: a record may have many wraps.
            item.attempt = await io_thread.in_pool(
                draft, session, group, item.nonce, plan, key, now()
            )
            await send_one(session, [item])
            if item.is_refused and item.deletes and isinstance(item.error, errors.DeletedError):
                await _take_deletion(session, item)
            elif item.is_refused and group and isinstance(item.error, errors.NotFoundError):
                await _read(session, item)  # raises the error that tells the reason
            epoch = item.attempt.chain.roster.epoch
            if item.is_stored and plan is not None and plan.rises and epoch > _LATE_EPOCH:
                _log.warning(
                    "Group %s: its key was replaced %d times, and 16,383 times is the most: create another "
                    "group soon, and call replaceGroup.",
                    item.group_id,
                    epoch,
                )


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
        if None in (item.intents.name, item.intents.description):
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
