"""Send single HTTP requests: over the network with aiohttp, or through another `Transport` that is mounted.

`requests` is above this: it retries, limits and explains what a transport raises. A transport sends each
request once, as it is. It does not know the broker's protocol.

An `Endpoint` says where a provider may send requests: to one broker, and to the object stores that its caller
allows. Spec: docs/spec/protocol.md, sections 2 and 6.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import urllib.parse
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from scbroker.client.calls.tasks import check_process, io_thread
from scbroker.errors import InvalidArgumentError
from scbroker.vocabulary import instance_of
from scbroker.wire import codec
from scbroker.wire.users import canonical_origin, checked_address, is_this_machine, origin_of

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver
    from multidict import MultiMapping
    from yarl import URL


_PRINTABLE_URL: Final = re.compile(r"https?://[!-~]+\Z")


@dataclass(frozen=True, slots=True, repr=False)  # the API key, and a proxy's password
class Endpoint:
    """A broker's address, and how to connect to it. `timeout` is in seconds for each operation."""

    url: str
    apiKey: uuid.UUID
    applicationName: str
    ssl: ssl.SSLContext | None
    proxy: str | None
    timeout: float
    stores: frozenset[str] = frozenset()
    """Origins of the object stores that the caller allows."""

    @property
    def origin(self) -> str:
        """Return the canonical origin, without the path: sessions are bound to the origin alone."""
        return origin_of(self.url)


def checked_endpoint(
    apiKey: object,
    serverUrl: object,
    applicationName: object,
    ssl_context: ssl.SSLContext | None,
    proxy: str | None,
    timeout: object,
    stores: object = (),
) -> Endpoint:
    """Return the endpoint of a provider's arguments; `InvalidArgumentError` names a wrong one."""
    try:
        text = apiKey if isinstance(apiKey, uuid.UUID | str) else ""
        key = text if isinstance(text, uuid.UUID) else uuid.UUID(text)
    except ValueError:
        raise InvalidArgumentError(
            f"apiKey must be a UUID or its text, and this {type(apiKey).__name__} is not: "
            "ask the broker's operator for it"
        ) from None
    split = urllib.parse.SplitResult | urllib.parse.ParseResult
    address = serverUrl.geturl() if isinstance(serverUrl, split) else serverUrl
    if not isinstance(address, str):
        raise InvalidArgumentError(
            "serverUrl must be text, as https://broker.example, or what urllib.parse.urlsplit or "
            f"urlparse returned, not {type(serverUrl).__name__}"
        )
    url = checked_address(address)
    name = instance_of("applicationName", applicationName, "a str", str)
    codec.check_application(name)
    quoted = urllib.parse.quote(name, safe=" ")
    if len(quoted) > codec.MAX_APPLICATION:
        raise InvalidArgumentError(
            f"applicationName has {len(quoted)} characters once percent-encoded: "
            f"use at most {codec.MAX_APPLICATION}"
        )
    if not isinstance(ssl_context, ssl.SSLContext | None):
        raise InvalidArgumentError(
            f"ssl must be an ssl.SSLContext, not {type(ssl_context).__name__}: "
            "None uses the system's authorities"
        )
    if not isinstance(timeout, (int, float)) or not timeout > 0:
        raise InvalidArgumentError(
            f"timeout must be a number of seconds above 0, not {timeout!r:.40}"
        )
    origins = checked_origins(stores)
    _check_proxy(proxy, [url, *origins])
    return Endpoint(url, key, quoted, ssl_context, proxy, float(timeout), origins)


def _check_proxy(proxy: str | None, addresses: Iterable[str]) -> None:
    """Refuse a proxy on another machine if requests to one of the addresses are not encrypted."""
    plain = [address for address in addresses if address.lower().startswith("http:")]
    if proxy is None or not plain:
        return
    with contextlib.suppress(TypeError, ValueError, AttributeError):
        if is_this_machine(urllib.parse.urlsplit(proxy).hostname or ""):
            return
    raise InvalidArgumentError(
        f"proxy must be on this machine: {plain[0]} is http, so the proxy could read every "
        "request. Leave out proxy, or use https."
    )


def checked_origins(origins: object) -> frozenset[str]:
    """Return the canonical origins of allowed object stores; `InvalidArgumentError` names a wrong one."""
    if isinstance(origins, str) or not isinstance(origins, Iterable):
        raise InvalidArgumentError(
            f"objectStoreOrigins must be a list, as ['https://s3.example'], not {type(origins).__name__}"
        )
    return frozenset(_checked_origin(number, origin) for number, origin in enumerate(origins))


def _checked_origin(number: int, origin: object) -> str:
    from yarl import URL

    with contextlib.suppress(InvalidArgumentError):
        if isinstance(origin, str):
            canonical_origin(origin)
            if (found := _origin_of(URL(origin, encoded=True))) is not None:
                return found
    raise InvalidArgumentError(
        f"objectStoreOrigins[{number}] must be scheme, host and port, as https://s3.example: "
        "http is allowed on this machine only"
    )


def allowed(presigned_url: str, origins: frozenset[str]) -> URL | None:
    """Return a presigned URL exactly as it will be requested; None if its origin is not allowed."""
    from yarl import URL

    if not _PRINTABLE_URL.match(presigned_url):
        return None
    try:
        url = URL(presigned_url, encoded=True)
        return url if _origin_of(url) in origins else None
    except ValueError:
        return None


def _origin_of(url: URL) -> str | None:
    """Return scheme, host and port, with the host as it is written; None for an invalid origin.

    Names of this machine are not unified here: `localhost` and `127.0.0.1` may lead to different servers.
    """
    try:
        canonical_origin(f"{url.scheme}://{url.raw_authority}")
    except InvalidArgumentError:
        return None
    return f"{url.scheme}://{(url.raw_host or '').lower()}:{url.port}"


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
