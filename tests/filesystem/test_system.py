"""Containers are files by their names: what is written is read, and no step guesses a container."""

import contextlib
import gc
import gzip
import importlib.metadata
import io
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

from scbroker import AccessLevel, BrokerError, ContainerAccessLevel, ContentReader, ServerProvider
from scbroker.filesystem import ContainerFileSystem
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider, StartBroker
from tests.kit.people import offer, put
from tests.kit.waiting import PATIENCE, wait_until

MIB = 2**20
TIME = "2026-01-01T00:00:00.000000Z"


def names_of(files: ContainerFileSystem, path: str) -> list[str]:
    return sorted(files.ls(path, detail=False))


def test_the_entry_point_makes_scbroker_a_protocol_of_fsspec(alice: ServerProvider) -> None:
    [entry] = importlib.metadata.entry_points(group="fsspec.specs", name="scbroker")
    assert entry.load() is ContainerFileSystem
    with fsspec.open("scbroker://a/b.txt", "w", provider=alice, encoding="utf-8") as file:
        file.write("Grüße")
    with fsspec.open("scbroker://a/b.txt", "rb", provider=alice) as file:
        assert file.read() == "Grüße".encode()
    [found] = [each for each in alice.iterContainers() if not isinstance(each, BrokerError)]
    assert found.header is not None
    assert found.header.customHeaderObject == {"name": "a/b.txt", "mediaType": "text/plain"}


def test_no_clear_text_is_written_to_the_disk(
    files: ContainerFileSystem, broker: BrokerProcess, tmp_path: Path
) -> None:
    written = list[str]()
    watching = [True]

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            written.append(str(arguments[0]))

    sys.addaudithook(note)  # for as long as the process lives
    (tmp_path / "noted").touch()
    with files.open("a", "wb", block_size=MIB) as file:
        file.write(bytes(3 * MIB))
    assert files.cat("a") == bytes(3 * MIB)
    with files.open("a") as file:
        file.read(1)
    watching.clear()
    own = [each for each in written if not each.startswith(str(broker.directory))]
    assert own == [str(tmp_path / "noted")]


def test_folders_are_beginnings_of_names(files: ContainerFileSystem) -> None:
    files.pipe({"a/b/c": b"1", "a/d": b"22", "e": b"333"})
    assert names_of(files, "") == ["a", "e"]
    assert names_of(files, "scbroker:///a/") == ["a/b", "a/d"]
    assert files.find("") == ["a/b/c", "a/d", "e"]
    assert files.glob("a/*") == ["a/b", "a/d"]
    assert files.du("") == 6
    assert [each[0] for each in files.walk("")] == ["", "a", "a/b"]
    assert files.isdir("a/b")
    assert not files.isfile("a/b")
    files.rm("a", recursive=True)
    assert names_of(files, "") == ["e"]
    assert not files.exists("a")
    for missing in ("a", "a/b/c", "e/f"):
        with pytest.raises(FileNotFoundError, match="No container"):
            files.ls(missing)


def test_a_replaced_file_of_the_command_line_loses_the_time_by_which_put_skips_it(
    files: ContainerFileSystem, alice: ServerProvider
) -> None:
    for size in (3, 9 * MIB):
        header = {"name": f"{size}", "modified": TIME, "note": 1}
        made = alice.createContainer(b"one", header).result(PATIENCE)
        files.invalidate_cache()
        with files.open(f"{size}", "wb") as file:
            file.write(bytes(size))
        found = alice.getContainer(made.id).result(PATIENCE)
        assert found.content == bytes(size)
        assert found.header is not None
        assert found.header.customHeaderObject == {"name": f"{size}", "note": 1}


def test_an_error_in_the_block_leaves_the_container_as_it_was(
    files: ContainerFileSystem, alice: ServerProvider
) -> None:
    alice.createContainer(b"old", {"name": "a", "modified": TIME}).result(PATIENCE)
    ways: list[Callable[[], Any]] = [
        lambda: files.open("a", "wb"),
        lambda: files.open("a", "w"),
        lambda: fsspec.open("scbroker://a", "w", provider=alice),
    ]
    for opened in ways:
        for size in (3, 9 * MIB):
            with pytest.raises(KeyError), opened() as file:  # noqa: PT012 # of the block
                file.write("x" * size if isinstance(file, io.TextIOBase) else bytes(size))
                raise KeyError
    with pytest.raises(KeyError), files.transaction:  # noqa: PT012
        files.pipe("a", b"new")
        files.pipe("b", bytes(9 * MIB))
        raise KeyError
    files.invalidate_cache()
    assert files.cat("a") == b"old"
    assert files.info("a")["version"] == 1
    assert names_of(files, "") == ["a"]


