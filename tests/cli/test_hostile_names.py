"""Other users choose names and ids of what they share: none of them steers a command."""

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from scbroker import AccessLevel, ContainerAccessLevel, ServerProvider
from tests.kit.people import Person, put

pytestmark = pytest.mark.mostly_on_sqlite
WRITER = ContainerAccessLevel.DefaultUserPermissions | ContainerAccessLevel.Upload
PATIENCE = 30.0
SLOW = "a" + "\u0301" * 60_000 + "\u0327" * 60_000
"""To normalize this takes more than a minute."""


@pytest.fixture
def alice(person: Callable[[str], Person]) -> Person:
    return person("Alice")


@pytest.fixture
def session(alice: Person) -> Iterator[ServerProvider]:
    with alice.session() as provider:
        yield provider


@pytest.fixture
def mallory(person: Callable[[str], Person]) -> Iterator[ServerProvider]:
    with person("Mallory").session() as provider:
        yield provider


def share(
    mallory: ServerProvider, session: ServerProvider, name: str, *, writable: bool = False
) -> uuid.UUID:
    """Have Mallory share a container with the user of `session`."""
    level = AccessLevel(session.getUserId().result(), *([WRITER] if writable else []))
    own = AccessLevel(mallory.getUserId().result(), ContainerAccessLevel.DefaultOwnerPermissions)
    return put(mallory, name, b"evil", accessLevels=[own, level])


def test_a_name_that_begins_the_id_of_a_stranger_s_container_is_not_guessed(
    alice: Person, session: ServerProvider, mallory: ServerProvider
) -> None:
    hers = share(mallory, session, "any", writable=True)
    name = hers.hex[:6]
    own = put(session, name, b"mine")
    (alice.home / "file").write_text("secret")
    for command in (["get", name], ["cat", name], ["rm", name, "--yes"], ["info", name]):
        done = alice.run(*command, status=2)
        assert str(hers) in done.error, done
        assert own.hex[:8] in done.error
    assert "use an id" in alice.run("put", "file", "--into", name, "--yes", status=2).error
    assert alice.run("cat", str(own)).output == "mine"
    assert alice.run("cat", hers.hex[:7]).output == "evil"


def test_into_asks_before_it_writes_into_a_stranger_s_container_by_the_beginning_of_its_id(
    alice: Person, session: ServerProvider, mallory: ServerProvider
) -> None:
    hers = share(mallory, session, "any", writable=True)
    (alice.home / "file").write_text("secret")
    assert "not yours" in alice.run("put", "file", "--into", hers.hex[:8], status=2).error
    assert mallory.getContainerContent(hers).result(PATIENCE) == b"evil"


def test_into_by_name_asks_before_it_writes_what_others_can_read(
    alice: Person, session: ServerProvider, mallory: ServerProvider
) -> None:
    levels = [
        AccessLevel(session.getUserId().result(), 511),
        AccessLevel(mallory.getUserId().result(), WRITER),
    ]
    own = put(session, "shared.txt", b"known", accessLevels=levels)
    mallory.updateContainerHeader(own, {"name": "diary.txt"}).result(PATIENCE)
    (alice.home / "diary.txt").write_text("secret")
    error = alice.run("put", "diary.txt", "--into", "diary.txt", status=2).error
    assert "Others can read 'diary.txt'" in error
    assert mallory.getContainerContent(own).result(PATIENCE) == b"known"
    alice.run("put", "diary.txt", "--into", str(own))


def test_a_name_that_takes_minutes_to_normalize_does_not_slow_commands_down(
    alice: Person, session: ServerProvider, mallory: ServerProvider
) -> None:
    share(mallory, session, SLOW)
    share(mallory, session, f"f/{SLOW}")
    put(session, "f/a.txt", b"mine")
    start = time.monotonic()
    alice.run("ls")
    assert alice.run("cat", "f/a.txt").output == "mine"
    error = alice.run("get", "-r", "f/", status=2).error
    assert "is longer than 1024 bytes" in error
    assert len(error) < 20_000
    assert time.monotonic() - start < PATIENCE
