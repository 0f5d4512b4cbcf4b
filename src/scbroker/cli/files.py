"""Find the files that `put` stores, and make and read the headers of their containers.

A header is a JSON object: `name` is a relative path with slashes, `modified` the file's time in UTC with
microseconds, and `mediaType` is guessed from the name.
"""

from __future__ import annotations

import datetime as dt
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple

import scbroker
from scbroker import errors
from scbroker.desk.names import header_of, header_with
from scbroker.desk.paths import container_name, relative_path
from scbroker.folders import regular
from scbroker.spelling import without_invisible

STREAM: Final = "-"
"""The argument that means standard input or output."""
Tell = Callable[[str], None]
Fail = Callable[[str, errors.BrokerError], None]


class File(NamedTuple):
    """A file to store. `path` is None for standard input, whose size is not known."""

    path: Path | None
    name: str
    size: int | None
    modified: dt.datetime

    def header(self, old: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the header of its container; fields of an earlier header that are not the file's stay."""
        modified = self.modified.isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {**header_with(self.name, old), "modified": modified}

    def is_in(self, container: scbroker.Container[Any]) -> bool:
        """Return whether a container has this file, by size and time."""
        if self.size is None or self.size != container.length:
            return False
        return is_same_time(self.modified, modified_of(container))


def modified_of(container: scbroker.Container[Any]) -> dt.datetime | None:
    """Return the time of a container's file; None if the header has no valid time."""
    text = (header_of(container) or {}).get("modified")
    try:
        time = dt.datetime.fromisoformat(text) if isinstance(text, str) else None
        return None if time is None or time.tzinfo is None else time.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return None


def time_of(state: os.stat_result) -> dt.datetime:
    """Return a file's modification time, to the microsecond."""
    return time_at(state.st_mtime_ns // 1000)


def time_at(microseconds: int) -> dt.datetime:
    """Return the time so long after 1970, or before it; the nearest one of the years 1 to 9999."""
    try:
        return _EPOCH + dt.timedelta(microseconds=microseconds)
    except OverflowError:
        return _LAST if microseconds > 0 else _FIRST


def is_same_time(one: dt.datetime, other: dt.datetime | None) -> bool:
    """Return whether two times of a file are the same, to the coarser precision of the two.

    A page gives milliseconds, a ZIP archive or SFTP seconds, and FAT every other second.
    """
    if other is None:
        return False
    precision = max(_precision(one), _precision(other))
    return abs(one - other) < precision


def _precision(time: dt.datetime) -> dt.timedelta:
    since = time - _EPOCH
    return next(each for each in _PRECISIONS if not since % each)


_PRECISIONS: Final = tuple(
    dt.timedelta(microseconds=each) for each in (2_000_000, 1_000_000, 1_000, 1)
)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST: Final = dt.datetime.min.replace(tzinfo=dt.UTC)
_LAST: Final = dt.datetime.max.replace(tzinfo=dt.UTC)


def find(
    given: list[str], name: str | None, *, recursive: bool, skipped: Tell, failed: Fail
) -> list[File]:
    """Return the files that the arguments of `put` mean, with the names of their containers.

    Links and special files in folders are `skipped`; what cannot be read or named there is `failed`, also
    the second of two names that differ in Unicode's composition or in invisible characters alone. Raises a
    `BrokerError` for an argument that cannot be stored, or that would get the name of another one.
    """
    if name is not None and len(given) > 1:
        raise errors.InvalidArgumentError(
            "--name is for one file or folder: store them one by one."
        )
    found: dict[str, File] = {}
    for text in given:
        for file in _files(text, name, recursive, skipped, failed):
            other = found.setdefault(without_invisible(file.name), file)
            if other is file:
                continue
            if other.path and file.path and other.path.samefile(file.path):
                continue  # as after overlapping shell patterns
            # The message escapes the paths, because they look alike.
            twins = f"{str(other.path)!a} and {str(file.path)!a} would both be named"
            error = errors.InvalidArgumentError(
                f"{twins} {file.name!r}: store one of them with --name."
            )
            if file.path == Path(text):
                raise error
            failed(str(file.path), error)
    return list(found.values())


def _files(
    text: str, name: str | None, recursive: bool, skipped: Tell, failed: Fail
) -> Iterator[File]:
    if text == STREAM:
        if name is None:
            raise errors.InvalidArgumentError("Standard input has no name: pass one with --name.")
        now = dt.datetime.now(dt.UTC)
        yield File(None, str(relative_path(name)), None, now)
        return
    if not text:  # `put -r "$UNSET"` would otherwise store the current folder
        raise errors.InvalidArgumentError("FILE is empty: name a file or a folder.")
    path = Path(text)
    try:
        state = path.stat()
    except FileNotFoundError:
        raise errors.NotFoundError(f"The file {text!r} does not exist.") from None
    except (OSError, ValueError) as error:
        raise _unreadable(repr(text), error) from None
    if stat.S_ISREG(state.st_mode):
        named = container_name(PurePath(path.name)) if name is None else str(relative_path(name))
        yield File(path, named, state.st_size, time_of(state))
    elif not stat.S_ISDIR(state.st_mode):
        raise errors.InvalidArgumentError(
            f"{text!r} is not a regular file: `scbroker put - --name NAME <{shlex.quote(text)}` stores what "
            "it gives."
        )
    elif not recursive:
        raise errors.InvalidArgumentError(
            f"{text!r} is a folder: pass --recursive to store the files in it."
        )
    else:
        # Name the folder as cp and rsync do: a link by its own name, `.` and `..` by that of their target.
        if name is None:
            last = path.resolve().name if path.name in ("", "..") else path.name
            name = container_name(PurePath(last))
        yield from _walk(path, str(relative_path(name.rstrip("/"))), skipped, failed)


def _walk(folder: Path, top: str, skipped: Tell, failed: Fail) -> Iterator[File]:
    """Yield the files of a folder and of those below it, without following links."""

    def unreadable(error: OSError) -> None:
        failed(str(error.filename), _unreadable("The folder", error))

    def named(path: Path) -> str | None:
        try:
            return container_name(PurePath(top, path.relative_to(folder)))
        except errors.InvalidArgumentError as error:
            failed(str(path), error)
            return None

    for parent, folders, files in os.walk(folder, onerror=unreadable):
        for each in list(folders):
            if (path := Path(parent, each)).is_symlink():
                skipped(f"{str(path)!r} is skipped: it is a symbolic link.")
            elif named(path) is None:
                folders.remove(each)
        folders.sort()
        for each in sorted(files):
            path = Path(parent, each)
            try:
                state = path.lstat()
            except OSError as error:
                failed(str(path), _unreadable("The file", error))
                continue
            if not stat.S_ISREG(state.st_mode):
                kind = "a symbolic link" if stat.S_ISLNK(state.st_mode) else "not a regular file"
                skipped(f"{str(path)!r} is skipped: it is {kind}.")
            elif (name := named(path)) is not None:
                yield File(path, name, state.st_size, time_of(state))


def read_small(path: Path, most: int) -> bytes | Path:
    """Return the content of a file of 1 to `most` bytes; the path of any other, as of a file of the system.

    Raises `InvalidArgumentError` if it cannot be read, or is written to meanwhile.
    """
    try:
        with open(path, "rb", buffering=0, opener=regular) as opened:
            before = os.fstat(opened.fileno())
            if not 0 < before.st_size <= most:
                return path
            content = opened.read(most + 1)
            after = os.fstat(opened.fileno())
    except OSError as error:
        raise _unreadable("The file", error) from None
    if len(content) != before.st_size or before.st_mtime_ns != after.st_mtime_ns:
        raise errors.InvalidArgumentError("The file changed while it was read: repeat the command.")
    return content


def _unreadable(what: str, error: OSError | ValueError) -> errors.BrokerError:
    why = getattr(error, "strerror", None) or "the name is not valid"
    return errors.InvalidArgumentError(f"{what} cannot be read: {why}.")