@pytest.mark.parametrize("size", [3, 9])
def test_a_transaction_stores_no_file_that_was_discarded_or_is_still_open(
    files: ContainerFileSystem, size: int
) -> None:
    files.pipe({"a": b"old", "b": b"old"})
    with files.transaction:
        with contextlib.suppress(KeyError), files.open("a", "wb", block_size=4) as file:
            file.write(bytes(size))
            raise KeyError
        files.pipe("b", b"new")
    assert files.cat(["a", "b"]) == {"a": b"old", "b": b"new"}
    with pytest.raises(BrokerError.invalidArgumentError, match="not closed"), files.transaction:  # noqa: PT012 # at its end
        file = files.open("a", "wb", block_size=4)
        file.write(bytes(size))
    file.close()
    assert files.cat("a") == b"old"


def share(alice: ServerProvider, made: uuid.UUID, other: uuid.UUID) -> None:
    level = AccessLevel(other, ContainerAccessLevel.DefaultOwnerPermissions)
    alice.grantAccess(made, level).result(PATIENCE)


def rename(alice: ServerProvider, made: uuid.UUID, _: uuid.UUID) -> None:
    alice.updateContainerHeader(made, {"name": "b", "modified": TIME}).result(PATIENCE)


def replace(alice: ServerProvider, made: uuid.UUID, other: uuid.UUID) -> None:
    rename(alice, made, other)
    make_twin(alice, made, other)


def delete(alice: ServerProvider, made: uuid.UUID, _: uuid.UUID) -> None:
    alice.deleteContainer(made).result(PATIENCE)


def make_twin(alice: ServerProvider, _: uuid.UUID, __: uuid.UUID) -> None:
    alice.createContainer(b"two", {"name": "a", "modified": TIME}).result(PATIENCE)


def write(
    files: ContainerFileSystem, way: str, source: uuid.UUID, happen: Callable[[], object]
) -> None:
    """Write "new content" to the path "a"; let something happen before all of it is handed over."""
    if way == "copied":
        read = ContentReader.readRange

        def observed(reader: ContentReader, offset: int, length: int) -> Any:
            if offset == 4:
                happen()
            return read(reader, offset, length)

        files.blocksize = 4
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ContentReader, "readRange", observed)
            files.cp_file(f"id:{source}", "a")
    else:
        with files.open("a", "wb", block_size=4 if way == "in blocks" else 99) as file:
            file.write(b"new ")
            happen()
            file.write(b"content")


