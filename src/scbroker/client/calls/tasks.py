"""Run the I/O of all providers of a process on one background thread, and work for the processor in a pool.

The thread starts with the first operation, as a daemon with an event loop of its own (uvloop if it is
installed). At exit it gets five seconds to finish, and one warning names the operations that were dropped.

The child of a fork starts a thread of its own. Objects from before the fork belong to the parent: the child
must make new providers, and `check_process` refuses the others.

A promise can be awaited in any event loop, and read by `.result()` in a plain script. Each read of a failure
raises a fresh error without inner frames: tracebacks grow with each raise, and frames hold secrets.
"""

from __future__ import annotations

import asyncio
import atexit
import builtins
import concurrent.futures
import contextlib
import functools
import logging
import os
import queue
import threading
import weakref
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from typing import Any, Final, Protocol, TypeVar

from scbroker import errors, tracing
from scbroker.errors import BrokerError, BrokerUnavailableError, NotAuthenticatedError

A = TypeVar("A")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_DRAIN_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 1.0
_WORKERS: Final = 4
_AT_ONCE: Final = 2
_PIECE: Final = 16
_LEAST: Final = 16
EVERYTHING: Final = (BrokerUnavailableError, NotAuthenticatedError)
"""Errors of one request of a batch that every other request would meet as well."""
MISCOUNTED: Final = "The broker answered for more or fewer containers than it was asked about."
_log = logging.getLogger("scbroker")


class Closable(Protocol):
    def close(self) -> Coroutine[Any, Any, None]: ...


def check_process(process: int) -> None:
    """Raise `InvalidArgumentError` unless this process has this id: otherwise it is a fork's child."""
    if process != os.getpid():
        raise errors.InvalidArgumentError(
            "The process was forked after this provider was made: make a new provider in the child process."
        )


