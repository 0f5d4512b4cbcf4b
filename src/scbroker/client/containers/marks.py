"""Show and reset what this device remembers of a container: its mark, and the changes that it sent.

Spec: docs/spec/container.md, sections 8 and 9.
"""

import contextlib
import dataclasses
import uuid

from msgspec.structs import replace

from scbroker.client.arguments import moment
from scbroker.client.containers import fetching, opening, sending
from scbroker.client.containers.opening import Fetched
from scbroker.client.core.judging import Mark, State
from scbroker.client.users.session import Session
from scbroker.errors import ConflictError, DeletedError, IntegrityError, NotFoundError
from scbroker.records.canonical import user_id_of, uuid8
from scbroker.records.container_record import Link
from scbroker.types import Head, Heads, SentChange, UnsettledAccess


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
    """Decide which sent records above the mark took effect, before an accepted head replaces the mark.

    The state was verified from record 1 on, so `follower` is record 1 and not the record after the mark.
    """
    if mark is None:
        sending.settle(session, state, 0)
    else:
        sending.settle(session, dataclasses.replace(state, follower=None), mark.version)


async def confirm(
    session: Session, container_id: uuid.UUID, accept: Head | None
) -> UnsettledAccess | None:
    """Return the newest unsettled access (groups.md, 7), or None; settle it if `accept` has its version."""
    fetched = await fetching.fetch(session, container_id, any_keys=True)
    stored, mark = fetching.mark_of(session, container_id.bytes)
    if mark is None or mark.unsettled is None:
        return None
    unsettled = mark.unsettled
    if accept not in (None, Head(unsettled.version, unsettled.hash)):
        raise ConflictError(
            f"Version {unsettled.version} is unsettled, and another one was accepted: call confirmAccess "
            "without accept, and compare again."
        )
    found = await _unsettled(session, fetched, unsettled)
    if accept is not None:
        settled = replace(mark, unsettled=None).encode()
        if not session.marks.swap(fetching.KIND, container_id.bytes, stored, settled):
            raise ConflictError(
                "The container was read meanwhile: call confirmAccess without accept, and compare again."
            )
    return found


async def _unsettled(session: Session, fetched: Fetched, unsettled: Link) -> UnsettledAccess:
    """Read an unsettled change's record, and the access lists before and after it, proved by hashes."""
    record, after = await fetching.governing_at(session, fetched, unsettled)
    before = None
    if record.link is not None:
        _, before = await fetching.governing_at(session, fetched, record.link)
    if record.via is None or before is None:
        raise IntegrityError("An unsettled access was not made through a group.")
    return UnsettledAccess(
        head=Head(unsettled.version, unsettled.hash),
        changedBy=user_id_of(record.author),
        changedVia=uuid8(record.via.group),
        changedAt=moment(record.time),
        before=opening.shown(session, fetched.state, before),
        after=opening.shown(session, fetched.state, after),
    )


async def sent_changes(session: Session, container_id: uuid.UUID) -> list[SentChange]:
    """Read the container; return whether changes that were sent without confirmation took effect."""
    with contextlib.suppress(NotFoundError, DeletedError):
        await fetching.fetch(session, container_id)
    _, mark = fetching.mark_of(session, container_id.bytes)
    found = sending.entries(session, container_id.bytes)
    return sending.shown(found, 0 if mark is None else mark.version)


def _head(mark: Mark) -> Head:
    return Head(mark.version, mark.hash)
