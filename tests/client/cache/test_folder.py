"""The folder of a cache: bounded, sealed, least recently used first out, and safe with several processes."""

import logging
import os
from pathlib import Path

import pytest

from scbroker import BrokerError, CachedProvider, KeyRing, ServerProvider
from scbroker.client.cache import folder as module
from scbroker.client.cache.folder import SMALLEST, CacheFolder, checked_root
from tests.client.conftest import drop
from tests.kit.scripts import run_script

MIB = 1_048_576
ORIGIN = "https://broker.example:443"


@pytest.fixture(scope="module")
def ring() -> KeyRing:
    return KeyRing.generate()


@pytest.fixture
def folder(ring: KeyRing, tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path, ring, ORIGIN, SMALLEST)


def size_of(root: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file())


def test_another_user_or_broker_has_other_files(ring: KeyRing, tmp_path: Path) -> None:
    one = CacheFolder(tmp_path, ring, ORIGIN, SMALLEST)
    one.write("kind", b"key", b"secret")
    for other in (
        CacheFolder(tmp_path, KeyRing.generate(), ORIGIN, SMALLEST),
        CacheFolder(tmp_path, ring, "https://other.example:443", SMALLEST),
    ):
        assert other.path != one.path
        assert other.read("kind", b"key") is None
        other.clear()
    newer = CacheFolder(tmp_path, ring.next(2, fresh=True), ORIGIN, SMALLEST)
    assert one.read("kind", b"key") == newer.read("kind", b"key") == b"secret"
    one.clear()
    assert list(one.path.iterdir()) == []


def test_the_folder_stays_below_its_bound_and_keeps_the_files_that_were_used_last(
    folder: CacheFolder, tmp_path: Path
) -> None:
    data = os.urandom(MIB // 2)
    for number in range(100):
        folder.write("kind", number.to_bytes(), data)
        assert folder.read("kind", b"\0") == data, "it is used all the time"
        assert size_of(tmp_path) <= SMALLEST
    kept = [number for number in range(100) if folder.has("kind", number.to_bytes())]
    assert kept == [0, *range(kept[1], 100)], "the oldest went first"
    assert len(kept) > 20


def test_files_that_nobody_asked_for_go_first_until_somebody_asks(
    folder: CacheFolder, tmp_path: Path
) -> None:
    data = os.urandom(MIB)
    folder.write("kind", b"asked for", b"1")
    folder.write("kind", b"asked for later", data, asked=False)
    assert folder.has("kind", b"asked for later")
    for number in range(40):
        folder.write("kind", number.to_bytes(), data, asked=False)
        assert folder.read("kind", number.to_bytes()) == data
    assert size_of(tmp_path) <= SMALLEST
    assert not folder.has("kind", b"\0", touch=False)
    for key in (b"asked for", b"asked for later"):
        assert folder.is_asked("kind", key)
    assert not folder.is_asked("kind", b"\47")


def test_files_of_another_user_and_of_a_crash_are_removed_as_well(
    folder: CacheFolder, tmp_path: Path
) -> None:
    other = CacheFolder(tmp_path, KeyRing.generate(), ORIGIN, SMALLEST)
    other.write("kind", b"key", bytes(MIB))
    left = folder.path / f"{'0' * 32}.tmpabc1"
    left.write_bytes(bytes(MIB))
    for path in (left, *other.path.iterdir()):
        os.utime(path, (1, 1))
    for number in range(40):
        folder.write("kind", number.to_bytes(), bytes(MIB))
    assert not left.exists()
    assert other.read("kind", b"key") is None


def test_no_file_of_anybody_else_is_ever_removed(folder: CacheFolder, tmp_path: Path) -> None:
    """The folder may be one that the user has for other things."""
    named = tmp_path / "photos"
    named.mkdir()
    album = tmp_path / ("0" * 32)  # named by a hash, as its pictures are
    album.mkdir()
    others = [tmp_path / "letter", named / "picture", named / ("0" * 32), folder.path / "notes.txt"]
    others.append(album / f"{'1' * 32}.jpg")
    for path in others:
        path.write_bytes(bytes(MIB))
        os.utime(path, (1, 1))
    for number in range(40):
        folder.write("kind", number.to_bytes(), bytes(MIB))
    folder.clear()
    assert all(path.exists() for path in others)


_KILLED = """
import hashlib, os, sys, types
from pathlib import Path
from scbroker.client.cache.folder import SMALLEST, CacheFolder

key = types.SimpleNamespace(derive=lambda name: hashlib.sha256(name.encode()).digest())
folder = CacheFolder(Path(sys.argv[1]), types.SimpleNamespace(signing=[key]), "origin", SMALLEST)
if sys.argv[2] == "read":
    found = folder.read("kind", b"key")
    print(None if found is None else len(found))
    raise SystemExit
left = int(sys.argv[2])

def hook(event, _):
    global left
    if event.split(".")[0] in ("open", "os", "tempfile", "shutil"):
        left -= 1
        if left == 0:
            os._exit(9)

folder.write("kind", b"key", bytes(1000))
sys.addaudithook(hook)
folder.write("kind", b"key", bytes(2000))
left = 0
print("written")
"""


@pytest.mark.long
def test_a_program_that_is_killed_at_any_step_of_a_write_leaves_whole_files(tmp_path: Path) -> None:
    """The steps are the calls of the system that Python audits: open, unlink, rename and the like."""
    outcomes = []
    for step in range(1, 100):
        folder = tmp_path / str(step)
        killed = run_script(_KILLED, str(folder), str(step))
        assert killed.returncode in (0, 9), killed.stderr
        read = run_script(_KILLED, str(folder), "read")
        assert (read.returncode, read.stderr) == (0, "")
        outcomes.append(read.stdout.strip())
        if killed.returncode == 0:
            break
    assert outcomes[0] == "1000", "nothing had been done"
    assert outcomes[-1] == "2000", "it was not killed"
    assert len(outcomes) > 4
    assert set(outcomes) <= {"1000", "None", "2000"}


def test_a_full_disk_is_logged_once_and_harms_nothing(
    folder: CacheFolder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    folder.write("kind", b"key", b"old")
    monkeypatch.setattr(module, "temporary_file", full)
    with caplog.at_level(logging.WARNING, "scbroker"):
        folder.write("kind", b"key", b"new")
        folder.write("kind", b"other", b"new")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left" in caplog.text
    assert folder.read("kind", b"key") == b"old"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, why in (
        ("file", "file is not a folder"),
        ("file/below", "file is not a folder"),
        ("nul\0", ""),
    ):
        match = rf"cannot be used \(.*{why}"
        with pytest.raises(BrokerError.invalidArgumentError, match=match):
            checked_root(tmp_path / name, SMALLEST)


def test_only_a_server_provider_can_be_cached(tmp_path: Path) -> None:
    server = ServerProvider("0" * 32, "http://127.0.0.1:1", "test", trustStore=tmp_path / "marks")
    with pytest.raises(BrokerError.invalidArgumentError, match="must be a ServerProvider, not str"):
        CachedProvider("provider", tmp_path)  # type: ignore[arg-type]
    with CachedProvider(server, tmp_path / "cache") as cache:
        assert repr(server) in repr(cache)
        with pytest.raises(BrokerError.notAuthenticatedError):
            drop(cache.getCachedAt("0" * 32))
