"""From a draft to a record on the broker: signed, judged as a reader would, sent, marked.

Spec: docs/spec/container.md, section 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scbroker.client.clock import now
from scbroker.client.containers.change import Change
from scbroker.client.containers.fetching import Fetched, keep_own, sealed_part, secured_of
from scbroker.client.core.judging import State
from scbroker.client.core.sealing import NewAccess
from scbroker.client.users.session import Session
from scbroker.errors import IntegrityError, PermissionDeniedError
from scbroker.records.access_list import AccessList
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import LABEL, ContainerRecord, Role, bare_body
from scbroker.records.judge import Known, judge_first, judge_next
from scbroker.records.key_record import Signed
from scbroker.types import SecuredContainer
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import RecordReceipt, RecordRequest, TypeText


@dataclass(frozen=True, slots=True)
class Draft:
    """A record ready to be signed, with what goes along."""

    record: ContainerRecord
    access: NewAccess | None
    type: TypeText | None
    container_key: bytes | None
    text: str | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A signed record, judged as a reader will, and the request that appends it to what was fetched."""

    draft: Draft
    signed: Signed
    state: State
    request: RecordRequest
    fetched: Fetched | None
    sealed: Mapping[Role, bytes | None]
    """The parts as a view would have them, new or carried over."""


def prepare(session: Session, change: Change, draft: Draft, fetched: Fetched | None) -> Prepared:
    """Signs, and judges as a reader would. Nothing is sent."""
    record, body = draft.record, encode_object(draft.record)
    signed = Signed(body, session.keys.ring.signing[record.keyIndex].sign(LABEL, bare_body(body)))
    state = _judge_own(draft, signed, fetched)
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


async def finish(session: Session, sent: Prepared, receipt: RecordReceipt) -> None:
    """Checks what the broker says of a record that was sent, and marks."""
    if (receipt.version, receipt.hash) != (sent.state.record.version, sent.state.head.hash):
        raise IntegrityError("The broker's receipt is for another record than the one sent.")
    await keep_own(session, sent.fetched.state if sent.fetched else None, sent.state)


def _judge_own(draft: Draft, signed: Signed, fetched: Fetched | None) -> State:
    known = Known(draft.record, Known.parse(signed.body).hash)
    access = AccessList.whole(draft.access.salted) if draft.access is not None else None
    try:
        if fetched is None:
            after = judge_first(known, access or AccessList.whole([]), now())
            created = (draft.record.author, draft.record.time)
            complete = True
        else:
            before = fetched.state
            after = judge_next(known, before.governing, access, before.head, now())
            created = (before.createdBy, before.createdAt)
            complete = before.complete and after.access.complete
    except IntegrityError as error:
        raise PermissionDeniedError(f"This change is beyond your own access: {error}") from None
    return State(known, signed, after, complete, *created)


def stored(session: Session, sent: Prepared) -> SecuredContainer:
    """Return the container as its author would be served it after this record."""
    entry = sent.state.governing.access.entries.get(session.fingerprint)
    may_decrypt = entry is not None and entry.wrapHash is not None
    return secured_of(
        session,
        sent.state,
        sent.draft.container_key if may_decrypt else None,
        sent.draft.text,
        _own_wrap(session, sent),
        sent.sealed,
    )


def _own_wrap(session: Session, sent: Prepared) -> bytes | None:
    if sent.request.accessList is None:
        return None if sent.fetched is None else sent.fetched.view.wrap
    entries = zip(sent.state.governing.access.entries, sent.request.accessList, strict=True)
    return next((item.wrap for name, item in entries if name == session.fingerprint), None)
