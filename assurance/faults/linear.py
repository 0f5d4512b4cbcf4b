"""Whether there is an order for a small history, by trying them all (Wing and Gong, with memory).

Knows nothing of versions being an order: a container is an object with a state, an operation may come
next if nothing that has to come before it is left, and what it was told must follow from the state.
"""

from __future__ import annotations

from dataclasses import replace

from assurance.faults.history import History, Operation, Value

State = tuple[int, Value | None]


def is_linearizable(history: History) -> bool:
    """Logs are left out: they tell of all versions, and not of one."""
    operations = [each for each in history if each.kind != "log"]
    seen: set[tuple[frozenset[int], State]] = set()

    def go(left: frozenset[int], state: State) -> bool:
        if all(operations[n].outcome == "unknown" for n in left):
            return True
        if (left, state) in seen:
            return False
        seen.add((left, state))
        first = min(operations[n].ended for n in left)
        for n in left:
            if operations[n].began > first:
                continue
            after = _after(operations[n], state)
            if after is not None and go(left - {n}, after):
                return True
        return False

    return go(frozenset(range(len(operations))), (0, None))


def _after(each: Operation, state: State) -> State | None:
    """The state after an operation that was told what it was told; None if it could not be."""
    version, value = state
    if each.outcome == "conflict":
        return state if each.condition is None or each.condition != version else None
    if each.kind == "read":
        return state if (each.version, each.value) == state else None
    if each.outcome == "done" and each.version != version + 1:
        return None
    if each.condition is not None and each.condition != version:
        return None
    if each.kind == "create":
        return (1, each.value) if value is None else None
    if value is None or each.written is None:
        return None
    return version + 1, replace(value, **{each.kind: each.written})