class _Pool(concurrent.futures.Executor):
    """A few daemon threads. A ThreadPoolExecutor refuses all work once the main thread has ended."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # All of them start now: at exit no thread can be started any more.
        for number in range(_WORKERS):
            threading.Thread(target=self._run, name=f"scbroker-work_{number}", daemon=True).start()

    def submit(
        self, fn: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> concurrent.futures.Future[T]:
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._jobs.put((future, functools.partial(fn, *args, **kwargs)))
        return future

    def _run(self) -> None:
        while True:
            _do(*self._jobs.get())


def _do(future: concurrent.futures.Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
        del future, work  # else a cycle: the error's frames reference the future that has it
    else:
        future.set_result(result)


class IOThread:
    """An event loop in a thread, and a small pool for work that would block it."""

    def __init__(self) -> None:
        self._is_registered = False
        self._inherited: list[object] = []
        """Objects of the parent that the child keeps, so that no destructor closes shared sockets."""
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.RLock()  # a finalizer may call `submit` inside `_started`
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: _Pool | None = None
        self._running: dict[concurrent.futures.Future[Any], tuple[str, object]] = {}
        self._endless: set[concurrent.futures.Future[Any]] = set()
        self._closing: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._has_drained = False
        self._more = threading.Event()
        """Set when there is work for a thread that rests."""

    def submit(
        self,
        name: str,
        work: Coroutine[Any, Any, T],
        owner: object = None,
        *,
        endless: bool = False,
    ) -> concurrent.futures.Future[T]:
        """Run a coroutine on the thread; callable from any thread. Keeps `owner` alive until it ends.

        When the process ends, it cancels `endless` work and does not wait for it.
        """
        if not endless:
            work = tracing.traced(name, work)
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        self._running[future] = (name, owner)
        self._more.set()
        if endless:
            self._endless.add(future)
        future.add_done_callback(self._done)
        return future

    def close_at_exit(self, resource: Closable) -> None:
        """Close a resource of the thread when the process ends."""
        self._closing.add(resource)

    def is_current(self) -> bool:
        """Return whether the caller is on the thread: waiting there for an operation would never end."""
        return threading.current_thread() is self._thread

    async def in_pool(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run work for the processor in the pool, so that the loop goes on."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    async def in_own_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run code of the caller in a thread of its own: it may block, and would keep a pool thread."""
        alone = concurrent.futures.ThreadPoolExecutor(1, "scbroker-caller")
        try:
            return await asyncio.get_running_loop().run_in_executor(alone, work, *arguments)
        finally:
            alone.shutdown(wait=False)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = _new_loop()
                self._pool = _Pool()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="scbroker-io", daemon=True
                )
                self._thread.start()
                if not self._is_registered:  # here, so that importing scbroker registers nothing
                    self._is_registered = True
                    atexit.register(self.drain)
                    if hasattr(os, "register_at_fork"):
                        os.register_at_fork(after_in_child=self._after_fork)
            return self._loop

    def _done(self, future: concurrent.futures.Future[Any]) -> None:
        self._running.pop(future, None)
        self._endless.discard(future)
        if self._has_drained and self._loop is not None:
            self._loop.call_soon_threadsafe(self._rest)

    def _after_fork(self) -> None:
        """Forget the parent's thread and loop in the child, without touching the shared sockets."""
        self._inherited += (self._loop, self._running, list(self._closing))
        self._reset()

    def drain(self) -> None:
        """At exit: wait five seconds for operations under way, then log those that were dropped."""
        for future in list(self._endless):
            future.cancel()
        pending = dict(self._running)
        if pending:
            concurrent.futures.wait(pending, timeout=_DRAIN_SECONDS)
            dropped = sorted({name for future, (name, _) in pending.items() if not future.done()})
            if dropped:
                _log.warning("The process ends before these had finished: %s", ", ".join(dropped))
        closing = [self.submit("close", resource.close()) for resource in self._closing]
        concurrent.futures.wait(closing, timeout=_CLOSE_SECONDS)
        self._has_drained = True
        if self._loop is not None:
            rests = threading.Event()
            self._loop.call_soon_threadsafe(self._rest, rests.set)
            rests.wait(_CLOSE_SECONDS)

    def _rest(self, begin: Callable[[], object] = lambda: None) -> None:
        """Block the thread at the end of the process, until there is more work.

        uvloop waits outside of Python. If an event woke it after the interpreter has ended, it would crash
        the process (exit status 139). A thread that waits in Python never wakes then.
        """
        begin()
        while not self._running:
            self._more.wait()
            self._more.clear()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


io_thread: Final = IOThread()


class _Outcome:
    """The state that a promise and its running operation share; logs a failure that was never read."""

    __slots__ = ("future", "is_read", "name", "process")

    def __init__(self, name: str, future: concurrent.futures.Future[Any]) -> None:
        self.name, self.future, self.is_read, self.process = name, future, False, os.getpid()
        _under_way[id(self)] = self
        future.add_done_callback(functools.partial(_release, id(self)))

    def __del__(self) -> None:
        if self.is_read or not self.future.done() or self.future.cancelled():
            return
        error = self.future.exception()
        if error is not None:
            _log.error("%s failed and its error was never read: %s", self.name, public_error(error))


_under_way: dict[int, _Outcome] = {}
"""Keeps operations under way alive, so that a promise that was dropped still logs its failure."""


def _release(key: int, _: object) -> None:
    _under_way.pop(key, None)


