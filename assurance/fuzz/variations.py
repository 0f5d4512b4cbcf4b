"""Valid inputs with faults, as Hypothesis draws them; and programs, which are such faults written down.

A fault is an edit of a tree of lists and dicts: an operation, a path, an argument. Under signatures or
encryption a plain edit never passes the first check, so there an input is a program: MessagePack of
[base, fixups, edits]. `base` selects a valid document, the edits change it, and each bit of `fixups` makes
something right again that depends on it: a hash, a link, a signature. A program ignores what is ill-formed
in it, so any bytes are one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from hypothesis import strategies as st

from assurance.fuzz.messagepack import Raw, head, other_forms, write
from assurance.fuzz.target import Target
from scbroker.errors import BrokerError

Document = dict[str, Any]
Draws = st.SearchStrategy
SET, DROP, DOUBLE, SWAP, COPY, ADD, FLIP, GROW, RESPELL = range(9)
_IN_PROGRAMS: Final = 8
_LONGEST_PATH: Final = 7
_MOST_EDITS: Final = 24
_MOST_BYTES: Final = 1 << 22
_INTEGERS: Final = (
    -(2**63), -(2**31), -129, -33, -1, 0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 64, 127, 128, 255, 256, 511, 512,
    1000, 1024, 1025, 65_535, 65_536, 262_144, 1_048_576, 2**31, 2**32, 2**40, 2**53 - 1, 2**53,
    253_402_300_799_999_999, 253_402_300_800_000_000, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
_SIZES: Final = (
    0, 1, 15, 16, 17, 31, 32, 33, 43, 48, 64, 112, 128, 256, 1023, 1024, 1168, 1216, 1984, 3373,
)  # fmt: skip
_TEXTS: Final = (
    "", "a", "0", "-1", "1.0", "null", "\0", "\n", " ", "é", "ß", "\u0661", "\uff11", "\u212a", "\U0001f511",
    "%00", "../", "'", "bf00888a-fba6-8c71-9cf0-0a8aa7589293", "Added", "NaN", "1e400",
)  # fmt: skip
_WORDS: Final = (
    *_TEXTS, "https://", "http://", "localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "xn--", ".", ":",
    "@", "/", "?", "#", "\\", "443", "65536", "0x7f", "%", "&", "=", "+", ";", "since=1", "from=1",
    "limit=1000", "a" * 64, "\u3002", "\u00ad", "\u200d", "\u0130", "\u1e9e", "\t", "\u2028", "-", "[", "]",
    "0" * 20, "\ud800",
)  # fmt: skip
_JSON: Final = (
    " : ", '{"a":1,', ',"name":"x","name":"y"}', "1.0", "1e0", "0.1e1", "01", "-1", "1e999999999", "1" * 400,
    '"\\ud800', '"\\u0000', "[[[[", "NaN", "Infinity", ",,", "\ufeff{", "}x", '"\\x', "null", "true",
)  # fmt: skip

# What is set in place of something else; the second kind only the writer by hand can write.
_PLAIN: Final[Draws[Any]] = st.one_of(
    st.sampled_from(_INTEGERS), st.sampled_from((None, True, False)), st.sampled_from(_TEXTS),
    st.sampled_from(_SIZES).map(bytes), st.binary(max_size=64), st.just([]),
)  # fmt: skip
_STRANGE: Final[Draws[Any]] = _PLAIN | st.sampled_from(
    [
        *(Raw(bytes.fromhex(form)) for form in ("ca3f800000", "cb7ff8000000000000", "d6ff00000001")),
        *(Raw(form) for form in (b"\xc7\x0c\xff" + bytes(12), b"\xd4\1\0", b"\xc1", b"", b"\xa1\xff")),
        Raw(b"\xa3\xed\xa0\x80"), {}, {"a": None}, [[]],
    ]
)  # fmt: skip


# Edits.


class Edit(NamedTuple):
    """One fault. SWAP and COPY take another path as argument, ADD a number, FLIP a bit, GROW a size."""

    operation: int
    path: Sequence[int]
    argument: Any = None


def edits(document: Any, values: Draws[Any], *, respelled: bool = False) -> Draws[list[Edit]]:
    """Draw a few edits that fit the document."""
    every = [path for path, _ in _paths(document)]
    paths = st.sampled_from(every)
    found = [
        st.builds(Edit, st.just(SET), paths, values),
        st.builds(Edit, st.sampled_from((DROP, DOUBLE)), paths, st.none()),
        st.builds(Edit, st.sampled_from((SWAP, COPY)), paths, paths),
    ]
    numbers = [path for path, value in _paths(document) if type(value) is int]
    if numbers:
        by = st.sampled_from((1, -1, 2, 60_000_000, -60_000_000, 10**12, -(10**12), *_INTEGERS))
        found.append(st.builds(Edit, st.just(ADD), st.sampled_from(numbers), by))
    octets = [path for path, value in _paths(document) if isinstance(value, bytes)]
    if octets:
        place, size = st.sampled_from(octets), st.sampled_from((-1, 1, -16, 16, -32, 32))
        found.append(st.builds(Edit, st.just(FLIP), place, st.integers(0, 1 << 16)))
        found.append(st.builds(Edit, st.just(GROW), place, size))
    if respelled:
        found.append(st.builds(Edit, st.just(RESPELL), paths, st.integers(0, 9)))
    return st.lists(st.one_of(found), min_size=1, max_size=4)


def _paths(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield every place below a value by its positions, and what stands there."""
    items = value.values() if isinstance(value, dict) else value
    for position, item in enumerate(items):
        yield (*path, position), item
        if isinstance(item, (list, dict)):
            yield from _paths(item, (*path, position))


