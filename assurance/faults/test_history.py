"""The checker of histories accepts what has an order, and refuses each kind of lie."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from assurance.faults.history import FOREVER, History, Operation, Value, check
from assurance.faults.linear import is_linearizable

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
    assert is_linearizable(GOOD)


@pytest.mark.parametrize("lie", LIES)
def test_a_history_with_one_lie_is_refused(lie: str) -> None:
    assert check(LIES[lie]) != []
    if not lie.startswith("the log"):
        assert not is_linearizable(LIES[lie]), "the search for an order disagrees"


def lived(rng: random.Random) -> list[Operation]:
    """Return what a few clients see of a correct register."""
    state, version, found = Value(0, 0), 1, []
    found.append(Operation(0, "create", 0, 1, version=1, value=state))
    for number in range(rng.randint(3, 7)):
        moment = 1 + number + rng.random()
        began, ended = max(1.01, moment - rng.random() * 3), moment + rng.random() * 3
        kind = rng.choice(["read", "header", "content"])
        if kind == "read":
            found.append(Operation(9, "read", began, ended, version=version, value=state))
            continue
        lost, value = rng.random() < 0.3, 100 + number
        condition = rng.choice([None, version, version - 1])
        made: Operation = Operation(
            number, "header", began, ended, condition=condition, written=value
        )
        made = replace(made, kind="header" if kind == "header" else "content")
        if condition not in (None, version):
            found.append(replace(made, outcome="conflict"))
            continue
        if not lost or rng.random() < 0.5:
            state, version = replace(state, **{kind: value}), version + 1
        found.append(
            replace(made, outcome="unknown", ended=FOREVER)
            if lost
            else replace(made, version=version)
        )
    return found


def _moved(each: Operation, rng: random.Random) -> Operation:
    by = rng.uniform(-3, 3)
    return replace(each, began=max(0.0, each.began + by), ended=each.ended + by)


def _renumbered(each: Operation, rng: random.Random) -> Operation:
    return replace(each, version=max(1, (each.version or 1) + rng.choice([-1, 1])))


def _other_value(each: Operation, rng: random.Random) -> Operation:
    value = rng.choice([0, 100, 101, 102, 103])
    return replace(each, value=None if each.value is None else replace(each.value, header=value))


MUTATIONS: list[Callable[[Operation, random.Random], Operation]] = [
    _moved,
    _renumbered,
    _other_value,
]


def bent(history: History, rng: random.Random) -> list[Operation]:
    found = list(history)
    at = rng.randrange(1, len(found))
    if found[at].outcome == "done":
        found[at] = rng.choice(MUTATIONS)(found[at], rng)
    return found


def test_the_one_pass_check_and_the_search_for_an_order_agree_on_thousands_of_small_histories() -> (
    None
):
    """About half of the changed histories have no order."""
    refused = 0
    for seed in range(4000):
        rng = random.Random(seed)
        history = lived(rng)
        assert check(history) == [], (seed, history)
        assert is_linearizable(history), (seed, history)
        history = bent(history, rng)
        assert (check(history) == []) == is_linearizable(history), (seed, check(history), history)
        refused += check(history) != []
    assert 500 < refused < 3500
