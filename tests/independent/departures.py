"""Departures: docs/spec/container.md, 4.1."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.independent import encodings as e
from tests.independent.encodings import need
from tests.independent.key_records import MINUTE, KeyChain, Signable, Signed
from tests.independent.keys import check_signature


@dataclass(frozen=True)
class Left:
    """A list, as a departure names it, with what decides on departures from it."""

    container_id: bytes
    version: int
    hash: bytes
    made: int
    """The time of the record that made the list."""
    users: frozenset[bytes]
    """Those whose entries are disclosed."""


@dataclass(frozen=True)
class Departure(Signable):
    name = "departure"
    container_id: e.Id
    access_version: e.UInt
    access_list: e.Hash
    fingerprint: e.Hash
    key_index: e.KeyIndex
    time: e.Time


parse = Departure.parse


def check(signed: Signed, left: Left, chain: KeyChain, now: int) -> None:
    departure = parse(signed.body)
    named = (departure.container_id, departure.access_version, departure.access_list)
    need(named == (left.container_id, left.version, left.hash), "a departure from another list")
    need(departure.fingerprint in left.users, "a departure of a user without a disclosed entry")
    public = chain.signing_key(departure.key_index, departure.time)
    if signed.signature is not None:
        check_signature(public, "departure", signed.body, signed.signature)
    need(departure.time >= left.made, "a departure before the list was made")
    need(departure.time <= now + 15 * MINUTE, "a departure of the future", "clock")


def check_order(departures: Sequence[Signed]) -> None:
    users = [parse(signed.body).fingerprint for signed in departures]
    need(users == sorted(set(users)), "departures that do not ascend")
