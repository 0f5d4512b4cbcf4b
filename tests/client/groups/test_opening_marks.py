"""What a device remembers of a group: the mark, that a caller resets, and the members behind it."""

from collections.abc import Callable

import pytest

from scbroker import BrokerError, Head, MemoryTrustStore
from scbroker.wire.groups import GroupViews
from tests.client.conftest import refusal
from tests.client.groups.conftest import Device
from tests.client.groups.test_directory import mark, members
from tests.client.groups.test_directory_limits import raise_mark
from tests.client.groups.views import serve, view_of
from tests.kit.groups import READER, SHARER, Group
from tests.kit.network import lying
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User

VIEWS = (GroupViews,)
NewUser = Callable[[], User]


def test_a_head_that_the_broker_serves_is_accepted_in_place_of_the_mark(
    new_user: NewUser, device: Device
) -> None:
    alice, bob, carol = new_user(), new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: READER})
    older = view_of(team, team.requests, reader=bob)
    team.tell(alice, team.follow(alice, add={carol: READER}))
    store = MemoryTrustStore()
    provider = device(bob, store)
    members(provider, team)
    with lying(serve(older), about=VIEWS):
        refusal(provider.getGroupMembers(team.uuid), BrokerError.rollbackError)
        heads = provider.resetContainerMark(team.uuid).result(PATIENCE)
        assert heads.stored is not None
        assert (heads.stored.version, heads.served.version) == (2, 1)
        assert mark(provider, team) == 2
        wrong = Head(1, bytes(32))
        refusal(provider.resetContainerMark(team.uuid, wrong), BrokerError.conflictError)
        provider.resetContainerMark(team.uuid, heads.served).result(PATIENCE)
        assert mark(provider, team) == 1
        for each in (provider, device(bob, store)):
            assert members(each, team).keys() == {alice.ring.userId, bob.ring.userId}
    assert carol.ring.userId in members(provider, team)


def test_another_history_is_accepted_only_if_it_is_valid_by_itself(
    new_user: NewUser, device: Device
) -> None:
    alice, bob = new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: READER})
    other = team.follow(alice, name="Elsewhere")
    team.tell(alice, team.follow(alice, name="Here"))
    provider = device(bob)
    members(provider, team)
    forged = view_of(team, [team.requests[0], team.follow(bob, name="Forged")], reader=bob)
    with lying(serve(forged), about=VIEWS):
        refusal(provider.resetContainerMark(team.uuid), BrokerError.integrityError)
    with lying(serve(view_of(team, [team.requests[0], other], reader=bob)), about=VIEWS):
        heads = provider.resetContainerMark(team.uuid).result(PATIENCE)
        provider.resetContainerMark(team.uuid, heads.served).result(PATIENCE)
    refusal(provider.getGroupMembers(team.uuid), BrokerError.forkError)


@pytest.mark.process
def test_a_mark_that_moves_while_a_head_is_accepted_is_a_conflict(
    new_user: NewUser, device: Device
) -> None:
    alice, bob = new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: READER})
    store = MemoryTrustStore()
    provider, other = device(bob, store), device(bob, store)
    members(provider, team)
    heads = provider.resetContainerMark(team.uuid).result(PATIENCE)
    left = [other]

    def move(answer: GroupViews) -> GroupViews:
        if left:
            team.tell(alice, team.follow(alice, name="Other"))
            raise_mark(left.pop()._session().marks, team)
        return answer

    with lying(move, about=VIEWS):
        changed = provider.resetContainerMark(team.uuid, heads.served)
        refusal(changed, BrokerError.conflictError, "meanwhile")
