"""Decide what a mirror changes in its folder, from the containers, the record of its files and the folder.

Nothing here reads or writes a file or asks the broker. A file belongs to the mirror as long as it has the
content that the mirror wrote; every other file stays as it is.
"""

from __future__ import annotations

import datetime as dt
import enum
import itertools
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from scbroker.cli.output import SHORT_ID
from scbroker.desk.paths import OWN, collision_key

OWN_FOLDER: Final = PurePosixPath(f"{OWN}-mirror")
"""The folder, inside the mirrored one, of the mirror's own files."""
_LONGEST_PART: Final = 255
_LONGEST_SUFFIX: Final = 32
_NEAR: Final = 100
"""Similar paths that are tried to find a container's file, which stays if its own path is taken."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A container that the folder should have: the path of its name, and its newest version."""

    id: uuid.UUID
    path: PurePosixPath
    version: int
    length: int
    is_own: bool
    created: dt.datetime
    modified: dt.datetime
    changed: int = 0
    """When this version was written, in microseconds since 1970; another history has another time."""


PLANNED: Final = -1


class Stamp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A content that the mirror wrote to a path; `modified` is the file's time in nanoseconds.

    It is PLANNED until the content is in place: after a crash, only the file's bytes say whether it is.
    With `found`, the file had this content before the mirror: the mirror never changes or removes it.
    """

    container: uuid.UUID
    version: int
    size: int
    modified: int
    digest: Annotated[bytes, Meta(min_length=32, max_length=32)]
    found: bool = False
    changed: int = 0
    """That of the version; 0 if it is not known."""

    def is_of(self, remote: Remote) -> bool:
        """Return whether this is the content of the newest version."""
        is_same = self.changed == remote.changed or 0 in (self.changed, remote.changed)
        return self.version == remote.version and is_same


Files = Mapping[PurePosixPath, tuple[Stamp, ...]]
"""The mirror's record: what it wrote to each path. While a file is replaced, both contents are recorded."""


class Other(enum.Enum):
    """A path that has no file with a recorded content."""

    Missing = enum.auto()
    Folder = enum.auto()
    Foreign = enum.auto()
    """Something that the mirror did not write, or that was changed since: it stays as it is."""


Key = Callable[[str], str]
"""Returns a text that is equal for names that a folder takes for the same."""
Look = Callable[[PurePosixPath, tuple[Stamp, ...]], Stamp | Other]
"""Returns the recorded content that the file at a path has."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove a path from the record. A file stays; `reason` is None if none exists."""

    path: PurePosixPath
    id: uuid.UUID
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a file whose container is gone or has a second file."""

    path: PurePosixPath
    id: uuid.UUID
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """Rename a file to a path where nothing is."""

    path: PurePosixPath
    target: PurePosixPath
    remote: Remote


@dataclass(frozen=True, slots=True)
class Fetch:
    """Write a container's content to a path; not if the file at `rival` is found to have it already."""

    path: PurePosixPath
    remote: Remote
    rival: PurePosixPath | None = None


Action = Forget | Remove | Move | Fetch


def plan(
    remotes: Mapping[uuid.UUID, Remote],
    failed: Collection[uuid.UUID],
    files: Files,
    look: Look,
    *,
    keep: bool = False,
    exact: bool = False,
    key: Key = collision_key,
) -> list[Action]:
    """Return the steps that make the folder that of these containers, in their order.

    Containers in `failed` could not be read: their files stay as they are. With `keep`, so do files whose
    container is gone. With `exact`, the content comes beside a file that was changed here, also without a
    newer version. `key` tells which paths the folder takes for the same, by default those that any does.
    """
    return _Plan(remotes, failed, files, look, keep, exact, key).actions()


