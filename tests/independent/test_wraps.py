"""wraps.json: docs/spec/container.md, 3."""

from tests.independent import wraps
from tests.independent.vectors import Vector, cases, expect, octets, people


@cases("wraps")
def test_wraps_open_as_the_vectors_say(vector: Vector) -> None:
    """A wrap opens with the one key and info that it was made for; the commitment tells its key."""
    expect(vector, lambda: _open(vector))


def _open(vector: Vector) -> None:
    container_id = octets(vector["containerId"])
    info = wraps.WrapInfo(
        container_id,
        vector["accessVersion"],
        octets(vector["accessAuthor"]),
        octets(vector["recipient"]),
        vector["keyIndex"],
    )
    private = people()[vector["private"]].encryption[vector["privateIndex"]]
    key = wraps.unwrap_key(private, info, octets(vector["wrap"]))
    if vector["result"] == "invalid":
        return
    assert key == octets(vector["key"])
    committed = wraps.key_commitment(container_id, key) == octets(vector["keyCommitment"])
    assert committed == vector["commits"]