def path_to(document: Document, *names: Any) -> list[int]:
    """Return the path of a place in a document, given by names and positions."""
    path: list[int] = []
    value: Any = document
    for name in names:
        path.append(list(value).index(name) if isinstance(value, dict) else name)
        value = value[name]
    return path


def edited(document: Document, changes: Iterable[Edit]) -> Document:
    """Return a copy of the document with these edits made, as far as they fit it."""
    found = copy.deepcopy(document)
    for change in changes:
        _apply(found, *change)
    return found


def _apply(document: Document, operation: int, path: Sequence[int], argument: Any) -> None:
    place = _place(document, path)
    if place is None:
        return
    holder, key = place
    value = holder[key]
    # The fields of the document itself stay: what runs a program reads them by name.
    loose = holder is not document
    match operation:
        case 0:  # SET
            holder[key] = argument
        case 1 if loose:  # DROP
            del holder[key]
        case 2 if isinstance(holder, list):  # DOUBLE
            holder.insert(key, copy.deepcopy(value))
        case 2 if loose:
            holder[f"{key}x"] = copy.deepcopy(value)
        case 3 | 4 if isinstance(argument, (list, tuple)):  # SWAP, COPY
            other = _place(document, argument)
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
            more = bytes(max(0, min(argument, _MOST_BYTES)))
            holder[key] = value[:argument] if argument < 0 else value + more
        case 8:  # RESPELL
            forms = other_forms(value)
            holder[key] = Raw(forms[argument % len(forms)])


def _place(document: Document, path: Sequence[Any]) -> tuple[Any, Any] | None:
    """Return the holder and the key of a place; positions wrap around."""
    holder: Any = None
    key: Any = None
    value: Any = document
    for step in path[:_LONGEST_PATH]:
        if not isinstance(value, (list, dict)) or not value or not isinstance(step, int):
            break
        holder, at = value, abs(step) % len(value)
        key = list(value)[at] if isinstance(value, dict) else at
        value = holder[key]
    return None if holder is None else (holder, key)


