"""From one input to another: in its bytes, in its MessagePack or JSON, in its words.

Each mutator is given the randomness, the input, and others that may be cut up for it.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from assurance.fuzz.messagepack import (
    NotCanonicalError,
    Pairs,
    Raw,
    head,
    integer_forms,
    read,
    write,
)

Mutate = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
INTEGERS: Final = (
    -(2**63), -(2**31), -129, -128, -33, -32, -1, 0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 64, 127, 128, 255, 256,
    511, 512, 1000, 1024, 1025, 65_535, 65_536, 262_144, 1_048_576, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40,
    2**53 - 1, 2**53, 253_402_300_799_999_999, 253_402_300_800_000_000, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
SIZES: Final = (
    0, 1, 15, 16, 17, 31, 32, 33, 43, 48, 64, 112, 128, 256, 1023, 1024, 1168, 1216, 1984, 3373,
)  # fmt: skip
TEXTS: Final = (
    "", "a", "0", "1", "-1", "1.0", "null", "true", "\0", "\n", " ", "é", "ß", "\u0661", "\uff11", "\u212a",
    "\ud800", "\U0001f511", "%00", "../", "'", "bf00888a-fba6-8c71-9cf0-0a8aa7589293", "Added", "NaN",
    "1e400",
)  # fmt: skip
_MOST: Final = 1 << 18


def mixed(*mutators: Mutate) -> Mutate:
    """One to four rounds of any of these, the first most often."""

    def mutate(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
            chosen = mutators[min(rng.randrange(len(mutators)), rng.randrange(len(mutators)))]
            data = chosen(rng, data, others)
        return data[:_MOST]

    return mutate


def in_bytes(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Bits, bytes, runs of them, and what another input has there."""
    if not data:
        return rng.randbytes(rng.choice((1, 2, 20)))
    at = rng.randrange(len(data))
    size = min(rng.choice((1, 1, 2, 4, 8, 32, rng.randint(1, len(data)))), len(data) - at)
    match rng.randrange(9):
        case 0:
            return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        case 2:
            return data[:at] + data[at + size :]
        case 3:
            return data[: at + size] + data[at:]
        case 4:
            return data[:at] + rng.randbytes(size) + data[at:]
        case 5:
            return data[:at] + rng.choice((b"\0", b"\xff", b"\x80")) * size + data[at + size :]
        case 6:
            number = rng.choice(INTEGERS) % 2**64
            return data[:at] + number.to_bytes(8, "big")[-size:] + data[at + size :]
        case 7:
            return data[:at]
    other = rng.choice(others) if others else data
    start = rng.randrange(len(other) + 1)
    return data[:at] + other[start : start + size] + data[at + size :]


def lesser(data: bytes) -> Iterator[bytes]:
    """Shorter inputs that are near: an element less of a value, or a run of bytes."""
    found = unpacked(data)
    if found is not None:
        prefix, value = found
        for number, (container, position) in enumerate(places_in([value])):
            if isinstance(value_at((container, position)), (list, Pairs)) or number:
                copied = copy.deepcopy([value])
                holder, key = list(places_in(copied))[number]
                items = holder if isinstance(holder, list) else holder.items
                if holder is not copied:
                    del items[key]
                    yield prefix + write(copied[0])
    size = len(data) // 2
    while size:
        for at in range(0, len(data), size):
            yield data[:at] + data[at + size :]
        size //= 2


def strange(rng: random.Random) -> Any:
    """Any value: at a bound, of a size that means something somewhere, or of no use anywhere."""
    match rng.randrange(10):
        case 0:
            return rng.choice((None, True, False))
        case 1 | 2:
            return rng.choice(INTEGERS)
        case 3 | 4:
            return rng.randbytes(rng.choice(SIZES))
        case 5:
            return bytes(rng.choice(SIZES))
        case 6:
            return rng.choice(TEXTS)
        case 7:
            return [strange(rng) for _ in range(rng.randrange(3))]
        case 8:
            return Pairs([(rng.choice(TEXTS), strange(rng))])
    return rng.choice((
        0.0, float("nan"), Raw(b"\xca\x3f\x80\0\0"), Raw(b"\xd6\xff\0\0\0\1"),
        Raw(b"\xc7\x0c\xff" + bytes(12)),
        Raw(b"\xd4\1\0"), Raw(b"\xc1"), Raw(b""), Raw(b"\xa1\xff"), Raw(b"\xa3\xed\xa0\x80"),
    ))  # fmt: skip


