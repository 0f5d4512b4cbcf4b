"""The grammar of a group: its name, its roster of members, the proof of a membership, and a departure.

`group` judges a chain of rosters. This module derives no key from a group's secrets; only the client does.
Spec: docs/spec/groups.md, 1 to 3 and 9.
"""

import base64
import operator
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from scbroker.crypto.verify import (
    ENCRYPTION_KEY_SIZE,
    HASH_SIZE,
    check_encryption_key,
    label,
    labelled_hash,
    sha256,
)
from scbroker.errors import IntegrityError, InvalidArgumentError
from scbroker.records import merkle
from scbroker.records.canonical import (
    Bin32,
    EntryIndex,
    KeyIndex,
    Row,
    Time,
    check_printable,
    decode_object,
    decode_value,
    decode_values,
)
from scbroker.records.container_record import GROUP_TYPE, Entry, Version
from scbroker.vocabulary import ContainerAccessLevel, GroupRole

DEPARTURE_LABEL: Final = "group-departure"
MAX_MEMBERS: Final = 1024
MAX_MANAGERS: Final = 16
MAX_GROUPS: Final = 16
"""Groups in one access list."""
LAST_EPOCH: Final = 16_383
MAX_ROSTER: Final = 1536
MAX_MEMBER: Final = 64
MAX_PATH: Final = (MAX_MEMBERS - 1).bit_length() * HASH_SIZE
MAX_NAME: Final = 256
MAX_DESCRIPTION: Final = 4096
MAX_INFO: Final = MAX_NAME + MAX_DESCRIPTION + (LAST_EPOCH + 1) * (HASH_SIZE + 2) + 32
MAX_SEALED_INFO: Final = 563_000
MAX_DEPARTURE: Final = 128
OWNER: Final = int(ContainerAccessLevel.DefaultOwnerPermissions)
MANAGER: Final = OWNER & ~int(ContainerAccessLevel.ModifyAccess | ContainerAccessLevel.Delete)

_LEAF: Final = label("roster-leaf")
NODE: Final = label("roster-node")
MASKS: Final = {role: int(role.permissions) for role in GroupRole}


class Roster(Row, frozen=True):
    """The members of a group and its key, from one of its records on."""

    group: Bin32
    version: Version
    """That of the record that introduces this roster."""
    epoch: EntryIndex
    publicKey: Annotated[
        bytes, Meta(min_length=ENCRYPTION_KEY_SIZE, max_length=ENCRYPTION_KEY_SIZE)
    ]
    commitment: Bin32
    members: Bin32
    """The root of the tree of leaves."""
    count: Annotated[int, Meta(ge=1, le=MAX_MEMBERS)]
    info: Bin32
    """SHA-256 of the sealed info."""


class Member(Row, frozen=True, gc=False):
    """A user's membership, from the roster of `version` on."""

    fingerprint: Bin32
    keyIndex: KeyIndex
    role: Annotated[int, Meta(ge=0, le=2)]
    version: Version


class SaltedMember(Struct, frozen=True, gc=False):
    """A leaf of the tree: a Member's bytes, with the salt of their hash.

    Leaves and members come by 1,024: with `gc=False` their number starts no garbage collection, which would
    take several times as long as reading them.
    """

    salt: bytes
    member: bytes

    @property
    def hash(self) -> bytes:
        return sha256(_LEAF + self.salt + self.member)


class MembershipProof(NamedTuple):
    """A leaf with its position and its path to the root of a roster's tree."""

    leaf: SaltedMember
    position: int
    path: bytes


class GroupDeparture(Row, frozen=True):
    """A user's statement that they leave a group. It is void for any other leaf of theirs."""

    group: Bin32
    version: Version
    """That of the user's leaf."""
    fingerprint: Bin32
    keyIndex: KeyIndex
    time: Time


class Info(Row, frozen=True):
    """Name, description and earlier secrets of a group, sealed under a key of the epoch."""

    name: str
    description: str
    secrets: list[Bin32 | None]
    """Those of all epochs before this one, in order; None for one that the author lacked."""

    def __repr__(self) -> str:
        return "<Info: a name, a description and secrets>"


def group_type(roster: bytes) -> str:
    """Return the type of a group's container while this roster is in force."""
    digest = base64.urlsafe_b64encode(labelled_hash("roster", roster))
    return GROUP_TYPE + digest.rstrip(b"=").decode("ascii")


def check_group_type(text: str | None, roster: bytes) -> None:
    """Raise `IntegrityError` unless a type is that of a group's container with this roster (section 2)."""
    if text != group_type(roster):
        raise IntegrityError("A group's type is not that of its roster (C2).")


