"""Verify and open a group as one of its members sees it; keep in the trust store what was verified of it.

| kind            | key                    | value                                                        |
|-----------------|------------------------|--------------------------------------------------------------|
| `group`         | group id               | the pinned name, the mark of its container, the latest epoch |
| `group-members` | group id               | the roster and the members that were verified last, for C9   |
| `group-wrap`    | group id, epoch        | the wrap of the epoch's secret: sealed to the user's own key |

A wrap is kept because a manager can leave an older secret out of the info. Groups have a kind of mark of
their own, because a list of containers never has them. Spec: docs/spec/groups.md, 1, 3, 4 and 12.
"""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import replace

from scbroker import errors
from scbroker.client.arguments import now
from scbroker.client.core import group_records
from scbroker.client.core.judging import Mark, Unwrap
from scbroker.client.users.directory import Directory, members_exist
from scbroker.client.users.trust_store import Marks, each_mark, raise_to
from scbroker.crypto.seal import DecryptionKey
from scbroker.errors import BrokerError, DecryptionError, IntegrityError, KeySubstitutionError
from scbroker.records import group, roster
from scbroker.records.canonical import MAX_UINT, decoder, user_id_of, uuid8
from scbroker.records.container_record import Via
from scbroker.records.group import GroupChain
from scbroker.records.key_record import KeyChain
from scbroker.records.roster import Info, Member, Roster, SaltedMember
from scbroker.vocabulary import KeyType
from scbroker.wire.codec import SignedObject
from scbroker.wire.groups import GroupMembership
from scbroker.wire.users import KeyChainState

S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Roll:
    """The members of a group of the session's user, judged (C7 to C10) and not opened. Immutable."""

    fingerprint: bytes
    """That of the session's user, who is a member."""
    chain: GroupChain
    leaves: Sequence[SaltedMember]
    """Ascending by fingerprint."""
    members: Mapping[bytes, Member]
    """By fingerprint, in the order of `leaves`. Users who have left are among them."""
    left: frozenset[bytes] = frozenset()
    """Fingerprints of members whose departure from this roster is verified."""
    owed: frozenset[bytes] = frozenset()
    """Fingerprints of members for whom an epoch is owed (3.5); known to a manager alone."""
    deleted: frozenset[bytes] = frozenset()
    """Fingerprints of those for whom an epoch is owed because their user was deleted."""
    unproved: frozenset[bytes] = frozenset()
    """Those of the deleted ones of whom the broker alone says it: their key chain is not closed."""
    accepted: bool = True
    """Whether the user has accepted the group: the broker's word."""
    sealed_info: bytes
    wrap: bytes | None
    """The user's own, of the secret of the epoch in force."""

    @property
    def name(self) -> bytes:
        return self.chain.name

    @property
    def group_id(self) -> uuid.UUID:
        return uuid8(self.chain.name)

    @property
    def epoch(self) -> int:
        return self.chain.roster.epoch

    @property
    def role(self) -> int:
        """Return the role of the session's user, a `GroupRole`."""
        return self.members[self.fingerprint].role

    @property
    def is_manager(self) -> bool:
        return self.fingerprint in self.chain.managers

    @property
    def is_owner(self) -> bool:
        return self.chain.is_owner(self.fingerprint)

    @property
    def via(self) -> Via:
        """Return the via of a record that the user makes through this group now."""
        known = self.chain.in_force.known
        return Via(self.chain.name, self.epoch, known.record.version, known.hash)


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class OpenGroup(Roll):
    """A group of the session's user with its info and its secrets. Immutable."""

    info: Info
    secrets: Mapping[int, bytes]
    """By epoch: those to which the epochs' rosters commit, as far as the user has them."""
    _keys: dict[int, DecryptionKey] = field(default_factory=dict)

    @property
    def has_all_secrets_in_info(self) -> bool:
        """Return whether the info has all secrets that the user has (3.4)."""
        return all(
            self.secrets.get(epoch) in (None, secret)
            for epoch, secret in enumerate(self.info.secrets)
        )

    def key(self, epoch: int) -> DecryptionKey:
        """Return the group's private key of an epoch.

        Raises `IntegrityError` for an epoch that does not exist, and where a manager handed on no secret, or
        a wrong one.
        """
        if epoch not in self._keys:
            secret = self.secrets.get(epoch)
            if secret is None:
                raise IntegrityError(
                    f"The group has no epoch {epoch}."
                    if epoch > self.epoch
                    else f"A manager of the group left out the secret of epoch {epoch}, or gave a wrong "
                    "one: have a manager who has it rename the group, which hands it on."
                )
            signed = self.chain.keys[epoch]
            self._keys[epoch] = group_records.checked_key(self.name, epoch, secret, signed)
        return self._keys[epoch]


