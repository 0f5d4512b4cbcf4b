"""Create many containers with a few requests. Spec: docs/spec/protocol.md, section 5."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from scbroker.client.calls.tasks import MISCOUNTED, NEITHER, a_few_at_once
from scbroker.client.containers.change import Change
from scbroker.client.containers.writing import Writing, attempt_creation, finish, until_stored
from scbroker.client.users.session import Session
from scbroker.errors import BrokerError, BrokerFaultError
from scbroker.types import SecuredContainer
from scbroker.wire.batches import (
    MAX_BATCH,
    MAX_BATCH_ENTRIES,
    RecordOutcome,
    RecordsAnswer,
    RecordsRequest,
)
from scbroker.wire.containers import RecordReceipt
from scbroker.wire.problems import ItemProblem, error_of_item

_REQUEST_BYTES: Final = 1_048_576


async def create_each(
    session: Session, changes: Sequence[Change]
) -> list[SecuredContainer | BrokerError]:
    """Create containers; return each or its error, in the order of the changes."""
    items = [Writing.creating(session, change) for change in changes]
    attempt = partial(attempt_creation, send=_send)

    def entries(item: Writing) -> int:
        # A group of the smallest weight has exactly MAX_BATCH containers.
        return max(len(item.grants(session)), MAX_BATCH_ENTRIES // MAX_BATCH)

    groups = _cut(items, entries, MAX_BATCH_ENTRIES)
    await a_few_at_once(until_stored(session, group, attempt) for group in groups)
    return [item.error or item.result(session) for item in items]


async def _send(session: Session, items: Sequence[Writing]) -> None:
    """Send first records, about a megabyte in a request."""
    for some in _cut(items, _size, _REQUEST_BYTES):
        message = RecordsRequest(records=[item.prepared.request for item in some])
        answer = await session.call("POST", "/v1/batches/records", RecordsAnswer, message=message)
        if len(answer.records) != len(some):
            raise BrokerFaultError(MISCOUNTED)
        for item, outcome in zip(some, answer.records, strict=True):
            match outcome:
                case RecordOutcome(receipt=RecordReceipt() as receipt, problem=None):
                    try:
                        await finish(session, item, receipt)
                    except BrokerError as error:
                        item.fail(error)
                case RecordOutcome(receipt=None, problem=ItemProblem() as problem):
                    item.refuse(error_of_item(problem))
                case _:
                    item.fail(BrokerFaultError(NEITHER))


def _size(item: Writing) -> int:
    """Return about how many bytes an item takes in a request."""
    request = item.prepared.request
    parts = len(request.header or b"") + len(request.content or b"")
    return 8192 + parts + 1536 * len(request.accessList or ())


def _cut(
    items: Sequence[Writing], weigh: Callable[[Writing], int], most: int
) -> Iterator[list[Writing]]:
    """Cut a list wherever the next item would make a piece heavier than `most`."""
    piece: list[Writing] = []
    weight = 0
    for item in items:
        more = weigh(item)
        if piece and weight + more > most:
            yield piece
            piece, weight = [], 0
        piece.append(item)
        weight += more
    if piece:
        yield piece
