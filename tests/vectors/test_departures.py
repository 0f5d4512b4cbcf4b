"""Every departure is judged as departures.json says (docs/spec/container.md, section 4.1)."""

from typing import Any

import pytest

from scbroker.errors import BrokerError
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import AccessList, SaltedEntry
from scbroker.records.departure import parse_departure
from scbroker.records.judge import InForce, Known, judge_first, judge_next, verify_departure
from scbroker.records.key_record import KeyChain, Signed
from tests.kit.cases import in_one_case
from tests.vectors.files import Vector, load, signature_of, vectors

RECORDS: dict[str, dict[str, Any]] = load("departures")["given"]["records"]


def in_force(vector: Vector) -> InForce:
    """G with its list, after the governing records before it."""
    found: InForce | None = None
    for name in vector["governing"]:
        known = Known.parse(bytes.fromhex(RECORDS[name]["body"]))
        shown = vector.get("disclosed") if name == vector["governing"][-1] else None
        access = list_of(name, shown)
        if found is None:
            assert access is not None
            found = judge_first(known, access, vector["now"])
        else:
            found = judge_next(known, found, access, None, vector["now"])
    assert found is not None
    return found


def list_of(name: str, disclosed: list[int] | None) -> AccessList | None:
    if "accessList" not in RECORDS[name]:
        return None
    salted = [
        SaltedEntry(bytes.fromhex(item["salt"]), bytes.fromhex(item["entry"]))
        for item in RECORDS[name]["accessList"]
    ]
    positions = range(len(salted)) if disclosed is None else disclosed
    return AccessList.disclosed(
        b"".join(item.hash for item in salted), [(n, salted[n]) for n in positions]
    )


def check(vector: Vector, authors: dict[bytes, KeyChain]) -> None:
    signed = Signed(bytes.fromhex(vector["body"]), signature_of(vector))
    leaver = parse_departure(signed.body).fingerprint
    verify_departure(signed, in_force(vector), authors[leaver], vector["now"])


@pytest.mark.parametrize("vector", vectors("departures", "valid"), ids=lambda v: v["id"])
def test_a_valid_departure_is_accepted(vector: Vector, authors: dict[bytes, KeyChain]) -> None:
    check(vector, authors)
    body = bytes.fromhex(vector["body"])
    assert encode_object(parse_departure(body)) == body


@in_one_case("vector", vectors("departures", "invalid"))
def test_an_invalid_departure_is_refused_with_the_error_of_its_vector(
    vector: Vector, authors: dict[bytes, KeyChain]
) -> None:
    with pytest.raises(BrokerError) as caught:
        check(vector, authors)
    assert caught.value.code == vector["error"]
