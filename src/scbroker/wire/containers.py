"""Messages about records and views. Spec: docs/spec/protocol.md, section 5, and docs/spec/container.md.

Each item of a batch is answered as the single operation would be, or with the problem that it fails with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Self

import msgspec
from msgspec import Meta

from scbroker.crypto.verify import HASH_SIZE, SIGNATURE_SIZE
from scbroker.records import batch, roster
from scbroker.records import container_record as records
from scbroker.records.canonical import Uint
from scbroker.records.container_record import AccessList, SaltedEntry
from scbroker.records.key_record import Signed
from scbroker.wire.codec import Hash, Id, Message, Printable, SignedObject, Wrap
from scbroker.wire.problems import ItemProblem
from scbroker.wire.rosters import GroupState, Membership, RosterRequest
from scbroker.wire.users import KeyChainState

MAX_BATCH: Final = 64
MAX_BATCH_ENTRIES: Final = records.MAX_ENTRIES
"""Access entries in all records of a batch: as many as one record may have."""
MAX_INLINE: Final = 65_536
MAX_SKIPPED: Final = 1000
PAGE_BYTES: Final = 2 * 1_048_576
MAX_GOVERNING: Final = 192 * 1_048_576
"""Bytes of a container's governing records with their lists, as `governing_size` counts them."""
MAX_GOVERNING_WITHOUT_DELETE: Final = 128 * 1_048_576
"""The same for authors without Delete, so that they cannot use up what the others need."""
DEPARTURE_SIZE: Final = 3584
"""The size of a departure in a view, with its signature: it counts as governing bytes."""
MAX_GROUP_STATES: Final = 1024
"""Groups through which the records of one page were made."""
_SEALED_SLACK: Final = 8192
_TYPE_OF_GROUP: Final = 128

Salt = Annotated[bytes, Meta(min_length=32, max_length=32)]
EntryBytes = Annotated[bytes, Meta(max_length=records.MAX_ENTRY)]
TypeLabel = Annotated[Printable, Meta(max_length=records.MAX_TYPE)]
SealedHeader = Annotated[bytes, Meta(max_length=records.MAX_HEADER + _SEALED_SLACK)]
SealedInline = Annotated[bytes, Meta(max_length=MAX_INLINE + _SEALED_SLACK)]
RecordBody = Annotated[bytes, Meta(max_length=records.MAX_RECORD)]


def governing_size(signed: Signed, entries: int, roster: bytes | None = None) -> int:
    """Return about how many bytes a governing record takes in a view.

    `entries` are those of a new list, and `roster` is a group's new one, which comes with its type.
    """
    more = 0 if roster is None else len(roster) + _TYPE_OF_GROUP
    return len(signed.body) + len(signed.signature) + (HASH_SIZE + 256) * entries + more


class SignedRecord(Message, frozen=True, kw_only=True):
    """A container record with its signature: one of its own, or that of a batch."""

    body: Annotated[bytes, Meta(max_length=4096)]
    signature: Annotated[bytes, Meta(min_length=SIGNATURE_SIZE, max_length=batch.MAX_SIGNATURE)]

    @classmethod
    def of(cls, signed: Signed) -> Self:
        return cls(body=signed.body, signature=signed.signature)

    @property
    def signed(self) -> Signed:
        return Signed(self.body, self.signature)


class AccessEntry(Message, frozen=True, kw_only=True):
    salt: Salt
    entry: EntryBytes
    wrap: Wrap | None

    @property
    def salted(self) -> SaltedEntry:
        return SaltedEntry(self.salt, self.entry)


class TypeText(Message, frozen=True, kw_only=True):
    salt: Salt
    type: TypeLabel | None


class RecordRequest(Message, frozen=True, kw_only=True):
    is_act: ClassVar[bool] = True
    record: SignedRecord
    accessList: (
        Annotated[list[AccessEntry], Meta(min_length=1, max_length=records.MAX_ENTRIES)] | None
    ) = None
    type: TypeText | None = None
    header: SealedHeader | None = None
    content: SealedInline | None = None
    departures: Annotated[int, Meta(ge=0, le=records.MAX_ENTRIES)] = 0
    """How many departures from the list, or of a group from the roster, in force the writer has seen."""
    roster: RosterRequest | None = None
    """With a record of a group that has a new roster."""


class RecordReceipt(Message, frozen=True, kw_only=True):
    version: Uint
    hash: Hash


class Disclosed(Message, frozen=True, kw_only=True):
    position: Uint
    salt: Salt
    entry: EntryBytes


class ListView(Message, frozen=True, kw_only=True):
    entryHashes: Annotated[bytes, Meta(max_length=32 * records.MAX_ENTRIES)]
    disclosed: Annotated[list[Disclosed], Meta(max_length=records.MAX_ENTRIES)]
    departures: Annotated[list[SignedObject], Meta(max_length=records.MAX_ENTRIES)] = []
    """Departures of disclosed users from this list, ascending by fingerprint."""

    def verified(self) -> AccessList:
        """Return the list; raise `IntegrityError` unless each entry has its hash. Hashes every entry."""
        return AccessList.disclosed(
            self.entryHashes,
            [(item.position, SaltedEntry(item.salt, item.entry)) for item in self.disclosed],
        )

    @classmethod
    def of(
        cls, salted: Sequence[SaltedEntry], shown: Sequence[int], left: Sequence[Signed] = ()
    ) -> ListView:
        """Return a view of a list that discloses these positions, with the departures of their users."""
        return cls(
            entryHashes=b"".join(item.hash for item in salted),
            disclosed=[
                Disclosed(position=n, salt=salted[n].salt, entry=salted[n].entry) for n in shown
            ],
            departures=[SignedObject.of(signed) for signed in left],
        )


