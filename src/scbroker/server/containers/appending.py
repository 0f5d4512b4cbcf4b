"""Appending records to containers, one or many at once. Spec: docs/spec/container.md, section 10.

A record goes through here in order: `incoming` (what needs no database), the author's signature, and
`containers.store`, in one transaction for all that came together. Nothing is stored that was not judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.errors import (
    BrokerError,
    BrokerUnavailableError,
    IntegrityError,
    OverloadedError,
    RejectedError,
)
from scbroker.records.judge import verify_author
from scbroker.records.key_record import KeyChain
from scbroker.server.broker import Broker, Call
from scbroker.server.containers import members, tombstones
from scbroker.server.containers.incoming import Incoming, parse_incoming
from scbroker.server.containers.members import KeysChangedError
from scbroker.server.containers.storing import is_stored, locked, store
from scbroker.server.parts.sweeping import sweep_at_once
from scbroker.server.storage import statements as sql
from scbroker.server.storage.database import NewRows
from scbroker.server.users import throttle
from scbroker.wire.containers import RecordReceipt, RecordRequest

_ATTEMPTS: Final = 4
_VERIFIED_AT_ONCE: Final = 16
Outcome = bool | BrokerError
"""Whether a record is new, or why it was refused."""


async def append(broker: Broker, call: Call, message: RecordRequest) -> tuple[RecordReceipt, bool]:
    """Appends a record, or finds that it was appended before. Second: whether it is new."""
    incoming = parse_incoming(broker.settings, call, message)
    [outcome] = await append_each(broker, [incoming])
    await sweep_after(broker, [incoming])
    if isinstance(outcome, BrokerError):
        raise outcome
    return incoming.receipt, outcome


async def append_each(broker: Broker, items: Sequence[Incoming]) -> list[Outcome]:
    """Appends records of one author in one transaction, in order. One that is refused undoes no other."""
    length = items[0].user.chain_length
    for _ in range(_ATTEMPTS):
        try:
            return await _append_once(broker, items, length)
        except KeysChangedError as changed:  # nothing was stored: all of them again
            length = changed.length
    raise OverloadedError("Your keys were changed again and again meanwhile.", retryAfter=1)


async def sweep_after(broker: Broker, items: Sequence[Incoming]) -> None:
    """Purge the containers that these records deleted, and sweep their parts."""
    deleted = {item.container_id for item in items if item.known.record.tombstone}
    if deleted:
        with contextlib.suppress(BrokerError):  # the record is durable: what fails is done later
            await tombstones.purge_at_once(broker, deleted)
            await sweep_at_once(broker)


async def _append_once(
    broker: Broker, items: Sequence[Incoming], chain_length: int
) -> list[Outcome]:
    """Verifies with the author's chain of this length, and stores while that is still their chain."""
    held = broker.chains.held(items[0].user.id, chain_length)
    if len(items) == 1 and held is not None and _refusal(items[0], held) is None:
        return await _write(broker, items, chain_length)

    def known(connection: Connection) -> tuple[set[int], KeyChain | None]:
        """Which records are stored, so that nothing is judged; and the keys to judge the others by."""
        stored = {n for n, item in enumerate(items) if is_stored(connection, item)}
        if len(stored) == len(items):
            return stored, None
        return stored, broker.chains.get(connection, items[0].user.id, chain_length)

    stored, chain = await broker.database.read(known, large=True)
    outcomes: dict[int, Outcome] = dict.fromkeys(stored, False)
    if chain is not None:
        waiting = [n for n in range(len(items)) if n not in stored]
        refusals = await _verify_each([items[n] for n in waiting], chain)
        outcomes |= {n: refusals[at] for at, n in enumerate(waiting) if refusals[at] is not None}
        left = [n for n in waiting if n not in outcomes]
        written = await _write(broker, [items[n] for n in left], len(chain.records))
        outcomes |= dict(zip(left, written, strict=True))
    return [outcomes[n] for n in range(len(items))]


