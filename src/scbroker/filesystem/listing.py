"""Keep the names of a session's containers, and show them as folders and files.

The broker cannot search names. So a listing has the names of all containers, read from the index that the
device keeps. All filesystems of a provider share one listing.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
import uuid
import weakref
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, Self

import scbroker
from scbroker import errors
from scbroker.desk.names import Container, all_containers, name_of
from scbroker.desk.paths import filesystem_path
from scbroker.desk.people import People, others_can_change, text_of_twins

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
    is_own: bool
    """Whether the user alone can have named it."""

    @classmethod
    def of(
        cls, found: Container | scbroker.SecuredContainer, user_id: uuid.UUID | None = None
    ) -> Self:
        """Return the entry of a container in a listing of this user."""
        return cls(
            found.id,
            found.length if found.hasContent else 0,
            found.version,
            found.createdBy,
            found.createdAt,
            found.modifiedAt,
            user_id is not None and not others_can_change(found, user_id),
        )


class Listing:
    """The containers that a user has access to, by name, at one moment. Immutable."""

    def __init__(
        self, user_id: uuid.UUID, entries: Iterable[tuple[str, Entry]], strangers: int = 0
    ) -> None:
        self.user_id = user_id
        self.strangers = strangers
        """The number of containers that are left out, because strangers can change them."""
        self.read_at: float = time.monotonic()
        self._named: dict[str, list[Entry]] = {}
        self._order: list[str] | None = None
        for name, entry in sorted(entries, key=itemgetter(0)):
            self._named.setdefault(name, []).append(entry)

    def one(self, path: str, *, exact: bool = False) -> Entry | None:
        """Return the container of a name; None without one.

        Two programs that create a name at once make two containers. The newest is returned, unless `exact`.
        Raises `InvalidArgumentError` if several have the name, of which others may have named some, or if it
        is that of a folder as well.
        """
        found = self._named.get(path, [])
        is_folder = bool(found) and self.children(path, 1) is not None
        if not exact and not is_folder and (newest := _newest(found)) is not None:
            _warn(path, newest.id, frozenset(each.id for each in found if each is not newest))
            return newest
        if len(found) > 1 or is_folder:
            listed = "; ".join(
                f"{each.id} by {each.created_by}, changed {each.modified:%Y-%m-%d %H:%M}"
                for each in found[:_MOST_LISTED]
            )
            named = f"{len(found)} containers are" if len(found) > 1 else "A container is"
            also = ", which is a folder as well" if is_folder else ""
            raise errors.InvalidArgumentError(
                f"{named} named {path!r}{also}: use scbroker://id:UUID. {listed}."
            )
        return found[0] if found else None

    def info(self, path: str) -> Info | None:
        """Return the details of a file or folder; None if neither exists. What is both is ambiguous.

        A contact could else put a file in place of a folder of tables, or a folder in place of a table.
        """
        if path in self._named:
            return self._file(path)
        return None if self.children(path, 1) is None else _folder(path)

    def children(self, path: str, most: int | None = None) -> list[Info] | None:
        """Return the details of what a folder has; None if the folder does not exist. The root always does.

        A folder is not kept but looked up: others choose names, and a short one can have many folders.
        """
        names, begin = self._sorted, f"{path}/" if path else ""
        found, at = list[Info](), bisect_left(names, begin)
        while at < len(names) and names[at].startswith(begin) and len(found) != most:
            part, slash, _ = names[at].removeprefix(begin).partition("/")
            child = begin + part
            found.append(_folder(child) if slash else self._file(child))
            # "0" follows "/" in ASCII: this skips all names below the folder.
            at = bisect_left(names, f"{child}0") if slash else at + 1
        return found if found or not path else None

    def changed(self, container_id: uuid.UUID, path: str, new: str, entry: Entry | None) -> Listing:
        """Return a listing in which this container of `path` is named `new`, or was deleted."""
        other = copy(self)
        other._order = None
        other._named = dict(self._named)
        for name in {path, new}:
            kept = [each for each in other._named.pop(name, ()) if each.id != container_id]
            if entry is not None and name == new:
                kept.append(entry)
            if kept:
                other._named[name] = kept
        return other

    def _file(self, path: str) -> Info:
        is_folder = self.children(path, 1) is not None
        return info_of(path, *self._named[path], is_folder=is_folder)

    @property
    def _sorted(self) -> list[str]:
        if self._order is None:
            self._order = sorted(self._named)
        return self._order


def info_of(path: str, entry: Entry, *others: Entry, is_folder: bool = False) -> Info:
    """Return the details of a file; without size and id if the name is ambiguous.

    The type is "file" even if it is ambiguous, because pyarrow silently drops other types; opening it raises.
    """
    ids = [str(each.id) for each in (entry, *others)]
    newest = None if is_folder else _newest([entry, *others])
    if newest is not None:
        return info_of(path, newest) | {"containerIds": ids}
    if others or is_folder:
        return {"name": path, "size": None, "type": "file", "containerIds": ids}
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


def _newest(entries: list[Entry]) -> Entry | None:
    """Return the newest container if the user alone can have named all of them; None otherwise."""
    if len(entries) < 2 or not all(each.is_own for each in entries):
        return None
    return max(entries, key=lambda each: (each.modified, each.id))


@lru_cache
def _warn(path: str, newest: uuid.UUID, others: frozenset[uuid.UUID]) -> None:
    _log.warning(text_of_twins(path, newest, others))


def _folder(path: str) -> Info:
    return {"name": path, "size": 0, "type": "directory"}


class Listings:
    """The newest listings of a provider: of what the user and contacts created, and of everything."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._newest: dict[bool, Listing] = {}
        self._claims = weakref.WeakValueDictionary[str, threading.Lock]()

    @contextmanager
    def claimed(self, path: str) -> Iterator[None]:
        """Let no other thread give a container this name in the block."""
        with self._lock:
            claim = self._claims.setdefault(path, threading.Lock())
        with claim:
            yield

    def knows(self, path: str) -> bool:
        """Return whether the last listing has this name, or this program has made such a container since.

        Without a listing it may have: only a new one can tell.
        """
        with self._lock:
            return not self._newest or any(path in each._named for each in self._newest.values())

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
                found = self._newest[everyone] = _read(provider, user_id, everyone)
            return found

    def change(self, container_id: uuid.UUID, path: str, new: str, entry: Entry | None) -> None:
        """Note a change that this program made, as `Listing.changed` does."""
        with self._lock:
            for everyone, each in self._newest.items():
                self._newest[everyone] = each.changed(container_id, path, new, entry)

    def forget(self) -> None:
        """Have the next `get` read the containers."""
        with self._lock:
            self._newest.clear()


