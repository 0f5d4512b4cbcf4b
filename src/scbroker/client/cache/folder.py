"""Keep sealed files in a folder of bounded size: the least recently used files are evicted first.

Files that no program requested by id, such as copies of listed containers, are evicted before all others:
other users decide how many these are. Their modification times are set back twenty years until a program
requests them.

A user has one subfolder for each broker. Names are keyed hashes, and contents are sealed under a key derived
from the KeyRing, so that the folder reveals only number, sizes and times of files. A file that was changed,
moved or written by another version does not open: it is removed and counts as missing.

Files are renamed into place and read whole. So neither a crash nor another process that writes or evicts at
the same time leaves half a file, and no lock is needed: at worst a file is missing. Files are not synced: a
power cut may damage some, which then count as missing as well.

Rejected: diskcache stores pickles and plaintext keys; SQLite parses its file before anything in it is
verified, and a user's entries cannot be removed while another process is reading.
"""

import errno
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from scbroker.client.local_state import make_own_folder, open_own, temporary_file
from scbroker.crypto.seal import Octets, seal, unseal
from scbroker.crypto.verify import keyed_hash, label
from scbroker.errors import DecryptionError, InvalidArgumentError
from scbroker.keys import KeyRing

SMALLEST: Final = 16 * 1_048_576
"""Bytes."""
_BLOCK: Final = 4096
"""Block size in bytes: a file is counted in whole blocks, as it takes them on disk."""
_FORMAT: Final = b"\x01"
_NAME: Final = 32
_PREFIX: Final = "scbroker-"
_FOLDER: Final = re.compile(_PREFIX + "[0-9a-f]{32}")
"""Names of the cache's subfolders. The prefix tells them from folders that other programs name by a hash
alone."""
_FILE: Final = re.compile(r"[0-9a-f]{32}(\.\w+)?")
"""Names of cache files, and of temporary files that a crash left in the subfolders. No other file is
removed."""
_UNASKED: Final = 20 * 365 * 86_400 * 1_000_000_000
"""Nanoseconds by which the modification times of files that no program has requested are set back."""
_LONGEST: Final = 40 * 1_048_576
"""Size in bytes of the largest file. The hashes of the largest content take 32 MiB."""
_PARTS: Final = 16
"""A process may write 1/16 of the folder's bound before it scans the folder again."""
_LARGEST: Final = 4
"""One content, or one group, may take a quarter of the folder's bound."""
_SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_log = logging.getLogger("scbroker")


def checked_root(folder: object, maxBytes: object) -> Path:
    """Return the cache's folder, which only this user can write; raise `InvalidArgumentError` otherwise."""
    if not isinstance(folder, str | os.PathLike) or folder == "":
        given = "an empty path" if folder == "" else type(folder).__name__
        raise InvalidArgumentError(f"folder must be the path of a folder, not {given}")
    if not isinstance(maxBytes, int) or isinstance(maxBytes, bool) or maxBytes < SMALLEST:
        raise InvalidArgumentError(
            f"maxBytes must be an int of {SMALLEST} or more, not {maxBytes!r:.40}"
        )
    return _own_folder(Path(folder).absolute())


def _own_folder(folder: Path) -> Path:
    try:
        make_own_folder(folder)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "the name is not valid"
        raise InvalidArgumentError(
            f"The cache's folder {str(folder)!r} cannot be used ({why}): name a folder that belongs to this "
            "user and that nobody else can write."
        ) from None
    return folder


