"""Keep the record of a mirror's files in the folder itself, and lock the folder for one mirror.

The record is a file of JSON lines. Each line replaces what an earlier one says of its path, so that a change
costs one line. A line is synced before the change that it announces.
"""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal, Self

import filelock
import msgspec
from msgspec import Meta

from scbroker import errors
from scbroker.cli.files import translated
from scbroker.cli.mirror.plan import OWN_FOLDER, Stamp
from scbroker.desk.paths import relative_path

if sys.platform == "linux":
    import fcntl

_PROC: Final = Path("/proc/self/fd")
_FIRST_DESCRIPTOR: Final = 200
INCOMING: Final = OWN_FOLDER / "incoming"
"""The folder of downloads."""
_LONGEST_PATH: Final = 2048
"""Maximum bytes of a path: the longest name, with what the mirror adds to paths that collide."""
_SPARE: Final = 10_000
"""Superseded lines, beyond one for each file, above which the record is rewritten."""


class Selection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The user of a mirror's folder, its broker and its containers."""

    format: Literal[1] = 1
    user: uuid.UUID
    broker: str
    name: str
    type: str | None
    everyone: bool

    def __str__(self) -> str:
        names = f"all below {self.name!r}" if self.name else "all"
        types = "" if self.type is None else f" of type {self.type!r}"
        everyone = ", also those of strangers," if self.everyone else ""
        return f"{names}{types}{everyone} of user {self.user} at {self.broker}"


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    stamps: Annotated[tuple[Stamp, ...], Meta(max_length=4)]


class State:
    """The record of one mirror, whose folder it locks. Raises `InvalidArgumentError` for another mirror's."""

    def __init__(self, folder: Path, selection: Selection) -> None:
        self.files: dict[PurePosixPath, tuple[Stamp, ...]] = {}
        self._selection = selection
        self._lines: list[bytes] = []
        self._written = 0
        self._file = -1
        self._held = contextlib.ExitStack()
        with translated(folder / OWN_FOLDER):
            self._own = self._hold(folder / OWN_FOLDER)
            self.incoming: Path = self._hold(self._own / INCOMING.name)
            self._lock = filelock.FileLock(self._own / "lock", timeout=0, mode=0o600)
        self._path = self._own / "files"
        try:
            self._lock.acquire()
        except filelock.Timeout:
            self._held.close()
            raise errors.ConflictError(
                f"Another `scbroker mirror` keeps {str(folder)!r} up to date: end it first."
            ) from None
        try:
            with translated(self._path):
                self._load(folder)
                self._rewrite()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.sync()
        finally:
            self.close()

    def close(self) -> None:
        """Close the record and release the folder."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._lock.release()
        self._held.close()

    def _hold(self, folder: Path) -> Path:
        """Create the mirror's own folder and keep it open; return a path that always leads to this folder.

        Others who can write the mirrored folder could replace this one by a folder with links in it.
        """
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if os.name == "nt":
            return folder
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self._held.callback(os.close, opened)
        state = os.fstat(opened)
        if state.st_uid != os.geteuid() or state.st_mode & 0o022:
            raise errors.InvalidArgumentError(
                f"{str(folder)!r} belongs to another user, or others can write it: check it, then chmod 700 "
                "it or move it away."
            )
        os.fchmod(opened, 0o700)
        if not _PROC.exists():
            if folder.parent.stat().st_mode & 0o022:
                raise errors.InvalidArgumentError(
                    f"Others can write the folder of the mirror: run chmod go-w {folder.parent}."
                )
            return folder
        # Use a fixed descriptor number: it is in the path /proc/self/fd/N, and downloads resume by path.
        held = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
        self._held.callback(os.close, held)
        return _PROC / str(held)

    def put(self, path: PurePosixPath, stamps: tuple[Stamp, ...]) -> None:
        """Record which contents the mirror may have written to a path; an empty tuple removes the path."""
        self._set(path, stamps)
        self._lines.append(_line(path, stamps))

    def _set(self, path: PurePosixPath, stamps: tuple[Stamp, ...]) -> None:
        if stamps:
            self.files[path] = stamps
        else:
            self.files.pop(path, None)

    def sync(self) -> None:
        """Make the record durable. On a full disk, raise `DiskFullError`; the next call tries again."""
        if not self._lines:
            return
        with translated(self._path):
            end = os.fstat(self._file).st_size
            try:
                _write(self._file, b"".join(self._lines))
                os.fsync(self._file)
            except OSError:
                os.ftruncate(self._file, end)  # leave no partial line
                raise
            self._written += len(self._lines)
            self._lines.clear()
            if self._written > 2 * len(self.files) + _SPARE:
                self._rewrite()

    def _load(self, folder: Path) -> None:
        decode = msgspec.json.Decoder(_Line).decode
        remove = (
            f"remove {str(folder / OWN_FOLDER)!r}, and the mirror changes none of the files that it has "
            "written so far"
        )
        try:
            # Path.open has no opener.
            with open(self._path, "rb", opener=_no_follow) as file:
                found = msgspec.json.decode(file.readline(), type=Selection)
                if found != self._selection:
                    raise errors.InvalidArgumentError(
                        f"{str(folder)!r} mirrors other containers ({found}): choose another folder, or "
                        f"{remove}."
                    )
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # a crash cut off the last line before its change started
                    said = decode(line)
                    try:
                        path = relative_path(said.path, _LONGEST_PATH)
                    except errors.InvalidArgumentError as error:
                        raise ValueError(error.message) from None
                    self._set(path, said.stamps)
        except FileNotFoundError:
            pass
        except ValueError as error:
            raise errors.InvalidArgumentError(
                f"The record of the mirror in {str(folder)!r} is damaged ({error}): {remove}."
            ) from None

    def _rewrite(self) -> None:
        """Write the record without superseded lines; replace the old one in one step."""
        temporary = self._path.with_name("files.new")
        temporary.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        file = os.open(temporary, flags, 0o600)
        try:
            _write(file, msgspec.json.encode(self._selection) + b"\n")
            for path, stamps in self.files.items():
                _write(file, _line(path, stamps))
            os.fsync(file)
            temporary.replace(self._path)
        except BaseException:
            os.close(file)
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file, self._written = file, len(self.files)


def _no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _line(path: PurePosixPath, stamps: tuple[Stamp, ...]) -> bytes:
    return msgspec.json.encode(_Line(str(path), stamps)) + b"\n"


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
