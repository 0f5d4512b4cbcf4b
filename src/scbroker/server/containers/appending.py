"""Append records to containers, one or many at once. Spec: docs/spec/container.md, section 10.

A record is parsed (`incoming`), its signature is verified, then `storing` judges and stores it. All records
of a request are stored in one transaction; a single record is a batch of one. In a batch each record is
judged as it would be alone, and has a receipt or a problem of its own (docs/spec/protocol.md, section 5).
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from starlette.responses import Response

from scbroker import errors
from scbroker.records import batch
from scbroker.records.judge import verify_author
from scbroker.records.key_record import KeyChain
from scbroker.server import metrics
from scbroker.server.answers import answer
from scbroker.server.broker import Broker, Call, check_active, now
from scbroker.server.containers import ended_groups, members, storing, tombstones
from scbroker.server.containers.incoming import Incoming, Transaction, parse_incoming
from scbroker.server.containers.storing import Storing
from scbroker.server.parts.sweeping import sweep_at_once
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.database import Work
from scbroker.server.storage.driver import Connection, Row
from scbroker.wire import containers as wire
from scbroker.wire.codec import encode
from scbroker.wire.containers import RecordRequest
from scbroker.wire.problems import item_problem_of

_VERIFIED_AT_ONCE: Final = 16
_SECONDS: Final = 10.0
"""Seconds for which a request purges the containers that it deleted before it is answered."""
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


async def _sweep_after(broker: Broker, items: Sequence[Incoming]) -> None:
    """Purge the containers and groups that these records deleted, and sweep their parts."""
    deleted = {item.container_id for item in items if item.record.tombstone}
    if deleted:
        deadline = time.monotonic() + _SECONDS
        with contextlib.suppress(errors.BrokerError):  # background work repeats what fails here
            for purge in (ended_groups.purge_some, tombstones.purge_some):
                await tombstones.purge_each(broker, purge, deleted, deadline)
            await sweep_at_once(broker)


async def append_each(broker: Broker, items: Sequence[Incoming]) -> list[Outcome]:
    """Append records of one author in order, in one transaction. A refused record does not affect others.

    They are verified with the author's present chain, and stored only if it is still their chain then. What
    is stored is read only for records that this refuses: those that are stored need no signature.
    """
    user = items[0].user
    chain = await broker.chain_of(user)
    outcomes: list[Outcome | None] = [*await _verify_each(items, chain)]
    refused = [n for n, outcome in enumerate(outcomes) if outcome is not None]
    if refused:

        def find(connection: Connection) -> list[int]:
            return [n for n in refused if storing.is_stored(connection, items[n])]

        for n in await broker.database.read(find, large=True):
            outcomes[n] = False
    verified = [item for item, outcome in zip(items, outcomes, strict=True) if outcome is None]
    written = iter(await _write(broker, verified, user.chain_length) if verified else ())
    return [next(written) if outcome is None else outcome for outcome in outcomes]


async def _verify_each(
    items: Sequence[Incoming], chain: KeyChain
) -> list[errors.RejectedError | None]:
    """Return for each record why its signature is refused, or None; many are verified on all cores.

    A batch of one signature is verified in one thread: the others would verify it once more each.
    """
    if len(items) == 1:
        return [_refusal(chain, items[0])]
    signatures = {batch.signature_of(item.signed.signature) for item in items}
    at_once = len(items) if len(signatures) == 1 else _VERIFIED_AT_ONCE

    def verify(first: int) -> list[errors.RejectedError | None]:
        return [_refusal(chain, item) for item in items[first : first + at_once]]

    starts = range(0, len(items), at_once)
    found = await asyncio.gather(*(asyncio.to_thread(verify, first) for first in starts))
    return [refusal for some in found for refusal in some]


def _refusal(chain: KeyChain, incoming: Incoming) -> errors.RejectedError | None:
    try:
        verify_author(incoming.known, incoming.signed.signature, chain)
        chain.check_active(incoming.record.keyIndex)
    except errors.IntegrityError as error:
        return errors.RejectedError(str(error))
    return None


async def _write(broker: Broker, items: Sequence[Incoming], chain_length: int) -> list[Outcome]:
    """Store records in one transaction, or in a second one if the first fails.

    The first one inserts a single first record or a part without reading whether it exists, which is rare. If
    that fails, or the record is refused, this very record may be stored already: a second transaction reads
    first, and decides. If several records exceed the quota together, it stores those that fit.
    """
    work = partial(_store, broker=broker, items=items, chain_length=chain_length)
    careful = partial(work, careful=True)
    attempts: list[tuple[Work[list[Outcome]], ...]] = [(work, careful)]
    if len(items) > 1 or items[0].is_first:
        attempts.append((careful,))
    refusals: list[Outcome] = []
    for attempt in attempts:
        try:
            return await broker.database.write(*attempt)
        except errors.BrokerUnavailableError:
            raise
        except errors.BrokerError as error:
            if len(items) > 1 and attempt is attempts[-1]:  # it concerns the author, not a record
                raise
            refusals = [error]
    return refusals


def _store(
    connection: Connection,
    broker: Broker,
    items: Sequence[Incoming],
    chain_length: int,
    *,
    careful: bool = False,
) -> list[Outcome]:
    """Store records and return their outcomes; if there is only one and it is refused, raise its error.

    For each table, one statement locks and one inserts the rows of all records. One statement changes the
    author's usage; `QuotaExceededError` is raised if all records together exceed the quota. If `careful`,
    what exists is read before rows are inserted, and each record of several is charged, and refused, by
    itself.
    """
    is_single = len(items) == 1
    is_new = is_single and items[0].is_first and not careful
    charge_each = careful and not is_single
    # Read before the containers. If a part is taken because this very record was stored meanwhile, the
    # container is found then, and the record counts as a repetition.
    taken = storing.parts_taken(connection, items) if careful else set()
    # Lock order, as in every writer: containers in the order of their ids, then users.
    some = sorted({item.container_id for item in items})
    rows = () if is_new else connection.execute(sql.LOCK_CONTAINERS, {"some": some})
    containers: dict[bytes, Row | None] = {**dict.fromkeys(some), **{row.id: row for row in rows}}
    # Locked, so that during this transaction none of these users is deleted or changes keys, and no group in
    # the lists changes its epoch.
    named = {name for item in items for name in item.named}
    groups = {each for row in rows for each in members.group_ids_of(row)}
    users = members.users_of(connection, named, sql.SHARE_USERS, groups)
    storing.check_same_keys(check_active(users[items[0].user.fingerprint]), chain_length)
    tx = Transaction(connection, broker, containers, users, now(), taken)
    outcomes: list[Outcome] = [
        _store_in(tx, item, _next(tx, item))
        if is_single
        else _store_or_refuse(tx, item, charge_each=charge_each)
        for item in items
    ]
    tx.new.write(connection)
    times: dict[bytes, int] = {}
    for item, new in zip(items, outcomes, strict=True):
        if new is True:
            group = [item.record.via.group] if item.record.via else []
            for name in (item.user.fingerprint, *group):
                times[name] = max(item.record.time, times.get(name, 0))
    # No key may be retired, and no epoch ended, at a time before that of a record that was made with it. In
    # the order of names: two batches through the same groups could otherwise deadlock.
    for name, latest in sorted(times.items()):
        storing.raise_signed_until(connection, users[name], latest)
    if not charge_each:
        tx.charges.apply(connection)
    return outcomes


def _store_or_refuse(tx: Transaction, item: Incoming, *, charge_each: bool) -> Outcome:
    """Store one record of several; if it is refused, undo its writes and return the reason.

    A new container without uploaded content or other members only adds rows to `NewRows`: it needs no
    savepoint.
    """
    container, record = _next(tx, item), item.record
    is_alone = len(item.named) == 1 and not item.is_of_group(container)
    is_whole = record.content is None or item.message.content is not None
    if container is None and is_alone and is_whole and not charge_each:
        try:
            return _store_in(tx, item, container)
        except errors.BrokerError as error:
            return error
    tx.connection.run("SAVEPOINT item")
    try:
        outcome: Outcome = _store_in(tx, item, container, charge_at_once=charge_each)
    except errors.BrokerError as error:
        tx.connection.run("ROLLBACK TO item")
        outcome = error
    tx.connection.run("RELEASE item")
    return outcome


def _next(tx: Transaction, item: Incoming) -> Row | None:
    """Return the container of the next record: locked at the start, or read again for its further records.

    Rows that wait in `tx.new` are inserted first in three cases. A further record of a container reads them.
    A deletion writes at once, and events must have the order of their records. And a change deletes a
    container's members before it adds the new ones: after a new container, `NewRows` would add before it
    deletes.
    """
    is_locked = item.container_id in tx.containers
    container = tx.containers.pop(item.container_id, None)
    is_other_kind = (container is None) != (t.containers in tx.new)
    if not is_locked or item.record.tombstone or is_other_kind or item.is_of_group(container):
        tx.new.write(tx.connection)
    if not is_locked:
        container = sql.one(tx.connection, sql.LOCK_CONTAINER, id=item.container_id)
    return container


def _store_in(
    tx: Transaction, item: Incoming, container: Row | None, *, charge_at_once: bool = False
) -> bool:
    """Store a record in its container; return whether it is new, or raise the error that refuses it."""
    one = Storing(tx, item, container)
    if not one.store():
        return False
    members.check_grants(tx, item.user.id, one.new)
    if charge_at_once:
        one.charges.apply(tx.connection)
    tx.parts_taken.update(row["part_id"] for row in one.new.of(t.parts))
    tx.new.take(one.new)
    tx.charges.take(one.charges)
    if item.is_of_group(container):  # later records may name the group or its new epoch
        found = tx.connection.execute(sql.FIND_USERS, {"ids": [item.container_id]})
        tx.users.update({row.fingerprint: row for row in found})
    return True
