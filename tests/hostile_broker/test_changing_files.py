"""Attacks on an upload by a program that changes the file meanwhile.

Attack 61 of `catalogue`. Each byte is read once: what is signed is what was sealed.
"""

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from scbroker import BrokerError
from scbroker.client.http import requests
from scbroker.client.parts.downloads import RUN
from scbroker.records.container_record import SEGMENT
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.broker import CutError, Exchange
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import CHUNK, RECORD, VIEW
from tests.kit.impatience import be_impatient
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User

OLD, NEW = b"o" * SEGMENT, b"n" * SEGMENT
COMPARED = 100_000
TRIES = 50
SEGMENTS = 2 * RUN // SEGMENT + 3


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of three chunks, of which the last is read after the first was sent."""
    monkeypatch.setattr(requests, "CHUNKS_AT_ONCE", 1)
    path = tmp_path / "file"
    path.write_bytes(OLD * SEGMENTS)
    return path


def once(change: Callable[[], object]) -> Callable[[Exchange], None]:
    done: list[object] = []

    def before(_: Exchange) -> None:
        if not done:
            done.append(change())

    return before


def by_writing(file: Path) -> None:
    with file.open("r+b") as changed:
        changed.seek(-SEGMENT, 2)
        changed.write(NEW)


def by_replacing(file: Path) -> None:
    other = file.with_suffix(".other")
    other.write_bytes(NEW * SEGMENTS)
    other.replace(file)


@pytest.mark.sampled
@attack(61, "file changed during its upload")
@pytest.mark.parametrize("change", [by_writing, by_replacing], ids=lambda way: way.__name__)
def test_no_record_is_signed_for_a_file_that_changed_between_its_first_and_last_chunk(
    mallory: Mallory, alice: User, file: Path, change: Callable[[Path], None]
) -> None:
    device, count = mallory.device_of(alice), len(mallory.heard)
    with (
        mallory.meddling(CHUNK, before=once(lambda: change(file))),
        pytest.raises(BrokerError.invalidArgumentError, match="changed while it was read"),
    ):
        device.createContainer(file).result(PATIENCE)
    assert CHUNK in mallory.since(count)
    assert RECORD not in mallory.since(count)


@pytest.mark.long
@attack(61, "file changed during its upload")
def test_a_chunk_that_is_sealed_again_after_an_unnoticed_change_shares_no_key_stream(
    mallory: Mallory, alice: User, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second answer is lost, so that the resumed upload seals that chunk again under the same key.

    The system dates the change if it wrote the mapped pages to disk meanwhile. The upload then starts again
    as another part, and the attack is repeated.
    """
    be_impatient(monkeypatch)
    device, sent = mallory.device_of(alice, store=mallory.new_store()), list[Exchange]()

    def lose(exchange: Exchange) -> None:
        if exchange.path.endswith("/1"):
            sent.append(exchange)
            raise CutError

    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        for _ in range(TRIES):
            sent.clear()
            mapped[:] = OLD * SEGMENTS
            mapped.flush()
            for content in (OLD, NEW):
                mapped[:] = content * SEGMENTS
                with mallory.meddling(CHUNK, before=lose), suppress(BrokerError):
                    device.createContainer(file).result(PATIENCE)
            if sent[0].path == sent[-1].path:
                break
    pairs = list(zip(sent[0].body[:COMPARED], sent[-1].body[:COMPARED], strict=True))
    for difference in (0, ord("o") ^ ord("n")):
        assert sum(a ^ b == difference for a, b in pairs) < COMPARED / 100


@contextmanager
def pipe_in_place_of(file: Path) -> Iterator[Callable[[], object]]:
    """Yield what puts a pipe, into which nobody writes, in place of a file; let go whoever waits there."""
    pipe = file.with_suffix(".pipe")
    os.mkfifo(pipe)
    yield lambda: pipe.replace(file)
    os.close(os.open(file, os.O_RDWR | os.O_NONBLOCK))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes among files")
@pytest.mark.parametrize("content", [b"", b"old"], ids=["no size", "a size"])
@attack(61, "file changed during its upload")
def test_no_upload_waits_at_a_pipe_that_has_taken_the_place_of_its_file(
    mallory: Mallory, alice: User, tmp_path: Path, content: bytes
) -> None:
    device = mallory.device_of(alice)
    made = device.createContainer(b"before").result(PATIENCE)
    (file := tmp_path / "file").write_bytes(content)
    with pipe_in_place_of(file) as replace, mallory.meddling(VIEW, before=once(replace)):
        promise = device.updateContainerContent(made.id, file)
        try:
            promise.result(PATIENCE)
            failed = None
        except (BrokerError, TimeoutError) as error:
            failed = str(error)
    assert failed is not None
    assert "not a regular file any more" in failed
    assert device.getContainerContent(made.id).result(PATIENCE) == b"before"
