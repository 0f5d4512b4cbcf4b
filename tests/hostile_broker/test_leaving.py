"""Attacks on departures and blocks.

Attacks 80 to 84 of attacks.toml. A departure gives up the rights of the user who signs it, so others would
like to sign it for them. A block is the broker's to enforce, and a blocked user tries every way around it.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, ServerProvider
from scbroker.vocabulary import KeyType
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import ContainerView, DepartureRequest, ViewOutcome, ViewsAnswer
from scbroker.wire.problems import item_problem_of
from tests.hostile_broker.accomplices import Mallory, fresh_and_marked
from tests.hostile_broker.protocol import INTEGRITY, LIST, VIEW, VIEWS
from tests.kit.brokers import Answer, clock
from tests.kit.waiting import PATIENCE
from tests.kit.writers import (
    MINUTE,
    OWNER,
    READER,
    WRITER,
    Grants,
    Story,
    User,
    departure,
    leave,
    rotate,
)


def forge(mallory: Mallory, story: Story, of: User, signed: SignedObject) -> None:
    """Serve these bytes as a user's departure from the list in force."""
    made = story.governing.governing
    assert made is not None
    mallory._insert(
        "departures", container_id=story.id, access_version=made.accessVersion,
        user_id=of.ring.userId.bytes, body=signed.body, signature=signed.signature,
    )  # fmt: skip


def hidden(view: ContainerView) -> ContainerView:
    """The view without any departure."""
    views = [
        replace(each, accessList=replace(each.accessList, departures=[]))
        if each.accessList is not None
        else each
        for each in view.governing
    ]
    return replace(view, governing=views)


def names(device: ServerProvider, story: Story) -> set[str]:
    found = device.getContainerMetadata(story.uuid).result(PATIENCE)
    return {str(each.userId) for each in found.access or ()}


def test_a_user_who_left_opens_nothing_that_is_written_afterwards_whatever_the_broker_serves(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """The broker gives the user who left a member's row again, with the wrap that the user had."""
    story = Story(alice).created({alice: OWNER, bob: READER})
    [(wrap,)] = mallory.query("SELECT wrap FROM members WHERE user_id = ?", bob.ring.userId.bytes)
    leaver, writer = mallory.device_of(bob, alice), mallory.device_of(alice, bob)
    leaver.leaveContainer(story.uuid).result(PATIENCE)
    writer.updateContainerContent(story.uuid, b"later").result(PATIENCE)
    assert names(writer, story) == {alice.id}
    mallory.serve_also(story.uuid, bob, wrap)
    mallory.check_refused(leaver, story, INTEGRITY, "getContainer", "getSecuredContainer")
    mallory.check_refused(mallory.device_of(bob, alice), story, INTEGRITY, "getContainer")


def test_a_container_that_the_broker_denies_to_a_leaver_is_not_forgotten_before_a_departure_was_sent(
    mallory: Mallory, alice: User, bob: User
) -> None:
    story = Story(alice).created({alice: OWNER, bob: READER})
    device = mallory.device_of(bob)
    device.getContainer(story.uuid).result(PATIENCE)
    denial = BrokerError.notFoundError()
    problem = item_problem_of(denial)

    def deny_each(answer: ViewsAnswer) -> ViewsAnswer:
        return ViewsAnswer(views=[ViewOutcome(view=None, problem=problem) for _ in answer.views])

    with (
        mallory.meddling(VIEW, before=lambda exchange: exchange.fail(denial)),
        mallory.lying(LIST, lambda answer: replace(answer, containers=[])),
        mallory.lying(VIEWS, deny_each),
    ):
        with pytest.raises(BrokerError.notFoundError):
            device.leaveContainer(story.uuid).result(PATIENCE)
        assert list(device.listContainers().result(PATIENCE).leftOut) == [story.uuid]
        with pytest.raises(BrokerError.notFoundError):
            device.leaveContainer(story.uuid, abandon=True).result(PATIENCE)
        assert list(device.listContainers().result(PATIENCE).leftOut) == []
    assert str(bob.id) in names(mallory.device_of(alice), story)


Depart = Callable[[Story, User, User, User], SignedObject]


def _of_another_list(story: Story, alice: User, bob: User, carol: User) -> SignedObject:
    old = departure(story, bob).departure
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: OWNER, carol: WRITER}))
    return old


