"""`mainQueue`: the Executor that runs handlers on the main thread.

Through the event loop that runs there; in a plain script, when the main thread calls
`mainQueue.run()`. The queue owns its work and only pokes a loop, so nothing is lost when one ends.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from scbroker.errors import InvalidArgumentError

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger("scbroker")


class MainQueue(concurrent.futures.Executor):
    """Runs what is submitted on the main thread, one after the other."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: collections.deque[Callable[[], None]] = collections.deque()
        self._expected = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[T]:
        future: concurrent.futures.Future[T] = _MainFuture()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()
            self._poke()
        return future

    def expect(self) -> None:
        """Something under way will be submitted here: `run` waits for it. Notes a running loop."""
        self.notice_loop()
        with self._changed:
            self._expected += 1

    def notice_loop(self) -> None:
        """On the main thread: remembers the event loop that runs there, if one does."""
        if threading.current_thread() is threading.main_thread():
            with contextlib.suppress(RuntimeError), self._changed:
                self._loop = asyncio.get_running_loop()
                if self._jobs:
                    self._poke()

    def arrived(self) -> None:
        """What was expected was submitted."""
        with self._changed:
            self._expected -= 1
            self._changed.notify_all()

    def run(self, timeout: float | None = None) -> bool:
        """On the main thread of a plain script: runs handlers until none is queued or under way.

        Gives False when `timeout` seconds passed before that.
        """
        if threading.current_thread() is not threading.main_thread():
            raise InvalidArgumentError("mainQueue.run() is called on the main thread.")
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._run_queued()
            with self._changed:
                if not self._jobs and not self._expected:
                    return True
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                if not self._jobs:
                    self._changed.wait(left)

    def _run_queued(self) -> None:
        while True:
            with self._changed:
                if not self._jobs:
                    return
                job = self._jobs.popleft()
            job()

    def _poke(self) -> None:
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._run_queued)
        except RuntimeError:  # that loop has ended: the next one, or run(), finds the work
            self._loop = None


class _MainFuture(concurrent.futures.Future[Any]):
    def result(self, timeout: float | None = None) -> Any:
        self._check_thread()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._check_thread()
        return super().exception(timeout)

    def _check_thread(self) -> None:
        if not self.done() and threading.current_thread() is threading.main_thread():
            raise InvalidArgumentError(
                "Waiting on the main thread for what it has itself to run would wait for ever."
            )


mainQueue: MainQueue = MainQueue()  # noqa: N816 - the interface's own name
