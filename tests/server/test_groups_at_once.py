"""Changes of a group and records through it at the same time (groups.md, 11)."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kit.brokers import BrokerProcess
from tests.kit.groups import SHARER, WRITER, Group
from tests.kit.writers import OWNER, Story, User, delete_user, stalled
from tests.server.conftest import NewUser, at_once
from tests.server.users.test_deletion_in_parts import check

on_postgresql = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)


@pytest.fixture
def scene(new_user: NewUser) -> tuple[Group, Story, User, User]:
    alice, bob = new_user(), new_user()
    group = Group(alice).created({alice: SHARER, bob: WRITER})
    return group, Story(alice).created({alice: OWNER, group: OWNER}), alice, bob


@on_postgresql
def test_a_record_that_comes_while_its_author_is_removed_waits_and_is_not_found(
    broker: BrokerProcess, scene: tuple[Group, Story, User, User]
) -> None:
    group, story, alice, bob = scene
    removal = group.follow(alice, remove=[bob])
    record = story.follow(bob, content=b"late", via=group)
    with ThreadPoolExecutor() as pool:
        with stalled(broker.database_url, "rosters") as wait_for:
            removing = pool.submit(group.send, alice, removal)
            wait_for(1)
            writing = pool.submit(story.send, bob, record)
            wait_for(2)
        removing.result().expect(201)
        writing.result().expect(404, "not-found")


@on_postgresql
def test_a_removal_that_comes_while_its_user_writes_waits_for_the_record(
    broker: BrokerProcess, scene: tuple[Group, Story, User, User]
) -> None:
    group, story, alice, bob = scene
    removal = group.follow(alice, remove=[bob])
    record = story.follow(bob, content=b"in time", via=group)
    with ThreadPoolExecutor() as pool:
        with stalled(broker.database_url, "group_authors") as wait_for:
            writing = pool.submit(story.send, bob, record)
            wait_for(1)
            removing = pool.submit(group.send, alice, removal)
            wait_for(2)
        writing.result().expect(201)
        removing.result().expect(201)


@on_postgresql
def test_a_part_under_an_old_epoch_that_comes_while_it_ends_is_stale(
    broker: BrokerProcess, scene: tuple[Group, Story, User, User]
) -> None:
    """Its author has an entry of their own: nothing but the list in force names the group."""
    group, story, alice, bob = scene
    group.tell(alice, group.follow(alice, managers={alice: OWNER, bob: OWNER}))
    removal = group.follow(bob, raises=True)
    record = story.follow(alice, content=b"late")
    with ThreadPoolExecutor() as pool:
        with stalled(broker.database_url, "rosters") as wait_for:
            removing = pool.submit(group.send, bob, removal)
            wait_for(1)
            writing = pool.submit(story.send, alice, record)
            wait_for(2)
        removing.result().expect(201)
        writing.result().expect(409, "stale-keys")


@pytest.mark.long
def test_a_group_whose_last_members_are_deleted_at_once_ends(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    group = Group(alice).created({alice: SHARER, bob: WRITER})
    Story(bob).created({group: OWNER})
    assert [answer.status for answer in at_once(delete_user, [alice, bob])] == [204, 204]
    assert group.outcome(new_user()).view is None
    check(broker)
