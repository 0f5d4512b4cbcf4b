"""Chains of container records: one story that is valid, and the ways to break each rule of section 7."""

from collections.abc import Sequence
from typing import Any

import msgspec

from scbroker.records.container_record import Link, Part, Role, list_hash
from scbroker.records.judge import governing_of
from scbroker.records.key_record import Signed
from scbroker.vocabulary import ContainerAccessLevel
from tests.vectors.cast import DAY, MINUTE, Person, cast, chosen, day, signing_key
from tests.vectors.files import CLOCK, INTEGRITY, VALID, Book, encoded, flipped, put, store
from tests.vectors.groups import shown_step
from tests.vectors.story import (
    Container,
    Grant,
    Made,
    altered,
    delete,
    follow,
    instead,
    plain,
    sign,
    sign_body,
    write,
)
from tests.vectors.through_groups import Through, through_groups

ALL = int(ContainerAccessLevel.DefaultOwnerPermissions)
READ, WRITE, ADMIN, DELETE = 11, 15, 31, 256
ZEROS = bytes(32)


class Records(Book[Made]):
    """Records of containers."""

    def __init__(self) -> None:
        super().__init__()
        self.proofs: dict[Made, dict[str, Any]] = {}
        """By which the membership of a record's author is proved."""

    def shown(self, record: Made) -> dict[str, Any]:
        return {
            "body": record.signed.body,
            "signature": record.signed.signature if self.with_signatures else None,
            "accessList": None if record.access is None else record.access.shown,
            "membership": self.proofs.get(record),
        }

    def time_of(self, record: Made) -> int:
        return record.record.time


def make() -> None:
    book = Records()
    stage = Stage()
    for chapter in (
        the_story, formats, signatures, rule_1, rule_2_chain, rule_2_author, rule_2_governing,
        rule_2_parts, rule_2_key, rule_3, rule_4, rule_5, departures, partial_views, deletions,
    ):  # fmt: skip
        # A signature has 3,373 bytes: they are stored where they decide.
        book.with_signatures = chapter in (the_story, signatures, rule_2_key, deletions)
        chapter(book, stage)
    book.with_signatures = False
    world = Through()
    through_groups(book, world)
    store(
        "container_records",
        "docs/spec/container.md, 2 to 8, and docs/spec/groups.md, 6. Each vector is a chain of records by "
        "name. All but the last are valid; `result` is about the last. `parent` false: the parent is not at "
        "hand. "
        "`disclosed` gives the positions that the reader sees of a record's list; else all are seen. "
        "`left` names the users of whom the reader has verified a departure from a record's list. "
        "`deleted` true: the reader was served a tombstone as head. The chain has only records that a "
        "broker keeps then, the governing ones are read in their bare form, and a parent is at hand where "
        "the chain has it. Authors' key records: people.json. A record without `signature` is to be "
        "judged as one whose signatures hold. `secrets` opens what the story sealed. `groups` gives the "
        "number of records that the reader has of each group of `given`, and `membership` is what is served "
        "with a record to prove its author's.",
        book.vectors,
        containerId=stage.box.id,
        secrets=stage.secrets(),
        records=book.records,
        groups={
            "team": [shown_step(step) for step in world.team.steps],
            "others": [shown_step(world.others_first)],
        },
    )


class Stage:
    """The story: six records by four authors."""

    def __init__(self) -> None:
        self.alice, self.bob, self.carol, self.dora, self.erin = (
            cast()[name] for name in ("alice", "bob", "carol", "dora", "erin")
        )
        self.box = box = Container("story", self.alice)
        header, sealed_header = box.part(
            Role.Header, self.alice, "header", b'{"name":"story"}', 1, 16
        )
        once, sealed_once = box.part(Role.Content, self.alice, "content 1", b"Once", 1, 4)
        upon, sealed_upon = box.part(Role.Content, self.bob, "content 2", b"upon a time", 1, 21)
        sealed = {"header": sealed_header, "content": sealed_once}
        self.first = box.create(day(1), self.grants_1(), sealed=sealed, header=header, content=once)
        edit = follow([self.first], self.bob, day(2), content=upon)
        self.edit = sign(edit, self.bob, sealed={"content": sealed_upon})
        self.story = [self.first, self.edit]
        self.typed = box.retype(self.story, self.alice, day(3), "story")
        self.story.append(self.typed)
        self.shared = self.change_access(self.story, self.erin, day(12), self.grants_4(), 1)
        self.story.append(self.shared)
        self.renewed = self.change_access(self.story, self.bob, day(31), self.grants_5())
        self.story.append(self.renewed)
        self.deleted = delete(self.story, self.alice, day(32))
        self.story.append(self.deleted)

    def upto(self, count: int) -> list[Made]:
        return self.story[:count]

    def grants_1(self) -> list[Grant]:
        return [
            Grant(self.alice, ALL), Grant(self.bob, WRITE), Grant(self.carol, READ, day(30)),
            Grant(self.erin, ADMIN, day(60)),
        ]  # fmt: skip

    def grants_4(self) -> list[Grant]:
        return [
            *instead(self.grants_1(), self.erin, ADMIN, day(60), 1), Grant(self.dora, READ, day(50)),
        ]  # fmt: skip

    def grants_5(self) -> list[Grant]:
        return instead(self.grants_4(), self.carol)

    def change_access(
        self, history: Sequence[Made], author: Person, time: int, grants: Sequence[Grant],
        key_index: int = 0, text: str = "story",
    ) -> Made:  # fmt: skip
        """A change of access with both parts of the story so far sealed again."""
        last = history[-1].record
        lengths = {Role.Header: ("header", 16), Role.Content: ("content 2", 11)}
        parts = {
            role.name.lower(): self.box.resealed(role, part, *lengths[role], last.version + 1)
            for role in Role
            if (part := last.part(role)) is not None
        }
        return self.box.change(history, author, time, grants, text, keyIndex=key_index, **parts)

    def secrets(self) -> dict[str, Any]:
        versions = {made.record.version: made.access for made in self.story if made.access}
        return {
            "containerKeys": {str(version): self.box.key(version) for version in versions},
            "partKeys": {
                name: {"partId": self.box.part_id(name), "key": self.box.part_key(name)}
                for name in ("header", "content 1", "content 2")
            },
            "types": {text: self.box.type_salt(text) for text in ("note", "story")},
            "wraps": {str(version): access.wraps for version, access in versions.items()},
            "sealed": {
                str(made.record.version): made.sealed for made in self.story if made.sealed
            },
            "plaintexts": {"1": {"header": b'{"name":"story"}', "content": b"Once"},
                           "2": {"content": b"upon a time"}},
        }  # fmt: skip


