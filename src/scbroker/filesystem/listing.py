"""Keep the names of a session's containers, and show them as folders and files.

The broker cannot search for names, so one listing reads the headers of all containers. All filesystems of a
provider share it.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import threading
import time
import uuid
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

import scbroker
from scbroker import errors
from scbroker.filesystem.names import path_of

_log = logging.getLogger("scbroker")
_MOST_LISTED: Final = 10
Info = dict[str, Any]
"""What fsspec calls the details of a path: at least name, size and type."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A container in a listing. Headers are not kept: other users choose their sizes."""

    id: uuid.UUID
    size: int | None
    """Bytes of the content; None if it is hidden."""
    version: int
    created_by: uuid.UUID
    created: dt.datetime
    modified: dt.datetime

    @classmethod
    def of(cls, found: scbroker.Container[Any] | scbroker.SecuredContainer) -> Self:
        return cls(
            found.id,
            found.length if found.hasContent else 0,
            found.version,
            found.createdBy,
            found.createdAt,
            found.modifiedAt,
        )


class Listing:
    """The containers that a user has access to, by name, as they were at one time."""

    def __init__(self, user_id: uuid.UUID, entries: Iterable[tuple[str, Entry]]) -> None:
        self.user_id = user_id
        self.read_at: float = time.monotonic()
        self._named: dict[str, list[Entry]] = {}
        self._folders: dict[str, list[Info]] | None = None
        for name, entry in entries:
            self._named.setdefault(name, []).append(entry)

    def one(self, path: str) -> Entry | None:
        """Return the container of a name; None without one. `InvalidArgumentError` if several have it."""
        found = self._named.get(path, [])
        if len(found) > 1:
            listed = "; ".join(
                f"{each.id} by {each.created_by}, changed {each.modified:%Y-%m-%d %H:%M}"
                for each in found[:_MOST_LISTED]
            )
            raise errors.InvalidArgumentError(
                f"{len(found)} containers are named {path!r}: use scbroker://id:UUID. {listed}."
            )
        return found[0] if found else None

    def info(self, path: str) -> Info | None:
        """Return the details of a file or folder; None if neither exists. A file comes before a folder."""
        if found := self._named.get(path):
            return info_of(path, *found)
        return _folder(path) if path in self._tree() else None

    def children(self, path: str) -> list[Info] | None:
        """Return the details of what a folder has; None if the folder does not exist."""
        found = self._tree().get(path)
        return None if found is None else [dict(each) for each in found]

    def replace(self, container_id: uuid.UUID, path: str, entry: Entry | None) -> None:
        """Note that a container has this name now, or that it was deleted."""
        named = {
            name: kept
            for name, found in self._named.items()
            if (kept := [each for each in found if each.id != container_id])
        }
        if entry is not None:
            named.setdefault(path, []).append(entry)
        self._named, self._folders = named, None

    def _tree(self) -> dict[str, list[Info]]:
        """Return the details of what each folder has; the root is always there."""
        if (tree := self._folders) is None:
            tree = {"": []}
            for name, found in sorted(self._named.items()):
                info: Info | None = info_of(name, *found)
                while info is not None:
                    parent = info["name"].rpartition("/")[0]
                    is_new = parent not in tree
                    tree.setdefault(parent, []).append(info)
                    info = _folder(parent) if is_new else None
            self._folders = tree
        return tree


def info_of(path: str, entry: Entry, *others: Entry) -> Info:
    """Return the details of a file. If several containers have the name, they are not those of a file."""
    if others:
        ids = [str(each.id) for each in (entry, *others)]
        return {"name": path, "size": None, "type": "other", "containerIds": ids}
    return {
        "name": path,
        "size": entry.size,
        "type": "file",
        "containerId": str(entry.id),
        "version": entry.version,
        "createdBy": str(entry.created_by),
        "created": entry.created,
        "modified": entry.modified,
    }


def _folder(path: str) -> Info:
    return {"name": path, "size": 0, "type": "directory"}


class Listings:
    """The newest listings of a provider: of what the user and contacts created, and of everything."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._newest: dict[bool, Listing] = {}

    def get(self, provider: scbroker.BrokerProvider, everyone: bool, max_age: float) -> Listing:
        """Return a listing that is at most so many seconds old, of the user that is logged in now."""
        user_id = provider.getUserId().result()
        with self._lock:
            found = self._newest.get(everyone)
            if (
                found is None
                or found.user_id != user_id
                or time.monotonic() - found.read_at >= max_age
            ):
                found = Listing(user_id, _read(provider, user_id, everyone))
                self._newest[everyone] = found
            return found

    def replace(self, container_id: uuid.UUID, path: str, entry: Entry | None) -> None:
        """Note a change that this program made, as `Listing.replace` does."""
        with self._lock:
            for each in self._newest.values():
                each.replace(container_id, path, entry)

    def forget(self) -> None:
        """Have the next `get` read the containers."""
        with self._lock:
            self._newest.clear()

    def after_fork(self) -> None:
        """Replace the lock, which a thread of the parent may have locked."""
        self._lock = threading.RLock()


def _read(
    provider: scbroker.BrokerProvider, user_id: uuid.UUID, everyone: bool
) -> list[tuple[str, Entry]]:
    """Return the containers with their names; without `everyone`, those of the user and of contacts."""
    found, damaged = list[tuple[str, Entry]](), list[uuid.UUID | None]()
    for each in provider.iterContainers():
        if isinstance(each, errors.BrokerError):
            damaged.append(each.containerId)
        elif (name := path_of(each)) is not None:
            found.append((name, Entry.of(each)))
    if damaged:
        _log.warning(
            "%d containers cannot be read, such as %s, so their names are not known.",
            len(damaged),
            damaged[0],
        )
    if everyone or all(each.created_by == user_id for _, each in found):
        return found
    known = {user_id, *(each.userId for each in scbroker.Contacts(provider).list().result())}
    return [(name, each) for name, each in found if each.created_by in known]


_listings: Final[weakref.WeakKeyDictionary[scbroker.BrokerProvider, Listings]] = (
    weakref.WeakKeyDictionary()
)


def listings_of(provider: scbroker.BrokerProvider) -> Listings:
    """Return the listings that all filesystems of this provider share."""
    return _listings.setdefault(provider, Listings())


def _after_fork() -> None:
    for each in _listings.values():
        each.after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch
    os.register_at_fork(after_in_child=_after_fork)
