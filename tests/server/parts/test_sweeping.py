"""Whoever sweeps claims first, a bounded number at a time, and what is stuck stops nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from scbroker.crypto.seal import random_bytes
from scbroker.errors import IncompleteUploadError, OverloadedError, PartGoneError
from scbroker.records.canonical import Fingerprint, UserId
from scbroker.server.broker import Broker, Call, SessionUser
from scbroker.server.migrations.upgrade import bring_up
from scbroker.server.parts import chunks, presigned, sweeping
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables
from scbroker.server.storage.blobs import Folder, new_blob_name
from scbroker.wire.parts import SegmentsQuery, SentChunk, SentChunks
from tests.kit.beside import further_broker
from tests.kit.brokers import ENGINES, BrokerProcess, clock
from tests.kit.objects import folder_of
from tests.kit.tables import query
from tests.kit.writers import Story, session_of
from tests.server.conftest import NewUser

HOUR = 3_600_000_000
Between = Callable[[], Awaitable[object]]


class _Meddled(Folder):
    """A folder where something happens once: after a put or a look, or before a read."""

    between: Between | None = None

    async def _meddle(self) -> None:
        if (between := self.between) is not None:
            self.between = None
            await between()

    async def put(self, name: str, data: bytes | memoryview) -> None:
        await super().put(name, data)
        await self._meddle()

    async def sizes(self, names: Sequence[str]) -> list[int | None]:
        found = await super().sizes(names)
        await self._meddle()
        return found

    async def get(self, name: str, start: int, end: int) -> memoryview:
        await self._meddle()
        return await super().get(name, start, end)


class Scene:
    """A broker's parts on one database and a folder, and a user of it."""

    def __init__(self, database_url: str, root: Path) -> None:
        self.url, self.root = database_url, root
        self.user = SessionUser(
            UserId(random_bytes(16)), Fingerprint(random_bytes(32)), 2, random_bytes(32)
        )
        self.path: dict[str, bytes | int] = {
            "containerId": random_bytes(16), "partId": random_bytes(16), "index": 0
        }  # fmt: skip

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Broker, _Meddled]]:
        blobs = _Meddled(self.root)
        async with further_broker(self.url, blobs) as broker:
            await bring_up(broker.database)
            names = {
                "id": self.user.id,
                "fingerprint": self.user.fingerprint,
                "encryption_index": 0,
            }
            row = {**sql.NEW_USER, **names}
            await broker.database.write(lambda c: c.add(tables.users, row))
            yield broker, blobs

    @property
    def part(self) -> bytes:
        return self.call().part_id

    def call(self) -> Call:
        return Call("test", "", self.path, self.user)

    def sent(self, name: str, octets: bytes) -> SentChunks:
        hashes = chunks.hashes_of(memoryview(octets))
        return SentChunks(chunks=[SentChunk(index=0, name=name, hashes=hashes)])

    def named(self) -> list[str]:
        """What rows of chunks name."""
        return [name for (name,) in query(self.url, "SELECT blob FROM chunks ORDER BY blob")]

    def pending(self) -> dict[str, int]:
        return {
            str(name): int(since)
            for name, since in query(self.url, "SELECT name, since FROM pending_blobs")
        }

    def there(self, name: str) -> bool:
        return (self.root / name).is_file()

    def doom(self, since: int, *, good_until: int | None = None, stuck: bool = False) -> str:
        """An object pending deletion; a stuck one is a folder, which nobody removes as a file."""
        name = new_blob_name(self.part, good_until)
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if stuck:
            (path / "folder").mkdir(parents=True)
        else:
            path.write_bytes(bytes(1000))
        query(self.url, "INSERT INTO pending_blobs (name, since) VALUES (?, ?)", name, since)
        return name


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Scene:
    return Scene(database_url, tmp_path / "objects")


def _ahead(monkeypatch: pytest.MonkeyPatch, microseconds: int) -> None:
    """Whoever sweeps has a clock that is so far ahead."""
    monkeypatch.setattr(sweeping, "now", lambda: clock() + microseconds)


async def test_a_chunk_that_a_clock_ahead_swept_on_its_way_is_refused_and_can_be_sent_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ahead(monkeypatch, 2 * HOUR)

    async with scene.open() as (broker, blobs):
        blobs.between = lambda: sweeping.sweep(broker)
        with pytest.raises(OverloadedError):
            await chunks.receive(broker, scene.call(), memoryview(bytes(1000)))
        assert scene.named() == []
        await chunks.receive(broker, scene.call(), memoryview(bytes(1000)))
    [name] = scene.named()
    assert scene.there(name)
    assert scene.pending() == {}


