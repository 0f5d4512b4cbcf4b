"""Append records to containers, one or many at once. Spec: docs/spec/container.md, section 10.

A record is parsed, its signature is verified, then `storing` judges and stores it. All records of a request
are stored in one transaction; a single record is a batch of one. In a batch each record is judged as it would
be alone, and has a receipt or a problem of its own (docs/spec/protocol.md, section 5).
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row
from starlette.responses import Response

from scbroker import errors
from scbroker.records.judge import verify_author
from scbroker.records.key_record import KeyChain
from scbroker.server import metrics
from scbroker.server.answers import answer
from scbroker.server.broker import Broker, Call, now
from scbroker.server.charges import Charges
from scbroker.server.containers import members, storing, tombstones
from scbroker.server.containers.storing import Incoming, parse_incoming
from scbroker.server.parts.sweeping import sweep_at_once
from scbroker.server.storage import statements as sql
from scbroker.server.storage.database import NewRows
from scbroker.wire import containers as wire
from scbroker.wire.codec import encode
from scbroker.wire.containers import RecordRequest
from scbroker.wire.problems import item_problem_of

_ATTEMPTS: Final = 4
_VERIFIED_AT_ONCE: Final = 16
Outcome = bool | errors.BrokerError
"""Whether a record is new, or why it was refused."""


async def append(broker: Broker, call: Call, message: RecordRequest) -> Response:
    """Append a record: 201 if it is new, 200 if it was stored before."""
    incoming = parse_incoming(broker.settings, call, message)
    [outcome] = await append_each(broker, [incoming])
    await _sweep_after(broker, [incoming])
    if isinstance(outcome, errors.BrokerError):
        raise outcome
    return answer(encode(incoming.receipt), 201 if outcome else 200)


async def append_records(
    broker: Broker, call: Call, message: wire.RecordsRequest
) -> wire.RecordsAnswer:
    """Append records in order, in one transaction; a refused record does not affect the others."""
    if sum(len(item.accessList or ()) for item in message.records) > wire.MAX_BATCH_ENTRIES:
        raise errors.TooLargeError(
            f"A batch has at most {wire.MAX_BATCH_ENTRIES} access entries in all."
        )

    def parse(item: RecordRequest) -> Incoming | errors.BrokerError:
        try:
            return parse_incoming(broker.settings, call, item)
        except errors.BrokerError as error:
            return error

    parsed = await asyncio.to_thread(lambda: [parse(item) for item in message.records])
    good = [item for item in parsed if isinstance(item, Incoming)]
    outcomes = iter(await append_each(broker, good) if good else ())
    await _sweep_after(broker, good)
    answers = []
    for item in parsed:
        outcome = next(outcomes) if isinstance(item, Incoming) else item
        if isinstance(outcome, errors.BrokerError):
            metrics.count_problem(outcome)
            answers.append(wire.RecordOutcome(receipt=None, problem=item_problem_of(outcome)))
        elif isinstance(item, Incoming):
            answers.append(wire.RecordOutcome(receipt=item.receipt, problem=None))
    return wire.RecordsAnswer(records=answers)


async def append_each(broker: Broker, items: Sequence[Incoming]) -> list[Outcome]:
    """Append records of one author in order, in one transaction. A refused record does not affect others."""
    length = items[0].user.chain_length
    for _ in range(_ATTEMPTS):
        try:
            return await _append_once(broker, items, length)
        except storing.KeysChangedError as changed:  # nothing was stored: verify with the new keys
            length = changed.length
    raise errors.OverloadedError("Your keys changed several times meanwhile: try again.", 1)


async def _sweep_after(broker: Broker, items: Sequence[Incoming]) -> None:
    """Purge the containers that these records deleted, and sweep their parts."""
    deleted = {item.container_id for item in items if item.record.tombstone}
    if deleted:
        with contextlib.suppress(errors.BrokerError):  # the background repeats what fails here
            await tombstones.purge_at_once(broker, deleted)
            await sweep_at_once(broker)


async def _append_once(
    broker: Broker, items: Sequence[Incoming], chain_length: int
) -> list[Outcome]:
    """Verify with the author's chain of this length; store only if it is still their chain."""
    author = items[0].user.id
    cached = broker.chains.cached(author, chain_length)
    if len(items) == 1 and cached is not None and _refusal(cached, items[0]) is None:
        return await _write(broker, items, chain_length)

    def read(connection: Connection) -> tuple[set[int], KeyChain | None]:
        """Return the records that are stored, which need no signature, and the keys for the others."""
        stored = {n for n, item in enumerate(items) if storing.is_stored(connection, item)}
        if len(stored) == len(items):
            return stored, None
        return stored, broker.chains.get(connection, author, chain_length)

    stored, chain = await broker.database.read(read, large=True)
    outcomes: dict[int, Outcome] = dict.fromkeys(stored, False)
    if chain is not None:
        unknown = [n for n in range(len(items)) if n not in stored]
        refusals = await _verify_each([items[n] for n in unknown], chain)
        outcomes |= {n: why for n, why in zip(unknown, refusals, strict=True) if why is not None}
        verified = [n for n in unknown if n not in outcomes]
        written = await _write(broker, [items[n] for n in verified], len(chain.records))
        outcomes |= dict(zip(verified, written, strict=True))
    return [outcomes[n] for n in range(len(items))]


