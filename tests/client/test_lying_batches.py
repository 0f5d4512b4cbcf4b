"""A broker that lies about one container of many, or about how many there are."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import AccessLevel, BrokerError, NewContainer, SecuredContainer, ServerProvider
from scbroker.wire.containers import RecordReceipt, RecordsAnswer, ViewOutcome, ViewsAnswer
from scbroker.wire.problems import ItemProblem
from scbroker.wire.users import KeyRecords
from tests.client.conftest import beside, id_of
from tests.client.test_batches import OWNER, VIEWS, contents, create, get, ids, notes
from tests.client.test_lying_broker import HARMLESS, LIES
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network, lying
from tests.kit.waiting import PATIENCE


@pytest.mark.long
def test_a_lie_in_a_batch_is_that_containers_error(
    alice: ServerProvider, bob: ServerProvider, new_provider: NewProvider
) -> None:
    """All lies that a single reading finds, served of the middle one of three."""
    levels = [AccessLevel(id_of(user), OWNER) for user in (alice, bob)]
    made = ids(alice, [NewContainer(b"c", {"h": 1}, levels, "t") for _ in range(3)])
    for each in made:
        alice.updateContainerAccessLevels(each, levels).result(PATIENCE)
        alice.updateContainerContent(each, b"truth").result(PATIENCE)
    for name, lie in LIES.items():
        fresh = beside(bob, new_provider)

        def about_one(answer: Any, lie: Callable[[Any], Any] = lie) -> Any:
            views = list(answer.views)
            views[1] = replace(views[1], view=lie(views[1].view))
            return replace(answer, views=views)

        with lying(about_one, (ViewsAnswer,)) as told:
            found = get(fresh, made)
        assert len(told) == 1
        assert contents(found[::2]) == [b"truth"] * 2, name
        if name in HARMLESS:
            assert contents(found[1:2]) == [b"truth"]
        else:
            assert isinstance(found[1], BrokerError.untrustedError), name
        assert contents(get(fresh, made)) == [b"truth"] * 3


def test_an_author_whom_the_broker_hides_is_missed_in_their_own_containers_alone(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, new_provider: NewProvider
) -> None:
    hers, his = ids(alice, notes(2, alice, carol)), ids(bob, notes(2, bob, carol))
    bob_id = str(id_of(bob))

    def hidden(answer: KeyRecords) -> KeyRecords:
        if bob_id in {each.userId for each in answer.users}:
            raise BrokerError.notFoundError("The broker knows no such user.")
        return answer

    fresh = beside(carol, new_provider)
    with lying(hidden, (KeyRecords,)):
        assert contents(get(fresh, [hers[0], his[0], hers[1], his[1]])) == [
            b"0", BrokerError.integrityError, b"1", BrokerError.integrityError,
        ]  # fmt: skip


def test_fewer_receipts_than_records_are_a_fault(alice: ServerProvider) -> None:
    with lying(lambda answer: replace(answer, records=answer.records[:-1]), (RecordsAnswer,)):
        assert contents(create(alice, notes(2))) == [BrokerError.brokerFaultError] * 2


def test_swapped_receipts_are_found_and_nothing_is_marked(alice: ServerProvider) -> None:
    def swap(answer: Any) -> Any:
        return replace(answer, records=[answer.records[n] for n in (1, 0, 2)])

    with lying(swap, (RecordsAnswer,)):
        made = create(alice, notes(3))
    assert [type(each) for each in made] == [
        BrokerError.integrityError, BrokerError.integrityError, SecuredContainer,
    ]  # fmt: skip


@pytest.mark.parametrize("both", [True, False], ids=["both", "neither"])
def test_an_answer_that_is_both_or_neither_is_a_fault_of_that_item(
    alice: ServerProvider, both: bool
) -> None:
    problem = ItemProblem(code="rejected", detail="so") if both else None

    def record(answer: Any) -> Any:
        receipt = RecordReceipt(version=1, hash=bytes(32)) if both else None
        first = replace(answer.records[0], receipt=receipt, problem=problem)
        return replace(answer, records=[first, *answer.records[1:]])

    def view(answer: Any) -> Any:
        first = ViewOutcome(view=answer.views[0].view if both else None, problem=problem)
        return replace(answer, views=[first, *answer.views[1:]])

    made = ids(alice, notes(2))
    with lying(view, (ViewsAnswer,)):
        assert contents(get(alice, made)) == [BrokerError.brokerFaultError, b"1"]
    with lying(record, (RecordsAnswer,)):
        found = create(alice, notes(2))
    assert isinstance(found[0], BrokerError.brokerFaultError)
    assert isinstance(found[1], SecuredContainer)


def test_views_that_an_answer_lacks_are_asked_for_again(
    alice: ServerProvider, network: Network
) -> None:
    made = ids(alice, notes(3))

    def one(answer: Any) -> Any:
        return replace(answer, views=answer.views[:1])

    before = len(network.those("POST", VIEWS))
    with lying(one, (ViewsAnswer,)):
        assert contents(get(alice, made)) == [b"0", b"1", b"2"]
    assert len(network.those("POST", VIEWS)) == before + 3
