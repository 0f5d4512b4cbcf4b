"""Paths and query strings, as strictly as messages. Spec: docs/spec/protocol.md, sections 1 and 5."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

import msgspec

from scbroker.errors import InvalidArgumentError
from scbroker.wire.codec import Message

M = TypeVar("M", bound=Message)
_DECIMAL: Final = re.compile(r"(0|[1-9][0-9]{0,15})\Z", re.ASCII)


class NoQuery(Message, frozen=True, kw_only=True):
    """No query parameter at all."""


def parse_number(text: str) -> int:
    """A decimal number without sign, leading zeros or other spellings."""
    if not _DECIMAL.match(text):
        raise InvalidArgumentError("A number is written in decimal digits without leading zeros.")
    return int(text)


def parse_query(kind: type[M], items: Iterable[tuple[str, str]]) -> M:
    """Query parameters as a message: none unknown, none doubled but for lists."""
    kinds, values = _kinds(kind), dict[str, Any]()
    for name, text in items:
        if name not in kinds:
            raise InvalidArgumentError(f"There is no query parameter {name[:40]!r} here.")
        if kinds[name] is list:
            values.setdefault(name, []).append(text)
        elif name in values:
            raise InvalidArgumentError(f"The query parameter {name} stands twice.")
        else:
            values[name] = parse_number(text) if kinds[name] is int else text
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(f"A query parameter is wrong: {error}") from None


@functools.cache
def _kinds(kind: type[Message]) -> dict[str, type]:
    """Each parameter, and whether it is a list, a number or text."""
    return {
        field.encode_name: next((each for each in (list, int) if _holds(field.type, each)), str)
        for field in msgspec.structs.fields(kind)
    }


def _holds(annotation: Any, kind: type) -> bool:
    """Whether a field's type is this one, under Annotated and beside None."""
    if annotation is kind or get_origin(annotation) is kind:
        return True
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        inner = inner[:1]
    return any(_holds(part, kind) for part in inner)
