"""Find the files that `put` stores, make and read the headers of their containers, and write files.

A header is a JSON object: `name` is a relative path with slashes, `modified` the file's time in UTC with
microseconds, and `mediaType` is guessed from the name.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import shlex
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, BinaryIO, Final, NamedTuple, Self

from scbroker import errors
from scbroker.desk.names import Container, header_of, header_with
from scbroker.desk.paths import OWN, container_name, relative_path
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

    def is_in(self, container: Container) -> bool:
        """Return whether a container has this file, by size and time."""
        if self.size is None or self.size != container.length:
            return False
        return is_same_time(self.modified, modified_of(container))


def modified_of(container: Container) -> dt.datetime | None:
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


_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_FOLDER: Final = (errno.ELOOP, errno.ENOTDIR)
_HAS_DIR_FD: Final = os.open in os.supports_dir_fd  # not on Windows
_HAS_UTIME_FD: Final = os.utime in os.supports_fd  # not on Windows
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def write_own(path: Path, content: bytes) -> None:
    """Write a file that its owner alone can read, in a folder that nobody else can write."""
    with translated(path):
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, _NEW, 0o600), "wb") as file:
            file.write(content)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Create a file for this user alone, whatever the umask; remove it again after an error.

    Raises `AlreadyExistsError` if the file exists.
    """
    with translated(path):
        descriptor = os.open(path, _NEW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            with translated(path):
                file.flush()
                os.fsync(descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


class Folder:
    """A folder below which files are written and removed by relative paths.

    Each operation opens the folders on the way one by one without following links (on Windows it checks
    them), so that a link that somebody plants meanwhile leads nowhere. The folder itself may be a link.
    Errors of the operating system become errors that name the file.
    """

    def __init__(self, path: Path) -> None:
        self.path: Path = path.absolute()
        self._root: int | None = None
        with translated(self.path):
            if _HAS_DIR_FD:
                self._root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            elif not self.path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "it is not a folder")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._root is not None:
            os.close(self._root)
            self._root = None

    def status(self, path: PurePosixPath) -> os.stat_result | None:
        """Return the status of a file or link; None if nothing has this path."""
        try:
            with self._parent(path) as (name, folder):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.ENOENT, *_NO_FOLDER):
                return None
            with translated(self.path / path):
                raise

    def open(self, path: PurePosixPath) -> BinaryIO:
        """Open a regular file for reading."""
        flags = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with translated(self.path / path), self._parent(path) as (name, folder):
            descriptor = os.open(name, flags, dir_fd=folder)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "it is not a regular file")
            return os.fdopen(descriptor, "rb")

    def told_apart(self, paths: Sequence[PurePosixPath]) -> set[PurePosixPath]:
        """Return those of these paths that the file system does not take for an earlier one of them.

        Only files of these names can tell: they are made in a folder of their own, and removed.
        """
        if len(paths) < 2:
            return set(paths)
        import tempfile

        kept = set()
        with (
            translated(self.path),
            tempfile.TemporaryDirectory(dir=self.path, prefix=f"{OWN}-") as name,
            Folder(Path(name)) as own,
        ):
            for path in paths:
                with contextlib.suppress(errors.AlreadyExistsError):
                    own.write(b"", path, replace=False, sync=False)
                    kept.add(path)
        return kept

    def place(
        self,
        source: Path,
        path: PurePosixPath,
        *,
        replace: bool,
        modified: dt.datetime | None = None,
        sync: bool = True,
    ) -> os.stat_result:
        """Move a complete file of the same file system to a path in one step; return its status.

        The file is synced and gets the time `modified` first. A crash leaves the old file or the new one;
        without `sync`, a power cut may leave an empty file.
        Without `replace`, an existing file is an `AlreadyExistsError`, also one that is made meanwhile.
        """
        with translated(self.path / path):
            own = _finished(source, modified, sync=sync)
            with self._parent(path, make=True) as (name, folder):
                if replace:
                    os.replace(source, name, dst_dir_fd=folder)
                else:
                    _move_new(source, name, folder)
                if sync:
                    _sync_folder(folder)
                state = os.stat(name, dir_fd=folder, follow_symlinks=False)
                is_same = os.path.samestat(own, state) and own.st_uid == state.st_uid
                if not is_same or not stat.S_ISREG(
                    state.st_mode
                ):  # inode numbers are reused: check the type as well
                    os.unlink(name, dir_fd=folder)
                    raise OSError(errno.EPERM, "somebody has put another file in its place")
                return state

    def write(
        self,
        content: bytes,
        path: PurePosixPath,
        *,
        replace: bool,
        modified: dt.datetime | None = None,
        sync: bool = True,
    ) -> os.stat_result:
        """Write a file that is readable by its owner alone, as by `place`; return its status."""
        import tempfile

        temporary = None
        try:
            with translated(self.path / path):
                descriptor, temporary = tempfile.mkstemp(dir=self.path, prefix=f"{OWN}-")
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
            return self.place(Path(temporary), path, replace=replace, modified=modified, sync=sync)
        finally:
            if temporary is not None:
                with contextlib.suppress(OSError):  # already moved into place
                    Path(temporary).unlink()

    def move(self, path: PurePosixPath, target: PurePosixPath) -> None:
        """Rename a file. An existing target is an `AlreadyExistsError`."""
        with (
            translated(self.path / target),
            self._parent(path) as (name, folder),
            self._parent(target, make=True) as (new_name, new_folder),
        ):
            _move_new(name, new_name, new_folder, folder)
            _sync_folder(new_folder)

    def remove(self, path: PurePosixPath) -> None:
        """Remove a file, if it exists, and the folders on the way to it that are empty then."""
        with (
            translated(self.path / path),
            contextlib.suppress(FileNotFoundError),
            self._parent(path) as (name, folder),
        ):
            os.unlink(name, dir_fd=folder)
        self.remove_empty(path.parent)

    def remove_empty(self, path: PurePosixPath) -> None:
        """Remove a folder and those above it, up to one that is not empty."""
        with contextlib.suppress(OSError):
            while path.parts:
                with self._parent(path) as (name, folder):
                    os.rmdir(name, dir_fd=folder)
                path = path.parent

    @contextmanager
    def _parent(
        self, path: PurePosixPath, *, make: bool = False
    ) -> Iterator[tuple[str, int | None]]:
        """Yield the name to pass to a function of `os`, and the descriptor of the folder that it is in."""
        *above, name = path.parts
        if self._root is None:
            yield str(self._checked(above, make=make) / name), None
            return
        folder = os.dup(self._root)
        try:
            for each in above:
                inner = _open_inner(each, folder, make=make)
                os.close(folder)
                folder = inner
            yield name, folder
        finally:
            os.close(folder)

    def _checked(self, parts: list[str], *, make: bool) -> Path:
        """Return a folder by its path, after a check that no part of it is a link."""
        found = self.path
        for each in parts:
            found = found / each
            if make:
                found.mkdir(mode=0o700, exist_ok=True)
            state = found.lstat()
            reparse_tag: int = getattr(state, "st_reparse_tag", 0)  # a junction of Windows has one
            if not stat.S_ISDIR(state.st_mode) or reparse_tag:
                raise OSError(errno.ELOOP, f"{found} is a link or not a folder")
        return found


