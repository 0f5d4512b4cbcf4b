"""Records that are made through a group: V1 to V7 of docs/spec/groups.md, 6, and rules 2, 4 and 5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from scbroker.records import roster
from scbroker.records.canonical import VERSION
from scbroker.records.container_record import Role, Via, bare_body, parse_entry
from scbroker.records.judge import governing_of
from scbroker.records.key_record import Signed
from scbroker.records.roster import MembershipProof, SaltedMember
from tests.vectors.cast import DAY, MINUTE, START, Person, chosen
from tests.vectors.groups import SHARER, WRITER, Group, Seat, Step, Team
from tests.vectors.story import Container, Grant, Made, altered, follow, plain, sign, sign_body

ALL, READ, WRITE, ADMIN = 511, 11, 15, 31
SLACK = 15 * MINUTE
NOW = START + 40 * DAY
FORK, ROLLBACK = "fork", "rollback"


class Through:
    """A container whose list names Alice and the team, and the groups that act in it."""

    def __init__(self) -> None:
        self.team = Team()
        self.alice, self.bob, self.carol = self.team.alice, self.team.bob, self.team.carol
        self.dora, self.erin = self.team.dora, self.team.erin
        self.group = self.team.group
        self.others = Group("others", self.bob)
        self.others_first = self.others.create(
            START + DAY, [Grant(self.bob, ALL)], [Seat(self.bob, SHARER), Seat(self.dora, WRITER)]
        )
        self.box = Container("through", self.alice)
        self.first = self.begin(Grant(self.alice, ALL), self.own())

    def own(self, epoch: int = 0, permissions: int = ALL, end: int | None = None) -> Grant:
        """The team's entry."""
        return Grant(self.group, permissions, end, epoch)

    def begin(self, *grants: Grant, time: int = START + DAY) -> Made:
        access = self.box.access(1, self.alice, grants)
        return sign(self.box.begin(time, access), self.alice, access)

    def step(self, version: int) -> Step:
        return self.team.steps[version - 1]

    def edit(
        self, history: Sequence[Made], author: Person, time: int, via: Via | None, **changes: Any
    ) -> Made:
        """A new content."""
        number = history[-1].record.version + 1
        text = f"content {number}".encode()
        before = next(made for made in reversed(history) if made.record.governing is not None)
        list_version = governing_of(before.record).accessVersion
        content, sealed = self.box.part(Role.Content, author, text.decode(), text, list_version, 0)
        record = follow(history, author, time, content=content, via=via)
        return sign(altered(record, **changes), author, content=sealed)

    def change(
        self, history: Sequence[Made], author: Person, time: int, grants: Sequence[Grant], via: Via | None,
        text: str = "note", access_via: bytes | None = b"", key_index: int = 0, **changes: Any,
    ) -> Made:  # fmt: skip
        """A change of access; `access_via` spoils the field."""
        version = history[-1].record.version + 1
        access = self.box.access(version, author, grants, text)
        named = (via.group if via else None) if access_via == b"" else access_via
        governing = replace(access.governing, accessVia=named)
        record = follow(
            history, author, time, governing=governing, via=via, keyIndex=key_index, content=None, header=None
        )  # fmt: skip
        return sign(altered(record, **changes), author, access, key_index)

    def retype(
        self, history: Sequence[Made], author: Person, time: int, via: Via | None, **changes: Any
    ) -> Made:
        before = next(made for made in reversed(history) if made.record.governing is not None)
        governing = replace(governing_of(before.record), type=self.box.type("other"), **changes)
        return sign(follow(history, author, time, governing=governing, via=via), author)


def shown(proof: MembershipProof) -> dict[str, Any]:
    return {
        "salt": proof.leaf.salt, "member": proof.leaf.member, "index": proof.position, "path": proof.path,
    }  # fmt: skip


