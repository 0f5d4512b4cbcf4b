"""Marks in memory and in the state file: kept, shared between processes, and never silently lost."""

import os
import resource
import sqlite3
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scbroker import BrokerError, FileTrustStore, MemoryTrustStore
from scbroker.client import local_state
from scbroker.client.users import trust_store
from scbroker.client.users.trust_store import FileMarks, Marks, each_mark, raise_to
from tests.kit.cases import in_one_case
from tests.kit.limits import lower
from tests.kit.scripts import run_script
from tests.kit.state import change, read
from tests.kit.waiting import PATIENCE

USER = uuid.UUID("aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa")
SECRET = b"s" * 32


@pytest.fixture(params=["memory", "file"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Marks]:
    """Opens one user's marks, again and again."""
    store: MemoryTrustStore | FileTrustStore = (
        MemoryTrustStore() if request.param == "memory" else FileTrustStore(tmp_path)
    )
    return lambda: store.open(USER, SECRET)


def open_in(folder: Path, secret: bytes = SECRET) -> Marks:
    return FileTrustStore(folder).open(USER, secret)


def fill(marks: Marks, count: int) -> None:
    for number in range(count):
        assert marks.swap("container", bytes([number]) * 16, None, b"value %d" % number)


def test_folder_and_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    """0700 and 0600 whatever the umask lets through, and the folder above."""
    folder = tmp_path / "deep" / "state"
    before = os.umask(0)
    try:
        marks = open_in(folder)
        fill(marks, 1)
    finally:
        os.umask(before)
    for each in (folder, folder.parent):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
    assert {each.name for each in folder.iterdir()} >= {"state.db", "state.db-wal"}
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}


def test_the_rows_of_a_user_cannot_be_opened_with_another_users_secret(tmp_path: Path) -> None:
    fill(open_in(tmp_path), 1)
    with pytest.raises(BrokerError.trustStoreError, match="another user's"):
        open_in(tmp_path, b"t" * 32)


FIRST, SECOND, THIRD = (f"(id & 255) = {number}" for number in (1, 2, 3))
OF_THE_FIRST = f"(SELECT {{0}} FROM entry WHERE {FIRST})"
DAMAGE = [
    *(f"DELETE FROM entry WHERE {which}" for which in (FIRST, SECOND)),
    *(f"UPDATE entry SET body = NULL WHERE {which}" for which in (FIRST, THIRD, "TRUE")),
    *(
        f"UPDATE entry SET {column} = {value} WHERE {SECOND}"
        for column in ("body", "hash", "mac")
        for value in ("NULL", "'text'", "7", "zeroblob(32)", OF_THE_FIRST.format(column))
    ),
    *(
        f"UPDATE entry SET ({columns}) = {OF_THE_FIRST.format(columns)} WHERE {THIRD}"
        for columns in ("body, hash", "body, hash, mac")
    ),
    f"UPDATE entry SET id = id + 1 WHERE {THIRD}",
    f"INSERT INTO entry SELECT id + 1, mac, hash, body FROM entry WHERE {THIRD}",
    "UPDATE user SET slot = 9223372036854775807",
    "CREATE TRIGGER later AFTER INSERT ON entry BEGIN DELETE FROM entry; END",
    "CREATE TABLE other (id INTEGER)",
]


@in_one_case("damage", DAMAGE)
def test_a_missing_old_or_damaged_row_is_an_error_and_never_a_fresh_start(
    damage: str, tmp_path: Path
) -> None:
    folder = tmp_path / str(DAMAGE.index(damage))
    fill(open_in(folder), 3)
    change(folder, damage)
    changed = read(folder, "SELECT * FROM entry")
    with pytest.raises(BrokerError.trustStoreError, match="damaged"):
        open_in(folder)
    assert read(folder, "SELECT * FROM entry") == changed, "it is left for a person to look at"


