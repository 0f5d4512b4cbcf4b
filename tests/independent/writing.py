"""Containers and groups of our own making, as requests that append their records.

Docs/spec/container.md, 2 to 7, and docs/spec/groups.md, 1 to 4 and 8. Nothing is sent here.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.independent import (
    access_lists,
    container_records,
    group_secrets,
    rosters,
    segments,
    trees,
    wraps,
)
from tests.independent.access_lists import EVERYTHING, Entry, Salted
from tests.independent.container_records import ContainerRecord, Governing
from tests.independent.encodings import sha256, uuid8
from tests.independent.group_chains import Served
from tests.independent.group_secrets import Info, WrapInfo
from tests.independent.ids import container_id_of, group_name_of
from tests.independent.key_records import Signed, Writer
from tests.independent.rosters import Leaf, Member, Roster
from tests.independent.segments import CONTENT, HEADER, SealedPart

Request = dict[str, Any]
Grant = tuple[Writer, int, int | None]
"""A user with their permissions, and the end of their access."""


def _random() -> bytes:
    return secrets.token_bytes(32)


@dataclass
class Box:
    """A container of Alice's."""

    alice: Writer
    nonce: bytes = field(default_factory=_random)
    key: bytes = field(default_factory=_random)
    requests: list[Request] = field(default_factory=list)
    """One for each record."""
    header: SealedPart | None = None
    content: SealedPart | None = None

    @property
    def container_id(self) -> bytes:
        return container_id_of(self.alice.fingerprint, self.nonce)

    @property
    def version(self) -> int:
        """Of the next record."""
        return len(self.requests) + 1

    def signed(self, version: int) -> Signed:
        return Signed(**self.requests[version - 1]["record"])

    @property
    def governing(self) -> Governing:
        records = [container_records.parse(one["record"]["body"]) for one in self.requests]
        return [record.governing for record in records if record.governing is not None][-1]

    def create(self, time: int, grants: Sequence[Grant], header: bytes, text: str) -> None:
        """With an empty content, and a header that is padded to 16 bytes."""
        self.header = self._part(HEADER, self.alice, header, 16)
        self.content = self._part(CONTENT, self.alice, b"", 0)
        shown, digest = self._typed(text)
        governing, entries = self._access(self.alice, grants, digest)
        parts = {"header": self.header.part, "content": self.content.part}
        self._append(
            self.alice, time, {"governing": governing, **parts},
            {"accessList": entries, "type": shown, "header": self.header.sealed[0],
             "content": self.content.sealed[0]},
        )  # fmt: skip

    def edit(self, author: Writer, time: int, text: bytes, padded_length: int) -> None:
        """With a content that is sent in a chunk of its own."""
        self.content = self._part(CONTENT, author, text, padded_length)
        self._append(author, time, {"content": self.content.part})

    def retype(self, time: int, text: str) -> None:
        shown, digest = self._typed(text)
        governing = replace(self.governing, type=digest)
        self._append(self.alice, time, {"governing": governing}, {"type": shown})

    def share(self, time: int, grants: Sequence[Grant]) -> None:
        """A change of access, with the keys of the parts under another container key."""
        assert self.header is not None
        assert self.content is not None
        self.key = _random()
        governing, entries = self._access(self.alice, grants, self.governing.type)
        self.header, self.content = (
            segments.sealed_again(self.container_id, role, part, self.key)
            for role, part in ((HEADER, self.header), (CONTENT, self.content))
        )
        parts = {"header": self.header.part, "content": self.content.part}
        self._append(self.alice, time, {"governing": governing, **parts}, {"accessList": entries})

    def delete(self, time: int) -> None:
        self._append(self.alice, time, {"header": None, "content": None, "tombstone": True})

    def _append(
        self, author: Writer, time: int, changes: dict[str, Any], more: Request | None = None
    ) -> None:
        """Sign the next record, in which nothing changes but what is named."""
        key_index = len(author.signing) - 1
        record = ContainerRecord(
            self.container_id, self.nonce, 1, None, author.fingerprint, key_index, time, None, None, None,
            None, tombstone=False,
        )  # fmt: skip
        if self.requests:
            body = self.signed(self.version - 1).body
            parent, digest = container_records.parse(body), container_records.record_hash(body)
            link = parent.link if parent.governing is None else (parent.version, digest)
            record = replace(
                record, nonce=None, version=self.version, parent=digest, link=link, header=parent.header,
                content=parent.content,
            )  # fmt: skip
        signed = replace(record, **changes).signed_by(author.signing[key_index])
        self.requests.append({"record": signed._asdict(), **(more or {})})

    def _part(self, role: int, author: Writer, plaintext: bytes, padded_length: int) -> SealedPart:
        name = author.fingerprint
        return segments.make_part(self.container_id, role, name, self.key, plaintext, padded_length)

    def _typed(self, text: str) -> tuple[Request, bytes]:
        salt = _random()
        digest = container_records.type_hash(self.container_id, salt, text)
        return {"salt": salt, "type": text}, digest

    def _access(
        self, author: Writer, grants: Sequence[Grant], container_type: bytes
    ) -> tuple[Governing, list[Request]]:
        version, entries = self.version, list[Request]()
        for user, may, end in sorted(grants, key=lambda grant: grant[0].fingerprint):
            name, index = user.fingerprint, len(user.encryption) - 1
            info = wraps.WrapInfo(self.container_id, version, author.fingerprint, name, index)
            wrap = wraps.wrap_key(user.encryption[index].public, info, self.key)
            entry = Entry(name, index, may, end, wraps.wrap_hash(wrap))
            entries.append({"salt": _random(), "entry": entry.stored(), "wrap": wrap})
        listed = access_lists.whole(self.container_id, version, salted_of(entries)).hash
        commitment = wraps.key_commitment(self.container_id, self.key)
        return Governing(version, author.fingerprint, listed, commitment, container_type), entries


