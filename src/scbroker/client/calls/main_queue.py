"""Run handlers on the main thread: `mainQueue` is the Executor for that.

An event loop on the main thread runs them; in a plain script, `mainQueue.run()` does. The queue owns its jobs
and only wakes a loop, so no job is lost when a loop ends: it waits for the next loop, or for `run`.

asyncio has no function that returns the loop of another thread. So the queue notes the main thread's loop
whenever a provider is made or an operation is called there (docs/adr, 11).
"""

import asyncio
import atexit
import collections
import concurrent.futures
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from scbroker.errors import InvalidArgumentError

P = ParamSpec("P")
T = TypeVar("T")
LONGEST_WAIT = 1.0
"""Seconds of a wait on the main thread: a Ctrl-C that comes just before it is handled only when it ends."""
_log = logging.getLogger("scbroker")


class MainQueue(concurrent.futures.Executor):
    """Run submitted functions on the main thread, one after the other.

    Tk, Qt and other loops that are not asyncio's run it from a timer: `mainQueue.run(0)`.
    """

    def __init__(self) -> None:
        self._is_registered = False
        self._clear()

    def _clear(self) -> None:
        """Reset the state. In the child of a fork this drops the jobs: the parent runs them."""
        self._changed = threading.Condition()
        self._jobs: collections.deque[tuple[str, Callable[[], None]]] = collections.deque()
        self._expected: collections.Counter[str] = collections.Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_run = False

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[T]:
        future: concurrent.futures.Future[T] = _MainFuture()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)
            except BaseException as error:  # Ctrl-C and sys.exit must also end the main thread
                future.set_exception(error)
                raise

        self._register()
        with self._changed:
            self._jobs.append((getattr(fn, "__name__", type(fn).__name__), job))
            self._changed.notify_all()
            self.notice_loop()
            self._wake_loop()
        return future

    def _register(self) -> None:
        """Register the hooks of the process with the first job, so that importing scbroker has no effect."""
        if not self._is_registered:
            self._is_registered = True
            atexit.register(self._warn_of_waiting)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._clear)

    def expect(self, name: str) -> None:
        """Make `run` wait for the handler of an operation that is under way."""
        self._register()
        with self._changed:
            self._expected[name] += 1

    def arrived(self, name: str) -> None:
        """Undo one `expect(name)`, because its handler was submitted."""
        with self._changed:
            self._expected -= collections.Counter((name,))
            self._changed.notify_all()

    def notice_loop(self) -> None:
        """Note the event loop of the main thread, if called there, and wake it for waiting jobs."""
        if not _on_main_thread():
            return
        try:
            found = asyncio.get_running_loop()
        except RuntimeError:
            return  # keep the known loop, which may run again
        with self._changed:
            before, self._loop = self._loop, found
            if self._jobs and found is not before:
                self._wake_loop()

    @property
    def is_served(self) -> bool:
        """Return whether a loop or `run` runs handlers, or this main thread can do so later."""
        loop = self._loop
        return _on_main_thread() or self._has_run or (loop is not None and not loop.is_closed())

    def run(self, timeout: float | None = None) -> bool:
        """Run handlers on the main thread until none is queued and no operation is under way.

        Return False when `timeout` seconds passed before that; 0 runs what is queued and returns.
        """
        if not _on_main_thread():
            raise InvalidArgumentError("Call mainQueue.run() on the main thread.")
        deadline = None if timeout is None else time.monotonic() + timeout
        self._has_run = True
        while True:
            self._run_queued()
            with self._changed:
                if not self._jobs and not self._expected:
                    return True
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                if not self._jobs:
                    self._changed.wait(LONGEST_WAIT if left is None else min(left, LONGEST_WAIT))

    def _warn_of_waiting(self) -> None:
        """Log, at the end of the process, the operations whose handlers did not run."""
        names = sorted({*self._expected, *(name for name, _ in self._jobs)})
        if names:
            _log.warning(
                "The process ends before these handlers ran: %s. Call mainQueue.run() on the main "
                "thread, run an event loop there, or pass queue=.",
                ", ".join(names),
            )

    def _run_queued(self) -> None:
        # Checked before each job: a loop may since have moved from the main thread to another.
        while _on_main_thread():
            with self._changed:
                if not self._jobs:
                    return
                _, job = self._jobs.popleft()
            job()

    def _wake_loop(self) -> None:
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._run_queued)
        except RuntimeError:  # the loop was closed: the next loop, or run(), runs the job
            self._loop = None


class _MainFuture(concurrent.futures.Future[Any]):
    def result(self, timeout: float | None = None) -> Any:
        self._check_thread()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._check_thread()
        return super().exception(timeout)

    def _check_thread(self) -> None:
        if not self.done() and _on_main_thread():
            raise InvalidArgumentError(
                "result() on the main thread, which runs the job itself, would wait for ever: "
                "call mainQueue.run() first"
            )


def _on_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


mainQueue: MainQueue = MainQueue()  # noqa: N816 - the interface's own name
