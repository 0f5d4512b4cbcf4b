"""Groups as their managers make them: valid records and rosters, and the means to spoil one in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as copied
from functools import cache
from typing import Any, Final

from msgspec.structs import replace

from scbroker.crypto.seal import DecryptionKey, derive_key, seal, wrap_key
from scbroker.crypto.verify import sha256
from scbroker.records import roster
from scbroker.records.canonical import encode_object, encode_value, group_name_of
from scbroker.records.container_record import Via
from scbroker.records.key_record import Signed
from scbroker.records.roster import (
    GroupDeparture,
    Info,
    Member,
    MembershipProof,
    Roster,
    SaltedMember,
)
from tests.vectors.cast import DAY, START, Person, cast, chosen
from tests.vectors.story import Container, Grant, Made, altered, follow, in_force, sign

OWNER, MANAGER = roster.OWNER, roster.MANAGER
READER, WRITER, SHARER = 0, 1, 2


@dataclass(frozen=True)
class Seat:
    """What one user is to have in a roster."""

    person: Person
    role: int
    keyIndex: int = 0  # noqa: N815 - as in a Member
    version: int = 1
    """Of the roster that introduced the leaf."""

    @property
    def member(self) -> Member:
        return Member(self.person.fingerprint, self.keyIndex, self.role, self.version)


@dataclass(frozen=True, eq=False)
class Step:
    """A record of a group, with all that comes with it or stays in force."""

    group: Group
    made: Made
    managers: tuple[Grant, ...]
    text: str
    """The type, which stays while the roster does."""
    roster: Roster
    seats: tuple[Seat, ...]
    leaves: list[SaltedMember]
    info: bytes
    """Sealed."""
    introduces: bool = True
    """True if this record introduces the roster."""

    @property
    def version(self) -> int:
        return self.made.record.version

    @property
    def salt(self) -> bytes:
        return self.group.box.type_salt(self.text)

    @property
    def stored(self) -> bytes:
        """The roster's bytes."""
        return encode_object(self.roster)


