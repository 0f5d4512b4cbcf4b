"""Leaving a container: which members may, what others see and do then, and what the device stores."""

import uuid
from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    ContainerAccessLevel,
    MemoryTrustStore,
    ServerProvider,
    WriteOutcome,
)
from scbroker.client.containers import fetching
from scbroker.crypto.verify import HASH_SIZE
from scbroker.wire.containers import ContainerView
from tests.client.conftest import id_of, refusal
from tests.kit.both_engines import both_engines
from tests.kit.fixtures import NewProvider
from tests.kit.limits import lower
from tests.kit.network import Network, after, lying, refused
from tests.kit.waiting import PATIENCE

OWNER = ContainerAccessLevel.DefaultOwnerPermissions
READER = ContainerAccessLevel.DefaultUserPermissions
WRITER = READER | ContainerAccessLevel.Upload
NO_DECRYPT = ContainerAccessLevel.ViewAccess
NO_VIEW = ContainerAccessLevel.Download | ContainerAccessLevel.Decrypt
DEPARTURE = "/departure"


def shared(
    owner: ServerProvider, *others: tuple[ServerProvider, ContainerAccessLevel]
) -> uuid.UUID:
    """A container of the owner to which the others have this access."""
    levels = [AccessLevel(id_of(owner), OWNER)]
    levels += [AccessLevel(id_of(other), level) for other, level in others]
    return owner.createContainer(b"1", {"h": 1}, levels, "letter").result(PATIENCE).id


def members(provider: ServerProvider, container: uuid.UUID) -> dict[uuid.UUID, int]:
    found = provider.getContainerMetadata(container).result(PATIENCE)
    return {level.userId: level.permissions for level in found.access or ()}


def left_marks(provider: ServerProvider, container: uuid.UUID) -> bool:
    """Return whether the device notes that it left."""
    session = provider._session()
    _, mark = fetching.mark_of(session, container.bytes)
    return mark is not None and mark.left


