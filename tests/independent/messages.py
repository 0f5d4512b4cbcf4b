"""Messages: docs/spec/protocol.md, 1. Only those of messages.json and the views of containers and groups."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.independent import encodings as e
from tests.independent.encodings import RefusedError, UndecodableError, decodes, need

Check = Callable[[Any], object]


def decode(data: bytes) -> Any:
    """The one value that the bytes are, maps as dicts, in the only encoding that it has."""
    value, _ = _decode(data, 0, 12)
    need(encode(value) == data, "a message in its one encoding", "invalid")
    return value


def encode(value: Any) -> bytes:
    if isinstance(value, dict):
        pairs = b"".join(e.encode(name) + encode(item) for name, item in value.items())
        size = len(value)
        head = bytes([0x80 | size]) if size < 16 else b"\xde" + size.to_bytes(2, "big")
        return head + pairs
    if isinstance(value, list):
        size = len(value)
        head = bytes([0x90 | size]) if size < 16 else b"\xdc" + size.to_bytes(2, "big")
        return head + b"".join(map(encode, value))
    return e.encode(value)


def _decode(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    decodes(depth > 0 and at < len(data), "a message of MessagePack", "invalid")
    head, sizes = data[at], {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
    if 0x80 <= head < 0xA0:
        count, at = head & 0x0F, at + 1
    elif head in sizes:
        end = at + 1 + sizes[head]
        count, at = int.from_bytes(data[at + 1 : end], "big"), end
    else:
        try:
            return e._decode(data, at, 0)
        except RefusedError:
            raise UndecodableError("invalid", "a message of MessagePack") from None
    if 0x90 <= head < 0xA0 or head in (0xDC, 0xDD):
        items = []
        for _ in range(count):
            item, at = _decode(data, at, depth - 1)
            items.append(item)
        return items, at
    found: dict[Any, Any] = {}
    for _ in range(count):
        name, at = _decode(data, at, depth - 1)
        decodes(isinstance(name, str), "field names are text", "invalid")
        found[name], at = _decode(data, at, depth - 1)
    return found, at


class Field:
    """A field of a message: its check, and whether it may be left out."""

    def __init__(self, check: Check, *, optional: bool = False) -> None:
        self.check, self.optional = check, optional


def message(value: Any, fields: Mapping[str, Field]) -> None:
    decodes(isinstance(value, dict), "a message is a map", "invalid")
    need(value.keys() <= fields.keys(), "no unknown field", "invalid")
    missing = [name for name, field in fields.items() if not field.optional and name not in value]
    need(not missing, "no missing field", "invalid")
    for name, item in value.items():
        if name in fields:
            typed(fields[name].check, item)


def typed(check: Check, item: Any) -> None:
    try:
        check(item)
    except RefusedError as error:
        raise error.of_kind("invalid") from None


def _users(value: Any) -> None:
    decodes(isinstance(value, list), "users is an array", "invalid")
    need(1 <= len(value) <= 64, "1 to 64 users", "invalid")
    for item in value:
        message(item, {"userId": Field(_id), "from": Field(e.uint, optional=True)})


def _id(value: Any) -> None:
    decodes(isinstance(value, str), "an id is text", "invalid")
    e.uuid_of_text(value)


def _signed(value: Any) -> None:
    body, signature = (
        Field(lambda one: e.octets_to(one, 4096)),
        Field(lambda one: e.octets(one, 3373)),
    )
    message(value, {"body": body, "signature": signature})


def _number_of_departures(value: Any) -> None:
    need(e.uint(value) <= 1024, "at most as many departures as entries", "invalid")


def _most(check: Check, count: int) -> Check:
    """An array of at most so many items."""

    def items(value: Any) -> None:
        decodes(isinstance(value, list), "an array", "invalid")
        need(len(value) <= count, "no more items than the most", "invalid")
        for item in value:
            typed(check, item)

    return items


def _octets_to(longest: int) -> Check:
    def octets(value: Any) -> None:
        decodes(isinstance(value, bytes), "a bin", "invalid")
        need(len(value) <= longest, "no more bytes than the most", "invalid")

    return octets


def _leaf(value: Any) -> None:
    salt = Field(lambda one: e.octets(one, 32))
    message(value, {"salt": salt, "member": Field(_octets_to(64))})


def _member_wrap(value: Any) -> None:
    fingerprint = Field(lambda one: e.octets(one, 32))
    message(value, {"fingerprint": fingerprint, "wrap": Field(lambda one: e.octets(one, 1168))})


def _info(value: Any) -> None:
    if value is not None:
        _octets_to(563_000)(value)


def _groups(value: Any) -> None:
    decodes(isinstance(value, list), "groups is an array", "invalid")
    need(1 <= len(value) <= 16, "1 to 16 groups", "invalid")
    since = Field(lambda one: e.integer(one, 1, e.UINT), optional=True)
    for item in value:
        membership = Field(e.boolean, optional=True)
        message(item, {"groupId": Field(_id), "since": since, "membership": membership})


MESSAGES: dict[str, Mapping[str, Field]] = {
    "key records": {"users": Field(_users)},
    "challenge": {},
    "departure": {
        "departure": Field(_signed),
        "departures": Field(_number_of_departures, optional=True),
    },
    "key file state": {
        "hash": Field(lambda value: e.octets_or_nil(value, 32)),
        "generation": Field(e.uint),
    },
    "roster": {
        "roster": Field(_octets_to(1536)),
        "removed": Field(_most(lambda value: e.octets(value, 32), 1024), optional=True),
        "leaves": Field(_most(_leaf, 1024), optional=True),
        "wraps": Field(_most(_member_wrap, 1024), optional=True),
        "info": Field(_info, optional=True),
    },
    "group views": {"groups": Field(_groups)},
}


def read(kind: str, data: bytes) -> Any:
    value = decode(data)
    message(value, MESSAGES[kind])
    return value
