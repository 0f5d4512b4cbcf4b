"""Views of a container, the mark of a reader, and what the reader makes of them: container.md, 4, 5 and 8."""

from __future__ import annotations

from msgspec.structs import replace

from scbroker.crypto.seal import wrap_key
from scbroker.records.container_record import Role, key_commitment, wrap_info
from scbroker.records.judge import governing_of
from scbroker.records.key_record import Signed
from scbroker.wire.containers import GoverningView, SignedRecord
from tests.vectors import views_of_groups
from tests.vectors.cast import MINUTE, chosen, day, decryption_key
from tests.vectors.container_records import ADMIN, ALL, READ, Stage
from tests.vectors.files import FORK, ROLLBACK, Vector, store
from tests.vectors.served import Served
from tests.vectors.story import Container, Grant, delete, instead, leave, write


def make() -> None:
    stage = Stage()
    story = Served(stage.box, stage.story, {1: "note", 3: "story"})
    # Alice has all permissions; Bob may read, and sees no entry but his own and the authors'.
    box = Container("closed", stage.alice)
    header, sealed_header = box.part(Role.Header, stage.alice, "header", b'{"n":1}', 1, 0)
    content, sealed = box.part(Role.Content, stage.alice, "content", b"closed", 1, 0)
    grants = [
        Grant(stage.alice, ALL), Grant(stage.bob, 3), Grant(stage.carol, READ), Grant(stage.dora, 2),
        Grant(stage.erin, READ, wrapped=False),
    ]  # fmt: skip
    parts = {"header": sealed_header, "content": sealed}
    first = box.create(day(1), grants, sealed=parts, header=header, content=content)
    second = write([first], stage.alice, day(2))
    closed = Served(box, [first, second], {1: "note"})
    groups: dict[str, bytes] = {}
    store(
        "views",
        "docs/spec/container.md, 4, 5 and 8. A reader asks for the container `containerId` with header and "
        "content, has the mark `mark` or none, and gets `view`, the MessagePack of a ContainerView "
        "(protocol.md, 5). Every other request for this container is answered as if the broker had no "
        "more. Keys: people.json. After a valid view the reader has the given version, completeness, "
        "header, content and type; of a deleted container only version and completeness. `groups` names what "
        "the broker serves of each group by POST /v1/groups/views: in `given` the MessagePack of a GroupView "
        "(docs/spec/groups.md, 12), from version 1 on. `unsettled` is the version of the newest unsettled "
        "access (7).",
        [*_fresh(stage, story, closed), *_marked(stage, story), *_withheld(stage, story, closed),
         *_deleted(stage, story), *_departures(stage, story, closed), *_deleted_after_a_departure(stage),
         *_unknown_keys(stage), *views_of_groups.vectors(groups)],
        groups=groups,
    )  # fmt: skip


HEADER, ONCE, UPON = b'{"name":"story"}', b"Once", b"upon a time"


def _fresh(stage: Stage, story: Served, closed: Served) -> list[Vector]:
    alice, bob, dora = stage.alice, stage.bob, stage.dora
    hidden = ("carol", "dora", "erin")
    without = replace(closed.view(dora, hidden=("bob", "carol", "erin")), header=None, content=None)
    return [
        story.reads("fresh, first record", "The head governs.", alice, (1, HEADER, ONCE, "note"), count=1),
        story.reads("fresh, head that does not govern", "Bob has no ViewType.", bob, (2, HEADER, UPON, None),
                    count=2),
        story.reads("fresh, change of type", "One list for two governing records.", alice,
                    (3, HEADER, UPON, "story"), count=3),
        story.reads("fresh, renewed", "Dora, who was added in version 4.", dora, (5, HEADER, UPON, None),
                    count=5),
        story.reads("fresh, renewed, with the type", "Alice.", alice, (5, HEADER, UPON, "story"), count=5),
        closed.reads("hidden entries", "Bob has no ViewAccess: the mark is not complete.", bob,
                     (2, b'{"n":1}', b"closed", None), hidden=hidden, complete=False),
        closed.reads("without Download", "Nothing is asked of the view that it cannot have.", dora,
                     (2, None, None, None), without, complete=False),
        {**story.refused("another container", "The story, asked for under another id.", alice, count=1),
         "containerId": chosen("box", size=16)},
        story.refused("reader not in the list", "Dora before she was added, with Alice's view.", dora,
                      story.view(alice, count=3)),
        story.refused("time of the future", "More than 15 minutes ahead.", alice, error="clock",
                      now=day(1) - 15 * MINUTE - 1, count=1),
    ]  # fmt: skip


