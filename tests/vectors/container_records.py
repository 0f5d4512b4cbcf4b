"""Chains of container records: one story that is valid, and the ways to break each rule of section 7."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from scbroker.records.canonical import VERSION
from scbroker.records.container_record import (
    ContainerRecord,
    Link,
    Part,
    Role,
    bare_body,
    list_hash,
    parse_entry,
)
from scbroker.records.key_record import Signed
from scbroker.vocabulary import ContainerAccessLevel
from tests.vectors.cast import DAY, MINUTE, START, Person, cast, chosen, signing_key
from tests.vectors.files import Vector, invalid, store, valid
from tests.vectors.groups import shown_step
from tests.vectors.story import (
    Access,
    Container,
    Grant,
    Made,
    altered,
    follow,
    plain,
    sign,
    sign_body,
)
from tests.vectors.through_groups import Through, through_groups

ALL = int(ContainerAccessLevel.DefaultOwnerPermissions)
READ, WRITE, ADMIN, DELETE = 11, 15, 31, 256
INTEGRITY, CLOCK = "integrity", "clock"


_FIRST_WITH_DORA = "renewal after a user with Decrypt left: 0"


class Book:
    """The vectors of a file, and the records that they name."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, Any]] = {}
        self.vectors: list[Vector] = []
        self.with_signatures = False
        self._names: dict[int, str] = {}
        self._kept: list[Made] = []
        self._proofs: dict[int, dict[str, Any]] = {}

    def add(self, made: Made, name: str) -> str:
        if id(made) not in self._names:
            if name in self.records:
                raise ValueError(f"Two records are called {name}.")
            self._names[id(made)] = name
            self._kept.append(made)
            entry: dict[str, Any] = {"body": made.signed.body}
            if self.with_signatures:
                entry["signature"] = made.signed.signature
            if made.access is not None:
                entry["accessList"] = [
                    {"salt": item.salt, "entry": item.entry} for item in made.access.salted
                ]
            if id(made) in self._proofs:
                entry["membership"] = self._proofs[id(made)]
            self.records[name] = entry
        return self._names[id(made)]

    def has_proof(self, made: Made) -> bool:
        return id(made) in self._proofs

    def prove(self, made: Made, proof: dict[str, Any]) -> None:
        """Serve a record with this proof of its author's membership."""
        self._proofs[id(made)] = proof
        self._kept.append(made)

    def valid(
        self, name: str, comment: str, history: Sequence[Made], last: Made, **fields: Any
    ) -> None:
        self.vectors.append(valid(name, comment, **self._chain(name, history, last, fields)))

    def invalid(
        self, name: str, comment: str, history: Sequence[Made], last: Made,
        error: str = INTEGRITY, **fields: Any,
    ) -> None:  # fmt: skip
        chain = self._chain(name, history, last, fields)
        self.vectors.append(invalid(name, comment, error, **chain))

    def _chain(
        self, name: str, history: Sequence[Made], last: Made, fields: dict[str, Any]
    ) -> dict[str, Any]:
        names = [self.add(made, f"{name}: {n}") for n, made in enumerate(history)]
        times = [made.record.time for made in (*history, last)]
        return {"records": [*names, self.add(last, name)], "now": max(times) + MINUTE, **fields}


def make() -> None:
    book = Book()
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
        people = cast()
        self.alice, self.bob, self.carol = people["alice"], people["bob"], people["carol"]
        self.dora, self.erin = people["dora"], people["erin"]
        self.box = Container("story", self.alice)
        self.first = self._create()
        self.edit = self._edit()
        self.typed = self._change_type()
        self.shared = self._share()
        self.renewed = self._renew()
        self.deleted = self._delete()
        self.story = [
            self.first, self.edit, self.typed, self.shared, self.renewed, self.deleted,
        ]  # fmt: skip

    def upto(self, count: int) -> list[Made]:
        return self.story[:count]

    def grants_1(self) -> list[Grant]:
        return [
            Grant(self.alice, ALL),
            Grant(self.bob, WRITE),
            Grant(self.carol, READ, START + 30 * DAY),
            Grant(self.erin, ADMIN, START + 60 * DAY),
        ]

    def grants_4(self) -> list[Grant]:
        return [
            Grant(self.alice, ALL),
            Grant(self.bob, WRITE),
            Grant(self.carol, READ, START + 30 * DAY),
            Grant(self.dora, READ, START + 50 * DAY),
            Grant(self.erin, ADMIN, START + 60 * DAY, 1),
        ]

    def grants_5(self) -> list[Grant]:
        return [grant for grant in self.grants_4() if grant.person is not self.carol]

    def _create(self) -> Made:
        access = self.box.access(1, self.alice, self.grants_1())
        header, sealed_header = self.box.part(
            Role.Header, self.alice, "header", b'{"name":"story"}', 1, 16
        )
        content, sealed = self.box.part(Role.Content, self.alice, "content 1", b"Once", 1, 4)
        record = self.box.begin(START + DAY, access, header, content)
        return sign(record, self.alice, access, header=sealed_header, content=sealed)

    def _edit(self) -> Made:
        content, sealed = self.box.part(Role.Content, self.bob, "content 2", b"upon a time", 1, 21)
        record = follow([self.first], self.bob, START + 2 * DAY, content=content)
        return sign(record, self.bob, content=sealed)

    def _change_type(self) -> Made:
        governing = msgspec.structs.replace(
            self.first.record.governing,
            type=self.box.type("story"),  # type: ignore[type-var]
        )
        history = [self.first, self.edit]
        return sign(follow(history, self.alice, START + 3 * DAY, governing=governing), self.alice)

    def reseal(self, record: ContainerRecord, version: int) -> dict[str, Any]:
        """Both parts of the story so far with their keys under the container key of a version."""
        lengths = {Role.Header: ("header", 16), Role.Content: ("content 2", 11)}
        return {
            role.name.lower(): self.box.resealed(role, part, *lengths[role], version)
            for role in Role
            if (part := record.part(role)) is not None
        }

    def change_access(
        self, history: Sequence[Made], author: Person, time: int, grants: Sequence[Grant],
        key_index: int = 0, text: str = "story", **changes: Any,
    ) -> Made:  # fmt: skip
        version = history[-1].record.version + 1
        access = self.box.access(version, author, grants, text)
        parts = self.reseal(history[-1].record, version)
        fields = {"governing": access.governing, "keyIndex": key_index, **parts}
        record = altered(follow(history, author, time, **fields), **changes)
        return sign(record, author, access, key_index)

    def _share(self) -> Made:
        return self.change_access(
            [self.first, self.edit, self.typed], self.erin, START + 12 * DAY, self.grants_4(), 1
        )

    def _renew(self) -> Made:
        history = [self.first, self.edit, self.typed, self.shared]
        return self.change_access(history, self.bob, START + 31 * DAY, self.grants_5())

    def _delete(self) -> Made:
        history = [self.first, self.edit, self.typed, self.shared, self.renewed]
        return sign(
            follow(
                history, self.alice, START + 32 * DAY, header=None, content=None, tombstone=True
            ),
            self.alice,
        )

    def secrets(self) -> dict[str, Any]:
        versions = {made.record.version: made for made in self.story if made.access}
        return {
            "containerKeys": {str(version): self.box.key(version) for version in versions},
            "partKeys": {
                name: {"partId": self.box.part_id(name), "key": self.box.part_key(name)}
                for name in ("header", "content 1", "content 2")
            },
            "types": {text: self.box.type_salt(text) for text in ("note", "story")},
            "wraps": {
                str(version): made.access.wraps
                for version, made in versions.items()
                if made.access is not None
            },
            "sealed": {
                str(made.record.version): made.sealed for made in self.story if made.sealed
            },
            "plaintexts": {"1": {"header": b'{"name":"story"}', "content": b"Once"},
                           "2": {"content": b"upon a time"}},
        }  # fmt: skip


