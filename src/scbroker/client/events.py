"""Read and follow the event log page by page, and check it against what this device has read of it before.

No user signs events: only the broker says what happened. But a device can notice missing, reordered and
altered events. Ids have no gaps, and the device's mark keeps the highest id together with a digest of all
events that it read in one run from the first. A broker that drops old events serves the first id that it
keeps and a digest of the dropped ones, so that a run that began with dropped events can still be checked. The
mark also has the hash of the event with the highest id, and a reading that begins after this event compares
it first: a log that was restored from a backup may have grown beyond that id again.

No number in an answer is signed. So the mark is raised by events that were served without a gap, and by
nothing else: not by the ends that a page names, nor by an answer that was filtered or refused.
Spec: docs/spec/protocol.md, section 5.
"""

import asyncio
import contextlib
import itertools
import logging
import secrets
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from time import monotonic
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from scbroker import errors
from scbroker.client.arguments import moment
from scbroker.client.calls.operation import Pages
from scbroker.client.http.requests import MAX_ANSWER, Query, query_of
from scbroker.client.users.session import Session
from scbroker.records.canonical import decoder
from scbroker.records.container_record import GROUP_TYPE
from scbroker.types import ContainerEvent, Head, Heads
from scbroker.vocabulary import ContainerEventType
from scbroker.wire import codec
from scbroker.wire.events import HEARTBEAT, MAX_PAGE, NO_EVENTS, Event, Events, digest_with

Filters = dict[str, str | list[str]]
_KIND: Final = "events"
_MAX_ID: Final = 2**53 - 1
_MOST: Final = 1_000_000
"""Most events that one call reads; more raise `TooLargeError`."""
_ROUNDS: Final = 5
_AT_ONCE: Final = 100_000
"""Events that are in memory at once while a mark is reset."""
_FARTHEST: Final = 2**32
"""Most ids that a log can have gained since this device read it last; a higher end is refused."""
_RESET: Final = " If you trust the log that it serves, resetEventMark accepts it."
_FILTERS: Final = {"eventType", "containerId", "containerType"}


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """The highest id that was read, the digest of the events 1 to `read`, and the lowest id that is kept."""

    last: int = 0
    read: int = 0
    digest: bytes = NO_EVENTS
    first: int = 1
    hash: bytes = b""
    """That of the event `last`; nothing if it was not read."""

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @property
    def head(self) -> Head:
        return Head(self.read, self.digest)


class Source(NamedTuple):
    """An event log: that of the session's user, or of a group of which the user is a member."""

    session: Session
    group: uuid.UUID | None = None

    @property
    def _key(self) -> bytes:
        return b"" if self.group is None else self.group.bytes

    @property
    def query(self) -> Query:
        return query_of(self.group)

    async def call(self, query: Query) -> Events:
        return await self.session.call("GET", "/v1/events", Events, query={**query, **self.query})

    def mark(self) -> tuple[bytes | None, Mark]:
        """Return this device's mark of the log twice: as stored, and decoded."""
        stored = self.session.marks.get(_KIND, self._key)
        return stored, Mark() if stored is None else decoder(Mark).decode(stored)

    def swap(self, stored: bytes | None, value: bytes) -> bool:
        return self.session.marks.swap(_KIND, self._key, stored, value)

    def shown(self, found: Sequence[Event]) -> list[ContainerEvent]:
        """Return events as callers see them."""
        return [public_event(event, self.group) for event in found]


class _Log(msgspec.Struct, frozen=True):
    """A log as it was read: all matching events with ids from `first` to `end`.

    The broker keeps events from `kept` on; `dropped` is the digest of those before.
    """

    events: list[Event]
    first: int
    end: int
    kept: int
    dropped: bytes

    @property
    def before(self) -> Mark:
        """Return the mark of a device that has read exactly the dropped events."""
        return Mark(self.kept - 1, self.kept - 1, self.dropped, self.kept)


