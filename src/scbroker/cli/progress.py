"""How far a command is, for whoever looks at a terminal; lines alone where nobody does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[str], None]
Progress = Callable[[str, int, int], None]


@contextmanager
def shown() -> Iterator[tuple[Tell, Progress]]:
    """What takes lines, and what takes how much is done of how much."""
    if not sys.stderr.isatty():
        yield print, _nowhere
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=max(done, total))

        yield print, progress


def _nowhere(what: str, done: int, total: int) -> None:
    del what, done, total
