"""List, suspend and delete users. Each act is in the audit log, and running brokers apply it at once."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, Select, bindparam, func, select

from scbroker.errors import InvalidArgumentError, NotFoundError
from scbroker.records.canonical import UserId, show_fingerprint
from scbroker.server.admin import audit, stores
from scbroker.server.admin.times import time_of
from scbroker.server.broker import SECOND, Broker, now
from scbroker.server.settings import Settings
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.notices import notify_brokers
from scbroker.server.users import deletion

PAGE: Final = 500
_PURGE_SECONDS: Final = 60.0
_LONGEST_REASON: Final = 256
_PREFIX: Final = re.compile(r"[0-9a-fA-F-]{4,36}")
_DIGITS: Final = 32
b: Final = bindparam


def _scalar(column: Any, *conditions: Any) -> Any:
    return select(column).where(*conditions).scalar_subquery()


def _of(table: Any) -> Any:
    return table.c.user_id == t.users.c.id


_STATES: Final[Select[Any]] = select(
    t.users.c.id,
    t.users.c.fingerprint,
    t.users.c.registered_at,
    t.users.c.deleted,
    t.users.c.suspended_at,
    t.users.c.suspension_reason,
    _scalar(func.count(), _of(t.sessions), t.sessions.c.expires_at > b("now")).label("sessions"),
    _scalar(func.max(t.sessions.c.expires_at), _of(t.sessions)).label("session_ends"),
    func.coalesce(_scalar(t.usage.c.bytes, _of(t.usage)), 0).label("bytes"),
    func.coalesce(_scalar(t.usage.c.containers, _of(t.usage)), 0).label("containers"),
)
LIST: Final = (
    _STATES.where(t.users.c.id > b("last"), ~t.users.c.deleted)
    .order_by(t.users.c.id)
    .limit(b("count"))
)
ONE: Final = _STATES.where(t.users.c.id == b("user"))
BETWEEN: Final = (
    select(t.users.c.id)
    .where(t.users.c.id.between(b("first"), b("last")))
    .order_by(t.users.c.id)
    .limit(2)
)


class User(NamedTuple):
    """What the broker knows of a user, for the operator."""

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
    is_deleted: bool


def page(connection: Connection, settings: Settings, after: bytes = b"") -> list[User]:
    """Return up to PAGE users who were not deleted, in the order of ids, from the id behind `after`."""
    values = {"last": after, "count": PAGE, "now": now()}
    return [_user(row, settings) for row in connection.execute(LIST, values)]


def show(connection: Connection, settings: Settings, user_id: UserId) -> User:
    """Return a user, whose id must exist."""
    return _user(sql.the(connection, ONE, user=user_id, now=now()), settings)


def find(connection: Connection, text: str) -> UserId:
    """Return the user id that is, or begins with, a text of four or more digits.

    Raises `NotFoundError` if no user has such an id, and `InvalidArgumentError` if several users have.
    """
    digits = text.replace("-", "").lower()
    if not _PREFIX.fullmatch(text) or not 4 <= len(digits) <= _DIGITS:
        raise InvalidArgumentError(
            f"{text!r:.80} is not a user id: pass a UUID, or four or more of its first digits."
        )
    ends = [bytes.fromhex(digits.ljust(_DIGITS, fill)) for fill in "0f"]
    names = {"first": ends[0], "last": ends[1]}
    found: Sequence[bytes] = connection.execute(BETWEEN, names).scalars().all()
    if len(found) > 1:
        one, other = (uuid.UUID(bytes=bytes(each)) for each in found)
        raise InvalidArgumentError(
            f"Several user ids begin with {text}, such as {one} and {other}: type more of the id."
        )
    if not found:
        raise NotFoundError(f"The broker knows no user {text}.")
    return UserId(bytes(found[0]))


def suspend(connection: Connection, key: bytes, user_id: UserId, reason: str | None) -> bool:
    """Suspend a user and end their sessions; return False if they were suspended before.

    The user's row is locked as for a change of keys: a log-in or a write of the user that runs at the same
    time is either complete before, and its session ends here, or waits and is refused.
    """
    if reason is not None and not (0 < len(reason) <= _LONGEST_REASON and reason.isprintable()):
        raise InvalidArgumentError(
            f"--reason must have 1 to {_LONGEST_REASON} printable characters."
        )
    if _lock(connection, user_id).suspended_at is not None:
        return False
    state = {"suspended_at": now(), "suspension_reason": reason}
    connection.execute(sql.SET_USER, {"user": user_id, **state})
    connection.execute(sql.END_SESSIONS, {"user": user_id})
    notify_brokers(connection, user_id)
    details = {} if reason is None else {"reason": reason}
    audit.record(connection, key, "user-suspended", _name(user_id), details)
    return True


def resume(connection: Connection, key: bytes, user_id: UserId) -> bool:
    """End a user's suspension; return False if they were not suspended."""
    if _lock(connection, user_id).suspended_at is None:
        return False
    state = {"suspended_at": None, "suspension_reason": None}
    connection.execute(sql.SET_USER, {"user": user_id, **state})
    audit.record(connection, key, "user-resumed", _name(user_id))
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
        await database.scrub()  # of the KeyFile, as a running broker does
    return is_new


def _lock(connection: Connection, user_id: UserId) -> Row[Any]:
    """Lock and return the row of a user who was not deleted."""
    user = sql.the(connection, sql.LOCK_USER, id=user_id)
    if user.deleted:
        raise NotFoundError(f"User {_name(user_id)} was deleted.")
    return user


def _user(row: Row[Any], settings: Settings) -> User:
    began = None
    if row.session_ends is not None:
        began = row.session_ends - settings.session_seconds * SECOND
    return User(
        id=uuid.UUID(bytes=bytes(row.id)),
        fingerprint=None if row.fingerprint is None else show_fingerprint(row.fingerprint),
        registered=time_of(row.registered_at or None),  # 0 of a deleted user
        last_log_in=time_of(began),
        sessions=row.sessions,
        suspended=time_of(row.suspended_at),
        reason=row.suspension_reason,
        containers=row.containers,
        bytes=row.bytes,
        is_deleted=row.deleted,
    )


def _name(user_id: UserId) -> str:
    return str(uuid.UUID(bytes=user_id))
