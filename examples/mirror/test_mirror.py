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


def test_a_folder_named_like_a_container_is_left_alone(
    alice: ServerProvider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = tmp_path / "11111111-2222-8333-8444-555555555555"
    (gone / "kept").mkdir(parents=True)

    async def scenario() -> None:
        hidden = await alice.createContainer(b"hidden by a folder")
        (tmp_path / str(hidden.id)).mkdir()
        note = await alice.createContainer(b"a note")
        async with running(Mirror(alice, tmp_path)):
            await until((tmp_path / str(note.id)).exists)
            await alice.updateContainerContent(hidden.id, b"changed")
            late = await alice.createContainer(b"late")
            await until((tmp_path / str(late.id)).exists)
        assert (tmp_path / str(hidden.id)).is_dir()

    asyncio.run(scenario())
    assert (gone / "kept").is_dir()
    assert f"{gone} is a folder" in caplog.text


def test_a_container_that_does_not_fit_is_left_out_and_fits_once_others_are_gone(
    alice: ServerProvider, bob: ServerProvider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Bob's containers are shared with Alice, who has not asked for them."""

    async def scenario() -> None:
        both = [
            AccessLevel(await bob.getUserId(), OWNER), AccessLevel(await alice.getUserId())
        ]  # fmt: skip
        note = await alice.createContainer(bytes(60_000))
        async with running(Mirror(alice, tmp_path, most_bytes=100_000)):
            await until(lambda: str(note.id) in contents(tmp_path))
            large = await bob.createContainer(bytes(50_000), accessLevels=both)
            await until(lambda: f"{large.id} was not mirrored: 50000 bytes" in caplog.text)
            small = await bob.createContainer(bytes(40_000), accessLevels=both)
            await until(lambda: str(small.id) in contents(tmp_path))
            assert str(large.id) not in contents(tmp_path)

            await alice.deleteContainer(note.id)
            await until(lambda: str(note.id) not in contents(tmp_path))
            await bob.updateContainerContent(large.id, bytes(55_000))
            await until(lambda: str(large.id) in contents(tmp_path))

    asyncio.run(scenario())


def test_a_content_that_has_grown_since_it_was_measured_is_removed(
    alice: ServerProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        note = await alice.createContainer(bytes(60_000))
        mirror = Mirror(alice, tmp_path, most_bytes=100)
        answers = iter([True])
        real = mirror._has_space
        monkeypatch.setattr(mirror, "_has_space", lambda *of: next(answers, None) or real(*of))
        await mirror._fetch(note.id)

    asyncio.run(scenario())
    assert contents(tmp_path) == {}
