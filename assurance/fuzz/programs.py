"""Inputs that are edits of something valid: small, and they stay useful where signatures are random.

A program is MessagePack: [base, fixups, [[operation, path, argument], ...]]. `base` chooses a document,
`edits` change it, and each bit of `fixups` has something made right again afterwards: a hash, a link, a
signature. Whatever is ill-formed in a program is passed over, so that every bytes are a program.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from assurance.fuzz.messagepack import Raw, write
from assurance.fuzz.mutation import INTEGERS, SIZES, TEXTS, Mutate, in_messagepack, strange

Document = dict[str, Any]
SET, DROP, DOUBLE, SWAP, COPY, ADD, FLIP, GROW = range(8)
_LONGEST_PATH: Final = 7
_MOST_EDITS: Final = 24
_MOST_BYTES: Final = 1 << 22


@dataclass(frozen=True)
class Program:
    """What is left of an input once everything ill-formed in it was passed over."""

    base: int
    fixups: int
    edits: Sequence[tuple[int, Sequence[int], Any]]

    @classmethod
    def parse(cls, data: bytes) -> Program:
        try:
            found = msgspec.msgpack.decode(data)
        except (ValueError, RecursionError):
            found = None
        match found:
            case [int() as base, int() as fixups, list() as edits]:
                kept = [edit for item in edits[:_MOST_EDITS] if (edit := _edit(item)) is not None]
                return cls(abs(base), abs(fixups), kept)
        return cls(0, 0, [])

    def applied(self, document: Document) -> Document:
        """A copy of the document with all edits made."""
        found = copy.deepcopy(document)
        for operation, path, argument in self.edits:
            _apply(found, operation, path, argument)
        return found


def program(base: int = 0, fixups: int = 0, *edits: tuple[int, Sequence[int], Any]) -> bytes:
    return write(
        [base, fixups, [[operation, list(path), value] for operation, path, value in edits]]
    )


def path_to(document: Document, *names: Any) -> list[int]:
    """The path of a place in a document, by its names and positions."""
    path: list[int] = []
    value: Any = document
    for name in names:
        path.append(list(value).index(name) if isinstance(value, dict) else name)
        value = value[name]
    return path


_MUCH: Final[tuple[Any, ...]] = (
    bytes(1 << 20), "x" * (1 << 20), [None] * 20_000, [[]] * 20_000, [0] * 20_000, [bytes(100)] * 5000,
)  # fmt: skip


def bombs(document: Document, fixups: int, *places: tuple[Any, ...]) -> Iterator[bytes]:
    """Much of one thing in each of these places, and each of these often."""
    for names in places:
        path = path_to(document, *names)
        for value in _MUCH:
            yield program(0, fixups, (SET, path, value))
        yield program(0, fixups, *[(DOUBLE, path, None)] * _MOST_EDITS)


def mutator(document_of: Callable[[int], Document], bases: int, fixups: int) -> Mutate:
    """Programs from programs: another base, other fixups, edits more, fewer or changed."""

    def mutate(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        found = Program.parse(data)
        base, fixed, edits = found.base, found.fixups, [list(edit) for edit in found.edits]
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            match rng.randrange(10):
                case 0:
                    base = rng.randrange(bases)
                case 1 | 2 if fixups:
                    fixed ^= 1 << rng.randrange(fixups)
                case 3 if edits:
                    del edits[rng.randrange(len(edits))]
                case 4 if edits and others:
                    edits += [list(edit) for edit in Program.parse(rng.choice(others)).edits]
                case 5 if edits:
                    edit = rng.choice(edits)
                    edit[2] = _argument(rng, edit[0], document_of(base % bases))
                case 6 if edits:
                    return in_messagepack(rng, data, others)
                case _:
                    operation = rng.choice(
                        (SET, SET, DROP, DOUBLE, SWAP, COPY, ADD, ADD, FLIP, FLIP, GROW)
                    )
                    path = _some_path(rng, document_of(base % bases))
                    edits.append(
                        [operation, path, _argument(rng, operation, document_of(base % bases))]
                    )
        return write([base, fixed, edits[-_MOST_EDITS:]])

    return mutate


def _edit(item: Any) -> tuple[int, Sequence[int], Any] | None:
    match item:
        case [int() as operation, list() as path, argument]:
            steps = [abs(step) for step in path[:_LONGEST_PATH] if isinstance(step, int)]
            return abs(operation) % 8, steps, argument
    return None


def _some_path(rng: random.Random, document: Document) -> list[int]:
    """A path to any place, the shallow ones as often as the deep ones."""
    path: list[int] = []
    value: Any = document
    while isinstance(value, (list, dict)) and value and (not path or rng.random() < 0.8):
        path.append(rng.randrange(len(value)))
        value = list(value.values())[path[-1]] if isinstance(value, dict) else value[path[-1]]
    return path


def _argument(rng: random.Random, operation: int, document: Document) -> Any:
    match operation:
        case 3 | 4:  # SWAP, COPY
            return _some_path(rng, document)
        case 5:  # ADD
            return rng.choice(
                (1, -1, 2, 60_000_000, -60_000_000, 10**12, -(10**12), rng.choice(INTEGERS))
            )
        case 6:  # FLIP
            return rng.randrange(1 << 16)
        case 7:  # GROW
            return rng.choice((-1, 1, -16, 16, -32, 32))
        case 0:  # SET
            value: Any = rng.choice((
                rng.choice(INTEGERS), None, True, False, rng.randbytes(rng.choice(SIZES)),
                bytes(rng.choice(SIZES)), rng.choice(TEXTS), [], strange(rng),
            ))  # fmt: skip
            return None if isinstance(value, (Raw, float)) else value
    return None


def _apply(document: Document, operation: int, path: Sequence[int], argument: Any) -> None:
    place = _place(document, path)
    if place is None:
        return
    holder, key = place
    value = holder[key]
    match operation:
        case 0:  # SET
            holder[key] = argument
        case 1 if isinstance(holder, list):  # DROP
            del holder[key]
        case 2 if isinstance(holder, list):  # DOUBLE
            holder.insert(key, copy.deepcopy(value))
        case 3 | 4 if isinstance(argument, list):  # SWAP, COPY
            steps = [abs(step) for step in argument[:_LONGEST_PATH] if isinstance(step, int)]
            other = _place(document, steps)
            if other is not None and not _within(value, other[0]):
                found = copy.deepcopy(other[0][other[1]])
                if operation == SWAP and not _within(other[0][other[1]], holder):
                    other[0][other[1]] = copy.deepcopy(value)
                holder[key] = found
        case 5 if isinstance(argument, int) and isinstance(value, int):  # ADD
            holder[key] = value + argument
        case 6 if isinstance(argument, int) and isinstance(value, bytes) and value:  # FLIP
            at = abs(argument) // 8 % len(value)
            holder[key] = value[:at] + bytes([value[at] ^ 1 << abs(argument) % 8]) + value[at + 1 :]
        case 7 if isinstance(argument, int) and isinstance(value, bytes):  # GROW
            holder[key] = (
                value[:argument] if argument < 0 else value + bytes(min(argument, _MOST_BYTES))
            )


def _place(document: Document, path: Sequence[int]) -> tuple[Any, Any] | None:
    """The holder and the key of a place; positions count round, names of a document stay its own."""
    holder: Any = None
    key: Any = None
    value: Any = document
    for step in path:
        if not isinstance(value, (list, dict)) or not value:
            break
        holder, key = (
            value,
            (list(value)[step % len(value)] if isinstance(value, dict) else step % len(value)),
        )
        value = holder[key]
    return None if holder is None else (holder, key)


def _within(value: Any, sought: Any) -> bool:
    if value is sought:
        return True
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_within(item, sought) for item in items)


def tree(value: Any) -> Any:
    """What an edit may have put into a document, as lists and dicts alone."""
    if isinstance(value, dict):
        return {str(key): tree(item) for key, item in value.items()}
    return [tree(item) for item in value] if isinstance(value, list) else value


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
