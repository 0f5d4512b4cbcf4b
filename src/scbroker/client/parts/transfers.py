"""Put and get a part's chunks by presigned URLs; record what was transferred, so that it can be resumed.

The broker hands out a few URLs at a time, each valid for minutes. If it hands out none, or one whose origin
the caller did not allow, everything goes through the broker. Spec: docs/spec/protocol.md, section 5.

A `Meter` reports how much of a large content was transferred.

Entries of a journal are in the state file, sealed under a key of the user; each opens only at its own
position in its own transfer. Those after a damaged entry count as missing: the transfer repeats some of its
work.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
import uuid
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

import filelock
import msgspec
import tenacity

from scbroker import errors
from scbroker.client.arguments import Progress, no_progress
from scbroker.client.http.requests import Moved, Query, StoreError
from scbroker.client.http.transport import allowed
from scbroker.client.local_state import LocalState, transaction
from scbroker.client.users.session import Session
from scbroker.crypto.seal import seal, unseal
from scbroker.crypto.verify import keyed_hash, label, sha256
from scbroker.errors import DecryptionError, TrustStoreError
from scbroker.records.canonical import decoder
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


F = TypeVar("F")
S = TypeVar("S")
_KEPT_SECONDS: Final = 7 * 86_400
"""Seconds after which an unused journal is deleted: by then the broker has dropped its side of the upload."""
_log: Final = logging.getLogger("scbroker")


class Journal:
    """The entries of one transfer, while this object has its lock. Without a state file it keeps none."""

    def __init__(
        self,
        state: LocalState | None = None,
        secret: bytes = b"",
        name: bytes = b"",
        lock: filelock.BaseFileLock | None = None,
    ) -> None:
        self.name: str = name.hex() or uuid.uuid4().hex
        self._state, self._name, self._lock = state, name, lock
        self._secret = keyed_hash(secret, "journal", name)
        self._has_failed = False
        self._first = b""
        """The hash of the sealed first entry: with another one, later entries do not open."""
        self._count = 0
        self.entries: list[bytes] = []
        """The entries that it had when it was opened."""

    @classmethod
    def open(cls, state: LocalState | None, secret: bytes, *names: bytes) -> Self:
        """Open the journal of the transfer that these names identify.

        It keeps nothing without a state file that can be used, or if another transfer has it open.
        """
        if state is None:
            return cls()
        # Programs with another trust store have other locks, so their partial files need other names.
        names = os.fsencode(state.path), *names
        # A keyed hash: the name does not disclose what is transferred.
        sizes = b"".join(len(name).to_bytes(4, "big") for name in names)
        name = keyed_hash(secret, "journal-name", sizes, *names)
        lock = _lock_of(state, name)
        try:
            with state as connection:  # also makes the folder of the lock
                before = int(time.time()) - _KEPT_SECONDS
                for (old,) in connection.execute(_OLD, (before,)).fetchall():
                    # Only under its lock, or its transfer goes on without one after a week's pause, as of
                    # a suspended machine: the next transfer of this name would truncate its partial
                    # file. The statement checks the age again, as the transfer may just have resumed.
                    # A lock that another transfer has raises `filelock.Timeout`, an OSError.
                    with suppress(OSError), _lock_of(state, old) as other:
                        connection.execute(_DELETE_OLD, (old, before))
                        _unlink(other)
            lock.acquire()
            journal = cls(state, secret, name, lock)
            with state as connection:
                journal._read(connection)
        except filelock.Timeout:
            return cls()
        except (OSError, TrustStoreError) as error:
            lock.release()
            _log.warning("A transfer cannot be resumed later: %s", error)
            return cls()
        return journal

    def _read(self, connection: sqlite3.Connection) -> None:
        with suppress(DecryptionError, TypeError):  # a damaged row may have a value of any type
            for number, sealed in connection.execute(_ENTRIES, (self._name,)):
                if number != len(self.entries):
                    break
                self.entries.append(unseal(self._secret, self._context(number), sealed))
                self._first = self._first or sha256(sealed)
        self._count = len(self.entries)

    def _context(self, number: int) -> bytes:
        return label("journal") + self._first + b"%d" % number

    @property
    def is_kept(self) -> bool:
        """Return whether the transfer can be resumed by this journal."""
        return self._state is not None

    def append(self, entry: bytes) -> None:
        """Append an entry. After a failed write nothing more is written."""
        if self._state is None or self._has_failed:
            return
        sealed = seal(self._secret, self._context(self._count), entry)
        try:
            with self._state as connection:
                row = self._name, self._count, int(time.time()), sealed
                connection.execute("REPLACE INTO journal VALUES (?, ?, ?, ?)", row)
        except TrustStoreError as error:
            _log.warning("A transfer cannot be resumed from here: %s", error)
            self._has_failed = True
        self._first = self._first or sha256(sealed)
        self._count += 1

    def append_item(self, item: msgspec.Struct) -> None:
        self.append(msgspec.msgpack.encode(item))

    def items(self, first: type[F], others: type[S]) -> tuple[F, list[S]] | None:
        """Return the first entry and the others; None without entries, or if another version wrote them."""
        try:
            head, *rest = self.entries
            decode, decode_other = (decoder(cast(Any, kind)).decode for kind in (first, others))
            return decode(head), [decode_other(entry) for entry in rest]
        except ValueError:  # no entries, or `msgspec.DecodeError`
            return None

    def restart(self, item: msgspec.Struct) -> None:
        """Remove all entries, and start with this item."""
        self.entries.clear()
        self._first, self._count = b"", 0
        self.append_item(item)

    def close(self) -> None:
        """Keep the entries, so that the transfer can be resumed."""
        if self._lock is not None:
            _unlink(self._lock)
            self._lock.release()
            self._lock = None

    def end(self, *, durably: bool = True) -> None:
        """Remove the journal: the transfer is complete, or must not be resumed.

        Without `durably`, a journal that a power cut brings back must do no harm.
        Raises `TrustStoreError` if that fails.
        """
        try:
            if self._state is not None and self._lock is not None:
                with self._state as connection, transaction(connection, durable=durably):
                    connection.execute("DELETE FROM journal WHERE name = ?", (self._name,))
        finally:
            self.close()


def _lock_of(state: LocalState, name: bytes) -> filelock.BaseFileLock:
    """Return a journal's lock. A crash releases it.

    It is not bound to a thread: one thread of the pool may open the journal and another close it.
    """
    path = state.path.with_name(f"{name.hex()}.lock")
    return filelock.FileLock(path, timeout=0, thread_local=False)


def _unlink(lock: filelock.BaseFileLock) -> None:
    """Remove the file of a lock that the caller has acquired and not yet released.

    A process that has opened the file before does not get this lock any more: filelock checks whether a
    locked file was removed.
    """
    with suppress(OSError):  # Windows does not remove an open file
        Path(lock.lock_file).unlink()


_ENTRIES: Final = "SELECT number, sealed FROM journal WHERE name = ? ORDER BY number"
_OLD: Final = """
    SELECT name FROM journal GROUP BY name HAVING max(time) < ? AND typeof(name) = 'blob'
