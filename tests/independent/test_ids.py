"""ids.json and people.json: docs/spec/ids.md, 1 to 3."""

from collections.abc import Callable

from tests.independent import ids
from tests.independent.encodings import labelled_hash, uuid8, uuid_of_text, uuid_text
from tests.independent.key_records import ENCRYPTION, SIGNING
from tests.independent.keys import check_encryption_key, check_signing_key
from tests.independent.vectors import Person, Vector, cases, expect, octets, people


@cases("ids")
def test_names_and_keys_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """Hashes, UUIDs, names and public keys give the values and the verdicts of ids.json."""
    expect(vector, lambda: READERS[vector["kind"]](vector))


def _hash(vector: Vector) -> None:
    assert labelled_hash(vector["name"], octets(vector["message"])) == octets(vector["hash"])


def _uuid8(vector: Vector) -> None:
    assert uuid_text(uuid8(octets(vector["hash"]))) == vector["uuid"]


def _user(vector: Vector) -> None:
    fingerprint = ids.fingerprint_of(octets(vector["signingKey"]))
    assert fingerprint == octets(vector["fingerprint"])
    assert uuid_text(ids.user_id_of(fingerprint)) == vector["userId"]
    assert ids.shown(fingerprint) == vector["shown"]


def _container(vector: Vector) -> None:
    container_id = ids.container_id_of(octets(vector["creator"]), octets(vector["nonce"]))
    assert uuid_text(container_id) == vector["containerId"]


def _uuid_text(vector: Vector) -> None:
    found = uuid_of_text(vector["text"])
    if vector["result"] == "valid":
        assert uuid_text(found) == vector["text"]


def _signing_key(vector: Vector) -> None:
    ml_dsa = people()[vector["mlDsaOf"]].signing[0].public[32:]
    check_signing_key(octets(vector["ed25519"]) + ml_dsa)


def _encryption_key(vector: Vector) -> None:
    if "mlKem" in vector:
        ml_kem = octets(vector["mlKem"])
    else:
        ml_kem = people()[vector["mlKemOf"]].encryption[0].public[:1184]
    check_encryption_key(ml_kem + octets(vector["x25519"]))


READERS: dict[str, Callable[[Vector], None]] = {
    "hash": _hash,
    "uuid8": _uuid8,
    "user": _user,
    "container": _container,
    "uuid text": _uuid_text,
    "signing key": _signing_key,
    "encryption key": _encryption_key,
}


@cases("people")
def test_a_persons_seeds_give_the_keys_that_their_chain_publishes(vector: Vector) -> None:
    """Each user's chain is valid, and its keys are those of the seeds, in the same order."""
    person = Person(vector)
    published = person.chain.keys
    assert [key.public for key in published[SIGNING]] == [key.public for key in person.signing]
    assert [key.public for key in published[ENCRYPTION]] == [
        key.public for key in person.encryption
    ]
    assert person.chain.fingerprint == ids.fingerprint_of(person.signing[0].public)
    assert uuid_text(ids.user_id_of(person.fingerprint)) == vector["userId"]
