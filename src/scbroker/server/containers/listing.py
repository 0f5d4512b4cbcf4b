"""List the containers that a user has access to, page by page. Spec: docs/spec/protocol.md, section 5.

A page begins after the last id of the previous page, in the order of ids. It has the views that the user
would get of each container alone, all from one snapshot.
"""

from uuid import UUID

from sqlalchemy import Connection

from scbroker.records.canonical import ContainerId, parse_uuid
from scbroker.server.broker import Broker, Call
from scbroker.server.containers import views
from scbroker.server.storage import statements as sql
from scbroker.wire.containers import ContainerList, ListedContainer, ListRequest, ViewQuery


async def list_containers(broker: Broker, call: Call, message: ListRequest) -> ContainerList:
    """Return a page of the containers that the user has access to, by id, of about PAGE_BYTES."""
    since = {parse_uuid(item.containerId).bytes: item.since for item in message.known}
    limit, header = message.limit, int(message.header)

    def read(connection: Connection) -> tuple[list[ContainerId], list[views.ViewOrError]]:
        ids = _listed(connection, call, message)
        asked = [(each, ViewQuery(since=since.get(each), header=header)) for each in ids[:limit]]
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
    values = {"user": call.session.id, "now": call.now, "last": last, "count": message.limit + 1}
    if message.type is None:
        return list(connection.execute(sql.LISTED_CONTAINERS, values).scalars())
    return list(connection.execute(sql.LISTED_OF_TYPE, {**values, "type": message.type}).scalars())
