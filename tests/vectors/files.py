"""Vector files, and the means to spoil bytes in one place.

The files are JSON; byte strings are lower-case hexadecimal, but signatures, being long, base64.
"""

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from scbroker.records.canonical import VERSION
from scbroker.records.key_record import Signed

FOLDER = Path(__file__).parent
MINUTE = 60_000_000
T = TypeVar("T")
Vector = dict[str, Any]
VALID, INTEGRITY, CLOCK, FORK, ROLLBACK = "valid", "integrity", "clock", "fork", "rollback"


class Book(ABC, Generic[T]):
    """The vectors of a file about chains of records, and the records that they name."""

    first = 0
    """The number of the first record of a history in the names of its records."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, Any]] = {}
        self.vectors: list[Vector] = []
        self.with_signatures = False
        self._names: dict[T, str] = {}

    @abstractmethod
    def shown(self, record: T) -> dict[str, Any]:
        """A record in the file, with what is served with it."""

    @abstractmethod
    def time_of(self, record: T) -> int: ...

    def add(self, record: T, name: str, served: Mapping[str, Any] = MappingProxyType({})) -> str:
        """Return the name of a record, which has this one if it is new; `served` changes what is shown."""
        if record in self._names and not served:
            return self._names[record]
        if name in self.records:
            raise ValueError(f"Two records are called {name}.")
        shown = {**self.shown(record), **served}
        self.records[name] = {key: value for key, value in shown.items() if value is not None}
        return name if served else self._names.setdefault(record, name)

    def after(self, history: Sequence[T], *rows: tuple[Any, ...]) -> None:
        """Add a vector for each row: a chain of these records and the row's."""
        for row in rows:
            self.row(history, *row)

    def row(
        self, history: Sequence[T], name: str, comment: str, outcome: str, last: T,
        fields: Mapping[str, Any] = MappingProxyType({}), served: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Add a vector; `served` changes what comes with its last record."""
        names = [self.add(each, f"{name}: {n}") for n, each in enumerate(history, self.first)]
        now = max(map(self.time_of, (*history, last))) + MINUTE
        chain = {"records": [*names, self.add(last, name, served)], "now": now, **fields}
        self.vectors.append(vector(name, comment, outcome, **chain))


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


def raws(item: Mapping[str, Any], *names: str) -> list[bytes]:
    return [raw(item, name) for name in names]


def signed_of(item: Mapping[str, Any]) -> Signed:
    return Signed(raw(item, "body"), signature_of(item))


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
