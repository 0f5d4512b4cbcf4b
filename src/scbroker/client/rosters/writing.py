"""Create, change and delete groups: plan, draft, send, keep pin and mark.

A record of a group is a container record: `sending` sends it and says whether it took effect. After a
conflict the group is read again and the intents apply to it anew; each attempt that raises the epoch has a
fresh secret.
Spec: docs/spec/groups.md, 8 and 10.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from scbroker import errors
from scbroker.client.arguments import now
from scbroker.client.calls import tasks
from scbroker.client.calls.io_thread import io_thread
from scbroker.client.containers import sent
from scbroker.client.containers.drafting import MANY_WRAPS
from scbroker.client.containers.sending import Sending, outcomes_said, send_one, until_stored
from scbroker.client.core.roster_making import Texts
from scbroker.client.groups.opening import OpenGroup
from scbroker.client.rosters import drafting
from scbroker.client.rosters.drafting import RosterAttempt
from scbroker.client.rosters.intents import Intents
from scbroker.client.rosters.planning import Plan, plan_first, plan_next
from scbroker.client.users.session import Session
from scbroker.crypto.seal import random_bytes
from scbroker.crypto.verify import HASH_SIZE
from scbroker.records.canonical import container_id_of
from scbroker.records.group import GroupChain

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
        """Return whether the group can be read: its chain is served to former managers as well."""
        return self.nonce is None and not isinstance(error, tasks.EVERYTHING)

    async def read(self, session: Session) -> None:
        settle(session, self.group_id, await session.groups.chain(self.group_id, fresh=True))

    async def keep(self, session: Session) -> None:
        attempt = self.attempt
        await session.groups.adopt(self.group_id, attempt.chain, attempt.opened)
        sent.forget(session, self.container_id, attempt.hash)

    def result(self) -> tuple[OpenGroup, tuple[uuid.UUID, ...]]:
        """Return the group after the change, and the members whom the broker's word alone has removed."""
        self.check_stored()
        if self.present is not None:
            return self.present, ()
        if self.attempt.opened is None:
            raise errors.DeletedError("The group was deleted.")
        return self.attempt.opened, self.attempt.dropped


def settle(session: Session, group_id: uuid.UUID, chain: GroupChain) -> None:
    """Note what a group's verified chain says of the records that were sent and not confirmed."""
    sent.settle_by(session, group_id.bytes, chain.hash_at, 0, chain.version)


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
            draft = partial(drafting.draft_first, session, item.nonce or b"", plan, key, now())
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
            draft = partial(drafting.draft_next, session, group, plan, key, now())
            item.attempt = await _drafted(plan, draft)
            await send_one(session, [item])
            if item.is_refused and isinstance(item.error, errors.NotFoundError):
                await _read(session, item)  # raises an error that says what the user has lost
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
            item.attempt = drafting.draft_tombstone(session, group, key, now())
            await send_one(session, [item])
            if item.is_refused and isinstance(item.error, errors.DeletedError):
                await _take_deletion(session, item)


async def _take_deletion(session: Session, item: RosterWriting) -> None:
    """End with success if the group is deleted, as the broker says that refused the tombstone.

    Either an answer got lost, or another device of the owner was first. The broker keeps no record of a group
    that nothing names: then it may have stored this tombstone, which becomes the mark.
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
    manager changed the same.
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
