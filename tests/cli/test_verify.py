"""The command that reads and verifies all containers."""

import contextlib
import os
import uuid

import pytest

from scbroker import ServerProvider
from tests.kit.people import Person, put
from tests.kit.tables import damage_parts

MIB = 1_048_576


@pytest.mark.long
def test_each_failure_is_named_with_its_reason_and_the_others_are_verified(
    alice: Person, session: ServerProvider
) -> None:
    ids = {name: put(session, name, name.encode()) for name in ("whole", "spoilt")}
    damage_parts(alice.broker.database_url, ids["spoilt"])
    large = put(session, "large", os.urandom(2 * MIB))
    spoil_objects(alice, large)
    done = alice.run("verify", status=1)
    assert f"scbroker: {ids['spoilt']}: " in done.error
    assert f"scbroker: {large}: " in done.error
    assert "1 of 3 containers verified" in done.error
    assert {each["id"] for each in alice.json("verify", status=1)["failures"]} == {
        str(ids["spoilt"]),
        str(large),
    }
    assert alice.json("verify", "whole")["verified"] == 1
    assert alice.json("verify", "whole", str(ids["whole"]))["containers"] == 1
    assert str(large) in alice.run("verify", str(large), status=1).error


def spoil_objects(alice: Person, container: uuid.UUID) -> None:
    """Change a byte in each stored object that is as large as a chunk of this container."""
    found = [each for each in alice.broker.directory.rglob("*") if each.is_file()]
    changed = 0
    for path in found:
        with contextlib.suppress(FileNotFoundError):  # swept meanwhile
            if path.stat().st_size > 2 * MIB and "sqlite" not in path.name:
                data = bytearray(path.read_bytes())
                data[MIB + 99] ^= 1
                path.write_bytes(data)
                changed += 1
    assert changed, (container, found)


def test_an_unknown_container_is_an_error_before_anything_is_read(alice: Person) -> None:
    assert "no container named" in alice.run("verify", "nothing", status=3).error
