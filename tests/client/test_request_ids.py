"""The id that a broker gives a refused request is in the error, if it looks like one."""

import json
import uuid
from contextlib import AbstractContextManager

import pytest

from scbroker import BrokerError, MemoryTrustStore, ServerProvider
from scbroker.cli import sentence
from tests.kit.answering import answering
from tests.kit.both_engines import on_sqlite
from tests.kit.fixtures import NewProvider
from tests.kit.waiting import PATIENCE


def faulty(*ids: str) -> AbstractContextManager[str]:
    """A broker that fails each request, and names these ids."""
    problem = {"title": "internal", "status": 500, "detail": "It failed.", "code": "internal"}
    headers = [("Scbroker-Protocol", "1"), ("Content-Type", "application/problem+json")]
    headers += [("X-Request-Id", each) for each in ids]
    return answering(500, json.dumps(problem).encode(), headers)


def error_at(url: str) -> BrokerError:
    with (
        ServerProvider(uuid.uuid4(), url, "test", trustStore=MemoryTrustStore()) as provider,
        pytest.raises(BrokerError) as caught,
    ):
        provider.getReminder(uuid.uuid4()).result(PATIENCE)
    return caught.value


@on_sqlite
def test_the_error_of_a_refused_request_has_the_id_that_the_brokers_answer_has(
    new_provider: NewProvider,
) -> None:
    provider = new_provider(True)
    with pytest.raises(BrokerError.notFoundError) as caught:
        provider.getContainer(uuid.uuid4()).result(PATIENCE)
    assert len(caught.value.requestId or "") == 16
    with pytest.raises(BrokerError.invalidArgumentError) as own:
        provider.getContainer("nonsense").result(PATIENCE)
    assert own.value.requestId is None


@pytest.mark.sampled
@pytest.mark.parametrize(
    "ids, read",
    [
        (["0123456789abcdef"], "0123456789abcdef"),
        (["5f2c1f0a-9be0-d3c4"], "5f2c1f0a-9be0-d3c4"),
        ([], None),
        (["0123456789abcdef", "0123456789abcdef"], None),
        (["short"], None),
        (["x" * 65], None),
        (["\x1b[2Jevil-evil"], None),
        (["evil id of 16 ch"], None),
        (["ümlaut-ümlaut-12"], None),
    ],
)
def test_an_id_with_other_characters_or_sizes_is_ignored(ids: list[str], read: str | None) -> None:
    with faulty(*ids) as url:
        assert error_at(url).requestId == read


@pytest.mark.long
def test_the_command_line_shows_the_id_if_the_broker_failed_and_only_then() -> None:
    with faulty("0123456789abcdef") as url:
        assert sentence(error_at(url)).endswith("It failed. (request 0123456789abcdef)")
    refusal = BrokerError.notFoundError("No container.")
    refusal.requestId = "0123456789abcdef"
    assert sentence(refusal) == "No container."
    assert sentence(BrokerError.brokerFaultError("It failed.")) == "It failed."
