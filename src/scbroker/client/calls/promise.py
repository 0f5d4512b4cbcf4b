"""The result of an operation that has started, to await or to wait for.

A promise can be awaited in any event loop, and read by `.result()` in a plain script. Each read of a failure
raises a fresh error without inner frames: tracebacks grow with each raise, and frames hold secrets.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
from collections.abc import Generator
from typing import Any, Generic, TypeVar

from scbroker.client.calls.io_thread import ForkedError, io_thread
from scbroker.errors import BrokerError, BrokerFaultError, OperationCancelledError, UnreachableError

T_co = TypeVar("T_co", covariant=True)
_log = logging.getLogger("scbroker")


class _Outcome:
    """The state that a promise and its running operation share; logs a failure that was never read."""

    __slots__ = ("future", "is_read", "name")

    def __init__(self, name: str, future: concurrent.futures.Future[Any]) -> None:
        self.name, self.future, self.is_read = name, future, False
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


class Promise(Generic[T_co]):
    """The result of an operation, which can be awaited or waited for any number of times."""

    __slots__ = ("_outcome",)

    def __init__(self, name: str, future: concurrent.futures.Future[T_co]) -> None:
        self._outcome = _Outcome(name, future)

    def __await__(self) -> Generator[Any, None, T_co]:
        """Wait in the running event loop. Cancelling the wait leaves the operation running."""
        future = self._outcome.future
        if not future.done():
            loop = asyncio.get_running_loop()
            done = loop.create_future()

            def wake(_: object) -> None:
                with contextlib.suppress(RuntimeError):  # that loop has ended, and the wait with it
                    loop.call_soon_threadsafe(_set, done)

            future.add_done_callback(wake)
            yield from done
        return self._read()

    def result(self, timeout: float | None = None) -> T_co:
        """Wait in a plain script and return the result; `TimeoutError` after `timeout` seconds.

        Raises `invalidArgumentError` on scbroker's own thread, which would wait for itself.
        """
        if io_thread.is_current():
            raise BrokerError.invalidArgumentError(
                "result() on scbroker's own thread would wait for ever: call it on a thread of your own"
            )
        concurrent.futures.wait([self._outcome.future], timeout)
        if not self._outcome.future.done():
            raise TimeoutError(f"{self._outcome.name} is still under way.")
        return self._read()

    def done(self) -> bool:
        """Return whether the operation has ended, with a result or an error."""
        return self._outcome.future.done()

    def cancel(self) -> bool:
        """Stop the operation; return False if it had ended. What was sent may still take effect."""
        return self._outcome.future.cancel()

    def _read(self) -> T_co:
        self._outcome.is_read = True
        future = self._outcome.future
        error = _failure(future)
        if error is not None:
            raise public_error(error) from None
        result: T_co = future.result()
        return result

    def __repr__(self) -> str:
        state = "done" if self.done() else "under way"
        return f"<Promise of {self._outcome.name}, {state}>"


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _failure(future: concurrent.futures.Future[Any]) -> BaseException | None:
    try:
        return future.exception()
    except (concurrent.futures.CancelledError, asyncio.CancelledError):
        return OperationCancelledError()


def public_error(error: BaseException) -> BrokerError:
    """Return an error as callers see it: always a BrokerError, fresh, without frames."""
    if isinstance(error, BrokerError):
        return error.fresh()
    if isinstance(error, (asyncio.CancelledError, concurrent.futures.CancelledError)):
        return OperationCancelledError()
    if isinstance(error, ForkedError):
        return UnreachableError("The process was forked while the operation was under way.")
    return BrokerFaultError(
        f"A fault in scbroker itself ({type(error).__name__}): please report it."
    )