def _by_a_retired_key(story: Story, alice: User, bob: User, carol: User) -> SignedObject:
    """The key was good two minutes ago, and the list was made just now."""
    broker: Any = alice.wire.broker
    url, time = broker.database_url, clock() - 2 * MINUTE
    old = rotate(url, bob, signing=1)
    later = rotate(url, old, (KeyType.Signing, 1), signing=1)
    story.tell(alice, story.follow(alice, grants={alice: OWNER, later: OWNER, carol: WRITER}))
    return departure(story, old, time=time).departure


FORGED: Final[dict[str, Depart]] = {
    "by the broker": lambda story, _, bob, __: replace(
        departure(story, bob).departure, signature=bytes(3373)
    ),
    "by a member": lambda story, _, bob, carol: (
        departure(story, carol, fingerprint=bob.name).departure
    ),
    "from another list": _of_another_list,
    "from another container": lambda _, alice, bob, __: (
        departure(Story(alice).created({alice: OWNER, bob: OWNER}), bob).departure
    ),
    "by a retired key": _by_a_retired_key,
}


@pytest.mark.sampled
@fresh_and_marked
@pytest.mark.parametrize("forged", FORGED)
def test_a_departure_that_its_user_did_not_sign_from_this_list_is_refused(
    mallory: Mallory, forged: str, marked: bool, alice: User, bob: User, carol: User
) -> None:
    story = Story(alice).created({alice: OWNER, bob: OWNER, carol: WRITER})
    signed = FORGED[forged](story, alice, bob, carol)
    device = mallory.victim(alice, story, marked=marked)
    forge(mallory, story, bob, signed)
    mallory.check_refused(device, story, INTEGRITY, "getContainer", "updateContainerContent")
    assert leave(story, carol, DepartureRequest(departure=signed)).status in (400, 403)


def test_a_writer_who_ignores_a_departure_is_refused(alice: User, bob: User, carol: User) -> None:
    """By an honest broker: a list that keeps the user, and a content under the key that the user has."""
    story = Story(alice).created({alice: OWNER, bob: READER, carol: WRITER})
    leave(story, bob).expect(204)
    everybody: Grants = {alice: OWNER, bob: READER, carol: WRITER}
    story.send(carol, story.follow(carol, content=b"x", grants=everybody)).expect(409, "conflict")
    story.send(alice, story.follow(alice, grants=everybody)).expect(409, "conflict")
    late = replace(story.follow(carol, content=b"x"), departures=1)
    story.send(carol, late).expect(422, "rejected")


