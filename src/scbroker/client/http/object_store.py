"""Sealed chunks sent straight to an object store and fetched from it, by presigned URLs of the broker.

A presigned URL is the broker's word: it is used only if its origin is one that the caller allows. The store
learns the sealed bytes and the URL, and nothing of the session: a request carries no header of ours, and no
more is read than was asked for. A client certificate in the caller's `ssl` is presented to a store that asks
for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scbroker.client.http.connections import Connections, read_into
from scbroker.crypto.seal import Octets

if TYPE_CHECKING:
    from yarl import URL

_MISSING: Final = (404, 416)


class StoreError(Exception):
    """The object store did not carry out a request. The message does not contain the URL.

    `missing` is true if the store has no such object, or not so many bytes of it.
    """

    def __init__(self, why: str, *, missing: bool = False) -> None:
        super().__init__(why)
        self.missing = missing


class ObjectStore(Connections):
    """Requests to object stores, without the session's token or name."""

    most: int = 16
    unsent_headers: tuple[str, ...] = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")

    @property
    def origins(self) -> frozenset[str]:
        """The origins that the caller allows."""
        return self.endpoint.stores

    async def put(self, url: URL, body: memoryview) -> None:
        """Store an object; raise `StoreError` if the store does not."""
        await self._send("PUT", url, {"Content-Length": str(len(body))}, body, None)

    async def get(self, url: URL, start: int, target: memoryview) -> int:
        """Read an object's bytes from `start` on into a buffer, and return their number.

        It is smaller than the buffer at the object's end. Raises `StoreError`.
        """
        headers = {"Range": f"bytes={start}-{start + len(target) - 1}"}
        return await self._send("GET", url, headers, None, target)

    async def _send(
        self,
        method: str,
        url: URL,
        headers: dict[str, str],
        body: Octets | None,
        target: memoryview | None,
    ) -> int:
        import aiohttp

        has_succeeded = False
        try:
            async with self.request(method, url, headers, body) as response:
                received = 0
                if target is not None and response.status == 206:
                    received = len(await read_into(response, target))
                elif target is not None or response.status not in (200, 201, 204):
                    status = response.status
                    response.close()
                    raise StoreError(f"status {status}", missing=status in _MISSING)
                has_succeeded = True
                return received
        except (aiohttp.ClientError, ValueError, TimeoutError) as error:
            raise StoreError(type(error).__name__) from None
        finally:
            if not has_succeeded:  # also if it was cancelled
                self.count_failure()
