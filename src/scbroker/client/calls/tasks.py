"""Run several coroutines at once, or one function for each of several items in the thread pool."""

import asyncio
import contextlib
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from typing import Any, Final, TypeVar

from scbroker.client.calls.io_thread import io_thread
from scbroker.errors import BrokerError, BrokerUnavailableError, NotAuthenticatedError

A = TypeVar("A")
T = TypeVar("T")
_AT_ONCE: Final = 2
_PIECE: Final = 16
_LEAST: Final = 16
EVERYTHING: Final = (BrokerUnavailableError, NotAuthenticatedError)
"""Errors of one request of a batch that every other request would meet as well."""
MISCOUNTED: Final = "The broker answered for more or fewer containers than it was asked about."


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
