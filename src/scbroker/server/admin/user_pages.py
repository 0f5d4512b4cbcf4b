"""List users a page at a time, in a chosen order, or those whose id begins with given digits."""

import datetime as dt
import uuid
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, bindparam, func, select

from scbroker.errors import InvalidArgumentError
from scbroker.server.admin import usage, users
from scbroker.server.admin.times import time_of
from scbroker.server.charges import quota_of
from scbroker.server.settings import Settings
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t

_DIGITS: Final = 32


class Order(StrEnum):
    """The orders of the list. By id it is ascending; otherwise the largest or newest comes first."""

    Bytes = "bytes"
    Containers = "containers"
    Registered = "registered"
    Id = "id"


class Listed(NamedTuple):
    """A user with their usage. A quota of None limits nothing."""

    user_id: uuid.UUID
    registered: dt.datetime | None
    bytes: int
    containers: int
    quota_bytes: int | None
    quota_containers: int | None
    is_suspended: bool
    is_deleted: bool


class Page(NamedTuple):
    users: Sequence[Listed]
    has_more: bool


_BYTES: Final = func.coalesce(t.usage.c.bytes, 0)
_CONTAINERS: Final = func.coalesce(t.usage.c.containers, 0)
_LISTED: Final = (
    select(
        t.users.c.id,
        t.users.c.registered_at,
        t.users.c.suspended_at,
        t.users.c.deleted,
        _BYTES.label("bytes"),
        _CONTAINERS.label("containers"),
        *sql.QUOTAS,
    )
    .select_from(t.users)
    .outerjoin(t.usage, t.usage.c.user_id == t.users.c.id)
    .where(
        t.users.c.id >= bindparam("lowest"),
        t.users.c.id <= bindparam("highest"),
        # A deleted user is listed as long as others need what is left.
        ~t.users.c.deleted | (_BYTES > 0) | (_CONTAINERS > 0),
    )
    .limit(bindparam("count"))
    .offset(bindparam("after"))
)
_PAGES: Final[dict[Order, Select[Any]]] = {
    Order.Bytes: _LISTED.order_by(_BYTES.desc(), t.users.c.id),
    Order.Containers: _LISTED.order_by(_CONTAINERS.desc(), t.users.c.id),
    Order.Registered: _LISTED.order_by(t.users.c.registered_at.desc(), t.users.c.id),
    Order.Id: _LISTED.order_by(t.users.c.id),
}


def page(connection: Connection, order: Order, beginning: str, after: int, count: int) -> Page:
    """Return at most `count` users whose id begins with `beginning`, without the first `after` of them."""
    digits = beginning.strip().replace("-", "").lower()
    if len(digits) > _DIGITS or digits.strip("0123456789abcdef"):
        raise InvalidArgumentError(
            "A user id has 32 digits from 0 to 9 and a to f: enter the first ones, or all."
        )
    rows = connection.execute(
        _PAGES[order],
        {
            "lowest": bytes.fromhex(digits.ljust(_DIGITS, "0")),
            "highest": bytes.fromhex(digits.ljust(_DIGITS, "f")),
            "after": after,
            "count": count + 1,
        },
    ).all()
    listed = [
        Listed(
            uuid.UUID(bytes=row.id),
            time_of(row.registered_at or None),  # 0 of a deleted user
            row.bytes,
            row.containers,
            quota_of(row, "bytes"),
            quota_of(row, "containers"),
            row.suspended_at is not None,
            row.deleted,
        )
        for row in rows[:count]
    ]
    return Page(listed, len(rows) > count)


def find(connection: Connection, settings: Settings, text: str) -> tuple[users.User, usage.Usage]:
    """Return the user whose id is, or begins with, a text, and the user's usage."""
    user = users.show(connection, settings, users.find(connection, text))
    return user, usage.of_user(connection, user.id)
