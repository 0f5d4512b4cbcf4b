"""Memory for what comes in by megabytes, used again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

_KEPT: Final = 4
_FIRST: Final = 1_048_576


class Buffers:
    """Buffers of one size: fresh memory costs more than receiving a chunk and hashing it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free: list[bytearray] = []

    @contextlib.contextmanager
    def one(self) -> Iterator[Received]:
        """Room for what comes, for the length of a block."""
        received = Received(self._take)
        try:
            yield received
        finally:
            if received.buffer is not None and len(self._free) < _KEPT:
                self._free.append(received.buffer)

    def _take(self) -> bytearray:
        return self._free.pop() if self._free else bytearray(self._size)


class Received:
    """What has come so far: a whole buffer's memory is taken once a good part of it is filled."""

    def __init__(self, take: Callable[[], bytearray]) -> None:
        self._take = take
        self._first = bytearray()
        self._size = 0
        self.buffer: bytearray | None = None

    def add(self, piece: bytes) -> None:
        """Never more in all than a buffer holds."""
        end = self._size + len(piece)
        if self.buffer is None and end > _FIRST:
            self.buffer = self._take()
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
