"""Stored objects that one function parses: records, entries, statements, orders; and access lists.

The second implementation in `tests/independent` has to accept what scbroker accepts, as the same value.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from assurance.fuzz.messagepack import write
from assurance.fuzz.stage import independent, stage
from assurance.fuzz.target import Target, kept
from assurance.fuzz.variations import messagepack_target
from scbroker.errors import IntegrityError
from scbroker.records.batch import MAX_SIGNATURE, BatchSignature, root_of_path
from scbroker.records.canonical import decode_object, encode_object, encode_value
from scbroker.records.container_record import (
    AccessList,
    SaltedEntry,
    parse_entry,
    parse_record,
    record_hash,
)
from scbroker.records.departure import parse_departure
from scbroker.records.judge import Known
from scbroker.records.key_record import Signed, parse_key_record
from scbroker.wire.users import parse_order, parse_statement
from tests.independent import (
    access_lists,
    batches,
    container_records,
    departures,
    key_records,
    orders,
    sessions,
)
from tests.independent.encodings import RefusedError
from tests.vectors.cast import cast
from tests.vectors.files import vectors


def parsed(
    name: str,
    parse: Callable[[bytes], Any],
    encode: Callable[[Any], bytes],
    other: Callable[[bytes], Any],
    seeds: Callable[[], list[bytes]],
) -> Target:
    def run(data: bytes) -> None:
        value = parse(data)
        kept(encode(value) == data, "it encodes to other bytes")
        kept(independent(other, data).stored() == data, "the second implementation differs")

    return messagepack_target(name, run, (IntegrityError,), seeds)


def _container_record(data: bytes) -> Any:
    record, known = parse_record(data), Known.parse(data)
    kept((known.record, known.hash) == (record, record_hash(data)), "Known is another record")
    kept(known.hash == container_records.record_hash(data), "another hash")
    return record


def _entries() -> list[bytes]:
    return [salted.entry for access in stage().lists for salted in access]


_Item = tuple[int, bytes, bytes]
_LISTED: Final = msgspec.msgpack.Decoder(tuple[bytes | None, list[_Item]])


def _access_list(data: bytes) -> None:
    """[hashes | nil, [[position, salt, entry], ...]]: the whole list, or what is disclosed of one."""
    try:
        hashes, items = _LISTED.decode(data)
    except (ValueError, RecursionError):
        return  # on the wire, a value of other types gets no further than the message
    if any(position < 0 or len(salt) > 128 for position, salt, _ in items):
        return
    shown = [SaltedEntry(salt, entry) for _, salt, entry in items]
    theirs = [access_lists.Salted(*item) for item in shown]
    positions = [position for position, _, _ in items]
    if hashes is None:
        access = AccessList.whole(shown)
        other = independent(access_lists.whole, bytes(16), 1, theirs)
    else:
        seen = list(zip(positions, shown, strict=True))
        access = AccessList.disclosed(hashes, seen)
        pairs = list(zip(positions, theirs, strict=True))
        other = independent(access_lists.disclosed, bytes(16), 1, hashes, pairs)
    kept(access.entryHashes == other.entry_hashes, "other hashes")
    kept(list(access.entries) == list(other.entries), "other users")
    kept(access.complete == other.complete, "a wrong claim to be complete")
    entries = [encode_value(entry) for entry in access.entries.values()]
    kept(entries == [item.entry for item in shown], "other entries")


def _access_lists() -> list[bytes]:
    found = []
    for access in stage().lists:
        items = [[n, *salted] for n, salted in enumerate(access)]
        hashes = b"".join(salted.hash for salted in access)
        found += [write([None, items]), write([hashes, items]), write([hashes, items[1:3]])]
    return found


def _batch_signatures() -> list[bytes]:
    return [bytes.fromhex(item["batchSignature"]) for item in vectors("batches", "valid")]


def _batch_signature(data: bytes) -> None:
    """Both implementations find the same root, or both refuse the path."""
    value = decode_object(BatchSignature, data, MAX_SIGNATURE)
    kept(encode_object(value) == data, "it encodes to other bytes")
    leaf = batches.leaf(value.salt, bytes(32))
    try:
        root = root_of_path(leaf, value)
    except IntegrityError:
        kept(_other_root(leaf, data) is None, "the second implementation accepts it")
        raise
    kept(_other_root(leaf, data) == root, "the second implementation finds another root, or none")


def _other_root(leaf: bytes, data: bytes) -> bytes | None:
    try:
        other = batches.parse(data)
        batches.check_form(other)
    except RefusedError:
        return None
    kept(other.stored() == data, "the second implementation reads another value")
    return batches.root_from(leaf, other.index, other.size, other.hashes)


TARGETS: Final = (
    parsed("container-record", _container_record, encode_object, container_records.parse,
            lambda: [made.signed.body for made in stage().story]),
    parsed("key-record", lambda body: parse_key_record(Signed(body, b"")), encode_object,
            key_records.parse, lambda: [signed.body for signed in cast()["erin"].records]),
    parsed("entry", parse_entry, encode_value, access_lists.parse_entry, _entries),
    messagepack_target("batch-signature", _batch_signature, (IntegrityError,), _batch_signatures),
    parsed("departure", parse_departure, encode_object, departures.parse,
            lambda: [bytes.fromhex(item["body"]) for item in vectors("departures", "valid")[:6]]),
    parsed("statement", parse_statement, encode_object, sessions.parse,
            lambda: [bytes.fromhex(vectors("sessions", "valid")[0]["statement"])]),
    parsed("order", parse_order, encode_object, orders.parse,
            lambda: [bytes.fromhex(item["order"]) for item in vectors("orders", "valid")[:3]]),
    messagepack_target("access-list", _access_list, (IntegrityError,), _access_lists),
)  # fmt: skip
