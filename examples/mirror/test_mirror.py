"""The mirror, with a real broker: `scbroker_broker` is the fixture of scbroker's pytest plugin."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from examples.mirror.mirror import Mirror
from scbroker import AccessLevel, ContainerAccessLevel, ServerProvider
from scbroker.testing import LocalBroker
from tests.kit.waiting import until

OWNER = ContainerAccessLevel.DefaultOwnerPermissions


@pytest.fixture
def alice(scbroker_broker: LocalBroker) -> ServerProvider:
    return scbroker_broker.new_user()


@pytest.fixture
def bob(scbroker_broker: LocalBroker) -> ServerProvider:
    return scbroker_broker.new_user()


@contextlib.asynccontextmanager
async def running(mirror: Mirror) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(mirror.run())
        yield
        task.cancel()


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*-*")}


def test_the_folder_follows_creations_changes_deletions_and_the_end_of_access(
    alice: ServerProvider, bob: ServerProvider, tmp_path: Path
) -> None:
    async def scenario() -> None:
        both = [
            AccessLevel(await alice.getUserId(), OWNER), AccessLevel(await bob.getUserId())
        ]  # fmt: skip
        early = await alice.createContainer(b"early", accessLevels=both)
        async with running(Mirror(bob, tmp_path)):
            await until(lambda: contents(tmp_path) == {str(early.id): b"early"})

            late = await alice.createContainer(bytes(300_000), accessLevels=both)
            await until(lambda: contents(tmp_path).get(str(late.id)) == bytes(300_000))

            await alice.updateContainerContent(late.id, b"changed")
            await until(lambda: contents(tmp_path)[str(late.id)] == b"changed")

            await alice.deleteContainer(late.id)
            await alice.updateContainerAccessLevels(early.id)
            await until(lambda: contents(tmp_path) == {})

    asyncio.run(scenario())


def test_a_restart_fetches_what_changed_and_removes_what_is_gone(
    alice: ServerProvider, tmp_path: Path
) -> None:
    (tmp_path / "11111111-2222-8333-8444-555555555555").write_bytes(b"of a deleted container")
    (tmp_path / "notes.txt").write_bytes(b"not a container")

    async def scenario() -> None:
        note = await alice.createContainer(b"a note")
        (tmp_path / str(note.id)).write_bytes(b"an older version")
        async with running(Mirror(alice, tmp_path)):
            await until(lambda: contents(tmp_path) == {str(note.id): b"a note"})
        assert (tmp_path / "notes.txt").exists()

    asyncio.run(scenario())
