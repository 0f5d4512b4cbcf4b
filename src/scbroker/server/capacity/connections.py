"""Client connections: uvicorn's HTTP protocol, with limits that uvicorn does not have.

Above the limits of `admission` a request is refused here, in microseconds: without task, routing or session.
The head of a request is limited in size and time. A connection is closed if the client does not read its
response, or does not finish a request that was refused.

The base class is no public interface of uvicorn: pyproject.toml bounds its version, and a test checks each
attribute that is used here.
"""

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any, Final, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from scbroker.server.answers import problem
from scbroker.server.capacity.admission import ADMITTED, Gate, Kind, overloaded

_MAX_HEAD: Final = 32_768
_CHUNKED_OVERHEAD: Final = 8
"""Bytes of framing around each byte of a body in chunks of one byte."""
_HEAD_SECONDS: Final = 10.0
_STALLED_SECONDS: Final = 20.0
"""For 64 to 320 KiB of buffered data: a client that reads slower than 16 KiB/s is disconnected."""
_PIPELINED: Final = 8
_SPARE: Final = 32
_VARIANTS: Final = 16
# Takes the place of a request's cycle. Uvicorn drops the rest of a request whose response is complete.
_REFUSED: Final = cast(Any, SimpleNamespace(response_complete=True, message_event=asyncio.Event()))


class Connection(HttpToolsProtocol):
    """One client connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._gate: Gate = self.app_state["gate"]
        self.app: Any = Admitted(cast(ASGIApp, self.app), self._gate)
        self._spare = _MAX_HEAD
        """Bytes that may still arrive before the next head or piece of a body is complete."""
        self._since = self.loop.time()
        self._stalled: float | None = None
        self._surplus = False
        """Above max_connections: only reserved requests are served, and the connection closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type] # uvicorn narrows it as well
        self._gate.connections.add(self)
        count, most = len(self._gate.connections), self._gate.max_connections
        self._surplus = count > most
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
        if not self._idle:  # pipelined: admitted or refused when the request before it is answered
            if len(self.pipeline) < _PIPELINED:
                super().on_headers_complete()
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
        except BaseException:  # uvicorn rejects the request, for example a URL without a path
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
        """Close the connection if the client does not read, or does not send or finish a request."""
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


# Encoded once, with different waits: refusing must cost next to nothing.
_REFUSALS: Final = {
    closes: itertools.cycle([_refusal(closes=closes) for _ in range(_VARIANTS)])
    for closes in (False, True)
}


class Admitted:
    """The application, for admitted requests: releases the request's slot when its response ends.

    It is outermost, so that the slot is released also after an error. A pipelined request is admitted or
    refused here.
    """

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gate = self._gate
        if ADMITTED not in scope:
            kind = Kind.of(scope["method"].encode(), scope["path"].encode())
            if not gate.enter(kind):
                await problem(overloaded())(scope, receive, send)
                return
            scope[ADMITTED] = kind
        kind = scope[ADMITTED]

        async def send_waiting(message: Message) -> None:
            with gate.waiting_for_client(kind):  # `send` blocks while the client does not read
                await send(message)

        try:
            await self._app(scope, receive, send_waiting)
        finally:
            gate.leave(kind)
