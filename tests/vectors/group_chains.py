"""Chains of groups: one story that is valid, and the ways to break C1 to C10 of docs/spec/groups.md, 4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from scbroker.records.canonical import encode_value
from scbroker.records.container_record import Part, Role, Via, type_hash
from scbroker.records.judge import governing_of
from scbroker.records.roster import Info, SaltedMember
from tests.vectors.cast import DAY, MINUTE, START, Person, chosen
from tests.vectors.files import Vector, invalid, store, valid
from tests.vectors.groups import (
    MANAGER,
    OWNER,
    READER,
    SHARER,
    WRITER,
    Group,
    Seat,
    Step,
    Team,
    shown_step,
)
from tests.vectors.story import Grant, leave

INTEGRITY, CLOCK, FORK, ROLLBACK = "integrity", "clock", "fork", "rollback"
NO_DELETE = OWNER & ~256


class Book:
    """The vectors of a file, and the records that they name."""

    def __init__(self, *, signed: bool = False) -> None:
        self.records: dict[str, dict[str, Any]] = {}
        self.vectors: list[Vector] = []
        self.signed = signed
        self._names: dict[int, str] = {}
        self._kept: list[Step] = []

    def add(self, step: Step, name: str, **served: Any) -> str:
        if id(step) not in self._names:
            if name in self.records:
                raise ValueError(f"Two records are called {name}.")
            self._names[id(step)] = name
            self._kept.append(step)
            self.records[name] = {**shown_step(step, signature=self.signed), **served}
        return self._names[id(step)]

    def chain(self, name: str, steps: Sequence[Step], **served: Any) -> dict[str, Any]:
        """The records of a vector by name; `served` changes what comes with the last one."""
        *before, last = steps
        names = [self.add(step, f"{name}: {step.version}") for step in before]
        times = [step.made.record.time for step in steps]
        shown = {**shown_step(last, signature=self.signed), **served}
        kept = {key: value for key, value in shown.items() if value is not None}
        if id(last) not in self._names:
            self.add(last, name)
            self.records[name] = kept
        elif served:
            self.records[name] = kept
            return {"records": [*names, name], "now": max(times) + MINUTE}
        return {"records": [*names, self._names[id(last)]], "now": max(times) + MINUTE}

    def valid(self, name: str, comment: str, steps: Sequence[Step], **fields: Any) -> None:
        self.vectors.append(valid(name, comment, **{**self.chain(name, steps), **fields}))

    def invalid(
        self, name: str, comment: str, steps: Sequence[Step], error: str = INTEGRITY,
        served: dict[str, Any] | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        chain = {**self.chain(name, steps, **(served or {})), **fields}
        self.vectors.append(invalid(name, comment, error, **chain))


def make() -> None:
    book, team = Book(), Team()
    book.signed = True
    the_story(book, team)
    book.signed = False
    for chapter in (c1_form, c2_type, c3_list, c4_rules, c5_roster, c6_epoch, marks, c7_tree, c8_managers,
                    c9_since, c10_keys):  # fmt: skip
        chapter(book, team)
    store(
        "group_chains",
        "docs/spec/groups.md, 4. Each vector is a chain of records of a group by name, from version 1 on, "
        "each with the list, type and roster that it introduces. All but the last are valid by C1 to C6; "
        "`result` is about the last, which a device reads at `now`. `disclosed` gives the positions that are "
        "seen of a record's list; else all are. `departures` came with a list. `mark` is that of the device. "
        "With `members` true the device also has the leaves of the roster in force and knows all chains of "
        "people.json: C7, C8, C10. `since` names the record at which it verified the leaves last: C9. A "
        "record without `signature` is to be judged as one whose signatures hold.",
        book.vectors,
        groupName=team.group.fingerprint,
        records=book.records,
    )


def the_story(book: Book, team: Team) -> None:
    comments = {
        "create": "Alice creates a group of three: she is the owner.",
        "add": "Two members more, in the same epoch.",
        "change managers": "Bob becomes a manager. The roster stays.",
        "rename": "Bob seals another info in the same epoch.",
        "remove": "Bob removes Dora: the next epoch.",
        "demote": "Carol becomes a reader: the next epoch.",
        "raise a key index": "Erin has a new key: the next epoch.",
        "all at once": "Alice changes managers, removes, adds and raises a role, in the next epoch.",
        "owner alone": "Before the deletion: the next epoch, with Alice's leaf alone.",
        "delete": "Alice's tombstone.",
    }
    for count, (name, comment) in enumerate(comments.items(), start=1):
        fields: dict[str, Any] = {"epoch": team.steps[count - 1].roster.epoch, "members": True}
        if count > 1:
            fields["since"] = Team.NAMES[count - 2]
        book.valid(name, comment, team.upto(count), **fields)
    book.valid("leaves of an older roster", "The device verified those of version 4.", team.upto(8),
               epoch=4, members=True, since="rename")  # fmt: skip
    book.valid("leaves are not served", "To a device of no member.", team.upto(2), epoch=0)


def part_of(team: Team, role: Role, author: Person) -> Part:
    part, _ = team.group.box.part(role, author, role.name, b"{}", 1, 0)
    return part


def c1_form(book: Book, team: Team) -> None:
    group, alice, upto = team.group, team.alice, team.upto
    seats = team.steps[1].seats

    def adds(name: str, comment: str, **changes: Any) -> None:
        step = group.follow(upto(1), alice, START + 2 * DAY, seats=seats, **changes)
        book.invalid(name, comment, [*upto(1), step])

    adds("a header", "A new one of Alice's.", header=part_of(team, Role.Header, alice))
    adds("a content", "A new one of Alice's.", content=part_of(team, Role.Content, alice))
    via = Via(chosen("another group"), 0, 1, chosen("its record"))
    adds("a via", "Of another group.", via=via)
    idle = group.follow(upto(1), alice, START + 2 * DAY, governing=None)
    book.invalid("a record that governs nothing", "It keeps type and list.", [*upto(1), idle])
    owner = [*team.owner, Grant(team.bob, MANAGER)]
    named = {"accessVia": chosen("another group")}
    shares = group.follow(upto(2), alice, START + 3 * DAY, managers=owner, governing=named)
    book.invalid("an accessVia", "Of another group, in a change of managers.", [*upto(2), shares])
    begun = group.create(START + DAY, team.owner, team.steps[0].seats,
                         header=part_of(team, Role.Header, alice))  # fmt: skip
    book.invalid("a header in version 1", "Alice's.", [begun])


def c2_type(book: Book, team: Team) -> None:
    group, alice, upto = team.group, team.alice, team.upto
    seats, time = team.steps[1].seats, START + 2 * DAY
    typed = group.follow(upto(1), alice, time, seats=seats, text="note")
    book.invalid("another type", "That of an ordinary container.", [*upto(1), typed])
    older = group.follow(upto(1), alice, time, seats=seats, text=team.steps[0].text + "A")
    book.invalid("a character more", "The group type of no roster.", [*upto(1), older])
    added = team.steps[1]
    foreign = replace(governing_of(added.made.record), type=type_hash(
        bytes(16), added.salt, added.text))  # fmt: skip
    moved = group.follow(upto(1), alice, time, seats=seats, governing=foreign)
    book.invalid(
        "the type of another container", "The hash was made for another id.", [*upto(1), moved]
    )
    book.invalid("type without its roster", "Nothing is served in its place.", upto(2),
                 served={"roster": None})  # fmt: skip
    book.invalid("roster without its type", "Nothing is served in its place.", upto(2),
                 served={"type": None})  # fmt: skip
    begun = group.create(START + DAY, team.owner, team.steps[0].seats, text="note")
    book.invalid("another type in version 1", "A roster comes with it.", [begun])


def strangers(count: int) -> list[Grant]:
    return [Grant(Person(f"manager {n}"), MANAGER) for n in range(count)]


def c3_list(book: Book, team: Team) -> None:
    group, alice, bob, upto = team.group, team.alice, team.bob, team.upto

    def names(name: str, comment: str, *managers: Grant, good: bool = False, **fields: Any) -> None:
        step = group.follow(upto(2), alice, START + 3 * DAY, managers=managers)
        (book.valid if good else book.invalid)(name, comment, [*upto(2), step], **fields)

    owner = team.owner[0]
    names("16 managers", "The most.", owner, *strangers(15), good=True, epoch=0)
    names("17 managers", "One more than the most.", owner, *strangers(16))
    names("a second owner", "Bob.", owner, Grant(bob, OWNER), good=True, epoch=0)
    names(
        "another owner in place of the first",
        "Bob; Alice goes.",
        Grant(bob, OWNER),
        good=True,
        epoch=0,
    )
    names("a manager with an expiry", "Bob.", owner, Grant(bob, MANAGER, START + 90 * DAY))
    names(
        "a manager with other permissions", "Bob has all but Delete.", owner, Grant(bob, NO_DELETE)
    )
    names("no owner", "Alice lowers herself.", Grant(alice, MANAGER))
    names(
        "a manager's key index 255",
        "Bob's.",
        owner,
        Grant(bob, MANAGER, None, 255),
        good=True,
        epoch=0,
    )
    names("a manager's key index 256", "Bob's.", owner, Grant(bob, MANAGER, None, 256))
    shown = [n for n, item in enumerate(team.steps[2].made.access.salted)  # type: ignore[union-attr]
             if alice.fingerprint in item.entry]  # fmt: skip
    book.invalid("a manager who is not disclosed", "Bob.", upto(3),
                 disclosed={"change managers": shown})  # fmt: skip
    left = leave(team.steps[2].made, bob, START + 3 * DAY + MINUTE)
    book.invalid("a departure from the list", "Bob's.", upto(3), served={
        "departures": [{"body": left.body, "signature": left.signature}]})  # fmt: skip


def c4_rules(book: Book, team: Team) -> None:
    group, alice, bob, carol, upto = team.group, team.alice, team.bob, team.carol, team.upto
    managers = [Grant(alice, OWNER, None, 1), Grant(bob, MANAGER)]
    renewed = group.follow(upto(3), bob, START + 4 * DAY, managers=managers)
    book.invalid("a renewal by a manager", "Alice's key index rises: by rule 5 it would be due.",
                 [*upto(3), renewed])  # fmt: skip
    owned = group.follow(upto(3), alice, START + 4 * DAY, managers=managers)
    book.valid("a change by an owner", "The same list.", [*upto(3), owned], epoch=0)
    seats = team.steps[7].seats
    former = group.follow(upto(8), bob, START + 14 * DAY, seats=seats, epoch=5)
    book.invalid(
        "a roster by a former manager", "Bob was removed by version 8.", [*upto(8), former]
    )
    member = group.follow(upto(3), carol, START + 4 * DAY, seats=team.steps[1].seats)
    book.invalid("a roster by a member", "Carol is no manager.", [*upto(3), member])
    dead = group.delete(upto(3), bob, START + 4 * DAY)
    book.invalid("a deletion by a manager", "Bob has no Delete.", [*upto(3), dead])
    time = START + 4 * DAY

    def renames(
        name: str,
        comment: str,
        error: str = INTEGRITY,
        at: int = time,
        now: int | None = None,
        **changes: Any,
    ) -> None:
        step = group.follow(upto(3), bob, at, info=Info("n", "", []), **changes)
        fields: dict[str, Any] = {} if now is None else {"now": now}
        book.invalid(name, comment, [*upto(3), step], error, **fields)

    renames("another parent", "A hash of nothing.", parent=chosen("no parent"))
    renames("before the record before", "A microsecond.", at=START + 3 * DAY - 1)
    renames("more than 15 minutes ahead", "A microsecond.", CLOCK, now=time - 15 * MINUTE - 1)
    dead = group.delete(upto(9), alice, START + 15 * DAY)
    after = group.follow([*upto(9), dead], alice, START + 16 * DAY, info=Info("n", "", [None] * 5))
    book.invalid("after the tombstone", "Nothing follows.", [*upto(9), dead, after])


def c5_roster(book: Book, team: Team) -> None:
    group, alice, upto = team.group, team.alice, team.upto
    seats = team.steps[1].seats
    other = Group("others", alice).fingerprint

    def adds(name: str, comment: str, **stored: Any) -> None:
        step = group.follow(upto(1), alice, START + 2 * DAY, seats=seats, stored=stored)
        book.invalid(name, comment, [*upto(1), step])

    adds("a roster of another group", "By the same creator.", group=other)
    adds("a roster of the version before", "1.", version=1)
    adds("a roster of the next version", "3.", version=3)
    weak = group.encryption(0).public[:1184] + bytes(32)
    begun = group.create(START + DAY, team.owner, team.steps[0].seats, stored={"publicKey": weak})
    book.invalid("a public key of small order", "The X25519 half is zero.", [begun])
    begun = group.create(START + DAY, team.owner, team.steps[0].seats, stored={"group": other})
    book.invalid("a first roster of another group", "By the same creator.", [begun])
    begun = group.create(START + DAY, team.owner, team.steps[0].seats, stored={"version": 2})
    book.invalid("a first roster of version 2", "Introduced by version 1.", [begun])


def c6_epoch(book: Book, team: Team) -> None:
    group, alice, bob, upto = team.group, team.alice, team.bob, team.upto
    first = group.create(START + DAY, team.owner, team.steps[0].seats, stored={"epoch": 1})
    book.invalid("a first roster of epoch 1", "0 is the first.", [first])

    def later(
        name: str, comment: str, count: int, epoch: int, author: Person = bob, **stored: Any
    ) -> None:
        time = team.steps[count - 1].made.record.time + DAY
        step = group.follow(upto(count), author, time, epoch=epoch, stored=stored)
        book.invalid(name, comment, [*upto(count), step])

    later("epoch falls", "From 1 to 0.", 5, 0)
    later("epoch skips", "From 0 to 2.", 4, 2)
    later("the same epoch with another public key", "That of epoch 1.", 4, 0,
          publicKey=group.encryption(1).public)  # fmt: skip
    later("the same epoch with another commitment", "That of epoch 1.", 4, 0,
          commitment=group.commitment(1))  # fmt: skip
    later("the next epoch with the same public key", "That of epoch 0.", 4, 1,
          publicKey=group.encryption(0).public)  # fmt: skip
    later("the next epoch with the same commitment", "That of epoch 0.", 4, 1,
          commitment=group.commitment(0))  # fmt: skip
    raised = group.follow(upto(2), alice, START + 3 * DAY, epoch=1)
    book.valid("the next epoch alone", "Every leaf stays.", [*upto(2), raised], epoch=1, members=True,
               since="add")  # fmt: skip


def marks(book: Book, team: Team) -> None:
    def mark(version: int, digest: bytes | None = None) -> dict[str, Any]:
        return {"version": version, "hash": digest or team.steps[version - 1].made.hash}

    book.valid("mark in the middle", "Version 3 of 5.", team.upto(5), epoch=1, mark=mark(3))
    book.valid("mark at the head", "Nothing is new.", team.upto(5), epoch=1, mark=mark(5))
    book.valid("mark at the tombstone", "Nothing is new.", team.upto(10), epoch=5, mark=mark(10))
    now = team.steps[4].made.record.time + MINUTE
    book.invalid(
        "rollback", "The mark is of version 5.", team.upto(4), ROLLBACK, mark=mark(5), now=now
    )
    book.invalid("fork", "The mark has another hash of version 3.", team.upto(5), FORK,
                 mark=mark(3, chosen("another hash")))  # fmt: skip
    book.invalid("fork at the head", "The mark has another hash of version 5.", team.upto(5), FORK,
                 mark=mark(5, chosen("another hash")))  # fmt: skip
    book.invalid("fork at the tombstone", "The mark has another hash of version 10.", team.upto(10), FORK,
                 mark=mark(10, chosen("another hash")))  # fmt: skip


def c7_tree(book: Book, team: Team) -> None:
    leaves = team.steps[1].leaves

    def served(name: str, comment: str, changed: Sequence[SaltedMember]) -> None:
        shown = [{"salt": leaf.salt, "member": leaf.member} for leaf in changed]
        book.invalid(name, comment, team.upto(2), served={"leaves": shown}, members=True)

    served("leaves with another salt", "Of the first.", [
        SaltedMember(chosen("another salt"), leaves[0].member), *leaves[1:]])  # fmt: skip
    carol = Seat(team.carol, READER)
    served("leaves with another role", "Carol's is lower.", [
        SaltedMember(leaf.salt, encode_value(carol.member))
        if team.carol.fingerprint in leaf.member else leaf for leaf in leaves])  # fmt: skip


def c8_managers(book: Book, team: Team) -> None:
    group, alice, bob, upto = team.group, team.alice, team.bob, team.upto

    def without(*people: Person) -> list[Seat]:
        return [seat for seat in team.steps[1].seats if seat.person not in people]

    step = group.follow(upto(4), bob, START + 5 * DAY, seats=without(alice), epoch=1)
    book.invalid("an owner without a leaf", "Bob drops Alice's.", [*upto(4), step], members=True)
    step = group.follow(upto(4), alice, START + 5 * DAY, seats=without(bob), epoch=1)
    book.invalid("a manager without a leaf", "Alice drops Bob's, and not his entry.", [*upto(4), step],
                 members=True)  # fmt: skip
    step = group.follow(
        upto(4), alice, START + 5 * DAY, seats=without(bob), epoch=1, managers=team.owner
    )
    book.valid("entry and leaf dropped together", "Bob's.", [*upto(4), step], epoch=1, members=True,
               since="rename")  # fmt: skip
    managers = [*team.owner, Grant(bob, MANAGER), Grant(team.dora, MANAGER)]
    step = group.follow(upto(5), alice, START + 6 * DAY, managers=managers)
    book.invalid("a new manager without a leaf", "Dora, whom version 5 removed. The roster stays.",
                 [*upto(5), step], members=True)  # fmt: skip


def c9_since(book: Book, team: Team) -> None:
    group, bob, carol, dora, erin, upto = (
        team.group, team.bob, team.carol, team.dora, team.erin, team.upto,
    )  # fmt: skip
    seats = team.steps[1].seats

    def other(person: Person, *changed: Any) -> list[Seat]:
        others = [seat for seat in seats if seat.person is not person]
        return [*others, Seat(person, *changed)] if changed else others

    def later(
        name: str, comment: str, changed: list[Seat], epoch: int, *, good: bool = False
    ) -> None:
        step = group.follow(upto(4), bob, START + 12 * DAY, seats=changed, epoch=epoch)
        fields: dict[str, Any] = {"members": True, "since": "add"}
        if good:
            book.valid(name, comment, [*upto(4), step], **fields, epoch=epoch)
        else:
            book.invalid(name, comment, [*upto(4), step], **fields)

    later("a member missing in one epoch", "Dora.", other(dora), 0)
    later("a lower role in one epoch", "Carol is a reader now.", other(carol, READER, 0, 5), 0)
    later("another key in one epoch", "Erin's second.", other(erin, WRITER, 1, 5), 0)
    later(
        "a higher role in one epoch",
        "Dora is a writer now.",
        other(dora, WRITER, 0, 5),
        0,
        good=True,
    )
    later(
        "a member who is changed and keeps the version",
        "Dora is a writer now.",
        other(dora, WRITER, 0, 2),
        0,
    )
    later("a member who is changed in the next epoch and keeps the version", "Carol is a reader now.",
          other(carol, READER), 1)  # fmt: skip
    rejoins = Person("a new member")
    later("a new member of an old version", "2.", [*seats, Seat(rejoins, READER, 0, 2)], 0)
    later(
        "a new member of the roster's version",
        "5.",
        [*seats, Seat(rejoins, READER, 0, 5)],
        0,
        good=True,
    )
    later("a new member of a version between", "3, between the two rosters.",
          [*seats, Seat(rejoins, READER, 0, 3)], 0, good=True)  # fmt: skip
    _lower_keys(book, team)


def _lower_keys(book: Book, team: Team) -> None:
    """Erin's key index falls from 1 to 0."""
    group, bob, erin, upto = team.group, team.bob, team.erin, team.upto
    stays = [seat for seat in team.steps[6].seats if seat.person is not erin]
    falls = [*stays, Seat(erin, WRITER, 0, 8)]
    step = group.follow(upto(7), bob, START + 13 * DAY, seats=falls, epoch=4)
    book.invalid("a lower key in the next epoch", "Erin's first.", [*upto(7), step], members=True,
                 since="raise a key index")  # fmt: skip
    gone = group.follow(upto(7), bob, START + 13 * DAY, seats=stays, epoch=4)
    back = group.follow([*upto(7), gone], bob, START + 14 * DAY, seats=[*stays, Seat(erin, WRITER, 0, 9)],
                        epoch=5)  # fmt: skip
    book.valid("a lower key after two epochs", "Erin was dropped, and added again.",
               [*upto(7), gone, back], epoch=5, members=True, since="raise a key index")  # fmt: skip


def c10_keys(book: Book, team: Team) -> None:
    group, alice, upto = team.group, team.alice, team.upto
    seats = [seat for seat in team.steps[1].seats if seat.person is not team.erin]
    step = group.follow(
        upto(1), alice, START + 2 * DAY, seats=[*seats, Seat(team.erin, SHARER, 2, 2)]
    )
    book.invalid("a member's key that does not exist", "Erin's third.", [*upto(1), step], members=True,
                 since="create")  # fmt: skip
    stranger = Person("a member whose chain is not known")
    step = group.follow(
        upto(1), alice, START + 2 * DAY, seats=[*seats, Seat(stranger, READER, 200, 2)]
    )
    book.valid("a member whose chain is not known", "The key index is not judged.", [*upto(1), step],
               epoch=0, members=True, since="create")  # fmt: skip
