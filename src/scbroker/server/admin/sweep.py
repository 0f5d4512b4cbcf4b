"""Delete at once what the broker deletes in the background, and unreferenced objects.

An unreferenced object, which no row names and which is not pending deletion, exists after the database was
put back to an earlier state. Uploads make none: their names are pending deletion from before the bytes are
stored until a row names them. Only unreferenced objects that are an hour old are deleted all the same.
"""

import datetime
from typing import Final

import msgspec

from scbroker.server.admin.findings import Tell
from scbroker.server.admin.stores import open_stores, unreferenced
from scbroker.server.broker import Broker
from scbroker.server.containers import tombstones
from scbroker.server.parts.sweeping import sweep_some
from scbroker.server.settings import Settings
from scbroker.server.users.deletion import finish

_MIN_AGE: Final = datetime.timedelta(hours=1)


class _Deleted(msgspec.Struct):
    """Counts of what was deleted, of young objects that were kept, and of failures."""

    users: int = 0
    containers: int = 0
    parts: int = 0
    objects: int = 0
    unreferenced: int = 0
    young: int = 0
    failed: int = 0

    @property
    def line(self) -> str:
        line = (
            f"Deleted {self.parts} replaced or abandoned contents, {self.objects} objects that were pending "
            f"deletion, {self.unreferenced} unreferenced objects"
        )
        if self.users:
            line += f", and the remaining data of {self.users} deleted users"
        if self.containers:
            line += f", and the remaining data of {self.containers} deleted containers"
        if self.young:
            line += f"; {self.young} unreferenced objects were kept: they are younger than an hour"
        return line + (f"; {self.failed} could not be deleted." if self.failed else ".")


async def sweep(settings: Settings, tell: Tell) -> None:
    """Delete everything that is due, then unreferenced objects; report how much."""
    deleted = _Deleted()
    async with open_stores(settings) as (database, objects):
        broker = Broker(settings, database, objects, b"", frozenset())
        deleted.users = await finish(broker)
        deleted.containers = await tombstones.finish(broker)
        more = True
        while more:
            swept = await sweep_some(broker)
            deleted.parts += swept.parts
            deleted.objects += swept.objects
            deleted.failed += swept.failed
            more = swept.more
        async for page in objects.pages():
            found = await unreferenced(database, page)
            before = datetime.datetime.now(datetime.UTC) - _MIN_AGE
            old = [stored.name for stored in found if stored.modified <= before]
            deleted.young += len(found) - len(old)
            if old:
                tried = await objects.remove(old)
                deleted.unreferenced += sum(tried.values())
                deleted.failed += len(old) - sum(tried.values())
    tell(deleted.line)
