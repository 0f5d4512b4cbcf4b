"""HTTP to a broker that misbehaves: every answer becomes the right error, and nothing is followed."""

import asyncio
import socket
import uuid
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlparse, urlsplit

import msgspec
import pytest

from scbroker import BrokerError, MemoryTrustStore, ServerProvider, WriteOutcome
from scbroker.client.calls.tasks import io_thread
from scbroker.client.http import requests
from scbroker.client.http.transport import checked_endpoint
from scbroker.wire import codec
from scbroker.wire.problems import MAX_PROBLEM
from scbroker.wire.users import ReminderAnswer
from tests.kit.cases import in_one_case
from tests.kit.impatience import be_impatient
from tests.kit.tcp import PROTOCOL, Answer, BadBroker, cut, hang, http
from tests.kit.waiting import PATIENCE

KEY = uuid.UUID("bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb")
USER = uuid.uuid4()
GOOD = http(200, codec.encode(ReminderAnswer(reminder="it works")), PROTOCOL)


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tried as often as ever, without the pauses between."""
    be_impatient(monkeypatch)


def device_of(broker: BadBroker, timeout: float = PATIENCE) -> ServerProvider:
    return ServerProvider(KEY, broker.url, "x", trustStore=MemoryTrustStore(), timeout=timeout)


def ask(*answers: Answer, timeout: float = PATIENCE) -> tuple[str, BadBroker]:
    """The reminder that a broker with these answers gives, and what it was asked."""
    with BadBroker(answers) as broker:
        provider = ServerProvider(
            KEY, broker.url, "tests ä", trustStore=MemoryTrustStore(), timeout=timeout
        )
        with provider:
            try:
                return provider.getReminder(USER).result(PATIENCE), broker
            except BrokerError as error:
                error.__notes__ = [str(len(broker.requests))]
                raise


def problem(code: str, detail: str = "why", status: int = 400) -> bytes:
    body = msgspec.json.encode(
        {"type": "about:blank", "title": code, "status": status, "detail": detail, "code": code}
    )
    return http(status, body, PROTOCOL)


def test_a_request_says_who_asks_and_carries_nothing_else() -> None:
    """No cookie, no Accept-Encoding, no User-Agent: nothing that the protocol does not name."""
    found, broker = ask(GOOD)
    assert found == "it works"
    (request,) = broker.requests
    assert request.head.startswith(b"GET /v1/users/%s/reminder HTTP/1.1" % str(USER).encode())
    host = broker.requests[0].headers["host"]
    assert request.headers == {
        "host": host,
        "scbroker-protocol": "1",
        "scbroker-api-key": str(KEY),
        "scbroker-application": "tests %C3%A4",
        "accept": "*/*",
    }


@pytest.mark.parametrize(
    "headers, words",
    [
        (b"", "not a broker: its answer .* has no version of the protocol"),
        (b"Scbroker-Protocol: 2\r\n", "version '2'"),
        (b"Scbroker-Protocol: 1\r\nScbroker-Protocol: 2\r\n", "version '1'"),
        (b"Scbroker-Protocol: 01\r\n", "version '01'"),
    ],
    ids=range(4),
)
def test_a_broker_of_another_protocol_or_of_none_is_refused_at_once(
    headers: bytes, words: str
) -> None:
    for status in (200, 404):
        with pytest.raises(BrokerError.unsupportedVersionError, match=words) as caught:
            ask(http(status, b"<html>", headers))
        assert caught.value.__notes__ == ["1"]


PAGE = b"<html><h1>nginx</h1>"
WAIT = b"Retry-After: 7\r\n"


@in_one_case("status", [408, 429, 500, 502, 503, 504, 520, 599])
def test_a_proxy_without_a_broker_is_tried_four_times_at_first_and_longer_after_an_answer(
    status: int,
) -> None:
    kind = BrokerError.overloadedError if status == 429 else BrokerError.unreachableError
    with pytest.raises(kind, match=f"proxy in between answered {status}") as caught:
        ask(http(status, PAGE, WAIT))
    assert caught.value.__notes__ == ["4"]
    assert (caught.value.retryable, caught.value.retryAfter) == (True, 7)
    with BadBroker([GOOD, *[http(status, PAGE, b"")] * 3, GOOD]) as broker:
        with device_of(broker) as device:
            for _ in range(2):
                assert device.getReminder(USER).result(PATIENCE) == "it works"
        assert len(broker.requests) == 5


@in_one_case("status", [200, 204, 301, 302, 307, 400, 401, 403, 404, 407, 411, 421, 431, 451])
def test_a_proxys_own_answer_after_the_brokers_is_told_from_a_wrong_address(status: int) -> None:
    """The program may go on with copies, and is not kept waiting: the network asks for a log-in."""
    moved = b"Location: http://127.0.0.1:9/\r\n" if status // 100 == 3 else b""
    with BadBroker([GOOD, http(status, b"" if status == 204 else PAGE, moved)]) as broker:
        with device_of(broker) as device:
            device.getReminder(USER).result(PATIENCE)
            with pytest.raises(
                BrokerError.unreachableError, match=f"proxy in between answered {status} in"
            ):
                device.getReminder(USER).result(PATIENCE)
        assert len(broker.requests) == 2


def test_a_proxys_limit_of_bodies_is_named_with_the_size_and_the_outcome_is_uncertain() -> None:
    answers = [GOOD, http(413, PAGE, b"")]
    with BadBroker(answers) as broker, device_of(broker) as device:
        device.getReminder(USER).result(PATIENCE)
        with pytest.raises(
            BrokerError.tooLargeError, match=r"client_max_body_size\) is below the \d+ bytes"
        ) as caught:
            device.register("correct Horse 7", "battery Staple 8").result(PATIENCE)
        assert caught.value.outcome is WriteOutcome.Uncertain
        assert len(broker.requests) == 2


def test_after_the_timeout_the_last_failure_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes when the sixth request has come."""
    monkeypatch.setattr(requests, "_PATIENCE", PATIENCE)
    timeouts: dict[float, asyncio.Timeout] = {}

    def timeout(seconds: float) -> asyncio.Timeout:
        return timeouts.setdefault(seconds, asyncio.timeout(None))

    async def expire() -> None:
        timeouts[PATIENCE].reschedule(0)

    def late(connection: socket.socket) -> None:
        io_thread.submit("expire", expire())
        hang(connection)

    replaced = SimpleNamespace(**{**vars(asyncio), "timeout": timeout})
    monkeypatch.setattr(requests, "asyncio", replaced)
    full = problem("overloaded", "the disk is full", 503)
    with BadBroker([*[full] * 5, late]) as broker, device_of(broker) as device:
        with pytest.raises(BrokerError.overloadedError, match="the disk is full"):
            device.getReminder(USER).result(PATIENCE)
        assert len(broker.requests) == 6
    assert list(timeouts) == [PATIENCE]