def parse_roster(data: bytes) -> Roster:
    """Parse a roster; raise `IntegrityError` if it does not decode strictly, or has a weak public key."""
    roster = decode_object(Roster, data, MAX_ROSTER)
    check_encryption_key(roster.publicKey)
    return roster


def parse_member(data: bytes) -> Member:
    return decode_value(Member, data, MAX_MEMBER)


def parse_group_departure(body: bytes) -> GroupDeparture:
    return decode_object(GroupDeparture, body, MAX_DEPARTURE)


def members_root(leaves: Sequence[SaltedMember]) -> bytes:
    """Return the hash by which a roster names its members."""
    return merkle.root(NODE, [sha256(_LEAF + leaf.salt + leaf.member) for leaf in leaves])


def prove(leaves: Sequence[SaltedMember], wanted: Iterable[int]) -> list[MembershipProof]:
    """Return the proofs of the leaves at some positions."""
    _, paths = merkle.tree(NODE, [leaf.hash for leaf in leaves])
    return [MembershipProof(leaves[index], index, paths[index]) for index in wanted]


def proven(members: bytes, count: int, proof: MembershipProof) -> Member:
    """Return the member that a proof shows in a tree with this root and number of leaves (3.1).

    Raises `IntegrityError` for a proof of another tree, or of no leaf.
    """
    member = parse_member(proof.leaf.member)
    if len(proof.leaf.salt) != HASH_SIZE:
        raise IntegrityError("A membership proof has a salt of a wrong size.")
    root = merkle.root_of_path(
        NODE, proof.leaf.hash, proof.position, count, proof.path, "A membership proof"
    )
    if root != members:
        raise IntegrityError("A membership proof is not of the roster that was signed.")
    return member


def parse_leaves(roster: Roster, leaves: Sequence[SaltedMember]) -> dict[bytes, Member]:
    """Return the members by fingerprint; raise `IntegrityError` unless they are the roster's (C7)."""
    members = decode_values(Member, [leaf.member for leaf in leaves], MAX_MEMBER)
    names = [member.fingerprint for member in members]
    is_ascending = all(map(operator.lt, names, names[1:]))
    if not is_ascending or any(len(leaf.salt) != HASH_SIZE for leaf in leaves):
        raise IntegrityError("A roster's members are not in strictly ascending order.")
    if any(member.version > roster.version for member in members):
        raise IntegrityError("A roster has a member of a later roster.")
    if len(leaves) != roster.count or members_root(leaves) != roster.members:
        raise IntegrityError("A roster has other members than were signed.")
    return dict(zip(names, members, strict=True))


def cut(permissions: int, role: int) -> int:
    """Return the permissions of a group's entry that a member with this role may use."""
    return permissions & MASKS[GroupRole(role)]


def cut_entry(entry: Entry, role: int) -> Entry:
    """Return a group's entry with the permissions that a member with this role has by it."""
    left = cut(entry.permissions, role)
    return entry if left == entry.permissions else replace(entry, permissions=left)


def commitment_of(group: bytes, epoch: int, secret: bytes) -> bytes:
    return labelled_hash("group-secret", group, epoch.to_bytes(4, "big"), secret)


def wrap_info(
    group: bytes, epoch: int, commitment: bytes, recipient: bytes, key_index: int
) -> bytes:
    """Return the info that binds a wrap of an epoch's secret to its place (3.3)."""
    return (
        label("group-wrap")
        + group
        + epoch.to_bytes(4, "big")
        + commitment
        + recipient
        + key_index.to_bytes(4, "big")
    )


def info_context(group: bytes, epoch: int) -> bytes:
    """Return the context that binds a sealed info to its epoch (3.4)."""
    return label("group-info") + group + epoch.to_bytes(4, "big")


def parse_info(data: bytes, epoch: int) -> Info:
    """Parse the opened info of an epoch; raise `IntegrityError` for one that breaks 3.4."""
    info = decode_object(Info, data, MAX_INFO)
    if len(info.secrets) != epoch:
        raise IntegrityError("The info of a group has another number of secrets than of epochs.")
    try:
        check_texts(info.name, info.description)
    except InvalidArgumentError as error:
        raise IntegrityError(str(error)) from None
    return info


def check_texts(name: str, description: str) -> None:
    """Raise `InvalidArgumentError` for a name or a description that no info may have (3.4)."""
    check_printable("A group's name", name)
    check_printable("A group's description", description.replace("\n", " "))
    if not name.strip():
        raise InvalidArgumentError("A group's name must not be blank.")
    if len(name.encode()) > MAX_NAME:
        raise InvalidArgumentError(f"A group's name has more than {MAX_NAME} bytes of UTF-8.")
    if len(description.encode()) > MAX_DESCRIPTION:
        raise InvalidArgumentError(
            f"A group's description has more than {MAX_DESCRIPTION:,} bytes of UTF-8."
        )
