"""Messages of the protocol as bytes: docs/spec/protocol.md, 1 and 5."""

from typing import Any

import msgspec

from tests.vectors.cast import chosen
from tests.vectors.files import invalid, store, valid

USER = "bf00888a-fba6-8c71-9cf0-0a8aa7589293"
encode = msgspec.msgpack.encode


def users(*items: Any) -> bytes:
    return encode({"users": list(items)})


def make() -> None:
    one = {"users": [{"userId": USER, "from": 3}]}
    good = encode(one)
    plain = {"generation": 1, "hash": bytes(32)}
    state = encode(plain)
    user = {"userId": USER}
    inner = encode(user)
    leaving = {
        "departure": {"body": chosen("body", size=108), "signature": chosen("signature", size=3373)}
    }
    leave = {**leaving, "departures": 2}
    valids = {
        "two fields": ("key records", "A user and a sequence.", good),
        "field left out": ("key records", "from = 0.", users(user)),
        "default written out": ("key records", "from: 0.", users({**user, "from": 0})),
        "fields in another order": ("key records", "from first.", users({"from": 3, "userId": USER})),
        "64 users": ("key records", "The most.", encode({"users": [user] * 64})),
        "no fields": ("challenge", "An empty map.", encode({})),
        "largest integer": ("key file state", "2^53 - 1.", encode({**plain, "generation": 2**53 - 1})),
        "state": ("key file state", "A hash and a generation.", state),
        "departure": ("departure", "The leaver has seen two others.", encode(leave)),
        "departure, number left out": ("departure", "departures = 0.", encode(leaving)),
        "most departures": ("departure", "1,024.", encode({**leave, "departures": 1024})),
        "nil": ("key file state", "hash may be nil.", encode({**plain, "hash": None})),
    }  # fmt: skip
    faults = {
        "unknown field": ("key records", "to.", users({**user, "to": 3})),
        "unknown field at the top": ("key records", "more.", encode({**one, "more": None})),
        "unknown field in an empty message": ("challenge", "a.", encode({"a": 1})),
        "doubled field": ("key records", "userId twice, with one value.",
                          b"\x81" + encode("users") + b"\x91\x82" + 2 * inner[1:]),
        "doubled field at the top": ("key records", "users twice, with one value.",
                                     b"\x82" + 2 * good[1:]),
        "missing field": ("key records", "No userId.", users({"from": 3})),
        "missing field without a default": ("key file state", "hash may be nil, not left out.",
                                            encode({"generation": 1})),
        "nil for a field": ("key records", "userId nil.", users({"userId": None})),
        "array for a map": ("key records", "[userId].", encode({"users": [[USER]]})),
        "map for an array": ("key records", "One user.", encode({"users": user})),
        "array as message": ("challenge", "[].", encode([])),
        "nil as message": ("challenge", "nil.", encode(None)),
        "text as bin": ("key records", "userId.", users({"userId": USER.encode()})),
        "bin as text": ("key file state", "hash.", encode({**plain, "hash": "a" * 32})),
        "integer as float": ("key records", "3.0.", users({**user, "from": 3.0})),
        "integer as text": ("key records", '"3".', users({**user, "from": "3"})),
        "integer as bool": ("key records", "true.", users({**user, "from": True})),
        "negative integer": ("key records", "-1.", users({**user, "from": -1})),
        "integer too large": ("key file state", "2^53.", encode({**plain, "generation": 2**53})),
        "short bin": ("key file state", "31 bytes.", encode({**plain, "hash": bytes(31)})),
        "short signature": ("departure", "3,372 bytes.", encode({**leave, "departure": {
            **leaving["departure"], "signature": leaving["departure"]["signature"][:-1]}})),
        "more departures than entries": ("departure", "1,025.", encode({**leave, "departures": 1025})),
        "departure left out": ("departure", "Only the number.", encode({"departures": 2})),
        "departure without its signature": ("departure", "No signature.", encode({**leave, "departure": {
            "body": leaving["departure"]["body"]}})),
        "UUID in upper case": ("key records", "userId.", users({"userId": USER.upper()})),
        "no users": ("key records", "At least one.", encode({"users": []})),
        "65 users": ("key records", "One more than the most.", encode({"users": [user] * 65})),
        "empty": ("challenge", "No bytes.", b""),
        "truncated": ("key records", "A byte is missing.", good[:-1]),
        "trailing byte": ("challenge", "00.", b"\x80\0"),
        "two messages": ("challenge", "{} twice.", b"\x80\x80"),
        "map not shortest": ("challenge", "de 0000.", b"\xde\0\0"),
        "array not shortest": ("key records", "dc 0001.", good.replace(b"\x91", b"\xdc\0\x01", 1)),
        "text not shortest": ("key records", "da 0024.", good.replace(b"\xd9\x24", b"\xda\0\x24")),
        "name not shortest": ("key file state", "generation with d9 0a.",
                              state.replace(b"\xaagen", b"\xd9\x0agen")),
        "bin not shortest": ("key file state", "hash with c5 0020.",
                             state.replace(b"\xc4\x20", b"\xc5\0\x20")),
        "integer not shortest": ("key records", "3 as cc 03.", good.replace(b"from\x03", b"from\xcc\x03")),
        "name as bin": ("key file state", "generation.", state.replace(b"\xaagen", b"\xc4\x0agen")),
        "text not UTF-8": ("key records", "A byte of userId is ff.", good.replace(b"bf00", b"\xfff00")),
        "extension": ("key file state", "generation as ext 1.",
                      state.replace(b"ion\x01", b"ion\xd4\x01\x01")),
    }  # fmt: skip
    store(
        "messages",
        "docs/spec/protocol.md, 1. `message` is read as: `key records`, the request of POST /v1/key-records; "
        "`departure`, that of POST /v1/containers/{containerId}/departure; `challenge`, that of POST "
        "/v1/session-challenges; `key file state`, the answer of GET /v1/key-file.",
        [
            *(valid(name, comment, kind=kind, message=data)
              for name, (kind, comment, data) in valids.items()),
            *(invalid(name, comment, "invalid", kind=kind, message=data)
              for name, (kind, comment, data) in _checked(faults, {good, state}).items()),
        ],
    )  # fmt: skip


def _checked(
    faults: dict[str, tuple[str, str, bytes]], good: set[bytes]
) -> dict[str, tuple[str, str, Any]]:
    for name, (_, _, data) in faults.items():
        if data in good:
            raise ValueError(f"{name} changes nothing.")
    return faults
