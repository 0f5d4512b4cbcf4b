"""events.json: docs/spec/protocol.md, 5."""

from typing import Any

from tests.independent import events
from tests.independent.vectors import Vector, cases, expect, octets


@cases("events")
def test_logs_have_the_digests_of_the_vectors(vector: Vector) -> None:
    """The digest stays when an event is emptied, and an event that says more is refused."""
    expect(vector, lambda: check(vector))


def check(vector: Vector) -> None:
    digest = events.digest([_event(event) for event in vector["events"]])
    if vector["result"] == "valid":
        assert digest == octets(vector["digest"])


def _event(event: dict[str, Any]) -> dict[str, Any]:
    names = ("salt", "detailsHash")
    return {**event, **{name: octets(event[name]) for name in names if event.get(name)}}