def _marked(stage: Stage, story: Served) -> list[Vector]:
    alice, dora = stage.alice, stage.dora
    other = chosen("another hash")
    later, same = story.view(alice, 2, count=5), story.view(alice, 5, count=5)
    cut, once, typed = (
        replace(later, skipped=[]),
        story.view(alice, count=1),
        story.view(alice, count=3),
    )
    third_type = stage.box.retype(stage.upto(3), alice, day(4), "third")
    retyped = Served(stage.box, [*stage.upto(3), third_type], {1: "note", 3: "story", 4: "third"})
    again = retyped.view(alice)
    after_type = write(stage.upto(3), stage.bob, day(4))
    after = Served(stage.box, [*stage.upto(3), after_type], {1: "note", 3: "story"})
    later_edit = after.view(alice)
    edits = stage.upto(2)
    third_edit = write(edits, stage.bob, day(2) + MINUTE)
    fourth_edit = write([*edits, third_edit], stage.bob, day(3))
    edited = Served(stage.box, [*edits, third_edit, fourth_edit], {1: "note"})
    fifth_edit = write(edited.history, stage.bob, day(4))
    longer = Served(stage.box, [*edited.history, fifth_edit], {1: "note"})
    other_third = write(edits, stage.bob, day(2) + 2 * MINUTE)
    replaced = longer.view(alice, 2)
    replaced = replace(replaced, skipped=[
        replaced.skipped[0], other_third.signed.body, replaced.skipped[2]])  # fmt: skip
    skips_type = write(stage.upto(3), stage.bob, day(4), link=stage.edit.record.link)
    hiding = Served(stage.box, [*stage.upto(3), skips_type], {1: "note"})
    hides = hiding.view(alice, 2)
    hides = replace(hides, governing=hides.governing[:1], lastGoverning=1,
                    skipped=[stage.edit.signed.body, stage.typed.signed.body])  # fmt: skip
    far = edited.view(alice, 2)
    without = [
        replace(later.governing[1], accessList=later.governing[0].accessList),
        *later.governing[2:],
    ]
    plain = GoverningView(record=SignedRecord.of(stage.edit.signed), accessList=None)
    as_head = replace(story.view(stage.bob, count=2), head=SignedRecord.of(stage.typed.signed))
    cut_short = replace(
        later_edit, governing=later_edit.governing[:1], lastGoverning=1, type=once.type
    )
    return [
        story.reads("mark before the head", "Version 2, with the bodies in between.", alice,
                    (5, HEADER, UPON, "story"), later, mark=story.mark(2)),
        story.reads("mark at the head", "Nothing is new.", alice, (5, HEADER, UPON, "story"), same,
                    mark=story.mark(5)),
        story.reads("mark that is not complete", "All is judged again.", dora, (5, HEADER, UPON, None),
                    replace(story.view(dora, 1, count=5), skipped=[]), mark=story.mark(5, complete=False)),
        edited.reads("mark and skipped bodies", "Version 3 changes nothing that governs.", alice,
                     (4, HEADER, UPON, "note"), far, mark=edited.mark(2)),
        story.refused("rollback", "The mark is of version 5.", alice, error=ROLLBACK, count=3,
                      mark=story.mark(5, complete=False)),
        story.refused("fork at the head", "The mark has another hash of version 5.", alice, same, FORK,
                      mark=story.mark(5, hash=other)),
        story.refused("fork before the head", "The mark has another hash of version 2.", alice, later, FORK,
                      mark=story.mark(2, hash=other)),
        story.refused("fork of the governing record", "The mark has another hash of version 1.", alice, later,
                      FORK, mark=story.mark(2, governingHash=other)),
        story.refused("governing record of the mark left out", "The view begins with the next.", alice,
                      replace(later, governing=without), FORK, mark=story.mark(2)),
        story.refused("skipped body left out", "Version 2, the mark's own.", alice, cut, FORK,
                      mark=story.mark(2)),
        edited.refused("skipped body left out, in the middle", "Version 3.", alice,
                       replace(far, skipped=far.skipped[:1]), FORK, mark=edited.mark(2)),
        longer.refused("skipped body of another chain", "Another version 3.", alice, replaced,
                       mark=longer.mark(2)),
        hiding.refused("governing record among the skipped bodies",
                       "Version 3; the head does not link to it.", alice, hides, mark=hiding.mark(2)),
        story.refused("governing record as if it were none", "The head, a change of type.", stage.bob,
                      as_head),
        story.refused("record that does not govern among those that do", "Version 2.", alice, replace(
            typed, governing=[typed.governing[0], plain, *typed.governing[1:]])),
        retyped.refused("governing record left out", "Version 3, a change of type, before another.", alice,
                        replace(again, governing=[again.governing[0], again.governing[2]])),
        after.refused("all later governing records left out", "The head links to version 3.", alice,
                      cut_short),
    ]  # fmt: skip


