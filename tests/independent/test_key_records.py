"""key_records.json: docs/spec/ids.md, 4."""

from tests.independent import key_records
from tests.independent.encodings import uuid_of_text
from tests.independent.key_records import KeyChain, Mark
from tests.independent.vectors import Vector, cases, expect, load, octets, signed


@cases("key_records")
def test_chains_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """K1 to K7 and the mark give the verdicts of key_records.json."""
    expect(vector, lambda: _read(vector))


@cases("key_records", "valid")
def test_key_records_are_written_as_they_were_read(vector: Vector) -> None:
    """What was read of a record is all that it says: writing it gives the same bytes."""
    for name in vector["records"]:
        body = octets(load("key_records")["given"]["records"][name]["body"])
        assert key_records.parse(body).stored() == body


def _read(vector: Vector) -> KeyChain:
    stored = load("key_records")["given"]["records"]
    records = [signed(stored[name]) for name in vector["records"]]
    chain = key_records.judge(records, vector["now"])
    if "userId" in vector:
        chain.check_user(uuid_of_text(vector["userId"]))
    if "pin" in vector:
        chain.check_pin(octets(vector["pin"]))
    if "mark" in vector:
        chain.check_mark(Mark(vector["mark"]["sequence"], octets(vector["mark"]["hash"])))
    return chain
