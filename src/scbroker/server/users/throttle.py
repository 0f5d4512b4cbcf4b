"""The throttle: how often a passphrase may be guessed at, reminders be read, users be registered.

And how often one user may give others access, of which each of those is told.

Counts stand in the database under keyed hashes, so that all processes of a broker count together and
no table names an address. Spec: docs/spec/protocol.md, section 5.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from sqlalchemy import Connection

from scbroker.errors import ThrottledError, TooLargeError
from scbroker.server.broker import Broker, Call, now
from scbroker.server.storage import statements as sql
from scbroker.server.storage.database import NewRows
from scbroker.server.users import device_passes
from scbroker.vocabulary import ContainerEventType

_SECOND: Final = 1_000_000
_HOUR: Final = 3600 * _SECOND


async def count_guess(
    broker: Broker, call: Call, user_id: bytes, device_pass: bytes | None
) -> list[bytes]:
    """Count a guess at a passphrase before it is judged, and return its counters.

    Raises `ThrottledError` if one of them is at its limit.
    """
    limits = _limits(broker, call, user_id, device_pass)
    window = broker.settings.guess_seconds * _SECOND

    def count(connection: Connection) -> None:
        for bucket, limit in sorted(limits.items()):  # one order, no deadlock
            _count(connection, bucket, limit, window)

    await broker.database.write(count)
    return list(limits)


def _limits(
    broker: Broker, call: Call, user_id: bytes, device_pass: bytes | None
) -> dict[bytes, int]:
    """Return the counters of a guess, each with its limit.

    A guess with a pass and a guess without one share no counter, not even that of the address: otherwise
    strangers could use it up and lock the user's devices out. The counter of all passes bounds
    the guesses of a former user of the account who collected passes.
    """
    settings = broker.settings
    if device_pass is not None and device_passes.is_pass_of(broker, user_id, device_pass):
        return {
            broker.keyed("guess-pass", user_id, device_pass): settings.guesses,
            broker.keyed("guess-passes", user_id): settings.guesses_user,
        }
    address = address_block(call.address)
    return {
        broker.keyed("guess-pair", user_id, address): settings.guesses,
        broker.keyed("guess-user", user_id): settings.guesses_user,
        broker.keyed("guess-address", address): settings.guesses_address,
    }


async def count_reminder(broker: Broker, call: Call) -> None:
    """Counts the reminders that one address reads; `ThrottledError` if there were too many."""
    settings = broker.settings
    bucket = broker.keyed("reminder-address", address_block(call.address))
    window = settings.guess_seconds * _SECOND
    await broker.database.write(lambda c: _count(c, bucket, settings.reminders_address, window))


async def count_registration(broker: Broker, call: Call) -> None:
    """Counts the users that one address registers; `ThrottledError` if there were too many."""
    settings = broker.settings
    bucket = broker.keyed("registration-address", address_block(call.address))
    window = settings.guess_seconds * _SECOND
    await broker.database.write(lambda c: _count(c, bucket, settings.registrations_address, window))


def count_grants(connection: Connection, broker: Broker, user_id: bytes, new: NewRows) -> None:
    """Counts those others to whom these rows give access that they had not; none, if it is refused.

    `ThrottledError` if the user gave too often, `TooLargeError` if it is too much at once.
    """
    told = (row for row in new.of(sql.ADD_EVENTS) if row["event_type"] == ContainerEventType.Added)
    added = sum(row["user_id"] != user_id for row in told)
    if not added:
        return
    limit, ends_at = broker.settings.max_new_grants, now() + _HOUR
    if added > limit:
        raise TooLargeError(f"This broker lets nobody give access to more than {limit} in an hour.")
    bucket = broker.keyed("grants", user_id)
    values = {"key": bucket, "more": added, "now": now(), "ends": ends_at}
    row = sql.one(connection, sql.COUNT_MORE, **values)
    if row is None:
        connection.execute(
            sql.ADD_GUESSES, {"bucket": bucket, "guesses": added, "ends_at": ends_at}
        )
    elif row.guesses > limit:
        wait = (row.ends_at - now()) // _SECOND + 1
        raise ThrottledError(
            f"You gave access to too many within an hour: wait {wait} seconds.", retryAfter=wait
        )


async def forgive_guess(broker: Broker, buckets: list[bytes]) -> None:
    """Takes a guess that was right out of the count."""

    def forgive(connection: Connection) -> None:
        for bucket in sorted(buckets):
            row = sql.one(connection, sql.FIND_GUESSES, key=bucket)
            if row is not None and row.guesses:
                connection.execute(sql.SET_GUESSES, {"key": bucket, "guesses": row.guesses - 1})

    await broker.database.write(forgive)


def buckets_of(broker: Broker, user_id: bytes) -> list[bytes]:
    """Return the counters by user alone; those by user and address, or by pass, are left to expire."""
    return [broker.keyed(name, user_id) for name in ("guess-user", "guess-passes", "grants")]


def address_block(address: str) -> bytes:
    """Who counts as one: an IPv4 address, or the 64 bits that one IPv6 subscriber has."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return b"unknown"
    if isinstance(parsed, ipaddress.IPv6Address):
        return parsed.ipv4_mapped.packed if parsed.ipv4_mapped else parsed.packed[:8]
    return parsed.packed


def _count(connection: Connection, bucket: bytes, limit: int, window: int) -> None:
    row = sql.one(connection, sql.FIND_GUESSES, key=bucket)
    if row is None:
        ends_at = now() + window
        connection.execute(sql.ADD_GUESSES, {"bucket": bucket, "guesses": 1, "ends_at": ends_at})
    elif row.ends_at <= now():
        connection.execute(
            sql.SET_GUESSES, {"key": bucket, "guesses": 1, "ends_at": now() + window}
        )
    elif row.guesses >= limit:
        wait = (row.ends_at - now()) // _SECOND + 1
        raise ThrottledError(f"Too many attempts: wait {wait} seconds.", retryAfter=wait)
    else:
        connection.execute(sql.SET_GUESSES, {"key": bucket, "guesses": row.guesses + 1})
