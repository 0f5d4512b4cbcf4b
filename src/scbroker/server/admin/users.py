"""List, suspend and delete users. Each act is in the audit log, and running brokers apply it at once."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import Select, bindparam, func, select

from scbroker.errors import InvalidArgumentError, NotFoundError
from scbroker.records.canonical import UserId, show_fingerprint
from scbroker.server.admin import stores
from scbroker.server.admin.stores import time_of
from scbroker.server.broker import SECOND, Broker, now, quota_of
from scbroker.server.settings import Settings
from scbroker.server.storage import audit
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row
from scbroker.server.storage.notices import notify_brokers
from scbroker.server.users import deletion

_PURGE_SECONDS: Final = 60.0
_LONGEST_REASON: Final = 256
_PREFIX: Final = re.compile(r"[0-9a-fA-F-]{4,36}")
_DIGITS: Final = 32
_LISTED_AT_ONCE: Final = 500
b: Final = bindparam


def _scalar(column: Any, *conditions: Any) -> Any:
    return select(column).where(*conditions).scalar_subquery()


def _of(table: Any) -> Any:
    return table.c.user_id == t.users.c.id


class Order(StrEnum):
    """The orders of a list. By id it is ascending; otherwise the largest or newest comes first."""

    Bytes = "bytes"
    Containers = "containers"
    Registered = "registered"
    Id = "id"


_BYTES: Final = func.coalesce(t.usage.c.bytes, 0)
_CONTAINERS: Final = func.coalesce(t.usage.c.containers, 0)
_WITH_USAGE: Final = t.users.outerjoin(t.usage, _of(t.usage))
_STATES: Final[Select[Any]] = select(
    t.users.c.id,
    t.users.c.fingerprint,
    t.users.c.registered_at,
    t.users.c.deleted,
    t.users.c.suspended_at,
    t.users.c.suspension_reason,
    _scalar(func.count(), _of(t.sessions), t.sessions.c.expires_at > b("now")).label("sessions"),
    _scalar(func.max(t.sessions.c.expires_at), _of(t.sessions)).label("session_ends"),
    _BYTES.label("bytes"),
    _CONTAINERS.label("containers"),
    *sql.QUOTAS,
).select_from(_WITH_USAGE)
ONE: Final = _STATES.where(t.users.c.id == b("user"), sql.IS_USER)


def _sorted_page(*order: Any) -> Select[Any]:
    """Return the query of a page. A subquery chooses its users, so that only their sessions are counted."""
    chosen = (
        select(t.users.c.id)
        .select_from(_WITH_USAGE)
        .where(
            t.users.c.id.between(b("first"), b("last")),
            # A deleted user is listed as long as others need records of theirs, which count as usage.
            ~t.users.c.deleted | (_BYTES > 0) | (_CONTAINERS > 0),
            sql.IS_USER,
        )
        .order_by(*order, t.users.c.id)
        .limit(b("count"))
        .offset(b("after"))
        .subquery()
    )
    return _STATES.where(t.users.c.id.in_(select(chosen.c.id))).order_by(*order, t.users.c.id)


_PAGES: Final = {
    Order.Bytes: _sorted_page(_BYTES.desc()),
    Order.Containers: _sorted_page(_CONTAINERS.desc()),
    Order.Registered: _sorted_page(t.users.c.registered_at.desc()),
    Order.Id: _sorted_page(),
}
BETWEEN: Final = (
    select(t.users.c.id)
    .where(t.users.c.id.between(b("first"), b("last")), sql.IS_USER)
    .order_by(t.users.c.id)
    .limit(2)
)


class User(NamedTuple):
    """A user as the operator sees it. A quota of None limits nothing."""

    id: uuid.UUID
    fingerprint: str | None
    """In the form that people compare; None for a deleted user whose keys nobody needs."""
    registered: dt.datetime | None
    last_log_in: dt.datetime | None
    """When the newest session started; None if its row was deleted after its end."""
    sessions: int
    suspended: dt.datetime | None
    reason: str | None
    containers: int
    bytes: int
    quota_containers: int | None
    quota_bytes: int | None
    is_deleted: bool
    """Whether the user was deleted. The usage is then that of records that other users still need."""


class Page(NamedTuple):
    users: Sequence[User]
    has_more: bool


def page(
    connection: Connection,
    settings: Settings,
    order: Order,
    count: int,
    after: int = 0,
    beginning: str = "",
) -> Page:
    """Return at most `count` users whose id begins with `beginning`, without the first `after` of them."""
    digits = _digits_of(beginning)
    if len(digits) > _DIGITS or digits.strip("0123456789abcdef"):
        raise InvalidArgumentError(
            "A user id has 32 digits from 0 to 9 and a to f: enter the first ones, or all."
        )
    values = {**_range(digits), "after": after, "count": count + 1, "now": now()}
    rows = _rows(connection, order, values)
    return Page([_user(row, settings) for row in rows[:count]], len(rows) > count)


async def listed(at: stores.Stores) -> list[User]:
    """Return all users who were not deleted, in the order of ids."""
    found: list[User] = []
    values = {**_range(""), "after": 0, "count": _LISTED_AT_ONCE, "now": now()}
    while rows := await at.database.read(partial(_rows, order=Order.Id, values=values), large=True):
        found += [_user(row, at.settings) for row in rows if not row.deleted]
        values["first"] = (int.from_bytes(rows[-1].id) + 1).to_bytes(16)
    return found


def _rows(connection: Connection, order: Order, values: dict[str, Any]) -> Sequence[Row]:
    return connection.execute(_PAGES[order], values).all()


def show(connection: Connection, settings: Settings, user: uuid.UUID) -> User:
    """Return a user, whose id must exist."""
    return _user(sql.the(connection, ONE, user=user.bytes, now=now()), settings)


def find(connection: Connection, text: str) -> uuid.UUID:
    """Return the user id that is, or begins with, a text of four or more digits.

    Raises `NotFoundError` if no user has such an id, and `InvalidArgumentError` if several users have.
    """
    digits = _digits_of(text)
    if not _PREFIX.fullmatch(text) or not 4 <= len(digits) <= _DIGITS:
        raise InvalidArgumentError(
            f"{text!r:.80} is not a user id: pass a UUID, or four or more of its first digits."
        )
    ids = connection.execute(BETWEEN, _range(digits)).scalars()
    found = [uuid.UUID(bytes=bytes(each)) for each in ids]
    if len(found) > 1:
        one, other = found
        raise InvalidArgumentError(
            f"Several user ids begin with {text}, such as {one} and {other}: type more of the id."
        )
    if not found:
        raise NotFoundError(f"The broker knows no user {text}.")
    return found[0]


def _digits_of(text: str) -> str:
    return text.strip().replace("-", "").lower()


def _range(digits: str) -> dict[str, bytes]:
    """Return the first and the last id that begin with these digits."""
    fills = (("first", "0"), ("last", "f"))
    return {name: bytes.fromhex(digits.ljust(_DIGITS, fill)) for name, fill in fills}


async def suspend(at: stores.Stores, user: uuid.UUID, reason: str | None) -> bool:
    """Suspend a user and end their sessions; return False if they were suspended before.

    Nothing of the user is stored after this returns, and no log-in has a session. This takes two
    transactions. The second waits for what the user began before, and PostgreSQL would let it wait for ever
    if the user could begin more: a shared lock of the user's row is granted while another transaction waits
    for the row. So the first one, which does not wait, is what refuses the user.
    """
    if reason is not None and not (0 < len(reason) <= _LONGEST_REASON and reason.isprintable()):
        raise InvalidArgumentError(
            f"--reason must have 1 to {_LONGEST_REASON} printable characters."
        )

    def end_sessions(connection: Connection) -> None:
        connection.execute(sql.END_SESSIONS, {"user": user.bytes})
        notify_brokers(connection, user.bytes)

    def mark(connection: Connection, key: bytes) -> bool:
        row = _active(sql.the(connection, sql.LOCK_LOG, user=user.bytes), user)
        if row.suspended_at is not None:
            return False
        state = {"suspended_at": now(), "suspension_reason": reason}
        connection.execute(sql.SET_USER, {"user": user.bytes, **state})
        end_sessions(connection)
        details = {} if reason is None else {"reason": reason}
        audit.record(connection, key, "user-suspended", str(user), details)
        return True

    def complete(connection: Connection) -> None:
        _active(sql.the(connection, sql.LOCK_USER, id=user.bytes), user)
        end_sessions(connection)

    is_new = await at.act(mark)
    await at.database.write(complete)
    return is_new


def resume(connection: Connection, key: bytes, user: uuid.UUID) -> bool:
    """End a user's suspension; return False if they were not suspended."""
    if _active(sql.the(connection, sql.LOCK_LOG, user=user.bytes), user).suspended_at is None:
        return False
    state = {"suspended_at": None, "suspension_reason": None}
    connection.execute(sql.SET_USER, {"user": user.bytes, **state})
    audit.record(connection, key, "user-resumed", str(user))
    return True


