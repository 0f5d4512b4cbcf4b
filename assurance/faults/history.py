"""Histories of requests and answers, and whether one order of events explains them.

A container is a register with a version. Each write makes the next version, so the versions are the order,
and `check` takes one pass.

Each write has a value of its own. A write without an answer may have happened once, as a whole, at any time
after it began; or not at all.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

FOREVER: Final = float("inf")
Kind = Literal["create", "header", "content", "read", "log"]
Outcome = Literal["done", "unknown", "conflict"]


@dataclass(frozen=True)
class Value:
    """Header and content of a container at one version."""

    header: int
    content: int


@dataclass(frozen=True)
class Operation:
    """One call of one client. Times are seconds of one clock; `ended` is FOREVER without an answer."""

    client: int
    kind: Kind
    began: float
    ended: float
    outcome: Outcome = "done"
    version: int | None = None
    """The version that a write made or a read returned."""
    value: Value | None = None
    """The content that a read returned or a create wrote."""
    written: int | None = None
    """The value that a write set."""
    condition: int | None = None
    """The `ifVersion` of a write."""
    log: tuple[int, ...] = ()
    """The versions that a read of the log returned, in order."""

    @property
    def is_write(self) -> bool:
        return self.kind in ("create", "header", "content")


History = Sequence[Operation]
Timed = Mapping[int, Operation]
Step = tuple[Operation, Value]
_CHOICES: Final = 1000


def check(history: History) -> list[str]:
    """Return what is wrong with the history of one container; an empty list if an order explains it."""
    writes, found = _writes(history)
    if found:
        return found
    found = [*_check_versions(writes, history), *_check_order(history), *_check_logs(history)]
    if found:
        return found
    unknown = [each for each in history if each.is_write and each.outcome == "unknown"]
    top = max((each.version or 0 for each in history), default=0)
    found = ["no choice of writes without an answer explains what was read"]
    for assigned in itertools.islice(_fill(history, writes, unknown, top), _CHOICES):
        found = list(_check_conflicts(history, assigned, unknown, top))
        if not found:
            break
    return found


def _writes(history: History) -> tuple[dict[int, Operation], list[str]]:
    writes: dict[int, Operation] = {}
    found = []
    for each in history:
        if each.is_write and each.outcome == "done":
            assert each.version is not None
            if each.version in writes:
                found.append(f"version {each.version} was written twice")
            if each.condition is not None and each.version != each.condition + 1:
                found.append(f"a write on {each.condition} alone made {each.version}")
            writes[each.version] = each
    return writes, found


def _check_versions(writes: Timed, history: History) -> Iterator[str]:
    if writes and (1 not in writes or writes[1].kind != "create"):
        yield "version 1 is not a create"
    created = [each for each in history if each.kind == "create"]
    if len(created) != 1:
        yield "the history has not exactly one create"


def _check_order(history: History) -> Iterator[str]:
    """An operation that ended before another began has the lower version."""
    told = [each for each in history if each.version is not None]
    by_end = sorted(told, key=lambda each: each.ended)
    latest, at = 0, 0
    for each in sorted(told, key=lambda each: each.began):
        while at < len(by_end) and by_end[at].ended < each.began:
            latest = max(latest, by_end[at].version or 0)
            at += 1
        version = each.version or 0
        if version < latest or (each.is_write and version == latest):
            yield f"{each.kind} {version} began after version {latest} was acknowledged"


def _check_logs(history: History) -> Iterator[str]:
    """A log returns 1, 2, 3 … up to at least what was acknowledged when its read began."""
    told = [each for each in history if each.version is not None or each.kind == "log"]
    for each in history:
        if each.kind != "log":
            continue
        if each.log != tuple(range(1, len(each.log) + 1)):
            yield "a log has a gap, or something twice"
        due = [
            len(o.log) if o.kind == "log" else o.version or 0 for o in told if o.ended < each.began
        ]
        if len(each.log) < max(due, default=0):
            yield f"a log ends with {len(each.log)} and {max(due)} was acknowledged"
        highest = sum(1 for o in history if o.is_write and o.began < each.ended)
        if len(each.log) > highest:
            yield "a log has more versions than were written"


def _fill(
    history: History, writes: Timed, unknown: History, top: int
) -> Iterator[dict[int, Operation]]:
    """Yield each assignment of writes to versions that fits, trying the unanswered ones."""
    reads: dict[int, set[Value]] = {}
    for each in history:
        if each.kind == "read" and each.value is not None and each.version is not None:
            reads.setdefault(each.version, set()).add(each.value)
    floors = {id(each): _acknowledged_before(history, each.began) for each in unknown}
    ceilings = _first_acknowledged(history, top)

    def candidates(version: int, state: Value | None, used: frozenset[int]) -> Iterator[Step]:
        given = writes.get(version)
        for each in [given] if given is not None else unknown:
            if id(each) in used or (given is None and not may_be(each, version)):
                continue
            after = _apply(each, state)
            if after is not None and reads.get(version, {after}) <= {after}:
                yield each, after

    def may_be(each: Operation, version: int) -> bool:
        fits = each.condition is None or version == each.condition + 1
        return fits and floors[id(each)] < version and each.began < ceilings[version]

    # Not recursive: a container may have more versions than Python allows frames.
    chosen: list[Operation] = []
    open_steps = [candidates(1, None, frozenset())]
    while open_steps:
        if len(chosen) == top:
            yield dict(enumerate(chosen, 1))
        else:
            step = next(open_steps[-1], None)
            if step is not None:
                chosen.append(step[0])
                used = frozenset(id(each) for each in chosen if each.outcome == "unknown")
                open_steps.append(candidates(len(chosen) + 1, step[1], used))
                continue
        open_steps.pop()
        if chosen:
            chosen.pop()


def _acknowledged_before(history: History, moment: float) -> int:
    versions = [each.version or len(each.log) for each in history if each.ended < moment]
    return max(versions, default=0)


def _first_acknowledged(history: History, top: int) -> dict[int, float]:
    """Return when each version or a later one was first acknowledged: it existed by then."""
    ceilings = dict.fromkeys(range(1, top + 1), FOREVER)
    for each in history:
        for version in range(1, (each.version or len(each.log)) + 1):
            if version in ceilings:
                ceilings[version] = min(ceilings[version], each.ended)
    return ceilings


def _apply(each: Operation, state: Value | None) -> Value | None:
    if each.kind == "create":
        return each.value if state is None else None
    if state is None or each.written is None:
        return None
    return replace(state, **{each.kind: each.written})


def _check_conflicts(
    history: History, assigned: Timed, unknown: History, top: int
) -> Iterator[str]:
    """A conditional write is refused only if another version existed at some time meanwhile."""
    used = {id(each) for each in assigned.values()}
    idle = [each for each in unknown if id(each) not in used]
    for each in history:
        if each.outcome != "conflict" or each.condition is None:
            continue
        later = [assigned[each.condition + 1]] if each.condition < top else idle
        was_there = _acknowledged_before(history, each.began) >= each.condition
        if was_there and not any(
            write.began < each.ended and write.condition in (None, each.condition)
            for write in later
        ):
            yield f"a write on {each.condition} was refused, and nothing else had been written"