def the_story(book: Book, stage: Stage) -> None:
    comments = {
        "create": "Alice creates: rule 1.",
        "edit": "Bob, with Upload, replaces the content and carries the header over.",
        "change type": "Alice changes the type: a governing record that keeps access and keys.",
        "share": "Erin, with ModifyAccess, signs with her second key and lets Dora in.",
        "renew": "Carol's access has ended: Bob, without ModifyAccess, renews by rule 5.",
        "delete": "Alice's tombstone.",
    }
    for count, (name, comment) in enumerate(comments.items()):
        book.valid(name, comment, stage.upto(count), stage.story[count])
    bare = sign(stage.box.begin(START + DAY, access_of(stage.first)), stage.alice,
                access_of(stage.first))  # fmt: skip
    book.valid("create without parts", "Both parts may be nil.", [], bare)
    emptied = sign(follow(stage.upto(1), stage.bob, START + 2 * DAY, content=None), stage.bob)
    book.valid("take the content away", "A part may become nil.", stage.upto(1), emptied)


def access_of(made: Made) -> Access:
    if made.access is None:
        raise ValueError("A record without a list.")
    return made.access


def formats(book: Book, stage: Stage) -> None:
    history, good = stage.upto(1), stage.edit
    record, body = good.record, good.signed.body

    def spoiled(name: str, comment: str, changed: bytes) -> None:
        made = Made(record, sign_body(changed, stage.bob))
        book.invalid(name, comment, history, made)

    def rewritten(name: str, comment: str, change: Callable[[list[Any]], Any]) -> None:
        rows = plain(record)
        change(rows)
        spoiled(name, comment, VERSION + msgspec.msgpack.encode(rows))

    def put(position: int, value: Any) -> Callable[[list[Any]], Any]:
        return lambda rows: rows.__setitem__(position, value)

    spoiled("wrong version byte", "02 in place of 01.", b"\x02" + body[1:])
    spoiled("trailing byte", "One zero byte behind the value.", body + b"\0")
    spoiled("truncated", "The last byte is missing.", body[:-1])
    spoiled("empty", "No bytes.", b"")
    spoiled("no value", "The version byte alone.", b"\x01")
    if body[21:22] != b"\x02":
        raise ValueError("The version stands elsewhere.")
    spoiled("integer not shortest", "Version 2 as cc 02.", body[:21] + b"\xcc" + body[21:])
    spoiled("bin not shortest", "The id with c5 0010.", body[:2] + b"\xc5\0" + body[3:])
    spoiled("array not shortest", "Thirteen elements as dc 000d.", b"\x01\xdc\0\x0d" + body[2:])
    rewritten("one element more", "Fourteen elements.", lambda rows: rows.append(None))
    rewritten("one element fewer", "No via.", lambda rows: rows.pop())
    link = b"\x92\x01\xc4\x20"
    if body.count(link) != 1:
        raise ValueError("The link stands elsewhere.")
    spoiled("map", "link as a map of version to hash.", body.replace(link, b"\x81" + link[1:]))
    rewritten("arrays too deep", "Four in the place of the nonce.", put(1, [[[[]]]]))
    rewritten("bool as integer", "tombstone 0 in place of false.", put(11, 0))
    rewritten("integer as float", "A time of floating point.", put(6, float(record.time)))
    rewritten("integer as bool", "keyIndex false in place of 0.", put(5, False))
    rewritten("bin as str", "The author as text.", put(4, "a" * 32))
    rewritten("negative time", "Time -1.", put(6, -1))
    rewritten("time too large", "One more than the largest time.", put(6, 253402300800000000))
    rewritten("key index too large", "keyIndex 256.", put(5, 256))
    rewritten("version 0", "Versions count from 1.", put(2, 0))
    rewritten("version too large", "2^53.", put(2, 2**53))
    rewritten("short id", "An id of 15 bytes.", put(0, record.containerId[:15]))
    rewritten("long hash", "A parent of 33 bytes.", put(3, bytes(33)))
    rewritten("nonce in version 2", "Only record 1 has a nonce.", put(1, bytes(32)))
    far = follow(stage.upto(2), stage.bob, START + 3 * DAY)
    for name in ("parent", "link"):
        without = sign(altered(far, **{name: None}), stage.bob)
        book.invalid(f"no {name}", f"Version 3 without {name}; its parent is not at hand.",
                     [stage.first], without, parent=False)  # fmt: skip
    rewritten("short sealed key", "111 bytes.", lambda rows: rows[10].__setitem__(4, bytes(111)))
    large = altered(stage.first.record, header={"paddedLength": 262_145})
    book.invalid("header too large", "262,145 bytes, in a new header.", [],
                 sign(large, stage.alice, stage.first.access))  # fmt: skip
    largest = altered(stage.first.record, header={"paddedLength": 262_144})
    book.valid("largest header", "262,144 bytes.", [],
               sign(largest, stage.alice, stage.first.access))  # fmt: skip
    rewritten(
        "content too large",
        "One byte more than 2^20 segments.",
        lambda rows: rows[10].__setitem__(2, 2**40 + 1),
    )


