"""Parse a request to append a record, and check everything that needs no database."""

from dataclasses import dataclass

from scbroker import errors
from scbroker.records.canonical import ContainerId, container_id_of
from scbroker.records.container_record import MAX_TYPE, AccessList, type_hash, wrap_hash
from scbroker.records.judge import Known
from scbroker.records.key_record import Signed
from scbroker.server.broker import Call, SessionUser
from scbroker.server.settings import Settings
from scbroker.wire.containers import RecordReceipt, RecordRequest


@dataclass(frozen=True, slots=True)
class Incoming:
    """A parsed record with what was sent with it. Its signature is not verified yet."""

    known: Known
    signed: Signed
    access: AccessList | None
    message: RecordRequest
    user: SessionUser
    application: str

    @property
    def container_id(self) -> ContainerId:
        return ContainerId(self.known.record.containerId)

    @property
    def is_first(self) -> bool:
        return self.known.record.version == 1

    @property
    def receipt(self) -> RecordReceipt:
        return RecordReceipt(version=self.known.record.version, hash=self.known.hash)


def parse_incoming(settings: Settings, call: Call, message: RecordRequest) -> Incoming:
    """Parse the record of a request; it must be the one that the path names, if the path names one."""
    signed = message.record.signed
    try:
        known = Known.parse(signed.body)
        entries = message.accessList
        access = AccessList.whole([e.salted for e in entries]) if entries is not None else None
        if access is not None:
            _check_wraps(access, message)
    except errors.IntegrityError as error:
        raise errors.RejectedError(str(error)) from None
    record = known.record
    if call.path and (record.containerId, record.version) != (call.container_id, call.version):
        raise errors.InvalidArgumentError(
            "The record has another container or version than the path."
        )
    if record.nonce and container_id_of(record.author, record.nonce).bytes != record.containerId:
        raise errors.RejectedError("The container id is not derived from its creator (rule 1).")
    if record.author != call.session.fingerprint:
        raise errors.PermissionDeniedError("Only the author of a record can send it.")
    if (access is not None) != record.changes_access:
        raise errors.InvalidArgumentError(
            "A record that changes access comes with an access list, any other without."
        )
    if access is not None and len(access.entries) > settings.max_members:
        raise errors.TooLargeError(
            f"This broker takes at most {settings.max_members} users in a container."
        )
    if record.content is not None and record.content.paddedLength > settings.max_content:
        raise errors.TooLargeError(
            f"This broker takes contents of at most {settings.max_content} bytes."
        )
    _check_type(message, known)
    return Incoming(known, signed, access, message, call.session, call.application)


def _check_wraps(access: AccessList, message: RecordRequest) -> None:
    wraps = [item.wrap for item in message.accessList or ()]
    for entry, wrap in zip(access.entries.values(), wraps, strict=True):
        if entry.wrapHash != (None if wrap is None else wrap_hash(wrap)):
            raise errors.IntegrityError("A wrap does not match the hash in its entry.")


def _check_type(message: RecordRequest, known: Known) -> None:
    text, governing = message.type, known.record.governing
    if text is None:
        return
    if text.type is not None and len(text.type.encode()) > MAX_TYPE:
        raise errors.TooLargeError("A container's type has at most 256 bytes of UTF-8.")
    named = governing.type if governing is not None else None
    if named != type_hash(known.record.containerId, text.salt, text.type):
        raise errors.RejectedError("The type does not match the hash in the record.")