def checked_criteria(
    eventType: Sequence[ContainerEventType] | None,
    containerId: uuid.UUID | None,
    containerType: str | None,
    startId: int | None,
    endId: int | None,
) -> Filters:
    """Return the criteria as the query of a request; `InvalidArgumentError` for an impossible id."""
    criteria: Filters = {}
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
            raise errors.InvalidArgumentError(f"{name} must be from 0 to {_MAX_ID}, not {value}")
        criteria[name] = str(value)
    return criteria


async def events(source: Source, criteria: Filters) -> list[ContainerEvent]:
    """Return all matching events, up to the last one that the log had at the first page."""
    mark = source.mark()[1]
    log = await _fetch(source, criteria, mark)
    if not _FILTERS & criteria.keys():
        log = await _follow(source, criteria, mark, log)
    elif "startId" in criteria:
        await _check_last(source, mark)
    return source.shown(log.events)


async def end_of_log(source: Source) -> int:
    """Return the highest id of the log. No event is read, and the mark stays as it is."""
    mark = source.mark()[1]
    page = await source.call({"startId": str(_MAX_ID), "limit": "1"})
    _check_ends(page, mark.first, mark.last)
    return page.lastId


async def page_from(source: Source, first: int) -> list[Event]:
    """Return the first events from an id on, verified; raise the mark if they continue it."""
    mark = source.mark()[1]
    page = await source.call({"startId": str(first)})
    return await check_page(source, first, mark, page)


async def check_page(source: Source, first: int, mark: Mark, page: Events) -> list[Event]:
    """Verify a page that was requested from `first` on without filters; return its events.

    `mark` is the one before the request: others may read a later page while this one is on its way. Raises
    the mark if the events continue it.
    """
    if page.lastId + 1 < first:
        raise errors.RollbackError(
            f"The broker's event log ends at {page.lastId}, so that {first} is not its next id: if startId "
            "came from this log, the broker lost events."
        )
    criteria: Filters = {"startId": str(first), "endId": str(min(first + MAX_PAGE - 1, _MAX_ID))}
    log = await _fetch(source, criteria, mark, page)
    return (await _follow(source, criteria, mark, log)).events


async def reset_mark(source: Source, accept: Head | None) -> Heads:
    """Return the end of the log that this device has read, and of the one that the broker serves.

    If the latter is `accept`, it becomes the device's mark in place of the former.
    """
    stored, mark = source.mark()
    served = await _read_afresh(source, _MAX_ID if accept is None else accept.version)
    heads = Heads(None if stored is None else mark.head, served.head)
    if accept is not None and accept != heads.served:
        raise errors.ConflictError(
            f"The event log does not have the accepted end {accept.version}: call resetEventMark without "
            "accept, and compare again."
        )
    if accept is not None and not source.swap(stored, served.encode()):
        raise errors.ConflictError(
            "The event log was read meanwhile: call resetEventMark without accept, and compare again."
        )
    return heads


async def _read_afresh(source: Source, last: int) -> Mark:
    """Read the log up to an id in parts, as a device without a mark would; return the resulting mark."""
    mark = (await _fetch(source, {"endId": "1"}, Mark())).before
    while mark.read < last:
        end = min(mark.read + _AT_ONCE, last)
        criteria: Filters = {"startId": str(mark.read + 1), "endId": str(end)}
        log = await _fetch(source, criteria, mark)
        _check_whole(log, mark, mark)
        if not log.events:
            break
        mark = _advanced(mark, log)
    return mark


async def _follow(source: Source, criteria: Filters, begun: Mark, log: _Log) -> _Log:
    """Check a log without gaps against the mark, and raise the mark to the log's end.

    Other operations and programs may have raised the mark meanwhile: the log must agree with it. If the mark
    is beyond the log's end, the log is read again.
    """
    wanted = int(str(criteria.get("endId", _MAX_ID)))
    for _ in range(_ROUNDS):
        stored, mark = source.mark()
        if log.end < mark.read <= wanted:
            log = await _fetch(source, criteria, mark)
        if mark.last < log.first:
            await _check_last(source, mark)
        _check_whole(log, begun, mark)
        new = _advanced(mark, log)
        if new == mark or source.swap(stored, new.encode()):
            return log
    raise errors.ConflictError(
        "Others read the event log faster than this call can check it: try again."
    )