def salted_of(entries: Sequence[Request]) -> list[Salted]:
    return [Salted(one["salt"], one["entry"]) for one in entries]


@dataclass
class Team(Box):
    """A group that Alice owns."""

    secrets: list[bytes] = field(default_factory=list)
    """By epoch."""
    members: list[Leaf] = field(default_factory=list)

    @property
    def name(self) -> bytes:
        return group_name_of(self.alice.fingerprint, self.nonce)

    @property
    def container_id(self) -> bytes:
        return uuid8(self.name)

    def found(self, time: int) -> None:
        self.members = [self._leaf(self.alice, rosters.SHARER)]
        roster, info = self._next_epoch()
        request = self._roster_request(roster, [], self.members, [self.alice], info)
        governing, entries = self._access(self.alice, [(self.alice, EVERYTHING, None)], b"")
        self._change(time, governing, request, {"accessList": entries})

    def add(self, user: Writer, time: int) -> None:
        """A writer, in the same epoch."""
        leaf = self._leaf(user, rosters.WRITER)
        self.members = sorted([*self.members, leaf], key=_fingerprint)
        before = rosters.parse(self.requests[-1]["roster"]["roster"])
        roster = replace(
            before, version=self.version, members=_root(self.members), count=len(self.members)
        )
        request = self._roster_request(roster, [], [leaf], [user], None)
        self._change(time, self.governing, request)

    def remove(self, user: Writer, stay: Sequence[Writer], time: int) -> None:
        """The next epoch, with a fresh secret for those who stay."""
        gone = user.fingerprint
        self.members = [leaf for leaf in self.members if _fingerprint(leaf) != gone]
        roster, info = self._next_epoch()
        self._change(time, self.governing, self._roster_request(roster, [gone], [], stay, info))

    def served(self, version: int) -> Served:
        """A record as a member is served it."""
        request = self.requests[version - 1]
        access = None
        if "accessList" in request:
            entries = salted_of(request["accessList"])
            access = access_lists.whole(self.container_id, version, entries)
        text = request["type"]["salt"], request["type"]["type"]
        return Served(self.signed(version), access, text, request["roster"]["roster"])

    def _change(
        self, time: int, governing: Governing, roster: Request, more: Request | None = None
    ) -> None:
        shown, digest = self._typed(rosters.group_type(roster["roster"]))
        changes = {"governing": replace(governing, type=digest)}
        self._append(self.alice, time, changes, {"type": shown, "roster": roster, **(more or {})})

    def _leaf(self, user: Writer, role: int) -> Leaf:
        member = Member(user.fingerprint, len(user.encryption) - 1, role, self.version)
        return Leaf(_random(), member.stored())

    def _next_epoch(self) -> tuple[Roster, bytes]:
        """A Roster with a fresh secret, and its sealed info."""
        self.secrets.append(_random())
        secret, epoch = self.secrets[-1], len(self.secrets) - 1
        info = Info("team", "", [*self.secrets[:epoch]])
        sealed = group_secrets.seal_info(self.name, epoch, secret, info)
        key = group_secrets.key_of(self.name, secret)
        committed = group_secrets.commitment(self.name, epoch, secret)
        return Roster(
            self.name, self.version, epoch, key.public, committed, _root(self.members),
            len(self.members), sha256(sealed),
        ), sealed  # fmt: skip

    def _roster_request(
        self, roster: Roster, removed: list[bytes], fresh: Sequence[Leaf], wrapped: Sequence[Writer],
        info: bytes | None,
    ) -> Request:  # fmt: skip
        """RosterRequest: section 12. `fresh` are leaves that are new or changed."""
        secret, found = self.secrets[-1], []
        for user in sorted(wrapped, key=lambda one: one.fingerprint):
            name, index = user.fingerprint, len(user.encryption) - 1
            place = WrapInfo(self.name, roster.epoch, roster.commitment, name, index)
            wrap = group_secrets.wrap_secret(user.encryption[index].public, place, secret)
            found.append({"fingerprint": name, "wrap": wrap})
        leaves = [{"salt": leaf.salt, "member": leaf.member} for leaf in fresh]
        stored = {"roster": roster.stored(), "removed": removed, "leaves": leaves}
        return {**stored, "wraps": found, "info": info}


def _fingerprint(leaf: Leaf) -> bytes:
    return rosters.parse_member(leaf.member).fingerprint


def _root(leaves: Sequence[Leaf]) -> bytes:
    return trees.root_of(rosters.node, [leaf.hash for leaf in leaves])
