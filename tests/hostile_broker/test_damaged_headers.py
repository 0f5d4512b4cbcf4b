"""Attacks by members who write a header that nobody can read. Attack 154 of `catalogue`."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from scbroker import ServerProvider
from scbroker.client.containers import change
from scbroker.filesystem import ContainerFileSystem
from tests.hostile_broker.catalogue import attack
from tests.kit.people import Person, befriend, offer, put
from tests.kit.waiting import PATIENCE


class Spoilt:
    """A header that does not become JSON."""

    def model_dump_json(self) -> str:
        return "{not JSON"


damaging = attack(154, "damaged part in the way")
WRITER = 79


@pytest.fixture
def engine() -> str:
    """SQLite: commands know nothing of the broker's engine."""
    return "sqlite"


@pytest.fixture
def alice(person: Callable[[str], Person]) -> Person:
    return person("Alice")


@pytest.fixture
def session(alice: Person) -> Iterator[ServerProvider]:
    with alice.session() as provider:
        yield provider


@pytest.fixture
def mallory(person: Callable[[str], Person]) -> Person:
    return person("Mallory")


@pytest.fixture
def spoil(
    session: ServerProvider, mallory: Person, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], uuid.UUID]:
    """Make a container of Alice's to which Mallory writes a header that is not JSON."""

    def make() -> uuid.UUID:
        with mallory.session() as hers:
            own = offer(session, hers, "notes.txt", WRITER)
            with monkeypatch.context() as patched:
                for check in ("_check_strict", "_check_comes_back"):  # of her program
                    patched.setattr(change, check, lambda *_: None)
                hers.updateContainerHeader(own, Spoilt()).result(PATIENCE)
        return own

    return make


@damaging
def test_a_command_on_an_id_goes_on_without_a_header(
    alice: Person, session: ServerProvider, mallory: Person, spoil: Callable[[], uuid.UUID]
) -> None:
    user = befriend(session, mallory, "Mallory")
    spoilt = str(spoil())
    done = alice.run("info", spoilt)
    assert "header is damaged" in done.error
    assert "Mallory" in done.output
    assert "header is damaged: name a file" in alice.run("get", spoilt, status=2).error
    alice.run("get", spoilt, "-o", "saved")
    assert (alice.home / "saved").read_bytes() == b"shared"
    alice.run("revoke", spoilt, str(user))
    alice.run("mv", spoilt, "repaired.txt")
    assert alice.run("cat", "repaired.txt").output == "shared"
    for act in (
        lambda: alice.run("rm", str(spoil()), "-y"),
        lambda: ContainerFileSystem(provider=session).rm(f"id:{spoil()}"),
    ):
        act()
    assert len(alice.run("ls").lines) == 1


@damaging
def test_no_command_fails_by_a_container_that_a_stranger_has_damaged(
    alice: Person, session: ServerProvider, mallory: Person, spoil: Callable[[], uuid.UUID]
) -> None:
    put(session, "photos/a", b"mine")
    spoilt = spoil()
    found = alice.json("verify")
    assert (found["verified"], found["length"], found["ofStrangers"]) == (1, 4, 1), "not even read"
    assert str(spoilt) in alice.run("verify", "--everyone", status=None).error
    commands = (
        ("ls",), ("get", "-r", "photos/", "-f"), ("mirror", "folder", "--once"),
        ("link", "-r", "photos/", "--until", "1h"), ("verify",),
    )  # fmt: skip
    for command in commands:
        done = alice.run(*command)
        assert f"scbroker info {spoilt}" in done.error or command[0] in ("mirror", "verify"), (
            command
        )
    assert str(spoilt) in alice.run("ls").output
    befriend(session, mallory, "Mallory")
    for command in commands:
        done = alice.run(*command, status=None)
        assert done.status, command
        assert str(spoilt) in done.output + done.error, command
