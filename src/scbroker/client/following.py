"""Follow the event log without end: wait for the next events, and check each page against the mark.

The client reads every event from the start on, even if the caller wants only some: only ids without a gap
prove that none is missing. So each event is delivered once and in order, also across lost connections,
expired tokens and several brokers. If the broker is unreachable or overloaded, the client asks again after
growing pauses; every other error ends the stream. Spec: docs/spec/protocol.md, section 5.
"""

import asyncio
import contextlib
import logging
import secrets
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Final

from scbroker import errors
from scbroker.client import events
from scbroker.client.calls.stream import Pages
from scbroker.client.events import Source
from scbroker.client.http.requests import MAX_ANSWER
from scbroker.client.users.session import Session
from scbroker.records.container_record import GROUP_TYPE
from scbroker.types import ContainerEvent
from scbroker.vocabulary import ContainerEventType
from scbroker.wire import codec
from scbroker.wire.events import HEARTBEAT, Event, Events

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


class Criteria:
    """The events that the caller wants, by the rules of `getEvents`."""

    def __init__(
        self,
        kinds: Sequence[ContainerEventType] | None,
        container_id: uuid.UUID | None,
        container_type: str | None,
    ) -> None:
        self._kinds = None if kinds is None else frozenset(kinds)
        self._id, self._type = container_id, container_type

    def match(self, event: ContainerEvent) -> bool:
        types = event.containerType, event.previousContainerType
        return (
            (self._kinds is None or event.eventType in self._kinds)
            and (self._id is None or event.containerId == self._id)
            and (self._type is None or self._type in types)
        )


async def follow(
    session: Session, start: int | None, group_starts: Mapping[uuid.UUID, int], criteria: Criteria
) -> Pages[ContainerEvent]:
    """Yield pages of events without end, of the user's own log and of those of accepted groups.

    A log begins with its id in `start` or `group_starts` or, without one, after its present end.
    """
    outage = _Outage()
    places: dict[uuid.UUID | None, int | None] = {None: start}
    for group, first in group_starts.items():
        places[group] = first
    logs = Logs(session, places)
    # Changes are delayed only during the first attempt: otherwise each would wait until an outage ends.
    beginning: contextlib.AbstractContextManager[None] = session.beginning()
    try:
        while True:
            try:
                with beginning:
                    beginning = contextlib.nullcontext()
                    await logs.begin()
                source, found = await logs.next()
            except _WAITABLE as error:
                await outage.pause(error)
                continue
            outage.end()
            yield [event for event in source.shown(found) if criteria.match(event)]
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
                    end = await events.end_of_log(Source(self._session, group))
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
        """Wait for events of a log, a group's in a free slot. Return none if the broker ended the wait."""
        source = Source(self._session, group)
        if group is None:
            return await _wait(source, first, _WAIT)
        async with self._turns:
            is_crowded = len(self.places) > _GROUPS_AT_ONCE + 1
            return await _wait(source, first, _TURN if is_crowded else _WAIT)

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


async def _wait(source: Source, first: int, seconds: int) -> list[Event]:
    """Wait for events from an id on, and return them, checked; none if the broker ended the wait."""
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
        found = await events.check_page(source, first, mark, page)
    if not found:
        await asyncio.sleep(max(0.0, began + _FLOOR - monotonic()))
    return found


class _Outage:
    """A period without an answer of the broker: its growing pauses, and the lines that it logs."""

    def __init__(self) -> None:
        self._attempts = 0
        self._reported = 0.0

    async def pause(self, error: errors.BrokerError) -> None:
        """Wait before the next attempt; warn at the first failure and then once a minute."""
        self._attempts += 1
        now = monotonic()
        if self._attempts == 1 or now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            _log.warning("followEvents waits for the broker: %s", error)
        await asyncio.sleep(_pause(error, self._attempts))

    def end(self) -> None:
        """Log that the broker answers again, if it had failed."""
        if self._attempts:
            _log.info("followEvents goes on: the broker answers again")
        self._attempts = 0


def _pause(error: errors.BrokerError, attempt: int) -> float:
    """Return the seconds before the next attempt: growing to 30, and up to 45 if the broker names a wait."""
    growing = min(0.2 * 2.0 ** min(attempt, 10), _LONGEST_PAUSE)
    named = min(getattr(error, "retryAfter", None) or 0.0, _LONGEST_PAUSE)
    return max(growing, named) * (1 + secrets.randbelow(1001) / 1000) / 2 + named / 2
