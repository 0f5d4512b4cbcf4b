"""Limit guesses at passphrases, reads of reminders and registrations. Spec: docs/spec/protocol.md, section 5.

Counters are kept under keyed hashes, so that no table contains an address. A device that had a session of the
user proves it by a device pass (section 3): a MAC under the broker's key, of which nothing is stored. Its
guesses are counted apart, so that strangers cannot lock it out. A pass gives no access.
"""

import ipaddress
import os
from typing import Final

from sqlalchemy import bindparam as b

from scbroker.records.canonical import UserId
from scbroker.server.broker import SECOND, Broker, Call, add_to_counter
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection

_ID_SIZE: Final = 16

FORGIVE: Final = sql.change(
    t.guesses,
    t.guesses.c.bucket == b("key"),
    t.guesses.c.guesses > 0,
    guesses=t.guesses.c.guesses - 1,
)


def new_pass(broker: Broker, user_id: UserId) -> bytes:
    """Return a pass for a device of this user; only for a request that the user's key signed."""
    device_id = os.urandom(_ID_SIZE)
    return device_id + broker.keyed("device-pass", user_id, device_id)


def is_pass_of(broker: Broker, user_id: UserId, device_pass: bytes) -> bool:
    """Return whether this broker made the pass for this user."""
    device_id, tag = device_pass[:_ID_SIZE], device_pass[_ID_SIZE:]
    return broker.keys.is_keyed(tag, "device-pass", user_id, device_id)


def limits_of(
    broker: Broker, call: Call, user_id: UserId, device_pass: bytes | None
) -> dict[bytes, int]:
    """Return the counters of a guess, each with its limit.

    A guess with a pass and a guess without one share no counter, not even that of the address: otherwise
    strangers could use it up and lock the user's devices out. The counter of all passes bounds
    the guesses of a former user of the account who collected passes.
    """
    settings = broker.settings
    if device_pass is not None and is_pass_of(broker, user_id, device_pass):
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


async def count_address(broker: Broker, call: Call, name: str, limit: int) -> None:
    """Count a request of an address; raise `ThrottledError` if it sent too many of the kind `name`."""
    await count(broker, call, {broker.keyed(name, address_block(call.address)): limit})


async def count(broker: Broker, call: Call, limits: dict[bytes, int]) -> None:
    """Count a request; raise `ThrottledError` if one of its counters is at its limit."""
    window = broker.settings.guess_seconds * SECOND

    def write(connection: Connection) -> None:
        for bucket, limit in sorted(limits.items()):  # always in this order: no deadlock
            add_to_counter(connection, bucket, limit, window, call.now)

    await broker.database.write(write)


async def forgive_guess(broker: Broker, limits: dict[bytes, int]) -> None:
    """Subtract a right guess from the counters that counted it."""
    rows = [{"key": bucket} for bucket in sorted(limits)]  # in the order of `count`: no deadlock
    await broker.database.write(lambda c: c.execute(FORGIVE, rows))


def buckets_of(broker: Broker, user_id: UserId) -> list[bytes]:
    """Return the counters by user alone; those by user and address, or by pass, are left to expire."""
    return [
        broker.keyed(name, user_id)
        for name in ("guess-user", "guess-passes", "grants", "key-records", "key-files")
    ]


def address_block(address: str) -> bytes:
    """Return the unit that is counted: an IPv4 address, or the first 64 bits of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return b"unknown"
    if isinstance(parsed, ipaddress.IPv6Address):
        return parsed.ipv4_mapped.packed if parsed.ipv4_mapped else parsed.packed[:8]
    return parsed.packed
