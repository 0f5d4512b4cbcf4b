"""Memory for what comes in by megabytes, used again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

_KEPT: Final = 4


class Buffers:
    """Buffers of one size: fresh memory costs more than receiving a chunk and hashing it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free: list[bytearray] = []

    @contextlib.contextmanager
    def one(self) -> Iterator[memoryview]:
        """A buffer for the length of a block."""
        buffer = self._free.pop() if self._free else bytearray(self._size)
        try:
            yield memoryview(buffer)
        finally:
            if len(self._free) < _KEPT:
                self._free.append(buffer)
