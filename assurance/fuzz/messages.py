"""What travels: messages, query strings, and the spellings of ids, numbers and origins."""

import importlib
import pkgutil
import re
import urllib.parse
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import msgspec

import scbroker.wire
from assurance.fuzz import variations as v
from assurance.fuzz.messagepack import canonical, write
from assurance.fuzz.target import Target, kept
from scbroker.errors import IntegrityError, InvalidArgumentError, TooLargeError
from scbroker.records.canonical import parse_fingerprint, parse_uuid, show_fingerprint
from scbroker.wire.codec import MAX_MESSAGE, Message, decode, encode, parse_number, parse_query
from scbroker.wire.containers import ListView
from scbroker.wire.users import KeyFileStoring, canonical_origin

ID: Final = "bf00888a-fba6-8c71-9cf0-0a8aa7589293"
info_of = msgspec.inspect.type_info


@cache
def messages() -> dict[str, type[Message]]:
    """Return every class of message that the wire has, by name."""
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
    """Return the least that a type takes; `full` gives optional fields a value and lists an element."""
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
            return ID
        case msgspec.inspect.StrType():
            return "A" * (info.min_length or full)
        case msgspec.inspect.BytesType():
            return bytes(info.min_length or full)
        case msgspec.inspect.ListType():
            count = max(info.min_length or 0, int(full))
            return [smallest(info.item_type, full=full) for _ in range(count)]
        case msgspec.inspect.StructType():
            return {
                field.encode_name: smallest(info_of(field.type), full=full)
                for field in msgspec.structs.fields(info.cls)
                if field.required or full
            }
    raise TypeError(info)


def named(data: bytes) -> tuple[str, bytes]:
    """Split an input into its first line, which says what the rest is to be read as, and the rest."""
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
    plain = msgspec.to_builtins(found, builtin_types=(bytes,))
    kept(_is_sent(canonical(body), plain), "another value than was sent")
    if isinstance(found, KeyFileStoring):
        kept(len(found.digest) == 32, "a KeyFileStoring that cannot be signed")
    if isinstance(found, ListView):
        kept(found.verified().entryHashes == found.entryHashes, "another list")


def _is_sent(sent: Any, value: Any) -> bool:
    """Return whether a value is the one in the bytes, types included, but for fields left out."""
    if isinstance(value, dict):
        return (
            isinstance(sent, dict)
            and sent.keys() <= value.keys()
            and all(_is_sent(sent[key], value[key]) for key in sent)
        )
    if isinstance(value, list):
        same = isinstance(sent, list) and len(sent) == len(value)
        return same and all(map(_is_sent, sent, value))
    return type(sent) is type(value) and sent == value


def _messages() -> list[bytes]:
    return [
        name.encode() + b"\n" + write(smallest(info_of(kind), full=full))
        for name, kind in messages().items()
        for full in (False, True)
    ]


def _full_messages() -> Sequence[bytes]:
    return _messages()[1::2]


def _message_bombs() -> Iterator[bytes]:
    yield b"ChallengeRequest\n" + bytes(MAX_MESSAGE + 1)
    for number, seed in enumerate(_full_messages()):
        name = seed.partition(b"\n")[0] + b"\n"
        for bomb in v.bombs_in_messagepack(seed, 3, slice(number % 6, None, 6)):
            yield bomb if bomb.startswith(name) else name + bomb


# Query strings and spellings.


def _query(data: bytes) -> None:
    name, rest = named(data)
    kind = messages().get(name)
    if kind is None or not name.endswith("Query"):
        return
    items = urllib.parse.parse_qsl(rest.decode("latin-1"), keep_blank_values=True)
    found = parse_query(kind, items)
    given: dict[str, list[str]] = {}
    for key, text in items:
        given.setdefault(key, []).append(text)
    plain = msgspec.to_builtins(found)
    kept(given.keys() <= plain.keys(), "accepted an unknown parameter")
    for key, texts in given.items():
        values = plain[key] if isinstance(plain[key], list) else [plain[key]]
        kept([str(value) for value in values] == texts, "another value than was sent")
    again = [(key, text) for key, texts in given.items() for text in texts]
    kept(parse_query(kind, again) == found, "it reads otherwise in another order")


