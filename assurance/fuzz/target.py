"""One decoder and one input: what the decoder may do, within which time and memory."""

import contextlib
import signal
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from scbroker.errors import BrokerError
from tests.kit.waiting import PATIENCE

ACCEPTED: Final = "accepted"
_MEASUREMENTS: Final = 3
SECONDS: Final = PATIENCE
"""Processor time after which an input counts as one that never ends. It does not say how fast others are."""


class BrokenError(AssertionError):
    """A decoder accepted what it must refuse, or took too much memory."""


class HungError(BaseException):
    """An input took too long. Not an `Exception`, so that no decoder catches it."""


def kept(promise: bool, what: str) -> None:
    """Raise `BrokenError` with these words unless the promise about an accepted value holds."""
    if not promise:
        raise BrokenError(what)


@dataclass(frozen=True)
class Target:
    """A decoder.

    `run` decodes the bytes and checks what comes out: it returns, raises `BrokenError`, or raises what the
    decoder raises. Of the last, only `refusals` are allowed.
    """

    name: str
    run: Callable[[bytes], object]
    refusals: tuple[type[BrokerError], ...]
    seeds: Callable[[], Iterable[bytes]]
    """Valid inputs, and one that leads to each refusal."""
    inputs: Callable[[], st.SearchStrategy[bytes]]
    """Mostly valid inputs with one or a few faults."""
    bombs: Callable[[], Iterable[bytes]] = tuple
    """Inputs that promise more than they hold, or repeat one thing."""
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    """Entered once, around all runs: stand-ins, a folder."""
    memory: int = 40
    """Bytes that may be allocated for each byte fed to the decoder, beside `spare`."""
    spare: int = 2 << 20


_fed = [0]


def feed(*pieces: bytes) -> None:
    """Count bytes that the decoder is given beside the input: a small program may expand to many."""
    _fed[0] += sum(map(len, pieces))


def run_one(target: Target, data: bytes, *, measured: bool = False) -> str:
    """Run one input; return `ACCEPTED` or the name of the refusal, raise what is not allowed.

    `tracemalloc` sees the whole process, so an input fails only if it takes too much each of three times.
    """
    peaks: list[int] = []
    while True:
        _fed[0] = len(data)
        with _alarm(SECONDS), _peak(measured) as taken:
            found = _outcome(target, data)
        if taken[0] <= target.memory * _fed[0] + target.spare:
            return found
        peaks += taken
        if len(peaks) == _MEASUREMENTS:
            raise BrokenError(f"{_fed[0]} bytes of input took {min(peaks)} bytes of memory")


def _outcome(target: Target, data: bytes) -> str:
    try:
        target.run(data)
    except target.refusals as error:
        if type(error) not in target.refusals:
            raise
        return type(error).__name__
    return ACCEPTED


@contextlib.contextmanager
def _peak(measured: bool) -> Iterator[list[int]]:
    """Give a list whose element is, at the end, the most memory in use meanwhile."""
    taken = [0]
    if measured:
        tracemalloc.start()
    try:
        yield taken
    finally:
        if measured:
            taken[0] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise `HungError` after so much processor time, where the system has such a timer."""
    if not hasattr(signal, "setitimer") or (
        threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def ring(*_: Any) -> None:
        raise HungError(f"no end after {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
