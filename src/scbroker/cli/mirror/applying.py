"""Carry out the steps of a plan in the folder.

A step records what it is about to write, syncs the record, and then changes the folder in one operation.
So after a crash at any point, the next comparison recognizes each file that the mirror wrote.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import stat
import uuid
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import msgspec

from scbroker import errors
from scbroker.cli.mirror.plan import (
    PLANNED,
    Fetch,
    Forget,
    Move,
    Other,
    Remote,
    Remove,
    Stamp,
    beside,
)
from scbroker.cli.mirror.state import State
from scbroker.cli.paths import Folder

_PIECE: Final = 2**20
_NEAR: Final = 3
"""Similar paths to try if something is in the way that the plan did not know of."""


class Change(NamedTuple):
    """A change of the folder, for one line of output."""

    action: str
    path: PurePosixPath
    id: uuid.UUID
    version: int | None = None
    oldPath: PurePosixPath | None = None  # noqa: N815 # a key of JSON
    reason: str | None = None


class Applying:
    """Changes a folder and its record together; `tell` is called with each change."""

    def __init__(
        self, folder: Folder, state: State, tell: Callable[[Change], None], *, exact: bool = False
    ) -> None:
        self._folder, self._state, self._tell, self._exact = folder, state, tell, exact

    def look(self, path: PurePosixPath, stamps: tuple[Stamp, ...]) -> Stamp | Other:
        """Return which recorded content a file has: by size and time, or by hash if the time differs."""
        return self._look(path, stamps, exact=self._exact)

    def forget(self, step: Forget) -> None:
        """Remove a path from the record, and say so if the file stays."""
        self._state.put(step.path, ())
        if step.reason is not None:
            self._tell(Change("kept", step.path, step.id, reason=step.reason))

    def remove(self, step: Remove) -> None:
        """Remove a file, if its bytes are still those that the mirror wrote."""
        stamps = self._state.files.get(step.path, ())
        seen = self._look(step.path, stamps, exact=True)
        if isinstance(seen, Stamp):
            self._folder.remove(step.path)
            if not step.is_copy:
                self._tell(Change("removed", step.path, step.id))
        elif seen is not Other.Missing:
            self._tell(Change("kept", step.path, step.id, reason="it was changed here"))
        self._state.put(step.path, ())

    def move(self, step: Move) -> None:
        """Rename a file. Raises `AlreadyExistsError` if another file has taken the new name meanwhile."""
        seen, target = self.look(step.path, self._state.files.get(step.path, ())), step.target
        if not isinstance(seen, Stamp):
            return  # changed since the plan was made: the next comparison decides
        before = self._state.files.get(target, ())
        planned = msgspec.structs.replace(seen, modified=PLANNED)
        self._state.put(target, (*before, planned)[-2:])
        self._state.sync()
        try:
            self._folder.move(step.path, target)
        except errors.BrokerError:
            self._state.put(target, before)
            raise
        self._state.put(target, (seen,))
        self._state.put(step.path, ())
        self._folder.remove_empty(step.path.parent)
        self._tell(Change("renamed", target, step.remote.id, seen.version, step.path))

    def place(
        self, fetches: list[tuple[Fetch, Path, int]]
    ) -> list[tuple[Fetch, errors.BrokerError]]:
        """Move downloaded contents to their paths; return the failures. Each comes with its file and version.

        A file in the way stays, as in a folder that the plan would have removed: the content goes beside it.
        """
        failed, started = [], []
        for fetch, source, version in fetches:
            try:
                if (found := self._start(fetch, source, version)) is not None:
                    started.append((fetch, source, *found))
            except errors.BrokerError as error:
                failed.append((fetch, error))
        try:
            self._state.sync()
        except errors.BrokerError as error:
            return [*failed, *((fetch, error) for fetch, *_ in started)]
        for fetch, source, target, stamp in started:
            try:
                self._finish(fetch.remote, source, target, stamp)
            except errors.BrokerError as error:
                failed.append((fetch, error))
        return failed

    def _start(
        self, fetch: Fetch, source: Path, version: int
    ) -> tuple[PurePosixPath, Stamp] | None:
        """Choose a path and record the content for it; None if a file with the content exists already."""
        with source.open("rb") as file:
            size, digest = os.fstat(file.fileno()).st_size, _digest(file.fileno())
        changed = fetch.remote.changed if version == fetch.remote.version else 0
        stamp = Stamp(fetch.remote.id, version, size, PLANNED, digest, changed=changed)
        if fetch.rival is not None and self._has(fetch.rival, size, digest):
            # The file has this content already. It is somebody else's, or the record was lost.
            self._adopt(fetch.rival, stamp, found=True)
            return None
        near = itertools.islice(beside(fetch.path, fetch.remote), _NEAR)
        for target in itertools.chain([fetch.path], near):
            stamps = self._state.files.get(target, ())
            seen = self._look(target, stamps, exact=True)
            if isinstance(seen, Stamp) and seen.container == fetch.remote.id:
                if seen.digest == digest:
                    self._adopt(target, stamp, found=False)
                    return None
                self._state.put(target, (seen, stamp))
                return target, stamp
            if seen is Other.Missing and not stamps:
                self._state.put(target, (stamp,))
                return target, stamp
        raise errors.AlreadyExistsError(f"{str(fetch.path)!r} exists already: remove it.")

    def _finish(self, remote: Remote, source: Path, target: PurePosixPath, stamp: Stamp) -> None:
        is_update = len(self._state.files[target]) > 1
        try:
            status = self._folder.place(source, target, replace=is_update, modified=remote.modified)
        except errors.BrokerError:
            self._state.put(target, self._state.files[target][:-1])
            raise
        self._state.put(target, (msgspec.structs.replace(stamp, modified=status.st_mtime_ns),))
        action = "updated" if is_update else "added"
        self._tell(Change(action, target, remote.id, stamp.version))

    def _adopt(self, path: PurePosixPath, stamp: Stamp, *, found: bool) -> None:
        if (status := self._folder.status(path)) is not None:
            kept = msgspec.structs.replace(stamp, modified=status.st_mtime_ns, found=found)
            self._state.put(path, (kept,))

    def _look(
        self, path: PurePosixPath, stamps: tuple[Stamp, ...], *, exact: bool
    ) -> Stamp | Other:
        try:
            status = self._folder.status(path)
        except errors.BrokerError:  # no permission, or a name too long: a write reports it
            return Other.Foreign if stamps else Other.Missing
        if status is None:
            return Other.Missing
        if stat.S_ISDIR(status.st_mode):
            return Other.Folder
        own = [each for each in stamps if each.size == status.st_size and not each.found]
        if not own or not stat.S_ISREG(status.st_mode):
            return Other.Foreign
        for each in own:
            if each.modified == status.st_mtime_ns and not exact:
                return each
        digest = self._digest_of(path)
        found = next((each for each in reversed(own) if each.digest == digest), None)
        if found is None:
            return Other.Foreign
        found = msgspec.structs.replace(found, modified=status.st_mtime_ns)
        self._state.put(path, (found,))  # so that the next comparison does not hash it again
        return found

    def _has(self, path: PurePosixPath, size: int, digest: bytes) -> bool:
        status = self._folder.status(path)
        is_alike = status is not None and status.st_size == size
        is_recorded = path in self._state.files
        return is_alike and not is_recorded and self._digest_of(path) == digest

    def _digest_of(self, path: PurePosixPath) -> bytes | None:
        """Return the digest of a file; None if it cannot be read or is changed meanwhile."""
        with contextlib.suppress(errors.BrokerError), self._folder.open(path) as file:
            before = os.fstat(file.fileno())
            digest = _digest(file.fileno())
            after = os.fstat(file.fileno())
            if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
                return digest
        return None


def _digest(descriptor: int) -> bytes:
    digest = hashlib.sha256()
    buffer = bytearray(_PIECE)
    with open(descriptor, "rb", buffering=0, closefd=False) as file:
        while read := file.readinto(buffer):
            digest.update(memoryview(buffer)[:read])
    return digest.digest()
