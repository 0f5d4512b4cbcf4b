"""Transfer large contents in chunks, and resume transfers; save contents to files.

Chunks of eight segments are sent before the record that names them, and fetched after it was verified, by
presigned URLs: the broker hands out a few at a time, each valid for minutes. If it hands out none, or one
whose origin the caller did not allow, everything goes through the broker. Some chunks are on the wire while
others are read, sealed, hashed or opened in the thread pool. Each segment is checked against the signed
hashes before any of its bytes is used.

For files, a journal in the state file says which chunks were transferred. Its entries are sealed under a key
of the user; each opens only at its own position in its own transfer. Those after a damaged entry count as
missing. It is only an aid: without it a transfer starts again.
Spec: docs/spec/container.md, section 6; docs/spec/protocol.md, section 5.
"""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

import filelock
import msgspec
import tenacity

from scbroker import errors
from scbroker.client.arguments import Content, Progress, Segment, no_progress
from scbroker.client.calls.tasks import Shared, all_or_first_error, io_thread
from scbroker.client.core.sealing import NewPart, OpenPart
from scbroker.client.http.requests import CHUNKS_AT_ONCE, Buffers, Moved, Query, StoreError, Taken
from scbroker.client.http.transport import allowed
from scbroker.client.local_state import LocalState, open_own, transaction
from scbroker.client.users import accounts
from scbroker.client.users.session import Session
from scbroker.crypto.seal import KEY_SIZE, checksum, random_bytes, seal, unseal
from scbroker.crypto.verify import HASH_SIZE, equal, keyed_hash, label, sha256
from scbroker.errors import (
    BrokerError,
    BrokerUnavailableError,
    DecryptionError,
    DiskFullError,
    IntegrityError,
    InvalidArgumentError,
    TooLargeError,
    TrustStoreError,
)
from scbroker.records import container_record as records
from scbroker.records.canonical import container_id_of, decoder
from scbroker.records.container_record import SEALED_SEGMENT, SEGMENT, Role
from scbroker.wire import parts
from scbroker.wire.parts import CHUNK_SEGMENTS, MAX_CHUNK, MAX_LISTED

if TYPE_CHECKING:
    from yarl import URL

T = TypeVar("T")
RUN: Final = CHUNK_SEGMENTS * SEGMENT
"""Bytes of plaintext in a chunk."""
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
                await self._fetch(chunk, sending)
            return None if self._through_broker else self._known.get(chunk)

    async def _fetch(self, chunk: int, sending: bool) -> None:
        """Ask the broker for URLs; use none of them unless the caller allowed the origins of all.

        They are those of this chunk and of those directly after it that have no URL and are not sent yet.
        """
        began = time.monotonic()
        prefetched = _PREFETCHED_OF_STREAM if self._count is None else _PREFETCHED
        end = min(chunk + prefetched, self._count or chunk + prefetched)
        chunks = [chunk]
        while (after := chunks[-1] + 1) < end and not (after in self._known or after in self._sent):
            chunks.append(after)
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

    def append_chunk(self, number: int, value: bytes) -> None:
        self.append(msgspec.msgpack.encode((number, value)))

    def restart(self, *fields: bytes) -> None:
        """Remove all entries, and start with one of these fields."""
        self.entries.clear()
        self._first, self._count = b"", 0
        self.append(msgspec.msgpack.encode(fields))

    def recorded(self, fields: int) -> tuple[list[bytes], dict[int, bytes]] | None:
        """Return the fields of the first entry, so many, and the value of each chunk; None without them."""
        with suppress(
            ValueError
        ):  # no entries, or `msgspec.DecodeError`: another version wrote them
            first, *rest = self.entries
            found = msgspec.msgpack.decode(first, type=list[bytes])
            if len(found) == fields:
                read = decoder(tuple[int, bytes]).decode
                return found, dict(read(entry) for entry in rest)
        return None

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


Sink = Callable[[int, memoryview], None]
"""Takes the number of a run and its plaintext, whose buffer is reused after the call."""


