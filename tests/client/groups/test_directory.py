"""What a device makes of groups that a broker serves: by pins and marks, by rules, by its own keys."""

import uuid
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, Group, MemoryTrustStore, ServerProvider
from scbroker.client.calls.tasks import io_thread
from scbroker.client.groups import opening as kept
from scbroker.client.groups.directory import GroupDirectory
from scbroker.records.canonical import encode_value
from scbroker.wire.groups import GroupList, GroupOutcome, GroupViews
from scbroker.wire.problems import ItemProblem
from tests.client.conftest import refusal
from tests.client.groups.conftest import Device
from tests.client.groups.views import changed_membership, in_pages, serve, view_of
from tests.kit.groups import READER, SHARER
from tests.kit.groups import Group as Made
from tests.kit.network import lying
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User

T = TypeVar("T")
VIEWS = (GroupViews,)
NewUser = Callable[[], User]


def directory(provider: ServerProvider) -> GroupDirectory:
    return provider._session().groups


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of work on the thread of the providers."""
    return io_thread.submit("test", work).result(PATIENCE)


def members(provider: ServerProvider, team: Made) -> dict[uuid.UUID, int]:
    found = provider.getGroupMembers(team.uuid).result(PATIENCE)
    return {member.userId: member.role for member in found}


def mark(provider: ServerProvider, team: Made) -> int:
    found = directory(provider).mark_of(team.uuid)
    return 0 if found is None else found.version


def test_an_answer_that_leaves_groups_out_is_asked_for_the_rest(
    new_user: NewUser, device: Device
) -> None:
    alice = new_user()
    for _ in range(3):
        Made(alice).created()
    provider = device(alice)
    with lying(lambda answer: GroupViews(groups=answer.groups[:1]), about=VIEWS) as answers:
        assert len(provider.getGroups().result(PATIENCE)) == 3
    assert len(answers) == 3


@pytest.mark.sampled
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_long_chain_is_judged_page_by_page(size: int, new_user: NewUser, device: Device) -> None:
    alice, bob = new_user(), new_user()
    team = Made(alice).created({alice: SHARER, bob: READER})
    team.tell_all(alice, *({"name": f"Name {number}"} for number in range(6)))
    if size == 1:  # each page begins with a record that is known: one of one goes on nowhere
        with lying(in_pages(1), about=VIEWS):
            refusal(device(bob).getGroupMembers(team.uuid), BrokerError.integrityError, "withholds")
        return
    with lying(in_pages(size), about=VIEWS) as answers:
        assert members(device(bob), team)[bob.ring.userId] == READER
    assert len(answers) == 6 // (size - 1)


def test_a_reading_that_was_cut_off_goes_on_from_a_partial_mark(
    new_user: NewUser, device: Device
) -> None:
    alice, bob = new_user(), new_user()
    team = Made(alice).created({alice: SHARER, bob: READER})
    team.tell_all(alice, *({"name": f"Name {number}"} for number in range(5)))
    store, left = MemoryTrustStore(), [2]

    def cut_off(answer: GroupViews) -> GroupViews:
        left[0] -= 1
        if left[0] < 0:
            raise BrokerError.unreachableError("cut off")
        return in_pages(2)(answer)  # type: ignore[no-any-return]

    with lying(cut_off, about=VIEWS):
        refusal(device(bob, store).getGroupMembers(team.uuid), BrokerError.unreachableError)
    again = device(bob, store)
    assert mark(again, team) == 3
    assert members(again, team).keys() == {alice.ring.userId, bob.ring.userId}
    found = directory(again).mark_of(team.uuid)
    assert found is not None
    assert (found.version, found.partial, found.complete) == (6, False, True)


def test_another_group_for_a_pinned_id_is_a_key_substitution(
    new_user: NewUser, device: Device
) -> None:
    alice = new_user()
    team = Made(alice).created()
    store = MemoryTrustStore()
    provider = device(alice, store)
    members(provider, team)
    marks = provider._session().marks
    stored = marks.get(kept.PIN, team.id)
    pin = kept.pin_of(marks, team.uuid)
    assert pin is not None
    other = encode_value(replace(pin, name=bytes(32)))
    assert marks.swap(kept.PIN, team.id, stored, other)
    refusal(device(alice, store).getGroupMembers(team.uuid), BrokerError.keySubstitutionError)


def test_more_views_than_were_asked_for_are_refused(new_user: NewUser, device: Device) -> None:
    alice = new_user()
    team = Made(alice).created()
    with lying(lambda found: GroupViews(groups=[*found.groups, *found.groups]), about=VIEWS):
        refusal(device(alice).getGroupMembers(team.uuid), BrokerError.brokerFaultError)


def test_a_list_that_is_not_in_order_is_refused(new_user: NewUser, device: Device) -> None:
    alice = new_user()
    for _ in range(2):
        Made(alice).created()
    provider = device(alice)

    def backwards(found: GroupList) -> GroupList:
        return GroupList(groups=list(reversed(found.groups)), next=None)

    with lying(backwards, about=(GroupList,)):
        refusal(provider.getGroups(), BrokerError.brokerFaultError, "order")
    with lying(lambda found: replace(found, next=str(uuid.uuid4())), about=(GroupList,)):
        refusal(provider.getGroups(), BrokerError.brokerFaultError, "order")


def test_a_list_of_several_pages_is_read_to_its_end(new_user: NewUser, device: Device) -> None:
    alice = new_user()
    teams = [Made(alice).created() for _ in range(3)]
    ids = sorted(str(team.uuid) for team in teams)
    provider = device(alice)

    def one_by_one(found: GroupList) -> GroupList:
        first = found.groups[:1]
        return GroupList(groups=first, next=first[0].groupId if len(found.groups) > 1 else None)

    with lying(one_by_one, about=(GroupList,)) as answers:
        listed = run(directory(provider).listed())
    assert [str(each.group_id) for each in listed] == ids
    assert len(answers) == 3


def test_a_problem_with_one_group_stands_in_its_place_in_the_list(
    new_user: NewUser, device: Device
) -> None:
    alice = new_user()
    for _ in range(2):
        Made(alice).created()

    def fail_first(answer: GroupViews) -> GroupViews:
        problem = ItemProblem(code="internal", detail="The broker failed.")
        return GroupViews(groups=[GroupOutcome(view=None, problem=problem), *answer.groups[1:]])

    with lying(fail_first, about=VIEWS):
        failed, found = device(alice).getGroups().result(PATIENCE)
    assert isinstance(failed, BrokerError)
    assert failed.containerId is not None
    assert isinstance(found, Group)
    assert failed.containerId < found.id


def test_a_departure_that_the_broker_shows_the_leaver_ends_the_membership_there(
    new_user: NewUser, device: Device
) -> None:
    alice, bob = new_user(), new_user()
    team = Made(alice).created({alice: SHARER, bob: READER})
    with lying(changed_membership(departures=[team.departure(bob).departure]), about=VIEWS):
        refusal(device(bob).getGroupMembers(team.uuid), BrokerError.notFoundError, "left")


def test_another_group_than_the_one_asked_for_is_refused(new_user: NewUser, device: Device) -> None:
    alice = new_user()
    team, other = Made(alice).created(), Made(alice).created()
    with lying(serve(view_of(other, other.requests, reader=alice)), about=VIEWS):
        refused = device(alice).getGroupMembers(team.uuid)
        refusal(refused, BrokerError.integrityError, "another group")


def test_of_a_group_that_the_broker_lists_and_does_not_know_a_device_warns_once_until_it_reads_it(
    new_user: NewUser, device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have been deleted between the two requests, and would then be missing for ever."""
    alice, bob = new_user(), new_user()
    team = Made(alice).created({alice: SHARER, bob: READER})
    provider = device(bob)
    provider.getGroups().result(PATIENCE)
    problem = ItemProblem(code="not-found", detail="No group has this id.")
    unknown = GroupViews(groups=[GroupOutcome(view=None, problem=problem)])

    def warnings(device: ServerProvider) -> int:
        caplog.clear()
        with caplog.at_level("WARNING", "scbroker"), lying(lambda _: unknown, about=VIEWS):
            assert device.getGroups().result(PATIENCE) == []
        return caplog.text.count(f"does not know group {team.uuid}")

    assert warnings(device(bob)) == 0, "this device has not known it"
    assert [warnings(provider) for _ in range(2)] == [1, 0]
    assert len(provider.getGroups().result(PATIENCE)) == 1
    assert warnings(provider) == 1
    provider.getGroups().result(PATIENCE)
    provider.leaveGroup(team.uuid, abandon=True).result(PATIENCE)
    assert warnings(provider) == 0, "the user has left it"
