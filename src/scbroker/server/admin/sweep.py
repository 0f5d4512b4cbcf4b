"""Delete at once what the broker deletes in the background, and unreferenced objects.

An object is unreferenced if no row names it and it is not pending deletion. Such objects appear when the
database is put back to an earlier state. An upload leaves none: the name of its object is pending deletion
from before the bytes are stored until a row names it. To be safe, only unreferenced objects that are an hour
old are deleted.
"""

import datetime
from collections import Counter
from typing import Final

from scbroker.server.admin.check import Tell, unreferenced
from scbroker.server.admin.stores import open_stores
from scbroker.server.broker import Broker
from scbroker.server.containers import ended_groups, tombstones
from scbroker.server.parts.sweeping import sweep_some
from scbroker.server.settings import Settings
from scbroker.server.users.deletion import finish

_MIN_AGE: Final = datetime.timedelta(hours=1)


async def sweep(settings: Settings, tell: Tell) -> None:
    """Delete everything that is due, then unreferenced objects; report how much."""
    count: Counter[str] = Counter()
    async with open_stores(settings) as (database, objects):
        broker = Broker(settings, database, objects, b"", frozenset())
        count["users"] = await finish(broker)
        count["groups"] = await ended_groups.finish(broker)
        count["containers"] = await tombstones.finish(broker)
        more = True
        while more:
            swept = await sweep_some(broker)
            count.update(parts=swept.parts, objects=swept.objects, failed=swept.failed)
            more = swept.more
        async for page in objects.pages():
            found = await unreferenced(database, page)
            before = datetime.datetime.now(datetime.UTC) - _MIN_AGE
            old = [stored.name for stored in found if stored.modified <= before]
            count["young"] += len(found) - len(old)
            tried = await objects.remove(old) if old else {}
            count["unreferenced"] += sum(tried.values())
            count["failed"] += len(old) - sum(tried.values())
    line = (
        f"Deleted {count['parts']} replaced or abandoned contents, {count['objects']} objects that were "
        f"pending deletion, {count['unreferenced']} unreferenced objects"
    )
    for what in ("users", "groups", "containers"):
        if count[what]:
            line += f", and the remaining data of {count[what]} deleted {what}"
    if count["young"]:
        line += f"; {count['young']} unreferenced objects were kept: they are younger than an hour"
    tell(line + (f"; {count['failed']} could not be deleted." if count["failed"] else "."))
