"""Limit requests, connections and the memory of large bodies, for one process.

`Gate` counts the requests that a process works on. Requests above its limits are refused by `Connection` at
their head: without task, routing or session. The refusal waits for half a second, in which nothing is read
from the connection. An admitted request is counted as present until the end of its response, except while it
waits on client I/O. `LargeBodies` gives slots to requests and responses of megabytes: each user has a few, so
that a client that sends or reads slowly delays only requests of its own user. Everything here runs on the
event loop. How much of the work reaches the database at once is limited in `storage`.

`Connection` is uvicorn's HTTP protocol with limits that uvicorn does not have: the head of a request is
limited in size and time, and a connection is closed if the client does not read its response, or does not
finish a request that was refused. Its base class is not a public interface of uvicorn: pyproject.toml bounds
its version, and a test checks each attribute that is used here (docs/adr, 29).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from enum import IntEnum
from types import SimpleNamespace
from typing import Any, Final, cast
from weakref import WeakValueDictionary

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from scbroker import tracing
from scbroker.errors import OverloadedError
from scbroker.server import logs, metrics
from scbroker.server.answers import problem
from scbroker.server.logs import RequestLog
from scbroker.wire.codec import REQUEST_ID_HEADER

ADMITTED: Final = "scbroker.admitted"
"""The key of an admitted request's `Kind` in its ASGI scope."""
_RESERVED: Final = 8
_MAX_WAITING: Final = 4
"""At most 4 x max_requests requests may wait on client I/O."""
_RETRY_SECONDS: Final = 3
_REFUSAL_SECONDS: Final = 0.5
"""Delay of a refusal: a client that retries at once is then read twice a second, not thousands of times."""
_MAX_HEAD: Final = 32_768
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"Connection: close\r\nContent-Length: 0\r\n\r\n"
)
_CHUNKED_OVERHEAD: Final = 8
"""Bytes of framing that may come with each byte of a chunked body: its chunks can have one byte."""
_HEAD_SECONDS: Final = 10.0
_STALLED_SECONDS: Final = 20.0
"""Seconds for which the send buffer (64 to 320 KiB) may stay full: below 16 KiB/s, a client is cut off."""
_PIPELINED: Final = 8
_SPARE: Final = 32
# Stands in for uvicorn's `RequestResponseCycle` of a refused request: uvicorn drops what still arrives of a
# request whose response is complete.
_REFUSED: Final = cast(Any, SimpleNamespace(response_complete=True, message_event=asyncio.Event()))
_SLOTS_OF_A_USER: Final = 4
_WAITING_OF_A_USER: Final = 64
_WAIT_SECONDS: Final = 30.0
_MAX_UNREAD: Final = 128 * 1_048_576
"""The most unread bytes of large responses whose requests took no slot."""
_MAX_UNREAD_OF_A_USER: Final = 16 * 1_048_576
_FOLLOWERS_OF_A_USER: Final = 32
_READING_FOLLOWERS: Final = 8
_ID_HEADER: Final = REQUEST_ID_HEADER.lower().encode()
_KEPT_BUFFERS: Final = 4
Release = Callable[[], None]


def overloaded(
    text: str = "The broker has more requests than it can serve: try again later.",
) -> OverloadedError:
    """Return the error with a random wait, so that clients refused together do not retry together."""
    return OverloadedError(text, retryAfter=1 + secrets.randbelow(_RETRY_SECONDS))


class Kind(IntEnum):
    """Requests that are counted separately.

    `Reserved` are the operator's, `LogOut` anybody's: both are admitted when reads and writes are full, and
    many log-outs do not use up what is reserved for the operator.
    """

    Reading = 0
    Writing = 1
    Reserved = 2
    LogOut = 3

    @classmethod
    def of(cls, method: bytes, path: bytes) -> Kind:
        """Return the kind by the request line."""
        if path.startswith((b"/health/", b"/metrics")):
            return cls.Reserved
        if method == b"GET":
            return cls.Reading
        return cls.LogOut if path == b"/v1/sessions/current" else cls.Writing