class CacheFolder:
    """The files of one user at one broker, by kind and key."""

    def __init__(self, root: Path, ring: KeyRing, origin: str, max_bytes: int) -> None:
        secret = ring.signing[0].derive("offline-cache")
        # The origin makes the file names and the sealing key different at each broker.
        self._secret = keyed_hash(secret, "cache-key", origin.encode())
        self._root, self._max = root, max_bytes
        name = keyed_hash(secret, "cache-folder", origin.encode()).hex()[:_NAME]
        self.path: Path = _own_folder(root / (_PREFIX + name))
        self._lock = threading.Lock()
        self._room = 0
        """Bytes that this process may write before it scans the folder."""
        self._has_warned = False

    @property
    def largest(self) -> int:
        """Return the size of the largest content or group that is kept, in bytes."""
        return self._max // _LARGEST

    def read(self, kind: str, key: bytes) -> bytes | None:
        """Return what was written under a key; None if it is missing or damaged."""
        path = self._path(kind, key)
        try:
            with os.fdopen(open_own(path), "rb") as file:
                sealed = file.read(_LONGEST)  # a longer file is cut off, and then does not open
                asked = _is_asked(os.fstat(file.fileno()))
            _use(path, asked=asked)
            return unseal(self._secret, _context(path), sealed)
        except FileNotFoundError:
            return None
        except (OSError, DecryptionError) as error:
            if getattr(error, "errno", None) in _SHORTAGES:  # the file may be intact
                return None
            _log.warning(
                "A file of the cache is damaged or not this user's, and is removed: %s", path
            )
            self._unlink(path)
            return None

    def write(self, kind: str, key: bytes, data: Octets, *, asked: bool = True) -> None:
        """Write a file, and replace an earlier one. A failure, such as a full disk, is logged once.

        Without `asked`, the file goes before all others that were asked for.
        """
        path = self._path(kind, key)
        sealed = seal(self._secret, _context(path), data)
        if len(sealed) > _LONGEST:  # `read` would cut it off and take it for damaged
            self._unlink(path)
            return
        try:
            self._reserve(len(sealed))
            with temporary_file(path, sealed, durable=False) as temporary:
                _use(temporary, asked=asked)
                self._unlink(path)  # else the rename makes ext4 sync the file: 2 ms
                temporary.replace(path)
        except OSError as error:
            if not self._has_warned:
                _log.warning("The cache %s cannot be written: %s", self.path, error.strerror)
            self._has_warned = True

    def has(self, kind: str, key: bytes, *, touch: bool = True) -> bool:
        """Return whether a file exists; it may be damaged. `touch` marks it as requested now."""
        path = self._path(kind, key)
        if not touch:
            return path.exists()
        try:
            _use(path)
        except OSError:
            return False
        return True

    def is_asked(self, kind: str, key: bytes) -> bool:
        """Return whether a file exists that a program has requested."""
        try:
            return _is_asked(self._path(kind, key).stat())
        except OSError:
            return False

    def remove(self, kind: str, key: bytes) -> None:
        self._unlink(self._path(kind, key))

    def clear(self) -> None:
        """Remove all files of this user at this broker."""
        for entry in _own(self.path, _FILE):
            self._unlink(Path(entry.path))

    def _path(self, kind: str, key: bytes) -> Path:
        return self.path / keyed_hash(self._secret, f"cache-{kind}", key).hex()[:_NAME]

    def _unlink(self, path: Path) -> None:
        with suppress(OSError):
            path.unlink()

    def _reserve(self, size: int) -> None:
        """Reserve space for a file, evicting others if needed. A process scans once per 1/16 of the bound."""
        needed = _on_disk(size)
        with self._lock:
            if needed > self._room:
                left = self._max - self._evict(needed)
                self._room = max(needed, min(left, self._max // _PARTS))
            self._room -= needed

    def _evict(self, needed: int) -> int:
        """Remove the least recently used files of all users until a new one fits; return the bytes in use.

        Temporary files that a crash left are removed too. A file that is being read stays readable to its
        end.
        """
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        if total + needed <= self._max:
            return total
        for _, size, path in files:
            if total + needed <= self._max - self._max // _PARTS:
                break
            with suppress(FileNotFoundError):
                path.unlink()
            total -= size
        return total

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        """Yield each file's time of last use, its size on disk and its path, for all users."""
        for folder in _own(self._root, _FOLDER):
            if not folder.is_dir(follow_symlinks=False):
                continue
            for entry in _own(Path(folder.path), _FILE):
                with suppress(FileNotFoundError):
                    state = entry.stat(follow_symlinks=False)
                    yield state.st_mtime_ns, _on_disk(state.st_size), Path(entry.path)


def _own(folder: Path, name: re.Pattern[str]) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder whose names match; none if the folder was removed meanwhile."""
    with suppress(FileNotFoundError):
        yield from (entry for entry in os.scandir(folder) if name.fullmatch(entry.name))


def _use(path: Path, *, asked: bool = True) -> None:
    """Set a file's time of last use, twenty years back unless a program has requested it."""
    moment = time.time_ns() - (0 if asked else _UNASKED)
    os.utime(path, ns=(moment, moment))


def _is_asked(state: os.stat_result) -> bool:
    return state.st_mtime_ns > time.time_ns() - _UNASKED // 2


def _on_disk(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _context(path: Path) -> bytes:
    """Return what a file's seal is bound to: a file of another name or format does not open."""
    return label("cache-file") + _FORMAT + path.name.encode()
