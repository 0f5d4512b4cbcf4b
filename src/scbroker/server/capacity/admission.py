"""How many requests a process takes on at once. What is more is refused at its head, before any work.

A request is present from its head to the end of its answer. A few of those present have their turn, the
others wait in order; whoever waits for its own client stands aside meanwhile. All of it on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from enum import IntEnum
from types import TracebackType
from typing import Final, Protocol

from scbroker.errors import OverloadedError
from scbroker.server import metrics

ADMITTED: Final = "scbroker.admitted"
"""In a request's scope: the kind as which it was let in."""
_IN_WORK: Final = 16
"""More at once make nothing faster: a get is one step of the loop, and so many writes fill a commit."""
_TURN_SECONDS: Final = 5.0
_RESERVED: Final = 8
_ASIDE: Final = 4
"""So many times the present ones may stand aside."""
_RETRY_SECONDS: Final = 3
_RESERVED_PATHS: Final = (b"/health/", b"/metrics")
_LOG_OUT: Final = b"/v1/sessions/current"


class Kind(IntEnum):
    """What is counted apart: reads, all that may write, and what gets through when all else is full.

    That is the operator's own, and log-outs: apart from it, for any user sends those.
    """

    Reading = 0
    Writing = 1
    Reserved = 2
    LogOut = 3

    @classmethod
    def of(cls, method: bytes, path: bytes) -> Kind:
        """By what stands in the first line of a request."""
        if path.startswith(_RESERVED_PATHS):
            return cls.Reserved
        if method == b"GET":
            return cls.Reading
        return cls.LogOut if path == _LOG_OUT else cls.Writing


class Watched(Protocol):
    def check(self, now: float) -> None:
        """Lets go of a client that keeps it waiting for too long."""
        ...


class Gate:
    """Who is present in a process."""

    def __init__(self, max_requests: int, max_connections: int) -> None:
        self.max_connections = max_connections
        self.connections: set[Watched] = set()
        self._most, self._most_writing = max_requests, max(1, max_requests * 3 // 4)
        self._present = [0] * len(Kind)
        self._aside = 0
        self._turns = asyncio.Semaphore(_IN_WORK)

    @property
    def present(self) -> int:
        return self._present[Kind.Reading] + self._present[Kind.Writing]

    @property
    def aside(self) -> int:
        return self._aside

    def enter(self, kind: Kind) -> bool:
        """Lets a request in, or refuses it; who is let in leaves again."""
        # Writes that wait for the disk leave room for reads, and a flood of reads some for writes.
        free = self.present < self._most and self._aside < _ASIDE * self._most
        if kind is Kind.Writing:
            free = free and self._present[kind] < self._most_writing
        elif kind is not Kind.Reading:
            free = self._present[kind] < _RESERVED
        if free:
            self._present[kind] += 1
        else:
            metrics.refused(kind.name.lower())
        return free

    def leave(self, kind: Kind) -> None:
        self._present[kind] -= 1

    @contextlib.contextmanager
    def waiting_for_client(self, kind: Kind) -> Iterator[None]:
        """While a body comes or an answer goes as fast as the client likes."""
        self._present[kind] -= 1
        self._aside += 1
        try:
            yield
        finally:
            self._aside -= 1
            self._present[kind] += 1

    async def __aenter__(self) -> None:
        """A request's turn: `async with gate:` around the work for it."""
        if not self._turns.locked():
            await self._turns.acquire()
            return
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await self._turns.acquire()
        except TimeoutError:
            raise overloaded("The request waited for too long, and nothing was done.") from None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._turns.release()

    async def check(self) -> None:
        """Lets go of clients that keep the process waiting; to be called every second or so."""
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            connection.check(now)


def overloaded(
    text: str = "The broker has more to do than it can: try again later.",
) -> OverloadedError:
    """With a wait that differs, so that those who were refused together do not come back together."""
    return OverloadedError(text, retryAfter=1 + secrets.randbelow(_RETRY_SECONDS))
