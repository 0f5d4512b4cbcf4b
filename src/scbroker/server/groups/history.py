"""Read the group for which the author of a stored record acted, for the operator's check.

Spec: docs/spec/groups.md, section 6.
"""

from typing import Final

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.errors import IntegrityError
from scbroker.records import judge, roster
from scbroker.records.canonical import stored_user_id
from scbroker.records.container_record import Via
from scbroker.server.groups.memberships import leaves_at, salted
from scbroker.server.groups.proofs import position_of
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection

# The version that began the epoch after one.
END_OF_EPOCH: Final = (
    sa.select(t.rosters.c.version)
    .where(sql.of(t.rosters, "group"), t.rosters.c.epoch > b("epoch"))
    .order_by(t.rosters.c.version)
    .limit(1)
)


def acting_of(connection: Connection, via: Via, author: bytes) -> judge.Acting:
    """Return the group for which an author acted; raise `IntegrityError` unless it is stored (V2)."""
    group_id = stored_user_id(via.group)
    group = sql.one(connection, sql.FIND_GROUP, id=group_id)
    known = _record(connection, group_id, via.version)
    if group is None or group.fingerprint != via.group or known is None or known.hash != via.hash:
        raise IntegrityError("It names a record of a group that is not stored (V2).")
    leaves = leaves_at(connection, group_id, via.version)
    position = position_of(leaves, author)
    if position is None:
        raise IntegrityError("The leaf of its author in the group is missing (V2).")
    found = sql.one(connection, sql.ROSTER_AT, group=group_id, number=via.version)
    if found is None or found.epoch != via.epoch:
        raise IntegrityError("It names another epoch than the record of its group (V2).")
    role = roster.parse_member(salted(leaves[position]).member).role
    head = _record(connection, group_id, group.group_version)
    deleted = head.record.time if head is not None and head.record.tombstone else None
    after = {"group": group_id, "epoch": via.epoch}
    end = connection.execute(END_OF_EPOCH, after).scalar_one_or_none()
    ended = None if end is None else _record(connection, group_id, end)
    return judge.Acting(
        via.group, role, known.record.time, None if ended is None else ended.record.time, deleted
    )


def _record(connection: Connection, group_id: bytes, version: int) -> judge.Known | None:
    row = sql.one(connection, sql.FIND_RECORD, container=group_id, number=version)
    return None if row is None else judge.Known.parse(row.body)
