"""Whether everything acknowledged is stored, and whether everything stored is whole.

The first compares rows with the ledger; the second is the operators' own `scbroker admin check`. Each returns
sentences that say what is wrong. Both hold at any moment, also while brokers write.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Row

from assurance.faults.ledger import Acknowledged, Entry, Ledger
from assurance.faults.stored import Stored
from scbroker.records.canonical import user_id_of
from scbroker.records.container_record import bare_body, parse_either
from scbroker.server.containers.members import StoredList
from scbroker.server.storage import tables as t
from scbroker.vocabulary import ContainerEventType
from tests.kit.brokers import BrokerProcess
from tests.kit.operators import admin


def check_stored(broker: BrokerProcess) -> list[str]:
    """Return what `scbroker admin check` finds wrong in rows and objects."""
    done = admin(broker, "check")
    return [] if done.status == 0 else [*done.lines, done.error]


def check_events(stored: Stored) -> Iterator[str]:
    """Yield each version of a container that a user's log has twice."""
    events = (
        (row.user_id, row.container_id, row.version, row.event_type) for row in stored.of(t.events)
    )
    accessed = ContainerEventType.Accessed.value
    for (user, container, version, kind), count in Counter(events).items():
        if count > 1 and kind != accessed and version:  # a deletion empties events: version 0
            yield f"user {user.hex()}: {count} events of version {version} of {container.hex()}"


def check_acknowledged(stored: Stored, told: Acknowledged) -> Iterator[str]:
    """Yield each acknowledged write whose record is not stored with the bytes that the client signed.

    Of a deleted container, the broker keeps the governing records alone, in their bare form.
    """
    records = {(row.container_id, row.version): row.body for row in stored.of(t.records)}
    deleted = {row.id for row in stored.of(t.containers) if row.deleted}
    heads = {row.id: row.version for row in stored.of(t.containers)}
    for container, found in told.entries.items():
        for version, entry in found.items():
            body = records.get((container.bytes, version))
            if body is None and container.bytes in deleted and not _governs(entry):
                body = entry.record if version < heads[container.bytes] else None
            if body is None:
                yield f"{container}: version {version} was acknowledged and is not there"
            elif entry.record is None or bare_body(body) != bare_body(entry.record):
                yield f"{container}: version {version} is another record than was acknowledged"
    for container in told.deleted - {uuid.UUID(bytes=name) for name in deleted}:
        yield f"{container}: its deletion was acknowledged and did not happen"


def _governs(entry: Entry) -> bool:
    return entry.record is not None and parse_either(entry.record).record.governing is not None


def settle(
    stored: Stored, told: Acknowledged, ledger: Ledger, users: list[uuid.UUID]
) -> Iterator[str]:
    """Find the versions of acknowledged changes of access, by their author and their list."""
    records, lists = _grouped(stored, t.records), _grouped(stored, t.access_lists)
    for container, pending in told.unnumbered.items():
        known = ledger.entries[container]
        # An author's changes were acknowledged in the order of their versions.
        rows = sorted(records[container.bytes], key=lambda row: int(row.version))
        free = [row for row in rows if row.version not in known]
        whole = {row.access_version: row.entries for row in lists[container.bytes]}
        if container.bytes in {row.id for row in stored.of(t.containers) if row.deleted}:
            whole = {}  # of its lists, only the authors' entries are kept
        for entry in pending:
            row = next((row for row in free if _is_of(row, entry, whole, users)), None)
            if row is None:
                yield f"{container}: a change of access was acknowledged and is not there"
                continue
            free.remove(row)
            ledger.settle(container, entry, row.version, row.body)


def _is_of(row: Row[Any], entry: Entry, lists: Mapping[int, bytes], users: list[uuid.UUID]) -> bool:
    record = parse_either(row.body).record
    if not record.changes_access or user_id_of(record.author) != users[entry.user]:
        return False
    if row.version not in lists:
        return True
    found = StoredList.decode(lists[row.version]).verified().entries
    signed = {user_id_of(name): each.permissions for name, each in found.items()}
    given = entry.values["access"]
    return signed == {users[user]: grant.permissions for user, grant in given.items()}


def _grouped(stored: Stored, table: Any) -> dict[bytes, list[Row[Any]]]:
    groups: dict[bytes, list[Row[Any]]] = defaultdict(list)
    for row in stored.of(table):
        groups[row.container_id].append(row)
    return groups
