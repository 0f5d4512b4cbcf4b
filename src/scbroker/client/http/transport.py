"""Send single HTTP requests: over the network with aiohttp, or through another `Transport` that is mounted.

`requests` is above this: it retries, limits and explains what a transport raises. A transport sends each
request once, as it is. It does not know the broker's protocol.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from scbroker.client.calls.io_thread import check_process, io_thread
from scbroker.client.http.endpoint import Endpoint
from scbroker.wire.users import is_this_machine

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver
    from multidict import MultiMapping
    from yarl import URL

PIECE: Final = 262_144
"""Bytes that are written to a connection at a time."""
_LOOPBACK: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
Body = bytes | AsyncIterator[memoryview] | None


@dataclass(slots=True)
class Response:
    """The head of a response, and its body as it arrives."""

    status: int
    headers: MultiMapping[str]
    pieces: AsyncIterator[bytes]
    close: Callable[[], None]
    """End the request at once, without sending the rest of its body first."""


class Transport(Protocol):
    """Sends requests, either to a broker or to object stores; used on scbroker's I/O thread."""

    def request(
        self, method: str, url: URL, headers: Mapping[str, str], body: Body
    ) -> AbstractAsyncContextManager[Response]:
        """Send a request and provide its response; raise `aiohttp.ClientError` if there is none.

        The end of the block ends the request, also before all pieces of the body were read.
        """
        ...

    async def close(self) -> None:
        """Close connections; another request opens new ones."""
        ...


_mounted: Final[dict[str, Transport]] = {}


@contextlib.contextmanager
def mounted(url: str, transport: Transport) -> Iterator[None]:
    """Let the providers that are made in the block for a broker at `url` use this transport.

    It serves all of them: its `close` is called for each. One may lie over another, inside its block.
    """
    before = _mounted.get(url)
    _mounted[url] = transport
    try:
        yield
    finally:
        del _mounted[url]
        if before is not None:
            _mounted[url] = before


def transport_to(
    endpoint: Endpoint, most: int, unsent_headers: tuple[str, ...], read_seconds: float = 60
) -> Transport:
    """Return the transport that is mounted for a broker, or else one over the network, as for a proxy."""
    found = None if endpoint.proxy else _mounted.get(endpoint.url)
    return found or AiohttpTransport(endpoint, most, unsent_headers, read_seconds)


class AiohttpTransport:
    """HTTP connections of one purpose, opened by the first request.

    No redirect is followed, no cookie kept, no content encoding undone. At most `most` connections are open
    at the same time; 0 is unlimited. A response whose next bytes do not come for `read_seconds` is given up.
    Requests do not carry aiohttp's own `unsent_headers`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        most: int,
        unsent_headers: tuple[str, ...],
        read_seconds: float = 60,
    ) -> None:
        self._endpoint, self._most = endpoint, most
        self._unsent_headers, self._read_seconds = unsent_headers, read_seconds
        self._http: aiohttp.ClientSession | None = None
        self._process = os.getpid()

    async def close(self) -> None:
        """Close the connections; another request opens new ones. The child of a fork leaves the parent's."""
        if self._process != os.getpid():
            return
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, url: URL, headers: Mapping[str, str], body: Body
    ) -> AsyncIterator[Response]:
        """Send a request and provide its response."""
        async with self._client().request(
            method,
            url,
            data=body,
            headers=headers,
            allow_redirects=False,
            proxy=self._endpoint.proxy,
        ) as response:
            yield Response(response.status, response.headers, _pieces(response), response.close)

    def _client(self) -> aiohttp.ClientSession:
        check_process(self._process)
        if self._http is None:
            import aiohttp

            io_thread.close_at_exit(self)
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._most, ssl=self._endpoint.ssl or True, resolver=_resolver()
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=10, sock_read=self._read_seconds
                ),
                skip_auto_headers=self._unsent_headers,
                read_bufsize=PIECE,
            )
        return self._http


async def _pieces(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    # Not `iter_any`, which joins the pieces that have arrived. Not `iter_chunks`: aiohttp has one object for
    # all empty bodies, and its iterator ends only once, so that the second empty body would never end.
    content = response.content
    while not content.at_eof():
        piece, _ = await content.readchunk()
        yield piece


def _resolver() -> AbstractResolver:
    """Return a resolver that maps the names of this machine to loopback without DNS (RFC 6761, 6.3).

    Http is allowed to `localhost` and the names under it, and DNS could answer with another machine's
    address.
    """
    import aiohttp
    from aiohttp.abc import ResolveResult

    class Resolver(aiohttp.ThreadedResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[ResolveResult]:
            if not is_this_machine(host):
                return await super().resolve(host, port, family)
            return [
                ResolveResult(
                    hostname=host, host=address, port=port, family=kind, proto=0,
                    flags=socket.AI_NUMERICHOST,
                )
                for kind, address in _LOOPBACK
            ]  # fmt: skip

    return Resolver()
