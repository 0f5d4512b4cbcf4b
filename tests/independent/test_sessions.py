"""sessions.json and orders.json: docs/spec/protocol.md, 3."""

import base64

from tests.independent import key_records, orders, sessions
from tests.independent.encodings import uuid_of_text
from tests.independent.orders import Order
from tests.independent.sessions import Broker, Statement
from tests.independent.vectors import (
    AFTER_ALL_OF_THEM,
    Vector,
    cases,
    digest,
    expect,
    load,
    octets,
    people,
    signed,
)

BROKER = "https://broker.example:443"


@cases("sessions")
def test_statements_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """A broker takes Alice's statement, and none of those that differ from it."""
    expect(vector, lambda: _check_statement(vector))


@cases("orders")
def test_orders_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """An order holds for its user, its action and the very storing that its digest was made of."""
    expect(vector, lambda: _check_order(vector))


def _broker() -> Broker:
    return Broker(octets(load("sessions")["given"]["brokerKey"]))


def _check_statement(vector: Vector) -> None:
    if vector["kind"] != "statement":
        _check_computed(vector)
        return
    body, signature = octets(vector["statement"]), base64.b64decode(vector["signature"])
    chain = people()[vector["user"]].chain
    if vector.get("closed"):
        closing = signed(load("sessions")["given"]["closingRecord"])
        chain = key_records.judge([*people()[vector["user"]].records, closing], AFTER_ALL_OF_THEM)
    origin = vector.get("brokerOrigin", BROKER)
    statement = sessions.judge(
        body, signature, chain, origin, lambda nonce: _broker().check_nonce(nonce, vector["now"])
    )
    if vector["result"] == "valid":
        assert statement == Statement(
            vector["origin"],
            octets(vector["fingerprint"]),
            vector["keyIndex"],
            octets(vector["nonce"]),
        )
        assert statement.stored() == body


def _check_computed(vector: Vector) -> None:
    """Nonces, verifiers and device passes are of the broker's key."""
    broker = _broker()
    if vector["kind"] == "nonce":
        found = broker.nonce(octets(vector["random"]), vector["expiry"])
        assert found == octets(vector["nonce"])
        return
    user_id = uuid_of_text(vector["userId"])
    if vector["kind"] == "verifier":
        assert broker.verifier(user_id, octets(vector["auth"])) == octets(vector["verifier"])
    else:
        found = broker.device_pass(user_id, octets(vector["deviceId"]))
        assert found == octets(vector["devicePass"])


def _check_order(vector: Vector) -> None:
    body, signature = octets(vector["order"]), base64.b64decode(vector["signature"])
    action, chain = vector["action"], people()[vector["user"]].chain
    origin = vector.get("brokerOrigin", BROKER)
    order = orders.judge(body, signature, chain, origin, action, digest(vector))
    if vector["result"] == "invalid":
        return
    assert order == Order(
        vector["origin"],
        octets(vector["fingerprint"]),
        vector["keyIndex"],
        octets(vector["nonce"]),
        vector["action"],
        octets(vector["digest"]),
    )
    assert order.stored() == body
