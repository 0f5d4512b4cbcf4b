"""Messages of the protocol as bytes: docs/spec/protocol.md, 1 and 5."""

from typing import Any

import msgspec

from tests.vectors.cast import chosen
from tests.vectors.files import Vector, invalid, store, valid

USER = "bf00888a-fba6-8c71-9cf0-0a8aa7589293"
encode = msgspec.msgpack.encode


def users(*items: Any) -> bytes:
    return encode({"users": list(items)})


def _rosters() -> list[Vector]:
    """A RosterRequest, and each of its fields missing, doubled, of another type, or above its limit."""
    leaf = {"salt": chosen("salt"), "member": chosen("member", size=39)}
    wrap = {"fingerprint": chosen("fingerprint"), "wrap": chosen("wrap", size=1168)}
    plain: dict[str, Any] = {
        "roster": chosen("roster", size=1360), "removed": [chosen("removed")], "leaves": [leaf],
        "wraps": [wrap], "info": chosen("info", size=200),
    }  # fmt: skip
    found = list[Vector]()

    def good(name: str, comment: str, message: bytes, **more: Any) -> None:
        found.append(valid(name, comment, kind="roster", message=message, **more))

    def refused(name: str, comment: str, message: bytes, **more: Any) -> None:
        found.append(invalid(name, comment, "invalid", kind="roster", message=message, **more))

    def other(name: str, comment: str, **changes: Any) -> None:
        refused(name, comment, encode({**plain, **changes}))

    good("roster", "All fields.", encode(plain))
    good("roster alone", "removed, leaves and wraps are empty, and info is nil.",
         encode({"roster": plain["roster"]}))  # fmt: skip
    good("roster with nothing", "The defaults, written out.", encode(
        {"roster": plain["roster"], "removed": [], "leaves": [], "wraps": [], "info": None}))  # fmt: skip
    good(
        "empty roster",
        "The format of the bytes is not the message's.",
        encode({**plain, "roster": b""}),
    )
    refused("roster left out", "It has no default.", encode({
        name: value for name, value in plain.items() if name != "roster"}))  # fmt: skip
    for name, value in plain.items():
        row = encode({name: value})[1:]
        refused(f"{name} doubled", "With one value.", b"\x86" + encode(plain)[1:] + row)
    other("roster as nil", "It has no default.", roster=None)
    other("roster as text", "One character.", roster="a")
    other("removed as nil", "It may be empty.", removed=None)
    other("short fingerprint removed", "31 bytes.", removed=[bytes(31)])
    other("leaf without a salt", "The member alone.", leaves=[{"member": leaf["member"]}])
    other("leaf without a member", "The salt alone.", leaves=[{"salt": leaf["salt"]}])
    other("leaf with a short salt", "31 bytes.", leaves=[{**leaf, "salt": bytes(31)}])
    other("leaf of 65 bytes", "One more than the most.", leaves=[{**leaf, "member": bytes(65)}])
    other("leaf as array", "[salt, member].", leaves=[list(leaf.values())])
    other("wrap without a fingerprint", "The wrap alone.", wraps=[{"wrap": wrap["wrap"]}])
    other("wrap of a short fingerprint", "31 bytes.", wraps=[{**wrap, "fingerprint": bytes(31)}])
    other("short wrap in a roster", "1,167 bytes.", wraps=[{**wrap, "wrap": bytes(1167)}])
    other("unknown field of a leaf", "index.", leaves=[{**leaf, "index": 0}])
    other("unknown field of a roster", "count.", count=1)
    other("info as array", "[].", info=[])
    other("roster of 1,537 bytes", "One more than the most.", roster=bytes(1537))
    good("roster of 1,536 bytes", "The most.", encode({**plain, "roster": bytes(1536)}))
    for name, one in (("removed", bytes(32)), ("leaves", leaf), ("wraps", wrap)):
        item, head = encode(one), encode({"roster": b""})[1:] + encode(name)
        for count, add in ((1024, good), (1025, refused)):
            add(f"{count:,} {name}", "The most." if count == 1024 else "One more than the most.",
                b"\x82" + head + b"\xdc" + count.to_bytes(2, "big"), repeated=item, count=count)  # fmt: skip
    head = b"\x82" + encode({"roster": b""})[1:] + encode("info") + b"\xc6"
    good("info of 563,000 bytes", "The most.", head + (563_000).to_bytes(4, "big"), repeated=b"\0",
         count=563_000)  # fmt: skip
    refused("info of 563,001 bytes", "One more than the most.", head + (563_001).to_bytes(4, "big"),
            repeated=b"\0", count=563_001)  # fmt: skip
    return found


def _group_views() -> list[Vector]:
    one = {"groupId": USER}
    valids = {
        "group": ("For an outsider without a mark.", {"groups": [one]}),
        "group of a member": (
            "With a mark.",
            {"groups": [{**one, "since": 7, "membership": True}]},
        ),
        "16 groups": ("The most.", {"groups": [one] * 16}),
    }
    faults = {
        "no group": ("At least one.", {"groups": []}),
        "group in place of groups": ("A map.", {"groups": one}),
        "17 groups": ("One more than the most.", {"groups": [one] * 17}),
        "group without an id": ("since alone.", {"groups": [{"since": 7}]}),
        "since 0": ("Versions count from 1.", {"groups": [{**one, "since": 0}]}),
        "membership as integer": ("1 in place of true.", {"groups": [{**one, "membership": 1}]}),
        "membership as nil": (
            "It may be left out.",
            {"groups": [{**one, "since": 7, "membership": None}]},
        ),
        "unknown field of a group": ("via.", {"groups": [{**one, "via": None}]}),
    }
    return [
        *(valid(name, comment, kind="group views", message=encode(message))
          for name, (comment, message) in valids.items()),
        *(invalid(name, comment, "invalid", kind="group views", message=encode(message))
          for name, (comment, message) in faults.items()),
    ]  # fmt: skip


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
        "/v1/session-challenges; `key file state`, the answer of GET /v1/key-file; `roster`, a RosterRequest "
        "(docs/spec/groups.md, 12); `group views`, the request of POST /v1/groups/views. After `message` "
        "come the bytes `repeated`, `count` times.",
        [
            *(valid(name, comment, kind=kind, message=data)
              for name, (kind, comment, data) in valids.items()),
            *(invalid(name, comment, "invalid", kind=kind, message=data)
              for name, (kind, comment, data) in _checked(faults, {good, state}).items()),
            *_rosters(),
            *_group_views(),
        ],
    )  # fmt: skip


def _checked(
    faults: dict[str, tuple[str, str, bytes]], good: set[bytes]
) -> dict[str, tuple[str, str, Any]]:
    for name, (_, _, data) in faults.items():
        if data in good:
            raise ValueError(f"{name} changes nothing.")
    return faults
