"""Parse numbers in paths, and query strings, as strictly as messages. Spec: docs/spec/protocol.md, 1, 5."""

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
    """A query without parameters."""


def parse_number(text: str) -> int:
    """Parse a decimal number without sign, leading zeros or other spellings."""
    if not _DECIMAL.match(text):
        raise InvalidArgumentError(
            f"{text[:40]!r} is not a decimal number of up to 16 digits without leading zeros."
        )
    return int(text)


def parse_query(kind: type[M], items: Iterable[tuple[str, str]]) -> M:
    """Return query parameters as a message; refuse unknown ones, and repeated ones that are not lists."""
    kinds, values = _kinds(kind), dict[str, Any]()
    for name, text in items:
        if name not in kinds:
            raise InvalidArgumentError(f"{name[:40]!r} is not a query parameter of this operation.")
        if kinds[name] is list:
            values.setdefault(name, []).append(text)
        elif name in values:
            raise InvalidArgumentError(f"The query parameter {name} is given twice: give it once.")
        else:
            values[name] = parse_number(text) if kinds[name] is int else text
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(f"A query parameter is wrong: {error}") from None


@functools.cache
def _kinds(kind: type[Message]) -> dict[str, type]:
    """Return the kind of each parameter: list, int or str."""
    return {
        field.encode_name: next((each for each in (list, int) if _holds(field.type, each)), str)
        for field in msgspec.structs.fields(kind)
    }


def _holds(annotation: Any, kind: type) -> bool:
    """Return whether a field's type is this one, also inside Annotated or an optional."""
    if annotation is kind or get_origin(annotation) is kind:
        return True
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        inner = inner[:1]
    return any(_holds(part, kind) for part in inner)
