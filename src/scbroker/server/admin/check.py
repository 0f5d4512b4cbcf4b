"""Whether all that a broker keeps is there and right. It reads alone, also beside a running broker.

Users and containers are read some at a time, each lot as of one moment; objects are listed, and then
each row of a chunk is looked up. Only so much is in memory at once, however much there is. What a
record must be is said by the judge that the broker and the clients judge by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.crypto.verify import sha256
from scbroker.server.admin import statements as own
from scbroker.server.admin.check_containers import ContainerCheck
from scbroker.server.admin.check_users import check_user
from scbroker.server.admin.findings import Findings, named
from scbroker.server.admin.opened import Opened, Place, Progress, Tell, opened
from scbroker.server.admin.owner import unnamed
from scbroker.server.broker import ChainCache
from scbroker.server.parts.chunks import hashes_of
from scbroker.server.storage import statements as sql

_AT_ONCE: Final = 100
_STRAYS_AT_ONCE: Final = 1000
_FIRST: Final = b""


async def check(place: Place, tell: Tell, progress: Progress, *, quick: bool = False) -> bool:
    """Tells each thing that is wrong, then how much was looked at; gives whether all is right.

    `quick` leaves out the bytes of objects, and the database's own check of its file.
    """
    findings = Findings(tell)
    async with opened(place) as found:
        job = _Check(found, findings, progress, quick)
        await job.run()
    tell(findings.line)
    return not findings.wrong


class _Check:
    def __init__(self, found: Opened, findings: Findings, progress: Progress, quick: bool) -> None:
        self._database, self._blobs = found.database, found.blobs
        self._findings, self._progress, self._quick = findings, progress, quick
        self._chains = ChainCache()

    async def run(self) -> None:
        totals = await self._database.read(_totals, large=True)
        if not self._quick and self._database.version() is not None:
            await self._check_file()
        await self._each("users", own.USERS_AFTER, totals["users"], self._check_users)
        await self._each(
            "containers", own.CONTAINERS_AFTER, totals["containers"], self._check_containers
        )
        for name, statement in own.STRAYS.items():
            await self._check_strays(name, statement)
        await self._check_chunks(totals["chunks"])
        await self._check_objects(totals["chunks"])

    async def _check_file(self) -> None:
        """The database's own check: pages, and indexes against their tables."""

        def read(connection: Connection) -> list[str]:
            return [str(line) for line in connection.execute(own.CHECK_DATABASE).scalars()]

        self._progress("database", 0, 1)
        for line in await self._database.read(read, large=True):
            if line != "ok":
                self._findings.add(f"database: {line}")
        self._progress("database", 1, 1)

    async def _each(
        self,
        what: str,
        statement: Any,
        total: int,
        look: Callable[[Connection, Sequence[Row[Any]]], None],
    ) -> None:
        """All rows of a table by their id, some at a time, and what belongs to them as of the same moment."""
        last = _FIRST

        def read(connection: Connection) -> list[Row[Any]]:
            rows = connection.execute(statement, {"last": last, "count": _AT_ONCE}).all()
            look(connection, rows)
            return list(rows)

        while rows := await self._database.read(read, large=True):
            last = rows[-1].id
            self._findings.seen[what] += len(rows)
            self._progress(what, self._findings.seen[what], total)

    def _check_users(self, connection: Connection, rows: Sequence[Row[Any]]) -> None:
        some = {"some": [row.id for row in rows]}
        key_files = {row.user_id: row for row in connection.execute(own.KEY_FILES_OF, some)}
        logs = {row.user_id: row for row in connection.execute(own.LOGS_OF, some)}
        doomed = {*connection.execute(own.DOOMED_OF_USERS, some).scalars()}
        for row in rows:
            with self._findings.of(named("user", row.id)):
                log, is_doomed = logs.get(row.id), row.id in doomed
                check_user(connection, row, key_files.get(row.id), log, doomed=is_doomed)

    def _check_containers(self, connection: Connection, rows: Sequence[Row[Any]]) -> None:
        for row in rows:
            looking = ContainerCheck(connection, row, self._chains, self._findings)
            with self._findings.of(looking.name):
                looking.run()
            self._findings.seen["records"] += looking.records

    async def _check_strays(self, name: str, statement: Any) -> None:
        """Rows of what is not there."""
        last = _FIRST

        def read(connection: Connection) -> list[Row[Any]]:
            values = {"last": last, "count": _STRAYS_AT_ONCE}
            return list(connection.execute(statement, values))

        while rows := await self._database.read(read, large=True):
            for row in rows:
                if row.stray:
                    self._findings.add(f"{named(name, row.value)}: rows of what is not there.")
            last = rows[-1].value

    async def _check_chunks(self, total: int) -> None:
        """Every row of a chunk has its object, and its hashes are those of the object's bytes."""
        last = {"part": _FIRST, "number": -1}

        def read(connection: Connection) -> list[Row[Any]]:
            return list(connection.execute(own.CHUNKS_AFTER, {**last, "count": _AT_ONCE}))

        while rows := await self._database.read(read, large=True):
            for row in rows:
                problem = await self._problem_of(row)
                if problem and await self._is_still(row):
                    self._findings.add(
                        f"{named('content', row.part_id)}: chunk {row.chunk}: {problem}"
                    )
            last = {"part": rows[-1].part_id, "number": rows[-1].chunk}
            self._findings.seen["chunks"] += len(rows)
            self._progress("chunks", self._findings.seen["chunks"], total)

    async def _problem_of(self, row: Row[Any]) -> str | None:
        if sha256(row.hashes) != row.chunk_hash:
            return "its hash is not that of its segments' hashes."
        if self._quick:
            size = await self._blobs.size(row.blob)
            return size_problem(size, row)
        return octets_problem(await self._blobs.whole(row.blob), row)

    async def _is_still(self, row: Row[Any]) -> bool:
        """Whether the row is there yet: beside a running broker it may have gone with its object."""
        values = {"part": row.part_id, "number": row.chunk}
        again = await self._database.read(lambda c: sql.one(c, sql.FIND_CHUNK, **values))
        return again is not None and again.blob == row.blob

    async def _check_objects(self, total: int) -> None:
        """Every object is named by a row, or waits for its row or its removal."""
        async for page in self._blobs.pages():
            for stored in await unnamed(self._database, page):
                if await self._blobs.size(stored.name) is not None:  # not removed meanwhile
                    self._findings.add(f"object {stored.name}: nothing names it.")
            self._findings.seen["objects"] += len(page)
            self._progress("objects", self._findings.seen["objects"], total)


def size_problem(size: int | None, row: Row[Any]) -> str | None:
    """What is wrong with an object of this size, of the chunk that a row is of."""
    if size is None:
        return "its object is missing."
    return None if size == row.size else "its object has another size."


def octets_problem(octets: memoryview | None, row: Row[Any]) -> str | None:
    """What is wrong with an object that has these bytes."""
    problem = size_problem(None if octets is None else len(octets), row)
    if problem is None and octets is not None and hashes_of(octets) != row.hashes:
        return "its object has other bytes."
    return problem


def _totals(connection: Connection) -> dict[str, int]:
    return {
        name: connection.execute(statement).scalar_one() for name, statement in own.COUNTS.items()
    }
