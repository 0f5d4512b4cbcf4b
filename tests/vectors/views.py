"""Views of a container, the mark of a reader, and what the reader makes of them: container.md, 4, 5 and 8."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from scbroker.crypto.seal import wrap_key
from scbroker.records.container_record import Role, key_commitment, wrap_info
from scbroker.records.judge import governing_of
from scbroker.records.key_record import Signed
from scbroker.wire.containers import ContainerView, GoverningView, SignedRecord
from tests.vectors import views_of_groups
from tests.vectors.cast import MINUTE, Person, chosen, day, decryption_key
from tests.vectors.container_records import ADMIN, ALL, READ, Stage
from tests.vectors.files import FORK, INTEGRITY, ROLLBACK, Vector, invalid, store, valid
from tests.vectors.served import Served, found, given
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
    return [
        valid("fresh, first record", "The head governs.", **given(
            story, alice, story.view(alice, count=1)), **found(1, HEADER, ONCE, "note")),
        valid("fresh, head that does not govern", "Bob has no ViewType.", **given(
            story, bob, story.view(bob, count=2)), **found(2, HEADER, UPON, None)),
        valid("fresh, change of type", "One list for two governing records.", **given(
            story, alice, story.view(alice, count=3)), **found(3, HEADER, UPON, "story")),
        valid("fresh, renewed", "Dora, who was added in version 4.", **given(
            story, dora, story.view(dora, count=5)), **found(5, HEADER, UPON, None)),
        valid("fresh, renewed, with the type", "Alice.", **given(
            story, alice, story.view(alice, count=5)), **found(5, HEADER, UPON, "story")),
        valid("hidden entries", "Bob has no ViewAccess: the mark is not complete.", **given(
            closed, bob, closed.view(bob, hidden=hidden)),
            **found(2, b'{"n":1}', b"closed", None, complete=False)),
        valid("without Download", "Nothing is asked of the view that it cannot have.", **given(
            closed, dora, replace(closed.view(dora, hidden=("bob", "carol", "erin")), header=None,
                                  content=None)),
            **found(2, None, None, None, complete=False)),
        invalid("another container", "The story, asked for under another id.", INTEGRITY, **{
            **given(story, alice, story.view(alice, count=1)), "containerId": chosen("box", size=16)}),
        invalid("reader not in the list", "Dora before she was added, with Alice's view.", INTEGRITY,
                **given(story, dora, story.view(alice, count=3))),
        invalid("time of the future", "More than 15 minutes ahead.", "clock", **given(
            story, alice, story.view(alice, count=1), now=day(1) - 15 * MINUTE - 1)),
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
    return [
        valid("mark before the head", "Version 2, with the bodies in between.", **given(
            story, alice, later, story.mark(2)), **found(5, HEADER, UPON, "story")),
        valid("mark at the head", "Nothing is new.", **given(
            story, alice, same, story.mark(5)), **found(5, HEADER, UPON, "story")),
        valid("mark that is not complete", "All is judged again.", **given(
            story, dora, replace(story.view(dora, 1, count=5), skipped=[]),
            story.mark(5, complete=False)), **found(5, HEADER, UPON, None)),
        valid("mark and skipped bodies", "Version 3 changes nothing that governs.", **given(
            edited, alice, far, edited.mark(2)), **found(4, HEADER, UPON, "note")),
        invalid("rollback", "The mark is of version 5.", ROLLBACK, **given(
            story, alice, story.view(alice, count=3), story.mark(5, complete=False))),
        invalid("fork at the head", "The mark has another hash of version 5.", FORK, **given(
            story, alice, same, story.mark(5, hash=other))),
        invalid("fork before the head", "The mark has another hash of version 2.", FORK, **given(
            story, alice, later, story.mark(2, hash=other))),
        invalid("fork of the governing record", "The mark has another hash of version 1.", FORK, **given(
            story, alice, later, story.mark(2, governingHash=other))),
        invalid("governing record of the mark left out", "The view begins with the next.", FORK, **given(
            story, alice, replace(later, governing=[
                replace(later.governing[1], accessList=later.governing[0].accessList),
                *later.governing[2:]]), story.mark(2))),
        invalid("skipped body left out", "Version 2, the mark's own.", FORK, **given(
            story, alice, cut, story.mark(2))),
        invalid("skipped body left out, in the middle", "Version 3.", FORK, **given(
            edited, alice, replace(far, skipped=far.skipped[:1]), edited.mark(2))),
        invalid("skipped body of another chain", "Another version 3.", INTEGRITY, **given(
            longer, alice, replaced, longer.mark(2))),
        invalid("governing record among the skipped bodies", "Version 3; the head does not link to it.",
                INTEGRITY, **given(hiding, alice, hides, hiding.mark(2))),
        invalid("governing record as if it were none", "The head, a change of type.", INTEGRITY, **given(
            story, stage.bob, replace(story.view(stage.bob, count=2),
                                      head=SignedRecord.of(stage.typed.signed)))),
        invalid("record that does not govern among those that do", "Version 2.", INTEGRITY, **given(
            story, alice, replace(typed, governing=[
                typed.governing[0], GoverningView(record=SignedRecord.of(stage.edit.signed), accessList=None),
                *typed.governing[1:]]))),
        invalid("governing record left out", "Version 3, a change of type, before another.", INTEGRITY,
                **given(retyped, alice, replace(again, governing=[again.governing[0], again.governing[2]]))),
        invalid("all later governing records left out", "The head links to version 3.", INTEGRITY,
                **given(after, alice, replace(later_edit, governing=later_edit.governing[:1],
                                              lastGoverning=1, type=once.type))),
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

    def refused(name: str, comment: str, reader: Person, view: ContainerView,
                served: Served = story) -> Vector:  # fmt: skip
        return invalid(name, comment, INTEGRITY, **given(served, reader, view))

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
    return [
        refused("another wrap of the same key", "It opens, and its hash is not in the entry.", dora,
                replace(dora_sees, wrap=again)),
        invalid("another list of the mark's governing record", "The hash of a hidden entry.", INTEGRITY,
                **given(closed, bob, partly, closed.mark(2))),
        refused("entry withheld", "Dora has ViewAccess.", dora,
                story.view(dora, count=5, hidden=("carol",))),
        refused("entry of the reader withheld", "Bob's own.", bob,
                closed.view(bob, hidden=("bob", "carol", "dora", "erin")), closed),
        refused("wrap withheld", "Dora has Decrypt.", dora, replace(dora_sees, wrap=None)),
        refused("wrap of another reader", "Alice's, for Dora.", dora,
                replace(dora_sees, wrap=whole.wrap)),
        refused("no wrap in the list", "Erin has Decrypt and no wrapHash; the wrap served is for her.",
                erin, replace(closed.view(erin), wrap=hers), closed),
        refused("another container key", "Dora's wrap is of another key than keyCommitment says.", dora,
                mixed.view(dora), mixed),
        refused("header withheld", "Dora has Download.", dora, replace(dora_sees, header=None)),
        refused("content withheld", "Dora has Download.", dora, replace(dora_sees, content=None)),
        refused("type withheld", "Alice has ViewType.", alice, replace(whole, type=None)),
        refused("another type", "The text is another one.", alice,
                replace(whole, type=replace(whole.type, type="other"))),
        refused("another salt of the type", "The text is the same.", alice,
                replace(whole, type=replace(whole.type, salt=bytes(32)))),
        refused("header changed", "The last bit.", alice, replace(whole, header=flipped)),
        refused("content as header", "In its place.", alice, replace(whole, header=whole.content)),
        refused("first list left out", "Nothing says who may write.", alice, replace(
            whole, governing=[replace(whole.governing[0], accessList=None), *whole.governing[1:]])),
        refused("later list left out", "Nothing says who may write from version 4 on.", alice, replace(
            whole, governing=[*whole.governing[:2], replace(whole.governing[2], accessList=None),
                              *whole.governing[3:]])),
        refused("signature of the head changed", "A bit of the ML-DSA half.", bob,
                replace(head, head=replace(head.head, signature=bytes(signature)))),
    ]  # fmt: skip


def _deleted(stage: Stage, story: Served) -> list[Vector]:
    alice, dora = stage.alice, stage.dora
    gone, marked = story.view(dora, hidden=("carol", "dora")), story.view(alice, 5)
    nothing = found(6, None, None, None, complete=False)
    all_seen = found(6, None, None, None)
    other = chosen("another hash")
    return [
        valid("deleted", "A fresh reader; only the authors' entries are disclosed.", deleted=True,
              **given(story, dora, gone), **nothing),
        valid("deleted after the mark", "The tombstone follows the mark.", deleted=True,
              **given(story, alice, marked, story.mark(5)), **all_seen),
        valid("deleted, mark at the tombstone", "Nothing is new.", deleted=True,
              **given(story, alice, story.view(alice, 6), story.mark(6)), **all_seen),
        invalid("deleted, after another record", "The mark's hash is not the parent of version 3.", FORK,
                **given(story, alice, story.view(alice), story.mark(
                    2, hash=other, complete=False))),
        invalid("deleted, without the mark's governing record", "Version 4 has another hash.", FORK,
                **given(story, alice, story.view(alice), story.mark(
                    4, governingHash=other, complete=False))),
        invalid("deleted, with a hidden governing record", "Version 4 governs, at the mark of version 4.",
                FORK, **given(story, alice, story.view(alice), story.mark(
                    4, governingVersion=3, governingHash=stage.typed.hash, complete=False))),
        invalid("deleted, without the right", "The list of the last governing record is missing.",
                INTEGRITY, **given(story, dora, replace(gone, governing=gone.governing[:-1],
                                                       lastGoverning=4))),
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

    def refused(name: str, comment: str, served: Served, reader: Person, view: ContainerView,
                mark: dict[str, Any] | None = None) -> Vector:  # fmt: skip
        return invalid(name, comment, INTEGRITY, **given(served, reader, view, mark))

    return [
        valid("departure", "Bob left the list in force.", **given(
            left, alice, left.view(alice, count=2)), **found(2, HEADER, UPON, "note")),
        valid("departure, after a change of type", "It comes with the list.", **given(
            left, alice, left.view(alice, count=3)), **found(3, HEADER, UPON, "story")),
        valid("departures", "Bob and Carol.", **given(
            twice, alice, twice.view(alice, count=3)), **found(3, HEADER, UPON, "story")),
        valid("departure from a later list", "Bob left the list of version 4.", **given(
            shared, alice, shared.view(alice, count=4)), **found(4, HEADER, UPON, "story")),
        valid("departure that the next list honours", "Alice left; Erin has no Delete.", **given(
            after, carol, after.view(carol)), **found(4, HEADER, UPON, None)),
        valid("departure from the list of the mark", "The mark is of version 2.", **given(
            after, carol, after.view(carol, 2), after.mark(2)), **found(4, HEADER, UPON, None)),
        valid("departure, mark at a change of type", "The view begins at version 3.", **given(
            left, alice, left.view(alice, 3, count=3), left.mark(3)), **found(3, HEADER, UPON, "story")),
        valid("departure of a user who is disclosed", "Alice's, to Bob, who sees authors.", **given(
            closed.after(1, leave(closed.history[0], alice, day(2))), bob,
            closed.after(1, leave(closed.history[0], alice, day(2))).view(bob, hidden=hidden)),
            **found(2, b'{"n":1}', b"closed", None, complete=False)),
        refused("departure withheld", "Alice's, which Erin's list honours.", without, carol,
                without.view(carol)),
        refused("departure from the list before", "Bob's, with the list of version 4.",
                before, alice, before.view(alice, count=4)),
        refused("departure with another user's signature", "Carol's, for Bob.", story.after(1, half),
                alice, story.after(1, half).view(alice, count=2)),
        refused("departure of a hidden user", "Carol's, to Bob.", closed.after(1, carols_closed), bob,
                closed.after(1, carols_closed).view(bob, hidden=hidden)),
        refused("departures out of order", "Bob and Carol.", story, alice,
                story.after(1, *several[::-1]).view(alice, count=3)),
        refused("departure twice", "Bob's.", story, alice,
                story.after(1, bobs, bobs).view(alice, count=3)),
        refused("departure before its list, after the mark", "The mark alone has the list's time.",
                early, alice, early.view(alice, 3, count=3), early.mark(3)),
        refused("departure with a list of a user who is not in it", "Dora.",
                story.after(1, leave(stage.first, dora, time)), alice,
                story.after(1, leave(stage.first, dora, time)).view(alice, count=2)),
    ]  # fmt: skip


def _unknown_keys(stage: Stage) -> list[Vector]:
    """The reader knows the key chains of people.json."""
    alice, vectors = stage.alice, list[Vector]()
    for index, result in ((0, valid), (1, invalid), (256, invalid)):
        box = Container(f"key {index}", alice)
        grants = [Grant(alice, ALL), Grant(stage.bob, READ, None, index)]
        served = Served(box, [box.create(day(1), grants)], {1: "note"})
        fields = given(served, alice, served.view(alice))
        name, comment = f"a user's key index {index}", "Bob has encryption key 0 alone."
        if result is valid:
            vectors.append(valid(name, comment, **fields, **found(1, None, None, "note")))
        else:
            vectors.append(invalid(name, comment, INTEGRITY, **fields))
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
        valid("deleted, after a departure", "Alice's; Erin has no Delete.", deleted=True,
              **given(gone, bob, gone.view(bob)), **found(3, None, None, None)),
        invalid("deleted, departure withheld", "Alice's.", INTEGRITY,
                **given(withheld, bob, withheld.view(bob))),
    ]  # fmt: skip
