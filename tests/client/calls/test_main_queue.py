"""mainQueue: handlers on the main thread, through whatever runs there, and none of them lost."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from scbroker import BrokerError
from scbroker.client.calls import operation
from scbroker.client.calls.operation import MainQueue
from tests.kit.scripts import run_script
from tests.kit.waiting import PATIENCE, tick, until


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


def when_run_waits(
    queue: MainQueue, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have a thread do this as soon as `run` waits: until then `run` keeps the lock of the queue."""
    wait, thread = queue._changed.wait, threading.Thread(target=act)

    def begin(left: float | None) -> bool:
        if thread.ident is None:
            thread.start()
        return wait(left)

    monkeypatch.setattr(queue._changed, "wait", begin)


def test_run_waits_for_what_is_under_way_and_for_what_that_submits(
    queue: MainQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    queue.expect("work")

    def first() -> None:
        seen.append("first")
        queue.submit(seen.append, "second")

    def later() -> None:
        queue.submit(first)
        queue.arrived("work")

    when_run_waits(queue, later, monkeypatch)
    assert queue.run(PATIENCE)
    assert seen == ["first", "second"]


def test_run_gives_up_in_time_and_says_so(
    queue: MainQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only its waits move."""
    waits: list[float] = []
    monkeypatch.setattr(operation, "time", SimpleNamespace(monotonic=lambda: sum(waits)))
    monkeypatch.setattr(queue._changed, "wait", waits.append)
    queue.expect("work")
    assert not queue.run(60)
    assert not queue.run(0)
    assert sum(waits) == 60
    queue.arrived("work")
    assert queue.run(0)


def test_waiting_on_the_main_thread_for_its_own_work_is_refused(queue: MainQueue) -> None:
    future = queue.submit(lambda: 7)
    with pytest.raises(BrokerError.invalidArgumentError, match="wait for ever"):
        future.result()
    with pytest.raises(BrokerError.invalidArgumentError, match="wait for ever"):
        future.result(PATIENCE)
    with pytest.raises(BrokerError.invalidArgumentError, match="wait for ever"):
        future.exception()
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(future.result(PATIENCE)))
    thread.start()
    assert queue.run(PATIENCE)
    thread.join()
    assert found == [7]
    assert future.result() == 7


@pytest.mark.parametrize("ended", ["closed", "stopped"])
def test_nothing_is_lost_when_a_loop_ends_and_another_begins(queue: MainQueue, ended: str) -> None:
    seen: list[int] = []

    async def notice() -> None:
        queue.notice_loop()
        await tick()

    first = asyncio.new_event_loop()
    first.run_until_complete(notice())
    if ended == "closed":
        first.close()
    queue.submit(seen.append, 1)
    queue.submit(seen.append, 2)
    assert seen == []

    async def second() -> None:
        queue.notice_loop()
        await until(lambda: len(seen) == 2)

    asyncio.run(second())
    assert seen == [1, 2]
    first.close()


def test_a_loop_moved_to_another_thread_runs_no_work_of_the_main_thread(queue: MainQueue) -> None:
    seen: list[threading.Thread] = []

    async def notice() -> None:
        queue.notice_loop()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(notice())
    queue.submit(lambda: seen.append(threading.current_thread()))
    in_thread(lambda: loop.run_until_complete(tick()))
    loop.close()
    assert seen == []
    assert queue.run(PATIENCE)
    assert seen == [threading.main_thread()]


def test_a_process_that_ends_names_each_operation_whose_handler_did_not_run() -> None:
    done = run_script("""
from scbroker import mainQueue
def getReminder(): pass
def getEvents(): pass
mainQueue.submit(getReminder)
mainQueue.run()
mainQueue.submit(getEvents)
mainQueue.submit(getEvents)
mainQueue.expect("createContainer")
""")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "The process ends before these handlers ran: createContainer, getEvents. Call mainQueue.run() on "
        "the main thread, run an event loop there, or pass queue=."
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_the_child_of_a_fork_leaves_to_its_parent_what_waited() -> None:
    done = run_script("""
import os, sys
from scbroker import mainQueue
mainQueue.submit(print, "the parent's")
mainQueue.expect("work")
if os.fork() == 0:
    mainQueue.submit(print, "the child's")
    sys.exit(0 if mainQueue.run(0) else 1)
print(os.wait()[1], flush=True)
mainQueue.arrived("work")
mainQueue.run()
""")
    assert done.stdout.splitlines() == ["the child's", "0", "the parent's"]
    assert done.stderr == ""


def test_run_lets_an_interrupt_through() -> None:
    done = run_script("""
import os, signal, threading
from scbroker import mainQueue
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
mainQueue.expect("work")
wait = mainQueue._changed.wait

def interrupt():
    with mainQueue._changed:  # `run` keeps this lock until it waits
        os.kill(os.getpid(), signal.SIGINT)

def begin(left):
    threading.Thread(target=interrupt).start()
    wait(left)

mainQueue._changed.wait = begin
try:
    mainQueue.run()
except KeyboardInterrupt:
    print("interrupted")
mainQueue.arrived("work")
""")
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_an_interrupt_or_an_exit_inside_a_handler_ends_the_script() -> None:
    for ending, expected in (("raise KeyboardInterrupt", -2), ("sys.exit(3)", 3)):
        done = run_script(f"""
import sys
from scbroker import mainQueue

def handler():
    {ending}

mainQueue.submit(handler)
mainQueue.run()
print("still here")
""")
        assert done.returncode == expected
        assert done.stdout == ""


def test_run_is_for_the_main_thread(queue: MainQueue) -> None:
    def wrong() -> None:
        with pytest.raises(BrokerError.invalidArgumentError, match="main thread"):
            queue.run()

    in_thread(wrong)
