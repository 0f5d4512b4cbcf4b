"""Create and change containers: seal, draft, sign, judge as a reader would, send, keep the mark.

One container and a batch take the same way; they differ in the request that carries the records. Once a
record has left this device, the broker's refusal proves nothing: every error says whether the change may have
taken effect (`sent`).
Spec: docs/spec/container.md, section 9; docs/spec/protocol.md, section 5.
"""

import contextlib
import itertools
import uuid
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self

from scbroker import errors
from scbroker.client.arguments import now
from scbroker.client.calls import tasks
from scbroker.client.containers import drafting, fetching, opening, sent
from scbroker.client.containers.change import (
    KEEP,
    Change,
    Grants,
    Merge,
    check_living,
    keys_of,
    seal_parts,
)
from scbroker.client.containers.drafting import Draft
from scbroker.client.containers.opening import Fetched, Opened
from scbroker.client.core.judging import State
from scbroker.client.users.session import Session
from scbroker.crypto.seal import random_bytes
from scbroker.crypto.verify import HASH_SIZE
from scbroker.errors import BrokerError, WriteOutcome
from scbroker.records.canonical import MAX_UINT, container_id_of, encode_object
from scbroker.records.container_record import LABEL, AccessList, Part, Role, bare_body, wrap_hash
from scbroker.records.judge import Known, judge_first, judge_next
from scbroker.records.key_record import KeyChain, KnownKey, Signed
from scbroker.types import SecuredContainer
from scbroker.vocabulary import KeyType
from scbroker.wire import containers
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import RecordReceipt, RecordRequest
from scbroker.wire.problems import result_of

_ATTEMPTS: Final = 4
_MERGES: Final = 16
"""Attempts of a merge: if as many devices change one access list at once, each of them succeeds."""
_REQUEST_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class Attempt:
    """A signed record, with what its result is made of."""

    draft: Draft
    state: State
    """The container after the record, judged as a reader will judge it."""
    fetched: Fetched | None
    """The container that the record changes; None if the record creates it."""
    request: RecordRequest
    sealed: Mapping[Role, bytes | None]
    """The parts as a view would have them, new or carried over."""

    @property
    def hash(self) -> bytes:
        return self.state.head.hash

    def result(self, session: Session) -> SecuredContainer:
        """Return the container as its author would be served it after this record."""
        entry = self.state.governing.access.entries.get(session.fingerprint)
        may_decrypt = entry is not None and entry.wrapHash is not None
        key = self.draft.container_key if may_decrypt else None
        wrap = self.fetched.view.wrap if self.fetched is not None else None
        if wrap is not None and (entry is None or wrap_hash(wrap) != entry.wrapHash):
            # Nobody signed this wrap. A change that seals nothing never opens it, so nothing has checked it.
            wrap = None
        if self.request.accessList is not None:
            entries = zip(self.state.governing.access.entries, self.request.accessList, strict=True)
            wrap = next((item.wrap for name, item in entries if name == session.fingerprint), None)
        return opening.secured_of(session, self.state, key, self.draft.text, wrap, self.sealed)


@dataclass(frozen=True, slots=True)
class Basis:
    """A reading of a container, and what its next record is drafted with."""

    fetched: Fetched
    key: KnownKey
    time: int
    """The clock's time when the record is drafted."""
    grants: Grants | None
    """The access list of the record; None if it does not change access."""


