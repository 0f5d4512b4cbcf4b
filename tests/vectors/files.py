"""Vector files, and the means to spoil bytes in one place.

The files are JSON; byte strings are lower-case hexadecimal, but signatures, being long, base64.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from scbroker.records.canonical import VERSION

FOLDER = Path(__file__).parent
Vector = dict[str, Any]
VALID, INTEGRITY, CLOCK, FORK, ROLLBACK = "valid", "integrity", "clock", "fork", "rollback"


def vector(name: str, comment: str, outcome: str, /, **fields: Any) -> Vector:
    """A vector that is valid, or that is refused with this error."""
    if outcome == VALID:
        return valid(name, comment, **fields)
    return invalid(name, comment, outcome, **fields)


def valid(name: str, comment: str, /, **fields: Any) -> Vector:
    return {"id": name, "comment": comment, "result": "valid", **fields}


def invalid(name: str, comment: str, error: str, /, **fields: Any) -> Vector:
    return {"id": name, "comment": comment, "result": "invalid", "error": error, **fields}


def store(name: str, about: str, vectors: list[Vector], **given: Any) -> None:
    names = [vector["id"] for vector in vectors]
    if len(set(names)) != len(names):
        raise ValueError(f"Two vectors of {name} have one id.")
    content = {"about": about, **({"given": given} if given else {}), "vectors": vectors}
    rewrite(name, _shown(content))


def rewrite(name: str, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return content


def vectors(name: str, result: str | None = None) -> list[Vector]:
    found: list[Vector] = load(name)["vectors"]
    return [vector for vector in found if result in (None, vector["result"])]


def raw(item: Mapping[str, Any], name: str) -> bytes:
    return bytes.fromhex(item[name])


def signature_of(item: Mapping[str, Any]) -> bytes:
    return base64.b64decode(item["signature"], validate=True)


def encoded(row: Sequence[Any]) -> bytes:
    """An object with these elements, which need not be of its grammar."""
    return VERSION + msgspec.msgpack.encode(row)


def put(row: Sequence[Any], position: int, value: Any) -> bytes:
    """An object with another element in one place."""
    return encoded([*row[:position], value, *row[position + 1 :]])


def flipped(octets: bytes, at: int) -> bytes:
    """The bytes with one bit changed, in the byte at a position."""
    changed = bytearray(octets)
    changed[at] ^= 1
    return bytes(changed)


def _shown(value: Any, name: str = "") -> Any:
    if isinstance(value, (bytes, memoryview)):
        return base64.b64encode(value).decode() if name == "signature" else value.hex()
    if isinstance(value, dict):
        return {key: _shown(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return value