def test_a_change_of_any_byte_of_a_row_is_an_error(tmp_path: Path) -> None:
    fill(open_in(tmp_path), 2)
    for column in ("mac", "hash", "body"):
        for [number, whole] in read(tmp_path, f"SELECT id, {column} FROM entry"):
            put = f"UPDATE entry SET {column} = ? WHERE id = ?"
            for position in range(len(whole)):
                changed = bytearray(whole)
                changed[position] ^= 0x80
                change(tmp_path, put, changed, number)
                with pytest.raises(BrokerError.trustStoreError):
                    open_in(tmp_path)
            change(tmp_path, put, whole, number)
    assert open_in(tmp_path).get("container", bytes(16)) == b"value 0"


KILLED = """
import os, sqlite3, sys, uuid
from scbroker import FileTrustStore
from scbroker.client.users import trust_store

trust_store._COMPACT_AT = 3
left, connect = int(sys.argv[2]), sqlite3.connect

def count(statement):
    global left
    left -= 1
    if left == 0:
        os._exit(9)

def counted(*args, **options):
    connection = connect(*args, **options)
    connection.set_trace_callback(count)
    return connection

sqlite3.connect = counted
marks = FileTrustStore(sys.argv[1]).open(uuid.UUID(sys.argv[3]), b"s" * 32)
for number in range(int(marks.get("number", b"") or 0), 8):
    assert marks.swap("number", b"", marks.get("number", b""), b"%d" % (number + 1))
    print(number + 1, flush=True)
"""


@pytest.mark.long
def test_a_program_that_is_killed_at_any_statement_loses_no_mark_that_it_has_set(
    tmp_path: Path,
) -> None:
    """Also while the file is made, and while an entry with all marks is written."""
    for step in range(1, 200):
        folder = tmp_path / str(step)
        killed = run_script(KILLED, str(folder), str(step), str(USER))
        assert killed.returncode in (0, 9), killed.stderr
        done = int((killed.stdout.splitlines() or ["0"])[-1])
        assert int(open_in(folder).get("number", b"") or 0) in (done, done + 1)
        again = run_script(KILLED, str(folder), "0", str(USER))
        assert (again.returncode, again.stderr) == (0, "")
        if killed.returncode == 0:
            break
    assert step > 30


def test_a_file_that_vanishes_while_it_is_used_is_an_error_each_time(tmp_path: Path) -> None:
    marks = open_in(tmp_path)
    fill(marks, 1)
    for path in tmp_path.iterdir():
        path.unlink()
    for _ in range(2):
        with pytest.raises(BrokerError.trustStoreError, match="was deleted while"):
            marks.get("container", bytes(16))
        with pytest.raises(BrokerError.trustStoreError, match="was deleted while"):
            marks.swap("container", bytes(16), b"value 0", b"new")
    assert list(tmp_path.iterdir()) == []


def test_a_running_program_notices_that_its_row_belongs_to_another_user(tmp_path: Path) -> None:
    marks = open_in(tmp_path)
    fill(marks, 1)
    for damage in ("UPDATE user SET slot = 77", "UPDATE user SET slot = 1, id = zeroblob(16)"):
        change(tmp_path, damage)
        with pytest.raises(BrokerError.trustStoreError, match="damaged"):
            marks.get("container", bytes(16))


def test_a_file_system_without_shared_memory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error: Any = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_SHMMAP"
    monkeypatch.setattr(local_state, "_missing", Mock(side_effect=error))
    with pytest.raises(BrokerError.trustStoreError, match="cannot share memory"):
        open_in(tmp_path)


def compact(marks: Marks) -> None:
    """Writes until an entry had all marks."""
    value: bytes | None = marks.get("container", b"k")
    for number in range(trust_store._COMPACT_AT + 2):
        new = b"%d" % number
        assert marks.swap("container", b"k", value, new)
        value = new


def test_a_long_log_is_compacted_and_keeps_every_latest_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, mark_entries=50)
    marks, other = open_in(tmp_path), open_in(tmp_path)
    fill(marks, 3)
    for _ in range(3):
        compact(marks)
    [[whole]] = read(tmp_path, "SELECT count(body) FROM entry")
    assert whole <= 52, "the log does not grow for ever"
    [[rows]] = read(tmp_path, "SELECT count(*) FROM entry")
    assert rows - whole <= 3, "a row for each compaction has the hashes of what was dropped"
    for reader in (marks, other, open_in(tmp_path)):
        assert [reader.get("container", bytes([n]) * 16) for n in range(3)] == [
            b"value 0",
            b"value 1",
            b"value 2",
        ]
        assert reader.get("container", b"k") == b"51"


