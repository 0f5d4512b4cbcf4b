"""The record of a mirror's files, after crashes, damage and full disks."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path, PurePosixPath

import msgspec
import pytest

from scbroker import errors
from scbroker.cli.mirror import state
from scbroker.cli.mirror.plan import Stamp
from scbroker.cli.mirror.state import State
from tests.cli.mirror.worlds import SELECTION, failing_at

P = PurePosixPath
ONE = Stamp(uuid.UUID(int=7), 3, 5, 1000, b"d" * 32)


def record(folder: Path) -> Path:
    return folder / ".scbroker-mirror" / "files"


@pytest.mark.parametrize(
    "line",
    [
        b"no json\n",
        b"\xff\n",
        b'{"path": "a"}\n',
        b'{"path": "a", "stamps": [], "more": 1}\n',
        b'{"path": "../a", "stamps": []}\n',
        b'{"path": "/a", "stamps": []}\n',
        b'{"path": ".scbroker-mirror/files", "stamps": []}\n',
        b'{"path": ".scbroker-mirror/moving/..", "stamps": []}\n',
        b'{"path": "a", "stamps": [{"container": 1}]}\n',
        msgspec.json.encode({"path": "a", "stamps": [ONE] * 5}) + b"\n",
        msgspec.json.encode({"path": "a", "stamps": [{**msgspec.to_builtins(ONE), "digest": ""}]})
        + b"\n",
    ],
)
def test_a_damaged_record_is_refused_and_stays(line: bytes, tmp_path: Path) -> None:
    with State(tmp_path, SELECTION) as written:
        written.put(P("a"), (ONE,))
    with record(tmp_path).open("ab") as file:
        file.write(line + b'{"path":"z","stamps":[]}\n')
    before = record(tmp_path).read_bytes()
    with pytest.raises(errors.InvalidArgumentError, match="is damaged"):
        State(tmp_path, SELECTION)
    assert record(tmp_path).read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        {"user": uuid.UUID(int=2)},
        {"broker": "http://other"},
        {"name": "photos/"},
        {"type": "photo"},
        {"everyone": True},
    ],
)
def test_the_folder_of_another_selection_is_refused_and_stays(
    change: dict[str, object], tmp_path: Path
) -> None:
    with State(tmp_path, SELECTION) as written:
        written.put(P("a"), (ONE,))
    before = record(tmp_path).read_bytes()
    with pytest.raises(errors.InvalidArgumentError, match="mirrors other containers"):
        State(tmp_path, msgspec.structs.replace(SELECTION, **change))
    assert record(tmp_path).read_bytes() == before
    with State(tmp_path, SELECTION):  # and it is not locked
        pass


def test_a_folder_that_others_can_write_and_links_are_refused(tmp_path: Path) -> None:
    with State(tmp_path, SELECTION):
        pass
    record(tmp_path).unlink()
    record(tmp_path).symlink_to("/etc/hostname")
    with pytest.raises(errors.InvalidArgumentError, match="link"):
        State(tmp_path, SELECTION)
    record(tmp_path).parent.chmod(0o777)
    with pytest.raises(errors.InvalidArgumentError, match="others can write it"):
        State(tmp_path, SELECTION)


def test_a_full_disk_leaves_no_partial_line_and_the_next_sync_writes_all(tmp_path: Path) -> None:
    with State(tmp_path, SELECTION) as written:
        written.put(P("a"), (ONE,))
        written.sync()
        size = record(tmp_path).stat().st_size
        written.put(P("b"), (ONE,))
        error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with failing_at(2, error), pytest.raises(errors.TooLargeError, match="free some"):
            written.sync()
        assert record(tmp_path).stat().st_size == size
    with State(tmp_path, SELECTION) as read:
        assert list(read.files) == [P("a"), P("b")]


def test_a_record_that_grows_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "_SPARE", 10)
    with State(tmp_path, SELECTION) as written:
        for version in range(100):
            written.put(P("a"), (msgspec.structs.replace(ONE, version=version),))
            written.sync()
    assert len(record(tmp_path).read_bytes().splitlines()) < 20
    with State(tmp_path, SELECTION) as read:
        assert read.files[P("a")][0].version == 99
