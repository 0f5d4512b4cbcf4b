"""The hostile broker itself: honest until it is told to lie, and deaf to nothing."""

import pytest
from msgspec.structs import replace

from scbroker import AccessLevel, BrokerError
from tests.hostile_broker.broker import PATIENCE, CutError, Exchange, HostileBroker
from tests.hostile_broker.conftest import refused

VIEW = "GET /v1/containers/{containerId}"
RECORD = "PUT /v1/containers/{containerId}/records/{version}"


def test_it_is_an_honest_broker_until_it_is_told_to_lie(mallory: HostileBroker) -> None:
    alice, bob = mallory.device(mallory.new_user()), mallory.device(mallory.new_user())
    him = bob.getUserId().result(PATIENCE)
    levels = [AccessLevel(alice.getUserId().result(PATIENCE)), AccessLevel(him)]
    made = alice.createContainer(bytes(70_000), {"h": 1}, accessLevels=levels).result(PATIENCE)
    assert bob.getContainerContent(made.id).result(PATIENCE) == bytes(70_000)
    assert mallory.behind.log == ""


def test_it_lies_as_long_as_it_is_told_to_and_the_claim_of_refusal_is_kept(
    mallory: HostileBroker,
) -> None:
    alice = mallory.device(mallory.new_user())
    made = alice.createContainer(b"truth").result(PATIENCE)
    with (
        mallory.lying(VIEW, lambda view: replace(view, content=None)) as told,
        refused(mallory, alice, BrokerError.integrityError) as attempt,
    ):
        attempt(alice.getContainerContent(made.id))
    assert len(told) == 1
    assert alice.getContainerContent(made.id).result(PATIENCE) == b"truth"


def test_a_write_after_the_lie_breaks_the_claim_of_refusal(mallory: HostileBroker) -> None:
    alice = mallory.device(mallory.new_user())
    made = alice.createContainer(b"truth").result(PATIENCE)

    def claim() -> None:
        with refused(mallory, alice, BrokerError.integrityError) as attempt:
            attempt(alice.getContainerContent(made.id))
            alice.createContainer(b"y").result(PATIENCE)

    with (
        mallory.lying(VIEW, lambda view: replace(view, content=None)),
        pytest.raises(AssertionError),
    ):
        claim()


def test_it_answers_by_itself_and_cuts_connections(mallory: HostileBroker) -> None:
    alice = mallory.device(mallory.new_user(), timeout=2)
    made = alice.createContainer(b"truth").result(PATIENCE)
    with mallory.answering(VIEW, b"nonsense"), pytest.raises(BrokerError.brokerFaultError):
        alice.getContainer(made.id).result(PATIENCE)

    def cut(_: Exchange) -> None:
        raise CutError

    with mallory.meddling(VIEW, before=cut), pytest.raises(BrokerError.unreachableError):
        alice.getContainer(made.id).result(PATIENCE)


def test_it_remembers_what_it_was_sent_and_rolls_back(own_mallory: HostileBroker) -> None:
    mallory = own_mallory
    alice = mallory.device(mallory.new_user())
    made = alice.createContainer(bytes(70_000), type="canary label").result(PATIENCE)
    assert RECORD in mallory.since(0)
    assert "broker.sqlite" in " ".join(mallory.finds(b"canary label"))
    assert mallory.finds(b"never sent") == []
    kept = mallory.snapshot()
    alice.updateContainerContent(made.id, b"newer").result(PATIENCE)
    mallory.roll_back(kept)
    fresh = mallory.device(alice.getKeyRing().result(PATIENCE))
    assert fresh.getContainerContent(made.id).result(PATIENCE) == bytes(70_000)
    with refused(mallory, alice, BrokerError.rollbackError) as attempt:
        attempt(alice.getContainerContent(made.id))
