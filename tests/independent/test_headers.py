"""headers.json: docs/spec/container.md, 6."""

from tests.independent import headers
from tests.independent.vectors import Vector, cases, expect, octets


@cases("headers")
def test_headers_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """JSON that all programs read alike is accepted, and nothing else."""
    expect(vector, lambda: headers.parse(octets(vector["header"])))
