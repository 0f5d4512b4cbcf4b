"""One input against one target, and the search for inputs that reach what none did before.

The property of every input: a value that keeps its promise, or a refusal of a kind that the target's row
documents; within bounded time, and where it is measured within bounded memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import re
import signal
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import scbroker
from assurance.fuzz.messagepack import NotCanonicalError, read
from assurance.fuzz.mutation import Mutate, lesser
from scbroker.errors import BrokerError

ACCEPTED: Final = "accepted"
CORPUS: Final = Path(__file__).parent / "corpus"
_SOURCE: Final = str(Path(scbroker.__file__).parent)
_LARGEST_KEPT: Final = 4096
_MOST_WORDS: Final = 3000
_SHRINK_SECONDS: Final = 20.0

Reached = set[tuple[int, int]]


class BrokenError(AssertionError):
    """A target did what its row does not allow."""


class HungError(BaseException):
    """An input took so long that it may never end. Nothing that catches errors catches it."""


def kept(promise: bool, what: str) -> None:
    """Raises unless what was accepted keeps a promise."""
    if not promise:
        raise BrokenError(what)


def canonical(data: bytes) -> Any:
    """The value of bytes that were accepted, by a reader that shares nothing with the project's."""
    try:
        return read(data)
    except NotCanonicalError as error:
        raise BrokenError(f"accepted what is not canonical: {error}") from None


@dataclass(frozen=True)
class Target:
    """A decoder, and what it may do with bytes.

    `run` returns once a value was made that keeps its promise, raises `BrokenError` where it does not, and
    whatever the decoder raises; of that, `refusals` alone are documented.
    """

    name: str
    run: Callable[[bytes], object]
    refusals: tuple[type[BrokerError], ...]
    seeds: Callable[[], Iterable[bytes]]
    mutate: Mutate
    bombs: Callable[[], Iterable[bytes]] = tuple
    """Inputs that promise more than they hold."""
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    seconds: float = 2.0
    """Of processor time at most for one input."""
    memory: int = 40
    """Bytes at most for each byte that the decoder was fed, beside `spare`."""
    spare: int = 2 << 20


@dataclass(frozen=True)
class Outcome:
    """What became of an input: `ACCEPTED` or the refusal, in so many words."""

    kind: str
    words: str = ""


_MEASUREMENTS: Final = 3
_fed = [0]


def feed(*pieces: bytes) -> None:
    """What a decoder is given beyond the input itself: a small program may come to much."""
    _fed[0] += sum(map(len, pieces))


def outcome(target: Target, data: bytes, *, measured: bool = False) -> Outcome:
    """Runs one input; raises what the target's row does not allow.

    Memory is that of the whole process: only what an input takes each time is its own.
    """
    peaks: list[int] = []
    while len(peaks) < _MEASUREMENTS:
        _fed[0] = len(data)
        with _alarm(target.seconds), _peak(measured) as taken:
            found = _run(target, data)
        if taken[0] <= target.memory * _fed[0] + target.spare:
            return found
        peaks += taken
    raise BrokenError(f"{_fed[0]} bytes of input took {min(peaks)} bytes of memory")


def _run(target: Target, data: bytes) -> Outcome:
    try:
        target.run(data)
    except BrokerError as error:
        if type(error) not in target.refusals:
            raise
        return Outcome(type(error).__name__, _words(error))
    return Outcome(ACCEPTED)


