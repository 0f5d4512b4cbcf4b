"""Encode headers as JSON, and decode them to the type that the caller asks for.

msgspec handles dicts, dataclasses, attrs classes, Structs and TypedDicts. pydantic models are recognized by
their own methods, so that pydantic is not a dependency.
"""

import json
from typing import Any, get_type_hints

import msgspec

from scbroker.errors import InvalidArgumentError
from scbroker.records.container_record import MAX_HEADER
from scbroker.vocabulary import AccessLevel


def encode_header(header: object) -> bytes | None:
    """Return the header's JSON; None for None. Raises `InvalidArgumentError` for what JSON cannot hold."""
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
        raise InvalidArgumentError(f"The header has {len(data)} bytes: use at most {MAX_HEADER}.")
    return data


def decode_header(data: bytes, header_type: Any) -> Any:
    """Return the header as an object of a type; `InvalidArgumentError` if it does not fit.

    The message names fields of the type and kinds of JSON values, never the header's own text.
    """
    try:
        _check_strict(data)
    except (ValueError, RecursionError) as error:
        why = f"it is not strict JSON ({type(error).__name__})"
    else:
        try:
            if hasattr(header_type, "model_validate_json"):
                return header_type.model_validate_json(data)
            return msgspec.json.decode(data, type=header_type)
        except msgspec.ValidationError:
            why = _misfit(msgspec.json.decode(data), header_type, "header")
        except (TypeError, ValueError, RecursionError) as error:
            why = type(error).__name__
    raise InvalidArgumentError(f"The header is not a {_name(header_type)}: {why}")


def _check_strict(data: bytes) -> None:
    """Raise `ValueError` for JSON that programs read in different ways, or not at all.

    That is NaN, numbers beyond a double, and doubled names in one object; pydantic accepts all three. JSON
    that msgspec would write the same way has none of them; any other is parsed again.
    """
    if msgspec.json.encode(msgspec.json.decode(data)) != data:
        json.loads(data, object_pairs_hook=_refuse_doubled, parse_int=str, parse_float=str)


def _refuse_doubled(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name stands twice in one object")


def _misfit(value: object, kind: Any, path: str) -> str:
    """Say which field of a type the header lacks, or fills with a value of another type."""
    if isinstance(value, dict) and isinstance(kind, type):
        hints = get_type_hints(kind, include_extras=True)
        for field in getattr(msgspec.inspect.type_info(kind), "fields", ()):
            inner, hint = f"{path}.{field.encode_name}", hints[field.name]
            if field.encode_name in value:
                try:
                    msgspec.convert(value[field.encode_name], hint)
                except msgspec.ValidationError:
                    return _misfit(value[field.encode_name], hint, inner)
            elif field.required:
                return f"{inner} is missing"
    return f"{path} must be {_name(kind)}, not {type(value).__name__}"


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)[:100]