def open_group(roll: Roll, unwrap: Unwrap, marks: Marks) -> OpenGroup:
    """Open the wrap, the info and the secrets of a group (section 4, *opening*)."""
    if roll.wrap is None:
        raise DecryptionError(
            "No manager has given you the key of this group's present epoch: ask one to add you again."
        )
    chain, epoch = roll.chain, roll.epoch
    own = roll.members[roll.fingerprint]
    signed = chain.keys[epoch]
    secret, key = group_records.open_secret(chain.name, epoch, signed, own, roll.wrap, unwrap)
    info = group_records.open_info(chain.name, epoch, chain.roster.info, secret, roll.sealed_info)
    opened = with_info(roll, info, unwrap, marks)
    return dataclasses.replace(
        opened, secrets={**opened.secrets, epoch: secret}, _keys={epoch: key}
    )


def with_info(roll: Roll, info: Info, unwrap: Unwrap, marks: Marks) -> OpenGroup:
    """Return a group with its earlier secrets: the info's, or where one is missing or wrong, the one kept."""
    found: dict[int, bytes] = {}
    for epoch, secret in enumerate(info.secrets):
        signed = roll.chain.keys[epoch]
        if secret is not None and group_records.is_committed(roll.name, epoch, secret, signed):
            found[epoch] = secret
        elif (kept := _kept(marks, _WRAP, _wrap_key(roll.group_id, epoch), _Wrap)) is not None:
            member = Member(roll.fingerprint, kept.keyIndex, 0, 1)
            # Perhaps it is wrapped to a key that this KeyRing no longer has.
            with contextlib.suppress(BrokerError):
                found[epoch], _ = group_records.open_secret(
                    roll.name, epoch, signed, member, kept.wrap, unwrap
                )
    return OpenGroup(
        **{name: getattr(roll, name) for name in Roll.__slots__}, info=info, secrets=found
    )


class Answer(NamedTuple):
    """A group up to its head, with the part that is served to members."""

    chain: GroupChain
    membership: GroupMembership | None
    states: Sequence[KeyChainState]
    departure: SignedObject | None
    """The user's own, if the broker gives it as the reason why it serves no membership."""

    @property
    def is_of_member(self) -> bool:
        """True if the group is not deleted and the broker serves its members' part to the user."""
        return self.membership is not None and self.chain.ended is None


