"""The secrets of a group as a member opens them: wrapped by managers who may be wrong, or lie."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import BrokerError
from scbroker.crypto.seal import wrap_key
from scbroker.records import roster as grammar
from scbroker.wire.containers import RecordRequest
from tests.client.conftest import refusal
from tests.client.groups.conftest import Device
from tests.client.groups.test_directory import directory, members, run
from tests.kit.both_engines import both_engines
from tests.kit.groups import MANAGER, READER, SHARER
from tests.kit.groups import Group as Made
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User

NewUser = Callable[[], User]


def with_secret(team: Made, request: RecordRequest, user: User, secret: bytes) -> RecordRequest:
    """The request with another secret in the wrap for a user, which the broker cannot see."""
    state = team._made[request.record.body]
    commitment, index = state.epochs[-1].commitment, state.members[user].keyIndex
    info = grammar.wrap_info(team.name, state.epoch, commitment, user.name, index)
    wrapped = wrap_key(user.ring.encryption[index].public, info, secret)
    assert request.roster is not None
    wraps = [
        replace(each, wrap=wrapped) if each.fingerprint == user.name else each
        for each in request.roster.wraps
    ]
    return replace(request, roster=replace(request.roster, wraps=wraps))


@pytest.mark.long
@both_engines
def test_a_manager_with_a_wrong_secret_mends_the_group_by_both_texts(
    new_user: NewUser, device: Device
) -> None:
    alice, bob, carol = new_user(), new_user(), new_user()
    team = Made(alice).created(
        {alice: SHARER, bob: READER, carol: READER}, managers={alice: 511, bob: MANAGER}
    )
    provider = device(bob)
    members(provider, team)
    request = with_secret(team, team.follow(alice, raises=True), bob, bytes(32))
    team.tell(alice, request)
    refusal(provider.renameGroup(team.uuid, "Mine"), BrokerError.integrityError)
    mended = provider.renameGroup(team.uuid, "Mine", "all of it").result(PATIENCE)
    assert (mended.name, mended.description, mended.epoch) == ("Mine", "all of it", 2)
    found = run(directory(device(carol)).opened(team.uuid))
    assert found.key(2) == run(directory(provider).opened(team.uuid)).key(2)
    assert found.key(0) == team.states[0].epochs[0].key  # bob's device had kept it
    with pytest.raises(BrokerError.integrityError, match="left out"):
        found.key(1)


def test_the_keys_of_groups_are_forgotten_with_the_session(
    new_user: NewUser, device: Device
) -> None:
    alice = new_user()
    team = Made(alice).created()
    provider = device(alice)
    members(provider, team)
    groups: Any = directory(provider)
    assert groups._opened
    provider.logout().result(PATIENCE)
    assert not groups._opened
    assert not groups.verified
