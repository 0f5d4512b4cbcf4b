"""Saving a content to a file: whole or not at all, in constant memory, and on where it was cut off."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from scbroker import AccessLevel, BrokerError, ContainerAccessLevel, FileTrustStore, ServerProvider
from scbroker.client.core.sealing import OpenPart
from scbroker.client.local_state import LocalState
from scbroker.client.parts import Journal, _Partial
from scbroker.records.container_record import SEGMENT, Part, Role
from scbroker.wire.containers import MAX_INLINE
from scbroker.wire.parts import CHUNK_SEGMENTS
from tests.client.conftest import drop, id_of
from tests.kit import state
from tests.kit.fixtures import NewProvider
from tests.kit.network import Go, Network
from tests.kit.waiting import PATIENCE, until

RUN: Final = CHUNK_SEGMENTS * SEGMENT
SIZE: Final = 2 * RUN + 12_345
CONTENT: Final = (b"a" * 251 + bytes(range(256)) * 3) * (SIZE // 1019) + b"z" * (SIZE % 1019)


@pytest.fixture
def device(new_provider: NewProvider, tmp_path: Path) -> ServerProvider:
    return new_provider(True, trustStore=FileTrustStore(tmp_path / "device"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "saved"
    found.mkdir()
    return found


@pytest.mark.sampled
@pytest.mark.parametrize(
    "content",
    [b"", b"small", b"x" * MAX_INLINE, b"y" * (MAX_INLINE + 1), CONTENT[: 2 * SEGMENT], CONTENT],
    ids=lambda content: str(len(content)),
)
def test_a_saved_file_is_the_content(
    device: ServerProvider, folder: Path, content: bytes, tmp_path: Path
) -> None:
    made = device.createContainer(content).result(PATIENCE).id
    steps: list[tuple[int, int | None]] = []
    target = folder / "file"
    saved = device.saveContainerContent(made, target, progress=lambda *step: steps.append(step))
    assert saved.result(PATIENCE) == len(content)
    assert target.read_bytes() == content
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert list(folder.iterdir()) == [target]
    assert steps[-1] == (len(content), len(content))
    assert state.read(tmp_path / "device", "SELECT * FROM journal") == []


@pytest.mark.long
def test_what_was_saved_before_a_cut_is_not_fetched_again(
    device: ServerProvider, folder: Path, tmp_path: Path
) -> None:
    made = device.createContainer(CONTENT).result(PATIENCE).id
    target = folder / "file"
    leave_partial(device, made, target)
    with Network() as network:
        assert device.saveContainerContent(made, target).result(PATIENCE) == SIZE
        assert len(network.those("GET", "/segments")) == 1
    assert target.read_bytes() == CONTENT
    assert list(folder.iterdir()) == [target]
    assert state.read(tmp_path / "device", "SELECT * FROM journal") == []


@pytest.mark.long
def test_a_new_file_is_saved_without_a_sync(
    device: ServerProvider, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of photos has many: the disk would be waited for once for each."""
    made = device.createContainer(CONTENT).result(PATIENCE).id
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    device.saveContainerContent(made, folder / "new").result(PATIENCE)
    assert synced == []
    device.saveContainerContent(made, folder / "new").result(PATIENCE)
    assert len(synced) == 1, "replacing a file syncs the new one first"


def leave_partial(device: ServerProvider, made: Any, target: Path) -> None:
    """Two of three runs are there."""
    arrived = [0]

    async def treat(go: Go) -> Any:
        arrived[0] += 1
        if arrived[0] == 3:
            await until(lambda: saved[0] == 2 * RUN)  # the others arrive first
            raise BrokerError.permissionDeniedError("cut off")
        return await go()

    saved = [0]

    def count(done: int, total: int | None) -> None:
        del total
        saved[0] = done

    with Network() as network:
        network.treat("GET", "/segments", treat)
        with pytest.raises(BrokerError.permissionDeniedError):
            device.saveContainerContent(made, target, progress=count).result(PATIENCE)
    [partial] = target.parent.iterdir()
    assert partial.name.startswith(".")
    assert stat.S_IMODE(partial.stat().st_mode) == 0o600


@pytest.mark.long
@pytest.mark.parametrize("harm", ["a byte", "zeros", "shorter", "removed", "journal removed"])
def test_runs_that_changed_on_the_disk_are_fetched_again(
    device: ServerProvider, folder: Path, tmp_path: Path, harm: str
) -> None:
    """As after a power cut, or by whoever writes to the folder: it is not taken for the content."""
    made = device.createContainer(CONTENT).result(PATIENCE).id
    target = folder / "file"
    leave_partial(device, made, target)
    [partial] = folder.iterdir()
    if harm == "removed":
        partial.unlink()
    elif harm == "journal removed":
        state.change(tmp_path / "device", "DELETE FROM journal")
    elif harm == "shorter":
        os.truncate(partial, 100)
    else:
        with partial.open("r+b") as file:
            data = file.read()
            for start in range(0, len(data), RUN):
                file.seek(start)
                run = data[start : start + RUN]
                file.write(bytes(len(run)) if harm == "zeros" else bytes([run[0] ^ 1]))
    with Network() as network:
        device.saveContainerContent(made, target).result(PATIENCE)
        assert len(network.those("GET", "/segments")) == 3
    assert target.read_bytes() == CONTENT