@dataclass(slots=True, eq=False)
class Writing:
    """A change on its way to the broker. A nonce says that it creates the container."""

    change: Change
    container_id: bytes
    nonce: bytes | None = None
    if_version: int | None = None
    first_read: Fetched | None = None
    attempt: Attempt = field(init=False)
    """The newest one; the one that was stored, if `is_stored`."""
    uncertain: list[Attempt] = field(default_factory=list)
    """Attempts that were sent, and of which no verified history says that they have no effect."""
    hashes: set[bytes] = field(default_factory=set)
    """Hashes of all records that were sent."""
    has_rivals: bool = False
    """Whether other records of the attempt's version were sent, in this operation or an earlier one."""
    is_stored: bool = False
    present: SecuredContainer | None = None
    """The container as it was read, if there was nothing to change."""
    error: BrokerError | None = None
    is_refused: bool = False
    """Whether the error is a refusal of the record, by the broker or as outdated before it was sent."""

    @property
    def is_done(self) -> bool:
        return self.is_stored or self.present is not None

    @property
    def most_attempts(self) -> int:
        return _MERGES if isinstance(self.change.grants, Merge) else _ATTEMPTS

    @classmethod
    def creating(cls, session: Session, change: Change) -> Self:
        """Take one nonce for all attempts: a lost answer then creates no second container."""
        nonce = change.upload.nonce if change.upload is not None else random_bytes(HASH_SIZE)
        return cls(change, container_id_of(session.fingerprint, nonce).bytes, nonce)

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
                return self.attempt.draft.record.keyIndex != latest
            case errors.ConflictError():
                is_replayable = self.change.can_follow_others and self.if_version is None
                return self.nonce is None and is_replayable
        return False

    def check_stored(self) -> None:
        if self.error is not None:
            raise self.error.fresh()

    def result(self, session: Session) -> SecuredContainer:
        self.check_stored()
        return self.present or self.attempt.result(session)

    # The next methods keep account of the records that were sent.

    def send(self, session: Session) -> None:
        """Note durably that the record is about to leave this device."""
        self.has_rivals = sent.remember(session, self.attempt.state)
        self.hashes.add(self.attempt.hash)
        session.sending.add(self.attempt.hash)
        self.uncertain.append(self.attempt)

    def refuse_sent(self, session: Session, error: BrokerError) -> None:
        """End with the error of a request; forget the record if it surely never left this device."""
        self.refuse(error)
        if error.outcome is WriteOutcome.NotStored:
            sent.forget(session, self.attempt.state)
            self.uncertain.remove(self.attempt)

    def confirm(self, session: Session) -> None:
        """End with success. Note that no other record of this version can take effect any more."""
        if self.has_rivals:
            sent.settle(session, self.attempt.state, self.attempt.state.record.version - 1)
        self.is_stored = True

    def settle(self, session: Session) -> None:
        """Take over what verified readings have found out about the records that were sent."""
        if not self.uncertain:
            return
        fates = {each.hash: each.fate for each in sent.entries(session, self.container_id)}
        for attempt in self.uncertain:
            if fates.get(attempt.hash) == sent.Fate.Stored:
                self.attempt, self.is_stored, self.error = attempt, True, None
        self.uncertain = [a for a in self.uncertain if fates.get(a.hash) != sent.Fate.Voided]

    def say_outcome(self) -> None:
        """Say in the error whether the change may have taken effect."""
        if self.error is None:
            return
        if self.uncertain:
            self.error.outcome = WriteOutcome.Uncertain
            self.error.containerId = uuid.UUID(bytes=self.container_id)
        elif self.error.outcome is WriteOutcome.Uncertain:  # others have its version by now
            self.error.outcome = WriteOutcome.NotStored


Send = Callable[[Session, list[Writing]], Awaitable[None]]


async def create(session: Session, change: Change) -> SecuredContainer:
    await change.begin_upload(session, None)
    try:
        item = Writing.creating(session, change)
        creation = partial(_attempt_creation, send=_send_one)
        async with _outcomes_said(session, [item]):
            await _until_stored(session, [item], creation)
        return item.result(session)
    finally:
        change.close()


async def create_each(
    session: Session, changes: Sequence[Change]
) -> list[SecuredContainer | BrokerError]:
    """Create containers; return each or its error, in the order of the changes."""
    items = [Writing.creating(session, change) for change in changes]
    attempt = partial(_attempt_creation, send=_send_many)

    def entries(item: Writing) -> int:
        # A group of the smallest weight has exactly MAX_BATCH containers.
        return max(
            len(item.change.recipients), containers.MAX_BATCH_ENTRIES // containers.MAX_BATCH
        )

    groups = _cut(items, entries, containers.MAX_BATCH_ENTRIES)
    async with _outcomes_said(session, items):
        await tasks.a_few_at_once(_until_stored(session, group, attempt) for group in groups)
    return [item.error or item.result(session) for item in items]


