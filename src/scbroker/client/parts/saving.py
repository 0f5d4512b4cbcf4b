"""Save a content to a file: write a partial file beside the target, then rename it.

If the save of a large content is cut off, the next save to the same target verifies and keeps its runs.
"""

import errno
import os
import threading
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

import msgspec

from scbroker.client.calls.io_thread import io_thread
from scbroker.client.core.sealing import OpenPart
from scbroker.client.own_files import open_own
from scbroker.client.parts.content import Progress
from scbroker.client.parts.downloads import RUN, Download
from scbroker.client.parts.journal import Journal
from scbroker.client.users.session import Session
from scbroker.crypto.seal import KEY_SIZE, checksum, random_bytes
from scbroker.crypto.verify import equal, sha256
from scbroker.errors import BrokerError, DiskFullError, InvalidArgumentError, TrustStoreError

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Start(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The first entry of a save's journal: which content is saved, and the key of the checksums."""

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
        return _Partial(target, Journal.open(session.folder, session.journal_secret, *names))

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
        """Return the runs of this content that an earlier save wrote and that have not changed since."""
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
                # The runs that it records were renamed away: a journal that stays does no harm.
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
