"""Whatever bytes come in: an object that encodes to these very bytes, or `IntegrityError`."""

from collections.abc import Callable

import pytest

from scbroker.errors import IntegrityError
from scbroker.records import roster
from scbroker.records.canonical import Row, decode_object, decode_value, encode_object, encode_value
from scbroker.records.container_record import AccessList, SaltedEntry, parse_entry, parse_record
from scbroker.records.key_record import KeyRecord, Signed
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


@pytest.mark.parametrize("name", PARSERS)
def test_a_cut_or_a_longer_object_is_refused_and_a_changed_one_if_not_canonical(name: str) -> None:
    good = GOOD[name]
    assert stays(name, good)
    for n, byte in enumerate(good):
        assert not stays(name, good[:n])
        for mask in (1, 0x80, 0xFF):
            stays(name, good[:n] + bytes([byte ^ mask]) + good[n + 1 :])
    for n in range(256):
        assert not stays(name, good + bytes([n]))


def test_an_object_beyond_its_limit_is_refused_before_it_is_decoded() -> None:
    class Anything(Row, frozen=True):
        data: bytes

    body = encode_object(Anything(bytes(100)))
    assert decode_object(Anything, body, len(body)) == Anything(bytes(100))
    refused(lambda: decode_object(Anything, body, len(body) - 1))
    refused(lambda: decode_value(Anything, body[1:], len(body) - 2))


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
