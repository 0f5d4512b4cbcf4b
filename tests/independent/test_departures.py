"""departures.json: docs/spec/container.md, 4.1."""

from tests.independent import access_lists, container_records, departures
from tests.independent.access_lists import AccessList
from tests.independent.container_records import InForce, Judge
from tests.independent.vectors import (
    Vector,
    cases,
    chains,
    expect,
    load,
    octets,
    people,
    salted,
    signed,
)


@cases("departures")
def test_departures_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """A departure is from one list of one container, by its user, in time."""
    expect(vector, lambda: check(vector))


@cases("departures", "valid")
def test_departures_are_written_as_they_were_read(vector: Vector) -> None:
    """What was read of a departure is all that it says: writing it gives the same bytes."""
    departure = departures.parse(octets(vector["body"]))
    assert departure.stored() == octets(vector["body"])
    [author] = [one for one in people().values() if one.fingerprint == departure.fingerprint]
    again = departure.signed_by(author.signing[departure.key_index])
    judge = Judge(vector["now"], chains())
    assert judge.departed(_in_force(vector), [again]).left == {departure.fingerprint}


def check(vector: Vector) -> None:
    Judge(vector["now"], chains()).departed(_in_force(vector), [signed(vector)])


def _in_force(vector: Vector) -> InForce:
    """G, after the governing records before it."""
    judge, g = Judge(vector["now"], chains()), None
    for name in vector["governing"]:
        stored = load("departures")["given"]["records"][name]
        access = _access(stored, vector, name)
        if g is None:
            assert access is not None
            g = judge.first(signed(stored), access)
        else:
            found = judge.next(signed(stored), g, access, None)
            assert isinstance(found, InForce)
            g = found
    assert g is not None
    return g


def _access(stored: Vector, vector: Vector, name: str) -> AccessList | None:
    if "accessList" not in stored:
        return None
    record = container_records.parse(octets(stored["body"]))
    entries = [salted(one) for one in stored["accessList"]]
    positions = range(len(entries))
    if name == vector["governing"][-1]:
        positions = vector.get("disclosed", positions)
    return access_lists.disclosed(
        record.container_id,
        record.version,
        b"".join(entry.hash for entry in entries),
        [(position, entries[position]) for position in positions],
    )
