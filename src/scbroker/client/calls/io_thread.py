"""The one background thread of a process that does all providers' I/O.

It starts with the first operation, as a daemon with an event loop of its own (uvloop where it is
installed). After a fork the child starts a new one; promises from before fail there. At exit it is
given a moment to finish, and one warning names what was dropped.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # by its full name: it has to hook its own end before this module
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")
_DRAIN_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 1.0
_WORKERS: Final = 4
_log = logging.getLogger("scbroker")


class Closable(Protocol):
    def close(self) -> Coroutine[Any, Any, None]: ...


class Inherited(Protocol):
    def after_fork(self) -> None: ...


class IOThread:
    """An event loop in a thread, and a small pool for work that would hold it up."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may submit while this very thread starts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._running: dict[concurrent.futures.Future[Any], tuple[str, object]] = {}
        self._closing: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._bound: weakref.WeakSet[Inherited] = weakref.WeakSet()

    def submit(
        self, name: str, work: Coroutine[Any, Any, T], owner: object = None
    ) -> concurrent.futures.Future[T]:
        """Runs a coroutine there; safe from any thread. Its owner lives at least as long as it runs."""
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        self._running[future] = (name, owner)
        future.add_done_callback(self._done)
        return future

    def close_at_exit(self, resource: Closable) -> None:
        """Has a resource of the thread closed when the process ends."""
        self._closing.add(resource)

    def bound(self, resource: Inherited) -> None:
        """Has a resource of the thread told in the child of a fork, where the thread is another."""
        self._bound.add(resource)

    def is_current(self) -> bool:
        """Whether the caller is on the thread, where waiting would wait for itself."""
        return threading.current_thread() is self._thread

    async def in_pool(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs what takes more than a moment of the processor beside the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    async def in_own_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs what may wait for anything, as code of the caller's does: it takes no place in the pool."""
        alone = concurrent.futures.ThreadPoolExecutor(1, "scbroker-caller")
        try:
            return await asyncio.get_running_loop().run_in_executor(alone, work, *arguments)
        finally:
            alone.shutdown(wait=False)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = _new_loop()
                self._pool = concurrent.futures.ThreadPoolExecutor(_WORKERS, "scbroker-work")
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="scbroker-io", daemon=True
                )
                self._thread.start()
            return self._loop

    def _done(self, future: concurrent.futures.Future[Any]) -> None:
        self._running.pop(future, None)

    def after_fork(self) -> None:
        """In the child: forgets the parent's thread and loop without touching its sockets."""
        orphans, bound = list(self._running), list(self._bound)
        inherited.append((self._loop, self._pool, self._thread))
        self.__init__()  # type: ignore[misc] # nothing of the parent's may stay
        for resource in bound:
            self._bound.add(resource)
            resource.after_fork()
        for future in orphans:
            future.set_exception(ForkedError())

    def drain(self) -> None:
        """At exit: waits a little for what is under way, then names what was dropped."""
        pending = dict(self._running)
        if pending:
            concurrent.futures.wait(pending, timeout=_DRAIN_SECONDS)
            dropped = sorted({name for future, (name, _) in pending.items() if not future.done()})
            if dropped:
                _log.warning("The process ends before these had finished: %s", ", ".join(dropped))
        closing = [self.submit("close", resource.close()) for resource in self._closing]
        concurrent.futures.wait(closing, timeout=_CLOSE_SECONDS)


inherited: Final[list[object]] = []
"""What a child keeps from its parent, so that no destructor closes what the two share."""


class ForkedError(Exception):
    """The process was forked while the operation was under way."""


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


io_thread: Final = IOThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=io_thread.after_fork)
# Ahead of concurrent.futures, which refuses all work from the moment that the main thread ends:
# atexit comes too late to finish what needs a pool. The hook is CPython's own and private.
getattr(threading, "_register_atexit", atexit.register)(io_thread.drain)