async def update_each(
    session: Session, changes: Mapping[uuid.UUID, Change]
) -> list[SecuredContainer | BrokerError]:
    """Append a change to each container; return each container or its error, in the order of the changes.

    All changes are of the same fields, and none has a content.
    """
    items = [Writing(change, container_id.bytes) for container_id, change in changes.items()]
    groups = _cut(items, lambda _: 1, containers.MAX_BATCH)
    async with _outcomes_said(session, items):
        await tasks.a_few_at_once(_append(session, group) for group in groups)
    return [item.error or item.result(session) for item in items]


async def update(
    session: Session, container_id: uuid.UUID, change: Change, if_version: int | None
) -> SecuredContainer:
    """Append a change; return the container as its author is served it afterwards."""
    return (await append(session, container_id, change, if_version)).result(session)


async def append(
    session: Session, container_id: uuid.UUID, change: Change, if_version: int | None
) -> Writing:
    """Append a change, on top of what others changed of other fields meanwhile."""
    await change.begin_upload(session, container_id.bytes)
    try:
        item = Writing(change, container_id.bytes, if_version=if_version)
        async with _outcomes_said(session, [item]):
            await _append(session, [item])
        item.check_stored()
        return item
    finally:
        change.close()


async def _append(session: Session, items: Sequence[Writing]) -> None:
    await _until_stored(session, items, _attempt_change)
    for item in items:
        if isinstance(item.error, errors.DeletedError) and item.is_refused:
            try:
                async with fetching.deletion_proved(session, uuid.UUID(bytes=item.container_id)):
                    item.check_stored()
            except BrokerError as error:
                item.fail(error)


@contextlib.asynccontextmanager
async def _outcomes_said(session: Session, items: Sequence[Writing]) -> AsyncIterator[None]:
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
            with contextlib.suppress(BrokerError):  # the outcome stays uncertain
                await _find_out(session, item)
            item.say_outcome()
    finally:
        session.sending.difference_update(*(item.hashes for item in items))


async def _find_out(session: Session, item: Writing) -> None:
    """Find out whether the records of a failed item took effect, as far as readings of the container tell.

    A conflict means that another record has the version, or that the broker lies: read the container to tell.
    """
    if item.error is None:
        return
    item.settle(session)
    if item.uncertain and type(item.error) in (errors.ConflictError, errors.AlreadyExistsError):
        with contextlib.suppress(errors.DeletedError):
            await fetching.fetch(session, uuid.UUID(bytes=item.container_id))
        item.settle(session)


async def _until_stored(
    session: Session,
    items: Sequence[Writing],
    attempt: Callable[[Session, Sequence[Writing]], Awaitable[None]],
) -> None:
    """Attempt each change; repeat those whose keys or head were outdated, a bounded number of times."""
    for attempts in itertools.count(1):
        for item in items:
            item.error, item.is_refused = None, False
        await attempt(session, items)
        if any(isinstance(item.error, errors.RejectedError) and item.is_refused for item in items):
            # A rejected signature: read which key of one's own is the latest, after a change of keys ended.
            async with session.changing_keys:
                await session.directory.latest_own()
        items = [
            item for item in items if item.is_outdated(session) and attempts < item.most_attempts
        ]
        if not items:
            return


async def _attempt_creation(session: Session, items: Sequence[Writing], send: Send) -> None:
    """Seal, draft, sign and send the first records of containers."""
    for item in items:
        verify = partial(keys_of, session, item.change.recipients)
        with tasks.alone(item.fail):
            await seal_parts(session, item.change, item.container_id, None, verify)
    chains = await _recipients(
        session, [(item, item.change.recipients, ()) for item in _open(items)]
    )
    key, time = await session.signing_key(), now()

    def make_ready(item: Writing) -> None:
        draft = drafting.draft_first(
            session, item.change, item.container_id, item.nonce or b"", chains, key, time
        )
        _prepare(session, item, draft, None, time)

    left = _open(items)
    await _each_ready(left, make_ready, sum(len(item.change.recipients) for item in left))
    await send(session, _open(left))