class DepartureRequest(Message, frozen=True, kw_only=True):
    is_act: ClassVar[bool] = True
    departure: SignedObject
    departures: Annotated[int, Meta(ge=0, le=records.MAX_ENTRIES)] = 0
    """How many departures from the list in force the leaver has seen."""


class GoverningView(Message, frozen=True, kw_only=True):
    record: SignedRecord
    accessList: ListView | None
    membership: Membership | None = None
    """Of the author in the group of `via`; None exactly without one."""
    standing: Membership | None = None
    """Of the author in the roster in force, for a change of access in an epoch that has ended."""


class GoverningQuery(Message, frozen=True, kw_only=True):
    from_: Annotated[int, Meta(ge=1, le=2**53 - 1)] = msgspec.field(name="from")
    to: Annotated[int, Meta(ge=1, le=2**53 - 1)]
    via: Id | None = None


class GoverningPage(Message, frozen=True, kw_only=True):
    governing: list[GoverningView]


class ContainerView(Message, frozen=True, kw_only=True):
    governing: Annotated[list[GoverningView], Meta(min_length=1)]
    lastGoverning: Uint
    head: SignedRecord | None
    skipped: Annotated[list[RecordBody], Meta(max_length=MAX_SKIPPED)] = []
    wrap: Wrap | None
    type: TypeText | None
    header: SealedHeader | None
    content: SealedInline | None
    keyChains: list[KeyChainState]
    recipients: Annotated[list[KeyChainState], Meta(max_length=records.MAX_ENTRIES)] = []
    """For a writer: members who have a newer encryption key than the one that their wrap is for."""
    via: Id | None = None
    """The group by whose entry the broker answered; None if it answered by the user's own."""
    headMembership: Membership | None = None
    """Of the head's author, where the head was made through a group."""
    groupChains: Annotated[list[GroupState], Meta(max_length=MAX_GROUP_STATES)] = []
    """Of each group that a `via` of the answer names."""
    groups: Annotated[list[Id], Meta(max_length=roster.MAX_GROUPS)] = []
    """The names of the list in force that are groups, as group ids, ascending."""
    groupRecipients: Annotated[list[GroupState], Meta(max_length=roster.MAX_GROUPS)] = []
    """For a writer: groups whose wrap is of an older epoch, or whose epoch is owed."""


class ViewQuery(Message, frozen=True, kw_only=True):
    since: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None
    header: Annotated[int, Meta(ge=0, le=1)] = 0
    content: Annotated[int, Meta(ge=0, le=1)] = 0
    recipients: Annotated[int, Meta(ge=0, le=1)] = 0
    via: Id | None = None
    """The group by whose entry the reader reads."""


class BodiesQuery(Message, frozen=True, kw_only=True):
    from_: Annotated[int, Meta(ge=1, le=2**53 - 1)] = msgspec.field(name="from")
    count: Annotated[int, Meta(ge=1, le=MAX_SKIPPED)]
    via: Id | None = None


class Bodies(Message, frozen=True, kw_only=True):
    bodies: Annotated[list[RecordBody], Meta(max_length=MAX_SKIPPED)]


class RecordsRequest(Message, frozen=True, kw_only=True):
    is_act: ClassVar[bool] = True
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
    recipients: bool = False
    via: Id | None = None


class ViewsRequest(Message, frozen=True, kw_only=True):
    views: Annotated[list[ViewRequest], Meta(min_length=1, max_length=MAX_BATCH)]


class ViewOutcome(Message, frozen=True, kw_only=True):
    """A view or a problem, never both."""

    view: ContainerView | None
    problem: ItemProblem | None


class KnownContainer(Message, frozen=True, kw_only=True):
    """A container of which the reader has a mark at version `since`: its view begins there."""

    containerId: Id
    since: Annotated[int, Meta(ge=1, le=2**53 - 1)]


class ListRequest(Message, frozen=True, kw_only=True):
    after: Id | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = MAX_BATCH
    type: TypeLabel | None = None
    header: bool = False
    known: Annotated[list[KnownContainer], Meta(max_length=MAX_BATCH)] = []
    via: Id | None = None
    """List the containers of this group in place of the user's own."""
    stale: bool = False
    """With `via`: only those whose entry of the group names an older epoch than the latest, without views."""


class ListedContainer(Message, frozen=True, kw_only=True):
    """A container with its view or a problem, never both; with neither in a list of `stale` ones."""

    containerId: Id
    view: ContainerView | None
    problem: ItemProblem | None


class ContainerList(Message, frozen=True, kw_only=True):
    """A page of containers, ascending by id; `next` is the `after` of the next page, None on the last."""

    containers: Annotated[list[ListedContainer], Meta(max_length=MAX_BATCH)]
    next: Id | None


class ViewsAnswer(Message, frozen=True, kw_only=True):
    """At least the first of the requested views; the client requests the others again."""

    views: Annotated[list[ViewOutcome], Meta(min_length=1, max_length=MAX_BATCH)]
