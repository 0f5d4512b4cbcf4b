"""Run the I/O of all providers of a process on one background thread.

The thread starts with the first operation, as a daemon with an event loop of its own (uvloop if it is
installed). At exit it gets five seconds to finish, and one warning names the operations that were dropped.

The child of a fork starts a thread of its own. Objects from before the fork belong to the parent: the child
must make new providers, and `check_process` refuses the others.
"""

import asyncio
import atexit
import concurrent.futures
import functools
import logging
import os
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from scbroker import errors, tracing

T = TypeVar("T")
_DRAIN_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 1.0
_WORKERS: Final = 4
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
