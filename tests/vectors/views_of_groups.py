"""Views that are read or were written through a group: docs/spec/groups.md, 6, 7 and 12."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec.structs import replace

from scbroker.records import roster
from scbroker.records.canonical import uuid8
from scbroker.records.roster import MembershipProof
from scbroker.wire.codec import encode
from scbroker.wire.containers import ContainerView, GoverningView, SignedRecord, TypeText
from scbroker.wire.groups import GroupMembership, GroupRecord, GroupView
from scbroker.wire.rosters import GroupState, Leaf, Membership
from tests.vectors.cast import Person, chosen, day
from tests.vectors.files import FORK, ROLLBACK, Vector
from tests.vectors.groups import READER, Group, Seat, Step
from tests.vectors.served import NOW, Found, Served, key_chains, list_view
from tests.vectors.story import Grant, Made
from tests.vectors.through_groups import ALL, READ, Through


class Shared(Served):
    """What an honest broker knows of a container, and of the team that acts in it."""

    def __init__(self, world: Through, history: Sequence[Made], team: int | list[Step]) -> None:
        super().__init__(world.box, history, {1: "note"})
        self.world = world
        self.team = world.team.upto(team) if isinstance(team, int) else team

    def names(self) -> dict[bytes, str]:
        return {**super().names(), self.world.group.fingerprint: "team"}

    def view(
        self, reader: Person, since: int = 1, hidden: Sequence[str] = (), count: int | None = None,
        *, alone: bool = False,
    ) -> ContainerView:  # fmt: skip
        """The view of a member through the team, or by their own entry."""
        view = super().view(reader, since, hidden, count)
        listed = [made.listed for made in self.history if made.access is not None][-1]
        group = self.world.group
        text = TypeText(salt=self.box.type_salt("note"), type="note")
        proofs = [self._proved(item) for item in view.governing]
        return replace(
            view,
            governing=proofs,
            wrap=listed.wraps.get(reader.name if alone else group.name),
            type=text,
            via=None if alone else str(uuid8(group.fingerprint)),
            headMembership=None if view.head is None else self._proof(self.history[-1]),
            groupChains=[self.state()],
            groups=[str(uuid8(group.fingerprint))],
        )

    def _proved(self, item: GoverningView) -> GoverningView:
        [made] = [one for one in self.history if one.signed.body == item.record.body]
        via, standing = made.record.via, None
        latest = self.latest
        if via is not None and made.record.changes_access and via.epoch < latest.roster.epoch:
            standing = _prove(latest, made.record.author)
        return replace(item, membership=self._proof(made), standing=standing)

    def _proof(self, made: Made) -> Membership | None:
        via = made.record.via
        if via is None:
            return None
        return _prove(self.world.step(via.version), made.record.author)

    def given(
        self, reader: Person, view: ContainerView, mark: dict[str, Any] | None = None, now: int = NOW,
        *, member: bool = True, group: GroupView | None = None, **_: Any,
    ) -> dict[str, Any]:  # fmt: skip
        group = group or self.group_view(reader if member else None)
        groups = {str(uuid8(self.world.group.fingerprint)): encode(group)}
        return {**super().given(reader, view, mark, now), "groups": groups}

    @property
    def latest(self) -> Step:
        return self.team[-1]

    def state(self) -> GroupState:
        group = uuid8(self.world.group.fingerprint)
        step = self.latest
        return GroupState(
            groupId=str(group), version=step.version, epoch=step.roster.epoch, owed=False
        )

    def group_view(self, reader: Person | None) -> GroupView:
        """The team, as the broker serves it to a member or to an outsider."""
        return GroupView(
            records=[_record(step) for step in self.team],
            last=self.latest.version,
            keyChains=key_chains(),
            membership=None if reader is None else self._membership(reader),
        )

    def _membership(self, reader: Person) -> GroupMembership | None:
        step, group = self.latest, self.world.group
        seats = [seat for seat in step.seats if seat.person is reader]
        if not seats:
            return None
        return GroupMembership(
            leaves=[Leaf.of(leaf) for leaf in step.leaves],
            wrap=_wrap(group, step.roster.epoch, seats[0]),
            info=step.info,
            departures=[],
            owed=[],
            accepted=True,
        )


@cache
def _wrap(group: Group, epoch: int, seat: Seat) -> bytes:
    """One wrap for all vectors: so they share what is served of the group."""
    return group.wrap(epoch, seat)


def _prove(step: Step, fingerprint: bytes) -> Membership | None:
    places = [n for n, leaf in enumerate(step.leaves) if fingerprint in leaf.member]
    return Membership.of(roster.prove(step.leaves, places)[0]) if places else None


def _record(step: Step) -> GroupRecord:
    """A record of the group with what it changes."""
    access = step.made.access
    return GroupRecord(
        record=SignedRecord.of(step.made.signed),
        accessList=None if access is None else list_view(access.salted),
        type=TypeText(salt=step.salt, type=step.text) if step.introduces else None,
        roster=step.stored if step.introduces else None,
    )


def vectors(views: dict[str, bytes]) -> list[Vector]:
    """The vectors; `views` gets what is served of the groups, by the names that the vectors use."""
    world = Through()
    made = [
        *_read(world), *_marked(world), *_unsettled(world), *_withheld(world), *_other_groups(world),
    ]  # fmt: skip
    names: dict[bytes, str] = {}
    for vector in made:
        served = vector["groups"]
        for octets in served.values():
            names.setdefault(octets, f"view {len(names) + 1}")
        vector["groups"] = {group: names[octets] for group, octets in served.items()}
    views.update({name: octets for octets, name in names.items()})
    return made


ALONE: dict[str, Any] = {"alone": True, "group": {"member": False}}
"""For readers by their own entry, who are served no membership."""


def opened(version: int, content: str | None) -> Found:
    return version, None, None if content is None else content.encode(), "note"


@cache
def edited(world: Through) -> list[Made]:
    """Alice creates, Bob and Erin edit through the team."""
    second = world.via(2)
    one = world.edit([world.first], world.bob, day(3), second)
    two = world.edit([world.first, one], world.erin, day(4), second)
    return [world.first, one, two]


def _read(w: Through) -> list[Vector]:
    history = edited(w)
    story = Shared(w, history, 4)
    vectors = [
        story.reads(f"read through a group, a {role}", f"{reader.name.capitalize()}.", reader,
                    opened(3, "content 3"))
        for role, reader in (("reader", w.dora), ("writer", w.bob), ("sharer", w.carol))
    ]  # fmt: skip
    later = Shared(w, history, 6)
    direct = w.begin(Grant(w.alice, ALL), w.own(), Grant(w.dora, READ | 64))
    alone = Shared(w, [direct, w.edit([direct], w.bob, day(3), w.via(2))], 6)
    hidden = Shared(w, [w.begin(Grant(w.alice, ALL), w.own(0, 3))], 4)
    renewed = w.change(history[:1], w.bob, day(5), [Grant(w.alice, ALL), w.own(1)],
                       w.via(5))  # fmt: skip
    newer = Shared(w, [w.first, renewed], 6)
    view = replace(hidden.view(w.carol, hidden=("alice",)), type=None)
    return [
        *vectors,
        later.reads("read through a group, an older epoch in the list", "The info has its secret.", w.carol,
                    opened(3, "content 3")),
        newer.reads("read through a group, a renewed list", "It names epoch 1 of 3.", w.carol,
                    opened(2, None)),
        story.reads("read by the own entry, written through a group", "Alice.", w.alice,
                    opened(3, "content 3"), **ALONE),
        alone.reads("read by the own entry, by an outsider", "Dora, after she was removed from the team.",
                    w.dora, opened(2, "content 2"), **ALONE),
        hidden.reads("read through a group, hidden entries", "The entry of the team has no ViewAccess.",
                     w.carol, (1, None, None, None), view, complete=False),
    ]  # fmt: skip


def _marked(w: Through) -> list[Vector]:
    history = edited(w)
    story = Shared(w, history, 4)
    far = [*history]
    for n in range(2):
        far.append(w.edit(far, w.bob, day(4) + (n + 1) * 1000, w.via(2)))
    longer = Shared(w, far, 4)
    ended = day(5)
    newer = w.edit([w.first], w.bob, ended + 1000, w.via(5))
    older = w.edit([w.first, newer], w.erin, ended + 2000, w.via(2))
    head = w.edit([w.first, newer, older], w.alice, ended + 3000, None)
    falls = Shared(w, [w.first, newer, older, head], 5)
    return [
        story.reads("read through a group, with a mark", "Version 1 of 3.", w.dora, opened(3, "content 3"),
                    _skipping(story, w.dora), mark=story.mark(1)),
        story.reads("read through a group, mark at the head", "Nothing is new.", w.dora,
                    opened(3, "content 3"), since=3, mark=story.mark(3)),
        longer.reads("read through a group, with skipped bodies", "Version 2 of 5.", w.dora,
                     opened(5, "content 5"), since=2, mark=longer.mark(2)),
        falls.refused("an epoch below the parent's, between mark and head", "0 after 1, in versions 2 and 3.",
                      w.carol, _skipping(falls, w.carol), mark=falls.mark(1)),
    ]  # fmt: skip


def _skipping(story: Shared, reader: Person) -> ContainerView:
    """A view for a mark of version 1, with the bodies in between."""
    skipped = [made.signed.body for made in story.history[1:-1]]
    return replace(story.view(reader), skipped=skipped)


def _unsettled(w: Through) -> list[Vector]:
    """Carol and Alice changed access in epoch 0, as sharers."""
    group, dora = w.group, w.dora
    grants = [Grant(w.alice, ALL), w.own(), Grant(dora, READ)]
    second = w.via(2)
    by_carol = w.change([w.first], w.carol, day(3), grants, second)
    by_alice = w.change([w.first], w.alice, day(3), grants, second)
    joined = [*w.step(6).seats, Seat(dora, READER, 0, 7)]
    longer = w.team.upto(6)
    longer.append(group.follow(longer, w.bob, day(8), seats=joined))
    again = w.change([w.first, by_carol], w.alice, day(4), grants[:2], None)

    def reads(
        name: str, comment: str, last: Sequence[Made], team: int | list[Step], unsettled: int | None,
        mark: int | None = 1, standing: MembershipProof | bool | None = True,
    ) -> Vector:  # fmt: skip
        story = Shared(w, [w.first, *last], team)
        view = story.view(w.alice, mark or 1, alone=True)
        if standing is not True:
            proof = None if not standing else Membership.of(standing)
            *before, changed = view.governing
            view = replace(view, governing=[*before, replace(changed, standing=proof)])
        marks = None if mark is None else story.mark(mark)
        found = opened(len(story.history), None)
        vector = story.reads(
            name, comment, w.alice, found, view, mark=marks, group={"member": False}
        )
        return {**vector, "unsettled": unsettled}

    return [
        reads("unsettled access by one whose role fell", "Carol was a sharer.", [by_carol], 6, 2),
        reads("unsettled access by one who was removed", "Carol; Alice is alone now.", [by_carol], 9, 2),
        reads("unsettled access, then another change", "By Alice, who acted alone and saw it.",
              [by_carol, again], 6, 2),
        reads("settled access, the epoch has not ended", "Carol's, in epoch 0.", [by_carol], 4, None),
        reads("settled access, without a mark", "A fresh reader cannot tell.", [by_carol], 6, None, None),
        reads("settled access, at the mark", "The device has read it before.", [by_carol], 6, None, 2),
        reads("settled access, the author is a sharer still", "Alice, in epoch 2.", [by_alice], 6, None),
        reads("unsettled access without a proof", "Of Alice's leaf.", [by_alice], 6, 2, standing=False),
        reads("unsettled access, the proof of an ended epoch", "Alice's leaf of epoch 1.", [by_alice], 6, 2,
              standing=group.prove(w.step(5), w.alice)),
        reads("unsettled access, the proof of another member", "Bob's leaf of epoch 2.", [by_alice], 6, 2,
              standing=group.prove(w.step(6), w.bob)),
        reads("settled access, a proof of an earlier roster of the epoch", "Of version 6, where 7 has Dora.",
              [by_alice], longer, None, standing=group.prove(w.step(6), w.alice)),
    ]  # fmt: skip


def _withheld(w: Through) -> list[Vector]:
    dora, history = w.dora, edited(w)
    story = Shared(w, history, 4)
    view = story.view(dora)
    other = Membership.of(w.group.prove(w.step(5), w.bob))
    grants = [Grant(w.alice, ALL), w.own()]
    shared = w.change([w.first], w.carol, day(3), grants, w.via(2))
    changed = Shared(w, [w.first, shared], 4)
    whole = changed.view(dora)
    unproved = replace(
        whole, governing=[whole.governing[0], replace(whole.governing[1], membership=None)]
    )
    later = w.edit([w.first], w.bob, day(7), w.via(6))
    by_bob = Shared(w, [w.first, later], 6)
    one = Shared(w, [w.first], 4)
    unwrapped = w.begin(Grant(w.alice, ALL), Grant(w.group, ALL, None, 0, wrapped=False))
    without = Shared(w, [unwrapped], 4)
    served_one = replace(without.view(dora), wrap=w.first.listed.wraps["team"])
    return [
        story.refused("membership of the head's author withheld", "Erin's.", dora,
                      replace(view, headMembership=None)),
        changed.refused("membership of a governing record's author withheld", "Carol's.", dora, unproved),
        by_bob.refused("membership for another version", "Bob's in the roster of version 5.", w.carol,
                       replace(by_bob.view(w.carol), headMembership=other)),
        story.refused("wrap of another entry", "Alice's, for the team.", dora,
                      replace(view, wrap=w.first.listed.wraps["alice"])),
        story.refused("wrap of the group withheld", "The team has Decrypt.", dora, replace(view, wrap=None)),
        without.refused("no wrap for the group in the list", "Decrypt without wrapHash.", dora, served_one),
        story.refused("type withheld from a member", "The team has ViewType.", dora,
                      replace(view, type=None)),
        story.refused("entry withheld from a member", "Alice's; the team has ViewAccess.", dora,
                      hidden=("alice",)),
        one.refused("entry of the group withheld", "The team's own.", dora, hidden=("team",)),
        one.reads("read through a group, the first record", "Nobody has acted through it.", dora,
                  opened(1, None)),
        changed.reads("read through a group, a change of access through it", "Carol's.", dora,
                      opened(2, None), whole),
    ]  # fmt: skip


def _other_groups(w: Through) -> list[Vector]:
    """What a broker serves of the group itself."""
    ended = day(5)
    newer = w.edit([w.first], w.bob, ended, w.via(5))
    story = Shared(w, [w.first, newer], 5)
    older = Shared(w, [w.first, newer], 4).group_view(None)
    forked = w.edit([w.first], w.bob, ended, w.via(5, hash=chosen("no record")))
    fork = Shared(w, [w.first, forked], 5)
    first, second = (Shared(w, [w.begin(Grant(w.alice, ALL), w.own(epoch))], 5) for epoch in (1, 2))
    served = story.group_view(w.carol)
    assert served.membership is not None
    shown = replace(served, membership=replace(served.membership, info=w.step(1).info))
    unknown = story.refused("a group that is not served", "The broker does not know the team.", w.alice,
                            **ALONE)  # fmt: skip
    return [
        story.reads("a via of the newest version", "5.", w.alice, opened(2, "content 2"), **ALONE),
        story.refused("rollback of a group by a via", "Version 5 is named, and 4 are served.", w.alice,
                      error=ROLLBACK, alone=True, group={"group": older}),
        story.reads("read through a group, in its second epoch", "Carol.", w.carol, opened(2, "content 2")),
        fork.refused("fork of a group by a via", "Another hash of version 5.", w.alice, error=FORK, **ALONE),
        {**unknown, "groups": {}},
        first.reads("the latest epoch in the list", "1, of the team.", w.alice, opened(1, None), **ALONE),
        second.refused("an epoch that does not exist", "2, of the team, whose latest is 1.", w.alice,
                       **ALONE),
        story.refused("another info of the group", "That of epoch 0.", w.carol, group={"group": shown}),
    ]  # fmt: skip
