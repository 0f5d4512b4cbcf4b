"""mainQueue: handlers on the main thread, through whatever runs there, and none of them lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from scbroker import BrokerError
from scbroker.client.main_queue import MainQueue
from tests.client.scripts import run_script

PATIENCE = 9.0


@pytest.fixture
def queue() -> Iterator[MainQueue]:
    """A queue of the test's own: the process's one is shared."""
    queue = MainQueue()
    yield queue
    assert queue.run(0), "nothing is left behind"


def in_thread(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_work_runs_on_the_main_thread_in_order_whoever_submits_it(queue: MainQueue) -> None:
    seen: list[tuple[int, threading.Thread]] = []

    def note(number: int) -> int:
        seen.append((number, threading.current_thread()))
        return number * 2

    futures = [queue.submit(note, 0)]
    in_thread(lambda: futures.append(queue.submit(note, 1)))
    futures.append(queue.submit(note, 2))
    assert seen == []
    assert queue.run(PATIENCE)
    assert seen == [(number, threading.main_thread()) for number in range(3)]
    assert [future.result() for future in futures] == [0, 2, 4]


def test_run_waits_for_what_is_under_way_and_for_what_that_submits(queue: MainQueue) -> None:
    seen: list[str] = []
    queue.expect()

    def first() -> None:
        seen.append("first")
        queue.submit(seen.append, "second")

    def later() -> None:
        time.sleep(0.05)
        queue.submit(first)
        queue.arrived()

    thread = threading.Thread(target=later)
    thread.start()
    assert queue.run(PATIENCE)
    thread.join()
    assert seen == ["first", "second"]


def test_run_gives_up_in_time_and_says_so(queue: MainQueue) -> None:
    queue.expect()
    began = time.monotonic()
    assert not queue.run(0.05)
    assert not queue.run(0)
    assert 0.05 <= time.monotonic() - began < 2
    queue.arrived()
    assert queue.run(0)


def test_run_is_for_the_main_thread(queue: MainQueue) -> None:
    def wrong() -> None:
        with pytest.raises(BrokerError.invalidArgumentError, match="main thread"):
            queue.run()

    in_thread(wrong)


def test_waiting_on_the_main_thread_for_its_own_work_is_refused(queue: MainQueue) -> None:
    """It would wait for ever. Any other thread may wait, and the main one once it is done."""
    future = queue.submit(lambda: 7)
    with pytest.raises(BrokerError.invalidArgumentError, match="wait for ever"):
        future.result()
    with pytest.raises(BrokerError.invalidArgumentError, match="wait for ever"):
        future.result(1)
    with pytest.raises(BrokerError.invalidArgumentError, match="wait for ever"):
        future.exception()
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(future.result(PATIENCE)))
    thread.start()
    assert queue.run(PATIENCE)
    thread.join()
    assert found == [7]
    assert future.result() == 7


def test_an_exception_goes_to_the_future_and_the_queue_goes_on(queue: MainQueue) -> None:
    broken, fine = queue.submit(lambda: 1 / 0), queue.submit(lambda: 1)
    assert queue.run(PATIENCE)
    with pytest.raises(ZeroDivisionError):
        broken.result()
    assert fine.result() == 1


def test_what_was_cancelled_does_not_run(queue: MainQueue) -> None:
    seen: list[int] = []
    assert queue.submit(seen.append, 1).cancel()
    assert queue.run(PATIENCE)
    assert seen == []


def test_in_an_event_loop_of_the_main_thread_the_loop_runs_the_work(queue: MainQueue) -> None:
    """Without anybody calling `run`, and also what another thread submits."""
    seen: list[Any] = []

    def submit() -> None:
        queue.submit(seen.append, 1)
        queue.arrived()

    other = threading.Thread(target=submit)

    async def main() -> None:
        queue.expect()
        other.start()
        queue.submit(lambda: seen.append(threading.current_thread()))
        assert seen == []
        while len(seen) < 2:  # noqa: ASYNC110 - the work knows no loop
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    other.join(PATIENCE)
    assert set(seen) == {1, threading.main_thread()}


def test_a_loop_of_another_thread_is_not_taken_for_the_main_ones(queue: MainQueue) -> None:
    seen: list[threading.Thread] = []

    async def elsewhere() -> None:
        queue.notice_loop()
        queue.submit(lambda: seen.append(threading.current_thread()))
        await asyncio.sleep(0.02)

    in_thread(lambda: asyncio.run(elsewhere()))
    assert seen == []
    assert queue.run(PATIENCE)
    assert seen == [threading.main_thread()]


@pytest.mark.parametrize("ended", ["closed", "stopped"])
def test_nothing_is_lost_when_a_loop_ends_and_another_begins(queue: MainQueue, ended: str) -> None:
    """Work that comes between two loops runs in the second, as soon as that one is noticed."""
    seen: list[int] = []

    async def notice() -> None:
        queue.notice_loop()
        await asyncio.sleep(0)

    first = asyncio.new_event_loop()
    first.run_until_complete(notice())
    if ended == "closed":
        first.close()
    queue.submit(seen.append, 1)
    queue.submit(seen.append, 2)
    assert seen == []

    async def second() -> None:
        queue.notice_loop()
        while len(seen) < 2:  # noqa: ASYNC110 - the work knows no loop
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(second(), PATIENCE))
    assert seen == [1, 2]
    first.close()


def test_nothing_is_lost_when_a_loop_ends_and_the_script_goes_on(queue: MainQueue) -> None:
    seen: list[int] = []

    async def main() -> None:
        queue.expect()

    asyncio.run(main())
    queue.submit(seen.append, 1)
    queue.arrived()
    assert queue.run(PATIENCE)
    assert seen == [1]


def test_run_lets_an_interrupt_through() -> None:
    """Ctrl-C ends a script that waits in `run`, as it ends any other."""
    done = run_script("""
import os, signal, threading
from scbroker import mainQueue
mainQueue.expect()
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    mainQueue.run(30)
except KeyboardInterrupt:
    print("interrupted")
""")
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
