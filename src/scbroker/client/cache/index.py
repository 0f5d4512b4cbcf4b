"""Keep an index of the user's containers on this device, so that finding one by name reads one container.

A container is read again, and verified as in a list, if the event log has news of it, or if this device has
verified a version that the index lacks. So a broker that withholds events can hide no more than by leaving
containers out of a list.

The index is in two rows of the state file: one with all containers, and one with what changed since. They are
sealed under a key of the user and the broker. A row that is missing, damaged or outdated costs only reading:
events are read again, or the containers listed. The containers are also listed if the log has another event
at the place that was read last: a log that was restored from a backup may have grown beyond this place again.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import unicodedata
import uuid
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import msgspec

from scbroker import errors
from scbroker.client import events
from scbroker.client.arguments import decode_header, moment, now
from scbroker.client.calls import tasks
from scbroker.client.calls.tasks import io_thread
from scbroker.client.containers import contents, fetching
from scbroker.client.core.judging import Mark
from scbroker.client.events import Source
from scbroker.client.local_state import LocalState
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import FileMarks, Position
from scbroker.crypto.seal import random_bytes, seal, unseal
from scbroker.crypto.verify import keyed_hash, label
from scbroker.errors import BrokerError
from scbroker.records.canonical import decoder
from scbroker.records.container_record import GROUP_TYPE, Role
from scbroker.types import Container, Header
from scbroker.vocabulary import AccessLevel, Availability, ContainerEventType, NamedGroup
from scbroker.wire.containers import MAX_BATCH
from scbroker.wire.events import MAX_PAGE, Event

LONGEST_NAME: Final = 1024
"""Characters. The time to normalize a name grows with the square of its length."""
_MOST_TWINS: Final = 64
"""Limit of other users' containers returned for one name: anybody can share thousands under a name that you
use."""
_MOST_PAGES: Final = 100
"""Pages of new events after which the containers are listed instead. A broker could serve events without
end."""
_FEWEST_CHANGES: Final = 256
"""Changes after which the row of all containers is written again; 1/32 of all containers if that is more."""
_LONG: Final = 64
"""Governing versions of a stranger's container above which it is read last, if entries of its list are
hidden: each reading then judges all of them again."""
_MAX_BYTES: Final = 256 * 1_048_576
"""Bytes of a sealed row. A larger index is not stored, and the next process lists all containers instead."""
_HASH: Final = 8
_ALL, _CHANGES = "index", "index-changes"
_NOTHING: Final = msgspec.Raw(b"\xc0")
_log = logging.getLogger("scbroker")
Log = uuid.UUID | None
"""The log of a group; None is the user's own."""


