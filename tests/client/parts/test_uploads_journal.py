"""What a device remembers of a transfer: entry by entry, for one at a time, and an aid alone."""

import logging
import os
import time
from pathlib import Path
from typing import Final

import pytest

from scbroker import BrokerError, FileTrustStore
from scbroker.client import own_files as journal_module
from scbroker.client.own_files import Journal
from scbroker.client.parts.downloads import RUN
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network
from tests.kit.waiting import PATIENCE

SECRET: Final = bytes(range(32))


def opened(folder: Path, secret: bytes = SECRET, *names: bytes) -> Journal:
    return Journal.open(folder, secret, *(names or (b"a name",)))


def remembered(folder: Path, secret: bytes = SECRET, *names: bytes) -> list[bytes]:
    journal = opened(folder, secret, *names)
    journal.close()
    return journal.entries


def test_entries_come_back_in_their_order_and_nobody_elses_do(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for entry in (b"first", b"", b"third"):
        journal.append(entry)
    journal.close()
    assert remembered(tmp_path) == [b"first", b"", b"third"]
    assert remembered(tmp_path, bytes(32)) == []
    assert remembered(tmp_path, SECRET, b"a", b"name") == []
    assert remembered(tmp_path, SECRET, b"a name", b"") == []


def test_an_entry_in_another_place_or_under_another_name_counts_for_nothing(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.append(b"first")
    journal.append(b"other")
    journal.close()
    [path] = tmp_path.glob("*.journal")
    data = path.read_bytes()
    start = len(journal_module._MAGIC)
    size = (len(data) - start) // 2  # the entries are of one size
    path.write_bytes(data[:start] + data[start + size :] + data[start : start + size])
    assert remembered(tmp_path) == []
    path.write_bytes(data)
    opened(tmp_path, SECRET, b"another").close()
    [other] = set(tmp_path.glob("*.journal")) - {path}
    other.write_bytes(data)
    assert remembered(tmp_path, SECRET, b"another") == []


def test_a_failed_write_is_logged_once_and_not_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened(tmp_path)
    journal.append(b"written")
    [path] = tmp_path.glob("*.journal")
    assert journal._file is not None
    journal._file.close()
    journal._file = path.open("rb", buffering=0)
    with caplog.at_level(logging.WARNING, "scbroker"):
        journal.append(b"lost")
        journal.append(b"lost too")
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "A transfer cannot be resumed from here"
    ]
    journal.close()
    assert remembered(tmp_path) == [b"written"]
    journal = opened(tmp_path)
    assert journal._file is not None
    journal._file.close()
    journal._file = None
    journal.end()
    assert list(tmp_path.glob("*.journal")) == []


@pytest.mark.long
def test_no_record_is_sent_while_its_journal_cannot_be_ended(
    new_provider: NewProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another record could name the part after a crash. The disk's error is made here."""
    device = new_provider(True, trustStore=FileTrustStore(tmp_path / "device"))
    file = tmp_path / "file"
    file.write_bytes(bytes(RUN + 1))

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with Network() as network:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail)
            with pytest.raises(BrokerError.trustStoreError, match="Input/output error"):
                device.createContainer(file).result(PATIENCE)
        assert not [each for each in network.sent if "/records/" in each.path]
    device.createContainer(file).result(PATIENCE)


def test_a_journal_that_was_not_used_for_a_week_is_removed(tmp_path: Path) -> None:
    for name, days in ((b"old", 8), (b"young", 6)):
        journal = opened(tmp_path, SECRET, name)
        journal.append(name)
        journal.close()
        [path] = [each for each in tmp_path.glob("*.journal") if journal.name == each.stem]
        then = time.time() - days * 86_400
        os.utime(path, (then, then))
    opened(tmp_path, SECRET, b"now").close()
    assert remembered(tmp_path, SECRET, b"young") == [b"young"]
    assert remembered(tmp_path, SECRET, b"old") == []
    assert len(list(tmp_path.glob("*.journal"))) == 3