async def _check_last(source: Source, mark: Mark) -> None:
    """Raise `ForkError` if the log has another event than the last one that this device has read.

    If the broker has dropped that event, nothing is left to compare.
    """
    if mark.hash:
        last: Filters = {"startId": str(mark.last), "endId": str(mark.last)}
        with contextlib.suppress(errors.EventsExpiredError):
            _check_whole(await _fetch(source, last, mark), mark, mark)


async def _fetch(
    source: Source, criteria: Filters, mark: Mark, fetched: Events | None = None
) -> _Log:
    """Fetch all pages; `fetched` is the first one if the caller has it already.

    If the broker drops the next event meanwhile, begin again with the first one that is kept, or raise
    `EventsExpiredError` if the criteria have a `startId`.
    """
    lowest, highest = mark.first, mark.last
    found: list[Event] = []
    query = dict(criteria)
    first = expected = int(str(criteria.get("startId", 0))) or 1
    end = int(str(criteria.get("endId", _MAX_ID)))
    begun: Events | None = None
    last, count = None, 0
    while True:
        page = fetched or await source.call(query)
        fetched = None
        _check_ends(page, lowest, highest)
        lowest, highest = page.firstId, page.lastId
        if page.firstId > expected:
            if "startId" in criteria:
                raise errors.EventsExpiredError(
                    f"The broker keeps no events below {page.firstId} any more: read your containers afresh, "
                    f"then go on with getEvents(startId={page.firstId}).",
                    firstId=page.firstId,
                )
            found, begun, first, expected = [], None, page.firstId, page.firstId
        begun = begun or page
        if last is None:
            last = page.lastId
            end = min(end, last)
        ids = [event.id for event in page.events]
        _check_order(ids, expected)
        _check_details(page.events)
        found += page.events
        # Count dropped events too: a broker that drops events for ever must not keep this loop going.
        count += len(ids)
        if count > _MOST:
            raise errors.TooLargeError(
                f"More than {_MOST} events: ask for a range with startId and endId."
            )
        if len(ids) < MAX_PAGE or ids[-1] >= end:
            some = [event for event in found if event.id <= end]  # the next call returns newer ones
            return _Log(some, first, end, begun.firstId, begun.droppedDigest)
        expected = ids[-1] + 1
        query |= {"startId": str(expected), "endId": str(end)}


def _check_ends(page: Events, lowest: int, highest: int) -> None:
    """Check that since the last page or the mark, the log only dropped its oldest events and got new ones.

    `lowest` and `highest` are the ids that the mark or a page of this reading had as ends of the log.
    """
    if not 1 <= page.firstId <= page.lastId + 1:
        raise errors.IntegrityError(
            f"The broker's log begins at {page.firstId} and ends at {page.lastId}: it withholds events."
        )
    if page.firstId == 1 and page.droppedDigest != NO_EVENTS:
        raise errors.BrokerFaultError(
            "The broker serves a digest of dropped events and has dropped none: ask its operator."
        )
    if page.lastId > highest + _FARTHEST:
        raise errors.IntegrityError(
            f"The broker says that its event log ends at {page.lastId}. No log grows so far: ask its "
            "operator."
        )
    if page.lastId < highest:
        raise errors.RollbackError(
            f"The broker's event log ends at {page.lastId}; this device has read to {highest}.{_RESET}"
        )
    if page.firstId < lowest:
        raise errors.RollbackError(
            f"The broker's event log begins at {page.firstId}; its events below {lowest} were "
            f"dropped.{_RESET}"
        )


def _check_order(ids: Sequence[int], first: int) -> None:
    if any(b <= a for a, b in itertools.pairwise(ids)) or (ids and ids[0] < first):
        raise errors.BrokerFaultError("The broker's events are out of order.")


