"""segments.json: docs/spec/container.md, 3 and 6."""

from collections.abc import Callable

from tests.independent import segments
from tests.independent.keys import cobblestone_open, cobblestone_size
from tests.independent.segments import Part, Place
from tests.independent.vectors import Vector, cases, expect, octets


@cases("segments")
def test_parts_open_as_the_vectors_say(vector: Vector) -> None:
    """Segments, sealed keys, whole parts, lists and sizes are as in segments.json."""
    expect(vector, lambda: READERS[vector["kind"]](vector))


def _place(vector: Vector) -> Place:
    return Place(
        octets(vector["containerId"]),
        octets(vector["partId"]),
        vector["role"],
        octets(vector["author"]),
    )


def _segment(vector: Vector) -> None:
    context = _place(vector).segment_context(vector["index"], vector["last"])
    opened = cobblestone_open(octets(vector["partKey"]), context, octets(vector["sealed"]))
    assert vector["result"] == "invalid" or opened == octets(vector["plaintext"])


def _sealed_key(vector: Vector) -> None:
    opened = segments.open_part_key(
        octets(vector["containerKey"]),
        _place(vector),
        vector["paddedLength"],
        octets(vector["sealedKey"]),
    )
    assert vector["result"] == "invalid" or opened == (octets(vector["partKey"]), vector["length"])


def _part(vector: Vector) -> None:
    part = Part(
        octets(vector["partId"]),
        octets(vector["author"]),
        vector["paddedLength"],
        octets(vector["segments"]),
        octets(vector["sealedKey"]),
    )
    opened = segments.open_part(
        octets(vector["containerId"]),
        vector["role"],
        part,
        octets(vector["containerKey"]),
        octets(vector["hashes"]),
        [octets(segment) for segment in vector["sealed"]],
    )
    assert vector["result"] == "invalid" or opened == octets(vector["plaintext"])


def _list(vector: Vector) -> None:
    digest = segments.segments_hash(vector["paddedLength"], octets(vector["hashes"]))
    assert digest == octets(vector["segments"])


def _size(vector: Vector) -> None:
    count = segments.segment_count(vector["paddedLength"])
    assert count == vector["count"]
    last = segments.segment_size(vector["paddedLength"], count - 1)
    assert cobblestone_size(last) == vector["lastSealed"]


READERS: dict[str, Callable[[Vector], None]] = {
    "segment": _segment,
    "sealed key": _sealed_key,
    "part": _part,
    "list": _list,
    "size": _size,
}
