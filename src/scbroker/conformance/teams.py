"""Make groups without the client's checks, so that a caller can make one field of a record wrong.

`Team` is a group as its managers make it: its secrets, and the records that a broker has accepted.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from scbroker.client.core import group_records
from scbroker.client.core.group_records import NewRoster, Present, Seat, Secret, Texts, make_roster
from scbroker.client.core.sealing import Recipient, make_access
from scbroker.conformance.by_hand import Answer, Box, StoryError, User, clock, hash_of
from scbroker.crypto.seal import random_bytes
from scbroker.records import container_record as grammar
from scbroker.records import roster
from scbroker.records.canonical import encode_object, group_name_of
from scbroker.records.container_record import ContainerRecord, Link, Via
from scbroker.records.judge import Grant
from scbroker.records.roster import GroupDeparture
from scbroker.wire import containers, groups
from scbroker.wire.codec import SignedObject
from scbroker.wire.rosters import RosterRequest

READER, WRITER, SHARER = range(3)
OWNER, MANAGER = roster.OWNER, roster.MANAGER
_KEPT: Final[Mapping[User, Any]] = MappingProxyType({})


@dataclass
class _State:
    """The members and secrets of a group after one of its records."""

    members: dict[User, int]
    """The members with their roles."""
    secrets: list[bytes]
    made: NewRoster


@dataclass
class Team(Box):
    """A group as its managers make it."""

    states: list[_State] = field(default_factory=list)
    """After each record that a broker has accepted."""
    _drafted: dict[bytes, _State] = field(default_factory=dict)

    __hash__ = object.__hash__

    @property
    def name(self) -> bytes:
        return group_name_of(self.creator.name, self.nonce)

    @property
    def state(self) -> _State:
        return self.states[-1]

    @property
    def epoch(self) -> int:
        return len(self.state.secrets) - 1

    @property
    def via(self) -> Via:
        """Return the via of a record that is made through the group now."""
        newest = next(each for each in reversed(self.records) if each.governing)
        return Via(self.name, self.epoch, newest.version, hash_of(newest))

    @property
    def holder(self) -> uuid.UUID:
        return self.id

    def recipient(self) -> Recipient:
        """Return the group's id and key, for an entry of an access list."""
        key = group_records.epoch_key(self.name, self.state.secrets[-1])
        return Recipient(self.name, self.epoch, key.public)

    def change(
        self,
        author: User | None = None,
        *,
        members: Mapping[User, int] = _KEPT,
        removed: Collection[User] = (),
        managers: Mapping[User, int] = _KEPT,
        raises: bool = False,
        tombstone: bool = False,
        recipients: Mapping[User, Recipient] = _KEPT,
        **changes: Any,
    ) -> containers.RecordRequest:
        """Return the next record: nothing changes but what is named, and `changes` to its fields.

        `members` are added or get another role. The first record gives its creator every right. `recipients`
        are the keys of users for whom the broker is not asked.
        """
        author = author or self.creator
        is_first, version = not self.records, len(self.records) + 1
        if is_first:
            members, managers = members or {author: SHARER}, managers or {author: OWNER}
        state, text, request, digest = None, None, None, b""
        governs = next((each for each in reversed(self.records) if each.governing), None)
        governing = None if governs is None else governs.governing
        if governing is not None:
            digest = governing.type
        if members or removed or raises:
            roles = {**(self.state.members if self.states else {}), **members}
            for user in removed:
                del roles[user]
            state = self._next(version, author, roles, recipients, raises)
            kind = roster.group_type(state.made.data)
            text = containers.TypeText(salt=random_bytes(32), type=kind)
            digest = grammar.type_hash(self.id.bytes, text.salt, text.type)
            request = state.made.request
        entries, key = None, random_bytes(32)
        if managers:
            grants = {user.holder: Grant(rights, None) for user, rights in managers.items()}
            known = {user.holder: user.recipient() for user in managers}
            access = make_access(
                self.id.bytes, version, author.name, digest, key, grants, known, {}
            )
            governing, entries = access.governing, list(access.entries)
        elif governing is not None:
            governing = replace(governing, type=digest)
        record = ContainerRecord(
            containerId=self.id.bytes, nonce=self.nonce if is_first else None, version=version,
            parent=None if is_first else hash_of(self.records[-1]), author=author.name,
            keyIndex=len(author.ring.signing) - 1, time=clock(),
            link=Link(governs.version, hash_of(governs)) if governs else None,
            governing=None if tombstone else governing, header=None, content=None,
            tombstone=tombstone,
        )  # fmt: skip
        signed = author.sign(replace(record, **changes))
        self._drafted[signed.body] = state or self.state
        return containers.RecordRequest(
            record=signed, accessList=entries, type=text, roster=request
        )

    def _next(
        self,
        version: int,
        author: User,
        roles: dict[User, int],
        recipients: Mapping[User, Recipient],
        raises: bool,
    ) -> _State:
        before = self.states[-1] if self.states else None
        secrets = list(before.secrets) if before else []
        if raises or not secrets:
            secrets.append(group_records.new_secret())
        seats = dict[bytes, Seat]()
        for user, role in roles.items():
            is_wrapped = raises or before is None or user not in before.members
            key = (recipients.get(user) or user.recipient()) if is_wrapped else None
            seats[user.name] = Seat(role, key)
        secret = Secret(len(secrets) - 1, secrets[-1], secrets[:-1])
        present = None
        if before is not None:
            made = before.made
            present = Present(made.roster, made.leaves, made.members, made.sealed_info)
        texts = Texts("A team", "") if raises or before is None else None
        made = make_roster(self.name, version, author.name, seats, secret, texts, present)
        return _State(roles, secrets, made)

    def with_roster(
        self, author: User, request: containers.RecordRequest, **changes: Any
    ) -> containers.RecordRequest:
        """Return the request with a changed roster, and with type and record to match, signed again."""
        sent = roster_of(request)
        data = encode_object(replace(roster.parse_roster(sent.roster), **changes))
        text = containers.TypeText(salt=random_bytes(32), type=roster.group_type(data))
        record = grammar.parse_record(request.record.body)
        digest = grammar.type_hash(self.id.bytes, text.salt, text.type)
        governing = record.governing and replace(record.governing, type=digest)
        signed = author.sign(replace(record, governing=governing))
        return replace(request, record=signed, type=text, roster=replace(sent, roster=data))

    def put(self, author: User, request: containers.RecordRequest) -> Answer:
        count = len(self.records)
        answer = super().put(author, request)
        if len(self.records) > count:
            self.states.append(self._drafted[request.record.body])
        return answer

    def founded(self, members: Mapping[User, int], **options: Any) -> Team:
        """Return the group once a broker has stored its first record."""
        self.put(self.creator, self.change(members=members, **options)).done()
        return self

    def read(self, reader: User, **options: Any) -> groups.GroupView:
        """Return the group's view, as the broker serves it to a reader."""
        asked = groups.GroupViewRequest(groupId=str(self.id), membership=True, **options)
        message = groups.GroupViewsRequest(groups=[asked])
        answer = reader.send("POST", "/v1/groups/views", message).message(groups.GroupViews)
        [found] = answer.groups
        if found.view is None:
            raise StoryError("A member's request for a group was answered without a view.")
        return found.view

    def departure(self, user: User, seen: int = 0, **changes: Any) -> groups.GroupDepartureRequest:
        """Return a user's departure; `changes` replace fields of it."""
        member = self.state.made.members.get(user.name)
        fields: dict[str, Any] = {
            "group": self.name, "version": member.version if member else 1, "fingerprint": user.name,
            "keyIndex": len(user.ring.signing) - 1, "time": clock(), **changes,
        }  # fmt: skip
        body = encode_object(GroupDeparture(**fields))
        signature = user.ring.signing[-1].sign(roster.DEPARTURE_LABEL, body)
        signed = SignedObject(body=body, signature=signature)
        return groups.GroupDepartureRequest(
            departure=signed, departures=seen, last=len(self.records)
        )


def roster_of(request: containers.RecordRequest) -> RosterRequest:
    """Return the roster request that is sent with a group's record."""
    if request.roster is None:
        raise StoryError("The record has no roster.")
    return request.roster
