"""The event log as callers see it: page by page, and against what this device has seen of it.

What an event says is the broker's word. What a device can notice is that events are missing, come in
another order, or are others than before: ids are gapless, and the mark keeps the highest one together
with a digest of all events that were read in one run from the first. A broker that drops old events says
from which id on it keeps them, and the digest of what it dropped: by that the digest of a run is checked
that began with what is gone.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from scbroker.client.clock import moment
from scbroker.client.users.session import Session
from scbroker.errors import (
    BrokerFaultError,
    ConflictError,
    EventsExpiredError,
    ForkError,
    IntegrityError,
    InvalidArgumentError,
    RollbackError,
    TooLargeError,
)
from scbroker.types import ContainerEvent
from scbroker.vocabulary import ContainerEventType
from scbroker.wire.events import MAX_PAGE, NO_EVENTS, Event, Events, digest_with

Criteria = dict[str, str | list[str]]
_KIND: Final = "events"
_MAX_ID: Final = 2**53 - 1
_MOST: Final = 1_000_000
_ROUNDS: Final = 5
_FILTERS: Final = {"eventType", "containerId", "containerType"}


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """The highest id that the log had, the digest of its events 1 to `read`, the lowest id kept."""

    last: int = 0
    read: int = 0
    digest: bytes = NO_EVENTS
    first: int = 1


@dataclass(slots=True)
class _Told:
    """The lowest id that is kept and the highest one, as far as a broker has told of them."""

    first: int
    last: int


class _Log(msgspec.Struct, frozen=True):
    """What was answered: all events that match, of the ids from `first` to `end`.

    The broker keeps those from `kept` on; `dropped` is the digest of those before.
    """

    events: list[Event]
    first: int
    end: int
    kept: int
    dropped: bytes

    @property
    def before(self) -> Mark:
        """What a device knows that has read exactly what is not kept any more."""
        return Mark(read=self.kept - 1, digest=self.dropped)


def checked_criteria(
    eventType: Sequence[ContainerEventType] | None,
    containerId: uuid.UUID | None,
    containerType: str | None,
    startId: int | None,
    endId: int | None,
) -> Criteria:
    """Return the criteria as the query of a request; `InvalidArgumentError` for an impossible id."""
    criteria: Criteria = {}
    if eventType is not None:
        criteria["eventType"] = [str(kind) for kind in eventType]
    if containerId is not None:
        criteria["containerId"] = str(containerId)
    if containerType is not None:
        criteria["containerType"] = containerType
    for name, value in (("startId", startId), ("endId", endId)):
        if value is None:
            continue
        if not 0 <= value <= _MAX_ID:
            raise InvalidArgumentError(f"{name} must be from 0 to {_MAX_ID}, not {value}")
        criteria[name] = str(value)
    return criteria


async def events(session: Session, criteria: Criteria) -> list[ContainerEvent]:
    """All events that match, up to what the log held at the first page."""
    mark = _mark(session)[1]
    told = _Told(mark.first, mark.last)
    try:
        log = await _fetch(session, criteria, told)
        if not _FILTERS & criteria.keys():
            log = await _follow(session, criteria, told, mark, log)
    except (EventsExpiredError, TooLargeError):
        _keep_ends(session, told)
        raise
    _keep_ends(session, told)
    return [_event(event) for event in log.events]


async def _follow(
    session: Session, criteria: Criteria, told: _Told, begun: Mark, log: _Log
) -> _Log:
    """Checks a log without gaps against the mark, and raises that to its end.

    Others who share the marks may have read meanwhile: what they were shown has to be the same log. Where
    they read further than this one goes, it is read again.
    """
    wanted = int(str(criteria.get("endId", _MAX_ID)))
    for _ in range(_ROUNDS):
        stored, mark = _mark(session)
        told.first, told.last = max(told.first, mark.first), max(told.last, mark.last)
        if log.end < mark.read <= wanted:
            log = await _fetch(session, criteria, told)
        _check_whole(log, begun, mark)
        new = _advanced(mark, log, told)
        if new == mark or session.marks.swap(_KIND, b"", stored, msgspec.msgpack.encode(new)):
            return log
    raise ConflictError("The event log is read by others faster than it can be judged: try again.")


async def _fetch(session: Session, criteria: Criteria, told: _Told) -> _Log:
    """Page by page. Where the next event is dropped meanwhile, it begins anew with what is kept."""
    found: list[Event] = []
    query = dict(criteria)
    first = expected = int(str(criteria.get("startId", 0))) or 1
    end = int(str(criteria.get("endId", _MAX_ID)))
    begun: Events | None = None
    last, count = None, 0
    while True:
        page = await session.call("GET", "/v1/events", Events, query=query)
        _check_ends(page, told)
        if page.firstId > expected:
            if "startId" in criteria:
                raise _expired(page.firstId)
            found, begun, first, expected = [], None, page.firstId, page.firstId
        begun = begun or page
        if last is None:
            last = page.lastId
            end = min(end, last)
        ids = [event.id for event in page.events]
        _check_order(ids, expected)
        _check_details(page.events)
        found += page.events
        count += len(ids)  # also of what was dropped meanwhile, or it would never end
        if count > _MOST:
            raise TooLargeError(
                f"More than {_MOST} events: ask for a range with startId and endId."
            )
        if len(ids) < MAX_PAGE or ids[-1] >= end:
            # What came in between is for the next time.
            some = [event for event in found if event.id <= end]
            return _Log(some, first, end, begun.firstId, begun.droppedDigest)
        expected = ids[-1] + 1
        query |= {"startId": str(expected), "endId": str(end)}


def _expired(first: int) -> EventsExpiredError:
    return EventsExpiredError(
        f"The broker keeps no events below {first} any more: read your containers afresh, then go on "
        f"with getEvents(startId={first}).",
        firstId=first,
    )


def _check_ends(page: Events, told: _Told) -> None:
    """A log loses its oldest events and gets new ones; it never gets back what it lost."""
    if not 1 <= page.firstId <= page.lastId + 1:
        raise IntegrityError("The broker withholds events: its log begins behind its end.")
    if page.firstId == 1 and page.droppedDigest != NO_EVENTS:
        raise BrokerFaultError("The broker names a digest of dropped events, and none was dropped.")
    if page.lastId < told.last:
        raise RollbackError("The broker's event log is shorter than this device has seen it.")
    if page.firstId < told.first:
        raise RollbackError("The broker's event log has events again that it had dropped.")
    told.first, told.last = page.firstId, page.lastId


def _check_order(ids: Sequence[int], first: int) -> None:
    if any(b <= a for a, b in itertools.pairwise(ids)) or (ids and ids[0] < first):
        raise BrokerFaultError("The broker's events are out of order.")


def _check_details(events: Sequence[Event]) -> None:
    """Raise `BrokerFaultError` unless each event has its details with their salt, or their hash alone.

    With both, a broker could show forged details, while the digest covers the hash of the true ones.
    """
    for event in events:
        types = event.containerType, event.previousContainerType
        said = *types, event.relatedUserId, event.applicationName, event.version
        is_empty = said == (None, None, None, "", 0) and not event.changes
        is_emptied = event.salt is None and event.detailsHash is not None and is_empty
        if not is_emptied and (event.salt is None or event.detailsHash is not None):
            raise BrokerFaultError(
                f"The broker's event {event.id} must have its details with their salt, or their hash alone."
            )


def _check_whole(log: _Log, begun: Mark, mark: Mark) -> None:
    """Where nothing is filtered nothing may be missing, and what was read once stays what it was.

    `begun` is the mark as it was when the reading began: others may have raised it since.
    """
    ids = range(log.first, log.end + 1)  # as many as a broker says: never made into a list
    if len(log.events) != len(ids) or any(e.id != n for e, n in zip(log.events, ids, strict=True)):
        raise IntegrityError("The broker withholds events.")
    if mark.read > log.end:
        return
    # A digest is that of one run: what was dropped, and what is kept of it, or it is another log.
    for start in (log.before, begun):
        comparable = log.first - 1 <= start.read <= mark.read
        if comparable and _digest(start, log, mark.read) != mark.digest:
            raise ForkError("The broker's event log is another than this device has seen.")


def _digest(start: Mark, log: _Log, end: int) -> bytes:
    """The digest of the events 1 to `end`, from that of those up to `start.read`."""
    digest = start.digest
    for event in log.events:
        if start.read < event.id <= end:
            digest = digest_with(digest, event)
    return digest


def _advanced(mark: Mark, log: _Log, told: _Told) -> Mark:
    ends = _with_ends(mark, told)
    # Where more was dropped than this device has read, its run begins anew behind that.
    start = mark if mark.read >= log.kept - 1 else log.before
    if not log.first <= start.read + 1 <= log.end:
        return ends
    return Mark(ends.last, log.end, _digest(start, log, log.end), ends.first)


def _with_ends(mark: Mark, told: _Told) -> Mark:
    return Mark(max(mark.last, told.last), mark.read, mark.digest, max(mark.first, told.first))


def _mark(session: Session) -> tuple[bytes | None, Mark]:
    """As it is kept, and what that says."""
    stored = session.marks.get(_KIND, b"")
    return stored, Mark() if stored is None else msgspec.msgpack.decode(stored, type=Mark)


def _keep_ends(session: Session, told: _Told) -> None:
    """Raises what the mark says of the log's ends."""
    while True:
        stored, mark = _mark(session)
        new = _with_ends(mark, told)
        if new == mark or session.marks.swap(_KIND, b"", stored, msgspec.msgpack.encode(new)):
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
        previousContainerType=event.previousContainerType,
    )
