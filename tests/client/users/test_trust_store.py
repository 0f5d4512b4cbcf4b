"""Marks in memory and in a file: kept, shared between processes, and never silently lost."""

import os
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scbroker import BrokerError, FileTrustStore, MemoryTrustStore
from scbroker.client.users import trust_store
from scbroker.client.users.trust_store import LoggedMarks, Marks, raise_to
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the user's file is."""
    return tmp_path / f"{USER}.trust"


def open_file(path: Path, secret: bytes = SECRET) -> Marks:
    return FileTrustStore(path.parent).open(USER, secret)


def fill(marks: Marks, count: int) -> None:
    for number in range(count):
        assert marks.swap("container", bytes([number]) * 16, None, b"value %d" % number)


def test_folder_and_file_are_for_their_owner_alone(tmp_path: Path) -> None:
    """0700 and 0600 whatever the umask lets through, also after a compaction, and the folder above."""
    folder = tmp_path / "deep" / "state"
    before = os.umask(0)
    try:
        marks = FileTrustStore(folder).open(USER, SECRET)
        compact(marks)
    finally:
        os.umask(before)
    for each in (folder, folder.parent):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / f"{USER}.trust").stat().st_mode) == 0o600


def test_a_file_cannot_be_opened_with_another_users_secret(path: Path) -> None:
    fill(open_file(path), 1)
    with pytest.raises(BrokerError.trustStoreError, match="another user's"):
        open_file(path, b"t" * 32)


def test_a_change_of_any_byte_is_an_error_and_never_a_fresh_start(path: Path) -> None:
    """Every byte of a file with three entries, one bit at a time; none may pass for a crash."""
    fill(open_file(path), 3)
    whole = path.read_bytes()
    for position in range(len(whole)):
        for bit in (0x01, 0x80):
            changed = bytearray(whole)
            changed[position] ^= bit
            path.write_bytes(changed)
            with pytest.raises(BrokerError.trustStoreError):
                open_file(path)
            assert path.read_bytes() == changed, "a damaged file is left for a person to look at"


def test_a_crash_while_a_file_is_made_leaves_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file appears whole or not at all: an empty one would be refused for ever."""
    crash = OSError(28, "No space left on device")

    def fail(_: int) -> None:
        raise crash

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(BrokerError.trustStoreError, match="No space left"):
            open_file(path)
    assert not path.exists()
    fill(open_file(path), 1)


def test_a_file_that_vanishes_while_it_is_used_is_an_error_each_time(path: Path) -> None:
    marks = open_file(path)
    fill(marks, 1)
    path.unlink()
    for _ in range(2):
        with pytest.raises(BrokerError.trustStoreError, match="was deleted while"):
            marks.get("container", bytes(16))
        with pytest.raises(BrokerError.trustStoreError, match="was deleted while"):
            marks.swap("container", bytes(16), b"value 0", b"new")
    assert not path.exists()


def compact(marks: Marks) -> None:
    """Writes until the log was rewritten once."""
    value: bytes | None = marks.get("container", b"k")
    for number in range(trust_store._COMPACT_AT + 2):
        new = b"%d" % number
        assert marks.swap("container", b"k", value, new)
        value = new


def test_a_long_log_is_compacted_and_keeps_every_latest_value(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust_store, "_COMPACT_AT", 50)
    marks, other = open_file(path), open_file(path)
    fill(marks, 3)
    longest = 0
    for _ in range(3):
        compact(marks)
        longest = max(longest, path.stat().st_size)
    assert path.stat().st_size < 100 * 150, "the log does not grow for ever"
    for reader in (marks, other, open_file(path)):
        assert [reader.get("container", bytes([n]) * 16) for n in range(3)] == [
            b"value 0",
            b"value 1",
            b"value 2",
        ]
        assert reader.get("container", b"k") == b"51"


def test_the_marks_that_were_set_since_a_position_are_told_and_all_if_the_file_does_not_tell(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust_store, "_COMPACT_AT", 20)
    marks = logged(path)
    start, found = marks.set_since("number", (0, b""))
    assert found == []
    for number in range(1, 60):
        assert marks.swap("number", bytes([number]), None, b"new")
        assert marks.swap("other", bytes([number]), None, b"new")
        position = start
        for reader in (marks, logged(path)):
            position, found = reader.set_since("number", start)
            assert (bytes([number]), b"new") in found
            assert len(found) in (1, number)
        assert marks.set_since("number", position) == (position, [])
        start = position
    all_since = logged(path).set_since("number", (0, b""))[1]
    assert all_since == [(bytes([number]), b"new") for number in range(1, 60)]


def logged(path: Path) -> LoggedMarks:
    marks = open_file(path)
    assert isinstance(marks, LoggedMarks)
    return marks


def test_a_process_that_slept_through_more_compactions_than_a_file_names_is_told_to_restart(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust_store, "_COMPACT_AT", 4)
    monkeypatch.setattr(trust_store, "_KEPT_ENDS", 3)
    writer, asleep = open_file(path), open_file(path)
    fill_some(writer, 50)
    for _ in range(2):
        with pytest.raises(BrokerError.trustStoreError, match="restart the program"):
            asleep.get("number", b"")
    assert open_file(path).get("number", b"") == b"50"


def fill_some(marks: Marks, last: int) -> None:
    """Counts one mark up."""
    for number in range(1, last + 1):
        assert marks.swap("number", b"", marks.get("number", b""), b"%d" % number)


WRITER = """
import sys, uuid
from scbroker import FileTrustStore
from scbroker.client.users import trust_store
trust_store._LOCK_SECONDS = 600  # the others may be slow
folder, user, name = sys.argv[1:]
marks = FileTrustStore(folder).open(uuid.UUID(user), b"s" * 32)
for number in range(40):
    while True:
        seen = marks.get("counter", b"")
        if marks.swap("counter", b"", seen, b"%d" % (int(seen or 0) + 1)):
            break
    assert marks.swap(name, b"%d" % number, None, b"mine")