_QUERIES: Final = (
    b"NoQuery\n", b"ViewQuery\nsince=1&header=1&content=0", b"GoverningQuery\nfrom=1&to=2",
    b"BodiesQuery\nfrom=3&count=1000", b"SegmentsQuery\nfirst=0&count=8", b"ChunksQuery\nfirst=4096",
    b"EventQuery\neventType=Added&eventType=Deleted&containerType=%C3%A4&limit=7&startId=0",
)  # fmt: skip


def _query_bombs() -> Iterator[bytes]:
    for name in messages():
        if name.endswith("Query"):
            for bomb in v.bombs_in_words():
                yield name.encode() + b"\n" + bomb


def _text_of(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _uuid(data: bytes) -> None:
    text = _text_of(data)
    found = parse_uuid(text)
    kept(str(found) == text and found.hex == text.replace("-", ""), "accepted another spelling")


def _number(data: bytes) -> None:
    text = _text_of(data)
    found = parse_number(text)
    kept(str(found) == text and 0 <= found < 10**16, "accepted another spelling")


def _fingerprint(data: bytes) -> None:
    text = _text_of(data)
    found = parse_fingerprint(text)
    digits = "".join(char for char in text if not char.isspace() and char not in ":.-")
    kept(digits.lower() == found.hex() and len(found) == 32, "other digits than were written")
    kept(parse_fingerprint(show_fingerprint(found)) == found, "its own spelling reads otherwise")


def _origin(data: bytes) -> None:
    found = canonical_origin(_text_of(data))
    kept(canonical_origin(found) == found, "a canonical spelling that is not canonical")
    scheme, _, rest = found.partition("://")
    host, _, port = rest.rpartition(":")
    local = scheme == "http" and host == "localhost"
    kept(scheme == "https" or local, "keys would travel in the clear")
    kept(re.fullmatch("0|[1-9][0-9]{0,4}", port) is not None and int(port) < 65_536, "not a port")
    kept(re.fullmatch(r"\[[0-9a-f:]+\]|[a-z0-9_.-]+", host) is not None, "not a host")
    if re.fullmatch(r"[0-9.]+", host):
        kept(re.fullmatch(r"([0-9]{1,3}\.){3}[0-9]{1,3}", host) is not None, "half an address")
        kept(not host.startswith("127."), "a loopback address beside localhost")


_ORIGINS: Final = (
    "https://a", "https://a:1/", "http://127.0.0.1:8000", "http://[::1]", "https://b\u00fc.example",
    "https://[2001:db8::1]", "https://192.0.2.1", "http://a.localhost",
)  # fmt: skip


def _spelled(name: str, run: Any, *seeds: bytes, **limits: Any) -> Target:
    """A target whose inputs are texts; the seeds are valid ones."""
    bombs = limits.pop("bombs", v.bombs_in_words)
    refusals = (InvalidArgumentError,)
    return Target(
        name, run, refusals, lambda: [*seeds, b"?\n"], lambda: v.in_words(seeds), bombs, **limits
    )


TARGETS: Final = (
    Target(
        "message", _message, (InvalidArgumentError, TooLargeError, IntegrityError),
        lambda: [*_messages(), b"ChallengeRequest\n" + bytes(MAX_MESSAGE + 1)],
        lambda: v.in_messagepack(_full_messages()), _message_bombs,
    ),
    # urllib takes the most memory for nothing but % signs.
    _spelled("query", _query, *_QUERIES, b"NoQuery\na=1", bombs=_query_bombs, memory=240),
    _spelled("uuid", _uuid, ID.encode()),
    _spelled("number", _number, b"0", b"9007199254740991"),
    _spelled("fingerprint", _fingerprint, show_fingerprint(bytes(range(32))).encode()),
    # The operator gives the origin, and Python's own IDNA is slow: shorter bombs.
    _spelled("origin", _origin, *(text.encode() for text in _ORIGINS), bombs=lambda: v.bombs_in_words(2000)),
)  # fmt: skip
