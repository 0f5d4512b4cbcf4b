"""Headers as JSON, from and to whatever types the caller has.

Anything that msgspec encodes: dict, dataclass, attrs, Struct, TypedDict; and pydantic models, known
by their own methods, so that pydantic is not needed.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from scbroker.errors import InvalidArgumentError
from scbroker.records.container_record import MAX_HEADER
from scbroker.vocabulary import AccessLevel


def encode_header(header: object) -> bytes | None:
    """The header's JSON; None for none. `InvalidArgumentError` for what JSON cannot hold."""
    if header is None:
        return None
    levels = header if isinstance(header, (list, tuple)) else [header]
    if any(isinstance(level, AccessLevel) for level in levels):
        raise InvalidArgumentError(
            "customHeaderObject must not be an access list: pass accessLevels=[...]."
        )
    try:
        if hasattr(header, "model_dump_json"):
            data = bytes(header.model_dump_json().encode())
        else:
            data = msgspec.json.encode(header)
        _check_strict(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"The header cannot be written as JSON: {error}") from None
    if len(data) > MAX_HEADER:
        raise InvalidArgumentError(f"The header has {len(data)} bytes; {MAX_HEADER} are allowed.")
    return data


def decode_header(data: bytes, header_type: Any) -> Any:
    """The header as the type that the caller asks for; `InvalidArgumentError` if it is none of it."""
    try:
        _check_strict(data)
        if hasattr(header_type, "model_validate_json"):
            found = header_type.model_validate_json(data)
        else:
            found = msgspec.json.decode(data, type=header_type)
    except (TypeError, ValueError, RecursionError) as error:
        name = getattr(header_type, "__name__", str(header_type))
        raise InvalidArgumentError(f"The header is not a {name}: {_fault(error)}") from None
    return found


def _check_strict(data: bytes) -> None:
    """`ValueError` for what some programs read in one way and some in another, or not at all.

    NaN, numbers that no double holds, and names that stand twice in one object: pydantic takes all three.
    What comes out of msgspec as it went in has none of them; all else is looked at more closely.
    """
    if msgspec.json.encode(msgspec.json.decode(data)) != data:
        json.loads(data, object_pairs_hook=_named_once, parse_int=str, parse_float=str)


def _named_once(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name stands twice in one object")


def _fault(error: Exception) -> str:
    """What does not fit, without the header's own text, which stands in some messages of msgspec."""
    if not isinstance(error, msgspec.ValidationError):
        return type(error).__name__
    if str(error).startswith(("Expected `", "Object missing required field `")):
        return str(error)
    return "it has a value or a field that the type does not know"
