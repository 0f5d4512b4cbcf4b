"""A list has the containers that a user has access to, each once, in the order of their ids."""

from collections.abc import Iterator
from typing import Any

import pytest

from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import PAGE_BYTES, ContainerList, ListRequest
from tests.kit.brokers import Answer
from tests.kit.waiting import wait_until
from tests.kit.writers import OWNER, READER, Story, User
from tests.server.conftest import NewUser

LIST = "/v1/containers/list"
WITHOUT_TYPE = READER & ~Level.ViewType
WITH_TYPE = READER | Level.ViewType


def asked(user: User, **fields: Any) -> Answer:
    return user.wire.call("POST", LIST, ListRequest(**fields))


def page(user: User, **fields: Any) -> ContainerList:
    return asked(user, **fields).expect(200).message(ContainerList)


def pages(user: User, **fields: Any) -> Iterator[ContainerList]:
    found = page(user, **fields)
    yield found
    while found.next is not None:
        found = page(user, **{**fields, "after": found.next})
        yield found


def names(*found: ContainerList) -> list[str]:
    return [item.containerId for each in found for item in each.containers]


def listed(user: User, **fields: Any) -> list[str]:
    return names(*pages(user, **fields))


def ids(*stories: Story) -> list[str]:
    """Return the ids in the order of a list."""
    return sorted(str(story.uuid) for story in stories)


def test_a_list_of_a_type_follows_changes_of_type_and_of_access(new_user: NewUser) -> None:
    alice, bob = new_user(), new_user()
    story = Story(alice).created({alice: OWNER, bob: WITHOUT_TYPE}, type="a")

    def found(user: User) -> list[str]:
        return [text for text in ("a", "b", "c") if listed(user, type=text)]

    assert (found(alice), found(bob)) == (["a"], [])
    story.tell(alice, story.follow(alice, type="b"))
    assert (found(alice), found(bob)) == (["b"], [])
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: WITH_TYPE}))
    assert (found(alice), found(bob)) == (["b"], ["b"])
    story.tell(alice, story.follow(alice, type="c"))
    assert (found(alice), found(bob)) == (["c"], ["c"])
    story.tell(alice, story.follow(alice, content=b"unchanged type"))
    assert (found(alice), found(bob)) == (["c"], ["c"])
    story.tell(alice, story.follow(alice, type="a", grants={alice: OWNER, bob: WITHOUT_TYPE}))
    assert (found(alice), found(bob)) == (["a"], [])
    story.tell(alice, story.follow(alice, type=None))
    assert (found(alice), found(bob)) == ([], [])


@pytest.mark.long
def test_a_page_of_large_views_ends_early_and_the_next_goes_on_there(new_user: NewUser) -> None:
    alice = new_user()
    stories = [Story(alice).created(header=bytes(65_000), content=None) for _ in range(34)]
    assert len(page(alice).containers) == len(stories), "without headers all of them fit"
    found = list(pages(alice, header=True))
    assert len(found) == 2
    assert len(found[0].containers) < len(stories)
    assert names(*found) == ids(*stories)
    sizes = [
        sum(len(item.view.header or b"") for item in each.containers if item.view) for each in found
    ]
    assert PAGE_BYTES * 0.8 < sizes[0] < PAGE_BYTES + 70_000


@pytest.mark.long
def test_a_list_with_headers_is_recorded_as_a_fetch_and_one_without_is_not(
    new_user: NewUser,
) -> None:
    alice, bob = new_user(), new_user()
    grants = {alice: OWNER | Level.ReceiveAccessEvents, bob: READER}
    story = Story(alice).created(grants, header=b"{}")
    alone = Story(bob).created(header=b"{}")
    page(bob)
    assert [event.eventType for event in alice.events()] == ["Added"]
    page(bob, header=True)
    wait_until(lambda: len(alice.events()) == 2)
    [_, event] = alice.events()
    assert (event.eventType, event.containerId) == ("Accessed", str(story.uuid))
    assert event.relatedUserId == bob.id
    assert [event.eventType for event in bob.events(containerId=str(alone.uuid))] == ["Added"]