def the_story(book: Records, s: Stage) -> None:
    comments = {
        "create": "Alice creates: rule 1.",
        "edit": "Bob, with Upload, replaces the content and carries the header over.",
        "change type": "Alice changes the type: a governing record that keeps access and keys.",
        "share": "Erin, with ModifyAccess, signs with her second key and lets Dora in.",
        "renew": "Carol's access has ended: Bob, without ModifyAccess, renews by rule 5.",
        "delete": "Alice's tombstone.",
    }
    for count, (name, comment) in enumerate(comments.items()):
        book.after(s.upto(count), (name, comment, VALID, s.story[count]))
    bare, emptied = (
        s.first.again(header=None, content=None),
        write(s.upto(1), s.bob, day(2), content=None),
    )
    book.row([], "create without parts", "Both parts may be nil.", VALID, bare)
    book.row(s.upto(1), "take the content away", "A part may become nil.", VALID, emptied)


def formats(book: Records, s: Stage) -> None:
    record, body = s.edit.record, s.edit.signed.body
    link = b"\x92\x01\xc4\x20"
    if body[21:22] != b"\x02" or body.count(link) != 1:
        raise ValueError("Version or link stand elsewhere.")
    rows = plain(record)
    content = rows[10]

    def spoiled(*faults: tuple[str, str, bytes]) -> None:
        for name, comment, changed in faults:
            made = Made(record, sign_body(changed, s.bob))
            book.after(s.upto(1), (name, comment, INTEGRITY, made))

    spoiled(
        ("wrong version byte", "02 in place of 01.", b"\x02" + body[1:]),
        ("trailing byte", "One zero byte behind the value.", body + b"\0"),
        ("truncated", "The last byte is missing.", body[:-1]),
        ("empty", "No bytes.", b""),
        ("no value", "The version byte alone.", b"\x01"),
        ("integer not shortest", "Version 2 as cc 02.", body[:21] + b"\xcc" + body[21:]),
        ("bin not shortest", "The id with c5 0010.", body[:2] + b"\xc5\0" + body[3:]),
        ("array not shortest", "Thirteen elements as dc 000d.", b"\x01\xdc\0\x0d" + body[2:]),
        ("one element more", "Fourteen elements.", encoded([*rows, None])),
        ("one element fewer", "No via.", encoded(rows[:-1])),
        ("map", "link as a map of version to hash.", body.replace(link, b"\x81" + link[1:])),
        ("arrays too deep", "Four in the place of the nonce.", put(rows, 1, [[[[]]]])),
        ("bool as integer", "tombstone 0 in place of false.", put(rows, 11, 0)),
        ("integer as float", "A time of floating point.", put(rows, 6, float(record.time))),
        ("integer as bool", "keyIndex false in place of 0.", put(rows, 5, False)),
        ("bin as str", "The author as text.", put(rows, 4, "a" * 32)),
        ("negative time", "Time -1.", put(rows, 6, -1)),
        ("time too large", "One more than the largest time.", put(rows, 6, 253402300800000000)),
        ("key index too large", "keyIndex 256.", put(rows, 5, 256)),
        ("version 0", "Versions count from 1.", put(rows, 2, 0)),
        ("version too large", "2^53.", put(rows, 2, 2**53)),
        ("short id", "An id of 15 bytes.", put(rows, 0, record.containerId[:15])),
        ("long hash", "A parent of 33 bytes.", put(rows, 3, bytes(33))),
        ("nonce in version 2", "Only record 1 has a nonce.", put(rows, 1, ZEROS)),
    )  # fmt: skip
    far = write(s.upto(2), s.bob, day(3))
    for name in ("parent", "link"):
        book.row([s.first], f"no {name}", f"Version 3 without {name}; its parent is not at hand.", INTEGRITY,
            far.again(**{name: None}), {"parent": False})  # fmt: skip
    spoiled(("short sealed key", "111 bytes.", put(rows, 10, [*content[:4], bytes(111)])))
    book.after(
        [],
        ("header too large", "262,145 bytes, in a new header.", INTEGRITY,
         s.first.again(header={"paddedLength": 262_145})),
        ("largest header", "262,144 bytes.", VALID, s.first.again(header={"paddedLength": 262_144})),
    )  # fmt: skip
    large = [*content[:2], 2**40 + 1, *content[3:]]
    spoiled(("content too large", "One byte more than 2^20 segments.", put(rows, 10, large)))


