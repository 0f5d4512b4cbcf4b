"""`scbroker admin backup` beside a running broker, and `restore` of what it made: all of it opens again."""

import datetime
import resource
import shutil
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scbroker import AccessLevel, BrokerError, ContainerAccessLevel, FileTrustStore
from scbroker.errors import OverloadedError
from scbroker.server.keys import write_synced
from scbroker.server.storage.blobs import Folder, new_blob_name
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider, StartBroker
from tests.kit.operators import admin
from tests.kit.tables import dump, query
from tests.kit.waiting import PATIENCE, wait_until

LARGE = 9 * 1_048_576
SECRETS = ("A password 1", "A passphrase 1")
OWNER = ContainerAccessLevel.DefaultOwnerPermissions


@pytest.fixture
def engine() -> str:
    """SQLite: backups of PostgreSQL are its own."""
    return "sqlite"


@pytest.fixture
def served(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(part_grace_seconds=1)


def restored(broker: BrokerProcess, source: Path, *options: str) -> BrokerProcess:
    """A further broker, not started, with what a backup holds and the first one's key."""
    directory = source.with_name(f"{source.name} restored")
    admin(broker, "restore", source, *options, at=directory).expect(0)
    if not (directory / "broker.key").exists():
        shutil.copy(broker.directory / "broker.key", directory)
    other = BrokerProcess(directory)
    other.api_key = broker.api_key
    other.settings["api_key"] = broker.api_key
    return other


def everything(path: Path) -> set[tuple[str, bytes]]:
    files = (each for each in path.rglob("*") if each.is_file())
    return {(str(each.relative_to(path)), each.read_bytes()) for each in files}


@pytest.mark.long
def test_after_a_restore_every_container_opens_and_every_user_logs_in(
    served: BrokerProcess, new_provider: NewProvider, tmp_path: Path
) -> None:
    """Small, large, shared, updated, deleted; by KeyRing, and by the KeyFile that the broker keeps."""
    alice = new_provider(at=served, trustStore=FileTrustStore(tmp_path / "marks"))
    alice.register(*SECRETS).result(PATIENCE)
    bob = new_provider(True, at=served)
    me, him = alice.getUserId().result(PATIENCE), bob.getUserId().result(PATIENCE)
    ring = bob.getKeyRing().result(PATIENCE)
    both = [AccessLevel(me, OWNER), AccessLevel(him)]
    large = bytes(range(256)) * (LARGE // 256)
    contents = {
        alice.createContainer(b"small", {"n": 1}).result(PATIENCE).id: b"small",
        alice.createContainer(large, accessLevels=both).result(PATIENCE).id: large,
        alice.createContainer(None, {"n": 2}, accessLevels=both).result(PATIENCE).id: None,
    }
    updated = alice.createContainer(large, accessLevels=both, type="note").result(PATIENCE).id
    alice.updateContainerContent(updated, large[:70_000]).result(PATIENCE)
    contents[updated] = large[:70_000]
    deleted = alice.createContainer(large, accessLevels=both).result(PATIENCE).id
    alice.deleteContainer(deleted).result(PATIENCE)
    events = bob.getEvents().result(PATIENCE)

    done = admin(served, "backup", tmp_path / "copy").expect(0)
    assert "The broker's key is not in it" in done.last
    assert not (tmp_path / "copy" / "broker.key").exists()
    alice.updateContainerHeader(updated, {"n": "later"}).result(PATIENCE)
    alice.close()

    with restored(served, tmp_path / "copy") as other:
        admin(other, "check").expect(0)
        fresh = new_provider(at=other)
        fresh.logIn(userId=me, password=SECRETS[0], passphrase=SECRETS[1]).result(PATIENCE)
        hers = new_provider(ring, at=other)
        for container, content in contents.items():
            assert fresh.getContainerContent(container).result(PATIENCE) == content
        for container in list(contents)[1:]:
            assert hers.getContainerContent(container).result(PATIENCE) == contents[container]
        for device in (fresh, hers):
            with pytest.raises(BrokerError.deletedError):
                device.getContainer(deleted).result(PATIENCE)
        assert hers.getEvents().result(PATIENCE) == events
        fresh.updateContainerContent(updated, b"on it goes").result(PATIENCE)
        assert hers.getContainerContent(updated).result(PATIENCE) == b"on it goes"

    with restored(served, copy_of(tmp_path / "copy")) as other:
        seen = new_provider(at=other, trustStore=FileTrustStore(tmp_path / "marks"))
        seen.logIn(userId=me, password=SECRETS[0], passphrase=SECRETS[1]).result(PATIENCE)
        with pytest.raises(BrokerError.rollbackError):
            seen.getContainer(updated).result(PATIENCE)


def copy_of(backup: Path) -> Path:
    target = backup.with_name("another")
    shutil.copytree(backup, target)
    return target


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--link"]], ids=["copies", "links"])
def test_a_backup_that_is_taken_under_load_is_whole_and_holds_up_nobody(
    served: BrokerProcess, new_provider: NewProvider, tmp_path: Path, options: list[str]
) -> None:
    writers = [new_provider(True, at=served) for _ in range(3)]
    rings = [writer.getKeyRing().result(PATIENCE) for writer in writers]
    done, written, changes, meanwhile = threading.Event(), [0, 0, 0], [0, 0, 0], 0

    def write(number: int) -> dict[uuid.UUID, bytes]:
        writer, kept = writers[number], {}
        while not done.is_set():
            content = bytes([number]) * (70_000 + written[number])
            made = writer.createContainer(content).result(PATIENCE).id
            changes[number] += 1
            writer.updateContainerContent(made, content[:-1]).result(PATIENCE)
            changes[number] += 1
            if written[number] % 2:
                writer.deleteContainer(made).result(PATIENCE)
            else:
                kept[made] = content[:-1]
            written[number] += 1
        return kept

    copies = [tmp_path / f"copy {number}" for number in range(3)]
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(write, number) for number in range(3)]
        try:
            for copy in copies:
                before = sum(written)
                wait(written, before + 5)
                before = sum(changes)
                admin(served, "backup", copy, *options).expect(0)
                meanwhile += sum(changes) - before
        finally:
            done.set()
        kept = [each.result(PATIENCE) for each in running]
    assert meanwhile, "a backup may be faster than a change, three of them are not"

    for copy in copies:
        with restored(served, copy) as other:
            admin(other, "check").expect(0)
            there = {row[0] for row in query(other.database_url, "SELECT id FROM containers")}
            live = {
                row[0]
                for row in query(other.database_url, "SELECT id FROM containers WHERE NOT deleted")
            }
            assert there
            for ring, contents in zip(rings, kept, strict=True):
                reader = new_provider(ring, at=other)
                for container, content in contents.items():
                    if container.bytes in live:
                        found = reader.getContainerContent(container).result(PATIENCE)
                        assert found in (content, content + content[:1])
    sizes = [len(dump(f"sqlite:///{copy / 'broker.sqlite'}")["records"]) for copy in copies]
    assert sizes == sorted(sizes)
    if options:
        copied = (copies[0] / "objects").rglob("*-*")
        assert any(each.stat().st_nlink > 1 for each in copied), "but for those deleted since"
    admin(served, "sweep").expect(0)


def wait(written: list[int], beyond: int) -> None:
    wait_until(lambda: sum(written) > beyond)


async def test_while_a_backup_is_taken_nothing_is_removed_and_then_it_is(tmp_path: Path) -> None:
    mine, theirs = Folder(tmp_path), Folder(tmp_path)
    name, other = new_blob_name(bytes(16)), new_blob_name(bytes(16))

    await mine.put(name, b"x")
    with mine.keeping():
        with pytest.raises(OverloadedError, match="backup"):
            await theirs.remove([name])
        await theirs.put(other, b"still stored")
    assert (tmp_path / name).exists()
    await theirs.remove([name])
    assert not (tmp_path / name).exists()


# What is refused, and what is damaged


@pytest.fixture
def backed_up(served: BrokerProcess, new_provider: NewProvider, tmp_path: Path) -> Path:
    """A backup with two large contents."""
    alice = new_provider(True, at=served)
    for size in (70_000, 80_000):
        alice.createContainer(bytes(size)).result(PATIENCE)
    admin(served, "backup", tmp_path / "copy").expect(0)
    return tmp_path / "copy"


def an_object(root: Path) -> Path:
    return min((root / "objects").rglob("*-*"))


def _flip(path: Path) -> None:
    octets = bytearray(path.read_bytes())
    octets[len(octets) // 2] ^= 1
    path.write_bytes(octets)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda copy: (copy / "manifest.json").unlink(), "is not a finished backup"),
    "another manifest": (
        lambda copy: (copy / "manifest.json").write_bytes(b"{}"),
        "cannot be read",
    ),
    "a later format": (
        lambda copy: (copy / "manifest.json").write_text(
            (copy / "manifest.json").read_text().replace('"format": 1', '"format": 2')
        ),
        "later version",
    ),
    "a damaged database": (lambda copy: _flip(copy / "broker.sqlite"), "missing or damaged"),
    "no database": (lambda copy: (copy / "broker.sqlite").unlink(), "missing or damaged"),
    "a damaged object": (lambda copy: _flip(an_object(copy)), "1 objects of this backup"),
    "a missing object": (lambda copy: an_object(copy).unlink(), "1 objects of this backup"),
}


