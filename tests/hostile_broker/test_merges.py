"""Attacks on grants and revocations, which change the access list that the broker serves.

Attacks 70 to 74 of `catalogue`. The client adds to the list that the broker serves. So a broker that serves
another list than the newest one, or only a part of it, would have the owner sign what the owner did not ask
for.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, SecuredContainer, ServerProvider, WriteOutcome
from scbroker.wire.containers import RecordOutcome, RecordRequest, RecordsAnswer
from scbroker.wire.problems import ItemProblem
from tests.hostile_broker.accomplices import Mallory, level, marks
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import INTEGRITY, RECORD, ROLLBACK
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, Story, User

RECORDS: Final = "POST /v1/batches/records"
VIEWS: Final = "POST /v1/batches/views"
DONE: Final = SecuredContainer


def shared(alice: User, *others: User, count: int = 2) -> list[Story]:
    grants = {alice: OWNER, **dict.fromkeys(others, READER)}
    return [Story(alice).created(grants) for _ in range(count)]


def grant(device: ServerProvider, told: list[Story], user: User) -> list[Any]:
    ids = [story.uuid for story in told]
    return device.grantAccess(ids, level(user, READER)).result(PATIENCE)


def kinds(found: list[Any]) -> list[type]:
    return [type(each) for each in found]


def names(device: ServerProvider, story: Story) -> set[str]:
    found = device.getContainerMetadata(story.uuid).result(PATIENCE)
    return {str(each.userId) for each in found.access or ()}


Sent = Callable[[], list[RecordRequest]]


@pytest.fixture
def sent(mallory: Mallory) -> Sent:
    """Return every record that clients sent in this test, alone or in a batch."""
    first = len(mallory.heard)

    def records() -> list[RecordRequest]:
        found: list[RecordRequest] = []
        for exchange in mallory.heard[first:]:
            if exchange.name == RECORDS:
                found += exchange.message.records
            elif exchange.name == RECORD:
                found.append(exchange.message)
        return found

    return records


@contextmanager
def refusing(mallory: Mallory, code: str) -> Iterator[list[RecordRequest]]:
    """Refuse every record, alone or in a batch, and keep it; yield the kept records."""
    kept: list[RecordRequest] = []
    problem = ItemProblem(code=code, detail="no")

    def refuse_all(exchange: Exchange) -> None:
        records = exchange.message.records
        kept.extend(records)
        refused = RecordOutcome(receipt=None, problem=problem)
        exchange.invent(RecordsAnswer(records=[refused] * len(records)))

    def refuse(exchange: Exchange) -> None:
        kept.append(exchange.message)
        exchange.fail(BrokerError.conflictError("no"))

    with mallory.meddling(RECORDS, before=refuse_all), mallory.meddling(RECORD, before=refuse):
        yield kept


@attack(70, "older list in a merge")
def test_a_revocation_on_an_older_list_does_not_drop_a_member_whose_addition_was_verified(
    mallory: Mallory, sent: Sent, alice: User, bob: User, carol: User
) -> None:
    told = shared(alice, bob)
    for story in told:
        story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: READER, carol: READER}))
    device = mallory.device_of(alice, bob, carol)
    assert all(names(device, story) == {alice.id, bob.id, carol.id} for story in told)
    for story in told:
        mallory.rewind(story, 1)
    ids = [story.uuid for story in told]
    found = device.revokeAccess(ids, bob.ring.userId).result(PATIENCE)
    assert kinds(found) == [ROLLBACK] * 2
    assert sent() == []


@pytest.mark.sampled
@attack(71, "swapped lists in a merge")
@pytest.mark.parametrize("marked", [False, True], ids=["fresh", "marked"])
def test_the_list_of_another_container_gives_nobody_access(
    mallory: Mallory, sent: Sent, alice: User, bob: User, carol: User, marked: bool
) -> None:
    told = [*shared(alice, count=1), *shared(alice, bob)]
    device = mallory.device_of(alice, bob, carol)
    if marked:
        assert all(names(device, story) for story in told)
    before = marks(device)

    def swap(answer: Any) -> Any:
        return replace(answer, views=[answer.views[n] for n in (1, 0, 2)])

    with mallory.lying(VIEWS, swap):
        found = grant(device, told, carol)
    assert [isinstance(each, BrokerError.untrustedError) for each in found[:2]] == [True, True]
    assert kinds(found[2:]) == [DONE]
    assert len(sent()) == 1
    assert before.items() <= marks(device).items() or marked
    assert names(device, told[0]) == {alice.id}


@pytest.mark.sampled
@attack(72, "endless conflicts")
@pytest.mark.parametrize("count", [1, 3])
def test_after_conflicts_without_end_the_client_stops_and_the_outcome_is_uncertain(
    mallory: Mallory, alice: User, carol: User, count: int
) -> None:
    told = shared(alice, count=count)
    device = mallory.device_of(alice, carol)
    with refusing(mallory, "conflict") as kept:
        found = grant(device, told, carol)
    assert kinds(found) == [BrokerError.conflictError] * count
    assert {each.outcome for each in found} == {WriteOutcome.Uncertain}
    assert len(kept) == 16 * count
    assert kinds(grant(device, told, carol)) == [DONE] * count


@attack(73, "refused grant of many stored later")
def test_a_grant_that_was_stored_and_denied_as_a_conflict_is_found_and_not_made_twice(
    mallory: Mallory, sent: Sent, alice: User, carol: User
) -> None:
    told = shared(alice)
    device = mallory.device_of(alice, carol)
    problem = ItemProblem(code="conflict", detail="no")

    def deny(answer: Any) -> Any:
        denied = replace(answer.records[1], receipt=None, problem=problem)
        return replace(answer, records=[answer.records[0], denied])

    with mallory.lying(RECORDS, deny):
        found = grant(device, told, carol)
    assert [(type(each), each.version) for each in found] == [(DONE, 2), (DONE, 2)]
    assert len(sent()) == 2


@pytest.mark.sampled
@attack(74, "entries withheld from a merge")
@pytest.mark.parametrize("marked", [False, True], ids=["fresh", "marked"])
def test_a_member_whom_the_broker_withholds_from_the_list_is_not_dropped_by_a_grant(
    mallory: Mallory, sent: Sent, alice: User, bob: User, carol: User, marked: bool
) -> None:
    told = shared(alice, bob)
    for story in told:
        story.tell(alice, story.follow(alice, type="governing"))
    device = mallory.device_of(alice, bob, carol)
    if marked:
        assert all(names(device, story) == {alice.id, bob.id} for story in told)
    place = sorted([alice.name, bob.name]).index(bob.name)

    def withhold(answer: Any) -> Any:
        view = answer.views[0].view
        governing = [
            item
            if item.accessList is None
            else replace(
                item,
                accessList=replace(
                    item.accessList,
                    disclosed=[e for e in item.accessList.disclosed if e.position != place],
                ),
            )
            for item in view.governing
        ]
        first = replace(answer.views[0], view=replace(view, governing=governing))
        return replace(answer, views=[first, *answer.views[1:]])

    with mallory.lying(VIEWS, withhold):
        assert kinds(grant(device, told, carol)) == [INTEGRITY, DONE]
    assert len(sent()) == 1
    assert names(device, told[0]) == {alice.id, bob.id}
    assert names(device, told[1]) == {alice.id, bob.id, carol.id}
