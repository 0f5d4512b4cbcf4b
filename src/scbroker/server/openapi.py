"""Describe the protocol as an OpenAPI 3.1 document, from the table of operations and the message types."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from scbroker.server.operations import Operation
from scbroker.wire import codec
from scbroker.wire.problems import STATUS, Problem

_REF: Final = "#/components/schemas/{name}"
_STATUSES: Final = sorted(set(STATUS.values()))


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the document that the broker serves at /openapi.json."""
    operations = list(operations)
    kinds: list[Any] = [Problem]
    for operation in operations:
        kinds += [kind for kind in (operation.message, operation.answer) if _is_message(kind)]
    _, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "scbroker",
            "version": codec.PROTOCOL,
            "description": "Messages are MessagePack; a field of format byte is a bin.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"session": {"type": "http", "scheme": "bearer"}},
        },
    }


def _is_message(kind: Any) -> bool:
    return kind is not None and kind is not bytes


def _operation(operation: Operation) -> dict[str, Any]:
    answers = {str(status): _problem(status) for status in _STATUSES}
    answers[str(operation.status)] = _body(operation.answer, "Done")
    if operation.status == 201:
        answers["200"] = _body(operation.answer, "Done before")
    found: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": f"{operation.method.lower()}{re.sub(r'[^A-Za-z]+', '-', operation.path)}",
        "parameters": list(_parameters(operation)),
        "responses": answers,
    }
    if operation.session:
        found["security"] = [{"session": []}]
    if operation.message is not None:
        found["requestBody"] = {"required": True, **_body(operation.message, "")}
    return found


def _body(kind: Any, description: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": description} if description else {}
    if kind is bytes:
        answer["content"] = {codec.OCTETS: {"schema": {}}}
    elif kind is not None:
        reference = {"$ref": _REF.format(name=kind.__name__)}
        answer["content"] = {codec.MESSAGE: {"schema": reference}}
    return answer


def _problem(status: int) -> dict[str, Any]:
    codes = sorted(kind.code for kind, number in STATUS.items() if number == status)
    schema = {"$ref": _REF.format(name="Problem")}
    return {"description": ", ".join(codes), "content": {codec.PROBLEM: {"schema": schema}}}


def _parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    headers: dict[str, dict[str, Any]] = {
        codec.PROTOCOL_HEADER: {"type": "string", "const": codec.PROTOCOL},
        codec.API_KEY_HEADER: {"type": "string", "format": "uuid"},
        codec.APPLICATION_HEADER: {"type": "string", "minLength": 1, "maxLength": 256},
    }
    for name, schema in headers.items():
        yield {"name": name, "in": "header", "required": True, "schema": schema}
    for name in re.findall(r"{(\w+)}", operation.path):
        is_id = name.endswith("Id")
        schema = (
            {"type": "string", "format": "uuid"} if is_id else {"type": "integer", "minimum": 0}
        )
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    for field in msgspec.structs.fields(operation.query):
        schema = msgspec.json.schema(field.type)
        yield {
            "name": field.encode_name,
            "in": "query",
            "required": field.required,
            "schema": schema,
        }