@dataclass(frozen=True)
class Group:
    """The names of one group, and its secrets by epoch."""

    name: str
    creator: Person

    @property
    def box(self) -> Container:
        return Container(self.name, self.creator)

    @property
    def fingerprint(self) -> bytes:
        """groupName, which is in the place of a fingerprint in an access list."""
        return group_name_of(self.creator.fingerprint, self.box.nonce)

    def secret(self, epoch: int) -> bytes:
        return chosen(self.name, "secret", epoch)

    def encryption(self, epoch: int) -> DecryptionKey:
        return key_of(self.fingerprint, self.secret(epoch))

    def commitment(self, epoch: int) -> bytes:
        return roster.commitment_of(self.fingerprint, epoch, self.secret(epoch))

    def leaf(self, seat: Seat) -> SaltedMember:
        salt = chosen(self.name, "leaf", seat.person.name, seat.version)
        return SaltedMember(salt, encode_value(seat.member))

    def leaves(self, seats: Sequence[Seat]) -> list[SaltedMember]:
        return [self.leaf(seat) for seat in sorted(seats, key=lambda item: item.person.fingerprint)]

    def roster(
        self, version: int, epoch: int, leaves: Sequence[SaltedMember], info: bytes
    ) -> Roster:
        return Roster(
            self.fingerprint, version, epoch, self.encryption(epoch).public, self.commitment(epoch),
            roster.members_root(leaves), len(leaves), sha256(info),
        )  # fmt: skip

    def seal_info(self, epoch: int, info: Info | None = None) -> bytes:
        """The sealed info of an epoch, with the secrets of all epochs before."""
        secrets: list[bytes | None] = [self.secret(n) for n in range(epoch)]
        shown = info or Info(f"The {self.name}", "", secrets)
        return seal_info(self.fingerprint, epoch, self.secret(epoch), encode_object(shown))

    def wrap(self, epoch: int, seat: Seat) -> bytes:
        return self.wrap_of(self.secret(epoch), epoch, seat)

    def wrap_of(self, secret: bytes, epoch: int, seat: Seat) -> bytes:
        """A wrap of a secret, which need not be that of the epoch, in its place."""
        who, commitment = seat.person, self.commitment(epoch)
        info = roster.wrap_info(self.fingerprint, epoch, commitment, who.fingerprint, seat.keyIndex)
        return wrap_key(who.encryption(seat.keyIndex).public, info, secret)

    def create(
        self, time: int, managers: Sequence[Grant], seats: Sequence[Seat], *, text: str | None = None,
        stored: dict[str, Any] | None = None, **changes: Any,
    ) -> Step:  # fmt: skip
        """The first record; `stored` changes fields of the roster, and `changes` fields of the record."""
        info, leaves = self.seal_info(0), self.leaves(seats)
        found = replace(self.roster(1, 0, leaves, info), **(stored or {}))
        text = text or roster.group_type(encode_object(found))
        access = self.box.access(1, self.creator, managers, text)
        record = altered(self.box.begin(time, access), **changes)
        made = sign(record, self.creator, access)
        return Step(self, made, (*managers,), text, found, (*seats,), leaves, info)

    def follow(
        self, history: Sequence[Step], author: Person, time: int, *,
        managers: Sequence[Grant] | None = None, seats: Sequence[Seat] | None = None,
        leaves: list[SaltedMember] | None = None, epoch: int | None = None, info: Info | None = None,
        text: str | None = None, stored: dict[str, Any] | None = None, key_index: int = 0,
        **changes: Any,
    ) -> Step:  # fmt: skip
        """The record after these, with the managers, the members or the epoch that are given.

        `leaves`, `text` and `stored` spoil the roster, and `changes` the record.
        """
        last, made = history[-1], [step.made for step in history]
        version, access = last.version + 1, None
        step = copied(last, introduces=False)
        if not (seats is None and epoch is None and info is None and stored is None):
            epoch = last.roster.epoch if epoch is None else epoch
            seats = last.seats if seats is None else (*seats,)
            shown, sealed = leaves or self.leaves(seats), last.info
            if info is not None or epoch != last.roster.epoch:
                sealed = self.seal_info(epoch, info)
            found = replace(self.roster(version, epoch, shown, sealed), **(stored or {}))
            step = Step(self, last.made, last.managers, "", found, seats, shown, sealed)
            text = text or roster.group_type(step.stored)
        text = text or last.text
        governing = replace(in_force(made), type=self.box.type(text))
        if managers is not None:
            access = self.box.access(version, author, managers, text)
            governing, step = access.governing, copied(step, managers=(*managers,))
        record = follow(made, author, time, governing=governing, keyIndex=key_index)
        signed = sign(altered(record, **changes), author, access, key_index)
        return copied(step, made=signed, text=text)

    def delete(self, history: Sequence[Step], author: Person, time: int, **changes: Any) -> Step:
        record = follow([step.made for step in history], author, time, tombstone=True, **changes)
        return copied(history[-1], made=sign(record, author), introduces=False)

    def via(self, step: Step, /, **changes: Any) -> Via:
        found = Via(self.fingerprint, step.roster.epoch, step.version, step.made.hash)
        return replace(found, **changes)

    def prove(self, step: Step, person: Person) -> MembershipProof:
        position = position_of(step, person)
        return roster.prove(step.leaves, [position])[0]

    def departure(
        self, step: Step, leaver: Person, time: int, key_index: int = 0, **changes: Any
    ) -> GroupDeparture:
        [seat] = [seat for seat in step.seats if seat.person is leaver]
        said = GroupDeparture(self.fingerprint, seat.version, leaver.fingerprint, key_index, time)
        return replace(said, **changes)

    def leave(
        self, step: Step, leaver: Person, time: int, key_index: int = 0, **changes: Any
    ) -> Signed:
        said = self.departure(step, leaver, time, key_index, **changes)
        return leaver.sign(encode_object(said), roster.DEPARTURE_LABEL, key_index)


