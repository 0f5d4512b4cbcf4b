"""Run a broker in the process of the tests: providers call its ASGI application, without a socket.

Application, database and object store are those of `scbroker serve`; uvicorn and the network are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scbroker.client.calls.tasks import io_thread
from scbroker.client.http.transport import Body, Response
from scbroker.wire.users import canonical_origin

if TYPE_CHECKING:
    from yarl import URL

Message = Mapping[str, Any]


@contextlib.contextmanager
def serving(variables: Mapping[str, str], folder: Path, url: str) -> Iterator[ASGITransport]:
    """Open the broker of a data folder, and provide the transport to it.

    `variables` are its settings, as in the environment of `scbroker serve`. Clients know it by `url`.
    """
    started: Future[ASGITransport] = Future()
    stop = asyncio.Event()

    async def serve() -> None:  # one task starts and stops the broker, as under uvicorn
        from scbroker.server.commands import in_process

        try:
            async with in_process(variables, str(folder), canonical_origin(url)) as (app, state):
                transport = ASGITransport(app, state)
                started.set_result(transport)
                await stop.wait()
                await transport.end()
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def end() -> None:
        stop.set()

    ended = io_thread.submit("serve", serve(), endless=True)
    transport = started.result()
    try:
        yield transport
    finally:
        io_thread.submit("stop", end()).result()
        ended.result()


class ASGITransport:
    """Requests to an ASGI application, on the event loop that makes them.

    As a server does, it lets a request end after its client is gone, and tells it so.
    """

    def __init__(self, app: Any, state: Mapping[str, Any]) -> None:
        self._app, self._state = app, state
        self._running: set[asyncio.Task[None]] = set()
        self._has_ended = False
        # As on a connection, requests see no context variable of their client.
        self._context = contextvars.copy_context()

    async def close(self) -> None:
        """Do nothing: other providers use it too, and it has no connections."""

    async def end(self) -> None:
        """Cancel the requests that the application still works on, and refuse further ones."""
        self._has_ended = True
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, url: URL, headers: Mapping[str, str], body: Body
    ) -> AsyncIterator[Response]:
        """Call the application, and provide its response."""
        if self._has_ended:
            raise _refused(url)
        lines = {"host": url.host_port_subcomponent or "", **headers}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": url.scheme,
            "path": url.path,
            "raw_path": url.raw_path.encode("ascii"),
            "query_string": url.raw_query_string.encode("ascii"),
            "root_path": "",
            "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in lines.items()],
            "client": ("127.0.0.1", 0),
            "server": (url.host, url.port),
            "state": dict(self._state),
        }
        exchange = _Exchange(body)
        answer = exchange.answer(self._app, scope)
        task = asyncio.create_task(answer, context=self._context.copy())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            yield await exchange.response()
        finally:
            exchange.end()


def _refused(url: URL) -> Exception:
    """Return the error of a connection to a port at which nothing listens."""
    from aiohttp import ClientConnectorError
    from aiohttp.client_reqrep import ConnectionKey

    key = ConnectionKey(str(url.host), url.port, False, True, None, None, None)
    return ClientConnectorError(key, ConnectionRefusedError(errno.ECONNREFUSED, "refused"))


class _Exchange:
    """One request as the application sees it."""

    def __init__(self, body: Body) -> None:
        self._body: Body = b"" if body is None else body
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue()
        self._is_gone = asyncio.Event()

    async def answer(self, app: Any, scope: Any) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception:  # noqa: S110 # the application has logged it, and answered if it could
            pass
        finally:
            self._messages.put_nowait(None)

    def end(self) -> None:
        """Tell the application that the client is gone."""
        self._is_gone.set()

    async def response(self) -> Response:
        from aiohttp import ServerDisconnectedError
        from multidict import CIMultiDict

        head = await self._messages.get()
        if head is None:
            raise ServerDisconnectedError
        headers = CIMultiDict(
            (k.decode("latin-1"), v.decode("latin-1")) for k, v in head["headers"]
        )
        headers["Date"] = formatdate(usegmt=True)
        return Response(head["status"], headers, self._pieces(), self.end)

    async def _pieces(self) -> AsyncIterator[bytes]:
        from aiohttp import ClientPayloadError

        has_more = True
        while has_more:
            message = await self._messages.get()
            if message is None:
                raise ClientPayloadError
            if piece := message.get("body", b""):
                yield bytes(piece)
            has_more = message.get("more_body", False)

    async def _receive(self) -> Message:
        body = self._body
        if body is None or self._is_gone.is_set():
            await self._is_gone.wait()
            return {"type": "http.disconnect"}
        if not isinstance(body, bytes):
            async for piece in body:
                return {"type": "http.request", "body": bytes(piece), "more_body": True}
            body = b""
        self._body = None
        return {"type": "http.request", "body": body, "more_body": False}

    async def _send(self, message: Message) -> None:
        if not self._is_gone.is_set():
            self._messages.put_nowait(message)
