"""Ed25519 by its formulas, and the ways to verify that ids.md 2.2 rules out. For vectors; slow."""

import hashlib
from typing import NamedTuple

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P


class Point(NamedTuple):
    x: int
    y: int


NEUTRAL = Point(0, 1)


def add(one: Point, two: Point) -> Point:
    product = D * one.x * two.x * one.y * two.y % P
    x = (one.x * two.y + one.y * two.x) * pow(1 + product, -1, P) % P
    return Point(x, (one.y * two.y + one.x * two.x) * pow(1 - product, -1, P) % P)


def times(factor: int, point: Point) -> Point:
    result = NEUTRAL
    for bit in bin(factor)[2:]:
        result = add(result, result)
        if bit == "1":
            result = add(result, point)
    return result


def negative(point: Point) -> Point:
    return Point(-point.x % P, point.y)


def encode(point: Point) -> bytes:
    return (point.y | (point.x & 1) << 255).to_bytes(32, "little")


def decode(octets: bytes) -> Point | None:
    """The point of an encoding, canonical or not; None if y is that of no point."""
    number = int.from_bytes(octets, "little")
    y, sign = number % 2**255 % P, number >> 255
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    if x * x % P != square:
        return None
    return Point(-x % P if x & 1 != sign else x, y)


BASE = Point(
    15112221349535400772501151409588531511454012693041857206046113283949847762202,
    46316835694926478169428394003475163141307993866256225615783033603165251855960,
)


def challenge(r: bytes, public: bytes, message: bytes) -> int:
    """k before its reduction."""
    return int.from_bytes(hashlib.sha512(r + public + message).digest(), "little")


def verifies(
    public: bytes,
    message: bytes,
    signature: bytes,
    *,
    cofactored: bool = False,
    reduced: bool = True,
    decoded: bool = False,
    bounded: bool = True,
    refuses_small_r: bool = False,
) -> bool:
    """By 2.2, or by another way: with the cofactor, with k not reduced, with R decoded, with any S."""
    r, s, a = signature[:32], int.from_bytes(signature[32:], "little"), decode(public)
    k = challenge(r, public, message)
    if a is None or (bounded and s >= L):
        return False
    found = add(times(s, BASE), negative(times(k % L if reduced else k, a)))
    given = decode(r)
    if refuses_small_r and (given is None or times(8, given) == NEUTRAL):
        return False
    if cofactored:
        return given is not None and times(8, found) == times(8, given)
    return found == given if decoded else encode(found) == r
