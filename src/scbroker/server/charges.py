"""Charge users for what the broker stores for them, and refuse what exceeds a quota.

A user is charged with the sealed bytes of each part that they sent, with each record that they signed and the
access list that came with it, and with the rosters, wraps and infos of groups that they wrote, until the
broker has deleted these; and with each object that they may be uploading. The creator of a container is
charged with one container until it is deleted.

A transaction collects its charges and applies them in its last statements. So a user's row of `usage` is
locked only briefly, and no other lock is taken after it. The row always has the sum of what is stored:
`admin check` verifies this.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final, Literal

from scbroker.errors import QuotaExceededError
from scbroker.server.storage import statements as sql
from scbroker.server.storage.driver import Connection, Row

Resource = Literal["bytes", "containers"]
RESOURCES: Final[tuple[Resource, ...]] = ("bytes", "containers")
UNLIMITED: Final = 2**53
"""The quota, in the tables, of a user without a quota: larger than every number of the protocol."""


class Charges:
    """The changes of users' usage by one transaction. A negative number is a credit."""

    def __init__(self) -> None:
        self._total: dict[bytes, Counter[Resource]] = defaultdict(Counter)
        self._asked: dict[bytes, Counter[Resource]] = defaultdict(Counter)
        """The part of `_total` that may be refused because of a quota."""

    def add(
        self, user_id: bytes, *, size: int = 0, containers: int = 0, refusable: bool = True
    ) -> None:
        """Charge a user `size` bytes and a number of containers.

        A charge that is not `refusable` may exceed the quota: that of a deletion, or of data stored before.
        """
        for changes in (self._total, self._asked) if refusable else (self._total,):
            changes[bytes(user_id)].update(bytes=size, containers=containers)

    def take(self, other: Charges) -> None:
        """Add the charges of another collection."""
        for mine, theirs in ((self._total, other._total), (self._asked, other._asked)):
            for user_id, change in theirs.items():
                mine[user_id].update(change)

    def apply(self, connection: Connection) -> None:
        """Change the usage of these users; raise `QuotaExceededError` if it rises above a quota.

        The caller must let the error end its transaction. Rows are locked in the order of the users' ids.
        """
        for user_id, total in sorted(self._total.items()):
            if any(total.values()):
                row = _charged(connection, user_id, total)
                for resource in RESOURCES:
                    _check(row, resource, total[resource], self._asked[user_id][resource])


def _charged(connection: Connection, user_id: bytes, total: Counter[Resource]) -> Row:
    """Add to a user's row of `usage`, inserted at the first charge; return it with the quotas in force."""
    values = {f"more_{resource}": total[resource] for resource in RESOURCES}
    row = sql.one(connection, sql.CHARGE, user=user_id, **values)
    if row is None:
        connection.execute(sql.ADD_USAGE, {"user_id": user_id, "bytes": 0, "containers": 0})
        row = sql.the(connection, sql.CHARGE, user=user_id, **values)
    return row


def _check(row: Row, resource: Resource, total: int, asked: int) -> None:
    used, quota = getattr(row, resource), quota_of(row, resource)
    if quota is not None and min(asked, total) > 0 and used > quota:
        raise QuotaExceededError(
            resource=resource, quota=quota, used=max(0, used - total), needed=total
        )


def quota_of(row: Row, resource: Resource) -> int | None:
    """Return the quota in a row of `usage`, or None if it is not set or unlimited."""
    quota: int | None = getattr(row, f"quota_{resource}")
    return None if quota is None or quota >= UNLIMITED else quota
