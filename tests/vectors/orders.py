"""Orders and what they are for: docs/spec/protocol.md, section 3."""

from functools import cache
from typing import Any

import msgspec

from scbroker.records.canonical import encode_object
from scbroker.records.key_record import CLOSED
from scbroker.vocabulary import KeyType
from scbroker.wire.users import NO_DIGEST, Order
from tests.independent import key_records, orders
from tests.vectors.cast import DAY, START, cast, chosen, person, signing_key
from tests.vectors.files import Vector, encoded, flipped, invalid, put, store, valid

CHALLENGE = "challenge"
ORIGIN = "https://broker.example:443"
Storing = dict[str, Any]


def make() -> None:
    storings = _storings()
    store(
        "orders",
        "docs/spec/protocol.md, 3. An order is judged as `user`'s (people.json), for `action`, and for the "
        "storing of that name among the given ones; its nonce is taken to be good. `brokerOrigin` is the "
        "broker's origin where it is not the usual one. With an order to delete a "
        "user goes the given record that closes their chain. The numbers of "
        "`keyRecords` are those of the given bodies, alice's next key records.",
        [*_valid(storings), *_malformed(), *_wrong(), *_swapped(storings)],
        storings=storings,
        keyRecords=_next_key_records(),
        closingRecords={name: closing_record(name) for name in ("alice", "erin")},
    )


def _storings() -> dict[str, Storing]:
    """What is stored, as far as the order names it."""
    plain: Storing = {
        "keyFile": chosen("key file", size=24), "generation": 2, "auth": chosen("auth"),
        "reminder": None, "replaces": None, "endOtherSessions": False, "keyRecords": [],
    }  # fmt: skip
    records = [0, 1]
    full: Storing = {
        **plain, "generation": 2**53 - 1, "reminder": "the cät", "replaces": chosen("replaced"),
        "endOtherSessions": True, "keyRecords": records,
    }  # fmt: skip
    return {
        "plain": plain,
        "with a reminder": {**plain, "reminder": "the cät"},
        "with an empty reminder": {**plain, "reminder": ""},
        "in place of another": {**plain, "replaces": chosen("replaced")},
        "in place of one whose hash is zeros": {**plain, "replaces": bytes(32)},
        "that ends other sessions": {**plain, "endOtherSessions": True},
        "with key records": {**plain, "keyRecords": records},
        "with all of it": full,
        "with another key file": {**full, "keyFile": chosen("another key file", size=24)},
        "of another generation": {**full, "generation": 3},
        "with another auth": {**full, "auth": chosen("another auth")},
        "with another reminder": {**full, "reminder": "the cat"},
        "without a reminder": {**full, "reminder": None},
        "in place of something else": {**full, "replaces": chosen("replaced before")},
        "that ends no sessions": {**full, "endOtherSessions": False},
        "with one key record": {**full, "keyRecords": records[:1]},
        "with its key records exchanged": {**full, "keyRecords": records[::-1]},
    }


@cache
def _next_key_records() -> list[bytes]:
    alice = person("alice")
    for kind in KeyType:
        alice.introduce(kind, 1, START + DAY)
    return [record.body for record in alice.records[2:]]


@cache
def closing_record(name: str) -> bytes:
    return encode_object(
        cast()[name].next_record(KeyType.Signing, 0, START + 25 * DAY, state=CLOSED)
    )


def _end_of(name: str) -> bytes:
    """The digest of an order that deletes this user."""
    return key_records.record_hash(closing_record(name))


def digest_of(storing: Storing) -> bytes:
    """By the second implementation, not by the code that is tested."""
    bodies = [_next_key_records()[n] for n in storing["keyRecords"]]
    return orders.Storing(*(storing | {"keyRecords": bodies}).values()).digest


def _order(
    action: str, digest: bytes = NO_DIGEST, user: str = "alice", index: int = 0, **changes: Any
) -> Order:
    fields: dict[str, Any] = {
        "origin": ORIGIN,
        "fingerprint": cast()[user].fingerprint,
        "keyIndex": index,
        "nonce": chosen("nonce of an order", size=48),
        "action": action,
        "digest": digest,
    }
    return Order(**(fields | changes))


def _given(
    order: Order | bytes,
    action: str,
    storing: str | None = None,
    user: str = "alice",
    *,
    by: tuple[str, int] | None = None,
    label: str = "order",
) -> dict[str, Any]:
    """An order with its signature, and as what it is judged."""
    body = order if isinstance(order, bytes) else encode_object(order)
    key = signing_key(*(by or (user, 0)))
    return {
        "user": user, "action": action, "storing": storing,
        "order": body, "signature": key.sign(label, body),
    }  # fmt: skip


def _fields(order: Order) -> dict[str, Any]:
    return {
        name: getattr(order, name)
        for name in ("origin", "fingerprint", "keyIndex", "nonce", "digest")
    }


def _valid(storings: dict[str, Storing]) -> list[Vector]:
    found = []
    for name in tuple(storings)[:8]:
        order = _order("store-key-file", digest_of(storings[name]))
        given = _given(order, "store-key-file", name)
        found.append(
            valid(f"store a key file, {name}", "Alice's KeyFile.", **given, **_fields(order))
        )
    for action, digest, comment in (
        ("delete-key-file", NO_DIGEST, "The digest is zeros."),
        ("delete-user", _end_of("alice"), "The digest is the hash of the closing record."),
    ):
        order = _order(action, digest)
        found.append(valid(action, comment, **_given(order, action), **_fields(order)))
    order = _order("delete-user", _end_of("erin"), user="erin", index=1)
    given = _given(order, "delete-user", user="erin", by=("erin", 1))
    found.append(valid("by a later key", "Key 0 was retired.", **given, **_fields(order)))
    return found