class _Chapter:
    """Adds vectors: each record through a group has the proof of its author, or the one that is given."""

    def __init__(self, book: Any, world: Through) -> None:
        self.book, self.world = book, world

    def prove(self, made: Made, proof: MembershipProof | None = None) -> None:
        via = made.record.via
        if via is None or self.book.has_proof(made):
            return
        if proof is None:
            steps = self.world.team.steps
            if via.group == self.world.others.fingerprint:
                steps = [self.world.others_first]
            step = steps[min(via.version, len(steps)) - 1]
            places = [n for n, leaf in enumerate(step.leaves) if made.record.author in leaf.member]
            proof = roster.prove(step.leaves, places)[0]
        self.book.prove(made, shown(proof))

    def valid(
        self, name: str, comment: str, *made: Made, team: int = 10, proof: MembershipProof | None = None,
        **fields: Any,
    ) -> None:  # fmt: skip
        self._add(self.book.valid, name, comment, made, team, proof, fields)

    def invalid(
        self, name: str, comment: str, *made: Made, team: int = 10, proof: MembershipProof | None = None,
        **fields: Any,
    ) -> None:  # fmt: skip
        self._add(self.book.invalid, name, comment, made, team, proof, fields)

    def _add(
        self, add: Any, name: str, comment: str, made: Sequence[Made], team: int,
        proof: MembershipProof | None, fields: dict[str, Any],
    ) -> None:  # fmt: skip
        *history, last = made
        self.prove(last, proof)
        for one in history:
            self.prove(one)
        groups: dict[str, int] = {}
        for one in made:
            if one.record.via is not None:
                of_team = one.record.via.group == self.world.group.fingerprint
                groups |= {"team": team} if of_team else {"others": 1}
        add(name, comment, history, last, groups=groups, now=NOW, **fields)


def through_groups(book: Any, world: Through) -> None:
    chapter = _Chapter(book, world)
    for part in (
        _allowed,
        _bounds,
        _formats,
        _v2,
        _v3,
        _v4_to_v7,
        _roles,
        _rule_2,
        _rules_4_and_5,
        _bare,
    ):
        part(chapter, world)


def _allowed(chapter: _Chapter, w: Through) -> None:
    team, alice, bob, carol, erin = w.group, w.alice, w.bob, w.carol, w.erin
    second = team.via(w.step(2))
    edited = w.edit([w.first], bob, START + 3 * DAY, second)
    chapter.valid(
        "through a group, a writer edits", "Bob has no entry of his own.", w.first, edited
    )
    typed = w.retype([w.first], bob, START + 3 * DAY, second)
    chapter.valid("through a group, a writer changes the type", "Bob.", w.first, typed)
    chapter.valid(
        "through a group, another member edits", "Erin, after Bob.", w.first, edited,
        w.edit([w.first, edited], erin, START + 4 * DAY, second),
    )  # fmt: skip
    chapter.valid(
        "through a group, alone after a member", "Alice, by her own entry.", w.first, edited,
        w.edit([w.first, edited], alice, START + 4 * DAY, None),
    )  # fmt: skip
    chapter.valid(
        "through a group in place of the own entry", "Alice has both.", w.first,
        w.edit([w.first], alice, START + 3 * DAY, second),
    )  # fmt: skip
    lags = w.edit([w.first], bob, START + 4 * DAY, team.via(w.step(1)))
    chapter.valid(
        "through a group, a version that lags", "1, in the same epoch as 4.", w.first, lags
    )
    newer = w.edit([w.first], bob, START + 5 * DAY, team.via(w.step(5)))
    chapter.valid("through a group, an epoch above the entry's", "1, and the entry names 0.", w.first,
                  newer)  # fmt: skip
    grants = [Grant(alice, ALL), w.own(), Grant(w.dora, READ)]
    shares = w.change([w.first], carol, START + 3 * DAY, grants, second)
    chapter.valid(
        "through a group, a sharer changes access", "Carol gives Dora access.", w.first, shares
    )
    chapter.valid(
        "through a group, a change of type after a change of access", "accessVia stays.", w.first, shares,
        w.retype([w.first, shares], alice, START + 4 * DAY, None),
    )  # fmt: skip
    chapter.valid(
        "through a group, a change of access alone after one", "accessVia is nil again.", w.first, shares,
        w.change([w.first, shares], alice, START + 4 * DAY, grants[:2], None),
    )  # fmt: skip
    renewed = w.change([w.first], bob, START + 5 * DAY, [Grant(alice, ALL), w.own(1)],
                       team.via(w.step(5)))  # fmt: skip
    chapter.valid(
        "through a group, a renewal", "Its epoch rises. Bob has no ModifyAccess.", w.first, renewed
    )
    dead = sign(
        follow([w.first], carol, START + 3 * DAY, header=None, content=None, tombstone=True, via=second),
        carol,
    )  # fmt: skip
    chapter.valid("through a group, a tombstone", "Carol, a sharer.", w.first, dead)
    two = w.begin(Grant(alice, ALL), w.own(), Grant(w.others, WRITE))
    one = w.edit([two], bob, START + 3 * DAY, second)
    other = w.edit([two, one], w.dora, START + 4 * DAY, w.others.via(w.others_first))
    chapter.valid("through two groups", "Dora, through another group than Bob.", two, one, other)
    far = w.edit([w.first, edited], erin, START + 4 * DAY, second)
    chapter.valid(
        "through a group, the parent not at hand", "Judged by G alone.", w.first, far, parent=False
    )