def half(connection: socket.socket) -> None:
    connection.sendall(http(200, b"x" * 10, PROTOCOL, length=1000))


@pytest.mark.parametrize("bad", [cut, half, b"HTTP/1.1 200", b"garbage\r\n\r\n"], ids=range(4))
def test_an_answer_that_was_cut_off_is_asked_for_again_with_the_same_bytes(bad: Answer) -> None:
    found, broker = ask(bad, bad, bad, GOOD)
    assert found == "it works"
    assert len({(request.head, request.body) for request in broker.requests}) == 1
    with pytest.raises(BrokerError.unreachableError) as caught:
        ask(bad)
    # aiohttp itself asks once more where a connection is closed without a whole head.
    assert caught.value.__notes__ in (["4"], ["8"])


def test_a_slow_answer_ends_with_the_timeout_that_was_set() -> None:
    with pytest.raises(BrokerError.unreachableError, match=r"within 0\.2 seconds"):
        ask(hang, timeout=0.2)


def endless(connection: socket.socket) -> None:
    connection.sendall(http(200, b"", PROTOCOL, length=2**33))
    try:
        while True:
            connection.sendall(b"x" * 1_048_576)
    except OSError:
        pass


def test_an_answer_larger_than_the_limit_is_cut_short() -> None:
    with pytest.raises(BrokerError.tooLargeError, match="bytes that are allowed"):
        ask(endless)
    with pytest.raises(BrokerError.tooLargeError):
        ask(http(400, b"x" * (MAX_PROBLEM + 1), PROTOCOL))


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", b"\x80", b"\x81\xa8reminder\x01", GOOD[-20:] + b"x", b"\x82" + 2 * GOOD[-18:]],
    ids=range(6),
)
def test_an_answer_that_is_not_of_the_protocol_is_the_brokers_fault(body: bytes) -> None:
    with pytest.raises(BrokerError.brokerFaultError, match="does not follow the protocol"):
        ask(http(200, body, PROTOCOL))


def test_a_problem_becomes_the_error_that_it_names() -> None:
    with pytest.raises(BrokerError.permissionDeniedError, match="because of this") as caught:
        ask(problem("permission", "because\n of this\x1b[31m", 403))
    assert "\x1b" not in str(caught.value)
    assert caught.value.__notes__ == ["1"]


@pytest.mark.parametrize("retry_after", ["7", "soon", "-1", "9" * 9])
def test_a_throttled_request_says_how_long_and_is_not_repeated(retry_after: str) -> None:
    headers = PROTOCOL + f"Retry-After: {retry_after}\r\n".encode()
    with pytest.raises(BrokerError.throttledError) as caught:
        ask(problem("throttled", status=429).replace(PROTOCOL, headers))
    assert caught.value.retryAfter == (7.0 if retry_after == "7" else None)
    assert caught.value.__notes__ == ["1"]


UNPRINTABLE = (
    "\0\n\x1b\x7f\x80\x85\x9f\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ud800\udfff"
)


def endpoint(**changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "apiKey": KEY,
        "serverUrl": "https://broker.example",
        "applicationName": "tests",
        "ssl_context": None,
        "proxy": None,
        "timeout": 1,
    }
    return checked_endpoint(**arguments | changes)


