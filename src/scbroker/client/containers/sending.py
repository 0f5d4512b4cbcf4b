"""Send signed records to the broker, and track which of them took effect.

Once a record has left this device, the broker's refusal proves nothing: every error says whether the change
may have taken effect (`sent`). `writing` makes the records of containers, `rosters` those of groups.
Spec: docs/spec/container.md, section 9; docs/spec/protocol.md, section 5.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from scbroker import errors
from scbroker.client.calls import tasks
from scbroker.client.containers import sent
from scbroker.client.users.session import Session
from scbroker.errors import BrokerError, WriteOutcome
from scbroker.vocabulary import KeyType
from scbroker.wire import containers
from scbroker.wire.containers import RecordReceipt, RecordRequest
from scbroker.wire.problems import result_of

T = TypeVar("T")
_ATTEMPTS: Final = 4
_DEPARTURES: Final = 16
"""Attempts of a departure: if as many users leave at once, each of them succeeds."""
_REQUEST_BYTES: Final = 1_048_576


class Attempt(Protocol):
    """A signed record that is ready to be sent."""

    @property
    def request(self) -> RecordRequest: ...
    @property
    def version(self) -> int: ...
    @property
    def key_index(self) -> int: ...
    @property
    def hash(self) -> bytes: ...


A = TypeVar("A", bound=Attempt)


class Sending(Generic[A]):
    """A record on its way to the broker, in one or several attempts."""

    most_attempts: int = _ATTEMPTS

    def __init__(self, container_id: bytes) -> None:
        self.container_id = container_id
        self.attempt: A
        """The newest attempt; if `is_stored`, the one that the broker stored."""
        self.uncertain: list[A] = []
        """Attempts that were sent, and that no verified history has shown to be without effect."""
        self.hashes: set[bytes] = set()
        """Hashes of all records that were sent."""
        self.has_rivals: bool = False
        """Whether other records of the attempt's version were sent, in this operation or an earlier one."""
        self.is_stored: bool = False
        self.error: BrokerError | None = None
        self.is_refused: bool = False
        """Whether the error is a refusal of the record, by the broker or as outdated before it was sent."""

    @property
    def is_done(self) -> bool:
        return self.is_stored

    @property
    def can_follow_others(self) -> bool:
        """Return whether another attempt may follow a record that somebody else stored first."""
        return True

    @abstractmethod
    async def read(self, session: Session) -> None:
        """Read and verify the container, so that `sent` knows whether the sent records took effect."""

    @abstractmethod
    async def keep(self, session: Session) -> None:
        """Raise the mark to the attempt, which the broker has stored."""

    def is_told_by_reading(self, error: BrokerError) -> bool:
        """Return whether reading the container may show what became of a record that got this error.

        A conflict means that another record has the version, or that the broker lies.
        """
        return type(error) in (errors.ConflictError, errors.AlreadyExistsError)

    def before_send(self) -> None:
        """Drop state that must not be used again once the record has left this device."""

    def fail(self, error: BrokerError) -> None:
        """End with an error, kept without its traceback, which would keep the content in memory."""
        self.error = error.fresh()

    def refuse(self, error: BrokerError) -> None:
        """End with a refusal of the record, unless another attempt is made."""
        self.fail(error)
        self.is_refused = True

    def is_outdated(self, session: Session) -> bool:
        """Return whether a new attempt may succeed: the record was drafted from an outdated head or keys."""
        match self.error if self.is_refused else None:
            case errors.StaleKeysError():
                return True
            case errors.RejectedError():
                latest = session.directory.own.latest(KeyType.Signing).index
                return self.attempt.key_index != latest
            case errors.ConflictError():
                return self.can_follow_others
        return False

    def check_stored(self) -> None:
        if self.error is not None:
            raise self.error.fresh()

    # The following methods track in `sent` which records have left this device.

    def send(self, session: Session) -> None:
        """Note durably that the record is about to leave this device."""
        attempt = self.attempt
        self.has_rivals = sent.remember(session, self.container_id, attempt.version, attempt.hash)
        self.hashes.add(attempt.hash)
        session.sending.add(attempt.hash)
        self.uncertain.append(attempt)

    def refuse_sent(self, session: Session, error: BrokerError) -> None:
        """End with the error of a request; forget the record if the request was not sent."""
        self.refuse(error)
        if error.outcome is WriteOutcome.NotStored:
            sent.forget(session, self.container_id, self.attempt.hash)
            self.uncertain.remove(self.attempt)

    def confirm(self, session: Session) -> None:
        """End with success. Note that no other record of this version can take effect any more."""
        if self.has_rivals:
            version, hash_ = self.attempt.version, self.attempt.hash
            sent.settle_by(session, self.container_id, {version: hash_}.get, version - 1, version)
        self.is_stored = True

    def settle(self, session: Session) -> None:
        """Settle the sent records by what verified readings have shown."""
        if not self.uncertain:
            return
        fates = {each.hash: each.fate for each in sent.entries(session, self.container_id)}
        for attempt in self.uncertain:
            if fates.get(attempt.hash) == sent.Fate.Stored:
                self.attempt, self.is_stored, self.error = attempt, True, None
        self.uncertain = [a for a in self.uncertain if fates.get(a.hash) != sent.Fate.Voided]

    def say_outcome(self) -> None:
        """Set in the error whether the change may have taken effect."""
        if self.error is None:
            return
        if self.uncertain:
            self.error.outcome = WriteOutcome.Uncertain
            self.error.containerId = uuid.UUID(bytes=self.container_id)
        elif self.error.outcome is WriteOutcome.Uncertain:  # other records took its versions
            self.error.outcome = WriteOutcome.NotStored