def _check_details(events: Sequence[Event]) -> None:
    """Raise `BrokerFaultError` unless each event has its details with their salt, or their hash alone.

    With both, a broker could serve forged details while the digest covers the hash of the true ones.
    """
    for event in events:
        types = event.containerType, event.previousContainerType
        said = *types, event.relatedUserId, event.applicationName, event.version
        is_empty = said == (None, None, None, "", 0) and not event.changes
        is_emptied = event.salt is None and event.detailsHash is not None and is_empty
        if not is_emptied and (event.salt is None or event.detailsHash is not None):
            raise errors.BrokerFaultError(
                f"The broker's event {event.id} must have its details with their salt, or their hash alone."
            )


def _check_whole(log: _Log, begun: Mark, mark: Mark) -> None:
    """Check that no event is missing, and that events which were read before are the same.

    `begun` is the mark as it was when the reading began: others may have raised it since.
    """
    ids = range(log.first, log.end + 1)  # the broker sets its length: do not make it a list
    if len(log.events) != len(ids) or any(e.id != n for e, n in zip(log.events, ids, strict=True)):
        raise errors.IntegrityError("The broker withholds events.")
    is_same = True
    if mark.hash and mark.last in ids:
        is_same = hash_of(log.events[mark.last - log.first]) == mark.hash
    # Recompute the digest from either known starting point; both must give the stored one.
    for start in (log.before, begun):
        if log.first - 1 <= start.read <= mark.read <= log.end:
            is_same = is_same and _digest(start, log, mark.read) == mark.digest
    if not is_same:
        raise errors.ForkError(
            f"The broker's event log is another than this device has read.{_RESET}"
        )


def hash_of(event: Event) -> bytes:
    """Return the hash of an event, which is the same after the deletion of its container emptied it."""
    return digest_with(NO_EVENTS, event)


def _digest(start: Mark, log: _Log, end: int) -> bytes:
    """Return the digest of the events 1 to `end`, from that of the events 1 to `start.read`."""
    digest = start.digest
    for event in log.events:
        if start.read < event.id <= end:
            digest = digest_with(digest, event)
    return digest


def _advanced(mark: Mark, log: _Log) -> Mark:
    """Return the mark after this log was read without a gap."""
    begins_with_kept = log.first == log.kept
    if not log.events:
        # Raise `first` only if the digest of the dropped events was compared with what this device read.
        is_known = begins_with_kept and log.kept <= mark.read + 1
        return replace(mark, first=log.kept) if is_known else mark
    first = log.kept if begins_with_kept else mark.first
    last, hash_ = mark.last, mark.hash
    if log.end >= last:
        last, hash_ = log.end, hash_of(log.events[-1])
    # If this device had not read the dropped events, its run begins again after them, with the served digest.
    start = mark if mark.read >= log.kept - 1 else log.before
    if not log.first <= start.read + 1 <= log.end:
        return Mark(last, mark.read, mark.digest, first, hash_)
    return Mark(last, log.end, _digest(start, log, log.end), first, hash_)


def public_event(event: Event, group: uuid.UUID | None) -> ContainerEvent:
    """Return an event as callers see it; `group` is the one whose log has it."""
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
        groupId=group,
    )


_WAIT: Final = 300
"""Seconds that the broker is asked to wait for an event."""
_GROUPS_AT_ONCE: Final = 8
"""Groups whose logs are waited for at once. A broker takes 32 requests of a user in each process."""
_TURN: Final = 10
"""Seconds to wait for one group's log if there are more groups than slots: then another log gets the slot."""
_LATE: Final = 60.0
"""Seconds after the wait until an unfinished answer is given up, even if heartbeats arrive."""
_FLOOR: Final = 1.0
"""Least seconds between requests while no event comes: a broker could answer each of them at once."""
_LONGEST_PAUSE: Final = 30.0
_REPORT_SECONDS: Final = 60.0
_WAITABLE: Final = (errors.BrokerUnavailableError, errors.ConflictError)
_log = logging.getLogger("scbroker")