def signatures(book: Records, s: Stage) -> None:
    body, signature = s.edit.signed
    order = 2**252 + 27742317777372353535851937790883648493
    malleated = int.from_bytes(signature[32:64], "little") + order
    key, carols = signing_key("bob"), sign_body(body, s.carol).signature

    for name, comment, changed in (
        ("Ed25519 half changed", "A bit of R.", flipped(signature, 0)),
        ("Ed25519 half malleated", "S plus the group order.",
         signature[:32] + malleated.to_bytes(32, "little") + signature[64:]),
        ("ML-DSA half changed", "A bit of the challenge or response.", flipped(signature, 100)),
        ("no ML-DSA half", "The Ed25519 signature alone.", signature[:64]),
        ("signature too long", "A zero byte behind it.", signature + b"\0"),
        ("signature of another object", "The first record's.",
         sign_body(s.first.signed.body, s.bob).signature),
        ("signature under another label", "Signed as a key record.",
         s.bob.sign(body, "key-record").signature),
        ("signature without a label", "The stored bytes alone.",
         key._ed25519.sign(body) + key._mldsa.sign(body)),
        ("signature over the whole body", "With the parts, and not their hashes.",
         s.bob.sign(body, "container-record").signature),
        ("signature by another user", "Carol in Bob's name.", carols),
        ("halves of two users", "Bob's Ed25519, Carol's ML-DSA.", signature[:64] + carols[64:]),
    ):  # fmt: skip
        made = Made(s.edit.record, Signed(body, changed))
        book.after(s.upto(1), (name, comment, INTEGRITY, made))


def rule_1(book: Records, s: Stage) -> None:
    box, alice, bob, first = s.box, s.alice, s.bob, s.first
    own, later = box.access(1, bob, [Grant(bob, ALL)]), box.access(2, alice, s.grants_1())
    stolen = altered(
        first.record, author=bob.fingerprint, governing=own.governing, header=None, content=None
    )

    def lists(*grants: Grant) -> Made:
        return box.create(day(1), grants)

    book.after(
        [],
        ("another nonce", "The id is not of this nonce.", INTEGRITY,
         first.again(nonce=chosen("another nonce"))),
        ("another creator", "Bob begins a container under Alice's id.", INTEGRITY, sign(stolen, bob, own)),
        ("nothing in force", "Record 1 without governing.", INTEGRITY, first.again(governing=None)),
        ("access of a later version", "accessVersion 2 in record 1.", INTEGRITY,
         sign(altered(first.record, governing=later.governing), alice, later)),
        ("first access by another", "accessAuthor is not the author.", INTEGRITY,
         first.again(governing={"accessAuthor": bob.fingerprint})),
        ("born dead", "A tombstone as first record.", INTEGRITY,
         first.again(tombstone=True, header=None, content=None)),
        ("no nonce", "Record 1 without nonce.", INTEGRITY, first.again(nonce=None)),
        ("first with parent", "Record 1 with a parent.", INTEGRITY, first.again(parent=ZEROS)),
        ("first with link", "Record 1 with a link.", INTEGRITY, first.again(link=Link(1, ZEROS))),
        ("first part of another author", "Bob's header in record 1.", INTEGRITY,
         first.again(header={"author": bob.fingerprint})),
        ("one id for two parts", "Header and content share a part id.", INTEGRITY,
         first.again(content={"partId": box.part_id("header")})),
        ("another list", "accessList names another list.", INTEGRITY,
         first.again(governing={"accessList": ZEROS})),
        ("born with an expired entry", "Bob's access ends at the very time of the record.", INTEGRITY,
         lists(Grant(alice, ALL), Grant(bob, READ, day(1)))),
        ("born with an entry about to expire", "Bob's access ends a microsecond after the record.", VALID,
         lists(Grant(alice, ALL), Grant(bob, READ, day(1) + 1))),
        ("entry without a wrap", "Decrypt without wrapHash: for a user who was deleted.", VALID,
         lists(Grant(alice, ALL), Grant(bob, READ, wrapped=False))),
        ("creator not in the list", "For record 1 the author holds everything, and need not keep it.", VALID,
         lists(Grant(bob, ALL))),
    )  # fmt: skip