@pytest.mark.long
@pytest.mark.parametrize("what", REFUSED)
def test_a_backup_that_is_not_whole_is_refused_and_nothing_is_made(
    served: BrokerProcess, backed_up: Path, tmp_path: Path, what: str
) -> None:
    damage, said = REFUSED[what]
    damage(backed_up)
    there = tmp_path / "there"
    assert said in admin(served, "restore", backed_up, at=there).expect(2).error
    assert not there.exists()


@pytest.mark.long
@pytest.mark.parametrize("command", ["backup", "restore"])
def test_neither_backup_nor_restore_writes_into_a_folder_that_is_not_empty(
    served: BrokerProcess, backed_up: Path, tmp_path: Path, command: str
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "mine").write_text("mine")
    made = there if command == "backup" else backed_up
    at = there if command == "restore" else None
    assert "not empty" in admin(served, command, made, at=at).expect(2).error
    assert everything(there) == {("mine", b"mine")}
    at = served.directory
    assert "not empty" in admin(served, "restore", backed_up, at=at).expect(2).error


@pytest.mark.long
def test_a_backup_names_what_is_damaged_and_takes_all_the_rest(
    served: BrokerProcess, backed_up: Path, tmp_path: Path
) -> None:
    del backed_up
    first, second = sorted((served.directory / "objects").rglob("*-*"))
    first.unlink()
    _flip(second)
    done = admin(served, "backup", tmp_path / "next").expect(1)
    told = sorted(line.rpartition(": ")[2] for line in done.lines[:2])
    assert told == ["its object has other bytes.", "its object is missing."]
    assert (tmp_path / "next" / "manifest.json").exists()
    assert (
        tmp_path / "next" / "objects" / second.relative_to(served.directory / "objects")
    ).exists()


