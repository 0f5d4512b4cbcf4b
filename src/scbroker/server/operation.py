"""What a row of the protocol says of an operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from scbroker.server.broker import Broker, Call
from scbroker.wire.codec import MAX_SMALL_MESSAGE, Message
from scbroker.wire.query import NoQuery

Handler = Callable[[Broker, Call, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the protocol."""

    method: str
    path: str
    handler: Handler
    summary: str
    message: type[Message] | type[bytes] | None = None
    answer: type[Message] | type[bytes] | None = None
    query: type[Message] = NoQuery
    session: bool = True
    status: int = 200
    limit: int = MAX_SMALL_MESSAGE
    large: bool = False
    """Whether the answer may be of megabytes, although the request is small; or the work for it large."""
