"""Messages with many records or many views. Spec: docs/spec/protocol.md, section 5.

Each item is answered as the single operation would be, or with the problem that it would fail with.
"""

from typing import Annotated, Final

from msgspec import Meta

from scbroker.records.access_list import MAX_ENTRIES
from scbroker.wire.codec import Id, Message
from scbroker.wire.containers import ContainerView, RecordReceipt, RecordRequest
from scbroker.wire.problems import ItemProblem

MAX_BATCH: Final = 64
MAX_BATCH_ENTRIES: Final = MAX_ENTRIES
"""Access entries in all records of a batch: as many as one record may have."""


class RecordsRequest(Message, frozen=True, kw_only=True):
    records: Annotated[list[RecordRequest], Meta(min_length=1, max_length=MAX_BATCH)]


class RecordOutcome(Message, frozen=True, kw_only=True):
    """A receipt or a problem, never both."""

    receipt: RecordReceipt | None
    problem: ItemProblem | None


class RecordsAnswer(Message, frozen=True, kw_only=True):
    records: Annotated[list[RecordOutcome], Meta(max_length=MAX_BATCH)]


class ViewRequest(Message, frozen=True, kw_only=True):
    containerId: Id
    since: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None
    header: bool = False
    content: bool = False


class ViewsRequest(Message, frozen=True, kw_only=True):
    views: Annotated[list[ViewRequest], Meta(min_length=1, max_length=MAX_BATCH)]


class ViewOutcome(Message, frozen=True, kw_only=True):
    """A view or a problem, never both."""

    view: ContainerView | None
    problem: ItemProblem | None


class ViewsAnswer(Message, frozen=True, kw_only=True):
    """At least the first of the requested views; the client requests the others again."""

    views: Annotated[list[ViewOutcome], Meta(min_length=1, max_length=MAX_BATCH)]
