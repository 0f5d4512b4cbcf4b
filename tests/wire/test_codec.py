"""Messages, strictly: docs/spec/protocol.md, section 1."""

import struct
from typing import Any

import msgspec
import pytest

from scbroker.errors import BrokerError, InvalidArgumentError, TooLargeError
from scbroker.wire import containers, events, parts, users
from scbroker.wire.codec import MAX_MESSAGE, Message, SignedObject, decode, encode
from scbroker.wire.containers import AccessEntry, Disclosed, ListView, RecordRequest, TypeText
from tests.kit.cases import in_one_case

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
    "a number in two bytes": b"\x81\xa1n\xcc\x01",
    "a number in eight bytes": b"\x81\xa1n\xcf" + bytes(7) + b"\x01",
    "a signed number": b"\x81\xa1n\xd0\x01",
    "a number as a float": b"\x81\xa1n\xcb" + struct.pack(">d", 1.0),
    "text with a longer head": b"\x81\xa4text\xd9\x01x",
    "text as bytes": b"\x81\xa4text\xc4\x01x",
    "a map with a longer head": b"\xde\0\x01\xa1n\x01",
    "a name with a longer head": b"\x81\xd9\x01n\x01",
    "a name of bytes": b"\x81\xc4\x01n\x01",
    "a name that is a number": b"\x81\x01\x01",
    "a doubled field": b"\x82\xa1n\x01\xa1n\x01",
}


@in_one_case("name", HOSTILE)
def test_a_hostile_message_is_refused(name: str) -> None:
    assert decode(Number, b"\x82\xa1n\x01\xa4text\xa1x") == Number(n=1, text="x")
    refused(Number, HOSTILE[name])


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
    (containers.RecordReceipt, "version", 2**53 - 1, 2**53),
    (containers.RecordReceipt, "version", 1, -1),
    (users.KeyRecordsRequest, "users", [{"userId": ID}], []),
    (users.KeyRecordsRequest, "users", [{"userId": ID}] * 64, [{"userId": ID}] * 65),
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


def test_an_error_about_a_message_does_not_repeat_it() -> None:
    secret = "x" * 50
    for body in (
        msgspec.msgpack.encode({"auth": secret}),
        msgspec.msgpack.encode({"auth": HASH[1:]}),
    ):
        answer = refused(users.KeyFileOpening, body)
        assert secret not in answer
        assert HASH[1:].hex() not in answer
