"""A request to append a record, parsed: everything is checked that needs no database."""

from __future__ import annotations

from dataclasses import dataclass

from scbroker.errors import (
    IntegrityError,
    InvalidArgumentError,
    PermissionDeniedError,
    RejectedError,
    TooLargeError,
)
from scbroker.records.access_list import AccessList, wrap_hash
from scbroker.records.container_record import MAX_TYPE, type_hash
from scbroker.records.ids import container_id_of
from scbroker.records.judge import Known
from scbroker.records.key_record import Signed
from scbroker.server.broker import Call, SessionUser
from scbroker.server.settings import Settings
from scbroker.wire.containers import RecordReceipt, RecordRequest


@dataclass(frozen=True, slots=True)
class Incoming:
    """A record on its way in, with what came along. Its signature is not verified yet."""

    known: Known
    signed: Signed
    access: AccessList | None
    message: RecordRequest
    user: SessionUser
    application: str

    @property
    def container_id(self) -> bytes:
        return self.known.record.containerId

    @property
    def is_first(self) -> bool:
        return self.known.record.version == 1

    @property
    def receipt(self) -> RecordReceipt:
        return RecordReceipt(version=self.known.record.version, hash=self.known.hash)


def parse_incoming(settings: Settings, call: Call, message: RecordRequest) -> Incoming:
    """The record of a request; the path names it too, but for that of a batch."""
    signed = message.record.signed
    try:
        known = Known.parse(signed.body)
        entries = message.accessList
        access = AccessList.whole([e.salted for e in entries]) if entries is not None else None
        if access is not None:
            _check_wraps(access, message)
    except IntegrityError as error:
        raise RejectedError(str(error)) from None
    record = known.record
    named = (record.containerId, record.version)
    if call.path and named != (call.uuid("containerId"), call.number("version")):
        raise InvalidArgumentError("The record is for another container or version than the path.")
    if record.nonce and container_id_of(record.author, record.nonce).bytes != record.containerId:
        raise RejectedError("A container's id is not its creator's to give (rule 1).")
    if record.author != call.session.fingerprint:
        raise PermissionDeniedError("A record is sent by its author alone.")
    if (access is not None) != record.changes_access:
        raise InvalidArgumentError("The access list comes exactly with a change of access.")
    if access is not None and len(access.entries) > settings.max_members:
        raise TooLargeError(f"More than {settings.max_members} users in one container.")
    if record.content is not None and record.content.paddedLength > settings.max_content:
        raise TooLargeError(f"This broker takes contents of at most {settings.max_content} bytes.")
    _check_type(message, known)
    return Incoming(known, signed, access, message, call.session, call.application)


def _check_wraps(access: AccessList, message: RecordRequest) -> None:
    wraps = [item.wrap for item in message.accessList or ()]
    for entry, wrap in zip(access.entries.values(), wraps, strict=True):
        if entry.wrapHash != (None if wrap is None else wrap_hash(wrap)):
            raise IntegrityError("A wrap is not the one that its entry names.")


def _check_type(message: RecordRequest, known: Known) -> None:
    text, governing = message.type, known.record.governing
    if text is None:
        return
    if text.type is not None and len(text.type.encode()) > MAX_TYPE:
        raise TooLargeError("A container's type has more than 256 bytes.")
    named = governing.type if governing is not None else None
    if named != type_hash(known.record.containerId, text.salt, text.type):
        raise RejectedError("The type is not the one that the record names.")
