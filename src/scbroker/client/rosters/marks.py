"""Show and reset what this device remembers of a group: its mark, and the changes that it sent.

As `containers.marks` does for containers; the history is that of the group's records.
"""

import contextlib
import uuid

from scbroker.client.containers import sent
from scbroker.client.core.judging import Mark
from scbroker.client.rosters.writing import settle
from scbroker.client.users.session import Session
from scbroker.errors import ConflictError, NotFoundError
from scbroker.types import Head, Heads, SentChange


async def reset(session: Session, group_id: uuid.UUID, accept: Head | None) -> Heads:
    """Return the mark's head and the one that the broker serves; make the latter the mark if it is `accept`.

    The served history is verified as on a device without a mark; the pinned name stays.
    """
    mark = session.groups.mark_of(group_id)
    chain = await session.groups.served(group_id)
    served = Head(chain.version, chain.head.hash)
    heads = Heads(None if mark is None else _head(mark), served)
    if accept is None:
        return heads
    if accept != served:
        raise ConflictError(
            f"The broker now serves version {served.version}, which is not the accepted head: call "
            "resetContainerMark without accept, and compare again."
        )
    settle(session, group_id, chain)
    if not session.groups.accept_head(group_id, chain, mark):
        raise ConflictError(
            "The group was read meanwhile: call resetContainerMark without accept, and compare again."
        )
    return heads


async def sent_changes(session: Session, group_id: uuid.UUID) -> list[SentChange]:
    """Read the group, and return what became of changes that were not confirmed when they were sent."""
    with contextlib.suppress(NotFoundError):
        settle(session, group_id, await session.groups.chain(group_id, fresh=True))
    mark = session.groups.mark_of(group_id)
    found = sent.entries(session, group_id.bytes)
    return sent.shown(found, 0 if mark is None else mark.version)


def _head(mark: Mark) -> Head:
    return Head(mark.version, mark.hash)
