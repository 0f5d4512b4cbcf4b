"""The hostile broker itself: honest until it is told to lie, and deaf to nothing."""

import pytest

from scbroker import AccessLevel, BrokerError
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.broker import CutError, Exchange
from tests.hostile_broker.protocol import FAULT, INTEGRITY, VIEW
from tests.hostile_broker.served import instead
from tests.kit.impatience import be_impatient
from tests.kit.waiting import PATIENCE


@pytest.mark.process
def test_it_is_an_honest_broker_until_it_is_told_to_lie(mallory: Mallory) -> None:
    before = len(mallory.behind.lines())
    alice, bob = mallory.device(mallory.new_user()), mallory.device(mallory.new_user())
    him = bob.getUserId().result(PATIENCE)
    levels = [AccessLevel(alice.getUserId().result(PATIENCE)), AccessLevel(him)]
    made = alice.createContainer(bytes(70_000), {"h": 1}, accessLevels=levels).result(PATIENCE)
    assert bob.getContainerContent(made.id).result(PATIENCE) == bytes(70_000)
    assert {line["level"] for line in mallory.behind.lines()[before:]} <= {"info"}


def test_it_lies_as_long_as_it_is_told_to_and_the_claim_of_refusal_is_kept(
    mallory: Mallory,
) -> None:
    alice = mallory.device(mallory.new_user())
    made = alice.createContainer(b"truth").result(PATIENCE)
    with mallory.lying(VIEW, instead(content=None)) as told:
        mallory.check_refused(alice, made.id, INTEGRITY, "getContainerContent")
    assert len(told) == 1
    assert alice.getContainerContent(made.id).result(PATIENCE) == b"truth"


def test_a_write_after_the_lie_breaks_the_claim_of_refusal(mallory: Mallory) -> None:
    alice = mallory.device(mallory.new_user())
    made = alice.createContainer(b"truth").result(PATIENCE)

    def claim() -> None:
        with mallory.refused(alice, INTEGRITY) as attempt:
            attempt(alice.getContainerContent(made.id))
            alice.createContainer(b"y").result(PATIENCE)

    with mallory.lying(VIEW, instead(content=None)), pytest.raises(AssertionError):
        claim()


@pytest.mark.long
def test_it_answers_by_itself_and_cuts_connections(
    mallory: Mallory, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_impatient(monkeypatch)
    alice = mallory.device(mallory.new_user())
    made = alice.createContainer(b"truth").result(PATIENCE)
    with mallory.answering(VIEW, b"nonsense"), pytest.raises(FAULT):
        alice.getContainer(made.id).result(PATIENCE)

    def cut(_: Exchange) -> None:
        raise CutError

    with mallory.meddling(VIEW, before=cut), pytest.raises(BrokerError.unreachableError):
        alice.getContainer(made.id).result(PATIENCE)
