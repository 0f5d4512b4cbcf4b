"""Several things at once on scbroker's thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from scbroker.errors import BrokerError


@contextlib.asynccontextmanager
async def all_or_first_error() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup that fails with the first error itself instead of a group of one."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


class Shared:
    """Work that is done once for all who wait for it: they succeed together, and fail together.

    It goes on as long as anybody waits, whoever was cancelled meanwhile.
    """

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.ensure_future(work)
        self.waiting: int = 0
        """How many wait for it."""

    @property
    def is_over(self) -> bool:
        """Whether whoever comes now has to begin anew."""
        return self._task.done() or bool(self._task.cancelling())

    async def wait(self) -> None:
        """Until it is done; raises its error, to each without the frames of the others."""
        self.waiting += 1
        try:
            await asyncio.wait([self._task])  # which leaves it alone when its own task is cancelled
        finally:
            self.waiting -= 1
            if not self.waiting:
                self._task.cancel()
        error = self._task.exception()
        if error is not None:
            raise error.fresh() if isinstance(error, BrokerError) else error
