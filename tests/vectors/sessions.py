"""Statements of a log-in: docs/spec/protocol.md, section 3."""

from typing import Any

import msgspec

from scbroker.records.canonical import VERSION, encode_object
from scbroker.wire.users import Statement
from tests.vectors.cast import cast, chosen, signing_key
from tests.vectors.files import invalid, store, valid

INTEGRITY = "integrity"


def make() -> None:
    alice = cast()["alice"].fingerprint
    nonce = chosen("nonce", size=48)
    good = Statement("https://broker.example:443", alice, 0, nonce)
    body = encode_object(good)
    key = signing_key("alice")

    def signed(changed: bytes) -> dict[str, Any]:
        return {"statement": changed, "signature": key.sign("session", changed)}

    def put(position: int, value: Any) -> bytes:
        rows = list(msgspec.to_builtins(good, builtin_types=(bytes,)))
        rows[position] = value
        return VERSION + msgspec.msgpack.encode(rows)

    faults = {
        "wrong version byte": ("02.", b"\x02" + body[1:]),
        "trailing byte": ("00.", body + b"\0"),
        "truncated": ("A byte is missing.", body[:-1]),
        "not shortest": ("The nonce with c5 0030.", body.replace(b"\xc4\x30", b"\xc5\0\x30")),
        "no origin": ("Empty.", put(0, "")),
        "origin as bytes": ("bin.", put(0, b"https://broker.example:443")),
        "short fingerprint": ("31 bytes.", put(1, alice[:31])),
        "index too large": ("256.", put(2, 256)),
        "short nonce": ("47 bytes.", put(3, nonce[:47])),
        "long nonce": ("49 bytes.", put(3, nonce + b"\0")),
    }
    signature = key.sign("session", body)
    other = put(0, "https://other.example:443")
    store(
        "sessions",
        "docs/spec/protocol.md, 3. Signed with signing key 0 of alice (people.json).",
        [
            valid("statement", "Alice logs in.", statement=body, signature=signature,
                  origin=good.origin, fingerprint=alice, keyIndex=0, nonce=nonce),
            *(invalid(name, comment, INTEGRITY, **signed(changed))
              for name, (comment, changed) in faults.items()),
            invalid("for another origin", "Signed for one broker, given to another.", INTEGRITY,
                    statement=other, signature=signature),
            invalid("signed as an order", "Another label.", INTEGRITY, statement=body,
                    signature=key.sign("order", body)),
            invalid("signed by another user", "Bob.", INTEGRITY, statement=body,
                    signature=signing_key("bob").sign("session", body)),
        ],
    )  # fmt: skip