def test_a_container_without_content_writes_no_file(
    alice: ServerProvider, bob: ServerProvider, folder: Path
) -> None:
    empty = alice.createContainer(None, {"title": "no content"}).result(PATIENCE).id
    assert alice.saveContainerContent(empty, folder / "file").result(PATIENCE) is None
    me, him = id_of(alice), id_of(bob)
    levels = [
        AccessLevel(me, ContainerAccessLevel.DefaultOwnerPermissions),
        AccessLevel(him, ContainerAccessLevel.ViewAccess),
    ]
    for content in (b"small", b"x" * (MAX_INLINE + 1)):
        hidden = alice.createContainer(content, accessLevels=levels).result(PATIENCE).id
        assert bob.saveContainerContent(hidden, folder / "file").result(PATIENCE) is None
        assert bob.openContainerContent(hidden).result(PATIENCE) is None
    assert list(folder.iterdir()) == []


def test_a_place_where_no_file_can_be_is_refused_before_anything_is_asked(
    alice: ServerProvider, folder: Path
) -> None:
    made = alice.createContainer(b"small").result(PATIENCE).id
    with Network() as network:
        missing, too_long = folder / "missing" / "file", folder / ("x" * 300)
        for wrong in (folder, missing, too_long, "text", b"bytes", None, 7):
            with pytest.raises(BrokerError.invalidArgumentError):
                drop(alice.saveContainerContent(made, wrong))  # type: ignore[arg-type]
        assert network.sent == []


@pytest.mark.long
def test_a_full_disk_is_an_error_and_leaves_the_existing_file(
    device: ServerProvider, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = folder / "file"
    target.write_bytes(b"before")
    made = device.createContainer(CONTENT).result(PATIENCE).id

    def full(self: Path, other: Path) -> None:
        del self, other
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(
            BrokerError.diskFullError, match=r"No room is left in '.*' \(No space left .*free some"
        ):
            device.saveContainerContent(made, target).result(PATIENCE)
    assert target.read_bytes() == b"before"
    with Network() as network:
        device.saveContainerContent(made, target).result(PATIENCE)
        assert network.those("GET", "/segments") == [], "all of it was there"
    assert target.read_bytes() == CONTENT


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("kind", ["link", "second name", "pipe", "open to others"])
def test_a_partial_file_is_resumed_only_if_it_belongs_to_this_user_alone(
    device: ServerProvider, folder: Path, tmp_path: Path, kind: str
) -> None:
    made = device.createContainer(CONTENT).result(PATIENCE).id
    target, precious = folder / "file", tmp_path / "precious"
    leave_partial(device, made, target)
    [partial] = folder.iterdir()
    precious.write_bytes(partial.read_bytes())
    before = precious.read_bytes()
    if kind == "open to others":
        partial.chmod(0o666)
    else:
        partial.unlink()
        place: dict[str, Callable[[Path], object]] = {
            "link": partial.symlink_to,
            "second name": partial.hardlink_to,
            "pipe": lambda _: os.mkfifo(partial, 0o600),
        }
        place[kind](precious)
    with Network() as network:
        device.saveContainerContent(made, target).result(PATIENCE)
        assert len(network.those("GET", "/segments")) == 3
    assert precious.read_bytes() == before
    assert target.read_bytes() == CONTENT
    assert (stat.S_IMODE(target.stat().st_mode), target.stat().st_nlink) == (0o600, 1)


def test_saves_to_one_target_by_two_trust_stores_have_a_partial_file_each(tmp_path: Path) -> None:
    """Their locks are in different folders. In one file, the second would truncate what the first wrote."""
    key, target = bytes(32), tmp_path / "file"
    opened = OpenPart(bytes(16), Role.Content, Part(bytes(16), key, RUN, key, bytes(112)), key, RUN)
    saves = [
        _Partial(target, Journal.open(LocalState(tmp_path / name), key, b"save"))
        for name in ("first", "second")
    ]
    for save in saves:
        save.resume(opened)
        save.write(0, memoryview(CONTENT[:RUN]))
    saves[1].resume(opened)
    saves[0].finish(RUN)
    for save in saves:
        save.close()
    assert target.read_bytes() == CONTENT[:RUN]


def test_a_part_of_the_same_id_with_other_segments_is_another_content(tmp_path: Path) -> None:
    """As a member with Upload and the broker could make it together."""
    author, key = bytes(32), bytes(32)
    parts = [Part(bytes(16), author, RUN, bytes([n]) * 32, bytes(112)) for n in range(2)]
    first, second = (OpenPart(bytes(16), Role.Content, part, key, RUN) for part in parts)
    for opened, there in ((first, set()), (first, {0}), (second, set()), (first, set())):
        journal = Journal.open(LocalState(tmp_path / "device"), key, b"save")
        partial = _Partial(tmp_path / "file", journal)
        try:
            assert partial.resume(opened) == there
            partial.write(0, memoryview(bytes(RUN)))
        finally:
            partial.close()