"""


def test_processes_that_write_at_once_lose_nothing(path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(path.parent), str(USER)]
    writers = [subprocess.Popen([*command, name]) for name in "abc"]
    assert [writer.wait(PATIENCE) for writer in writers] == [0, 0, 0]
    marks = open_file(path)
    assert marks.get("counter", b"") == b"120"
    assert all(marks.get(name, b"%d" % n) == b"mine" for name in "abc" for n in range(40))


def test_a_lock_that_another_holds_is_waited_for_and_then_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust_store, "_LOCK_SECONDS", 0.1)
    marks = open_file(path)
    with path.open("rb") as other:
        assert filelock.lock_descriptor(other.fileno(), blocking=False)
        with pytest.raises(BrokerError.trustStoreError, match="locked"):
            marks.swap("container", b"k", None, b"v")
    assert marks.swap("container", b"k", None, b"v")


@pytest.mark.parametrize("half", [0, 40], ids=["nothing", "some of it"])
def test_what_cannot_be_written_is_an_error_and_not_remembered(
    path: Path, half: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = open_file(path)
    real = os.pwrite
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", lambda file, data, at: real(file, data[:half], at))
        with pytest.raises(BrokerError.trustStoreError, match="No space left"):
            marks.swap("container", b"k", None, b"v")
    assert marks.get("container", b"k") is None
    assert marks.swap("container", b"k", None, b"v")


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """A folder for each example."""
    return (tmp_path / str(number) for number in range(10_000))


KEYS = st.sampled_from([b"a", b"b", b"c"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["get", "swap", "reopen", "wrong swap", "torn"]),
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
    """Two users of one file, reopened and torn at will, against a dict; compacted every few steps."""
    folder = next(folders)
    model: dict[tuple[str, bytes], bytes] = {}
    store = FileTrustStore(folder)
    marks = [store.open(USER, SECRET), store.open(USER, SECRET)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trust_store, "_COMPACT_AT", 4)
        for number, (step, kind, key, value) in enumerate(steps):
            mine = marks[number % 2]
            if step == "swap":
                assert mine.swap(kind, key, model.get((kind, key)), value)
                model[(kind, key)] = value
            elif step == "wrong swap":
                assert not mine.swap(kind, key, b"no value has so many bytes as this", value)
            elif step == "reopen":
                marks[number % 2] = FileTrustStore(folder).open(USER, SECRET)
            elif step == "torn":
                with (folder / f"{USER}.trust").open("ab") as file:
                    file.write(b"\x00\x00\x00")
            assert mine.get(kind, key) == model.get((kind, key))
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


def test_a_pass_is_its_owners_alone_and_nothing_else_stays_beside_it(tmp_path: Path) -> None:
    path = tmp_path / f"{USER}.pass"
    path.write_bytes(b"open to all")
    path.chmod(0o644)
    FileTrustStore(tmp_path).keep_pass(USER, bytes(48))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


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


def test_entries_cannot_be_swapped_doubled_or_taken_out(path: Path) -> None:
    fill(open_file(path), 3)
    whole, start = path.read_bytes(), len(trust_store._MAGIC)
    size = (len(whole) - start) // 3
    first, second, third = (whole[start + n * size : start + (n + 1) * size] for n in range(3))
    head = whole[:start]
    for forged in (second + first + third, first + third, first + first, second + third):
        path.write_bytes(head + forged)
        with pytest.raises(BrokerError.trustStoreError):
            open_file(path)
