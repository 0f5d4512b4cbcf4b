"""Judge what the broker serves to a member of a group. Spec: docs/spec/groups.md, sections 3.5, 4 and 12."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from scbroker import errors
from scbroker.client.arguments import now
from scbroker.client.core import group_judging
from scbroker.client.groups import marks as kept
from scbroker.client.groups.opening import Roll
from scbroker.client.users.directory import Directory
from scbroker.client.users.trust_store import Marks
from scbroker.errors import BrokerError
from scbroker.records import group, roster
from scbroker.records.canonical import MAX_UINT, user_id_of
from scbroker.records.group import GroupChain
from scbroker.records.key_record import KeyChain
from scbroker.records.roster import Member
from scbroker.vocabulary import KeyType
from scbroker.wire.codec import SignedObject
from scbroker.wire.groups import GroupMembership
from scbroker.wire.rosters import salted
from scbroker.wire.users import KeyChainState


class Answer(NamedTuple):
    """A group up to its head, with what is served to its members."""

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
        """Judge what is served to a member (C7 to C10, departures), and keep it for C9."""
        chain, membership = answer.chain, answer.membership
        before = kept.verified_of(self._marks, group_id)
        if membership is None or not answer.is_of_member:
            if answer.departure is not None and before is not None:
                await self._take_departure(group_id, chain, before, answer.departure)
                before = kept.verified_of(self._marks, group_id)
            raise self._denied(group_id, chain, before)
        leaves = salted(membership.leaves)
        members = group_judging.judge_members(chain, leaves)
        if self._fingerprint not in members:
            raise errors.IntegrityError("The broker serves a group without a leaf of this member.")
        # The members of the same roster are the same: its tree proves it.
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
            kept.keep_verified(self._marks, group_id, chain, leaves)
        owed, deleted, unproved = await self._owed(chain, members, left, membership.owed)
        return Roll(
            group_id=group_id,
            fingerprint=self._fingerprint,
            chain=chain,
            leaves=leaves,
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
        self, group_id: uuid.UUID, chain: GroupChain, before: kept.Verified, served: SignedObject
    ) -> None:
        """Note that the user has left by another device, if the departure is from the verified leaf."""
        own = before.before[1][self._fingerprint]
        if roster.parse_group_departure(served.body).version == own.version:
            keys, members = await self._users.latest_own(), {self._fingerprint: own}
            group.verify_departure(served.signed, chain, members, keys, now())
            kept.note(self._marks, group_id, departed=own.version)

    def _denied(
        self, group_id: uuid.UUID, chain: GroupChain, before: kept.Verified | None
    ) -> BrokerError:
        """Return why the broker serves no membership: the user has none, or is denied it (section 12)."""
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
                kept.note(self._marks, group_id, denied=chain.roster.epoch)
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
        return group_judging.judge_departures(membership.departures, chain, members, keys, now())

    async def _owed(
        self,
        chain: GroupChain,
        members: Mapping[bytes, Member],
        left: frozenset[bytes],
        stated: Sequence[KeyChainState],
    ) -> tuple[frozenset[bytes], frozenset[bytes], frozenset[bytes]]:
        """Return for whom an epoch is owed (3.5), who of them was deleted, and for whom that is not proved.

        What the broker states is a hint: key chains and departures decide, and that a user was deleted is the
        broker's word unless their chain is closed. The chains that this session knows count as well.
        """
        if self._fingerprint not in chain.managers:
            return frozenset(), frozenset(), frozenset()
        names = {user_id_of(each): each for each in members} if stated else {}
        users = [user for item in stated if (user := uuid.UUID(item.userId)) in names]
        try:
            found = await self._users.latest(users) if users else {}
        except errors.NotFoundError:
            raise errors.IntegrityError(
                "The broker does not know a member of a group that it served: it contradicts itself."
            ) from None
        known = dict(self._users.known(members))
        owed, deleted, unproved = set[bytes](), set[bytes](), set[bytes]()
        for user in users:
            name, keys = names[user], found.get(user)
            if keys is None or keys.closed:
                owed.add(name)
                deleted.add(name)
                if keys is None:
                    unproved.add(name)
            elif name in left:
                owed.add(name)
            known.pop(name, None)
            if keys is not None and not keys.closed:
                known[name] = keys
        for name, keys in known.items():
            if keys.closed or name in left:
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
