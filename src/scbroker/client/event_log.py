"""The event log as callers see it: page by page, and against what this device has seen of it.

What an event says is the broker's word. What a device can notice is that events are missing, come in
another order, or are others than before: ids are gapless, and the mark keeps the highest one together
with a digest of all events that were read in one run from the first.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from scbroker.client.fetching import moment
from scbroker.client.session import Session
from scbroker.crypto.verify import HASH_SIZE, labelled_hash
from scbroker.errors import (
    BrokerFaultError,
    ForkError,
    IntegrityError,
    InvalidArgumentError,
    RollbackError,
    TooLargeError,
)
from scbroker.types import ContainerEvent
from scbroker.vocabulary import ContainerEventType
from scbroker.wire.events import MAX_PAGE, Event, Events

Criteria = dict[str, str | list[str]]
_KIND: Final = "events"
_MAX_ID: Final = 2**53 - 1
_MOST: Final = 1_000_000
_FILTERS: Final = {"eventType", "containerId", "containerType"}


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """The highest id that the log had, and the digest of its events 1 to `read`."""

    last: int = 0
    read: int = 0
    digest: bytes = bytes(HASH_SIZE)


class _Log(msgspec.Struct, frozen=True):
    """What was answered: all events that match, of the ids from `first` to `end`."""

    events: list[Event]
    first: int
    end: int
    last: int


def checked_criteria(
    eventType: object,
    containerId: object,
    containerType: object,
    startId: object,
    endId: object,
) -> Criteria:
    """The criteria as the query of a request; `InvalidArgumentError` for what is none."""
    criteria: Criteria = {}
    if eventType is not None:
        kinds = [eventType] if isinstance(eventType, ContainerEventType) else eventType
        kinds = list(kinds) if isinstance(kinds, Iterable) else [kinds]
        if not kinds or not all(isinstance(kind, ContainerEventType) for kind in kinds):
            raise InvalidArgumentError("eventType is one or more of ContainerEventType.")
        criteria["eventType"] = [str(kind) for kind in kinds]
    if containerId is not None:
        if not isinstance(containerId, uuid.UUID):
            raise InvalidArgumentError("containerId is a uuid.UUID.")
        criteria["containerId"] = str(containerId)
    if containerType is not None:
        if not isinstance(containerType, str):
            raise InvalidArgumentError("containerType is text.")
        criteria["containerType"] = containerType
    for name, value in (("startId", startId), ("endId", endId)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_ID:
            raise InvalidArgumentError(f"{name} is an event's id, an int of 0 or more.")
        criteria[name] = str(value)
    return criteria


async def events(session: Session, criteria: Criteria) -> list[ContainerEvent]:
    """All events that match, up to what the log held at the first page."""
    mark = _mark(session)
    log = await _fetch(session, criteria)
    if log.last < mark.last:
        raise RollbackError("The broker's event log is shorter than this device has seen it.")
    if not _FILTERS & criteria.keys():
        _check_whole(log, mark)
    new = _advanced(mark, log, whole=not _FILTERS & criteria.keys())
    _keep(session, new)
    return [_event(event) for event in log.events]


async def _fetch(session: Session, criteria: Criteria) -> _Log:
    found: list[Event] = []
    query = dict(criteria)
    first = max(1, int(str(criteria.get("startId", 1))))
    end = int(str(criteria.get("endId", _MAX_ID)))
    last = None
    while True:
        page = await session.call("GET", "/v1/events", Events, query=query)
        ids = [event.id for event in page.events]
        if page.firstId != 1:
            raise IntegrityError("The broker withholds the beginning of the event log.")
        if last is None:
            last = page.lastId
            end = min(end, last)
        _check_order(ids, int(str(query.get("startId", 1))))
        found += page.events
        if len(found) > _MOST:
            raise TooLargeError(
                f"More than {_MOST} events: ask for a range with startId and endId."
            )
        if len(ids) < MAX_PAGE or ids[-1] >= end:
            # What came in between is for the next time.
            return _Log([event for event in found if event.id <= end], first, end, last)
        query |= {"startId": str(ids[-1] + 1), "endId": str(end)}


def _check_order(ids: Sequence[int], first: int) -> None:
    if any(b <= a for a, b in itertools.pairwise(ids)) or (ids and ids[0] < first):
        raise BrokerFaultError("The broker's events are out of order.")


def _check_whole(log: _Log, mark: Mark) -> None:
    """Where nothing is filtered nothing may be missing, and what was read once stays what it was."""
    ids = range(log.first, log.end + 1)  # as many as a broker says: never made into a list
    if len(log.events) != len(ids) or any(e.id != n for e, n in zip(log.events, ids, strict=True)):
        raise IntegrityError("The broker withholds events.")
    if log.first <= 1 and log.end >= mark.read and _digest(Mark(), log, mark.read) != mark.digest:
        raise ForkError("The broker's event log is another than this device has seen.")


def _digest(start: Mark, log: _Log, end: int) -> bytes:
    """The digest of the events 1 to `end`, from that of those up to `start.read`."""
    digest = start.digest
    for event in log.events:
        if start.read < event.id <= end:
            digest = labelled_hash("event", digest + msgspec.msgpack.encode(event))
    return digest


def _advanced(mark: Mark, log: _Log, *, whole: bool) -> Mark:
    last = max(mark.last, log.last)
    if not whole or not log.first <= mark.read + 1 <= log.end:
        return Mark(last, mark.read, mark.digest)
    return Mark(last, log.end, _digest(mark, log, log.end))


def _mark(session: Session) -> Mark:
    stored = session.marks.get(_KIND, b"")
    return Mark() if stored is None else msgspec.msgpack.decode(stored, type=Mark)


def _keep(session: Session, new: Mark) -> None:
    """Raises the mark as far as another reading has not raised it meanwhile."""
    while True:
        stored = session.marks.get(_KIND, b"")
        known = Mark() if stored is None else msgspec.msgpack.decode(stored, type=Mark)
        best = new if new.read >= known.read else known
        kept = Mark(max(new.last, known.last), best.read, best.digest)
        if kept == known or session.marks.swap(_KIND, b"", stored, msgspec.msgpack.encode(kept)):
            return


def _event(event: Event) -> ContainerEvent:
    return ContainerEvent(
        id=event.id,
        eventType=ContainerEventType(event.eventType),
        containerId=uuid.UUID(event.containerId),
        containerType=event.containerType,
        date=moment(event.date),
        version=event.version,
        relatedUserId=None if event.relatedUserId is None else uuid.UUID(event.relatedUserId),
        applicationName=event.applicationName,
        changes=tuple(event.changes),
    )
