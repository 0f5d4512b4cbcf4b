"""A large file that was cut off on its way to the broker goes on where it was."""

import os
import uuid
from pathlib import Path
from typing import Final

import pytest

from scbroker import BrokerError, FileTrustStore, KeyRing, ServerProvider
from scbroker.records.container_record import SEGMENT
from scbroker.wire.parts import CHUNK_SEGMENTS
from tests.client.conftest import id_of
from tests.kit import state
from tests.kit.fixtures import NewProvider
from tests.kit.network import Go, Network, Treatment
from tests.kit.waiting import PATIENCE, until

CHUNK: Final = CHUNK_SEGMENTS * SEGMENT
SIZE: Final = 2 * CHUNK + 12_345
ALL: Final = {0, 1, 2}
_PIECE: Final = bytes(range(256)) * 4096
_CUT = BrokerError.permissionDeniedError("cut off")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "large file"
    path.write_bytes(_content(b"1"))
    return path


def _content(mark: bytes) -> bytes:
    return (mark + _PIECE * (SIZE // len(_PIECE) + 1))[:SIZE]


@pytest.fixture
def device(new_provider: NewProvider, tmp_path: Path) -> ServerProvider:
    return new_provider(True, trustStore=FileTrustStore(tmp_path / "device"))


def failing_after(chunks: int) -> Treatment:
    """The broker gets so many chunks, whichever they are, and no more."""
    begun, arrived = [0], [0]

    async def treat(go: Go) -> bytes:
        begun[0] += 1
        if begun[0] <= chunks:
            answer = bytes(await go())
            arrived[0] += 1
            return answer
        await until(lambda: arrived[0] == chunks)  # what is under way arrives first
        raise _CUT.fresh()

    return treat


def chunks_of(network: Network) -> set[int]:
    """Return the chunks that were sent; a chunk is sent again if the broker was slow to take it."""
    return {int(each.path.rpartition("/")[2]) for each in network.sent if "/chunks/" in each.path}


def cut_off(device: ServerProvider, file: Path, after: int, into: uuid.UUID | None = None) -> None:
    """Sends so many chunks of the file, and fails."""
    with Network() as network:
        treatment = failing_after(after)
        for number in ALL:
            network.treat("PUT", f"/chunks/{number}", treatment)
        with pytest.raises(BrokerError.permissionDeniedError):
            begin(device, file, into)


def begin(device: ServerProvider, file: Path, into: uuid.UUID | None = None) -> uuid.UUID:
    if into is None:
        return device.createContainer(file).result(PATIENCE).id
    return device.updateContainerContent(into, file).result(PATIENCE).id


def journals(tmp_path: Path) -> list[object]:
    locks = (tmp_path / "device").glob("*.lock")
    return [*state.read(tmp_path / "device", "SELECT * FROM journal"), *locks]


@pytest.mark.long
@pytest.mark.parametrize("existing", [False, True], ids=["create", "update"])
def test_chunks_that_arrived_before_a_cut_are_not_sent_again(
    device: ServerProvider, file: Path, tmp_path: Path, existing: bool
) -> None:
    into = device.createContainer(b"small").result(PATIENCE).id if existing else None
    cut_off(device, file, 2, into)
    steps: list[tuple[int, int | None]] = []
    with Network() as network:
        if into is None:
            made = device.createContainer(file, progress=lambda *step: steps.append(step))
        else:
            made = device.updateContainerContent(
                into, file, progress=lambda *step: steps.append(step)
            )
        found = made.result(PATIENCE).id
        assert len(chunks_of(network)) == 1
    assert device.getContainerContent(found).result(PATIENCE) == file.read_bytes()
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[0][0] >= CHUNK + 12_345, "what is there already counts as done"
    assert steps[-1] == (SIZE, SIZE)
    assert journals(tmp_path) == []


@pytest.mark.long
def test_another_user_another_container_and_another_trust_store_begin_anew(
    device: ServerProvider, new_provider: NewProvider, file: Path, tmp_path: Path
) -> None:
    cut_off(device, file, 2)
    keys: KeyRing = device.getKeyRing().result(PATIENCE)
    elsewhere = new_provider(keys)
    stranger = new_provider(True, trustStore=FileTrustStore(tmp_path / "device"))
    other = device.createContainer(b"small").result(PATIENCE).id
    for provider, into in ((elsewhere, None), (stranger, None), (device, other)):
        with Network() as network:
            begin(provider, file, into)
            assert chunks_of(network) == ALL


@pytest.mark.long
def test_a_broker_that_claims_a_chunk_it_does_not_have_cannot_make_another_of_it(
    device: ServerProvider, file: Path
) -> None:
    cut_off(device, file, 2)

    async def lie(go: Go) -> bytes:
        answer = bytearray(await go())
        answer[-1] ^= 1
        return bytes(answer)

    with Network() as network:
        network.treat("GET", "/chunks", lie)
        made = begin(device, file)
        assert len(chunks_of(network)) == 2, (
            "the one that is missing, and the one that it lied about"
        )
    assert device.getContainerContent(made).result(PATIENCE) == file.read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("harm, sent", [
    ("UPDATE journal SET sealed = substr(sealed, 1, 50) WHERE number = 2", 2),
    ("DELETE FROM journal WHERE number = 2", 2),
    ("DELETE FROM journal", 3),
    ("UPDATE journal SET sealed = 'something'", 3),
])  # fmt: skip
def test_a_damaged_journal_costs_time_and_nothing_else(
    device: ServerProvider, file: Path, tmp_path: Path, harm: str, sent: int
) -> None:
    cut_off(device, file, 2)
    state.change(tmp_path / "device", harm)
    with Network() as network:
        made = begin(device, file)
        assert len(chunks_of(network)) == sent
    assert device.getContainerContent(made).result(PATIENCE) == file.read_bytes()


def test_neither_names_nor_keys_can_be_read_in_a_journal(
    device: ServerProvider, file: Path, tmp_path: Path
) -> None:
    cut_off(device, file, 2)
    rows = state.read(tmp_path / "device", "SELECT name, sealed FROM journal")
    assert len(rows) == 3
    written = b"".join(part for row in rows for part in row)
    user = id_of(device)
    for secret in (b"large file", str(file).encode(), str(user).encode(), user.bytes):
        assert secret not in written


@pytest.mark.long
def test_a_file_that_was_changed_in_place_begins_anew_although_its_times_were_put_back(
    device: ServerProvider, file: Path
) -> None:
    before = file.stat()
    cut_off(device, file, 2)
    with file.open("r+b") as changed:
        changed.write(b"another beginning")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with Network() as network:
        made = begin(device, file)
        assert chunks_of(network) == ALL
    assert device.getContainerContent(made).result(PATIENCE) == file.read_bytes()