@pytest.mark.sampled
@pytest.mark.parametrize("way", ["in blocks", "in one block", "copied"])
@pytest.mark.parametrize(
    "act, error",
    [
        (share, PermissionError),
        (rename, FileNotFoundError),
        (replace, FileNotFoundError),
        (delete, FileNotFoundError),
        (make_twin, None),
    ],
)
def test_a_content_goes_to_the_container_that_was_opened_or_nowhere(
    alice: ServerProvider,
    mallory: ServerProvider,
    act: Callable[[ServerProvider, uuid.UUID, uuid.UUID], None],
    error: type[OSError] | None,
    way: str,
) -> None:
    files = ContainerFileSystem(provider=alice, use_listings_cache=False)
    source, other = put(alice, None, b"new content"), mallory.getUserId().result(PATIENCE)

    def stored() -> dict[uuid.UUID, Any]:
        listed = [each for each in alice.iterContainers() if not isinstance(each, BrokerError)]
        read = [alice.getContainer(each.id) for each in listed]
        found = [each.result(PATIENCE) for each in read]
        return {
            each.id: (each.header and each.header.customHeaderObject, each.content)
            for each in found
        }

    for header in ({"name": "a"}, {"name": "a", "modified": TIME}):
        made = alice.createContainer(b"one", header).result(PATIENCE).id
        expected: dict[uuid.UUID, Any] = {}

        def happen(made: uuid.UUID = made, expected: dict[uuid.UUID, Any] = expected) -> None:
            act(alice, made, other)
            expected.update(stored())

        with pytest.raises(error) if error else contextlib.nullcontext():
            write(files, way, source, happen)
        if error is None:
            expected[made] = ({"name": "a"}, b"new content")
        assert stored() == expected
        for id in expected.keys() - {source}:
            alice.deleteContainer(id).result(PATIENCE)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_container_keeps_its_version_if_its_upload_has_failed_before_it_is_committed(
    start_broker: StartBroker, new_provider: NewProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = new_provider(True, at=start_broker(max_pending_bytes=MIB))
    made = alice.createContainer(b"one", {"name": "a", "modified": TIME}).result(PATIENCE)
    is_closed, uploads, update = threading.Event(), list[Any](), alice.updateContainerContent

    def observed(id: uuid.UUID, content: Iterator[bytes]) -> Any:
        def delayed() -> Iterator[bytes]:
            block = next(content)
            is_closed.wait(PATIENCE)
            yield block
            yield from content

        uploads.append(update(id, delayed()))
        return uploads[0]

    monkeypatch.setattr(alice, "updateContainerContent", observed)
    file = ContainerFileSystem(provider=alice).open("a", "wb", autocommit=False)
    file.write(bytes(9 * MIB))
    file.close()
    is_closed.set()
    wait_until(lambda: uploads[0].done())
    with pytest.raises(BrokerError.tooLargeError):
        file.commit()
    for each in threading.enumerate():
        if each.name.startswith("scbroker-caller"):  # it reads the content
            each.join(PATIENCE)
    found = alice.getContainer(made.id).result(PATIENCE)
    assert (found.version, found.content) == (1, b"one")


def test_a_content_of_several_blocks_makes_no_second_container_of_a_name(
    files: ContainerFileSystem,
) -> None:
    for mode in ("wb", "xb"):
        file = files.open(mode, mode, block_size=4)
        file.write(b"first")
        files.pipe(mode, b"second")
        files.invalidate_cache()
        with pytest.raises(FileExistsError):
            file.close()
        assert files.cat(mode) == b"second"
    files.invalidate_cache()
    assert names_of(files, "") == ["wb", "xb"]


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["wb", "xb", "w"])
def test_a_file_that_is_dropped_without_being_closed_is_not_stored(
    files: ContainerFileSystem, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    for size in (3, 9 * MIB):
        file = files.open("a", mode)
        file.write("x" * size if isinstance(file, io.TextIOBase) else bytes(size))
        del file
        gc.collect()
    assert caplog.messages == ["'a' was never closed: nothing of it is stored."] * 2
    files.invalidate_cache()
    assert files.find("") == []


@pytest.mark.parametrize("mode", ["wb", "x"])
def test_a_compressed_file_is_stored_when_it_is_closed_and_only_then(
    files: ContainerFileSystem, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    content: Any = b"content" if mode == "wb" else "content"
    file = files.open("a.gz", mode, compression="infer")
    file.write(content)
    del file
    gc.collect()
    assert caplog.messages == ["'a.gz' was never closed: nothing of it is stored."]
    with pytest.raises(KeyError), files.open("a.gz", mode, compression="gzip") as file:  # noqa: PT012 # of the block
        file.write(content)
        raise KeyError
    assert files.find("") == []
    with files.open("a.gz", mode, compression="infer") as file:
        file.write(content)
    assert gzip.decompress(files.cat("a.gz")) == b"content"
    with files.open("a.gz", "r" if mode == "x" else "rb", compression="gzip") as file:
        assert file.read() == content


@pytest.mark.long
def test_a_large_file_is_sent_while_it_is_written_and_read_by_ranges(
    files: ContainerFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []
    read_range = ContentReader.readRange

    def counted(reader: ContentReader, offset: int, length: int) -> Any:
        fetched.append(length)
        return read_range(reader, offset, length)

    monkeypatch.setattr(ContentReader, "readRange", counted)
    content = os.urandom(11 * MIB + 5)
    with files.open("large", "wb", block_size=MIB) as file:
        for start in range(0, len(content), 100_000):
            file.write(content[start : start + 100_000])
    assert files.size("large") == len(content)
    with files.open("large") as file:
        file.seek(-7, io.SEEK_END)
        assert file.read() == content[-7:]
        assert sum(fetched) == 7
        file.seek(5 * MIB - 3)
        assert file.read(6) == content[5 * MIB - 3 : 5 * MIB + 3]
        assert sum(fetched) < 5 * MIB
    assert files.cat_file("large", -2 * MIB, -MIB) == content[-2 * MIB : -MIB]
    assert files.cat_ranges(["large"] * 2, [0, MIB], [2, MIB + 2]) == [
        content[:2],
        content[MIB : MIB + 2],
    ]
    files.cp("large", "copy")
    assert files.cat("copy") == content


def test_a_reader_has_the_content_as_it_was_when_the_file_was_opened(
    files: ContainerFileSystem,
) -> None:
    files.pipe("a", b"old" * MIB)
    with files.open("a", block_size=MIB) as file:
        assert file.read(3) == b"old"
        files.pipe("a", b"n")
        assert file.read() == b"old" * (MIB - 1)
    assert files.cat("a") == b"n"


def test_mv_renames_the_container_and_keeps_all_else(
    files: ContainerFileSystem, alice: ServerProvider
) -> None:
    made = alice.createContainer(b"one", {"name": "a/b.txt", "note": 1}).result(PATIENCE)
    files.pipe("a/c", b"two")
    files.mv("a", "d", recursive=True)
    assert files.find("") == ["d/b.txt", "d/c"]
    found = alice.getContainer(made.id).result(PATIENCE)
    assert (found.content, found.version) == (b"one", 2)
    assert found.header is not None
    expected = {"name": "d/b.txt", "mediaType": "text/plain", "note": 1}
    assert found.header.customHeaderObject == expected
    with pytest.raises(FileExistsError):
        files.mv("d/b.txt", "d/c")
    assert files.cat("d/c") == b"two"


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["wb", "xb"])
def test_threads_that_create_one_name_make_one_container(
    files: ContainerFileSystem, alice: ServerProvider, mode: str
) -> None:
    opened = [files.open("log/a", mode) for _ in range(4)]
    for n, each in enumerate(opened):
        each.write(b"%d" % n)
    with ThreadPoolExecutor(4) as threads:
        done = [threads.submit(each.close) for each in opened]
    failed = [each.exception() for each in done if each.exception() is not None]
    assert [type(each) for each in failed] == ([FileExistsError] * 3 if mode == "xb" else [])
    [found] = alice.iterContainers()
    assert not isinstance(found, BrokerError)
    assert found.version == (1 if mode == "xb" else 4)
    assert files.cat("log/a") in (b"0", b"1", b"2", b"3")


def test_threads_that_rename_to_one_name_make_no_second_container_of_it(
    files: ContainerFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.pipe({"a": b"one", "b": b"two"})
    read, claimed, claims, others = files._changeable, files.claimed, list[str](), list[Any]()

    def noted(path: str) -> Any:
        claims.append(path)
        return claimed(path)

    def read_late(*args: str) -> Any:
        if not others:
            others.append(threads.submit(files.mv, "b", "c"))
            wait_until(lambda: len(claims) == 2 or others[0].done())
        return read(*args)

    monkeypatch.setattr(files, "claimed", noted)
    monkeypatch.setattr(files, "_changeable", read_late)
    with ThreadPoolExecutor(1) as threads:
        files.mv("a", "c")
    assert isinstance(others[0].exception(), FileExistsError)
    files.invalidate_cache()
    assert (names_of(files, ""), files.cat("c")) == (["b", "c"], b"one")


def test_of_several_own_containers_of_a_name_the_newest_is_used_and_none_is_deleted_or_renamed_by_it(
    files: ContainerFileSystem, alice: ServerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [put(alice, "a", content) for content in (b"one", b"two")]
    acts: list[Callable[[str], Any]] = [files.rm, lambda path: files.mv(path, "b")]
    for act in acts:
        with pytest.raises(
            BrokerError.invalidArgumentError, match="2 containers are named"
        ) as error:
            act("a")
        assert all(str(each) in str(error.value) for each in ids)
    info = files.info("a")
    assert sorted(info["containerIds"]) == sorted(map(str, ids))
    assert (info["containerId"], files.cat("a")) == (str(ids[1]), b"two")
    files.pipe("a", b"newest")
    assert files.cat("a") == files.cat(f"id:{ids[1]}") == b"newest"
    assert [each for each in caplog.messages if "2 of your containers are named 'a'" in each] == [
        caplog.messages[0]
    ]
    files.mv(f"id:{ids[0]}", "b")
    files.pipe(f"scbroker://id:{ids[1]}", b"three")
    assert (files.cat("a"), files.cat("b")) == (b"three", b"one")
    files.rm(f"id:{ids[1]}")
    files.invalidate_cache()
    assert names_of(files, "") == ["b"]


def test_a_session_without_rights_gets_a_permission_error(
    files: ContainerFileSystem, alice: ServerProvider, mallory: ServerProvider
) -> None:
    hers = offer(mallory, alice, "a", ContainerAccessLevel.Download)
    with pytest.raises(PermissionError, match="hide the content"):
        files.cat(f"id:{hers}")
    readable = offer(mallory, alice, "b", ContainerAccessLevel.DefaultUserPermissions)
    for act in (files.rm, lambda path: files.pipe(path, b"")):
        with pytest.raises(PermissionError):
            act(f"id:{readable}")


# The listing.


def test_the_names_are_read_once_and_own_changes_are_noted(
    files: ContainerFileSystem,
    alice: ServerProvider,
    count_listings: Callable[[ServerProvider], list[int]],
) -> None:
    seen = count_listings(alice)
    files.pipe({"a/b": b"1", "a/c": b"22"})
    files.pipe("a/c", b"333")
    files.mv("a/b", "d")
    files.cp("d", "e")
    files.rm("d")
    assert [(each["name"], each["size"]) for each in files.ls("a")] == [("a/c", 3)]
    other = ContainerFileSystem(provider=alice, listings_expiry_time=600)
    assert other.find("") == ["a/c", "e"]
    assert len(seen) == 1