class MembershipJudge:
    """Judges the memberships of a user, and keeps what it has verified on this device, for C9."""

    def __init__(self, marks: Marks, users: Directory, fingerprint: bytes) -> None:
        self._marks, self._users, self._fingerprint = marks, users, fingerprint

    async def judge(self, group_id: uuid.UUID, answer: Answer) -> Roll:
        """Judge the members' part of a group's view (C7 to C10, departures), and keep it for C9."""
        chain, membership = answer.chain, answer.membership
        before = verified_of(self._marks, group_id)
        if membership is None or not answer.is_of_member:
            if answer.departure is not None and before is not None:
                await self._take_departure(group_id, chain, before, answer.departure)
                before = verified_of(self._marks, group_id)
            raise self._denied(group_id, chain, before)
        members = group_records.judge_members(chain, membership.leaves)
        if self._fingerprint not in members:
            raise errors.IntegrityError("The broker serves a group without a leaf of this member.")
        # An unchanged roster has unchanged members: it contains the Merkle root of their leaves.
        is_known = before is not None and before.roster == chain.roster_bytes
        if (
            before is not None
            and not is_known
            and roster.parse_roster(before.roster).version <= chain.roster.version
        ):
            group.check_since(before.before, (chain.roster, members))
        indices = {name: member.keyIndex for name, member in members.items()}
        group.check_keys(members, await self._users.known_with(indices))
        left = await self._left(chain, members, membership, answer.states)
        if self._fingerprint in left:
            raise errors.NotFoundError("You have left this group.")
        if before is None or not is_known or before.denied >= 0 or before.unknown:
            keep_verified(self._marks, group_id, chain, membership.leaves)
        owed, deleted, unproved = await self._owed(chain, members, left, membership.owed)
        return Roll(
            fingerprint=self._fingerprint,
            chain=chain,
            leaves=membership.leaves,
            members=members,
            left=left,
            owed=owed,
            deleted=deleted,
            unproved=unproved,
            accepted=membership.accepted,
            sealed_info=membership.info,
            wrap=membership.wrap,
        )

    async def _take_departure(
        self, group_id: uuid.UUID, chain: GroupChain, before: Verified, served: SignedObject
    ) -> None:
        """Note that the user has left by another device, if the departure is from the verified leaf."""
        own = before.before[1][self._fingerprint]
        if roster.parse_group_departure(served.body).version == own.version:
            keys, members = await self._users.latest_own(), {self._fingerprint: own}
            group.verify_departure(served.signed, chain, members, keys, now())
            note(self._marks, group_id, departed=own.version)

    def _denied(
        self, group_id: uuid.UUID, chain: GroupChain, before: Verified | None
    ) -> BrokerError:
        """Return the error for a membership that the broker does not serve: ended, or denied (section 12)."""
        if chain.ended is not None:
            return errors.DeletedError("The group was deleted.")
        if before is not None:
            has_left = before.has_left(self._fingerprint)
            if chain.roster.epoch <= before.epoch and not has_left and before.denied < 0:
                return errors.IntegrityError(
                    "The broker denies your membership in a group from which nobody was removed since this "
                    "device read it: ask its operator."
                )
            if before.denied < 0:
                note(self._marks, group_id, denied=chain.roster.epoch)
        return errors.NotFoundError("You are not a member of this group.")

    async def _left(
        self,
        chain: GroupChain,
        members: Mapping[bytes, Member],
        membership: GroupMembership,
        states: Sequence[KeyChainState],
    ) -> frozenset[bytes]:
        if not membership.departures:
            return frozenset()
        leavers = {
            roster.parse_group_departure(item.body).fingerprint for item in membership.departures
        }
        # A user may have signed with a key that is newer than the chain that the answer names: read it anew.
        keys = await keys_of(self._users, leavers, states, MAX_UINT)
        return group_records.judge_departures(membership.departures, chain, members, keys, now())

    async def _owed(
        self,
        chain: GroupChain,
        members: Mapping[bytes, Member],
        left: frozenset[bytes],
        stated: Sequence[KeyChainState],
    ) -> tuple[frozenset[bytes], frozenset[bytes], frozenset[bytes]]:
        """Return the members who make a new epoch necessary (3.5), the deleted ones, and the unproved ones.

        The users that the broker names are hints: key chains and departures decide. A deletion is unproved if
        the user's key chain is not closed. The chains that this session knows count as well.
        """
        if self._fingerprint not in chain.managers:
            return frozenset(), frozenset(), frozenset()
        names = {user_id_of(each): each for each in members} if stated else {}
        users = [user for item in stated if (user := uuid.UUID(item.userId)) in names]
        with members_exist():
            found = await self._users.latest(users)
        unproved = {names[user] for user in users if user not in found}
        deleted = unproved | {names[user] for user, keys in found.items() if keys.closed}
        known = {**self._users.known(members), **{names[user]: k for user, k in found.items()}}
        owed = {names[user] for user in users} & (deleted | left)
        for name, keys in known.items():
            if name in deleted or name in left or keys.closed:
                continue
            if keys.latest(KeyType.Encryption).index > members[name].keyIndex:
                owed.add(name)
        return frozenset(owed), frozenset(deleted), frozenset(unproved)


