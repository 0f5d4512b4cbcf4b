"""What travels: messages, query strings, and the spellings of names and numbers."""

from __future__ import annotations

import importlib
import pkgutil
import re
import urllib.parse
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec

import scbroker.wire
from assurance.fuzz import bombs, mutation
from assurance.fuzz.engine import Target, canonical, kept
from assurance.fuzz.messagepack import Pairs, write
from scbroker.errors import (
    IntegrityError,
    InvalidArgumentError,
    TooLargeError,
)
from scbroker.records.ids import parse_fingerprint, parse_uuid, show_fingerprint
from scbroker.wire.codec import MAX_MESSAGE, Message, decode, encode
from scbroker.wire.containers import ListView
from scbroker.wire.origin import canonical_origin
from scbroker.wire.query import parse_number, parse_query
from scbroker.wire.users import KeyFileStoring

_ID: Final = "bf00888a-fba6-8c71-9cf0-0a8aa7589293"


@cache
def messages() -> dict[str, type[Message]]:
    """Every class of message that the wire has, by name."""
    for module in pkgutil.iter_modules(scbroker.wire.__path__):
        importlib.import_module(f"scbroker.wire.{module.name}")
    found, left = {}, [Message]
    while left:
        for kind in left.pop().__subclasses__():
            left.append(kind)
            if kind.__module__.startswith("scbroker.wire."):
                found[kind.__name__] = kind
    return found


def smallest(info: Any, *, full: bool = False) -> Any:
    """The least that a type takes; `full` fills in what may be left out, and gives lists an element."""
    match info:
        case msgspec.inspect.Metadata():
            return smallest(info.type, full=full)
        case msgspec.inspect.UnionType():
            kinds = [kind for kind in info.types if not isinstance(kind, msgspec.inspect.NoneType)]
            return smallest(kinds[0], full=full) if full else None
        case msgspec.inspect.BoolType():
            return full
        case msgspec.inspect.IntType():
            return info.ge or 0
        case msgspec.inspect.LiteralType():
            return info.values[0]
        case msgspec.inspect.StrType() if info.pattern and "0-9a-f" in info.pattern:
            return _ID
        case msgspec.inspect.StrType():
            return "A" * (info.min_length or full)
        case msgspec.inspect.BytesType():
            return bytes(info.min_length or full)
        case msgspec.inspect.ListType():
            count = max(info.min_length or 0, int(full))
            return [smallest(info.item_type, full=full) for _ in range(count)]
        case msgspec.inspect.StructType():
            fields = msgspec.structs.fields(info.cls)
            return {
                field.encode_name: smallest(msgspec.inspect.type_info(field.type), full=full)
                for field in fields
                if field.required or full
            }
    raise TypeError(info)


def named(data: bytes) -> tuple[str, bytes]:
    """The first line of an input says what the rest is to be read as."""
    name, _, rest = data.partition(b"\n")
    return name.decode("ascii", "replace"), rest


def _message(data: bytes) -> None:
    name, body = named(data)
    kind = messages().get(name)
    if kind is None:
        return
    found = decode(kind, body, MAX_MESSAGE)
    kept(len(body) <= MAX_MESSAGE, "a message beyond its limit")
    kept(decode(kind, encode(found)) == found, "it does not come back as it was")
    kept(
        _is_said(canonical(body), msgspec.to_builtins(found, builtin_types=(bytes,))),
        "another value than was sent",
    )
    if isinstance(found, KeyFileStoring):
        kept(len(found.digest) == 32, "a storing that cannot be signed for")
    if isinstance(found, ListView):
        kept(found.verified().entryHashes == found.entryHashes, "another list")


def _is_said(said: Any, value: Any) -> bool:
    """Whether a value is what stands in the bytes: types too, and nothing beside what may be left out."""
    if isinstance(value, dict):
        given = dict(said.items) if isinstance(said, Pairs) else {None: None}
        return given.keys() <= value.keys() and all(
            _is_said(given[key], value[key]) for key in given
        )
    if isinstance(value, list):
        return (
            isinstance(said, list) and len(said) == len(value) and all(map(_is_said, said, value))
        )
    return type(said) is type(value) and said == value


def _messages() -> list[bytes]:
    return [
        name.encode() + b"\n" + write(smallest(msgspec.inspect.type_info(kind), full=full))
        for name, kind in messages().items()
        for full in (False, True)
    ]


def _message_bombs() -> Iterator[bytes]:
    yield b"ChallengeRequest\n" + bytes(MAX_MESSAGE + 1)
    for number, seed in enumerate(_messages()[1::2]):
        name = seed.partition(b"\n")[0] + b"\n"
        for bomb in bombs.in_messagepack(seed, 3, slice(number % 6, None, 6)):
            yield bomb if bomb.startswith(name) else name + bomb


# Query strings and the spellings of names.


