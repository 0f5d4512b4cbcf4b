"""Records that are made through a group: V1 to V7 of docs/spec/groups.md, 6, and rules 2, 4 and 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from scbroker.records import roster
from scbroker.records.container_record import Role, Via
from scbroker.records.roster import MembershipProof, SaltedMember
from tests.vectors.cast import DAY, MINUTE, START, Person, chosen, day
from tests.vectors.files import FORK, INTEGRITY, ROLLBACK, VALID, put
from tests.vectors.groups import SHARER, WRITER, Group, Seat, Step, Team, shown_proof
from tests.vectors.story import (
    Container,
    Grant,
    Made,
    delete,
    follow,
    in_force,
    plain,
    sign,
    sign_body,
)

ALL, READ, WRITE, ADMIN = 511, 11, 15, 31
SLACK = 15 * MINUTE
NOW = START + 40 * DAY


class Through:
    """A container whose list names Alice and the team, and the groups that act in it."""

    def __init__(self) -> None:
        self.team = Team()
        self.alice, self.bob, self.carol = self.team.alice, self.team.bob, self.team.carol
        self.dora, self.erin = self.team.dora, self.team.erin
        self.group = self.team.group
        self.others = Group("others", self.bob)
        self.others_first = self.others.create(
            day(1), [Grant(self.bob, ALL)], [Seat(self.bob, SHARER), Seat(self.dora, WRITER)]
        )
        self.box = Container("through", self.alice)
        self.first = self.begin(Grant(self.alice, ALL), self.own())

    def own(self, epoch: int = 0, permissions: int = ALL, end: int | None = None) -> Grant:
        """The team's entry."""
        return Grant(self.group, permissions, end, epoch)

    def begin(self, *grants: Grant, time: int = START + DAY) -> Made:
        return self.box.create(time, grants)

    def step(self, version: int) -> Step:
        return self.team.steps[version - 1]

    def via(self, step: int, /, **changes: Any) -> Via:
        """What a record names that is made through this version of the team."""
        return self.group.via(self.step(step), **changes)

    def edit(self, history: Sequence[Made], author: Person, time: int, via: Via | None) -> Made:
        """A new content."""
        name = f"content {history[-1].record.version + 1}"
        version = in_force(history).accessVersion
        content, sealed = self.box.part(Role.Content, author, name, name.encode(), version, 0)
        record = follow(history, author, time, content=content, via=via)
        return sign(record, author, sealed={"content": sealed})

    def change(
        self, history: Sequence[Made], author: Person, time: int, grants: Sequence[Grant], via: Via | None,
        access_via: bytes | None = b"",
    ) -> Made:  # fmt: skip
        """A change of access; `access_via` spoils the field."""
        named = (via.group if via else None) if access_via == b"" else access_via
        return self.box.change(
            history, author, time, grants, governing={"accessVia": named}, via=via, content=None, header=None
        )  # fmt: skip


