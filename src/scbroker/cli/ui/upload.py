"""Store files that the page's script sends."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Iterator
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from scbroker import errors
from scbroker.cli.files import File, time_at
from scbroker.cli.ui.context import path_of, provider_of, session_of
from scbroker.cli.ui.session import UPLOAD
from scbroker.desk.names import check_free
from scbroker.desk.paths import relative_path

_STALL_SECONDS: Final = 300.0
"""Seconds to wait for the next piece of a file from the browser; then the upload fails."""


async def _upload(request: Request) -> Response:
    """Store a file. The body is read to its end also after an error: a browser reads no answer before."""
    try:
        file = _file(request)
        await session_of(request).check_broker()
        await session_of(request).do(
            lambda run: check_free(run.session, file.name, run.people.own_id)
        )
        made = await provider_of(request).createContainer(
            _Body(request), customHeaderObject=file.header()
        )
    except errors.BrokerError:
        with contextlib.suppress(
            ClientDisconnect, RuntimeError
        ):  # RuntimeError: the body was already read to its end
            async for _ in request.stream():
                pass
        raise
    return JSONResponse({"path": path_of(made.id)})


def _file(request: Request) -> File:
    """Return a file's name and modification time, as the browser sent them."""
    query = request.query_params
    try:
        modified = time_at(int(query.get("modified", "")) * 1000)
    except ValueError:
        modified = dt.datetime.now(dt.UTC)
    return File(None, str(relative_path(query.get("name", ""))), None, modified)


class _Body:
    """The body of a request, as an iterator that another thread reads piece by piece.

    The browser waits while the pieces before are encrypted and sent: no more than a few are in memory.
    """

    def __init__(self, request: Request) -> None:
        self._stream, self._session = request.stream(), session_of(request)
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


routes: Final = [Route(UPLOAD, _upload, methods=["POST"])]
