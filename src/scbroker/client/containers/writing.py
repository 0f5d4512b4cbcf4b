"""Create and change containers: seal, draft, sign, judge as a reader would, send, keep the mark.

One container and a batch take the same way; they differ in the request that carries the records.
Spec: docs/spec/container.md, section 9; docs/spec/protocol.md, section 5.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from scbroker import errors
from scbroker.client.calls.tasks import EVERYTHING, alone, each_in_pool
from scbroker.client.containers import drafting
from scbroker.client.containers.change import KEEP, OWNER, Change, Grants, keys_of, seal_parts
from scbroker.client.containers.drafting import Draft
from scbroker.client.containers.fetching import deletion_proved, fetch, keep_own
from scbroker.client.containers.opening import (
    Fetched,
    Opened,
    open_fetched,
    sealed_part,
    secured_of,
)
from scbroker.client.core.judging import State
from scbroker.client.users.session import Session
from scbroker.crypto.seal import random_bytes
from scbroker.crypto.verify import HASH_SIZE
from scbroker.errors import BrokerError
from scbroker.records.access_list import AccessList
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import LABEL, Part, Role, bare_body
from scbroker.records.ids import container_id_of
from scbroker.records.judge import Known, judge_first, judge_next
from scbroker.records.key_record import KeyChain, Signed
from scbroker.types import SecuredContainer, now
from scbroker.vocabulary import KeyType
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import RecordReceipt, RecordRequest

_ATTEMPTS: Final = 4


@dataclass(frozen=True, slots=True)
class Prepared:
    """A signed record, judged as a reader will judge it, and the request that appends it."""

    draft: Draft
    signed: Signed
    state: State
    request: RecordRequest
    fetched: Fetched | None
    sealed: Mapping[Role, bytes | None]
    """The parts as a view would have them, new or carried over."""


@dataclass(slots=True, eq=False)
class Writing:
    """A change on its way to the broker. A nonce says that it creates the container."""

    change: Change
    container_id: bytes
    nonce: bytes | None = None
    if_version: int | None = None
    first_read: Fetched | None = None
    prepared: Prepared = field(init=False)
    """Set once the record is signed."""
    is_stored: bool = False
    error: BrokerError | None = None
    is_refused: bool = False
    """Whether the error is the broker's refusal of the record."""

    @classmethod
    def creating(cls, session: Session, change: Change) -> Writing:
        """Take one nonce for all attempts: a lost answer then creates no second container."""
        nonce = change.upload.nonce if change.upload is not None else random_bytes(HASH_SIZE)
        return cls(change, container_id_of(session.fingerprint, nonce).bytes, nonce)

    def grants(self, session: Session) -> Grants:
        """Return who gets access to a container that is created."""
        return {session.userId: OWNER} if self.change.grants is KEEP else self.change.grants

    def fail(self, error: BrokerError) -> None:
        """End with an error, kept without its traceback, which would keep the content in memory."""
        self.error = error.fresh()

    def refuse(self, error: BrokerError) -> None:
        """End with the broker's refusal of the record, unless another attempt is made."""
        self.fail(error)
        self.is_refused = True

    def is_outdated(self, session: Session) -> bool:
        """Whether the broker refused the record for what it was drafted from, which is outdated by now."""
        match self.error if self.is_refused else None:
            case errors.StaleKeysError():
                return True
            case errors.RejectedError():
                latest = session.directory.own.latest(KeyType.Signing).index
                return self.prepared.draft.record.keyIndex != latest
            case errors.ConflictError():
                is_replayable = self.change.grants is KEEP and self.if_version is None
                return self.nonce is None and is_replayable
        return False

    def check_stored(self) -> None:
        """Raise the error, if the change was not stored."""
        if self.error is not None:
            raise self.error.fresh()

    def result(self, session: Session) -> SecuredContainer:
        """Return the container as its author would be served it after this record."""
        self.check_stored()
        state, request, fetched = self.prepared.state, self.prepared.request, self.prepared.fetched
        entry = state.governing.access.entries.get(session.fingerprint)
        may_decrypt = entry is not None and entry.wrapHash is not None
        wrap = fetched.view.wrap if fetched is not None else None
        if request.accessList is not None:
            entries = zip(state.governing.access.entries, request.accessList, strict=True)
            wrap = next((item.wrap for name, item in entries if name == session.fingerprint), None)
        draft = self.prepared.draft
        key = draft.container_key if may_decrypt else None
        return secured_of(session, state, key, draft.text, wrap, self.prepared.sealed)


Send = Callable[[Session, list[Writing]], Awaitable[None]]


async def create(session: Session, change: Change) -> SecuredContainer:
    """Create a container."""
    await change.begin_upload(session, None)
    try:
        item = Writing.creating(session, change)
        await until_stored(session, [item], partial(attempt_creation, send=_send_one))
        return item.result(session)
    finally:
        change.close()


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
        async with deletion_proved(session, container_id):
            await until_stored(session, [item], _attempt_change)
            item.check_stored()
            return item
    finally:
        change.close()


async def until_stored(
    session: Session,
    items: Sequence[Writing],
    attempt: Callable[[Session, Sequence[Writing]], Awaitable[None]],
) -> None:
    """Attempt what is not stored, four times at most: again only if keys or the head were outdated."""
    for _ in range(_ATTEMPTS):
        for item in items:
            item.error, item.is_refused = None, False
        await attempt(session, items)
        if any(isinstance(item.error, errors.RejectedError) and item.is_refused for item in items):
            # A rejected signature: read which key of one's own is the latest, after a change of keys ended.
            async with session.changing_keys:
                await session.directory.latest_own()
        items = [item for item in items if item.is_outdated(session)]
        if not items:
            return