async def _verify_each(items: Sequence[Incoming], chain: KeyChain) -> list[Any]:
    """For each, why its signature does not count, or None. Of many beside the loop, on all cores."""
    if len(items) == 1:
        return [_refusal(items[0], chain)]
    pieces = [items[at : at + _VERIFIED_AT_ONCE] for at in range(0, len(items), _VERIFIED_AT_ONCE)]

    def verify(piece: Sequence[Incoming]) -> list[RejectedError | None]:
        return [_refusal(item, chain) for item in piece]

    found = await asyncio.gather(*(asyncio.to_thread(verify, piece) for piece in pieces))
    return [refusal for piece in found for refusal in piece]


def _refusal(incoming: Incoming, chain: KeyChain) -> RejectedError | None:
    try:
        verify_author(incoming.signed, incoming.known.record, chain)
        chain.check_active(incoming.known.record.keyIndex)
    except IntegrityError as error:
        return RejectedError(str(error))
    return None


async def _write(broker: Broker, items: Sequence[Incoming], chain_length: int) -> list[Outcome]:
    """All in one transaction; of several, each under a savepoint of its own."""
    if not items:
        return []
    if len(items) > 1:
        return await broker.database.write(lambda c: _Batch(c, broker, items, chain_length).store())
    item = items[0]

    def store_one(connection: Connection, *, hopeful: bool) -> bool:
        new = NewRows()
        container = None if hopeful and item.is_first else locked(connection, item)
        is_new = store(connection, item, container, chain_length, new, hopeful=hopeful)
        if is_new:
            throttle.count_grants(connection, broker, item.user.id, new)
            new.write(connection)
        return is_new

    insert_first = functools.partial(store_one, hopeful=True)
    read_first = functools.partial(store_one, hopeful=False)
    try:
        return [await broker.database.write(insert_first, otherwise=read_first)]
    except BrokerUnavailableError:
        raise
    except BrokerError as refusal:
        if not item.is_first:
            return [refusal]
    # Refused without reading whether the container exists: if it does, the answer may be another one.
    try:
        return [await broker.database.write(read_first)]
    except BrokerUnavailableError:
        raise
    except BrokerError as refusal:
        return [refusal]


class _Batch:
    """Several records in one transaction, and what is read, held and added for all of them at once."""

    def __init__(
        self, connection: Connection, broker: Broker, items: Sequence[Incoming], chain_length: int
    ) -> None:
        self._connection, self._broker = connection, broker
        self._items, self._chain_length = items, chain_length
        # Containers before users, each in one statement: in the one order of all who lock several.
        some = sorted({item.container_id for item in items})
        found = {row.id: row for row in connection.execute(sql.LOCK_CONTAINERS, {"some": some})}
        self._containers = {container_id: found.get(container_id) for container_id in some}
        self._held = members.hold_all(connection, items)
        self._new = NewRows()

    def store(self) -> list[Outcome]:
        outcomes = [self._store_or_undo(item) for item in self._items]
        self._new.write(self._connection)
        return outcomes

    def _store_or_undo(self, incoming: Incoming) -> Outcome:
        container, new = self._container(incoming), NewRows()
        outcome: Outcome
        self._connection.exec_driver_sql("SAVEPOINT item")
        try:
            outcome = store(
                self._connection, incoming, container, self._chain_length, new, self._held
            )
            if not outcome:
                new = NewRows()
            self._check_parts(new)
            throttle.count_grants(self._connection, self._broker, incoming.user.id, new)
            if container is not None:
                new.write(self._connection)
        except BrokerError as error:
            self._connection.exec_driver_sql("ROLLBACK TO item")
            outcome, new = error, NewRows()
        self._connection.exec_driver_sql("RELEASE item")
        self._new.take(new)
        return outcome

    def _container(self, incoming: Incoming) -> Row[Any] | None:
        """Its row, as it was read for all or, after a first record of the batch, as it is then.

        What waits to be added is added ahead of whatever is not new: it may be read, and events stand
        in the order of their records.
        """
        if incoming.container_id in self._containers:
            container = self._containers.pop(incoming.container_id)
            if container is not None:
                self._new.write(self._connection)
            return container
        self._new.write(self._connection)
        return locked(self._connection, incoming)

    def _check_parts(self, new: NewRows) -> None:
        """Those that wait to be added are not in the table, where `store` looks for them."""
        waiting = {row["part_id"] for row in self._new.of(sql.ADD_PART)}
        if any(row["part_id"] in waiting for row in new.of(sql.ADD_PART)):
            raise RejectedError("A part id is used a second time.")