def rule_2_chain(book: Records, s: Stage) -> None:
    bob, alice, edit, first, upto = s.bob, s.alice, s.edit, s.first, s.upto
    far: dict[str, Any] = {"parent": False}
    old, nothing = Link(1, first.hash), chosen("no parent")
    orphan = edit.again(parent=nothing)
    third, fourth = write(upto(2), bob, day(3)), write(upto(3), bob, day(4))
    fifth = write([*upto(3), fourth], bob, day(5))
    book.after(
        upto(1),
        ("wrong parent", "A hash of nothing that exists.", INTEGRITY, orphan),
        ("wrong parent, not at hand", "A version right after G's has G as parent, which is always at hand.",
         INTEGRITY, orphan, far),
        ("version skipped", "3 after 1.", INTEGRITY, edit.again(version=3)),
    )  # fmt: skip
    book.row(upto(2), "version repeated", "2 after 2.", INTEGRITY, third.again(version=2))
    book.after(
        upto(3),
        ("link to the parent", "The parent is governing.", VALID, fourth),
        ("link passes over a governing record", "To record 1, though record 3 governs.", INTEGRITY,
         fourth.again(link=old)),
    )  # fmt: skip
    book.after(
        [*upto(3), fourth],
        ("link of the parent", "Carried from the parent.", VALID, fifth),
        ("link differs from the parent's", "The parent links to record 3, this one to record 1.", INTEGRITY,
         fifth.again(link=old)),
    )  # fmt: skip
    book.after(
        [first],
        ("link with another version", "The hash of record 1 as version 2.", INTEGRITY,
         third.again(link=Link(2, first.hash)), far),
        ("link with another hash", "Version 1 with the hash of nothing.", INTEGRITY,
         third.again(link=Link(1, chosen("no link"))), far),
        ("another container", "The id of another container in a chain.", INTEGRITY,
         edit.again(containerId=Container("another", alice).id)),
        ("parent not at hand", "A head that is judged by G alone.", VALID, third, far),
        ("unknown parent", "Two versions after G; the parent is not at hand.", VALID,
         unknown := third.again(parent=nothing), far),
    )  # fmt: skip
    book.row(upto(2), "unknown parent, at hand", "The same record, judged after its parent.", INTEGRITY,
        unknown)  # fmt: skip
    longer = {"paddedLength": 33}
    book.after(
        [first],
        ("carried header longer, right after G", "G is at hand, and so are its parts.", INTEGRITY,
         edit.again(header=longer), far),
        ("carried header longer, parent not at hand", "Only the author vouches for the parts.", VALID,
         third.again(header=longer), far),
    )  # fmt: skip
    book.row(upto(3), "version not above G's",
        "A record 1 that links to record 1 cannot be; this one is 3 and links to 3.", INTEGRITY,
        third.again(link=Link(3, s.typed.hash)), far)  # fmt: skip
    dead = [*upto(2), delete(upto(2), alice, day(3))]
    book.row(dead, "after the tombstone", "Nothing follows a tombstone.", INTEGRITY,
        write(dead, alice, day(4)))  # fmt: skip
    second = first.again(time=day(2))
    book.row([], "another beginning", "Record 1 with another time.", VALID, second)
    book.row([first], "a second beginning", "Record 1 after record 1.", INTEGRITY, second)


def rule_2_author(book: Records, s: Stage) -> None:
    alice, bob, erin, upto = s.alice, s.bob, s.erin, s.upto
    book.after(
        upto(1),
        ("a stranger writes", "Dora stands in no list yet.", INTEGRITY, write(upto(1), s.dora, day(2))),
        ("a reader writes", "Carol has no Upload.", INTEGRITY, write(upto(1), s.carol, day(2))),
    )  # fmt: skip
    book.after(
        upto(4),
        ("the last moment", "Erin writes a microsecond before her access ends.", VALID,
         write(upto(4), erin, day(60) - 1, keyIndex=1)),
        ("after the end", "Erin writes at the very time her access ends.", INTEGRITY,
         write(upto(4), erin, day(60), keyIndex=1)),
    )  # fmt: skip
    book.row(upto(1), "type without ModifyType", "Bob changes the type.", INTEGRITY,
        s.box.retype(upto(1), bob, day(2), "mine"))  # fmt: skip
    book.row(upto(3), "access and type without ModifyType", "Erin may change access, not the type.",
        INTEGRITY, s.change_access(upto(3), erin, day(12), s.grants_4(), 1, text="both"))  # fmt: skip
    book.row(upto(4), "access without ModifyAccess", "Bob may renew, and gives Carol his own rights.",
        INTEGRITY,
        s.change_access(upto(4), bob, day(31), [*s.grants_5(), Grant(s.carol, WRITE)]))  # fmt: skip
    book.row(upto(1), "tombstone without Delete", "Bob deletes.", INTEGRITY,
        delete(upto(1), bob, day(2)))  # fmt: skip
    begun = [s.box.create(day(1), [Grant(alice, ALL), Grant(bob, DELETE)])]
    book.after(
        begun,
        ("tombstone with Delete alone", "Bob has no other permission.", VALID, delete(begun, bob, day(2))),
        ("Delete does not write", "Bob has Delete alone and uploads.", INTEGRITY, write(begun, bob, day(2))),
    )  # fmt: skip


def rule_2_governing(book: Records, s: Stage) -> None:
    alice, bob, upto, typed, shared = s.alice, s.bob, s.upto, s.typed, s.shared
    first, dead = s.first.record, delete(upto(1), alice, day(2))
    hashes = b"".join(item.hash for item in shared.listed.salted)
    another = Container("another", alice).id
    book.after(
        upto(1),
        ("tombstone with content", "The content is carried.", INTEGRITY, dead.again(content=first.content)),
        ("tombstone with header", "The header is carried.", INTEGRITY, dead.again(header=first.header)),
        ("tombstone with governing", "It changes the type as well.", INTEGRITY,
         dead.again(governing=typed.record.governing)),
    )  # fmt: skip
    for name, comment, changed in (
        ("type change that changes the list", "Another accessList.", {"accessList": ZEROS}),
        ("type change with another key", "Another keyCommitment.", {"keyCommitment": ZEROS}),
        ("type change with another access author", "Bob.", {"accessAuthor": bob.fingerprint}),
        (
            "type change with another access version",
            "2, which changed nothing.",
            {"accessVersion": 2},
        ),
        ("nothing changed", "Governing, and everything as in G.", first.governing),
        ("access of the future", "accessVersion above the record's version.", {"accessVersion": 4}),
    ):
        book.after(upto(2), (name, comment, INTEGRITY, typed.again(governing=changed)))
    for name, comment, change in (
        ("same container key", "keyCommitment as in G.",
         {"keyCommitment": governing_of(typed.record).keyCommitment}),
        ("change of access in another's name", "accessAuthor Alice, author Erin.",
         {"accessAuthor": alice.fingerprint}),
        ("change of access with another list", "accessList does not name the list.", {"accessList": ZEROS}),
        ("list of another version", "The list's hash was made for version 3.",
         {"accessList": list_hash(s.box.id, 3, hashes)}),
        ("list of another container", "The list's hash was made for another id.",
         {"accessList": list_hash(another, 4, hashes)}),
    ):  # fmt: skip
        book.after(upto(3), (name, comment, INTEGRITY, shared.again(governing=change)))
    both = s.change_access(upto(3), alice, day(12), s.grants_4(), text="both")
    book.row(upto(3), "access and type in one record", "Alice may do both.", VALID, both)


