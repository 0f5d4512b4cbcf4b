"""A stream delivers each item once and in order, prefetches one page, and can be closed from anywhere."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import uvloop

from scbroker import BrokerError, Stream, mainQueue
from scbroker.client.calls.operation import Operations, Pages, stream_operation
from scbroker.client.calls.tasks import io_thread
from tests.client.calls.test_main_queue import when_run_waits
from tests.kit.scripts import functions_of
from tests.kit.waiting import PATIENCE, tick, wait_until


class Source:
    """A generator of pages that the test sends; it records how it ended."""

    def __init__(self) -> None:
        self.asked, self.ended = 0, threading.Event()
        self._queue: asyncio.Queue[Sequence[int] | BaseException | None] = asyncio.Queue()

    def send(self, *pages: Sequence[int] | BaseException | None) -> None:
        """Sends pages, an error, or None for the end."""

        async def put() -> None:
            for page in pages:
                self._queue.put_nowait(page)

        io_thread.submit("put", put()).result(PATIENCE)

    async def pages(self) -> Pages[int]:
        try:
            while True:
                self.asked += 1
                page = await self._queue.get()
                if page is None:
                    return
                if isinstance(page, BaseException):
                    raise page
                yield page
        finally:
            self.ended.set()


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def stream(source: Source) -> Iterator[Stream[int]]:
    with Stream("work", source.pages()) as stream:
        yield stream
    assert source.ended.wait(PATIENCE)


class Provider(Operations):
    """A provider with an operation that streams numbers."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @stream_operation
    def follow(self, start: int = 0) -> Pages[int]:
        """Follow."""
        if start < 0:
            raise BrokerError.invalidArgumentError("start must be 0 or more")
        if start == 99:
            raise ZeroDivisionError
        return self._source.pages()


@pytest.fixture
def provider(source: Source) -> Any:
    return Provider(source)


def settle() -> None:
    """Wait until scbroker's thread has done all that it does unless something else happens."""
    io_thread.submit("settle", tick(10)).result(PATIENCE)


def collect(stream: Stream[int], found: list[Any]) -> threading.Thread:
    """Iterates over a stream on a thread of its own."""

    def iterate() -> None:
        try:
            found.extend([*stream, "end"])
        except BrokerError as error:
            found.append(error)

    thread = threading.Thread(target=iterate)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "runner", [asyncio.Runner, lambda: asyncio.Runner(loop_factory=uvloop.new_event_loop)]
)
def test_async_for_gets_the_same_in_any_event_loop(
    source: Source, stream: Stream[int], runner: Callable[[], asyncio.Runner]
) -> None:
    async def iterate() -> list[int]:
        return [item async for item in stream]

    def send_the_rest() -> None:
        wait_until(lambda: source.asked == 2 and stream._feed._wakers)
        source.send([3], None)

    source.send([1, 2])
    threading.Thread(target=send_the_rest).start()
    with runner() as running:
        assert running.run(iterate()) == [1, 2, 3]
        assert running.run(iterate()) == []


def test_one_page_is_prefetched_and_no_more(source: Source, stream: Stream[int]) -> None:
    source.send([1, 2], [3, 4], [5], None)
    wait_until(lambda: stream._feed._next.done())
    settle()
    assert source.asked == 1
    assert next(stream) == 1
    wait_until(lambda: source.asked == 2)
    assert next(stream) == 2
    wait_until(lambda: stream._feed._next.done())
    settle()
    assert source.asked == 2
    assert next(stream) == 3
    wait_until(lambda: source.asked == 3)


def test_an_error_is_raised_once_and_after_the_items_before_it(
    source: Source, stream: Stream[int]
) -> None:
    source.send([1], BrokerError.throttledError("slow down", retryAfter=7.0))
    assert next(stream) == 1
    with pytest.raises(BrokerError.throttledError, match="slow down") as caught:
        next(stream)
    assert caught.value.retryAfter == 7.0
    assert functions_of(caught.value)[1:] == ["__next__", "take"]
    assert list(stream) == []


async def test_a_fault_of_the_generator_is_raised_as_a_broker_error_without_its_frames(
    source: Source, stream: Stream[int]
) -> None:
    source.send(KeyError("secret"))
    with pytest.raises(BrokerError.brokerFaultError, match="KeyError") as caught:
        await anext(stream)
    assert functions_of(caught.value)[1:] == ["__anext__", "take"]
    assert caught.value.__cause__ is None
    assert "secret" not in str(caught.value)
    assert [item async for item in stream] == []


async def test_close_from_another_thread_wakes_a_task_that_waits(
    source: Source, stream: Stream[int]
) -> None:
    async with stream:
        task = asyncio.ensure_future(anext(stream, "end"))
        await tick()
        threading.Thread(target=stream.close).start()
        assert await asyncio.wait_for(task, PATIENCE) == "end"
    assert await asyncio.to_thread(source.ended.wait, PATIENCE)


async def test_a_cancelled_wait_loses_no_item_and_leaves_nothing_behind(
    source: Source, stream: Stream[int]
) -> None:
    for _ in range(20):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.001)  # nothing was sent
    assert stream._feed._wakers == []
    source.send([1, 2, 3], None)
    found = []
    while True:
        task = asyncio.ensure_future(anext(stream, "end"))
        await tick()
        if task.cancel():
            continue
        found.append(task.result())
        if found[-1] == "end":
            break
    assert found == [1, 2, 3, "end"]


def test_each_item_goes_to_one_of_several_threads(source: Source, stream: Stream[int]) -> None:
    found: list[Any] = []
    threads = [collect(stream, found) for _ in range(4)]
    source.send(*([n * 10 + m for m in range(10)] for n in range(100)), None)
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(item for item in found if item != "end") == list(range(1000))
    assert found.count("end") == 4