def signatures(book: Book, stage: Stage) -> None:
    history, good = stage.upto(1), stage.edit
    body, signature = good.signed

    def spoiled(name: str, comment: str, changed: bytes) -> None:
        book.invalid(name, comment, history, Made(good.record, Signed(body, changed)))

    flipped = bytearray(signature)
    flipped[0] ^= 1
    spoiled("Ed25519 half changed", "A bit of R.", bytes(flipped))
    order = 2**252 + 27742317777372353535851937790883648493
    s = int.from_bytes(signature[32:64], "little") + order
    spoiled("Ed25519 half malleated", "S plus the group order.",
            signature[:32] + s.to_bytes(32, "little") + signature[64:])  # fmt: skip
    flipped = bytearray(signature)
    flipped[100] ^= 1
    spoiled("ML-DSA half changed", "A bit of the challenge or response.", bytes(flipped))
    spoiled("no ML-DSA half", "The Ed25519 signature alone.", signature[:64])
    spoiled("signature too long", "A zero byte behind it.", signature + b"\0")
    spoiled("signature of another object", "The first record's.",
            sign_body(stage.first.signed.body, stage.bob).signature)  # fmt: skip
    spoiled("signature under another label", "Signed as a key record.",
            stage.bob.sign(body, "key-record").signature)  # fmt: skip
    spoiled("signature without a label", "The stored bytes alone.",
            unlabelled(body))  # fmt: skip
    spoiled("signature over the whole body", "With the parts, and not their hashes.",
            stage.bob.sign(body, "container-record").signature)  # fmt: skip
    spoiled("signature by another user", "Carol in Bob's name.",
            sign_body(body, stage.carol).signature)  # fmt: skip
    mixed = sign_body(body, stage.carol).signature
    spoiled("halves of two users", "Bob's Ed25519, Carol's ML-DSA.", signature[:64] + mixed[64:])


def unlabelled(body: bytes) -> bytes:
    key = signing_key("bob")
    return key._ed25519.sign(body) + key._mldsa.sign(body)


def rule_1(book: Book, stage: Stage) -> None:
    box, alice, first = stage.box, stage.alice, stage.first

    def spoiled(name: str, comment: str, author: Person = alice, **changes: Any) -> None:
        made = sign(altered(first.record, **changes), author, first.access)
        book.invalid(name, comment, [], made)

    spoiled("another nonce", "The id is not of this nonce.", nonce=chosen("another nonce"))
    listed = [Grant(stage.bob, ALL)]
    own = box.access(1, stage.bob, listed)
    book.invalid(
        "another creator",
        "Bob begins a container under Alice's id.",
        [],
        sign(
            altered(first.record, author=stage.bob.fingerprint, governing=own.governing,
                    header=None, content=None),
            stage.bob, own,
        ),
    )  # fmt: skip
    spoiled("nothing in force", "Record 1 without governing.", governing=None)
    later = box.access(2, alice, stage.grants_1())
    book.invalid("access of a later version", "accessVersion 2 in record 1.", [],
                 sign(altered(first.record, governing=later.governing), alice, later))  # fmt: skip
    spoiled("first access by another", "accessAuthor is not the author.",
            governing={"accessAuthor": stage.bob.fingerprint})  # fmt: skip
    spoiled("born dead", "A tombstone as first record.", tombstone=True,
            header=None, content=None)  # fmt: skip
    spoiled("no nonce", "Record 1 without nonce.", nonce=None)
    spoiled("first with parent", "Record 1 with a parent.", parent=bytes(32))
    spoiled("first with link", "Record 1 with a link.", link=Link(1, bytes(32)))
    spoiled("first part of another author", "Bob's header in record 1.",
            header={"author": stage.bob.fingerprint})  # fmt: skip
    spoiled("one id for two parts", "Header and content share a part id.",
            content={"partId": box.part_id("header")})  # fmt: skip
    spoiled("another list", "accessList names another list.",
            governing={"accessList": bytes(32)})  # fmt: skip
    late = box.access(1, alice, [Grant(alice, ALL), Grant(stage.bob, READ, START + DAY)])
    book.invalid(
        "born with an expired entry",
        "Bob's access ends at the very time of the record.",
        [],
        sign(box.begin(START + DAY, late), alice, late),
    )
    ends = box.access(1, alice, [Grant(alice, ALL), Grant(stage.bob, READ, START + DAY + 1)])
    book.valid(
        "born with an entry about to expire",
        "Bob's access ends a microsecond after the record.",
        [],
        sign(box.begin(START + DAY, ends), alice, ends),
    )
    gone = box.access(1, alice, [Grant(alice, ALL), Grant(stage.bob, READ, wrapped=False)])
    book.valid(
        "entry without a wrap",
        "Decrypt without wrapHash: for a user who was deleted.",
        [],
        sign(box.begin(START + DAY, gone), alice, gone),
    )
    without = box.access(1, alice, [Grant(stage.bob, ALL)])
    book.valid(
        "creator not in the list",
        "For record 1 the author holds everything, and need not keep it.",
        [],
        sign(box.begin(START + DAY, without), alice, without),
    )


def rule_2_chain(book: Book, stage: Stage) -> None:
    bob, alice = stage.bob, stage.alice

    edit = stage.edit

    def spoiled(name: str, comment: str, **changes: Any) -> None:
        book.invalid(name, comment, stage.upto(1), sign(altered(edit.record, **changes), bob))

    made = sign(altered(edit.record, parent=chosen("no parent")), bob)
    book.invalid("wrong parent", "A hash of nothing that exists.", stage.upto(1), made)
    book.invalid(
        "wrong parent, not at hand",
        "A version right after G's has G as parent, which is always at hand.",
        stage.upto(1), made, parent=False,
    )  # fmt: skip
    spoiled("version skipped", "3 after 1.", version=3)
    again = sign(follow(stage.upto(2), bob, START + 3 * DAY), bob)
    repeated = sign(altered(again.record, version=2), bob)
    book.invalid("version repeated", "2 after 2.", stage.upto(2), repeated)
    old = Link(1, stage.first.hash)
    after_type = sign(follow(stage.upto(3), bob, START + 4 * DAY), bob)
    book.valid("link to the parent", "The parent is governing.", stage.upto(3), after_type)
    book.invalid(
        "link passes over a governing record",
        "To record 1, though record 3 governs.",
        stage.upto(3),
        sign(altered(after_type.record, link=old), bob),
    )
    later = sign(follow([*stage.upto(3), after_type], bob, START + 5 * DAY), bob)
    book.valid(
        "link of the parent", "Carried from the parent.", [*stage.upto(3), after_type], later
    )
    book.invalid(
        "link differs from the parent's",
        "The parent links to record 3, this one to record 1.",
        [*stage.upto(3), after_type],
        sign(altered(later.record, link=old), bob),
    )
    unlinked = follow(stage.upto(2), bob, START + 3 * DAY)
    for name, comment, link in (
        ("link with another version", "The hash of record 1 as version 2.", Link(2, stage.first.hash)),
        ("link with another hash", "Version 1 with the hash of nothing.", Link(1, chosen("no link"))),
    ):  # fmt: skip
        book.invalid(
            name, comment, [stage.first], sign(altered(unlinked, link=link), bob), parent=False
        )
    spoiled("another container", "The id of another container in a chain.",
            containerId=Container("another", alice).id)  # fmt: skip
    head = sign(follow(stage.upto(2), bob, START + 3 * DAY), bob)
    book.valid("parent not at hand", "A head that is judged by G alone.",
               [stage.first], head, parent=False)  # fmt: skip
    unknown = sign(altered(head.record, parent=chosen("no parent")), bob)
    book.valid("unknown parent", "Two versions after G; the parent is not at hand.",
               [stage.first], unknown, parent=False)  # fmt: skip
    book.invalid("unknown parent, at hand", "The same record, judged after its parent.",
                 stage.upto(2), unknown)  # fmt: skip
    changed = sign(altered(edit.record, header={"paddedLength": 33}), bob)
    book.invalid("carried header longer, right after G", "G is at hand, and so are its parts.",
                 stage.upto(1), changed, parent=False)  # fmt: skip
    far = sign(altered(head.record, header={"paddedLength": 33}), bob)
    book.valid("carried header longer, parent not at hand", "Only the author vouches for the parts.",
               [stage.first], far, parent=False)  # fmt: skip
    book.invalid(
        "version not above G's",
        "A record 1 that links to record 1 cannot be; this one is 3 and links to 3.",
        stage.upto(3),
        sign(altered(head.record, link=Link(3, stage.typed.hash)), bob),
        parent=False,
    )
    dead = [*stage.upto(2), sign(
        follow(stage.upto(2), alice, START + 3 * DAY, header=None, content=None, tombstone=True),
        alice,
    )]  # fmt: skip
    book.invalid(
        "after the tombstone",
        "Nothing follows a tombstone.",
        dead,
        sign(follow(dead, alice, START + 4 * DAY), alice),
    )
    second = sign(altered(stage.first.record, time=START + 2 * DAY), alice, stage.first.access)
    book.valid("another beginning", "Record 1 with another time.", [], second)
    book.invalid("a second beginning", "Record 1 after record 1.", stage.upto(1), second)


