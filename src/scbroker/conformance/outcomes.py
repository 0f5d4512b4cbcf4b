"""The outcome of one question, or of one scene, and how the command prints it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """A question, the section that answers it, what the specification expects, and what came."""

    name: str
    section: str
    expected: str
    came: str

    @property
    def passed(self) -> bool:
        return self.expected == self.came

    def __str__(self) -> str:
        if self.passed:
            return f"right  {self.name}"
        return f"WRONG  {self.name} ({self.section}): expected {self.expected}, came {self.came}"


Report = Callable[[Outcome], None]


def conclude(run: Callable[[Report], Sequence[Outcome]], *, as_json: bool) -> bool:
    """Print the outcomes of a run as they come, or as a JSON list at its end; return whether all pass."""
    outcomes = run((lambda _: None) if as_json else print)
    wrong = sum(not outcome.passed for outcome in outcomes)
    if as_json:
        print(json.dumps([{**asdict(each), "passed": each.passed} for each in outcomes], indent=1))
    else:
        print(f"{len(outcomes)} asked, {wrong} wrong")
    return not wrong
