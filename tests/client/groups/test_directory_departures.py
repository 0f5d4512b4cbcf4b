"""Departures and owed epochs as a device verifies them; the broker's word alone counts for little."""

from collections.abc import Callable
from typing import Any

from scbroker import BrokerError, MemoryTrustStore
from scbroker.wire.codec import SignedObject
from scbroker.wire.groups import GroupViews
from tests.client.conftest import refusal
from tests.client.groups.conftest import Device
from tests.client.groups.test_directory import members
from tests.client.groups.views import changed_membership
from tests.client.test_lying_broker import lying
from tests.kit.groups import READER, SHARER, Group
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User

VIEWS = (GroupViews,)
NewUser = Callable[[], User]
Signed = list[SignedObject]


def departed(team: Group, *users: User, **changes: Any) -> SignedObject:
    return team.departure(users[0], **changes).departure


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
