"""Whether an order explains a small history, by trying all of them (Wing and Gong, memoised).

It does not use that versions are an order. A container is an object with a state; an operation may come next
if none that ended before it began is left, and its answer must follow from the state.
"""

from dataclasses import replace

from assurance.faults.history import History, Operation, Value

State = tuple[int, Value | None]


def is_linearizable(history: History) -> bool:
    """Whether an order explains the history. Reads of the log are ignored: they return all versions."""
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
    """Return the state after an operation with this answer; None if the answer was impossible."""
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
