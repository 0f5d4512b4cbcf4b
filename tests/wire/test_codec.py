"""Messages, strictly: docs/spec/protocol.md, section 1."""

import datetime as dt
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scbroker.errors import BrokerError, IntegrityError, InvalidArgumentError, TooLargeError
from scbroker.records.container_record import SaltedEntry
from scbroker.records.key_record import Signed
from scbroker.wire import containers, events, parts, users
from scbroker.wire.codec import MAX_MESSAGE, Message, SignedObject, decode, encode
from scbroker.wire.containers import AccessEntry, Disclosed, ListView, RecordRequest, TypeText
from tests.kit.cases import in_one_case
from tests.vectors.files import load

HASH = bytes(range(32))
SIGNED = SignedObject(body=b"\x01body", signature=bytes(3373))
RECORD = containers.SignedRecord(body=b"\x01body", signature=bytes(3608))
ID = "bf00888a-fba6-8c71-9cf0-0a8aa7589293"
ENTRY = AccessEntry(salt=HASH, entry=b"entry", wrap=bytes(1168))
EXAMPLES: list[Message] = [
    SIGNED,
    RECORD,
    users.Registration(keyRecords=[SIGNED, SIGNED], keyFile=b"x", auth=HASH),
    users.Registration(keyRecords=[SIGNED, SIGNED], keyFile=b"x", auth=HASH, reminder="ö"),
    users.Registered(userId=ID),
    users.ChallengeRequest(),
    users.Challenge(nonce=bytes(48)),
    users.SessionRequest(statement=b"s", signature=bytes(3373)),
    users.Session(token="A-_z" * 10 + "abc", expiresAt=0, devicePass=bytes(48)),
    users.KeyFileOpening(auth=HASH),
    users.KeyFileOpening(auth=HASH, devicePass=bytes(48)),
    users.KeyRecordsRequest(users=[users.KeyRecordsFrom(userId=ID, from_=3)]),
    users.KeyRecords(users=[users.UserKeyRecords(userId=ID, keyRecords=[SIGNED], deleted=True)]),
    TypeText(salt=HASH, type="note"),
    TypeText(salt=HASH, type=None),
    RecordRequest(record=RECORD),
    RecordRequest(record=RECORD, accessList=[ENTRY], type=TypeText(salt=HASH, type=None),
                  header=b"h", content=b"c"),
    containers.RecordReceipt(version=2**53 - 1, hash=HASH),
    ListView(entryHashes=HASH, disclosed=[Disclosed(position=0, salt=HASH, entry=b"e")]),
    containers.Bodies(bodies=[b"", b"body"]),
    parts.Chunks(chunks=[parts.ChunkState(index=0, hash=HASH)]),
    parts.TransfersRequest(chunks=[0, 2**17 - 1]),
    parts.Transfers(transfers=[], seconds=0),
    parts.Transfers(transfers=[
        parts.Transfer(index=1, name="parts/bf/x", url="https://s3.example/x?y=z")], seconds=900),
    parts.SentChunks(chunks=[parts.SentChunk(index=0, name="parts/bf/x", hashes=HASH)]),
    events.Events(events=[events.Event(
        id=1, eventType="Updated", containerId=ID, containerType=None, date=0, version=1,
        relatedUserId=ID, applicationName="app", changes=["header", "type"], salt=bytes(16))],
        firstId=1, lastId=1),
]  # fmt: skip
KINDS = sorted({type(example) for example in EXAMPLES}, key=lambda kind: kind.__name__)


class Number(Message, frozen=True, kw_only=True):
    n: int = 0
    text: str = ""


def refused(kind: type, body: bytes, limit: int = MAX_MESSAGE) -> str:
    with pytest.raises(BrokerError) as caught:
        decode(kind, body, limit)
    assert caught.type is InvalidArgumentError
    return str(caught.value)


def plain(message: Message) -> dict[str, Any]:
    found = msgspec.to_builtins(message, builtin_types=(bytes,))
    assert isinstance(found, dict)
    return found


