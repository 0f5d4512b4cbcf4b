"""Report the progress of a transfer whose chunks are on the wire at the same time."""

from collections.abc import Callable
from typing import Final

from scbroker.client.parts.content import Progress, no_progress

_STEPS: Final = 8
_SMALLEST_STEP: Final = 16_384
_LARGEST_STEP: Final = 1_048_576


class Meter:
    """Add up the bytes transferred of each chunk, and report steps of an eighth, 16 KiB to 1 MiB.

    The reported number never falls. The last byte of a chunk counts only when the chunk is `complete`: the
    receiver has confirmed it, or the client has verified it. So the total is reported once, at the end.
    """

    def __init__(self, progress: Progress, total: int | None, done: int) -> None:
        """Begin with `done` bytes that an earlier transfer has moved."""
        self._progress, self._total, self._done = progress, total, done
        eighth = _LARGEST_STEP if total is None else total // _STEPS
        self._step = min(max(eighth, _SMALLEST_STEP), _LARGEST_STEP)
        self._on_the_wire: dict[int, int] = {}
        self._reported = 0
        if done:
            self._report()

    def follow(self, chunk: int, length: int, size: int) -> Callable[[int], None] | None:
        """Return a function that takes the number of sealed bytes transferred; None without a progress.

        The chunk has `size` sealed bytes and `length` plaintext bytes.
        """
        if self._progress is no_progress:
            return None

        def moved(count: int) -> None:
            reached = min(length * count // size, max(length - 1, 0))
            self._on_the_wire[chunk] = reached // self._step * self._step
            self._report()

        return moved

    def complete(self, chunk: int, length: int) -> None:
        """Count a chunk as whole."""
        self._on_the_wire.pop(chunk, None)
        self._done += length
        self._report()

    def _report(self) -> None:
        now = self._done + sum(self._on_the_wire.values())
        # The sum falls when a chunk is sent again, and stays when a chunk has only padding.
        if now > self._reported:
            self._reported = now
            self._progress(now, self._total)