def _malformed() -> list[Vector]:
    good = _order("delete-user", _end_of("alice"))
    body = encode_object(good)

    row = msgspec.msgpack.decode(body[1:])
    faults = {
        "empty": ("No bytes.", b""),
        "wrong version byte": ("02.", b"\x02" + body[1:]),
        "trailing byte": ("00.", body + b"\0"),
        "truncated": ("A byte is missing.", body[:-1]),
        "not shortest": ("The nonce with c5 0030.", body.replace(b"\xc4\x30", b"\xc5\0\x30")),
        "a statement": ("Four elements.", encoded(row[:4])),
        "five elements": ("No digest.", encoded(row[:5])),
        "seven elements": ("One more.", encoded([*row, None])),
        "no origin": ("Empty.", put(row, 0, "")),
        "short fingerprint": ("31 bytes.", put(row, 1, good.fingerprint[:31])),
        "index too large": ("256.", put(row, 2, 256)),
        "short nonce": ("47 bytes.", put(row, 3, good.nonce[:47])),
        "long nonce": ("49 bytes.", put(row, 3, good.nonce + b"\0")),
        "unknown action": ("delete-users.", put(row, 4, "delete-users")),
        "action in capitals": ("Delete-User.", put(row, 4, "Delete-User")),
        "action as bytes": ("bin.", put(row, 4, b"delete-user")),
        "no digest": ("nil.", put(row, 5, None)),
        "short digest": ("31 bytes.", put(row, 5, bytes(31))),
    }
    found = [
        invalid(name, comment, CHALLENGE, **_given(changed, "delete-user"))
        for name, (comment, changed) in faults.items()
    ]
    origin = "https://" + "x" * 1024
    long = {**_given(put(row, 0, origin), "delete-user"), "brokerOrigin": origin}
    return [
        *found,
        invalid("more than 1,024 bytes", "The broker has this origin.", "invalid", **long),
    ]


def _wrong() -> list[Vector]:
    end, bob = _end_of("alice"), cast()["bob"].fingerprint
    good = _order("delete-user", end)
    other = _order("delete-user", end, origin="https://other.example:443")
    retired = _order("delete-user", _end_of("erin"), user="erin")
    ahead = _order("delete-user", end, index=1)
    cases: dict[str, tuple[str, dict[str, Any]]] = {
        "signature of another order": ("Of the same for another origin.", {
            **_given(good, "delete-user"), "signature": _given(other, "delete-user")["signature"]}),
        "for another origin": ("Signed for another broker, and correctly.", _given(
            other, "delete-user")),
        "signed as a log-in": ("Another label.", _given(good, "delete-user", label="session")),
        "signed as a key record": ("Another label.", _given(good, "delete-user", label="key-record")),
        "signed by another user": ("Bob.", _given(good, "delete-user", by=("bob", 0))),
        "another user's fingerprint": ("Bob's, signed by Alice.", _given(
            _order("delete-user", end, fingerprint=bob), "delete-user")),
        "a fingerprint with the same id": ("It differs behind the first 122 bits.", _given(
            _order("delete-user", end, fingerprint=flipped(good.fingerprint, 31)), "delete-user")),
        "a retired key": ("Erin's key 0.", _given(retired, "delete-user", user="erin")),
        "a retired key under the latest index": ("Erin's key 0 as key 1.", _given(
            _order("delete-user", _end_of("erin"), user="erin", index=1), "delete-user", user="erin")),
        "a key that was not published": ("Alice's key 1.", _given(
            ahead, "delete-user", by=("alice", 1))),
        "to delete the user, for the KeyFile": ("Another action.", _given(
            _order("delete-user"), "delete-key-file")),
        "to delete the KeyFile, for the user": ("Another action.", _given(
            _order("delete-key-file", end), "delete-user")),
        "to delete, for a storing": ("Another action.", _given(
            _order("delete-user", digest_of(_storings()["plain"])), "store-key-file", "plain")),
        "to delete the KeyFile, with a digest": ("It has to be zeros.", _given(
            _order("delete-key-file", chosen("digest")), "delete-key-file")),
        "to delete the user, with no digest": ("Zeros.", _given(
            _order("delete-user"), "delete-user")),
        "to delete the user, with another record": ("Erin's.", _given(
            _order("delete-user", _end_of("erin")), "delete-user")),
        "to store, with no digest": ("Zeros.", _given(
            _order("store-key-file"), "store-key-file", "plain")),
    }  # fmt: skip
    return [invalid(name, comment, CHALLENGE, **given) for name, (comment, given) in cases.items()]


def _swapped(storings: dict[str, Storing]) -> list[Vector]:
    """The order for one storing, given with another that differs in one place."""
    names = tuple(storings)
    pairs = [("with all of it", name) for name in names[8:]]
    pairs += [
        ("plain", "with an empty reminder"),
        ("with an empty reminder", "plain"),
        ("plain", "in place of one whose hash is zeros"),
        ("in place of one whose hash is zeros", "plain"),
    ]
    found = []
    for signed, sent in pairs:
        order = _order("store-key-file", digest_of(storings[signed]))
        given = _given(order, "store-key-file", sent)
        found.append(
            invalid(f"signed {signed}, sent {sent}", "Another digest.", CHALLENGE, **given)
        )
    return found
