"""The OpenAPI document is valid, complete, and what the broker holds to under random requests."""

from __future__ import annotations

import random
import urllib.parse
import uuid
from collections import Counter
from typing import Any, Final

import jsonschema_rs
import msgspec
import pytest
import schemathesis

from scbroker.server.app import OPERATIONS
from scbroker.server.operation import Operation
from scbroker.wire.codec import MESSAGE, OCTETS
from tests.brokers import Wire
from tests.server.conftest import NewUser
from tests.server.writers import Story

ROUNDS: Final = 40
INTEGERS: Final = (0, 1, 2, 7, 255, 2**31 - 1, 2**31, 2**32, 2**53 - 1, 2**53, 2**64 - 1)
TEXTS: Final = (
    "",
    "a",
    "note",
    "\0",
    "\n",
    "ä" * 200,
    "\U0001f511",
    "x" * 1025,
    "%00",
    "' OR 1=1 --",
)


@pytest.fixture
def engine() -> str:
    """The description says nothing of the database."""
    return "sqlite"


class Generator:
    """Values of a message's types and at their bounds, and now and then just beside them."""

    def __init__(self, seed: str, ids: list[str]) -> None:
        self.random = random.Random(seed)
        self.ids = ids

    def message(self, kind: Any) -> dict[str, Any]:
        fields = msgspec.structs.fields(kind)
        return {
            field.encode_name: self.value(msgspec.inspect.type_info(field.type))
            for field in fields
            if field.required or self.random.random() < 0.5
        }

    def value(self, info: Any) -> Any:
        match info:
            case msgspec.inspect.Metadata():
                return self.value(info.type)
            case msgspec.inspect.UnionType():
                return self.value(self.random.choice(info.types))
            case msgspec.inspect.NoneType():
                return None
            case msgspec.inspect.BoolType():
                return self.random.random() < 0.5
            case msgspec.inspect.IntType():
                return self.random.choice([info.ge or 0, *INTEGERS])
            case msgspec.inspect.LiteralType():
                return self.random.choice(info.values)
            case msgspec.inspect.StrType() if info.pattern and "0-9a-f" in info.pattern:
                return self.random.choice(self.ids)
            case msgspec.inspect.StrType():
                return self.random.choice(TEXTS)
            case msgspec.inspect.BytesType():
                low, high = info.min_length or 0, min(info.max_length or 300, 70_000)
                return self.random.randbytes(self.random.choice([low, low, high, low + 1]))
            case msgspec.inspect.ListType():
                low = info.min_length or 0
                count = self.random.choice([low, low, low + 1, low + 3])
                return [self.value(info.item_type) for _ in range(count)]
            case msgspec.inspect.StructType():
                return self.message(info.cls)
        raise AssertionError(info)

    def query(self, kind: Any) -> str:
        pairs = []
        for name, value in self.message(kind).items():
            values = value if isinstance(value, list) else [value]
            pairs += [(name, str(each)) for each in values if each is not None]
        return urllib.parse.urlencode(pairs)


@pytest.fixture
def document(wire: Wire) -> Any:
    return msgspec.json.decode(wire.call("GET", "/openapi.json").expect(200).body)


def test_it_lists_exactly_the_operations_of_the_broker(document: Any) -> None:
    assert document["openapi"] == "3.1.0"
    listed = {(m.upper(), path) for path, item in document["paths"].items() for m in item}
    assert listed == {(operation.method, operation.path) for operation in OPERATIONS}
    names = [o["operationId"] for item in document["paths"].values() for o in item.values()]
    assert len(set(names)) == len(names)


def test_it_is_valid_openapi_and_each_of_its_schemas_is_valid(document: Any) -> None:
    schemathesis.openapi.from_dict(document).validate()
    components = document["components"]["schemas"]
    for component in components.values():
        jsonschema_rs.meta.validate(component)
    text = msgspec.json.encode(document).decode()
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= components.keys()


def test_every_operation_names_all_that_it_needs(document: Any) -> None:
    for operation in OPERATIONS:
        listed = document["paths"][operation.path][operation.method.lower()]
        needed = {p["name"] for p in listed["parameters"] if p["required"]}
        assert {"Scbroker-Protocol", "Scbroker-Api-Key", "Scbroker-Application"} <= needed
        assert all(f"{{{name}}}" not in operation.path or name in needed for name in needed)
        assert ("security" in listed) == operation.session
        assert ("requestBody" in listed) == (operation.message is not None)
        assert str(operation.status) in listed["responses"]


@pytest.mark.parametrize("operation", OPERATIONS, ids=[f"{o.method} {o.path}" for o in OPERATIONS])
def test_random_requests_get_documented_answers_and_no_fault(
    wire: Wire, new_user: NewUser, document: Any, operation: Operation
) -> None:
    alice = new_user()
    story = Story(alice).created(header=b"{}", type="note")
    part = story.head.content
    assert part is not None
    known = {
        "userId": alice.id,
        "containerId": story.path.rpartition("/")[2],
        "partId": str(uuid.UUID(bytes=part.partId)),
    }
    unknown = str(uuid.UUID(bytes=bytes(16)))
    made = Generator(f"{operation.method} {operation.path}", [*known.values(), unknown])
    described = document["paths"][operation.path][operation.method.lower()]["responses"]
    seen: Counter[int] = Counter()
    for number in range(ROUNDS):
        path, headers, body = operation.path, {}, None
        for name, value in known.items():
            path = path.replace(f"{{{name}}}", made.random.choice([value, value, unknown]))
        for name in ("version", "index"):
            path = path.replace(f"{{{name}}}", str(made.random.choice(INTEGERS)))
        if operation.message is bytes:
            body = made.random.randbytes(made.random.choice([0, 72, 1000]))
            headers["Content-Type"] = OCTETS
        elif operation.message is not None:
            body = msgspec.msgpack.encode(made.message(operation.message))
            headers["Content-Type"] = MESSAGE
        if operation.session:
            headers["Authorization"] = f"Bearer {alice.wire.token}"
        answer = wire.send(operation.method, f"{path}?{made.query(operation.query)}", body, headers)
        seen[answer.status] += 1
        assert answer.status < 500, (path, body, answer)
        assert str(answer.status) in described, (number, answer)
        content = described[str(answer.status)].get("content", {"": {}})
        assert answer.headers.get("content-type", "") in content
        if answer.status >= 400:
            jsonschema_rs.validate(document["components"]["schemas"]["Problem"], answer.problem)
        elif operation.answer not in (None, bytes):
            answer.message(operation.answer)
    assert sum(seen.values()) == ROUNDS
