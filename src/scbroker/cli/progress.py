"""Show the progress of a command: bars on a terminal, only the report's lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[str], None]
Progress = Callable[[str, int, int], None]


@contextmanager
def reporting() -> Iterator[tuple[Tell, Progress]]:
    """Yield a function that prints a line, and one that takes a step's name, items done and total."""
    if not sys.stderr.isatty():
        yield print, lambda _what, _done, _total: None
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