def _open_inner(name: str, folder: int, *, make: bool) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=folder)
        _sync_folder(folder)
    return os.open(name, flags, dir_fd=folder)


def _move_new(
    source: str | Path, name: str, folder: int | None, source_folder: int | None = None
) -> None:
    """Rename a file; FileExistsError if the new name exists."""
    if os.name == "nt":
        Path(source).rename(name)  # on Windows this fails if the name exists
        return
    try:
        os.link(source, name, src_dir_fd=source_folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        # A file system without hard links, such as FAT: a file that is made between check and rename is lost.
        with contextlib.suppress(FileNotFoundError):
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(source, name, src_dir_fd=source_folder, dst_dir_fd=folder)
    else:
        os.unlink(source, dir_fd=source_folder)


def _finished(path: Path, modified: dt.datetime | None, *, sync: bool) -> os.stat_result:
    """Set a written file's modification time, and sync it; return its status.

    Anybody who can write the folder may have put a link in its place, which is refused.
    """
    flags = os.O_RDWR | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "r+b") as file:
        state = os.fstat(file.fileno())
        if os.name != "nt" and (state.st_uid != os.geteuid() or state.st_nlink != 1):
            raise OSError(errno.EPERM, "somebody has put another file in its place")
        if modified is not None:
            # Whole numbers: a float would be off by a microsecond.
            time = (modified - _EPOCH) // dt.timedelta(microseconds=1) * 1000
            at = file.fileno() if _HAS_UTIME_FD else path
            with contextlib.suppress(OverflowError, OSError):  # a time that the system cannot store
                os.utime(at, ns=(time, time))
        if sync:
            os.fsync(file.fileno())
    return state


def _sync_folder(folder: int | None) -> None:
    if folder is not None:
        with contextlib.suppress(OSError):  # some file systems cannot sync folders
            os.fsync(folder)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn the operating system's errors in the block into errors of the library."""
    try:
        yield
    except FileExistsError:
        raise errors.AlreadyExistsError(f"{str(path)!r} exists already.") from None
    except FileNotFoundError:
        raise errors.NotFoundError(f"{str(path)!r} does not exist.") from None
    except OSError as error:
        why = error.strerror or "the name is not valid"
        if error.errno in _NO_SPACE:
            raise errors.DiskFullError(
                f"No room is left in {str(path.parent)!r} for {path.name!r} ({why}): free some, and "
                "repeat the command."
            ) from None
        if error.errno in _NO_FOLDER:
            why = "a part of the path is a symbolic link or not a folder; links are not followed"
        raise errors.InvalidArgumentError(f"{str(path)!r} cannot be used: {why}.") from None
