"""A client's connection: uvicorn's, with the limits that it lacks.

What is refused is refused here, for a few microseconds: no task, no routing, no session. A head has a size
and a time; who does not read answers, or never ends a request, is let go.
"""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any, Final, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from scbroker.server.answers import problem
from scbroker.server.capacity.admission import ADMITTED, Gate, Kind, overloaded

_MAX_HEAD: Final = 32_768
_CHUNKED_OVERHEAD: Final = 8
"""Octets around each octet of a body that comes in the smallest of chunks."""
_HEAD_SECONDS: Final = 10.0
_STALLED_SECONDS: Final = 20.0
"""For what is buffered, 64 to 320 KiB: who reads less than some 16 KiB a second is let go."""
_PIPELINED: Final = 8
_SPARE: Final = 32
_VARIANTS: Final = 16
# In the place of a cycle: it is complete, so that the rest of the request is dropped as it comes.
_REFUSED: Final = cast(Any, SimpleNamespace(response_complete=True, message_event=asyncio.Event()))


class Flow(FlowControl):
    """Uvicorn's: an answer waits here for who does not read. Its request stands aside meanwhile."""

    def __init__(self, transport: asyncio.Transport, gate: Gate) -> None:
        super().__init__(transport)
        self._gate = gate
        self.kind: Kind | None = None
        """As which the connection's present request was let in; None if it was refused."""

    async def drain(self) -> None:
        if self.kind is None:
            await super().drain()
            return
        with self._gate.waiting_for_client(self.kind):
            await super().drain()


class Connection(HttpToolsProtocol):
    """One connection of the broker's."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._gate: Gate = self.app_state["gate"]
        self._spare = _MAX_HEAD
        self._since = self.loop.time()
        self._stalled: float | None = None
        self._surplus = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type] # uvicorn narrows it as well
        flow = Flow(self.transport, self._gate)
        self.flow: FlowControl = flow
        self.app: Any = Admitted(cast(ASGIApp, self.app), self._gate, flow)
        self._gate.connections.add(self)
        count, most = len(self._gate.connections), self._gate.max_connections
        self._surplus = count > most  # served for what has room of its own, and closed
        if count > most + _SPARE:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.connections.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._spare -= len(data)
        super().data_received(data)
        if self._spare < 0:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._spare = _MAX_HEAD
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._spare += (1 + _CHUNKED_OVERHEAD) * len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        if not self._idle:
            if len(self.pipeline) < _PIPELINED:
                super().on_headers_complete()  # let in or refused when it is its turn
            else:
                self.transport.abort()
            return
        kind = Kind.of(self.parser.get_method(), self.url)
        if (self._surplus and kind < Kind.Reserved) or not self._gate.enter(kind):
            self._refuse()
            return
        cast(Any, self.scope)[ADMITTED] = kind
        try:
            super().on_headers_complete()
        except BaseException:  # whatever uvicorn stumbles over, a URL without a path for one
            self._gate.leave(kind)
            raise

    @property
    def _idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _refuse(self) -> None:
        self.cycle = _REFUSED
        self._since = self.loop.time()
        closes = self._surplus or self.expect_100_continue or not self.parser.should_keep_alive()
        self.transport.write(next(_REFUSALS[closes]))
        if closes:
            self.transport.close()

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
        """Lets go of who does not read, does not begin a request, or does not end one that was refused."""
        unread = _STALLED_SECONDS if self.transport.get_write_buffer_size() else 0
        idles = self._idle and now - self._since > _HEAD_SECONDS + unread
        stalls = self._stalled is not None and now - self._stalled > _STALLED_SECONDS
        if idles or stalls:
            self.transport.abort()


def _refusal(*, closes: bool) -> bytes:
    response = problem(overloaded())
    headers = response.headers | ({"Connection": "close"} if closes else {})
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 503 Service Unavailable\r\n{lines}\r\n".encode() + bytes(response.body)


# Made once: to refuse has to cost next to nothing.
_REFUSALS: Final = {
    closes: itertools.cycle([_refusal(closes=closes) for _ in range(_VARIANTS)])
    for closes in (False, True)
}


class Admitted:
    """What a connection asks: the application, for a request that was let in, until its answer is over.

    It stands around all else, so that nothing that fails keeps its room. A request that waited behind
    another on its connection is let in, or refused, here.
    """

    def __init__(self, app: ASGIApp, gate: Gate, flow: Flow) -> None:
        self._app, self._gate, self._flow = app, gate, flow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if ADMITTED not in scope:
            kind = Kind.of(scope["method"].encode(), scope["path"].encode())
            if not self._gate.enter(kind):
                self._flow.kind = None
                await problem(overloaded())(scope, receive, send)
                return
            scope[ADMITTED] = kind
        self._flow.kind = scope[ADMITTED]
        try:
            await self._app(scope, receive, send)
        finally:
            self._gate.leave(scope[ADMITTED])
