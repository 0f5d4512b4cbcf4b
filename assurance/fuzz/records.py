"""Stored objects that one function parses: records, entries, statements, orders; and access lists."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from assurance.fuzz import bombs, mutation
from assurance.fuzz.engine import Target, canonical, kept
from assurance.fuzz.messagepack import write
from assurance.fuzz.stage import stage
from scbroker.crypto.verify import labelled_hash
from scbroker.errors import (
    IntegrityError,
)
from scbroker.records.access_list import AccessList, SaltedEntry, encode_entry, parse_entry
from scbroker.records.canonical import Row, encode_object
from scbroker.records.container_record import parse_record, record_hash
from scbroker.records.judge import Known
from scbroker.records.key_record import (
    Signed,
    parse_key_record,
)
from scbroker.wire.users import parse_order, parse_statement
from tests.vectors.cast import cast
from tests.vectors.files import vectors

_IN_BYTES: Final = mutation.mixed(
    mutation.in_messagepack, mutation.in_messagepack, mutation.in_bytes
)


def _object(parse: Callable[[bytes], Row], encode: Callable[[Any], bytes], data: bytes) -> None:
    value = parse(data)
    kept(encode(value) == data, "it encodes to other bytes")
    kept(parse(data) == value, "it is another value when it is parsed again")
    canonical(data if encode is encode_entry else data[1:])


def _container_record(data: bytes) -> None:
    _object(parse_record, encode_object, data)
    known = Known.parse(data)
    kept((known.record, known.hash) == (parse_record(data), record_hash(data)), "Known is another")


def _key_record(data: bytes) -> None:
    _object(lambda body: parse_key_record(Signed(body, b"")), encode_object, data)


def _container_records() -> list[bytes]:
    return [made.signed.body for made in stage().story]


def _key_records() -> list[bytes]:
    return [signed.body for signed in cast()["erin"].records]


def _entries() -> list[bytes]:
    made = [made for made in stage().story if made.access is not None]
    return [salted.entry for made in made for salted in made.access.salted]  # type: ignore[union-attr]


def _statements() -> list[bytes]:
    return [bytes.fromhex(vectors("sessions", "valid")[0]["statement"])]


def _orders() -> list[bytes]:
    return [bytes.fromhex(item["order"]) for item in vectors("orders", "valid")[:3]]


def _parsed(name: str, run: Callable[[bytes], object], seeds: Callable[[], list[bytes]]) -> Target:
    return Target(
        name, run, (IntegrityError,), seeds, _IN_BYTES, lambda: bombs.in_messagepack(seeds()[0])
    )


# Access lists.

_Item = tuple[Annotated[int, Meta(ge=0)], bytes, Annotated[bytes, Meta(max_length=128)]]
_LISTED: Final = msgspec.msgpack.Decoder(tuple[bytes | None, list[_Item]])


def _access_list(data: bytes) -> None:
    """[hashes | nil, [[position, salt, entry], ...]]: the whole list, or what is disclosed of one."""
    match _listed(data):
        case [None, list() as items]:
            shown = [SaltedEntry(salt, entry) for _, salt, entry in items]
            hashes = b"".join(item.hash for item in shown)
            access = AccessList.whole(shown)
            positions = list(range(len(shown)))
        case [bytes() as hashes, list() as items]:
            shown = [SaltedEntry(salt, entry) for _, salt, entry in items]
            positions = [position for position, _, _ in items]
            access = AccessList.disclosed(hashes, list(zip(positions, shown, strict=True)))
        case _:
            return
    kept(access.entryHashes == hashes and 32 <= len(hashes) <= 32_768, "other hashes")
    kept(
        [encode_entry(entry) for entry in access.entries.values()] == [i.entry for i in shown],
        "other entries",
    )
    kept(sorted(set(positions)) == positions, "positions out of order")
    for position, item in zip(positions, shown, strict=True):
        digest = labelled_hash("access-entry", item.salt, item.entry)
        kept(hashes[32 * position :][:32] == digest, "an entry that the hashes do not name")
        canonical(item.entry)
    names = [entry.fingerprint for entry in access.entries.values()]
    kept(sorted(set(names)) == names and list(access.entries) == names, "users out of order")
    kept(access.complete == (len(names) == len(hashes) // 32), "complete is said wrongly")


def _listed(data: bytes) -> Any:
    """An input of the right types: on the wire nothing else gets as far as this."""
    try:
        return list(_LISTED.decode(data))
    except (ValueError, RecursionError):
        return None


def _access_lists() -> list[bytes]:
    found = []
    for made in stage().story:
        if made.access is not None:
            items = [[n, *salted] for n, salted in enumerate(made.access.salted)]
            hashes = b"".join(salted.hash for salted in made.access.salted)
            found += [write([None, items]), write([hashes, items]), write([hashes, items[1:3]])]
    return found


TARGETS: Final = (
    _parsed("container-record", _container_record, _container_records),
    _parsed("key-record", _key_record, _key_records),
    _parsed("entry", partial(_object, parse_entry, encode_entry), _entries),
    _parsed("statement", partial(_object, parse_statement, encode_object), _statements),
    _parsed("order", partial(_object, parse_order, encode_object), _orders),
    _parsed("access-list", _access_list, _access_lists),
)