def rule_2_author(book: Book, stage: Stage) -> None:
    def by(author: Person, count: int, time: int, **changes: Any) -> Made:
        return sign(follow(stage.upto(count), author, time, **changes), author)

    book.invalid("a stranger writes", "Dora stands in no list yet.", stage.upto(1),
                 by(stage.dora, 1, START + 2 * DAY))  # fmt: skip
    book.invalid("a reader writes", "Carol has no Upload.", stage.upto(1),
                 by(stage.carol, 1, START + 2 * DAY))  # fmt: skip
    book.valid("the last moment", "Erin writes a microsecond before her access ends.",
               stage.upto(4), sign(follow(stage.upto(4), stage.erin, START + 60 * DAY - 1,
                                          keyIndex=1), stage.erin, None, 1))  # fmt: skip
    book.invalid("after the end", "Erin writes at the very time her access ends.",
                 stage.upto(4), sign(follow(stage.upto(4), stage.erin, START + 60 * DAY,
                                            keyIndex=1), stage.erin, None, 1))  # fmt: skip
    typed = msgspec.structs.replace(
        stage.first.record.governing,
        type=stage.box.type("mine"),  # type: ignore[type-var]
    )
    book.invalid("type without ModifyType", "Bob changes the type.", stage.upto(1),
                 by(stage.bob, 1, START + 2 * DAY, governing=typed))  # fmt: skip
    book.invalid("access and type without ModifyType", "Erin may change access, not the type.",
                 stage.upto(3), stage.change_access(
                     stage.upto(3), stage.erin, START + 12 * DAY, stage.grants_4(), 1, text="both"
                 ))  # fmt: skip
    book.invalid(
        "access without ModifyAccess",
        "Bob may renew, and gives Carol his own rights.",
        stage.upto(4),
        stage.change_access(
            stage.upto(4),
            stage.bob,
            START + 31 * DAY,
            [*stage.grants_5(), Grant(stage.carol, WRITE)],
        ),
    )
    dead = {"header": None, "content": None, "tombstone": True}
    book.invalid("tombstone without Delete", "Bob deletes.", stage.upto(1),
                 by(stage.bob, 1, START + 2 * DAY, **dead))  # fmt: skip
    box = stage.box
    access = box.access(1, stage.alice, [Grant(stage.alice, ALL), Grant(stage.bob, DELETE)])
    begun = sign(box.begin(START + DAY, access), stage.alice, access)
    book.valid("tombstone with Delete alone", "Bob has no other permission.", [begun],
               sign(follow([begun], stage.bob, START + 2 * DAY, tombstone=True),
                    stage.bob))  # fmt: skip
    book.invalid("Delete does not write", "Bob has Delete alone and uploads.", [begun],
                 sign(follow([begun], stage.bob, START + 2 * DAY), stage.bob))  # fmt: skip


def rule_2_governing(book: Book, stage: Stage) -> None:
    alice, bob, upto = stage.alice, stage.bob, stage.upto
    governing = stage.first.record.governing
    dead = {"header": None, "content": None, "tombstone": True}

    def deletes(name: str, comment: str, **changes: Any) -> None:
        record = follow(upto(1), alice, START + 2 * DAY, **{**dead, **changes})
        book.invalid(name, comment, upto(1), sign(record, alice))

    deletes("tombstone with content", "The content is carried.", content=stage.first.record.content)
    deletes("tombstone with header", "The header is carried.", header=stage.first.record.header)
    deletes("tombstone with governing", "It changes the type as well.",
            governing=stage.typed.record.governing)  # fmt: skip

    def types(name: str, comment: str, **changes: Any) -> None:
        made = sign(altered(stage.typed.record, governing=changes), alice)
        book.invalid(name, comment, upto(2), made)

    types("type change that changes the list", "Another accessList.", accessList=bytes(32))
    types("type change with another key", "Another keyCommitment.", keyCommitment=bytes(32))
    types("type change with another access author", "Bob.", accessAuthor=bob.fingerprint)
    types("type change with another access version", "2, which changed nothing.", accessVersion=2)
    book.invalid("nothing changed", "Governing, and everything as in G.", upto(2),
                 sign(altered(stage.typed.record, governing=governing), alice))  # fmt: skip
    book.invalid("access of the future", "accessVersion above the record's version.", upto(2),
                 sign(altered(stage.typed.record, governing={"accessVersion": 4}),
                      alice))  # fmt: skip

    def shares(name: str, comment: str, **changes: Any) -> None:
        made = sign(altered(stage.shared.record, governing=changes), stage.erin,
                    stage.shared.access, 1)  # fmt: skip
        book.invalid(name, comment, upto(3), made)

    shares("same container key", "keyCommitment as in G.",
           keyCommitment=stage.typed.record.governing.keyCommitment)  # type: ignore[union-attr] # fmt: skip
    shares("change of access in another's name", "accessAuthor Alice, author Erin.",
           accessAuthor=alice.fingerprint)  # fmt: skip
    shares("change of access with another list", "accessList does not name the list.",
           accessList=bytes(32))  # fmt: skip
    hashes = b"".join(item.hash for item in access_of(stage.shared).salted)
    shares("list of another version", "The list's hash was made for version 3.",
           accessList=list_hash(stage.box.id, 3, hashes))  # fmt: skip
    shares("list of another container", "The list's hash was made for another id.",
           accessList=list_hash(Container("another", alice).id, 4, hashes))  # fmt: skip
    both = stage.change_access(upto(3), alice, START + 12 * DAY, stage.grants_4(), text="both")
    book.valid("access and type in one record", "Alice may do both.", upto(3), both)