async def _each_ready(
    items: Sequence[Writing], make_ready: Callable[[Writing], None], wraps: int
) -> None:
    """Draft and sign the records of these items; `wraps` is the number of wraps that they have together."""
    is_short = len(items) == 1 and wraps <= drafting.MANY_WRAPS
    outcomes = await tasks.each_in_pool(make_ready, items, here=is_short)
    for item, outcome in zip(items, outcomes, strict=True):
        if outcome is not None:
            item.fail(outcome)


async def _attempt_change(session: Session, items: Sequence[Writing]) -> None:
    """Read containers; seal, draft, sign and send a change of each. A single one is not sent as a batch."""
    bases: dict[Writing, Basis] = {}
    for item, fetched in await _read_each(session, items):
        with tasks.alone(item.fail):
            # The broker may answer an upload of the content with a deletion that it cannot prove.
            async with fetching.deletion_proved(session, uuid.UUID(bytes=item.container_id)):
                basis = await _sealed_basis(session, item, fetched)
            if basis is not None:
                bases[item] = basis
    chains = await _recipients(
        session,
        [
            (item, basis.grants or (), drafting.members_of(basis.fetched.state))
            for item, basis in bases.items()
        ],
    )

    def make_ready(item: Writing) -> None:
        basis = bases[item]
        opened = _open_or_without(session, basis.fetched)
        draft = drafting.draft_next(
            session, item.change, opened, basis.grants, chains, basis.key, basis.time
        )
        _prepare(session, item, draft, basis.fetched, basis.time)

    left = _open(list(bases))
    await _each_ready(left, make_ready, sum(len(bases[item].grants or ()) for item in left))
    left = _open(left)
    await (_send_many if len(items) > 1 else _send_one)(session, left)


async def _read_each(session: Session, items: Sequence[Writing]) -> list[tuple[Writing, Fetched]]:
    """Read the containers of changes of the same fields; return those that still have to be changed."""
    change = items[0].change
    ids = [uuid.UUID(bytes=item.container_id) for item in items]
    wanted = {
        "header": change.carries(Role.Header),
        "content": change.carries(Role.Content),
        "recipients": change.may_renew,
        "any_keys": change.delete or change.grants is not KEEP,
    }
    found: Sequence[Fetched | BrokerError] = ()
    if len(items) > 1:
        found = await fetching.fetch_many(session, ids, **wanted)
    else:
        with tasks.alone(items[0].fail):
            found = [await fetching.fetch(session, ids[0], **wanted)]
    left = []
    for item, fetched in zip(items, found, strict=False):
        if isinstance(fetched, BrokerError):
            item.fail(fetched)
            continue
        item.settle(session)
        if not item.is_stored:  # an earlier attempt may have been stored without a confirmation
            left.append((item, fetched))
    return left


async def _sealed_basis(session: Session, item: Writing, fetched: Fetched) -> Basis | None:
    """Check a change and seal its new parts; None if there is nothing to write, or it is outdated."""
    change, state = item.change, fetched.state
    if state.record.version == MAX_UINT:
        raise errors.TooLargeError(
            f"The container is at version {MAX_UINT}, the last one: nothing can follow. No honest history is "
            "so long: resetContainerMark accepts a shorter one that the broker serves."
        )
    if item.first_read is not None:
        _check_no_conflict(item.first_read.state, state, change)
    item.first_read = item.first_read or fetched
    if item.if_version is not None and state.record.version != item.if_version:
        raise errors.ConflictError(
            f"The container is at version {state.record.version}, not {item.if_version}."
        )
    await drafting.check_allowed(session, fetched, change)
    if drafting.changes_nothing(state, change, fetched.time):
        item.present = await opening.secured(session, fetched, asked=())
        return None
    newer_keys = change.may_renew and await session.directory.has_newer_key(
        state.governing.access, fetched.view.recipients
    )
    recipients = drafting.new_grants(state, change, fetched.time, newer_keys=newer_keys) or ()
    commitment = None if recipients else state.governing.governing.keyCommitment
    verify = partial(keys_of, session, recipients, drafting.members_of(state))
    await seal_parts(session, change, item.container_id, commitment, verify)
    # An upload may have taken hours. A reading meanwhile would leave the record's outcome open for ever.
    _, mark = fetching.mark_of(session, item.container_id)
    if mark is not None and mark.version > state.record.version:
        item.refuse(errors.ConflictError("The container was changed meanwhile: read it again."))
        return None
    time, key = now(), await session.signing_key()
    after = drafting.time_after(state, key, time)
    grants = drafting.new_grants(state, change, after, newer_keys=newer_keys)
    return Basis(fetched, key, time, grants)


