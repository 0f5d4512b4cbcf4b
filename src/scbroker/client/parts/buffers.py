"""Reuse buffers: allocating memory for every chunk would cost more than sealing and hashing it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Buffers:
    """At most `count` buffers of `size` bytes; `take` waits while all are in use."""

    def __init__(self, count: int, size: int) -> None:
        self._size = size
        self._free: list[memoryview] = []
        self._available = asyncio.Semaphore(count)

    async def take(self) -> memoryview:
        await self._available.acquire()
        return self._free.pop() if self._free else memoryview(bytearray(self._size))

    def give_back(self, buffer: memoryview | None) -> None:
        """Return a buffer; None in place of one that must not be used again."""
        if buffer is not None:
            self._free.append(buffer)
        self._available.release()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[memoryview]:
        """Lend a buffer for the length of a block."""
        buffer = await self.take()
        try:
            yield buffer
        finally:
            self.give_back(buffer)
