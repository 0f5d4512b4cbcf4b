"""Memory for the bodies of large contents: all transfers of a provider share it, so that it stays bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

_KEPT_SECONDS: Final = 1.0


class Buffers:
    """At most `count` buffers of `size` bytes, for all transfers together.

    They are reused: allocating memory for every chunk would cost more than sealing and hashing it. They are
    freed `kept_seconds` after the last transfer has ended, so that files which follow one another reuse them
    too; with 0 at once, for memory that no other transfer can use.
    """

    def __init__(self, count: int, size: int, *, kept_seconds: float = _KEPT_SECONDS) -> None:
        self._size, self._kept_seconds = size, kept_seconds
        self._free: list[memoryview] = []
        self._available = asyncio.Semaphore(count)
        self._transfers = 0
        self._freeing: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def transfer(self) -> Iterator[Taken]:
        """Let one transfer take buffers; what it has not given back at the end is replaced by new memory."""
        taken, loop = Taken(self._available, self._free, self._size), asyncio.get_running_loop()
        self._transfers += 1
        if self._freeing is not None:
            self._freeing.cancel()
            self._freeing = None
        try:
            yield taken
        finally:
            taken.end()
            self._transfers -= 1
            if not self._transfers:
                if self._kept_seconds:
                    self._freeing = loop.call_later(self._kept_seconds, self.free)
                else:
                    self.free()

    def free(self) -> None:
        """Free the buffers that no transfer has."""
        self._free.clear()


class Taken:
    """The buffers of one transfer."""

    def __init__(self, available: asyncio.Semaphore, free: list[memoryview], size: int) -> None:
        self._available, self._free, self._size = available, free, size
        self._count = 0

    async def take(self) -> memoryview:
        """Return a buffer; wait while all are in use. Transfers that wait take turns."""
        await self._available.acquire()
        self._count += 1
        return self._free.pop() if self._free else memoryview(bytearray(self._size))

    def give_back(self, buffer: memoryview | None) -> None:
        """Let any transfer use the buffer; None if a thread may still use it, so that none gets it."""
        if buffer is not None:
            self._free.append(buffer)
        self._count -= 1
        self._available.release()

    def end(self) -> None:
        """Let others allocate in place of the buffers that were not given back."""
        while self._count:
            self.give_back(None)
