"""Check that everything a broker keeps is there and whole, without changing anything.

Users and containers are read a page at a time, each page in one transaction, so that the check can run
beside the broker and needs little memory. Records are judged by the same code as in brokers and clients.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.crypto.verify import sha256
from scbroker.errors import IntegrityError
from scbroker.records.key_record import KeyChain
from scbroker.server.admin import statements as own
from scbroker.server.admin.check_containers import ContainerCheck
from scbroker.server.admin.findings import Findings, Progress, Tell, named
from scbroker.server.admin.stores import open_stores, unreferenced
from scbroker.server.broker import ChainCache, now
from scbroker.server.parts.chunks import hashes_of
from scbroker.server.settings import Settings
from scbroker.server.storage import statements as sql
from scbroker.server.storage.blobs import Blobs
from scbroker.server.storage.database import Database
from scbroker.vocabulary import KeyType

_PAGE: Final = 100
_STRAYS_PAGE: Final = 1000
_FIRST: Final = b""
_MORE_THAN_ANY: Final = 100_000


async def check(settings: Settings, tell: Tell, progress: Progress, *, quick: bool = False) -> bool:
    """Report each fault and how much was checked; return whether nothing is wrong.

    `quick` leaves out the bytes of objects, and the database's own check of its file.
    """
    findings = Findings(tell)
    async with open_stores(settings) as (database, objects):
        await _Check(database, objects, findings, progress, quick).run()
    tell(findings.line)
    return not findings.wrong


class _Check:
    def __init__(
        self,
        database: Database,
        objects: Blobs,
        findings: Findings,
        progress: Progress,
        quick: bool,
    ) -> None:
        self._database, self._objects = database, objects
        self._findings, self._progress, self._quick = findings, progress, quick
        self._chains = ChainCache()

    async def run(self) -> None:
        totals = await self._database.read(_totals, large=True)
        if not self._quick and self._database.version() is not None:
            await self._check_file()
        first = {"last": _FIRST}
        tables = (
            ("users", own.USERS_AFTER, self._check_users),
            ("containers", own.CONTAINERS_AFTER, self._check_containers),
        )
        for what, statement, check_page in tables:
            async for rows in self._pages(statement, first, lambda r: {"last": r.id}, check_page):
                self._count(what, len(rows), totals[what])
        for name, statement in own.STRAYS.items():
            await self._check_strays(name, statement)
        await self._check_chunks(totals["chunks"])
        await self._check_objects(totals["chunks"])

    def _count(self, what: str, more: int, total: int) -> None:
        self._findings.seen[what] += more
        self._progress(what, self._findings.seen[what], total)

    async def _check_file(self) -> None:
        """Run the database's own check: pages, and indexes against their tables."""

        def read(connection: Connection) -> list[str]:
            return [str(line) for line in connection.execute(own.CHECK_DATABASE).scalars()]

        self._progress("database", 0, 1)
        for line in await self._database.read(read, large=True):
            if line != "ok":
                self._findings.add(f"database: {line}")
        self._progress("database", 1, 1)

    async def _pages(
        self,
        statement: Any,
        last: dict[str, Any],
        key: Callable[[Row[Any]], dict[str, Any]],
        check_page: Callable[[Connection, Sequence[Row[Any]]], None] = lambda _c, _rows: None,
        count: int = _PAGE,
    ) -> AsyncIterator[Sequence[Row[Any]]]:
        """Yield all rows behind `last` in pages; `check_page` runs in the transaction that reads its page."""

        def read(connection: Connection) -> Sequence[Row[Any]]:
            rows = connection.execute(statement, {**last, "count": count}).all()
            check_page(connection, rows)
            return rows

        while rows := await self._database.read(read, large=True):
            yield rows
            last = key(rows[-1])

    def _check_users(self, connection: Connection, rows: Sequence[Row[Any]]) -> None:
        some = {"some": [row.id for row in rows]}
        key_files = {row.user_id: row for row in connection.execute(own.KEY_FILES_OF, some)}
        logs = {row.user_id: row for row in connection.execute(own.LOGS_OF, some)}
        pending = {*connection.execute(own.PENDING_USERS_OF, some).scalars()}
        for row in rows:
            with self._findings.of(named("user", row.id)):
                log, is_pending = logs.get(row.id), row.id in pending
                _check_user(connection, row, key_files.get(row.id), log, is_pending)

    def _check_containers(self, connection: Connection, rows: Sequence[Row[Any]]) -> None:
        for row in rows:
            container = ContainerCheck(connection, row, self._chains, self._findings)
            with self._findings.of(container.name):
                container.run()
            self._findings.seen["records"] += container.records

    async def _check_strays(self, name: str, statement: Any) -> None:
        """Find rows that refer to a row which does not exist."""
        pages = self._pages(
            statement, {"last": _FIRST}, lambda row: {"last": row.value}, count=_STRAYS_PAGE
        )
        async for rows in pages:
            for row in rows:
                if row.stray:
                    self._findings.add(
                        f"{named(name, row.value)}: it has rows, but it does not exist."
                    )

    async def _check_chunks(self, total: int) -> None:
        """Compare every row of a chunk with its object."""
        first = {"part": _FIRST, "number": -1}
        pages = self._pages(
            own.CHUNKS_AFTER, first, lambda row: {"part": row.part_id, "number": row.chunk}
        )
        async for rows in pages:
            for row in rows:
                problem = await self._problem_of(row)
                # A running broker may have removed the row together with its object meanwhile.
                if problem and await self._still_exists(row):
                    self._findings.add(f"{chunk_name(row)}: {problem}")
            self._count("chunks", len(rows), total)

    async def _problem_of(self, row: Row[Any]) -> str | None:
        if sha256(row.hashes) != row.chunk_hash:
            return "its hash is not that of its segments' hashes."
        if self._quick:
            return size_problem(await self._objects.size(row.blob), row)
        return octets_problem(await self._objects.whole(row.blob), row)

    async def _still_exists(self, row: Row[Any]) -> bool:
        values = {"part": row.part_id, "number": row.chunk}
        again = await self._database.read(lambda c: sql.one(c, sql.FIND_CHUNK, **values))
        return again is not None and again.blob == row.blob

    async def _check_objects(self, total: int) -> None:
        """Find objects that no row names and that are not pending deletion."""
        async for page in self._objects.pages():
            for stored in await unreferenced(self._database, page):
                if await self._objects.size(stored.name) is not None:  # not removed meanwhile
                    self._findings.add(f"object {stored.name}: no row names it.")
            self._count("objects", len(page), total)


