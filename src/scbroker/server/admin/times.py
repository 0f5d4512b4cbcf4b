"""Convert the times of tables, microseconds since 1970, to those that commands show, and back."""

import datetime as dt
from typing import overload

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


@overload
def time_of(moment: int) -> dt.datetime: ...
@overload
def time_of(moment: int | None) -> dt.datetime | None: ...
def time_of(moment: int | None) -> dt.datetime | None:
    """Return the time of a table's column; None where it is NULL."""
    return None if moment is None else _EPOCH + moment * _MICROSECOND


def moment(time: dt.datetime) -> int:
    """Return a time with a zone as a table stores it."""
    return (time - _EPOCH) // _MICROSECOND