def _withheld(stage: Stage, story: Served, closed: Served) -> list[Vector]:
    alice, bob, dora, erin = stage.alice, stage.bob, stage.dora, stage.erin
    whole, dora_sees = story.view(alice, count=5), story.view(dora, count=5)
    head = story.view(bob, count=2)
    assert head.head is not None
    signature = bytearray(head.head.signature)
    signature[100] ^= 1
    assert whole.type is not None
    flipped = (whole.header or b"")[:-1] + bytes([(whole.header or b"")[-1] ^ 1])

    info = wrap_info(stage.box.id, governing_of(stage.renewed.record), dora.fingerprint, 0)
    again = wrap_key(decryption_key("dora").public, info, stage.box.key(5))
    first = closed.history[0].record
    info = wrap_info(closed.box.id, governing_of(first), erin.fingerprint, 0)
    hers = wrap_key(decryption_key("erin").public, info, closed.box.key(1))
    box = Container("mixed", alice)
    commitment = {"keyCommitment": key_commitment(box.id, chosen("another container key"))}
    made = box.create(day(1), [Grant(alice, ALL), Grant(dora, READ)], governing=commitment)
    mixed = Served(box, [made], {1: "note"})
    partly = closed.view(bob, 2, hidden=("carol", "dora", "erin"))
    listed = partly.governing[0].accessList
    assert listed is not None
    hashes = bytearray(listed.entryHashes)
    at = next(n for n in range(5) if n not in {item.position for item in listed.disclosed})
    hashes[32 * at] ^= 1
    partly = replace(partly, governing=[replace(
        partly.governing[0], accessList=replace(listed, entryHashes=bytes(hashes)))])  # fmt: skip
    first_list, second = whole.governing[0], whole.governing[2]
    return [
        story.refused("another wrap of the same key", "It opens, and its hash is not in the entry.", dora,
                      replace(dora_sees, wrap=again)),
        closed.refused("another list of the mark's governing record", "The hash of a hidden entry.", bob,
                       partly, mark=closed.mark(2)),
        story.refused("entry withheld", "Dora has ViewAccess.", dora, count=5, hidden=("carol",)),
        closed.refused("entry of the reader withheld", "Bob's own.", bob,
                       hidden=("bob", "carol", "dora", "erin")),
        story.refused("wrap withheld", "Dora has Decrypt.", dora, replace(dora_sees, wrap=None)),
        story.refused("wrap of another reader", "Alice's, for Dora.", dora,
                      replace(dora_sees, wrap=whole.wrap)),
        closed.refused("no wrap in the list", "Erin has Decrypt and no wrapHash; the wrap served is for her.",
                       erin, replace(closed.view(erin), wrap=hers)),
        mixed.refused("another container key", "Dora's wrap is of another key than keyCommitment says.",
                      dora),
        story.refused("header withheld", "Dora has Download.", dora, replace(dora_sees, header=None)),
        story.refused("content withheld", "Dora has Download.", dora, replace(dora_sees, content=None)),
        story.refused("type withheld", "Alice has ViewType.", alice, replace(whole, type=None)),
        story.refused("another type", "The text is another one.", alice,
                      replace(whole, type=replace(whole.type, type="other"))),
        story.refused("another salt of the type", "The text is the same.", alice,
                      replace(whole, type=replace(whole.type, salt=bytes(32)))),
        story.refused("header changed", "The last bit.", alice, replace(whole, header=flipped)),
        story.refused("content as header", "In its place.", alice, replace(whole, header=whole.content)),
        story.refused("first list left out", "Nothing says who may write.", alice, replace(
            whole, governing=[replace(first_list, accessList=None), *whole.governing[1:]])),
        story.refused("later list left out", "Nothing says who may write from version 4 on.", alice, replace(
            whole, governing=[*whole.governing[:2], replace(second, accessList=None), *whole.governing[3:]])),
        story.refused("signature of the head changed", "A bit of the ML-DSA half.", bob,
                      replace(head, head=replace(head.head, signature=bytes(signature)))),
    ]  # fmt: skip