def test_an_unreferenced_stream_ends_its_generator_and_logs_nothing(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    owner = Source()
    alive = weakref.ref(owner)
    stream = Stream("work", source.pages(), owner)
    source.send([1, 2], [3])
    assert next(stream) == 1
    del owner
    gc.collect()
    assert alive() is not None, "the work needs its provider"
    del stream
    assert source.ended.wait(PATIENCE)
    wait_until(lambda: (gc.collect(), alive() is None)[1])
    assert not caplog.records


async def test_for_does_not_block_the_event_loop_of_the_coroutine_that_iterates(
    source: Source, stream: Stream[int]
) -> None:
    def iterate() -> int:
        return next(stream)

    refused = pytest.raises(BrokerError.invalidArgumentError, match=r"`for` over work.*`async for`")
    with refused:
        next(stream)
    with refused:
        iterate()
    waiting = asyncio.create_task(asyncio.to_thread(iterate))
    await asyncio.to_thread(source.send, [1, 2])
    assert await waiting == 1
    assert next(stream) == 2  # it has arrived


# Declared operations


def test_an_operation_checks_its_arguments_at_the_call(provider: Any) -> None:
    with pytest.raises(BrokerError.invalidArgumentError, match="start must be an int, not str"):
        provider.follow(start="1")
    with pytest.raises(BrokerError.invalidArgumentError, match="start must be 0 or more"):
        provider.follow(-1)
    with pytest.raises(BrokerError.invalidArgumentError, match=r"It takes: start, event"):
        provider.follow(begin=1)
    with pytest.raises(BrokerError.brokerFaultError, match="ZeroDivisionError"):
        provider.follow(99)


class Handlers:
    """Two handlers that record their calls; some of the first calls raise an error."""

    def __init__(self, failing: int = 0) -> None:
        self.calls: list[Any] = []
        self.errors: list[BrokerError] = []
        self.at_once = self.most_at_once = 0
        self._failing = failing

    def event(self, item: int) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        settle()  # another thread would begin meanwhile
        self.calls.append(item)
        self.at_once -= 1
        if len(self.calls) <= self._failing:
            raise ValueError("of the handler")

    def error(self, error: BrokerError) -> None:
        self.errors.append(error)


def test_handlers_run_in_order_and_never_two_at_once_on_a_queue_of_many_threads(
    provider: Any, source: Source
) -> None:
    handlers = Handlers()
    with concurrent.futures.ThreadPoolExecutor(8) as queue:
        stream = provider.follow(
            eventHandler=handlers.event, errorHandler=handlers.error, queue=queue
        )
        source.send(range(50), range(50, 100))
        wait_until(lambda: len(handlers.calls) == 100)
        assert handlers.calls == list(range(100))
        assert handlers.most_at_once == 1
        stream.close()
        assert source.ended.wait(PATIENCE)
    assert not handlers.errors


def test_the_main_queue_runs_handlers_until_the_stream_is_closed(
    provider: Any, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = Handlers()
    stream = provider.follow(eventHandler=handlers.event, errorHandler=handlers.error)
    source.send([1, 2])
    wait_until(lambda: not mainQueue.run(0) and handlers.calls == [1, 2])
    when_run_waits(mainQueue, stream.close, monkeypatch)
    assert mainQueue.run(PATIENCE)


def test_the_error_handler_gets_the_error_once_and_the_main_queue_returns(
    provider: Any, source: Source
) -> None:
    handlers = Handlers()
    provider.follow(eventHandler=handlers.event, errorHandler=handlers.error)
    source.send([1], BrokerError.forkError("forked"))
    assert mainQueue.run(PATIENCE)
    assert handlers.calls == [1]
    assert [str(error) for error in handlers.errors] == ["forked"]


def test_a_queue_that_was_shut_down_ends_the_stream(
    provider: Any, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = Handlers()
    with concurrent.futures.ThreadPoolExecutor(1) as queue:
        provider.follow(eventHandler=handlers.event, errorHandler=handlers.error, queue=queue)
    source.send([1])
    assert source.ended.wait(PATIENCE)
    assert "its queue was shut down" in caplog.text


@pytest.mark.parametrize(
    "style, why",
    [
        ({"eventHandler": print}, "needs errorHandler, a function"),
        ({"errorHandler": print}, "needs eventHandler, a function"),
        ({"eventHandler": print, "errorHandler": print, "queue": 1}, "queue must be"),
    ],
)
def test_wrong_handlers_are_refused_at_the_call(
    provider: Any, style: dict[str, Any], why: str
) -> None:
    with pytest.raises(BrokerError.invalidArgumentError, match=why):
        provider.follow(**style)


# Processes


def test_next_is_refused_on_scbrokers_own_thread(stream: Stream[int]) -> None:
    async def iterate() -> None:
        next(stream)

    with pytest.raises(BrokerError.invalidArgumentError, match="thread of your own"):
        io_thread.submit("iterate", iterate()).result(PATIENCE)


def test_handlers_keep_a_stream_alive_that_is_not_referenced_otherwise(
    provider: Any, source: Source
) -> None:
    handlers = Handlers()
    with concurrent.futures.ThreadPoolExecutor(1) as queue:
        provider.follow(eventHandler=handlers.event, errorHandler=handlers.error, queue=queue)
        gc.collect()
        source.send([1])
        wait_until(lambda: handlers.calls == [1])
        source.send(None)
        assert source.ended.wait(PATIENCE)