def rule_2_parts(book: Records, s: Stage) -> None:
    alice, bob, upto, edit, first = s.alice, s.bob, s.upto, s.edit, s.first.record
    header_id, fresh, far = s.box.part_id("header"), {"sealedKey": bytes(112)}, {"parent": False}

    def edits(*rows: tuple[str, str, dict[str, Any]]) -> None:
        for name, comment, changes in rows:
            book.after(upto(1), (name, comment, INTEGRITY, edit.again(**changes)))

    edits(
        ("carried header under another author", "Bob claims it.", {"header": {"author": bob.fingerprint}}),
        ("carried header longer", "Another paddedLength.", {"header": {"paddedLength": 33}}),
        ("carried header with other segments", "Another list.", {"header": {"segments": ZEROS}}),
        ("carried header sealed again", "Without a change of access.", {"header": fresh}),
        ("new content of another author", "Alice's name in Bob's record.",
         {"content": {"author": alice.fingerprint}}),
        ("new content under the id of a header that goes", "A part id of the parent's.",
         {"header": None, "content": {"partId": header_id}}),
    )  # fmt: skip
    again = write(upto(2), bob, day(3), content={"partId": header_id})
    book.row([s.first], "one id for the carried header and the new content",
        "Header and content never have one partId; the parent is not at hand.", INTEGRITY, again,
        far)  # fmt: skip
    edits(
        ("one id for two new parts", "Header and content never have one partId.",
         {"header": edit.record.content, "content": fresh}),
        ("new content with the old sealed key", "sealedKey of the parent's content.",
         {"content": {"sealedKey": sealed_key(first.content)}}),
        ("new content with the header's sealed key", "sealedKey of the parent's header.",
         {"content": {"sealedKey": sealed_key(first.header)}}),
    )  # fmt: skip
    swapped = write(upto(1), alice, day(2), header=first.content, content=first.header)
    book.row(upto(1), "header and content exchanged", "Each under the other role, with its key sealed again.",
        INTEGRITY, swapped.again(header=fresh, content=fresh))  # fmt: skip
    book.after(
        upto(3),
        ("part key not sealed again", "A change of access with the old sealedKey.", INTEGRITY,
         s.shared.again(content={"sealedKey": sealed_key(s.typed.record.content)})),
        ("segments changed in a change of access", "The content is not as it was.", INTEGRITY,
         s.shared.again(content={"segments": ZEROS})),
    )  # fmt: skip
    head = write(upto(2), bob, day(3), header={"segments": ZEROS})
    book.row([s.first], "parts are not judged without the parent", "They are the author's word.", VALID, head,
        far)  # fmt: skip


def sealed_key(part: Part | None) -> bytes:
    assert part is not None
    return part.sealedKey


def rule_2_key(book: Records, s: Stage) -> None:
    for name, comment, outcome, time, claimed, used in (
        ("before the rotation", "Key 0 before it was retired.", VALID, day(20) - 1, 0, 0),
        ("retired key", "Key 0 at the time of its retirement.", INTEGRITY, day(20), 0, 0),
        ("new key in time", "Key 1 at the time of its introduction.", VALID, day(10), 1, 1),
        ("key of the future", "Key 1 before it was introduced.", INTEGRITY, day(10) - 1, 1, 1),
        ("unknown key", "keyIndex 2.", INTEGRITY, day(10), 2, 1),
        ("key of another index", "Signed with key 0, says 1.", INTEGRITY, day(11), 1, 0),
    ):
        record = follow(s.upto(1), s.erin, time, keyIndex=claimed)
        book.after(s.upto(1), (name, comment, outcome, sign(record, s.erin, None, used)))


def rule_3(book: Records, s: Stage) -> None:
    same, latest = write(s.upto(2), s.bob, day(2)), day(2) - 15 * MINUTE
    book.after(
        s.upto(2),
        ("same time as the parent", "Not before is enough.", VALID, same),
        ("before the parent", "A microsecond before it.", INTEGRITY, same.again(time=day(2) - 1)),
    )
    book.after(
        s.upto(1),
        ("before G", "The parent is not at hand.", INTEGRITY, write(s.upto(2), s.bob, day(1) - 1),
         {"parent": False}),
        ("15 minutes ahead", "At most now + 15 minutes.", VALID, s.edit, {"now": latest}),
        ("more than 15 minutes ahead", "A microsecond more.", CLOCK, s.edit, {"now": latest - 1}),
    )  # fmt: skip
    book.row([], "first record of the future", "More than 15 minutes ahead.", CLOCK, s.first,
        {"now": day(1) - 15 * MINUTE - 1})  # fmt: skip


