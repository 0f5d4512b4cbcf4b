"""Containers through groups at the broker: who may write and read by a group's entry (groups.md, 6 to 12)."""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from scbroker.records.container_record import Role
from scbroker.records.roster import proven
from scbroker.wire.containers import (
    ContainerList,
    ContainerView,
    ListRequest,
    RecordsAnswer,
    RecordsRequest,
)
from scbroker.wire.parts import Chunks
from tests.kit.brokers import Answer, BrokerProcess, clock
from tests.kit.fixtures import StartBroker
from tests.kit.groups import READER, SHARER, WRITER, Group
from tests.kit.quotas import used
from tests.kit.tables import count_rows, query
from tests.kit.writers import (
    MINUTE,
    OWNER,
    Grant,
    Grants,
    Story,
    User,
    chunks_of,
    delete_user,
    leave,
)
from tests.kit.writers import READER as MAY_READ
from tests.kit.writers import WRITER as MAY_WRITE
from tests.server.conftest import NewUser, Unchanged

LIST = "/v1/containers/list"


class Scene(NamedTuple):
    """A container that its owner shares with a group of a sharer, a writer and a reader."""

    url: str
    """That of the broker's database."""
    story: Story
    group: Group
    owner: User
    sharer: User
    writer: User
    reader: User


@pytest.fixture
def scene(broker: BrokerProcess, new_user: NewUser) -> Scene:
    owner, sharer, writer, reader = (new_user() for _ in range(4))
    group = Group(sharer).created({sharer: SHARER, writer: WRITER, reader: READER})
    story = Story(owner).created({owner: OWNER, group: OWNER}, header=b"header", type="letter")
    return Scene(broker.database_url, story, group, owner, sharer, writer, reader)


def get(user: User, path: str, group: Group | None, query: str = "") -> Answer:
    via = "" if group is None else f"via={group.group_id}&"
    return user.wire.call("GET", f"{path}?{via}{query}")


def view(user: User, story: Story, group: Group | None = None, query: str = "") -> ContainerView:
    return get(user, story.path, group, query).expect(200).message(ContainerView)


# Reading


def test_a_view_proves_the_authors_membership_whether_or_not_it_was_read_before(
    scene: Scene,
) -> None:
    """The broker reads the proof in the snapshot of the records, unless it has it in memory."""
    story, group = scene.story, scene.group
    story.tell(scene.writer, story.follow(scene.writer, content=b"new", via=group))
    first = view(scene.reader, story, group, "content=1")
    assert first.headMembership is not None
    for user, via in ((scene.reader, group), (scene.owner, None)):
        again = view(user, story, via, "content=1")
        assert again.headMembership == first.headMembership
        assert [each.groupId for each in again.groupChains] == [group.group_id]
    group.tell(scene.sharer, group.follow(scene.sharer, remove=[scene.writer]))
    after = view(scene.reader, story, group, "content=1")
    assert after.headMembership == first.headMembership
    [state] = after.groupChains
    assert (state.version, state.epoch) == (2, 1)


def test_of_several_groups_the_broker_takes_the_one_that_leaves_most_permissions(
    new_user: NewUser,
) -> None:
    alice, bob = new_user(), new_user()
    by_id = sorted((Group(alice) for _ in range(3)), key=lambda group: group.id)
    low, high, last = (
        group.created({alice: SHARER, bob: role})
        for group, role in zip(by_id, (READER, WRITER, WRITER), strict=True)
    )
    for group in by_id:
        group.accept(bob).expect(204)
    story = Story(alice).created({alice: OWNER, low: OWNER, high: OWNER, last: OWNER})
    assert view(bob, story).via == high.group_id
    # The entry of `high` allows less now: `low` and `high` leave as much.
    story.tell(alice, story.follow(alice, grants={alice: OWNER, low: OWNER, high: 203}))
    assert view(bob, story).via == low.group_id


