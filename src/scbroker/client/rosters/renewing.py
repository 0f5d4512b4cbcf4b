"""Renew all containers of a group, or put another group in its place, 64 containers at a time.

The broker lists the containers; that is a hint, and each container is verified before it is changed. A
repeated call does what is left: a container that is done is not listed any more.
Spec: docs/spec/groups.md, 8 and 10.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from scbroker import errors
from scbroker.client.calls import tasks
from scbroker.client.containers import writing
from scbroker.client.containers.change import Change, Swap
from scbroker.client.groups.opening import OpenGroup
from scbroker.client.parts.content import Progress
from scbroker.client.users.session import Session
from scbroker.errors import BrokerError
from scbroker.types import GroupRenewal
from scbroker.vocabulary import GroupRole
from scbroker.wire import containers as wire

_AT_ONCE: Final = wire.MAX_BATCH


async def renew(
    session: Session, group_id: uuid.UUID, progress: Progress | None = None
) -> GroupRenewal:
    """Give each container that is wrapped to an earlier epoch of the group a new key."""
    await _read(session, group_id, GroupRole.Writer)
    return await _change_each(session, group_id, True, lambda: Change(renews=True), progress)


async def replace(
    session: Session, group_id: uuid.UUID, new_group_id: uuid.UUID, progress: Progress | None = None
) -> GroupRenewal:
    """Move the access that a group has to each of its containers to another group."""
    await _read(session, group_id, GroupRole.Sharer)
    new = await session.groups.chain(new_group_id, fresh=True)
    if new.ended is not None:
        raise errors.DeletedError("The group that newGroupId names was deleted.")
    swap = Swap({}, frozenset([group_id]), new_group_id, new.name)
    return await _change_each(session, group_id, False, lambda: Change(grants=swap), progress)


async def _read(session: Session, group_id: uuid.UUID, role: GroupRole) -> OpenGroup:
    """Read the latest epoch of a group; raise `PermissionDeniedError` for a caller with a lower role."""
    opened = await session.groups.opened(group_id, fresh=True)
    if opened.role < role:
        raise errors.PermissionDeniedError(
            f"Your role in this group is {GroupRole(opened.role).name}, and this needs {role.name}: ask a "
            "manager."
        )
    return opened


async def _change_each(
    session: Session,
    group_id: uuid.UUID,
    stale: bool,
    change: Callable[[], Change],
    progress: Progress | None,
) -> GroupRenewal:
    """Change the containers of two pages at a time; the next page is listed meanwhile."""
    done, failed = 0, list[BrokerError]()

    async def change_some(ids: Sequence[uuid.UUID]) -> None:
        nonlocal done
        outcomes = await writing.update_each(session, {each: change() for each in ids})
        for each, outcome in zip(ids, outcomes, strict=True):
            if isinstance(outcome, errors.DeletedError):
                continue
            if isinstance(outcome, tasks.EVERYTHING):
                raise outcome.fresh()
            if isinstance(outcome, BrokerError):
                error = outcome.fresh()
                error.containerId = each
                failed.append(error)
            else:
                done += 1
        if progress is not None:
            progress(done, None)

    pages = _pages(session, group_id, stale)
    await tasks.a_few_at_once(change_some(ids) async for ids in pages)
    return GroupRenewal(done, sorted(failed, key=lambda error: error.containerId or group_id))


async def _pages(
    session: Session, group_id: uuid.UUID, stale: bool
) -> AsyncIterator[list[uuid.UUID]]:
    """Yield the ids of the group's containers, as the broker lists them."""
    after: str | None = None
    while True:
        message = wire.ListRequest(after=after, limit=_AT_ONCE, via=str(group_id), stale=stale)
        answer = await session.call(
            "POST", "/v1/containers/list", wire.ContainerList, message=message
        )
        ids = [item.containerId for item in answer.containers]
        cursor = [] if after is None else [after]
        if sorted({*cursor, *ids}) != [*cursor, *ids] or answer.next not in (None, *ids[-1:]):
            raise errors.BrokerFaultError(
                "The broker's list is not in the order of ids, or does not continue after the last page."
            )
        if ids:
            yield [uuid.UUID(each) for each in ids]
        after = answer.next
        if after is None:
            return
