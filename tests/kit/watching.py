"""See the statements that a function of the broker executes on its connection."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

from scbroker.server.storage.driver import Connection

Act = Callable[[str, Sequence[Sequence[Any]]], None]


def _nothing(sql: str, values: Sequence[Sequence[Any]]) -> None:
    del sql, values


@contextlib.contextmanager
def watching(
    connection: Connection, before: Act = _nothing, after: Act = _nothing
) -> Iterator[None]:
    """Call the functions with the SQL and each execution's values; an error of theirs is the statement's."""

    def watched(execute: Any, values_of: Callable[..., Sequence[Sequence[Any]]]) -> Any:
        def run(sql: str, *arguments: Any) -> Any:
            before(sql, values_of(*arguments))
            result = execute(sql, *arguments)
            after(sql, values_of(*arguments))
            return result

        return run

    with (
        patch.object(connection, "fetch", watched(connection.fetch, lambda each: [each])),
        patch.object(connection, "_run_each", watched(connection._run_each, lambda every: every)),
        patch.object(connection, "_run", watched(connection._run, lambda: [])),
    ):
        yield
