"""Users' usage and quotas, as a broker keeps them, and set behind its back."""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from scbroker.keys import KeyRing
from scbroker.server.admin import users as queries
from scbroker.server.broker import RESOURCES
from scbroker.server.settings import Settings
from scbroker.server.storage.database import Database, open_database
from scbroker.server.storage.driver import Connection
from tests.kit.writers import User

T = TypeVar("T")


def _opened(url: str, work: Callable[[Database], Any]) -> Any:
    async def run() -> Any:
        database = open_database(url)
        try:
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(run())


def read(url: str, work: Callable[[Connection], T]) -> T:
    """Return what a read of this database gives."""
    found: T = _opened(url, lambda database: database.read(work, large=True))
    return found


def write(url: str, work: Callable[[Connection], object]) -> None:
    """Do this work in a transaction of this database."""
    _opened(url, lambda database: database.write(work))


def amounts(url: str, user: User) -> tuple[int, int]:
    """Return how many bytes and containers a user is charged with."""
    found = used(url, user)
    return found.bytes, found.containers


def used(url: str, user: User) -> queries.User:
    """Return a user with what they use, as operators see it."""
    return read(url, lambda c: queries.show(c, Settings(), user.ring.userId))


def _ring(user: User | KeyRing) -> KeyRing:
    return user.ring if isinstance(user, User) else user


def check_usage(url: str, *users: User | KeyRing) -> None:
    """Check that these users, or all, are charged with exactly what is stored.

    On a broker that is shared, other tests may have damaged what others have stored.
    """
    wrong = read(url, queries.differences)
    ids = [_ring(user).userId.bytes for user in users] or list(wrong)
    assert {each: wrong[each] for each in ids if each in wrong} == {}


def set_quota(url: str, user: User | KeyRing | None, **quotas: int | None) -> None:
    """Set the quotas of a user; None stands for the default."""
    names: list[uuid.UUID | None] = [None if user is None else _ring(user).userId]
    given = {resource: quotas[resource] for resource in RESOURCES if resource in quotas}
    _opened(url, lambda it: it.write(lambda c: queries.set_quotas(c, names, given)))


def leave_free(url: str, user: User, size: int) -> None:
    """Set a user's quota to so many bytes more than they use."""
    set_quota(url, user, bytes=used(url, user).bytes + size)