@dataclass
class _Plan:
    remotes: Mapping[uuid.UUID, Remote]
    failed: Collection[uuid.UUID]
    files: Files
    look: Look
    keep: bool
    exact: bool
    key: Key

    def __post_init__(self) -> None:
        self._seen = {path: self.look(path, stamps) for path, stamps in self.files.items()}
        self._folders = {above for path in self.files for above in path.parents}
        self._first: list[Action] = []
        self._written: dict[uuid.UUID, list[tuple[PurePosixPath, Stamp]]] = defaultdict(list)
        self._edited: set[uuid.UUID] = set()
        """Containers whose file was changed here, and that have no newer version."""

    def actions(self) -> list[Action]:
        for path, stamps in self.files.items():
            self._sort(path, stamps)
        places = assign(self.remotes, self._holders(), self._reserved(), self.key)
        files = {self.key(str(path)) for path in self.files}
        in_the_way = files | {self.key(str(path)) for path in self._folders}
        moves, fetches = list[Action](), list[Action]()
        for id, target in self._targets(places).items():
            remote = self.remotes[id]
            if not (found := self._written.get(id)):
                rival = places[id] if places[id] != target else None
                fetches.append(Fetch(target, remote, rival))
                continue
            path, stamp = next((each for each in found if each[0] == target), found[0])
            self._first += [Remove(each, id, True) for each, _ in found if each != path]
            above = {self.key(str(each)) for each in target.parents}
            is_free = above.isdisjoint(files) and self.key(str(target)) not in in_the_way
            if path != target and is_free:
                moves.append(Move(path, target, remote))
            elif path != target:  # its new place is taken: remove it, and download it again
                self._first.append(Remove(path, id, True))
            if not stamp.is_of(remote) or (path != target and not is_free):
                fetches.append(Fetch(target, remote))
        return [*self._first, *moves, *fetches]

    def _sort(self, path: PurePosixPath, stamps: tuple[Stamp, ...]) -> None:
        """Assign a recorded path to its container, or plan to remove or forget it."""
        seen, newest = self._seen[path], stamps[-1]
        id = seen.container if isinstance(seen, Stamp) else newest.container
        remote = self.remotes.get(id)
        if id in self.failed:
            return
        if seen is Other.Missing:
            self._first.append(Forget(path, id))
        elif isinstance(seen, Stamp) and remote is not None:
            self._written[id].append((path, seen))
        elif isinstance(seen, Stamp) and not self.keep:
            self._first.append(Remove(path, id))
        elif isinstance(seen, Stamp):
            self._first.append(Forget(path, id, "its container is gone"))
        elif not (written := [each for each in stamps if each.modified != PLANNED]):
            self._first.append(Forget(path, id))  # never written; the file is somebody else's
        elif remote and written[-1].is_of(remote) and not self.exact:
            self._edited.add(id)
        else:
            self._first.append(Forget(path, id, "it was changed here, or is not the mirror's"))

    def _holders(self) -> dict[uuid.UUID, set[PurePosixPath]]:
        """Return by container the recorded paths, also of missing files, but not those to give up."""
        left = {each.path for each in self._first if self._seen[each.path] is not Other.Missing}
        found: dict[uuid.UUID, set[PurePosixPath]] = defaultdict(set)
        for path, stamps in self.files.items():
            for stamp in stamps if path not in left else ():
                found[stamp.container].add(path)
        return found

    def _reserved(self) -> list[PurePosixPath]:
        return [
            path
            for path, stamps in self.files.items()
            if any(stamp.container in self.failed for stamp in stamps)
        ]

    def _targets(self, places: Mapping[uuid.UUID, PurePosixPath]) -> dict[uuid.UUID, PurePosixPath]:
        """Return the path for each container: its name's, or a similar one if another file is in the way."""
        targets: dict[uuid.UUID, PurePosixPath] = {}
        crowded = []
        for id, place in places.items():
            if id in self._edited and id not in self._written:
                continue
            if self._is_free(place, id):
                targets[id] = place
            else:
                crowded.append(id)
        taken = _Taken(self.key, places.values())
        for id in crowded:
            targets[id] = self._beside(places[id], self.remotes[id], taken)
            taken.add(targets[id])
        return targets

    def _beside(self, place: PurePosixPath, remote: Remote, taken: _Taken) -> PurePosixPath:
        """Return the path next to `place` where the container already has its file, or the first free one."""
        own = {path for path, _ in self._written.get(remote.id, ())}
        near = itertools.islice(self._choices(place, remote), _NEAR)
        return next(
            each
            for each in itertools.chain(
                filter(own.__contains__, near), self._choices(place, remote)
            )
            if taken.conflict(each) is None
            and (each in own or self._seen_at(each) is Other.Missing)
        )

    def _choices(self, place: PurePosixPath, remote: Remote) -> Iterator[PurePosixPath]:
        """Yield similar paths for a path that is taken, or one of whose folders is a file to keep."""
        position = self._blocked(place)
        if position is None:
            return beside(place, remote)
        return (_tagged(place, position, tag) for tag in _tags(remote.id))

    def _blocked(self, place: PurePosixPath) -> int | None:
        """Return the position of the first part of a path that must be a folder and is a file to keep."""
        for position, above in enumerate(reversed(place.parents[:-1])):
            seen = self._seen_at(above)
            if seen is Other.Foreign or (isinstance(seen, Stamp) and seen.container in self.failed):
                return position
        return None

    def _is_free(self, place: PurePosixPath, id: uuid.UUID) -> bool:
        """Return whether the path is free, or has only a file that the mirror may move or remove.

        A file of another container is moved or removed first, because this path is not its own.
        """
        seen = self._seen_at(place)
        if self._blocked(place) is not None:
            return False
        if isinstance(seen, Stamp):
            return seen.container not in self.failed
        if seen is Other.Foreign:
            # Where the file system ignores case, this can be the container's own file under its old spelling.
            keys = {self.key(str(path)) for path, _ in self._written.get(id, ())}
            return place not in self.files and self.key(str(place)) in keys
        return seen is Other.Missing or place in self._folders

    def _seen_at(self, path: PurePosixPath) -> Stamp | Other:
        return self._seen[path] if path in self._seen else self.look(path, ())