class Gate:
    """The requests and connections of a process."""

    def __init__(
        self,
        max_requests: int,
        max_connections: int,
        max_followers: int = 512,
        log: RequestLog | None = None,
    ) -> None:
        self.max_connections = max_connections
        self.log: RequestLog = log or RequestLog()
        # Followers must not take all connections from other requests.
        self.followers: Followers = Followers(min(max_followers, max_connections * 3 // 4))
        self.connections: set[Connection] = set()
        self._max_requests, self._max_writing = max_requests, max(1, max_requests * 3 // 4)
        self._present = [0] * len(Kind)
        self.waiting: int = 0
        """Requests that wait on client I/O."""
        self.refusing: int = 0
        """Connections with a refusal that waits."""

    @property
    def present(self) -> int:
        return self._present[Kind.Reading] + self._present[Kind.Writing]

    def enter(self, kind: Kind) -> bool:
        """Admit a request, which calls `leave` at its end; return False if it is refused."""
        # Writes get at most three quarters of the slots: while they wait for the disk, reads go on.
        free = (
            self.present < self._max_requests and self.waiting < _MAX_WAITING * self._max_requests
        )
        if kind is Kind.Writing:
            free = free and self._present[kind] < self._max_writing
        elif kind is not Kind.Reading:
            free = self._present[kind] < _RESERVED
        if free:
            self._present[kind] += 1
        else:
            metrics.REFUSED.labels(kind.name.lower()).inc()
        return free

    def leave(self, kind: Kind) -> None:
        self._present[kind] -= 1

    @contextlib.contextmanager
    def waiting_for_client(self, kind: Kind) -> Iterator[None]:
        """Count a request as waiting, not as present, while it receives its body or sends its response."""
        self.waiting += 1
        try:
            with self.following(kind):
                yield
        finally:
            self.waiting -= 1

    @contextlib.contextmanager
    def following(self, kind: Kind) -> Iterator[None]:
        """Do not count a request as present while it waits for an event; `followers` counts it.

        The log counts the block's time as idle: it does not make the request slow.
        """
        self._present[kind] -= 1
        started = time.perf_counter()
        try:
            yield
        finally:
            self._present[kind] += 1
            if (entry := logs.current()) is not None:
                entry.idle += time.perf_counter() - started

    def count_load(self) -> None:
        """Set the metrics of what the process works on now."""
        metrics.PRESENT.set(self.present)
        metrics.WAITING.set(self.waiting)
        metrics.FOLLOWERS.set(self.followers.count)
        metrics.CONNECTIONS.set(len(self.connections))
        metrics.MAX_REQUESTS.set(self._max_requests)

    async def check(self) -> None:
        """Close connections whose clients are too slow; to be called about once a second."""
        self.count_load()
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            connection.check(now)


class Connection(HttpToolsProtocol):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._gate: Gate = self.app_state["gate"]
        self.app: Any = served(cast(ASGIApp, self.app), self._gate)
        self._spare = _MAX_HEAD
        """Bytes that may still arrive until the next head, or piece of a body, must be complete."""
        self._since = self.loop.time()
        self._stalled: float | None = None
        self._surplus = False
        """True if this connection exceeds max_connections: it then serves no reads or writes, and closes."""
        self._refusals = b""
        self._sending_refusals: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type] # uvicorn narrows it as well
        self._gate.connections.add(self)
        count, most = len(self._gate.connections), self._gate.max_connections
        self._surplus = count > most
        if count > most + _SPARE:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.connections.discard(self)
        self._send_refusals()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._spare < 0:  # the rest of a head that was too long
            return
        self._spare -= len(data)
        super().data_received(data)
        if self._spare >= 0:
            return
        if self._idle and self.transport.can_write_eof():
            # Answer before closing: a proxy would take a closed connection for a failed broker, and avoid it.
            self.transport.write(_TOO_LARGE)
            self.transport.write_eof()
        else:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._spare = _MAX_HEAD
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._spare += (1 + _CHUNKED_OVERHEAD) * len(body)
        if not self._idle:
            # uvicorn would copy each piece into a bytearray, and again out of it. A bytes object it passes
            # on as it is. Further pieces go to a bytearray: adding to bytes would copy all of it each time.
            cycle: Any = self.cycle
            if not cycle.body:
                cycle.body, body = body, b""
            elif isinstance(cycle.body, bytes):
                cycle.body = bytearray(cycle.body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        if not self._idle:  # pipelined: admitted or refused when the request before it is answered
            if len(self.pipeline) < _PIPELINED:
                super().on_headers_complete()
            else:
                self.transport.abort()
            return
        kind = Kind.of(self.parser.get_method(), self.url)
        # An answer to this request would overtake the delayed refusal of an earlier one.
        too_early = self._sending_refusals is not None
        if too_early or (self._surplus and kind < Kind.Reserved) or not self._gate.enter(kind):
            self._refuse(kind)
            return
        cast(Any, self.scope)[ADMITTED] = kind
        try:
            super().on_headers_complete()
        except BaseException:  # uvicorn rejects the request, for example a URL without a path
            self._gate.leave(kind)
            raise

    @property
    def _idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _refuse(self, kind: Kind) -> None:
        self.cycle = _REFUSED
        self._since = self.loop.time()
        closes = self._surplus or self.expect_100_continue or not self.parser.should_keep_alive()
        id = self._gate.log.id_for(_host(self.scope), self.headers)
        response = problem(overloaded())
        headers = {**response.headers, REQUEST_ID_HEADER: id}
        headers |= {"Connection": "close"} if closes else {}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._refusals += f"HTTP/1.1 503 Service Unavailable\r\n{lines}\r\n".encode()
        self._refusals += bytes(response.body)
        self._gate.log.refused(id, self.parser.get_method().decode(), kind.name.lower())
        # A quarter of the connections is never kept waiting: proxies open new ones if all others wait.
        if closes or 4 * self._gate.refusing >= 3 * self._gate.max_connections:
            self._send_refusals()
        elif self._sending_refusals is None:
            self._gate.refusing += 1
            self.flow.pause_reading()
            self._sending_refusals = self.loop.call_later(_REFUSAL_SECONDS, self._send_refusals)
        if closes:
            self.transport.close()

    def _send_refusals(self) -> None:
        if self._sending_refusals is not None:
            self._gate.refusing -= 1
            self._sending_refusals.cancel()
            self._sending_refusals = None
            self.flow.resume_reading()
        refusals, self._refusals = self._refusals, b""
        if refusals and not self.transport.is_closing():
            self.transport.write(refusals)

    def shutdown(self) -> None:
        self._gate.followers.end()
        self._send_refusals()
        super().shutdown()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()
        if self._surplus:
            self.transport.close()

    def pause_writing(self) -> None:
        self._stalled = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled = None
        super().resume_writing()

    def check(self, now: float) -> None:
        """Close the connection if the client does not read, or does not send or finish a request."""
        unread = _STALLED_SECONDS if self.transport.get_write_buffer_size() else 0
        idles = self._idle and now - self._since > _HEAD_SECONDS + unread
        stalls = self._stalled is not None and now - self._stalled > _STALLED_SECONDS
        if idles or stalls:
            self.transport.abort()


def _host(scope: Any) -> str | None:
    """Return the address of the other end of the connection, which may be a proxy."""
    client = scope.get("client")
    return None if client is None else str(client[0])


def served(app: ASGIApp, gate: Gate) -> ASGIApp:
    """Return the application with all that surrounds a request: slot, id, line of the log, metrics, trace.

    It is outermost, so that the slot is released also after an error. A pipelined request is admitted or
    refused here.
    """

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        kind: Kind | None = scope.get(ADMITTED)

        async def receive_noting() -> Message:
            message = await receive()
            entry.received += len(message.get("body", b""))
            return message

        async def send_noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                entry.status, entry.answered = message["status"], time.perf_counter()
                headers = [*message.get("headers", ()), (_ID_HEADER, entry.id.encode())]
                message = {**message, "headers": headers}
            else:
                entry.sent += len(message.get("body", b""))
            if kind is None:
                await send(message)
                return
            with gate.waiting_for_client(kind):  # `send` blocks while the client does not read
                await send(message)

        method, path = scope["method"], scope["path"]
        id = gate.log.id_for(_host(scope), scope["headers"])
        with gate.log.entry(id, method) as entry:
            if kind is None:
                asked = Kind.of(method.encode(), path.encode())
                if not gate.enter(asked):
                    await problem(overloaded())(scope, receive_noting, send_noting)
                    return
                kind = scope[ADMITTED] = asked
            try:
                with tracing.served(method, path, scope["headers"]) as span:
                    try:
                        await app(scope, receive_noting, send_noting)
                    finally:
                        span.end(entry.status or 500, entry.id, entry.path)
            finally:
                gate.leave(kind)

    return call


class Followers:
    """The requests of a process that wait for an event of their user.

    A waiting request uses no slot, thread or database connection. Only a few woken requests read at a time,
    so that a change of a container with a thousand members, or a notice to all, does not delay others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_user: dict[bytes, list[asyncio.Event]] = {}
        self.count: int = 0
        self.is_ending: bool = False
        """Whether the process stops, so that no request may wait any longer."""
        self.reading: asyncio.Semaphore = asyncio.Semaphore(_READING_FOLLOWERS)

    def add(self, user_id: bytes, group_id: bytes | None = None) -> tuple[asyncio.Event, Release]:
        """Count a request; return the event that wakes it, and the function that ends its wait.

        A request for the log of a group is woken with the group as well as with its user.
        """
        own = self._of_user.setdefault(user_id, [])
        if self.count >= self._most or len(own) >= _FOLLOWERS_OF_A_USER:
            if not own:
                del self._of_user[user_id]
            raise overloaded("Too many requests wait for events: try again later.")
        woken = asyncio.Event()
        own.append(woken)
        if group_id is not None:
            self._of_user.setdefault(group_id, []).append(woken)
        self.count += 1
        if self.is_ending:  # nothing else would wake the request before its heartbeat
            woken.set()
        return woken, functools.partial(self._remove, user_id, group_id, woken)

    def _remove(self, user_id: bytes, group_id: bytes | None, woken: asyncio.Event) -> None:
        self.count -= 1
        for each in (user_id, group_id):
            if each is None:
                continue
            own = self._of_user[each]
            own.remove(woken)
            if not own:
                del self._of_user[each]

    def wake(self, users: Collection[bytes] | None) -> None:
        """Wake the requests of these users; for None those of all users."""
        for user_id in list(self._of_user) if users is None else users:
            for woken in self._of_user.get(user_id, ()):
                woken.set()

    def end(self) -> None:
        """Wake all requests, because the process stops."""
        self.is_ending = True
        self.wake(None)


class _Usage:
    """The slots and bytes that one user has; it exists while a request references it."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(_SLOTS_OF_A_USER)
        self.waiting = 0
        self.unread = 0


class LargeBodies:
    """The large-body slots of a process."""

    def __init__(self, slots: int) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._usage: WeakValueDictionary[bytes, _Usage] = WeakValueDictionary()
        self._unread = 0

    async def acquire(self, user_id: bytes) -> Release:
        """Wait for a slot of the user and of the process; return the function that releases both."""
        usage = self._usage.setdefault(user_id, _Usage())
        if usage.waiting >= _WAITING_OF_A_USER:
            raise overloaded("Too many of your large requests wait already: send fewer at once.")
        usage.waiting += 1
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await usage.slots.acquire()
                try:
                    await self._slots.acquire()
                except BaseException:
                    usage.slots.release()
                    raise
        except TimeoutError:
            raise overloaded("No slot for a large request became free: try again.") from None
        finally:
            usage.waiting -= 1
        return functools.partial(self._release, usage)

    def count_unread(self, user_id: bytes, size: int) -> Release:
        """Count a response of `size` bytes whose request took no slot, until the client has read it."""
        usage = self._usage.setdefault(user_id, _Usage())
        if usage.unread and usage.unread + size > _MAX_UNREAD_OF_A_USER:
            raise overloaded("You have too many unread responses: read them, or ask for less.")
        if self._unread + size > _MAX_UNREAD:
            raise overloaded()
        self._change_unread(usage, size)
        return functools.partial(self._change_unread, usage, -size)

    def _release(self, usage: _Usage) -> None:
        usage.slots.release()
        self._slots.release()

    def _change_unread(self, usage: _Usage, size: int) -> None:
        self._unread += size
        usage.unread += size


class Buffers:
    """Buffers of one size, reused: allocating one costs more than receiving and hashing a chunk.

    They are memoryviews: assigning to a slice of a bytearray would copy the piece twice.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._free: list[memoryview] = []

    @contextlib.contextmanager
    def receiving(self) -> Iterator[memoryview]:
        """Provide memory for one body, for the duration of a block."""
        buffer = self._free.pop() if self._free else memoryview(bytearray(self._size))
        try:
            yield buffer
        finally:
            if len(self._free) < _KEPT_BUFFERS:
                self._free.append(buffer)