def _bounds(chapter: _Chapter, w: Through) -> None:
    team, alice, bob, erin = w.group, w.alice, w.bob, w.erin
    begun = w.begin(Grant(alice, ALL), w.own())
    end = w.step(5).made.record.time + SLACK
    chapter.valid("through a group, at the end of the epoch", "A microsecond before 15 minutes have passed.",
                  begun, w.edit([begun], bob, end - 1, team.via(w.step(2))))  # fmt: skip
    chapter.valid("through a group, at the time of its record", "The earliest.", begun,
                  w.edit([begun], bob, w.step(2).made.record.time, team.via(w.step(2))))  # fmt: skip
    late = w.begin(Grant(alice, ALL), w.own(5), time=START + 14 * DAY)
    gone = w.step(10).made.record.time + SLACK
    chapter.valid("through a group, at its tombstone", "A microsecond before 15 minutes have passed.", late,
                  w.edit([late], alice, gone - 1, team.via(w.step(9))))  # fmt: skip
    ends = w.begin(Grant(alice, ALL), w.own(0, ALL, START + 3 * DAY))
    chapter.valid("through a group, before the end of its entry", "A microsecond.", ends,
                  w.edit([ends], erin, START + 3 * DAY - 1, team.via(w.step(2))))  # fmt: skip
    chapter.invalid("through a group, at the end of its entry", "Expired at the very time.", ends,
                    w.edit([ends], erin, START + 3 * DAY, team.via(w.step(2))))  # fmt: skip


def _formats(chapter: _Chapter, w: Through) -> None:
    second = w.group.via(w.step(2))
    good = w.edit([w.first], w.bob, START + 3 * DAY, second)
    row = list(msgspec.structs.astuple(second))
    chapter.valid("via", "The record that the next ones spoil.", w.first, good)
    for name, comment, via in (
        ("via as bytes", "32 zero bytes.", bytes(32)),
        ("via with an element more", "nil.", [*row, None]),
        ("via with an element fewer", "No hash.", row[:3]),
        ("via of a short group", "31 bytes.", [row[0][:-1], *row[1:]]),
        ("via, epoch 16,384", "One above the largest.", [row[0], 16_384, *row[2:]]),
        ("via, negative epoch", "-1.", [row[0], -1, *row[2:]]),
        ("via, long hash", "33 bytes.", [*row[:3], row[3] + b"\0"]),
    ):
        rows = plain(good.record)
        rows[12] = via
        body = VERSION + msgspec.msgpack.encode(rows)
        spoiled = Made(good.record, sign_body(body, w.bob))
        chapter.invalid(name, comment, w.first, spoiled)
    begun = altered(w.first.record, via=second)
    chapter.book.invalid("via in version 1", "The team's, in Alice's record.", [],
                         sign(begun, w.alice, w.first.access))  # fmt: skip
    named = altered(w.first.record, governing={"accessVia": w.group.fingerprint})
    chapter.book.invalid("accessVia in version 1", "The team.", [],
                         sign(named, w.alice, w.first.access))  # fmt: skip
    shares = w.change([w.first], w.carol, START + 3 * DAY, [Grant(w.alice, ALL), w.own()], second)
    chapter.valid("accessVia", "The record that the next one spoils.", w.first, shares)
    rows = plain(shares.record)
    rows[8][5] = rows[8][5][:-1]
    body = VERSION + msgspec.msgpack.encode(rows)
    chapter.invalid("short accessVia", "31 bytes.", w.first,
                    Made(shares.record, sign_body(body, w.carol), shares.access))  # fmt: skip


