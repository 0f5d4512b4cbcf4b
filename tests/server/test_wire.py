"""What surrounds every operation: limits, bodies that break off, paths, and the fixed headers of answers.

The conformance kit spoils a valid request of every operation; `tests/conformance` asks this broker.
"""

import socket
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pytest

from scbroker.crypto.seal import random_bytes
from scbroker.server.operations import OPERATIONS, Operation
from scbroker.wire.codec import MAX_MESSAGE, MESSAGE, OCTETS, PROBLEM
from scbroker.wire.parts import MAX_CHUNK
from scbroker.wire.problems import STATUS
from tests.kit.brokers import Answer, BrokerProcess, Wire
from tests.kit.waiting import PATIENCE
from tests.kit.writers import Story, User
from tests.server.conftest import NewUser, Unchanged

CODES: Final = {kind.code: status for kind, status in STATUS.items()}
ID: Final = "5d1cc6d2-6d5c-8b2b-9e3d-9a0a4f0a3b11"


def _each(operations: Iterable[Operation]) -> pytest.MarkDecorator:
    found = list(operations)
    ids = [f"{operation.method} {operation.path}" for operation in found]
    return pytest.mark.parametrize("operation", found, ids=ids)


every_operation = _each(OPERATIONS)
every_body = _each(o for o in OPERATIONS if o.message is not None)
every_message = _each(o for o in OPERATIONS if o.message not in (None, bytes))


@dataclass
class Request:
    """A request of an operation that is well-formed, whatever comes of it."""

    operation: Operation
    path: str
    query: str
    body: bytes | None
    headers: dict[str, str | None] = field(default_factory=dict)

    def send(self, wire: Wire, **changes: Any) -> Answer:
        """Sends it with other path, query, body or headers."""
        query = changes.get("query", self.query)
        path = changes.get("path", self.path) + (f"?{query}" if query else "")
        headers = {**self.headers, **changes.get("headers", {})}
        return wire.send(self.operation.method, path, changes.get("body", self.body), headers)


def _message(kind: Any) -> dict[str, Any]:
    """Some message of this kind: every field that has no default."""
    found = {}
    for info in msgspec.structs.fields(kind):
        if info.required:
            found[info.encode_name] = _value(msgspec.inspect.type_info(info.type))
    return found


def _value(info: Any) -> Any:
    match info:
        case msgspec.inspect.BytesType():
            return bytes(info.min_length or 1)
        case msgspec.inspect.StrType():
            return ID if info.pattern and "0-9a-f" in info.pattern else "x" * (info.min_length or 1)
        case msgspec.inspect.IntType():
            return info.ge or 0
        case msgspec.inspect.BoolType():
            return False
        case msgspec.inspect.ListType():
            return [_value(info.item_type)] * (info.min_length or 1)
        case msgspec.inspect.StructType():
            return _message(info.cls)
        case msgspec.inspect.UnionType():
            return None
        case msgspec.inspect.Metadata():
            return _value(info.type)
    raise AssertionError(info)


def _request(operation: Operation, user: User) -> Request:
    """Return a well-formed request that names an unknown container and user."""
    path = operation.path.replace("{index}", "0").replace("{version}", "1")
    for name in ("userId", "containerId", "groupId", "partId"):
        path = path.replace(f"{{{name}}}", ID)
    query = "&".join(
        f"{info.encode_name}=1" for info in msgspec.structs.fields(operation.query) if info.required
    )
    request = Request(operation, path, query, None)
    if operation.message is bytes:
        request.body = bytes(100)
        request.headers["Content-Type"] = OCTETS
    elif operation.message is not None:
        request.body = msgspec.msgpack.encode(_message(operation.message))
        request.headers["Content-Type"] = MESSAGE
    if operation.session:
        request.headers["Authorization"] = f"Bearer {user.wire.token}"
    return request


@pytest.fixture
def request_of(new_user: NewUser) -> Any:
    alice = new_user()
    return lambda operation: _request(operation, alice)


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


