"""Run several coroutines, or the work of several items, at the same time on scbroker's thread."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from scbroker.client.calls.io_thread import io_thread
from scbroker.errors import BrokerError, BrokerUnavailableError, NotAuthenticatedError

A = TypeVar("A")
T = TypeVar("T")
_AT_ONCE: Final = 2
_PIECE: Final = 16
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
        """How many tasks wait for it."""

    @property
    def is_over(self) -> bool:
        """Return whether it has ended or is being cancelled: a new caller needs new work."""
        return self._task.done() or bool(self._task.cancelling())

    async def wait(self) -> None:
        """Wait until it ends; raise its error without the frames of other waiting tasks."""
        self.waiting += 1
        try:
            await asyncio.wait([self._task])  # does not cancel it if this task is cancelled
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


async def a_few_at_once(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines two at a time: while one request is sent, the next is prepared.

    The first error ends them all.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def run(work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            slots.release()

    async with all_or_first_error() as tasks:
        left = iter(works)
        while True:
            await slots.acquire()
            work = next(left, None)  # after acquire: an error there would leave it never awaited
            if work is None:
                return
            tasks.create_task(run(work))


async def each_in_pool(
    work: Callable[[A], T], items: Sequence[A], *, here: bool = False
) -> list[T | BrokerError]:
    """Run work for the processor for each item, and return its result or its `BrokerError`.

    Pieces of 16 items run at the same time, so that signing and verifying use all cores. `here` runs it on
    this thread instead: handing short work to the pool takes longer than it saves.
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
    pieces = [items[at : at + _PIECE] for at in range(0, len(items), _PIECE)]
    done = await asyncio.gather(*(io_thread.in_pool(some, piece) for piece in pieces))
    return [outcome for piece in done for outcome in piece]
