"""List, suspend and delete users; show, limit and recount what they store. Acts are in the audit log."""

from __future__ import annotations

import datetime as dt
import os
import re
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, Select, bindparam, func, insert, select, update

from scbroker.errors import ConflictError, IntegrityError, InvalidArgumentError, NotFoundError
from scbroker.records.canonical import UserId, show_fingerprint, stored_user_id
from scbroker.records.container_record import parse_either
from scbroker.server.admin import stores
from scbroker.server.admin.stores import find_key, time_of
from scbroker.server.broker import SECOND, Broker, now, quota_of
from scbroker.server.broker import UNLIMITED as UNLIMITED
from scbroker.server.broker import Resource as Resource
from scbroker.server.settings import Settings
from scbroker.server.storage import audit
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.database import Database
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


_PAGE: Final = 1_000
_RECOUNT: Final = "recount"
"""The name of the row, in the table of checks, that the last recount wrote."""
DEFAULT: Final = "default"
"""The name, in commands and the audit log, of the quotas of users without their own."""


class Amounts(NamedTuple):
    """Bytes and containers: of a user, or of a difference."""

    bytes: int = 0
    containers: int = 0


class Quotas(NamedTuple):
    """The quotas of users without their own, or a user's own; None where nothing is set."""

    bytes: int | None
    containers: int | None


TOTAL: Final = select(
    func.coalesce(func.sum(t.usage.c.bytes), 0).label("bytes"),
    func.coalesce(func.sum(t.usage.c.containers), 0).label("containers"),
)
OWN_QUOTAS: Final = (
    select(t.usage.c.user_id, t.usage.c.quota_bytes, t.usage.c.quota_containers)
    .where(t.usage.c.quota_bytes.is_not(None) | t.usage.c.quota_containers.is_not(None))
    .order_by(t.usage.c.user_id)
    .limit(b("count"))
)
DEFAULTS: Final = select(t.default_quotas)
DROP_DEFAULT: Final = t.default_quotas.delete().where(t.default_quotas.c.kind == b("name"))
ADD_DEFAULT: Final = insert(t.default_quotas)
SET_QUOTA: Final = (
    update(t.usage).where(t.usage.c.user_id == b("user")).returning(t.usage.c.user_id)
)
ROWS: Final[Select[Any]] = (
    select(t.usage.c.user_id, t.usage.c.bytes, t.usage.c.containers)
    .where(t.usage.c.user_id > b("user_id"))
    .order_by(t.usage.c.user_id)
    .limit(b("count"))
)


def _summed(user: Column[Any], size: Any, name: str, *conditions: Any) -> Select[Any]:
    found = select(user.label("user_id"), size.label(name)).where(user.is_not(None), *conditions)
    return found.group_by(user)


ROSTERS: Final = _summed(t.rosters.c.author_id, func.sum(t.rosters.c.size), "bytes")
WRAPS: Final = _summed(
    t.group_members.c.wrap_author_id, func.sum(func.length(t.group_members.c.wrap)), "bytes"
)
INFOS: Final = _summed(
    t.group_infos.c.author_id, func.sum(func.length(t.group_infos.c.info)), "bytes"
)
PARTS: Final = _summed(t.parts.c.user_id, func.sum(t.parts.c.received), "bytes")
OBJECTS: Final = _summed(t.pending_blobs.c.user_id, func.sum(t.pending_blobs.c.size), "bytes")
CREATED: Final = _summed(
    t.containers.c.creator_id, func.count(), "containers", ~t.containers.c.deleted
)


def total(connection: Connection) -> Amounts:
    """Return the usage of all users together."""
    row = connection.execute(TOTAL).one()
    return Amounts(int(row.bytes), int(row.containers))


# Quotas


def defaults(connection: Connection) -> Quotas:
    """Return the quotas of users without their own."""
    found = {row.kind: row.value for row in connection.execute(DEFAULTS)}
    return Quotas(found.get("bytes"), found.get("containers"))


def own_quotas(connection: Connection, count: int) -> list[tuple[uuid.UUID, Quotas]]:
    """Return at most `count` users with quotas of their own, in the order of ids."""
    rows = connection.execute(OWN_QUOTAS, {"count": count})
    return [
        (uuid.UUID(bytes=row.user_id), Quotas(row.quota_bytes, row.quota_containers))
        for row in rows
    ]


