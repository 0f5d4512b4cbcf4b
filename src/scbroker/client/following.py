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
from collections.abc import Sequence
from time import monotonic
from typing import Final

from scbroker import errors
from scbroker.client import events
from scbroker.client.calls.stream import Pages
from scbroker.client.http.transport import MAX_ANSWER
from scbroker.client.users.session import Session
from scbroker.types import ContainerEvent
from scbroker.vocabulary import ContainerEventType
from scbroker.wire import codec
from scbroker.wire.events import HEARTBEAT, Event, Events

_WAIT: Final = 300
"""Seconds that the broker is asked to wait for an event."""
_LATE: Final = 60.0
"""Seconds after the wait until an unfinished answer is given up, even if heartbeats arrive."""
_FLOOR: Final = 1.0
"""Seconds between requests while no event comes: a broker could answer each of them at once."""
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


async def follow(session: Session, start: int | None, criteria: Criteria) -> Pages[ContainerEvent]:
    """Yield pages of events without end: from the id `start` on, or for None after the log's present end."""
    outage = _Outage()
    first = start or (None if start is None else 1)
    # Only the first attempt delays changes: each would wait for the whole of an outage otherwise.
    beginning: contextlib.AbstractContextManager[None] = session.beginning()
    while True:
        began = monotonic()
        try:
            if first is None:
                with beginning:
                    beginning = contextlib.nullcontext()
                    first = await events.end_of_log(session) + 1
            found = await next_events(session, first)
        except _WAITABLE as error:
            await outage.pause(error)
            continue
        outage.end()
        if found:
            first = found[-1].id + 1
            public = [events.public_event(event) for event in found]
            yield [event for event in public if criteria.match(event)]
        else:
            await asyncio.sleep(max(0.0, began + _FLOOR - monotonic()))


async def next_events(session: Session, first: int) -> list[Event]:
    """Wait for events from an id on, and return them, checked; none if the broker ended the wait."""
    query = {"startId": str(first), "wait": str(_WAIT)}
    octets = await session.wait("/v1/events", _WAIT + _LATE, query)
    message = bytes(octets).lstrip(HEARTBEAT)
    if not message:
        return []
    try:
        page = codec.decode(Events, message, MAX_ANSWER)
    except errors.InvalidArgumentError as error:
        raise errors.BrokerFaultError(
            f"The broker's answer does not follow the protocol: {error}"
        ) from None
    return await events.check_page(session, first, page)


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