@pytest.mark.long
def test_a_user_with_an_entry_of_their_own_reads_by_it_until_it_expires(
    broker: BrokerProcess, scene: Scene
) -> None:
    story, group, writer = scene.story, scene.group, scene.writer
    group.accept(writer).expect(204)
    ends = clock() + 60 * MINUTE
    grants: Grants = {scene.owner: OWNER, group: OWNER, writer: Grant(MAY_READ, ends)}
    story.tell(scene.owner, story.follow(scene.owner, grants=grants))
    assert view(writer, story).via is None
    assert view(writer, story, group).via == group.group_id
    row = "UPDATE members SET expires_at = ? WHERE container_id = ? AND user_id = ?"
    query(broker.database_url, row, clock() - 1, story.id, writer.ring.userId.bytes)
    assert view(writer, story).via == group.group_id


def test_the_container_of_a_group_is_unknown_to_all_operations_on_containers(scene: Scene) -> None:
    group, sharer = scene.group, scene.sharer
    for via in (None, group):
        get(sharer, group.path, via).expect(404, "not-found")
        get(sharer, f"{group.path}/records", via, "from=1&count=1").expect(404, "not-found")
        get(sharer, f"{group.path}/parts/{uuid4()}/hashes", via).expect(404, "not-found")
    found = sharer.wire.call("POST", LIST, ListRequest()).expect(200).message(ContainerList)
    assert [item.containerId for item in found.containers] == [str(scene.story.uuid)]


# Writing


def test_a_change_of_access_in_an_ended_epoch_comes_with_the_standing_of_its_author(
    scene: Scene,
) -> None:
    story, group, sharer = scene.story, scene.group, scene.sharer
    grants: Grants = {scene.owner: OWNER, group: OWNER}
    story.tell(sharer, story.follow(sharer, grants=grants, via=group))
    group.tell(sharer, group.follow(sharer, remove=[scene.reader]))
    last = view(scene.owner, story).governing[-1]
    assert last.standing is not None
    roster = group.state.roster
    assert proven(roster.members, roster.count, last.standing.proof).role == SHARER


class Refusal(NamedTuple):
    code: str
    make: Callable[[Scene, NewUser], tuple[User, Any]]


def _after_departure(scene: Scene, _: NewUser) -> tuple[User, Any]:
    scene.group.leave(scene.writer).expect(204)
    return scene.writer, scene.story.follow(scene.writer, content=b"new", via=scene.group)


def _expired(scene: Scene, _: NewUser) -> tuple[User, Any]:
    grants: Grants = {scene.owner: OWNER, scene.group: Grant(OWNER, clock() + 3_000_000)}
    scene.story.tell(scene.owner, scene.story.follow(scene.owner, grants=grants))
    row = "UPDATE members SET expires_at = ? WHERE container_id = ? AND user_id = ?"
    query(scene.url, row, clock() - 1, scene.story.id, scene.group.id)
    return scene.writer, scene.story.follow(scene.writer, content=b"new", via=scene.group)


def _unknown_group(scene: Scene, _: NewUser) -> tuple[User, Any]:
    missing = Group(scene.owner)
    missing.states.append(scene.group.state)
    grants: Grants = {scene.owner: OWNER, missing: MAY_READ}
    return scene.owner, scene.story.follow(scene.owner, grants=grants)


def _deleted_group(scene: Scene, _: NewUser) -> tuple[User, Any]:
    gone = Group(scene.owner).created()
    gone.tell(scene.owner, gone.follow(scene.owner, tombstone=True))
    grants: Grants = {scene.owner: OWNER, gone: MAY_READ}
    return scene.owner, scene.story.follow(scene.owner, grants=grants)


def _through_deleted(scene: Scene, _: NewUser) -> tuple[User, Any]:
    gone = Group(scene.owner).created()
    grants: Grants = {scene.owner: OWNER, gone: MAY_WRITE}
    scene.story.tell(scene.owner, scene.story.follow(scene.owner, grants=grants))
    via = gone.via
    gone.tell(scene.owner, gone.follow(scene.owner, tombstone=True))
    return scene.owner, scene.story.follow(scene.owner, content=b"new", via=via)