@in_one_case("message", EXAMPLES)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    body = encode(message)
    assert decode(type(message), body) == message
    assert encode(decode(type(message), body)) == body


@in_one_case("message", EXAMPLES)
def test_a_message_with_bytes_missing_or_added_is_refused(message: Message) -> None:
    body = encode(message)
    for n in [*range(min(len(body), 300)), len(body) - 1]:
        refused(type(message), body[:n])
    for n in range(256):
        refused(type(message), body + bytes([n]))


@in_one_case("message", EXAMPLES)
def test_an_unknown_a_missing_and_a_doubled_field_is_refused(message: Message) -> None:
    fields = plain(message)
    refused(type(message), msgspec.msgpack.encode({**fields, "unknown": None}))
    required = [field for field in msgspec.structs.fields(message) if field.required]
    for field in required:
        fewer = {name: value for name, value in fields.items() if name != field.encode_name}
        refused(type(message), msgspec.msgpack.encode(fewer))
    for name, value in fields.items():
        count, rest = encode(message)[0], encode(message)[1:]
        twice = bytes([count + 1]) + rest + msgspec.msgpack.encode(name)
        refused(type(message), twice + msgspec.msgpack.encode(value))


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_another_type_in_a_field_is_refused_and_nothing_coerced(
    kind: type[Message], data: st.DataObject
) -> None:
    message = next(found for found in EXAMPLES if type(found) is kind)
    fields = plain(message)
    if not fields:
        return
    name = data.draw(st.sampled_from(sorted(fields)))
    value = data.draw(strange)
    body = msgspec.msgpack.encode({**fields, name: value})
    try:
        found = decode(kind, body)
    except InvalidArgumentError:
        return
    again = plain(found)
    assert again[name] == value
    assert type(again[name]) is type(value)


strange = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=40),
    st.binary(max_size=40), st.lists(st.none() | st.integers(0, 9), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
    st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=8)),
    st.just(dt.datetime(2026, 1, 1, tzinfo=dt.UTC)), st.sampled_from([0.0, 1.0, "1", "true", b"note"]),
)  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=100, deadline=None)
@given(body=st.binary(max_size=200))
@example(body=b"")
@example(body=b"\xc1")
@example(body=b"\xc0")
@example(body=b"\x80\x80")
def test_any_bytes_are_a_message_or_refused(kind: type[Message], body: bytes) -> None:
    try:
        found = decode(kind, body)
    except InvalidArgumentError:
        return
    # Fields with a default may be written out; everything else is as it would be written.
    assert decode(kind, encode(found)) == found
    assert msgspec.msgpack.encode(msgspec.msgpack.decode(body)) == body


@in_one_case("number",
    [b"\xcc\x01", b"\xcd\0\x01", b"\xce\0\0\0\x01", b"\xcf" + bytes(7) + b"\x01", b"\xd0\x01",
     b"\xd1\0\x01", b"\xd2\0\0\0\x01", b"\xd3" + bytes(7) + b"\x01",
     b"\xcb" + struct.pack(">d", 1.0), b"\xca" + struct.pack(">f", 1.0)])  # fmt: skip
def test_a_number_in_another_form_than_the_shortest_is_refused(number: bytes) -> None:
    assert decode(Number, b"\x81\xa1n\x01") == Number(n=1)
    refused(Number, b"\x81\xa1n" + number)


@in_one_case("text", [b"\xd9\x01x", b"\xda\0\x01x", b"\xdb\0\0\0\x01x", b"\xc4\x01x"])  # fmt: skip
def test_text_in_another_form_than_the_shortest_is_refused(text: bytes) -> None:
    assert decode(Number, b"\x81\xa4text\xa1x") == Number(text="x")
    refused(Number, b"\x81\xa4text" + text)


@in_one_case("header", [b"\xde\0\x01", b"\xdf\0\0\0\x01"])
def test_a_map_in_another_form_than_the_shortest_is_refused(header: bytes) -> None:
    refused(Number, header + b"\xa1n\x01")