class _Slot(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The result of the last reading of a container. The name is in NFC; the row is decoded when needed."""

    version: int
    head: bytes
    """The first bytes of that version's hash; empty if this device has verified a later version meanwhile."""
    name: str | None = None
    row: msgspec.Raw = _NOTHING
    """Empty if the container is damaged or denied: it has to be read again before it is shown."""
    denied: bool = False
    """A damaged or denied container keeps its earlier name, because the error may be temporary."""

    @property
    def has_failed(self) -> bool:
        return self.row == _NOTHING


_Level = tuple[uuid.UUID, int, dt.datetime | None, str | None]
"""An access level: the user or group, the permissions, the expiry, and the group's fingerprint."""


class _Row(msgspec.Struct, array_like=True, frozen=True):
    """The fields of `Container` that a list shows."""

    type: str | None
    length: int | None
    createdAt: dt.datetime
    createdBy: uuid.UUID
    modifiedAt: dt.datetime
    modifiedBy: uuid.UUID
    modifiedVia: uuid.UUID | None
    modifierIsMember: bool | None
    via: uuid.UUID | None
    contentAvailability: Availability
    headerAvailability: Availability
    contentBy: uuid.UUID | None
    headerBy: uuid.UUID | None
    access: tuple[_Level, ...] | None
    isOwnDocument: bool


_LAYOUT: Final = ",".join((*_Slot.__struct_fields__, *_Row.__struct_fields__))


class _Place(msgspec.Struct, array_like=True, frozen=True):
    """The id of a log's next event, and the hash of the event before it (empty if none was read)."""

    id: int = 1
    last: bytes = b""


class _Stored(msgspec.Struct, array_like=True):
    """A row of the state file: all containers, or the changes since. Both rows have the same `number`."""

    layout: str
    """The fields of `_Slot` and `_Row`. An index written with others, by another version of this program, is
    made again."""
    number: bytes
    places: dict[Log, _Place]
    marks: Position
    """The position in the log of marks up to which the slots were compared with the device's marks."""
    slots: dict[bytes, _Slot | None]
    late: set[bytes] = set()
    """Changed containers of other users that are not read again yet, because their histories are long."""


class Index:
    """The containers of a session's user by id. `refresh` brings them up to date."""

    def __init__(self, session: Session, marks: FileMarks, state: LocalState) -> None:
        self._session, self._logged, self._state = session, marks, state
        secret = session.keys.ring.signing[0].derive("index-of-names")
        self._secret = keyed_hash(secret, "index", session.requests.endpoint.origin.encode())
        self._number = b""
        self._places: dict[Log, _Place] = {}
        self._marks: Position = 0, b""
        self._slots: dict[bytes, _Slot] = {}
        self._late: set[bytes] = set()
        self._changes: set[bytes] = set()
        """Containers that changed since the row of all containers was written."""
        self._lock = asyncio.Lock()

    async def find(
        self, names: Collection[str] | None = None, again: Collection[uuid.UUID] = ()
    ) -> tuple[dict[str, list[uuid.UUID]], list[uuid.UUID]]:
        """Return the ids of the containers by name, and those of containers that cannot be read.

        The index has the first 1,025 characters of longer names. Containers in `again` are read even if
        nothing says that they have changed. If all names are found, containers of others that have a long
        past are left to be read later: they may have other names by now. Of containers with one name, all are
        found that the user has created, and 64 others.
        """
        found: dict[str, list[uuid.UUID]] = {name: [] for name in names or ()}
        damaged = list[uuid.UUID]()
        async with self._lock:
            await self._refresh({each.bytes for each in again}, named=found)
            for key, slot in self._slots.items():
                if slot.has_failed:
                    damaged += [] if slot.denied else [uuid.UUID(bytes=key)]
                elif slot.name is not None and (names is None or slot.name in found):
                    found.setdefault(slot.name, []).append(uuid.UUID(bytes=key))
        for name, twins in found.items() if names is not None else ():
            if len(twins) > _MOST_TWINS:
                rows = await io_thread.in_pool(self._rows, [each.bytes for each in twins])
                own = {key for key, row in rows.items() if row.createdBy == self._session.userId}
                others = [each for each in twins if each.bytes not in own]
                left_out = set(others[_MOST_TWINS:])
                found[name] = [each for each in twins if each not in left_out]
        return found, damaged

    async def all(
        self, is_wanted: Callable[[str], bool] | None = None
    ) -> list[Container[Any] | BrokerError]:
        """Return all containers as a list does, ascending by id; their headers have the name alone.

        With `is_wanted`, return those with a name for which it is true, and errors. Of longer names a header
        has the first 1,025 characters: strangers choose them, and no list reads a container again for more.
        """
        is_shown = is_wanted or (lambda _: True)
        async with self._lock:
            fresh = await self._refresh(set(), is_shown)
            return await io_thread.in_pool(lambda: list(self._entries(is_shown, fresh)))

    def _shown(self, is_wanted: Callable[[str], bool]) -> list[bytes]:
        """Return the containers with a wanted name, and those without one because they cannot be read."""
        slots = self._slots.items()
        return sorted(key for key, slot in slots if slot.has_failed or is_wanted(slot.name or ""))

    def _entries(
        self, is_wanted: Callable[[str], bool], fresh: _Fresh
    ) -> Iterator[Container[Any] | BrokerError]:
        """Yield containers as this refresh read them, else from their rows; skip expired access."""
        time = moment(now())
        for key in self._shown(is_wanted):
            container_id, slot = uuid.UUID(bytes=key), self._slots[key]
            if (found := fresh.get(key)) is None:
                if slot.has_failed:
                    continue
                row = _ROW.decode(slot.row)
                reader = row.via or self._session.userId
                ends = [until for user, _, until, _ in row.access or () if user == reader]
                if all(until is None or until > time for until in ends):
                    yield _container(container_id, slot, row)
            elif not isinstance(found, errors.NotFoundError):
                yield found

    async def _refresh(
        self,
        stale: set[bytes],
        is_shown: Callable[[str], bool] | None = None,
        named: Collection[str] = (),
    ) -> _Fresh:
        """Bring the index up to date; return the containers that were read for it, or their errors.

        Reads the containers in `stale` again; those that `is_shown` wants by name and whose row is not enough
        to show them; and those in `named` that could not be read before.
        """
        again = frozenset(stale)
        if not self._number:
            await io_thread.in_pool(self._load)
        number, self._number = self._number, b""
        places = dict(self._places)
        # Until the end, the places may be past events whose containers were not read. If an error is raised
        # before, the empty number makes the next call load the stored rows again.
        try:
            if not number:
                raise errors.EventsExpiredError(firstId=0)
            stale |= await self._changed()
        except errors.EventsExpiredError:
            await self._list()
            number = b""
        stale |= self._late | await io_thread.in_pool(self._behind)
        slots = self._slots.items()
        stale |= {key for key, slot in slots if slot.name in named and slot.has_failed}
        if is_shown is not None:
            stale |= await io_thread.in_pool(self._unshown, is_shown)
        self._late = {key for key in stale - again if named and self._is_late(key, named)}
        fresh = await self._read(stale - self._late)
        if self._late and not {*named} <= {
            s.name for s in self._slots.values() if not s.has_failed
        }:
            fresh |= await self._read(self._late)
            self._late = set()
        self._number = number
        if stale or places != self._places:
            await io_thread.in_pool(self._save)
        denied = [key for key, found in fresh.items() if isinstance(found, errors.NotFoundError)]
        if is_shown is not None and denied:
            _log.warning(contents.LEFT_OUT, len(denied), uuid.UUID(bytes=min(denied)))
        return fresh

    def _is_late(self, key: bytes, named: Collection[str]) -> bool:
        """Return whether to read a container last, because a stranger may have given it a long history."""
        mark, slot = fetching.mark_of(self._session, key)[1], self._slots.get(key)
        if mark is None or mark.complete or mark.governingVersion <= _LONG:
            return False
        is_own = mark.createdBy == self._session.fingerprint
        return not is_own and slot is not None and slot.name not in named

    async def _changed(self) -> set[bytes]:
        """Return the containers that have new events in the logs.

        Events of a container that the user reaches through a group are in that group's log alone. So the log
        of a newly accepted group is read from its first event on.
        """
        async with tasks.all_or_first_error() as both:
            listing_groups = both.create_task(self._session.groups.listed())
            of_user = both.create_task(self._since(None))
        accepted: set[Log] = {each.group_id for each in listing_groups.result() if each.accepted}
        found = list(of_user.result())
        left = self._places.keys() - accepted - {None}

        async def of_group(group: Log) -> None:
            try:
                found.extend(await self._since(group))
            except errors.NotFoundError:  # the membership has just ended
                left.add(group)

        async with tasks.all_or_first_error() as each_log:
            for group in accepted:
                each_log.create_task(of_group(group))
        for group in left:
            self._places.pop(group, None)
        stale = {uuid.UUID(each.containerId).bytes for each in found if self._is_news(each)}
        groups = {uuid.UUID(each.containerId) for each in found if each.containerType == GROUP_TYPE}
        if left or groups:
            rows = await io_thread.in_pool(self._rows, self._slots)
            stale |= {k for k, row in rows.items() if row.via in left or row.modifiedVia in groups}
        return stale

    def _is_news(self, event: Event) -> bool:
        if event.containerType == GROUP_TYPE or event.eventType == ContainerEventType.Accessed:
            return False
        slot = self._slots.get(uuid.UUID(event.containerId).bytes)
        # A departure changes access without a new version: an access event always counts.
        is_update = event.eventType == ContainerEventType.Updated and "access" not in event.changes
        return not (slot is not None and is_update and 0 < event.version <= slot.version)

    def _rows(self, keys: Collection[bytes]) -> dict[bytes, _Row]:
        slots = ((key, self._slots[key]) for key in keys)
        return {key: _ROW.decode(slot.row) for key, slot in slots if not slot.has_failed}

    def _unshown(self, is_shown: Callable[[str], bool]) -> set[bytes]:
        """Return the containers whose rows are not enough to show them.

        The log of a group that is not the user's is not readable: only reading the container shows whether
        its modifier still is a member.
        """
        keys = set(self._shown(is_shown))
        rows = self._rows(keys)
        return keys - {
            key
            for key, row in rows.items()
            if row.modifiedVia is None or row.modifiedVia in self._places
        }

    async def _since(self, log: Log) -> list[Event]:
        """Return the events of a log since the last call, verified; of a new log, all of them.

        Raises `EventsExpiredError` if the broker dropped some of them, has too many, or serves another log.
        """
        place, found = self._places.get(log, _Place()), list[Event]()
        source = Source(self._session, log)
        for _ in range(_MOST_PAGES):
            start = place.id - 1 if place.last else place.id
            some = await events.page_from(source, start)
            if place.last and (not some or events.hash_of(some[0]) != place.last):
                raise errors.EventsExpiredError("The log is another one.", firstId=start)
            found += some[1:] if place.last else some
            if some:
                place = self._places[log] = _Place(some[-1].id + 1, events.hash_of(some[-1]))
            if len(some) < MAX_PAGE:
                return found
        raise errors.EventsExpiredError("The log has too many new events.", firstId=place.id)

    async def _list(self) -> None:
        """Make the index anew by listing all containers."""
        listed = await self._session.groups.listed()
        logs: list[Log] = [None, *(each.group_id for each in listed if each.accepted)]
        # Note the places before listing: changes made meanwhile have events after these places.
        self._places, self._marks = {}, (0, b"")
        for log in logs:
            source = Source(self._session, log)
            with contextlib.suppress(errors.NotFoundError):  # the membership has just ended
                end = await events.end_of_log(source)
                found = await events.page_from(source, end) if end else []
                last = next((events.hash_of(each) for each in found if each.id == end), b"")
                self._places[log] = _Place(end + 1, last)
        self._slots, self._late = {}, set()
        wanted = contents.Wanted(None, MAX_BATCH, _open_header)
        async for page in contents.pages(self._session, wanted, None):
            for each in page:
                container_id = each.id if isinstance(each, Container) else each.containerId
                if container_id is not None:
                    self._slots[container_id.bytes] = self._slot_of(container_id.bytes, each)

    def _behind(self) -> set[bytes]:
        """Return containers of which this device has verified another version than the index has."""
        found = set[bytes]()
        self._marks, marks = self._logged.set_since(fetching.KIND, self._marks)
        for key, stored in marks:
            slot, mark = self._slots.get(key), Mark.decode(stored)
            if slot is None:
                is_behind = not (mark.deleted or mark.left)
            elif slot.head:
                is_behind = slot.head != mark.hash[:_HASH]
            else:
                is_behind = slot.version < mark.version
            if is_behind:
                found.add(key)
        return found

    async def _read(self, stale: Collection[bytes]) -> _Fresh:
        """Read containers again; return each, or its error. Keeps denied ones: lists request them again."""
        ids = [uuid.UUID(bytes=key) for key in sorted(stale)]
        read = await contents.get_each(self._session, ids, _open_header, (Role.Header,))
        fresh: _Fresh = {}
        for each, outcome in zip(ids, read, strict=True):
            key = each.bytes
            self._changes.add(key)
            slot = self._slot_of(key, outcome)
            is_known = slot.version > 0 or not isinstance(outcome, errors.NotFoundError)
            if is_known and not isinstance(outcome, errors.DeletedError):
                if isinstance(outcome, BrokerError):
                    outcome.containerId = each
                self._slots[key], fresh[key] = slot, outcome
            else:
                self._slots.pop(key, None)
        return fresh

    def _slot_of(self, key: bytes, found: Container[Any] | BrokerError) -> _Slot:
        _, mark = fetching.mark_of(self._session, key)
        if isinstance(found, BrokerError):
            version = 0 if mark is None or mark.left else mark.version
            head = b"" if mark is None else mark.hash[:_HASH]
            before = self._slots.get(key)
            is_denied = isinstance(found, errors.NotFoundError)
            name = None if before is None else before.name
            return _Slot(version, head, name, denied=is_denied)
        head = mark.hash[:_HASH] if mark is not None and mark.version == found.version else b""
        name = None if found.header is None else found.header.customHeaderObject.get("name")
        row = msgspec.Raw(_ENCODER.encode(_row(found)))
        return _Slot(found.version, head, name and name[: LONGEST_NAME + 1], row)

    def _load(self) -> None:
        whole, changes = self._stored(_ALL), self._stored(_CHANGES)
        if whole is None:
            self._changes = set()
            return
        newest = whole if changes is None or changes.number != whole.number else changes
        self._number, self._places, self._marks = newest.number, newest.places, newest.marks
        self._late, self._changes = newest.late, set() if newest is whole else set(newest.slots)
        slots = {**whole.slots, **newest.slots}
        self._slots = {key: slot for key, slot in slots.items() if slot is not None}

    def _stored(self, part: str) -> _Stored | None:
        """Return a row; None if it is missing or damaged, or if another version of this program wrote it."""
        with self._state as connection:
            row = connection.execute("SELECT sealed FROM names WHERE part = ?", (self._name(part),))
            sealed = row.fetchone()
        try:
            found = _STORED.decode(unseal(self._secret, label(part), sealed[0]))
        except (TypeError, ValueError, errors.DecryptionError):
            return None
        return found if found.layout == _LAYOUT else None

    def _save(self) -> None:
        is_part = len(self._changes) <= max(_FEWEST_CHANGES, len(self._slots) // 32)
        part, slots = _CHANGES, {key: self._slots.get(key) for key in self._changes}
        if not (self._number and is_part):
            self._number, self._changes = random_bytes(16), set()
            part, slots = _ALL, {**self._slots}
        stored = _Stored(_LAYOUT, self._number, self._places, self._marks, slots, self._late)
        sealed = seal(self._secret, label(part), _ENCODER.encode(stored))
        if len(sealed) > _MAX_BYTES:
            sealed = b""
        try:
            with self._state as connection:
                row = self._name(part), sealed
                connection.execute("REPLACE INTO names VALUES (?, ?)", row)
        except errors.TrustStoreError as error:  # the next refresh writes it again
            _log.warning("The index of names is not kept: %s", error)

    def _name(self, part: str) -> bytes:
        return keyed_hash(self._secret, part)


_Fresh = dict[bytes, Container[Any] | BrokerError]
_ROW: Final = decoder(_Row)
_STORED: Final = decoder(_Stored)
_ENCODER: Final = msgspec.msgpack.Encoder(uuid_format="bytes")


def index_of(session: Session) -> Index | None:
    """Return the index of a session; None if its marks are not in a state file."""
    if session.state is None or not isinstance(session.marks, FileMarks):
        return None
    return Index(session, session.marks, session.state)


def _open_header(data: bytes | None) -> Header[Any] | None:
    """Return a header with only the name, in NFC: other users choose the size of the other fields."""
    if data is None:
        return None
    found = decode_header(data, Any)
    name = found.get("name") if isinstance(found, dict) else None
    if not isinstance(name, str) or not name:
        return Header({})
    return Header(
        {"name": name if len(name) > LONGEST_NAME else unicodedata.normalize("NFC", name)}
    )


def _row(found: Container[Any]) -> _Row:
    same = {name: getattr(found, name) for name in _Row.__struct_fields__ if name != "access"}
    access = None if found.access is None else tuple(map(_level, found.access))
    return _Row(**same, access=access)


def _level(level: AccessLevel) -> _Level:
    group = level.fingerprint if level.isGroup else None
    return level.userId, level.permissions, level.expiresAt, group


def _container(container_id: uuid.UUID, slot: _Slot, row: _Row) -> Container[Any]:
    shown = msgspec.structs.asdict(row)
    if row.access is not None:
        shown["access"] = tuple(
            AccessLevel(user if group is None else NamedGroup(user, group), permissions, until)
            for user, permissions, until, group in row.access
        )
    header = None if slot.name is None else Header({"name": slot.name})
    return Container(**shown, id=container_id, version=slot.version, header=header)
