"""Signatures at the edges of Ed25519: docs/spec/ids.md, 2.2."""

import hashlib
from collections.abc import Callable
from typing import Any

from scbroker.crypto.verify import label
from tests.independent.edwards import (
    BASE,
    NEUTRAL,
    L,
    P,
    Point,
    add,
    challenge,
    decode,
    encode,
    negative,
    times,
)
from tests.vectors.cast import chosen, signing_key
from tests.vectors.files import Vector, invalid, store, valid
from tests.vectors.ids import ED25519_ORDER_8

NAME = "container-record"
Choice = Callable[[int, int], bool]


def make() -> None:
    store(
        "signatures",
        "docs/spec/ids.md, 2.2. `signature` is over `object` with the label `name`, under the public key of "
        "`ed25519` and of the ML-DSA half of `mlDsaOf` (people.json). The ML-DSA half always verifies.",
        [*_rfc(), *_malleated()],
    )


def _scalar(name: str) -> int:
    digest = bytearray(hashlib.sha512(chosen(name)).digest()[:32])
    digest[0] &= 248
    digest[31] = digest[31] & 63 | 64
    return int.from_bytes(digest, "little")


A, R = _scalar("edge key"), _scalar("edge nonce")
SMALL = decode(bytes.fromhex(ED25519_ORDER_8[0]))
PURE = times(A, BASE)
assert SMALL is not None
MIXED = add(PURE, SMALL)


def _message(body: bytes) -> bytes:
    return label(NAME) + body


def _given(public: bytes, body: bytes, half: bytes) -> dict[str, Any]:
    ml_dsa = signing_key("alice").sign(NAME, body)[64:]
    return {
        "name": NAME, "ed25519": public, "mlDsaOf": "alice", "object": body,
        "signature": half + ml_dsa,
    }  # fmt: skip


def _signed(
    key: Point,
    r: bytes,
    factor: int,
    fits: Choice | None = None,
    s: Callable[[int], int] | None = None,
) -> dict[str, Any]:
    """A signature with these bytes as R = [factor]B, over the first object whose k fits."""
    public = encode(key)
    for number in range(1000):
        body = chosen("edge object", number)
        k = challenge(r, public, _message(body))
        if fits is None or fits(k % L, k):
            found = (factor + k % L * A) % L
            return _given(public, body, r + (s(found) if s else found).to_bytes(32, "little"))
    raise ValueError("No object fits.")


def _rfc() -> list[Vector]:
    good, neutral = encode(times(R, BASE)), encode(NEUTRAL)
    shifted = encode(add(times(R, BASE), SMALL or NEUTRAL))
    return [
        valid("usual", "A key and an R of large order.", **_signed(PURE, good, R)),
        valid("R of small order", "R is the neutral element.", **_signed(PURE, neutral, 0)),
        valid("key with a part of small order", "k and k mod L are multiples of 8.",
              **_signed(MIXED, good, R, lambda k, whole: k % 8 == whole % 8 == 0)),
        valid("k reduced", "k mod L is a multiple of 8, k is not.",
              **_signed(MIXED, good, R, lambda k, whole: k % 8 == 0 and whole % 8 != 0)),
        invalid("k not reduced", "k is a multiple of 8, k mod L is not.", "integrity",
                **_signed(MIXED, good, R, lambda k, whole: k % 8 != 0 and whole % 8 == 0)),
        invalid("by the cofactor, key", "It holds only when multiplied by 8.", "integrity",
                **_signed(MIXED, good, R, lambda k, _: k % 8 != 0)),
        invalid("by the cofactor, R", "R has a part of small order.", "integrity",
                **_signed(PURE, shifted, R)),
    ]  # fmt: skip


def _malleated() -> list[Vector]:
    good = encode(times(R, BASE))
    return [
        invalid("S plus L", "S is not below the group order.", "integrity",
                **_signed(PURE, good, R, s=lambda s: s + L)),
        invalid("R not canonical", "y is 2^255-18, for 1.", "integrity",
                **_signed(PURE, (P + 1).to_bytes(32, "little"), 0)),
        invalid("R not canonical, sign", "x is 0 and its sign bit is set.", "integrity",
                **_signed(PURE, (1 | 1 << 255).to_bytes(32, "little"), 0)),
        invalid("R of another sign", "x is negated.", "integrity",
                **_signed(PURE, encode(negative(times(R, BASE))), R)),
    ]  # fmt: skip
