"""An invalid vector that no reader can accept differs from a valid one in one spot only."""

from typing import Any

import pytest

from scbroker.crypto.verify import VerifyingKey
from scbroker.errors import IntegrityError
from tests.independent import key_files, keys
from tests.independent.readers import READERS
from tests.kit.cases import in_one_case
from tests.vectors.beside import spots
from tests.vectors.cast import cast, signing_key
from tests.vectors.files import Vector, load, signature_of, vectors
from tests.vectors.story import signed_form

BESIDE = [(file, one) for file in READERS for one in vectors(file, "invalid") if "beside" in one]
each = in_one_case("file, vector", BESIDE)


@pytest.mark.long
@each
def test_a_vector_with_beside_differs_from_that_valid_vector_in_one_spot(
    file: str, vector: Vector
) -> None:
    content = load(file)
    (valid,) = (one for one in content["vectors"] if one["id"] == vector["beside"])
    assert valid["result"] == "valid"
    assert spots(content, valid, vector) == 1


LABELS = {
    "orders": "order", "sessions": "session", "key_records": "key-record",
    "container_records": "container-record", "departures": "departure",
    "group_departures": "group-departure",
}  # fmt: skip


@in_one_case("file", LABELS)
def test_the_signature_of_a_vector_with_beside_verifies(file: str) -> None:
    """The comparison ignores signatures, so they are verified here, also of bytes that do not decode."""
    found = [
        _signed(file, one) for name, one in BESIDE if name == file and one.get("records") != []
    ]
    signatures = [one for one in found if "signature" in one]
    assert signatures
    for one in signatures:
        (stored,) = (one[name] for name in ("body", "order", "statement") if name in one)
        body = bytes.fromhex(stored)
        body = signed_form(body) if file == "container_records" else body
        assert any(_holds(name, n, LABELS[file], body, one) for name in cast() for n in (0, 1))


def _signed(file: str, vector: Vector) -> dict[str, Any]:
    """Return the vector, or its last record if it has records: the one whose signature counts."""
    if "departures" in vector:
        found: dict[str, Any] = vector["departures"][-1]
        return found
    if "records" not in vector:
        return vector
    record: dict[str, Any] = load(file)["given"]["records"][vector["records"][-1]]
    return record


def _holds(name: str, index: int, label: str, body: bytes, signed: dict[str, Any]) -> bool:
    try:
        VerifyingKey(signing_key(name, index).public).verify(label, body, signature_of(signed))
    except IntegrityError:
        return False
    return True


@pytest.mark.usefixtures("real_argon2id")
def test_the_key_file_of_a_vector_with_beside_contains_its_key_ring() -> None:
    found = [one for _, one in BESIDE if "keyRing" in one]
    assert found
    for vector in found:
        user_id = bytes.fromhex(vector["userId"].replace("-", ""))
        file = key_files.parse(bytes.fromhex(vector["keyFile"]), user_id)
        key = key_files.password_key(b"correct horse", file.password_salt, file.fingerprint)
        context = key_files.password_context(file.fingerprint, file.password_salt)
        assert keys.cobblestone_open(key, context, file.password_part).hex() == vector["keyRing"]