def _query(data: bytes) -> None:
    name, rest = named(data)
    kind = messages().get(name)
    if kind is None or not name.endswith("Query"):
        return
    items = urllib.parse.parse_qsl(rest.decode("latin-1"), keep_blank_values=True)
    found = parse_query(kind, items)
    given: dict[str, Any] = {}
    for key, text in items:
        given.setdefault(key, []).append(text)
    plain = msgspec.to_builtins(found)
    kept(given.keys() <= plain.keys(), "an unknown parameter was taken")
    for key, texts in given.items():
        values = plain[key] if isinstance(plain[key], list) else [plain[key]]
        kept([str(value) for value in values] == texts, "another value than was sent")
    again = [(key, text) for key, texts in given.items() for text in texts]
    kept(parse_query(kind, again) == found, "it reads otherwise in another order")


def _queries() -> list[bytes]:
    queries = {
        "NoQuery": b"", "ViewQuery": b"since=1&header=1&content=0", "GoverningQuery": b"from=1&to=2",
        "BodiesQuery": b"from=3&count=1000", "SegmentsQuery": b"first=0&count=8",
        "ChunksQuery": b"first=4096",
        "EventQuery": b"eventType=Added&eventType=Deleted&containerType=%C3%A4&limit=7&startId=0",
    }  # fmt: skip
    return [name.encode() + b"\n" + query for name, query in queries.items()]


def _text_of(data: bytes) -> str:
    """Any bytes as text, halves of surrogate pairs too."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _uuid(data: bytes) -> None:
    text = _text_of(data)
    found = parse_uuid(text)
    kept(str(found) == text and found.hex == text.replace("-", ""), "another spelling was taken")


def _number(data: bytes) -> None:
    text = _text_of(data)
    found = parse_number(text)
    kept(str(found) == text and 0 <= found < 10**16, "another spelling was taken")


def _fingerprint(data: bytes) -> None:
    text = _text_of(data)
    found = parse_fingerprint(text)
    digits = "".join(char for char in text if not char.isspace() and char not in ":.-")
    kept(digits.lower() == found.hex() and len(found) == 32, "other digits than were written")
    kept(parse_fingerprint(show_fingerprint(found)) == found, "what is shown reads otherwise")


def _origin(data: bytes) -> None:
    text = _text_of(data)
    found = canonical_origin(text)
    kept(canonical_origin(found) == found, "a spelling that has another")
    kept(found.isascii() and found == found.lower(), "a spelling with other letters")
    scheme, _, rest = found.partition("://")
    host, _, port = rest.rpartition(":")
    kept(
        scheme == "https" or (scheme == "http" and host == "localhost"),
        "keys would travel in the clear",
    )
    kept(re.fullmatch("0|[1-9][0-9]{0,4}", port) is not None and int(port) < 65_536, "no port")
    kept(re.fullmatch(r"\[[0-9a-f:]+\]|[a-z0-9_.-]+", host) is not None, "no host")
    numbers = re.fullmatch(r"[0-9.]+", host)
    kept(
        numbers is None or re.fullmatch(r"([0-9]{1,3}\.){3}[0-9]{1,3}", host) is not None,
        "half an address",
    )
    kept(re.fullmatch(r"127[.][0-9.]+", host) is None, "a loopback under another name")


def _origins() -> list[bytes]:
    return [
        text.encode()
        for text in (
            "https://a", "https://a:1/", "http://127.0.0.1:8000", "http://[::1]", "https://b\u00fc.example",
            "https://[2001:db8::1]", "https://192.0.2.1", "http://a.localhost",
        )
    ]  # fmt: skip


def _word_bombs() -> Iterator[bytes]:
    yield from bombs.in_words()
    for name in messages():
        if name.endswith("Query"):
            for bomb in bombs.in_words():
                yield name.encode() + b"\n" + bomb


_IN_WORDS: Final = mutation.mixed(mutation.in_words, mutation.in_bytes)
_ARGUMENT: Final = (InvalidArgumentError,)

TARGETS: Final = (
    Target(
        "message",
        _message,
        (InvalidArgumentError, TooLargeError, IntegrityError),
        _messages,
        mutation.mixed(mutation.in_messagepack, mutation.in_messagepack, mutation.in_bytes),
        _message_bombs,
    ),
    # Nothing but % signs is what urllib takes the most memory for.
    Target("query", _query, _ARGUMENT, _queries, _IN_WORDS, _word_bombs, memory=240),
    Target("uuid", _uuid, _ARGUMENT, lambda: [_ID.encode()], _IN_WORDS, bombs.in_words),
    Target(
        "number", _number, _ARGUMENT, lambda: [b"0", b"9007199254740991"], _IN_WORDS, bombs.in_words
    ),
    Target(
        "fingerprint",
        _fingerprint,
        _ARGUMENT,
        lambda: [show_fingerprint(bytes(range(32))).encode()],
        _IN_WORDS,
        bombs.in_words,
    ),
    # It is given by whoever runs the program, and Python's own IDNA takes its time.
    Target("origin", _origin, _ARGUMENT, _origins, _IN_WORDS, lambda: bombs.in_words(2000)),
)
