"""Waiting for what other threads and processes do."""

from collections.abc import Callable
from time import monotonic, sleep


def wait_until(holds: Callable[[], object], *, seconds: float = 60.0, pause: float = 0.02) -> None:
    """Return when this holds; it is an error if it does not within so many seconds."""
    deadline = monotonic() + seconds
    while not holds():
        assert monotonic() < deadline, "it never held"
        sleep(pause)
