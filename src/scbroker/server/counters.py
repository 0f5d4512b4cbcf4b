"""Count what a caller may do only so often. Counters are rows under keyed hashes, shared by all processes."""

from typing import Final

from sqlalchemy import Connection

from scbroker.errors import ThrottledError
from scbroker.server.storage import statements as sql

_SECOND: Final = 1_000_000


def count(
    connection: Connection,
    bucket: bytes,
    limit: int,
    window: int,
    moment: int,
    *,
    more: int = 1,
    what: str = "Too many attempts",
) -> None:
    """Add `more` to a counter, or restart it if its window (microseconds) has expired.

    Raises `ThrottledError` above the limit; the transaction is rolled back then, and nothing is counted.
    """
    ends_at = moment + window
    row = sql.one(connection, sql.COUNT_MORE, key=bucket, more=more, now=moment, ends=ends_at)
    if row is None:
        row_of_counter = {"bucket": bucket, "guesses": more, "ends_at": ends_at}
        connection.execute(sql.ADD_GUESSES, row_of_counter)
    elif row.guesses > limit:
        wait = (row.ends_at - moment) // _SECOND + 1
        raise ThrottledError(f"{what}: wait {wait} seconds.", retryAfter=wait)
