"""What makes many of one: a few requests at once, and the processor's work beside the loop.

Each item of a batch is made and judged as it would be alone. One that fails is its own failure; where a
request as a whole has no answer, the operation has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

from scbroker.client.calls.io_thread import io_thread
from scbroker.client.calls.tasks import all_or_first_error
from scbroker.errors import BrokerError, BrokerUnavailableError, NotAuthenticatedError

A = TypeVar("A")
T = TypeVar("T")
_AT_ONCE: Final = 2
_PIECE: Final = 16
EVERYTHING: Final = (BrokerUnavailableError, NotAuthenticatedError)
"""What fails one request, and would fail every other."""
MISCOUNTED: Final = "The broker answered for more or fewer containers than it was asked about."
NEITHER: Final = "The broker's answer for a container is neither a result nor a problem."


def shown(outcome: T | BrokerError) -> T | BrokerError:
    """An outcome as it is handed out: an error without the frames that it went through."""
    return outcome.fresh() if isinstance(outcome, BrokerError) else outcome


async def a_few_at_once(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """While one request is on its way, the next is made ready. The first error ends them all."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def run(work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            room.release()

    async with all_or_first_error() as tasks:
        left = iter(works)
        while True:
            await room.acquire()
            work = next(left, None)  # none is made before there is room: it would never be awaited
            if work is None:
                return
            tasks.create_task(run(work))


async def each_in_pool(work: Callable[[A], T], items: Sequence[A]) -> list[T | BrokerError]:
    """Work for the processor, for each item: its result, or its error in the result's place.

    Several pieces at once: signing and verifying run on all cores.
    """

    def some(piece: Sequence[A]) -> list[T | BrokerError]:
        found: list[T | BrokerError] = []
        for item in piece:
            try:
                found.append(work(item))
            except BrokerError as error:
                found.append(error)
        return found

    pieces = [items[at : at + _PIECE] for at in range(0, len(items), _PIECE)]
    done = await asyncio.gather(*(io_thread.in_pool(some, piece) for piece in pieces))
    return [outcome for piece in done for outcome in piece]
