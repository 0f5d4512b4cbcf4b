"""Promises: looked at from anywhere, as often as wanted; a failure is never silent and never old."""

import asyncio
import builtins
import concurrent.futures
import gc
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from scbroker import BrokerError, Promise
from scbroker.client.calls.tasks import io_thread
from tests.kit.scripts import functions_of, run_script
from tests.kit.waiting import PATIENCE, tick, until, wait_until


def start(work: Coroutine[Any, Any, Any]) -> Promise[Any]:
    """A promise as an operation makes it."""
    return Promise("work", io_thread.submit("work", work))


def drop(promise: Promise[Any]) -> None:
    """Nobody keeps it, nobody looks at it."""
    del promise


async def soon(value: object) -> object:
    await tick()
    return value


class Gate:
    """Work that ends when the test says so, and notes whether it was cancelled."""

    def __init__(self) -> None:
        self.began, self.open = threading.Event(), threading.Event()
        self.ended = threading.Event()
        self.cancelled = False

    async def work(self) -> str:
        self.began.set()
        try:
            await until(self.open.is_set)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.ended.set()
        return "through"


async def failing(gate: Gate | None = None) -> None:
    if gate is not None:
        await gate.work()
    try:
        raise KeyError("inner")
    except KeyError:
        raise BrokerError.throttledError("slow down", retryAfter=7.0) from None


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


async def test_a_promise_is_awaited_by_tasks_gather_and_task_groups() -> None:
    async def one(promise: Promise[Any]) -> Any:
        return await promise

    assert await asyncio.create_task(one(start(soon(1)))) == 1
    assert await asyncio.create_task(start(soon(1))) == 1
    assert list(await asyncio.gather(start(soon(1)), start(soon(2)))) == [1, 2]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(start(soon(n)))) for n in range(3)]
        tasks += [group.create_task(start(soon(n))) for n in range(3)]
    assert [task.result() for task in tasks] == [0, 1, 2] * 2
    assert await asyncio.wait_for(start(soon(3)), PATIENCE) == 3
    assert await asyncio.shield(start(soon(4))) == 4
    assert {await each for each in asyncio.as_completed([start(soon(5)), start(soon(6))])} == {5, 6}


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_several_tasks_wait_for_one_promise_which_can_be_awaited_again(
    run: Callable[..., Any], gate: Gate
) -> None:
    promise = start(gate.work())

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(promise) for _ in range(3)]
        await tick()
        assert "work" in repr(tasks[0])
        gate.open.set()
        return [*await asyncio.gather(*tasks), await promise, await promise]

    assert run(main(), debug=True) == ["through"] * 5
    assert run(promise) == "through"


def test_a_failure_in_a_task_group_cancels_the_other_waits_and_leaves_their_operations_running(
    gate: Gate,
) -> None:
    promise = start(gate.work())

    others: list[asyncio.Task[Any]] = []

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            others.append(group.create_task(promise))
            group.create_task(start(failing()))

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(both())
    assert [type(error) for error in caught.value.exceptions] == [BrokerError.throttledError]
    assert others[0].cancelled()
    assert not gate.cancelled
    gate.open.set()
    assert promise.result(PATIENCE) == "through"


async def test_result_is_refused_in_a_coroutine_whose_event_loop_it_would_block(gate: Gate) -> None:
    promise = start(gate.work())

    def wait_inside() -> object:
        return promise.result(PATIENCE)

    async def generate() -> AsyncIterator[object]:
        yield promise.result(PATIENCE)

    for attempt in (promise.result, wait_inside):
        with pytest.raises(BrokerError.invalidArgumentError, match=r"write `await`"):
            attempt()
    with pytest.raises(BrokerError.invalidArgumentError):
        await anext(generate())
    with pytest.raises(TimeoutError):
        promise.result(0)  # only looks
    gate.open.set()
    assert await asyncio.to_thread(wait_inside) == "through"
    assert promise.result() == "through", "nothing is left to wait for"


