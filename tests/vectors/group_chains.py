"""Chains of groups: one story that is valid, and the ways to break C1 to C10 of docs/spec/groups.md, 4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from scbroker.records.canonical import encode_value
from scbroker.records.container_record import Role, Via, type_hash
from scbroker.records.judge import governing_of
from scbroker.records.roster import Info, SaltedMember
from tests.vectors.cast import DAY, MINUTE, Person, chosen, day
from tests.vectors.files import CLOCK, FORK, INTEGRITY, ROLLBACK, VALID, Book, store
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

NO_DELETE = OWNER & ~256


class Chains(Book[Step]):
    """Records of groups."""

    first = 1

    def shown(self, record: Step) -> dict[str, Any]:
        return shown_step(record, signature=self.with_signatures)

    def time_of(self, record: Step) -> int:
        return record.made.record.time


def make() -> None:
    book, team = Chains(), Team()
    book.with_signatures = True
    the_story(book, team)
    book.with_signatures = False
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


def the_story(book: Chains, team: Team) -> None:
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
    for count, (name, comment) in enumerate(comments.items()):
        step, since = team.steps[count], {"since": Team.NAMES[count - 1]} if count else {}
        fields = {"epoch": step.roster.epoch, "members": True, **since}
        book.after(team.upto(count), (name, comment, VALID, step, fields))
    book.row(team.upto(7), "leaves of an older roster", "The device verified those of version 4.", VALID,
        team.steps[7], {"epoch": 4, "members": True, "since": "rename"})  # fmt: skip
    book.row(team.upto(1), "leaves are not served", "To a device of no member.", VALID, team.steps[1],
        {"epoch": 0})  # fmt: skip


def c1_form(book: Chains, team: Team) -> None:
    group, alice, upto = team.group, team.alice, team.upto
    header, content = (group.box.part(role, alice, role.name, b"{}", 1, 0)[0] for role in Role)

    def adds(**changes: Any) -> Step:
        return group.follow(upto(1), alice, day(2), seats=team.steps[1].seats, **changes)

    via = Via(chosen("another group"), 0, 1, chosen("its record"))
    book.after(
        upto(1),
        ("a header", "A new one of Alice's.", INTEGRITY, adds(header=header)),
        ("a content", "A new one of Alice's.", INTEGRITY, adds(content=content)),
        ("a via", "Of another group.", INTEGRITY, adds(via=via)),
        ("a record that governs nothing", "It keeps type and list.", INTEGRITY,
         group.follow(upto(1), alice, day(2), governing=None)),
    )  # fmt: skip
    managers, named = (
        [*team.owner, Grant(team.bob, MANAGER)],
        {"accessVia": chosen("another group")},
    )
    book.row(upto(2), "an accessVia", "Of another group, in a change of managers.", INTEGRITY,
        group.follow(upto(2), alice, day(3), managers=managers, governing=named))  # fmt: skip
    begun = group.create(day(1), team.owner, team.steps[0].seats, header=header)
    book.row([], "a header in version 1", "Alice's.", INTEGRITY, begun)


def c2_type(book: Chains, team: Team) -> None:
    group, upto, added = team.group, team.upto, team.steps[1]
    foreign = replace(
        governing_of(added.made.record), type=type_hash(bytes(16), added.salt, added.text)
    )

    def adds(**changes: Any) -> Step:
        return group.follow(upto(1), team.alice, day(2), seats=added.seats, **changes)

    book.after(
        upto(1),
        ("another type", "That of an ordinary container.", INTEGRITY, adds(text="note")),
        ("a character more", "The group type of no roster.", INTEGRITY,
         adds(text=team.steps[0].text + "A")),
        ("the type of another container", "The hash was made for another id.", INTEGRITY,
         adds(governing=foreign)),
        ("type without its roster", "Nothing is served in its place.", INTEGRITY, added,
         {}, {"roster": None}),
        ("roster without its type", "Nothing is served in its place.", INTEGRITY, added,
         {}, {"type": None}),
    )  # fmt: skip
    begun = group.create(day(1), team.owner, team.steps[0].seats, text="note")
    book.row([], "another type in version 1", "A roster comes with it.", INTEGRITY, begun)


def c3_list(book: Chains, team: Team) -> None:
    alice, bob, upto, changed = team.alice, team.bob, team.upto, team.steps[2].made
    owner, strangers = team.owner[0], [Grant(Person(f"manager {n}"), MANAGER) for n in range(16)]
    kept = {"epoch": 0}

    def names(*managers: Grant) -> Step:
        return team.group.follow(upto(2), alice, day(3), managers=managers)

    left = leave(changed, bob, day(3) + MINUTE)
    departure = {"body": left.body, "signature": left.signature}
    book.after(
        upto(2),
        ("16 managers", "The most.", VALID, names(owner, *strangers[:15]), kept),
        ("17 managers", "One more than the most.", INTEGRITY, names(owner, *strangers)),
        ("a second owner", "Bob.", VALID, names(owner, Grant(bob, OWNER)), kept),
        ("another owner in place of the first", "Bob; Alice goes.", VALID, names(Grant(bob, OWNER)), kept),
        ("a manager with an expiry", "Bob.", INTEGRITY, names(owner, Grant(bob, MANAGER, day(90)))),
        ("a manager with other permissions", "Bob has all but Delete.", INTEGRITY,
         names(owner, Grant(bob, NO_DELETE))),
        ("no owner", "Alice lowers herself.", INTEGRITY, names(Grant(alice, MANAGER))),
        ("a manager's key index 255", "Bob's.", VALID, names(owner, Grant(bob, MANAGER, None, 255)), kept),
        ("a manager's key index 256", "Bob's.", INTEGRITY, names(owner, Grant(bob, MANAGER, None, 256))),
        ("a manager who is not disclosed", "Bob.", INTEGRITY, team.steps[2],
         {"disclosed": {"change managers": changed.seen(alice)}}),
        ("a departure from the list", "Bob's.", INTEGRITY, team.steps[2],
         {}, {"departures": [departure]}),
    )  # fmt: skip


def c4_rules(book: Chains, team: Team) -> None:
    group, alice, bob, upto = team.group, team.alice, team.bob, team.upto
    managers = [Grant(alice, OWNER, None, 1), Grant(bob, MANAGER)]
    book.after(
        upto(3),
        ("a renewal by a manager", "Alice's key index rises: by rule 5 it would be due.", INTEGRITY,
         group.follow(upto(3), bob, day(4), managers=managers)),
        ("a change by an owner", "The same list.", VALID,
         group.follow(upto(3), alice, day(4), managers=managers), {"epoch": 0}),
    )  # fmt: skip
    book.row(upto(8), "a roster by a former manager", "Bob was removed by version 8.", INTEGRITY,
        group.follow(upto(8), bob, day(14), seats=team.steps[7].seats, epoch=5))  # fmt: skip

    def renames(time: int, **changes: Any) -> Step:
        return group.follow(upto(3), bob, time, info=Info("n", "", []), **changes)

    book.after(
        upto(3),
        ("a roster by a member", "Carol is no manager.", INTEGRITY,
         group.follow(upto(3), team.carol, day(4), seats=team.steps[1].seats)),
        ("a deletion by a manager", "Bob has no Delete.", INTEGRITY, group.delete(upto(3), bob, day(4))),
        ("another parent", "A hash of nothing.", INTEGRITY, renames(day(4), parent=chosen("no parent"))),
        ("before the record before", "A microsecond.", INTEGRITY, renames(day(3) - 1)),
        ("more than 15 minutes ahead", "A microsecond.", CLOCK, renames(day(4)),
         {"now": day(4) - 15 * MINUTE - 1}),
    )  # fmt: skip
    dead = [*upto(9), group.delete(upto(9), alice, day(15))]
    after = group.follow(dead, alice, day(16), info=Info("n", "", [None] * 5))
    book.row(dead, "after the tombstone", "Nothing follows.", INTEGRITY, after)


def c5_roster(book: Chains, team: Team) -> None:
    group, upto, seats = team.group, team.upto, team.steps[1].seats
    other = Group("others", team.alice).fingerprint
    weak = group.encryption(0).public[:1184] + bytes(32)
    for name, comment, stored in (
        ("a roster of another group", "By the same creator.", {"group": other}),
        ("a roster of the version before", "1.", {"version": 1}),
        ("a roster of the next version", "3.", {"version": 3}),
    ):
        step = group.follow(upto(1), team.alice, day(2), seats=seats, stored=stored)
        book.after(upto(1), (name, comment, INTEGRITY, step))
    _first_rosters(
        book, team,
        ("a public key of small order", "The X25519 half is zero.", {"publicKey": weak}),
        ("a first roster of another group", "By the same creator.", {"group": other}),
        ("a first roster of version 2", "Introduced by version 1.", {"version": 2}),
    )  # fmt: skip


def _first_rosters(book: Chains, team: Team, *rows: tuple[str, str, dict[str, Any]]) -> None:
    for name, comment, stored in rows:
        begun = team.group.create(day(1), team.owner, team.steps[0].seats, stored=stored)
        book.after([], (name, comment, INTEGRITY, begun))


def c6_epoch(book: Chains, team: Team) -> None:
    group, upto = team.group, team.upto
    _first_rosters(book, team, ("a first roster of epoch 1", "0 is the first.", {"epoch": 1}))
    keys = [group.encryption(epoch).public for epoch in (0, 1)]
    secrets = [group.commitment(epoch) for epoch in (0, 1)]
    for name, comment, count, epoch, stored in (
        ("epoch falls", "From 1 to 0.", 5, 0, {}),
        ("epoch skips", "From 0 to 2.", 4, 2, {}),
        ("the same epoch with another public key", "That of epoch 1.", 4, 0, {"publicKey": keys[1]}),
        ("the same epoch with another commitment", "That of epoch 1.", 4, 0, {"commitment": secrets[1]}),
        ("the next epoch with the same public key", "That of epoch 0.", 4, 1, {"publicKey": keys[0]}),
        ("the next epoch with the same commitment", "That of epoch 0.", 4, 1, {"commitment": secrets[0]}),
    ):  # fmt: skip
        time = team.steps[count - 1].made.record.time + DAY
        step = group.follow(upto(count), team.bob, time, epoch=epoch, stored=stored)
        book.after(upto(count), (name, comment, INTEGRITY, step))
    raised = group.follow(upto(2), team.alice, day(3), epoch=1)
    book.row(upto(2), "the next epoch alone", "Every leaf stays.", VALID, raised,
        {"epoch": 1, "members": True, "since": "add"})  # fmt: skip


def marks(book: Chains, team: Team) -> None:
    other, now = chosen("another hash"), team.steps[4].made.record.time + MINUTE
    for name, comment, outcome, count, mark, digest, fields in (
        ("mark in the middle", "Version 3 of 5.", VALID, 5, 3, None, {"epoch": 1}),
        ("mark at the head", "Nothing is new.", VALID, 5, 5, None, {"epoch": 1}),
        ("mark at the tombstone", "Nothing is new.", VALID, 10, 10, None, {"epoch": 5}),
        ("rollback", "The mark is of version 5.", ROLLBACK, 4, 5, None, {"now": now}),
        ("fork", "The mark has another hash of version 3.", FORK, 5, 3, other, {}),
        ("fork at the head", "The mark has another hash of version 5.", FORK, 5, 5, other, {}),
        (
            "fork at the tombstone",
            "The mark has another hash of version 10.",
            FORK,
            10,
            10,
            other,
            {},
        ),
    ):
        seen = {"version": mark, "hash": digest or team.steps[mark - 1].made.hash}
        more = {**fields, "mark": seen}
        book.after(team.upto(count - 1), (name, comment, outcome, team.steps[count - 1], more))


def c7_tree(book: Chains, team: Team) -> None:
    leaves, carol = team.steps[1].leaves, Seat(team.carol, READER)
    salted = [SaltedMember(chosen("another salt"), leaves[0].member), *leaves[1:]]
    lowered = [
        SaltedMember(leaf.salt, encode_value(carol.member))
        if team.carol.fingerprint in leaf.member else leaf for leaf in leaves
    ]  # fmt: skip
    for name, comment, changed in (
        ("leaves with another salt", "Of the first.", salted),
        ("leaves with another role", "Carol's is lower.", lowered),
    ):
        served = {"leaves": [{"salt": leaf.salt, "member": leaf.member} for leaf in changed]}
        members = {"members": True}
        book.row(team.upto(1), name, comment, INTEGRITY, team.steps[1], members, served)


def c8_managers(book: Chains, team: Team) -> None:
    group, alice, bob, upto = team.group, team.alice, team.bob, team.upto
    members = {"members": True}

    def drops(author: Person, person: Person, **changes: Any) -> Step:
        seats = [seat for seat in team.steps[1].seats if seat.person is not person]
        return group.follow(upto(4), author, day(5), seats=seats, epoch=1, **changes)

    book.after(
        upto(4),
        ("an owner without a leaf", "Bob drops Alice's.", INTEGRITY, drops(bob, alice), members),
        ("a manager without a leaf", "Alice drops Bob's, and not his entry.", INTEGRITY, drops(alice, bob),
         members),
        ("entry and leaf dropped together", "Bob's.", VALID, drops(alice, bob, managers=team.owner),
         {"epoch": 1, **members, "since": "rename"}),
    )  # fmt: skip
    managers = [*team.owner, Grant(bob, MANAGER), Grant(team.dora, MANAGER)]
    book.row(upto(5), "a new manager without a leaf", "Dora, whom version 5 removed. The roster stays.",
        INTEGRITY, group.follow(upto(5), alice, day(6), managers=managers), members)  # fmt: skip


def c9_since(book: Chains, team: Team) -> None:
    group, bob, carol, dora, erin = team.group, team.bob, team.carol, team.dora, team.erin
    upto, new = team.upto, Person("a new member")

    def instead(seats: Sequence[Seat], person: Person, *seat: Any) -> list[Seat]:
        others = [each for each in seats if each.person is not person]
        return [*others, Seat(person, *seat)] if seat else others

    for name, comment, outcome, person, seat, epoch in (
        ("a member missing in one epoch", "Dora.", INTEGRITY, dora, (), 0),
        ("a lower role in one epoch", "Carol is a reader now.", INTEGRITY, carol, (READER, 0, 5), 0),
        ("another key in one epoch", "Erin's second.", INTEGRITY, erin, (WRITER, 1, 5), 0),
        ("a higher role in one epoch", "Dora is a writer now.", VALID, dora, (WRITER, 0, 5), 0),
        ("a member who is changed and keeps the version", "Dora is a writer now.", INTEGRITY,
         dora, (WRITER, 0, 2), 0),
        ("a member who is changed in the next epoch and keeps the version", "Carol is a reader now.",
         INTEGRITY, carol, (READER,), 1),
        ("a new member of an old version", "2.", INTEGRITY, new, (READER, 0, 2), 0),
        ("a new member of the roster's version", "5.", VALID, new, (READER, 0, 5), 0),
        ("a new member of a version between", "3, between the two rosters.", VALID, new, (READER, 0, 3), 0),
    ):  # fmt: skip
        seats = instead(team.steps[1].seats, person, *seat)
        step = group.follow(upto(4), bob, day(12), seats=seats, epoch=epoch)
        fields = {"members": True, "since": "add", **({"epoch": epoch} if outcome == VALID else {})}
        book.after(upto(4), (name, comment, outcome, step, fields))
    # Erin's key index falls from 1 to 0.
    present, since = team.steps[6].seats, {"members": True, "since": "raise a key index"}
    falls = group.follow(upto(7), bob, day(13), seats=instead(present, erin, WRITER, 0, 8), epoch=4)
    gone = group.follow(upto(7), bob, day(13), seats=instead(present, erin), epoch=4)
    back = group.follow(
        [*upto(7), gone], bob, day(14), seats=instead(present, erin, WRITER, 0, 9), epoch=5
    )
    book.row(upto(7), "a lower key in the next epoch", "Erin's first.", INTEGRITY, falls, since)
    book.row([*upto(7), gone], "a lower key after two epochs", "Erin was dropped, and added again.", VALID,
        back, {"epoch": 5, **since})  # fmt: skip


def c10_keys(book: Chains, team: Team) -> None:
    seats = [seat for seat in team.steps[1].seats if seat.person is not team.erin]
    stranger, fields = (
        Person("a member whose chain is not known"),
        {"members": True, "since": "create"},
    )

    def adds(seat: Seat) -> Step:
        return team.group.follow(team.upto(1), team.alice, day(2), seats=[*seats, seat])

    book.after(
        team.upto(1),
        ("a member's key that does not exist", "Erin's third.", INTEGRITY,
         adds(Seat(team.erin, SHARER, 2, 2)), fields),
        ("a member whose chain is not known", "The key index is not judged.", VALID,
         adds(Seat(stranger, READER, 200, 2)), {"epoch": 0, **fields}),
    )  # fmt: skip
