"""An overloaded broker is asked again when it says so, and never by more and more."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import msgspec
import pytest

from scbroker import BrokerError, MemoryTrustStore, ServerProvider
from scbroker.client.http import requests as module
from scbroker.wire import codec
from scbroker.wire.users import ReminderAnswer
from tests.kit.tcp import PROTOCOL, BadBroker, http
from tests.kit.waiting import PATIENCE

GOOD = http(200, codec.encode(ReminderAnswer(reminder="it works")), PROTOCOL)


def overloaded(seconds: str) -> bytes:
    problem = {"type": "about:blank", "title": "overloaded", "status": 503,
               "detail": "why", "code": "overloaded"}  # fmt: skip
    headers = PROTOCOL + f"Retry-After: {seconds}\r\n".encode()
    return http(503, msgspec.json.encode(problem), headers)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, by a clock that only the pauses move; no request times out."""
    found: list[float] = []

    async def note(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(module, "sleep", note)
    monkeypatch.setattr(module, "monotonic", lambda: sum(found))
    endless = {"timeout": lambda _: asyncio.timeout(None)}
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(**{**vars(asyncio), **endless}))
    return found


@contextmanager
def client(broker: BadBroker, timeout: float = PATIENCE) -> Iterator[ServerProvider]:
    key = uuid.uuid4()
    provider = ServerProvider(
        key, broker.url, "tests", trustStore=MemoryTrustStore(), timeout=timeout
    )
    with provider:
        yield provider


def ask(provider: ServerProvider) -> str:
    return provider.getReminder(uuid.uuid4()).result(PATIENCE)


def lines_of(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_the_first_retry_is_logged_with_its_reason_and_that_the_request_went_on(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """A second request that is retried within ten seconds adds nothing."""
    caplog.set_level("INFO", "scbroker")
    answers = [overloaded("1"), overloaded("1"), GOOD, overloaded("1"), GOOD]
    with BadBroker(answers) as broker, client(broker) as provider:
        assert ask(provider) == "it works"
        seconds = sum(pauses)
        assert ask(provider) == "it works"
    assert sum(pauses) < 10
    assert lines_of(caplog) == [
        ("WARNING", f"A request failed and is sent again in {pauses[0]:.1f} s: why"),
        ("INFO", f"A request that was sent again was answered after {seconds:.1f} s"),
    ]


@pytest.mark.parametrize("seconds, timeout", [("11", 60.0), ("4", 3.0)])
def test_a_retry_after_beyond_ten_seconds_or_the_timeout_is_raised_at_once(
    pauses: list[float], seconds: str, timeout: float
) -> None:
    with BadBroker([overloaded(seconds)]) as broker, client(broker, timeout) as provider:
        with pytest.raises(BrokerError.overloadedError) as caught:
            ask(provider)
        assert caught.value.retryAfter == float(seconds)
        assert len(broker.requests) == 1
    assert pauses == []


def test_pauses_grow_and_retrying_ends_after_a_minute(pauses: list[float]) -> None:
    with BadBroker([overloaded("1")]) as broker, client(broker, 120.0) as provider:
        with pytest.raises(BrokerError.overloadedError) as caught:
            ask(provider)
        assert caught.value.retryAfter == 1
        assert 6 <= len(broker.requests) <= 10
    assert pauses[3] > pauses[2] > pauses[1] > pauses[0]
    assert 40 < sum(pauses) <= 60


def test_refusals_spend_a_budget_of_128_retries(pauses: list[float]) -> None:
    with BadBroker([overloaded("1")]) as broker, client(broker, 120.0) as provider:
        for _ in range(60):
            with pytest.raises(BrokerError.overloadedError):
                ask(provider)
        assert len(broker.requests) == 60 + 128
    assert len(pauses) == 128


def test_eight_answers_earn_one_retry(pauses: list[float]) -> None:
    answers = [overloaded("1")] * (40 + 128) + [GOOD] * 8 + [overloaded("1"), GOOD]
    with BadBroker(answers) as broker, client(broker, 120.0) as provider:
        for _ in range(40):
            with pytest.raises(BrokerError.overloadedError):
                ask(provider)
        for _ in range(9):
            assert ask(provider) == "it works"
    assert len(pauses) == 129
