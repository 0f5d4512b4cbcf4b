"""Sealed chunks straight to and from an object store, by addresses that the broker gave.

An address is the broker's word: it is used only where its origin is one that the caller allows. Whatever is
there learns the sealed bytes and the address, and nothing of the session: requests carry no cookie and no
header of ours, no redirect is followed, and no more is read than was asked for. A certificate that the caller
gives for the broker goes to a store as well, if that asks for one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from scbroker.client.calls.io_thread import inherited, io_thread
from scbroker.client.http.bodies import PIECE, pieces, read_into
from scbroker.errors import InvalidArgumentError
from scbroker.wire.origin import canonical_origin

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

    from scbroker.client.http.transport import Endpoint

_PRINTABLE: Final = re.compile(r"https?://[!-~]+\Z")
_MISSING: Final = (404, 416)


class StoreError(Exception):
    """The object store did not do it. The message names no address."""

    def __init__(self, why: str, *, missing: bool = False) -> None:
        super().__init__(why)
        self.missing = missing


def checked_origins(origins: object) -> frozenset[str]:
    """The object stores that a caller allows; `InvalidArgumentError` says which is none."""
    if isinstance(origins, str) or not isinstance(origins, Iterable):
        raise InvalidArgumentError("objectStoreOrigins is a list, as ['https://s3.example'].")
    return frozenset(_checked_origin(origin) for origin in origins)


def _checked_origin(origin: object) -> str:
    from yarl import URL

    try:
        if isinstance(origin, str):
            canonical_origin(origin)
            if (found := _origin_of(URL(origin, encoded=True))) is not None:
                return found
    except InvalidArgumentError:
        pass
    raise InvalidArgumentError(
        "An origin in objectStoreOrigins is scheme, host and port: https, or http on this machine."
    )


def allowed(address: str, origins: frozenset[str]) -> URL | None:
    """The address as it will be asked, if it is of one of these origins."""
    from yarl import URL

    if not _PRINTABLE.match(address):
        return None
    try:
        url = URL(address, encoded=True)
        return url if _origin_of(url) in origins else None
    except ValueError:
        return None


def _origin_of(url: URL) -> str | None:
    """Scheme, host and port, the host as it is written: other names of this machine may lead elsewhere."""
    authority = url.raw_authority
    try:
        canonical_origin(f"{url.scheme}://{authority}")
    except InvalidArgumentError:
        return None
    return f"{url.scheme}://{(url.raw_host or '').lower()}:{url.port}"


class ObjectStore:
    """Requests to object stores, none of which is told who asks; lives on scbroker's own thread."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._http: aiohttp.ClientSession | None = None
        self.failures: int = 0
        """Requests that failed: the connections of before may still be sending."""
        io_thread.bound(self)

    @property
    def origins(self) -> frozenset[str]:
        return self._endpoint.stores

    def after_fork(self) -> None:
        """Leaves the parent's connections to the parent: the next request opens its own."""
        if self._http is not None:
            inherited.append(self._http.connector)
            self._http.detach()
        self._http = None

    async def put(self, url: URL, body: memoryview) -> None:
        """Puts an object; raises `StoreError`."""
        headers = {"Content-Length": str(len(body))}
        data = bytes(body) if len(body) <= PIECE else pieces(body)
        await self._ask("PUT", url, headers, data, None)

    async def get(self, url: URL, start: int, target: memoryview) -> int:
        """Gets an object's bytes from a place on, as many as the buffer holds; raises `StoreError`.

        Gives their number, which is smaller at the end of the object."""
        headers = {"Range": f"bytes={start}-{start + len(target) - 1}"}
        return await self._ask("GET", url, headers, None, target)

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def _ask(
        self,
        method: str,
        url: URL,
        headers: dict[str, str],
        data: object,
        target: memoryview | None,
    ) -> int:
        import aiohttp

        try:
            async with self._client().request(
                method,
                url,
                data=data,
                headers=headers,
                allow_redirects=False,
                proxy=self._endpoint.proxy,
            ) as response:
                if target is not None and response.status == 206:
                    return len(await read_into(response, target))
                if target is None and response.status in (200, 201, 204):
                    return 0
                status = response.status
                response.close()
        except (aiohttp.ClientError, ValueError, TimeoutError) as error:
            self.failures += 1
            raise StoreError(type(error).__name__) from None
        except asyncio.CancelledError:
            self.failures += 1
            raise
        self.failures += 1
        raise StoreError(f"status {status}", missing=status in _MISSING)

    def _client(self) -> aiohttp.ClientSession:
        if self._http is None:
            import aiohttp

            io_thread.close_at_exit(self)
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=16, ssl=self._endpoint.ssl or True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60),
                skip_auto_headers=["User-Agent", "Accept", "Accept-Encoding", "Content-Type"],
                read_bufsize=PIECE,
            )
        return self._http
