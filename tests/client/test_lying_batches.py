"""A broker that lies about one container of many, or about how many there are."""

from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, SecuredContainer, ServerProvider
from scbroker.client.http.requests import Requests
from scbroker.wire.containers import RecordReceipt, RecordsAnswer, ViewOutcome, ViewsAnswer
from scbroker.wire.problems import ItemProblem
from scbroker.wire.users import KeyRecords
from tests.client.conftest import id_of
from tests.client.test_batches import MemoryDevice, contents, create, get, ids, notes
from tests.client.test_lying_broker import lying


def test_an_author_whom_the_broker_hides_is_missed_in_their_own_containers_alone(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    hers, his = ids(alice, notes(2, alice, carol)), ids(bob, notes(2, bob, carol))
    honest = Requests.call

    async def call(self: Requests, method: str, path: str, answer: Any, **options: Any) -> Any:
        users = getattr(options.get("message"), "users", ())
        if answer is KeyRecords and str(bob_id) in {each.userId for each in users}:
            raise BrokerError.notFoundError("The broker knows no such user.")
        return await honest(self, method, path, answer, **options)

    bob_id = id_of(bob)
    with MemoryDevice(carol) as fresh, pytest.MonkeyPatch.context() as patched:
        patched.setattr(Requests, "call", call)
        assert contents(get(fresh, [hers[0], his[0], hers[1], his[1]])) == [
            b"0", BrokerError.integrityError, b"1", BrokerError.integrityError,
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
