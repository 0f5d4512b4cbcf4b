"""key_rings.json: docs/spec/keyfile.md, 4."""

from tests.independent import key_files, key_records
from tests.independent.key_files import KeyRing
from tests.independent.keys import DecryptionKey, SigningKey
from tests.independent.vectors import Vector, cases, expect, load, octets, people, signed


@cases("key_rings")
def test_rings_are_compared_with_chains_as_the_vectors_say(vector: Vector) -> None:
    """A log-in is refused unless chain and KeyRing hold the same keys."""
    expect(vector, lambda: check(vector))


def check(vector: Vector) -> None:
    records = [signed(record) for record in vector["keyRecords"]]
    key_files.check_chain(_ring(vector), key_records.judge(records, vector["now"]))


def _ring(vector: Vector) -> KeyRing:
    person = people()[vector["ring"]]
    more = load("key_rings")["given"]["seeds"].get(vector["ring"], [])
    signing = [
        *person.signing,
        *(SigningKey(octets(one["ed25519"]), octets(one["mlDsa"])) for one in more),
    ]
    encryption = [
        *person.encryption,
        *(DecryptionKey(octets(one["mlKem"]), octets(one["x25519"])) for one in more),
    ]
    return KeyRing(
        1, tuple(signing[: vector["signing"]]), tuple(encryption[: vector["encryption"]])
    )
