"""Remove a deleted user or group from containers; delete the containers that nobody else can reach.

Spec: docs/spec/protocol.md, section 5, and docs/spec/groups.md, section 10.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.records.canonical import UserId
from scbroker.server.broker import Charges, now
from scbroker.server.containers import members, tombstones
from scbroker.server.events import log
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection

# Limits of one transaction. A container with more than _RECORDS records gets its own transaction.
_CONTAINERS: Final = 200
_RECORDS: Final = 2_000

EXPIRED_IN: Final = sa.select(t.members.c.container_id).where(
    sql.among(t.members.c.container_id), sql.EXPIRED
)
# Containers that have events in another user's log, and that are not pending a purge yet.
IN_OTHER_LOGS: Final = (
    sa.select(t.events.c.container_id)
    .where(
        sql.among(t.events.c.container_id),
        t.events.c.user_id != b("user"),
        ~sa.exists().where(t.containers_to_purge.c.container_id == t.events.c.container_id),
    )
    .distinct()
)
# Containers with an unexpired entry of another user or group, which was not deleted.
WITH_OTHER_MEMBERS: Final = (
    sa.select(t.members.c.container_id)
    .join(t.users, t.users.c.id == t.members.c.user_id)
    .where(
        sql.among(t.members.c.container_id),
        t.members.c.user_id != b("user"),
        sql.UNEXPIRED,
        ~t.users.c.deleted,
    )
    .distinct()
)
# Those of the containers `some` that belong to groups whose records are kept.
KEPT_GROUPS: Final = sa.select(t.users.c.id).where(
    sql.among(t.users.c.id), ~sql.IS_USER, t.users.c.fingerprint.is_not(None)
)
PURGE_CONTAINERS: Final = (
    *(
        sa.delete(table).where(sql.among(table.c.container_id))
        for table in (
            t.records,
            t.access_lists,
            t.departures,
            t.members,
            t.accesses,
            t.authors,
            t.group_authors,
        )
    ),
    sql.change(t.parts, sql.among(t.parts.c.container_id), t.parts.c.committed, replaced_at=0),
    sql.change(
        t.containers,
        sql.among(t.containers.c.id),
        deleted=True,
        type=None,
        type_salt=None,
        groups=None,
    ),
)
DROP_CONTAINERS: Final = sa.delete(t.containers).where(sql.among(t.containers.c.id))
FORGET_CREATOR: Final = sql.change(t.containers, sql.among(t.containers.c.id), creator_id=None)
# Keep a deleted group's row in `members`, because the access list still has its entry, but take it out of
# `t.LISTED`: `leave_some` does not find it again.
SET_ASIDE: Final = sql.change(
    t.members, sql.of(t.members, "container", "user"), expiry_recorded=True
)


def leave_some(
    connection: Connection, user_id: UserId, statement: Any, *, is_group: bool = False
) -> bool:
    """Remove the user from some containers; delete those to which nobody else has access.

    The row of a group is kept, but not listed any more: the list has its entry until somebody changes it.
    """
    moment = now()
    asked = {"user": user_id, "now": moment, "count": _CONTAINERS}
    found = sorted(connection.execute(statement, asked).scalars())
    if not found:
        return False
    locked = connection.execute(sql.LOCK_CONTAINERS, {"some": found}).all()
    # Take the first containers with at most _RECORDS records in all, and at least one container.
    records = {row.id: row.version for row in locked}
    sums = list(accumulate(records.get(each, 0) for each in found))
    some = found[: max(1, bisect_right(sums, _RECORDS))]
    values = {"user": user_id, "now": moment, "some": some}
    shared = set(connection.execute(WITH_OTHER_MEMBERS, values).scalars())
    if groups := [row.id for row in locked if row.is_group]:
        shared |= set(connection.execute(KEPT_GROUPS, {"some": groups}).scalars())
    alone = [row for row in locked if row.id in some and row.id not in shared]
    charges = Charges()
    if alone:
        purge_containers(connection, user_id, alone, moment, charges)
    left = [{"user": user_id, "container": container_id} for container_id in some]
    created = {row.id: row for row in locked if row.creator_id == user_id and row.id in shared}
    if created:
        charges.add(user_id, containers=-sum(not row.deleted for row in created.values()))
        # The creator is named by the container's row, any other author by a row of `authors`.
        connection.execute(FORGET_CREATOR, {"some": sorted(created)})
        connection.execute(sql.ADD_AUTHOR, [row for row in left if row["container"] in created])
    connection.execute(SET_ASIDE if is_group else sql.DROP_MEMBER, left)
    charges.apply(connection)
    return len(found) == _CONTAINERS or len(some) < len(found)


def purge_containers(
    connection: Connection,
    user_id: UserId,
    containers: Sequence[Any],
    moment: int,
    charges: Charges,
) -> None:
    """Delete containers, and mark their deleted authors as pending deletion: their keys may be deleted now.

    The row of a container stays while its creator is not deleted: only they could use the id again, which
    is a hash of their fingerprint. The purge empties the events of these containers in the logs of former
    members.
    """
    some = sorted(row.id for row in containers)
    values = {"some": some, "now": moment}
    expired = connection.execute(EXPIRED_IN, values).scalars()
    log.record_expiry_in(connection, set(expired), moment)
    members.release_keys(connection, connection.execute(sql.AUTHORS_IN, values).scalars().all())
    acted = {row.group_id for row in connection.execute(sql.GROUP_AUTHORS_IN, values)}
    listed = {each for row in containers for each in members.group_ids_of(row)}
    members.release_groups(connection, acted | listed)
    logged = connection.execute(IN_OTHER_LOGS, {**values, "user": user_id}).scalars().all()
    for container_id in logged:
        tombstones.add_purge(connection, container_id, 0, moment)
    tombstones.credit_records(connection, some, charges)
    for row in containers:
        if not row.deleted and row.creator_id is not None:
            charges.add(row.creator_id, containers=-1)
    for purge in PURGE_CONTAINERS:
        connection.execute(purge, values)
    unused = sorted(row.id for row in containers if row.creator_id in (None, user_id))
    connection.execute(DROP_CONTAINERS, {"some": unused})
