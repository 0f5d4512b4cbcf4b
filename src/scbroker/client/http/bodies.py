"""Bodies of requests and answers, piece by piece: never more of one in memory than was bargained for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from scbroker.errors import TooLargeError

if TYPE_CHECKING:
    import aiohttp

PIECE: Final = 262_144


async def pieces(body: memoryview) -> AsyncIterator[memoryview]:
    """A large body, so that no write of it holds up the loop."""
    for start in range(0, len(body), PIECE):
        yield body[start : start + PIECE]


async def read_into(response: aiohttp.ClientResponse, target: memoryview) -> memoryview:
    """The body in a buffer that is there already: fresh memory costs more than receiving."""
    size = 0
    async for piece in response.content.iter_any():
        if size + len(piece) > len(target):
            raise _too_large()
        target[size : size + len(piece)] = piece
        size += len(piece)
    return target[:size]


async def read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body, never more than `limit` of it in memory."""
    found, size = [], 0
    async for piece in response.content.iter_chunked(PIECE):
        size += len(piece)
        if size > limit:
            raise _too_large()
        found.append(piece)
    return found[0] if len(found) == 1 else b"".join(found)


def _too_large() -> TooLargeError:
    return TooLargeError("The broker's answer is larger than the protocol allows.")