class Promise(Coroutine[Any, None, T_co]):
    """The result of an operation, which can be awaited or waited for any number of times.

    asyncio accepts it as a coroutine: `asyncio.create_task`, `TaskGroup.create_task` and `asyncio.run` take
    it. Unlike a coroutine, the operation has started already, and several tasks may wait for it. Cancelling
    such a task leaves the operation running; `cancel()` stops the operation.
    """

    __slots__ = ("_outcome",)

    def __init__(self, name: str, future: concurrent.futures.Future[T_co]) -> None:
        self._outcome = _Outcome(name, future)

    @property
    def __name__(self) -> str:
        """Return the name of the operation, for the repr of a task."""
        return self._outcome.name

    def send(self, value: None, /) -> Any:
        """Take one step of a task's wait. No state is kept between steps, so that several tasks can wait."""
        del value
        return next(self.__await__())

    def throw(self, *error: Any) -> Any:
        """End a task's wait with an error, as asyncio does to cancel it."""
        return super().throw(*error)

    def close(self) -> None:
        """Do nothing: a wait holds no resource that would have to be closed."""

    def __await__(self) -> Generator[Any, None, T_co]:
        """Wait in the running event loop. Cancelling the wait leaves the operation running."""
        future = self._outcome.future
        if not future.done():
            check_process(self._outcome.process)
            loop = asyncio.get_running_loop()
            done = loop.create_future()

            def wake(_: object) -> None:
                with contextlib.suppress(RuntimeError):  # the waiting task's event loop was closed
                    loop.call_soon_threadsafe(set_done, done)

            future.add_done_callback(wake)
            yield from done
        return self._read()

    def result(self, timeout: float | None = None) -> T_co:
        """Wait in a plain script and return the result; `TimeoutError` after `timeout` seconds.

        Raises `invalidArgumentError` on scbroker's own thread, which would wait for itself, and in a
        task of an event loop that it would block, unless the operation has ended. A notebook runs each cell
        in such a task, so it is allowed in IPython.
        """
        if io_thread.is_current():
            raise errors.InvalidArgumentError(
                "result() on scbroker's own thread would wait for ever: call it on a thread of your own"
            )
        if not self.done():
            check_process(self._outcome.process)
        if not self.done() and timeout != 0 and would_block_loop():
            name = self._outcome.name
            raise errors.InvalidArgumentError(
                f"result() of {name}() would block the running event loop: write `await` in place of "
                ".result(), or call the function that waits by asyncio.to_thread"
            )
        future = self._outcome.future
        with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError):
            future.exception(timeout)
        if not future.done():
            raise TimeoutError(f"{self._outcome.name} is still under way.")
        return self._read()

    def done(self) -> bool:
        """Return whether the operation has ended, with a result or an error."""
        return self._outcome.future.done()

    def cancel(self) -> bool:
        """Stop the operation; return False if it had ended. A request that was sent may still take effect."""
        return self._outcome.future.cancel()

    def _read(self) -> T_co:
        self._outcome.is_read = True
        error: BaseException | None
        try:
            error = self._outcome.future.exception()
        except concurrent.futures.CancelledError as cancelled:
            error = cancelled
        if error is not None:
            raise public_error(error) from None
        result: T_co = self._outcome.future.result()
        return result

    def __repr__(self) -> str:
        state = "done" if self.done() else "under way"
        return f"<Promise of {self._outcome.name}, {state}>"


def would_block_loop() -> bool:
    """Return whether a task of a running event loop calls this, except a notebook's cell: it may block."""
    try:
        return asyncio.current_task() is not None and not hasattr(builtins, "__IPYTHON__")
    except RuntimeError:  # no loop runs on this thread
        return False


def set_done(done: asyncio.Future[None]) -> None:
    """Let the task go on that waits for this future, if it still does."""
    if not done.done():
        done.set_result(None)


def public_error(error: BaseException) -> errors.BrokerError:
    """Return an error as callers see it: always a BrokerError, fresh, without frames."""
    if isinstance(error, errors.BrokerError):
        return error.fresh()
    if isinstance(error, (asyncio.CancelledError, concurrent.futures.CancelledError)):
        return errors.OperationCancelledError()
    made: errors.BrokerError
    if isinstance(error, MemoryError):
        made = errors.TooLargeError(
            "There is too little memory for this operation: a log-in needs 64 MiB, and a content that is "
            "read whole needs its size. Give the process more memory."
        )
    elif isinstance(error, OSError):
        made = errors.InvalidArgumentError(
            f"{error.filename or 'A file or the working folder'} cannot be used: {error.strerror or error}."
        )
    else:
        made = errors.BrokerFaultError(
            f"A fault in scbroker itself ({type(error).__name__}): please report it."
        )
    made.outcome = errors.WriteOutcome.Uncertain
    return made


