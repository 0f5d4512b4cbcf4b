"""Each request has an id, which its answer and the lines of the log about it carry; slow ones are logged."""

import re
import uuid
from pathlib import Path

import pytest

from scbroker.server.logs import RequestLog
from tests.kit.both_engines import on_sqlite
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.fixtures import StartBroker
from tests.kit.waiting import wait_until
from tests.kit.writers import Story
from tests.server.conftest import NewUser
from tests.server.test_admission import full

pytestmark = pytest.mark.process

OWN = re.compile(r"[0-9a-f]{16}")
GIVEN = "0123abcd-from-a-proxy"


@on_sqlite
def test_every_answer_has_an_id_of_its_own(broker: BrokerProcess) -> None:
    paths = ("/health/live", "/metrics", "/openapi.json", "/v1/events", "/no/such/path")
    with Wire(broker) as wire:
        found = [wire.send("GET", path).headers["x-request-id"] for path in (*paths, *paths)]
    assert all(OWN.fullmatch(each) for each in found)
    assert len(set(found)) == len(found)


@pytest.mark.long
@on_sqlite
def test_an_id_is_taken_over_from_a_trusted_proxy_only(
    start_broker: StartBroker, wire: Wire
) -> None:
    trusting = start_broker(trusted_proxies="127.0.0.0/8,::1")
    assert wire.call("GET", "/health/live", X_Request_Id=GIVEN).headers["x-request-id"] != GIVEN
    with Wire(trusting) as trusted:
        answer = trusted.call("GET", "/health/live", X_Request_Id=GIVEN)
        assert answer.headers["x-request-id"] == GIVEN


@pytest.mark.parametrize(
    "given",
    [b"short", b"x" * 65, b"with space", b"umlaut-\xe4-12", b'quote"12345', b"new\tline-1", b""],
)
def test_an_id_with_other_characters_or_sizes_is_replaced(given: bytes) -> None:
    log = RequestLog("10.0.0.0/8")
    assert OWN.fullmatch(log.id_for("10.1.2.3", [(b"x-request-id", given)]))


@pytest.mark.long
@on_sqlite
@pytest.mark.only_on("sqlite")
def test_a_request_refused_at_its_head_has_an_id_and_a_line(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    small = start_broker(
        max_requests=8, database_wait_seconds=600, access_log=True, trusted_proxies="127.0.0.1"
    )
    alice = new_user(at=small)
    with full(small, alice), Wire(small) as wire:
        one = wire.call("POST", "/v1/session-challenges", {}).expect(503, "overloaded")
        other = wire.call("POST", "/v1/session-challenges", {}, X_Request_Id=GIVEN).expect(503)
    assert OWN.fullmatch(one.headers["x-request-id"])
    assert other.headers["x-request-id"] == GIVEN
    refused = {line["request"]: line for line in small.lines("request refused")}
    assert refused[GIVEN]["kind"] == refused[one.headers["x-request-id"]]["kind"] == "writing"


@pytest.mark.long
def test_the_access_log_has_a_line_for_each_request_without_ids_of_containers(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker(access_log=True)
    alice = new_user(at=broker)
    story = Story(alice).created()
    alice.wire.call("GET", "/health/live").expect(200)
    alice.wire.call("GET", "/no/such/path").expect(404)
    answer = alice.wire.call("GET", story.path).expect(200)
    wait_until(lambda: answer.headers["x-request-id"] in broker.log)
    [line] = [
        line
        for line in broker.lines("request")
        if line["request"] == answer.headers["x-request-id"]
    ]
    assert line["method"] == "GET"
    assert line["path"] == "/v1/containers/{containerId}"
    assert line["status"] == 200
    assert line["user"] == alice.id
    assert (line["received"], line["sent"]) == (0, len(answer.body))
    assert line["seconds"] > 0
    without_path = [each for each in broker.lines("request") if each["path"] is None]
    assert [each["status"] for each in without_path] == [404]
    created = [line for line in broker.lines("request") if line["method"] == "PUT"]
    assert created[0]["received"] > 100
    assert str(uuid.UUID(bytes=story.id)) not in broker.log
    assert "127.0.0.1" not in "".join(
        text for text in broker.log.splitlines() if '"started"' not in text
    )


@pytest.mark.long
def test_a_request_that_waits_for_the_database_is_logged_as_slow_and_says_so(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker(slow_seconds=0.000001)
    alice = new_user(at=broker)
    Story(alice).created()
    wait_until(lambda: "records/{version}" in broker.log)  # the answer comes before the line
    slow = {line["path"]: line for line in broker.lines("slow request")}
    line = slow["/v1/containers/{containerId}/records/{version}"]
    assert line["user"] == alice.id
    assert line["status"] == 201
    assert 0 <= line["wait"] <= line["database"] <= line["seconds"]
    assert line["database"] > 0


@pytest.mark.long
def test_a_start_names_changed_settings_and_no_secret_and_a_stop_names_its_signal(
    tmp_path: Path,
) -> None:
    secret = "ab" * 32
    with BrokerProcess(tmp_path, guesses=7, broker_key=secret) as broker, Wire(broker) as wire:
        wire.nonce()
    [started] = broker.lines("started")
    assert started["settings"]["guesses"] == "7"
    assert started["settings"]["broker_key"] == started["settings"]["api_key"] == "set"
    assert started["database"] == "sqlite"
    assert str(broker.api_key) not in broker.log
    assert secret not in broker.log
    [upgraded] = broker.lines("tables upgraded")
    assert upgraded["before"] is None
    assert upgraded["after"] == started["revision"]
    [stopped] = broker.lines("stopped")
    assert stopped["reason"] == "SIGTERM"


@pytest.mark.long
@on_sqlite
def test_refused_log_ins_and_throttled_requests_are_logged_and_counted(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker(guesses=2)
    alice = new_user(at=broker)
    with Wire(broker) as wire:
        for _ in range(2):
            wire.open_key_file(alice.ring.userId, bytes(32)).expect(401, "credentials")
        refused = wire.open_key_file(alice.ring.userId, bytes(32)).expect(429, "throttled")
        request = wire.log_in_request(alice.ring)
        forged = type(request)(statement=request.statement, signature=bytes(len(request.signature)))
        wire.call("POST", "/v1/sessions", forged).expect(401, "challenge")
        text = wire.call("GET", "/metrics").expect(200).body.decode()
    kinds = [line["kind"] for line in broker.lines("log-in refused")]
    assert kinds == ["passphrase", "passphrase", "signature"]
    assert {line["user"] for line in broker.lines("log-in refused")} == {alice.id}
    [throttled] = broker.lines("throttled")
    assert throttled["request"] == refused.headers["x-request-id"]
    assert 'scbroker_log_ins_refused_total{kind="passphrase"} 2.0' in text
    assert 'scbroker_log_ins_refused_total{kind="signature"} 1.0' in text
    assert 'scbroker_problems_total{code="throttled"} 1.0' in text


@pytest.mark.long
@on_sqlite
def test_strangers_cannot_fill_the_log(start_broker: StartBroker) -> None:
    broker = start_broker(guesses=1, guesses_address=1_000_000)
    with Wire(broker) as wire:
        for _ in range(50):
            wire.open_key_file(uuid.uuid4(), bytes(32)).expect(401)
    assert len(broker.lines("log-in refused")) == 30
