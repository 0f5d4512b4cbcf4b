"""Show, limit and recount what users store.

A user's row of usage changes in the transaction that stores or deletes something. So if the row is wrong, its
difference to what is stored stays the same while brokers run. `recount` reads the difference in one snapshot
and adds it to the row later.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, Select, bindparam, delete, func, insert, select, update

from scbroker.errors import ConflictError, IntegrityError, InvalidArgumentError, NotFoundError
from scbroker.records.canonical import stored_user_id
from scbroker.records.container_record import parse_either
from scbroker.server.admin.stores import find_key
from scbroker.server.broker import UNLIMITED as UNLIMITED
from scbroker.server.broker import Resource as Resource
from scbroker.server.settings import Settings
from scbroker.server.storage import audit
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.database import Database
from scbroker.server.storage.driver import Connection, Row

_PAGE: Final = 1_000
_RECOUNT: Final = "recount"
"""The name of the row, in the table of checks, that the last recount wrote."""
DEFAULT: Final = "default"
"""The name, in commands and the audit log, of the quotas of users without their own."""
b: Final = bindparam


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
DROP_DEFAULT: Final = delete(t.default_quotas).where(t.default_quotas.c.kind == b("name"))
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
            _set_own(connection, user_id, {f"quota_{name}": each for name, each in quotas.items()})
            continue
        for resource, value in quotas.items():
            connection.execute(DROP_DEFAULT, {"name": resource})
            if value is not None:
                connection.execute(ADD_DEFAULT, {"kind": resource, "value": value})


def _set_own(connection: Connection, user_id: uuid.UUID, quotas: Mapping[str, int | None]) -> None:
    """Set a user's own quotas. The user's row is locked, so that the user is not deleted meanwhile."""
    user = sql.one(connection, sql.SHARE_USERS, ids=[user_id.bytes])
    if user is None or user.deleted or user.group_version is not None:
        raise NotFoundError(f"The broker knows no user {user_id}, or the user was deleted.")
    if not connection.execute(SET_QUOTA, {"user": user_id.bytes, **quotas}):
        row = {"user_id": user_id.bytes, "bytes": 0, "containers": 0, **quotas}
        connection.execute(sql.ADD_USAGE, row)


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
    for row in _rows(connection, sql.RECORD_SIZES, container_id=b"", version=0):
        try:
            author = parse_either(row.body).record.author
        except IntegrityError:
            continue
        size[stored_user_id(author)] += len(row.body) + row.more
    created = {bytes(user_id): int(number) for user_id, number in connection.execute(CREATED)}
    return {
        user: Amounts(size[user], created.get(user, 0)) for user in size.keys() | created.keys()
    }


def _rows(connection: Connection, statement: Select[Any], **last: Any) -> Iterator[Row]:
    """Yield the rows of a paged statement; `last` is its cursor, with values before the first row."""
    while rows := connection.execute(statement, {**last, "count": _PAGE}).all():
        yield from rows
        last = {name: getattr(rows[-1], name) for name in last}


def differences(connection: Connection) -> dict[bytes, tuple[Amounts, Amounts]]:
    """Return each user whose row of usage is wrong, with the row's amounts and the stored ones."""
    right, wrong = stored(connection), {}
    for row in _rows(connection, ROWS, user_id=b""):
        said = Amounts(row.bytes, row.containers)
        is_stored = right.pop(bytes(row.user_id), Amounts())
        if said != is_stored:
            wrong[bytes(row.user_id)] = said, is_stored
    return wrong | {user: (Amounts(), amounts) for user, amounts in right.items() if any(amounts)}


async def recount(
    settings: Settings, database: Database
) -> Sequence[tuple[uuid.UUID, Amounts, Amounts]]:
    """Correct the usage of all users; return each that was wrong, what it said, and what it is now.

    Brokers may write meanwhile: what they change is in both sums. Of two recounts at once only the one that
    started last takes effect: otherwise both would add the same difference. The other raises `ConflictError`.
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
            _correct(connection, user_id, said, is_stored)
        key = find_key(connection, settings)
        audit.record(connection, key, "usage-recounted", "broker", {"corrected": len(wrong)})

    await database.write(correct)
    return [(uuid.UUID(bytes=user), *amounts) for user, amounts in sorted(wrong.items())]


def _correct(connection: Connection, user_id: bytes, said: Amounts, is_stored: Amounts) -> None:
    more = {
        "more_bytes": is_stored.bytes - said.bytes,
        "more_containers": is_stored.containers - said.containers,
    }
    if sql.one(connection, sql.CHARGE, user=user_id, **more) is None:
        connection.execute(sql.ADD_USAGE, {"user_id": user_id, "bytes": 0, "containers": 0})
        connection.execute(sql.CHARGE, {"user": user_id, **more})
