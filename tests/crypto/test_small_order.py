"""The points that scbroker.crypto.verify refuses are those of small order: computed from the curves.

edwards25519: -x^2 + y^2 = 1 + d x^2 y^2; curve25519: v^2 = u^3 + 486662 u^2 + u, and its twist; all
over the field of 2^255 - 19 elements (RFC 7748, 4.1; RFC 8032, 5.1).
"""

import hashlib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scbroker.crypto import verify
from scbroker.crypto.seal import DecryptionKey, SigningKey
from scbroker.crypto.verify import VerifyingKey, check_encryption_key
from scbroker.errors import IntegrityError
from tests.kit.cases import in_one_case
from tests.vectors.cast import decryption_key, signing_key
from tests.vectors.ids import small_order_us, small_order_ys

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
A = 486662
ORDER = 2**252 + 27742317777372353535851937790883648493
ML_DSA = signing_key("alice").public[32:]
ML_KEM = decryption_key("alice").public[:1184]

Point = tuple[int, int]
NEUTRAL: Point = (0, 1)


def root(square: int) -> int | None:
    """A square root modulo P, where there is one (P = 5 modulo 8)."""
    candidate = pow(square, (P + 3) // 8, P)
    for found in (candidate, candidate * pow(2, (P - 1) // 4, P) % P):
        if found * found % P == square % P:
            return found
    return None


def points_of_y(y: int) -> Iterator[Point]:
    """The points of edwards25519 with this y."""
    x = root((y * y - 1) * pow(D * y * y + 1, -1, P))
    if x is not None:
        yield from {(x, y), (-x % P, y)}


def add(one: Point, two: Point) -> Point:
    (x1, y1), (x2, y2) = one, two
    product = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, P)
    y = (y1 * y2 + x1 * x2) * pow(1 - product, -1, P)
    return x % P, y % P


def times(factor: int, point: Point) -> Point:
    result = NEUTRAL
    while factor:
        if factor & 1:
            result = add(result, point)
        point, factor = add(point, point), factor >> 1
    return result


def torsion() -> set[Point]:
    """All eight points whose order divides 8: multiples of one that the prime order leaves over."""
    y = 2
    while True:
        for point in points_of_y(y):
            left = times(ORDER, point)
            if times(4, left) != NEUTRAL:
                return {times(n, left) for n in range(8)}
        y += 1


TORSION = torsion()


def u_of(point: Point) -> int:
    """The u-coordinate on curve25519 of a point of edwards25519; 0 for the neutral one as well."""
    _, y = point
    return (1 + y) * pow(1 - y, -1, P) % P if y != 1 else 0


def double_u(u: int) -> int | None:
    """u of twice a point, on the curve or its twist alike; None is the point at infinity."""
    denominator = 4 * u * (u * u + A * u + 1) % P
    return None if denominator == 0 else pow(u * u - 1, 2, P) * pow(denominator, -1, P) % P


def test_the_torsion_has_eight_points_of_orders_1_2_4_and_8() -> None:
    orders = sorted(next(n for n in (1, 2, 4, 8) if times(n, point) == NEUTRAL)
                    for point in TORSION)  # fmt: skip
    assert orders == [1, 2, 4, 4, 8, 8, 8, 8]


def test_the_refused_y_coordinates_are_those_of_the_torsion() -> None:
    assert {y for _, y in TORSION} == verify._ED25519_SMALL_ORDER_Y
    assert set(small_order_ys().values()) == verify._ED25519_SMALL_ORDER_Y


def test_the_refused_u_coordinates_are_those_of_small_order_on_the_curve_and_its_twist() -> None:
    on_curve = {u_of(point) for point in TORSION}
    # On the twist, whose cofactor is 4: (0, 0), and the points that double to it.
    on_twist = {0, *(u for u in (1, P - 1) if double_u(u) == 0)}
    assert on_curve | on_twist == verify._X25519_SMALL_ORDER_U
    assert set(small_order_us().values()) == verify._X25519_SMALL_ORDER_U


def test_every_refused_u_coordinate_doubles_to_infinity_within_three_steps() -> None:
    for u in verify._X25519_SMALL_ORDER_U:
        value: int | None = u
        for _ in range(3):
            value = double_u(value) if value is not None else None
        assert value is None


@in_one_case("y, sign", sorted({y for _, y in TORSION}), [0, 1])
def test_a_signing_key_of_small_order_is_refused(y: int, sign: int) -> None:
    raw = (y | sign << 255).to_bytes(32, "little")
    with pytest.raises(IntegrityError):
        VerifyingKey(raw + ML_DSA)


@in_one_case("y, sign", range(P, 2**255), [0, 1])
def test_a_signing_key_that_is_not_canonical_is_refused(y: int, sign: int) -> None:
    raw = (y | sign << 255).to_bytes(32, "little")
    with pytest.raises(IntegrityError):
        VerifyingKey(raw + ML_DSA)


def test_the_identity_as_a_key_would_verify_a_forged_ed25519_signature() -> None:
    """Why such keys are refused: with S = 0 and R = A, the library says yes to any message."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    identity = (1).to_bytes(32, "little")
    Ed25519PublicKey.from_public_bytes(identity).verify(identity + bytes(32), b"anything")


@in_one_case("u, high", [*sorted(verify._X25519_SMALL_ORDER_U), *range(P, 2**255)], [0, 1])
def test_an_encryption_key_of_small_order_or_not_canonical_is_refused(u: int, high: int) -> None:
    raw = (u | high << 255).to_bytes(32, "little")
    with pytest.raises(IntegrityError):
        check_encryption_key(ML_KEM + raw)


def test_an_encryption_key_with_its_highest_bit_set_is_refused() -> None:
    raw = decryption_key("alice").public[1184:]
    check_encryption_key(ML_KEM + raw)
    with pytest.raises(IntegrityError):
        check_encryption_key(ML_KEM + raw[:31] + bytes([raw[31] | 0x80]))


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=64, max_size=64))
def test_a_key_that_was_generated_is_never_refused(seed: bytes, kem: bytes) -> None:
    VerifyingKey(SigningKey(seed, hashlib.sha256(seed).digest()).public)
    check_encryption_key(DecryptionKey(kem, seed).public)


@in_one_case("position, value", [0, 1, 2, 500, 767], [3329, 3330, 4095])
def test_an_ml_kem_key_with_a_coefficient_of_q_or_more_is_refused(
    position: int, value: int
) -> None:
    """FIPS 203, 7.2: 768 coefficients of 12 bits, two in three bytes."""
    bits = int.from_bytes(ML_KEM[:1152], "little")
    bits &= ~(0xFFF << 12 * position)
    spoiled = (bits | value << 12 * position).to_bytes(1152, "little") + ML_KEM[1152:]
    x25519 = decryption_key("alice").public[1184:]
    with pytest.raises(IntegrityError):
        check_encryption_key(spoiled + x25519)
    highest = (bits | 3328 << 12 * position).to_bytes(1152, "little") + ML_KEM[1152:]
    check_encryption_key(highest + x25519)
