"""The vectors as they lie beside this package, and the people in them."""

import base64
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.independent import key_records, orders
from tests.independent.access_lists import Salted
from tests.independent.encodings import RefusedError
from tests.independent.key_records import KeyChain, Signed, record_hash
from tests.independent.keys import DecryptionKey, SigningKey
from tests.independent.orders import Storing

FOLDER = Path(__file__).parent.parent / "vectors"

Vector = dict[str, Any]

AFTER_ALL_OF_THEM = 1_900_000_000_000_000
"""A clock by which no key record of people.json is of the future."""


@functools.cache
def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return content


def expect(vector: Vector, read: Callable[[], object]) -> None:
    """Reads a vector, which has to be refused if it is invalid, as what it says."""
    if vector["result"] == "valid":
        read()
        return
    with pytest.raises(RefusedError) as refused:
        read()
    assert refused.value.kind == vector["error"], refused.value


def octets(digits: str) -> bytes:
    return bytes.fromhex(digits)


def signed(stored: Vector) -> Signed:
    signature = stored.get("signature")
    body = octets(stored["body"])
    return Signed(body, None if signature is None else base64.b64decode(signature, validate=True))


def salted(stored: Vector) -> Salted:
    return Salted(octets(stored["salt"]), octets(stored["entry"]))


def storing(name: str) -> Storing:
    """One of those of orders.json."""
    given = load("orders")["given"]
    found = given["storings"][name]
    replaces = found["replaces"]
    return Storing(
        octets(found["keyFile"]),
        found["generation"],
        octets(found["auth"]),
        found["reminder"],
        None if replaces is None else octets(replaces),
        found["endOtherSessions"],
        [octets(given["keyRecords"][number]) for number in found["keyRecords"]],
    )


class Person:
    def __init__(self, vector: Vector) -> None:
        self.name: str = vector["id"]
        self.fingerprint = octets(vector["fingerprint"])
        self.signing = [
            SigningKey(octets(key["ed25519"]), octets(key["mlDsa"])) for key in vector["signing"]
        ]
        self.encryption = [
            DecryptionKey(octets(key["mlKem"]), octets(key["x25519"]))
            for key in vector["encryption"]
        ]
        self.records = [signed(record) for record in vector["keyRecords"]]

    @functools.cached_property
    def chain(self) -> KeyChain:
        return key_records.judge(self.records, AFTER_ALL_OF_THEM)


@functools.cache
def people() -> dict[str, Person]:
    return {vector["id"]: Person(vector) for vector in load("people")["vectors"]}


def chains() -> dict[bytes, KeyChain]:
    return {person.fingerprint: person.chain for person in people().values()}


def digest(vector: Vector) -> bytes:
    """What the order of a vector has to name."""
    if vector["storing"] is not None:
        return storing(vector["storing"]).digest
    if vector["action"] == orders.DELETE_USER:
        return record_hash(octets(load("orders")["given"]["closingRecords"][vector["user"]]))
    return orders.NO_DIGEST
