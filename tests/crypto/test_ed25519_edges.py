"""Edge cases in which Ed25519 verifiers differ, as both our implementations decide them.

Computed from the curve, of the kinds that "Taming the many EdDSAs" (Chalkias, Garillot, Nikolaenko) lists:
keys and R of small or of mixed order, S beyond the group order, encodings that are not canonical. What is
signed is the message of a whole composed signature, whose ML-DSA half holds. Spec: docs/spec/ids.md, 2.2.
"""

import hashlib
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PrivateKey

from scbroker.crypto.verify import VerifyingKey, label
from scbroker.errors import IntegrityError
from tests.crypto.test_small_order import NEUTRAL, ORDER, TORSION, P, Point, add, points_of_y, times
from tests.independent.encodings import RefusedError
from tests.independent.keys import check_signature, check_signing_key

NAME = "container-record"
ML_DSA = MLDSA65PrivateKey.from_seed_bytes(bytes(32))
ML_DSA_PUBLIC = ML_DSA.public_key().public_bytes_raw()
BASE = next(point for point in points_of_y(4 * pow(5, -1, P) % P) if point[0] % 2 == 0)
SECRET, NONCE = 2**251 + 12_345, 2**250 + 678
SMALL = sorted(TORSION - {NEUTRAL})


def encoded(point: Point) -> bytes:
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def challenge(r: bytes, public: bytes, message: bytes) -> int:
    return int.from_bytes(hashlib.sha512(r + public + message).digest(), "little") % ORDER


def judged(public: bytes, signature: bytes, signed: bytes) -> bool:
    """Return whether the composed signature holds: both implementations say the same."""
    whole, signature = (public + ML_DSA_PUBLIC, signature + ML_DSA.sign(label(NAME) + signed))
    verdicts = []
    for verify in (_ours, _by_hand):
        try:
            verify(whole, signed, signature)
            verdicts.append(True)
        except (IntegrityError, RefusedError):
            verdicts.append(False)
    assert verdicts[0] == verdicts[1]
    return verdicts[0]


def _ours(public: bytes, signed: bytes, signature: bytes) -> None:
    VerifyingKey(public).verify(NAME, signed, signature)


def _by_hand(public: bytes, signed: bytes, signature: bytes) -> None:
    check_signing_key(public)
    check_signature(public, NAME, signed, signature)


def signature_of(
    key: Point, r: Point, signed: bytes, secret: int = SECRET, nonce: int = NONCE
) -> tuple[bytes, bytes]:
    """What holds up to points of small order: S from the secret and nonce, whatever was added to both."""
    public, shown = encoded(key), encoded(r)
    s = (nonce + challenge(shown, public, label(NAME) + signed) * secret) % ORDER
    return public, shown + s.to_bytes(32, "little")


def first(holds: Callable[[bytes], bool]) -> bytes:
    """A message of which that is so."""
    return next(signed for n in range(1000) if holds(signed := f"message {n}".encode()))


def vanishing(r: bytes, public: bytes, small: Point) -> Callable[[bytes], bool]:
    """Return whether the challenge of a message takes this point of small order to the neutral one."""

    def vanishes(signed: bytes) -> bool:
        return times(challenge(r, public, label(NAME) + signed) % 8, small) == NEUTRAL

    return vanishes


PLAIN, R = times(SECRET, BASE), times(NONCE, BASE)


def test_an_honest_signature_holds() -> None:
    """The arithmetic of this page is right: what it signs verifies, and other things do not."""
    public, signature = signature_of(PLAIN, R, b"signed")
    assert judged(public, signature, b"signed")
    assert not judged(public, signature, b"signee")


@pytest.mark.parametrize("key", [NEUTRAL, *SMALL], ids=range(8))
def test_a_key_of_small_order_is_refused_whatever_holds_under_it(key: Point) -> None:
    """Signatures that the library accepts, with R of small order and of full order."""
    for nonce, r in ((0, NEUTRAL), (NONCE, R)):
        signed = first(vanishing(encoded(r), encoded(key), key))
        public, signature = signature_of(key, r, signed, 0, nonce)
        Ed25519PublicKey.from_public_bytes(public).verify(signature, label(NAME) + signed)
        assert not judged(public, signature, signed)


def test_an_r_of_small_order_is_no_fault_by_itself() -> None:
    """R the neutral element, which is what a nonce of 0 gives: it holds, and proves the same."""
    assert judged(*signature_of(PLAIN, NEUTRAL, b"signed", nonce=0), b"signed")


@pytest.mark.parametrize("small", SMALL, ids=range(7))
def test_a_signature_that_holds_times_the_cofactor_alone_is_refused(small: Point) -> None:
    """Keys of mixed order load; the equation is checked without the cofactor."""
    key = add(PLAIN, small)
    vanishes = vanishing(encoded(R), encoded(key), small)
    holds, fails = first(vanishes), first(lambda signed: not vanishes(signed))
    assert judged(*signature_of(key, R, holds), holds)
    assert not judged(*signature_of(key, R, fails), fails)
    assert not judged(*signature_of(PLAIN, add(R, small), b"signed"), b"signed")


def test_an_s_of_the_group_order_or_more_is_refused() -> None:
    """S + L, and that again until it takes 256 bits."""
    public, signature = signature_of(PLAIN, R, b"signed")
    s = int.from_bytes(signature[32:], "little")
    more = range(s + ORDER, 2**256, ORDER)
    assert len(more) > 10
    for high in more:
        assert not judged(public, signature[:32] + high.to_bytes(32, "little"), b"signed")


@pytest.mark.parametrize("sign", [0, 1])
def test_an_r_that_is_not_canonical_is_refused(sign: int) -> None:
    """The neutral element with y = p + 1, and with the sign of a zero set: R is compared as bytes."""
    public = encoded(PLAIN)
    for y in (P + 1, 1 + (0 if sign else P)):
        r = (y | sign << 255).to_bytes(32, "little")
        k = challenge(r, public, label(NAME) + b"signed")
        signature = r + (k * SECRET % ORDER).to_bytes(32, "little")
        assert not judged(public, signature, b"signed")


@pytest.mark.parametrize("y", [P, P + 1])
@pytest.mark.parametrize("sign", [0, 1])
def test_a_key_that_is_not_canonical_is_refused(y: int, sign: int) -> None:
    """Also where the equation holds, by either reading of what is hashed."""
    public = (y | sign << 255).to_bytes(32, "little")
    point = next(points_of_y(y % P))
    for hashed in (public, encoded(point)):
        signed = first(vanishing(encoded(NEUTRAL), hashed, point))
        assert not judged(public, encoded(NEUTRAL) + bytes(32), signed)
