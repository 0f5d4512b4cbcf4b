"""What takes megabytes of memory while it comes or goes: a process has some places for it, a user a few.

Whoever sends or reads slowly keeps their own places, and nobody else's. Nobody waits for one for long.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from scbroker.server.capacity.admission import overloaded

_PLACES_OF_A_USER: Final = 4
_WAITING_OF_A_USER: Final = 64
_WAIT_SECONDS: Final = 30.0
_MOST_GOING: Final = 128 * 1_048_576
_GOING_OF_A_USER: Final = 16 * 1_048_576
Release = Callable[[], None]


class _Own:
    """A user's places, for as long as one of them is taken or waited for, and what goes to them."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(_PLACES_OF_A_USER)
        self.waiting = 0
        self.going = 0


class Places:
    """The places of a process."""

    def __init__(self, count: int) -> None:
        self._all = asyncio.Semaphore(count)
        self._of: WeakValueDictionary[bytes, _Own] = WeakValueDictionary()
        self._going = 0

    async def take(self, user_id: bytes) -> Release:
        """One of the user's places and one of the process's; gives what gives them back."""
        own = self._of.setdefault(user_id, _Own())
        if own.waiting >= _WAITING_OF_A_USER:
            raise overloaded("Too many of your large requests wait already: send fewer at once.")
        own.waiting += 1
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await own.places.acquire()
                try:
                    await self._all.acquire()
                except BaseException:
                    own.places.release()
                    raise
        except TimeoutError:
            raise overloaded("No place for a large request became free: try again.") from None
        finally:
            own.waiting -= 1
        return functools.partial(self._give_back, own)

    def note_going(self, user_id: bytes, size: int) -> Release:
        """Counts an answer that is larger than it was expected to be, until it was read."""
        own = self._of.setdefault(user_id, _Own())
        if own.going and own.going + size > _GOING_OF_A_USER:
            raise overloaded("Too much goes to you that you do not read: read it, or ask for less.")
        if self._going + size > _MOST_GOING:
            raise overloaded()
        self._going += size
        own.going += size
        return functools.partial(self._gone, own, size)

    def _give_back(self, own: _Own) -> None:
        own.places.release()
        self._all.release()

    def _gone(self, own: _Own, size: int) -> None:
        self._going -= size
        own.going -= size
