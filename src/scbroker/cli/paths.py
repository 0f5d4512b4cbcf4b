"""Write files below a folder: no symbolic link below it is followed."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, Self

from scbroker import errors
from scbroker.desk.paths import OWN

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
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
