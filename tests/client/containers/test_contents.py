"""A content as a file to read and to seek in."""

import io
import random
import zipfile
from typing import Any, Final

import pytest

from scbroker import BrokerError, ContentReader, ServerProvider
from scbroker.records.container_record import SEALED_SEGMENT, SEGMENT
from tests.client.conftest import drop
from tests.kit.network import Go, Network
from tests.kit.waiting import PATIENCE

SIZE: Final = 9 * SEGMENT + 777
CONTENT: Final = random.Random(7).randbytes(SIZE)


def opened(provider: ServerProvider, content: bytes) -> ContentReader:
    made = provider.createContainer(content).result(PATIENCE)
    found = provider.openContainerContent(made.id).result(PATIENCE)
    assert found is not None
    assert (found.size, found.version, found.containerId) == (len(content), 1, made.id)
    return found


@pytest.mark.long
def test_any_range_is_what_stands_there(alice: ServerProvider) -> None:
    edges = [0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 8 * SEGMENT, SIZE - 1, SIZE, SIZE + 5]
    with opened(alice, CONTENT) as reader:
        for start in edges:
            for length in (0, 1, 5, SEGMENT, 3 * SEGMENT + 1):
                found = reader.readRange(start, length).result(PATIENCE)
                assert found == CONTENT[start : start + length]
        assert reader.readRange(0, SIZE * 2).result(PATIENCE) == CONTENT


@pytest.mark.sampled
@pytest.mark.parametrize("content", [b"", b"small", CONTENT], ids=["empty", "small", "large"])
def test_it_reads_and_seeks_as_any_file_does(alice: ServerProvider, content: bytes) -> None:
    reader, model = opened(alice, content), io.BytesIO(content)
    chance = random.Random(len(content))
    assert (reader.readable(), reader.seekable(), reader.writable()) == (True, True, False)
    for _ in range(60):
        size = chance.choice([0, 1, 100, SEGMENT // 3, SEGMENT])
        match chance.randrange(4):
            case 0:
                assert reader.read(size) == model.read(size)
            case 1:
                at = chance.randrange(len(content) + 10)
                assert reader.seek(at) == model.seek(at)
            case 2:
                back = chance.randrange(len(content) + 1)
                assert reader.seek(-back, io.SEEK_END) == model.seek(-back, io.SEEK_END)
            case _:
                first, second = bytearray(size), bytearray(size)
                assert reader.readinto(first) == model.readinto(second)
                assert first == second
        assert reader.tell() == model.tell()
    reader.seek(3)
    model.seek(3)
    assert reader.read() == model.read()
    assert reader.read() == b""


def test_what_is_fetched_is_what_is_read_and_not_the_whole(alice: ServerProvider) -> None:
    reader = opened(alice, CONTENT)
    received: list[int] = []

    async def weigh(go: Go) -> Any:
        answer = await go()
        received.append(len(answer))
        return answer

    with Network() as network:
        network.treat("GET", "/segments", weigh)
        reader.seek(5 * SEGMENT + 100)
        for _ in range(1000):
            reader.read(100)
        assert received == [SEALED_SEGMENT], "small reads in a row fetch no segment twice"
        received.clear()
        reader.readRange(2 * SEGMENT + 7, SEGMENT).result(PATIENCE)
        assert received == [2 * SEALED_SEGMENT]


def test_other_libraries_read_through_it(alice: ServerProvider) -> None:
    """An archive's index stands at its end, and one member is read without the others."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("noise", CONTENT)
        made.writestr("letter.txt", "Dear Bob,\nhow are you?\n")
    with opened(alice, archive.getvalue()) as reader, zipfile.ZipFile(reader) as found:
        assert found.read("letter.txt") == b"Dear Bob,\nhow are you?\n"
    with opened(alice, "Zeile eins\nZeile zwölf\n".encode()) as reader:
        lines = io.TextIOWrapper(io.BufferedReader(reader), encoding="utf-8").readlines()
        assert lines == ["Zeile eins\n", "Zeile zwölf\n"]


def test_it_stays_the_content_that_was_opened(alice: ServerProvider) -> None:
    reader = opened(alice, CONTENT)
    alice.updateContainerContent(reader.containerId, b"another").result(PATIENCE)
    assert reader.readRange(0, 10).result(PATIENCE) == CONTENT[:10]
    again = alice.openContainerContent(reader.containerId).result(PATIENCE)
    assert again is not None
    assert (again.read(), again.version) == (b"another", 2)


def test_after_it_was_closed_or_the_session_ended_nothing_is_read(alice: ServerProvider) -> None:
    reader = opened(alice, CONTENT)
    key = reader._source
    reader.close()
    for use in (reader.read, reader.tell, lambda: reader.seek(0), lambda: reader.readRange(0, 1)):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert reader._source is not key
    open_still = opened(alice, CONTENT)
    alice.logout().result(PATIENCE)
    with pytest.raises(BrokerError.notAuthenticatedError):
        open_still.read(1)


def test_wrong_numbers_are_refused(alice: ServerProvider) -> None:
    reader = opened(alice, b"small")
    for offset, length in ((-1, 1), (0, -1), (0.5, 1), (True, 1), ("0", 1)):
        with pytest.raises(BrokerError.invalidArgumentError):
            drop(reader.readRange(offset, length))  # type: ignore[arg-type]
    for offset, whence in ((-1, 0), (-6, 2), (0, 7)):
        with pytest.raises(BrokerError.invalidArgumentError):
            reader.seek(offset, whence)
    assert "small" not in repr(reader)