async def attempt_creation(session: Session, items: Sequence[Writing], send: Send) -> None:
    """Seal, draft, sign and send the first records of containers."""
    for item in items:
        verify = partial(keys_of, session, item.grants(session))
        try:
            await seal_parts(session, item.change, item.container_id, None, verify)
        except EVERYTHING:
            raise
        except BrokerError as error:
            item.fail(error)
    chains = await _recipients(session, _open(items))
    key, time = await session.signing_key(), now()

    def make_ready(item: Writing) -> None:
        try:
            change, nonce = item.change, item.nonce or b""
            draft = drafting.draft_first(
                session, change, item.container_id, nonce, item.grants(session), chains, key, time
            )
            item.prepared = _prepare(session, change, draft, None, time)
        except BrokerError as error:
            item.fail(error)

    left = _open(items)
    if len(left) == 1 and len(left[0].grants(session)) <= drafting.MANY_WRAPS:
        make_ready(left[0])  # handing it to the pool would take longer than it saves
    else:
        await each_in_pool(make_ready, left)
    await send(session, _open(left))


async def _attempt_change(session: Session, items: Sequence[Writing]) -> None:
    """Read a container; seal, draft, sign and send a change of it."""
    [item] = items
    change = item.change
    fetched = await fetch(
        session,
        uuid.UUID(bytes=item.container_id),
        header=change.carries(Role.Header),
        content=change.carries(Role.Content),
    )
    state = fetched.state
    if item.first_read is not None:
        _check_no_conflict(item.first_read.state, state, change)
    item.first_read = item.first_read or fetched
    if item.if_version is not None and state.record.version != item.if_version:
        raise errors.ConflictError(
            f"The container is at version {state.record.version}, not {item.if_version}."
        )
    await drafting.check_allowed(session, state, change, fetched.time)
    recipients = drafting.new_grants(state, change, fetched.time) or ()
    commitment = None if recipients else state.governing.governing.keyCommitment
    verify = partial(keys_of, session, recipients, drafting.members_of(state))
    await seal_parts(session, change, item.container_id, commitment, verify)
    time = now()  # after an upload, which may have taken hours
    draft = await drafting.draft_next(session, change, _open_or_without(session, fetched), time)
    item.prepared = _prepare(session, change, draft, fetched, time)
    await _send_one(session, items)


def _open_or_without(session: Session, fetched: Fetched) -> Opened:
    """Open the container; without its key a member can still remove or replace its parts."""
    try:
        return open_fetched(session, fetched)
    except (errors.DecryptionError, errors.IntegrityError):
        return Opened(fetched, None)


def _check_no_conflict(first: State, latest: State, change: Change) -> None:
    """Raise `ConflictError` if another member changed a field that this change changes too."""
    before, after = first.governing.governing, latest.governing.governing
    fields = {
        "access": change.grants is not KEEP
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
    session: Session, change: Change, draft: Draft, fetched: Fetched | None, time: int
) -> Prepared:
    """Sign a draft, and judge it at this time as a reader would."""
    record, body = draft.record, encode_object(draft.record)
    signed = Signed(body, session.keys.ring.signing[record.keyIndex].sign(LABEL, bare_body(body)))
    state = _judge_own(draft, signed, fetched, time)
    for sealed in change.sealed.values():
        sealed.sent_under = state.governing.governing.keyCommitment
    inline = {role: sealed.inline for role, sealed in change.sealed.items()}
    carried = {
        role: sealed_part(session, fetched, role)
        for role in Role
        if fetched is not None and change.carries(role)
    }
    request = RecordRequest(
        record=SignedObject.of(signed),
        accessList=list(draft.access.entries) if draft.access is not None else None,
        type=draft.type,
        header=inline.get(Role.Header),
        content=inline.get(Role.Content),
    )
    return Prepared(draft, signed, state, request, fetched, {**carried, **inline})


def _judge_own(draft: Draft, signed: Signed, fetched: Fetched | None, time: int) -> State:
    known = Known(draft.record, Known.parse(signed.body).hash)
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
    """Send the record of the only item."""
    for item in items:
        item.change.end_upload()
        version = item.prepared.draft.record.version
        path = f"/v1/containers/{uuid.UUID(bytes=item.container_id)}/records/{version}"
        try:
            receipt = await session.call("PUT", path, RecordReceipt, message=item.prepared.request)
        except (errors.ConflictError, errors.RejectedError) as error:
            item.refuse(error)
        else:
            await finish(session, item, receipt)


async def finish(session: Session, item: Writing, receipt: RecordReceipt) -> None:
    """Check the receipt of a stored record, and keep the mark."""
    prepared = item.prepared
    if (receipt.version, receipt.hash) != (prepared.draft.record.version, prepared.state.head.hash):
        raise errors.IntegrityError("The broker's receipt is for another record than the one sent.")
    before = prepared.fetched.state if prepared.fetched is not None else None
    await keep_own(session, before, prepared.state)
    item.is_stored = True


async def _recipients(session: Session, items: Sequence[Writing]) -> Mapping[uuid.UUID, KeyChain]:
    """Return the keys of all recipients by one request; if it fails, by one for each container."""
    try:
        return await keys_of(session, {user for item in items for user in item.grants(session)})
    except EVERYTHING:
        raise
    except BrokerError as error:
        if len(items) == 1:
            items[0].fail(error)
            return {}
    found: dict[uuid.UUID, KeyChain] = {}
    for item in items:
        with alone(item.fail):
            found |= await keys_of(session, item.grants(session))
    return found


def _open(items: Sequence[Writing]) -> list[Writing]:
    return [item for item in items if not item.is_stored and item.error is None]
