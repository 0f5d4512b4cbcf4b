"""The command that reads and verifies all containers."""

import contextlib
import os
import uuid
from collections.abc import Callable

import pytest

from scbroker import AccessLevel, NewContainer, ServerProvider
from tests.kit.people import Person, befriend, put
from tests.kit.tables import damage_parts
from tests.kit.waiting import PATIENCE

MIB = 1_048_576


@pytest.mark.long
def test_all_containers_are_read_and_counted_small_and_large_ones(
    alice: Person, session: ServerProvider
) -> None:
    for size in (0, 10, 70_000, 3 * MIB):
        put(session, f"of {size} bytes", os.urandom(size))
    session.createContainer(None).result()
    found = alice.json("verify")
    assert (found["containers"], found["verified"], found["hidden"]) == (5, 5, 0)
    assert found["length"] == 10 + 70_000 + 3 * MIB
    assert (found["failures"], found["leftOut"]) == ([], [])
    done = alice.run("verify")
    assert "5 of 5 containers verified" in done.error
    assert done.output == alice.run("verify", "--quiet").error == ""


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


@pytest.mark.long
def test_hidden_contents_and_denied_containers_are_reported(
    alice: Person, session: ServerProvider, person: Callable[[str], Person]
) -> None:
    bob = person("Bob")
    own, bobs = session.getUserId().result(), befriend(session, bob, "Bob")
    with bob.session() as other:
        levels = [AccessLevel(own, "ViewAccess"), AccessLevel(bobs, 511)]
        put(other, "metadata only", b"x", accessLevels=levels)
        denied = put(other, "denied", accessLevels=[AccessLevel(own, 75), AccessLevel(bobs, 511)])
        assert alice.json("verify")["hidden"] == 1
        other.revokeAccess(denied, own).result()
    found = alice.json("verify")
    assert found["leftOut"] == [str(denied)]
    assert str(denied) in alice.run("verify").error


def test_an_unknown_container_is_an_error_before_anything_is_read(alice: Person) -> None:
    assert "no container named" in alice.run("verify", "nothing", status=3).error


@pytest.mark.long
def test_a_terminal_shows_a_bar_and_the_summary(alice: Person, session: ServerProvider) -> None:
    put(session, "large", os.urandom(20 * MIB))
    terminal = alice.at_terminal("verify")
    terminal.expect("Verifying")
    terminal.expect("1 of 1 containers verified")


@pytest.mark.long
def test_more_containers_than_one_page_are_all_verified(
    alice: Person, session: ServerProvider
) -> None:
    made = session.createContainers([NewContainer(b"x") for _ in range(200)]).result(PATIENCE)
    assert len(made) == 200
    found = alice.json("verify")
    assert (found["containers"], found["verified"], found["length"]) == (200, 200, 200)