def _v2(chapter: _Chapter, w: Through) -> None:
    team, alice, bob, time = w.group, w.alice, w.bob, START + 3 * DAY

    def edits(
        name: str, comment: str, author: Person, via: Via, proof: MembershipProof | None = None, **fields: Any
    ) -> None:  # fmt: skip
        made = w.edit([w.first], author, fields.pop("time", time), via)
        chapter.invalid(name, comment, w.first, made, proof=proof, **fields)

    second = team.via(w.step(2))
    own = team.prove(w.step(2), bob)
    edits("V2, a group without an entry", "Bob is a member of another group.", bob,
          w.others.via(w.others_first))  # fmt: skip
    edits("V2, the record of another version", "The hash of version 1 as that of 2.", bob,
          team.via(w.step(2), hash=w.step(1).made.hash), error=FORK)  # fmt: skip
    edits("V2, a hash of nothing", "Version 2.", bob, team.via(w.step(2), hash=chosen("no record")),
          error=FORK)  # fmt: skip
    edits("V2, an epoch that its version does not have", "1, with a record of epoch 0.", bob,
          team.via(w.step(2), epoch=1))  # fmt: skip
    edits("V2, without a leaf", "Dora was removed by version 5, and shows Carol's leaf.", w.dora,
          team.via(w.step(5)), team.prove(w.step(5), w.carol), time=START + 6 * DAY)  # fmt: skip
    edits("V2, another member's leaf", "Carol in Bob's place.", bob, second,
          team.prove(w.step(2), w.carol))  # fmt: skip
    sixth, later = team.via(w.step(6)), START + 7 * DAY
    edits("V2, the leaf of another roster", "Bob's in that of version 5.", bob, sixth,
          team.prove(w.step(5), bob), time=later)  # fmt: skip
    fourth = team.prove(w.step(6), bob)
    edits("V2, the leaf at another index", "Bob's.", bob, sixth,
          fourth._replace(position=(fourth.position + 1) % 4), time=later)  # fmt: skip
    lies = replace(roster.parse_member(own.leaf.member), role=SHARER)
    edits("V2, another role than the leaf has", "Bob as a sharer.", bob, second, own._replace(
        leaf=SaltedMember(own.leaf.salt, msgspec.msgpack.encode(lies))))  # fmt: skip
    late = w.begin(Grant(alice, ALL), w.own(5), time=START + 14 * DAY)
    last = team.via(w.step(9), version=10, hash=w.step(10).made.hash)
    chapter.invalid("V2, the tombstone of the group", "It has no roster of its own.", late,
                    w.edit([late], alice, START + 15 * DAY + MINUTE, last))  # fmt: skip
    made = w.edit([w.first], bob, time, second)
    chapter.valid("through a group of which no more is served", "Two records, and the via names the second.",
                  w.first, made, team=2)  # fmt: skip
    chapter.invalid("V2, a record that is not served", "The group ends there.", w.first, made, team=1,
                    error=ROLLBACK)  # fmt: skip


