"""Parts of messages that describe rosters, memberships and groups.

Spec: docs/spec/groups.md, sections 3.1 and 12.
"""

from typing import Annotated, Final, Self

from msgspec import Meta

from scbroker.records import roster
from scbroker.records.canonical import Bin32, Uint
from scbroker.records.roster import MembershipProof, SaltedMember
from scbroker.wire.codec import Id, Message, Wrap

Salt = Annotated[bytes, Meta(min_length=32, max_length=32)]
MemberBytes = Annotated[bytes, Meta(max_length=roster.MAX_MEMBER)]
RosterBytes = Annotated[bytes, Meta(max_length=roster.MAX_ROSTER)]
SealedInfo = Annotated[bytes, Meta(max_length=roster.MAX_SEALED_INFO)]
Members: Final = Meta(max_length=roster.MAX_MEMBERS)


class Leaf(SaltedMember, forbid_unknown_fields=True, frozen=True, kw_only=True, gc=False):
    """A member, with the salt of the leaf's hash, as a message has it."""

    salt: Salt
    member: MemberBytes

    @classmethod
    def of(cls, leaf: SaltedMember) -> Self:
        return cls(salt=leaf.salt, member=leaf.member)

    @property
    def salted(self) -> SaltedMember:
        return SaltedMember(self.salt, self.member)


class MemberWrap(Message, frozen=True, kw_only=True):
    """The secret of an epoch, wrapped for the member with this fingerprint."""

    fingerprint: Bin32
    wrap: Wrap


class Membership(Message, frozen=True, kw_only=True):
    """The proof that a roster has one leaf."""

    salt: Salt
    member: MemberBytes
    index: Uint
    path: Annotated[bytes, Meta(max_length=roster.MAX_PATH)]

    @classmethod
    def of(cls, proof: MembershipProof) -> Self:
        return cls(
            salt=proof.leaf.salt, member=proof.leaf.member, index=proof.position, path=proof.path
        )

    @property
    def proof(self) -> MembershipProof:
        return MembershipProof(SaltedMember(self.salt, self.member), self.index, self.path)


class RosterRequest(Message, frozen=True, kw_only=True):
    """A new roster, with the leaves and wraps that differ from the former roster."""

    roster: RosterBytes
    removed: Annotated[list[Bin32], Members] = []
    """The fingerprints of dropped leaves, ascending."""
    leaves: Annotated[list[Leaf], Members] = []
    """New and changed leaves, ascending by fingerprint."""
    wraps: Annotated[list[MemberWrap], Members] = []
    """Ascending by fingerprint."""
    info: SealedInfo | None = None


class GroupState(Message, frozen=True, kw_only=True):
    """A group's latest version and epoch."""

    groupId: Id
    version: Uint
    epoch: Uint
    owed: bool
    """Whether an epoch is owed; said to the group's managers alone, in `groupRecipients`."""
