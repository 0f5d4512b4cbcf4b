"""Deleted groups at the broker: what stays for readers, and what is deleted (groups.md, 10 and 11)."""

import pytest

from scbroker.wire.containers import ContainerView
from tests.kit.brokers import BrokerProcess
from tests.kit.groups import READER as MEMBER
from tests.kit.groups import SHARER, WRITER, Group, groups_of
from tests.kit.operators import admin
from tests.kit.quotas import check_usage
from tests.kit.tables import count_rows
from tests.kit.writers import OWNER, READER, Story, User, delete_user
from tests.kit.writers import WRITER as MAY_WRITE
from tests.server.conftest import NewUser
from tests.server.users.test_deletion_in_parts import check


def delete(team: Group, owner: User) -> None:
    """Delete a group as a client does: an epoch with the owner alone, then the tombstone."""
    others = [user for user in team.state.members if user is not owner]
    grants = {owner: OWNER} if len(team.grants) > 1 else None
    team.tell(owner, team.follow(owner, remove=others, managers=grants, raises=True))
    team.tell(owner, team.follow(owner, tombstone=True))


@pytest.mark.long
def test_a_deleted_group_is_served_whole_as_long_as_a_container_has_a_record_for_it(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob, carol = new_user(), new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: WRITER, carol: MEMBER})
    story = Story(carol).created({carol: OWNER, team: MAY_WRITE})
    story.tell(bob, story.follow(bob, content=b"by bob", via=team))
    delete(team, alice)
    view = team.read(carol)
    assert [record.roster is not None for record in view.records] == [True, True, False]
    assert view.last == 3
    assert view.membership is None
    head = carol.view(story)
    assert head.headMembership is not None
    assert [state.version for state in head.groupChains] == [3]
    assert groups_of(alice).groups == []
    kept = "group_id = ? AND member IS NOT NULL"
    assert count_rows(broker.database_url, "leaves", kept, team.id) == 1
    check(broker)
    story.tell(carol, story.follow(carol, content=None, tombstone=True))
    admin(broker, "sweep").expect(0)
    assert count_rows(broker.database_url, "leaves", "group_id = ?", team.id) == 0
    assert team.outcome(alice).view is None
    check(broker)


def test_the_tombstone_of_a_group_is_stored_once_and_known_as_long_as_something_names_the_group(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    team, other = (Group(alice).created({alice: SHARER}) for _ in range(2))
    story = Story(bob).created({bob: OWNER, other: READER})
    for each in (team, other):
        tombstone = each.follow(alice, tombstone=True)
        each.tell(alice, tombstone)
        again = each.send(alice, tombstone)
        if each is other:
            again.expect(200)
            story.tell(bob, story.follow(bob, grants={bob: OWNER}))
            admin(broker, "sweep").expect(0)
            again = each.send(alice, tombstone)
        again.expect(410, "deleted")
        assert each.outcome(alice).view is None


@pytest.mark.long
def test_containers_that_only_a_deleted_group_could_reach_are_deleted_with_it(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: WRITER})
    alone = Story(bob).created({team: READER})
    shared = Story(bob).created({bob: OWNER, team: READER})
    delete(team, alice)
    assert count_rows(broker.database_url, "records", "container_id = ?", alone.id) == 0
    assert bob.view(shared).groups == [team.group_id]
    check(broker)


@pytest.mark.long
def test_a_group_is_deleted_with_the_last_of_its_members_and_a_living_one_keeps_containers(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob, carol = new_user(), new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: WRITER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    other = Story(carol).created({carol: OWNER, team: OWNER})
    other.tell(bob, other.follow(bob, content=b"by bob", via=team))
    delete_user(alice).expect(204)
    found = bob.wire.call("GET", f"{story.path}?via={team.group_id}").expect(200)
    assert found.message(ContainerView).via == team.group_id
    check(broker)
    delete_user(bob).expect(204)
    assert count_rows(broker.database_url, "records", "container_id = ?", story.id) == 0
    assert team.read(carol).last == 1
    assert carol.view(other).headMembership is not None
    check(broker)
    other.tell(carol, other.follow(carol, grants={carol: OWNER}))
    other.tell(carol, other.follow(carol, tombstone=True))
    admin(broker, "sweep").expect(0)
    assert team.outcome(carol).view is None
    check(broker)
    check_usage(broker.database_url)
