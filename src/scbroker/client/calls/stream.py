"""Hand out results that arrive one after another: `Stream`, and operations that return it.

An asynchronous generator of pages runs on scbroker's thread. It produces the next page only after the
consumer has begun the previous one: at most one page is prefetched, so memory stays bounded. The threads
exchange a page at a time, not an item at a time. A consumer takes an item without waiting, and waits for a
wake-up only when none has arrived; so a wait that is cancelled or interrupted loses no item.

`Stream` is the consumer's end. The running generator shares `_Feed` with it and does not reference the
stream, so that a stream is closed when its last reference goes.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import functools
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    NotRequired,
    ParamSpec,
    Self,
    TypedDict,
    TypeVar,
)

from scbroker import errors
from scbroker.client.calls.operation import (
    LONGEST_WAIT,
    MainQueue,
    OnError,
    Operations,
    Parameters,
    check_handler,
    checked_queue,
    mainQueue,
    submit_handler,
)
from scbroker.client.calls.tasks import (
    check_process,
    io_thread,
    public_error,
    set_done,
    would_block_loop,
)

P = ParamSpec("P")
S = TypeVar("S", bound=Operations)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Pages = AsyncGenerator[Sequence[T], None]
_HANDLERS: Final = ("eventHandler", "errorHandler", "queue")


class EventHandlers(TypedDict, Generic[T]):
    """The keywords of a stream's handlers (PEP 692), and the executor that runs them."""

    eventHandler: Callable[[T], object]
    errorHandler: OnError
    queue: NotRequired[concurrent.futures.Executor | None]


class _EndedError(Exception):
    """Raised by `take`: the stream has no further item."""


class _NotYetError(Exception):
    """Raised by `take`: no item has arrived yet, so wait for a wake-up and take again."""


class _Feed(Generic[T]):
    """The rest of the current page and one prefetched page; wakes the producer and the consumers."""

    def __init__(self) -> None:
        self._begun: collections.deque[T] = collections.deque()
        self._prefetched: collections.deque[T] | None = None
        self._failure: BaseException | None = None
        self._is_over = self._is_closed = False
        self._wakers: list[Callable[[], object]] = []
        self._future: concurrent.futures.Future[None] | None = None
        self._more: Callable[[], object]
        self._process = os.getpid()
        # Re-entrant: a finalizer of the stream may run in the midst of any method, on its thread.
        self._lock = threading.RLock()

    def start(self, name: str, pages: Pages[T], owner: object) -> None:
        """Run the generator on scbroker's thread; `owner` is kept alive until it ends."""
        self._future = io_thread.submit(name, self._run(pages), owner, endless=True)
        self._future.add_done_callback(self._finish)

    async def _run(self, pages: Pages[T]) -> None:
        wanted = asyncio.Event()
        self._more = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, wanted.set)
        async with contextlib.aclosing(pages):
            async for page in pages:
                if not page:
                    continue
                wanted.clear()
                self._put(page)
                await wanted.wait()

    def _put(self, page: Sequence[T]) -> None:
        arrived = collections.deque(page)
        with self._lock:
            self._prefetched = arrived
        self._wake()

    def _finish(self, future: concurrent.futures.Future[None]) -> None:
        failure: BaseException | None
        try:
            failure = future.exception()
        except concurrent.futures.CancelledError as cancelled:
            failure = cancelled
        with self._lock:
            self._is_over, self._failure = True, failure
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            with contextlib.suppress(RuntimeError):  # the waiting task's event loop was closed
                wake()

    def take(self) -> T:
        """Return the next item, or raise `_NotYetError`, `_EndedError`, or (once) the generator's error."""
        check_process(self._process)
        with self._lock:
            if self._is_closed:
                raise _EndedError
            if not self._begun and self._prefetched is not None:
                self._begun, self._prefetched = self._prefetched, None
                self._more()
            if self._begun:
                return self._begun.popleft()
            if not self._is_over:
                raise _NotYetError
            failure, self._failure = self._failure, None
        if failure is None:
            raise _EndedError
        raise public_error(failure) from None

    def wake_by(self, wake: Callable[[], object]) -> None:
        """Call `wake` once, on any thread, when an item has arrived or the stream has ended."""
        with self._lock:
            waits = not (self._prefetched or self._begun or self._is_over or self._is_closed)
            if waits:
                self._wakers.append(wake)
        if not waits:
            wake()

    def forget(self, wake: Callable[[], object]) -> None:
        """Remove the wake-up of a consumer that waits no longer."""
        with self._lock, contextlib.suppress(ValueError):  # `wake` was called and removed already
            self._wakers.remove(wake)

    def close(self) -> None:
        """Drop what has arrived, wake all consumers, and cancel the work."""
        if self._process != os.getpid():
            return  # the parent's feed: its lock may have been held at the fork
        with self._lock:
            self._is_closed = True
            self._begun.clear()
            self._prefetched = None
        self._wake()
        if self._future is not None:
            self._future.cancel()


