"""Waiting for what other threads, tasks and processes do, and nothing else.

No test says how fast something is, nor hopes that something has happened after a pause. It waits until a
condition holds, for as long as a slow and busy machine may need.
"""

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic, sleep
from typing import Any, Final, TypeVar

from scbroker.client.calls.tasks import io_thread

T = TypeVar("T")

PATIENCE: Final = 120.0
"""Seconds that a test waits for what has to happen: only a test that fails waits so long."""
_PAUSE: Final = 0.01


def wait_until(holds: Callable[[], object], what: str = "it never held") -> None:
    """Return when this holds; it is an error if it does not within `PATIENCE`."""
    deadline = monotonic() + PATIENCE
    while not holds():
        assert monotonic() < deadline, what
        sleep(_PAUSE)


async def until(holds: Callable[[], object], what: str = "it never held") -> None:
    """Return when this holds, as `wait_until` does, and let the tasks of the loop run meanwhile."""
    deadline = monotonic() + PATIENCE
    while not holds():
        assert monotonic() < deadline, what
        await asyncio.sleep(_PAUSE)


def on_io_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run this where the library does its requests, and return its result."""
    return io_thread.submit("test", work).result(PATIENCE)


async def tick(times: int = 1) -> None:
    """Let each task of the loop that can run do one step, as often as this."""
    for _ in range(times):
        await asyncio.sleep(0)
