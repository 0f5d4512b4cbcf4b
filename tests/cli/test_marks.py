"""The commands that show and reset a device's marks, against a real broker."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scbroker import FileTrustStore, ServerProvider
from scbroker.cli.app import app
from scbroker.client import events
from scbroker.client.containers import fetching
from scbroker.client.containers.fetching import mark_of
from tests.kit.brokers import BrokerProcess

PASSWORD, PASSPHRASE = "correct Horse 7", "battery Staple 8"
PATIENCE = 30.0
Run = Callable[..., str]


@pytest.fixture
def engine() -> str:
    """SQLite: the commands know nothing of it."""
    return "sqlite"


@pytest.fixture
def device(broker: BrokerProcess, tmp_path: Path) -> Any:
    """A device that keeps its marks in a folder, of a user with one container."""
    with ServerProvider(
        broker.api_key, broker.url, "device", trustStore=FileTrustStore(tmp_path)
    ) as provider:
        provider.register(PASSWORD, PASSPHRASE).result(PATIENCE)
        yield provider


@pytest.fixture
def run(broker: BrokerProcess, device: ServerProvider, tmp_path: Path) -> Run:
    """Run a command on the device's folder and return what it prints."""
    user = device.getUserId().result(PATIENCE)
    environment = {"SCBROKER_API_KEY": str(broker.api_key), "SCBROKER_SERVER_URL": broker.url}

    def command(*arguments: str, exit_code: int = 0) -> str:
        options = ["--user", str(user), "--trust-store", str(tmp_path)]
        done = CliRunner().invoke(
            app, ["mark", *arguments, *options], input=f"{PASSPHRASE}\n", env=environment
        )
        assert done.exit_code == exit_code, (done.output, done.exception)
        return done.output

    return command


def put_ahead(device: ServerProvider, container: uuid.UUID) -> None:
    """Make the device's marks those of a history that the broker does not have."""
    session: Any = device._current
    stored, mark = mark_of(session, container.bytes)
    assert mark is not None
    ahead = type(mark)(7, b"a" * 32, mark.governingVersion, mark.governingHash, True,
                       mark.createdBy, mark.createdAt)  # fmt: skip
    assert session.marks.swap(fetching.KIND, container.bytes, stored, ahead.encode())
    log = session.marks.get("events", b"")
    assert session.marks.swap("events", b"", log, events.Mark(7, 7, b"b" * 32).encode())


def test_both_heads_are_shown_and_the_served_one_is_accepted_as_it_was_printed(
    device: ServerProvider, run: Run
) -> None:
    container = device.createContainer(b"content").result(PATIENCE).id
    device.getEvents().result(PATIENCE)
    put_ahead(device, container)
    for command in (["container", str(container)], ["events"]):
        shown = run(*command)
        assert "verified by this device: 7:" in shown
        accept = shown.split("--accept ")[1].split()[0]
        assert accept.startswith("1:")
        assert "The served one is accepted." in run(*command, "--accept", accept)
        assert "--accept" not in run(*command)
    assert device.getContainerContent(container).result(PATIENCE) == b"content"
    assert len(device.getEvents().result(PATIENCE)) == 1


def test_another_head_is_not_accepted_and_a_malformed_one_is_an_error_that_says_how(
    device: ServerProvider, run: Run
) -> None:
    container = device.createContainer(b"content").result(PATIENCE).id
    run("container", str(container), "--accept", f"2:{'00' * 32}", exit_code=1)
    assert "VERSION:HASH" in run("events", "--accept", "the last one", exit_code=2)
