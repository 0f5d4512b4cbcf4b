"""Buffers that are used again: fresh memory for every chunk costs more than sealing and hashing it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Buffers:
    """So many buffers of one size; whoever comes later waits for one."""

    def __init__(self, count: int, size: int) -> None:
        self._size = size
        self._free: list[memoryview] = []
        self._room = asyncio.Semaphore(count)

    async def take(self) -> memoryview:
        await self._room.acquire()
        return self._free.pop() if self._free else memoryview(bytearray(self._size))

    def give_back(self, buffer: memoryview | None) -> None:
        """Makes room for the next; None stands for a buffer that must not be used again."""
        if buffer is not None:
            self._free.append(buffer)
        self._room.release()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[memoryview]:
        """A buffer for the length of a block."""
        buffer = await self.take()
        try:
            yield buffer
        finally:
            self.give_back(buffer)