@contextlib.contextmanager
def _peak(measured: bool) -> Iterator[list[int]]:
    """The most memory that is in use meanwhile, at its end; 0 where it is not measured."""
    taken = [0]
    if not measured:
        yield taken
        return
    tracemalloc.start()
    try:
        yield taken
        taken[0] = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Ends what takes too much time in Python, where the system can; `run` watches for all else."""
    if not hasattr(signal, "setitimer") or (
        threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def ring(*_: object) -> None:
        raise HungError(f"no end after {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Edges:
    """Which steps from line to line of the project were taken, while its `with` block runs."""

    def __init__(self) -> None:
        self.taken: Reached = set()
        self._codes: dict[CodeType, int] = {}
        self._last = 0

    def __enter__(self) -> Edges:
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        code = frame.f_code
        number = self._codes.get(code)
        if number is None:
            ours = code.co_filename.startswith(_SOURCE)
            digest = hashlib.sha256(f"{code.co_filename}:{code.co_qualname}".encode()).digest()
            number = int.from_bytes(digest[:5], "big") << 16 if ours else -1
            self._codes[code] = number
        return self._line if number >= 0 else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        here = self._codes[frame.f_code] | frame.f_lineno
        self.taken.add((self._last, here))
        self._last = here
        return self._line


@dataclass
class Report:
    """What a search came to."""

    target: str
    executions: int = 0
    seconds: float = 0.0
    edges: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    kept: list[bytes] = field(default_factory=list)
    """Inputs that together went wherever any went, the smallest first."""
    faults: dict[str, bytes] = field(default_factory=dict)
    """The smallest input of each fault, by what went wrong."""


class Search:
    """From seeds and corpus to inputs that nobody thought of."""

    def __init__(
        self,
        target: Target,
        seed: int,
        *,
        guided: bool = False,
        watch: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        """What is guided keeps what goes where nothing went before; it is traced, and slower for it."""
        self.target = target
        self.report = Report(target.name)
        self._rng = random.Random(seed)
        self._guided, self._watch = guided, watch
        self._words: set[Outcome] = set()
        self._pool: list[bytes] = []
        self._accepted: list[bytes] = []
        self._edges: Reached = set()
        self._reach: dict[bytes, Reached] = {}

    def run(
        self,
        inputs: Iterable[bytes],
        bombs: Iterable[bytes] = (),
        *,
        seconds: float = 0.0,
        rounds: int = 0,
    ) -> Report:
        """All of these, then new inputs for so long or so many."""
        began = time.monotonic()
        with self.target.around():
            for data in inputs:
                self._try(data, given=True)
            for data in bombs:
                self._run(data, measured=True)
            until = time.monotonic() + seconds
            while rounds > 0 or time.monotonic() < until:
                self._try(self._another())
                rounds -= 1
        self.report.seconds = time.monotonic() - began
        self.report.edges = len(self._edges)
        self.report.kept = distilled(self._reach)
        return self.report

    def _another(self) -> bytes:
        # Most of what is new is refused; half of all starts from what is not.
        near = self._accepted if self._accepted and self._rng.random() < 0.5 else self._pool
        return self.target.mutate(self._rng, self._rng.choice(near or [b""]), self._pool)

    def _try(self, data: bytes, *, given: bool = False) -> None:
        edges = Edges()
        with edges if self._guided else contextlib.nullcontext():
            found = self._run(data)
        if found is None:
            return
        new = self._learn(data, found, edges.taken)
        if new or given:
            self._pool.append(data)
            if found.kind == ACCEPTED:
                self._accepted.append(data)
        if new:
            self._run(data, measured=True)

    def _run(self, data: bytes, *, measured: bool = False) -> Outcome | None:
        self._watch(data)
        self.report.executions += 1
        try:
            found = outcome(self.target, data, measured=measured)
        except (Exception, HungError) as error:
            self._fault(data, error)
            return None
        counts = self.report.outcomes
        counts[found.kind] = counts.get(found.kind, 0) + 1
        return found

    def _learn(self, data: bytes, found: Outcome, taken: Reached) -> bool:
        """Whether it came to anything new."""
        new_words = found not in self._words and len(self._words) < _MOST_WORDS
        new_edges = not taken <= self._edges
        if new_words:
            self._words.add(found)
        if new_edges:
            self._edges |= taken
            self._reach[data] = taken
        return new_words or new_edges

    def _fault(self, data: bytes, error: BaseException) -> None:
        name = fault_of(error)
        if name not in self.report.faults:
            # Each try at what hangs would take its time again.
            small = data if isinstance(error, HungError) else shrunk(self.target, data, name)
            self.report.faults[name] = small
        elif len(data) < len(self.report.faults[name]):
            self.report.faults[name] = data


def _words(error: BaseException) -> str:
    return re.sub(r"[0-9]+", "0", str(error))[:160]


def fault_of(error: BaseException) -> str:
    """What went wrong and where: equal for inputs that are of one cause, as far as that can be seen."""
    if isinstance(error, (BrokenError, HungError)):
        return f"{type(error).__name__}: {_words(error)}"
    frames, trace = ["?"], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{Path(code.co_filename).name}:{code.co_name}")
        trace = trace.tb_next
    return f"{type(error).__name__} in {frames[-1]}"


def shrunk(target: Target, data: bytes, name: str) -> bytes:
    """A smaller input with the same fault, as small as a few seconds allow."""
    until = time.monotonic() + _SHRINK_SECONDS

    def same(candidate: bytes) -> bool:
        try:
            outcome(target, candidate)
        except Exception as error:
            return fault_of(error) == name
        except HungError:
            pass
        return False

    while True:
        for smaller in lesser(data):
            if time.monotonic() > until:
                return data
            if len(smaller) < len(data) and same(smaller):
                data = smaller
                break
        else:
            return data


def distilled(reach: dict[bytes, Reached]) -> list[bytes]:
    """Small inputs that together go wherever all of them went."""
    left: Reached = set().union(*reach.values())
    found = []
    for data in sorted(reach, key=len):
        if len(data) <= _LARGEST_KEPT and reach[data] & left:
            left -= reach[data]
            found.append(data)
    return found


def stored(name: str) -> list[bytes]:
    """The corpus of a target."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]


def store(name: str, data: bytes) -> Path | None:
    """Adds an input to the corpus of a target, unless it is there."""
    path = CORPUS / name / hashlib.sha256(data).hexdigest()[:16]
    if path.exists():
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
