"""messages.json: docs/spec/protocol.md, 1 and 5."""

from tests.independent import messages
from tests.independent.vectors import Vector, cases, expect, octets


@cases("messages")
def test_messages_are_read_as_the_vectors_say(vector: Vector) -> None:
    """Unknown, doubled and missing fields are refused, and so is every encoding but the shortest."""
    expect(vector, lambda: read(vector))


def read(vector: Vector) -> object:
    more = octets(vector["repeated"]) * vector["count"] if "repeated" in vector else b""
    return messages.read(vector["kind"], octets(vector["message"]) + more)
