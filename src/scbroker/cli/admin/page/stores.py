"""Give the views and acts of the operator's page the broker's settings and database."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from scbroker.server.admin.stores import find_key
from scbroker.server.commands import Database, Settings

T = TypeVar("T")


class Stores(NamedTuple):
    """A broker's settings and database."""

    settings: Settings
    database: Database

    async def act(self, work: Callable[[Any, bytes], T]) -> T:
        """Run an act in a transaction, with the broker's key, under which it is recorded in the audit log.

        The key is read anew for each act: it may be rotated while the page is open.
        """
        return await self.database.write(lambda c: work(c, find_key(c, self.settings)))