def _read(provider: scbroker.BrokerProvider, user_id: uuid.UUID, everyone: bool) -> Listing:
    """Return a listing of all containers; without `everyone`, of those that no stranger can change."""
    found, damaged, left_out = list[tuple[str, Entry]](), list[uuid.UUID | None](), 0
    people = People(provider)
    for each in all_containers(provider):
        if isinstance(each, errors.BrokerError):
            damaged.append(each.containerId)
        elif (path := path_of(each)) is not None:
            if everyone or not people.may_change(each):
                found.append((path, Entry.of(each, user_id)))
            else:
                left_out += 1
    if damaged:
        _log.warning(
            "%d containers cannot be read, such as %s, so their names are not known.",
            len(damaged),
            damaged[0],
        )
    return Listing(user_id, found, left_out)


def path_of(container: Container) -> str | None:
    """Return a container's name if it is a path; None without a header, a name or a safe name."""
    try:
        return filesystem_path(name_of(container) or "")
    except errors.InvalidArgumentError:
        return None


_listings: Final[weakref.WeakKeyDictionary[scbroker.BrokerProvider, Listings]] = (
    weakref.WeakKeyDictionary()
)


def listings_of(provider: scbroker.BrokerProvider) -> Listings:
    """Return the listings that all filesystems of this provider share."""
    return _listings.setdefault(provider, Listings())
