"""Send prepared requests over many connections, faster than a broker can answer them.

`Crowd` keeps the connections. `offer` sends at a fixed rate, however slow the answers are (open loop);
`work` sends the next request of a connection after the answer to its last one (closed loop).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self, cast

_TICK: Final = 0.002


@dataclass(slots=True)
class Request:
    """The bytes of a request. `once` marks a create, which succeeds only once."""

    octets: bytes
    once: bool


@dataclass
class Tally:
    """The answers and refusals of a run, by the seconds that each took."""

    seconds: float = 0.0
    answered: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    """The seconds of gets (False) and of creates (True)."""
    refused: list[float] = field(default_factory=list)
    unsent: int = 0
    """The number of requests that found no free connection when they were due."""
    failed: list[str] = field(default_factory=list)


class Requests:
    """The requests to send: one create, then `gets_each` gets, and again."""

    def __init__(self, gets: list[Request], creates: list[Request], gets_each: int) -> None:
        self._gets, self._creates = deque(gets), deque(creates)
        self._gets_each, self._turn = gets_each, 0

    def next(self) -> Request:
        self._turn = (self._turn + 1) % (self._gets_each + 1)
        if self._turn == 0:
            if not self._creates:
                raise RuntimeError("No prepared create is left: prepare more.")
            return self._creates.popleft()
        return self.get()

    def get(self) -> Request:
        self._gets.rotate(1)
        return self._gets[0]

    def back(self, request: Request) -> None:
        """Take back a refused create, to send it again."""
        if request.once:
            self._creates.append(request)


class _Connection(asyncio.Protocol):
    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._request: Request | None = None
        self._since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, request: Request, since: float) -> None:
        assert self._transport is not None
        self._request, self._since = request, since
        self._transport.write(request.octets)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        fields = head.lower()
        _, _, rest = fields.partition(b"content-length: ")
        if len(body) < int(rest.partition(b"\r\n")[0] or 0):
            return
        self._received = b""
        request, self._request = self._request, None
        assert request is not None
        assert self._transport is not None
        self._crowd.came(request, head[9:12], self._since)
        if b"connection: close" in fields:
            self._transport.close()
        else:
            self._crowd.idle(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._request is not None:
            self._crowd.lost(self._request, repr(exc))
        self._crowd.replace(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Crowd:
    """A fixed number of connections to one address."""

    def __init__(self, host: str, port: int, connections: int, requests: Requests) -> None:
        self._address, self._count, self._requests = (host, port), connections, requests
        self._loop = asyncio.get_running_loop()
        self._idle: deque[_Connection] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._open: list[_Connection] = []
        self._closing = False
        self._then: Callable[[_Connection], None] | None = None
        self.tally = Tally()

    async def __aenter__(self) -> Self:
        for _ in range(self._count):
            await self._open_one()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        for connection in self._open:
            connection.abort()
        await asyncio.sleep(0)

    async def work(self, at_once: int, seconds: float) -> Tally:
        """Send on `at_once` connections, one request after the other on each, for some seconds."""
        began, self.tally = time.perf_counter(), Tally()

        def next_one(connection: _Connection) -> None:
            if time.perf_counter() - began < seconds:
                connection.send(self._requests.next(), time.perf_counter())
            else:
                self._idle.append(connection)

        self._then = next_one
        for _ in range(at_once):
            next_one(self._idle.popleft())
        await asyncio.sleep(seconds)
        self._then = None
        return self._finished(began)

    async def offer(self, each_second: float, seconds: float) -> Tally:
        """Send at this rate, whether or not earlier requests were answered."""
        await self._fresh()
        began, self.tally = time.perf_counter(), Tally()
        due = 0
        while (now := time.perf_counter()) < began + seconds:
            for number in range(due, due := int((now - began) * each_second)):
                if self._idle:
                    # Timed from when it was due, so that a late generator counts as latency.
                    connection = self._idle.popleft()
                    connection.send(self._requests.next(), began + number / each_second)
                else:
                    self.tally.unsent += 1
            await asyncio.sleep(_TICK)
        return self._finished(began)

    async def one(self) -> tuple[bool, float]:
        """Send one get over a new connection; return whether it succeeded, and its seconds."""
        began = time.perf_counter()
        reader, writer = await asyncio.open_connection(*self._address)
        writer.write(self._requests.get().octets)
        status = await reader.readline()
        writer.close()
        return b" 20" in status, time.perf_counter() - began

    def came(self, request: Request, status: bytes, since: float) -> None:
        took = time.perf_counter() - since
        if status in (b"200", b"201"):
            self.tally.answered[request.once].append(took)
            return
        self._requests.back(request)
        if status == b"503":
            self.tally.refused.append(took)
        else:
            self.tally.failed.append(status.decode())

    def lost(self, request: Request, why: str) -> None:
        self.tally.failed.append(why)
        self._requests.back(request)

    def idle(self, connection: _Connection) -> None:
        if self._then is not None:
            self._then(connection)
        else:
            self._idle.append(connection)

    def replace(self, connection: _Connection) -> None:
        """Open a connection in place of one that the broker closed, as it does after five idle seconds."""
        if not self._closing:
            with contextlib.suppress(ValueError):
                self._idle.remove(connection)
            task = asyncio.ensure_future(self._open_one())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _fresh(self) -> None:
        """Replace all connections: the broker is about to close the idle ones."""
        for connection in self._open:
            connection.abort()
        self._open.clear()
        await asyncio.sleep(0.1)  # until the old ones are closed and new ones are being opened
        await asyncio.gather(*self._opening)

    async def _open_one(self) -> None:
        _, connection = await self._loop.create_connection(
            lambda: _Connection(self), *self._address
        )
        self._open.append(connection)
        self.idle(connection)

    def _finished(self, began: float) -> Tally:
        tally, self.tally = self.tally, Tally()
        tally.seconds = time.perf_counter() - began
        return tally
