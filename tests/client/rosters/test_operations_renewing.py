"""Renewing all containers of a group, and putting another group in its place."""

import datetime as dt
import uuid
from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    ContainerAccessLevel,
    Group,
    MemberRole,
    ServerProvider,
    WriteOutcome,
)
from scbroker.wire.containers import ContainerList
from tests.client.conftest import id_of, refusal
from tests.client.rosters.conftest import SHARER, accepted, team
from tests.kit.both_engines import both_engines
from tests.kit.network import Network, lying, refused
from tests.kit.waiting import PATIENCE

Level = ContainerAccessLevel
OWNER = Level.DefaultOwnerPermissions


def shared(owner: ServerProvider, group: Group, *contents: bytes, **level: Any) -> list[uuid.UUID]:
    """Containers of the owner to which the group has access, by default all of it."""
    given = AccessLevel(group, **{"permissions": OWNER, **level})
    levels = [AccessLevel(id_of(owner), OWNER), given]
    return [
        owner.createContainer(content, None, levels).result(PATIENCE).id for content in contents
    ]


def access(provider: ServerProvider, container: uuid.UUID) -> dict[uuid.UUID, AccessLevel]:
    found = provider.getContainerMetadata(container).result(PATIENCE)
    return {level.userId: level for level in found.access or ()}


@both_engines
def test_containers_are_renewed_in_batches_and_a_repeated_call_does_what_is_left(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, monkeypatch: Any
) -> None:
    group = accepted(team(alice, bob, carol), bob, carol)
    made = shared(alice, group, b"1", b"2", b"3", b"4", b"5")
    other = shared(alice, accepted(team(alice)), b"not of this group")
    alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE)
    monkeypatch.setattr("scbroker.client.rosters.operations._AT_ONCE", 2)
    done: list[tuple[int, int | None]] = []
    down = BrokerError.unreachableError("Down.", sent=False)

    def progress(renewed: int, total: int | None) -> None:
        done.append((renewed, total))
        if renewed == 2:
            network.treat("POST", "/v1/batches/records", refused(down))
            network.treat("PUT", "/records/2", refused(down))

    with Network() as network:
        refusal(carol.renewGroup(group, progress=progress), BrokerError.unreachableError)
    assert done in ([(2, None)], [(2, None), (4, None)])  # the second batch may be on its way
    left, again = 5 - done[-1][0], list[int]()
    renewed = carol.renewGroup(group, progress=lambda now, _: again.append(now)).result(PATIENCE)
    # What the second batch stored is not counted if its answer did not come in time.
    assert 1 <= renewed.renewed <= left
    assert renewed.failed == []
    assert again == sorted(again)
    assert again[-1] == renewed.renewed
    versions = [alice.getContainerMetadata(each).result(PATIENCE).version for each in made + other]
    assert versions == [2, 2, 2, 2, 2, 1]
    assert [carol.getContainerContent(each).result(PATIENCE) for each in made] == [
        b"1", b"2", b"3", b"4", b"5",
    ]  # fmt: skip


@pytest.mark.long
@both_engines
def test_a_container_that_cannot_be_renewed_is_reported_and_the_others_are(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    """The group can only read bob's container. Carol has no entry of her own there: she cannot renew it."""
    group = accepted(team(alice, bob, carol), bob, carol)
    [fixed] = shared(bob, group, b"fixed", permissions=Level.DefaultUserPermissions)
    [free] = shared(bob, group, b"free")
    alice.renewGroup(group, newKey=True).result(PATIENCE)
    alice.renewGroup(group, newKey=True).result(PATIENCE)
    found = carol.renewGroup(group).result(PATIENCE)
    assert (found.renewed, [each.containerId for each in found.failed]) == (0, [fixed])
    assert isinstance(found.failed[0], BrokerError.permissionDeniedError)
    assert bob.getContainerMetadata(free).result(PATIENCE).version == 3
    assert bob.renewGroup(group).result(PATIENCE).renewed == 1


def test_a_removal_whose_renewal_fails_is_stored(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = accepted(team(alice, bob, carol), bob, carol)
    shared(alice, group, b"1")
    with Network() as network:
        network.treat("POST", "/v1/containers/list", refused(BrokerError.unreachableError("Down.")))
        with pytest.raises(BrokerError.unreachableError) as raised:
            alice.removeGroupMembers(group, id_of(bob), renew=True).result(PATIENCE)
    assert raised.value.outcome is WriteOutcome.Stored
    assert raised.value.containerId == group.id
    again = alice.removeGroupMembers(group, id_of(bob), renew=True).result(PATIENCE)
    assert again.renewal is not None
    assert (again.version, again.renewal.renewed) == (2, 1)


@pytest.mark.long
@both_engines
def test_another_group_gets_the_same_permissions_until_the_same_time(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    old = accepted(team(alice, MemberRole(id_of(bob), SHARER)), bob)
    new = accepted(team(bob, carol), carol)
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    [made] = shared(alice, old, b"ours", expiresAt=until)
    [both] = shared(alice, old, b"both", permissions=OWNER)
    alice.grantAccess(both, AccessLevel(new, Level.DefaultUserPermissions, until)).result(PATIENCE)
    [fixed] = shared(alice, old, b"fixed", permissions=Level.DefaultUserPermissions)
    found = bob.replaceGroup(old, new).result(PATIENCE)
    assert found.renewed == 2
    [failed] = found.failed
    assert (type(failed), failed.containerId) == (BrokerError.permissionDeniedError, fixed)
    assert access(alice, made)[new.id] == AccessLevel(new, OWNER, until)
    assert access(alice, both)[new.id] == AccessLevel(new, OWNER)
    assert old.id not in access(alice, made).keys() | access(alice, both).keys()
    assert carol.getContainerContent(made).result(PATIENCE) == b"ours"


def test_a_group_is_replaced_by_a_sharer_and_by_another_living_group(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    old, new = accepted(team(alice, bob), bob), team(alice)
    refusal(bob.replaceGroup(old, new), BrokerError.permissionDeniedError, "Sharer")
    refusal(alice.replaceGroup(old, uuid.uuid4()), BrokerError.notFoundError)
    with pytest.raises(BrokerError.invalidArgumentError, match="another group"):
        alice.replaceGroup(old, old.id).result(PATIENCE)
    shared(alice, new, b"kept")  # as long as a container names it, its tombstone is served
    alice.deleteGroup(new).result(PATIENCE)
    refusal(alice.replaceGroup(old, new), BrokerError.deletedError)


def test_a_list_that_does_not_continue_after_the_last_page_is_refused(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    shared(alice, group, b"1", b"2")

    def backwards(found: ContainerList) -> ContainerList:
        return ContainerList(containers=list(reversed(found.containers)), next=None)

    with lying(backwards, about=(ContainerList,)):
        refusal(alice.renewGroup(group, newKey=True), BrokerError.brokerFaultError, "order")
