"""Find whether a user is a member of a group now, and whether the group owes an epoch.

Spec: docs/spec/groups.md, sections 3.5, 9 and 11. An epoch is owed while a former member still knows the
group's secret, or a member has a newer key.

Every change of a group's members locks the group's row of `users`. A writer that acts through a group takes a
shared lock of it, so that what it reads here holds until it commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.errors import TooLargeError
from scbroker.records.canonical import UserId
from scbroker.records.roster import SaltedMember
from scbroker.server.broker import not_found
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row
from scbroker.wire.groups import MAX_ACCEPTED

WHAT: Final = "group"
NUMBERED: Final = bytes(28)
"""The places of a deleted group's leaves begin with it, and end with a number of 4 bytes."""

_STANDS: Final = (t.leaves.c.version <= b("number")) & (t.leaves.c.until > b("number"))
# The leaves of the roster in force at a version.
LEAVES_AT: Final = (
    sa.select(
        t.leaves.c.place, t.leaves.c.version, t.leaves.c.hash, t.leaves.c.salt, t.leaves.c.member
    )
    .where(sql.of(t.leaves, "group"), _STANDS)
    .order_by(t.leaves.c.place)
)


def find(connection: Connection, group_id: bytes, user_id: UserId) -> Row | None:
    """Return the membership of a user who is a member now; None for anybody else."""
    return sql.one(connection, sql.FIND_MEMBERSHIP, group=group_id, user=user_id)


def check(connection: Connection, group_id: bytes, user_id: UserId) -> Row:
    """Return the membership of a user; raise `NotFoundError` unless they are a member now."""
    found = find(connection, group_id, user_id)
    if found is None:
        raise not_found(WHAT)
    return found


def check_accepted(connection: Connection, user_id: UserId) -> None:
    """Raise `TooLargeError` if a user has accepted more groups than a list of containers covers."""
    if len(connection.execute(sql.ACCEPTED_GROUPS, {"user": user_id}).all()) > MAX_ACCEPTED:
        raise TooLargeError(f"A user takes part in at most {MAX_ACCEPTED} groups: leave one first.")


def is_owed(connection: Connection, group_id: bytes) -> bool:
    """Return whether a group owes an epoch."""
    return connection.execute(sql.OWED, {"group": group_id}).first() is not None


def leaves_at(connection: Connection, group_id: bytes, version: int) -> Sequence[Row]:
    """Return the leaves of the roster that was in force at a version, in their order."""
    return connection.execute(LEAVES_AT, {"group": group_id, "number": version})


def salted(leaf: Row) -> SaltedMember:
    return SaltedMember(leaf.salt, leaf.member)
