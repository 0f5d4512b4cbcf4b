"""Admission control: how many requests a process works on at once. The rest are refused at their head.

An admitted request is counted as present from its head to the end of its response, except while it waits
on client I/O. Everything here runs on the event loop. How much of the work reaches the database at once
is limited in `storage`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, Protocol

from scbroker.errors import OverloadedError
from scbroker.server import answers

ADMITTED: Final = "scbroker.admitted"
"""The key of an admitted request's `Kind` in its ASGI scope."""
_RESERVED: Final = 8
_MAX_WAITING: Final = 4
"""At most 4 x max_requests requests may wait on client I/O."""
_RETRY_SECONDS: Final = 3
_RESERVED_PATHS: Final = (b"/health/", b"/metrics")
_LOG_OUT: Final = b"/v1/sessions/current"


class Kind(IntEnum):
    """Requests that are counted separately.

    `Reserved` are the operator's, `LogOut` anybody's: both are admitted when reads and writes are full, and
    many log-outs do not use up what is reserved for the operator.
    """

    Reading = 0
    Writing = 1
    Reserved = 2
    LogOut = 3

    @classmethod
    def of(cls, method: bytes, path: bytes) -> Kind:
        """Return the kind by the request line."""
        if path.startswith(_RESERVED_PATHS):
            return cls.Reserved
        if method == b"GET":
            return cls.Reading
        return cls.LogOut if path == _LOG_OUT else cls.Writing


class Connected(Protocol):
    def check(self, now: float) -> None:
        """Close the connection if its client is too slow."""
        ...


class Gate:
    """The counters of a process."""

    def __init__(self, max_requests: int, max_connections: int) -> None:
        self.max_connections = max_connections
        self.connections: set[Connected] = set()
        self._max_requests, self._max_writing = max_requests, max(1, max_requests * 3 // 4)
        self._present = [0] * len(Kind)
        self.waiting: int = 0
        """Requests that wait on client I/O."""

    @property
    def present(self) -> int:
        return self._present[Kind.Reading] + self._present[Kind.Writing]

    def enter(self, kind: Kind) -> bool:
        """Admit a request, which must `leave` then; return False if it is refused."""
        # Writes that wait for the disk must not keep out reads, nor a flood of reads all writes.
        free = (
            self.present < self._max_requests and self.waiting < _MAX_WAITING * self._max_requests
        )
        if kind is Kind.Writing:
            free = free and self._present[kind] < self._max_writing
        elif kind is not Kind.Reading:
            free = self._present[kind] < _RESERVED
        if free:
            self._present[kind] += 1
        else:
            answers.count_refused(kind.name.lower())
        return free

    def leave(self, kind: Kind) -> None:
        self._present[kind] -= 1

    @contextlib.contextmanager
    def waiting_for_client(self, kind: Kind) -> Iterator[None]:
        """Count the request as waiting while it receives its body or sends its response."""
        self._present[kind] -= 1
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1
            self._present[kind] += 1

    async def check(self) -> None:
        """Close connections whose clients are too slow; to be called about once a second."""
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            connection.check(now)


def overloaded(
    text: str = "The broker has more requests than it can serve: try again later.",
) -> OverloadedError:
    """Return the error with a random wait, so that clients refused together do not retry together."""
    return OverloadedError(text, retryAfter=1 + secrets.randbelow(_RETRY_SECONDS))
