"""Changes of access to many containers at once keep other members, and each has its own outcome."""

import datetime as dt
import uuid
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from scbroker import (
    AccessChange,
    AccessLevel,
    Availability,
    BrokerError,
    ContainerAccessLevel,
    NewContainer,
    SecuredContainer,
    ServerProvider,
    WriteOutcome,
)
from scbroker.wire.containers import RecordsAnswer
from scbroker.wire.problems import ItemProblem
from tests.client.conftest import beside, id_of
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess
from tests.kit.devices import outcome
from tests.kit.fixtures import NewProvider
from tests.kit.limits import lower
from tests.kit.network import Go, HeldAnswer, Network, Octets, lying, refused
from tests.kit.waiting import PATIENCE

RECORDS = "/v1/batches/records"
VIEWS = "/v1/batches/views"
KEYS = "/v1/key-records"
OWNER = ContainerAccessLevel.DefaultOwnerPermissions
READER = ContainerAccessLevel.DefaultUserPermissions
WRITER = READER | ContainerAccessLevel.Upload
NOBODY = uuid.UUID("00000000-0000-8000-8000-000000000000")
DONE = SecuredContainer
Members = dict[uuid.UUID, ContainerAccessLevel]


def made(provider: ServerProvider, count: int, *levels: AccessLevel) -> list[uuid.UUID]:
    items = [NewContainer(b"%d" % n, accessLevels=levels) for n in range(count)]
    found = provider.createContainers(items).result(PATIENCE)
    return [each.id for each in found if isinstance(each, SecuredContainer)]


def members(provider: ServerProvider, container: uuid.UUID) -> Members:
    found = provider.getContainerMetadata(container).result(PATIENCE)
    return {level.userId: level.permissions for level in found.access or ()}


def kinds(found: Sequence[object]) -> list[type]:
    return [type(each) for each in found]


def test_a_grant_adds_to_the_list_of_each_container_in_one_request_of_each_kind(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, network: Network
) -> None:
    me, him, her = id_of(alice), id_of(bob), id_of(carol)
    some = [*made(alice, 2), *made(alice, 2, AccessLevel(me, OWNER), AccessLevel(him, WRITER))]
    before = len(network.those("POST", RECORDS))
    keys = len(network.those("POST", KEYS))
    found = alice.grantAccess(some, [AccessLevel(her), AccessLevel(him, READER)]).result(PATIENCE)
    assert len(network.those("POST", RECORDS)) == before + 1
    assert len(network.those("POST", VIEWS)) == 1
    assert len(network.those("POST", KEYS)) == keys + 1
    assert kinds(found) == [DONE] * 4
    for container, result in zip(some, found, strict=True):
        assert isinstance(result, SecuredContainer)
        assert (result.id, result.version) == (container, 2)
        assert members(alice, container) == {me: OWNER, him: READER, her: READER}
        assert result.access is not None
        assert {level.userId for level in result.access} == {me, him, her}
    assert [each.content for each in carol.getContainers(some).result(PATIENCE)] == [  # type: ignore[union-attr]
        b"0", b"1", b"0", b"1",
    ]  # fmt: skip