def _totals(connection: Connection) -> dict[str, int]:
    return {
        name: connection.execute(statement).scalar_one() for name, statement in own.COUNTS.items()
    }


def chunk_name(row: Row[Any]) -> str:
    """Return how a chunk is called in a report."""
    return f"{named('content', row.part_id)}: chunk {row.chunk}"


def size_problem(size: int | None, row: Row[Any]) -> str | None:
    """Return what is wrong with a chunk's object of this size (None: it is missing), or None."""
    if size is None:
        return "its object is missing."
    return None if size == row.size else "its object has another size."


def octets_problem(octets: memoryview | None, row: Row[Any]) -> str | None:
    """Return what is wrong with a chunk's object that has these bytes, or None."""
    problem = size_problem(None if octets is None else len(octets), row)
    if problem is None and octets is not None and hashes_of(octets) != row.hashes:
        return "its object has other bytes."
    return problem


# Users: public keys, KeyFile, event log


def _check_user(
    connection: Connection,
    user: Row[Any],
    key_file: Row[Any] | None,
    log: Row[Any] | None,
    pending: bool,
) -> None:
    """Raise `IntegrityError` for the first fault of a user.

    `log` summarises the numbered events. `pending` says that a deletion still removes the user's data.
    """
    if user.fingerprint is not None or not user.deleted:
        _check_keys(connection, user)
    if user.deleted:
        _check_kept_keys(connection, user, pending)
    if not pending:
        _check_log(user, log)
    elif not user.deleted:
        raise IntegrityError("Their data is pending deletion, but they were not deleted.")
    if key_file is not None:
        if user.deleted:
            raise IntegrityError("They were deleted, but their KeyFile was not.")
        if sha256(key_file.key_file) != key_file.key_file_hash:
            raise IntegrityError("Their KeyFile is not the one that was stored.")


def _check_keys(connection: Connection, user: Row[Any]) -> None:
    records = sql.key_chain(connection, user.id, 0, _MORE_THAN_ANY)
    if len(records) != user.chain_length:
        raise IntegrityError(f"{len(records)} of {user.chain_length} key records are stored.")
    chain = KeyChain.verify(records, now())
    if (chain.userId.bytes, chain.fingerprint) != (user.id, user.fingerprint):
        raise IntegrityError("Their key records are another user's.")
    if chain.closed and not user.deleted:
        raise IntegrityError("Their key records say that they were deleted, but they were not.")
    if chain.of_type(KeyType.Encryption)[-1].index != user.encryption_index:
        raise IntegrityError("Their row names another encryption key than their latest.")


def _check_kept_keys(connection: Connection, user: Row[Any], pending: bool) -> None:
    """Check that a deleted user's keys are kept exactly as long as a container needs them."""
    needed = sql.one(connection, sql.ANY_CONTAINER_OF_AUTHOR, user=user.id) is not None
    kept = user.fingerprint is not None
    if needed and not kept:
        raise IntegrityError("Containers need their key records, which are missing.")
    if kept and not needed and not pending:
        raise IntegrityError("They were deleted, but their key records were not.")
    if not kept and (user.chain_length or sql.key_chain(connection, user.id)):
        raise IntegrityError("Their key records exist without their fingerprint.")


def _check_log(user: Row[Any], log: Row[Any] | None) -> None:
    expected = (user.last_event - user.first_event + 1, user.first_event, user.last_event)
    found = (0, *expected[1:]) if log is None else (log.count, log.first, log.last)
    if expected[0] < 0 or found != expected:
        raise IntegrityError("Their event log has a gap.")
    if (user.dropped_digest is None) != (user.first_event == 1):
        raise IntegrityError("The digest of their dropped events is missing.")