def rule_2_parts(book: Book, stage: Stage) -> None:
    bob, upto, edit = stage.bob, stage.upto, stage.edit
    first = stage.first.record

    def edits(name: str, comment: str, **changes: Any) -> None:
        book.invalid(name, comment, upto(1), sign(altered(edit.record, **changes), bob))

    edits("carried header under another author", "Bob claims it.",
          header={"author": bob.fingerprint})  # fmt: skip
    edits("carried header longer", "Another paddedLength.", header={"paddedLength": 33})
    edits("carried header with other segments", "Another list.", header={"segments": bytes(32)})
    edits("carried header sealed again", "Without a change of access.",
          header={"sealedKey": bytes(112)})  # fmt: skip
    edits("new content of another author", "Alice's name in Bob's record.",
          content={"author": stage.alice.fingerprint})  # fmt: skip
    edits(
        "new content under the id of a header that goes",
        "A part id of the parent's.",
        header=None,
        content={"partId": stage.box.part_id("header")},
    )
    again = follow(upto(2), bob, START + 3 * DAY, content={"partId": stage.box.part_id("header")})
    book.invalid("one id for the carried header and the new content",
                 "Header and content never have one partId; the parent is not at hand.",
                 [stage.first], sign(again, bob), parent=False)  # fmt: skip
    edits(
        "one id for two new parts",
        "Header and content never have one partId.",
        header=edit.record.content,
        content={"sealedKey": bytes(112)},
    )
    edits("new content with the old sealed key", "sealedKey of the parent's content.",
          content={"sealedKey": sealed_key(first.content)})  # fmt: skip
    edits("new content with the header's sealed key", "sealedKey of the parent's header.",
          content={"sealedKey": sealed_key(first.header)})  # fmt: skip
    alice = stage.alice
    swapped = follow(upto(1), alice, START + 2 * DAY, header=first.content, content=first.header)
    fresh = {"header": {"sealedKey": bytes(112)}, "content": {"sealedKey": bytes(112)}}
    book.invalid("header and content exchanged", "Each under the other role, with its key sealed again.",
                 upto(1), sign(altered(swapped, **fresh), alice))  # fmt: skip

    def shares(name: str, comment: str, **changes: Any) -> None:
        made = sign(altered(stage.shared.record, **changes), stage.erin, stage.shared.access, 1)
        book.invalid(name, comment, upto(3), made)

    shares("part key not sealed again", "A change of access with the old sealedKey.",
           content={"sealedKey": sealed_key(stage.typed.record.content)})  # fmt: skip
    shares("segments changed in a change of access", "The content is not as it was.",
           content={"segments": bytes(32)})  # fmt: skip
    head = sign(follow(upto(2), bob, START + 3 * DAY, header={"segments": bytes(32)}), bob)
    book.valid("parts are not judged without the parent", "They are the author's word.",
               [stage.first], head, parent=False)  # fmt: skip


def sealed_key(part: Part | None) -> bytes:
    if part is None:
        raise ValueError("There is no part.")
    return part.sealedKey


def rule_2_key(book: Book, stage: Stage) -> None:
    erin, upto = stage.erin, stage.upto

    def edits(name: str, comment: str, time: int, claimed: int, used: int, *, good: bool) -> None:
        record = follow(upto(1), erin, time, keyIndex=claimed)
        (book.valid if good else book.invalid)(
            name, comment, upto(1), sign(record, erin, None, used)
        )

    edits("before the rotation", "Key 0 before it was retired.", START + 20 * DAY - 1, 0, 0,
          good=True)  # fmt: skip
    edits("retired key", "Key 0 at the time of its retirement.", START + 20 * DAY, 0, 0,
          good=False)  # fmt: skip
    edits("new key in time", "Key 1 at the time of its introduction.", START + 10 * DAY, 1, 1,
          good=True)  # fmt: skip
    edits("key of the future", "Key 1 before it was introduced.", START + 10 * DAY - 1, 1, 1,
          good=False)  # fmt: skip
    edits("unknown key", "keyIndex 2.", START + 10 * DAY, 2, 1, good=False)
    edits("key of another index", "Signed with key 0, says 1.", START + 11 * DAY, 1, 0,
          good=False)  # fmt: skip


def rule_3(book: Book, stage: Stage) -> None:
    bob, upto = stage.bob, stage.upto
    record = follow(upto(2), bob, START + 2 * DAY)
    book.valid("same time as the parent", "Not before is enough.", upto(2), sign(record, bob))
    before = sign(altered(record, time=START + 2 * DAY - 1), bob)
    book.invalid("before the parent", "A microsecond before it.", upto(2), before)
    early = sign(follow(upto(2), bob, START + DAY - 1), bob)
    book.invalid("before G", "The parent is not at hand.", [stage.first], early, parent=False)
    latest = START + 2 * DAY - 15 * MINUTE
    book.valid("15 minutes ahead", "At most now + 15 minutes.", upto(1), stage.edit, now=latest)
    book.invalid("more than 15 minutes ahead", "A microsecond more.", upto(1), stage.edit, CLOCK,
                 now=latest - 1)  # fmt: skip
    book.invalid("first record of the future", "More than 15 minutes ahead.", [], stage.first,
                 CLOCK, now=START + DAY - 15 * MINUTE - 1)  # fmt: skip


