"""Which requests and answers are large, and how a large answer goes out."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from scbroker.server.capacity.large_bodies import Release
from scbroker.server.operation import Operation
from scbroker.wire.codec import MAX_SMALL_MESSAGE

PIECE: Final = 262_144
"""Bytes of an answer that are handed over at once; longer ones go piece by piece."""


def takes_a_place(operation: Operation, request: Request) -> bool:
    """Whether the request, or its answer, may be large."""
    if not operation.session:
        return False
    if operation.large or operation.message is bytes or operation.answer is bytes:
        return True
    if operation.limit <= MAX_SMALL_MESSAGE:
        return False
    length = request.headers.get("Content-Length", "")
    return not (length.isdecimal() and len(length) < 9 and int(length) <= MAX_SMALL_MESSAGE)


class LargeAnswer(Response):
    """An answer that goes out piece by piece, as fast as it is read, and keeps its place until then.

    Who stops reading is let go by the connection.
    """

    def __init__(self, answer: Response, release: Release) -> None:
        super().__init__(answer.body, answer.status_code, dict(answer.headers))
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        start = {"type": "http.response.start", "status": self.status_code}
        try:
            await send({**start, "headers": self.raw_headers})
            for at in range(0, len(self.body), PIECE):
                piece = self.body[at : at + PIECE]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._release()
