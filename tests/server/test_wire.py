"""What surrounds every operation: limits, bodies that break off, paths, and the fixed headers of answers.

The conformance kit spoils a valid request of every operation; `tests/conformance` asks this broker.
"""

import os
import socket
import uuid
from collections.abc import Iterator
from typing import Final

import msgspec
import pytest

from scbroker.wire.codec import MAX_MESSAGE, OCTETS
from scbroker.wire.parts import MAX_CHUNK
from scbroker.wire.problems import STATUS
from tests.kit.brokers import Answer, BrokerProcess, Wire
from tests.kit.waiting import PATIENCE
from tests.kit.writers import Story
from tests.server.conftest import NewUser, Unchanged

CODES: Final = {kind.code: status for kind, status in STATUS.items()}
ID: Final = "5d1cc6d2-6d5c-8b2b-9e3d-9a0a4f0a3b11"
CHUNK: Final = f"/v1/containers/{ID}/parts/{ID}/chunks/0"


def _problem(answer: Answer, code: str) -> None:
    answer.expect(CODES[code])
    problem = answer.problem
    assert problem.keys() == {"type", "title", "status", "detail", "code"}
    assert (problem["type"], problem["code"]) == ("about:blank", code), problem
    assert problem["status"] == answer.status
    assert problem["detail"]
    _has_fixed_headers(answer)


def _has_fixed_headers(answer: Answer) -> None:
    assert answer.headers["scbroker-protocol"] == "1"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in answer.headers
    assert "set-cookie" not in answer.headers


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as connection:
        yield connection


def _head(wire: Wire, length: int) -> bytes:
    """The head of a request that sends a chunk of this length."""
    given = {"Content-Type": OCTETS, "Content-Length": str(length), "Host": "localhost"}
    lines = [f"{name}: {value}" for name, value in wire.headers(given).items()]
    return "\r\n".join([f"PUT {CHUNK} HTTP/1.1", *lines]).encode() + b"\r\n\r\n"


@pytest.mark.process
def test_a_body_that_is_announced_far_too_large_is_refused_without_being_read(
    raw: socket.socket, new_user: NewUser, unchanged: Unchanged
) -> None:
    """The answer comes while nearly all of the terabyte is still to be sent."""
    wire = new_user().wire
    with unchanged():
        raw.sendall(_head(wire, 2**40))
        sent, piece = 0, bytes(65_536)
        while sent <= MAX_CHUNK:
            raw.sendall(piece)
            sent += len(piece)
        status = raw.recv(65_536)
        assert status.startswith(b"HTTP/1.1 413 "), status[:100]


@pytest.mark.process
def test_without_a_session_no_body_is_awaited(wire: Wire, raw: socket.socket) -> None:
    wire.token = "x" * 43
    raw.sendall(_head(wire, MAX_CHUNK))
    assert raw.recv(65_536).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    "method, path",
    [
        ("POST", "/"), ("GET", "/v1"), ("GET", "/v1/users"), ("POST", "/v1/users/"),
        ("GET", "/v1/events/"), ("PATCH", "/v1/users"), ("DELETE", f"/v1/containers/{ID}"),
        ("POST", f"/v1/containers/{ID}"), ("OPTIONS", "/v1/users"), ("TRACE", "/v1/users"),
        ("GET", "/docs"), ("GET", "/v2/events"), ("GET", "//v1/events"), ("GET", "/v1/../v1/events"),
        ("POST", "/openapi.json"), ("PUT", f"/v1/containers/{ID}/records/1/"),
    ],
)  # fmt: skip
def test_undefined_paths_and_methods_are_not_found_and_never_redirected(
    wire: Wire, method: str, path: str
) -> None:
    _problem(wire.send(method, path), "not-found")


def test_a_name_of_a_program_is_printable_text_in_one_line(wire: Wire) -> None:
    for name in ("a%0Ab", "a%E2%80%AEb", "a%E2%80%A8b", "a%00b", "%FF"):
        answer = wire.call("GET", f"/v1/users/{ID}/reminder", Scbroker_Application=name)
        _problem(answer, "invalid")


def test_the_broker_itself_is_asked_without_key_or_version(broker: BrokerProcess) -> None:
    nothing = {"Scbroker-Protocol": None, "Scbroker-Api-Key": None, "Scbroker-Application": None}
    with Wire(broker) as wire:
        for path, kind in (
            ("/", "text/html"),
            ("/health/live", "text/plain"),
            ("/health/ready", "text/plain"),
            ("/openapi.json", "application/json"),
            ("/metrics", "text/plain"),
        ):
            answer = wire.send("GET", path, headers=nothing).expect(200)
            assert answer.headers["content-type"].startswith(kind), path
            _has_fixed_headers(answer)


def test_metrics_count_answers_by_operation_and_status_and_name_nobody(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice = new_user()
    story = Story(alice).created()

    def count(status: int) -> float:
        text = alice.wire.call("GET", "/metrics").expect(200).body.decode()
        assert alice.id not in text
        assert str(broker.api_key) not in text
        assert str(uuid.UUID(bytes=story.id)) not in text
        name = (
            'scbroker_requests_total{method="GET",path="/v1/containers/{containerId}",'
            f'status="{status}"}} '
        )
        found = [line for line in text.splitlines() if line.startswith(name)]
        return float(found[0].rpartition(" ")[2]) if found else 0.0

    before = count(200), count(404)
    _has_fixed_headers(alice.wire.call("GET", story.path).expect(200))
    alice.wire.call("GET", f"/v1/containers/{ID}").expect(404)
    assert (count(200), count(404)) == (before[0] + 1, before[1] + 1)


def test_a_record_request_has_room_for_the_longest_list(new_user: NewUser) -> None:
    alice = new_user()
    story = Story(alice)
    path = f"{story.path}/records/1"
    request = story.begin()
    assert request.accessList is not None
    entry = msgspec.structs.replace(request.accessList[0], wrap=os.urandom(1168))
    full = msgspec.structs.replace(request, accessList=[entry] * 1024)
    assert len(msgspec.msgpack.encode(full)) < MAX_MESSAGE
    alice.wire.call("PUT", path, full).expect(422, "rejected")
    over = msgspec.structs.replace(request, accessList=[entry] * 1025)
    alice.wire.call("PUT", path, over).expect(400, "invalid")


@pytest.mark.process
@pytest.mark.long
def test_no_answer_and_no_log_line_repeats_what_a_request_kept_secret(
    fresh_broker: BrokerProcess, new_user: NewUser
) -> None:
    alice = new_user(at=fresh_broker)
    token, auth = alice.wire.token, os.urandom(32)
    assert token is not None
    answers = [
        alice.wire.call("POST", f"/v1/users/{ID}/key-file/open", {"auth": auth, "x": 1}),
        alice.wire.call("POST", "/v1/users", {"auth": auth.hex()}),
        alice.wire.call("GET", f"/v1/events?x={token}"),
        alice.wire.call("GET", f"/v1/{token}"),
    ]
    fresh_broker.stop()
    for text in (*(answer.body.decode() for answer in answers), fresh_broker.log):
        assert auth.hex() not in text
        assert str(fresh_broker.api_key) not in text
        assert "Traceback" not in text
        assert token not in text
