"""Send signed records to the broker, and track which of them took effect.

A broker that refuses a record has it nevertheless: it can store the record, or show it to a member, at any
later time. So the client keeps version and hash of each record in the trust store before the record leaves,
and every later reading compares them with the history that it verifies. Every error says whether the change
may have taken effect.

An entry needs no second write when the record is confirmed at once: its version is then not above the mark's.
A writer reads the container before it writes, so an open entry is at most one version above the mark. The
record after the mark therefore shows whether the entry took effect.

`writing` makes the records of containers, `rosters` those of groups.
Spec: docs/spec/container.md, section 9; docs/spec/protocol.md, section 5.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import uuid
from abc import abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from enum import IntEnum
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from scbroker import errors
from scbroker.client.calls import tasks
from scbroker.client.core.judging import State
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import raise_to
from scbroker.errors import BrokerError, WriteOutcome
from scbroker.records.canonical import decoder
from scbroker.records.judge import Known
from scbroker.types import SentChange
from scbroker.vocabulary import KeyType
from scbroker.wire import containers
from scbroker.wire.containers import RecordReceipt, RecordRequest
from scbroker.wire.problems import result_of

KIND: Final = "pending"
_MOST: Final = 32
"""Entries kept for one container. The oldest is dropped first; its record then counts as another device's."""
HashOf = Callable[[int], bytes | None]
"""Return the hash of the record of a version; None if the verified history does not show it."""
_log = logging.getLogger("scbroker")


class Fate(IntEnum):
    """The outcome of a record, as far as this device has verified it."""

    Open = 0
    Stored = 1
    Voided = 2
    Unknown = 3
    """Its version has passed, and the broker keeps no record of that version any more."""


class Sent(msgspec.Struct, array_like=True, frozen=True):
    """A record that was about to leave this device."""

    version: int
    hash: bytes
    fate: int = Fate.Open


def remember(session: Session, container_id: bytes, version: int, record_hash: bytes) -> bool:
    """Store that this record is about to be sent; return whether others of its version may be stored instead.

    Forgets entries of earlier versions that were confirmed when they were sent.
    """
    entry = Sent(version, record_hash)
    if version == 1 and session.marks.swap(KIND, container_id, None, _encoded([entry])):
        return False  # a new container has no other records of this version
    has_rivals = False

    def decide(stored: bytes | None) -> bytes:
        nonlocal has_rivals
        kept = [e for e in _decoded(stored) if e.fate or e.version >= entry.version]
        has_rivals = any(not e.fate and e.hash != entry.hash for e in kept)
        if entry not in kept:
            kept.append(entry)
        return _encoded(kept[-_MOST:])

    raise_to(session.marks, KIND, container_id, decide)
    return has_rivals


def forget(session: Session, container_id: bytes, record_hash: bytes) -> None:
    """Drop the entry of a record that surely did not leave this device."""

    def decide(stored: bytes | None) -> bytes | None:
        kept = [e for e in _decoded(stored) if e.hash != record_hash]
        return None if stored is None else _encoded(kept)

    raise_to(session.marks, KIND, container_id, decide)


def settle(session: Session, state: State, reached: int) -> None:
    """Note what became of open entries, given a verified history from the version `reached` to this state.

    Called before the mark is raised, so that a crash in between loses nothing.
    """
    known = {state.record.version: state.head.hash}
    if state.record.parent is not None:
        known[state.record.version - 1] = state.record.parent
    if state.follower is not None:
        known[reached + 1] = state.follower
    settle_by(session, state.container_id, known.get, reached, state.record.version)


def settle_by(
    session: Session,
    container_id: bytes,
    hash_of: HashOf,
    reached: int,
    last: int,
    only: Collection[bytes] | None = None,
) -> None:
    """Note what became of open entries from above the version `reached` to `last`, by the hashes in between.

    Logs a warning for each record that took effect although the broker had refused it, or had not answered.
    With `only`, entries with other hashes stay as they are.
    """

    def settled(entry: Sent) -> Sent:
        is_passed = not entry.fate and reached < entry.version <= last
        if not is_passed or (only is not None and entry.hash not in only):
            return entry
        found = hash_of(entry.version)
        fate = Fate.Stored if found == entry.hash else Fate.Voided
        return replace(entry, fate=Fate.Unknown if found is None else fate)

    before = entries(session, container_id)
    if all(settled(each) is each for each in before):
        return
    raise_to(
        session.marks,
        KIND,
        container_id,
        lambda stored: _encoded(settled(each) for each in _decoded(stored)),
    )
    for each in before:
        after = settled(each)
        if after is not each and after.fate == Fate.Stored and each.hash not in session.sending:
            _log.warning(
                "Container %s: version %d is a change that this device sent without getting it "
                "confirmed; it took effect.",
                uuid.UUID(bytes=container_id),
                each.version,
            )


