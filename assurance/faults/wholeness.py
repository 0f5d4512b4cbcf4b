"""Whether nothing is half there: rows against each other, objects against rows, both against the ledger.

Each check gives sentences that say what is wrong; none means that all is well. They hold at any
moment, also while brokers write: what is under way is either not there or there as a whole.
"""

from __future__ import annotations

import itertools
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Row

from assurance.faults.ledger import Acknowledged, Entry, Ledger
from assurance.faults.stored import Objects, Stored
from scbroker.crypto.verify import sha256
from scbroker.errors import IntegrityError
from scbroker.records.container_record import (
    SEALED_SEGMENT,
    ContainerRecord,
    Role,
    check_segment_hashes,
    parse_record,
    record_hash,
)
from scbroker.records.ids import user_id_of
from scbroker.server.containers.members import StoredList
from scbroker.server.storage import tables as t
from scbroker.vocabulary import ContainerEventType

Chain = dict[int, ContainerRecord]
_ADDED, _DELETED = ContainerEventType.Added.value, ContainerEventType.Deleted.value
_ACCESSED = ContainerEventType.Accessed.value


def check_rows(stored: Stored) -> Iterator[str]:
    """Every container, record, list, member, part and event has all of its counterparts."""
    records, lists = _grouped(stored, t.records), _grouped(stored, t.access_lists)
    members, parts = _grouped(stored, t.members), _grouped(stored, t.parts)
    events = _grouped(stored, t.events)
    chunks: dict[bytes, list[Row[Any]]] = defaultdict(list)
    for row in stored.of(t.chunks):
        chunks[row.part_id].append(row)
    known = {row.id for row in stored.of(t.containers)}
    for table, groups in {"records": records, "lists": lists, "members": members}.items():
        yield from (f"{_name(each)}: {table} without a container" for each in groups.keys() - known)
    for container in stored.of(t.containers):
        name = _name(container.id)
        found = list(_check_chain(container, records[container.id]))
        if found:
            yield from (f"{name}: {what}" for what in found)
            continue
        chain = {row.version: parse_record(row.body) for row in records[container.id]}
        for what in itertools.chain(
            _check_lists(container, chain, lists[container.id]),
            _check_members(container, lists[container.id], members[container.id]),
            _check_parts(container, chain, parts[container.id], chunks),
            _check_events(container, events[container.id], members[container.id]),
        ):
            yield f"{name}: {what}"


def check_numbers(stored: Stored) -> Iterator[str]:
    """The ids of each user's events: from 1 to the last, each once. Needs the rows of all containers."""
    numbers: dict[bytes, list[int]] = defaultdict(list)
    for row in stored.of(t.events):
        if row.id is not None:
            numbers[row.user_id].append(row.id)
    for user in stored.of(t.users):
        if sorted(numbers[user.id]) != list(range(1, user.last_event + 1)):
            yield f"user {_name(user.id)}: event ids are not 1 to {user.last_event}, each once"


def check_acknowledged(stored: Stored, told: Acknowledged) -> Iterator[str]:
    """What clients were told is stored is stored, with the very bytes that they signed."""
    records = {(row.container_id, row.version): row.body for row in stored.of(t.records)}
    for container, found in told.entries.items():
        for version, entry in found.items():
            body = records.get((container.bytes, version))
            if body is None:
                yield f"{container}: version {version} was acknowledged and is not there"
            elif body != entry.record:
                yield f"{container}: version {version} is another record than was acknowledged"
    buried = {row.id for row in stored.of(t.containers) if row.deleted}
    for container in told.deleted:
        if container.bytes not in buried:
            yield f"{container}: was deleted, and is there"


def settle(
    stored: Stored, told: Acknowledged, ledger: Ledger, users: list[uuid.UUID]
) -> Iterator[str]:
    """Finds the versions of acknowledged changes of access, by their author and their list."""
    records, lists = _grouped(stored, t.records), _grouped(stored, t.access_lists)
    for container, pending in told.unnumbered.items():
        known = ledger.entries[container]
        # An author's changes have the order in which they were told of; rows come in any.
        rows = sorted(records[container.bytes], key=lambda row: int(row.version))
        free = [row for row in rows if row.version not in known]
        whole = {row.access_version: row.entries for row in lists[container.bytes]}
        if container.bytes in {row.id for row in stored.of(t.containers) if row.deleted}:
            whole = {}  # a deletion leaves of each list the authors alone
        for entry in pending:
            row = next((row for row in free if _is_of(row, entry, whole, users)), None)
            if row is None:
                yield f"{container}: a change of access was acknowledged and is not there"
                continue
            free.remove(row)
            ledger.settle(container, entry, row.version, row.body)


def _is_of(row: Row[Any], entry: Entry, lists: Mapping[int, bytes], users: list[uuid.UUID]) -> bool:
    record = parse_record(row.body)
    if not record.changes_access or user_id_of(record.author) != users[entry.user]:
        return False
    if row.version not in lists:
        return True
    found = StoredList.decode(lists[row.version]).verified().entries
    signed = {user_id_of(name): each.permissions for name, each in found.items()}
    given = entry.values["access"]
    return signed == {users[user]: grant.permissions for user, grant in given.items()}