def set_quotas(
    connection: Connection,
    users: Collection[uuid.UUID | None],
    quotas: Mapping[Resource, int | None],
) -> None:
    """Set the quotas of these users; None among them stands for the default.

    None removes a quota: a user then has the default. `UNLIMITED` exempts a user from the default. If a quota
    is below a user's usage, nothing is deleted: the broker refuses requests that would store more.
    """
    for value in quotas.values():
        if value is not None and not 0 <= value <= UNLIMITED:
            raise InvalidArgumentError(f"A quota must be 0 to {UNLIMITED - 1}, or unlimited.")
    for user_id in sorted(users, key=str):
        if user_id is not None:
            # The user's row is locked, so that the user is not deleted meanwhile.
            user = sql.one(connection, sql.SHARE_USERS, ids=[user_id.bytes])
            if user is None or user.deleted or user.group_version is not None:
                raise NotFoundError(f"The broker knows no user {user_id}, or the user was deleted.")
            own = {f"quota_{name}": each for name, each in quotas.items()}
            if not connection.execute(SET_QUOTA, {"user": user_id.bytes, **own}):
                row = {"user_id": user_id.bytes, "bytes": 0, "containers": 0, **own}
                connection.execute(sql.ADD_USAGE, row)
            continue
        for resource, value in quotas.items():
            connection.execute(DROP_DEFAULT, {"name": resource})
            if value is not None:
                connection.execute(ADD_DEFAULT, {"kind": resource, "value": value})


def change_quotas(
    connection: Connection,
    key: bytes,
    users: Collection[uuid.UUID | None],
    quotas: Mapping[Resource, int | None],
) -> None:
    """Set the quotas of these users as `set_quotas` does, and record it in the audit log."""
    set_quotas(connection, users, quotas)
    for user_id in users:
        subject = DEFAULT if user_id is None else str(user_id)
        audit.record(connection, key, "quota-set", subject, dict(quotas.items()))


# Comparison with what is stored


def stored(connection: Connection) -> dict[bytes, Amounts]:
    """Calculate what each user must be charged with, from everything that is stored.

    Reads every record once, a page at a time. Records that cannot be read are left out.
    """
    size: Counter[bytes] = Counter()
    for statement in (PARTS, OBJECTS, ROSTERS, WRAPS, INFOS):
        for user_id, number in connection.execute(statement):
            size[bytes(user_id)] += int(number)
    for row in paged(connection, sql.RECORD_SIZES, container_id=b"", version=0):
        try:
            author = parse_either(row.body).record.author
        except IntegrityError:
            continue
        size[stored_user_id(author)] += len(row.body) + row.more
    created = {bytes(user_id): int(number) for user_id, number in connection.execute(CREATED)}
    return {
        user: Amounts(size[user], created.get(user, 0)) for user in size.keys() | created.keys()
    }


def paged(
    connection: Connection, statement: Select[Any], count: int = _PAGE, **last: Any
) -> Iterator[Row]:
    """Yield the rows of a paged statement; `last` is its cursor, with values before the first row."""
    while rows := connection.execute(statement, {**last, "count": count}).all():
        yield from rows
        last = {name: getattr(rows[-1], name) for name in last}


def differences(connection: Connection) -> dict[bytes, tuple[Amounts, Amounts]]:
    """Return each user whose row of usage is wrong, with the row's amounts and the stored ones."""
    right, wrong = stored(connection), {}
    for row in paged(connection, ROWS, user_id=b""):
        said = Amounts(row.bytes, row.containers)
        is_stored = right.pop(bytes(row.user_id), Amounts())
        if said != is_stored:
            wrong[bytes(row.user_id)] = said, is_stored
    return wrong | {user: (Amounts(), amounts) for user, amounts in right.items() if any(amounts)}


async def recount(
    settings: Settings, database: Database
) -> Sequence[tuple[uuid.UUID, Amounts, Amounts]]:
    """Correct the usage of all users; return each that was wrong, what it said, and what it is now.

    Brokers may write meanwhile: their changes are in both sums. If two recounts run at once, the one that
    started last takes effect, and the other raises `ConflictError`: both would add the same difference.
    """
    mark = os.urandom(32)

    def start(connection: Connection) -> None:
        connection.execute(sql.DROP_CHECK, {"check": _RECOUNT})
        connection.execute(sql.ADD_CHECK, {"name": _RECOUNT, "value": mark})

    await database.write(start)
    wrong = await database.read(differences, large=True)

    def correct(connection: Connection) -> None:
        row = sql.one(connection, sql.LOCK_CHECK, check=_RECOUNT)
        if row is None or row.value != mark:
            raise ConflictError(
                "Another recount was started meanwhile: this one has changed nothing."
            )
        for user_id, (said, is_stored) in sorted(wrong.items()):
            more = {
                "more_bytes": is_stored.bytes - said.bytes,
                "more_containers": is_stored.containers - said.containers,
            }
            if sql.one(connection, sql.CHARGE, user=user_id, **more) is None:
                unused = {"user_id": user_id, "bytes": 0, "containers": 0}
                connection.execute(sql.ADD_USAGE, unused)
                connection.execute(sql.CHARGE, {"user": user_id, **more})
        key = find_key(connection, settings)
        audit.record(connection, key, "usage-recounted", "broker", {"corrected": len(wrong)})

    await database.write(correct)
    return [(uuid.UUID(bytes=user), *amounts) for user, amounts in sorted(wrong.items())]