REFUSALS: dict[str, Refusal] = {
    "a member who has left": Refusal("not-found", _after_departure),
    "a group whose entry has expired": Refusal("not-found", _expired),
    "a deleted group": Refusal("not-found", _through_deleted),
    "an unknown group in the list": Refusal("not-found", _unknown_group),
    "a deleted group that was not in the list": Refusal("not-found", _deleted_group),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", REFUSALS)
def test_a_record_through_a_group_is_refused(
    name: str, scene: Scene, new_user: NewUser, unchanged: Unchanged
) -> None:
    code, make = REFUSALS[name]
    author, request = make(scene, new_user)
    with unchanged():
        assert scene.story.send(author, request).code == code


def test_a_writer_learns_which_groups_have_a_new_epoch_or_owe_one(scene: Scene) -> None:
    story, group = scene.story, scene.group
    assert view(scene.owner, story, query="recipients=1").groupRecipients == []
    group.leave(scene.reader).expect(204)
    found = view(scene.sharer, story, group, "recipients=1")
    [owed] = found.groupRecipients
    assert (owed.owed, owed.epoch) == (True, 0)
    assert [each.owed for each in found.groupChains] == [False], "a reader does not need it"
    assert view(scene.owner, story, query="recipients=1").groupRecipients == []
    request = group.follow(scene.sharer, remove=[scene.reader])
    group.tell(scene.sharer, replace(request, departures=1))
    [moved] = view(scene.owner, story, query="recipients=1").groupRecipients
    assert (moved.owed, moved.epoch) == (False, 1)
    assert view(scene.owner, story).groupRecipients == []


@pytest.mark.long
def test_a_broker_limits_the_groups_of_a_list(start_broker: StartBroker, new_user: NewUser) -> None:
    broker = start_broker(max_listed_groups=1)
    alice = new_user(at=broker)
    groups = [Group(alice).created() for _ in range(2)]
    story = Story(alice)
    both = story.begin({alice: OWNER, groups[0]: MAY_READ, groups[1]: MAY_READ})
    story.send(alice, both).expect(413, "too-large")
    story.tell(alice, story.begin({alice: OWNER, groups[0]: MAY_READ}))


@pytest.mark.long
def test_a_group_that_gets_access_counts_as_its_members_unless_the_author_is_one(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker(max_new_grants=2)
    alice, bob, carol, dave = (new_user(at=broker) for _ in range(4))
    two = Group(alice).created({alice: SHARER, bob: READER})
    three = Group(bob).created({bob: SHARER, carol: READER, dave: READER})
    story = Story(alice)
    story.send(alice, story.begin({alice: OWNER, three: MAY_READ})).expect(413, "too-large")
    story.created({alice: OWNER, two: MAY_READ})
    later = Story(carol)
    later.created({carol: OWNER, two: MAY_READ})
    last = Story(carol)
    last.send(carol, last.begin({carol: OWNER, alice: MAY_READ})).expect(429, "throttled")


def test_what_is_written_through_a_group_counts_for_its_author(
    broker: BrokerProcess, scene: Scene
) -> None:
    url = broker.database_url
    before = {user: used(url, user).bytes for user in (scene.owner, scene.writer)}
    request = scene.story.follow(scene.writer, content=bytes(1000), via=scene.group)
    scene.story.tell(scene.writer, request)
    assert used(url, scene.owner).bytes == before[scene.owner]
    size = len(request.record.body) + len(request.record.signature) + len(request.content or b"")
    assert used(url, scene.writer).bytes == before[scene.writer] + size


def test_a_batch_makes_a_group_and_then_acts_through_it(new_user: NewUser) -> None:
    alice = new_user()
    story = Story(alice).created()
    group = Group(alice)
    first = group.begin()
    group.took(first)
    given = story.follow(alice, grants={alice: OWNER, group: OWNER})
    story.took(given)
    written = story.follow(alice, content=b"new", via=group)
    another = group.follow(alice, raises=True)
    group.took(another)
    stale = story.follow(alice, content=b"newer", via=group.via_of(group.records[0]))
    message = RecordsRequest(records=[first, given, written, another, stale])
    answer = alice.wire.call("POST", "/v1/batches/records", message).expect(200)
    outcomes = answer.message(RecordsAnswer).records
    assert [each.problem and each.problem.code for each in outcomes] == [None] * 4 + ["conflict"]


# Large contents


def test_a_large_content_is_sent_and_read_through_a_group(scene: Scene) -> None:
    story, group, writer = scene.story, scene.group, scene.writer
    part, sealed = story.seal(Role.Content, writer, bytes(70_000), story.key)
    path = f"{story.path}/parts/{UUID(bytes=part.partId)}"
    via, octets = f"?via={group.group_id}", {"Content-Type": "application/octet-stream"}
    for user, code in ((scene.reader, "permission"), (scene.owner, "not-found")):
        [chunk] = chunks_of(sealed)
        assert user.wire.send("PUT", f"{path}/chunks/0{via}", chunk, octets).code == code
        assert user.wire.call("GET", f"{path}/chunks{via}").code == code
        assert user.wire.call("DELETE", f"{path}{via}").code == code
    for index, chunk in enumerate(chunks_of(sealed)):
        writer.wire.send("PUT", f"{path}/chunks/{index}{via}", chunk, octets).expect(204)
    found = writer.wire.call("GET", f"{path}/chunks{via}").expect(200).message(Chunks)
    assert len(found.chunks) == 1
    story.tell(writer, story.follow(writer, content=part, via=group))
    for what in ("hashes", "segments", "transfers"):
        asked = "" if what == "hashes" else "&first=0&count=1"
        scene.reader.wire.call("GET", f"{path}/{what}{via}{asked}").expect(200)
        scene.reader.wire.call("GET", f"{path}/{what}?{asked}").expect(404, "not-found")
    dropped, sealed = story.seal(Role.Content, writer, bytes(70_000), story.key)
    path = f"{story.path}/parts/{UUID(bytes=dropped.partId)}"
    writer.wire.send("PUT", f"{path}/chunks/0{via}", sealed, octets).expect(204)
    writer.wire.call("DELETE", f"{path}{via}").expect(204)


def test_chunks_for_a_container_that_the_group_cannot_reach_are_taken_as_for_an_unknown_one(
    scene: Scene, new_user: NewUser
) -> None:
    other = Story(new_user()).created()
    part, sealed = other.seal(Role.Content, scene.writer, bytes(70_000), other.key)
    path = f"{other.path}/parts/{UUID(bytes=part.partId)}/chunks/0?via={scene.group.group_id}"
    octets = {"Content-Type": "application/octet-stream"}
    scene.writer.wire.send("PUT", path, sealed, octets).expect(204)


# Departures of users, and deleted users


def test_the_last_user_leaves_a_container_if_a_living_group_has_access(
    scene: Scene, unchanged: Unchanged
) -> None:

    story, owner = scene.story, scene.owner
    leave(story, owner).expect(204)
    assert view(scene.sharer, story, scene.group).via is not None
    alone = Story(owner)
    gone = Group(owner).created()
    alone.created({owner: OWNER, gone: MAY_READ})
    gone.tell(owner, gone.follow(owner, tombstone=True))
    with unchanged():
        leave(alone, owner).expect(422, "rejected")


def test_a_deleted_member_is_served_nothing_and_their_leaf_stays(
    broker: BrokerProcess, scene: Scene
) -> None:
    delete_user(scene.writer).expect(204)
    membership = scene.group.read(scene.sharer).membership
    assert membership is not None
    assert len(membership.leaves) == 3
    assert [state.userId for state in membership.owed] == [scene.writer.id]
    gone = "group_id = ? AND gone"
    assert count_rows(broker.database_url, "group_members", gone, scene.group.id) == 1
