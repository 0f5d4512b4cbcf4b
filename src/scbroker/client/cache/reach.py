"""Remember whether a broker answers, and ask an absent one again.

After one request without an answer the broker counts as away, and no operation waits for it any more. A probe
asks the broker in growing pauses, and soon after an operation needed it.
"""

import asyncio
import datetime as dt
import logging
import secrets
from typing import Final

from scbroker.client.arguments import moment, now
from scbroker.client.http.transport import answered_soon
from scbroker.client.users.session import Session
from scbroker.errors import BrokerError, UnreachableError

_FIRST_PAUSE: Final = 0.5
"""Seconds."""
_LONGEST_PAUSE: Final = 30.0
_log = logging.getLogger("scbroker")


class Reach:
    """Whether the broker answers. Changed on scbroker's thread, and read on any."""

    def __init__(self) -> None:
        self._away_since: int | None = None
        self._lost, self._reached, self._needed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._reached.set()

    @property
    def is_away(self) -> bool:
        return self._away_since is not None

    @property
    def away_since(self) -> dt.datetime | None:
        """Return when the broker was found to be away; None if it answered last."""
        return None if self._away_since is None else moment(self._away_since)

    def lost(self, error: UnreachableError) -> None:
        """Note that a request got no answer."""
        if self.is_away:
            return
        self._away_since = now()
        self._reached.clear()
        self._lost.set()
        _log.warning("The broker is away, and the cache answers in its place: %s", error)

    def found(self) -> None:
        """Note that the broker answered."""
        if not self.is_away:
            return
        self._away_since = None
        self._lost.clear()
        self._reached.set()
        _log.info("The broker answers again: requests go to it again")

    def needed(self) -> None:
        """Ask an absent broker soon, because an operation failed without it."""
        self._needed.set()

    async def reached(self) -> None:
        """Wait until the broker answers."""
        await self._reached.wait()

    async def suspect(self, session: Session) -> None:
        """Ask a broker whose connection was lost; note that it is away if it does not answer."""
        try:
            await _ask(session)
        except UnreachableError as error:
            self.lost(error)

    async def watch(self, session: Session) -> None:
        """Ask the broker whenever it is away, until it answers. Runs as long as the session."""
        while True:
            await self._lost.wait()
            attempt = 0
            while self.is_away:
                attempt += 1
                self._needed.clear()
                pause = min(_FIRST_PAUSE * 2.0 ** min(attempt - 1, 10), _LONGEST_PAUSE)
                pause *= (1 + secrets.randbelow(1001) / 1000) / 2
                try:
                    async with asyncio.timeout(pause):
                        await self._needed.wait()
                        await asyncio.sleep(_FIRST_PAUSE)  # at most two requests a second
                except TimeoutError:
                    pass
                try:
                    await _ask(session)
                except UnreachableError:
                    continue
                self.found()


async def _ask(session: Session) -> None:
    """Ask for the user's own keys: after an offline start this request also gets the token.

    Any answer counts, also a refusal.
    """
    try:
        with answered_soon():
            await session.directory.latest_own()
    except UnreachableError:
        raise
    except BrokerError as error:
        _ = session.keys.ring  # raises if the session ended
        _log.debug("The broker answers: %s", error)
