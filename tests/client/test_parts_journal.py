"""What a device remembers of a transfer: entry by entry, for one at a time, and an aid alone."""

import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import filelock
import pytest

from scbroker import BrokerError, FileTrustStore
from scbroker.client.local_state import LocalState
from scbroker.client.parts import RUN, Journal
from tests.kit import state
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network
from tests.kit.waiting import PATIENCE

SECRET: Final = bytes(range(32))


def opened(folder: Path, secret: bytes = SECRET, *names: bytes) -> Journal:
    return Journal.open(LocalState(folder), secret, *(names or (b"a name",)))


def remembered(folder: Path, secret: bytes = SECRET, *names: bytes) -> list[bytes]:
    journal = opened(folder, secret, *names)
    journal.close()
    return journal.entries


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def test_entries_come_back_in_their_order_and_nobody_elses_do(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for entry in (b"first", b"", b"third"):
        journal.append(entry)
    assert opened(tmp_path).entries == [], "another transfer has it open"
    journal.close()
    assert remembered(tmp_path) == [b"first", b"", b"third"]
    assert remembered(tmp_path, bytes(32)) == []
    assert remembered(tmp_path, SECRET, b"a", b"name") == []
    assert remembered(tmp_path, SECRET, b"a name", b"") == []


@pytest.mark.parametrize("harm, left", [
    ("UPDATE journal SET sealed = (SELECT sealed FROM journal WHERE number = 1)", 0),
    ("UPDATE journal SET name = zeroblob(32)", 0),
    ("UPDATE journal SET sealed = 'text' WHERE number = 1", 1),
    ("UPDATE journal SET number = 'text' WHERE number = 1", 1),
    ("DELETE FROM journal WHERE number = 0", 0),
])  # fmt: skip
def test_an_entry_in_another_place_or_under_another_name_counts_for_nothing(
    tmp_path: Path, harm: str, left: int
) -> None:
    journal = opened(tmp_path)
    journal.append(b"first")
    journal.append(b"other")
    journal.close()
    state.change(tmp_path, harm)
    assert remembered(tmp_path) == [b"first", b"other"][:left]


def test_an_entry_of_an_earlier_transfer_of_the_same_name_does_not_open(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.append(b"first")
    journal.append(b"of the first transfer")
    [[sealed]] = state.read(tmp_path, "SELECT sealed FROM journal WHERE number = 1")
    journal.end()
    journal = opened(tmp_path)
    journal.append(b"first")
    journal.append(b"of the second transfer")
    journal.close()
    state.change(tmp_path, "UPDATE journal SET sealed = ? WHERE number = 1", sealed)
    assert remembered(tmp_path) == [b"first"]


def test_a_failed_write_is_logged_once_and_not_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened(tmp_path)
    journal.append(b"written")
    with full_disk(), caplog.at_level(logging.WARNING, "scbroker"):
        journal.append(b"lost")
        journal.append(b"lost too")
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "A transfer cannot be resumed from here"
    ]
    journal.close()
    assert remembered(tmp_path) == [b"written"]
    opened(tmp_path).end()
    assert state.read(tmp_path, "SELECT * FROM journal") == []
    assert not list(tmp_path.glob("*.lock"))


@pytest.mark.long
def test_no_record_is_sent_while_its_journal_cannot_be_ended(
    new_provider: NewProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another record could name the part after a crash."""
    device = new_provider(True, trustStore=FileTrustStore(tmp_path / "device"))
    file, end = tmp_path / "file", Journal.end
    file.write_bytes(bytes(RUN + 1))

    def end_on_a_full_disk(journal: Journal) -> None:
        with full_disk():
            end(journal)

    with Network() as network:
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "end", end_on_a_full_disk)
            with pytest.raises(BrokerError.trustStoreError, match="cannot be used"):
                device.createContainer(file).result(PATIENCE)
        assert not [each for each in network.sent if "/records/" in each.path]
    device.createContainer(file).result(PATIENCE)


def test_a_journal_that_was_not_used_for_a_week_is_removed(tmp_path: Path) -> None:
    for name, days in ((b"old", 8), (b"young", 6)):
        journal = opened(tmp_path, SECRET, name)
        journal.append(name)
        journal.close()
        then = "UPDATE journal SET time = time - ? WHERE name = ?"
        state.change(tmp_path, then, days * 86_400, bytes.fromhex(journal.name))
    opened(tmp_path, SECRET, b"now").close()
    assert remembered(tmp_path, SECRET, b"young") == [b"young"]
    assert remembered(tmp_path, SECRET, b"old") == []


def test_a_transfer_that_paused_for_a_week_keeps_its_journal_and_its_lock(tmp_path: Path) -> None:
    """As on a machine that was suspended: a second transfer would truncate its partial file."""
    paused = opened(tmp_path)
    paused.append(b"entry")
    state.change(tmp_path, "UPDATE journal SET time = 0")
    opened(tmp_path, SECRET, b"another").close()
    assert not opened(tmp_path).is_kept, "another transfer has it open"
    assert state.read(tmp_path, "SELECT number FROM journal") == [(0,)]


def test_a_journal_that_is_resumed_while_old_ones_are_removed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = opened(tmp_path)
    old.append(b"entry")
    old.close()
    [[now]] = state.read(tmp_path, "SELECT time FROM journal")
    state.change(tmp_path, "UPDATE journal SET time = 0")
    real = filelock.FileLock

    def resumed_before(path: Path, **options: Any) -> filelock.BaseFileLock:
        if path.stem == old.name:
            state.change(tmp_path, "UPDATE journal SET time = ?", now)
        return real(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(filelock, "FileLock", resumed_before)
        opened(tmp_path, SECRET, b"another").close()
    assert remembered(tmp_path) == [b"entry"]


def test_a_closed_journal_leaves_no_lock_and_touches_none_that_another_has(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.close()
    assert not list(tmp_path.glob("*.lock"))
    second = opened(tmp_path)
    second.append(b"entry")
    first.close()
    first.end()
    assert not opened(tmp_path).is_kept
    second.close()
    assert remembered(tmp_path) == [b"entry"]
