"""Objects are on the disk before a row names them, and a store that fails says so."""

import asyncio
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scbroker.crypto.seal import random_bytes
from scbroker.errors import InvalidArgumentError, OverloadedError
from scbroker.records.canonical import Fingerprint, UserId
from scbroker.server.broker import Broker, Call, SessionUser
from scbroker.server.migrations.upgrade import bring_up
from scbroker.server.parts import chunks
from scbroker.server.settings import Settings
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables
from scbroker.server.storage.blobs import (
    Blobs,
    Folder,
    good_until,
    is_name_of,
    new_blob_name,
    open_blobs,
)
from scbroker.server.storage.database import open_database

WROTE, READ = "put parts/00/check", "get parts/00/check"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was synced, in order, by its path."""
    found: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        found.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", fsync)
    return found


async def test_a_chunk_and_its_folder_are_synced_before_the_row_that_names_it(
    database_url: str, tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "objects"
    database = open_database(database_url)
    write = database.write

    async def watched(*args: Any) -> Any:
        result = await write(*args)
        synced.append("commit")
        return result

    monkeypatch.setattr(database, "write", watched)
    try:
        await bring_up(database)
        broker = Broker(Settings(), database, Folder(root), bytes(32), frozenset())
        path = {
            "containerId": random_bytes(16), "partId": random_bytes(16), "index": 0
        }  # fmt: skip
        user = SessionUser(
            UserId(random_bytes(16)), Fingerprint(random_bytes(32)), 2, random_bytes(32)
        )
        names = {"id": user.id, "fingerprint": user.fingerprint, "encryption_index": 0}
        row = {**sql.NEW_USER, **names}
        await database.write(lambda c: c.add(tables.users, row))
        synced.clear()
        await chunks.receive(broker, Call("test", "", path, user), memoryview(bytes(1000)))
    finally:
        await database.close()
    [file] = [path for path in root.rglob("*") if path.is_file()]
    assert file.read_bytes() == bytes(1000)
    assert synced == ["commit", str(file), str(file.parent), "commit"]


def test_a_new_stores_folders_are_synced_into_parents(tmp_path: Path, synced: list[str]) -> None:
    Folder(tmp_path / "objects")
    assert {str(tmp_path / "objects"), str(tmp_path / "objects" / "parts")} <= set(synced)


@pytest.mark.parametrize(
    "free, message",
    [
        (2**50, "The broker's object store failed (storing a chunk): try again later."),
        (2**20, "The broker's disk is full: tell its operator."),
    ],
)
def test_a_put_that_fails_on_a_disk_with_little_space_left_says_that_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, message: str
) -> None:
    folder = Folder(tmp_path / "objects")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=1))
    with pytest.raises(OverloadedError) as caught:
        asyncio.run(folder.put(new_blob_name(random_bytes(16)), b"x"))
    assert str(caught.value) == message


def test_a_store_gives_ranges_of_what_was_put_until_it_is_removed(tmp_path: Path) -> None:
    async def work(store: Blobs) -> None:
        name, other = (new_blob_name(random_bytes(16)) for _ in range(2))
        await store.check()
        await store.put(name, b"0123456789")
        await store.put(other, b"other")
        assert bytes(await store.get(name, 0, 10)) == b"0123456789"
        assert bytes(await store.get(name, 3, 5)) == b"34"
        assert (await store.size(name), await store.size(other)) == (10, 5)
        assert bytes(await store.whole(name) or b"") == b"0123456789"
        listed = [stored async for page in store.pages() for stored in page]
        assert {(stored.name, stored.size) for stored in listed} == {(name, 10), (other, 5)}
        assert all(stored.name.count(stored.part_id.hex()) == 1 for stored in listed)
        assert await store.presigned_urls("PUT", [name], 60) == []
        await store.remove([new_blob_name(random_bytes(16)), name, name])
        assert (await store.size(name), await store.whole(name)) == (None, None)
        assert [s.name async for page in store.pages() for s in page] == [other]
        with pytest.raises(LookupError):
            await store.get(name, 0, 1)
        assert bytes(await store.get(other, 0, 5)) == b"other"

    for store in (Folder(tmp_path / "objects"), open_blobs("memory:///")):
        asyncio.run(work(store))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was stored and read, in order."""
    found: list[str] = []

    def listen(kind: str) -> None:
        real = getattr(Folder, kind)

        async def heard(self: Folder, name: str, *arguments: Any) -> Any:
            found.append(f"{kind.strip('_')} {name}")
            return await real(self, name, *arguments)

        monkeypatch.setattr(Folder, kind, heard)

    listen("_put")
    listen("_get")
    return found


def _after(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """What the clock says that the store goes by."""
    clock = SimpleNamespace(monotonic=lambda: 1000.0 + seconds)
    monkeypatch.setattr("scbroker.server.storage.blobs.time", clock)


async def test_a_store_that_is_asked_whether_it_is_there_writes_once_a_minute_and_reads_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    store = Folder(tmp_path / "objects")
    _after(monkeypatch, 0)
    await asyncio.gather(*(store.check() for _ in range(5)))
    assert asked == [WROTE, READ]
    for seconds in (2, 30, 58):
        _after(monkeypatch, seconds)
        await store.check()
        await store.check()
    assert asked == [WROTE, READ, READ, READ, READ]
    _after(monkeypatch, 62)
    await store.check()
    assert asked[5:] == [WROTE, READ]


class _Broken:
    """Stands in for a store that cannot be reached: every use of it fails."""


async def test_a_store_that_cannot_be_reached_is_overloaded_whatever_is_asked_of_it() -> None:
    store = Blobs(_Broken())  # type: ignore[arg-type]

    for action in (
        store.put("parts/00/x", b"x"), store.get("parts/00/x", 0, 1), store.check(),
        store.size("parts/00/x"), store.whole("parts/00/x"), anext(aiter(store.pages())),
    ):  # fmt: skip
        with pytest.raises(OverloadedError):
            await action
    assert await store.remove(["parts/00/x"]) == {"parts/00/x": False}


@pytest.mark.long
async def test_an_s3_that_is_not_there_is_overloaded_after_bounded_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    store = open_blobs("s3://bucket/prefix")

    for action in (
        store.put("parts/00/x", b"x"),
        store.get("parts/00/x", 0, 1),
        store.size("parts/00/x"),
        store.check(),
    ):
        with pytest.raises(OverloadedError):
            await action
    assert not any((await store.remove(["parts/00/x", "parts/00/y"])).values())
    [url] = await store.presigned_urls("GET", ["parts/00/x"], 60)
    assert url.startswith(f"http://127.0.0.1:{port}/bucket/prefix/parts/00/x?")
    assert "X-Amz-Expires=60" in url


def test_a_name_says_for_which_part_it_is_and_how_long_others_may_write_there() -> None:
    part, other = random_bytes(16), random_bytes(16)
    own, given = new_blob_name(part), new_blob_name(part, 1_700_000_000_000_000)
    assert (good_until(own), good_until(given)) == (0, 1_700_000_000_000_000)
    for name in (own, given):
        assert is_name_of(name, part)
        assert not is_name_of(name, other)
        for wrong in (name + "/x", name + "\n", "x" + name, name.upper(), name[:-1] + "x", ""):
            assert not is_name_of(wrong, part)


@pytest.mark.parametrize("url", ["ftp://x", "file://relative", "s3:", "", "nonsense"])
def test_an_address_without_a_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="object_store_url"):
        open_blobs(url)