def test_result_waits_in_a_cell_of_a_notebook_and_in_a_handler_although_a_loop_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A notebook runs a cell without `await` in a task of its own."""
    found: list[object] = []

    async def kernel() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(builtins, "__IPYTHON__", True, raising=False)  # as IPython does
            found.append(start(soon(1)).result())
        handled = asyncio.get_running_loop().create_future()
        handle = lambda: handled.set_result(start(soon(2)).result(PATIENCE))  # noqa: E731
        asyncio.get_running_loop().call_soon(handle)
        found.append(await handled)

    asyncio.run(kernel())
    assert found == [1, 2]


def test_one_promise_is_awaited_in_several_loops_and_threads_at_once(gate: Gate) -> None:
    promise = start(gate.work())

    async def look() -> Any:
        return await promise

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        found = [threads.submit(lambda: asyncio.run(look())) for _ in range(4)]
        found += [threads.submit(promise.result, PATIENCE) for _ in range(4)]
        gate.open.set()
    assert [each.result() for each in found] == ["through"] * 8


def test_result_waits_no_longer_than_asked_and_says_what_is_under_way(gate: Gate) -> None:
    promise = start(gate.work())
    with pytest.raises(TimeoutError, match="work is still under way"):
        promise.result(0.05)
    assert not promise.done()
    gate.open.set()
    assert promise.result(PATIENCE) == "through"


def test_cancelling_an_await_leaves_the_operation_running(gate: Gate) -> None:
    promise = start(gate.work())

    async def main() -> None:
        async def look() -> Any:
            return await promise

        task = asyncio.create_task(look())
        await until(gate.began.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not gate.cancelled
    gate.open.set()
    assert promise.result(PATIENCE) == "through"


def test_cancelling_the_promise_stops_the_operation(gate: Gate) -> None:
    promise = start(gate.work())
    assert gate.began.wait(PATIENCE)
    assert promise.cancel()
    assert gate.ended.wait(PATIENCE)
    assert gate.cancelled
    for _ in range(2):
        with pytest.raises(BrokerError.operationCancelledError):
            promise.result(PATIENCE)
    assert promise.done()

    async def look() -> Any:
        return await promise

    with pytest.raises(BrokerError.operationCancelledError):
        asyncio.run(look())


def test_cancelling_at_once_still_runs_what_the_operation_has_to_clean_up() -> None:
    """The work begins before it is cancelled, so that its `finally` is never skipped."""
    seen = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cleaned up")

    for _ in range(50):
        start(work()).cancel()
    wait_until(lambda: len(seen) == 50)


def by_result(promise: Promise[Any]) -> None:
    promise.result(PATIENCE)


def by_await(promise: Promise[Any]) -> None:
    async def look() -> None:
        await promise

    asyncio.run(look())


@pytest.mark.parametrize("look", [by_result, by_await])
def test_each_look_at_a_failure_raises_a_fresh_error_that_does_not_grow(
    look: Callable[[Promise[Any]], None],
) -> None:
    """No frame of the operation, the same number each time, no context, and the error's own fields."""
    promise = start(failing())
    errors = []
    for _ in range(3):
        with pytest.raises(BrokerError.throttledError, match="slow down") as caught:
            look(promise)
        errors.append(caught.value)
    assert len({id(error) for error in errors}) == 3
    assert len({len(functions_of(error)) for error in errors}) == 1
    for error in errors:
        assert error.retryAfter == 7.0
        assert error.__context__ is None
        assert error.__cause__ is None
        assert not {"failing", "work", "_run"} & set(functions_of(error))


def test_a_fault_of_our_own_shows_its_kind_and_nothing_of_its_text() -> None:
    async def work() -> None:
        raise ZeroDivisionError("hunter2")

    with pytest.raises(BrokerError.brokerFaultError, match="ZeroDivisionError") as caught:
        start(work()).result(PATIENCE)
    assert "hunter2" not in str(caught.value)


def test_waiting_on_our_own_thread_is_refused_instead_of_waiting_for_ever() -> None:
    async def work() -> str:
        inner = start(soon(1))
        with pytest.raises(BrokerError.invalidArgumentError, match="own thread"):
            inner.result()
        return str(await inner)

    assert start(work()).result(PATIENCE) == "1"


def failures_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    gc.collect()
    return [record.getMessage() for record in caplog.records if record.name == "scbroker"]


def test_the_failure_of_a_promise_that_was_dropped_before_it_ended_is_logged_exactly_once(
    caplog: pytest.LogCaptureFixture, gate: Gate
) -> None:
    drop(start(failing(gate)))
    assert failures_in(caplog) == []
    gate.open.set()
    wait_until(lambda: failures_in(caplog))
    start(soon(1)).result(PATIENCE)  # the thread is done with what came before
    assert failures_in(caplog) == ["work failed and its error was never read: slow down"]


def test_what_was_looked_at_went_well_or_was_cancelled_is_not_logged(
    caplog: pytest.LogCaptureFixture, gate: Gate
) -> None:
    looked, fine, stopped = start(failing()), start(soon(1)), start(failing(gate))
    with pytest.raises(BrokerError.throttledError):
        looked.result(PATIENCE)
    fine.result(PATIENCE)
    stopped.cancel()
    with pytest.raises(BrokerError.operationCancelledError):
        stopped.result(PATIENCE)
    del looked, fine, stopped
    drop(start(soon(1)))
    start(soon(2)).result(PATIENCE)  # the thread is done with what came before
    assert failures_in(caplog) == []


PRELUDE = """
import asyncio, concurrent.futures, os, sys, threading, warnings
from scbroker import BrokerError, Promise
from scbroker.client.calls import tasks as module
from scbroker.client.calls.tasks import io_thread

def start(name, work):
    return Promise(name, io_thread.submit(name, work))

go_on = asyncio.Event()

async def at_once(value=None):
    return value

async def gated(value=None):
    await go_on.wait()
    return value

async def let():
    go_on.set()

def at_the_drain(act):  # when the end of the process waits for what is under way
    wait = concurrent.futures.wait

    def begin(*futures, **options):
        concurrent.futures.wait = wait
        act()
        return wait(*futures, **options)

    concurrent.futures.wait = begin
"""


@pytest.mark.long
def test_the_end_of_a_process_is_not_held_up_and_one_warning_names_what_was_dropped() -> None:
    done = run_script(
        PRELUDE
        + """
module._DRAIN_SECONDS = 0.2  # they never end
one, two = [start(name, asyncio.Event().wait()) for name in ("createContainer", "logout")]
again, three = start("createContainer", asyncio.Event().wait()), start("x", gated())
at_the_drain(lambda: (start("let", let()), three.result()))
"""
    )
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "The process ends before these had finished: createContainer, logout"
    ]


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="on_exit is a function of glibc")
def test_an_event_after_the_end_of_the_interpreter_does_not_crash_the_process() -> None:
    """The process ends a second after its interpreter. A handler that runs after the drain still works."""
    done = run_script(
        PRELUDE
        + """
import atexit, ctypes

atexit.register(lambda: print(start("late", at_once(1)).result()))

async def later():
    asyncio.get_running_loop().call_later(0.5, print)

start("later", later()).result()
libc = ctypes.CDLL(None)
libc.on_exit(ctypes.cast(libc.sleep, ctypes.c_void_p), None)  # it gets the exit status
sys.exit(1)
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "1\n", "")