def entries(session: Session, container_id: bytes) -> list[Sent]:
    """Return a container's entries, oldest first."""
    return _decoded(session.marks.get(KIND, container_id))


def shown(found: Iterable[Sent], reached: int) -> list[SentChange]:
    """Return entries for the caller; `reached` is the version of the mark.

    An open entry that is not above the mark was confirmed at once: its operation has succeeded.
    """
    outcomes = {
        Fate.Open: WriteOutcome.Uncertain,
        Fate.Stored: WriteOutcome.Stored,
        Fate.Voided: WriteOutcome.NotStored,
        Fate.Unknown: WriteOutcome.Uncertain,
    }
    return [
        SentChange(each.version, outcomes[Fate(each.fate)])
        for each in found
        if each.fate or each.version > reached
    ]


def _encoded(found: Iterable[Sent]) -> bytes:
    return msgspec.msgpack.encode(list(found))


def _decoded(stored: bytes | None) -> list[Sent]:
    return [] if stored is None else decoder(list[Sent]).decode(stored)


T = TypeVar("T")
_ATTEMPTS: Final = 4
_DEPARTURES: Final = 16
"""Attempts of a departure: if as many users leave at once, each of them succeeds."""
_REQUEST_BYTES: Final = 1_048_576


class Attempt(Protocol):
    """A signed record that is ready to be sent."""

    @property
    def known(self) -> Known: ...
    @property
    def request(self) -> RecordRequest: ...


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
        """Read and verify the container, which notes whether the sent records took effect."""

    @abstractmethod
    async def keep(self, session: Session) -> None:
        """Raise the mark to the attempt, which the broker has stored."""

    def is_told_by_reading(self, error: BrokerError) -> bool:
        """Return whether reading the container may show what became of a record that got this error.

        A conflict means that another record has the version, or that the broker lies.
        """
        return type(error) in (errors.ConflictError, errors.AlreadyExistsError)

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
                return self.attempt.known.record.keyIndex != latest
            case errors.ConflictError():
                return self.can_follow_others
        return False

    def check_stored(self) -> None:
        if self.error is not None:
            raise self.error.fresh()

    # The following methods track in the trust store which records have left this device.

    def send(self, session: Session) -> None:
        """Note durably that the record is about to leave this device."""
        known = self.attempt.known
        self.has_rivals = remember(session, self.container_id, known.record.version, known.hash)
        self.hashes.add(known.hash)
        session.sending.add(known.hash)
        self.uncertain.append(self.attempt)

    def refuse_sent(self, session: Session, error: BrokerError) -> None:
        """End with the error of a request; forget the record if the request was not sent."""
        self.refuse(error)
        if error.outcome is WriteOutcome.NotStored:
            forget(session, self.container_id, self.attempt.known.hash)
            self.uncertain.remove(self.attempt)

    def confirm(self, session: Session) -> None:
        """End with success. Note that no other record of this version can take effect any more."""
        if self.has_rivals:
            known, version = self.attempt.known, self.attempt.known.record.version
            settle_by(session, self.container_id, {version: known.hash}.get, version - 1, version)
        self.is_stored = True

    def settle(self, session: Session) -> None:
        """Settle the sent records by what verified readings have shown."""
        if not self.uncertain:
            return
        fates = {each.hash: each.fate for each in entries(session, self.container_id)}
        for attempt in self.uncertain:
            if fates.get(attempt.known.hash) == Fate.Stored:
                self.attempt, self.is_stored, self.error = attempt, True, None
        self.uncertain = [
            attempt for attempt in self.uncertain if fates.get(attempt.known.hash) != Fate.Voided
        ]

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
            if item.error is None:
                continue
            with contextlib.suppress(BrokerError):  # then the outcome stays uncertain
                item.settle(session)
                if item.uncertain and item.is_told_by_reading(item.error):
                    with contextlib.suppress(errors.DeletedError):
                        await item.read(session)
                    item.settle(session)
            item.say_outcome()
    finally:
        session.sending.difference_update(*(item.hashes for item in items))


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
        item.send(session)
        container_id = uuid.UUID(bytes=item.container_id)
        path = f"/v1/containers/{container_id}/records/{item.attempt.known.record.version}"
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
    known = item.attempt.known
    if (receipt.version, receipt.hash) != (known.record.version, known.hash):
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
