"""A broker in the process of the tests: what providers notice of it is what they notice of any broker."""

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from scbroker import BrokerError, ServerProvider
from scbroker.testing import InProcessBroker
from tests.kit.waiting import PATIENCE

LARGE = bytes(range(256)) * 80_000


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker(max_content=50_000_000) as started:
        yield started


@pytest.fixture(scope="module")
def alice(broker: InProcessBroker) -> ServerProvider:
    return broker.new_user()


def test_both_call_styles_reach_it_and_bodies_are_streamed(alice: ServerProvider) -> None:
    made = alice.createContainer(LARGE).result(PATIENCE)

    async def work() -> None:
        assert (await alice.getContainer(made.id)).version == 1
        assert await alice.getContainerContent(made.id) == LARGE

    asyncio.run(work())


def test_its_settings_hold_and_errors_are_those_of_the_protocol(alice: ServerProvider) -> None:
    with pytest.raises(BrokerError.tooLargeError) as caught:
        alice.createContainer(bytes(50_000_001)).result(PATIENCE)
    assert caught.value.requestId


def test_a_provider_follows_its_events(broker: InProcessBroker) -> None:
    alice = broker.new_user()

    async def work() -> None:
        async with alice.followEvents(1) as events:
            first = asyncio.create_task(anext(events))
            made = await alice.createContainer(b"")
            assert (await asyncio.wait_for(first, PATIENCE)).containerId == made.id

    asyncio.run(work())


def test_a_broker_that_has_ended_is_unreachable_and_a_new_one_has_another_address() -> None:
    with InProcessBroker() as first:
        provider = first.new_provider(timeout=1.0)
    with InProcessBroker() as second:
        assert second.url != first.url
    with pytest.raises(BrokerError.unreachableError, match="refused"):
        provider.getReminder("8bc85a1e-7008-81b5-a4a4-91ea171fbdd7").result(PATIENCE)


def test_a_wrong_setting_is_named() -> None:
    with (
        pytest.raises(BrokerError.invalidArgumentError, match="QUOTA_BITES"),
        InProcessBroker(quota_bites=1),
    ):
        pass


def test_what_it_logs_goes_to_logging(caplog: pytest.LogCaptureFixture) -> None:
    structlog.reset_defaults()  # `capture_logs` of another test leaves it configured
    with caplog.at_level(logging.INFO, "scbroker.server"), InProcessBroker():
        structlog.get_logger("scbroker.server").info("a line", name="a field of logging's own")
    events = [json.loads(record.message)["event"] for record in caplog.records]
    assert {"a line", "stopped"} <= set(events)