def check_objects(stored: Stored, objects: Objects, listed: set[str]) -> Iterator[tuple[str, str]]:
    """Names of objects with what is wrong with them. `listed` is what lay there before the snapshot.

    What a broker removes meanwhile is reported too: look a second time.
    """
    for name in sorted(listed - stored.named):
        if name.removesuffix("#1") in stored.doomed:  # half written by a broker that was killed
            continue
        yield name, f"the object {name} is nobody's, and is not going to be swept"
    committed = {row.part_id for row in stored.of(t.parts) if row.committed}
    for row in stored.of(t.chunks):
        if row.part_id not in committed:
            continue
        data = objects.read(row.blob)
        if data is None:
            yield row.blob, f"the object {row.blob} is missing, and a row names it"
        elif len(data) != row.size or _segment_hashes(data) != row.hashes:
            yield row.blob, f"the object {row.blob} is another than its row says"


def _segment_hashes(data: bytes) -> bytes:
    starts = range(0, len(data), SEALED_SEGMENT)
    return b"".join(sha256(data[start : start + SEALED_SEGMENT]) for start in starts)


def _check_chain(container: Row[Any], rows: list[Row[Any]]) -> Iterator[str]:
    rows = sorted(rows, key=lambda row: int(row.version))
    if [row.version for row in rows] != list(range(1, container.version + 1)):
        yield f"its records are not 1 to {container.version}"
        return
    parent = None
    for row in rows:
        record = parse_record(row.body)
        if (record.containerId, record.version) != (container.id, row.version):
            yield f"record {row.version} belongs elsewhere"
        if record.parent != parent:
            yield f"record {row.version} does not follow the one before it"
        if row.governing != (record.governing is not None):
            yield f"record {row.version} is marked wrong"
        parent = record_hash(row.body)
    governing = max(row.version for row in rows if row.governing)
    if container.governing_version != governing:
        yield f"it says that record {container.governing_version} governs, and {governing} does"
    if container.deleted != parse_record(rows[-1].body).tombstone:
        yield "it is deleted without a tombstone, or has one and is not deleted"


def _check_lists(container: Row[Any], chain: Chain, rows: list[Row[Any]]) -> Iterator[str]:
    named = {version for version, record in chain.items() if record.changes_access}
    if {row.access_version for row in rows} != named:
        yield "its lists are not those that its records name"
    if container.access_version != max(named):
        yield f"its list is not number {container.access_version}"


def _check_members(
    container: Row[Any], lists: list[Row[Any]], members: list[Row[Any]]
) -> Iterator[str]:
    if container.deleted:
        if any(row.wrap is not None for row in members):
            yield "it is deleted and still has keys"
        return
    current = next((row for row in lists if row.access_version == container.access_version), None)
    if current is None:
        return  # which was said already
    entries = StoredList.decode(current.entries).verified().entries
    signed = {user_id_of(name).bytes: entry.permissions for name, entry in entries.items()}
    if {row.user_id: row.permissions for row in members} != signed:
        yield "its members are not those of its list"


def _check_parts(
    container: Row[Any], chain: Chain, rows: list[Row[Any]], chunks: Mapping[bytes, list[Row[Any]]]
) -> Iterator[str]:
    head = chain[container.version]
    named = {part.partId: part for role in Role if (part := head.part(role)) is not None}
    kept = {row.part_id: row for row in rows if row.committed and row.replaced_at is None}
    if kept.keys() != named.keys():
        yield "its parts are not those that its last record names"
        return
    for part_id, part in named.items():
        row, pieces = kept[part_id], sorted(chunks[part_id], key=lambda piece: int(piece.chunk))
        hashes = b"".join(piece.hashes for piece in pieces)
        if row.inline is not None:
            hashes = sha256(row.inline)
        if row.hashes != hashes or [piece.chunk for piece in pieces] != list(range(len(pieces))):
            yield f"part {_name(part_id)} is not whole"
        try:
            check_segment_hashes(part, row.hashes)
        except IntegrityError:
            yield f"part {_name(part_id)} is another than was signed"


def _check_events(
    container: Row[Any], rows: list[Row[Any]], members: list[Row[Any]]
) -> Iterator[str]:
    """Of each user: added, then told of every version, until they are out or it is deleted."""
    logs: dict[bytes, list[Row[Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: int(row.row_id)):
        if row.event_type != _ACCESSED:
            logs[row.user_id].append(row)
    inside = set()
    for user, log in logs.items():
        last = None
        for row in log:
            follows = row.version == last + 1 if last is not None else row.event_type == _ADDED
            if not follows or (last is not None and row.event_type == _ADDED):
                yield f"user {_name(user)} was told of version {row.version} out of turn"
            last = None if row.event_type == _DELETED else row.version
        if last is not None:
            inside.add(user)
            if last != container.version:
                yield f"user {_name(user)} was not told of what came after version {last}"
    if inside != (set() if container.deleted else {row.user_id for row in members}):
        yield "its members are not those whose logs say so"


def _grouped(stored: Stored, table: Any) -> dict[bytes, list[Row[Any]]]:
    groups: dict[bytes, list[Row[Any]]] = defaultdict(list)
    for row in stored.of(table):
        groups[row.container_id].append(row)
    return groups


def _name(raw: bytes) -> str:
    return str(uuid.UUID(bytes=raw))
