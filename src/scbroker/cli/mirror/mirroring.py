"""Compare the user's containers with a folder, and follow their events."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import queue
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import msgspec

import scbroker
from scbroker import errors
from scbroker.cli import status_of
from scbroker.cli.command import Run
from scbroker.cli.commands.getting import no_content
from scbroker.cli.files import Folder, modified_of, translated, write_own
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
    plan,
)
from scbroker.cli.mirror.state import Selection, State
from scbroker.cli.output import Size
from scbroker.cli.together import END_ALL
from scbroker.desk.names import Container, Entry, name_of
from scbroker.desk.paths import collision_key
from scbroker.desk.people import People, counted, is_own

_ALIKE: Final = [PurePosixPath(each) for each in ("a", "A", "a\u200d")]
"""Names that some file systems take for the same. They do not test composition: container names are NFC."""
_SMALL: Final = 65536
"""Bytes: contents up to this size are fetched in batches."""
_BATCH: Final = 64
_MOST_AT_ONCE: Final = 1000
_COMPARE_AGAIN: Final = 3600.0
"""Seconds until all containers are compared again: nobody signs events, so the broker can leave some out."""
_READ_GROUPS: Final = 30.0
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_GONE: Final = (errors.NotFoundError, errors.DeletedError)

Event = scbroker.ContainerEvent | errors.BrokerError


class Mirror:
    """Makes a folder equal to the selected containers. `status` is the exit status of the first failure."""

    def __init__(
        self,
        run: Run,
        folder: Folder,
        state: State,
        selection: Selection,
        *,
        keep: bool,
        checksum: bool = False,
    ) -> None:
        self._run, self._session = run, run.session
        self._folder, self._state = folder, state
        self._selection, self._keep, self._exact = selection, keep, checksum
        # Test in `incoming`: `_remove_downloads` removes what an interrupted test leaves there.
        with Folder(state.incoming) as own:
            has_all = len(own.told_apart(_ALIKE)) == len(_ALIKE)
        self._key: Callable[[str], str] = str if has_all else collision_key
        self._applying = Applying(folder, state, self._tell, exact=checksum)
        self._remotes: dict[uuid.UUID, Remote] = {}
        self._failed: set[uuid.UUID] = set()
        self._people = People(run.session)
        self._left_out: set[uuid.UUID] = set()
        """Containers left out because strangers can change them, or anybody else if the file is hidden.

        Files that the mirror wrote for them before stay.
        """
        self._groups: set[uuid.UUID] = set()
        """The groups that the user had accepted at the last comparison."""
        self.status: int = 0

    def compare(self) -> None:
        """Read all containers, and change the folder where it differs."""
        self._groups = self._accepted()
        self._remotes.clear()
        self._failed.clear()
        said, self._left_out = self._left_out, set()
        read = (
            (each.id if isinstance(each, scbroker.Container) else each.containerId, each)
            for each in self._session.iterContainers(self._selection.type)
        )
        self._note(read, said)
        self._apply(touched=None)
        if not self._failed:
            self._remove_downloads()

    def follow(self) -> None:
        """Compare, then apply each change as it happens, until the process is ended."""
        pause = _FIRST_PAUSE
        has_compared = False
        while True:
            try:
                groups = {each: self._end_of_log(each) + 1 for each in self._accepted()}
                events: queue.SimpleQueue[Event] = queue.SimpleQueue()
                with (
                    ThreadPoolExecutor(1) as worker,
                    self._session.followEvents(
                        self._end_of_log() + 1,
                        groupStartIds=groups,
                        eventHandler=events.put,
                        errorHandler=events.put,
                        queue=worker,
                    ),
                ):
                    self.compare()
                    has_compared, pause = True, _FIRST_PAUSE
                    self._apply_events(events)
            except errors.EventsExpiredError:
                time.sleep(_FIRST_PAUSE)  # no busy loop if the broker always answers so
            except errors.BrokerUnavailableError as error:
                if not has_compared:
                    raise
                self._run.out.say(f"The broker is away: {error} Trying again in {pause:.0f} s.")
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _accepted(self) -> set[uuid.UUID]:
        """Return the groups that the user has accepted."""
        found = self._session.getGroups(offered=False).result()
        return {each.id for each in found if isinstance(each, scbroker.Group)}

    def _end_of_log(self, group: uuid.UUID | None = None) -> int:
        """Return the id of a log's last event, found by a binary search in a few small requests."""

        def exists(id: int) -> bool:
            try:
                return bool(self._session.getEvents(startId=id, endId=id, groupId=group).result())
            except errors.EventsExpiredError:
                return True
            except errors.NotFoundError:  # removed from the group meanwhile
                return False

        low, high = 0, 1
        while exists(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if exists(middle) else (low, middle)
        return low

    def _apply_events(self, events: queue.SimpleQueue[Event]) -> None:
        """Apply changes until everything must be compared again: after an hour, or when the groups change.

        No event says that the user has accepted a group. So the groups are read after each half minute
        without an event.
        """
        end = time.monotonic() + _COMPARE_AGAIN
        while (seconds := end - time.monotonic()) > 0:
            try:
                some = [events.get(timeout=min(seconds, _READ_GROUPS))]
            except queue.Empty:
                if self._accepted() != self._groups:
                    return
                continue
            with contextlib.suppress(queue.Empty):
                while len(some) < _MOST_AT_ONCE:
                    some.append(events.get_nowait())
            changed = set()
            for event in some:
                if isinstance(event, BaseException):
                    raise event
                if event.isOfGroup and event.groupId is None:
                    is_over = event.eventType is scbroker.ContainerEventType.Deleted
                    if is_over and event.containerId in self._groups:
                        return
                elif event.groupId not in {None, *self._groups}:
                    return
                is_read = event.eventType is scbroker.ContainerEventType.Accessed
                if not (is_read or event.isOfGroup):
                    changed.add(event.containerId)
            if changed:
                self._refresh(changed)

    def _refresh(self, ids: set[uuid.UUID]) -> None:
        """Read these containers again, and change the folder where it differs."""
        found = self._session.getContainers(list(ids), content=False).result()
        said = {*self._left_out}
        before = self._placed(ids)
        for id in ids:
            self._remotes.pop(id, None)
            self._failed.discard(id)
            self._left_out.discard(id)
        self._note(zip(ids, found, strict=True), said)
        if before or self._placed(ids):  # no plan for each write of a stranger
            self._apply(touched=ids)

    def _placed(self, ids: set[uuid.UUID]) -> bool:
        """Return whether the folder has, or should have, files of any of these containers."""
        written = (stamp.container for stamps in self._state.files.values() for stamp in stamps)
        return not ids.isdisjoint({*self._remotes, *self._failed, *written})

    def _note(self, read: Iterable[tuple[uuid.UUID | None, Entry]], said: set[uuid.UUID]) -> None:
        """Sort containers into those the folder should have, those left out, and unreadable ones.

        Say how many are left out, except for those in `said`.
        """
        self._people = People(self._session)
        damaged = dict[uuid.UUID, errors.BrokerError]()
        for id, each in read:
            if id is None or isinstance(each, _GONE):
                continue
            if isinstance(each, errors.BrokerError):
                damaged[id] = each
                continue
            try:
                if (remote := self._remote(each)) is not None:
                    self._remotes[id] = remote
            except errors.BrokerError as error:
                self._fail(id, None, error)
        theirs = self._people.damaged([*damaged])
        self._left_out |= theirs.keys()
        for id, why in damaged.items():
            if id not in theirs:
                self._fail(id, None, why)
        if more := self._left_out - said:
            self._run.out.say(
                f"Left out: {counted(len(more), 'container')}, which people who are not your contacts can "
                "change (--everyone takes them too), or which would make hidden files that others can change."
            )

    def _remote(self, container: Container) -> Remote | None:
        """Return the file that the folder should have for a container; None if it is not selected."""
        wanted = self._selection.type
        name = name_of(container)
        below = self._selection.name
        if name is None or not name.startswith(below) or container.length is None:
            return None
        if wanted is not None and container.type != wanted:
            return None
        name = name.removeprefix(below)
        people = self._people
        if not self._selection.everyone and (
            people.may_change(container) or people.hide(container, name)
        ):
            self._left_out.add(container.id)
            return None
        return Remote(
            id=container.id,
            path=people.path_of(container, name),
            version=container.version,
            length=container.length,
            is_own=is_own(container, self._selection.user),
            created=container.createdAt,
            modified=modified_of(container) or container.modifiedAt,
            changed=round(container.modifiedAt.timestamp() * 1e6),
        )

    def _apply(self, touched: set[uuid.UUID] | None) -> None:
        """Apply the plan. With `touched`, files of other containers are assumed to be unchanged."""

        def look(path: PurePosixPath, stamps: tuple[Stamp, ...]) -> Stamp | Other:
            if touched is not None and len(stamps) == 1 and stamps[0].container not in touched:
                return Other.Foreign if stamps[0].found else stamps[0]
            return self._applying.look(path, stamps)

        # A copy, because `look` updates the times in the record.
        files = dict(self._state.files)
        kept = self._failed | self._left_out
        steps = plan(
            self._remotes, kept, files, look, keep=self._keep, exact=self._exact, key=self._key
        )
        fetches = []
        for step in steps:
            if isinstance(step, Fetch):
                fetches.append(step)
                continue
            with self._failing(step.remote.id if isinstance(step, Move) else step.id, step.path):
                if isinstance(step, Forget):
                    self._applying.forget(step)
                elif isinstance(step, Remove):
                    self._applying.remove(step)
                else:
                    self._applying.move(step)
        self._fetch(fetches)
        self._state.sync()

    def _fetch(self, fetches: list[Fetch]) -> None:
        """Write contents to the folder: small ones many at once, each large one in constant memory."""
        small = [each for each in fetches if each.remote.length <= _SMALL]
        for start in range(0, len(small), _BATCH):
            self._fetch_small(small[start : start + _BATCH])
        for each in fetches:
            if each.remote.length > _SMALL:
                with self._failing(each.remote.id, each.path):
                    self._fetch_large(each)

    def _fetch_small(self, fetches: list[Fetch]) -> None:
        ids = [each.remote.id for each in fetches]
        containers = self._session.getContainers(ids, headers=False).result()
        downloaded = []
        for fetch, read in zip(fetches, containers, strict=True):
            with self._failing(fetch.remote.id, fetch.path):
                if isinstance(read, _GONE):
                    continue  # an event will report its deletion
                if isinstance(read, errors.BrokerError):
                    raise read
                if read.content is None:
                    raise no_content()
                source = self._state.incoming / fetch.remote.id.hex
                write_own(source, read.content)
                downloaded.append((fetch, source, read.version))
        self._place(downloaded)

    def _fetch_large(self, fetch: Fetch) -> None:
        remote = fetch.remote
        source = self._state.incoming / remote.id.hex
        free = shutil.disk_usage(self._state.incoming).free
        if remote.length > free:  # other users choose the size: do not fill the disk
            raise errors.TooLargeError(
                f"The content has {Size(remote.length).shown()}, and the disk has {Size(free).shown()} left."
            )
        with self._run.out.progress(str(fetch.path), remote.length) as show:
            try:
                saved = self._session.saveContainerContent(
                    remote.id, source, progress=lambda done, _: show(done)
                ).result()
            except _GONE:
                return  # an event will report its deletion
            except errors.DiskFullError:
                self._remove_downloads()
                raise
        if saved is None:
            raise no_content()
        # The download may be a newer version: then its event follows, and the comparison finds nothing to do.
        self._place([(fetch, source, remote.version)])

    def _place(self, downloaded: list[tuple[Fetch, Path, int]]) -> None:
        for fetch, error in self._applying.place(downloaded):
            self._fail(fetch.remote.id, fetch.path, error)

    @contextlib.contextmanager
    def _failing(self, id: uuid.UUID, path: PurePosixPath) -> Iterator[None]:
        """Report an error of one container and continue; raise an error that every container would meet."""
        try:
            yield
        except errors.BrokerError as error:
            self._fail(id, path, error)

    def _fail(self, id: uuid.UUID, path: PurePosixPath | None, error: errors.BrokerError) -> None:
        """Report that a container's file stays as it is; the next comparison tries it again.

        Raises an error that every container would meet.
        """
        if isinstance(error, END_ALL):
            raise error
        self._remotes.pop(id, None)
        self._failed.add(id)
        # Not status_of: a ValueError about an unsafe name is not a wrong use of the command.
        self.status = self.status or (1 if isinstance(error, ValueError) else status_of(error))
        self._run.out.error(f"{id if path is None else path}: {error.message}")

    def _tell(self, change: Change) -> None:
        text = f"{change.action} {change.path}"
        if change.oldPath is not None:
            text = f"{change.action} {change.oldPath} to {change.path}"
        if change.reason is not None:
            text += f": {change.reason}"
        row = change._asdict()
        for key in ("path", "oldPath"):
            row[key] = None if row[key] is None else str(row[key])
        self._run.out.line(row, text)

    def _remove_downloads(self) -> None:
        """Remove all interrupted downloads, also of containers to which the user has lost access."""
        with translated(self._state.incoming):
            for each in self._state.incoming.iterdir():
                if each.is_dir() and not each.is_symlink():
                    shutil.rmtree(each)
                else:
                    each.unlink()


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