def matches(
    event: ContainerEvent,
    kinds: Collection[ContainerEventType] | None,
    container_id: uuid.UUID | None,
    container_type: str | None,
) -> bool:
    """Return whether the caller wants an event, by the rules of `getEvents`."""
    types = event.containerType, event.previousContainerType
    return (
        (kinds is None or event.eventType in kinds)
        and (container_id is None or event.containerId == container_id)
        and (container_type is None or container_type in types)
    )


async def follow(
    session: Session,
    start: int | None,
    group_starts: Mapping[uuid.UUID, int],
    is_wanted: Callable[[ContainerEvent], bool],
) -> Pages[ContainerEvent]:
    """Yield pages of wanted events without end, of the user's own log and of those of accepted groups.

    A log begins with its id in `start` or `group_starts` or, without one, after its present end. Every event
    from there on is read: only ids without a gap prove that none is missing. So each is delivered once and in
    order, also across lost connections, expired tokens and several brokers. If the broker is unreachable or
    overloaded, the client asks again after growing pauses; every other error ends the stream.
    """
    places = dict[uuid.UUID | None, int | None]([(None, start), *group_starts.items()])
    logs = Logs(session, places)
    # Changes are delayed only during the first attempt: otherwise each would wait until an outage ends.
    beginning: contextlib.AbstractContextManager[None] = session.beginning()
    failed, reported = 0, 0.0
    try:
        while True:
            try:
                with beginning:
                    beginning = contextlib.nullcontext()
                    await logs.begin()
                source, found = await logs.next()
            except _WAITABLE as error:
                failed += 1
                if failed == 1 or monotonic() - reported >= _REPORT_SECONDS:
                    reported = monotonic()
                    _log.warning("followEvents waits for the broker: %s", error)
                await asyncio.sleep(_pause(error, failed))
                continue
            if failed:
                _log.info("followEvents goes on: the broker answers again")
            failed = 0
            yield [event for event in source.shown(found) if is_wanted(event)]
    finally:
        await logs.close()


