"""Statements of a log-in, nonces, verifiers and device passes: docs/spec/protocol.md, 3; keyfile.md, 3."""

from typing import Any

import msgspec

from scbroker.records.canonical import encode_object, user_id_of
from scbroker.wire.users import Statement
from tests.independent.sessions import Broker
from tests.vectors.cast import DAY, MINUTE, START, cast, chosen, signing_key
from tests.vectors.files import Vector, flipped, invalid, put, store, valid
from tests.vectors.orders import closing_record

CHALLENGE = "challenge"
BROKER_KEY = chosen("broker key")
BROKER = Broker(BROKER_KEY)
"""Taken from the second implementation, not from the code under test."""
ORIGIN = "https://broker.example:443"
NOW = START + 30 * DAY


def nonce(expiry: int = NOW + 2 * MINUTE) -> bytes:
    return BROKER.nonce(chosen("nonce", size=16), expiry)


def statement(name: str = "alice", index: int = 0, **changes: Any) -> Statement:
    fields: dict[str, Any] = {
        "origin": ORIGIN, "fingerprint": cast()[name].fingerprint, "keyIndex": index, "nonce": nonce(),
    }  # fmt: skip
    return Statement(**(fields | changes))


def given(
    made: Statement | bytes, user: str = "alice", *, by: tuple[str, int] | None = None,
    name: str = "session",
) -> dict[str, Any]:  # fmt: skip
    """A statement, which the broker judges by the keys of `user`."""
    body = made if isinstance(made, bytes) else encode_object(made)
    signature = signing_key(*(by or (user, 0))).sign(name, body)
    return {
        "kind": "statement",
        "user": user,
        "now": NOW,
        "statement": body,
        "signature": signature,
    }


def make() -> None:
    store(
        "sessions",
        "docs/spec/protocol.md, 3, and keyfile.md, 3. kind `statement`: judged at `now` by the broker of "
        "`origin` with `brokerKey`, by the keys of `user` (people.json); `brokerOrigin` is its origin "
        "where it is another, and with `closed` the given record has closed the chain. The other kinds are "
        "computed with `brokerKey`: a `nonce` and a `device pass` of their random bytes, a `verifier`.",
        [*_valid(), *_malformed(), *_wrong(), *_computed()],
        brokerKey=BROKER_KEY,
        origin=ORIGIN,
        closingRecord={
            "body": closing_record("alice"),
            "signature": signing_key("alice").sign("key-record", closing_record("alice")),
        },
    )


def _valid() -> list[Vector]:
    def fields(made: Statement) -> dict[str, Any]:
        return {name: getattr(made, name) for name in made.__struct_fields__}

    alice, erin = statement(), statement("erin", 1)
    last = statement(nonce=nonce(NOW + 1))
    return [
        valid("statement", "Alice logs in.", **given(alice), **fields(alice)),
        valid("by a later key", "Erin retired key 0.", **given(erin, "erin", by=("erin", 1)),
              **fields(erin)),
        valid("last moment of the nonce", "It expires a microsecond later.", **given(last),
              **fields(last)),
    ]  # fmt: skip


def _malformed() -> list[Vector]:
    good = statement()
    body = encode_object(good)

    row = msgspec.msgpack.decode(body[1:])
    faults = {
        "wrong version byte": ("02.", b"\x02" + body[1:]),
        "trailing byte": ("00.", body + b"\0"),
        "truncated": ("A byte is missing.", body[:-1]),
        "not shortest": ("The nonce with c5 0030.", body.replace(b"\xc4\x30", b"\xc5\0\x30")),
        "no origin": ("Empty.", put(row, 0, "")),
        "origin as bytes": ("bin.", put(row, 0, ORIGIN.encode())),
        "origin not UTF-8": ("A byte is ff.", body.replace(b"https", b"http\xff", 1)),
        "short fingerprint": ("31 bytes.", put(row, 1, good.fingerprint[:31])),
        "index too large": ("256.", put(row, 2, 256)),
        "short nonce": ("47 bytes.", put(row, 3, good.nonce[:47])),
        "long nonce": ("49 bytes.", put(row, 3, good.nonce + b"\0")),
    }
    origin = "https://" + "x" * (1025 - len(body) + len(ORIGIN) - 8 - 2)
    long = put(row, 0, origin)
    if len(long) != 1025:
        raise ValueError(f"The long statement has {len(long)} bytes.")
    return [
        *(invalid(name, comment, CHALLENGE, **given(changed))
          for name, (comment, changed) in faults.items()),
        invalid("more than 1,024 bytes", "1,025 bytes; the broker has this origin.", "invalid",
                **given(long), brokerOrigin=origin),
    ]  # fmt: skip


def _wrong() -> list[Vector]:
    good, alice = statement(), cast()["alice"].fingerprint
    fresh = nonce()
    cases: dict[str, tuple[str, dict[str, Any]]] = {
        "for another origin": ("Signed for another broker, and correctly.", given(
            statement(origin="https://other.example:443"))),
        "for another scheme": ("http.", given(statement(origin="http://broker.example:443"))),
        "without the port": ("The origin is not canonical.", given(
            statement(origin="https://broker.example"))),
        "signed as an order": ("Another label.", given(good, name="order")),
        "signed by another user": ("Bob.", given(good, by=("bob", 0))),
        "in another user's name": ("Bob's fingerprint, signed by Alice.", given(
            statement("bob"), "bob", by=("alice", 0))),
        "a fingerprint with the same id": ("It differs behind the first 122 bits.", given(
            statement(fingerprint=flipped(alice, 31)))),
        "a retired key": ("Erin's key 0.", given(statement("erin", 0), "erin")),
        "a retired key under the latest index": ("Erin's key 0 as key 1.", given(
            statement("erin", 1), "erin")),
        "a key that was not published": ("Alice's key 1.", given(
            statement(index=1), by=("alice", 1))),
        "nonce of another broker": ("A bit of its MAC.", given(statement(
            nonce=flipped(fresh, 47)))),
        "nonce with another expiry": ("A microsecond later than the MAC says.", given(statement(
            nonce=flipped(fresh, 23)))),
        "a deleted user": ("The chain is closed.", {**given(good), "closed": True}),
        "expired nonce": ("At its very expiry.", given(statement(nonce=nonce(NOW)))),
    }  # fmt: skip
    return [
        invalid(name, comment, CHALLENGE, **fields) for name, (comment, fields) in cases.items()
    ]


def _computed() -> list[Vector]:
    user_id = user_id_of(cast()["alice"].fingerprint)
    random, device, auth = chosen("nonce", size=16), chosen("device", size=16), chosen("auth")
    return [
        valid("nonce", "random || u64(expiry) || 24 bytes of the MAC.", kind="nonce", random=random,
              expiry=NOW + 2 * MINUTE, nonce=nonce()),
        valid("verifier", "The MAC of userId and auth.", kind="verifier", userId=str(user_id),
              auth=auth, verifier=BROKER.verifier(user_id.bytes, auth)),
        valid("device pass", "deviceId and the MAC of userId and deviceId.", kind="device pass",
              userId=str(user_id), deviceId=device,
              devicePass=BROKER.device_pass(user_id.bytes, device)),
    ]  # fmt: skip
