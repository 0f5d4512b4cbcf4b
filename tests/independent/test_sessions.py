"""sessions.json and orders.json: docs/spec/protocol.md, 3."""

import base64

from tests.independent import orders, sessions
from tests.independent.orders import Order
from tests.independent.sessions import Statement
from tests.independent.vectors import Vector, cases, digest, expect, octets, people

BROKER = "https://broker.example:443"


@cases("sessions")
def test_statements_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """A broker takes Alice's statement, and none of those that differ from it."""
    expect(vector, lambda: _check_statement(vector))


@cases("orders")
def test_orders_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """An order holds for its user, its action and the very storing that its digest was made of."""
    expect(vector, lambda: _check_order(vector))


def _check_statement(vector: Vector) -> None:
    body, signature = octets(vector["statement"]), base64.b64decode(vector["signature"])
    statement = sessions.judge(body, signature, people()["alice"].chain, BROKER)
    assert statement == Statement(
        vector["origin"], octets(vector["fingerprint"]), vector["keyIndex"], octets(vector["nonce"])
    )
    assert statement.stored() == body


def _check_order(vector: Vector) -> None:
    body, signature = octets(vector["order"]), base64.b64decode(vector["signature"])
    action, chain = vector["action"], people()[vector["user"]].chain
    order = orders.judge(body, signature, chain, BROKER, action, digest(vector))
    assert order == Order(
        vector["origin"],
        octets(vector["fingerprint"]),
        vector["keyIndex"],
        octets(vector["nonce"]),
        vector["action"],
        octets(vector["digest"]),
    )
    assert order.stored() == body