@in_one_case("changes", [
        {"apiKey": "key"},
        {"apiKey": 7},
        {"apiKey": None},
        *({"serverUrl": url} for url in (
            7, "", "broker.example", "ftp://broker.example", "http://broker.example",
            "http://192.168.0.1", "http://localhost.example.com", "https://broker.example?x=1",
            "https://broker.example?", "https://broker.example#", " https://broker.example",
            "https://broker.exa\nmple", "https:/broker.example/path", "https://broker.example//",
            "https://broker.example//path", "https://broker.example/a//b",
            "https://broker.example/path//", "https://broker.example/.",
            "https://broker.example/a/../b", "https://broker.example/..",
            "https://broker.example/../", "https://broker.example/path?x=1",
            "https://broker.example/path?", "https://broker.example/path#x",
            "https://broker.example/path#", "https://broker.example/p%61th",
            "https://broker.example/%2e%2e/path", "https://broker.example/a;b",
            "https://broker.example/a b", "https://broker.example/a\\b",
            "https://broker.example/path\n", "https://broker.example/päth",
            "https://user:secret@broker.example/path", "http://broker.example/path",
            b"https://broker.example", urlsplit("https://broker.example/path?x=1"),
            urlsplit(b"https://broker.example"), urlparse("https://broker.example/path;x"),
            "https://user:secret@broker.example", "https://broker.example:port", "https://[::1",
        )),
        {"applicationName": ""},
        {"applicationName": "  "},
        {"applicationName": 7},
        *({"applicationName": f"a{char}b"} for char in UNPRINTABLE),
        {"applicationName": "x" * 257},
        {"applicationName": "ä" * 43},
        {"ssl_context": False},
        {"ssl_context": "cert.pem"},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": -1},
        {"timeout": "1"},
    ])  # fmt: skip
def test_what_is_wrong_with_an_endpoint_is_said_before_anything_is_sent(changes: Any) -> None:
    with pytest.raises(BrokerError.invalidArgumentError) as caught:
        endpoint(**changes)
    assert "secret" not in str(caught.value)


def test_an_unprintable_application_name_is_refused_by_the_constructor_and_the_character_named() -> (
    None
):
    with pytest.raises(BrokerError.invalidArgumentError, match=r"character 3 is U\+202E"):
        ServerProvider(KEY, "https://broker.example", "my \u202epp")
    assert endpoint(applicationName="Prögram — 日本 עברית/1").applicationName.startswith(
        "Pr%C3%B6gram"
    )


@pytest.mark.parametrize(
    "given, url",
    [
        ("https://broker.example/", "https://broker.example"),
        ("https://broker.example/broker", "https://broker.example/broker"),
        ("https://broker.example/a/b-c._~/", "https://broker.example/a/b-c._~"),
        ("https://broker.example/...", "https://broker.example/..."),
        ("https://broker.example/.well-known/broker", "https://broker.example/.well-known/broker"),
        (urlsplit("https://broker.example:8443/broker/"), "https://broker.example:8443/broker"),
        (urlparse("https://broker.example/broker"), "https://broker.example/broker"),
        (urlsplit("https://broker.example?"), "https://broker.example"),
    ],
    ids=range(8),
)
def test_an_address_is_text_or_urllibs_and_may_have_a_plain_path(given: Any, url: str) -> None:
    provider = ServerProvider(KEY, given, "tests", trustStore=MemoryTrustStore())
    assert provider.serverUrl == url
    assert url in repr(provider)


def test_a_provider_comes_from_the_environment_and_says_what_is_missing() -> None:
    environment = {
        "SCBROKER_API_KEY": str(KEY),
        "SCBROKER_SERVER_URL": "https://broker.example",
        "SCBROKER_APPLICATION_NAME": "tests",
    }
    provider = ServerProvider.fromEnvironment(environment, trustStore=MemoryTrustStore())
    assert (provider.apiKey, provider.applicationName) == (KEY, "tests")
    del environment["SCBROKER_SERVER_URL"]
    environment["SCBROKER_API_KEY"] = ""
    with pytest.raises(
        BrokerError.invalidArgumentError, match="SCBROKER_API_KEY, SCBROKER_SERVER_URL in"
    ):
        ServerProvider.fromEnvironment(environment)


def test_an_act_that_no_connection_carried_surely_has_no_effect_and_any_other_failure_is_uncertain() -> (
    None
):
    """A registration is signed. A reading has no effect, whatever happens to it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    with ServerProvider(KEY, nobody, "x", trustStore=MemoryTrustStore()) as device:
        with pytest.raises(BrokerError.unreachableError) as caught:
            device.register("correct Horse 7", "battery Staple 8").result(PATIENCE)
        assert (caught.value.outcome, caught.value.sent) == (WriteOutcome.NotStored, False)
    for answer in (cut, problem("invalid"), http(201, b"\xc0", PROTOCOL)):
        with BadBroker([answer]) as broker, device_of(broker) as device:
            with pytest.raises(BrokerError) as refused:
                device.register("correct Horse 7", "battery Staple 8").result(PATIENCE)
            assert refused.value.outcome is WriteOutcome.Uncertain
            with pytest.raises(BrokerError) as unread:
                device.getReminder(USER).result(PATIENCE)
            assert unread.value.outcome is WriteOutcome.NotStored
