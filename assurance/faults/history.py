"""Histories of requests and answers, and whether one order of events explains them.

A container is a register with a version. Each write makes the next version, so the versions are the order,
and `check` goes through them once.

Each write has a value of its own. A write without an answer may have happened once, as a whole, at any time
after it began; or not at all.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
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

    @property
    def proves(self) -> int:
        """The highest version that is there when it ends: a write on one is refused if the next one is."""
        if self.outcome == "conflict" and self.condition is not None:
            return self.condition + 1
        return self.version or len(self.log)

    def after(self, before: Value | None) -> Value | None:
        """Return the container's values after this write; None if it cannot be applied to the given ones."""
        if self.kind == "create":
            return self.value if before is None else None
        if before is None or self.written is None:
            return None
        return replace(before, **{self.kind: self.written})


History = Sequence[Operation]


def check(history: History) -> list[str]:
    """Return what is wrong with the history of one container; an empty list if an order explains it."""
    return [*_check_answers(history)] or [*_check_writers(history)]


def _latest(history: History, moment: float) -> int:
    return max((each.proves for each in history if each.ended < moment), default=0)


def _check_answers(history: History) -> Iterator[str]:
    """Yield what is wrong whichever of the writes without an answer have happened."""
    if [each.version for each in history if each.kind == "create"] != [1]:
        yield "version 1 is not the only create"
    for version, count in Counter(each.version for each in history if each.is_write).items():
        if version is not None and count > 1:
            yield f"version {version} was written twice"
    for each in history:
        if each.version and each.condition not in (None, each.version - 1):
            yield f"a write on {each.condition} alone made {each.version}"
        if each.log != tuple(range(1, len(each.log) + 1)):
            yield "a log has a gap, or something twice"
        latest = _latest(history, each.began)
        if each.outcome == "done" and each.proves < latest + each.is_write:
            yield f"{each.kind} {each.proves} began after version {latest} was acknowledged"


def _check_writers(history: History) -> Iterator[str]:
    """Yield the first version that no choice of the writes without an answer explains."""
    writers = {each.version: {each} for each in history if each.is_write and each.version}
    unknown = {each for each in history if each.is_write and each.outcome == "unknown"}
    reads = {
        version: {each.value for each in history if each.kind == "read" and each.version == version}
        for version in {each.version for each in history if each.kind == "read"}
    }
    # The values after a version, and the writes without an answer that it took.
    ways: set[tuple[Value | None, frozenset[Operation]]] = {(None, frozenset())}
    for version in range(1, max(each.proves for each in history) + 1):
        candidates = writers.get(version) or {
            each
            for each in unknown
            if each.condition in (None, version - 1) and _latest(history, each.began) < version
        }
        ways = {
            (after, used | {write} & unknown)
            for before, used in ways
            for write in candidates - used
            if (after := write.after(before)) and reads.get(version, {after}) == {after}
        }
        if not ways:
            yield f"nothing explains version {version}, or what was read of it"
            return
