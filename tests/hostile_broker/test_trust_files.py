"""Attacks on the files in which a device keeps its marks, and on processes that share them.

Attacks 45, 56 and 60 of attacks.toml. The broker serves an old state as soon as a process has lost the mark
of the new one. Other users of the machine plant links and files.
"""

import os
import shutil
import sqlite3
import stat
import threading
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from scbroker import BrokerError, FileSessionStore, FileTrustStore, SealedKeys, ServerProvider
from scbroker.client import local_state
from scbroker.client.users.trust_store import Marks
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.protocol import ROLLBACK
from tests.kit.limits import lower
from tests.kit.scripts import run_script
from tests.kit.waiting import PATIENCE
from tests.kit.writers import Story, User


def marks_of(device: ServerProvider) -> Marks:
    return device._session().marks


def file_of(device: ServerProvider) -> Path:
    store = device._trust_store
    assert isinstance(store, FileTrustStore)
    return store.directory / "state.db"


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def copy_to(copy: Path, path: Path) -> None:
    """Copy the state file with what is still in the file beside it."""
    copy.touch(0o600)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def test_a_process_that_was_idle_while_the_log_was_compacted_takes_no_older_state(
    mallory: Mallory, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, mark_entries=8)
    folder = mallory.new_store().directory
    story = Story(alice).created(content=b"1")
    idle, busy = (mallory.device(alice.ring, FileTrustStore(folder)) for _ in range(2))
    assert idle.getContainerContent(story.uuid).result(PATIENCE) == b"1"
    story.tell(alice, story.follow(alice, content=b"2"))
    assert busy.getContainerContent(story.uuid).result(PATIENCE) == b"2"
    for number in range(20):
        assert marks_of(busy).swap("filler", bytes([number]), None, b"")
    mallory.rewind(story, 1)
    for device in (idle, busy, mallory.device(alice.ring, FileTrustStore(folder))):
        mallory.check_refused(device, story, ROLLBACK)
    mallory.rewind(story, 2)
    for device in (idle, busy):
        assert device.getContainerContent(story.uuid).result(PATIENCE) == b"2"
        device.createContainer(b"its mark destroys no other's").result(PATIENCE)
    FileTrustStore(folder).open(alice.ring.userId, alice.ring.signing[0].derive("trust-store"))


def put_by_rename(old: Path, path: Path) -> None:
    shutil.copy2(old, old.with_suffix(".copy"))
    old.with_suffix(".copy").replace(path)
    for suffix in ("-wal", "-shm"):
        beside(path, suffix).unlink(missing_ok=True)


def put_in_place(old: Path, path: Path) -> None:
    os.truncate(beside(path, "-wal"), 0)
    for written, data in (
        (path, old.read_bytes()),
        (beside(path, "-shm"), bytes(beside(path, "-shm").stat().st_size)),
    ):
        with written.open("r+b") as file:
            file.write(data)
            file.truncate()


def put_and_go_on(old: Path, path: Path) -> None:
    """Another process starts with the older file, and writes so much that it has more entries."""
    put_by_rename(old, path)
    script = """
        import sys, uuid
        from scbroker import FileTrustStore
        marks = FileTrustStore(sys.argv[1]).open(uuid.UUID(sys.argv[2]), bytes.fromhex(sys.argv[3]))
        for number in range(20):
            assert marks.swap("other", bytes([number]), None, b"")
    """
    done = run_script(script, str(path.parent), *old.with_suffix(".secret").read_text().split())
    assert done.returncode == 0, done.stderr


WAYS: list[Callable[[Path, Path], None]] = [put_by_rename, put_in_place, put_and_go_on]


