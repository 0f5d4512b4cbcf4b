"""Blocking users with the client: who cannot give access any more, by which operations, and what stays."""

import uuid
from typing import Any

import pytest

from scbroker import (
    AccessChange,
    AccessLevel,
    BrokerError,
    ContainerAccessLevel,
    NewContainer,
    SecuredContainer,
    ServerProvider,
)
from scbroker.wire.users import BlockedUsers
from tests.client.conftest import id_of, refusal
from tests.kit.fixtures import NewProvider
from tests.kit.network import lying
from tests.kit.waiting import PATIENCE

OWNER = ContainerAccessLevel.DefaultOwnerPermissions


def names(error: object, user: uuid.UUID) -> bool:
    """Return whether an error says that this user has blocked the caller."""
    return (
        isinstance(error, BrokerError)
        and error == BrokerError.blockedError
        and error == BrokerError.permissionDeniedError
        and str(user) in error.message
        and "leave the user out" in error.message
    )


def test_a_blocked_user_gives_no_access_by_any_operation_and_reads_whom_to_leave_out(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    me, him = id_of(alice), id_of(bob)
    both = [AccessLevel(him, OWNER), AccessLevel(me)]
    box = bob.createContainer(b"his").result(PATIENCE).id
    result: Any = alice.blockUser(him).result(PATIENCE)
    assert result is None
    words = f"User {me} has blocked you: leave the user out"
    refusal(bob.createContainer(b"x", accessLevels=both), BrokerError.blockedError, words)
    refusal(bob.updateContainerAccessLevels(box, both), BrokerError.blockedError, words)
    refusal(bob.updateContainer(box, b"x", None, both), BrokerError.blockedError, words)
    [granted] = bob.grantAccess(box, AccessLevel(me)).result(PATIENCE)
    assert names(granted, me)
    [changed] = bob.updateContainersAccessLevels([AccessChange(box, replace=both)]).result(PATIENCE)
    assert names(changed, me)
    one, other = bob.createContainers(
        [NewContainer(b"1", accessLevels=both), NewContainer(b"2")]
    ).result(PATIENCE)
    assert names(one, me)
    assert isinstance(other, SecuredContainer)
    assert not alice.listContainers().result(PATIENCE).containers
    assert bob.getContainer(box).result(PATIENCE).content == b"his"


def test_access_from_before_the_block_stays_and_the_blocked_user_goes_on_writing(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    levels = [AccessLevel(id_of(bob), OWNER), AccessLevel(id_of(alice))]
    box = bob.createContainer(b"1", accessLevels=levels).result(PATIENCE).id
    alice.blockUser(id_of(bob)).result(PATIENCE)
    bob.updateContainerContent(box, b"2").result(PATIENCE)
    [granted] = bob.grantAccess(box, AccessLevel(id_of(carol))).result(PATIENCE)
    assert isinstance(granted, SecuredContainer)
    for reader in (alice, carol):
        assert reader.getContainer(box).result(PATIENCE).content == b"2"


def test_an_unblocked_user_gives_access_again_and_a_stranger_is_ignored(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    alice.blockUser(str(id_of(bob))).result(PATIENCE)
    results: list[Any] = [
        alice.unblockUser(each).result(PATIENCE) for each in (str(id_of(bob)), uuid.uuid4())
    ]
    assert results == [None, None]
    levels = [AccessLevel(id_of(bob), OWNER), AccessLevel(id_of(alice))]
    box = bob.createContainer(b"1", accessLevels=levels).result(PATIENCE).id
    assert alice.getContainer(box).result(PATIENCE).content == b"1"


def test_blocks_are_listed_by_id_and_blocking_twice_changes_nothing(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, new_provider: NewProvider
) -> None:
    others = [id_of(bob), id_of(carol)]
    for other in [*others, *others]:
        alice.blockUser(other).result(PATIENCE)
    assert alice.getBlockedUsers().result(PATIENCE) == sorted(others)
    assert new_provider(True).getBlockedUsers().result(PATIENCE) == []


def test_a_wrong_user_is_refused(alice: ServerProvider) -> None:
    with pytest.raises(BrokerError.invalidArgumentError, match="userId is your own"):
        alice.blockUser(id_of(alice)).result(PATIENCE)
    refusal(alice.blockUser(uuid.uuid4()), BrokerError.notFoundError, "knows no user")


def test_a_list_that_is_not_in_order_is_refused(alice: ServerProvider, bob: ServerProvider) -> None:
    alice.blockUser(id_of(bob)).result(PATIENCE)

    def doubled(answer: BlockedUsers) -> BlockedUsers:
        return BlockedUsers(users=answer.users * 2)

    with lying(doubled, (BlockedUsers,)):
        refusal(alice.getBlockedUsers(), BrokerError.brokerFaultError, "not in order")
