"""SQL statements that only the commands of `scbroker admin` need.

The statements that the broker needs as well are in `scbroker.server.storage.statements`.
"""

from typing import Any, Final

from sqlalchemy import Column, Select, bindparam, func, select, text, tuple_

from scbroker.server.storage.tables import (
    access_lists,
    authors,
    chunks,
    containers,
    events,
    key_files,
    key_records,
    members,
    parts,
    pending_blobs,
    pending_users,
    records,
    users,
)

b = bindparam

REVISION: Final = text("SELECT version_num FROM alembic_version")
COPY_DATABASE: Final = text("VACUUM INTO :path")
CHECK_DATABASE: Final = text("PRAGMA integrity_check(10)")
USERS_AFTER: Final = (
    select(users).where(users.c.id > b("last")).order_by(users.c.id).limit(b("count"))
)
CONTAINERS_AFTER: Final = (
    select(containers)
    .where(containers.c.id > b("last"))
    .order_by(containers.c.id)
    .limit(b("count"))
)
COUNTS: Final = {
    table.name: select(func.count()).select_from(table) for table in (users, containers, chunks)
}
RECORDS_FROM: Final = (
    select(records)
    .where(records.c.container_id == b("container"), records.c.version >= b("from"))
    .order_by(records.c.version)
    .limit(b("count"))
)
AUTHORS_OF: Final = select(authors.c.user_id).where(authors.c.container_id == b("container"))
ANY_EVENT_WITH_DETAILS: Final = (
    select(events.c.row_id)
    .where(
        events.c.container_id == b("container"),
        events.c.version > 0,
        events.c.version != b("deletion"),
    )
    .limit(1)
)
PARTS_OF: Final = select(parts.c.part_id, parts.c.inline, parts.c.hashes).where(
    parts.c.container_id == b("container"), parts.c.committed, parts.c.replaced_at.is_(None)
)
CHUNKS_AFTER: Final = (
    select(chunks)
    .where(tuple_(chunks.c.part_id, chunks.c.chunk) > tuple_(b("part"), b("number")))
    .order_by(chunks.c.part_id, chunks.c.chunk)
    .limit(b("count"))
)
BLOBS_OF_PARTS: Final = select(chunks.c.blob).where(chunks.c.part_id.in_(b("some", expanding=True)))
PENDING_DELETION_OF: Final = select(pending_blobs.c.name).where(
    pending_blobs.c.name.in_(b("names", expanding=True))
)
PENDING_USERS_OF: Final = select(pending_users.c.user_id).where(
    pending_users.c.user_id.in_(b("some", expanding=True))
)
KEY_FILES_OF: Final = select(key_files).where(key_files.c.user_id.in_(b("some", expanding=True)))
LOGS_OF: Final = (
    select(
        events.c.user_id,
        func.count().label("count"),
        func.min(events.c.id).label("first"),
        func.max(events.c.id).label("last"),
    )
    .where(events.c.user_id.in_(b("some", expanding=True)), events.c.id.is_not(None))
    .group_by(events.c.user_id)
)


def _strays(child: Column[Any], parent: Column[Any]) -> Select[Any]:
    """Select the values of a column after `last`, and whether the row that they refer to is missing."""
    some = (
        select(child.label("value"))
        .where(child > b("last"))
        .distinct()
        .order_by(child)
        .limit(b("count"))
        .subquery()
    )
    return (
        select(some.c.value, parent.is_(None).label("stray"))
        .outerjoin_from(some, parent.table, parent == some.c.value)
        .order_by(some.c.value)
    )


STRAYS: Final = {
    table.name: _strays(table.c[name], parent)
    for table, name, parent in (
        (records, "container_id", containers.c.id),
        (access_lists, "container_id", containers.c.id),
        (members, "container_id", containers.c.id),
        (authors, "container_id", containers.c.id),
        (chunks, "part_id", parts.c.part_id),
        (key_records, "user_id", users.c.id),
        (key_files, "user_id", users.c.id),
        (events, "user_id", users.c.id),
        (pending_users, "user_id", users.c.id),
    )
}