def test_a_log_of_large_values_is_compacted_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust_store, "_COMPACT_BYTES", 1000)
    marks, other, value = open_in(tmp_path), open_in(tmp_path), None
    for number in range(50):
        new = bytes([number]) * 300
        assert marks.swap("large", b"", value, new)
        value = new
        [[size]] = read(tmp_path, "SELECT sum(length(body)) FROM entry")
        assert size < 2500
    assert other.get("large", b"") == value


def test_pages_are_in_the_order_of_keys_also_after_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, mark_entries=4)
    marks, other, model = open_in(tmp_path), open_in(tmp_path), dict[bytes, bytes]()
    for key in (b"f", b"b", b"e", b"a", b"d", b"c", b"g"):
        assert marks.swap("container", key, None, key)
        model[key] = key
        for reader in (marks, other, open_in(tmp_path)):
            assert list(each_mark(reader, "container", size=2)) == sorted(model.items())


def test_a_store_whose_pages_do_not_rise_is_refused() -> None:
    class Falling:
        def page(self, kind: str, after: bytes, count: int) -> list[tuple[bytes, bytes]]:
            del kind, after, count
            return [(b"b", b"1"), (b"a", b"2")]

    found = each_mark(cast("Marks", Falling()), "container")
    assert next(found) == (b"b", b"1")
    with pytest.raises(BrokerError.trustStoreError, match="order"):
        next(found)


def test_the_marks_that_were_set_since_a_position_are_told_and_all_if_the_file_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, mark_entries=20)
    marks = logged(tmp_path)
    start, found = marks.set_since("number", (0, b""))
    assert found == []
    for number in range(1, 60):
        assert marks.swap("number", bytes([number]), None, b"new")
        assert marks.swap("other", bytes([number]), None, b"new")
        position = start
        for reader in (marks, logged(tmp_path)):
            position, found = reader.set_since("number", start)
            assert (bytes([number]), b"new") in found
            assert len(found) in (1, number)
        assert marks.set_since("number", position) == (position, [])
        start = position
    all_since = logged(tmp_path).set_since("number", (0, b""))[1]
    assert all_since == [(bytes([number]), b"new") for number in range(1, 60)]


def logged(folder: Path) -> FileMarks:
    marks = open_in(folder)
    assert isinstance(marks, FileMarks)
    return marks


def test_a_process_that_slept_through_more_entries_than_are_kept_is_told_to_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, mark_entries=4)
    monkeypatch.setattr(trust_store, "_KEPT_HASHES", 20)
    writer, asleep = open_in(tmp_path), open_in(tmp_path)
    fill_some(writer, 15)
    assert asleep.get("number", b"") == b"15"
    fill_some(writer, 50)
    for _ in range(2):
        with pytest.raises(BrokerError.trustStoreError, match="restart the program"):
            asleep.get("number", b"")
    assert open_in(tmp_path).get("number", b"") == b"50"
    [[rows]] = read(tmp_path, "SELECT count(*) FROM entry")
    assert rows <= 20 + 6


def fill_some(marks: Marks, last: int) -> None:
    """Counts one mark up."""
    for number in range(1, last + 1):
        assert marks.swap("number", b"", marks.get("number", b""), b"%d" % number)


WRITER = """
import sys, uuid
from scbroker import FileTrustStore
from scbroker.client import local_state
local_state.LOCK_SECONDS = 600  # the others may be slow
folder, user, name = sys.argv[1:]
marks = FileTrustStore(folder).open(uuid.UUID(user), b"s" * 32)
for number in range(40):
    while True:
        seen = marks.get("counter", b"")
        if marks.swap("counter", b"", seen, b"%d" % (int(seen or 0) + 1)):
            break
    assert marks.swap(name, b"%d" % number, None, b"mine")
"""


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """They also make the file at once."""
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(USER)]
    writers = [subprocess.Popen([*command, name]) for name in "abc"]
    assert [writer.wait(PATIENCE) for writer in writers] == [0, 0, 0]
    marks = open_in(tmp_path)
    assert marks.get("counter", b"") == b"120"
    assert all(marks.get(name, b"%d" % n) == b"mine" for name in "abc" for n in range(40))