async def keys_of(
    users: Directory,
    fingerprints: Collection[bytes],
    states: Sequence[KeyChainState],
    unnamed: int = 0,
) -> Mapping[bytes, KeyChain]:
    """Return the key chains of signers, each at least up to the sequence that the broker names.

    `unnamed` is the least sequence for signers that the broker does not name.
    """
    named = {item.userId: item.sequence for item in states}
    wanted = {user_id_of(each): named.get(str(user_id_of(each)), unnamed) for each in fingerprints}
    try:
        chains = await users.at_least(wanted)
    except errors.NotFoundError:
        raise errors.IntegrityError(
            "The broker serves a record or a departure of a group and does not know the user who signed "
            "it."
        ) from None
    return {chain.fingerprint: chain for chain in chains.values()}


PIN: Final = "group"
_MEMBERS: Final = "group-members"
_WRAP: Final = "group-wrap"


class Pin(msgspec.Struct, array_like=True, frozen=True):
    """A group's name, and the mark of its container."""

    name: bytes
    mark: Mark
    epoch: int = 0
    """The latest epoch at the mark. A process that has not read the group yet compares lists with it."""


class Verified(msgspec.Struct, array_like=True, frozen=True):
    """The newest roster of which this device has verified the members."""

    roster: bytes
    members: list[bytes]
    departed: int = 0
    """The version of the user's leaf from which this device sent a departure; 0 if it sent none."""
    denied: int = -1
    """The epoch in which the broker served no membership to the user any more; -1 while it does."""
    unknown: bool = False
    """True if the broker did not know the group at the last read, and the user was warned."""

    @property
    def epoch(self) -> int:
        return roster.parse_roster(self.roster).epoch

    @property
    def before(self) -> tuple[Roster, Mapping[bytes, Member]]:
        """Return roster and members with which C9 compares those of a later roster."""
        found = map(roster.parse_member, self.members)
        return roster.parse_roster(self.roster), {each.fingerprint: each for each in found}

    def has_left(self, fingerprint: bytes) -> bool:
        """Return whether the user, with this fingerprint, has left by a departure from the kept leaf."""
        return self.departed > 0 and self.departed == self.before[1][fingerprint].version

    def has_member(self, fingerprint: bytes) -> bool:
        """Return whether the user with this fingerprint was a member when this device read the group last."""
        return self.denied < 0 and not self.unknown and not self.has_left(fingerprint)


class _Wrap(msgspec.Struct, array_like=True, frozen=True):
    keyIndex: int
    wrap: bytes


def _kept(marks: Marks, kind: str, key: bytes, struct: type[S]) -> S | None:
    return _decoded(marks.get(kind, key), struct)


def _decoded(stored: bytes | None, struct: type[S]) -> S | None:
    """Return what is stored; None if nothing is, or if it was forgotten."""
    return decoder(cast(Any, struct)).decode(stored) if stored else None


def pin_of(marks: Marks, group_id: uuid.UUID) -> Pin | None:
    return _kept(marks, PIN, group_id.bytes, Pin)