"""
_DELETE_OLD: Final = """
    DELETE FROM journal WHERE name = ?1 AND (SELECT max(time) FROM journal WHERE name = ?1) < ?2
"""


_STEPS: Final = 8
_SMALLEST_STEP: Final = 16_384
_LARGEST_STEP: Final = 1_048_576


class Meter:
    """Add up the bytes transferred of each chunk, and report steps of an eighth, 16 KiB to 1 MiB.

    The reported number never falls. The last byte of a chunk counts only when the chunk is `complete`: the
    receiver has confirmed it, or the client has verified it. So the total is reported once, at the end.
    """

    def __init__(self, progress: Progress, total: int | None, done: int) -> None:
        """Begin with `done` bytes that an earlier transfer has moved."""
        self._progress, self._total, self._done = progress, total, done
        eighth = _LARGEST_STEP if total is None else total // _STEPS
        self._step = min(max(eighth, _SMALLEST_STEP), _LARGEST_STEP)
        self._on_the_wire: dict[int, int] = {}
        self._reported = 0
        if done:
            self._report()

    def follow(self, chunk: int, length: int, size: int) -> Callable[[int], None] | None:
        """Return a function that takes the number of sealed bytes transferred; None without a progress.

        The chunk has `size` sealed bytes and `length` plaintext bytes.
        """
        if self._progress is no_progress:
            return None

        def moved(count: int) -> None:
            reached = min(length * count // size, max(length - 1, 0))
            self._on_the_wire[chunk] = reached // self._step * self._step
            self._report()

        return moved

    def complete(self, chunk: int, length: int) -> None:
        """Count a chunk as whole."""
        self._on_the_wire.pop(chunk, None)
        self._done += length
        self._report()

    def _report(self) -> None:
        now = self._done + sum(self._on_the_wire.values())
        # Report growth only: the sum falls when a chunk is sent again, and stays after mere padding.
        if now > self._reported:
            self._reported = now
            self._progress(now, self._total)