@pytest.mark.sampled
@pytest.mark.parametrize("put", WAYS, ids=lambda way: way.__name__)
def test_an_older_file_put_under_a_running_process_is_refused_and_the_newer_one_taken_again(
    mallory: Mallory, alice: User, tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    story, old, new = Story(alice).created(content=b"1"), tmp_path / "old", tmp_path / "new"
    secret = alice.ring.signing[0].derive("trust-store")
    old.with_suffix(".secret").write_text(f"{alice.ring.userId} {secret.hex()}")
    device = mallory.device_of(alice, store=mallory.new_store())
    device.getContainer(story.uuid).result(PATIENCE)
    copy_to(old, file_of(device))
    story.tell(alice, story.follow(alice, content=b"2"))
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"2"
    copy_to(new, file_of(device))
    put(old, file_of(device))
    mallory.rewind(story, 1)
    mallory.check_refused(device, story, BrokerError.trustStoreError)
    mallory.check_refused(device, story, BrokerError.trustStoreError)
    mallory.rewind(story, 2)
    (put_in_place if put is put_in_place else put_by_rename)(new, file_of(device))
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"2"


@pytest.mark.parametrize("removed", [["-wal"], ["-shm"], ["-wal", "-shm"]], ids="".join)
def test_a_device_stops_when_files_beside_its_trust_store_are_removed(
    mallory: Mallory, alice: User, removed: list[str]
) -> None:
    """SQLite would go on in the removed files, and another program in new ones."""
    story = Story(alice).created(content=b"1")
    device = mallory.device_of(alice, store=mallory.new_store())
    device.getContainer(story.uuid).result(PATIENCE)
    for suffix in removed:
        beside(file_of(device), suffix).unlink()
    for refused in (device.getContainer, device.updateContainerContent, device.getContainer):
        with pytest.raises(BrokerError.trustStoreError):
            refused(story.uuid).result(PATIENCE)


@pytest.mark.parametrize("removed", [["-wal"], ["-shm"], ["-wal", "-shm"]], ids="".join)
def test_no_device_begins_beside_removed_files_while_another_one_writes_to_them(
    mallory: Mallory, alice: User, removed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marks would be lost when the other one ends: SQLite then writes what is in the removed files."""
    lower(monkeypatch, state_lock_seconds=0.1)
    story = Story(alice).created(content=b"1")
    device = mallory.device_of(alice, store=mallory.new_store())
    story.tell(alice, story.follow(alice, content=b"2"))
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"2"
    for suffix in removed:
        beside(file_of(device), suffix).unlink()
    with pytest.raises(BrokerError.trustStoreError, match="locked"):
        mallory.device(alice.ring, FileTrustStore(file_of(device).parent))
    for state in list(local_state._states):
        state.close()  # as at the end of its process
    later = mallory.device(alice.ring, FileTrustStore(file_of(device).parent))
    mallory.rewind(story, 1)
    mallory.check_refused(later, story, ROLLBACK)


PLANTED = ("state.db", "state.db-wal", "state.db-shm", "state.db-journal")


@pytest.mark.sampled
@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_no_planted_file_is_followed_or_changed(
    mallory: Mallory, alice: User, tmp_path: Path, name: str, kind: str
) -> None:
    """Another file of the user stays as it is, and none of its bytes go to the broker as a pass."""
    store, victim = FileTrustStore(tmp_path / "shared"), tmp_path / "victim"
    victim.write_bytes(b"v" * 48)
    victim.chmod(0o600)
    store.directory.mkdir(mode=0o700)
    planted = store.directory / name
    if kind == "link":
        planted.symlink_to(victim)
    elif kind == "hard link":
        planted.hardlink_to(victim)
    else:
        os.mkfifo(planted)
    with pytest.raises(BrokerError.trustStoreError, match="this user alone"):
        store.read_pass(alice.ring.userId)
    with suppress(BrokerError.trustStoreError):
        mallory.device_of(alice, store=store)
    assert victim.read_bytes() == b"v" * 48


def test_no_temporary_file_has_a_name_that_can_be_planted(tmp_path: Path) -> None:
    """A name of the process and the thread would let another user choose which file is truncated."""
    store, user, victim = FileSessionStore(tmp_path), uuid.uuid4(), tmp_path / "victim"
    keys, more = (SealedKeys(bytes([n]) * 32, b"sealed") for n in range(2))
    assert store.swap("https://broker.example:443", user, None, keys)
    for path in list(tmp_path.iterdir()):
        name = f"{path.name}.{os.getpid()}-{threading.get_ident()}"
        (tmp_path / name).symlink_to(victim)
    victim.write_bytes(b"untouched")
    assert store.swap("https://broker.example:443", user, keys, more)
    assert victim.read_bytes() == b"untouched"


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777], ids=oct)
def test_a_folder_that_others_can_write_is_refused_before_anything_is_sent(
    mallory: Mallory, alice: User, tmp_path: Path, mode: int
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    count = len(mallory.heard)
    with pytest.raises(BrokerError.trustStoreError, match="chmod go-w"):
        mallory.device_of(alice, store=FileTrustStore(folder))
    assert mallory.since(count) == []
    assert list(folder.iterdir()) == []
    folder.chmod(0o755)
    device = mallory.device_of(alice, store=FileTrustStore(folder))
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.*")} == {0o600}
    device.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("what", ["folder", "link"])
def test_a_folder_of_another_user_or_behind_another_users_link_is_refused(
    alice: User, tmp_path: Path, what: str
) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir(mode=0o700)
    link.symlink_to(folder)
    FileTrustStore(link).keep_pass(alice.ring.userId, bytes(48))
    os.chown(link if what == "link" else folder, 1, 1, follow_symlinks=False)
    with pytest.raises(BrokerError.trustStoreError, match="belongs to another user"):
        FileTrustStore(link).keep_pass(alice.ring.userId, b"x" * 48)
    with pytest.raises(BrokerError.trustStoreError, match="belongs to another user"):
        FileTrustStore(link).read_pass(alice.ring.userId)


FORK = """
    import os, signal, sys, threading, uuid, warnings
    from scbroker import BrokerError, FileTrustStore

    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later, of forking with threads
    user, secret = uuid.uuid4(), b"s" * 32
    marks = FileTrustStore(sys.argv[1]).open(user, secret)
    assert marks.swap("k", b"", None, b"1")
    started, go = threading.Event(), threading.Event()

    def slow():
        with marks._state as connection:
            connection.execute("BEGIN IMMEDIATE")
            started.set()
            assert go.wait(120)
            connection.execute("ROLLBACK")

    thread = threading.Thread(target=slow, daemon=True)
    thread.start()
    assert started.wait(120)
    os.register_at_fork(before=go.set)  # runs before those that were registered earlier
    if (child := os.fork()) == 0:
        signal.alarm(60)  # sooner than the test gives up
        for use in (lambda: marks.get("k", b""), lambda: marks.swap("k", b"", b"1", b"3")):
            try:
                use()
            except BrokerError.invalidArgumentError:
                print("refused", flush=True)
        own = FileTrustStore(sys.argv[1]).open(user, secret)
        for number in range(50):
            assert own.swap("child", bytes([number]), None, b"c")
        print("read", own.get("k", b""), flush=True)
        os._exit(0)
    thread.join()
    for number in range(50):
        assert marks.swap("parent", bytes([number]), None, b"p")
    _, status = os.waitpid(child, 0)
    fresh = FileTrustStore(sys.argv[1]).open(user, secret)
    for number in range(50):
        assert fresh.get("parent", bytes([number])) == b"p"
        assert fresh.get("child", bytes([number])) == b"c"
    print("child", status, flush=True)
"""


def test_a_child_forked_while_a_mark_is_written_is_refused_its_parents_marks(
    tmp_path: Path,
) -> None:
    """The parent's thread is in a transaction when the fork begins. Nothing of either process is lost."""
    done = run_script(FORK, str(tmp_path))
    lines = ["refused", "refused", "read b'1'", "child 0"]
    assert (done.stdout.splitlines(), done.stderr) == (lines, "")