def rule_4(book: Book, stage: Stage) -> None:
    upto, erin = stage.upto, stage.erin
    grants = {grant.person.name: grant for grant in stage.grants_1()}
    grants["erin"] = Grant(erin, ADMIN, START + 60 * DAY, 1)
    time = START + 12 * DAY

    def shares(name: str, comment: str, *, good: bool = False, drop: str = "", **new: Any) -> None:
        wanted = {key: grant for key, grant in {**grants, **new}.items() if key != drop}
        made = stage.change_access(upto(3), erin, time, list(wanted.values()), 1)
        (book.valid if good else book.invalid)(name, comment, upto(3), made)

    alice, bob, carol, dora = stage.alice, stage.bob, stage.carol, stage.dora
    end = START + 60 * DAY
    shares("gives what she holds", "Until the end of her own.", good=True,
           dora=Grant(dora, ADMIN, end))  # fmt: skip
    shares("gives what she does not hold", "ViewType to Dora.", dora=Grant(dora, READ | 64, end))
    shares("raises beyond her own", "Delete to Carol.",
           carol=Grant(carol, READ | 256, START + 30 * DAY))  # fmt: skip
    shares("takes what she holds", "Upload from Bob.", good=True, bob=Grant(bob, READ))
    shares("takes what she does not hold", "Delete from Alice.", alice=Grant(alice, ALL & ~256))
    shares("takes Upload from the owner", "She leaves ModifyType without Upload: not allowed.",
           alice=Grant(alice, ALL & ~4))  # fmt: skip
    shares("removes whom she may", "Bob.", good=True, drop="bob")
    shares("removes whom she may not", "Alice holds bits that Erin does not.", drop="alice")
    shares("gives for longer", "Dora without end; Erin's own access ends.", dora=Grant(dora, READ))
    shares("gives a microsecond longer", "Dora.", dora=Grant(dora, READ, end + 1))
    shares("prolongs up to her own end", "Carol.", good=True, carol=Grant(carol, READ, end))
    shares("prolongs beyond her own end", "Carol.", carol=Grant(carol, READ, end + 1))
    shares("shortens", "Bob's access gets an end.", good=True, bob=Grant(bob, WRITE, end))
    shares("shortens to later than her own end", "A shorter time is nothing given.", good=True,
           bob=Grant(bob, WRITE, end + DAY))  # fmt: skip
    shares("adds a bit to endless access", "ModifyAccess to Bob, beyond her own end.",
           bob=Grant(bob, ADMIN))  # fmt: skip
    shares("shortens what she does not hold", "Alice's access gets an end.",
           alice=Grant(alice, ALL, end))  # fmt: skip
    shares("prolongs herself", "Erin.", erin=Grant(erin, ADMIN, end + 1, 1))
    shares("takes from herself", "Erin leaves.", good=True, drop="erin")
    shares("adds an expired entry", "Dora until now.", dora=Grant(dora, READ, time))
    shares("first after a rotation", "Erin's key index rises.", good=True)
    stays = [*stage.grants_4()]
    falls = [grant if grant.person is not erin else Grant(erin, ADMIN, end, 0) for grant in stays]
    book.invalid("key index falls", "Erin's, from 1 to 0.", upto(4),
                 stage.change_access(upto(4), alice, START + 13 * DAY, falls))  # fmt: skip
    _expired(book, stage)


def _expired(book: Book, stage: Stage) -> None:
    """Carol's access ended before the change: she is not in P, but her key index counts."""
    alice, erin, carol, upto = stage.alice, stage.erin, stage.carol, stage.upto
    time, end = START + 31 * DAY, START + 60 * DAY

    def change(author: Person, grants: list[Grant], key_index: int) -> Made:
        return stage.change_access(upto(4), author, time, grants, key_index)

    grants = stage.grants_5()
    book.valid("leaves the expired out", "Erin.", upto(4), change(erin, grants, 1))
    lower = [grant if grant.person is not erin else Grant(erin, ADMIN, end, 0) for grant in grants]
    book.valid("own key index falls", "Erin's, from 1 to 0.", upto(4), change(erin, lower, 1))
    book.invalid("keeps the expired", "Carol's entry as it was.", upto(4),
                 change(erin, stage.grants_4(), 1))  # fmt: skip
    book.valid("lets the expired in anew", "Within Erin's own end.", upto(4),
               change(erin, [*grants, Grant(carol, READ, end)], 1))  # fmt: skip
    book.invalid("lets the expired in for longer", "As for anybody new.", upto(4),
                 change(erin, [*grants, Grant(carol, READ, end + 1)], 1))  # fmt: skip
    box = stage.box
    access = box.access(1, alice, [Grant(alice, ALL), Grant(erin, READ, START + 12 * DAY, 1)])
    begun = sign(box.begin(START + 11 * DAY, access), alice, access)
    fallen = box.access(2, alice, [Grant(alice, ALL), Grant(erin, READ, None, 0)])
    record = follow([begun], alice, START + 13 * DAY, governing=fallen.governing)
    book.invalid("key index falls after an expiry", "Erin's entry in G is expired, and counts.",
                 [begun], sign(record, alice, fallen))  # fmt: skip


def rule_5(book: Book, stage: Stage) -> None:
    bob, upto = stage.bob, stage.upto
    time, grants = START + 31 * DAY, stage.grants_5()

    def renews(name: str, comment: str, given: list[Grant]) -> None:
        book.invalid(name, comment, upto(4), stage.change_access(upto(4), bob, time, given))

    def other(name: str, *changed: Any) -> list[Grant]:
        return [g if g.person.name != name else Grant(g.person, *changed) for g in grants]

    renews("renewal that removes", "Dora is missing.",
           [grant for grant in grants if grant.person is not stage.dora])  # fmt: skip
    renews("renewal that adds", "Carol without end.", [*grants, Grant(stage.carol, READ)])
    renews("renewal that keeps the expired", "Carol as she was.", stage.grants_4())
    renews("renewal that gives", "Dora gets Upload.", other("dora", WRITE, START + 50 * DAY))
    renews("renewal that takes", "Dora loses ViewAccess.", other("dora", 3, START + 50 * DAY))
    renews("renewal that shortens", "Dora, by a day.", other("dora", READ, START + 49 * DAY))
    renews("renewal that prolongs", "Dora, by a day.", other("dora", READ, START + 51 * DAY))
    _renewal_with_type(book, stage)
    _renewal_to_newer_keys(book, stage)
    early = stage.change_access(upto(4), bob, START + 29 * DAY, stage.grants_4())
    book.invalid("renewal too early", "Nobody is expired, and Erin may decrypt.", upto(4), early)
    at_end = stage.change_access(upto(4), bob, START + 30 * DAY, grants)
    book.valid("renewal at once", "At the very time of Carol's end.", upto(4), at_end)
    reader = stage.change_access(upto(4), stage.dora, time, grants)
    book.invalid("renewal by a reader", "Dora has no Upload.", upto(4), reader)
    left = stage.change_access(
        upto(3), stage.alice, START + 12 * DAY,
        [g for g in stage.grants_4() if g.person is not stage.alice],
    )  # fmt: skip
    history = [*upto(3), left]
    renewed = stage.change_access(
        history, bob, START + 13 * DAY,
        [g for g in stage.grants_4() if g.person is not stage.alice],
    )  # fmt: skip
    book.valid("renewal after the access author left",
               "Alice chose the container key and took herself out.", history, renewed)  # fmt: skip
    blind = stage.change_access(
        upto(3), stage.alice, START + 12 * DAY,
        [g if g.person is not stage.alice else Grant(stage.alice, 1) for g in stage.grants_4()],
    )  # fmt: skip
    history = [*upto(3), blind]
    renewed = stage.change_access(
        history, bob, START + 13 * DAY,
        [g if g.person is not stage.alice else Grant(stage.alice, 1) for g in stage.grants_4()],
    )  # fmt: skip
    book.valid("renewal after the access author lost Decrypt", "Alice kept Download alone.",
               history, renewed)  # fmt: skip