def _v3(chapter: _Chapter, w: Through) -> None:
    team, alice, bob, erin = w.group, w.alice, w.bob, w.erin
    ended = START + 5 * DAY
    renewed = w.change([w.first], alice, ended + MINUTE, [Grant(alice, ALL), w.own(1)], None)
    chapter.invalid("V3, an epoch below the entry's", "0; Alice renewed to 1.", w.first, renewed,
                    w.edit([w.first, renewed], bob, ended + 2 * MINUTE, team.via(w.step(2))))  # fmt: skip
    newer = w.edit([w.first], bob, ended + MINUTE, team.via(w.step(5)))
    older = w.edit([w.first, newer], erin, ended + 2 * MINUTE, team.via(w.step(2)))
    chapter.invalid(
        "V3, an epoch below the parent's", "0 after 1; the entry names 0.", w.first, newer, older
    )
    chapter.valid("an epoch below the parent's, which is not at hand", "0, as the entry.", w.first, older,
                  parent=False)  # fmt: skip
    between = w.edit([w.first, newer], alice, ended + 2 * MINUTE, None)
    after = w.edit([w.first, newer, between], erin, ended + 3 * MINUTE, team.via(w.step(2)))
    chapter.valid("an epoch below that of a record before the parent", "Alice acted alone in between.",
                  w.first, newer, between, after)  # fmt: skip
    two = w.begin(Grant(alice, ALL), w.own(), Grant(w.others, WRITE))
    one = w.edit([two], bob, ended + MINUTE, team.via(w.step(5)))
    other = w.edit([two, one], w.dora, ended + 2 * MINUTE, w.others.via(w.others_first))
    chapter.valid("a lower epoch of another group", "0 after 1 of the team.", two, one, other)


def _v4_to_v7(chapter: _Chapter, w: Through) -> None:
    team, alice, bob = w.group, w.alice, w.bob
    ended = w.step(5).made.record.time
    chapter.invalid("V4, after the end of the epoch", "15 minutes.", w.first,
                    w.edit([w.first], bob, ended + SLACK, team.via(w.step(2))))  # fmt: skip
    chapter.valid("after the end of an epoch that is not served", "The reader's group ends with version 4.",
                  w.first, w.edit([w.first], bob, ended + SLACK, team.via(w.step(2))), team=4)  # fmt: skip
    chapter.invalid("V5, before the group's record", "A microsecond.", w.first,
                    w.edit([w.first], bob, ended - 1, team.via(w.step(5))))  # fmt: skip
    grants = [Grant(alice, ALL), w.own(1)]
    chapter.invalid("V6, the own index above the epoch", "1, in a renewal through epoch 0.", w.first,
                    w.change([w.first], bob, ended + MINUTE, grants, team.via(w.step(2))))  # fmt: skip
    chapter.invalid("V6, the own index above the epoch, by a sharer", "Carol.", w.first,
                    w.change([w.first], w.carol, ended + MINUTE, grants, team.via(w.step(2))))  # fmt: skip
    chapter.valid("the own group is not in the list", "Carol takes it out.", w.first,
                  w.change([w.first], w.carol, ended + MINUTE, grants[:1], team.via(w.step(2))))  # fmt: skip
    late = w.begin(Grant(alice, ALL), w.own(5), time=START + 14 * DAY)
    deleted = w.step(10).made.record.time
    chapter.invalid("V7, after the group's tombstone", "15 minutes.", late,
                    w.edit([late], alice, deleted + SLACK, team.via(w.step(9))))  # fmt: skip


