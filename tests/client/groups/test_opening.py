"""The secrets of a group as a member opens them: wrapped by managers who may be wrong, or lie."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import AccessLevel, BrokerError, Group
from scbroker.crypto.seal import derive_key, seal, wrap_key
from scbroker.crypto.verify import sha256
from scbroker.records import roster as grammar
from scbroker.records.canonical import encode_object
from scbroker.records.roster import Info
from scbroker.wire.containers import RecordRequest
from scbroker.wire.groups import GroupViews
from tests.client.conftest import refusal
from tests.client.groups.conftest import Device
from tests.client.groups.test_directory import directory, mark, members, run
from tests.client.groups.views import changed_membership
from tests.client.test_lying_broker import flipped, lying
from tests.kit.both_engines import both_engines
from tests.kit.groups import MANAGER, READER, SHARER, WRITER, Epoch
from tests.kit.groups import Group as Made
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User

VIEWS = (GroupViews,)
NewUser = Callable[[], User]


def newest(team: Made, request: RecordRequest) -> Epoch:
    return team._made[request.record.body].epochs[-1]


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


def with_info(
    team: Made, author: User, request: RecordRequest, secrets: Sequence[bytes | None]
) -> RecordRequest:
    """The request with an info that has these secrets, which the roster names."""
    state = team._made[request.record.body]
    key = derive_key(state.epochs[-1].secret, "group-info-key", team.name)
    info = encode_object(Info(state.name, state.description, list(secrets)))
    sealed = seal(key, grammar.info_context(team.name, state.epoch), info)
    signed = team.altered_roster(author, request, info=sha256(sealed))
    assert signed.roster is not None
    return replace(signed, roster=replace(signed.roster, info=sealed))


@both_engines
def test_a_member_notices_a_wrong_secret_and_another_epoch_mends_it(
    new_user: NewUser, device: Device
) -> None:
    alice, bob, carol = new_user(), new_user(), new_user()
    team = Made(alice).created({alice: SHARER, bob: READER, carol: READER})
    request = team.follow(alice, raises=True)
    team.tell(alice, with_secret(team, request, bob, bytes(32)))
    deceived = device(bob)
    refusal(
        deceived.getGroupMembers(team.uuid), BrokerError.integrityError, "replace the group's key"
    )
    assert mark(deceived, team) == 2
    [failed] = deceived.getGroups().result(PATIENCE)
    assert isinstance(failed, BrokerError.integrityError)
    assert members(device(carol), team).keys() == {u.ring.userId for u in (alice, bob, carol)}
    device(alice).renewGroup(team.uuid, newKey=True).result(PATIENCE)
    assert bob.ring.userId in members(deceived, team)
    opened = run(directory(deceived).opened(team.uuid))
    assert opened.key(1) == newest(team, request).key


def test_a_wrap_that_does_not_open_is_a_decryption_error(new_user: NewUser, device: Device) -> None:
    alice, bob = new_user(), new_user()
    team = Made(alice).created({alice: SHARER, bob: READER})
    provider = device(bob)
    with lying(changed_membership(wrap=flipped), about=VIEWS):
        refusal(provider.getGroupMembers(team.uuid), BrokerError.decryptionError)
    with lying(changed_membership(wrap=None), about=VIEWS):
        refusal(provider.getGroupMembers(team.uuid), BrokerError.decryptionError, "ask one")
    assert mark(provider, team) == 1


def test_a_wrong_secret_of_an_ended_epoch_is_refused_when_it_is_used(
    new_user: NewUser, device: Device
) -> None:
    alice, bob = new_user(), new_user()
    team = Made(alice).created({alice: SHARER, bob: READER})
    team.tell(alice, with_info(team, alice, team.follow(alice, raises=True), [bytes(32)]))
    opened = run(directory(device(bob)).opened(team.uuid))
    assert opened.key(1) == team.state.epochs[1].key
    with pytest.raises(BrokerError.integrityError, match="wrong one"):
        opened.key(0)


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


def test_a_container_of_an_ended_epoch_opens_by_the_secret_in_the_info(
    new_user: NewUser, device: Device
) -> None:
    alice, bob = new_user(), new_user()
    team = Made(alice).created({alice: SHARER, bob: WRITER})
    owner = device(alice)
    [group] = owner.getGroups().result(PATIENCE)
    assert isinstance(group, Group)
    levels = [AccessLevel(alice.ring.userId, 511), AccessLevel(group, 511)]
    made = owner.createContainer(b"old", None, levels).result(PATIENCE).id
    team.accept(bob).expect(204)
    team.tell_all(alice, {"raises": True}, {"raises": True})
    assert device(bob).getContainerContent(made).result(PATIENCE) == b"old"


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
