"""Show, limit and recount what users store.

The usage of a user changes in the transaction that stores or deletes something, so the difference between a
user's row and what is stored is the same at every moment. `recount` therefore reads the difference in one
snapshot and adds it later, beside running brokers.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Column,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)

from scbroker.errors import ConflictError, IntegrityError, InvalidArgumentError, NotFoundError
from scbroker.records.canonical import stored_user_id
from scbroker.records.container_record import parse_bare
from scbroker.server.charges import RESOURCES, UNLIMITED, Resource, quota_of
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.database import Database

_PAGE: Final = 1_000
_RECOUNT: Final = "recount"
"""The name of the row, in the table of checks, that the last recount wrote."""
b: Final = bindparam


class Amounts(NamedTuple):
    """Bytes and containers: of a user, or of a difference."""

    bytes: int = 0
    containers: int = 0

    def plus(self, *, bytes: int = 0, containers: int = 0) -> Amounts:
        return Amounts(self.bytes + bytes, self.containers + containers)


class Usage(NamedTuple):
    """A user with what they use. A quota is None if nothing limits the user."""

    user_id: uuid.UUID
    bytes: int
    containers: int
    quota_bytes: int | None
    quota_containers: int | None
    is_deleted: bool
    """Whether the user was deleted: others still need what is left."""


class Quotas(NamedTuple):
    """The quotas of users without their own, or a user's own; None where nothing is set."""

    bytes: int | None
    containers: int | None


_SUM: Final = func.coalesce(func.sum(t.usage.c.bytes), 0)
_USAGE: Final = select(
    t.users.c.id,
    t.users.c.deleted,
    func.coalesce(t.usage.c.bytes, 0).label("bytes"),
    func.coalesce(t.usage.c.containers, 0).label("containers"),
    *sql.QUOTAS,
)
LARGEST: Final = (
    _USAGE.join_from(t.usage, t.users, t.users.c.id == t.usage.c.user_id)
    .order_by(t.usage.c.bytes.desc(), t.usage.c.user_id)
    .limit(b("count"))
)
ONE: Final = _USAGE.outerjoin_from(t.users, t.usage, t.users.c.id == t.usage.c.user_id).where(
    t.users.c.id == b("user")
)
TOTAL: Final = select(
    func.count().label("users"),
    _SUM.label("bytes"),
    func.coalesce(func.sum(t.usage.c.containers), 0).label("containers"),
)
OWN: Final = select(t.usage.c.quota_bytes, t.usage.c.quota_containers).where(
    t.usage.c.user_id == b("user")
)
DEFAULTS: Final = select(t.default_quotas)
DROP_DEFAULT: Final = delete(t.default_quotas).where(t.default_quotas.c.kind == b("name"))
ADD_DEFAULT: Final = insert(t.default_quotas)
SET_QUOTA: Final = update(t.usage).where(t.usage.c.user_id == b("user"))
ROWS: Final = (
    select(t.usage.c.user_id, t.usage.c.bytes, t.usage.c.containers)
    .where(t.usage.c.user_id > b("last"))
    .order_by(t.usage.c.user_id)
    .limit(b("count"))
)


def _summed(user: Column[Any], size: Any, name: str, *conditions: Any) -> Select[Any]:
    found = select(user.label("user_id"), size.label(name)).where(user.is_not(None), *conditions)
    return found.group_by(user)


PARTS: Final = _summed(t.parts.c.user_id, func.sum(t.parts.c.received), "bytes")
OBJECTS: Final = _summed(t.pending_blobs.c.user_id, func.sum(t.pending_blobs.c.size), "bytes")
CREATED: Final = _summed(
    t.containers.c.creator_id, func.count(), "containers", ~t.containers.c.deleted
)
_RECORD: Final = tuple_(t.records.c.container_id, t.records.c.version)
RECORDS: Final = (
    select(
        t.records.c.container_id,
        t.records.c.version,
        t.records.c.body,
        (
            func.length(t.records.c.signature)
            + func.coalesce(func.length(t.access_lists.c.entries), 0)
        ).label("more"),
    )
    .outerjoin(
        t.access_lists,
        and_(
            t.access_lists.c.container_id == t.records.c.container_id,
            t.access_lists.c.access_version == t.records.c.version,
        ),
    )
    .where(_RECORD > tuple_(b("container"), b("version")))
    .order_by(t.records.c.container_id, t.records.c.version)
    .limit(b("count"))
)


def largest(connection: Connection, count: int) -> list[Usage]:
    """Return the users who use most bytes, and no more than `count` of them."""
    return [_usage(row) for row in connection.execute(LARGEST, {"count": count})]


def of_user(connection: Connection, user_id: uuid.UUID) -> Usage:
    """Return what one user uses; raise `NotFoundError` for an unknown user."""
    row = sql.one(connection, ONE, user=user_id.bytes)
    if row is None:
        raise NotFoundError(f"The broker knows no user {user_id}.")
    return _usage(row)


def total(connection: Connection) -> Amounts:
    """Return what all users use."""
    row = connection.execute(TOTAL).one()
    return Amounts(int(row.bytes), int(row.containers))


def _usage(row: Row[Any]) -> Usage:
    quotas = (quota_of(row, "bytes"), quota_of(row, "containers"))
    return Usage(uuid.UUID(bytes=row.id), row.bytes, row.containers, *quotas, row.deleted)