@pytest.mark.sampled
@pytest.mark.parametrize("dropped", [False, True])
async def test_a_presigned_chunk_that_is_swept_between_check_and_write_gets_no_row(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, dropped: bool
) -> None:
    """The store is not asked for an object that had a row: its mark as pending deletion is kept."""
    until = clock() + HOUR // 4

    async with scene.open() as (broker, blobs):
        name = scene.doom(0 if dropped else until, good_until=until)
        if not dropped:
            _ahead(monkeypatch, 2 * HOUR)
        blobs.between = lambda: sweeping.sweep(broker)
        add = {
            "part_id": scene.part, "container_id": scene.call().container_id,
            "user_id": scene.user.id, "touched_at": clock() + HOUR, "committed": False, "received": 0,
        }  # fmt: skip
        await broker.database.write(lambda c: c.add(tables.parts, add))
        with pytest.raises(IncompleteUploadError):
            await presigned.sent(broker, scene.call(), scene.sent(name, bytes(1000)))
        assert (blobs.between is not None) == dropped
        assert scene.there(name) == dropped
    assert scene.named() == []


async def test_a_sweep_removes_a_bounded_number_of_chunks_and_a_part_with_its_last_chunk(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "_CHUNKS", 10)
    sizes = [3, 4, 25, 2]
    ids = [bytes([number]) * 16 for number in range(len(sizes))]

    async with scene.open() as (broker, _):
        for part_id, size in zip(ids, sizes, strict=True):
            query(
                scene.url,
                "INSERT INTO parts (part_id, container_id, user_id, touched_at, committed, "
                "replaced_at, received) VALUES (?, ?, ?, 1, ?, 1, 0)",
                part_id, bytes(16), scene.user.id, True,
            )  # fmt: skip
            for number in range(size):
                query(
                    scene.url, "INSERT INTO chunks VALUES (?, ?, 1, ?, ?, ?)",
                    part_id, number, bytes(32), new_blob_name(part_id), bytes(32),
                )  # fmt: skip
        left = []
        while True:
            swept = await sweeping.sweep_some(broker)
            left.append((len(scene.named()), swept.parts))
            if not swept.more:
                break
        assert left == [(24, 2), (14, 0), (4, 0), (0, 2)]
    assert query(scene.url, "SELECT part_id FROM parts") == []
    assert scene.pending() == {}


async def test_objects_that_cannot_be_deleted_hold_up_no_others_and_are_tried_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "_BLOBS", 3)

    async with scene.open() as (broker, _):
        others = [scene.doom(since) for since in (2, 3, 4)]
        stuck = [scene.doom(since, stuck=True) for since in (0, 0, 0, 1)]
        with pytest.raises(OverloadedError):
            await sweeping.sweep(broker)
        found = await sweeping.sweep_some(broker)
        assert (found.objects, found.failed, found.more) == (2, 1, True)
        assert (await sweeping.sweep_some(broker)).objects == 1
        assert not any(map(scene.there, others))
        assert not await sweeping.sweep(broker)
        assert scene.pending().keys() == set(stuck)
        (scene.root / stuck[0] / "folder").rmdir()
        (scene.root / stuck[0]).rmdir()
        _ahead(monkeypatch, 2 * HOUR)
        for _ in range(2):
            try:
                await sweeping.sweep(broker)
            except OverloadedError:
                continue
        assert scene.pending().keys() == set(stuck[1:])


@pytest.mark.long
@pytest.mark.only_on(*ENGINES)  # it looks into the folder
async def test_a_content_that_is_deleted_while_it_is_read_is_gone_and_not_a_fault(
    new_user: NewUser, fresh_broker: BrokerProcess
) -> None:
    alice = new_user(at=fresh_broker)
    story = Story(alice)
    part = story.upload(alice, bytes(70_000))
    story.tell(alice, story.begin(content=part))
    scene = Scene(fresh_broker.database_url, folder_of(fresh_broker))
    scene.user = session_of(alice)
    scene.path = {"containerId": story.id, "partId": part.partId}

    blobs, asked = _Meddled(scene.root), SegmentsQuery(first=0, count=1)
    async with further_broker(scene.url, blobs) as broker:

        async def sweep() -> None:
            query(scene.url, "UPDATE parts SET replaced_at = 0 WHERE part_id = ?", part.partId)
            await sweeping.sweep(broker)

        found: Any = await chunks.segments(broker, scene.call(), asked)
        assert len(found) > 65_536
        blobs.between = sweep
        with pytest.raises(PartGoneError):
            await chunks.segments(broker, scene.call(), asked)