def keep(marks: Marks, group_id: uuid.UUID, chain: GroupChain, *, partial: bool) -> bool:
    """Raise pin and mark to a chain; return False if the mark is of a later version than the chain.

    With `partial`, the mark becomes a partial one, unless the stored mark is not: the end is not read yet.
    """
    is_older = False

    def decide(stored: bytes | None) -> bytes | None:
        nonlocal is_older
        mark = group_records.mark_of(chain, partial=partial)
        if stored is not None and (pin := _decoded(stored, Pin)) is not None:
            check_name(pin.name, chain)
            is_older = pin.mark.version > chain.version
            if is_older:
                return stored
            group_records.check_follows(chain, pin.mark)
            mark = replace(mark, partial=partial and pin.mark.partial)
        return msgspec.msgpack.encode(Pin(chain.name, mark, chain.roster.epoch))

    raise_to(marks, PIN, group_id.bytes, decide)
    return not is_older


def accept_head(marks: Marks, group_id: uuid.UUID, chain: GroupChain, before: Mark | None) -> bool:
    """Replace a mark by the head of a served chain; return False if the mark is not `before` any more.

    The members that were verified last may belong to the history that is given up: forget them.
    """
    stored = marks.get(PIN, group_id.bytes)
    pin = _decoded(stored, Pin)
    if (None if pin is None else pin.mark) != before:
        return False
    if pin is not None:
        check_name(pin.name, chain)
    raise_to(marks, _MEMBERS, group_id.bytes, lambda found: None if found is None else b"")
    pinned = Pin(chain.name, group_records.mark_of(chain), chain.roster.epoch)
    new = msgspec.msgpack.encode(pinned)
    return marks.swap(PIN, group_id.bytes, stored, new)


def check_name(name: bytes, chain: GroupChain) -> None:
    if chain.name != name:
        raise KeySubstitutionError(
            "The broker serves another group for this id than this device has pinned."
        )


def verified_of(marks: Marks, group_id: uuid.UUID) -> Verified | None:
    return _kept(marks, _MEMBERS, group_id.bytes, Verified)


def keep_verified(
    marks: Marks, group_id: uuid.UUID, chain: GroupChain, leaves: Sequence[SaltedMember]
) -> None:
    """Keep the members of the roster in force, unless those of a later one are kept."""
    found = Verified(chain.roster_bytes, [leaf.member for leaf in leaves])

    def decide(stored: bytes | None) -> bytes | None:
        before = _decoded(stored, Verified)
        if before is None:
            return msgspec.msgpack.encode(found)
        if roster.parse_roster(before.roster).version > chain.roster.version:
            return stored
        return msgspec.msgpack.encode(replace(found, departed=before.departed))

    raise_to(marks, _MEMBERS, group_id.bytes, decide)


def note(marks: Marks, group_id: uuid.UUID, **changes: int) -> None:
    """Change `departed`, `denied` or `unknown` of the kept `Verified`."""

    def decide(stored: bytes | None) -> bytes | None:
        before = _decoded(stored, Verified)
        return stored if before is None else msgspec.msgpack.encode(replace(before, **changes))

    raise_to(marks, _MEMBERS, group_id.bytes, decide)


def memberships(marks: Marks, fingerprint: bytes) -> dict[uuid.UUID, Pin | None]:
    """Return the groups, with their pins, of which the user was a member at the last reading."""
    found: dict[uuid.UUID, Pin | None] = {}
    for key, stored in each_mark(marks, _MEMBERS):
        verified, pin = _decoded(stored, Verified), pin_of(marks, uuid.UUID(bytes=key))
        is_deleted = pin is not None and pin.mark.deleted
        if verified is not None and verified.has_member(fingerprint) and not is_deleted:
            found[uuid.UUID(bytes=key)] = pin
    return found


def keep_wrap(marks: Marks, group: OpenGroup) -> None:
    """Keep the wrap of the present epoch, unless one of this epoch is kept."""
    if group.wrap is not None:
        own = group.members[group.fingerprint]
        stored = msgspec.msgpack.encode(_Wrap(own.keyIndex, group.wrap))
        key = _wrap_key(group.group_id, group.epoch)
        raise_to(marks, _WRAP, key, lambda before: before or stored)


def _wrap_key(group_id: uuid.UUID, epoch: int) -> bytes:
    return group_id.bytes + epoch.to_bytes(4, "big")