def _roles(chapter: _Chapter, w: Through) -> None:
    team, alice, bob, carol, dora = w.group, w.alice, w.bob, w.carol, w.dora
    time, second = START + 3 * DAY, team.via(w.step(2))
    chapter.invalid("through a group, a reader uploads", "Dora.", w.first,
                    w.edit([w.first], dora, time, second))  # fmt: skip
    dead = {"header": None, "content": None, "tombstone": True, "via": second}
    chapter.invalid("through a group, a writer deletes", "Bob.", w.first,
                    sign(follow([w.first], bob, time, **dead), bob))  # fmt: skip
    ended = START + 5 * DAY
    gives = [Grant(alice, ALL), w.own(1), Grant(dora, READ)]
    chapter.invalid("through a group, a writer changes access", "Bob may renew, and gives Dora access.",
                    w.first, w.change([w.first], bob, ended, gives, team.via(w.step(5))))  # fmt: skip
    less = w.begin(Grant(alice, ALL), w.own(0, ALL & ~256))
    chapter.invalid("through a group, a sharer deletes beyond the entry", "It has no Delete.", less,
                    sign(follow([less], carol, time, **dead), carol))  # fmt: skip
    less = w.begin(Grant(alice, ALL), w.own(0, ADMIN))
    more = [Grant(alice, ALL), w.own(0, ADMIN), Grant(dora, READ | 64)]
    chapter.invalid("through a group, a sharer gives beyond the entry", "ViewType to Dora.", less,
                    w.change([less], carol, time, more, second))  # fmt: skip
    read = w.begin(Grant(alice, ALL), w.own(0, READ))
    chapter.invalid("through a group, a sharer uploads beyond the entry", "It has no Upload.", read,
                    w.edit([read], carol, time, second))  # fmt: skip
    lowered = w.edit([w.first], carol, START + 6 * DAY, team.via(w.step(6)))
    chapter.invalid("through a group, a sharer who was lowered", "Carol is a reader from version 6 on.",
                    w.first, lowered)  # fmt: skip
    ends = w.begin(Grant(alice, ALL), w.own(0, ALL, START + 30 * DAY))
    longer = [
        Grant(alice, ALL),
        w.own(0, ALL, START + 30 * DAY),
        Grant(dora, READ, START + 30 * DAY + 1),
    ]
    chapter.invalid("through a group, access for longer than the entry", "A microsecond.", ends,
                    w.change([ends], carol, time, longer, second))  # fmt: skip
    as_long = [*longer[:2], Grant(dora, READ, START + 30 * DAY)]
    chapter.valid("through a group, access for as long as the entry", "Dora.", ends,
                  w.change([ends], carol, time, as_long, second))  # fmt: skip


def _rule_2(chapter: _Chapter, w: Through) -> None:
    team, alice, carol = w.group, w.alice, w.carol
    time, second, grants = START + 3 * DAY, team.via(w.step(2)), [Grant(w.alice, ALL), w.own()]
    other = w.others.fingerprint

    def shares(
        name: str, comment: str, author: Person, via: Via | None, access_via: bytes | None
    ) -> None:
        made = w.change([w.first], author, time, grants, via, access_via=access_via)
        chapter.invalid(name, comment, w.first, made)

    shares("accessVia missing", "Carol acts for the team.", carol, second, None)
    shares("accessVia of another group", "Carol acts for the team.", carol, second, other)
    shares("accessVia without a via", "Alice acts alone.", alice, None, team.fingerprint)
    shared = w.change([w.first], carol, time, grants, second)
    for name, changed in (("of another group", other), ("left out", None)):
        chapter.invalid(
            f"accessVia {name} in a change of type", "It is that of the list in force.", w.first, shared,
            w.retype([w.first, shared], alice, START + 4 * DAY, None, accessVia=changed),
        )  # fmt: skip
    chapter.invalid("accessVia by a change of type", "The list in force was made alone.", w.first,
                    w.retype([w.first], w.bob, time, second, accessVia=team.fingerprint))  # fmt: skip