async def delete(settings: Settings, user: uuid.UUID) -> bool:
    """Delete a user without the user's order. Return False if the user was deleted before.

    The user's data is deleted for up to a minute; a running broker deletes the rest.
    """
    user_id = UserId(user.bytes)
    async with stores.open_stores(settings) as (database, objects):
        key = await database.read(lambda c: stores.find_key(c, settings))
        broker = Broker(settings, database, objects, key, frozenset())
        is_new = await database.write(lambda c: deletion.end_by_operator(c, broker, user_id))
        await deletion.purge(broker, user_id, _PURGE_SECONDS)
        await database.scrub()  # removes the KeyFile from the write-ahead log
    return is_new


def _active(row: Row, user: uuid.UUID) -> Row:
    """Return the row of a user who was not deleted."""
    if row.deleted:
        raise NotFoundError(f"User {user} was deleted.")
    return row


def _user(row: Row, settings: Settings) -> User:
    began = None
    if row.session_ends is not None:
        began = row.session_ends - settings.session_seconds * SECOND
    return User(
        id=uuid.UUID(bytes=bytes(row.id)),
        fingerprint=None if row.fingerprint is None else show_fingerprint(row.fingerprint),
        registered=time_of(row.registered_at or None),  # a deleted user's is 0
        last_log_in=time_of(began),
        sessions=row.sessions,
        suspended=time_of(row.suspended_at),
        reason=row.suspension_reason,
        containers=row.containers,
        bytes=row.bytes,
        quota_containers=quota_of(row, "containers"),
        quota_bytes=quota_of(row, "bytes"),
        is_deleted=row.deleted,
    )