S = TypeVar("S", bound=Sending[Any])


@contextlib.asynccontextmanager
async def outcomes_said(session: Session, items: Sequence[Sending[Any]]) -> AsyncIterator[None]:
    """Say in each item's error whether its change took effect; a change that did is a success.

    If any record was sent, an error of the whole operation becomes the error of each item that is not stored.
    """
    try:
        try:
            yield
        except BrokerError as error:
            if not any(item.uncertain or item.is_stored for item in items):
                raise
            for item in items:
                if not item.is_done and (item.error is None or len(items) == 1):
                    item.fail(error)
        for item in items:
            with contextlib.suppress(BrokerError):  # then the outcome stays uncertain
                await _find_out(session, item)
            item.say_outcome()
    finally:
        session.sending.difference_update(*(item.hashes for item in items))


async def _find_out(session: Session, item: Sending[Any]) -> None:
    """Read the container of a failed item to find out whether its records took effect."""
    if item.error is None:
        return
    item.settle(session)
    if item.uncertain and item.is_told_by_reading(item.error):
        with contextlib.suppress(errors.DeletedError):
            await item.read(session)
        item.settle(session)


async def until_stored(
    session: Session, items: Sequence[S], attempt: Callable[[Session, Sequence[S]], Awaitable[None]]
) -> None:
    """Attempt each change; repeat those whose keys or head were outdated, a bounded number of times."""
    for attempts in itertools.count(1):
        for item in items:
            item.error, item.is_refused = None, False
        await attempt(session, items)
        if any(isinstance(item.error, errors.RejectedError) and item.is_refused for item in items):
            # Perhaps the user's keys were changed: wait for a change under way, then read the latest key.
            async with session.changing_keys:
                await session.directory.latest_own()
        items = [
            item for item in items if item.is_outdated(session) and attempts < item.most_attempts
        ]
        if not items:
            return


async def until_signed(session: Session, attempt: Callable[[], Awaitable[None]]) -> None:
    """Read, sign and send a departure; repeat it after a change by others, a departure, or new own keys."""
    for attempts in itertools.count(1):
        try:
            await attempt()
        except errors.ConflictError:
            if attempts == _DEPARTURES:
                raise
        except errors.RejectedError:
            async with session.changing_keys:  # wait for a change of keys under way
                index = session.directory.own.latest(KeyType.Signing).index
                latest = (await session.directory.latest_own()).latest(KeyType.Signing)
            if latest.index == index or attempts == _DEPARTURES:
                raise
        else:
            return


async def send_one(session: Session, items: Sequence[Sending[Any]]) -> None:
    """Send each record by a request of its own."""
    for item in items:
        item.before_send()
        item.send(session)
        container_id = uuid.UUID(bytes=item.container_id)
        path = f"/v1/containers/{container_id}/records/{item.attempt.version}"
        request = item.attempt.request
        try:
            receipt = await session.call("PUT", path, RecordReceipt, message=request)
        except BrokerError as error:
            item.refuse_sent(session, error)
        else:
            await _finish(session, item, receipt)


async def send_many(session: Session, items: Sequence[Sending[Any]]) -> None:
    """Send records, about 1 MiB in a request; so none has more access entries than a batch may have."""
    for some in cut(items, _size, _REQUEST_BYTES):
        for item in some:
            item.send(session)
        message = containers.RecordsRequest(records=[item.attempt.request for item in some])
        try:
            answer = await session.call(
                "POST", "/v1/batches/records", containers.RecordsAnswer, message=message
            )
        except BrokerError as error:
            for item in some:
                item.refuse_sent(session, error)
            raise
        if len(answer.records) != len(some):
            raise errors.BrokerFaultError(tasks.MISCOUNTED)
        for item, answered in zip(some, answer.records, strict=True):
            outcome = result_of(answered.receipt, answered.problem)
            if isinstance(outcome, BrokerError):
                item.refuse(outcome)
                continue
            try:
                await _finish(session, item, outcome)
            except BrokerError as error:
                item.fail(error)


def _size(item: Sending[Any]) -> int:
    """Return about how many bytes an item takes in a request."""
    request: RecordRequest = item.attempt.request
    parts = len(request.header or b"") + len(request.content or b"")
    return 8192 + parts + 1536 * len(request.accessList or ())


def cut(items: Sequence[T], weigh: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Cut a list wherever the next item would make a piece heavier than `most`."""
    piece: list[T] = []
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


async def _finish(session: Session, item: Sending[Any], receipt: RecordReceipt) -> None:
    """Check the receipt of a stored record, and raise the mark."""
    attempt = item.attempt
    if (receipt.version, receipt.hash) != (attempt.version, attempt.hash):
        raise errors.IntegrityError("The broker's receipt is for another record than the one sent.")
    try:
        await item.keep(session)
        item.confirm(session)
    except errors.UntrustedError:
        raise  # the broker contradicts its own receipt
    except BrokerError as error:
        error.outcome, item.uncertain = WriteOutcome.Stored, []
        error.containerId = uuid.UUID(bytes=item.container_id)
        raise