def entries(provider: ServerProvider, container: uuid.UUID) -> int:
    """The number of entries in the list in force, from which nobody has left."""
    found: list[int] = []

    def look(view: ContainerView) -> ContainerView:
        served = view.governing[-1].accessList
        assert served is not None
        assert not served.departures
        found.append(len(served.entryHashes) // HASH_SIZE)
        return view

    with lying(look):
        provider.getContainerMetadata(container).result(PATIENCE)
    return found[-1]


@both_engines
def test_a_user_who_leaves_reads_nothing_more_and_is_not_shown_as_a_member(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    box = shared(alice, (bob, READER), (carol, READER))
    assert bob.getContainer(box).result(PATIENCE).content == b"1"
    result: Any = bob.leaveContainer(box).result(PATIENCE)
    assert result is None
    refusal(bob.getContainer(box), BrokerError.notFoundError)
    refusal(bob.leaveContainer(str(box)), BrokerError.notFoundError)
    for other in (alice, carol):
        assert members(other, box).keys() == {id_of(alice), id_of(carol)}
        secured = other.getSecuredContainer(box).result(PATIENCE)
        assert {level.userId for level in secured.access or ()} == {id_of(alice), id_of(carol)}
    assert box not in [
        each.id for each in bob.iterContainers(headers=False) if not isinstance(each, BrokerError)
    ]


@pytest.mark.sampled
@pytest.mark.parametrize("level", [NO_DECRYPT, NO_VIEW, READER, WRITER], ids=str)
def test_a_member_can_leave_with_any_permissions(
    alice: ServerProvider, bob: ServerProvider, level: ContainerAccessLevel
) -> None:
    """Also without Decrypt, Download or ViewAccess, and without having read the container before."""
    box = shared(alice, (bob, level))
    bob.leaveContainer(box).result(PATIENCE)
    assert members(alice, box).keys() == {id_of(alice)}


def test_the_next_content_is_sealed_under_a_key_that_the_leaver_does_not_have(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    """Carol has neither ModifyAccess nor the permissions of Bob, an owner."""
    box = shared(alice, (bob, OWNER), (carol, WRITER))
    bob.leaveContainer(box).result(PATIENCE)
    before = alice.getSecuredContainer(box).result(PATIENCE)
    after = carol.updateContainerContent(box, b"2").result(PATIENCE)
    assert before.wrap != after.wrap
    assert alice.getContainer(box).result(PATIENCE).content == b"2"
    assert entries(alice, box) == 2


def test_the_only_member_with_modifyaccess_reads_what_to_do_and_may_abandon_the_container(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    box = shared(alice, (bob, WRITER), (carol, READER))
    words = "only member with ModifyAccess: give it to another member first, or pass abandon=True"
    refusal(alice.leaveContainer(box), BrokerError.invalidArgumentError, words)
    assert alice.getContainer(box).result(PATIENCE).version == 1
    alice.leaveContainer(box, abandon=True).result(PATIENCE)
    bob.updateContainerContent(box, b"2").result(PATIENCE)
    assert carol.getContainer(box).result(PATIENCE).content == b"2"
    assert members(carol, box).keys() == {id_of(bob), id_of(carol)}


def test_left_out_does_not_name_a_container_that_this_device_left(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    bob = new_provider(True)
    stays, box = shared(alice, (bob, READER)), shared(alice, (bob, READER))
    for container in (stays, box):
        bob.getContainer(container).result(PATIENCE)
    bob.leaveContainer(box).result(PATIENCE)
    page = bob.listContainers().result(PATIENCE)
    assert [each.id for each in page.containers if not isinstance(each, BrokerError)] == [stays]
    assert list(page.leftOut) == []
    alice.grantAccess(box, AccessLevel(id_of(bob))).result(PATIENCE)
    again = bob.listContainers().result(PATIENCE)
    assert len(again.containers) == 2
    assert list(again.leftOut) == []


def test_another_device_of_the_leaver_notices_and_leaving_there_settles_its_list(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    bob = new_provider(True)
    box = shared(alice, (bob, READER))
    other = new_provider(bob.getKeyRing().result(PATIENCE), trustStore=MemoryTrustStore())
    other.getContainer(box).result(PATIENCE)
    bob.leaveContainer(box).result(PATIENCE)
    assert list(other.listContainers().result(PATIENCE).leftOut) == [box]
    refusal(other.leaveContainer(box), BrokerError.notFoundError)
    assert list(other.listContainers().result(PATIENCE).leftOut) == [box], "a denial alone"
    refusal(other.leaveContainer(box, abandon=True), BrokerError.notFoundError)
    assert list(other.listContainers().result(PATIENCE).leftOut) == []


def test_a_departure_that_the_broker_refuses_is_uncertain_until_the_list_changes(
    alice: ServerProvider, bob: ServerProvider, network: Network
) -> None:
    """The broker has it, and can show it as long as that list is in force."""
    box = shared(alice, (bob, READER))
    network.treat("POST", DEPARTURE, refused(BrokerError.rejectedError()))
    failed = refusal(bob.leaveContainer(box), BrokerError.rejectedError)
    assert failed.outcome is WriteOutcome.Uncertain
    assert failed.containerId == box
    assert not left_marks(bob, box)
    assert bob.getContainer(box).result(PATIENCE).content == b"1"


def test_a_list_that_changes_at_each_attempt_is_a_conflict_and_no_departure_takes_effect(
    alice: ServerProvider, bob: ServerProvider, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, departure_attempts=2)
    box = shared(alice, (bob, READER))
    network.treat("POST", DEPARTURE, refused(BrokerError.conflictError()))
    failed = refusal(bob.leaveContainer(box), BrokerError.conflictError)
    assert failed.outcome is WriteOutcome.Uncertain
    assert len(network.those("POST", DEPARTURE)) == 2


def test_a_departure_that_was_sent_for_an_older_list_has_no_effect(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, network: Network
) -> None:
    """The list that was left is not in force any more when the operation fails."""
    box = shared(alice, (bob, OWNER), (carol, READER))
    levels = [AccessLevel(id_of(bob), OWNER)]
    act = after(lambda: alice.updateContainerAccessLevels(box, levels).result(PATIENCE))
    network.treat("POST", DEPARTURE, act)
    failed = refusal(bob.leaveContainer(box), BrokerError.invalidArgumentError)
    assert failed.outcome is WriteOutcome.NotStored


def test_a_writer_who_drafted_before_the_departure_reads_again_and_honours_it(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, network: Network
) -> None:
    box = shared(alice, (bob, READER), (carol, WRITER))
    network.treat("PUT", "/records/2", after(lambda: bob.leaveContainer(box).result(PATIENCE)))
    assert carol.updateContainerContent(box, b"2").result(PATIENCE).version == 2
    assert len(network.those("PUT", "/records/2")) == 2
    assert entries(alice, box) == 2
    assert alice.getContainer(box).result(PATIENCE).content == b"2"


def test_a_whole_list_that_was_made_before_the_departure_is_a_conflict(
    alice: ServerProvider, bob: ServerProvider, network: Network
) -> None:
    """Otherwise a user who has just left would get access again, and nobody decided that."""
    box = shared(alice, (bob, READER))
    network.treat("PUT", "/records/2", after(lambda: bob.leaveContainer(box).result(PATIENCE)))
    levels = [AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob), WRITER)]
    refusal(alice.updateContainerAccessLevels(box, levels), BrokerError.conflictError, "left")
    refusal(bob.getContainer(box), BrokerError.notFoundError)