@pytest.mark.long
def test_the_key_is_left_out_unless_it_is_asked_for_and_a_broker_without_it_says_so(
    served: BrokerProcess, backed_up: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    assert "broker.key" in admin(served, "restore", backed_up, at=there).expect(0).last
    with pytest.raises(RuntimeError, match="key is missing"):
        BrokerProcess(there).start()
    admin(served, "backup", "--with-key", tmp_path / "with key").expect(0)
    admin(served, "restore", tmp_path / "with key", at=tmp_path / "all").expect(0)
    assert (tmp_path / "all" / "broker.key").read_bytes() == (
        served.directory / "broker.key"
    ).read_bytes()
    for path in ("broker.key", "broker.sqlite"):
        assert (tmp_path / "all" / path).stat().st_mode & 0o77 == 0
    with BrokerProcess(tmp_path / "all"):
        pass


@pytest.mark.long
def test_a_broker_does_not_start_where_a_restore_was_cut_off(
    served: BrokerProcess, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    (there / "restoring").mkdir(parents=True)
    with pytest.raises(RuntimeError, match="cut off"):
        BrokerProcess(there).start()
    assert "cut off" in admin(served, "api-keys", "create", "x", at=there).expect(2).error
    assert not (there / "broker.sqlite").exists()


def test_backup_and_restore_of_a_broker_on_postgresql_name_the_guide(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", "postgresql://user:secret@127.0.0.1:1/x")
    for command in ("backup", "restore"):
        done = admin(broker, command, tmp_path / "copy").expect(2)
        assert "docs/guide/backup.md" in done.error
        assert "secret" not in done.error


DATED = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9][0-9][0-9][0-9][0-9]Z"


def backups_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.glob(DATED))


def test_a_file_that_cannot_be_written_is_named_in_the_error(tmp_path: Path) -> None:
    """As on a full disk: without its name the command said that standard output cannot be used."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGE, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            write_synced(tmp_path / "object", bytes(LARGE + 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(tmp_path / "object")


@pytest.mark.long
def test_dated_backups_are_kept_up_to_a_number_and_nothing_else_is_removed(
    served: BrokerProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "nightly"
    admin(served, "backup", folder / "2026-01-01T030000Z").expect(0)
    for name in ("2026-01-02T030000Z", "mine", "2026-01-03"):  # the first was cut off
        (folder / name).mkdir()
        (folder / name / "file").touch()
    (folder / "2026-01-04T030000Z").symlink_to(folder / "mine")
    (folder / "2026-01-05T030000Z").touch()
    removed = admin(served, "backup", folder, "--keep", "2").expect(0).lines
    assert [line for line in removed if "Removed" in line] == [
        f"Removed {folder / '2026-01-02T030000Z'}."
    ]
    first, *_, second = (each for each in backups_in(folder) if (folder / each).is_dir())
    assert first == "2026-01-01T030000Z"
    wait_until(lambda: datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H%M%SZ") > second)
    admin(served, "backup", folder, "--keep", "2").expect(0)
    assert not (folder / first).exists()
    assert (folder / second / "manifest.json").exists()
    assert (folder / "mine" / "file").exists()
    assert (folder / "2026-01-03" / "file").exists()
    assert (folder / "2026-01-05T030000Z").exists()
    with restored(served, folder / second) as other:
        admin(other, "check").expect(0)
