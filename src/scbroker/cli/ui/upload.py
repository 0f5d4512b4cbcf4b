"""Store files that the page's script sends, one in each call."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from scbroker import errors
from scbroker.cli.files import File, time_at
from scbroker.cli.ui.container import path_of
from scbroker.cli.ui.part import Part
from scbroker.cli.ui.session import Session
from scbroker.cli.ui.shelf import Shelf
from scbroker.cli.web.site import Call
from scbroker.desk.paths import relative_path

_STALL_SECONDS: Final = 300.0


def upload(session: Session, shelf: Shelf) -> Part:
    """Return the call that stores a file."""

    async def store(request: Request) -> Response:
        try:
            file = _file(request)
            await session.check_broker()
            async with shelf.named(file.name):
                made = await session.run.session.createContainer(
                    Body(request, session), customHeaderObject=file.header()
                )
        except errors.BrokerError:
            # A browser reads the answer only after it has sent the whole file.
            await _discard(request)
            raise
        return JSONResponse({"path": path_of(made.id)})

    return Part(calls=[Call("/upload", store)])


class Body:
    """The body of a request, as an iterator that another thread reads piece by piece.

    The browser waits while the pieces before are encrypted and sent: no more than a few are in memory.
    """

    def __init__(self, request: Request, session: Session) -> None:
        self._stream, self._session = request.stream(), session
        self._loop = asyncio.get_running_loop()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return the next piece. Raises `InvalidArgumentError` if the browser sends no more."""
        waiting = asyncio.run_coroutine_threadsafe(anext(self._stream, None), self._loop)
        try:
            piece = waiting.result(_STALL_SECONDS)
        except (ClientDisconnect, TimeoutError):
            waiting.cancel()
            raise errors.InvalidArgumentError("The browser has sent no more of the file.") from None
        if piece is None:
            raise StopIteration
        self._session.use()
        return piece


def _file(request: Request) -> File:
    """Return the name and the time that the browser says of a file."""
    query = request.query_params
    try:
        modified = time_at(int(query.get("modified", "")) * 1000)
    except ValueError:
        modified = dt.datetime.now(dt.UTC)
    return File(None, str(relative_path(query.get("name", ""))), None, modified)


async def _discard(request: Request) -> None:
    try:
        async for _ in request.stream():
            pass
    except (ClientDisconnect, RuntimeError):  # RuntimeError: it was read to its end
        return
