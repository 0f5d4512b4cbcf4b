"""List the containers that a user has access to, alone or through groups, page by page.

Spec: docs/spec/protocol.md, section 5; groups.md, 12.

A page begins after the last id of the previous page, in the order of ids. It has the views that the user
would get of each container alone, all from one snapshot.
"""

from typing import Any, Final
from uuid import UUID

from sqlalchemy import bindparam as b

from scbroker.errors import InvalidArgumentError
from scbroker.records.canonical import ContainerId, parse_uuid
from scbroker.records.roster import LAST_EPOCH
from scbroker.server.broker import Broker, Call
from scbroker.server.containers import views
from scbroker.server.groups import memberships
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection
from scbroker.wire.containers import ContainerList, ListedContainer, ListRequest, ViewQuery

_ANY_INDEX: Final = LAST_EPOCH + 1

# A user's containers in the order of ids. LISTED_OF_TYPE finds only containers whose type the user may see.
# `below` limits the key index of the entry: of a group's, to those of epochs that have ended.
LISTED_CONTAINERS: Final = sql.after(
    t.members.c.container_id,
    sql.of(t.members, "user"),
    t.LISTED,
    sql.UNEXPIRED,
    t.members.c.key_index < b("below"),
)
LISTED_OF_TYPE: Final = LISTED_CONTAINERS.where(t.members.c.type == b("type"))


async def list_containers(broker: Broker, call: Call, message: ListRequest) -> ContainerList:
    """Return a page of the containers that the user may read with this `via`, by id, of about PAGE_BYTES."""
    since = {parse_uuid(item.containerId).bytes: item.since for item in message.known}
    limit, header = message.limit, int(message.header)
    if message.via is None and message.stale:
        raise InvalidArgumentError("stale needs a via: name the group in via.")

    def read(connection: Connection) -> tuple[list[ContainerId], list[views.ViewOrError]]:
        ids = _listed(connection, call, message)
        asked = [
            (each, ViewQuery(since=since.get(each), header=header, via=message.via))
            for each in ids[:limit]
        ]
        return ids, views.views_of(connection, call, asked)

    ids, found = await broker.database.read(read, large=True)
    listed = []
    for container_id, result in zip(ids, found, strict=False):
        view, problem = views.outcome_of(broker, call, container_id, result)
        name = str(UUID(bytes=container_id))
        listed.append(ListedContainer(containerId=name, view=view, problem=problem))
    following = listed[-1].containerId if len(listed) < len(ids) else None
    return ContainerList(containers=listed, next=following)


def _listed(connection: Connection, call: Call, message: ListRequest) -> list[ContainerId]:
    """Return the ids of a page, and one more if others follow."""
    last = b"" if message.after is None else parse_uuid(message.after).bytes
    values: dict[str, Any] = {
        "now": call.now,
        "last": last,
        "count": message.limit + 1,
        "below": _ANY_INDEX,
    }
    if message.via is None:
        groups = connection.execute(sql.ACCEPTED_GROUPS, {"user": call.session.id}).scalars()
        holders = [call.session.id, *groups]
    else:
        group_id = parse_uuid(message.via).bytes
        holders = [group_id]
        epoch = memberships.check(connection, group_id, call.session.id).epoch
        values["below"] = epoch if message.stale else _ANY_INDEX
    statement = LISTED_CONTAINERS
    if message.type is not None:
        statement, values["type"] = LISTED_OF_TYPE, message.type
    # Read a page for each holder: one statement for all of them would sort all containers of the user.
    pages = [connection.execute(statement, {**values, "user": each}).scalars() for each in holders]
    return sorted(set().union(*pages))[: message.limit + 1]