def _renewal_to_newer_keys(book: Book, stage: Stage) -> None:
    """Nobody's access has ended, and Alice may decrypt: the index of Erin's key is the only reason."""
    bob, carol, upto = stage.bob, stage.carol, stage.upto
    end = START + 60 * DAY
    rises = [g if g.person is not stage.erin else Grant(g.person, ADMIN, end, 1)
             for g in stage.grants_1()]  # fmt: skip
    given = [g if g.person is not carol else Grant(carol, WRITE, g.expiresAt) for g in rises]

    def renewed(grants: list[Grant]) -> Made:
        return stage.change_access(upto(3), bob, START + 12 * DAY, grants)

    book.valid("renewal to a newer key", "Erin's key index rises.", upto(3), renewed(rises))
    book.invalid("renewal to the same keys", "No key index rises.", upto(3),
                 renewed(stage.grants_1()))  # fmt: skip
    book.invalid("renewal to a newer key that gives", "Carol gets Upload.", upto(3), renewed(given))
    hidden = "renewal of which not every entry is seen"
    people = sorted((grant.person for grant in rises), key=lambda item: item.fingerprint)
    seen = [n for n, person in enumerate(people) if person is not stage.erin]
    book.valid(hidden, "Erin's entry, whose key index may have risen, is hidden.", upto(3),
               renewed(stage.grants_1()), disclosed={hidden: seen})  # fmt: skip


def _renewal_with_type(book: Book, stage: Stage) -> None:
    """Bob has Upload and ModifyType, not ModifyAccess; Carol's access has ended."""
    box, alice, bob = stage.box, stage.alice, stage.bob
    stays = [Grant(alice, ALL), Grant(bob, WRITE | 32)]
    access = box.access(1, alice, [*stays, Grant(stage.carol, READ, START + 2 * DAY)])
    begun = sign(box.begin(START + DAY, access), alice, access)
    for text, name in (("note", "renewal by a keeper of types"), ("other", "renewal with a type")):
        renewal = box.access(2, bob, stays, text)
        record = follow([begun], bob, START + 3 * DAY, governing=renewal.governing)
        (book.valid if text == "note" else book.invalid)(
            name, "A renewal keeps the type hash.", [begun], sign(record, bob, renewal)
        )


def departures(book: Book, stage: Stage) -> None:
    """Users who left a list: section 4.1 and rules 4 and 5."""
    alice, bob, carol, erin, upto = stage.alice, stage.bob, stage.carol, stage.erin, stage.upto
    time, end = START + 12 * DAY, START + 60 * DAY
    stays = stage.grants_1()

    def listed(person: Person, *changed: Any) -> list[Grant]:
        """The first list with another entry of one person, or with none."""
        others = [grant for grant in stays if grant.person is not person]
        return [*others, Grant(person, *changed)] if changed else others

    def changes(
        name: str, comment: str, grants: list[Grant], *left: str, good: bool = True
    ) -> None:
        made = stage.change_access(upto(3), erin, time, grants, 1)
        (book.valid if good else book.invalid)(
            name, comment, upto(3), made, left={"create": [*left]}
        )

    changes("leaves out an owner who left", "Erin has no Delete.", listed(alice), "alice")
    changes("keeps an owner who left", "The entry is as it was.", stays, "alice")
    changes(
        "grants an owner who left less",
        "Judged as from no access.",
        listed(alice, READ, end),
        "alice",
    )
    changes("grants who left what she does not hold", "ViewType to Alice, who had it.",
            listed(alice, READ | 64, end), "alice", good=False)  # fmt: skip
    changes("leaves out an owner when another left", "Bob left, not Alice.", listed(alice), "bob",
            good=False)  # fmt: skip
    again = stage.change_access(
        upto(4), erin, START + 13 * DAY,
        [grant for grant in stage.grants_4() if grant.person is not alice], 1,
    )  # fmt: skip
    book.invalid("leaves out an owner who left the list before", "Erin's list has Alice again.",
                 upto(4), again, left={"create": ["alice"]})  # fmt: skip

    def renews(name: str, comment: str, grants: list[Grant], *left: str, good: bool = True) -> None:
        made = stage.change_access(upto(3), bob, time, grants)
        (book.valid if good else book.invalid)(
            name, comment, upto(3), made, left={"create": [*left]}
        )

    renews("renewal without a user who left", "Carol has Decrypt: that is the reason.", listed(carol),
           "carol")  # fmt: skip
    renews("renewal without an owner who left", "Bob has Upload alone.", listed(alice), "alice")
    renews("renewal that keeps a user who left", "Bob may not know yet.", stays, "carol")
    renews("renewal by a user who left", "Nothing but the broker prevents it.", listed(bob), "bob")
    newer = [grant if grant.person is not erin else Grant(erin, ADMIN, end, 1) for grant in stays]
    renews("renewal without one user of two who left", "Carol stays.",
           [grant for grant in newer if grant.person is not alice], "alice", "carol")  # fmt: skip
    renews("renewal without a user who has not left", "Erin's key index rises; Alice left, not Carol.",
           [grant for grant in newer if grant.person is not carol], "alice", good=False)  # fmt: skip
    renews("renewal that takes from a user who left", "Carol loses ViewAccess.",
           listed(carol, 3, START + 30 * DAY), "carol", good=False)  # fmt: skip
    _without_decrypt(book, stage)


def _without_decrypt(book: Book, stage: Stage) -> None:
    """Dora has Download alone; Bob has no ModifyAccess."""
    alice, bob, dora = stage.alice, stage.bob, stage.dora
    stays = [Grant(alice, ALL), Grant(bob, WRITE)]
    access = stage.box.access(1, alice, [*stays, Grant(dora, 1)])
    begun = sign(stage.box.begin(START + DAY, access), alice, access)
    for name, who in (("with", "bob"), ("without", "dora")):
        renewal = stage.box.access(2, bob, [*stays, Grant(dora, 1)])
        made = follow([begun], bob, START + 3 * DAY, governing=renewal.governing)
        (book.valid if who == "bob" else book.invalid)(
            f"renewal after a user {name} Decrypt left", "There is no other reason.", [begun],
            sign(made, bob, renewal), left={_FIRST_WITH_DORA: [who]},
        )  # fmt: skip


