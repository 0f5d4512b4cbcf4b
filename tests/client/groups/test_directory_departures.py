"""Departures and owed epochs as a device verifies them; the broker's word alone counts for little."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, MemoryTrustStore
from scbroker.client.users.directory import Directory
from scbroker.wire.codec import SignedObject
from scbroker.wire.groups import GroupViews
from scbroker.wire.users import KeyChainState
from tests.client.conftest import refusal
from tests.client.groups.conftest import Device
from tests.client.groups.test_directory import directory, mark, members, run
from tests.client.groups.views import changed_membership
from tests.client.test_lying_broker import flipped, lying
from tests.kit.brokers import clock
from tests.kit.groups import READER, SHARER, Group
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User

VIEWS = (GroupViews,)
NewUser = Callable[[], User]
Signed = list[SignedObject]


def departed(team: Group, *users: User, **changes: Any) -> SignedObject:
    return team.departure(users[0], **changes).departure


def test_a_member_who_has_left_is_not_shown_and_the_departure_is_verified(
    new_user: NewUser, device: Device
) -> None:
    alice, bob, carol = new_user(), new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: READER, carol: READER})
    team.leave(bob).expect(204)
    provider = device(carol)
    assert members(provider, team).keys() == {alice.ring.userId, carol.ring.userId}
    opened = run(directory(provider).opened(team.uuid))
    assert opened.left == {bob.name}
    assert bob.name in opened.members


@pytest.mark.long
def test_a_departure_that_its_user_did_not_sign_is_refused(
    new_user: NewUser, device: Device
) -> None:
    alice, bob, carol = new_user(), new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: READER, carol: READER})
    honest = departed(team, bob)
    lies: dict[str, SignedObject] = {
        "signature": replace(honest, signature=flipped(honest.signature)),
        "another membership": departed(team, bob, version=2),
        "another group": departed(team, bob, group=bytes(32)),
        "older than the membership": departed(team, bob, time=1),
        "another's name": departed(team, bob, fingerprint=carol.name),
    }
    for lie in lies.values():
        provider = device(carol)
        with lying(changed_membership(departures=[lie]), about=VIEWS):
            refusal(provider.getGroupMembers(team.uuid), BrokerError.integrityError)
        assert mark(provider, team) == 1
    ahead = departed(team, bob, time=clock() + 3_600_000_000)
    with lying(changed_membership(departures=[ahead]), about=VIEWS):
        refusal(device(carol).getGroupMembers(team.uuid), BrokerError.clockError)
    with lying(changed_membership(departures=[honest]), about=VIEWS):
        assert bob.ring.userId not in members(device(carol), team)


def test_departures_that_are_out_of_order_or_doubled_are_refused(
    new_user: NewUser, device: Device
) -> None:
    alice, bob, carol = new_user(), new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: READER, carol: READER})
    one, other = sorted([bob, carol], key=lambda user: user.name)
    both = [departed(team, one), departed(team, other)]
    for wrong in (list(reversed(both)), [both[0], both[0]]):
        with lying(changed_membership(departures=wrong), about=VIEWS):
            refusal(device(alice).getGroupMembers(team.uuid), BrokerError.integrityError, "order")
    with lying(changed_membership(departures=both), about=VIEWS):
        assert members(device(alice), team).keys() == {alice.ring.userId}


def test_a_leaver_whose_keys_the_broker_does_not_have_is_a_contradiction(
    new_user: NewUser, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: READER})
    team.leave(bob).expect(204)

    async def unknown(self: Directory, states: object) -> object:
        del self, states
        raise BrokerError.notFoundError("No such user.")

    provider = device(alice)
    with monkeypatch.context() as patched, lying(lambda found: found, about=VIEWS):
        patched.setattr(Directory, "at_least", unknown)
        refusal(provider.getGroupMembers(team.uuid), BrokerError.integrityError, "does not know")


def test_a_departure_that_the_broker_shows_the_leaver_ends_the_membership_there(
    new_user: NewUser, device: Device
) -> None:
    alice, bob = new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: READER})
    with lying(changed_membership(departures=[departed(team, bob)]), about=VIEWS):
        refusal(device(bob).getGroupMembers(team.uuid), BrokerError.notFoundError, "left")


def test_after_its_own_departure_a_device_takes_a_denial_for_honest(
    new_user: NewUser, device: Device
) -> None:
    alice, bob, carol = new_user(), new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: READER, carol: READER})
    store = MemoryTrustStore()
    provider = device(bob, store)
    members(provider, team)
    provider.leaveGroup(team.uuid).result(PATIENCE)
    for each in (provider, device(bob, store)):
        refusal(each.getGroupMembers(team.uuid), BrokerError.notFoundError)
        assert each.getGroups().result(PATIENCE) == []


def test_an_epoch_is_not_owed_for_a_member_whom_the_broker_names_without_a_reason(
    new_user: NewUser, device: Device
) -> None:
    """The broker's list of owed epochs is a hint: key chains and departures decide."""
    alice, bob = new_user(), new_user()
    team = Group(alice).created({alice: SHARER, bob: READER})
    stated = [KeyChainState(userId=bob.id, sequence=0)]
    with lying(changed_membership(owed=stated), about=VIEWS):
        opened = run(directory(device(alice)).opened(team.uuid))
    assert opened.owed == frozenset()