def test_a_thief_of_a_token_cannot_leave_in_the_users_name(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """The thief, Carol, has Bob's session, and keys of her own."""
    story = Story(alice).created({alice: OWNER, bob: READER})
    signed = departure(story, carol, fingerprint=bob.name).departure
    leave(story, bob, DepartureRequest(departure=signed)).expect(422, "rejected")
    own = departure(story, carol).departure
    leave(story, bob, DepartureRequest(departure=own)).expect(403, "permission")
    assert names(mallory.device_of(alice, bob), story) == {alice.id, bob.id}


def test_a_thief_of_a_token_and_of_a_replaced_key_cannot_leave_in_the_users_name(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """The old key is still active, and no log-in would accept it."""
    story = Story(alice).created({alice: OWNER, bob: READER})
    rotate(mallory.behind.database_url, bob, signing=1)
    leave(story, bob).expect(422, "rejected")
    assert names(mallory.device_of(alice, bob), story) == {alice.id, bob.id}


def test_a_session_that_began_before_the_departure_reads_nothing_more(
    mallory: Mallory, alice: User, bob: User
) -> None:
    story = Story(alice).created({alice: OWNER, bob: READER})
    thief = mallory.accomplice(bob.ring)
    thief.view(story, "content=1")
    leave(story, bob).expect(204)
    for query in ("", "?since=1", "?content=1&header=1"):
        thief.wire.call("GET", f"{story.path}{query}").expect(404, "not-found")
    thief.wire.call("GET", f"{story.path}/records?from=1&count=1").expect(404, "not-found")


def _block(alice: User, bob: User) -> None:
    alice.wire.call("PUT", f"/v1/blocks/{bob.id}").expect(204)


def _new_container(alice: User, bob: User, _: User) -> Answer:
    _block(alice, bob)
    story = Story(bob)
    return story.send(bob, story.begin({bob: OWNER, alice: READER}))


def _container_of_another(alice: User, bob: User, carol: User) -> Answer:
    _block(alice, bob)
    story = Story(carol).created({carol: OWNER, bob: OWNER})
    return story.send(bob, story.follow(bob, grants={carol: OWNER, alice: READER, bob: OWNER}))


def _renewal(alice: User, bob: User, carol: User) -> Answer:
    """Alice has left; Bob, who may not change access, keeps her in a renewal."""
    _block(alice, bob)
    grants: Grants = {carol: OWNER, bob: WRITER, alice: READER}
    story = Story(carol).created(grants)
    leave(story, alice).expect(204)
    return story.send(bob, replace(story.follow(bob, content=b"x", grants=grants), departures=1))


def _after_leaving(alice: User, bob: User, _: User) -> Answer:
    story = Story(bob).created({bob: OWNER, alice: READER})
    leave(story, alice).expect(204)
    _block(alice, bob)
    again = story.follow(bob, grants={bob: OWNER, alice: READER})
    return story.send(bob, replace(again, departures=1))


_WAYS: Final[dict[str, Callable[[User, User, User], Answer]]] = {
    "a new container": _new_container,
    "a container of another": _container_of_another,
    "a renewal": _renewal,
    "after leaving": _after_leaving,
}


@pytest.mark.sampled
@pytest.mark.parametrize("way", _WAYS)
def test_a_blocked_user_gives_access_in_no_way(
    alice: User, bob: User, carol: User, way: str
) -> None:
    _WAYS[way](alice, bob, carol).expect(403, "blocked")
    kinds = [each.eventType for each in alice.events()]
    assert kinds in ([], ["Added", "Deleted"])


# Limits


def test_as_long_as_the_broker_hides_a_departure_the_user_has_what_they_had_and_that_is_the_limit(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """No writer knows of it, so the key stays. The first writer who is served it ends that."""
    story = Story(alice).created({alice: OWNER, bob: READER})
    [(wrap,)] = mallory.query("SELECT wrap FROM members WHERE user_id = ?", bob.ring.userId.bytes)
    leaver, writer = mallory.device_of(bob, alice), mallory.device_of(alice, bob)
    leaver.leaveContainer(story.uuid).result(PATIENCE)
    [(body, signature)] = mallory.query(
        "SELECT body, signature FROM departures WHERE container_id = ?", story.id
    )
    mallory.query("DELETE FROM departures WHERE container_id = ?", story.id)
    mallory.serve_also(story.uuid, bob, wrap)
    writer.updateContainerContent(story.uuid, b"later").result(PATIENCE)
    assert leaver.getContainer(story.uuid).result(PATIENCE).content == b"later"
    forge(mallory, story, bob, SignedObject(body=body, signature=signature))
    assert names(writer, story) == {alice.id}
    writer.updateContainerContent(story.uuid, b"latest").result(PATIENCE)
    mallory.serve_also(story.uuid, bob, wrap)
    mallory.check_refused(leaver, story, INTEGRITY, "getContainer")


def test_a_member_who_keeps_a_user_who_left_is_the_limit_and_a_block_prevents_it(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """A renewal may keep everybody. The user gets an event, and leaves again, or blocks the member."""
    everybody: Grants = {alice: OWNER, bob: READER, carol: WRITER}
    story = Story(alice).created(everybody)
    leave(story, bob).expect(204)
    again = replace(story.follow(carol, content=b"x", grants=everybody), departures=1)
    bob.wire.call("PUT", f"/v1/blocks/{carol.id}").expect(204)
    story.send(carol, again).expect(403, "blocked")
    bob.wire.call("DELETE", f"/v1/blocks/{carol.id}").expect(204)
    story.tell(carol, again)
    assert bob.events()[-1].eventType == "Added"
    device = mallory.device_of(alice, bob, carol)
    assert names(device, story) == {alice.id, bob.id, carol.id}
