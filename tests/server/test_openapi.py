"""The OpenAPI document is valid and complete; `assurance/fuzz` holds the broker to it."""

from typing import Any

import jsonschema_rs
import msgspec
import pytest
import schemathesis

from scbroker.server.operations import OPERATIONS
from tests.kit.brokers import Wire


@pytest.fixture
def engine() -> str:
    """The description says nothing of the database."""
    return "sqlite"


@pytest.fixture
def document(wire: Wire) -> Any:
    return msgspec.json.decode(wire.call("GET", "/openapi.json").expect(200).body)


def test_it_lists_exactly_the_operations_of_the_broker(document: Any) -> None:
    assert document["openapi"] == "3.1.0"
    listed = {(m.upper(), path) for path, item in document["paths"].items() for m in item}
    assert listed == {(operation.method, operation.path) for operation in OPERATIONS}
    names = [o["operationId"] for item in document["paths"].values() for o in item.values()]
    assert len(set(names)) == len(names)


@pytest.mark.long
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
