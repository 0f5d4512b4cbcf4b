"""Removing at once what nothing needs: what the broker removes in the background, and strange objects.

An object that no row names and that is not among the doomed was left by a database that was put back to
an earlier state. No upload makes one: its name is among the doomed from before its bytes are stored until a
row names it. It has to be an hour old all the same.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final

from scbroker.server.admin.opened import Place, Tell, opened
from scbroker.server.admin.owner import unnamed
from scbroker.server.broker import Broker
from scbroker.server.containers import tombstones
from scbroker.server.parts.sweeping import sweep_some
from scbroker.server.users.deletion import finish

_OLD: Final = datetime.timedelta(hours=1)


@dataclass(slots=True)
class Sweeping:
    """What went so far, and what was left for its age."""

    users: int = 0
    containers: int = 0
    parts: int = 0
    objects: int = 0
    strange: int = 0
    young: int = 0
    stuck: int = 0

    @property
    def line(self) -> str:
        left = (
            f"; {self.young} strange objects are younger than an hour: left" if self.young else ""
        )
        ended = f", and what was left of {self.users} deleted users" if self.users else ""
        ended += f", and of {self.containers} deleted containers" if self.containers else ""
        stuck = f"; {self.stuck} could not be removed" if self.stuck else ""
        return (
            f"Removed {self.parts} contents that were replaced or not finished, {self.objects} objects "
            f"that were waiting for it, {self.strange} objects that nothing names{ended}{left}{stuck}."
        )


async def sweep(place: Place, tell: Tell) -> None:
    """Removes what the background removes by now, then what nothing names."""
    done = Sweeping()
    async with opened(place) as found:
        broker = Broker(place.settings, found.database, found.blobs, b"", frozenset())
        done.users = await finish(broker)
        done.containers = await tombstones.finish(broker)
        more = True
        while more:
            swept = await sweep_some(broker)
            done.stuck += swept.stuck
            done.parts, done.objects, more = (
                done.parts + swept.parts,
                done.objects + swept.blobs,
                swept.more,
            )
        async for page in found.blobs.pages():
            strange = await unnamed(found.database, page)
            before = datetime.datetime.now(datetime.UTC) - _OLD
            old = [stored.name for stored in strange if stored.modified <= before]
            done.young += len(strange) - len(old)
            if old:
                tried = await found.blobs.remove(old)
                done.strange += sum(tried.values())
                done.stuck += len(old) - sum(tried.values())
    tell(done.line)
