"""Messages about groups. Spec: docs/spec/groups.md, section 12."""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from scbroker.records import roster
from scbroker.records.canonical import Uint
from scbroker.wire.codec import Id, Message, SignedObject, Wrap
from scbroker.wire.containers import ListView, SignedRecord, TypeText
from scbroker.wire.problems import ItemProblem
from scbroker.wire.rosters import Leaf, Members, RosterBytes, SealedInfo
from scbroker.wire.users import KeyChainState

MAX_VIEWS: Final = 16
MAX_LISTED: Final = 256
MAX_ACCEPTED: Final = 1024
"""Groups that a user has accepted: the broker looks for each of them in lists of containers."""


class GroupRecord(Message, frozen=True, kw_only=True):
    """A group's record with its new list, and its new type with roster; None for each that it keeps."""

    record: SignedRecord
    accessList: ListView | None
    type: TypeText | None
    roster: RosterBytes | None


class GroupMembership(Message, frozen=True, kw_only=True):
    """The part of a group's view that the broker serves only to members."""

    leaves: Annotated[list[Leaf], Members]
    wrap: Wrap | None
    """The reader's; None if no manager has made one for this epoch."""
    info: SealedInfo
    departures: Annotated[list[SignedObject], Members]
    """Ascending by fingerprint."""
    owed: list[KeyChainState]
    """For a manager: the users for whom an epoch is owed."""
    accepted: bool


class GroupView(Message, frozen=True, kw_only=True):
    records: Annotated[list[GroupRecord], Meta(min_length=1)]
    """Ascending, without a gap."""
    last: Uint
    """The version of the group's head."""
    keyChains: list[KeyChainState]
    membership: GroupMembership | None
    departure: SignedObject | None = None
    """The reader's own from the roster in force, if membership was asked for and they have left."""


class GroupViewRequest(Message, frozen=True, kw_only=True):
    groupId: Id
    since: Annotated[int, Meta(ge=1, le=2**53 - 1)] = 1
    membership: bool = False


class GroupViewsRequest(Message, frozen=True, kw_only=True):
    groups: Annotated[list[GroupViewRequest], Meta(min_length=1, max_length=MAX_VIEWS)]


class GroupOutcome(Message, frozen=True, kw_only=True):
    """A view or a problem, never both."""

    view: GroupView | None
    problem: ItemProblem | None


class GroupViews(Message, frozen=True, kw_only=True):
    """At least the first of the requested views; the client requests the others again."""

    groups: Annotated[list[GroupOutcome], Meta(min_length=1, max_length=MAX_VIEWS)]


class GroupsQuery(Message, frozen=True, kw_only=True):
    after: Id | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LISTED)] = MAX_LISTED


class ListedGroup(Message, frozen=True, kw_only=True):
    groupId: Id
    version: Uint
    accepted: bool


class GroupList(Message, frozen=True, kw_only=True):
    """A page of groups, ascending by id; `next` is the `after` of the next page, None on the last."""

    groups: Annotated[list[ListedGroup], Meta(max_length=MAX_LISTED)]
    next: Id | None


class GroupDepartureRequest(Message, frozen=True, kw_only=True):
    is_act: ClassVar[bool] = True
    departure: SignedObject
    departures: Annotated[int, Meta(ge=0, le=roster.MAX_MEMBERS)] = 0
    """How many departures from the roster in force the leaver has seen."""
    last: Uint = 0
    """The version of the group that the leaver has seen. The broker compares it for an owner."""
