"""Put a part's chunks to an object store, and get them, by presigned URLs.

The broker hands out a few URLs at a time, each valid for minutes. If it hands out none, or one whose origin
the caller did not allow, everything goes through the broker. Spec: docs/spec/protocol.md, section 5.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final, TypeVar

import tenacity

from scbroker import errors
from scbroker.client.http.endpoint import allowed
from scbroker.client.http.requests import Moved, Query, StoreError
from scbroker.client.users.session import Session
from scbroker.records.container_record import SEALED_SEGMENT
from scbroker.wire import parts

if TYPE_CHECKING:
    from yarl import URL

T = TypeVar("T")
_Presigned = tuple[parts.Transfer, "URL", float]
"""A transfer that the broker handed out, its URL, and until when the client uses it (monotonic seconds)."""
# Chunks whose URLs are requested at once. Requesting one at a time made uploads 6 % slower (tried: 128 MiB,
# broker and store on one machine).
_PREFETCHED: Final = 16
# The same for a stream, whose length is unknown: the last request is for one chunk too many at most.
_PREFETCHED_OF_STREAM: Final = 2
_KEPT: Final = 64
_USED_LIFETIME: Final = 0.9  # the share of a URL's lifetime in which it is used
_RETRYING: Final = tenacity.AsyncRetrying(
    retry=tenacity.retry_if_exception_type(StoreError),
    stop=tenacity.stop_after_attempt(4),
    wait=tenacity.wait_exponential_jitter(multiplier=0.1, max=2.0, jitter=0.1),
    reraise=True,
)


class PresignedUrls:
    """The presigned URLs of one part, at most `_KEPT` at a time: a part may have 100,000 chunks."""

    def __init__(
        self,
        session: Session,
        path: str,
        query: Query,
        count: int | None,
        skip: Collection[int] = (),
    ) -> None:
        self._store, self._session = session.requests.store, session
        self._timeout = session.requests.endpoint.timeout
        self._path, self._query = path, query
        self._count, self._sent = count, set(skip)
        self._known: dict[int, _Presigned] = {}
        self._through_broker = not self._store.endpoint.stores
        self._asking = asyncio.Lock()

    async def put(
        self, chunk: int, sealed: memoryview, hashes: bytes, moved: Moved | None = None
    ) -> bool:
        """Put a chunk to the store and report it; return False if it has to go through the broker."""

        async def send(transfer: parts.Transfer, url: URL) -> bool:
            await self._store.put(url, sealed, moved)
            one = parts.SentChunk(index=chunk, name=transfer.name, hashes=hashes)
            try:
                message = parts.SentChunks(chunks=[one])
                path = f"{self._path}/chunks"
                await self._session.send("POST", path, message=message, query=self._query)
            except errors.IncompleteUploadError:  # the URL expired, or the store lost the object
                raise StoreError("the chunk is not there", missing=True) from None
            return True

        sent = await self._retrying(chunk, send, sending=True) or False
        if sent:
            self._sent.add(chunk)
            self._known.pop(chunk, None)
        return sent

    async def get(
        self, first: int, count: int, target: memoryview, moved: Moved | None = None
    ) -> int | None:
        """Get segments into a buffer; return their size, or None if they have to come through the broker."""
        size, end = 0, first + count
        while first < end:
            chunk, place = divmod(first, parts.CHUNK_SEGMENTS)
            wanted = min(parts.CHUNK_SEGMENTS - place, end - first) * SEALED_SEGMENT
            start, piece = place * SEALED_SEGMENT, target[size : size + wanted]

            async def get(
                _: parts.Transfer, url: URL, at: int = start, to: memoryview = piece, n: int = size
            ) -> int:
                after = None if moved is None else lambda received: moved(n + received)
                return await self._store.get(url, at, to, after)

            got = await self._retrying(chunk, get, sending=False)
            if got is None:
                return None
            size += got
            if got < wanted:
                break
            first += parts.CHUNK_SEGMENTS - place
        return size

    async def _retrying(
        self, chunk: int, work: Callable[[parts.Transfer, URL], Awaitable[T]], *, sending: bool
    ) -> T | None:
        """Return the result of `work` with a chunk's URL, None without one; retry with a new URL."""
        if self._through_broker:
            return None

        async def attempt() -> T | None:
            found = await self._presigned(chunk, sending)
            if found is None:
                return None
            try:
                return await work(*found[:2])
            except StoreError:
                self._known.pop(chunk, None)
                raise

        try:
            async with asyncio.timeout(self._timeout):
                return await _RETRYING.copy(before_sleep=self._log_retry)(attempt)
        except TimeoutError:
            raise errors.UnreachableError(
                f"The object store did not answer within {self._timeout:g} seconds."
            ) from None
        except StoreError as failure:
            if failure.missing:
                raise errors.BrokerFaultError(
                    "The object store lacks an object that the broker named."
                ) from None
            raise errors.UnreachableError(
                f"The object store failed: try again ({failure})."
            ) from None

    def _log_retry(self, state: tenacity.RetryCallState) -> None:
        if state.outcome is not None and (failure := state.outcome.exception()) is not None:
            self._session.requests.retry_log.retry(
                StoreError(f"The object store failed ({failure})."), state.upcoming_sleep
            )

    async def _presigned(self, chunk: int, sending: bool) -> _Presigned | None:
        """Return a chunk's URL, asking the broker if none is known; None if the broker carries the chunk."""
        async with self._asking:
            now = time.monotonic()
            found = self._known.get(chunk)
            if not self._through_broker and (found is None or found[2] < now):
                valid = [n for n, known in self._known.items() if known[2] >= now]
                self._known = {n: self._known[n] for n in valid[-_KEPT:]}
                await self._fetch(self._next(chunk), sending)
            return None if self._through_broker else self._known.get(chunk)

    def _next(self, chunk: int) -> list[int]:
        """Return this chunk and those directly after it that have no URL and are not sent yet."""
        prefetched = _PREFETCHED_OF_STREAM if self._count is None else _PREFETCHED
        end = min(chunk + prefetched, self._count or chunk + prefetched)
        chunks = [chunk]
        while (after := chunks[-1] + 1) < end and not (after in self._known or after in self._sent):
            chunks.append(after)
        return chunks

    async def _fetch(self, chunks: list[int], sending: bool) -> None:
        """Ask the broker for URLs; use none of them unless the caller allowed the origins of all."""
        began = time.monotonic()
        path = f"{self._path}/transfers"
        if sending:
            message = parts.TransfersRequest(chunks=chunks)
            answer = await self._session.call(
                "POST", path, parts.Transfers, message=message, query=self._query
            )
        else:
            query = {**self._query, "first": str(chunks[0]), "count": str(len(chunks))}
            answer = await self._session.call("GET", path, parts.Transfers, query=query)
        urls = [allowed(transfer.url, self._store.endpoint.stores) for transfer in answer.transfers]
        if not urls or None in urls:
            self._through_broker = True
            return
        if [transfer.index for transfer in answer.transfers] != chunks:
            raise errors.BrokerFaultError("The broker gave presigned URLs for other chunks.")
        until = began + answer.seconds * _USED_LIFETIME
        for transfer, url in zip(answer.transfers, urls, strict=True):
            if url is not None:
                self._known[transfer.index] = (transfer, url, until)
