"""Groups by hand: valid records of a group with their rosters, and the means to spoil one in one place.

    team = Group(alice).created({alice: SHARER, bob: WRITER})
    team.tell(alice, team.follow(alice, remove=[bob]))
    story.created({team: OWNER})                        # a container that the group can reach
    story.tell(bob, story.follow(bob, content=b"new", via=team))

`begin` and `follow` give the request that appends a record; nothing is part of the group before `tell` has
sent it and it was taken. `altered_roster` spoils a request and signs it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from scbroker.records import roster as grammar
from scbroker.records.canonical import encode_object, encode_value, group_name_of
from scbroker.records.container_record import ContainerRecord, Link, Via, parse_record, type_hash
from scbroker.records.roster import GroupDeparture, Info, Member, Roster, SaltedMember
from scbroker.vocabulary import GroupRole
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import RecordRequest, TypeText
from scbroker.wire.groups import (
    GroupDepartureRequest,
    GroupList,
    GroupOutcome,
    GroupView,
    GroupViewRequest,
    GroupViews,
    GroupViewsRequest,
)
from scbroker.wire.rosters import Leaf, MemberWrap, RosterRequest
from tests.kit.brokers import Answer, clock
from tests.kit.crypto import DecryptionKey, derive_key, random_bytes, seal, sha256, unseal, wrap_key
from tests.kit.writers import KEEP, Grant, Grants, Story, User

READER, WRITER, SHARER = (int(role) for role in GroupRole)
MANAGER: Final = grammar.MANAGER
VIEWS: Final = "/v1/groups/views"


class Epoch(NamedTuple):
    """The secret of an epoch, with what is derived from it."""

    secret: bytes
    key: DecryptionKey
    commitment: bytes

    @classmethod
    def of(cls, group: bytes, number: int, secret: bytes) -> Epoch:
        seeds = [derive_key(secret, "group-kem", group + bytes([n])) for n in range(3)]
        key = DecryptionKey(seeds[0] + seeds[1], seeds[2])
        return cls(secret, key, grammar.commitment_of(group, number, secret))


@dataclass(frozen=True)
class State:
    """A group after one of its records: its epochs, and its roster with everything that belongs to it."""

    epochs: tuple[Epoch, ...]
    members: Mapping[User, Member]
    salts: Mapping[User, bytes]
    managers: Grants
    name: str
    description: str
    info: bytes
    roster: Roster
    body: bytes

    @property
    def epoch(self) -> int:
        return len(self.epochs) - 1

    def leaf(self, user: User) -> SaltedMember:
        return SaltedMember(self.salts[user], encode_value(self.members[user]))

    @property
    def leaves(self) -> list[SaltedMember]:
        return [self.leaf(user) for user in by_name(self.members)]


def by_name(users: Collection[User]) -> list[User]:
    return sorted(users, key=lambda user: user.name)


@dataclass(eq=False)
class Group(Story):
    """A group: its secrets, and its records as far as they were taken."""

    states: list[State] = field(default_factory=list)
    """After each record."""
    _made: dict[bytes, State] = field(default_factory=dict)
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    @property
    def name(self) -> bytes:
        return group_name_of(self.creator.name, self.nonce)

    @property
    def group_id(self) -> str:
        return str(self.uuid)

    @property
    def state(self) -> State:
        return self.states[-1]

    @property
    def encryption(self) -> Sequence[DecryptionKey]:
        """The keys of all epochs: an access list names the group by the last one."""
        return [epoch.key for epoch in self.state.epochs]

    @property
    def via(self) -> Via:
        """What a record that is made through the group says now."""
        return self.via_of(self.governing)

    def via_of(self, record: ContainerRecord) -> Via:
        state = self.states[record.version - 1]
        return Via(self.name, state.epoch, record.version, self.hash(record))

    def begin(  # type: ignore[override]  # a group has members in place of parts
        self,
        members: Mapping[User, int] | None = None,
        *,
        managers: Grants | None = None,
        name: str = "Team",
        description: str = "",
        author: User | None = None,
        **changes: Any,
    ) -> RecordRequest:
        """The first record, by default with the creator as the only member and owner."""
        author = author or self.creator
        roles = members or {author: SHARER}
        lists = managers or {author: grammar.OWNER}
        epochs = (self.new_epoch(0),)
        given = {
            user: Member(user.name, len(user.ring.encryption) - 1, role, 1)
            for user, role in roles.items()
        }
        salts = {user: random_bytes(32) for user in given}
        state = self.state_of(epochs, given, salts, lists, name, description, 1, None)
        text, digest = self.type_of(state.body)
        governing, entries = self.access(1, author, lists, self.key, digest)
        record = ContainerRecord(
            self.id, self.nonce, 1, None, author.name, len(author.ring.signing) - 1, clock(), None,
            governing, None, None, False,
        )  # fmt: skip
        request = self.sign(author, msgspec.structs.replace(record, **changes))
        request = msgspec.structs.replace(
            request, accessList=entries, type=text, roster=self.request_of(None, state)
        )
        return self._drafted(request, self.key, lists, state)

    def follow(
        self,
        author: User,
        *,
        add: Mapping[User, int] = {},
        remove: Collection[User] = (),
        roles: Mapping[User, int] = {},
        keys: Mapping[User, User] = {},
        managers: Grants | None = None,
        name: str = KEEP,
        description: str = KEEP,
        raises: bool | None = None,
        rerolls: bool = False,
        left: Collection[User] = (),
        tombstone: bool = False,
        **changes: Any,
    ) -> RecordRequest:
        """The record after the head: nothing is changed but what is named.

        `keys` names members with their newer keys, `left` users whose leaf stays without a wrap. The epoch
        rises if it must, or as `raises` says; `rerolls` makes another roster without a change.
        """
        head, before, old = self.head, self.state, self.governing
        assert old.governing is not None
        version, key, governing, entries, text, request = (
            head.version + 1,
            self.key,
            None,
            None,
            None,
            None,
        )
        falls = any(role < before.members[user].role for user, role in roles.items())
        new_epoch = bool(remove or falls or keys) if raises is None else raises
        texts = name is not KEEP or description is not KEEP
        state = before
        digest = old.governing.type
        if add or remove or roles or keys or texts or new_epoch or rerolls:
            members = {
                user: member
                for user, member in before.members.items()
                if user not in {*remove, *keys}
            }
            changed = {
                user: Member(user.name, len(user.ring.encryption) - 1, role, version)
                for user, role in add.items()
            }
            for user, role in roles.items():
                changed[user] = msgspec.structs.replace(
                    before.members[user], role=role, version=version
                )
            for user, renewed in keys.items():
                index = len(renewed.ring.encryption) - 1
                changed[renewed] = msgspec.structs.replace(
                    before.members[user], keyIndex=index, version=version
                )
            salts = {**before.salts, **{user: random_bytes(32) for user in changed}}
            epochs = before.epochs + ((self.new_epoch(len(before.epochs)),) if new_epoch else ())
            state = self.state_of(
                epochs, {**members, **changed}, salts, managers or before.managers,
                before.name if name is KEEP else name,
                before.description if description is KEEP else description,
                version, None if new_epoch or texts else before.info,
            )  # fmt: skip
            text, digest = self.type_of(state.body)
            request = self.request_of(before, state, left)
            governing = msgspec.structs.replace(old.governing, type=digest)
        if managers is not None:
            key = random_bytes(32)
            governing, entries = self.access(version, author, managers, key, digest)
            state = _with_managers(state, managers)
        record = ContainerRecord(
            self.id, None, version, self.hash(head), author.name, len(author.ring.signing) - 1,
            clock(), Link(old.version, self.hash(old)), None if tombstone else governing,
            None, None, tombstone,
        )  # fmt: skip
        made = self.sign(author, msgspec.structs.replace(record, **changes))
        made = msgspec.structs.replace(made, accessList=entries, type=text, roster=request)
        return self._drafted(made, key, managers or self.grants, state)

    def _drafted(
        self, request: RecordRequest, key: bytes, managers: Grants, state: State
    ) -> RecordRequest:
        body = request.record.body
        grants = {
            user: grant if isinstance(grant, Grant) else Grant(grant)
            for user, grant in managers.items()
        }
        self._drafts[body] = parse_record(body), key, grants
        self._made[body] = state
        return request

    def took(self, request: RecordRequest) -> None:
        super().took(request)
        self.states[self.head.version - 1 :] = [self._made[request.record.body]]

    def tell_all(self, user: User, *changes: Mapping[str, Any]) -> None:
        """Send one record after another, each made by `follow` with these changes."""
        for each in changes:
            self.tell(user, self.follow(user, **each))

    def created(  # type: ignore[override]  # as above
        self, members: Mapping[User, int] | None = None, **options: Any
    ) -> Group:
        self.tell(self.creator, self.begin(members, **options))
        return self

    def new_epoch(self, number: int) -> Epoch:
        return Epoch.of(self.name, number, random_bytes(32))

    def state_of(
        self,
        epochs: tuple[Epoch, ...],
        members: Mapping[User, Member],
        salts: Mapping[User, bytes],
        managers: Grants,
        name: str,
        description: str,
        version: int,
        info: bytes | None,
    ) -> State:
        """A state with a roster of this version; the info is sealed anew unless it is given."""
        newest, number = epochs[-1], len(epochs) - 1
        sealed = info or self.sealed_info(epochs, name, description)
        leaves = [
            SaltedMember(salts[user], encode_value(members[user])) for user in by_name(members)
        ]
        roster = Roster(
            self.name, version, number, newest.key.public, newest.commitment,
            grammar.members_root(leaves), len(leaves), sha256(sealed),
        )  # fmt: skip
        return State(
            epochs,
            members,
            salts,
            managers,
            name,
            description,
            sealed,
            roster,
            encode_object(roster),
        )

    def sealed_info(self, epochs: Sequence[Epoch], name: str, description: str) -> bytes:
        number = len(epochs) - 1
        info = Info(name, description, [epoch.secret for epoch in epochs[:-1]])
        key = derive_key(epochs[-1].secret, "group-info-key", self.name)
        return seal(key, grammar.info_context(self.name, number), encode_object(info))

    def type_of(self, body: bytes) -> tuple[TypeText, bytes]:
        """The type of the container with this roster, and its hash."""
        salt, text = random_bytes(32), grammar.group_type(body)
        return TypeText(salt=salt, type=text), type_hash(self.id, salt, text)

    def wrap(self, state: State, user: User) -> MemberWrap:
        newest, member = state.epochs[-1], state.members[user]
        info = grammar.wrap_info(
            self.name, state.epoch, newest.commitment, user.name, member.keyIndex
        )
        wrapped = wrap_key(user.ring.encryption[member.keyIndex].public, info, newest.secret)
        return MemberWrap(fingerprint=user.name, wrap=wrapped)

    def request_of(
        self, before: State | None, state: State, left: Collection[User] = ()
    ) -> RosterRequest:
        """What differs from the roster before; those who left get no wrap."""
        old = {user.name: before.leaf(user) for user in before.members} if before else {}
        now = {user.name: user for user in state.members}
        new_epoch = before is not None and before.epoch < state.epoch
        changed = [
            user for user in by_name(state.members) if old.get(user.name) != state.leaf(user)
        ]
        wrapped = [
            user
            for user in by_name(state.members)
            if user not in left and (new_epoch or user.name not in old)
        ]
        return RosterRequest(
            roster=state.body,
            removed=sorted(old.keys() - now.keys()),
            leaves=[Leaf.of(state.leaf(user)) for user in changed],
            wraps=[self.wrap(state, user) for user in wrapped],
            info=None if before is not None and before.info == state.info else state.info,
        )

    def altered_roster(self, signer: User, request: RecordRequest, **changes: Any) -> RecordRequest:
        """The request with its roster changed, which type and record then name, signed again."""
        assert request.roster is not None
        roster = msgspec.structs.replace(grammar.parse_roster(request.roster.roster), **changes)
        return self.with_roster(signer, request, encode_object(roster))

    def with_roster(self, signer: User, request: RecordRequest, body: bytes) -> RecordRequest:
        """The request with these bytes as the roster, which type and record then name, signed again."""
        assert request.roster is not None
        text, digest = self.type_of(body)
        record = parse_record(request.record.body)
        assert record.governing is not None
        governing = msgspec.structs.replace(record.governing, type=digest)
        altered = self.altered(signer, request, governing=governing)
        self._made[altered.record.body] = self._made[request.record.body]
        named = msgspec.structs.replace(request.roster, roster=body)
        return msgspec.structs.replace(altered, type=text, roster=named)

    def with_leaves(
        self,
        signer: User,
        request: RecordRequest,
        change: Callable[[dict[User, Member]], None],
        **changes: Any,
    ) -> RecordRequest:
        """The request for a roster whose members were changed, with the leaves and the root of those."""
        state = self._made[request.record.body]
        members = dict(state.members)
        change(members)
        salts = {user: state.salts.get(user) or random_bytes(32) for user in members}
        leaves = [
            SaltedMember(salts[user], encode_value(members[user])) for user in by_name(members)
        ]
        altered = self.altered_roster(
            signer, request, members=grammar.members_root(leaves), count=len(leaves), **changes
        )
        before = self.states[-1] if self.states else None
        old = {user: before.leaf(user) for user in before.members} if before else {}
        sent = [
            Leaf.of(SaltedMember(salts[user], encode_value(members[user])))
            for user in by_name(members)
            if old.get(user) != SaltedMember(salts[user], encode_value(members[user]))
        ]
        assert altered.roster is not None
        roster = msgspec.structs.replace(
            altered.roster,
            leaves=sent,
            removed=sorted(user.name for user in old.keys() - members.keys()),
        )
        return msgspec.structs.replace(altered, roster=roster)

    # Reading

    def ask(self, user: User, *, since: int = 1, membership: bool = True) -> Answer:
        asked = GroupViewRequest(groupId=self.group_id, since=since, membership=membership)
        return user.wire.call("POST", VIEWS, GroupViewsRequest(groups=[asked]))

    def outcome(self, user: User, *, since: int = 1, membership: bool = True) -> GroupOutcome:
        answer = self.ask(user, since=since, membership=membership).expect(200)
        [found] = answer.message(GroupViews).groups
        return found

    def read(self, user: User, *, since: int = 1, membership: bool = True) -> GroupView:
        """What the broker serves of the group."""
        found = self.outcome(user, since=since, membership=membership)
        assert found.view is not None, found.problem
        return found.view

    def opened(self, user: User, wrap: bytes, sealed: bytes) -> Info:
        """The info as this member opens it, from their wrap."""
        state, member = self.state, self.state.members[user]
        info = grammar.wrap_info(
            self.name, state.epoch, state.roster.commitment, user.name, member.keyIndex
        )
        secret = user.ring.encryption[member.keyIndex].unwrap(wrap, info)
        key = derive_key(secret, "group-info-key", self.name)
        plain = unseal(key, grammar.info_context(self.name, state.epoch), sealed)
        return grammar.parse_info(plain, state.epoch)

    def accept(self, user: User) -> Answer:
        return user.wire.call("PUT", f"/v1/groups/{self.group_id}/acceptance")

    def departure(self, user: User, seen: int = 0, **changes: Any) -> GroupDepartureRequest:
        """What a user leaves the group with; `changes` are to the fields of the departure."""
        fields: dict[str, Any] = {
            "group": self.name,
            "version": self.state.members[user].version if user in self.state.members else 1,
            "fingerprint": user.name,
            "keyIndex": len(user.ring.signing) - 1,
            "time": clock(),
            **changes,
        }
        body = encode_object(GroupDeparture(**fields))
        signature = user.ring.signing[fields["keyIndex"]].sign(grammar.DEPARTURE_LABEL, body)
        signed = SignedObject(body=body, signature=signature)
        return GroupDepartureRequest(departure=signed, departures=seen, last=len(self.records))

    def leave(self, user: User, message: GroupDepartureRequest | int = 0) -> Answer:
        """The answer to a departure: this one, or one of a user who has seen so many others."""
        sent = self.departure(user, message) if isinstance(message, int) else message
        return user.wire.call("POST", f"/v1/groups/{self.group_id}/departure", sent)


def _with_managers(state: State, managers: Grants) -> State:
    fields = {name: getattr(state, name) for name in State.__dataclass_fields__}
    return State(**{**fields, "managers": managers})


def groups_of(user: User, query: str = "") -> GroupList:
    """The groups that the broker lists for a user."""
    return user.wire.call("GET", f"/v1/groups?{query}").expect(200).message(GroupList)
