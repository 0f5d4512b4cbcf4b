"""The plaintext of headers: docs/spec/container.md, 6."""

import json
import math
from typing import Any

from tests.independent.encodings import UndecodableError, need

DEEPEST = 100


def parse(data: bytes) -> Any:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UndecodableError("invalid", "a header is UTF-8") from None
    need(not text.startswith("\ufeff"), "a header without byte order mark", "invalid")
    need(_levels(text) <= DEEPEST, "at most 100 levels", "invalid")
    try:
        value = json.loads(
            text.removeprefix("\ufeff"), object_pairs_hook=_object, parse_int=_number, parse_float=_number,
            parse_constant=_constant,
        )  # fmt: skip
    except ValueError:
        raise UndecodableError("invalid", "a header is JSON") from None
    _check_texts(value)
    return value


def _levels(text: str) -> int:
    """How deep brackets outside of strings are nested."""
    deepest = depth = 0
    quoted = escaped = False
    for character in text:
        if quoted:
            quoted = escaped or character != '"'
            escaped = not escaped and character == "\\"
            continue
        quoted = character == '"'
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    need(len({name for name, _ in pairs}) == len(pairs), "no name twice", "invalid")
    return dict(pairs)


def _number(digits: str) -> float:
    need(not math.isinf(float(digits)), "no number whose nearest double is infinite", "invalid")
    return float(digits)


def _constant(_: str) -> float:
    raise UndecodableError("invalid", "a header is JSON")


def _check_texts(value: Any) -> None:
    match value:
        case str():
            whole = not any("\ud800" <= character <= "\udfff" for character in value)
            need(whole, "no unpaired surrogate", "invalid")
        case list():
            for item in value:
                _check_texts(item)
        case dict():
            for name, item in value.items():
                _check_texts(name)
                _check_texts(item)
