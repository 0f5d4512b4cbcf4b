"""Groups of which members, managers or all owners have deleted their users."""

import uuid

import pytest

from scbroker import BrokerError, Group, GroupManager, MemberRole, ServerProvider
from tests.client.conftest import id_of, refusal
from tests.client.rosters.conftest import (
    SHARER,
    WRITER,
    accepted,
    managers,
    roles,
    seen,
    shared,
    team,
)
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider, StartBroker
from tests.kit.network import Network, after
from tests.kit.waiting import PATIENCE
from tests.server.users.test_deletion_in_parts import check


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """Return a broker of its own: other tests damage what the shared one stores."""
    return start_broker()


@pytest.fixture
def bob(new_provider: NewProvider) -> ServerProvider:
    """A user of the test's own, who may be deleted."""
    return new_provider(True)


@pytest.fixture
def carol(new_provider: NewProvider) -> ServerProvider:
    return new_provider(True)


def write(provider: ServerProvider, container: uuid.UUID, content: bytes) -> None:
    provider.updateContainerContent(container, content).result(PATIENCE)


def read(provider: ServerProvider, container: uuid.UUID) -> bytes | None:
    return provider.getContainerContent(container).result(PATIENCE)


def epoch(provider: ServerProvider, group: Group) -> int:
    found = seen(provider, group)
    assert found is not None
    return found.epoch


@pytest.mark.long
@both_engines
def test_without_an_owner_managers_change_members_and_nobody_changes_the_managers(
    alice: ServerProvider,
    bob: ServerProvider,
    carol: ServerProvider,
    new_provider: NewProvider,
    broker: BrokerProcess,
) -> None:
    dave = new_provider(True)
    group = accepted(
        team(alice, bob, MemberRole(id_of(carol), SHARER), managers=[id_of(bob)]), bob, carol
    )
    made = shared(alice, group)
    alice.deleteUser().result(PATIENCE)
    write(carol, made, b"carol's")
    added = bob.addGroupMembers(group, id_of(dave)).result(PATIENCE)
    assert (added.epoch, added.version) == (1, 2)
    accepted(group, dave)
    assert read(dave, made) == b"carol's"
    bob.removeGroupMembers(group, id_of(dave)).result(PATIENCE)
    refusal(dave.getContainer(made), BrokerError.notFoundError)
    own = GroupManager(id_of(bob), owner=True)
    refusal(bob.setGroupManagers(group, [own]), BrokerError.permissionDeniedError, "owner")
    refusal(bob.deleteGroup(group), BrokerError.permissionDeniedError, "owner")
    check(broker)


@pytest.mark.long
@both_engines
def test_without_managers_members_continue_and_put_another_group_in_its_place(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, broker: BrokerProcess
) -> None:
    group = accepted(team(alice, MemberRole(id_of(bob), SHARER), carol), bob, carol)
    made = [shared(alice, group) for _ in range(2)]
    alice.deleteUser().result(PATIENCE)
    write(carol, made[0], b"new")
    assert read(bob, made[0]) == b"new"
    refusal(bob.removeGroupMembers(group, id_of(carol)), BrokerError.permissionDeniedError)
    assert epoch(bob, group) == 0
    new = team(bob)
    replaced = bob.replaceGroup(group, new).result(PATIENCE)
    assert (replaced.renewed, replaced.failed) == (2, [])
    assert [read(bob, each) for each in made] == [b"new", b"content"]
    for each in made:
        refusal(carol.getContainer(each), BrokerError.notFoundError)
    check(broker)


@pytest.mark.long
@both_engines
def test_a_user_who_is_deleted_while_a_manager_adds_them_is_not_added(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, broker: BrokerProcess
) -> None:
    group = accepted(team(alice, carol), carol)
    with Network() as network:
        network.treat("PUT", "/records/2", after(lambda: bob.deleteUser().result(PATIENCE)))
        refusal(alice.addGroupMembers(group, id_of(bob)), BrokerError.notFoundError)
    assert roles(carol, group) == {id_of(alice): SHARER, id_of(carol): WRITER}
    assert epoch(carol, group) == 0
    check(broker)


@pytest.mark.long
@both_engines
def test_a_group_and_its_containers_are_deleted_with_the_last_member(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, broker: BrokerProcess
) -> None:
    group = accepted(team(alice, bob), bob)
    made = shared(alice, group)
    hers = shared(carol, group, content=b"")
    alice.deleteUser().result(PATIENCE)
    assert read(bob, made) == b"content"
    bob.deleteUser().result(PATIENCE)
    assert read(carol, hers) == b""
    refusal(carol.getContainer(made), BrokerError.notFoundError)
    check(broker)


@pytest.mark.long
def test_an_owner_drops_another_owner_who_was_deleted_with_the_next_change(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    both = [GroupManager(id_of(bob), owner=True)]
    group = accepted(team(alice, bob, carol, managers=both), bob, carol)
    alice.deleteUser().result(PATIENCE)
    assert bob.renameGroup(group, "Other").result(PATIENCE).epoch == 1
    assert managers(carol, group) == {id_of(bob): True}
