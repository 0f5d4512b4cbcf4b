"""The points that scbroker.crypto.verify refuses are those of small order: computed from the curves.

edwards25519: -x^2 + y^2 = 1 + d x^2 y^2; curve25519: v^2 = u^3 + 486662 u^2 + u, and its twist; all
over the field of 2^255 - 19 elements (RFC 7748, 4.1; RFC 8032, 5.1).
"""

from collections.abc import Iterator

from scbroker.crypto import verify
from tests.vectors.ids import small_order_us, small_order_ys

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
A = 486662
ORDER = 2**252 + 27742317777372353535851937790883648493

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


def test_the_refused_y_coordinates_are_those_of_the_torsion() -> None:
    assert {y for _, y in TORSION} == verify._ED25519_SMALL_ORDER_Y
    assert set(small_order_ys().values()) == verify._ED25519_SMALL_ORDER_Y


def test_the_refused_u_coordinates_are_those_of_small_order_on_the_curve_and_its_twist() -> None:
    on_curve = {u_of(point) for point in TORSION}
    # On the twist, whose cofactor is 4: (0, 0), and the points that double to it.
    on_twist = {0, *(u for u in (1, P - 1) if double_u(u) == 0)}
    assert on_curve | on_twist == verify._X25519_SMALL_ORDER_U
    assert set(small_order_us().values()) == verify._X25519_SMALL_ORDER_U
