"""Creating many containers in one round trip: as `writing.create`, for each of them.

The recipients' keys are asked for once for all.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from scbroker.client.calls.tasks import (
    EVERYTHING,
    MISCOUNTED,
    NEITHER,
    a_few_at_once,
    each_in_pool,
    shown,
)
from scbroker.client.containers.change import Change, keys_of, seal_parts, seal_small
from scbroker.client.containers.sending import Prepared, finish, prepare, stored
from scbroker.client.containers.writing import (
    RETRIES,
    draft_first,
    grants_of,
    has_old_key,
    look_at_own_keys,
)
from scbroker.client.parts.content import Content
from scbroker.client.users.session import Session
from scbroker.crypto.seal import random_bytes
from scbroker.crypto.verify import HASH_SIZE
from scbroker.errors import BrokerError, BrokerFaultError, RejectedError, StaleKeysError
from scbroker.records.ids import container_id_of
from scbroker.records.key_record import KeyChain
from scbroker.types import SecuredContainer
from scbroker.wire.batches import (
    MAX_BATCH,
    MAX_BATCH_ENTRIES,
    RecordOutcome,
    RecordsAnswer,
    RecordsRequest,
)
from scbroker.wire.containers import RecordReceipt, RecordRequest
from scbroker.wire.problems import ItemProblem, error_of_item

_BYTES: Final = 1_048_576


@dataclass(slots=True, eq=False)
class _New:
    """A container that is being created, with the same nonce on every attempt."""

    change: Change
    nonce: bytes
    container_id: bytes
    outcome: SecuredContainer | BrokerError | None = None

    @classmethod
    def begin(cls, session: Session, change: Change) -> _New:
        nonce = random_bytes(HASH_SIZE)
        return cls(change, nonce, container_id_of(session.fingerprint, nonce).bytes)

    @property
    def is_at_hand(self) -> bool:
        """Whether nothing was sealed yet, and sealing needs neither reading nor sending."""
        content = self.change.content
        return not self.change.sealed and not (
            isinstance(content, Content) and content.small is None
        )


async def create_each(
    session: Session, changes: Sequence[Change]
) -> list[SecuredContainer | BrokerError]:
    """Begins containers. What was made, or why it was not, in the order of the changes."""
    items = [_New.begin(session, change) for change in changes]
    for attempt in range(RETRIES):
        is_last = attempt == RETRIES - 1
        groups = _groups(session, _open(items))
        await a_few_at_once(_create_some(session, group, is_last=is_last) for group in groups)
    return [shown(cast(SecuredContainer | BrokerError, item.outcome)) for item in items]


def _open(items: Sequence[_New]) -> list[_New]:
    return [item for item in items if item.outcome is None]


def _groups(session: Session, items: Sequence[_New]) -> Iterator[list[_New]]:
    """As many as one request takes."""
    group: list[_New] = []
    entries = 0
    for item in items:
        more = len(grants_of(session, item.change))
        if group and (len(group) == MAX_BATCH or entries + more > MAX_BATCH_ENTRIES):
            yield group
            group, entries = [], 0
        group.append(item)
        entries += more
    if group:
        yield group


async def _create_some(session: Session, items: list[_New], *, is_last: bool) -> None:
    """One attempt. Whatever has no outcome afterwards is to be tried again."""
    chains = await _recipients(session, items)
    large = [item for item in _open(items) if not item.is_at_hand]
    for item in large:
        try:
            await seal_parts(session, item.change, item.container_id, None, _verified)
        except EVERYTHING:
            raise
        except BrokerError as error:
            item.outcome = error
    if large:
        chains = await _recipients(session, _open(items))
    key = await session.signing_key()

    def prepared(item: _New) -> Prepared:
        seal_small(item.change, item.container_id, session.fingerprint)
        draft = draft_first(session, item.change, item.container_id, item.nonce, chains, key)
        return prepare(session, item.change, draft, None)

    left, ready = _open(items), {}
    for item, made in zip(left, await each_in_pool(prepared, left), strict=True):
        if isinstance(made, BrokerError):
            item.outcome = made
        else:
            ready[item] = made
    for some in _requests(ready):
        await _send(session, some, is_last=is_last)


async def _verified() -> None:
    """Do nothing: the recipients' keys were verified for the whole batch."""


async def _recipients(session: Session, items: list[_New]) -> Mapping[uuid.UUID, KeyChain]:
    """The keys of all recipients in one question; where that fails, in one for each container."""
    grants = {item: grants_of(session, item.change).keys() for item in items}
    try:
        return await keys_of(session, set().union(*grants.values()))
    except BrokerError as error:
        if isinstance(error, EVERYTHING):
            raise
    found: dict[uuid.UUID, KeyChain] = {}
    for item in items:
        try:
            found |= await keys_of(session, grants[item])
        except EVERYTHING:
            raise
        except BrokerError as error:
            item.outcome = error
    return found


def _requests(ready: Mapping[_New, Prepared]) -> Iterator[dict[_New, Prepared]]:
    """About a megabyte at a time."""
    some: dict[_New, Prepared] = {}
    size = 0
    for item, prepared in ready.items():
        more = _size(prepared.request)
        if some and size + more > _BYTES:
            yield some
            some, size = {}, 0
        some[item] = prepared
        size += more
    if some:
        yield some


def _size(request: RecordRequest) -> int:
    parts = len(request.header or b"") + len(request.content or b"")
    return 8192 + parts + 1536 * len(request.accessList or ())


async def _send(session: Session, some: Mapping[_New, Prepared], *, is_last: bool) -> None:
    message = RecordsRequest(records=[prepared.request for prepared in some.values()])
    answer = await session.call("POST", "/v1/batches/records", RecordsAnswer, message=message)
    if len(answer.records) != len(some):
        raise BrokerFaultError(MISCOUNTED)
    outcomes = dict(zip(some, answer.records, strict=True))
    for item, outcome in outcomes.items():
        try:
            item.outcome = await _finished(session, some[item], outcome)
        except BrokerError as error:
            item.outcome = error
    if not is_last:
        refused = {item: item.outcome for item in some if outcomes[item].problem is not None}
        await _open_outdated(session, some, refused)


async def _open_outdated(
    session: Session,
    some: Mapping[_New, Prepared],
    refused: Mapping[_New, SecuredContainer | BrokerError | None],
) -> None:
    """Has those tried again that a broker refused for keys that are others by now."""
    if any(isinstance(why, RejectedError) for why in refused.values()):
        await look_at_own_keys(session)
    for item, why in refused.items():
        if isinstance(why, StaleKeysError) or (
            isinstance(why, RejectedError) and has_old_key(session, some[item].draft)
        ):
            item.outcome = None


async def _finished(
    session: Session, prepared: Prepared, outcome: RecordOutcome
) -> SecuredContainer:
    match outcome:
        case RecordOutcome(receipt=RecordReceipt() as receipt, problem=None):
            await finish(session, prepared, receipt)
            return stored(session, prepared)
        case RecordOutcome(receipt=None, problem=ItemProblem() as problem):
            raise error_of_item(problem)
    raise BrokerFaultError(NEITHER)
