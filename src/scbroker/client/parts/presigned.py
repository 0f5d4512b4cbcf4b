"""The addresses by which a part's chunks go straight to and from an object store.

The broker gives them, a few at a time, and they are good for minutes. Where it gives none, or one that the
caller does not allow, everything goes through the broker. Spec: docs/spec/protocol.md, section 5.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final, TypeVar

import tenacity

from scbroker.client.calls.io_thread import io_thread
from scbroker.client.http.endpoint import allowed
from scbroker.client.http.object_store import StoreError
from scbroker.client.users.session import Session
from scbroker.errors import (
    BrokerFaultError,
    IncompleteUploadError,
    UnreachableError,
)
from scbroker.records.container_record import SEALED_SEGMENT
from scbroker.wire.parts import (
    CHUNK_SEGMENTS,
    SentChunk,
    SentChunks,
    Transfer,
    Transfers,
    TransfersRequest,
)

if TYPE_CHECKING:
    from yarl import URL

T = TypeVar("T")
_ASKED: Final = 16
# Of what is sent from a stream nobody knows how much will come: only what is on the wire at once.
_ASKED_BLINDLY: Final = 2
_KEPT: Final = 64
_GOOD_PART: Final = 0.9
_RETRYING: Final = tenacity.AsyncRetrying(
    retry=tenacity.retry_if_exception_type(StoreError),
    stop=tenacity.stop_after_attempt(4),
    wait=tenacity.wait_exponential_jitter(multiplier=0.1, max=2.0, jitter=0.1),
    reraise=True,
)


class Addresses:
    """Of one part's chunks, while they are good and of use: a part may have a hundred thousand."""

    def __init__(
        self, session: Session, path: str, count: int | None, skip: Collection[int] = ()
    ) -> None:
        self._store, self._session = session.transport.store, session
        self._timeout = session.transport.endpoint.timeout
        self._path = path
        self._count, self._sent = count, set(skip)
        self._known: dict[int, tuple[Transfer, URL, float]] = {}
        self._through_broker = not self._store.origins
        self._asking = asyncio.Lock()
        io_thread.bound(self)

    def after_fork(self) -> None:
        """Whoever was asking did so in the parent."""
        self._asking = asyncio.Lock()

    async def put(self, chunk: int, sealed: memoryview, hashes: bytes) -> bool:
        """Sends a chunk; False if it has to go through the broker."""

        async def send(transfer: Transfer, url: URL) -> bool:
            await self._store.put(url, sealed)
            one = SentChunk(index=chunk, name=transfer.name, hashes=hashes)
            try:
                message = SentChunks(chunks=[one])
                await self._session.send("POST", f"{self._path}/chunks", message=message)
            except IncompleteUploadError:  # the address ran out, or the store lost it
                raise StoreError("the chunk is not there", missing=True) from None
            return True

        sent = await self._use(chunk, self._to_send, send) or False
        if sent:
            self._sent.add(chunk)
            self._known.pop(chunk, None)
        return sent

    async def get(self, first: int, count: int, target: memoryview) -> int | None:
        """Gets segments into a buffer; gives their size, or None if they have to come through the broker."""
        size, end = 0, first + count
        while first < end:
            chunk, place = divmod(first, CHUNK_SEGMENTS)
            wanted = min(CHUNK_SEGMENTS - place, end - first) * SEALED_SEGMENT
            start, piece = place * SEALED_SEGMENT, target[size : size + wanted]

            async def get(
                _: Transfer, url: URL, start: int = start, piece: memoryview = piece
            ) -> int:
                return await self._store.get(url, start, piece)

            got = await self._use(chunk, self._to_read, get)
            if got is None:
                return None
            size += got
            if got < wanted:
                break
            first += CHUNK_SEGMENTS - place
        return size

    async def _to_send(self, chunks: list[int]) -> Transfers:
        message = TransfersRequest(chunks=chunks)
        return await self._session.call(
            "POST", f"{self._path}/transfers", Transfers, message=message
        )

    async def _to_read(self, chunks: list[int]) -> Transfers:
        query = {"first": str(chunks[0]), "count": str(len(chunks))}
        return await self._session.call("GET", f"{self._path}/transfers", Transfers, query=query)

    async def _use(
        self,
        chunk: int,
        ask: Callable[[list[int]], Awaitable[Transfers]],
        work: Callable[[Transfer, URL], Awaitable[T]],
    ) -> T | None:
        """What the work gives with a good address, in the end with a fresh one; None if there is none."""

        async def attempt() -> T | None:
            found = await self._take(chunk, ask)
            if found is None:
                return None
            try:
                return await work(*found)
            except StoreError:
                self._known.pop(chunk, None)
                raise

        try:
            async with asyncio.timeout(self._timeout):
                return await _RETRYING.copy()(attempt)
        except TimeoutError:
            raise UnreachableError(
                f"The object store did not do it within {self._timeout:g} seconds."
            ) from None
        except StoreError as failure:
            if failure.missing:
                raise BrokerFaultError("The object store lacks what the broker names.") from None
            raise UnreachableError(f"The object store did not do it ({failure}).") from None

    async def _take(
        self, chunk: int, ask: Callable[[list[int]], Awaitable[Transfers]]
    ) -> tuple[Transfer, URL] | None:
        async with self._asking:
            if self._through_broker:
                return None
            found = self._known.get(chunk)
            if found is None or found[2] < time.monotonic():
                self._forget(chunk)
                await self._learn(self._next(chunk), ask)
                found = self._known.get(chunk)
            return None if found is None else found[:2]

    def _forget(self, chunk: int) -> None:
        """This one, those that are good no more, and of the others the oldest where they are many."""
        now = time.monotonic()
        good = [n for n, (_, _, until) in self._known.items() if until >= now and n != chunk]
        self._known = {n: self._known[n] for n in good[-_KEPT:]}

    def _next(self, chunk: int) -> list[int]:
        """This chunk and those after it, as far as nothing is known of them and one run goes."""
        ahead = _ASKED_BLINDLY if self._count is None else _ASKED
        end = chunk + ahead if self._count is None else min(chunk + ahead, self._count)
        chunks = [chunk]
        while chunks[-1] + 1 < end and chunks[-1] + 1 not in self._known:
            if chunks[-1] + 1 in self._sent:
                break
            chunks.append(chunks[-1] + 1)
        return chunks

    async def _learn(
        self, chunks: list[int], ask: Callable[[list[int]], Awaitable[Transfers]]
    ) -> None:
        began = time.monotonic()
        answer = await ask(chunks)
        urls = [allowed(transfer.url, self._store.origins) for transfer in answer.transfers]
        if not urls or None in urls:
            self._through_broker = True
            return
        if [transfer.index for transfer in answer.transfers] != chunks:
            raise BrokerFaultError("The broker gave addresses that it was not asked for.")
        until = began + answer.seconds * _GOOD_PART
        for transfer, url in zip(answer.transfers, urls, strict=True):
            if url is not None:
                self._known[transfer.index] = (transfer, url, until)
