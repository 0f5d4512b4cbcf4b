"""Pooled HTTP connections, and request and answer bodies that are sent and read in pieces.

No redirect is followed, no cookie kept, no content encoding undone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from scbroker.client.calls.io_thread import inherited, io_thread
from scbroker.client.http.endpoint import Endpoint
from scbroker.crypto.seal import Octets
from scbroker.errors import TooLargeError

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

PIECE: Final = 262_144
"""Bytes that are written to a connection at a time."""


class Connections:
    """HTTP connections of one purpose, opened by the first request; lives on scbroker's I/O thread."""

    most: int
    """Connections at the same time."""
    unsent_headers: tuple[str, ...]
    """Headers of aiohttp's own that requests do not carry."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._http: aiohttp.ClientSession | None = None
        self.failures: int = 0
        """Failed requests so far. The connection of one may still be sending from its buffer."""
        io_thread.bound(self)

    def after_fork(self) -> None:
        """Leave the parent's connections to the parent: the child's next request opens its own."""
        if self._http is not None:
            inherited.append(self._http.connector)
            self._http.detach()
        self._http = None

    def count_failure(self) -> None:
        """Count a request that failed."""
        self.failures += 1

    async def close(self) -> None:
        """Close the connections; another request opens new ones."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    def request(
        self, method: str, url: URL, headers: Mapping[str, str], body: Octets | None
    ) -> Any:
        """Return aiohttp's context manager of one request."""
        return self._client().request(
            method,
            url,
            data=body if body is None or len(body) <= PIECE else _pieces(memoryview(body)),
            headers=headers,
            allow_redirects=False,
            proxy=self.endpoint.proxy,
        )

    def _client(self) -> aiohttp.ClientSession:
        if self._http is None:
            import aiohttp

            io_thread.close_at_exit(self)
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self.most, ssl=self.endpoint.ssl or True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60),
                skip_auto_headers=self.unsent_headers,
                read_bufsize=PIECE,
            )
        return self._http


async def _pieces(body: memoryview) -> AsyncIterator[memoryview]:
    """Yield a large body in pieces, so that no single write blocks the event loop."""
    for start in range(0, len(body), PIECE):
        yield body[start : start + PIECE]


async def read_into(response: aiohttp.ClientResponse, target: memoryview) -> memoryview:
    """Read a body into a buffer, which is faster than allocating; return the part that was filled."""
    size = 0
    async for piece in response.content.iter_any():
        if size + len(piece) > len(target):
            raise _too_large(len(target))
        target[size : size + len(piece)] = piece
        size += len(piece)
    return target[:size]


async def read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Read a body, never more than `limit` bytes of it into memory."""
    found, size = [], 0
    async for piece in response.content.iter_chunked(PIECE):
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        found.append(piece)
    return found[0] if len(found) == 1 else b"".join(found)


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"The broker's answer has more than the {limit} bytes that are allowed.")