class _Chapter:
    """Adds vectors: each record through a group has the proof of its author, or the one that is given."""

    def __init__(self, book: Any, world: Through) -> None:
        self.book, self.world = book, world

    def prove(self, made: Made, proof: MembershipProof | None = None) -> None:
        via = made.record.via
        if via is None or made in self.book.proofs:
            return
        if proof is None:
            steps = self.world.team.steps
            if via.group == self.world.others.fingerprint:
                steps = [self.world.others_first]
            step = steps[min(via.version, len(steps)) - 1]
            places = [n for n, leaf in enumerate(step.leaves) if made.record.author in leaf.member]
            proof = roster.prove(step.leaves, places)[0]
        self.book.proofs[made] = shown_proof(proof)

    def after(self, history: Sequence[Made], *rows: tuple[Any, ...]) -> None:
        """Add a vector for each row."""
        for row in rows:
            self.row(history, *row)

    def row(
        self, history: Sequence[Made], name: str, comment: str, outcome: str, last: Made,
        fields: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Add a vector. `team` is how much of the team the reader has, `proof` that of the last record."""
        self.prove(last, fields.get("proof"))
        groups: dict[str, int] = {}
        for made in (*history, last):
            self.prove(made)
            if made.record.via is not None:
                of_team = made.record.via.group == self.world.group.fingerprint
                groups |= {"team": fields.get("team", 10)} if of_team else {"others": 1}
        given = {name: value for name, value in fields.items() if name not in ("team", "proof")}
        given = {"groups": groups, "now": NOW, **given}
        self.book.row(history, name, comment, outcome, last, given)


def through_groups(book: Any, world: Through) -> None:
    chapter = _Chapter(book, world)
    for part in (_allowed, _bounds, _formats, _v2, _v3, _v4_to_v7, _roles, _rule_2, _rules_4_and_5,
                 _bare):  # fmt: skip
        part(chapter, world)


def _allowed(chapter: _Chapter, w: Through) -> None:
    alice, bob, carol, dora, erin = w.alice, w.bob, w.carol, w.dora, w.erin
    begun, second, time = [w.first], w.via(2), day(3)
    edited, grants = (
        w.edit(begun, bob, time, second),
        [Grant(alice, ALL), w.own(), Grant(dora, READ)],
    )
    chapter.after(
        begun,
        ("through a group, a writer edits", "Bob has no entry of his own.", VALID, edited),
        ("through a group, a writer changes the type", "Bob.", VALID,
         w.box.retype(begun, bob, time, "other").again(via=second)),
    )  # fmt: skip
    both = [w.first, edited]
    chapter.after(
        both,
        ("through a group, another member edits", "Erin, after Bob.", VALID,
         w.edit(both, erin, day(4), second)),
        ("through a group, alone after a member", "Alice, by her own entry.", VALID,
         w.edit(both, alice, day(4), None)),
    )  # fmt: skip
    shares = w.change(begun, carol, time, grants, second)
    chapter.after(
        begun,
        ("through a group in place of the own entry", "Alice has both.", VALID,
         w.edit(begun, alice, time, second)),
        ("through a group, a version that lags", "1, in the same epoch as 4.", VALID,
         w.edit(begun, bob, day(4), w.via(1))),
        ("through a group, an epoch above the entry's", "1, and the entry names 0.", VALID,
         w.edit(begun, bob, day(5), w.via(5))),
        ("through a group, a sharer changes access", "Carol gives Dora access.", VALID, shares),
    )  # fmt: skip
    chapter.after(
        [w.first, shares],
        ("through a group, a change of type after a change of access", "accessVia stays.", VALID,
         w.box.retype([w.first, shares], alice, day(4), "other")),
        ("through a group, a change of access alone after one", "accessVia is nil again.", VALID,
         w.change([w.first, shares], alice, day(4), grants[:2], None)),
    )  # fmt: skip
    chapter.after(
        begun,
        ("through a group, a renewal", "Its epoch rises. Bob has no ModifyAccess.", VALID,
         w.change(begun, bob, day(5), [Grant(alice, ALL), w.own(1)], w.via(5))),
        ("through a group, a tombstone", "Carol, a sharer.", VALID, delete(begun, carol, time, via=second)),
    )  # fmt: skip
    two = w.begin(Grant(alice, ALL), w.own(), Grant(w.others, WRITE))
    one = w.edit([two], bob, time, second)
    chapter.row([two, one], "through two groups", "Dora, through another group than Bob.", VALID,
        w.edit([two, one], dora, day(4), w.others.via(w.others_first)))  # fmt: skip
    chapter.row(begun, "through a group, the parent not at hand", "Judged by G alone.", VALID,
        w.edit(both, erin, day(4), second), {"parent": False})  # fmt: skip


def _bounds(chapter: _Chapter, w: Through) -> None:
    begun = [w.begin(Grant(w.alice, ALL), w.own())]
    end, gone = (w.step(version).made.record.time + SLACK for version in (5, 10))
    chapter.after(
        begun,
        ("through a group, at the end of the epoch", "A microsecond before 15 minutes have passed.", VALID,
         w.edit(begun, w.bob, end - 1, w.via(2))),
        ("through a group, at the time of its record", "The earliest.", VALID,
         w.edit(begun, w.bob, w.step(2).made.record.time, w.via(2))),
    )  # fmt: skip
    late = [w.begin(Grant(w.alice, ALL), w.own(5), time=day(14))]
    chapter.row(late, "through a group, at its tombstone", "A microsecond before 15 minutes have passed.",
        VALID, w.edit(late, w.alice, gone - 1, w.via(9)))  # fmt: skip
    ends = [w.begin(Grant(w.alice, ALL), w.own(0, ALL, day(3)))]
    chapter.after(
        ends,
        ("through a group, before the end of its entry", "A microsecond.", VALID,
         w.edit(ends, w.erin, day(3) - 1, w.via(2))),
        ("through a group, at the end of its entry", "Expired at the very time.", INTEGRITY,
         w.edit(ends, w.erin, day(3), w.via(2))),
    )  # fmt: skip


def _formats(chapter: _Chapter, w: Through) -> None:
    second = w.via(2)
    good = w.edit([w.first], w.bob, day(3), second)
    row = list(msgspec.structs.astuple(second))

    def spoiled(made: Made, author: Person, position: int, value: Any) -> Made:
        body = put(plain(made.record), position, value)
        return Made(made.record, sign_body(body, author), made.access)

    chapter.row([w.first], "via", "The record that the next ones spoil.", VALID, good)
    for name, comment, via in (
        ("via as bytes", "32 zero bytes.", bytes(32)),
        ("via with an element more", "nil.", [*row, None]),
        ("via with an element fewer", "No hash.", row[:3]),
        ("via of a short group", "31 bytes.", [row[0][:-1], *row[1:]]),
        ("via, epoch 16,384", "One above the largest.", [row[0], 16_384, *row[2:]]),
        ("via, negative epoch", "-1.", [row[0], -1, *row[2:]]),
        ("via, long hash", "33 bytes.", [*row[:3], row[3] + b"\0"]),
    ):
        chapter.after([w.first], (name, comment, INTEGRITY, spoiled(good, w.bob, 12, via)))
    # No proof of a membership comes with these: they are refused before it is looked at.
    chapter.book.after(
        [],
        ("via in version 1", "The team's, in Alice's record.", INTEGRITY, w.first.again(via=second)),
        ("accessVia in version 1", "The team.", INTEGRITY,
         w.first.again(governing={"accessVia": w.group.fingerprint})),
    )  # fmt: skip
    shares = w.change([w.first], w.carol, day(3), [Grant(w.alice, ALL), w.own()], second)
    governing = plain(shares.record)[8]
    short = spoiled(shares, w.carol, 8, [*governing[:5], governing[5][:-1], *governing[6:]])
    chapter.after(
        [w.first],
        ("accessVia", "The record that the next one spoils.", VALID, shares),
        ("short accessVia", "31 bytes.", INTEGRITY, short),
    )


def _v2(chapter: _Chapter, w: Through) -> None:
    alice, bob, carol, dora, team = w.alice, w.bob, w.carol, w.dora, w.group
    begun = [w.first]
    own, later = team.prove(w.step(2), bob), team.prove(w.step(6), bob)
    lies = replace(roster.parse_member(own.leaf.member), role=SHARER)
    another_role = SaltedMember(own.leaf.salt, msgspec.msgpack.encode(lies))

    def edits(author: Person, via: Via, time: int = day(3)) -> Made:
        return w.edit(begun, author, time, via)

    chapter.after(
        begun,
        ("V2, a group without an entry", "Bob is a member of another group.", INTEGRITY,
         edits(bob, w.others.via(w.others_first))),
        ("V2, the record of another version", "The hash of version 1 as that of 2.", FORK,
         edits(bob, w.via(2, hash=w.step(1).made.hash))),
        ("V2, a hash of nothing", "Version 2.", FORK, edits(bob, w.via(2, hash=chosen("no record")))),
        ("V2, an epoch that its version does not have", "1, with a record of epoch 0.", INTEGRITY,
         edits(bob, w.via(2, epoch=1))),
        ("V2, without a leaf", "Dora was removed by version 5, and shows Carol's leaf.", INTEGRITY,
         edits(dora, w.via(5), day(6)), {"proof": team.prove(w.step(5), carol)}),
        ("V2, another member's leaf", "Carol in Bob's place.", INTEGRITY, edits(bob, w.via(2)),
         {"proof": team.prove(w.step(2), carol)}),
        ("V2, the leaf of another roster", "Bob's in that of version 5.", INTEGRITY,
         edits(bob, w.via(6), day(7)), {"proof": team.prove(w.step(5), bob)}),
        ("V2, the leaf at another index", "Bob's.", INTEGRITY, edits(bob, w.via(6), day(7)),
         {"proof": later._replace(position=(later.position + 1) % 4)}),
        ("V2, another role than the leaf has", "Bob as a sharer.", INTEGRITY, edits(bob, w.via(2)),
         {"proof": own._replace(leaf=another_role)}),
    )  # fmt: skip
    late = [w.begin(Grant(alice, ALL), w.own(5), time=day(14))]
    last = w.via(9, version=10, hash=w.step(10).made.hash)
    chapter.row(late, "V2, the tombstone of the group", "It has no roster of its own.", INTEGRITY,
        w.edit(late, alice, day(15) + MINUTE, last))  # fmt: skip
    made = edits(bob, w.via(2))
    chapter.after(
        begun,
        ("through a group of which no more is served", "Two records, and the via names the second.", VALID,
         made, {"team": 2}),
        ("V2, a record that is not served", "The group ends there.", ROLLBACK, made, {"team": 1}),
    )  # fmt: skip


def _v3(chapter: _Chapter, w: Through) -> None:
    alice, bob, erin, first = w.alice, w.bob, w.erin, w.first
    one, two, three = (day(5) + n * MINUTE for n in (1, 2, 3))
    renewed = [first, w.change([first], alice, one, [Grant(alice, ALL), w.own(1)], None)]
    chapter.row(renewed, "V3, an epoch below the entry's", "0; Alice renewed to 1.", INTEGRITY,
        w.edit(renewed, bob, two, w.via(2)))  # fmt: skip
    newer = [first, w.edit([first], bob, one, w.via(5))]
    older = w.edit(newer, erin, two, w.via(2))
    chapter.row(newer, "V3, an epoch below the parent's", "0 after 1; the entry names 0.", INTEGRITY,
        older)  # fmt: skip
    chapter.row([first], "an epoch below the parent's, which is not at hand", "0, as the entry.", VALID,
        older, {"parent": False})  # fmt: skip
    between = [*newer, w.edit(newer, alice, two, None)]
    chapter.row(between, "an epoch below that of a record before the parent", "Alice acted alone in between.",
        VALID, w.edit(between, erin, three, w.via(2)))  # fmt: skip
    begun = [w.begin(Grant(alice, ALL), w.own(), Grant(w.others, WRITE))]
    begun.append(w.edit(begun, bob, one, w.via(5)))
    chapter.row(begun, "a lower epoch of another group", "0 after 1 of the team.", VALID,
        w.edit(begun, w.dora, two, w.others.via(w.others_first)))  # fmt: skip


def _v4_to_v7(chapter: _Chapter, w: Through) -> None:
    alice, bob, carol, begun = w.alice, w.bob, w.carol, [w.first]
    ended, grants = w.step(5).made.record.time, [Grant(alice, ALL), w.own(1)]
    chapter.after(
        begun,
        ("V4, after the end of the epoch", "15 minutes.", INTEGRITY,
         w.edit(begun, bob, ended + SLACK, w.via(2))),
        ("after the end of an epoch that is not served", "The reader's group ends with version 4.", VALID,
         w.edit(begun, bob, ended + SLACK, w.via(2)), {"team": 4}),
        ("V5, before the group's record", "A microsecond.", INTEGRITY,
         w.edit(begun, bob, ended - 1, w.via(5))),
        ("V6, the own index above the epoch", "1, in a renewal through epoch 0.", INTEGRITY,
         w.change(begun, bob, ended + MINUTE, grants, w.via(2))),
        ("V6, the own index above the epoch, by a sharer", "Carol.", INTEGRITY,
         w.change(begun, carol, ended + MINUTE, grants, w.via(2))),
        ("the own group is not in the list", "Carol takes it out.", VALID,
         w.change(begun, carol, ended + MINUTE, grants[:1], w.via(2))),
    )  # fmt: skip
    late = [w.begin(Grant(alice, ALL), w.own(5), time=day(14))]
    deleted = w.step(10).made.record.time
    chapter.row(late, "V7, after the group's tombstone", "15 minutes.", INTEGRITY,
        w.edit(late, alice, deleted + SLACK, w.via(9)))  # fmt: skip


def _roles(chapter: _Chapter, w: Through) -> None:
    alice, bob, carol, dora, begun = w.alice, w.bob, w.carol, w.dora, [w.first]
    time, second, end = day(3), w.via(2), day(30)

    def has(permissions: int, end: int | None = None) -> list[Made]:
        """A container in which the team has less than all permissions."""
        return [w.begin(Grant(alice, ALL), w.own(0, permissions, end))]

    chapter.after(
        begun,
        ("through a group, a reader uploads", "Dora.", INTEGRITY, w.edit(begun, dora, time, second)),
        ("through a group, a writer deletes", "Bob.", INTEGRITY, delete(begun, bob, time, via=second)),
        ("through a group, a writer changes access", "Bob may renew, and gives Dora access.", INTEGRITY,
         w.change(begun, bob, day(5), [Grant(alice, ALL), w.own(1), Grant(dora, READ)], w.via(5))),
    )  # fmt: skip
    less = has(ALL & ~256)
    chapter.row(less, "through a group, a sharer deletes beyond the entry", "It has no Delete.", INTEGRITY,
        delete(less, carol, time, via=second))  # fmt: skip
    less = has(ADMIN)
    more = [Grant(alice, ALL), w.own(0, ADMIN), Grant(dora, READ | 64)]
    chapter.row(less, "through a group, a sharer gives beyond the entry", "ViewType to Dora.", INTEGRITY,
        w.change(less, carol, time, more, second))  # fmt: skip
    read = has(READ)
    chapter.row(read, "through a group, a sharer uploads beyond the entry", "It has no Upload.", INTEGRITY,
        w.edit(read, carol, time, second))  # fmt: skip
    chapter.row(begun, "through a group, a sharer who was lowered", "Carol is a reader from version 6 on.",
        INTEGRITY, w.edit(begun, carol, day(6), w.via(6)))  # fmt: skip
    ends = has(ALL, end)
    longer, as_long = (
        w.change(ends, carol, time, [Grant(alice, ALL), w.own(0, ALL, end), Grant(dora, READ, until)], second)
        for until in (end + 1, end)
    )  # fmt: skip
    chapter.after(
        ends,
        ("through a group, access for longer than the entry", "A microsecond.", INTEGRITY, longer),
        ("through a group, access for as long as the entry", "Dora.", VALID, as_long),
    )


def _rule_2(chapter: _Chapter, w: Through) -> None:
    alice, carol, begun, team = w.alice, w.carol, [w.first], w.group.fingerprint
    time, second, grants = day(3), w.via(2), [Grant(alice, ALL), w.own()]
    other = w.others.fingerprint
    chapter.after(
        begun,
        ("accessVia missing", "Carol acts for the team.", INTEGRITY,
         w.change(begun, carol, time, grants, second, None)),
        ("accessVia of another group", "Carol acts for the team.", INTEGRITY,
         w.change(begun, carol, time, grants, second, other)),
        ("accessVia without a via", "Alice acts alone.", INTEGRITY,
         w.change(begun, alice, time, grants, None, team)),
    )  # fmt: skip
    shared = [w.first, w.change(begun, carol, time, grants, second)]
    for name, changed in (("of another group", other), ("left out", None)):
        chapter.row(shared, f"accessVia {name} in a change of type", "It is that of the list in force.",
            INTEGRITY, w.box.retype(shared, alice, day(4), "other", accessVia=changed))  # fmt: skip
    named = w.box.retype(begun, w.bob, time, "other", accessVia=team).again(via=second)
    chapter.row(begun, "accessVia by a change of type", "The list in force was made alone.", INTEGRITY,
        named)  # fmt: skip


def _rules_4_and_5(chapter: _Chapter, w: Through) -> None:
    alice, bob, carol, dora = w.alice, w.bob, w.carol, w.dora
    second, time, later, ended = w.via(2), day(3), day(4), day(5)
    alices, bobs = Grant(alice, ALL), Grant(bob, WRITE)

    def changes(
        history: list[Made], author: Person, time: int, *grants: Grant, via: Via | None = None
    ) -> Made:
        return w.change(history, author, time, grants, via)

    begun = [w.begin(alices, bobs, w.own(1), time=ended)]
    chapter.row(begun, "the index of a group falls, by a member", "Alice, by her own entry.", INTEGRITY,
        changes(begun, alice, day(6), alices, bobs, w.own(0)))  # fmt: skip
    stranger = [w.begin(alices, Grant(dora, ALL), w.own(1), time=ended)]
    chapter.row(stranger, "the index of a group falls, by another user", "Dora, who was removed.", INTEGRITY,
        changes(stranger, dora, day(6), alices, Grant(dora, ALL), w.own(0)))  # fmt: skip
    chapter.row([w.first], "through a group, a renewal without a reason", "Bob; no index rises.", INTEGRITY,
        changes([w.first], bob, time, alices, w.own(), via=second))  # fmt: skip
    chapter.row(begun, "a renewal to a newer epoch, alone", "Bob, by his own entry.", VALID,
        changes(begun, bob, day(6), alices, bobs, w.own(2)))  # fmt: skip
    both = [w.begin(alices, bobs, w.own())]
    carols = Grant(carol, ALL)
    direct = [w.begin(alices, bobs, carols, w.own())]
    for name, comment, outcome, start, grants in (
        ("a renewal although the group of accessVia may decrypt", "Carol, the author, has no entry.",
         INTEGRITY, both, [alices, bobs, w.own()]),
        ("a renewal after the group of accessVia lost Decrypt", "Carol left it Download.", VALID, both,
         [alices, bobs, w.own(0, 1)]),
        ("a renewal after the group of accessVia was taken out", "By Carol.", VALID, both, [alices, bobs]),
        ("a renewal although the author has an entry", "Carol acted for the group, which was taken out.",
         VALID, direct, [alices, bobs, carols]),
    ):  # fmt: skip
        shared = [*start, changes(start, carol, time, *grants, via=second)]
        chapter.after(shared, (name, comment, outcome, changes(shared, bob, later, *grants)))


def _bare(chapter: _Chapter, w: Through) -> None:
    """What a reader verifies of a deleted container that was deleted through a group."""
    grants = [Grant(w.alice, ALL), w.own(), Grant(w.dora, READ)]
    history = [w.first, w.change([w.first], w.carol, day(3), grants, w.via(2))]
    dead, name = delete(history, w.carol, day(4), via=w.via(2)), "deleted through a group"
    seen = {f"{name}: {n}": made.seen(w.alice, w.group) for n, made in enumerate(history)}
    chapter.row([made.bare for made in history], name, "Carol; the lists show Alice and the team.", VALID,
        dead, {"deleted": True, "disclosed": seen})  # fmt: skip