def _rules_4_and_5(chapter: _Chapter, w: Through) -> None:
    team, alice, bob, carol = w.group, w.alice, w.bob, w.carol
    ended, second = START + 5 * DAY, team.via(w.step(2))
    begun = w.begin(Grant(alice, ALL), Grant(bob, WRITE), w.own(1), time=ended)
    falls = [Grant(alice, ALL), Grant(bob, WRITE), w.own(0)]
    chapter.invalid("the index of a group falls, by a member", "Alice, by her own entry.", begun,
                    w.change([begun], alice, ended + DAY, falls, None))  # fmt: skip
    stranger = w.begin(Grant(alice, ALL), Grant(w.dora, ALL), w.own(1), time=ended)
    chapter.invalid("the index of a group falls, by another user", "Dora, who was removed.", stranger,
                    w.change([stranger], w.dora, ended + DAY, [
                        Grant(alice, ALL), Grant(w.dora, ALL), w.own(0)], None))  # fmt: skip
    same = [Grant(alice, ALL), w.own()]
    chapter.invalid("through a group, a renewal without a reason", "Bob; no index rises.", w.first,
                    w.change([w.first], bob, START + 3 * DAY, same, second))  # fmt: skip
    alone = w.change([begun], bob, START + 6 * DAY, [
        Grant(alice, ALL), Grant(bob, WRITE), w.own(2)], None)  # fmt: skip
    chapter.valid("a renewal to a newer epoch, alone", "Bob, by his own entry.", begun, alone)
    both = w.begin(Grant(alice, ALL), Grant(bob, WRITE), w.own())
    kept = [Grant(alice, ALL), Grant(bob, WRITE), w.own()]
    shared = w.change([both], carol, START + 3 * DAY, kept, second)
    chapter.invalid(
        "a renewal although the group of accessVia may decrypt", "Carol, the author, has no entry.", both,
        shared, w.change([both, shared], bob, START + 4 * DAY, kept, None),
    )  # fmt: skip
    blind = [Grant(alice, ALL), Grant(bob, WRITE), w.own(0, 1)]
    lost = w.change([both], carol, START + 3 * DAY, blind, second)
    chapter.valid(
        "a renewal after the group of accessVia lost Decrypt", "Carol left it Download.", both, lost,
        w.change([both, lost], bob, START + 4 * DAY, blind, None),
    )  # fmt: skip
    taken = w.change([both], carol, START + 3 * DAY, kept[:2], second)
    chapter.valid(
        "a renewal after the group of accessVia was taken out", "By Carol.", both, taken,
        w.change([both, taken], bob, START + 4 * DAY, kept[:2], None),
    )  # fmt: skip
    direct = w.begin(Grant(alice, ALL), Grant(bob, WRITE), Grant(carol, ALL), w.own())
    gone = w.change([direct], carol, START + 3 * DAY, [
        Grant(alice, ALL), Grant(bob, WRITE), Grant(carol, ALL)], second)  # fmt: skip
    chapter.valid(
        "a renewal although the author has an entry", "Carol acted for the group, which was taken out.",
        direct, gone, w.change([direct, gone], bob, START + 4 * DAY, [
            Grant(alice, ALL), Grant(bob, WRITE), Grant(carol, ALL)], None),
    )  # fmt: skip


def _bare(chapter: _Chapter, w: Through) -> None:
    """What a reader verifies of a deleted container that was deleted through a group."""
    team, alice, carol, second = w.group, w.alice, w.carol, w.group.via(w.step(2))
    grants = [Grant(alice, ALL), w.own(), Grant(w.dora, READ)]
    shares = w.change([w.first], carol, START + 3 * DAY, grants, second)
    kept = [
        Made(one.record, Signed(bare_body(one.signed.body), one.signed.signature), one.access)
        for one in (w.first, shares)
    ]
    dead = sign(
        follow([w.first, shares], carol, START + 4 * DAY, header=None, content=None, tombstone=True,
               via=second),
        carol,
    )  # fmt: skip
    acting = {alice.fingerprint, team.fingerprint}
    names = "deleted through a group"
    disclosed = {
        f"{names}: {n}": [
            at for at, item in enumerate(made.access.salted)
            if parse_entry(item.entry).fingerprint in acting
        ]
        for n, made in enumerate(kept) if made.access is not None
    }  # fmt: skip
    chapter.valid(names, "Carol; the lists show Alice and the team.", *kept, dead, deleted=True,
                  disclosed=disclosed)  # fmt: skip