def rule_4(book: Records, s: Stage) -> None:
    alice, bob, carol, dora, erin, upto = s.alice, s.bob, s.carol, s.dora, s.erin, s.upto
    time, end = day(12), day(60)
    grants = instead(s.grants_1(), erin, ADMIN, end, 1)

    def shares(person: Person, *entry: Any) -> Made:
        return s.change_access(upto(3), erin, time, instead(grants, person, *entry), 1)

    book.after(
        upto(3),
        ("gives what she holds", "Until the end of her own.", VALID, shares(dora, ADMIN, end)),
        ("gives what she does not hold", "ViewType to Dora.", INTEGRITY, shares(dora, READ | 64, end)),
        ("raises beyond her own", "Delete to Carol.", INTEGRITY, shares(carol, READ | 256, day(30))),
        ("takes what she holds", "Upload from Bob.", VALID, shares(bob, READ)),
        ("takes what she does not hold", "Delete from Alice.", INTEGRITY, shares(alice, ALL & ~256)),
        ("takes Upload from the owner", "She leaves ModifyType without Upload: not allowed.", INTEGRITY,
         shares(alice, ALL & ~4)),
        ("removes whom she may", "Bob.", VALID, shares(bob)),
        ("removes whom she may not", "Alice holds bits that Erin does not.", INTEGRITY, shares(alice)),
        ("gives for longer", "Dora without end; Erin's own access ends.", INTEGRITY, shares(dora, READ)),
        ("gives a microsecond longer", "Dora.", INTEGRITY, shares(dora, READ, end + 1)),
        ("prolongs up to her own end", "Carol.", VALID, shares(carol, READ, end)),
        ("prolongs beyond her own end", "Carol.", INTEGRITY, shares(carol, READ, end + 1)),
        ("shortens", "Bob's access gets an end.", VALID, shares(bob, WRITE, end)),
        ("shortens to later than her own end", "A shorter time is nothing given.", VALID,
         shares(bob, WRITE, end + DAY)),
        ("adds a bit to endless access", "ModifyAccess to Bob, beyond her own end.", INTEGRITY,
         shares(bob, ADMIN)),
        ("shortens what she does not hold", "Alice's access gets an end.", INTEGRITY,
         shares(alice, ALL, end)),
        ("prolongs herself", "Erin.", INTEGRITY, shares(erin, ADMIN, end + 1, 1)),
        ("takes from herself", "Erin leaves.", VALID, shares(erin)),
        ("adds an expired entry", "Dora until now.", INTEGRITY, shares(dora, READ, time)),
        ("first after a rotation", "Erin's key index rises.", VALID, shares(erin, ADMIN, end, 1)),
    )  # fmt: skip
    falls = instead(s.grants_4(), erin, ADMIN, end, 0)
    book.row(upto(4), "key index falls", "Erin's, from 1 to 0.", INTEGRITY,
        s.change_access(upto(4), alice, day(13), falls))  # fmt: skip

    # Carol's access ends before these changes: she is not in P, but her key index counts.
    left = s.grants_5()

    def later(grants: list[Grant]) -> Made:
        return s.change_access(upto(4), erin, day(31), grants, 1)

    book.after(
        upto(4),
        ("leaves the expired out", "Erin.", VALID, later(left)),
        ("own key index falls", "Erin's, from 1 to 0.", VALID, later(instead(left, erin, ADMIN, end, 0))),
        ("keeps the expired", "Carol's entry as it was.", INTEGRITY, later(s.grants_4())),
        ("lets the expired in anew", "Within Erin's own end.", VALID,
         later([*left, Grant(carol, READ, end)])),
        ("lets the expired in for longer", "As for anybody new.", INTEGRITY,
         later([*left, Grant(carol, READ, end + 1)])),
    )  # fmt: skip
    begun = [s.box.create(day(11), [Grant(alice, ALL), Grant(erin, READ, time, 1)])]
    fallen = s.box.change(begun, alice, day(13), [Grant(alice, ALL), Grant(erin, READ, None, 0)])
    book.row(begun, "key index falls after an expiry", "Erin's entry in G is expired, and counts.", INTEGRITY,
        fallen)  # fmt: skip


def rule_5(book: Records, s: Stage) -> None:
    alice, bob, carol, dora, erin, upto = s.alice, s.bob, s.carol, s.dora, s.erin, s.upto
    grants, all_four = s.grants_5(), s.grants_4()

    def renewed(given: list[Grant], time: int = day(31), by: Person = bob) -> Made:
        return s.change_access(upto(4), by, time, given)

    book.after(
        upto(4),
        ("renewal that removes", "Dora is missing.", INTEGRITY, renewed(instead(grants, dora))),
        ("renewal that adds", "Carol without end.", INTEGRITY, renewed([*grants, Grant(carol, READ)])),
        ("renewal that keeps the expired", "Carol as she was.", INTEGRITY, renewed(all_four)),
        ("renewal that gives", "Dora gets Upload.", INTEGRITY,
         renewed(instead(grants, dora, WRITE, day(50)))),
        ("renewal that takes", "Dora loses ViewAccess.", INTEGRITY,
         renewed(instead(grants, dora, 3, day(50)))),
        ("renewal that shortens", "Dora, by a day.", INTEGRITY,
         renewed(instead(grants, dora, READ, day(49)))),
        ("renewal that prolongs", "Dora, by a day.", INTEGRITY,
         renewed(instead(grants, dora, READ, day(51)))),
    )  # fmt: skip
    # Bob has Upload and ModifyType, not ModifyAccess; Carol's access has ended.
    stays = [Grant(alice, ALL), Grant(bob, WRITE | 32)]
    begun = [s.box.create(day(1), [*stays, Grant(carol, READ, day(2))])]
    kept, other = (s.box.change(begun, bob, day(3), stays, text) for text in ("note", "other"))
    book.after(
        begun,
        ("renewal by a keeper of types", "A renewal keeps the type hash.", VALID, kept),
        ("renewal with a type", "A renewal keeps the type hash.", INTEGRITY, other),
    )
    # Nobody's access has ended, and Alice may decrypt: the index of Erin's key is the only reason.
    rises, hidden = (
        instead(s.grants_1(), erin, ADMIN, day(60), 1),
        "renewal of which not every entry is seen",
    )

    def of_keys(given: list[Grant]) -> Made:
        return s.change_access(upto(3), bob, day(12), given)

    same = of_keys(s.grants_1())
    book.after(
        upto(3),
        ("renewal to a newer key", "Erin's key index rises.", VALID, of_keys(rises)),
        ("renewal to the same keys", "No key index rises.", INTEGRITY, of_keys(s.grants_1())),
        ("renewal to a newer key that gives", "Carol gets Upload.", INTEGRITY,
         of_keys(instead(rises, carol, WRITE, day(30)))),
        (hidden, "Erin's entry, whose key index may have risen, is hidden.", VALID, same,
         {"disclosed": {hidden: same.seen(alice, bob, carol)}}),
    )  # fmt: skip
    book.after(
        upto(4),
        ("renewal too early", "Nobody is expired, and Erin may decrypt.", INTEGRITY,
         renewed(all_four, day(29))),
        ("renewal at once", "At the very time of Carol's end.", VALID, renewed(grants, day(30))),
        ("renewal by a reader", "Dora has no Upload.", INTEGRITY, renewed(grants, by=dora)),
    )  # fmt: skip
    for name, comment, entry in (
        (
            "renewal after the access author left",
            "Alice chose the container key and took herself out.",
            (),
        ),
        ("renewal after the access author lost Decrypt", "Alice kept Download alone.", (1,)),
    ):
        given = instead(all_four, alice, *entry)
        history = [*upto(3), s.change_access(upto(3), alice, day(12), given)]
        book.after(history, (name, comment, VALID, s.change_access(history, bob, day(13), given)))