def test_a_revocation_removes_users_from_each_list_and_they_cannot_open_later_contents(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    me, him, her = id_of(alice), id_of(bob), id_of(carol)
    levels = [AccessLevel(me, OWNER), AccessLevel(him), AccessLevel(her)]
    some = made(alice, 3, *levels)
    found = alice.revokeAccess(some, [him, NOBODY]).result(PATIENCE)
    assert kinds(found) == [DONE] * 3
    for container in some:
        assert members(alice, container) == {me: OWNER, her: READER}
    assert kinds(bob.getContainers(some).result(PATIENCE)) == [BrokerError.notFoundError] * 3
    assert carol.getContainerContent(some[0]).result(PATIENCE) == b"0"


def test_a_list_that_would_not_change_is_not_written_and_the_container_is_the_result(
    alice: ServerProvider, bob: ServerProvider, network: Network
) -> None:
    me, him = id_of(alice), id_of(bob)
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    some = made(alice, 2, AccessLevel(me, OWNER), AccessLevel(him, WRITER, until))
    before = len(network.those("POST", RECORDS))
    same = AccessLevel(him, WRITER, until)
    for found in (
        alice.grantAccess(some, same).result(PATIENCE),
        alice.revokeAccess(some, NOBODY).result(PATIENCE),
        alice.grantAccess(some, []).result(PATIENCE),
        alice.updateContainersAccessLevels([AccessChange(each) for each in some]).result(PATIENCE),
        [
            *alice.grantAccess(some[0], same).result(PATIENCE),
            *alice.revokeAccess(some[1], []).result(PATIENCE),
        ],
    ):
        assert [each.id for each in found if isinstance(each, SecuredContainer)] == some
        for each in found:
            assert isinstance(each, SecuredContainer)
            assert (each.version, each.contentAvailability) == (1, Availability.NotIncluded)
    assert len(network.those("POST", RECORDS)) == before
    assert not network.those("PUT", "/records/2")
    assert kinds(alice.grantAccess(some, AccessLevel(him, WRITER)).result(PATIENCE)) == [DONE] * 2
    assert {
        level.expiresAt for level in alice.getContainer(some[0]).result(PATIENCE).access or ()
    } == {None}


def test_an_item_adds_removes_or_replaces(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    me, him, her = id_of(alice), id_of(bob), id_of(carol)
    some = made(alice, 4, AccessLevel(me, OWNER), AccessLevel(him))
    changes = [
        AccessChange(some[0], add=iter([AccessLevel(her, WRITER)]), remove=iter([him])),
        AccessChange(some[1], replace=[AccessLevel(me, OWNER), AccessLevel(her)]),
        AccessChange(some[2], replace=[]),
        AccessChange(some[3], remove=[me], add=[AccessLevel(him, OWNER)]),
    ]
    found = alice.updateContainersAccessLevels(iter(changes)).result(PATIENCE)
    assert kinds(found) == [DONE] * 4
    assert [members(alice, each) for each in some[:3]] == [
        {me: OWNER, her: WRITER}, {me: OWNER, her: READER}, {me: OWNER},
    ]  # fmt: skip
    assert members(bob, some[3]) == {him: OWNER}
    last = found[3]
    assert isinstance(last, SecuredContainer)
    assert (last.access, last.wrap) == (None, None)


@pytest.mark.long
@both_engines
def test_devices_that_grant_different_users_at_once_lose_no_grant(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, new_provider: NewProvider
) -> None:
    some = made(alice, 50)
    phone = beside(alice, new_provider)
    for round_ in (READER, WRITER):
        granting = [
            alice.grantAccess(some, AccessLevel(id_of(bob), round_)),
            phone.grantAccess(some[::-1], AccessLevel(id_of(carol), round_)),
        ]
        for promise in granting:
            assert kinds(promise.result(PATIENCE)) == [DONE] * 50
        expected = {id_of(alice): OWNER, id_of(bob): round_, id_of(carol): round_}
        assert [members(alice, each) for each in some] == [expected] * 50
    revoking = [
        alice.revokeAccess(some, id_of(bob)),
        phone.grantAccess(some, AccessLevel(id_of(carol))),
    ]
    for promise in revoking:
        assert kinds(promise.result(PATIENCE)) == [DONE] * 50
    expected = {id_of(alice): OWNER, id_of(carol): READER}
    assert [members(phone, each) for each in some] == [expected] * 50
    phone.close()


def test_a_replaced_list_is_a_conflict_if_others_changed_access_meanwhile(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, network: Network,
    new_provider: NewProvider,
) -> None:  # fmt: skip
    me, him, her = id_of(alice), id_of(bob), id_of(carol)
    some = made(alice, 2)
    held = HeldAnswer()
    network.treat("POST", VIEWS, held.hold)
    levels = [AccessLevel(me, OWNER), AccessLevel(him)]
    changes = [AccessChange(each, replace=levels) for each in some]
    promise = alice.updateContainersAccessLevels(changes)
    assert held.arrived.wait(PATIENCE)
    with beside(alice, new_provider) as phone:
        phone.grantAccess(some[0], AccessLevel(her)).result(PATIENCE)
    held.release.set()
    conflict, done = promise.result(PATIENCE)
    assert isinstance(conflict, BrokerError.conflictError)
    assert conflict.outcome is WriteOutcome.NotStored
    assert isinstance(done, SecuredContainer)
    assert members(alice, some[0]) == {me: OWNER, her: READER}


def test_each_container_has_its_own_error_and_the_others_are_changed(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, network: Network
) -> None:
    me, him, her = id_of(alice), id_of(bob), id_of(carol)
    mine = made(bob, 2)
    [limited] = made(alice, 1, AccessLevel(me, OWNER), AccessLevel(him, WRITER))
    [weak] = made(
        alice, 1, AccessLevel(me, OWNER), AccessLevel(him, WRITER | ContainerAccessLevel.ModifyAccess)
    )  # fmt: skip
    [foreign] = made(alice, 1)
    [deleted] = made(bob, 1)
    bob.deleteContainer(deleted).result(PATIENCE)
    count = len(network.those("POST", RECORDS))
    some = [mine[0], limited, weak, foreign, deleted, NOBODY, mine[1]]
    found = bob.grantAccess(some, AccessLevel(her, OWNER)).result(PATIENCE)
    assert kinds(found) == [
        DONE, BrokerError.permissionDeniedError, BrokerError.permissionDeniedError,
        BrokerError.notFoundError, BrokerError.deletedError, BrokerError.notFoundError, DONE,
    ]  # fmt: skip
    assert all(
        each.outcome is WriteOutcome.NotStored for each in found if isinstance(each, BrokerError)
    )
    assert "lacks ModifyAccess" in str(found[1])
    assert "beyond your own access" in str(found[2])
    assert len(network.those("POST", RECORDS)) == count + 1
    assert members(alice, limited).keys() == members(alice, weak).keys() == {me, him}


def test_users_who_do_not_exist_are_an_error_of_the_containers_that_name_them(
    alice: ServerProvider, bob: ServerProvider, new_provider: NewProvider
) -> None:
    gone = new_provider(True)
    lost = id_of(gone)
    me, him = id_of(alice), id_of(bob)
    [old] = made(alice, 1, AccessLevel(me, OWNER), AccessLevel(lost))
    new = made(alice, 2)
    gone.deleteUser().result(PATIENCE)
    changes = [
        AccessChange(new[0], add=[AccessLevel(lost)]),
        AccessChange(old, add=[AccessLevel(him)]),
        AccessChange(new[1], add=[AccessLevel(him)]),
    ]
    found = alice.updateContainersAccessLevels(changes).result(PATIENCE)
    assert kinds(found) == [BrokerError.notFoundError, DONE, DONE]
    assert members(alice, old).keys() == {me, him, lost}
    changes[0] = AccessChange(new[0], add=[AccessLevel(NOBODY)])
    changes[1:] = [AccessChange(each, remove=[him]) for each in (old, new[1])]
    found = alice.updateContainersAccessLevels(changes).result(PATIENCE)
    assert kinds(found) == [BrokerError.notFoundError, DONE, DONE]
    assert kinds(alice.revokeAccess(old, lost).result(PATIENCE)) == [DONE]
    assert members(alice, old).keys() == {me}


def test_a_revocation_of_the_last_member_is_refused(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    me, him = id_of(alice), id_of(bob)
    [alone] = made(alice, 1)
    [shared] = made(alice, 1, AccessLevel(me, OWNER), AccessLevel(him))
    found = alice.revokeAccess([alone, shared], [me, him]).result(PATIENCE)
    assert kinds(found) == [BrokerError.invalidArgumentError] * 2
    assert "delete it with deleteContainer" in str(found[0])
    assert members(alice, shared) == {me: OWNER, him: READER}


def test_a_grant_that_exceeds_the_entries_of_a_container_is_refused(
    alice: ServerProvider,
    bob: ServerProvider,
    carol: ServerProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lower(monkeypatch, entries=2)
    some = made(alice, 2, AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob)))
    found = alice.grantAccess(some, AccessLevel(id_of(carol))).result(PATIENCE)
    assert kinds(found) == [BrokerError.tooLargeError] * 2
    assert "3 users would have access to the container: it takes at most 2" in str(found[0])


def test_a_container_that_is_deleted_before_the_change_arrives_is_an_error_only_with_its_tombstone(
    alice: ServerProvider, bob: ServerProvider, network: Network, new_provider: NewProvider
) -> None:
    some = made(alice, 3)
    held = HeldAnswer()
    network.treat("POST", VIEWS, held.hold)
    promise = alice.grantAccess(some, AccessLevel(id_of(bob)))
    assert held.arrived.wait(PATIENCE)
    with beside(alice, new_provider) as phone:
        phone.deleteContainer(some[1]).result(PATIENCE)

    def deny(answer: RecordsAnswer) -> RecordsAnswer:
        problem = ItemProblem(code="deleted", detail="so")
        denied = replace(answer.records[2], receipt=None, problem=problem)
        return replace(answer, records=[*answer.records[:2], denied])

    with lying(deny, (RecordsAnswer,)):
        held.release.set()
        found = promise.result(PATIENCE)
    # The broker has stored the third grant: the client finds it when it reads the container for a tombstone.
    assert kinds(found) == [DONE, BrokerError.deletedError, DONE]
    assert isinstance(found[1], BrokerError)
    assert found[1].outcome is WriteOutcome.NotStored


@pytest.mark.long
def test_an_expired_user_is_revoked_with_a_new_container_key(
    ahead: BrokerProcess, new_provider: NewProvider
) -> None:
    alice = new_provider(True, at=ahead)
    me, him, her = id_of(alice), ahead.new_user().userId, ahead.new_user().userId
    end = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    some = made(alice, 2, AccessLevel(me, OWNER), AccessLevel(him, READER, end), AccessLevel(her))
    ahead.clock_ahead = 3600
    [same] = alice.grantAccess(some[0], AccessLevel(her)).result(PATIENCE)
    assert isinstance(same, SecuredContainer)
    assert same.version == 1
    for found in alice.revokeAccess(some, him).result(PATIENCE):
        assert isinstance(found, SecuredContainer)
        assert found.version == 2
        assert {level.userId for level in found.access or ()} == {me, her}


def test_a_failed_request_is_the_error_of_each_of_its_containers(
    alice: ServerProvider, bob: ServerProvider, network: Network
) -> None:
    some = made(alice, 2)
    [same] = made(alice, 1, AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob)))
    down = BrokerError.unreachableError("No broker answers.")
    network.treat("POST", RECORDS, refused(down))
    found = alice.grantAccess([*some, same], AccessLevel(id_of(bob))).result(PATIENCE)
    assert kinds(found) == [type(down), type(down), DONE]
    for error, container in zip(found[:2], some, strict=True):
        assert isinstance(error, BrokerError)
        assert (error.outcome, error.containerId) == (WriteOutcome.Uncertain, container)
    network.treat("POST", VIEWS, refused(down))
    network._treatments.reverse()
    with pytest.raises(BrokerError.unreachableError) as caught:
        alice.revokeAccess(some, id_of(bob)).result(PATIENCE)
    assert caught.value.outcome is WriteOutcome.NotStored


def test_keys_that_another_read_failed_to_fetch_are_requested_again(
    alice: ServerProvider, bob: ServerProvider, new_provider: NewProvider, network: Network
) -> None:
    me, him = AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob), READER)
    containers = made(alice, 3, me, him)
    device = new_provider(bob.getKeyRing().result(PATIENCE))
    failures = [BrokerError.brokerFaultError("The answer is garbled.")]

    async def once(go: Go) -> Octets:
        answer = await go()
        if failures:
            raise failures.pop()
        return answer

    network.treat("POST", KEYS, once)
    promises = [device.getContainer(each) for each in containers]
    reads = [outcome(each) for each in promises]
    errors = [each.error for each in reads if each.error is not None]
    assert [type(each) for each in errors] == [BrokerError.brokerFaultError]
    assert len([each for each in reads if each.error is None]) == 2
