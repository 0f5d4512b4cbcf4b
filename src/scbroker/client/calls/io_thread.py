"""Run the I/O of all providers of a process on one background thread.

The thread starts with the first operation, as a daemon with an event loop of its own (uvloop if it is
installed). After a fork the child starts a new thread, and promises from before the fork fail there. At exit
the thread gets five seconds to finish, and one warning names the operations that were dropped.
"""

import asyncio
import atexit
import concurrent.futures.thread  # registers its own exit hook before this module's
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Protocol, TypeVar

from scbroker import tracing

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
    """An event loop in a thread, and a small pool for work that would block it."""

    def __init__(self) -> None:
        self._reset(())

    def _reset(self, bound: Iterable[Inherited]) -> None:
        self._lock = threading.RLock()  # a finalizer may submit while this very thread starts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._running: dict[concurrent.futures.Future[Any], tuple[str, object]] = {}
        self._endless: set[concurrent.futures.Future[Any]] = set()
        self._closing: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._bound: weakref.WeakSet[Inherited] = weakref.WeakSet(bound)

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
        if endless:
            self._endless.add(future)
        future.add_done_callback(self._done)
        return future

    def close_at_exit(self, resource: Closable) -> None:
        """Close a resource of the thread when the process ends."""
        self._closing.add(resource)

    def bound(self, resource: Inherited) -> None:
        """Call the resource's `after_fork` in the child of a fork, which has another thread."""
        self._bound.add(resource)

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
                self._pool = concurrent.futures.ThreadPoolExecutor(_WORKERS, "scbroker-work")
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="scbroker-io", daemon=True
                )
                self._thread.start()
            return self._loop

    def _done(self, future: concurrent.futures.Future[Any]) -> None:
        self._running.pop(future, None)
        self._endless.discard(future)

    def after_fork(self) -> None:
        """Forget the parent's thread and loop in the child, without touching the shared sockets."""
        orphans, bound = list(self._running), list(self._bound)
        inherited.append((self._loop, self._pool, self._thread))
        self._reset(bound)
        for resource in bound:
            resource.after_fork()
        for future in orphans:
            # One may have ended in the parent, whose thread had no time to take it out.
            if not future.done():
                future.set_exception(ForkedError())

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


inherited: Final[list[object]] = []
"""Objects of the parent that the child keeps, so that no destructor closes shared sockets."""


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
# Runs before the hook of concurrent.futures, which refuses all work once the main thread ends: atexit
# would be too late for operations that need a pool. The hook is private to CPython.
getattr(threading, "_register_atexit", atexit.register)(io_thread.drain)