async def _verify_each(
    items: Sequence[Incoming], chain: KeyChain
) -> list[errors.RejectedError | None]:
    """Return for each record why its signature is refused, or None; many are verified on all cores."""

    def verify(first: int) -> list[errors.RejectedError | None]:
        return [_refusal(chain, item) for item in items[first : first + _VERIFIED_AT_ONCE]]

    if len(items) == 1:
        return verify(0)
    starts = range(0, len(items), _VERIFIED_AT_ONCE)
    found = await asyncio.gather(*(asyncio.to_thread(verify, first) for first in starts))
    return [refusal for some in found for refusal in some]


def _refusal(chain: KeyChain, incoming: Incoming) -> errors.RejectedError | None:
    try:
        verify_author(incoming.signed, incoming.record, chain)
        chain.check_active(incoming.record.keyIndex)
    except errors.IntegrityError as error:
        return errors.RejectedError(str(error))
    return None


async def _write(broker: Broker, items: Sequence[Incoming], chain_length: int) -> list[Outcome]:
    """Store records in one transaction.

    A single first record is mostly new, and is inserted without a look at what is stored. If the insert
    fails, or the record is refused, that may be because this very record is stored: then a second transaction
    reads first, and decides.
    """
    if not items:
        return []

    def store(
        connection: Connection, *, optimistic: bool = False, each: bool = False
    ) -> list[Outcome]:
        return _store(
            connection, broker, items, chain_length, optimistic=optimistic, charge_each=each
        )

    if len(items) == 1 and items[0].is_first:
        try:
            return await broker.database.write(lambda c: store(c, optimistic=True), store)
        except errors.BrokerUnavailableError:
            raise
        except errors.BrokerError:
            pass  # the second transaction decides
    try:
        return await broker.database.write(store)
    except errors.BrokerUnavailableError:
        raise
    except errors.QuotaExceededError as refusal:
        if len(items) == 1:
            return [refusal]
    except errors.BrokerError as refusal:  # of a single record: a batch returns them
        return [refusal]
    # All of them exceed the quota: store those that fit.
    return await broker.database.write(lambda c: store(c, each=True))


def _store(
    connection: Connection,
    broker: Broker,
    items: Sequence[Incoming],
    chain_length: int,
    *,
    optimistic: bool,
    charge_each: bool,
) -> list[Outcome]:
    """Return the outcomes of several records; raise what a single one is refused with.

    The rows of all of them are locked, and inserted, by one statement each. The author's usage is changed by
    one statement as well, and `QuotaExceededError` is raised if all of them exceed the quota; with
    `charge_each` by one for each record, which is refused alone.
    """
    # Lock order, as in every writer: containers in the order of their ids, then users.
    some = sorted({item.container_id for item in items})
    rows = () if optimistic else connection.execute(sql.LOCK_CONTAINERS, {"some": some})
    found = {row.id: row for row in rows}
    containers = {container_id: found.get(container_id) for container_id in some}
    # So the deletion of these users, or a change of their keys, happens before or after this transaction.
    named = {name for item in items for name in item.named}
    users = members.users_of(connection, named, sql.SHARE_USERS)
    tx = storing.Transaction(connection, chain_length, users, now(), optimistic)
    waiting, charges = NewRows(), Charges()

    def container_of(item: Incoming) -> Row[Any] | None:
        """Return the container's row: locked at the start, or read again for its next record.

        Waiting rows are inserted before anything that is not new: it may be read, and events must have the
        order of their records.
        """
        is_locked = item.container_id in containers
        container = containers.pop(item.container_id, None)
        if container is not None or not is_locked:
            waiting.write(connection)
        if not is_locked:
            container = sql.one(connection, sql.LOCK_CONTAINER, id=item.container_id)
        return container

    def store(item: Incoming, container: Row[Any] | None) -> bool:
        new, own = NewRows(), Charges()
        if not storing.store(tx, item, container, new, own):
            return False
        # Parts that are still to be inserted are not in the table, which `store` compared with.
        taken = {row["part_id"] for row in waiting.of(sql.ADD_PART)}
        if any(row["part_id"] in taken for row in new.of(sql.ADD_PART)):
            raise errors.RejectedError(storing.PART_TAKEN)
        members.check_grants(connection, broker, item.user.id, new, tx.moment)
        if container is not None:
            new.write(connection)
        if charge_each:
            own.apply(connection)
        waiting.take(new)
        charges.take(own)
        return True

    def store_or_undo(item: Incoming, container: Row[Any] | None) -> Outcome:
        connection.exec_driver_sql("SAVEPOINT item")
        try:
            outcome: Outcome = store(item, container)
        except errors.BrokerError as error:
            connection.exec_driver_sql("ROLLBACK TO item")
            outcome = error
        connection.exec_driver_sql("RELEASE item")
        return outcome

    store_item = store if len(items) == 1 else store_or_undo
    outcomes = [store_item(item, container_of(item)) for item in items]
    waiting.write(connection)
    times = [item.record.time for item, new in zip(items, outcomes, strict=True) if new is True]
    if times:
        storing.raise_signed_until(connection, users[items[0].user.fingerprint], max(times))
    if not charge_each:
        charges.apply(connection)
    return outcomes