def _deleted(stage: Stage, story: Served) -> list[Vector]:
    alice, dora = stage.alice, stage.dora
    gone, nothing = story.view(dora, hidden=("carol", "dora")), (6, None, None, None)
    other, hides = (
        chosen("another hash"),
        {"governingVersion": 3, "governingHash": stage.typed.hash},
    )
    return [
        story.reads("deleted", "A fresh reader; only the authors' entries are disclosed.", dora, nothing,
                    gone, deleted=True, complete=False),
        story.reads("deleted after the mark", "The tombstone follows the mark.", alice, nothing,
                    deleted=True, since=5, mark=story.mark(5)),
        story.reads("deleted, mark at the tombstone", "Nothing is new.", alice, nothing, deleted=True,
                    since=6, mark=story.mark(6)),
        story.refused("deleted, after another record", "The mark's hash is not the parent of version 3.",
                      alice, error=FORK, mark=story.mark(2, hash=other, complete=False)),
        story.refused("deleted, without the mark's governing record", "Version 4 has another hash.", alice,
                      error=FORK, mark=story.mark(4, governingHash=other, complete=False)),
        story.refused("deleted, with a hidden governing record",
                      "Version 4 governs, at the mark of version 4.", alice, error=FORK,
                      mark=story.mark(4, **hides, complete=False)),
        story.refused("deleted, without the right", "The list of the last governing record is missing.", dora,
                      replace(gone, governing=gone.governing[:-1], lastGoverning=4)),
    ]  # fmt: skip


