"""Compare the user's containers with a folder, and follow their events."""

from __future__ import annotations

import contextlib
import queue
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, Final

import scbroker
from scbroker import errors
from scbroker.cli import status_of
from scbroker.cli.commands.getting import hidden_content
from scbroker.cli.files import modified_of
from scbroker.cli.mirror.applying import Applying, Change
from scbroker.cli.mirror.plan import Fetch, Forget, Move, Other, Remote, Remove, Stamp, plan
from scbroker.cli.mirror.state import Selection, State
from scbroker.cli.output import Size
from scbroker.cli.paths import Folder, translated, write_own
from scbroker.cli.run import Run
from scbroker.cli.together import END_ALL
from scbroker.desk.names import Entry, name_of
from scbroker.desk.paths import collision_key
from scbroker.desk.people import counted
from scbroker.desk.strangers import Strangers, is_own

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
        self._strangers = Strangers(run.session)
        self._left_out: set[uuid.UUID] = set()
        """Containers left out because strangers can change them, or anybody else if the file is hidden.

        Files that the mirror wrote for them before stay.
        """
        self._groups: set[uuid.UUID] = set()
        """The groups that the user had accepted at the last comparison."""
        self.status: int = 0

    def compare(self) -> None:
        """Read all containers, and change the folder where it differs."""
        self._strangers = Strangers(self._session)
        self._groups = self._accepted()
        self._remotes.clear()
        self._failed.clear()
        said, self._left_out = self._left_out, set()
        self._note(
            (each.id if isinstance(each, scbroker.Container) else each.containerId, each)
            for each in self._session.iterContainers(self._selection.type)
        )
        self._say_left_out(said)
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
                with self._events(self._end_of_log() + 1, groups) as events:
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

    @contextlib.contextmanager
    def _events(
        self, start: int, groups: Mapping[uuid.UUID, int]
    ) -> Iterator[queue.SimpleQueue[Event]]:
        """Yield a queue that gets the events of the logs from these ids on, and the error that ends them."""
        arrived: queue.SimpleQueue[Event] = queue.SimpleQueue()
        with ThreadPoolExecutor(1) as worker:
            stream = self._session.followEvents(
                start,
                groupStartIds=groups,
                eventHandler=arrived.put,
                errorHandler=arrived.put,
                queue=worker,
            )
            with stream:
                yield arrived

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
                if self._has_other_groups(event):
                    return
                is_read = event.eventType is scbroker.ContainerEventType.Accessed
                if not (is_read or event.isOfGroup):
                    changed.add(event.containerId)
            if changed:
                self._refresh(changed)

    def _has_other_groups(self, event: scbroker.ContainerEvent) -> bool:
        """Return whether an event shows that the user's groups have changed since the last comparison."""
        if event.isOfGroup and event.groupId is None:
            is_over = event.eventType is scbroker.ContainerEventType.Deleted
            return is_over and event.containerId in self._groups
        return event.groupId not in {None, *self._groups}

    def _refresh(self, ids: set[uuid.UUID]) -> None:
        """Read these containers again, and change the folder where it differs."""
        found = self._session.getContainers(list(ids), content=False).result()
        self._strangers, said = Strangers(self._session), {*self._left_out}
        before = self._placed(ids)
        for id in ids:
            self._remotes.pop(id, None)
            self._failed.discard(id)
            self._left_out.discard(id)
        self._note(zip(ids, found, strict=True))
        self._say_left_out(said)
        if before or self._placed(ids):  # no plan for each write of a stranger
            self._apply(touched=ids)

    def _placed(self, ids: set[uuid.UUID]) -> bool:
        """Return whether the folder has, or should have, files of any of these containers."""
        written = (stamp.container for stamps in self._state.files.values() for stamp in stamps)
        return (
            not ids.isdisjoint(self._remotes)
            or not ids.isdisjoint(self._failed)
            or (not ids.isdisjoint(written))
        )

    def _say_left_out(self, said: set[uuid.UUID]) -> None:
        if more := self._left_out - said:
            self._run.out.say(
                f"Left out: {counted(len(more), 'container')}, which people who are not your contacts can "
                "change (--everyone takes them too), or which would make hidden files that others can change."
            )

    def _note(self, read: Iterable[tuple[uuid.UUID | None, Entry]]) -> None:
        """Sort containers into those the folder should have, those left out, and unreadable ones."""
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
        theirs = self._strangers.damaged([*damaged])
        self._left_out |= theirs.keys()
        for id, why in damaged.items():
            if id not in theirs:
                self._fail(id, None, why)

    def _remote(self, container: scbroker.Container[Any]) -> Remote | None:
        """Return the file that the folder should have for a container; None if it is not selected."""
        wanted = self._selection.type
        name = name_of(container)
        below = self._selection.name
        if name is None or not name.startswith(below) or container.length is None:
            return None
        if wanted is not None and container.type != wanted:
            return None
        name = name.removeprefix(below)
        strangers = self._strangers
        if not self._selection.everyone and (
            strangers.may_change(container) or strangers.hide(container, name)
        ):
            self._left_out.add(container.id)
            return None
        return Remote(
            id=container.id,
            path=strangers.path_of(container, name),
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
                    raise hidden_content()
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
            raise hidden_content()
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
