"""Whatever bytes come in: an object that encodes to these very bytes, or `IntegrityError`."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scbroker.errors import IntegrityError
from scbroker.records import roster
from scbroker.records.canonical import Row, decode_object, decode_value, encode_object, encode_value
from scbroker.records.container_record import AccessList, SaltedEntry, parse_entry, parse_record
from scbroker.records.judge import Known, verify_author
from scbroker.records.key_record import KeyChain, KeyRecord, Signed
from scbroker.records.roster import Info
from scbroker.wire.users import parse_statement
from tests.kit.cases import in_one_case
from tests.vectors.files import load, signature_of, vectors
from tests.vectors.keys_of_people import chains

PARSERS: dict[str, Callable[[bytes], Row]] = {
    "ContainerRecord": parse_record,
    "KeyRecord": lambda data: decode_object(KeyRecord, data, 4096),
    "Entry": parse_entry,
    "Statement": parse_statement,
    "Roster": roster.parse_roster,
    "Member": roster.parse_member,
    "GroupDeparture": roster.parse_group_departure,
    "Info": lambda data: roster.parse_info(data, 1),
}
GIVEN = load("container_records")["given"]["records"]
EDIT = Signed(bytes.fromhex(GIVEN["edit"]["body"]), signature_of(GIVEN["edit"]))
GOOD = {
    "ContainerRecord": EDIT.body,
    "KeyRecord": chains()["alice"].records[1].body,
    "Entry": bytes.fromhex(GIVEN["create"]["accessList"][0]["entry"]),
    "Statement": bytes.fromhex(vectors("sessions", "valid")[0]["statement"]),
    "Roster": bytes.fromhex(vectors("rosters", "valid")[0]["roster"]),
    "Member": bytes.fromhex(vectors("rosters", "valid")[0]["leaves"][0]["member"]),
    "GroupDeparture": bytes.fromhex(
        vectors("group_departures", "valid")[1]["departures"][0]["body"]
    ),
    "Info": encode_object(Info("team", "For all.", [bytes(32)])),
}


def encoded(name: str, value: Row) -> bytes:
    return encode_value(value) if name in ("Entry", "Member") else encode_object(value)


def stays(name: str, data: bytes) -> bool:
    """Return whether the bytes are accepted; then they are what the object encodes to."""
    try:
        value = PARSERS[name](data)
    except IntegrityError:
        return False
    assert encoded(name, value) == data
    return True


def refused(act: Callable[[], object]) -> None:
    with pytest.raises(IntegrityError) as caught:
        act()
    assert caught.type is IntegrityError


def spoilt(data: bytes, masks: tuple[int, ...] = (1, 0x80, 0xFF)) -> list[bytes]:
    """Every byte changed in these ways, every truncation, and a byte more of every value."""
    changed = [
        data[:n] + bytes([byte ^ mask]) + data[n + 1 :]
        for n, byte in enumerate(data)
        for mask in masks
    ]
    cut = [data[:n] for n in range(len(data))]
    return changed + cut + [data + bytes([n]) for n in range(256)]


name_of_a_parser = pytest.mark.parametrize("name", PARSERS)


@pytest.mark.sampled
@name_of_a_parser
@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=300))
@example(data=b"")
@example(data=b"\x01" * 5000)
@example(data=b"\x01" + b"\x91" * 2000)
@example(data=b"\x01" + b"\x81" * 2000)
@example(data=b"\x01\xdd\xff\xff\xff\xff")
@example(data=b"\x01\xc6\xff\xff\xff\xff")
@example(data=b"\x01\xdb\xff\xff\xff\xff")
@example(data=b"\x01\xdf\xff\xff\xff\xff")
@example(data=b"\x01\xc7\xff\x01")
@example(data=b"\x01\xd6\xff\x00\x00\x00\x00")
@example(data=b"\x01\xc1")
def test_any_bytes_are_refused_or_canonical(name: str, data: bytes) -> None:
    stays(name, data)


@name_of_a_parser
def test_the_examples_are_accepted(name: str) -> None:
    assert stays(name, GOOD[name])


@name_of_a_parser
def test_every_truncation_and_every_appended_byte_is_refused(name: str) -> None:
    good = GOOD[name]
    for n in range(len(good)):
        assert not stays(name, good[:n])
    for n in range(256):
        assert not stays(name, good + bytes([n]))


@pytest.mark.sampled
@name_of_a_parser
def test_every_changed_byte_is_refused_or_another_canonical_object(name: str) -> None:
    for data in spoilt(GOOD[name]):
        stays(name, data)


values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=5),
        st.binary(max_size=5), st.sampled_from([bytes(16), bytes(32), bytes(112), bytes(1216)]),
        st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=8)),
        st.just(dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    ),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner,
                                                                max_size=3),
    max_leaves=8,
)  # fmt: skip


@pytest.mark.long
@name_of_a_parser
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_value_in_any_place_is_refused_or_canonical(name: str, data: st.DataObject) -> None:
    rows: list[Any] = msgspec.msgpack.decode(GOOD[name].removeprefix(b"\x01"))
    place = rows
    position = data.draw(st.integers(0, len(place) - 1))
    if isinstance(place[position], list) and data.draw(st.booleans()):
        place = place[position]
        position = data.draw(st.integers(0, len(place) - 1))
    place[position] = data.draw(values)
    body = msgspec.msgpack.encode(rows)
    stays(name, body if name == "Entry" else b"\x01" + body)


@in_one_case("long", [b"\xcc\x02", b"\xcd\0\x02", b"\xce\0\0\0\x02", b"\xcf" + bytes(7) + b"\x02",
             b"\xd0\x02", b"\xd1\0\x02", b"\xd2\0\0\0\x02", b"\xd3" + bytes(7) + b"\x02"])  # fmt: skip
def test_an_integer_in_a_longer_form_is_refused(long: bytes) -> None:
    assert EDIT.body[21:22] == b"\x02"
    assert not stays("ContainerRecord", EDIT.body[:21] + long + EDIT.body[22:])


@in_one_case("header", [b"\xdc\0\x0c", b"\xdd\0\0\0\x0c"])
def test_an_array_in_a_longer_form_is_refused(header: bytes) -> None:
    assert not stays("ContainerRecord", b"\x01" + header + EDIT.body[2:])


@in_one_case("header", [b"\xc5\0\x10", b"\xc6\0\0\0\x10", b"\xb0", b"\xd9\x10"])
def test_bytes_in_another_form_are_refused(header: bytes) -> None:
    assert not stays("ContainerRecord", EDIT.body[:2] + header + EDIT.body[4:])


def test_an_object_beyond_its_limit_is_refused_before_it_is_decoded() -> None:
    class Anything(Row, frozen=True):
        data: bytes

    body = encode_object(Anything(bytes(100)))
    assert decode_object(Anything, body, len(body)) == Anything(bytes(100))
    refused(lambda: decode_object(Anything, body, len(body) - 1))
    refused(lambda: decode_value(Anything, body[1:], len(body) - 2))


@in_one_case("version", sorted(set(range(256)) - {1}))
def test_every_other_version_byte_is_refused(version: int) -> None:
    for name in ("ContainerRecord", "KeyRecord", "Statement"):
        assert not stays(name, bytes([version]) + GOOD[name][1:])


def accept_record(signed: Signed) -> None:
    """What everybody does with a record that is served: parse, then verify."""
    known = Known.parse(signed.body)
    verify_author(known, signed.signature, chains()["bob"])


@pytest.mark.long
def test_a_signed_record_with_any_byte_changed_missing_or_added_is_refused() -> None:
    accept_record(EDIT)
    for body in spoilt(EDIT.body):
        refused(lambda body=body: accept_record(Signed(body, EDIT.signature)))  # type: ignore[misc]


@pytest.mark.long
def test_a_record_whose_signature_has_any_byte_changed_missing_or_added_is_refused() -> None:
    signature = EDIT.signature
    spoiled = [
        signature[:n] + bytes([byte ^ 1 << n % 8]) + signature[n + 1 :]
        for n, byte in enumerate(signature)
    ]
    spoiled += [signature[:n] for n in range(0, len(signature), 61)] + [signature + b"\0"]
    for changed in spoiled:
        refused(lambda changed=changed: accept_record(Signed(EDIT.body, changed)))  # type: ignore[misc]


def test_a_signed_record_is_not_another_users() -> None:
    known = Known.parse(EDIT.body)
    for name in ("alice", "carol", "erin"):
        refused(lambda name=name: verify_author(known, EDIT.signature, chains()[name]))  # type: ignore[misc]


@pytest.mark.long
def test_a_key_record_with_any_byte_changed_missing_or_added_is_refused() -> None:
    first, second = chains()["alice"].records
    now = 2**52

    def accept(one: Signed, two: Signed) -> None:
        KeyChain.verify([one, two], now)

    accept(first, second)
    for n in range(len(first.body)):
        body = first.body[:n] + bytes([first.body[n] ^ 1 << n % 8]) + first.body[n + 1 :]
        refused(lambda body=body: accept(Signed(body, first.signature), second))  # type: ignore[misc]
    for body in spoilt(second.body, (0x10,)):
        refused(lambda body=body: accept(first, Signed(body, second.signature)))  # type: ignore[misc]
    for n in range(0, len(second.signature), 7):
        signature = bytearray(second.signature)
        signature[n] ^= 1 << n % 8
        changed = Signed(second.body, bytes(signature))
        refused(lambda changed=changed: accept(first, changed))  # type: ignore[misc]
    for cut in range(0, len(second.signature), 97):
        short = Signed(second.body, second.signature[:cut])
        refused(lambda short=short: accept(first, short))  # type: ignore[misc]


def test_an_entry_or_salt_with_any_byte_changed_missing_or_added_is_refused() -> None:
    item = GIVEN["create"]["accessList"][0]
    salted = SaltedEntry(bytes.fromhex(item["salt"]), bytes.fromhex(item["entry"]))

    def accept(salt: bytes, entry: bytes) -> None:
        AccessList.disclosed(salted.hash, [(0, SaltedEntry(salt, entry))])

    accept(*salted)
    for entry in spoilt(salted.entry):
        refused(lambda entry=entry: accept(salted.salt, entry))  # type: ignore[misc]
    for salt in spoilt(salted.salt):
        refused(lambda salt=salt: accept(salt, salted.entry))  # type: ignore[misc]


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=200),
    st.lists(st.tuples(st.integers(-2, 5), st.binary(max_size=40), st.binary(max_size=90))),
)
def test_a_list_of_any_bytes_raises_nothing_else(
    hashes: bytes, shown: list[tuple[int, bytes, bytes]]
) -> None:
    try:
        AccessList.disclosed(hashes, [(n, SaltedEntry(s, e)) for n, s, e in shown])
    except IntegrityError:
        return
    assert not shown


@in_one_case("position", [-4, -3, -2, -1, 4, 2**53 - 1])
def test_an_entry_at_a_position_outside_its_list_is_refused(position: int) -> None:
    salted = [
        SaltedEntry(bytes.fromhex(item["salt"]), bytes.fromhex(item["entry"]))
        for item in GIVEN["create"]["accessList"]
    ]
    hashes = b"".join(item.hash for item in salted)
    shown = salted[position % 4]
    AccessList.disclosed(hashes, [(position % 4, shown)])
    refused(lambda: AccessList.disclosed(hashes, [(position, shown)]))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=50)), max_size=3))
def test_a_chain_of_any_bytes_raises_nothing_else(records: list[tuple[bytes, bytes]]) -> None:
    refused(lambda: KeyChain.verify([Signed(*item) for item in records], 0))