# Quotas


def defaults(connection: Connection) -> Quotas:
    """Return the quotas of users without their own."""
    found = dict(connection.execute(DEFAULTS).tuples().all())
    return Quotas(found.get("bytes"), found.get("containers"))


def set_defaults(connection: Connection, quotas: Mapping[Resource, int | None]) -> None:
    """Set the given defaults; None removes one, so that users without their own have no quota."""
    for resource, value in quotas.items():
        check_quota(value)
        connection.execute(DROP_DEFAULT, {"name": resource})
        if value is not None:
            connection.execute(ADD_DEFAULT, {"kind": resource, "value": value})


def set_quotas(
    connection: Connection, user_id: uuid.UUID, quotas: Mapping[Resource, int | None]
) -> None:
    """Set a user's own quotas; None removes one, so that the default holds. `UNLIMITED` is no quota.

    A quota below what the user uses deletes nothing: the broker refuses everything that adds to it.
    """
    for value in quotas.values():
        check_quota(value)
    if of_user(connection, user_id).is_deleted:
        raise NotFoundError(f"User {user_id} was deleted.")
    if sql.one(connection, OWN, user=user_id.bytes) is None:
        connection.execute(sql.ADD_USAGE, {"user_id": user_id.bytes, "bytes": 0, "containers": 0})
    columns = {f"quota_{resource}": value for resource, value in quotas.items()}
    connection.execute(SET_QUOTA, {"user": user_id.bytes, **columns})


def check_quota(value: int | None) -> None:
    """Raise `InvalidArgumentError` for a number that cannot be a quota."""
    if value is not None and not 0 <= value <= UNLIMITED:
        raise InvalidArgumentError(f"A quota must be 0 to {UNLIMITED - 1}, or unlimited.")


# Comparison with what is stored


def stored(connection: Connection) -> dict[bytes, Amounts]:
    """Return what each user is to be charged with, from everything that is stored.

    Reads every record once, a page at a time. Records that cannot be read are left out.
    """
    found: dict[bytes, Amounts] = {}

    def add(user_id: bytes, **more: int) -> None:
        found[user_id] = found.get(user_id, Amounts()).plus(**more)

    for statement in (PARTS, OBJECTS, CREATED):
        for user_id, number in connection.execute(statement):
            name = "containers" if statement is CREATED else "bytes"
            add(bytes(user_id), **{name: int(number)})
    for row in _records(connection):
        try:
            author = parse_bare(row.body).author
        except IntegrityError:
            continue
        add(stored_user_id(author), bytes=len(row.body) + row.more)
    return found


def _records(connection: Connection) -> Iterator[Row[Any]]:
    last: dict[str, Any] = {"container": b"", "version": 0}
    while rows := connection.execute(RECORDS, {**last, "count": _PAGE}).all():
        yield from rows
        last = {"container": rows[-1].container_id, "version": rows[-1].version}


def differences(connection: Connection) -> dict[bytes, tuple[Amounts, Amounts]]:
    """Return, for each user whose row of usage is wrong, what it says and what is stored."""
    right, wrong = stored(connection), {}
    for row in _rows(connection):
        said = Amounts(row.bytes, row.containers)
        is_stored = right.pop(bytes(row.user_id), Amounts())
        if said != is_stored:
            wrong[bytes(row.user_id)] = said, is_stored
    return wrong | {user: (Amounts(), amounts) for user, amounts in right.items() if any(amounts)}


def _rows(connection: Connection) -> Iterator[Row[Any]]:
    last = b""
    while rows := connection.execute(ROWS, {"last": last, "count": _PAGE}).all():
        yield from rows
        last = rows[-1].user_id


async def recount(database: Database) -> Sequence[tuple[uuid.UUID, Amounts, Amounts]]:
    """Correct the usage of all users; return each that was wrong, what it said, and what it is now.

    Brokers may write meanwhile: what they change is in both sums. Of two recounts at once only the one that
    started last takes effect: otherwise both would add the same difference. The other raises `ConflictError`.
    """
    token = os.urandom(32)
    await database.write(lambda c: _start(c, token))
    wrong = await database.read(differences, large=True)
    await database.write(lambda c: _correct(c, token, wrong))
    return [(uuid.UUID(bytes=user), *amounts) for user, amounts in sorted(wrong.items())]


def _start(connection: Connection, token: bytes) -> None:
    connection.execute(delete(t.checks).where(t.checks.c.name == _RECOUNT))
    connection.execute(sql.ADD_CHECK, {"name": _RECOUNT, "value": token})


def _correct(
    connection: Connection, token: bytes, wrong: Mapping[bytes, tuple[Amounts, Amounts]]
) -> None:
    found = connection.execute(
        select(t.checks.c.value).where(t.checks.c.name == _RECOUNT).with_for_update()
    ).scalar_one()
    if found != token:
        raise ConflictError("Another recount began meanwhile: this one has changed nothing.")
    for user_id, (said, is_stored) in sorted(wrong.items()):
        more = {
            "more_bytes": is_stored.bytes - said.bytes,
            "more_containers": is_stored.containers - said.containers,
        }
        if sql.one(connection, sql.CHARGE, user=user_id, **more) is None:
            row = {"user_id": user_id, "bytes": 0, "containers": 0}
            connection.execute(sql.ADD_USAGE, row)
            connection.execute(sql.CHARGE, {"user": user_id, **more})
