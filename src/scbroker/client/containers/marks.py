"""Show and reset what this device remembers of a container: its mark, and the changes that it sent.

Spec: docs/spec/container.md, sections 8 and 9.
"""

import contextlib
import uuid
from dataclasses import replace

from scbroker.client.containers import fetching, sent
from scbroker.client.core.judging import Mark, State
from scbroker.client.users.session import Session
from scbroker.errors import ConflictError, DeletedError, NotFoundError
from scbroker.types import Head, Heads, SentChange


async def reset(session: Session, container_id: uuid.UUID, accept: Head | None) -> Heads:
    """Return the mark's head and the one that the broker serves; make the latter the mark if it is `accept`.

    The served history is verified as on a device without a mark.
    """
    stored, mark = fetching.mark_of(session, container_id.bytes)
    state = (await fetching.fetch_after(session, container_id, None)).state
    served = state.mark
    heads = Heads(None if mark is None else _head(mark), _head(served))
    if accept is None:
        return heads
    if accept != heads.served:
        raise ConflictError(
            f"The broker now serves version {served.version}, which is not the accepted head: call "
            "resetContainerMark without accept, and compare again."
        )
    _settle(session, state, mark)
    if not session.marks.swap(fetching.KIND, container_id.bytes, stored, served.encode()):
        raise ConflictError(
            "The container was read meanwhile: call resetContainerMark without accept, and compare again."
        )
    return heads


def _settle(session: Session, state: State, mark: Mark | None) -> None:
    """Note what became of open entries above the mark, before an accepted head takes the mark's place.

    The state was verified from the first record on, so its follower is not that of the mark's record.
    """
    if mark is None:
        sent.settle(session, state, 0)
    else:
        sent.settle(session, replace(state, follower=None), mark.version)


async def sent_changes(session: Session, container_id: uuid.UUID) -> list[SentChange]:
    """Read the container, and return what became of changes that were not confirmed when they were sent."""
    with contextlib.suppress(NotFoundError, DeletedError):
        await fetching.fetch(session, container_id)
    _, mark = fetching.mark_of(session, container_id.bytes)
    found = sent.entries(session, container_id.bytes)
    return sent.shown(found, 0 if mark is None else mark.version)


def _head(mark: Mark) -> Head:
    return Head(mark.version, mark.hash)