@in_one_case("name", [b"\xd9\x01n", b"\xc4\x01n", b"\x01", b"\xc0", b"\x90", b"\x80"])  # fmt: skip
def test_a_field_name_in_another_form_is_refused(name: bytes) -> None:
    refused(Number, b"\x81" + name + b"\x01")


def test_a_doubled_field_is_refused_whichever_value_comes_first() -> None:
    for one, two in ((1, 2), (2, 1), (1, 1)):
        refused(Number, bytes([0x82, 0xA1, ord("n"), one, 0xA1, ord("n"), two]))


HOSTILE = {
    "arrays in arrays": b"\x91" * 1_000_000,
    "maps in maps": b"\x81\xa1n" * 300_000,
    "arrays in a field": b"\x81\xa1n" + b"\x91" * 1_000_000,
    "arrays in an unknown field": b"\x81\xa1x" + b"\x91" * 1_000_000 + b"\x90",
    "an array of 4 G": b"\x81\xa1n\xdd\xff\xff\xff\xff",
    "a map of 4 G": b"\xdf\xff\xff\xff\xff",
    "bytes of 4 G": b"\x81\xa1n\xc6\xff\xff\xff\xff",
    "text of 4 G": b"\x81\xa4text\xdb\xff\xff\xff\xff",
    "an extension of 4 G": b"\x81\xa1n\xc9\xff\xff\xff\xff\x01",
    "an extension": b"\x81\xa1n\xd4\x01\x00",
    "a timestamp": b"\x81\xa1n\xd6\xff\x00\x00\x00\x01",
    "a timestamp of 96 bits": b"\x81\xa1n\xc7\x0c\xff" + bytes(12),
    "the reserved byte": b"\x81\xa1n\xc1",
    "text that is no UTF-8": b"\x81\xa4text\xa1\xff",
    "text with a surrogate": b"\x81\xa4text\xa3\xed\xa0\x80",
    "text with an overlong NUL": b"\x81\xa4text\xa2\xc0\x80",
    "not a number": b"\x81\xa1n\xcb" + struct.pack(">d", float("nan")),
    "an array": b"\x92\x01\x02",
    "nothing": b"",
}


@in_one_case("name", HOSTILE)
def test_a_hostile_message_is_refused(name: str) -> None:
    refused(Number, HOSTILE[name])


def test_numbers_of_the_protocol_end_at_2_to_the_53() -> None:
    for number, good in ((2**53 - 1, True), (2**53, False), (2**64 - 1, False), (-1, False)):
        body = msgspec.msgpack.encode({"version": number, "hash": HASH})
        if good:
            assert decode(containers.RecordReceipt, body).version == number
        else:
            refused(containers.RecordReceipt, body)


def test_a_message_beyond_its_limit_is_refused_unread() -> None:
    body = encode(users.Challenge(nonce=bytes(48)))
    assert decode(users.Challenge, body, len(body)).nonce == bytes(48)
    with pytest.raises(TooLargeError):
        decode(users.Challenge, body, len(body) - 1)
    with pytest.raises(TooLargeError):
        decode(users.Challenge, b"\xc1" * 10, 9)


