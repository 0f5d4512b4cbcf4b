"""The client's clock, and times as records hold them: microseconds since 1970, UTC."""

import datetime as dt
import time
from typing import Final

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def now() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000


def moment(microseconds: int) -> dt.datetime:
    """Return a time in microseconds since 1970 as an aware datetime."""
    return EPOCH + dt.timedelta(microseconds=microseconds)