class Download:
    """A large content, each of whose segments is checked against the hashes that its record signs.

    `query` names the group through which the user reads, if any.
    """

    def __init__(self, session: Session, opened: OpenPart, query: Query) -> None:
        self._session, self._query = session, query
        self.opened: OpenPart = opened
        self._count = records.segment_count(opened.part.paddedLength)
        self._runs = -(-self._count // CHUNK_SEGMENTS)
        self._path = path_of(opened.container_id, opened.part.partId)
        self._urls = PresignedUrls(session, self._path, query, self._runs)
        self._verified: bytes | None = None
        self._asking: Shared | None = None

    async def hashes(self) -> bytes:
        """Return the segments' hashes, verified against the record. Concurrent callers share one request."""
        while self._verified is None:
            if self._asking is None or self._asking.is_over:
                self._asking = Shared(self._fetch_hashes())
            await self._asking.wait()
        return self._verified

    async def _fetch_hashes(self) -> None:
        path, limit = f"{self._path}/hashes", HASH_SIZE * self._count
        hashes = bytes(await self._session.send("GET", path, query=self._query, limit=limit))
        await io_thread.in_pool(records.check_segment_hashes, self.opened.part, hashes)
        if self._session.keeper is not None:
            await self._session.keeper.keep_hashes(self._path, hashes)
        self._verified = hashes

    @property
    def length(self) -> int:
        return self.opened.length

    async def run(self, sink: Sink, progress: Progress, skip: Collection[int] = ()) -> None:
        """Pass all runs but those in `skip` to `sink`, in any order."""
        requests = self._session.requests
        meter = Meter(progress, self.length, sum(self._length_of(number) for number in skip))

        async def one(number: int, buffer: memoryview, sealed: Taken, plain: Taken) -> None:
            first = number * CHUNK_SEGMENTS
            count, length = min(CHUNK_SEGMENTS, self._count - first), self._length_of(number)
            padded = self.opened.part.paddedLength - number * RUN
            size = min(count * SEGMENT, padded) + count * (SEALED_SEGMENT - SEGMENT)
            moved = meter.follow(number, length, size)
            received, hashes = await self._fetch(first, count, buffer, moved)
            target = await plain.take()

            def pass_on() -> None:
                opened = open_run(self.opened, first, received, hashes, target)
                sink(number, target[:opened])

            await io_thread.in_pool(pass_on)
            plain.give_back(target)
            await self._keep(first, received)
            # Not after an error: the thread may still use the buffers.
            sealed.give_back(buffer)
            meter.complete(number, length)

        with requests.sealed.transfer() as sealed, requests.plain.transfer() as plain:
            async with all_or_first_error() as fetching:
                for number in range(self._runs):
                    if number not in skip:
                        fetching.create_task(one(number, await sealed.take(), sealed, plain))

    async def segments(self, first: int, count: int) -> list[memoryview]:
        """Return the plaintexts of some segments, at most as many as a run has."""
        buffer = memoryview(bytearray(count * SEALED_SEGMENT))
        received, hashes = await self._fetch(first, count, buffer)

        def opened(number: int) -> memoryview:
            sealed = received[number * SEALED_SEGMENT : (number + 1) * SEALED_SEGMENT]
            target = memoryview(bytearray(SEGMENT))
            return target[: open_run(self.opened, first + number, sealed, hashes, target)]

        # One thread for each segment: opening them takes longer than fetching them.
        plain = await asyncio.gather(*(io_thread.in_pool(opened, n) for n in range(count)))
        await self._keep(first, received)
        return plain

    async def _keep(self, first: int, verified: memoryview) -> None:
        if self._session.keeper is not None:
            await self._session.keeper.keep_part(self._path, first, verified)

    async def _fetch(
        self, first: int, count: int, buffer: memoryview, moved: Moved | None = None
    ) -> tuple[memoryview, bytes]:
        """Return sealed segments and the hashes of all; unknown hashes are requested at the same time."""
        if self._verified is not None:
            return await self._fetch_segments(first, count, buffer, moved), self._verified
        async with all_or_first_error() as tasks:
            hashes = tasks.create_task(self.hashes())
            received = tasks.create_task(self._fetch_segments(first, count, buffer, moved))
        return received.result(), hashes.result()

    async def _fetch_segments(
        self, first: int, count: int, buffer: memoryview, moved: Moved | None
    ) -> memoryview:
        query = {**self._query, "first": str(first), "count": str(count)}
        target = buffer[: count * SEALED_SEGMENT]
        try:
            size = await self._urls.get(first, count, target, moved)
            if size is None:
                path = f"{self._path}/segments"
                answer = self._session.send("GET", path, query=query, target=target, moved=moved)
                size = len(await answer)
        except TooLargeError:
            raise IntegrityError("The broker returned more segments than were signed.") from None
        if size <= (count - 1) * SEALED_SEGMENT:
            raise IntegrityError("The broker returned fewer segments than were signed.")
        return buffer[:size]

    def _length_of(self, number: int) -> int:
        return max(0, min(RUN, self.length - number * RUN))


def open_run(
    opened: OpenPart, first: int, sealed: memoryview, hashes: bytes, target: memoryview
) -> int:
    """Open consecutive segments into `target`; return the size of their plaintext. Runs in the pool."""
    size = 0
    for offset, start in enumerate(range(0, len(sealed), SEALED_SEGMENT)):
        at = (first + offset) * HASH_SIZE
        size += opened.open_segment_into(
            target[offset * SEGMENT :],
            first + offset,
            sealed[start : start + SEALED_SEGMENT],
            hashes[at : at + HASH_SIZE],
        )
    return size


def path_of(container_id: bytes, part_id: bytes) -> str:
    return f"/v1/containers/{uuid.UUID(bytes=container_id)}/parts/{uuid.UUID(bytes=part_id)}"


async def whole(download: Download, progress: Progress) -> bytes:
    try:
        # `getvalue` returns these bytes without a copy.
        content = io.BytesIO(bytes(download.length))
    except MemoryError:
        raise TooLargeError("The content does not fit into memory: save it to a file.") from None
    with content.getbuffer() as view:

        def keep(number: int, plaintext: memoryview) -> None:
            view[number * RUN : number * RUN + len(plaintext)] = plaintext

        await download.run(keep, progress)
    return content.getvalue()


_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def checked_target(path: object) -> Path:
    """Return the argument `path` as an absolute path; `InvalidArgumentError` if no file can be there."""
    if not isinstance(path, os.PathLike):
        raise InvalidArgumentError(f"path must be a pathlib.Path, not {type(path).__name__}.")
    target = Path(path).absolute()
    try:
        is_folder, parent_exists = target.is_dir(), target.parent.is_dir()
        with suppress(FileNotFoundError, NotADirectoryError):
            target.lstat()  # raises for a name that no file can have
    except (OSError, ValueError) as error:
        raise _not_written(target, error) from None
    if is_folder:
        raise InvalidArgumentError(f"{target} is a folder: name the file to write.")
    if not parent_exists:
        raise InvalidArgumentError(f"The folder {target.parent} does not exist: create it first.")
    return target


async def save_small(target: Path, content: bytes) -> int:
    """Save a content that is in memory; return its length."""

    def write() -> int:
        partial = _Partial(target, Journal())
        try:
            partial.write(0, memoryview(content))
            partial.finish(len(content))
        finally:
            partial.close()
        return len(content)

    return await io_thread.in_pool(write)


async def save_large(session: Session, download: Download, target: Path, progress: Progress) -> int:
    """Download and save the runs that are missing, in constant memory; return the content's length."""

    def start() -> _Partial:
        names = (b"save", os.fsencode(target))
        return _Partial(target, Journal.open(session.state, session.journal_secret, *names))

    partial = await io_thread.in_pool(start)
    try:
        written = await io_thread.in_pool(partial.resume, download.opened)
        await download.run(partial.write, progress, written)
        await io_thread.in_pool(partial.finish, download.length)
    finally:
        await io_thread.in_pool(partial.close)
    return download.length


class _Partial:
    """The partial file, which only its owner can read. Several threads write to it until it is closed.

    If its journal is kept, so is the file when the save is cut off, and the next save of the same content
    to the same target resumes it.
    """

    def __init__(self, target: Path, journal: Journal) -> None:
        self._target, self._journal = target, journal
        self._path = target.with_name(f".{journal.name[:24]}.part")
        self._lock = threading.Lock()
        self._key = b""
        self._is_whole = False
        try:
            self._file = self._opened()
        except (OSError, ValueError) as error:
            journal.close()
            raise _not_written(target, error) from None

    def _opened(self) -> FileIO:
        """Open an earlier partial file only if it belongs to this user alone; else make a new one."""
        with suppress(OSError):
            return os.fdopen(open_own(self._path), "r+b", buffering=0)
        self._path.unlink(missing_ok=True)
        return os.fdopen(open_own(self._path, os.O_CREAT | os.O_EXCL), "r+b", buffering=0)

    def resume(self, opened: OpenPart) -> set[int]:
        """Return the numbers of the runs (`RUN` bytes each) of an earlier save that are still intact."""
        length = opened.length.to_bytes(8, "big")
        content = sha256(opened.container_id + opened.part.partId + opened.part.segments + length)
        recorded = self._journal.recorded(2)  # the content's identity, and the key of the checksums
        if recorded is None or recorded[0][0] != content:
            self._key = random_bytes(KEY_SIZE)
            self._journal.restart(content, self._key)
            # ext4 writes out a file that was ever truncated to nothing when it is closed: 0.5 s for 1 GiB.
            if os.fstat(self._file.fileno()).st_size:
                self._file.truncate(0)
            return set()
        (_, self._key), checksums = recorded
        with suppress(OSError):
            return {
                run
                for run, mac in checksums.items()
                if 0 <= run * RUN < opened.length and self._is_intact(run, mac, opened.length)
            }
        return set()

    def _is_intact(self, run: int, mac: bytes, length: int) -> bool:
        self._file.seek(run * RUN)
        found = self._file.read(min(RUN, length - run * RUN))
        return equal(checksum(self._key, run, found), mac)

    def write(self, run: int, plaintext: memoryview) -> None:
        """Write the plaintext of a run and record it in the journal; do nothing after `close`."""
        mac = checksum(self._key, run, plaintext) if self._journal.is_kept else b""
        with self._lock:
            if self._file.closed:
                return
            try:
                self._file.seek(run * RUN)
                written = 0
                while written < len(plaintext):
                    written += self._file.write(plaintext[written:])
            except OSError as error:
                kept = self._path if self._journal.is_kept else None
                raise _not_written(self._target, error, kept) from None
            self._journal.append_chunk(run, mac)

    def finish(self, length: int) -> None:
        """Rename the complete file to its target.

        If that replaces a file, sync first: a power cut leaves either the old file or the whole new one.
        A new file is not synced.
        """
        try:
            with self._lock:
                self._file.truncate(length)
                if self._target.exists():
                    os.fsync(self._file.fileno())
                self._file.close()
            self._path.replace(self._target)
        except OSError as error:
            raise _not_written(self._target, error) from None
        self._is_whole = True

    def close(self) -> None:
        """Close the file. An incomplete one is kept if a journal says what is in it."""
        with self._lock:
            self._file.close()
            if self._is_whole:
                # The partial file was renamed, so a journal that is left behind refers to nothing.
                with suppress(TrustStoreError):
                    self._journal.end(durably=False)
            else:
                self._journal.close()
                if not self._journal.is_kept:
                    with suppress(OSError):
                        self._path.unlink()


def _not_written(
    target: Path, error: OSError | ValueError, kept: Path | None = None
) -> BrokerError:
    """Return the error of a write; `kept` is the partial file that stays for the next save."""
    why = getattr(error, "strerror", None) or "the name is not valid"
    if getattr(error, "errno", None) in _NO_SPACE:
        message = (
            f"No room is left in {str(target.parent)!r} ({why}): free some, or save elsewhere."
        )
        if kept is not None:
            message += (
                f" The next save continues {str(kept)!r}: delete that file if you do not want it."
            )
        return DiskFullError(message)
    return InvalidArgumentError(f"The file {str(target)!r} cannot be written: {why}.")


_DROP_SECONDS: Final = 5.0


@dataclass(slots=True, repr=False)
class Upload:
    """A part being uploaded. `sent` has the segments' hashes of each chunk that the broker has.

    `query` names the group through which the user writes, if any.
    """

    part: NewPart
    query: Query
    nonce: bytes = b""
    journal: Journal = field(default_factory=Journal)
    sent: dict[int, bytes] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return path_of(self.part.container_id, self.part.part_id)


async def begin_upload(
    session: Session, content: Content, container_id: bytes | None, query: Query
) -> Upload:
    """Resume the unfinished upload of an unchanged file, or start a new upload.

    Without a container id the upload is for a new container, whose id is derived from the upload's nonce.
    """
    names = (b"upload", content.identity or b"", container_id or b"")
    journal = await io_thread.in_pool(Journal.open, session.state, session.journal_secret, *names)
    author, recorded = session.fingerprint, journal.recorded(4)
    try:
        if recorded is not None:
            (nonce, recorded_id, part_id, key), sent = recorded
            part = NewPart(recorded_id, Role.Content, author, part_id, key)
            found = Upload(part, query, nonce, journal)
            stored = await _stored_chunks(session, found, max(sent, default=-1) + 1)
            found.sent = {n: each for n, each in sent.items() if stored.get(n) == sha256(each)}
            if found.sent:
                return found
        nonce = random_bytes(HASH_SIZE)
        new_id = container_id or container_id_of(author, nonce).bytes
        part = NewPart.begin(new_id, Role.Content, author)
        journal.restart(nonce, part.container_id, part.part_id, part.key)
        return Upload(part, query, nonce, journal)
    except BaseException:
        journal.close()
        raise


async def _stored_chunks(session: Session, upload: Upload, end: int) -> dict[int, bytes]:
    """Return the hashes of the chunks before `end` that the broker says it has."""
    stored: dict[int, bytes] = {}
    for first in range(0, end, MAX_LISTED):
        query = {**upload.query, "first": str(first)} if first else upload.query
        found = await session.call("GET", f"{upload.path}/chunks", parts.Chunks, query=query)
        stored |= {chunk.index: chunk.hash for chunk in found.chunks}
    return stored


class _Chunk(NamedTuple):
    number: int
    sealed: memoryview
    hashes: bytes
    length: int


class Sealer:
    """Cut a content into sealed chunks, and collect the hashes of all segments."""

    def __init__(self, upload: Upload, content: Content, segments: Iterator[Segment]) -> None:
        self._upload, self._content, self._segments = upload, content, segments
        self._number = 0
        self._ended = False
        self.length: int = 0
        self.hashes: bytearray = bytearray()

    def next_chunk(self, buffer: memoryview) -> _Chunk | None:
        """Seal up to eight segments into the buffer; return None at the end. Runs in the pool."""
        self._skip_sent()
        if self._ended:
            return None
        number, size, length, hashes = self._number, 0, 0, bytearray()
        for index in range(number * CHUNK_SEGMENTS, (number + 1) * CHUNK_SEGMENTS):
            plaintext, last = next(self._segments)
            end = size + self._upload.part.seal_into(buffer[size:], index, last, plaintext)
            hashes += sha256(buffer[size:end])
            size, length = end, length + len(plaintext)
            if last:
                self._ended = True
                break
        self._add(length, hashes)
        return _Chunk(number, buffer[:size], bytes(hashes), length)

    def _skip_sent(self) -> None:
        """Pass over chunks that the broker has, without reading them."""
        first = self._number
        while not self._ended and (hashes := self._upload.sent.get(self._number)) is not None:
            length = _length_of(self._content, self._number)
            self._ended = (self._number + 1) * RUN >= (self._content.total or 0)
            self._add(length, hashes)
        if self._number > first and not self._ended:
            self._segments = self._content.segments(self._number * CHUNK_SEGMENTS)

    def _add(self, length: int, hashes: bytes | bytearray) -> None:
        self.hashes += hashes
        self.length += length
        self._number += 1


async def send(
    session: Session,
    upload: Upload,
    content: Content,
    segments: Iterator[Segment],
    progress: Progress,
) -> tuple[int, bytes]:
    """Seal and send the chunks that the broker lacks; return the content's length and segments' hashes."""
    sealer = Sealer(upload, content, segments)
    done = sum(_length_of(content, chunk) for chunk in upload.sent)
    meter = Meter(progress, content.total, done)
    chunks = None if content.total is None else -(-content.total // RUN) or 1
    urls = PresignedUrls(session, upload.path, upload.query, chunks, upload.sent)

    if content.total is not None and content.total - done > RUN:
        # Ask once for the quota, before sealing and sending more than it allows.
        await accounts.check_free(session, content.total - done)

    is_begun = False

    async def put(chunk: _Chunk, buffer: memoryview, buffers: Taken) -> None:
        nonlocal is_begun
        is_begun = True
        moved = meter.follow(chunk.number, chunk.length, len(chunk.sealed))
        if not await urls.put(chunk.number, chunk.sealed, chunk.hashes, moved):
            to = f"{upload.path}/chunks/{chunk.number}"
            await session.send("PUT", to, octets=chunk.sealed, moved=moved, query=upload.query)
        buffers.give_back(buffer)
        upload.journal.append_chunk(chunk.number, chunk.hashes)
        meter.complete(chunk.number, chunk.length)

    if content.waits:
        # Use no pool thread: the caller's code may wait for another transfer, which needs the pool.
        run = io_thread.in_own_thread
        memory = Buffers(CHUNKS_AT_ONCE + 1, MAX_CHUNK, kept_seconds=0)
    else:
        run, memory = io_thread.in_pool, session.requests.sealed
    try:
        with memory.transfer() as buffers:
            async with all_or_first_error() as sending:
                while True:
                    buffer = await buffers.take()
                    chunk = await run(sealer.next_chunk, buffer)
                    if chunk is None:
                        break
                    sending.create_task(put(chunk, buffer, buffers))
    except BaseException as error:
        # Drop an upload that cannot be resumed, unless the broker did not answer: dropping would fail too.
        if (
            is_begun
            and not upload.journal.is_kept
            and not isinstance(error, BrokerUnavailableError)
        ):
            # If this fails, the broker deletes the part after `upload_seconds`.
            with suppress(BrokerError, TimeoutError):
                async with asyncio.timeout(_DROP_SECONDS):
                    await session.send("DELETE", upload.path, query=upload.query)
        raise
    return sealer.length, bytes(sealer.hashes)


def _length_of(content: Content, chunk: int) -> int:
    return min(RUN, (content.total or 0) - chunk * RUN)
