"""Answer requests for events, at once or when an event exists. Spec: docs/spec/protocol.md, section 5.

The broker sends the head of the answer before it waits, and then a heartbeat every 15 seconds, so that no
proxy closes the connection. The page follows. If the wait is over, or the request would now be refused, the
body ends without a page, and the client asks again. `Followers` wakes a request when a transaction has added
an event of its user or ended a session of the user. A request for the log of a group is also woken when the
group has an event or loses a member. No transaction runs when access expires, so each request also reads when
the next access of its user expires. On SQLite an operator's command wakes nobody, because it runs in another
process: there API key and session are checked before each heartbeat as well. They are cached until the
database changes, so that this takes no statement.
"""

import asyncio
import contextlib
import dataclasses
from typing import Final

import sqlalchemy as sa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from scbroker import errors
from scbroker.server.answers import HEADERS
from scbroker.server.broker import SECOND, Broker, Call, now
from scbroker.server.capacity import ADMITTED, Kind, Release
from scbroker.server.events import pages
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection
from scbroker.wire import codec
from scbroker.wire.events import HEARTBEAT, EventQuery, Events

_HEARTBEAT_SECONDS: Final = 15.0
_SOONEST: Final = 0.01
"""The shortest wait for the read at an expiry: a clock that is set back must not cause reads in a loop."""
_LARGE: Final = 262_144
_FOR_EVER: Final = float("inf")
# X-Accel-Buffering: nginx would buffer the heartbeats otherwise.
_HEADERS: Final = {**HEADERS, "Content-Type": codec.MESSAGE, "X-Accel-Buffering": "no"}

NEXT_EXPIRY: Final = (
    sa.select(t.members.c.expires_at)
    .where(
        sql.of(t.members, "user"), t.members.c.expires_at.is_not(None), ~t.members.c.expiry_recorded
    )
    .order_by(t.members.c.expires_at)
    .limit(1)
)


async def list_events(broker: Broker, call: Call, query: EventQuery) -> Events | Response:
    """Return a page of a log; with `wait`, an answer that waits if it would have no event."""
    if not query.wait:
        return await pages.list_events(broker, call, query)
    if not query.follows:
        raise errors.InvalidArgumentError("wait needs startId, and no other criterion.")
    followers = broker.gate.followers
    try:
        # Register before the page is read: an event that is committed after the read wakes the request.
        woken, release = followers.add(call.session.id, call.via)
    except errors.OverloadedError:
        page = await pages.list_events(broker, call, query)
        if _is_answer(page, query):
            return page
        raise
    try:
        page = await pages.list_events(broker, call, query)
        if not _is_answer(page, query):
            due = await _next_expiry(broker, call)
            return _Waiting(broker, call, query, woken, release, due)
    except BaseException:
        release()
        raise
    release()
    return page


def _is_answer(page: Events, query: EventQuery) -> bool:
    """Return whether to send a page; False if the log ends just before startId, so that the page is empty."""
    return page.lastId + 1 != query.startId or page.firstId > page.lastId + 1


async def _next_expiry(broker: Broker, call: Call) -> float:
    """Return the time on the event loop's clock when the next access of the user, or group, expires."""

    def find(connection: Connection) -> int | None:
        values = {"user": pages.log_of(call)}
        found: int | None = connection.execute(NEXT_EXPIRY, values).scalar_one_or_none()
        return found

    expires_at = await broker.database.query(find)
    if expires_at is None:
        return _FOR_EVER
    return asyncio.get_running_loop().time() + max(_SOONEST, (expires_at - now()) / SECOND)


class _Waiting(Response):
    """The answer of a request that waits for an event."""

    def __init__(
        self,
        broker: Broker,
        call: Call,
        query: EventQuery,
        woken: asyncio.Event,
        release: Release,
        due: float,
    ) -> None:
        super().__init__(None, 200, _HEADERS)
        del self.headers["content-length"]
        self._broker, self._call, self._query = broker, call, query
        self._woken = woken
        self._releases = [release]
        self._ends = asyncio.get_running_loop().time() + query.wait
        self._due = due
        """The time on the event loop's clock to read again even if nothing woke the request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        leaving = asyncio.create_task(self._wake_when_gone(receive))
        try:
            start = {"type": "http.response.start", "status": self.status_code}
            await send({**start, "headers": self.raw_headers})
            while (body := await self._next(scope[ADMITTED], leaving)) is None:
                await send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})
            await send({"type": "http.response.body", "body": body, "more_body": False})
        finally:
            leaving.cancel()
            for release in self._releases:
                release()

    async def _wake_when_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._woken.set()

    async def _next(self, kind: Kind, leaving: asyncio.Task[None]) -> bytes | None:
        """Return the encoded page; `b""` to end the answer without one; None to send a heartbeat."""
        gate, loop = self._broker.gate, asyncio.get_running_loop()
        heartbeat = loop.time() + _HEARTBEAT_SECONDS
        while True:
            with gate.following(kind), contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(heartbeat, self._ends, self._due)):
                    await self._woken.wait()
            if leaving.done() or gate.followers.is_ending or loop.time() >= self._ends:
                return b""
            is_due = self._woken.is_set() or loop.time() >= self._due
            if is_due:
                self._woken.clear()
            elif self._broker.database.version() is None:
                return None
            with gate.following(kind):
                await gate.followers.reading.acquire()
            try:
                token = self._call.session.token_hash
                if await self._broker.admit(self._call.api_key_hash, token) is None:
                    return b""
                if not is_due:
                    return None
                body = await self._read()
            except errors.BrokerUnavailableError:
                return b"" if is_due else None  # not woken: send a heartbeat and wait on
            except errors.BrokerError:
                return b""
            finally:
                gate.followers.reading.release()
            if body is not None:
                return body

    async def _read(self) -> bytes | None:
        """Return the message of a page that has an event; None to wait on."""
        call = dataclasses.replace(self._call, now=now())
        page = await pages.list_events(self._broker, call, self._query)
        if not _is_answer(page, self._query):
            self._due = await _next_expiry(self._broker, call)
            return None
        body = codec.encode(page)
        if len(body) > _LARGE:
            bodies = self._broker.large_bodies
            self._releases.append(bodies.count_unread(call.session.id, len(body)))
        return body
