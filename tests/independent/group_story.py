"""A group of our making: Alice creates it, adds Bob, and removes him again.

Docs/spec/groups.md, 1 to 4 and 8. Nothing is sent here: each step has what a request needs.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.independent import access_lists, container_records, group_secrets, rosters, trees, wraps
from tests.independent.access_lists import EVERYTHING, Entry, Salted
from tests.independent.container_records import ContainerRecord, Governing
from tests.independent.encodings import sha256, uuid8
from tests.independent.group_chains import Served
from tests.independent.group_secrets import Info, WrapInfo
from tests.independent.ids import group_name_of
from tests.independent.key_records import Signed, Writer
from tests.independent.rosters import Leaf, Member, Roster


@dataclass(frozen=True)
class Step:
    """One record with what goes with it."""

    signed: Signed
    entries: list[Salted] | None
    """Of a change of managers."""
    wraps: dict[bytes, bytes]
    """Of the container key, by manager."""
    type: tuple[bytes, str]
    roster: bytes
    removed: list[bytes]
    leaves: list[Leaf]
    """All of them."""
    fresh: list[Leaf]
    """Those that are new or changed."""
    secrets: dict[bytes, bytes]
    """The wraps of the epoch's secret, by member."""
    info: bytes | None

    @property
    def request(self) -> dict[str, Any]:
        """RosterRequest: section 12."""
        return {
            "roster": self.roster,
            "removed": self.removed,
            "leaves": [{"salt": leaf.salt, "member": leaf.member} for leaf in self.fresh],
            "wraps": [
                {"fingerprint": user, "wrap": wrap} for user, wrap in sorted(self.secrets.items())
            ],
            "info": self.info,
        }

    def served(self) -> Served:
        record = container_records.parse(self.signed.body)
        access = None
        if self.entries is not None:
            access = access_lists.whole(record.container_id, record.version, self.entries)
        return Served(self.signed, access, self.type, self.roster)


@dataclass
class GroupStory:
    alice: Writer
    """The owner."""
    nonce: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    secrets: list[bytes] = field(default_factory=list)
    """By epoch."""
    steps: list[Step] = field(default_factory=list)

    @property
    def name(self) -> bytes:
        return group_name_of(self.alice.fingerprint, self.nonce)

    @property
    def container_id(self) -> bytes:
        return uuid8(self.name)

    def create(self, time: int) -> None:
        self.secrets.append(secrets.token_bytes(32))
        leaf = self._leaf(self.alice, rosters.SHARER, 1)
        roster, info = self._roster(1, 0, [leaf], "team")
        salt, text = secrets.token_bytes(32), rosters.group_type(roster)
        entries, sealed, key = self._managers(1)
        governing = Governing(
            1,
            self.alice.fingerprint,
            access_lists.whole(self.container_id, 1, entries).hash,
            wraps.key_commitment(self.container_id, key),
            container_records.type_hash(self.container_id, salt, text),
        )
        record = ContainerRecord(
            self.container_id, self.nonce, 1, None, self.alice.fingerprint, 0, time, None, governing,
            None, None, tombstone=False,
        )  # fmt: skip
        signed = record.signed_by(self.alice.signing[0])
        wrapped = self._wraps(0, [self.alice])
        self.steps.append(
            Step(signed, entries, sealed, (salt, text), roster, [], [leaf], [leaf], wrapped, info)
        )

    def add(self, user: Writer, time: int) -> None:
        """A writer, in the same epoch."""
        version, last = len(self.steps) + 1, self.steps[-1]
        leaf = self._leaf(user, rosters.WRITER, version)
        leaves = sorted(
            [*last.leaves, leaf], key=lambda one: rosters.parse_member(one.member).fingerprint
        )
        epoch = len(self.secrets) - 1
        before = rosters.parse(last.roster)
        changed = replace(
            before, version=version, members=_root(leaves), count=len(leaves)
        ).stored()
        self._follow(time, changed, [], leaves, [leaf], self._wraps(epoch, [user]), None)

    def remove(self, user: Writer, stay: Sequence[Writer], time: int) -> None:
        """The next epoch, with a fresh secret for those who stay."""
        version, last = len(self.steps) + 1, self.steps[-1]
        gone = user.fingerprint
        leaves = [
            leaf for leaf in last.leaves if rosters.parse_member(leaf.member).fingerprint != gone
        ]
        self.secrets.append(secrets.token_bytes(32))
        epoch = len(self.secrets) - 1
        roster, info = self._roster(version, epoch, leaves, "team")
        self._follow(time, roster, [gone], leaves, [], self._wraps(epoch, stay), info)

    def _follow(
        self,
        time: int,
        roster: bytes,
        removed: list[bytes],
        leaves: list[Leaf],
        fresh: list[Leaf],
        wrapped: dict[bytes, bytes],
        info: bytes | None,
    ) -> None:
        parent = container_records.parse(self.steps[-1].signed.body)
        digest = container_records.record_hash(self.steps[-1].signed.body)
        assert parent.governing is not None
        salt, text = secrets.token_bytes(32), rosters.group_type(roster)
        changed = container_records.type_hash(self.container_id, salt, text)
        record = replace(
            parent,
            nonce=None,
            version=parent.version + 1,
            parent=digest,
            time=time,
            link=(parent.version, digest),
            governing=replace(parent.governing, type=changed),
        )
        signed = record.signed_by(self.alice.signing[0])
        self.steps.append(
            Step(signed, None, {}, (salt, text), roster, removed, leaves, fresh, wrapped, info)
        )

    def _leaf(self, user: Writer, role: int, version: int) -> Leaf:
        member = Member(user.fingerprint, len(user.encryption) - 1, role, version)
        return Leaf(secrets.token_bytes(32), member.stored())

    def _roster(
        self, version: int, epoch: int, leaves: Sequence[Leaf], name: str
    ) -> tuple[bytes, bytes]:
        """A Roster of a new epoch, and its sealed info."""
        secret = self.secrets[epoch]
        info = Info(name, "", self.secrets[:epoch])
        sealed = group_secrets.seal_info(self.name, epoch, secret, info)
        roster = Roster(
            self.name,
            version,
            epoch,
            group_secrets.key_of(self.name, secret).public,
            group_secrets.commitment(self.name, epoch, secret),
            _root(leaves),
            len(leaves),
            sha256(sealed),
        )
        return roster.stored(), sealed

    def _wraps(self, epoch: int, users: Sequence[Writer]) -> dict[bytes, bytes]:
        secret, found = self.secrets[epoch], {}
        committed = group_secrets.commitment(self.name, epoch, secret)
        for user in users:
            index = len(user.encryption) - 1
            info = WrapInfo(self.name, epoch, committed, user.fingerprint, index)
            public = user.encryption[index].public
            found[user.fingerprint] = group_secrets.wrap_secret(public, info, secret)
        return found

    def _managers(self, version: int) -> tuple[list[Salted], dict[bytes, bytes], bytes]:
        """The list with Alice alone, the wrap of its key, and the key."""
        key, alice = secrets.token_bytes(32), self.alice.fingerprint
        info = wraps.WrapInfo(self.container_id, version, alice, alice, 0)
        wrap = wraps.wrap_key(self.alice.encryption[0].public, info, key)
        entry = Entry(alice, 0, EVERYTHING, None, wraps.wrap_hash(wrap))
        return [Salted(secrets.token_bytes(32), entry.stored())], {alice: wrap}, key


def _root(leaves: Sequence[Leaf]) -> bytes:
    return trees.root_of(rosters.node, [leaf.hash for leaf in leaves])