def departures(book: Records, s: Stage) -> None:
    """Users who left a list: section 4.1 and rules 4 and 5."""
    alice, bob, carol, dora, erin, upto = s.alice, s.bob, s.carol, s.dora, s.erin, s.upto
    end, stays = day(60), s.grants_1()

    def left(*names: str, record: str = "create") -> dict[str, Any]:
        return {"left": {record: [*names]}}

    def changes(grants: list[Grant]) -> Made:
        return s.change_access(upto(3), erin, day(12), grants, 1)

    book.after(
        upto(3),
        ("leaves out an owner who left", "Erin has no Delete.", VALID, changes(instead(stays, alice)),
         left("alice")),
        ("keeps an owner who left", "The entry is as it was.", VALID, changes(stays), left("alice")),
        ("grants an owner who left less", "Judged as from no access.", VALID,
         changes(instead(stays, alice, READ, end)), left("alice")),
        ("grants who left what she does not hold", "ViewType to Alice, who had it.", INTEGRITY,
         changes(instead(stays, alice, READ | 64, end)), left("alice")),
        ("leaves out an owner when another left", "Bob left, not Alice.", INTEGRITY,
         changes(instead(stays, alice)), left("bob")),
    )  # fmt: skip
    again = s.change_access(upto(4), erin, day(13), instead(s.grants_4(), alice), 1)
    book.row(upto(4), "leaves out an owner who left the list before", "Erin's list has Alice again.",
        INTEGRITY, again, left("alice"))  # fmt: skip

    def renews(grants: list[Grant]) -> Made:
        return s.change_access(upto(3), bob, day(12), grants)

    newer = instead(stays, erin, ADMIN, end, 1)
    book.after(
        upto(3),
        ("renewal without a user who left", "Carol has Decrypt: that is the reason.", VALID,
         renews(instead(stays, carol)), left("carol")),
        ("renewal without an owner who left", "Bob has Upload alone.", VALID,
         renews(instead(stays, alice)), left("alice")),
        ("renewal that keeps a user who left", "Bob may not know yet.", VALID, renews(stays), left("carol")),
        ("renewal by a user who left", "Nothing but the broker prevents it.", VALID,
         renews(instead(stays, bob)), left("bob")),
        ("renewal without one user of two who left", "Carol stays.", VALID,
         renews(instead(newer, alice)), left("alice", "carol")),
        ("renewal without a user who has not left", "Erin's key index rises; Alice left, not Carol.",
         INTEGRITY, renews(instead(newer, carol)), left("alice")),
        ("renewal that takes from a user who left", "Carol loses ViewAccess.", INTEGRITY,
         renews(instead(stays, carol, 3, day(30))), left("carol")),
    )  # fmt: skip
    # Dora has Download alone; Bob has no ModifyAccess.
    grants = [Grant(alice, ALL), Grant(bob, WRITE), Grant(dora, 1)]
    begun, first = [s.box.create(day(1), grants)], "renewal after a user with Decrypt left: 0"
    with_bob, with_dora = (s.box.change(begun, bob, day(3), grants) for _ in range(2))
    book.after(
        begun,
        ("renewal after a user with Decrypt left", "There is no other reason.", VALID, with_bob,
         left("bob", record=first)),
        ("renewal after a user without Decrypt left", "There is no other reason.", INTEGRITY, with_dora,
         left("dora", record=first)),
    )  # fmt: skip


