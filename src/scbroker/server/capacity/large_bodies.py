"""Memory for large bodies: slots for requests and responses of megabytes, and reused buffers.

Each process has a number of slots, and each user a few of them, so that a client that sends or reads slowly
delays only requests of its own user.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Final
from weakref import WeakValueDictionary

from scbroker.server.capacity.admission import overloaded

_SLOTS_OF_A_USER: Final = 4
_WAITING_OF_A_USER: Final = 64
_WAIT_SECONDS: Final = 30.0
_MAX_UNREAD: Final = 128 * 1_048_576
"""Bytes of large responses without a slot that clients have not read."""
_MAX_UNREAD_OF_A_USER: Final = 16 * 1_048_576
_KEPT_BUFFERS: Final = 4
_FIRST_BYTES: Final = 1_048_576
Release = Callable[[], None]


class _Usage:
    """The slots and bytes that one user has; it exists while a request references it."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(_SLOTS_OF_A_USER)
        self.waiting = 0
        self.unread = 0


class LargeBodies:
    """The large-body slots of a process."""

    def __init__(self, slots: int) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._usage: WeakValueDictionary[bytes, _Usage] = WeakValueDictionary()
        self._unread = 0

    async def acquire(self, user_id: bytes) -> Release:
        """Wait for a slot of the user and of the process; return the function that releases both."""
        usage = self._usage.setdefault(user_id, _Usage())
        if usage.waiting >= _WAITING_OF_A_USER:
            raise overloaded("Too many of your large requests wait already: send fewer at once.")
        usage.waiting += 1
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await usage.slots.acquire()
                try:
                    await self._slots.acquire()
                except BaseException:
                    usage.slots.release()
                    raise
        except TimeoutError:
            raise overloaded("No slot for a large request became free: try again.") from None
        finally:
            usage.waiting -= 1
        return functools.partial(self._release, usage)

    def count_unread(self, user_id: bytes, size: int) -> Release:
        """Count a response of `size` bytes whose request took no slot, until the client has read it."""
        usage = self._usage.setdefault(user_id, _Usage())
        if usage.unread and usage.unread + size > _MAX_UNREAD_OF_A_USER:
            raise overloaded("You have too many unread responses: read them, or ask for less.")
        if self._unread + size > _MAX_UNREAD:
            raise overloaded()
        self._change_unread(usage, size)
        return functools.partial(self._change_unread, usage, -size)

    def _release(self, usage: _Usage) -> None:
        usage.slots.release()
        self._slots.release()

    def _change_unread(self, usage: _Usage, size: int) -> None:
        self._unread += size
        usage.unread += size


class Buffers:
    """Buffers of one size, reused: allocating one costs more than receiving and hashing a chunk."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free: list[bytearray] = []

    @contextlib.contextmanager
    def receiving(self) -> Iterator[Received]:
        """Provide memory for one body, for the length of a block."""
        received = Received(self._allocate)
        try:
            yield received
        finally:
            if received.buffer is not None and len(self._free) < _KEPT_BUFFERS:
                self._free.append(received.buffer)

    def _allocate(self) -> bytearray:
        return self._free.pop() if self._free else bytearray(self._size)


class Received:
    """The bytes of a body that have arrived. A buffer is allocated only after the first megabyte."""

    def __init__(self, allocate: Callable[[], bytearray]) -> None:
        self._allocate = allocate
        self._first = bytearray()
        self._size = 0
        self.buffer: bytearray | None = None

    def add(self, piece: bytes) -> None:
        """Append a piece; the caller limits the sum to the size of a buffer."""
        end = self._size + len(piece)
        if self.buffer is None and end > _FIRST_BYTES:
            self.buffer = self._allocate()
            self.buffer[: self._size] = self._first
            self._first = bytearray()
        if self.buffer is None:
            self._first += piece
        else:
            self.buffer[self._size : end] = piece
        self._size = end

    @property
    def octets(self) -> memoryview:
        return memoryview(self._first if self.buffer is None else self.buffer)[: self._size]