@cache
def key_of(group: bytes, secret: bytes) -> DecryptionKey:
    first, second, third = (derive_key(secret, "group-kem", group + bytes([n])) for n in range(3))
    return DecryptionKey(first + second, third)


def seal_info(group: bytes, epoch: int, secret: bytes, octets: bytes) -> bytes:
    """Octets, which need not be an Info, sealed as one."""
    key = derive_key(secret, "group-info-key", group)
    return seal(key, roster.info_context(group, epoch), octets)


def position_of(step: Step, person: Person) -> int:
    [found] = [n for n, leaf in enumerate(step.leaves) if person.fingerprint in leaf.member]
    return found


def shown_step(step: Step, *, signature: bool = False) -> dict[str, Any]:
    """A record of a group with all that is served with it, for a file of vectors."""
    shown: dict[str, Any] = {"body": step.made.signed.body}
    if signature:
        shown["signature"] = step.made.signed.signature
    if step.made.access is not None:
        shown["accessList"] = step.made.access.shown
    if step.introduces:
        shown["roster"] = step.stored
        shown["type"] = {"salt": step.salt, "type": step.text}
        shown["leaves"] = [{"salt": leaf.salt, "member": leaf.member} for leaf in step.leaves]
    return shown


def shown_proof(proof: MembershipProof) -> dict[str, Any]:
    leaf = proof.leaf
    return {
        "salt": leaf.salt, "member": leaf.member, "index": proof.position, "path": proof.path,
    }  # fmt: skip


class Team:
    """The story of a group: ten records by two managers."""

    NAMES: Final = (
        "create", "add", "change managers", "rename", "remove", "demote", "raise a key index",
        "all at once", "owner alone", "delete",
    )  # fmt: skip

    def __init__(self, name: str = "team") -> None:
        people = cast()
        self.alice, self.bob, self.carol = people["alice"], people["bob"], people["carol"]
        self.dora, self.erin = people["dora"], people["erin"]
        self.group = Group(name, self.alice)
        self.owner = [Grant(self.alice, OWNER)]
        self.steps: list[Step] = []
        self._tell()

    def upto(self, count: int) -> list[Step]:
        return self.steps[:count]

    def named(self, name: str) -> Step:
        return self.steps[self.NAMES.index(name)]

    def _tell(self) -> None:
        group, alice, bob, carol = self.group, self.alice, self.bob, self.carol
        dora, erin = self.dora, self.erin
        first = [Seat(alice, SHARER), Seat(bob, WRITER), Seat(carol, SHARER)]
        self.steps.append(group.create(START + DAY, self.owner, first))
        added = [*first, Seat(dora, READER, 0, 2), Seat(erin, WRITER, 0, 2)]
        self._add(alice, 2, seats=added)
        self._add(alice, 3, managers=[*self.owner, Grant(bob, MANAGER)])
        self._add(bob, 4, info=Info("The new name", "What it is for.\nIn two lines.", []))
        stays = [seat for seat in added if seat.person is not dora]
        self._add(bob, 5, seats=stays, epoch=1)
        lowered = [
            seat if seat.person is not carol else Seat(carol, READER, 0, 6) for seat in stays
        ]
        self._add(bob, 6, seats=lowered, epoch=2)
        risen = [seat if seat.person is not erin else Seat(erin, WRITER, 1, 7) for seat in lowered]
        self._add(bob, 12, seats=risen, epoch=3)
        others = [
            seat if seat.person is not carol else Seat(carol, WRITER, 0, 8)
            for seat in risen if seat.person is not bob
        ]  # fmt: skip
        self._add(
            alice, 13, seats=[*others, Seat(dora, READER, 0, 8)], epoch=4,
            managers=[*self.owner, Grant(erin, MANAGER, None, 1)],
        )  # fmt: skip
        self._add(alice, 14, seats=first[:1], epoch=5, managers=self.owner)
        self.steps.append(group.delete(self.steps, alice, START + 15 * DAY))

    def _add(self, author: Person, day: int, **changes: Any) -> None:
        self.steps.append(self.group.follow(self.steps, author, START + day * DAY, **changes))
