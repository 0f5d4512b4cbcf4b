"""A copy of a running embedded broker that has every object which a row of it names.

Why it is whole, in this order:

1. Objects are kept: whoever removes one takes a lock first, and waits for this. What a row named at
   any time from now on is there until the end. Rows may go meanwhile, and objects come.
2. The database is copied as of one moment (VACUUM INTO, which holds up no writer). A row in the copy names
   an object that was stored, and synced, before the row was committed. It was not removed before 1: an
   object is removed only after a transaction which took its row away, and the copy would not have the row.
3. The objects that the copy names are copied. What is stored under a name never changes, so that a hard
   link serves as well. Others are left out: what was being sent is sent again.

The manifest is written last, when all else is synced.
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.errors import InvalidArgumentError
from scbroker.server.admin import manifest as m
from scbroker.server.admin import statements as own
from scbroker.server.admin.check import octets_problem, size_problem
from scbroker.server.admin.findings import named
from scbroker.server.admin.opened import Place, Progress, Tell, opened
from scbroker.server.storage.blobs import Folder, sync

_KEY_MISSING: Final = (
    "The broker's key is no file in the data folder: keep it from where it is set."
)


async def backup(
    place: Place, target: Path, tell: Tell, progress: Progress, *, link: bool, with_key: bool
) -> bool:
    """Makes a backup in a new or empty folder; gives whether every object was there and right.

    With `link` objects are hard links, and their bytes are not looked at.
    """
    key = place.settings.directory / m.KEY
    place.file  # noqa: B018 - it is for an embedded broker alone
    if with_key and not key.is_file():
        raise InvalidArgumentError(_KEY_MISSING)
    _make_empty(target)
    objects = Folder(place.objects)
    with objects.keeping():
        async with opened(place) as found:
            values = {"path": str(target / m.DATABASE)}
            await found.database.query(lambda c: c.execute(own.COPY_DATABASE, values))
        with m.snapshot(target / m.DATABASE) as connection:
            copying = _Copying(place.objects, target / m.OBJECTS, tell, progress, link)
            copying.run(connection)
    if with_key:
        m.copy(key, target / m.KEY)
    (target / m.DATABASE).chmod(0o600)
    sync(target / m.DATABASE)
    m.sync_folders(target)
    done = m.Manifest(
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        database=m.hash_of(target / m.DATABASE),
        key=m.hash_of(target / m.KEY) if with_key else None,
        objects=copying.objects,
        bytes=copying.bytes,
    )
    done.write(target)
    tell(f"Copied the database, {copying.objects} objects ({copying.bytes} bytes): {target}")
    tell(
        "The broker's key is in it."
        if with_key
        else "The broker's key is not in it: keep it apart."
    )
    return not copying.wrong


class _Copying:
    """The objects of a snapshot, one after the other."""

    def __init__(
        self, source: Path, target: Path, tell: Tell, progress: Progress, link: bool
    ) -> None:
        self._source, self._target = source, target
        self._tell, self._progress, self._link = tell, progress, link
        self.objects = self.bytes = self.wrong = 0

    def run(self, connection: Connection) -> None:
        total = connection.execute(own.COUNTS["chunks"]).scalar_one()
        self._target.mkdir(mode=0o700)
        for row in m.chunks_of(connection):
            problem = self._take(row)
            if problem is not None:
                self.wrong += 1
                self._tell(f"{named('content', row.part_id)}: chunk {row.chunk}: {problem}")
            self._progress("objects", self.objects, total)

    def _take(self, row: Row[Any]) -> str | None:
        """Copies an object, a damaged one as well; gives what is wrong with it."""
        source, target = self._source / row.blob, self._target / row.blob
        try:
            if self._link:
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                os.link(source, target)
                size = target.stat().st_size
                problem = size_problem(size, row)
            else:
                octets = memoryview(source.read_bytes())
                m.store(target, octets)
                size, problem = len(octets), octets_problem(octets, row)
        except FileNotFoundError:
            return size_problem(None, row)
        self.objects += 1
        self.bytes += size
        return problem


def _make_empty(target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        empty = not any(target.iterdir())
    except OSError as error:
        raise InvalidArgumentError(f"{target} cannot be used: {error.strerror}.") from None
    if not empty:
        raise InvalidArgumentError(f"{target} is not empty: a backup needs a folder of its own.")