def _departures(stage: Stage, story: Served, closed: Served) -> list[Vector]:
    """Users who left, and what a broker makes of it: section 4.1."""
    alice, bob, carol, dora, erin = stage.alice, stage.bob, stage.carol, stage.dora, stage.erin
    time = day(11)
    alices, bobs, carols = (leave(stage.first, who, time) for who in (alice, bob, carol))
    grants = instead(stage.grants_1(), alice)
    honours = stage.change_access(stage.upto(3), erin, day(12), grants, 1)
    without = Served(stage.box, [*stage.upto(3), honours], story.texts)
    after = without.after(1, alices)
    left = story.after(1, bobs)
    several = sorted((bobs, carols), key=lambda signed: signed.body[55:])
    twice = story.after(1, *several)
    shared = story.after(4, leave(stage.shared, bob, day(13)))
    hidden = ("carol", "dora", "erin")
    carols_closed = leave(closed.history[0], carol, day(2))
    before = story.after(4, leave(stage.first, bob, day(13)))
    half = Signed(bobs.body, carols.signature)
    early = story.after(1, leave(stage.first, bob, day(1) - 1))

    alices_closed = closed.after(1, leave(closed.history[0], alice, day(2)))
    strangers = story.after(1, leave(stage.first, dora, time))
    return [
        left.reads("departure", "Bob left the list in force.", alice, (2, HEADER, UPON, "note"), count=2),
        left.reads("departure, after a change of type", "It comes with the list.", alice,
                   (3, HEADER, UPON, "story"), count=3),
        twice.reads("departures", "Bob and Carol.", alice, (3, HEADER, UPON, "story"), count=3),
        shared.reads("departure from a later list", "Bob left the list of version 4.", alice,
                     (4, HEADER, UPON, "story"), count=4),
        after.reads("departure that the next list honours", "Alice left; Erin has no Delete.", carol,
                    (4, HEADER, UPON, None)),
        after.reads("departure from the list of the mark", "The mark is of version 2.", carol,
                    (4, HEADER, UPON, None), since=2, mark=after.mark(2)),
        left.reads("departure, mark at a change of type", "The view begins at version 3.", alice,
                   (3, HEADER, UPON, "story"), since=3, count=3, mark=left.mark(3)),
        alices_closed.reads("departure of a user who is disclosed", "Alice's, to Bob, who sees authors.", bob,
                            (2, b'{"n":1}', b"closed", None), hidden=hidden, complete=False),
        without.refused("departure withheld", "Alice's, which Erin's list honours.", carol),
        before.refused("departure from the list before", "Bob's, with the list of version 4.", alice,
                       count=4),
        story.after(1, half).refused("departure with another user's signature", "Carol's, for Bob.", alice,
                                     count=2),
        closed.after(1, carols_closed).refused("departure of a hidden user", "Carol's, to Bob.", bob,
                                               hidden=hidden),
        story.after(1, *several[::-1]).refused("departures out of order", "Bob and Carol.", alice, count=3),
        story.after(1, bobs, bobs).refused("departure twice", "Bob's.", alice, count=3),
        early.refused("departure before its list, after the mark", "The mark alone has the list's time.",
                      alice, since=3, count=3, mark=early.mark(3)),
        strangers.refused("departure with a list of a user who is not in it", "Dora.", alice, count=2),
    ]  # fmt: skip


def _unknown_keys(stage: Stage) -> list[Vector]:
    """The reader knows the key chains of people.json."""
    alice, vectors = stage.alice, list[Vector]()
    for index in (0, 1, 256):
        box = Container(f"key {index}", alice)
        grants = [Grant(alice, ALL), Grant(stage.bob, READ, None, index)]
        served = Served(box, [box.create(day(1), grants)], {1: "note"})
        about = f"a user's key index {index}", "Bob has encryption key 0 alone.", alice
        good = (1, None, None, "note")
        vectors.append(served.refused(*about) if index else served.reads(*about, good))
    return vectors


def _deleted_after_a_departure(stage: Stage) -> list[Vector]:
    """All members are authors, so every entry is kept, with the departure that a list honours."""
    alice, bob, erin = stage.alice, stage.bob, stage.erin
    box = Container("left", alice)
    stay = [Grant(bob, ALL), Grant(erin, ADMIN)]
    first = box.create(day(1), [Grant(alice, ALL), *stay])
    second = box.change([first], erin, day(3), stay)
    end = delete([first, second], bob, day(4))
    withheld = Served(box, [first, second, end], {1: "note"})
    gone = withheld.after(1, leave(first, alice, day(2)))
    return [
        gone.reads("deleted, after a departure", "Alice's; Erin has no Delete.", bob, (3, None, None, None),
                   deleted=True),
        withheld.refused("deleted, departure withheld", "Alice's.", bob),
    ]  # fmt: skip