def partial_views(book: Records, s: Stage) -> None:
    """What a reader without ViewAccess verifies: section 4, the entries that are disclosed."""
    alice, bob, dora, erin, upto = s.alice, s.bob, s.dora, s.erin, s.upto
    created, shared = s.first.seen(alice, bob, erin), s.shared.seen(alice, bob, dora, erin)

    def disclosed(**records: list[int]) -> dict[str, Any]:
        return {"disclosed": {"create": created, **records}}

    too_much = [*s.grants_1()[:3], Grant(dora, READ | 64, day(50)), Grant(erin, ADMIN, day(60), 1)]
    given = s.change_access(upto(3), erin, day(12), too_much, 1)
    shares = s.change_access(upto(3), erin, day(12), s.grants_4(), 1)
    to_seen = "too much given to one who is seen"
    book.after(
        upto(3),
        ("hidden entries", "Carol's are hidden.", VALID, s.shared, disclosed(share=shared)),
        ("hidden author", "The author's entry has to be disclosed.", INTEGRITY, s.shared,
         disclosed(create=s.first.seen(alice, bob), share=shared)),
        (to_seen, "Dora gets ViewType, which Erin does not hold.", INTEGRITY, given,
         disclosed(**{to_seen: shared})),
        ("too much given to one who is hidden", "The same list: without Dora's entry it cannot be judged.",
         VALID, given, disclosed(**{to_seen: given.seen(alice, bob, erin)})),
        ("hidden in the new list alone", "Bob is disclosed before and hidden after: neither given nor taken.",
         VALID, shares, disclosed(**{"hidden in the new list alone": shares.seen(alice, erin, dora)})),
    )  # fmt: skip
    late, early = s.renewed.record.time, "renewal too early, with hidden entries"
    soon = s.change_access(upto(4), bob, day(29), s.grants_4())
    book.after(
        upto(4),
        ("renewal whose reason is hidden", "Carol's entry, which expired, is not disclosed.", VALID,
         s.change_access(upto(4), bob, late, s.grants_5()), disclosed(share=shared, renew=[0, 1, 2, 3])),
        (early, "Whether it was due cannot be seen.", VALID, soon,
         disclosed(share=shared, **{early: shared})),
        ("renewal too early, all seen", "The same record.", INTEGRITY, soon),
    )  # fmt: skip


def deletions(book: Records, s: Stage) -> None:
    """What a reader verifies of a deleted container: sections 2 and 8."""
    alice, bob, erin, upto = s.alice, s.bob, s.erin, s.upto
    kept = [made.bare for made in (s.first, s.typed, s.shared, s.renewed)]
    for made, name in zip(kept, ("create", "change type", "share", "renew"), strict=True):
        book.add(made, f"{name}, bare")
    seen = {
        f"{name}, bare": made.seen(alice, bob, erin)
        for name, made in (("create", kept[0]), ("share", kept[2]), ("renew", kept[3]))
    }
    dead: dict[str, Any] = {"deleted": True}
    served = {**dead, "disclosed": seen}
    later = write(upto(5), bob, day(32), content=None)
    book.after(
        kept,
        ("deleted", "The tombstone after the governing records in their bare form; the lists show the "
         "authors' entries.", VALID, s.deleted, served),
        ("deleted after a change that is not kept", "The tombstone's parent is not at hand.", VALID,
         delete([*upto(5), later], alice, day(33)), served),
    )  # fmt: skip
    book.row([s.first, *kept[1:]], "deleted, with the parts", "Each form of a record is the same record.",
        VALID, s.deleted, dead)  # fmt: skip
    edited = s.edit.again(header=None)
    retyped = s.box.retype(upto(3), alice, day(4), "third")
    book.after(
        [],
        ("bare form", "The container was not deleted.", INTEGRITY, kept[0]),
        ("bare form, deleted", "A governing record of a deleted container.", VALID, kept[0], dead),
    )
    book.after(
        kept[:1],
        ("record that does not govern, deleted", "It is read whole, or not at all.", VALID, edited, dead),
        ("bare form of a record that does not govern", "None is kept.", INTEGRITY, edited.bare, dead),
        ("deleted, with a governing record left out", "The first change of type is missing.", INTEGRITY,
         retyped.bare, dead),
    )  # fmt: skip
    book.row(kept[:3], "deleted, with the newest governing record left out",
        "The tombstone does not link to the last one.", INTEGRITY, s.deleted, served)  # fmt: skip
    book.row(kept, "deleted, with the author of the tombstone hidden", "Alice's entry is missing.", INTEGRITY,
        s.deleted, {**dead, "disclosed": {**seen, "renew, bare": kept[3].seen(bob, erin)}})  # fmt: skip
    rows = msgspec.msgpack.decode(kept[0].signed.body[1:])
    header, content = rows[9:11]

    def rewritten(rows: list[Any], header: Any, content: Any) -> Signed:
        return sign_body(encoded([*rows[:9], header, content, *rows[11:]]), alice)

    as_it_was = Signed(rewritten(rows, content, content).body, kept[0].signed.signature)
    for name, comment, signed in (
        ("short part hash", "31 bytes.", rewritten(rows, header[:31], content)),
        ("long part hash", "33 bytes.", rewritten(rows, header, content + b"\0")),
        ("part hash as text", "A str of 32 bytes.", rewritten(rows, "a" * 32, content)),
        (
            "part hash as array",
            "The hash in an array of one element.",
            rewritten(rows, [header], content),
        ),
        ("another part's hash", "The content's in place of the header's.", as_it_was),
    ):
        made = Made(kept[0].record, signed, kept[0].access)
        book.after([], (name, comment, INTEGRITY, made, dead))
    tombstone = rewritten(msgspec.msgpack.decode(s.deleted.signed.body[1:]), header, None)
    book.row(kept, "tombstone with a part's hash", "A tombstone holds nothing.", INTEGRITY,
        Made(s.deleted.record, tombstone), served)  # fmt: skip