def partial_views(book: Book, stage: Stage) -> None:
    """What a reader without ViewAccess verifies: section 4, the entries that are disclosed."""
    names = [
        [person.name for person in sorted(people, key=lambda item: item.fingerprint)]
        for people in (
            [grant.person for grant in stage.grants_1()],
            [grant.person for grant in stage.grants_4()],
        )
    ]

    def shown(*who: str) -> dict[str, list[int]]:
        return {
            "create": [n for n, name in enumerate(names[0]) if name in who],
            "share": [n for n, name in enumerate(names[1]) if name in who],
        }

    seen = shown("alice", "bob", "erin", "dora")
    book.valid("hidden entries", "Carol's are hidden.", stage.upto(3), stage.shared,
               disclosed=seen)  # fmt: skip
    hides = {**seen, "create": shown("alice", "bob")["create"]}
    book.invalid("hidden author", "The author's entry has to be disclosed.", stage.upto(3),
                 stage.shared, disclosed=hides)  # fmt: skip
    given = stage.change_access(
        stage.upto(3), stage.erin, START + 12 * DAY,
        [*stage.grants_1()[:3], Grant(stage.dora, READ | 64, START + 50 * DAY),
         Grant(stage.erin, ADMIN, START + 60 * DAY, 1)], 1,
    )  # fmt: skip
    name = "too much given to one who is seen"
    book.invalid(name, "Dora gets ViewType, which Erin does not hold.", stage.upto(3), given,
                 disclosed={"create": seen["create"], name: seen["share"]})  # fmt: skip
    hidden = "too much given to one who is hidden"
    book.valid(hidden, "The same list: without Dora's entry it cannot be judged.", stage.upto(3),
               given, disclosed={"create": seen["create"],
                                 name: shown("alice", "bob", "erin")["share"]})  # fmt: skip

    gone = "hidden in the new list alone"
    book.valid(gone, "Bob is disclosed before and hidden after: neither given nor taken.",
               stage.upto(3), stage.change_access(
                   stage.upto(3), stage.erin, START + 12 * DAY, stage.grants_4(), 1),
               disclosed={"create": seen["create"],
                          gone: shown("alice", "erin", "dora")["share"]})  # fmt: skip
    renewal = stage.story[4]
    hides = {**seen, "renew": list(range(4))}
    book.valid("renewal whose reason is hidden", "Carol's entry, which expired, is not disclosed.",
               stage.upto(4), stage.change_access(
                   stage.upto(4), stage.bob, renewal.record.time, stage.grants_5()),
               disclosed=hides)  # fmt: skip
    early = stage.change_access(stage.upto(4), stage.bob, START + 29 * DAY, stage.grants_4())
    name = "renewal too early, with hidden entries"
    book.valid(name, "Whether it was due cannot be seen.", stage.upto(4), early,
               disclosed={**seen, name: seen["share"]})  # fmt: skip
    book.invalid("renewal too early, all seen", "The same record.", stage.upto(4), early)


def deletions(book: Book, stage: Stage) -> None:
    """What a reader verifies of a deleted container: sections 2 and 8."""

    def bare(made: Made) -> Made:
        body, signature = made.signed
        return Made(made.record, Signed(bare_body(body), signature), made.access)

    kept = [bare(made) for made in (stage.first, stage.typed, stage.shared, stage.renewed)]
    for made, name in zip(kept, ("create", "change type", "share", "renew"), strict=True):
        book.add(made, f"{name}, bare")
    authors = {person.fingerprint for person in (stage.alice, stage.bob, stage.erin)}
    disclosed = {
        f"{name}, bare": [
            n for n, item in enumerate(access_of(made).salted)
            if parse_entry(item.entry).fingerprint in authors
        ]
        for name, made in (("create", kept[0]), ("share", kept[2]), ("renew", kept[3]))
    }  # fmt: skip
    served: dict[str, Any] = {"deleted": True, "disclosed": disclosed}
    later = sign(follow(stage.upto(5), stage.bob, START + 32 * DAY, content=None), stage.bob)
    end = follow(
        [*stage.upto(5), later], stage.alice, START + 33 * DAY, header=None, tombstone=True
    )
    book.valid("deleted", "The tombstone after the governing records in their bare form; the lists show "
               "the authors' entries.", kept, stage.deleted, **served)  # fmt: skip
    book.valid("deleted after a change that is not kept", "The tombstone's parent is not at hand.",
               kept, sign(end, stage.alice), **served)  # fmt: skip
    book.valid("deleted, with the parts", "Each form of a record is the same record.",
               [stage.first, *kept[1:]], stage.deleted, deleted=True)  # fmt: skip

    book.invalid("bare form", "The container was not deleted.", [], kept[0])
    book.valid("bare form, deleted", "A governing record of a deleted container.", [], kept[0],
               deleted=True)  # fmt: skip
    edited = sign(altered(stage.edit.record, header=None), stage.bob)
    book.valid("record that does not govern, deleted", "It is read whole, or not at all.", kept[:1],
               edited, deleted=True)  # fmt: skip
    book.invalid("bare form of a record that does not govern", "None is kept.", kept[:1],
                 bare(edited), deleted=True)  # fmt: skip
    third = msgspec.structs.replace(
        stage.first.record.governing,
        type=stage.box.type("third"),  # type: ignore[type-var]
    )
    retyped = sign(
        follow(stage.upto(3), stage.alice, START + 4 * DAY, governing=third), stage.alice
    )
    book.invalid("deleted, with a governing record left out", "The first change of type is missing.",
                 kept[:1], bare(retyped), deleted=True)  # fmt: skip
    book.invalid("deleted, with the newest governing record left out",
                 "The tombstone does not link to the last one.", kept[:3], stage.deleted,
                 **served)  # fmt: skip
    book.invalid("deleted, with the author of the tombstone hidden", "Alice's entry is missing.",
                 kept, stage.deleted, deleted=True,
                 disclosed={**disclosed, "renew, bare": [
                     n for n in disclosed["renew, bare"]
                     if parse_entry(access_of(kept[3]).salted[n].entry).fingerprint
                     != stage.alice.fingerprint
                 ]})  # fmt: skip

    def rewritten(name: str, comment: str, signature: bytes | None, *fields: Any) -> None:
        """The bare form of record 1 with another header and content; signed as it is, or as it was."""
        rows = msgspec.msgpack.decode(kept[0].signed.body[1:])
        rows[9:11] = [
            old if new is None else new for old, new in zip(rows[9:11], fields, strict=True)
        ]
        signed = sign_body(VERSION + msgspec.msgpack.encode(rows), stage.alice)
        signed = signed if signature is None else Signed(signed.body, signature)
        made = Made(kept[0].record, signed, kept[0].access)
        book.invalid(name, comment, [], made, deleted=True)

    header, content = msgspec.msgpack.decode(kept[0].signed.body[1:])[9:11]
    rewritten("short part hash", "31 bytes.", None, header[:31], None)
    rewritten("long part hash", "33 bytes.", None, None, content + b"\0")
    rewritten("part hash as text", "A str of 32 bytes.", None, "a" * 32, None)
    rewritten("part hash as array", "The hash in an array of one element.", None, [header], None)
    signature = kept[0].signed.signature
    rewritten(
        "another part's hash", "The content's in place of the header's.", signature, content, None
    )
    holding = msgspec.msgpack.decode(stage.deleted.signed.body[1:])
    holding[9] = header
    signed = sign_body(VERSION + msgspec.msgpack.encode(holding), stage.alice)
    book.invalid("tombstone with a part's hash", "A tombstone holds nothing.", kept,
                 Made(stage.deleted.record, signed), **served)  # fmt: skip
