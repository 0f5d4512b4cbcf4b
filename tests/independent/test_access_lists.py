"""access_lists.json: docs/spec/container.md, 4."""

from tests.independent import access_lists
from tests.independent.access_lists import AccessList
from tests.independent.vectors import Vector, cases, expect, load, octets, salted


@cases("access_lists")
def test_lists_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """Entries, their combinations and their order give the hashes and verdicts of the vectors."""
    expect(vector, lambda: _check(vector))


@cases("access_lists", "valid")
def test_entries_are_written_as_they_were_read(vector: Vector) -> None:
    """What was read of an entry is all that it says: writing it gives the same bytes."""
    for stored in vector.get("entries", []) + vector.get("disclosed", []):
        entry = octets(stored["entry"])
        assert access_lists.parse_entry(entry).stored() == entry


def _check(vector: Vector) -> None:
    access = _read(vector)
    if vector["result"] == "invalid":
        return
    assert access.entry_hashes == _entry_hashes(vector)
    assert access.hash == octets(vector["hash"])
    assert access.complete == vector.get("complete", True)


def _read(vector: Vector) -> AccessList:
    given = load("access_lists")["given"]
    container_id, version = octets(given["containerId"]), given["accessVersion"]
    if "entries" in vector:
        return access_lists.whole(container_id, version, [salted(e) for e in vector["entries"]])
    seen = [(stored["position"], salted(stored)) for stored in vector["disclosed"]]
    return access_lists.disclosed(container_id, version, _entry_hashes(vector), seen)


def _entry_hashes(vector: Vector) -> bytes:
    if "repeated" in vector:
        return octets(vector["repeated"]) * int(vector["count"])
    return octets(vector["entryHashes"])
