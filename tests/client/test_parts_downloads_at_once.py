"""Transfers of several contents at once share memory, and none reads or writes another's bytes."""

import contextlib
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from scbroker import BrokerError, ServerProvider
from scbroker.client import parts
from scbroker.client.calls.tasks import io_thread
from scbroker.client.core.sealing import OpenPart
from scbroker.client.parts import RUN
from scbroker.crypto.seal import random_bytes
from scbroker.records.container_record import SEGMENT
from tests.client.conftest import refusal
from tests.kit.waiting import PATIENCE, wait_until

SIZE: Final = 2 * RUN + 12_345


def new_file(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(random_bytes(SIZE))
    return path


class Stuck:
    """A thread of the pool that has filled memory for a transfer, and goes on once it is let."""

    def __init__(self) -> None:
        self.is_there, self.go_on = threading.Event(), threading.Event()
        self.was_changed: bool | None = None

    def hold(self, *memory: memoryview) -> None:
        before = [bytes(each) for each in memory]
        self.is_there.set()
        self.go_on.wait(PATIENCE)
        self.was_changed = before != [bytes(each) for each in memory]

    def check(self, between: Callable[[], Any]) -> None:
        """Run other transfers while the thread is stuck; its memory must stay as it was."""
        try:
            between()
        finally:
            self.go_on.set()
        wait_until(lambda: self.was_changed is not None)
        assert not self.was_changed


@contextlib.contextmanager
def under_way(provider: ServerProvider) -> Iterator[Callable[[], bool]]:
    """Have one more transfer, so that memory is kept; yield a function that says if it is the only one."""
    requests, stack = provider._requests, contextlib.ExitStack()

    async def begin() -> None:
        for memory in (requests.sealed, requests.plain):
            stack.enter_context(memory.transfer())

    async def end() -> None:
        stack.close()

    io_thread.submit("begin", begin()).result(PATIENCE)
    try:
        yield lambda: requests.sealed._transfers == requests.plain._transfers == 1
    finally:
        io_thread.submit("end", end()).result(PATIENCE)


@pytest.mark.long
@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_a_download_that_ended_shares_no_memory_that_its_threads_still_use(
    alice: ServerProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    file = new_file(tmp_path, "file")
    first, second = (alice.createContainer(file).result(PATIENCE).id for _ in range(2))
    stuck, honest = Stuck(), parts.open_run

    def open_run(
        opened: OpenPart, run: int, sealed: memoryview, hashes: bytes, target: memoryview
    ) -> int:
        size = honest(opened, run, sealed, hashes, target)
        if opened.container_id == first.bytes:
            if not run:
                stuck.hold(sealed, target)
            elif end == "failed":
                stuck.is_there.wait(PATIENCE)
                raise BrokerError.integrityError("an error in another thread")
        return size

    monkeypatch.setattr(parts, "open_run", open_run)
    with under_way(alice) as is_alone:
        saving = alice.saveContainerContent(first, tmp_path / "first")
        assert stuck.is_there.wait(PATIENCE)
        if end == "failed":
            refusal(saving, BrokerError.integrityError, "another thread")
        else:
            assert saving.cancel()
            wait_until(is_alone)

        def others() -> None:
            for _ in range(2):
                assert alice.getContainerContent(second).result(PATIENCE) == file.read_bytes()

        stuck.check(others)
    assert not (tmp_path / "first").exists()


@pytest.mark.long
def test_sixteen_contents_at_once_take_constant_memory(
    alice: ServerProvider, tmp_path: Path
) -> None:
    """Together they have 16 times 16 MiB, and buffers of their own would be 16 times 72 MiB."""
    files = [new_file(tmp_path, str(number)) for number in range(16)]
    targets = [file.with_suffix(".copy") for file in files]
    tracemalloc.start()
    try:
        creating = [alice.createContainer(file) for file in files]
        made = [promise.result(PATIENCE).id for promise in creating]
        saving = [alice.saveContainerContent(*each) for each in zip(made, targets, strict=True)]
        assert all(promise.result(PATIENCE) == SIZE for promise in saving)
        assert tracemalloc.get_traced_memory()[1] < 128 * SEGMENT
    finally:
        tracemalloc.stop()