@contextlib.asynccontextmanager
async def all_or_first_error() -> AsyncIterator[asyncio.TaskGroup]:
    """Return a TaskGroup that raises its first error itself instead of a group of one."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


class Shared:
    """Work that runs once for all tasks that wait for it; they succeed or fail together.

    It goes on while any task waits for it, and is cancelled after the last of them was cancelled.
    """

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.ensure_future(work)
        self.waiting: int = 0
        """The number of tasks that wait for it."""

    @property
    def is_over(self) -> bool:
        """Return whether it has ended or is being cancelled: a new caller needs new work."""
        return self._task.done() or bool(self._task.cancelling())

    async def wait(self) -> None:
        """Wait until it ends; raise its error without the frames of other waiting tasks."""
        self.waiting += 1
        try:
            await asyncio.wait([self._task])  # cancelling this task does not cancel the shared one
        finally:
            self.waiting -= 1
            if not self.waiting:
                self._task.cancel()
        error = self._task.exception()
        if error is not None:
            raise error.fresh() if isinstance(error, BrokerError) else error


def raised(outcome: T | BrokerError) -> T:
    """Return the outcome of an item, or raise its error."""
    if isinstance(outcome, BrokerError):
        raise outcome.fresh()
    return outcome


def shown(outcome: T | BrokerError) -> T | BrokerError:
    """Return the outcome of an item for the caller: an error without frames."""
    return outcome.fresh() if isinstance(outcome, BrokerError) else outcome


@contextlib.contextmanager
def alone(keep: Callable[[BrokerError], object]) -> Iterator[None]:
    """Pass one item's error to `keep`; raise an error that would fail every other item as well."""
    try:
        yield
    except EVERYTHING:
        raise
    except BrokerError as error:
        keep(error)


def group_size(count: int, most: int) -> int:
    """Return how many of `count` items a request takes, which may have `most`.

    A call that fits into one request is sent in two: the broker works on the first while the client prepares
    the second. Requests of fewer than 16 would cost more than they save.
    """
    half = -(-count // _AT_ONCE)
    return most if half < _LEAST else min(most, half)


Work = Coroutine[Any, Any, None]


async def a_few_at_once(works: Iterable[Work] | AsyncIterable[Work]) -> None:
    """Run coroutines two at a time: while one request is sent, the next is prepared.

    The first error ends them all.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def run(work: Work) -> None:
        try:
            await work
        finally:
            slots.release()

    async with all_or_first_error() as tasks:
        left = _each(works)
        while True:
            await slots.acquire()
            # After `acquire`: if it were cancelled, a coroutine taken before it would never be awaited.
            work = await anext(left, None)
            if work is None:
                return
            tasks.create_task(run(work))


async def _each(works: Iterable[Work] | AsyncIterable[Work]) -> AsyncIterator[Work]:
    if isinstance(works, AsyncIterable):
        async for work in works:
            yield work
    else:
        for work in works:
            yield work


async def each_in_pool(
    work: Callable[[A], T], items: Sequence[A], *, here: bool = False, all_cores: bool = False
) -> list[T | BrokerError]:
    """Run work for the processor for each item, and return its result or its `BrokerError`.

    `here` runs it on this thread: handing short work to the pool takes longer than it saves. `all_cores` runs
    pieces of 16 items at the same time. It is for the verification of many signatures, which releases the
    interpreter's lock; with other work, such as opening a wrap, the threads would wait for each other.
    """

    def some(piece: Sequence[A]) -> list[T | BrokerError]:
        found: list[T | BrokerError] = []
        for item in piece:
            try:
                found.append(work(item))
            except BrokerError as error:
                found.append(error)
        return found

    if here:
        return some(items)
    size = _PIECE if all_cores else max(1, len(items))
    pieces = [items[at : at + size] for at in range(0, len(items), size)]
    done = await asyncio.gather(*(io_thread.in_pool(some, piece) for piece in pieces))
    return [outcome for piece in done for outcome in piece]