def _open_or_without(session: Session, fetched: Fetched) -> Opened:
    """Open the container; without its key a member can still remove or replace its parts."""
    try:
        return opening.open_fetched(session, fetched)
    except (errors.DecryptionError, errors.IntegrityError):
        return Opened(fetched.state, fetched.view, fetched.time, None)


def _check_no_conflict(first: State, latest: State, change: Change) -> None:
    """Raise `ConflictError` if another member changed a field that this change changes too."""
    before, after = first.governing.governing, latest.governing.governing
    fields = {
        "access": not change.can_follow_others
        and first.governing.known.hash != latest.governing.known.hash,
        "header": change.header is not KEEP
        and _id(first.record.header) != _id(latest.record.header),
        "content": change.content is not KEEP
        and _id(first.record.content) != _id(latest.record.content),
        "type": change.type is not KEEP and before.type != after.type,
    }
    if changed := " and ".join(name for name, is_changed in fields.items() if is_changed):
        raise errors.ConflictError(f"Somebody else changed the {changed} meanwhile: read it again.")


def _id(part: Part | None) -> bytes | None:
    return None if part is None else part.partId


def _prepare(
    session: Session, item: Writing, draft: Draft, fetched: Fetched | None, time: int
) -> None:
    """Sign a draft, and judge it at this time as a reader would."""
    record, body, change = draft.record, encode_object(draft.record), item.change
    signed = Signed(body, session.keys.ring.signing[record.keyIndex].sign(LABEL, bare_body(body)))
    state = _judge_own(draft, signed, fetched, time)
    for sealed in change.sealed.values():
        sealed.sent_under = state.governing.governing.keyCommitment
    inline = {role: sealed.inline for role, sealed in change.sealed.items()}
    carried = {
        role: opening.sealed_part(session, fetched, role)
        for role in Role
        if fetched is not None and change.carries(role)
    }
    request = RecordRequest(
        record=SignedObject.of(signed),
        accessList=list(draft.access.entries) if draft.access is not None else None,
        type=draft.type,
        header=inline.get(Role.Header),
        content=inline.get(Role.Content),
        departures=0 if fetched is None else len(fetched.state.governing.left),
    )
    item.attempt = Attempt(draft, state, fetched, request, {**carried, **inline})


def _judge_own(draft: Draft, signed: Signed, fetched: Fetched | None, time: int) -> State:
    known = Known.parse(signed.body)
    access = AccessList.whole(draft.access.salted) if draft.access is not None else None
    try:
        if fetched is None:
            after = judge_first(known, access or AccessList.whole([]), time)
            return State(known, signed, after, True, draft.record.author, draft.record.time)
        before = fetched.state
        after = judge_next(known, before.governing, access, before.head, time)
    except errors.IntegrityError as error:
        raise drafting.beyond_own_access(error) from None
    is_complete = before.complete and after.access.complete
    return State(known, signed, after, is_complete, before.createdBy, before.createdAt)


async def _send_one(session: Session, items: Sequence[Writing]) -> None:
    for item in items:
        item.change.end_upload()
        item.send(session)
        version = item.attempt.state.record.version
        path = f"/v1/containers/{uuid.UUID(bytes=item.container_id)}/records/{version}"
        request = item.attempt.request
        try:
            receipt = await session.call("PUT", path, RecordReceipt, message=request)
        except BrokerError as error:
            item.refuse_sent(session, error)
        else:
            await _finish(session, item, receipt)


