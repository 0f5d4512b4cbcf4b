"""A running broker under requests made from its own OpenAPI document: it answers all as described.

For longer, and on both engines: `make fuzz SEARCH=openapi`.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import jsonschema_rs
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from assurance.fuzz.openapi import (
    AUTH,
    QUERY,
    Scene,
    documented,
    in_the_document,
    on_the_wire,
    operation_of,
    schema,
    team_of,
)
from scbroker.server.operations import OPERATIONS, Operation
from scbroker.wire.codec import API_KEY_HEADER, APPLICATION_HEADER, PROTOCOL, PROTOCOL_HEADER
from tests.kit.brokers import ENGINES, BrokerProcess, Wire
from tests.kit.writers import Story, User
from tests.server.conftest import NewUser, new_user

pytestmark = pytest.mark.process

__all__ = ["new_user"]  # a fixture

SECONDS: Final = float(os.environ.get("FUZZ_SECONDS", "0"))
SEED: Final = int(os.environ.get("FUZZ_SEED", "0"))
ROUNDS: Final = 12 if SECONDS else 6
CHECKS: Final[list[Any]] = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
]  # fmt: skip
LABELS: Final = [f"{operation.method} {operation.path}" for operation in OPERATIONS]
Draw = Callable[[st.SearchStrategy[Any]], Any]


@pytest.fixture
def scene(broker: BrokerProcess, new_user: NewUser) -> Scene:
    alice, bob = new_user(broker.new_user(AUTH)), new_user()
    story = Story(alice).created({alice: 511, bob: 11}, header=b"{}", type="note")
    part = story.upload(alice, bytes(70_000))
    story.tell(alice, story.follow(alice, content=part))
    return Scene(alice, bob, story, part.partId, team_of(bob, alice))


class Sender:
    """Sends cases, with enough of them made valid to reach the handlers, and checks each answer."""

    def __init__(self, broker: BrokerProcess, scene: Scene, make_user: Callable[[], User]) -> None:
        self.broker, self.scene, self.make_user = broker, scene, make_user
        self.seen: Counter[int] = Counter()

    def valid(self, described: Any) -> Any:
        """Return a valid request of the operation."""
        operation = operation_of(described.label)
        body, path = self.scene.valid(operation, self.make_user)
        paths = {name: values[0] for name, values in self.scene.path.items()} | path
        needed = {field.encode_name for field in msgspec.structs.fields(operation.query)}
        return described.Case(
            path_parameters={n: paths[n] for n in paths if f"{{{n}}}" in operation.path},
            query={name: value for name, value in QUERY.items() if name in needed},
            headers=self._headers(),
            **({} if operation.message is None else {"body": body}),
        )

    def send_drawn(self, case: Any, draw: Draw) -> None:
        operation = operation_of(case.operation.label)
        for name, value in self._headers().items():
            if draw(st.integers(0, 19)):
                case.headers[name] = value
        for name, values in self.scene.path.items():
            if name in case.path_parameters and draw(st.integers(0, 3)):
                case.path_parameters[name] = draw(st.sampled_from(values))
        if "containerId" in case.query and draw(st.booleans()):
            case.query["containerId"] = self.scene.path["containerId"][0]
        if isinstance(case.query.get("wait"), int):
            case.query["wait"] = min(case.query["wait"], 1)  # it may have nothing to answer before
        if operation.message is bytes:
            case.body = draw(st.sampled_from([b"", bytes(72), bytes(1000)]))
        elif operation.message is not None and draw(st.integers(0, 2)) == 0:
            self._mend_body(case, operation, draw)
        self.send(case)

    def _mend_body(self, case: Any, operation: Operation, draw: Draw) -> None:
        """Make the message valid, with at most one field as drawn."""
        body, path = self.scene.valid(operation, self.make_user)
        if isinstance(case.body, dict):
            names = sorted(name for name in case.body if name in body)
            body |= {name: case.body[name] for name in names[: draw(st.integers(0, 1))]}
        case.body = body
        case.path_parameters |= path

    def _headers(self) -> dict[str, str]:
        return {
            PROTOCOL_HEADER: PROTOCOL,
            API_KEY_HEADER: str(self.broker.api_key),
            APPLICATION_HEADER: "fuzz",
            "Authorization": f"Bearer {self.scene.user.wire.token}",
        }

    def send(self, case: Any) -> None:
        operation = operation_of(case.operation.label)
        answer = case.call(base_url=self.broker.url)
        self.seen[answer.status_code] += 1
        check(case, answer)
        if answer.status_code < 400 and operation.message not in (None, bytes):
            check_message(case.body, operation)
        user = self.scene.user
        if answer.status_code == 401 or case.operation.label == "DELETE /v1/sessions/current":
            user.wire.log_in(user.ring)
        if answer.status_code < 300 and operation.path.endswith(
            ("/records/{version}", "/departure")
        ):
            # The story does not know the record that was accepted, or that its user left: begin another.
            self.scene.begin_anew()


def check(case: Any, answer: Any) -> None:
    """Raise unless the document describes the answer, and it is not a fault of the broker."""
    operation = operation_of(case.operation.label)
    case.validate_response(answer, checks=CHECKS)
    status = answer.status_code
    assert status < 500
    assert answer.headers.get(PROTOCOL_HEADER.lower()) == [PROTOCOL]
    if status >= 400:
        problem = answer.json()
        described = documented()["paths"][operation.path][operation.method.lower()]
        assert problem["status"] == status
        assert problem["code"] in described["responses"][str(status)]["description"].split(", ")
        assert status != 429 or int(answer.headers["retry-after"][0]) > 0


def check_message(body: Any, operation: Operation) -> None:
    """Raise unless the document allows the message that was accepted."""
    assert operation.message is not None
    found = {
        "$ref": f"#/components/schemas/{operation.message.__name__}",
        "components": documented()["components"],
    }
    sent = on_the_wire(body, msgspec.inspect.type_info(operation.message))
    jsonschema_rs.validate(found, in_the_document(sent))


@pytest.mark.parametrize("engine", ENGINES if SECONDS else ["sqlite"], indirect=True)
@pytest.mark.parametrize("label", LABELS)
def test_the_document_describes_every_answer_and_allows_every_accepted_message(
    broker: BrokerProcess, new_user: NewUser, scene: Scene, label: str
) -> None:
    """And no answer is a fault of the broker."""
    method, path = label.split(" ", 1)
    operation = schema()[path][method]
    sender = Sender(broker, scene, new_user)
    sender.send(sender.valid(operation))
    assert max(sender.seen) < 400
    until = time.monotonic() + SECONDS / len(LABELS) / len(ENGINES)  # about time
    number = SEED
    while True:
        for mode in schemathesis.GenerationMode:
            _draw(sender, operation.as_strategy(generation_mode=mode), number)
        number += 1
        if time.monotonic() >= until:  # about time
            break
    assert sum(sender.seen.values()) > ROUNDS


def _draw(sender: Sender, cases: st.SearchStrategy[Any], number: int) -> None:
    @seed(number)
    @settings(
        max_examples=ROUNDS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, data=st.data())
    def one(case: Any, data: st.DataObject) -> None:
        sender.send_drawn(case, data.draw)

    one()


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_document_is_the_one_that_the_broker_serves(wire: Wire) -> None:
    assert msgspec.json.decode(wire.call("GET", "/openapi.json").expect(200).body) == documented()
