"""key_files.json: docs/spec/keyfile.md, 1 and 2."""

from tests.independent import key_files
from tests.independent.encodings import uuid_of_text
from tests.independent.vectors import Vector, cases, expect, octets


@cases("key_files")
def test_key_files_open_as_the_vectors_say(vector: Vector) -> None:
    """The passphrase opens what is valid, alone or with the password, and nothing else."""
    expect(vector, lambda: _open(vector))


@cases("key_files", "valid")
def test_passphrases_give_what_the_vectors_say(vector: Vector) -> None:
    """auth and wrap follow from the passphrase and the userId alone."""
    keys = key_files.passphrase_keys(vector["passphrase"], uuid_of_text(vector["userId"]))
    assert (keys.auth, keys.wrap) == (octets(vector["auth"]), octets(vector["wrap"]))


@cases("key_files", "valid")
def test_passwords_open_key_files_alone(vector: Vector) -> None:
    """A password that the vector gives opens the file without the passphrase."""
    if vector["password"] is None:
        file = key_files.parse(octets(vector["keyFile"]), uuid_of_text(vector["userId"]))
        password = key_files.secret_octets("correct horse")
        key = key_files.password_key(password, file.password_salt, file.fingerprint)
        assert key == octets(vector["passwordKey"])
        return
    file_octets, user_id = octets(vector["keyFile"]), uuid_of_text(vector["userId"])
    ring = key_files.open_with_password(file_octets, user_id, vector["password"])
    assert ring.stored() == octets(vector["keyRing"])


def _open(vector: Vector) -> None:
    ring = key_files.open_with_passphrase(
        octets(vector["keyFile"]),
        uuid_of_text(vector["userId"]),
        vector["passphrase"],
        vector["password"],
    )
    if vector["result"] == "invalid":
        return
    assert ring.stored() == octets(vector["keyRing"])
    assert ring.generation == vector["generation"]
