"""Read and verify the audit log, which `storage.audit` describes."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Sequence
from operator import methodcaller
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Select, bindparam, select

from scbroker.crypto.verify import equal
from scbroker.errors import IntegrityError, NotFoundError
from scbroker.server.admin.stores import moment, time_of
from scbroker.server.storage.audit import AUDIT_AFTER, BEFORE_ALL, find_key, mac_of
from scbroker.server.storage.database import Database
from scbroker.server.storage.driver import Connection, Row
from scbroker.server.storage.tables import audit

_PAGE: Final = 500
_POLL_SECONDS: Final = 1.0
_MOST_FAULTS: Final = 100
b: Final = bindparam
ACTIONS: Final = select(audit.c.action).distinct().order_by(audit.c.action)
BEFORE_FIRST: Final = (
    select(audit.c.id).where(audit.c.id < 1).order_by(audit.c.id).limit(_MOST_FAULTS)
)


class Entry(NamedTuple):
    """A row of the audit log."""

    id: int
    time: dt.datetime
    actor: str
    """A user's id, or an operator as user@machine."""
    action: str
    subject: str
    details: dict[str, Any]
    hash: str
    """All later entries depend on it. Exported, it proves later that the log still contains this entry."""


class Wanted(NamedTuple):
    """Conditions for the entries to read; None is no condition."""

    since: dt.datetime | None = None
    until: dt.datetime | None = None
    action: str | None = None
    user: str | None = None
    """A user's id: entries of this actor or about this subject."""


class Chain(NamedTuple):
    """The result of a verification."""

    entries: int
    head: str | None
    """The hash of the last entry; None of an empty log."""
    faults: Sequence[str]
    has_head: bool
    """Whether an entry has the wanted hash; True if no hash was given."""


async def entries(
    database: Database, wanted: Wanted, *, follow: bool = False
) -> AsyncIterator[Entry]:
    """Yield entries, oldest first; with `follow`, wait for further ones for ever."""
    last = 0
    while True:
        found = _wanted(wanted).where(audit.c.id > last).order_by(audit.c.id).limit(_PAGE)
        rows = await database.read(methodcaller("execute", found), large=True)
        for row in rows:
            yield _entry(row)
            last = row.id
        if len(rows) < _PAGE:
            if not follow:
                return
            await asyncio.sleep(_POLL_SECONDS)


def last(connection: Connection, wanted: Wanted, count: int) -> list[Entry]:
    """Return the last entries, newest first."""
    found = _wanted(wanted).order_by(audit.c.id.desc()).limit(count)
    return [_entry(row) for row in connection.execute(found)]


def _wanted(wanted: Wanted) -> Select[Any]:
    found = select(audit)
    if wanted.since is not None:
        found = found.where(audit.c.at >= moment(wanted.since))
    if wanted.until is not None:
        found = found.where(audit.c.at < moment(wanted.until))
    if wanted.action is not None:
        found = found.where(audit.c.action == wanted.action)
    if wanted.user is not None:
        found = found.where((audit.c.subject == wanted.user) | (audit.c.actor == wanted.user))
    return found


def check_action(connection: Connection, action: str) -> None:
    """Raise `NotFoundError`, which lists the recorded actions, if no entry has this one."""
    known = connection.execute(ACTIONS).scalars().all()
    if action not in known:
        raise NotFoundError(
            f"No entry has the action {action!r:.80}. These were recorded: {', '.join(known)}."
        )


def _entry(row: Row) -> Entry:
    try:
        details = msgspec.json.decode(row.details, type=dict[str, Any])
    except msgspec.MsgspecError:  # the row was changed: `verify` reports it
        details = {"unreadable": row.details}
    time, name = time_of(row.at), bytes(row.mac).hex()
    return Entry(row.id, time, row.actor, row.action, row.subject, details, name)


async def verify(database: Database, key: bytes, head: str | None = None) -> Chain:
    """Verify that no entry was changed, removed or inserted; `head` is the hash of an exported entry.

    Without `head` the end of the log can have been cut off unnoticed; with it, only entries after that one.
    Somebody who has the database and the broker's key can write another log.
    """
    faults: list[str] = []
    try:
        chain_key = await database.read(lambda c: find_key(c, key))
    except IntegrityError:
        faults.append("its key does not open under the broker's key, so nothing was verified.")
        chain_key = None
    inserted = await database.read(lambda c: c.execute(BEFORE_FIRST).scalars().all())
    faults += [f"entry {number} was inserted." for number in inserted]
    count, last, before, found = 0, 0, BEFORE_ALL, head is None
    page = {"after_id": 0, "count": _PAGE}
    while rows := await database.read(methodcaller("execute", AUDIT_AFTER, page), large=True):
        for row in rows:
            if row.id != last + 1:
                faults.append(f"entries {last + 1} to {row.id - 1} are missing.")
            elif chain_key is not None and not equal(mac_of(chain_key, before, row), row.mac):
                faults.append(f"entry {row.id} was changed, or not written by this broker.")
            count, last, before = count + 1, row.id, bytes(row.mac)
            found = found or before.hex() == head
        page["after_id"] = last
        del faults[_MOST_FAULTS:]
    if count and chain_key is None and not faults:
        faults.append("its key is missing, so nothing was verified.")
    return Chain(count, before.hex() if count else None, faults, found)
