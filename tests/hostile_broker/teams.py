"""What a hostile broker serves of groups, and of containers that groups can reach, made from records by hand.

    stage = Stage(mallory, carol, [story], [team])
    with stage:
        mallory.check_refused(device, story, FORK)

A stage answers one reader's requests for its containers and groups by itself: the broker behind the layer
never hears of them, so that its own rules do not stand in the way. All other requests pass. Who signed what
is as in `tests.kit`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Self

from scbroker import AccessLevel, ContainerAccessLevel, ServerProvider
from scbroker.client.groups.opening import OpenGroup
from scbroker.errors import NotFoundError
from scbroker.records import roster as grammar
from scbroker.records.canonical import user_id_of, uuid8
from scbroker.records.container_record import ContainerRecord, bare_body, parse_entry
from scbroker.records.judge import Known
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import (
    Bodies,
    ContainerView,
    GoverningPage,
    GoverningView,
    ListView,
    RecordReceipt,
    SignedRecord,
    TypeText,
)
from scbroker.wire.groups import (
    GroupMembership,
    GroupOutcome,
    GroupRecord,
    GroupView,
    GroupViewRequest,
    GroupViews,
)
from scbroker.wire.problems import item_problem_of
from scbroker.wire.rosters import GroupState, Leaf, Membership
from scbroker.wire.users import KeyChainState
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import BODIES, GOVERNING, GROUPS, RECORD, VIEW
from tests.hostile_broker.served import same
from tests.kit.groups import SHARER, Group
from tests.kit.waiting import PATIENCE, on_io_thread
from tests.kit.writers import Story, User

Lie = Callable[[Any], Any]


def fork(team: Group) -> Group:
    """A copy of the group so far, for forged records that are not to become part of the original."""
    return replace(
        team,
        records=list(team.records),
        requests=list(team.requests),
        states=list(team.states),
        parts=dict(team.parts),
    )


def team_of(owner: User, members: dict[User, int], **options: Any) -> Group:
    """A group at the broker that all members have accepted."""
    team = Group(owner).created({owner: SHARER, **members}, **options)
    for each in (owner, *members):
        team.accept(each).expect(204)
    return team


def member_device(
    mallory: Mallory, user: User, team: Group, *stories: Story, known: Iterable[User] = ()
) -> ServerProvider:
    """A member's device that has verified the group and these containers, and was started again.

    It has met all users who ever were members, and `known`.
    """
    people = {*known, *(each for state in team.states for each in state.members)}
    device = mallory.device_of(user, *people, store=mallory.new_store())
    with Stage(mallory, user, stories, [team], through=team):
        opened_by(device, team)
        for story in stories:
            device.getContainerMetadata(story.uuid).result(PATIENCE)
    return mallory.restarted(device)


def proof_of(team: Group, version: int, user: User | bytes) -> Membership | None:
    """The proof that a user is a member as of this version; None if they are not."""
    state, name = team.states[version - 1], user if isinstance(user, bytes) else user.name
    leaves = state.leaves
    names = [grammar.parse_member(leaf.member).fingerprint for leaf in leaves]
    if name not in names:
        return None
    return Membership.of(grammar.prove(leaves, [names.index(name)])[0])


def view_of_group(
    team: Group, reader: User, asked: GroupViewRequest, departures: Sequence[SignedObject] = ()
) -> GroupView:
    """What is served of a group, with the membership of a reader who has a leaf."""
    last = team.head.version
    first = min(asked.since, last)
    found: list[GroupRecord] = []
    lists, texts = set[int](), 0
    for record, request in list(zip(team.records, team.requests, strict=True))[first - 1 :]:
        access = text = roster = None
        if record.governing is not None:
            version, typed = record.governing.accessVersion, _typed(team, record.version)
            if version not in lists:
                lists.add(version)
                access = list_view(team, version)
            if typed != texts:
                texts, text = typed, team.requests[typed - 1].type
                sent = team.requests[typed - 1].roster
                roster = None if sent is None else sent.roster
        found.append(
            GroupRecord(record=request.record, accessList=access, type=text, roster=roster)
        )
    membership = None
    if asked.membership and reader in team.state.members and not team.head.tombstone:
        membership = GroupMembership(
            leaves=[Leaf.of(leaf) for leaf in team.state.leaves],
            wrap=_secret_wrap(team, reader),
            info=team.state.info,
            departures=list(departures),
            owed=[],
            accepted=True,
        )
    authors = {record.author for record in team.records[first - 1 :]}
    return GroupView(records=found, last=last, keyChains=chains(authors), membership=membership)


def _typed(team: Group, version: int) -> int:
    """The version of the record that introduced the type in force."""
    return max(n for n in range(1, version + 1) if team.requests[n - 1].type is not None)


def _secret_wrap(team: Group, reader: User) -> bytes | None:
    for request in reversed(team.requests):
        for item in request.roster.wraps if request.roster else ():
            if item.fingerprint == reader.name:
                return item.wrap
    return None


def list_view(story: Story, version: int) -> ListView:
    entries = [item.salted for item in story.requests[version - 1].accessList or ()]
    return ListView.of(entries, range(len(entries)))


def chains(fingerprints: Collection[bytes]) -> list[KeyChainState]:
    """The key chains of users who have the keys of their registration."""
    ids = sorted(str(user_id_of(name)) for name in fingerprints)
    return [KeyChainState(userId=user_id, sequence=1) for user_id in ids]


@dataclass
class Stage:
    """The containers and groups that one reader is served."""

    mallory: Mallory
    reader: User
    stories: Sequence[Story] = ()
    teams: Sequence[Group] = ()
    unserved: Sequence[Group] = ()
    """Other histories of a group, for the proofs of who acted as of one of their versions."""
    through: Group | None = None
    """The group by whose entry the reader reads; None if they have an entry of their own."""
    departures: Mapping[Group, Sequence[SignedObject]] = field(default_factory=dict)
    view: Lie = same
    """Changes each view of a container."""
    group: Lie = same
    """Changes each view of a group."""

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        for name, rule in (
            (VIEW, self._serve_view),
            (GOVERNING, self._serve_governing),
            (BODIES, self._serve_bodies),
            (GROUPS, self._serve_groups),
            (RECORD, self._take),
        ):
            self._stack.enter_context(self.mallory.meddling(name, before=rule))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _serve_view(self, exchange: Exchange) -> None:
        story = self._story(exchange)
        if story is not None:
            since = _query(exchange).get("since")
            exchange.invent(self.view(self.view_of(story, int(since) if since else None)))

    def _serve_governing(self, exchange: Exchange) -> None:
        story = self._story(exchange)
        if story is not None:
            query = _query(exchange)
            versions = range(int(query["from"]), int(query["to"]) + 1)
            exchange.invent(GoverningPage(governing=self._governing(story, versions)))

    def _serve_bodies(self, exchange: Exchange) -> None:
        story = self._story(exchange)
        if story is not None:
            query = _query(exchange)
            first = int(query["from"])
            bodies = [request.record.body for request in story.requests[first - 1 :]]
            exchange.invent(Bodies(bodies=bodies[: int(query["count"])]))

    def _serve_groups(self, exchange: Exchange) -> None:
        known = {team.group_id: team for team in self.teams}
        answers = []
        for asked in exchange.message.groups:
            team = known.get(asked.groupId)
            if team is None:
                problem = item_problem_of(NotFoundError(""))
                answers.append(GroupOutcome(view=None, problem=problem))
                continue
            left = self.departures.get(team, ())
            view = self.group(view_of_group(team, self.reader, asked, left))
            answers.append(GroupOutcome(view=view, problem=None))
        exchange.invent(GroupViews(groups=answers))

    def _take(self, exchange: Exchange) -> None:
        """Confirm a record without storing it."""
        if self._story(exchange) is not None:
            record = Known.parse(exchange.message.record.body)
            exchange.invent(RecordReceipt(version=record.record.version, hash=record.hash), 201)

    def _story(self, exchange: Exchange) -> Story | None:
        named = exchange.path.split("/")[3]
        return next((story for story in self.stories if str(story.uuid) == named), None)

    def view_of(self, story: Story, since: int | None) -> ContainerView:
        """The view that an honest broker would serve, if it had taken these records."""
        head, request = story.head, story.requests[-1]
        first = 1
        if since is not None:
            past = min(since, story.governing.version)
            first = max(r.version for r in story.records if r.governing and r.version <= past)
        governing = self._governing(story, range(first, head.version + 1))
        access = story.governing.governing
        assert access is not None
        entries = {
            parse_entry(item.entry).fingerprint: item
            for item in story.requests[access.accessVersion - 1].accessList or ()
        }
        reader = self.reader if self.through is None else self.through
        listed = [team for team in self.teams if team.name in entries]
        vias = [record.via for record in story.records if record.via is not None]
        known = {team.name: team for team in self.teams}
        skipped = [] if since is None else range(since, head.version)
        bodies = [
            story.requests[n - 1].record.body for n in skipped if not story.records[n - 1].governing
        ]
        own = entries.get(reader.name)
        return ContainerView(
            governing=governing,
            lastGoverning=story.governing.version,
            head=None if head.governing is not None else request.record,
            skipped=[] if head.tombstone else bodies,
            wrap=own.wrap if own else None,
            type=self._type(story),
            header=self._sealed(story, "header"),
            content=self._sealed(story, "content"),
            keyChains=chains({record.author for record in story.records}),
            via=None if self.through is None else self.through.group_id,
            headMembership=self._membership(head),
            groupChains=[
                self._state(known[name]) for name in sorted({v.group for v in vias} & known.keys())
            ],
            groups=sorted(team.group_id for team in listed),
            groupRecipients=[
                self._state(team)
                for team in listed
                if parse_entry(entries[team.name].entry).keyIndex < team.state.epoch
            ],
        )

    def _governing(self, story: Story, versions: range) -> list[GoverningView]:
        found: list[GoverningView] = []
        lists = set[int]()
        for record in story.records[versions.start - 1 : versions.stop - 1]:
            if record.governing is None:
                continue
            version, access = record.governing.accessVersion, None
            if version not in lists:
                lists.add(version)
                access = list_view(story, version)
            signed = story.requests[record.version - 1].record
            if story.head.tombstone:
                signed = SignedRecord(body=bare_body(signed.body), signature=signed.signature)
            found.append(
                GoverningView(
                    record=signed,
                    accessList=access,
                    membership=self._membership(record),
                    standing=self._standing(record),
                )
            )
        return found

    def _membership(self, record: ContainerRecord) -> Membership | None:
        if record.via is None:
            return None
        for team in (*self.teams, *self.unserved):
            version = record.via.version
            if (
                len(team.records) >= version
                and team.hash(team.records[version - 1]) == record.via.hash
            ):
                return proof_of(team, version, record.author)
        return None

    def _standing(self, record: ContainerRecord) -> Membership | None:
        via = record.via
        team = next((t for t in self.teams if via is not None and t.name == via.group), None)
        if (
            via is None
            or team is None
            or not record.changes_access
            or via.epoch >= team.state.epoch
        ):
            return None
        return proof_of(team, team.head.version, record.author)

    def _state(self, team: Group) -> GroupState:
        return GroupState(
            groupId=team.group_id, version=team.head.version, epoch=team.state.epoch, owed=False
        )

    def _type(self, story: Story) -> TypeText | None:
        return next((r.type for r in reversed(story.requests) if r.type is not None), None)

    def _sealed(self, story: Story, role: str) -> bytes | None:
        if getattr(story.head, role) is None:
            return None
        found = (getattr(request, role) for request in reversed(story.requests))
        return next((each for each in found if each is not None), None)


def _query(exchange: Exchange) -> dict[str, str]:
    return dict(item.split("=", 1) for item in exchange.query.split("&") if item)


def opened_by(device: ServerProvider, team: Group) -> OpenGroup:
    """Have a device verify and open a group of its user, as any operation through the group does."""
    session = device._current
    assert session is not None
    work = session.groups.opened(uuid8(team.name), fresh=True)
    return on_io_thread(work)


def everything(holder: User | Group) -> AccessLevel:
    """All rights for a user or a group."""
    user_id = holder.uuid if isinstance(holder, Group) else holder.ring.userId
    return AccessLevel(user_id, ContainerAccessLevel.DefaultOwnerPermissions)