def test_a_lock_that_another_holds_is_waited_for_and_then_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, state_lock_seconds=0.1)
    marks, other = open_in(tmp_path), sqlite3.connect(tmp_path / "state.db")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BrokerError.trustStoreError, match="locked"):
        marks.swap("container", b"k", None, b"v")
    assert marks.get("container", b"k") is None
    other.close()
    assert marks.swap("container", b"k", None, b"v")


def test_what_a_full_disk_cannot_take_is_an_error_and_not_remembered(tmp_path: Path) -> None:
    marks = open_in(tmp_path)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "state.db-wal").stat().st_size, most))
    try:
        with pytest.raises(BrokerError.trustStoreError, match="cannot be used"):
            marks.swap("container", b"k", None, b"v")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    for reader in (marks, open_in(tmp_path)):
        assert reader.get("container", b"k") is None
    assert marks.swap("container", b"k", None, b"v")


def test_a_full_disk_is_named_if_it_has_no_room_for_shared_memory(tmp_path: Path) -> None:
    fill(open_in(tmp_path), 1)
    _, unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, unlimited))
    try:
        with pytest.raises(BrokerError.trustStoreError, match="free some"):
            open_in(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))
    assert open_in(tmp_path).get("container", bytes(16)) == b"value 0"


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """A folder for each example."""
    return (tmp_path / str(number) for number in range(10_000))


KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["get", "swap", "reopen", "wrong swap"]),
        st.sampled_from(["user", "container"]),
        KEYS,
        st.binary(max_size=20),
    ),
    max_size=25,
)


@pytest.mark.long
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_a_file_does_what_a_dict_does_whatever_the_order(
    folders: Iterator[Path], steps: list[tuple[str, str, bytes, bytes]]
) -> None:
    """Two programs with one file, reopened at will, against a dict; compacted every few steps."""
    folder = next(folders)
    model: dict[tuple[str, bytes], bytes] = {}
    store = FileTrustStore(folder)
    marks = [store.open(USER, SECRET), store.open(USER, SECRET)]
    with pytest.MonkeyPatch.context() as patched:
        lower(patched, mark_entries=4)
        for number, (step, kind, key, value) in enumerate(steps):
            mine = marks[number % 2]
            if step == "swap":
                assert mine.swap(kind, key, model.get((kind, key)), value)
                model[(kind, key)] = value
            elif step == "wrong swap":
                assert not mine.swap(kind, key, b"no value has so many bytes as this", value)
            elif step == "reopen":
                marks[number % 2] = FileTrustStore(folder).open(USER, SECRET)
            assert mine.get(kind, key) == model.get((kind, key))
            in_order = sorted((key, value) for (each, key), value in model.items() if each == kind)
            assert list(each_mark(mine, kind, size=2)) == in_order
    reader = store.open(USER, SECRET)
    assert {name: reader.get(*name) for name in model} == model


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_pass_is_kept_for_each_user_until_another_replaces_it(kind: str, tmp_path: Path) -> None:
    store = MemoryTrustStore() if kind == "memory" else FileTrustStore(tmp_path / "new")
    other = uuid.uuid4()
    assert store.read_pass(USER) is None
    for number in range(3):
        store.keep_pass(USER, bytes([number]) * 48)
        assert store.read_pass(USER) == bytes([number]) * 48
    store.keep_pass(other, b"x" * 48)
    assert (store.read_pass(USER), store.read_pass(other)) == (b"\2" * 48, b"x" * 48)
    store.open(USER, SECRET)
    assert store.read_pass(USER) == b"\2" * 48


def test_a_mark_is_decided_again_if_another_process_replaced_it_meanwhile() -> None:
    marks = MemoryTrustStore().open(USER, SECRET)
    seen: list[bytes | None] = []

    def decide(stored: bytes | None) -> bytes:
        seen.append(stored)
        if len(seen) == 1:
            assert marks.swap("user", b"k", None, b"theirs")
        return b"ours"

    raise_to(marks, "user", b"k", decide)
    assert (seen, marks.get("user", b"k")) == ([None, b"theirs"], b"ours")
