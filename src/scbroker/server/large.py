"""What takes megabytes of memory while it comes or goes: a user has a few places for it.

Whoever sends or reads slowly keeps their own places, and nobody else's.
"""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from scbroker.server.operation import Operation
from scbroker.wire.codec import MAX_SMALL_MESSAGE

_PLACES_OF_A_USER: Final = 4
_PIECE: Final = 262_144
_ANSWER_SECONDS: Final = 300.0


class Places:
    """The places of each user, for as long as one of them is taken or waited for."""

    def __init__(self) -> None:
        self._of: WeakValueDictionary[bytes, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, user_id: bytes) -> asyncio.Semaphore:
        return self._of.setdefault(user_id, asyncio.Semaphore(_PLACES_OF_A_USER))


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
    """An answer that goes out piece by piece, as fast as it is read, and keeps its place until then."""

    def __init__(self, answer: Response, place: asyncio.Semaphore) -> None:
        super().__init__(answer.body, answer.status_code, dict(answer.headers))
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        start = {"type": "http.response.start", "status": self.status_code}
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await send({**start, "headers": self.raw_headers})
                for at in range(0, len(self.body), _PIECE):
                    piece = self.body[at : at + _PIECE]
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._place.release()
