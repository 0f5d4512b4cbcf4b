"""Notify all processes of one PostgreSQL database of users with new events, by LISTEN and NOTIFY.

A process has one connection for both. After its transactions have committed, it sends the ids of their users
in a separate statement, one for the commits of a few milliseconds: a NOTIFY inside the transactions would
make their commits wait for each other. A notice is lost if its process dies between the commit and the
NOTIFY, or if a listener's connection breaks. So a process that starts wakes the requests of all processes,
and one whose connection was lost wakes its own. A request that missed a notice ends when its `wait` is over,
and the client asks again (docs/adr, 16).
"""

import asyncio
import base64
import contextlib
import secrets
import time
from collections.abc import Callable, Collection
from typing import Any, Final

import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from scbroker.server.storage.driver import Connection

_log: Final = structlog.get_logger("scbroker.server")
_CHANNEL: Final = "scbroker_events"
_NOTIFY: Final = f"SELECT pg_notify('{_CHANNEL}', $1)"
_NOTIFY_AT_COMMIT: Final = text(f"SELECT pg_notify('{_CHANNEL}', :payload)")
_EVERYBODY: Final = "*"
_COALESCED_SECONDS: Final = 0.003
_USERS: Final = 300
"""Users of one notice: 22 characters each, and a payload must have fewer than 8,000 bytes."""
_CHECK_SECONDS: Final = 60.0
"""Seconds without traffic after which the connection is checked: it may be dead but not closed."""
_ANSWER_SECONDS: Final = 10.0
_LONGEST_PAUSE: Final = 10.0
_REPORT_SECONDS: Final = 60.0
Wake = Callable[[Collection[bytes] | None], None]
"""Wakes the waiting requests of these users, or for None those of all users."""


class Notices:
    """Sends the notices of this process to all others, and receives theirs."""

    def __init__(self, engine: AsyncEngine, wake: Wake) -> None:
        self._engine, self._wake = engine, wake
        self._unsent: set[bytes] = set()
        self._is_started = False
        self._more = asyncio.Event()
        self._quiet_until = 0.0

    def add(self, users: Collection[bytes]) -> None:
        """Wake the requests of these users here, and in all other processes soon."""
        self._wake(users)
        self._unsent.update(users)
        self._more.set()

    async def run(self) -> None:
        """Send and receive until cancelled; after a failure connect again, after growing pauses."""
        failures = 0
        while True:
            try:
                async with self._engine.connect() as connection:
                    raw = await connection.get_raw_connection()
                    driver: Any = raw.driver_connection  # the connection of asyncpg
                    driver.add_termination_listener(lambda _: self._more.set())
                    await driver.add_listener(_CHANNEL, self._receive)
                    if failures:
                        _log.info("listening for events again")
                    failures = 0
                    self._wake(None)
                    while True:
                        await self._send(driver)
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(_CHECK_SECONDS):
                                await self._more.wait()
                            await asyncio.sleep(_COALESCED_SECONDS)
            except Exception as error:
                failures += 1
                _log.warning("the connection for events is lost", error=repr(error))
            jitter = 0.5 + secrets.randbelow(1001) / 1000
            await asyncio.sleep(min(0.1 * 2**failures, _LONGEST_PAUSE) * jitter)

    async def _send(self, driver: Any) -> None:
        """Send the unsent notices; if none exists, check that the connection works."""
        self._more.clear()
        sending, self._unsent = self._unsent, set()
        try:
            ordered = sorted(map(_name, sending))
            starts = range(0, len(ordered), _USERS)
            payloads = [" ".join(ordered[start : start + _USERS]) for start in starts]
            if not self._is_started:
                payloads = [_EVERYBODY]
            for payload in payloads:
                await driver.execute(_NOTIFY, payload, timeout=_ANSWER_SECONDS)
            if not payloads:
                await driver.execute("SELECT 1", timeout=_ANSWER_SECONDS)
        except BaseException:
            self._unsent |= sending
            raise
        self._is_started = True

    def _receive(self, driver: Any, process: int, channel: str, payload: str) -> None:
        del channel
        if process == driver.get_server_pid():  # this process has woken its own requests already
            return
        if payload == _EVERYBODY:
            self._wake(None)
            return
        try:
            self._wake([base64.b64decode(each + "==", validate=True) for each in payload.split()])
        except ValueError:
            # Any role of the database may send here: it must not fill the log.
            if time.monotonic() >= self._quiet_until:
                self._quiet_until = time.monotonic() + _REPORT_SECONDS
                _log.warning("a notice could not be read")


def notify_brokers(connection: Connection, user_id: bytes | None = None) -> None:
    """Wake the waiting requests of a user in all brokers once this transaction has committed; None for all.

    For a command of the operator, which runs beside the brokers. It does nothing on SQLite: there requests
    that wait check their session before each heartbeat (`events.following`).
    """
    if connection.dialect.name == "postgresql":
        payload = _EVERYBODY if user_id is None else _name(user_id)
        connection.execute(_NOTIFY_AT_COMMIT, {"payload": payload})


def _name(user_id: bytes) -> str:
    return base64.b64encode(user_id).decode()[:22]