class Stream(Generic[T_co]):
    """Results that arrive one after another, for `for` and `async for`.

    Iterating waits for the next result; `for` in a coroutine raises an `invalidArgumentError` instead,
    because it would block the event loop. An error is raised once and ends the stream. `close` ends it at
    once, and wakes threads and tasks that wait for a result. Leaving `with` or `async with` closes the
    stream, and so does deleting the last reference to it. If a task is cancelled while it waits, no result is
    lost: the next iteration returns it. Several threads or tasks may iterate over one stream; each result
    goes to one of them.
    """

    __slots__ = ("__weakref__", "_feed", "_name")

    def __init__(self, name: str, pages: Pages[T_co], owner: object = None) -> None:
        self._name = name
        self._feed: _Feed[T_co] = _Feed()
        weakref.finalize(self, self._feed.close).atexit = False
        self._feed.start(name, pages, owner)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T_co:
        if io_thread.is_current():
            raise errors.InvalidArgumentError(
                "next() on scbroker's own thread would wait for ever: call it on a thread of your own"
            )
        while True:
            try:
                return self._feed.take()
            except _EndedError:
                raise StopIteration from None
            except _NotYetError:
                if would_block_loop():
                    raise errors.InvalidArgumentError(
                        f"`for` over {self._name}() would block the running event loop: write `async for`, "
                        "or call the function that iterates by asyncio.to_thread"
                    ) from None
                arrived = threading.Lock()
            arrived.acquire()
            wake = arrived.release
            self._feed.wake_by(wake)
            try:
                while not arrived.acquire(timeout=LONGEST_WAIT):
                    pass
            finally:
                self._feed.forget(wake)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T_co:
        while True:
            try:
                return self._feed.take()
            except _EndedError:
                raise StopAsyncIteration from None
            except _NotYetError:
                loop = asyncio.get_running_loop()
                arrived = loop.create_future()
            wake = functools.partial(loop.call_soon_threadsafe, set_done, arrived)
            self._feed.wake_by(wake)
            try:
                await arrived
            finally:
                self._feed.forget(wake)

    def close(self) -> None:
        """End the stream; callable from any thread, any number of times. It does not wait."""
        self._feed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Stream of {self._name}>"


class _Handlers(Generic[T]):
    """The handlers of one stream. Each result is one job on the queue, submitted after the previous job ran.

    So handlers run in order and one at a time on any queue, and other jobs of the queue can run in between.
    The stream is kept alive until it ends or is closed.
    """

    def __init__(self, name: str, event: Any, error: Any, queue: object) -> None:
        check_handler(name, "errorHandler", error)
        check_handler(name, "eventHandler", event)
        self._name, self._event, self._error = name, event, error
        self._queue = checked_queue(queue)

    def follow(self, stream: Stream[T], feed: _Feed[T]) -> None:
        self._stream: Stream[T] | None = stream
        self._feed = feed
        if isinstance(self._queue, MainQueue):
            self._queue.expect(self._name)
        feed.wake_by(self._submit)

    def _submit(self) -> None:
        if not submit_handler(self._queue, self._name, self._handle):
            self._end()

    def _handle(self) -> None:
        """Give one result or the error to its handler, and wait for the next result."""
        try:
            item = self._feed.take()
        except _EndedError:
            self._end()
        except errors.BrokerError as error:
            self._end()
            self._error(error)
        except _NotYetError:
            self._feed.wake_by(self._submit)
        else:
            try:
                self._event(item)
            finally:
                self._feed.wake_by(self._submit)

    def _end(self) -> None:
        self._feed.close()
        self._stream = None
        if isinstance(self._queue, MainQueue):
            self._queue.arrived(self._name)


def stream_operation(
    body: Callable[Concatenate[S, P], Pages[T]],
) -> Callable[Concatenate[S, P], Stream[T]]:
    """Make an operation of a body that returns a generator of pages; callers get a Stream of their items."""
    parameters = Parameters(body, _HANDLERS)
    name = parameters.name

    @functools.wraps(body)
    def call(self: Operations, /, *args: Any, **kwargs: Any) -> Any:
        mainQueue.notice_loop()
        style = [kwargs.pop(key, None) for key in _HANDLERS]
        handlers = None if all(each is None for each in style) else _Handlers[Any](name, *style)
        try:
            pages: Pages[Any] = self._perform(
                name, parameters.body, parameters.checked(args, kwargs)
            )
        except Exception as error:
            if handlers is not None:
                pages = _failing(error)
            elif isinstance(error, errors.BrokerError):
                raise
            else:
                raise public_error(error) from error
        stream = Stream[Any](name, pages, self)
        if handlers is not None:
            handlers.follow(stream, stream._feed)
        return stream

    call.__signature__ = parameters.signature  # type: ignore[attr-defined] # functions have it all the same
    call.parameters, call.forms = parameters, {}  # type: ignore[attr-defined] # as above
    return call


async def _failing(error: Exception) -> Pages[Any]:
    no_pages: tuple[Sequence[Any], ...] = ()
    for page in no_pages:
        yield page
    raise error
