"""Download large contents in runs of segments, and save contents to files.

Each segment is checked against the signed hashes before any of its bytes is used. Several runs are on the
wire while others are checked and opened in the thread pool. A file is written beside its target and renamed;
if the save of a large content is cut off, the next save to the same target verifies and keeps its runs.
Spec: docs/spec/container.md, section 6.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import threading
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

import msgspec

from scbroker.client.arguments import Progress
from scbroker.client.calls.tasks import Shared, all_or_first_error, io_thread
from scbroker.client.core.sealing import OpenPart
from scbroker.client.http.requests import Moved, Query, Taken
from scbroker.client.local_state import open_own
from scbroker.client.parts.transfers import Journal, Meter, PresignedUrls
from scbroker.client.users.session import Session
from scbroker.crypto.seal import KEY_SIZE, checksum, random_bytes
from scbroker.crypto.verify import HASH_SIZE, equal, sha256
from scbroker.errors import (
    BrokerError,
    DiskFullError,
    IntegrityError,
    InvalidArgumentError,
    TooLargeError,
    TrustStoreError,
)
from scbroker.records import container_record as records
from scbroker.records.container_record import SEALED_SEGMENT, SEGMENT
from scbroker.wire.parts import CHUNK_SEGMENTS

Sink = Callable[[int, memoryview], None]
"""Takes the number of a run and its plaintext, whose buffer is reused after the call."""
RUN: Final = CHUNK_SEGMENTS * SEGMENT


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
        self._spare: memoryview | None = None
        """A free buffer for the sealed segments of the next call of `segments`; None while a call uses it."""

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
        with requests.sealed.transfer() as sealed, requests.plain.transfer() as plain:
            await self._run(sink, progress, skip, sealed, plain)

    async def _run(
        self, sink: Sink, progress: Progress, skip: Collection[int], sealed: Taken, plain: Taken
    ) -> None:
        meter = Meter(progress, self.length, sum(self._length_of(number) for number in skip))

        async def one(number: int, buffer: memoryview) -> None:
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

        async with all_or_first_error() as fetching:
            for number in range(self._runs):
                if number not in skip:
                    fetching.create_task(one(number, await sealed.take()))

    async def segments(self, first: int, count: int) -> list[memoryview]:
        """Return the plaintexts of some segments, at most as many as a run has."""
        # Take the spare buffer: concurrent calls have one each. After an error it is not put back, because a
        # thread may still read from it.
        buffer, self._spare = self._spare, None
        if buffer is None or len(buffer) < count * SEALED_SEGMENT:
            buffer = memoryview(bytearray(count * SEALED_SEGMENT))
        received, hashes = await self._fetch(first, count, buffer)

        def opened(number: int) -> memoryview:
            sealed = received[number * SEALED_SEGMENT : (number + 1) * SEALED_SEGMENT]
            target = memoryview(bytearray(SEGMENT))
            return target[: open_run(self.opened, first + number, sealed, hashes, target)]

        # One thread for each segment: opening them takes longer than fetching them.
        plain = await asyncio.gather(*(io_thread.in_pool(opened, n) for n in range(count)))
        await self._keep(first, received)
        self._spare = buffer
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


class _Start(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The first entry of a save's journal: the content's identity, and the key of the checksums."""

    content: bytes
    key: bytes


class _Saved(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The entry of a written run, with its checksum."""

    run: int
    mac: bytes


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
        items = self._journal.items(_Start, _Saved)
        if items is None or items[0].content != content:
            self._key = random_bytes(KEY_SIZE)
            self._journal.restart(_Start(content, self._key))
            # ext4 writes out a file that was ever truncated to nothing when it is closed: 0.5 s for 1 GiB.
            if os.fstat(self._file.fileno()).st_size:
                self._file.truncate(0)
            return set()
        self._key = items[0].key
        with suppress(OSError):
            return {
                saved.run
                for saved in items[1]
                if 0 <= saved.run * RUN < opened.length and self._is_intact(saved, opened.length)
            }
        return set()

    def _is_intact(self, saved: _Saved, length: int) -> bool:
        self._file.seek(saved.run * RUN)
        found = self._file.read(min(RUN, length - saved.run * RUN))
        return equal(checksum(self._key, saved.run, found), saved.mac)

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
            self._journal.append_item(_Saved(run, mac))

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
