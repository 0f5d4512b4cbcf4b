"""Saving a content to a file: beside its place first, and there all at once when it is whole.

What was saved of a large content when it was cut off is checked and kept the next time.
"""

from __future__ import annotations

import os
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import msgspec

from scbroker.client.content import Progress
from scbroker.client.downloads import RUN, Download
from scbroker.client.io_thread import io_thread
from scbroker.client.journal import Journal
from scbroker.client.sealing import OpenPart
from scbroker.client.session import Session
from scbroker.crypto.seal import KEY_SIZE, checksum, random_bytes
from scbroker.crypto.verify import equal, sha256
from scbroker.errors import InvalidArgumentError

_MAC: Final = 16


class _Saved(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A run that was written, and its checksum."""

    run: int
    mac: bytes


def checked_target(path: object) -> Path:
    """Where to save; `InvalidArgumentError` for what is no place for a file."""
    if not isinstance(path, os.PathLike):
        raise InvalidArgumentError("path is the name of the file to write, as pathlib.Path.")
    target = Path(path).absolute()
    if target.is_dir():
        raise InvalidArgumentError(f"{target} is a folder: name the file to write.")
    if not target.parent.is_dir():
        raise InvalidArgumentError(f"There is no folder {target.parent}: make it first.")
    return target


async def save_small(target: Path, content: bytes) -> int:
    """Writes a content that is there already."""

    def write() -> int:
        with _Partial.begin(target, None, b"") as partial:
            partial.keep(0, memoryview(content))
            partial.finish(len(content))
        return len(content)

    return await io_thread.in_pool(write)


async def save_large(session: Session, opened: OpenPart, target: Path, progress: Progress) -> int:
    """Fetches and writes what is not there yet, in constant memory; gives the content's length."""
    secret = session.keys.signing[0].derive("unfinished-transfers")
    names = (b"save", opened.container_id, opened.part.partId, os.fsencode(target))
    journal = await io_thread.in_pool(Journal.open, session.folder, secret, *names)
    partial = await io_thread.in_pool(_Partial.begin, target, journal, opened.part.partId)
    with partial:
        there = await io_thread.in_pool(partial.verified, opened.length)
        download = await Download.begin(session, opened)
        await download.run(partial.keep, progress, there)
        await io_thread.in_pool(partial.finish, download.length)
    return opened.length


class _Partial:
    """The file beside its place, readable by its owner alone."""

    def __init__(self, target: Path, path: Path, descriptor: int, journal: Journal | None) -> None:
        self._target, self._path, self._journal = target, path, journal
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        self._lock = threading.Lock()
        self._key = b""

    @classmethod
    def begin(cls, target: Path, journal: Journal | None, part_id: bytes) -> Self:
        """With a journal, what bears its name goes on; without one nothing else is in the way."""
        mark = sha256(part_id + os.fsencode(target)) if journal else uuid.uuid4().bytes
        path = target.with_name(f".{mark.hex()[:24]}.part")
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(path, flags | (0 if journal else os.O_EXCL), 0o600)
        except OSError as error:
            if journal is not None:
                journal.close()
            raise _not_written(target, error) from None
        return cls(target, path, descriptor, journal)

    def verified(self, length: int) -> set[int]:
        """The runs that are there as they were written."""
        journal = self._journal
        if journal is None:
            return set()
        entries = _decoded(journal.entries)
        if entries is None:
            journal.restart()
            self._key = random_bytes(KEY_SIZE)
            journal.append(self._key)
            return set()
        self._key = journal.entries[0]
        return {
            saved.run
            for saved in entries
            if 0 <= saved.run * RUN < length and self._is_there(saved, length)
        }

    def _is_there(self, saved: _Saved, length: int) -> bool:
        self._file.seek(saved.run * RUN)
        found = self._file.read(min(RUN, length - saved.run * RUN))
        return equal(checksum(self._key, saved.run, found), saved.mac)

    def keep(self, run: int, plaintext: memoryview) -> None:
        """Writes the plaintext of a run, and remembers it."""
        with self._lock:
            try:
                self._file.seek(run * RUN)
                written = 0
                while written < len(plaintext):
                    written += self._file.write(plaintext[written:])
            except OSError as error:
                raise _not_written(self._target, error) from None
            if self._journal is not None:
                mac = checksum(self._key, run, plaintext)
                self._journal.append(msgspec.msgpack.encode(_Saved(run, mac)))

    def finish(self, length: int) -> None:
        """Puts the whole file in its place."""
        try:
            self._file.truncate(length)
            self._file.close()
            self._path.replace(self._target)
        except OSError as error:
            raise _not_written(self._target, error) from None
        if self._journal is not None:
            self._journal.end()
            self._journal = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._file.close()
        if self._journal is not None:
            self._journal.close()
        elif error is not None:
            with suppress(OSError):
                self._path.unlink()


def _decoded(entries: list[bytes]) -> list[_Saved] | None:
    """What a journal says was written; None where it is none of this program's."""
    if not entries or len(entries[0]) != KEY_SIZE:
        return None
    try:
        return [msgspec.msgpack.decode(entry, type=_Saved) for entry in entries[1:]]
    except msgspec.DecodeError:
        return None


def _not_written(target: Path, error: OSError) -> InvalidArgumentError:
    return InvalidArgumentError(f"The file {target} cannot be written: {error.strerror}.")
