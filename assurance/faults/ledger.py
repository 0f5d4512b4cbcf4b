"""Acknowledged writes, and the state and the events that follow from them.

The ledger has an entry for each operation that succeeded, with the version that it made. Every operation
ends with success or a refusal, so each version is exactly one entry, and the entries of a container are its
history. `tests.client.model` derives from it what each user reads, and which events they get.
"""

import datetime as dt
import hashlib
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scbroker.types import Container, SecuredContainer
from tests.client.model import Change, Field, Grant, State, Told, news

_MOMENT: Final = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
"""Any time will do: no grant of the crowd expires."""


@dataclass(frozen=True)
class Entry:
    """One acknowledged write."""

    user: int
    application: str
    values: Mapping[Field, Any]
    """The values that it set, a content as its `digest`. Empty for a deletion."""
    record: bytes | None
    """The signed bytes, which the broker must store unchanged; None for a deletion."""


@dataclass(frozen=True)
class Read:
    """The result of a read."""

    container: uuid.UUID
    version: int
    header: object
    content: object


@dataclass(frozen=True)
class Acknowledged:
    """The writes that were acknowledged at one moment."""

    entries: Mapping[uuid.UUID, dict[int, Entry]]
    unnumbered: Mapping[uuid.UUID, list[Entry]]
    deleted: set[uuid.UUID]

    def __len__(self) -> int:
        groups = [*self.entries.values(), *self.unnumbered.values()]
        return sum(map(len, groups)) + len(self.deleted)


def digest(content: bytes | None) -> object:
    return None if content is None else (len(content), hashlib.sha256(content).hexdigest())


@dataclass
class Ledger:
    """Entries by container and version. Thread-safe."""

    entries: dict[uuid.UUID, dict[int, Entry]] = field(default_factory=lambda: defaultdict(dict))
    unnumbered: dict[uuid.UUID, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    """Changes of access: their answer has no version, which `settle` finds."""
    deleted: dict[uuid.UUID, Entry] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    touched: set[uuid.UUID] = field(default_factory=set)
    """Containers that a writer began to change since the last `told`."""
    acknowledged: int = 0
    refused: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wrote(
        self, user: int, application: str, values: Mapping[Field, Any], made: SecuredContainer
    ) -> None:
        with self._lock:
            self.acknowledged += 1
            self.touched.add(made.id)
            if made.version in self.entries[made.id]:
                self.violations.append(f"{made.id}: version {made.version} acknowledged twice")
            self.entries[made.id][made.version] = Entry(user, application, values, made.record)

    def shared(
        self, user: int, application: str, values: Mapping[Field, Any], container: uuid.UUID
    ) -> None:
        with self._lock:
            self.acknowledged += 1
            self.touched.add(container)
            self.unnumbered[container].append(Entry(user, application, values, None))

    def removed(self, user: int, application: str, container: uuid.UUID) -> None:
        with self._lock:
            self.acknowledged += 1
            self.touched.add(container)
            if container in self.deleted:
                self.violations.append(f"{container}: deleted twice")
            self.deleted[container] = Entry(user, application, {}, None)

    def was_refused(self) -> None:
        with self._lock:
            self.refused += 1

    def was_read(self, found: Container[Any]) -> None:
        header = None if found.header is None else found.header.customHeaderObject
        with self._lock:
            self.acknowledged += 1
            self.reads.append(Read(found.id, found.version, header, digest(found.content)))

    def was_told(self) -> None:
        """Count an answer that is compared elsewhere."""
        with self._lock:
            self.acknowledged += 1

    def broken(self, what: str) -> None:
        with self._lock:
            self.violations.append(what)

    def told(self, *, everything: bool = False) -> Acknowledged:
        """Return what was acknowledged of the containers that changed since the last call, or of all."""
        with self._lock:
            names, self.touched = self.touched, set()
            if everything:
                names = set(self.entries)
            return Acknowledged(
                {name: dict(self.entries[name]) for name in names if name in self.entries},
                {name: list(self.unnumbered[name]) for name in names if name in self.unnumbered},
                {name for name in names if name in self.deleted},
            )

    def settle(self, container: uuid.UUID, entry: Entry, version: int, record: bytes) -> None:
        """Record the version that a change of access has made."""
        with self._lock:
            self.unnumbered[container].remove(entry)
            self.entries[container][version] = replace(entry, record=record)

    def states(self, container: uuid.UUID) -> list[State]:
        """Return the container at each version from 1 on. `KeyError` if its create was not acknowledged."""
        found = self.entries[container]
        first = found[1]
        values = {"header": None, "content": None, "type": None, **first.values}
        states = [State(1, values, first.user, first.user, first.user)]
        for version in range(2, len(found) + 1):
            entry = found[version]
            states.append(_after(states[-1], entry, Change(entry.values)))
        if container in self.deleted:
            states.append(_after(states[-1], self.deleted[container], Change(delete=True)))
        return states

    def log(self, container: uuid.UUID) -> Iterator[tuple[int, Told]]:
        """Yield each user's events of this container, in order; a deletion empties all before its own."""
        before = None
        for state in self.states(container):
            entry = self.entries[container].get(state.version) or self.deleted[container]
            for user, told in news(before, state, set(entry.values), entry.application, _MOMENT):
                gone = container in self.deleted and not state.deleted
                yield user, told.emptied if gone else told
            before = state


def _after(state: State, entry: Entry, change: Change) -> State:
    return state.after(entry.user, change, _MOMENT, renewed=False)


def whole(permissions: Mapping[int, Any]) -> dict[int, Grant]:
    """Return grants without an expiry."""
    return {user: Grant(level) for user, level in permissions.items()}
