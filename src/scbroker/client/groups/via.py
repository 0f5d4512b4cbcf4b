"""Name the group through which a request reads or writes. Spec: docs/spec/groups.md, 12."""

import uuid

from scbroker.client.http.transport import Query


def query_of(group: uuid.UUID | str | None) -> Query:
    """Return the query of a request through this group; an empty one if the user acts alone."""
    return {} if group is None else {"via": str(group)}