LIMITS: list[tuple[type[Message], str, Any, Any]] = [
    (users.Registered, "userId", ID, ID.upper()),
    (users.Registered, "userId", ID, ID + "\n"),
    (users.Registered, "userId", ID, "{" + ID[2:] + "}"),
    (users.Challenge, "nonce", bytes(48), bytes(47)),
    (users.Challenge, "nonce", bytes(48), bytes(49)),
    (users.Session, "token", "a" * 43, "a" * 42),
    (users.Session, "token", "a" * 43, "a" * 42 + "="),
    (users.Session, "token", "a" * 43, "a" * 42 + "\n"),
    (users.Session, "expiresAt", 253402300799999999, 253402300800000000),
    (users.KeyFileOpening, "auth", HASH, HASH + b"\0"),
    (users.KeyFileOpening, "auth", HASH, HASH[1:]),
    (users.KeyFileOpening, "devicePass", bytes(48), bytes(47)),
    (users.KeyFileOpening, "devicePass", bytes(48), bytes(49)),
    (users.Session, "devicePass", bytes(48), bytes(47)),
    (users.SessionRequest, "signature", bytes(3373), bytes(3372)),
    (users.SessionRequest, "statement", bytes(1024), bytes(1025)),
    (users.Registration, "keyFile", bytes(65_536), bytes(65_537)),
    (users.Registration, "keyFile", b"x", b""),
    (users.Registration, "reminder", "x" * 1024, "x" * 1025),
    (users.Registration, "reminder", "x", "a\0b"),
    (TypeText, "type", "x" * 256, "x" * 257),
    (TypeText, "type", "x", "\0"),
    (SignedObject, "signature", bytes(3373), bytes(3374)),
    (containers.SignedRecord, "signature", bytes(3373), bytes(3372)),
    (containers.SignedRecord, "signature", bytes(3608), bytes(3609)),
    (SignedObject, "body", bytes(4096), bytes(4097)),
    (containers.Bodies, "bodies", [bytes(2048)], [bytes(2049)]),
    (containers.Bodies, "bodies", [b""] * 1000, [b""] * 1001),
    (ListView, "entryHashes", bytes(32_768), bytes(32_769)),
    (RecordRequest, "header", bytes(262_144 + 8192), bytes(262_144 + 8193)),
    (RecordRequest, "content", bytes(65_536 + 8192), bytes(65_536 + 8193)),
]


@in_one_case("kind, field, good, bad", LIMITS)  # fmt: skip
def test_a_field_within_its_bounds_passes_and_beyond_them_is_refused(
    kind: type[Message], field: str, good: Any, bad: Any
) -> None:
    message = next(found for found in EXAMPLES if type(found) is kind)
    decode(kind, msgspec.msgpack.encode({**plain(message), field: good}))
    refused(kind, msgspec.msgpack.encode({**plain(message), field: bad}))


@in_one_case("count, good", [(0, False), (1, True), (64, True), (65, False)])
def test_keys_of_1_to_64_users_are_asked_for_at_once(count: int, good: bool) -> None:
    body = msgspec.msgpack.encode({"users": [{"userId": ID}] * count})
    if good:
        assert decode(users.KeyRecordsRequest, body).users[0].from_ == 0
    else:
        refused(users.KeyRecordsRequest, body)


def test_an_error_about_a_message_does_not_repeat_it() -> None:
    secret = "x" * 50
    for body in (
        msgspec.msgpack.encode({"auth": secret}),
        msgspec.msgpack.encode({"auth": HASH[1:]}),
    ):
        answer = refused(users.KeyFileOpening, body)
        assert secret not in answer
        assert HASH[1:].hex() not in answer


def test_signed_objects_and_entries_lead_to_the_records_own_types() -> None:
    signed = Signed(b"body", bytes(3373))
    assert SignedObject.of(signed).signed == signed
    assert containers.SignedRecord.of(signed).signed == signed
    assert ENTRY.salted == SaltedEntry(HASH, b"entry")


def test_a_list_view_shows_what_it_is_told_to_and_is_checked_when_read() -> None:
    salted = [
        SaltedEntry(bytes.fromhex(item["salt"]), bytes.fromhex(item["entry"]))
        for item in load("container_records")["given"]["records"]["create"]["accessList"]
    ]
    view = ListView.of(salted, [0, 2])
    access = decode(ListView, encode(view)).verified()
    assert not access.complete
    assert len(access.entries) == 2
    assert ListView.of(salted, range(4)).verified().complete
    for spoiled in (
        ListView(entryHashes=view.entryHashes[32:], disclosed=view.disclosed),
        ListView(entryHashes=view.entryHashes, disclosed=view.disclosed[::-1]),
        ListView(entryHashes=b"", disclosed=[]),
    ):
        with pytest.raises(IntegrityError):
            spoiled.verified()