def assign(
    remotes: Mapping[uuid.UUID, Remote],
    holders: Mapping[uuid.UUID, Collection[PurePosixPath]],
    reserved: Collection[PurePosixPath],
    key: Key = collision_key,
) -> dict[uuid.UUID, PurePosixPath]:
    """Return a path for each container that no other one's path collides with on any file system.

    Of several containers with one name, the one that has its file keeps it; otherwise an own container comes
    before others', and an earlier one before a later one. The rest get a part of their ids into their names.
    """

    def order(each: Remote) -> tuple[bool, bool, dt.datetime, uuid.UUID]:
        return each.path not in holders.get(each.id, ()), not each.is_own, each.created, each.id

    taken, places = _Taken(key, reserved), {}
    for remote in sorted(remotes.values(), key=order):
        tags = _tags(remote.id)
        place = remote.path
        while (conflict := taken.conflict(place)) is not None:
            place = _tagged(remote.path, conflict, next(tags))
        taken.add(place)
        places[remote.id] = place
    return places


class _Taken:
    """The paths that are in use."""

    def __init__(self, key: Key, paths: Iterable[PurePosixPath]) -> None:
        self._key = key
        self._files: set[str] = set()
        self._folders: set[str] = set()
        for path in paths:
            self.add(path)

    def conflict(self, path: PurePosixPath) -> int | None:
        """Return the position of the first part that collides with a path in use; None if none does."""
        keys = self._keys(path)
        for position, key in enumerate(keys):
            if key in self._files:
                return position
        return len(keys) - 1 if keys[-1] in self._folders else None

    def add(self, path: PurePosixPath) -> None:
        """Mark a path as in use."""
        *folders, file = self._keys(path)
        self._files.add(file)
        self._folders.update(folders)

    def _keys(self, path: PurePosixPath) -> list[str]:
        parts = (self._key(part) for part in path.parts)
        return list(itertools.accumulate(parts, "{}/{}".format))


def beside(path: PurePosixPath, remote: Remote) -> Iterator[PurePosixPath]:
    """Yield endlessly paths to use in place of a taken one, with the version in the file name."""
    version = f"version {remote.version}"
    tags = (f"{version}, {tag}" for tag in _tags(remote.id))
    return (_tagged(path, len(path.parts) - 1, tag) for tag in itertools.chain([version], tags))


def _tags(id: uuid.UUID) -> Iterator[str]:
    yield id.hex[:SHORT_ID]
    yield str(id)
    yield from (f"{id}-{number}" for number in itertools.count(2))


def _tagged(path: PurePosixPath, position: int, tag: str) -> PurePosixPath:
    """Add a tag in brackets to one part of a path, before a file's suffix."""
    parts = list(path.parts)
    part = PurePosixPath(parts[position])
    is_file = position == len(parts) - 1
    suffix = part.suffix if is_file and len(part.suffix) <= _LONGEST_SUFFIX else ""
    end = f" ({tag}){suffix}"
    stem = part.name.removesuffix(suffix).encode()[: _LONGEST_PART - len(end.encode())]
    parts[position] = stem.decode("utf-8", "ignore") + end
    return PurePosixPath(*parts)