async def _send_many(session: Session, items: Sequence[Writing]) -> None:
    """Send records, about 1 MiB in a request; so none has more access entries than a batch may have."""
    for some in _cut(items, _size, _REQUEST_BYTES):
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


def _size(item: Writing) -> int:
    """Return about how many bytes an item takes in a request."""
    request = item.attempt.request
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


async def _finish(session: Session, item: Writing, receipt: RecordReceipt) -> None:
    """Check the receipt of a stored record, and keep the mark."""
    attempt = item.attempt
    state, before = attempt.state, attempt.fetched.state if attempt.fetched is not None else None
    if (receipt.version, receipt.hash) != (state.record.version, state.head.hash):
        raise errors.IntegrityError("The broker's receipt is for another record than the one sent.")
    try:
        await _keep_own(session, before, state)
        item.confirm(session)
    except errors.UntrustedError:
        raise  # the broker contradicts its own receipt
    except BrokerError as error:
        error.outcome, item.uncertain = WriteOutcome.Stored, []
        error.containerId = uuid.UUID(bytes=item.container_id)
        raise


async def _keep_own(session: Session, before: State | None, own: State) -> None:
    """Raise the mark to a record of one's own, which the broker stored after `before`.

    Other operations and programs may share the marks and have read the container meanwhile:

    | the mark by now                       | what follows                                             |
    |---------------------------------------|----------------------------------------------------------|
    | none, or the record before            | Raise it to the own record; if it moved, begin again.    |
    | the own record                        | Done.                                                    |
    | another record of no later version    | `ForkError`: the broker showed another history.          |
    | a record of a later version           | Fetch the head twice: it must follow from the own record |
    |                                       | and from the mark. `ForkError` if the two heads differ;  |
    |                                       | if the head moved in between, begin again.               |

    Raises `ConflictError` if others change the container faster than this can be told. The change is stored
    in every case.
    """
    container_id = uuid.UUID(bytes=own.container_id)
    for _ in range(fetching.ROUNDS):
        stored, mark = fetching.mark_of(session, own.container_id)
        if mark is None or (before is not None and mark.hash == before.head.hash):
            is_done = session.marks.swap(fetching.KIND, own.container_id, stored, own.mark.encode())
        elif mark.version <= own.record.version:
            if mark.hash != own.head.hash:
                raise _fork()
            is_done = True
        else:
            ours = (await fetching.fetch_after(session, container_id, own.mark)).state
            theirs = (await fetching.fetch_after(session, container_id, mark)).state
            is_done = ours.record.version == theirs.record.version
            if is_done and ours.head.hash != theirs.head.hash:
                raise _fork()
        if is_done:
            return
    raise errors.ConflictError(
        "The change is stored, but others change the container faster than it can be read: read it again."
    )


def _fork() -> errors.ForkError:
    return errors.ForkError(
        "The broker served another history than the one of the change that it stored."
    )


async def _recipients(
    session: Session, items: Sequence[tuple[Writing, Collection[uuid.UUID], Collection[uuid.UUID]]]
) -> Mapping[uuid.UUID, KeyChain]:
    """Return the keys of the users of all new lists, by one request or, if it fails, one for each container.

    An item is a change, the users of its new list, and the members before it, who may have been deleted.
    """
    everybody = {user for _, users, _ in items for user in users}
    found: dict[uuid.UUID, KeyChain] = {}
    try:
        found |= await keys_of(session, everybody, everybody)
    except tasks.EVERYTHING:
        raise
    except BrokerError as error:
        if len(items) == 1:
            items[0][0].fail(error)
            return {}
        for item, users, members in items:
            with tasks.alone(item.fail):
                found |= await keys_of(session, users, members)
        return found
    for item, users, members in items:
        with tasks.alone(item.fail):
            check_living(users, found, members)
    return found


def _open(items: Sequence[Writing]) -> list[Writing]:
    return [item for item in items if not item.is_done and item.error is None]
