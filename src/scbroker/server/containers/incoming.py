"""Parse a record that a user sends, with what comes with it. Spec: docs/spec/container.md, section 10.

Everything is checked here that needs no database.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from scbroker import errors
from scbroker.records import container_record as grammar
from scbroker.records import judge, roster
from scbroker.records.canonical import ContainerId, UserId, container_id_of, stored_user_id
from scbroker.records.container_record import AccessList, ContainerRecord, Role, wrap_hash
from scbroker.records.key_record import Signed
from scbroker.records.roster import SaltedMember
from scbroker.server.broker import Broker, Call, Charges, SessionUser, refusing
from scbroker.server.settings import Settings
from scbroker.server.storage.database import NewRows
from scbroker.server.storage.driver import Connection, Row
from scbroker.wire.containers import RecordReceipt, RecordRequest


@dataclass(frozen=True)
class Incoming:
    """A parsed record with what was sent with it. Its signature is not verified yet."""

    known: judge.Known
    signed: Signed
    access: AccessList | None
    message: RecordRequest
    user: SessionUser
    application: str
    leaves: Mapping[bytes, SaltedMember] = field(default_factory=dict)
    """New and changed leaves of a group, by fingerprint, in their order."""

    @cached_property
    def record(self) -> ContainerRecord:
        return self.known.record

    @cached_property
    def container_id(self) -> ContainerId:
        return ContainerId(self.record.containerId)

    @cached_property
    def is_first(self) -> bool:
        return self.record.version == 1

    @property
    def inline(self) -> dict[Role, bytes | None]:
        """The sealed bytes of the parts that came with the record."""
        return {Role.Header: self.message.header, Role.Content: self.message.content}

    @property
    def receipt(self) -> RecordReceipt:
        return RecordReceipt(version=self.record.version, hash=self.known.hash)

    @cached_property
    def named(self) -> set[bytes]:
        """The names of the author, their group, the entries of the new list, and members with new leaves."""
        listed = self.access.entries if self.access else ()
        group = {self.record.via.group} if self.record.via else set()
        return {self.user.fingerprint, *listed, *self.leaves, *group}

    @property
    def group_id(self) -> UserId | None:
        """The id of the group for which the author acts."""
        return None if self.record.via is None else stored_user_id(self.record.via.group)

    def is_of_group(self, row: Row | None) -> bool:
        """Return whether this is a record of a group: of a stored one, or the first of a new one."""
        if row is not None:
            return bool(row.is_group)
        return self.is_first and self.has_group_type

    @cached_property
    def has_group_type(self) -> bool:
        """Whether the record comes with a type that only the container of a group may have."""
        return self.message.type is not None and grammar.is_group_type(self.message.type.type)


@dataclass(slots=True)
class Transaction:
    """State that the records of one transaction share. All records have one author."""

    connection: Connection
    broker: Broker
    containers: dict[bytes, Row | None]
    """Locked containers of which no record was judged yet; None for one that does not exist."""
    users: dict[bytes, Row]
    """The author, all users and groups in new lists, and members with new leaves, by name. Locked."""
    moment: int
    """The time after the locks were taken, so that records of one container are stored in its order."""
    parts_taken: set[bytes]
    """Ids of parts in these records that are stored, also by records before in this transaction.

    A part that another transaction stores meanwhile makes the database raise an IntegrityError.
    """
    new: NewRows = field(default_factory=NewRows)
    """Rows to insert, of the records that were stored so far."""
    charges: Charges = field(default_factory=Charges)


@dataclass(frozen=True, slots=True)
class Stored:
    """A container as it is stored: its locked row, its head, and the governing record in force."""

    row: Row
    head: judge.Known
    in_force: judge.InForce


@refusing()
def parse_incoming(settings: Settings, call: Call, message: RecordRequest) -> Incoming:
    """Parse the record of a request; it must be the one that the path names, if the path names one."""
    signed, access = message.record.signed, None
    known = judge.Known.parse(signed.body)
    record = known.record
    if message.accessList is not None:
        access = AccessList.whole([item.salted for item in message.accessList])
        for entry, item in zip(access.entries.values(), message.accessList, strict=True):
            if entry.wrapHash != (None if item.wrap is None else wrap_hash(item.wrap)):
                raise errors.IntegrityError("A wrap does not match the hash in its entry.")
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
            "The request must have an access list exactly if its record changes access."
        )
    if access is not None and len(access.entries) > settings.max_members:
        raise errors.TooLargeError(
            f"This broker takes at most {settings.max_members} users in a container."
        )
    if record.content is not None and record.content.paddedLength > settings.max_content:
        raise errors.TooLargeError(
            f"This broker takes contents of at most {settings.max_content} bytes."
        )
    if message.type is not None:
        salt, text = message.type.salt, message.type.type
        if text is not None and len(text.encode()) > grammar.MAX_TYPE:
            raise errors.TooLargeError("A container's type has at most 256 bytes of UTF-8.")
        # A group's type is checked once the container has been read, which shows whether it may have one.
        if not grammar.is_group_type(text):
            grammar.check_type(text)
        named = record.governing.type if record.governing is not None else None
        if named != grammar.type_hash(record.containerId, salt, text):
            raise errors.RejectedError("The type does not match the hash in the record.")
    leaves: dict[bytes, SaltedMember] = {}
    if message.roster is not None:
        if message.type is None or not grammar.is_group_type(message.type.type):
            raise errors.InvalidArgumentError(
                "A roster needs the type of a group beside it: send both."
            )
        leaves = {
            roster.parse_member(each.member).fingerprint: each.salted
            for each in message.roster.leaves
        }
        if list(leaves) != sorted(leaves) or len(leaves) < len(message.roster.leaves):
            raise errors.InvalidArgumentError("leaves is not in strictly ascending order.")
    return Incoming(known, signed, access, message, call.session, call.application, leaves)
