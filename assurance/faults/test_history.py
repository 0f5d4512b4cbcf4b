"""The checker of histories accepts what has an order, and refuses each kind of lie."""

from dataclasses import replace

import pytest

from assurance.faults.history import FOREVER, Operation, Value, check

V1, V2, V3, V4 = Value(1, 1), Value(2, 1), Value(2, 3), Value(4, 3)
GOOD: list[Operation] = [
    Operation(0, "create", 0, 1, version=1, value=V1),
    Operation(1, "read", 2, 3, version=1, value=V1),
    Operation(0, "header", 2, 4, version=2, written=2),
    Operation(1, "read", 3.5, 5, version=2, value=V2),
    Operation(2, "content", 4.5, 6, version=3, written=3),
    Operation(3, "header", 4.7, FOREVER, "unknown", written=4),
    Operation(1, "header", 7, 8, "conflict", written=9, condition=2),
    Operation(1, "read", 9, 10, version=4, value=V4),
    Operation(2, "log", 11, 12, log=(1, 2, 3, 4)),
]


def forged(at: int, **changes: object) -> list[Operation]:
    """Return the good history with one operation changed."""
    found = list(GOOD)
    found[at] = replace(found[at], **changes)  # type: ignore[arg-type]
    return found


LIES: dict[str, list[Operation]] = {
    "a write is lost": forged(7, version=3, value=Value(1, 3)),
    "a read goes back": [*GOOD, replace(GOOD[1], began=20, ended=21)],
    "a version is written twice": forged(4, version=2),
    "half of a write is seen": forged(3, value=Value(2, 3)),
    "a value that nobody wrote is seen": forged(7, value=Value(77, 3)),
    "a write is seen before it began": forged(5, began=10.5),
    "a write without an answer happened twice": [
        *GOOD[:8],
        Operation(2, "header", 13, 14, version=5, written=5),
        Operation(1, "read", 15, 16, version=6, value=V4),
    ],
    "an acknowledged write is not there": [
        *GOOD[:7],
        Operation(2, "read", 13, 14, version=2, value=V2),
    ],
    "a version has no writer": [each for each in GOOD if each.outcome != "unknown"],
    "a write took the place of one that it should have waited for": forged(
        6, outcome="done", version=5
    ),
    "a write was refused for nothing": forged(6, condition=4, began=10.2, ended=10.4),
    "the log has a gap": forged(8, log=(1, 2, 4)),
    "the log tells of something twice": forged(8, log=(1, 2, 3, 3, 4)),
    "the log is not in order": forged(8, log=(1, 3, 2, 4)),
    "the log lacks what was acknowledged": forged(8, log=(1, 2, 3)),
    "the log tells of what nobody wrote": forged(8, log=(1, 2, 3, 4, 5, 6, 7)),
    "a container begins twice": [*GOOD, Operation(5, "create", 20, 21, version=5, value=V1)],
}


def test_a_history_with_an_order_is_accepted() -> None:
    assert check(GOOD) == []


@pytest.mark.parametrize("lie", LIES)
def test_a_history_with_one_lie_is_refused(lie: str) -> None:
    assert check(LIES[lie]) != []