class Logs:
    """The logs that a reader follows: the user's own, and that of each group that the user has accepted.

    `places` has the id of the next event of each log, by group; None is the user's own. Without an id a log
    begins after its present end. The log of a group that the user creates begins with its first event. The
    log of a group is followed until the user's membership ends. `begun` is called with the logs that began
    after their present end: what was read before may have changed without an event that is shown here.
    """

    def __init__(
        self,
        session: Session,
        places: Mapping[uuid.UUID | None, int | None],
        begun: Callable[[set[uuid.UUID | None]], Awaitable[None]] | None = None,
    ) -> None:
        self._session, self._begun = session, begun
        self.places: dict[uuid.UUID | None, int | None] = {None: None, **places}
        self._waits: dict[uuid.UUID | None, asyncio.Task[list[Event]]] = {}
        """The requests that wait for the next events of each log."""
        self._turns = asyncio.Semaphore(_GROUPS_AT_ONCE)
        self._moved = asyncio.Event()
        self._moved.set()
        self._moving: asyncio.Task[object] | None = None
        self._has_offers = False
        session.groups.followers.add(self._moved)

    async def begin(self) -> None:
        """List the groups again if they may have changed; find the end of each log without a start."""
        if self._moved.is_set():
            await self._list_groups()
        begun = set[uuid.UUID | None]()
        try:
            for group in [group for group, first in self.places.items() if first is None]:
                async with self._while_member(group):
                    end = await end_of_log(Source(self._session, group))
                    self.places[group] = end + 1
                    begun.add(group)
        finally:
            if begun and self._begun is not None:
                await self._begun(begun)

    async def next(self) -> tuple[Source, list[Event]]:
        """Wait for the next events of any log, and return them, verified.

        If a log raises an error, the next call continues with all logs.
        """
        while True:
            await self.begin()
            for group, first in self.places.items():
                if group not in self._waits:
                    wait = self._wait(group, max(1, first or 0))
                    self._waits[group] = asyncio.create_task(wait)
            if self._moving is None:
                self._moving = asyncio.create_task(self._moved.wait())
            await asyncio.wait(
                [*self._waits.values(), self._moving], return_when=asyncio.FIRST_COMPLETED
            )
            if self._moving.done():
                self._moving = None
            for group in [group for group, wait in self._waits.items() if wait.done()]:
                async with self._while_member(group):
                    found = self._waits.pop(group).result()
                    if found:
                        self.places[group] = found[-1].id + 1
                        self._note(group, found)
                        return Source(self._session, group), found
                    if group is None and self._has_offers:  # perhaps accepted on another device
                        self._moved.set()

    async def _wait(self, group: uuid.UUID | None, first: int) -> list[Event]:
        """Wait for events of a log from an id on, a group's in a free slot, and return them, checked.

        Returns none if the broker ended the wait.
        """
        source = Source(self._session, group)
        async with contextlib.nullcontext() if group is None else self._turns:
            is_crowded = group is not None and len(self.places) > _GROUPS_AT_ONCE + 1
            seconds = _TURN if is_crowded else _WAIT
            began, mark = monotonic(), source.mark()[1]
            query = {**source.query, "startId": str(first), "wait": str(seconds)}
            octets = await source.session.wait("/v1/events", seconds + _LATE, query)
            message, found = bytes(octets).lstrip(HEARTBEAT), list[Event]()
            if message:
                try:
                    page = codec.decode(Events, message, MAX_ANSWER)
                except errors.InvalidArgumentError as error:
                    raise errors.BrokerFaultError(
                        f"The broker's answer does not follow the protocol: {error}"
                    ) from None
                found = await check_page(source, first, mark, page)
            if not found:
                await asyncio.sleep(max(0.0, began + _FLOOR - monotonic()))
            return found

    async def close(self) -> None:
        self._session.groups.followers.discard(self._moved)
        tasks = [*self._waits.values(), *filter(None, [self._moving])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _list_groups(self) -> None:
        listed = await self._session.groups.listed()
        self._moved.clear()
        self._has_offers = not all(each.accepted for each in listed)
        accepted = {each.group_id for each in listed if each.accepted}
        for group in self.places.keys() - accepted - {None}:
            self._end(group)
        self.places = {**dict.fromkeys(accepted), **self.places}

    @contextlib.asynccontextmanager
    async def _while_member(self, group: uuid.UUID | None) -> AsyncIterator[None]:
        """Stop following a group whose log the broker denies; listing the groups exposes a false denial."""
        try:
            yield
        except errors.EventsExpiredError as error:
            error.containerId = group
            raise
        except errors.NotFoundError:
            if group is None:
                raise
            self._end(group)
            # Without a pause, a broker that lists the group but denies its log would keep this in a loop.
            await asyncio.sleep(_FLOOR)
            self._moved.set()

    def _end(self, group: uuid.UUID | None) -> None:
        del self.places[group]
        wait = self._waits.pop(group, None)
        if wait is not None:
            wait.cancel()

    def _note(self, group: uuid.UUID | None, found: Sequence[Event]) -> None:
        """Have the groups listed again after events about the user's memberships."""
        if group is not None:
            return
        for event in found:
            if event.containerType == GROUP_TYPE:
                self._moved.set()
                is_own = event.relatedUserId == str(self._session.userId)
                if event.eventType == "Added" and event.version == 1 and is_own:
                    self.places.setdefault(uuid.UUID(event.containerId), 1)


def _pause(error: errors.BrokerError, attempt: int) -> float:
    """Return the seconds before the next attempt: growing to 30, and up to 45 if the broker names a wait."""
    growing = min(0.2 * 2.0 ** min(attempt, 10), _LONGEST_PAUSE)
    named = min(getattr(error, "retryAfter", None) or 0.0, _LONGEST_PAUSE)
    return max(growing, named) * (1 + secrets.randbelow(1001) / 1000) / 2 + named / 2