@every_operation
def test_a_well_formed_request_passes_all_that_is_around_its_handler(
    wire: Wire, request_of: Any, operation: Operation
) -> None:
    """Or the tests below, which spoil one thing each, would prove nothing."""
    answer = request_of(operation).send(wire)
    _has_fixed_headers(answer)
    if answer.status < 300:
        return
    assert answer.headers["content-type"] == PROBLEM
    assert CODES[answer.code] == answer.status
    assert answer.code not in {"version", "api-key", "session"}
    if answer.code == "invalid":  # a chunk of zeros, for one, is refused by its handler
        assert "Malformed" not in answer.problem["detail"]
        assert "parameter" not in answer.problem["detail"]


@pytest.mark.sampled  # this is checked before the operation is looked at
@every_operation
def test_any_other_protocol_version_is_refused(
    wire: Wire, request_of: Any, unchanged: Unchanged, operation: Operation
) -> None:
    request = request_of(operation)
    with unchanged():
        for value in (None, "", "0", "2", "1.0", "1, 1", "one"):
            _problem(request.send(wire, headers={"Scbroker-Protocol": value}), "version")


@pytest.mark.sampled
@every_message
def test_a_message_of_more_than_its_limit_is_too_large(
    wire: Wire, request_of: Any, unchanged: Unchanged, operation: Operation
) -> None:
    with unchanged():
        answer = request_of(operation).send(wire, body=bytes(operation.limit + 1))
        _problem(answer, "too-large")


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as connection:
        yield connection


def _head(wire: Wire, request: Request, **headers: str) -> bytes:
    lines = [f"{request.operation.method} {request.path} HTTP/1.1", "Host: localhost"]
    found = wire.headers(
        {**request.headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
    )
    lines += [f"{name}: {value}" for name, value in found.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@pytest.mark.process
@pytest.mark.sampled
@every_body
def test_a_body_that_is_announced_far_too_large_is_refused_without_being_read(
    wire: Wire, raw: socket.socket, request_of: Any, unchanged: Unchanged, operation: Operation
) -> None:
    """The answer comes while nearly all of the terabyte is still to be sent."""
    request = request_of(operation)
    with unchanged():
        raw.sendall(_head(wire, request, Content_Length=str(2**40)))
        sent, piece = 0, bytes(65_536)
        while sent <= operation.limit:
            raw.sendall(piece)
            sent += len(piece)
        status = raw.recv(65_536)
        assert status.startswith(b"HTTP/1.1 413 "), status[:100]


@pytest.mark.process
def test_without_a_session_no_body_is_awaited(
    wire: Wire, raw: socket.socket, request_of: Any
) -> None:
    operation = next(o for o in OPERATIONS if o.message is bytes)
    request = request_of(operation)
    request.headers["Authorization"] = "Bearer " + "x" * 43
    raw.sendall(_head(wire, request, Content_Length=str(MAX_CHUNK)))
    assert raw.recv(65_536).startswith(b"HTTP/1.1 401 ")


@pytest.mark.process
@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"\0" * 100])
def test_bytes_that_are_not_http_close_only_their_own_connection(
    wire: Wire, raw: socket.socket, garbage: bytes
) -> None:
    raw.sendall(garbage)
    raw.shutdown(socket.SHUT_WR)
    answer = raw.recv(65_536)
    assert not answer.startswith(b"HTTP/1.1 2")
    wire.call("GET", "/health/live").expect(200)


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
    alice.view(story)
    alice.wire.call("GET", f"/v1/containers/{ID}").expect(404)
    assert (count(200), count(404)) == (before[0] + 1, before[1] + 1)


def test_a_record_request_has_room_for_the_longest_list(new_user: NewUser) -> None:
    alice = new_user()
    story = Story(alice)
    path = f"{story.path}/records/1"
    request = story.begin()
    assert request.accessList is not None
    entry = msgspec.structs.replace(request.accessList[0], wrap=random_bytes(1168))
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
    token, auth = alice.wire.token, random_bytes(32)
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