def _within(value: Any, sought: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is sought or any(_within(item, sought) for item in items)


# Programs.


class Program(NamedTuple):
    """What is well-formed in an input."""

    base: int
    fixups: int
    edits: Sequence[Edit]

    @classmethod
    def parse(cls, data: bytes) -> Program:
        """Return the program that any bytes are."""
        try:
            found = msgspec.msgpack.decode(data)
        except (ValueError, RecursionError):
            found = None
        match found:
            case [int() as base, int() as fixups, list() as items]:
                kept = [edit for item in items[:_MOST_EDITS] if (edit := _edit(item)) is not None]
                return cls(abs(base), abs(fixups), kept)
        return cls(0, 0, [])

    def applied(self, document: Document) -> Document:
        """Return an edited copy of the document."""
        return edited(document, self.edits)


def _edit(item: Any) -> Edit | None:
    match item:
        case [int() as operation, list() as path, argument]:
            return Edit(abs(operation) % _IN_PROGRAMS, path, argument)
    return None


def program(base: int = 0, fixups: int = 0, *changes: Sequence[Any]) -> bytes:
    """Return the program of these edits, each an operation, a path and an argument."""
    return write([base, fixups, [list(change) for change in changes]])


def programs(document_of: Callable[[int], Document], bases: int, fixups: int) -> Draws[bytes]:
    """Draw programs over `bases` documents with so many bits of fixups."""

    def of(base: int) -> Draws[bytes]:
        changes = edits(document_of(base), _PLAIN)
        return st.builds(
            lambda fixed, made: program(base, fixed, *made), st.integers(0, 2**fixups - 1), changes
        )

    return st.integers(0, bases - 1).flatmap(of)


def program_target(
    name: str,
    run: Callable[[bytes], object],
    refusals: Sequence[type[BrokerError]],
    seeds: Callable[[], Iterable[bytes]],
    documents: tuple[Callable[[int], Document], int, int],
    bombs: Callable[[], Iterable[bytes]] = tuple,
    **more: Any,
) -> Target:
    """Return the target of programs over so many documents, with so many bits of fixups.

    A small program may expand to many bytes, so that more memory is spare. `bombs` are further ones.
    """
    document_of, _, fixups = documents

    def all_bombs() -> Iterator[bytes]:
        yield from bombs_in_programs(document_of(0), 2**fixups - 1)
        yield from bombs()

    return Target(
        name, run, tuple(refusals), seeds, lambda: programs(*documents), all_bombs, spare=8 << 20, **more
    )  # fmt: skip


def tree(value: Any) -> Any:
    """Return a value that edits have made, with texts for the keys of its dicts."""
    if isinstance(value, dict):
        return {str(key): tree(item) for key, item in value.items()}
    return [tree(item) for item in value] if isinstance(value, list) else value


def list_of(value: Any) -> list[Any]:
    """Return a value that is a list, and an empty list for any other."""
    return value if isinstance(value, list) else []


# Inputs that are no programs.


def in_messagepack(seeds: Sequence[bytes]) -> Draws[bytes]:
    """Draw a seed whose MessagePack, behind whatever precedes it, has faults; or bytes with faults."""

    def of(seed: bytes) -> Draws[bytes]:
        prefix, value = unpacked(seed)
        document = {"value": value}
        changes = edits(document, _STRANGE, respelled=True)
        return changes.map(lambda made: prefix + write(edited(document, made)["value"]))

    return st.sampled_from(seeds).flatmap(of) | in_bytes(seeds)


def in_json(texts: Sequence[bytes]) -> Draws[bytes]:
    """Draw a seed whose JSON has faults."""
    other: Draws[Any] = st.sampled_from([*_TEXTS, *_INTEGERS, None, True, 0.5, 1e300, [], {}, [[]]])

    def of(text: bytes) -> Draws[bytes]:
        document = {"value": json.loads(text)}
        return edits(document, other).map(
            lambda made: json.dumps(_jsonable(edited(document, made)["value"])).encode()
        )

    pieces = st.sampled_from(_JSON) | st.characters()
    return st.sampled_from(texts).flatmap(of) | _spliced(texts, pieces.map(_octets))


def _jsonable(value: Any) -> Any:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def in_words(seeds: Sequence[bytes]) -> Draws[bytes]:
    """Draw a seed with words and characters put in, taken out or doubled."""
    return _spliced(seeds, (st.sampled_from(_WORDS) | st.characters()).map(_octets))


def in_bytes(seeds: Sequence[bytes]) -> Draws[bytes]:
    """Draw a seed with bytes changed, put in, taken out or cut off."""
    return _spliced(seeds, st.binary(max_size=20) | st.sampled_from(_SIZES).map(bytes))


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@st.composite
def _spliced(draw: st.DrawFn, seeds: Sequence[bytes], pieces: Draws[bytes]) -> bytes:
    data = draw(st.sampled_from(seeds))
    cuts = st.sampled_from((0, 1, 1, 2, 5, 20, 1 << 20))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(pieces) + data[at + draw(cuts) :]
    return data


def unpacked(data: bytes) -> tuple[bytes, Any]:
    """Split a seed into what precedes its MessagePack (a line, a magic, a version) and the value."""
    line = data.find(b"\n", 0, 60) + 1
    for start in sorted({0, 1, 17, line}):
        try:
            value = msgspec.msgpack.decode(data[start:])
        except (ValueError, RecursionError):
            continue
        if isinstance(value, (list, dict)):
            return data[:start], value
    raise ValueError(f"no MessagePack behind {data[:60]!r}")


# Bombs.

MANY: Final = 100_000
_HUGE: Final = (
    *(bytes([form]) + b"\xff" * 4 for form in (0xDD, 0xDF, 0xC6, 0xDB)), b"\xc9\xff\xff\xff\xff\1",
    b"\x91" * MANY, b"\x81\xa1n" * MANY, b"\x81" * MANY, head("map", MANY) + write({"n": 0})[1:] * MANY,
)  # fmt: skip
_LONG: Final[tuple[Any, ...]] = (
    [None] * MANY, [[]] * MANY, [{}] * MANY, {f"{n:x}": 0 for n in range(MANY)},
    dict.fromkeys(range(MANY), 0), bytes(1 << 20), "\u20ac" * (1 << 18), 2**64 - 1,
)  # fmt: skip
_FILLERS: Final = [*map(Raw, _HUGE), *(Raw(msgspec.msgpack.encode(value)) for value in _LONG)]


def messagepack_target(
    name: str,
    run: Callable[[bytes], object],
    refusals: Sequence[type[BrokerError]],
    seeds: Callable[[], list[bytes]],
    more: Sequence[bytes] = (),
    **limits: Any,
) -> Target:
    """Return the target of inputs that are MessagePack; `more` are seeds that are not."""
    return Target(
        name, run, tuple(refusals), lambda: [*seeds(), *more], lambda: in_messagepack(seeds()),
        lambda: bombs_in_messagepack(seeds()[0]), **limits,
    )  # fmt: skip


def bombs_in_messagepack(
    seed: bytes, places: int = 12, which: slice = slice(None)
) -> Iterator[bytes]:
    """Yield counts without elements, deep nesting and long runs: alone, and in places of the seed."""
    prefix, value = unpacked(seed)
    document = {"value": value}
    every = [path for path, _ in _paths(document)]
    for filler in _FILLERS[which]:
        yield filler.data
        yield seed[:1] + filler.data
        for path in every[:: max(1, len(every) // places)]:
            yield prefix + write(edited(document, [Edit(SET, path, filler)])["value"])


def bombs_in_programs(document: Document, fixups: int, places: int = 24) -> Iterator[bytes]:
    """Yield programs that put much of one thing into places of the document, or multiply what is there."""
    much: tuple[Any, ...] = (
        bytes(1 << 20), "x" * (1 << 20), [None] * 20_000, [[]] * 20_000, [bytes(100)] * 5000,
    )  # fmt: skip
    every = [path for path, _ in sorted(_paths(document), key=lambda place: len(place[0]))]
    shallow = [path for path in every if len(path) < 3]
    for path in [*shallow, *every[len(shallow) :: max(1, len(every) // places)]]:
        for value in much:
            yield program(0, fixups, (SET, path, value))
        yield program(0, fixups, *[(DOUBLE, path, None)] * _MOST_EDITS)


def bombs_in_json() -> Iterator[bytes]:
    """Yield deep nesting, long lists, long numbers and long texts."""
    for opening, closing in ((b"[", b"]"), (b'{"name":', b"}"), (b"[{", b"}]")):
        yield opening * MANY
        yield opening * 500 + b"1" + closing * 500
    for element in (b"[]", b"{}", b"0", b'""', b"1.5", b"null", b'{"name":{}}', b"1e308"):
        many = b"[" + b",".join([element] * (MANY // 4)) + b"]"
        yield many
        yield b'{"name":' + many + b"}"
    for pair in (b'"name":"x"', b'"%x":0'):
        keys = (pair % n if b"%" in pair else pair for n in range(MANY // 5))
        yield b"{" + b",".join(keys) + b"}"
    for number in (b"1" * MANY, b"0." + b"1" * MANY, b"1e" + b"9" * 20, b"1" * 4301):
        yield number
        yield b'{"name":"x","count":' + number + b"}"
        yield b'"' + number + b'"'
    for text in (b"x", b"\\u0000", b"\\ud83d\\ude00", "\u20ac".encode(), b"\\n"):
        yield b'"' + text * (MANY // 4) + b'"'
    yield b" " * MANY
    yield b'"' + b"\\" * MANY


def bombs_in_words(many: int = MANY // 5) -> Iterator[bytes]:
    """Yield one word many times, alone and as the host of a URL."""
    for word in ("a", "0", "9", ".", "a.", "1.", ":", "/", "%", "\u20ac", "&", "=", "a=1&"):
        for before in ("", "https://", "http://"):
            yield (before + word * many).encode()
    for word in (
        "\uff11",
        "\u00ad",
        "xn--",
        "xn--\u00e9",
        "\u0130",
        "\ufdfa",
        "0x",
        "[",
        "[:",
        "@",
    ):
        yield b"https://" + word.encode() * (many // 10)
    yield b"\xff" * many
    yield b"https://" + b"a" * 63 + (b"." + b"a" * 63) * 1000
    yield b"https://a:" + b"9" * many