def in_messagepack(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """The value behind the first bytes, changed in one place, also inside of bytes that hold another."""
    found = unpacked(data)
    if found is None:
        return in_bytes(rng, data, others)
    prefix, value = found
    holder = [value]
    _change(rng, holder, others)
    if rng.random() < 0.1:
        _spell_otherwise(rng, holder)
    return prefix + write(holder[0])


def in_json(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A JSON text with another value in one place, or another spelling of it."""
    try:
        holder = [json.loads(data)]
    except (ValueError, RecursionError):
        return in_words(rng, data, others)
    _change_json(rng, holder, others)
    text = json.dumps(holder[0], ensure_ascii=rng.random() < 0.5)
    for old, new in rng.sample(_SPELLINGS, 2):
        if rng.random() < 0.2:
            text = text.replace(old, new, 1)
    return text.encode("utf-8", "surrogatepass")


def in_named_json(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """JSON behind a line that says what it is to be read as; now and then as what another one is."""
    name, _, text = data.partition(b"\n")
    if others and rng.random() < 0.15:
        name = rng.choice(others).partition(b"\n")[0]
    rest = [other.partition(b"\n")[2] for other in rng.sample(others, min(3, len(others)))]
    return name + b"\n" + in_json(rng, text, rest)


def in_words(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A text with characters and words put in, taken out or doubled."""
    text = data.decode("utf-8", "replace")
    at = rng.randint(0, len(text))
    size = rng.choice((1, 1, 2, 5, 20))
    word = rng.choice((*TEXTS, *_WORDS, chr(rng.randrange(0x300)), chr(rng.randrange(0xD7FF))))
    match rng.randrange(5):
        case 0:
            text = text[:at] + word + text[at:]
        case 1:
            text = text[:at] + word + text[at + size :]
        case 2:
            text = text[:at] + text[at + size :]
        case 3:
            text = text[: at + size] + text[at:]
        case _:
            text = text[:at].swapcase() + text[at:]
    del others
    return text.encode("utf-8", "surrogatepass")


_SPELLINGS: Final = (
    (":", " : "), ("{", '{"a":1,'), ("}", ',"name":"x","name":"y"}'), ("1", "1.0"), ("1", "1e0"),
    ("1", "0.1e1"), ("1", "01"), ("1", "-1"), ("0", "1e999999999"), ("0", "1" * 400),
    ('"', '"\\ud800'), ('"', '"\\u0000'),
    ("[", "[[[["), ("null", "NaN"), ("true", "Infinity"), (",", ",,"), ("{", "\ufeff{"), ("}", "}x"),
    ('"', '"\\x'),
)  # fmt: skip
_WORDS: Final = (
    "https://", "http://", "localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "xn--", ".", ":", "@",
    "/", "?", "#", "\\", "443", "65536", "0x7f", "%", "&", "=", "+", ";", "since=1", "from=1", "limit=1000",
    "a" * 64, "\u3002", "\u00ad", "\u200d", "\u0130", "\u1e9e", "\t", "\u2028", "-", "{", "}", "[", "]",
    '"', "0" * 20,
)  # fmt: skip


def unpacked(data: bytes) -> tuple[bytes, Any] | None:
    """What stands before a value (nothing, a version byte, a line, a KeyFile's magic), and the value."""
    line = data.find(b"\n", 0, 60) + 1
    for start in sorted({0, 1, 17, line}):
        try:
            value = read(data[start:])
        except NotCanonicalError:
            continue
        if isinstance(value, (list, Pairs)):
            return data[:start], value
    return None


def places_in(holder: list[Any] | Pairs) -> Iterator[tuple[Any, Any]]:
    """Every place in a value as (list, position) or (Pairs, position)."""
    items = holder if isinstance(holder, list) else [item for _, item in holder.items]
    for position, item in enumerate(items):
        yield holder, position
        if isinstance(item, (list, Pairs)):
            yield from places_in(item)


def value_at(place: tuple[Any, int]) -> Any:
    holder, position = place
    return holder[position] if isinstance(holder, list) else holder.items[position][1]


def put(place: tuple[Any, int], value: Any) -> None:
    holder, position = place
    if isinstance(holder, list):
        holder[position] = value
    else:
        holder.items[position] = (holder.items[position][0], value)


def _change(rng: random.Random, holder: list[Any], others: Sequence[bytes]) -> None:
    places = list(places_in(holder))
    place = rng.choice(places)
    value, (container, position) = value_at(place), place
    items = container if isinstance(container, list) else container.items
    match rng.randrange(9):
        case 0 | 1:
            put(place, changed(rng, value, others))
        case 2:
            put(place, strange(rng))
        case 3 if container is not holder:
            del items[position]
        case 4 if container is not holder:
            items.insert(rng.randint(0, len(items)), copy.deepcopy(items[position]))
        case 5 if container is not holder:
            other = rng.randrange(len(items))
            items[position], items[other] = items[other], items[position]
        case 6:
            put(place, copy.deepcopy(value_at(rng.choice(places))))
        case 7 if isinstance(container, Pairs):
            key, item = container.items[position]
            container.items[position] = (changed(rng, key, others), item)
        case _:
            found = unpacked(rng.choice(others)) if others else None
            if found is not None:
                put(place, value_at(rng.choice(list(places_in([found[1]])))))


def changed(rng: random.Random, value: Any, others: Sequence[bytes]) -> Any:
    """A value of the same kind, near to it."""
    if isinstance(value, bool) or value is None:
        return rng.choice((None, True, False, 0))
    if isinstance(value, int):
        return rng.choice((value + 1, value - 1, value * 2, -value, rng.choice(INTEGERS)))
    if isinstance(value, bytes):
        if unpacked(value) is not None and rng.random() < 0.7:
            return in_messagepack(rng, value, others)
        nearly = in_bytes(rng, value, others)
        same = (nearly + value[len(nearly) :])[: len(value)]
        return rng.choice(
            (nearly, same, same, rng.randbytes(len(value)), value[:-1], value + b"\0")
        )
    if isinstance(value, str):
        return in_words(rng, value.encode("utf-8", "surrogatepass"), others).decode(
            "utf-8", "replace"
        )
    if isinstance(value, list):
        return rng.choice((value[:-1], value * 2, value[::-1], [value], []))
    return rng.choice((Pairs(value.items[::-1]), Pairs(value.items * 2), Pairs([]))) if isinstance(
        value, Pairs
    ) else strange(rng)  # fmt: skip


def _spell_otherwise(rng: random.Random, holder: list[Any]) -> None:
    """One value in a form that is not its shortest, or with another count than it has."""
    place = rng.choice(list(places_in(holder)))
    value = value_at(place)
    body = write(value)
    if isinstance(value, int) and not isinstance(value, bool):
        body = rng.choice(integer_forms(value) or [body])
    elif isinstance(value, (str, bytes, list, Pairs)):
        kind = {str: "str", bytes: "bin", list: "array", Pairs: "map"}[type(value)]
        count = len(value.items) if isinstance(value, Pairs) else len(value)
        if isinstance(value, str):
            count = len(value.encode("utf-8", "surrogatepass"))
        said = rng.choice((count, count, count + 1, 2**32 - 1, 0))
        body = head(kind, said, rng.randrange(3)) + body[len(head(kind, count)) :]
    put(place, Raw(body))


def _change_json(rng: random.Random, holder: list[Any], others: Sequence[bytes]) -> None:
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        keys = range(len(value)) if isinstance(value, list) else list(value)
        for key in keys:
            places.append((value, key))
            if isinstance(value[key], (list, dict)):
                walk(value[key])

    walk(holder)
    container, key = rng.choice(places)
    value = container[key]
    match rng.randrange(6):
        case 0:
            container[key] = rng.choice((*TEXTS, *INTEGERS, None, True, 0.5, 1e300, [], {}, [[]]))
        case 1 if isinstance(value, str):
            container[key] = in_words(rng, value.encode("utf-8", "surrogatepass"), others).decode(
                "utf-8", "replace"
            )
        case 1 if isinstance(value, (int, float)):
            container[key] = rng.choice((value + 1, -value, str(value), 0.5, 10**40))
        case 2 if isinstance(container, dict):
            del container[key]
        case 3 if isinstance(container, dict):
            container[rng.choice(TEXTS)] = value
        case 4 if isinstance(container, list) and container is not holder:
            container.append(copy.deepcopy(value))
        case _:
            container[key] = (
                copy.deepcopy(rng.choice(places)[0]) if container is not holder else [value]
            )
