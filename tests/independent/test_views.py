"""views.json: docs/spec/container.md, 4, 5 and 8."""

from typing import Any

from tests.independent import views
from tests.independent.encodings import uuid_of_text
from tests.independent.vectors import Vector, cases, chains, expect, load, octets, people
from tests.independent.views import Mark, Reader


@cases("views")
def test_views_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """What a broker withholds, exchanges, rolls back or forks is refused, with a mark and without."""
    expect(vector, lambda: check(vector))


def check(vector: Vector) -> None:
    person = people()[vector["reader"]]
    reader = Reader(
        person.fingerprint,
        person.encryption,
        chains(),
        vector["now"],
        _mark(vector["mark"]),
        _groups(vector),
    )
    found = views.read(reader, octets(vector["containerId"]), octets(vector["view"]))
    if vector["result"] == "invalid":
        return
    assert found.version == vector["version"]
    assert found.complete == vector["complete"]
    assert found.deleted == vector.get("deleted", False)
    assert found.header == _or_none(vector["header"])
    assert found.content == _or_none(vector["content"])
    assert found.type == vector["type"]
    assert found.unsettled == vector.get("unsettled")


def _groups(vector: Vector) -> dict[bytes, bytes]:
    served = load("views")["given"]["groups"]
    groups = vector.get("groups", {})
    return {uuid_of_text(group): octets(served[name]) for group, name in groups.items()}


def _mark(mark: dict[str, Any] | None) -> Mark | None:
    if mark is None:
        return None
    hashes = octets(mark["hash"]), octets(mark["governingHash"])
    return Mark(
        mark["version"],
        hashes[0],
        mark["governingVersion"],
        hashes[1],
        mark["complete"],
        mark["accessTime"],
    )


def _or_none(text: str | None) -> bytes | None:
    return None if text is None else octets(text)
