"""Several things at once on scbroker's thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def all_or_first_error() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup that fails with the first error itself instead of a group of one."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
