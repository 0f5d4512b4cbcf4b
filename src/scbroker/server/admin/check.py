"""Check that everything a broker keeps is there and whole, without changing anything.

Users and containers are read a page at a time, each page in one transaction, so that the check can run
beside the broker and needs little memory. Records are judged by the same code as in brokers and clients.
Faults are reported as they are found: a report names the faulty thing and never quotes its content.
"""

import contextlib
import datetime
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
from sqlalchemy import Column, Select, Table, bindparam, func, select, text, tuple_

from scbroker.crypto.verify import sha256
from scbroker.errors import BrokerError, IntegrityError, InvalidArgumentError
from scbroker.records import group, judge, merkle, roster
from scbroker.records.canonical import stored_user_id
from scbroker.records.container_record import (
    AccessList,
    ContainerRecord,
    Part,
    Role,
    Via,
    type_hash,
    wrap_hash,
)
from scbroker.records.group import GroupChain, Served
from scbroker.records.key_record import KeyChain, Signed
from scbroker.server.admin import audit, users
from scbroker.server.admin.stores import open_stores
from scbroker.server.broker import Broker, ChainCache, now
from scbroker.server.containers import ended_groups, tombstones
from scbroker.server.containers.members import StoredList, actor_of, leaver_of
from scbroker.server.containers.storing import check_sealed
from scbroker.server.groups import memberships
from scbroker.server.keys import KEY_FILE, BrokerKeys, find_keys
from scbroker.server.parts.chunks import hashes_of
from scbroker.server.parts.sweeping import sweep_some
from scbroker.server.settings import Settings
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.blobs import Blobs, Stored
from scbroker.server.storage.database import Database
from scbroker.server.storage.driver import Connection, Row
from scbroker.server.users.deletion import finish
from scbroker.vocabulary import ContainerAccessLevel, KeyType
from scbroker.wire.containers import DEPARTURE_SIZE, governing_size

Tell = Callable[[str], None]
"""Takes a line for the operator."""
Progress = Callable[[str, int, int], None]
"""Takes the name of a step, how many items of it are done, and of how many."""
_PAGE: Final = 100
_RECORDS_PAGE: Final = 256
_STRAYS_PAGE: Final = 1000
_MORE_THAN_ANY: Final = 100_000
_CHECK_FILE: Final = text("PRAGMA integrity_check(10)")
b: Final = bindparam


def _after(table: Table) -> Select[Any]:
    """Select a page of rows by primary key; the parameters are the key of the last row before it."""
    keys = list(table.primary_key)
    last = tuple_(*(b(key.name) for key in keys))
    return select(table).where(tuple_(*keys) > last).order_by(*keys).limit(b("count"))


def _strays(child: Column[Any], parent: Column[Any]) -> Select[Any]:
    """Select a page of a column's values above `value`, and for each whether its parent row is missing."""
    values = select(child.label("value")).where(child > b("value")).distinct()
    some = values.order_by(child).limit(b("count")).subquery()
    return (
        select(some.c.value, parent.is_(None).label("stray"))
        .outerjoin_from(some, parent.table, parent == some.c.value)
        .order_by(some.c.value)
    )


USERS_AFTER: Final = _after(t.users)
"""With groups, which have a row of this table as well."""
CONTAINERS_AFTER: Final = _after(t.containers)
CHUNKS_AFTER: Final = _after(t.chunks)
LOG_OF: Final = select(
    func.count().label("size"),
    func.min(t.events.c.id).label("first"),
    func.max(t.events.c.id).label("last"),
).where(t.events.c.user_id == b("user"), t.events.c.id.is_not(None))
RECORDS_AFTER: Final = (
    select(t.records)
    .where(t.records.c.container_id == b("container_id"), t.records.c.version > b("version"))
    .order_by(t.records.c.version)
    .limit(b("count"))
)
ANY_EVENT_WITH_DETAILS: Final = (
    select(t.events.c.row_id)
    .where(
        t.events.c.container_id == b("container"),
        t.events.c.version > 0,
        t.events.c.version != b("deletion"),
    )
    .limit(1)
)
AUTHORS_OF: Final = select(t.authors.c.user_id).where(t.authors.c.container_id == b("container"))
PARTS_OF: Final = select(
    t.parts.c.part_id, t.parts.c.inline, t.parts.c.hashes, t.parts.c.received
).where(
    t.parts.c.container_id == b("container"), t.parts.c.committed, t.parts.c.replaced_at.is_(None)
)
FIND_PENDING_USER: Final = select(t.pending_users).where(t.pending_users.c.user_id == b("id"))
PENDING_DELETION_OF: Final = select(t.pending_blobs.c.name).where(
    t.pending_blobs.c.name.in_(b("names", expanding=True))
)
DEPARTURE_LISTS: Final = (
    select(t.departures.c.access_version).where(sql.of(t.departures, "container")).distinct()
)
GROUP_AUTHORS_OF: Final = select(t.group_authors.c.group_id, t.group_authors.c.user_id).where(
    t.group_authors.c.container_id == b("container")
)
COUNTS: Final = {
    "users": select(func.count()).select_from(t.users).where(sql.IS_USER),
    "groups": select(func.count()).select_from(t.users).where(~sql.IS_USER),
    "containers": select(func.count()).select_from(t.containers),
    "chunks": select(func.count()).select_from(t.chunks),
}
_PARENTS: Final = {
    "container_id": t.containers.c.id,
    "group_id": t.users.c.id,
    "part_id": t.parts.c.part_id,
    "user_id": t.users.c.id,
}
_CHILDREN: Final = {
    "container_id": (
        t.records, t.access_lists, t.departures, t.members, t.authors, t.group_authors,
    ),
    "group_id": (t.rosters, t.leaves, t.group_members, t.group_infos, t.pending_groups),
    "part_id": (t.chunks,),
    "user_id": (t.key_records, t.key_files, t.events, t.pending_users, t.blocks, t.usage),
}  # fmt: skip
STRAYS: Final = {
    table.name: _strays(table.c[name], _PARENTS[name])
    for name, tables in _CHILDREN.items()
    for table in tables
}
_PURGED: Final = (
    sql.MEMBERS,
    PARTS_OF,
    sql.LIST_VERSIONS,
    DEPARTURE_LISTS,
    AUTHORS_OF,
    GROUP_AUTHORS_OF,
)


async def check(settings: Settings, tell: Tell, progress: Progress, *, quick: bool = False) -> bool:
    """Report each fault and how much was checked; return whether nothing is wrong.

    `quick` leaves out the bytes of objects, and the database's own check of its file.
    """
    async with open_stores(settings) as (database, objects):
        found = _Check(database, objects, tell, progress, quick)
        await found.run(settings)
    checked = ", ".join(f"{count} {what}" for what, count in sorted(found.seen.items()))
    verdict = f"{found.wrong} wrong" if found.wrong else "nothing is wrong"
    tell(f"Checked {checked or 'nothing'}: {verdict}.")
    return not found.wrong


async def unreferenced(database: Database, page: list[Stored]) -> list[Stored]:
    """Return the listed objects that no row names. The listing must be older than this call."""

    def read(connection: Connection) -> set[str]:
        parts = sorted({stored.part_id for stored in page})
        names = [stored.name for stored in page]
        in_use = connection.execute(sql.BLOBS_IN, {"gone": parts, "count": sql.LATEST})
        pending_deletion = connection.execute(PENDING_DELETION_OF, {"names": names}).scalars()
        return {*(row.blob for row in in_use), *pending_deletion}

    known = await database.read(read, large=True)
    return [stored for stored in page if stored.name not in known]


def chunk_name(row: Row) -> str:
    """Return the name of a chunk for a report."""
    return f"{_named('content', row.part_id)}: chunk {row.chunk}"


def object_problem(row: Row, found: int | memoryview | None) -> str | None:
    """Return what is wrong with the object of a chunk, or None.

    `found` is its size or its bytes, or None if it is missing. Hashes are compared if the bytes are given.
    """
    if found is None:
        return "its object is missing."
    if (found if isinstance(found, int) else len(found)) != row.size:
        return "its object has another size."
    if not isinstance(found, int) and hashes_of(found) != row.hashes:
        return "its object has other bytes."
    return None


def _named(kind: str, id: bytes) -> str:
    """Return `kind` with an id as the operator sees it: a UUID where it is one."""
    return f"{kind} {uuid.UUID(bytes=bytes(id))}" if len(id) == 16 else f"{kind} {bytes(id).hex()}"


class _Check:
    def __init__(
        self, database: Database, objects: Blobs, tell: Tell, progress: Progress, quick: bool
    ) -> None:
        self._database, self._objects, self._quick = database, objects, quick
        self._tell, self._progress = tell, progress
        self.chains = ChainCache()
        self._keys: BrokerKeys | None = None
        self.wrong = 0
        self.seen: Counter[str] = Counter()

    def _add(self, fault: str) -> None:
        self.wrong += 1
        self._tell(fault)

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Report an error of the block as a fault of `name`."""
        try:
            yield
        except BrokerError as error:
            self._add(f"{name}: {error}")
        except (msgspec.MsgspecError, ValueError, TypeError, IndexError):
            self._add(f"{name}: it cannot be read.")

    async def run(self, settings: Settings) -> None:
        try:
            await self._database.read(lambda c: find_keys(c, settings))
            self._keys = BrokerKeys(settings)
        except InvalidArgumentError as error:
            self._add(f"{error} Neither KeyFiles nor the audit log were checked.")
        totals = await self._database.read(
            lambda c: {name: c.execute(each).scalar_one() for name, each in COUNTS.items()},
            large=True,
        )
        if not self._quick and self._database.version() is not None:
            # The database's own check: pages, and indexes against their tables.
            self._progress("database", 0, 1)
            lines = await self._database.read(
                lambda c: c.execute(_CHECK_FILE).scalars().all(), large=True
            )
            for line in lines:
                if line != "ok":
                    self._add(f"database: {line}")
            self._progress("database", 1, 1)
        if self._keys is not None:
            keys = await self._database.read(self._keys.at)
            log = await audit.verify(self._database, keys.active)
            for fault in log.faults:
                self._add(f"audit log: {fault}")
            self._count("audit entries", log.entries, log.entries)
        async for rows in self._pages(USERS_AFTER, {"id": b""}, self._check_principal):
            groups = sum(row.group_version is not None for row in rows)
            for what, count in (("users", len(rows) - groups), ("groups", groups)):
                if count:
                    self._count(what, count, totals[what])

        def check_container(connection: Connection, row: Row) -> None:
            kind = _GroupCheck if row.is_group else _ContainerCheck
            kind(connection, row, self).run()

        async for rows in self._pages(CONTAINERS_AFTER, {"id": b""}, check_container):
            self._count("containers", len(rows), totals["containers"])
        for name, statement in STRAYS.items():
            async for rows in self._pages(statement, {"value": b""}, count=_STRAYS_PAGE):
                for row in rows:
                    if row.stray:
                        self._add(f"{_named(name, row.value)}: it has rows, but it does not exist.")
        # Compare what users are charged with what is stored, in one snapshot.
        wrong = await self._database.read(users.differences, large=True)
        for user_id, (said, kept) in sorted(wrong.items()):
            self._add(
                f"{_named('user', user_id)}: They are charged with {said.bytes} bytes and {said.containers} "
                f"containers, and {kept.bytes} bytes and {kept.containers} containers are stored: run "
                "scbroker admin usage --recount."
            )
        async for rows in self._pages(CHUNKS_AFTER, {"part_id": b"", "chunk": -1}):
            for row in rows:
                problem = await self._problem_of(row)
                # A running broker may have removed the row together with its object meanwhile.
                if problem and await self._still_exists(row):
                    self._add(f"{chunk_name(row)}: {problem}")
            self._count("chunks", len(rows), totals["chunks"])
        async for page in self._objects.pages():
            for stored in await unreferenced(self._database, page):
                if await self._objects.size(stored.name) is not None:  # not removed meanwhile
                    self._add(f"object {stored.name}: no row names it.")
            self._count("objects", len(page), totals["chunks"])

    def _count(self, what: str, more: int, total: int) -> None:
        self.seen[what] += more
        self._progress(what, self.seen[what], total)

    async def _pages(
        self,
        statement: Any,
        last: dict[str, Any],
        check_row: Callable[[Connection, Row], None] | None = None,
        count: int = _PAGE,
    ) -> AsyncIterator[Sequence[Row]]:
        """Yield all rows after `last` in pages; `check_row` runs in the transaction that reads its page."""

        def read(connection: Connection) -> Sequence[Row]:
            rows = connection.execute(statement, {**last, "count": count}).all()
            if check_row is not None:
                for row in rows:
                    check_row(connection, row)
            return rows

        while rows := await self._database.read(read, large=True):
            yield rows
            last = {name: getattr(rows[-1], name) for name in last}

    def _check_principal(self, connection: Connection, row: Row) -> None:
        """Check a user, or a group's event log; the rest of a group is checked with its container."""
        is_user = row.group_version is None
        find = FIND_PENDING_USER if is_user else FIND_PENDING_GROUP
        # While a deletion is pending, some of the data is removed already: less is checked.
        pending = sql.one(connection, find, id=row.id) is not None
        name = _named("user" if is_user else "group", row.id)
        if is_user:
            with self.of(name):
                self._check_user(connection, row, pending)
        with self.of(name):
            if not pending:
                _check_log(connection, row)
            elif not row.deleted:
                raise IntegrityError("Its data is pending deletion, but it was not deleted.")

    def _check_user(self, connection: Connection, user: Row, pending: bool) -> None:
        if user.fingerprint is not None or not user.deleted:
            _check_keys(connection, user)
        if user.deleted:
            # The keys are kept exactly as long as a container or group needs them.
            needs = (sql.ANY_CONTAINER_OF_AUTHOR, sql.ANY_GROUP_DEPARTURE)
            needed = any(sql.one(connection, each, user=user.id) is not None for each in needs)
            kept = user.fingerprint is not None
            if needed and not kept:
                raise IntegrityError("Containers need their key records, which are missing.")
            if kept and not needed and not pending:
                raise IntegrityError("They were deleted, but their key records were not.")
            if not kept and (user.chain_length or sql.key_chain(connection, user.id)):
                raise IntegrityError("Their key records exist without their fingerprint.")
        key_file = sql.one(connection, sql.FIND_KEY_FILE, user_id=user.id)
        if key_file is not None and user.deleted:
            raise IntegrityError("They were deleted, but their KeyFile was not.")
        if key_file is None or self._keys is None:
            return
        keys = self._keys.at(connection)
        try:
            keys.open(KEY_FILE, user.id, key_file.key_file)
            keys.open_verifier(user.id, key_file.verifier)
        except IntegrityError:
            raise IntegrityError(
                "Their KeyFile, or the proof of their passphrase, does not open under the broker's key: it "
                "is damaged."
            ) from None

    async def _problem_of(self, row: Row) -> str | None:
        if sha256(row.hashes) != row.chunk_hash:
            return "its hash is not that of its segments' hashes."
        ask = self._objects.size if self._quick else self._objects.whole
        return object_problem(row, await ask(row.blob))

    async def _still_exists(self, row: Row) -> bool:
        values = {"part": row.part_id, "number": row.chunk}
        again = await self._database.read(lambda c: sql.one(c, sql.FIND_CHUNK, **values))
        return again is not None and again.blob == row.blob


# Users: public keys, event log


def _check_keys(connection: Connection, user: Row) -> None:
    records = sql.key_chain(connection, user.id, 0, _MORE_THAN_ANY)
    if len(records) != user.chain_length:
        raise IntegrityError(f"{len(records)} of {user.chain_length} key records are stored.")
    chain = KeyChain.verify(records, now())
    if (chain.userId.bytes, chain.fingerprint) != (user.id, user.fingerprint):
        raise IntegrityError("Their key records are another user's.")
    if chain.closed and not user.deleted:
        raise IntegrityError("Their key records say that they were deleted, but they were not.")
    latest = (chain.of_type(KeyType.Encryption)[-1].index, chain.signing_sequence)
    if latest != (user.encryption_index, user.signing_sequence):
        raise IntegrityError("Their row names other keys than their latest.")


def _check_log(connection: Connection, user: Row) -> None:
    log = sql.the(connection, LOG_OF, user=user.id)
    ends = (user.first_event, user.last_event)
    found = (log.first, log.last) if log.size else ends
    if log.size != user.last_event - user.first_event + 1 or found != ends:
        raise IntegrityError("Their event log has a gap.")
    if (user.dropped_digest is None) != (user.first_event == 1):
        raise IntegrityError("The digest of their dropped events is missing.")


# Containers: chain of records, access lists, members and parts


class _ContainerCheck:
    """The check of one container, in one transaction."""

    def __init__(self, connection: Connection, row: Row, check: _Check) -> None:
        self._connection, self._row, self._check = connection, row, check
        self._is_purging = row.deleted and self._any(sql.FIND_PURGE)
        self._authors: set[bytes] = set()
        self._actors: set[bytes] = set()
        self._acted: set[tuple[bytes, bytes]] = set()
        self._leavers: set[bytes] = set()
        self._disclosed: set[bytes] = set()
        self._lists: set[int] = set()
        self._governing_bytes = 0

    def run(self) -> None:
        """Report the first fault of the records; if they have none, the first fault of each other check."""
        name = _named("container", self._row.id)
        with self._check.of(name):
            head, force = self._judge_all()
            if head is None or force is None:
                # Nothing may remain of a container that was deleted together with its last user.
                if not self._row.deleted:
                    raise IntegrityError("Its records are missing.")
                if any(map(self._any, _PURGED)):
                    raise IntegrityError(
                        "It was deleted with its last user, but some of its rows were not."
                    )
                return
            self._check_row(head, force)
            with self._check.of(name):
                self._check_authors()
            with self._check.of(name):
                if self._row.deleted:
                    self._check_emptied()
                else:
                    self._check_live(force)
            with self._check.of(name):
                self._check_parts(head)

    def _all(self, statement: Any, **values: object) -> Any:
        ids = {"container": self._row.id, "group": self._row.id}
        return self._connection.execute(statement, {**ids, **values})

    def _any(self, statement: Any, **values: object) -> bool:
        return self._all(statement, **values).first() is not None

    def _judge_all(self) -> tuple[judge.Known | None, judge.InForce | None]:
        """Verify every record in order: signature, hash chain, rules, access list.

        A deleted container has only its governing records and the tombstone, each linked to the one before.
        """
        parent: judge.Known | None = None
        force: judge.InForce | None = None
        for row in self._rows():
            expected = 1 if parent is None else parent.record.version + 1
            if not self._row.deleted:
                if row.version != expected:
                    raise IntegrityError(f"Version {expected} is missing.")
            elif not row.governing and row.version != self._row.version:
                if not self._is_purging:
                    raise IntegrityError(
                        f"Version {row.version} was not deleted with the container."
                    )
                continue  # the pending purge still has to remove it
            if row.version != expected:
                parent = None
            try:
                known = self._known(row)
                force = self._judged(known, force, parent)
            except IntegrityError as error:
                raise IntegrityError(f"version {row.version}: {error}") from None
            parent = known
            if known.record.governing is not None:
                entries = len(force.access.entries) if known.record.changes_access else 0
                left = len(force.left) if known.record.changes_access else 0
                self._governing_bytes += governing_size(Signed(row.body, row.signature), entries)
                self._governing_bytes += DEPARTURE_SIZE * left
        if parent is not None and set(self._all(sql.LIST_VERSIONS).scalars()) != self._lists:
            raise IntegrityError("It has access lists that no record names.")
        if parent is not None and not set(self._all(DEPARTURE_LISTS).scalars()) <= self._lists:
            raise IntegrityError("It has departures from access lists that no record names.")
        return parent, force

    def _rows(self) -> Iterator[Row]:
        first = {"container_id": self._row.id, "version": 0}
        return users.paged(self._connection, RECORDS_AFTER, _RECORDS_PAGE, **first)

    def _known(self, row: Row) -> judge.Known:
        is_bare = self._row.deleted and not self._row.is_group
        known = (judge.Known.parse_bare if is_bare else judge.Known.parse)(row.body)
        record = known.record
        if is_bare and not self._is_purging and row.body != known.bare:
            raise IntegrityError("Its parts were not deleted with the container.")
        if (record.containerId, record.version) != (self._row.id, row.version):
            raise IntegrityError("It is another container's, or another version.")
        if (record.governing is not None) != row.governing:
            raise IntegrityError("Its row says wrongly whether it is a governing record.")
        self._authors.add(stored_user_id(record.author))
        self._actors.add(stored_user_id(actor_of(record)))
        if record.via is not None:
            acted = stored_user_id(record.via.group), stored_user_id(record.author)
            self._acted.add(acted)
        self._check.seen["records"] += 1
        chain = self._chain_of(record.author, "Its author")
        judge.verify_author(known, row.signature, chain)
        return known

    def _chain_of(self, fingerprint: bytes, who: str) -> KeyChain:
        user_id = stored_user_id(fingerprint)
        user = sql.one(self._connection, sql.FIND_USER, id=user_id)
        if user is None:
            raise IntegrityError(f"{who} does not exist.")
        return self._check.chains.get(self._connection, user_id, user.chain_length)

    def _judged(
        self, known: judge.Known, force: judge.InForce | None, parent: judge.Known | None
    ) -> judge.InForce:
        """Judge a record as the successor of those before it, with its access list if it has one."""
        access = self._list_of(known.record)
        if access is not None:
            judge.check_list(known.record, access)
            if not self._row.deleted and not access.complete:
                raise IntegrityError("Its access list lacks entries.")
            self._disclosed |= {stored_user_id(name) for name in access.entries}
        if force is not None:
            via, acting = known.record.via, None
            if via is not None:
                acting = acting_of(self._connection, via, known.record.author)
            after = judge.judge_next(known, force, access, parent, now(), acting)
        elif access is None:
            raise IntegrityError("The first record has no access list (rule 1).")
        else:
            after = judge.judge_first(known, access, now())
        return after if access is None else replace(after, left=self._left(after))

    def _list_of(self, record: ContainerRecord) -> AccessList | None:
        """Return the access list that a record names; None if it changes none."""
        if not record.changes_access:
            return None
        found = self._all(sql.FIND_LIST, number=record.version).one_or_none()
        if found is None:
            raise IntegrityError("Its access list is missing.")
        self._lists.add(record.version)
        return StoredList.decode(found.entries).verified()

    def _left(self, force: judge.InForce) -> frozenset[bytes]:
        """Return the users who left the list that a record made; verify their departures."""
        left = set[bytes]()
        for row in self._all(sql.DEPARTURES, number=force.record.version):
            signed = Signed(row.body, row.signature)
            name = leaver_of(signed)
            if stored_user_id(name) != row.user_id:
                raise IntegrityError("A departure from its access list is another user's.")
            chain = self._chain_of(name, "A user who left its access list")
            judge.verify_departure(signed, force, chain, now())
            left.add(name)
        self._leavers |= {stored_user_id(name) for name in left}
        return frozenset(left)

    def _check_row(self, head: judge.Known, force: judge.InForce) -> None:
        row, record, governing = self._row, head.record, force.governing
        found = (row.version, row.governing_version, row.access_version, row.deleted)
        in_force = (force.record.version, governing.accessVersion)
        if found != (record.version, *in_force, record.tombstone):
            raise IntegrityError("Its row does not agree with its records.")
        if not row.deleted and row.governing_bytes != self._governing_bytes:
            raise IntegrityError("Its row names another size of its governing records.")

    def _check_authors(self) -> None:
        """Check that `authors` names all signers except the creator, whom the container's row names."""
        named = set(self._all(AUTHORS_OF).scalars())
        needed = (self._authors | self._leavers) - {self._row.creator_id}
        if named != needed and not (self._is_purging and named > needed):
            raise IntegrityError(
                "The table of authors does not name the users who signed its records and departures."
            )
        acted = {(row.group_id, row.user_id) for row in self._all(GROUP_AUTHORS_OF)}
        if acted != self._acted and not (self._is_purging and acted > self._acted):
            raise IntegrityError(
                "The table of groups' authors does not name the users who signed its records for groups."
            )

    def _check_live(self, force: judge.InForce) -> None:
        """Check the type, and that each member who was not deleted has a row that agrees with the list."""
        row, type_named = self._row, judge.governing_of(force.record).type
        if type_hash(row.id, row.type_salt or b"", row.type) != type_named:
            raise IntegrityError("Its type is not the one that its records name.")
        named = (stored_user_id(name) for name in force.access.entries)
        known = self._connection.execute(sql.FIND_USERS, {"ids": list(named)})
        groups = sorted(user.id for user in known if user.group_version is not None)
        if (row.groups or b"") != b"".join(groups):
            raise IntegrityError("Its row names other groups than its access list has.")
        text, rows = row.type, {row.user_id: row for row in self._all(sql.MEMBERS)}
        for fingerprint, entry in force.access.entries.items():
            user_id = stored_user_id(fingerprint)
            row = rows.pop(user_id, None)
            if fingerprint in force.left:
                if row is not None:
                    raise IntegrityError("A user who left still has a member's row.")
                continue
            if row is None:
                user = sql.one(self._connection, sql.FIND_USER, id=user_id)
                if user is None or not user.deleted:
                    raise IntegrityError("A member of its access list is missing.")
                continue
            wrap = None if row.wrap is None else wrap_hash(row.wrap)
            found = (row.permissions, row.expires_at, row.key_index, wrap)
            if found != (entry.permissions, entry.expiresAt, entry.keyIndex, entry.wrapHash):
                raise IntegrityError("A member's row does not agree with its access list.")
            if row.type != (text if entry.allows(ContainerAccessLevel.ViewType) else None):
                raise IntegrityError("A member's row has another type than the member may see.")
        if rows:
            raise IntegrityError("It has members whom its access list does not name.")

    def _check_emptied(self) -> None:
        """Check that only what proves the deletion is kept, unless a purge is pending."""
        left = {
            "members' rights, wraps or type": any(
                row.permissions or row.expires_at or row.wrap or row.type
                for row in self._all(sql.MEMBERS)
            ),
            "type": (self._row.type, self._row.type_salt) != (None, None),
        }
        if not self._is_purging:
            left |= {
                "entries of its access lists": not self._disclosed <= self._actors,
                "records of its fetches": self._any(sql.ACCESSES_TO, count=1),
                "details in its events": self._any(
                    ANY_EVENT_WITH_DETAILS, deletion=self._row.version
                ),
            }
        if found := [what for what, is_left in left.items() if is_left]:
            raise IntegrityError(f"It was deleted, but this was not: {', '.join(found)}.")

    def _check_parts(self, head: judge.Known) -> None:
        """Check that the parts of the head record are stored with the signed segments, and no others."""
        named_parts = [part for role in Role if (part := head.record.part(role)) is not None]
        rows = {row.part_id: row for row in self._all(PARTS_OF)}
        for part in named_parts:
            row = rows.pop(part.partId, None)
            if row is None:
                raise IntegrityError("A part that its record names is missing.")
            self._check_part(part, row)
        if rows:
            raise IntegrityError("It has parts that its record does not name.")

    def _check_part(self, part: Part, row: Row) -> None:
        if row.inline is not None:
            size, hashes = len(row.inline), sha256(row.inline)
        else:
            chunks = self._connection.execute(sql.CHUNKS, {"part": part.partId}).all()
            if [chunk.chunk for chunk in chunks] != list(range(len(chunks))):
                raise IntegrityError("A chunk of its content is missing.")
            size = sum(chunk.size for chunk in chunks)
            hashes = b"".join(chunk.hashes for chunk in chunks)
        check_sealed(part, size, hashes)
        if hashes != row.hashes:
            raise IntegrityError("The hashes of a part are not those of its segments.")
        if size != row.received:
            raise IntegrityError("A part is charged with another size than it has.")


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


FIND_PENDING_GROUP: Final = select(t.pending_groups).where(t.pending_groups.c.group_id == b("id"))
ANY_LEAF: Final = select(t.leaves.c.version).where(t.leaves.c.group_id == b("group")).limit(1)
# The version of the record that ended an epoch by beginning the next one.
END_OF_EPOCH: Final = (
    select(t.rosters.c.version)
    .where(sql.of(t.rosters, "group"), t.rosters.c.epoch > b("epoch"))
    .order_by(t.rosters.c.version)
    .limit(1)
)


class _GroupCheck(_ContainerCheck):
    """The check of one group, in one transaction: records, rosters, leaves and members.

    A deleted group has no members. Its leaves have lost salt and member, except those of users who signed a
    record for the group.
    """

    def __init__(self, connection: Connection, row: Row, check: _Check) -> None:
        super().__init__(connection, row, check)
        rosters = self._all(sql.ROSTERS, **{"from": 0, "count": _MORE_THAN_ANY})
        self._rosters: Mapping[int, Row] = {each.version: each for each in rosters}
        self._introduced: set[int] = set()

    def run(self) -> None:
        """Report the first fault of each check."""
        name = _named("group", self._row.id)
        with self._check.of(name):
            chain = self._judge_group()
            principal = sql.one(self._connection, sql.FIND_GROUP, id=self._row.id)
            if principal is None:
                raise IntegrityError("Its row among the users is missing.")
            if chain is None:
                if not self._row.deleted:
                    raise IntegrityError("Its records are missing.")
                if self._rosters or any(
                    map(self._any, (ANY_LEAF, sql.GROUP_MEMBERS, sql.FIND_INFO))
                ):
                    raise IntegrityError("Its records were deleted, but some of its rows were not.")
            else:
                self._check_rows(chain, principal)
                if self._row.deleted:
                    self._check_ended()
                else:
                    self._check_members(chain)
        with self._check.of(name):
            self._check_authors()
        with self._check.of(name):
            if self._any(sql.MEMBERS) or self._any(PARTS_OF):
                raise IntegrityError("It has members or parts, and a group has neither.")

    def _judge_group(self) -> GroupChain | None:
        chain: GroupChain | None = None
        for row in self._rows():
            expected = 1 if chain is None else chain.version + 1
            known = self._known(row)
            if row.version != expected:
                raise IntegrityError(f"Version {expected} is missing.")
            try:
                chain = self._extended(chain, known, row)
                self._check_tree(chain)
            except IntegrityError as error:
                raise IntegrityError(f"version {row.version}: {error}") from None
        if chain is not None and self._rosters.keys() != self._introduced:
            raise IntegrityError("It has rosters that no record names.")
        return chain

    def _extended(self, chain: GroupChain | None, known: judge.Known, row: Row) -> GroupChain:
        record, access = known.record, self._list_of(known.record)
        stored = self._rosters.get(record.version)
        body = None if stored is None else bytes(stored.body)
        text = None if stored is None else (stored.type_salt, roster.group_type(stored.body))
        served = Served(known, access, text, body)
        after = group.begin(served, now()) if chain is None else group.extend(chain, served, now())
        if not record.tombstone:
            entries = 0 if access is None else len(access.entries)
            self._governing_bytes += governing_size(Signed(row.body, row.signature), entries, body)
        if stored is not None:
            self._introduced.add(stored.version)
            if stored.epoch != after.roster.epoch:
                raise IntegrityError("The row of its roster names another epoch.")
        return after

    def _check_tree(self, chain: GroupChain) -> None:
        """Check the stored leaves of the roster in force against the Merkle root that was signed."""
        leaves = memberships.leaves_at(self._connection, self._row.id, chain.version)
        hashes = [leaf.hash for leaf in leaves]
        if len(hashes) != chain.roster.count:
            raise IntegrityError("Its roster has another number of leaves.")
        if merkle.root(roster.NODE, hashes) != chain.roster.members:
            raise IntegrityError("The leaves of its roster are not those that were signed.")
        for leaf in leaves:
            if leaf.member is not None and memberships.salted(leaf).hash != leaf.hash:
                raise IntegrityError("A leaf of its roster is not the one that was signed.")

    def _check_rows(self, chain: GroupChain, principal: Row) -> None:
        row = self._row
        said = (principal.fingerprint, principal.encryption_index, principal.group_version)
        if said != (chain.name, chain.roster.epoch, chain.version):
            raise IntegrityError("Its row among the users has another name, epoch or version.")
        found = (row.version, row.governing_version, row.access_version)
        in_force = chain.in_force
        if found != (chain.version, in_force.record.version, in_force.governing.accessVersion):
            raise IntegrityError("Its row does not agree with its records.")
        if row.governing_bytes != self._governing_bytes:
            raise IntegrityError("Its row names another size of its records.")
        if principal.deleted != row.deleted or (chain.ended is not None and not row.deleted):
            raise IntegrityError("Its rows do not agree whether it was deleted.")
        if set(self._all(sql.LIST_VERSIONS).scalars()) != self._lists:
            raise IntegrityError("It has access lists that no record names.")

    def _check_members(self, chain: GroupChain) -> None:
        """Compare the members' rows, wraps, info and departures with the roster in force."""
        leaves = memberships.leaves_at(self._connection, self._row.id, chain.version)
        members = roster.parse_leaves(chain.roster, [memberships.salted(leaf) for leaf in leaves])
        group.check_roster(chain, members)
        if [bytes(leaf.place) for leaf in leaves] != sorted(members):
            raise IntegrityError("The places of its leaves are not those of its members.")
        if self._row.type != roster.group_type(chain.roster_bytes):
            raise IntegrityError("Its type is not that of its roster.")
        rows = {bytes(row.user_id): row for row in self._all(sql.GROUP_MEMBERS)}
        if rows.keys() != {stored_user_id(name) for name in members}:
            raise IntegrityError("Its members are not those of its roster.")
        for name, member in members.items():
            row = rows[stored_user_id(name)]
            entry = chain.managers.get(name)
            permissions = 0 if entry is None else entry.permissions
            said = (row.version, row.role, row.key_index, row.permissions)
            if said != (member.version, member.role, member.keyIndex, permissions):
                raise IntegrityError("A member's row does not agree with the roster.")
            # A deleted manager keeps the leaf (C8) and gets no wrap; the purge marks the row as gone later.
            if row.wrap is None and not (row.gone or row.deleted):
                raise IntegrityError("A member has no wrap of the secret.")
            if row.departure is not None:
                signed = Signed(row.departure, row.departure_signature)
                keys = self._chain_of(name, "A user who left it")
                if (
                    not row.gone
                    or group.verify_departure(signed, chain, members, keys, now()) != name
                ):
                    raise IntegrityError("A departure from it is another user's, or has no effect.")
        info = self._all(sql.FIND_INFO).one_or_none()
        if info is None or sha256(info.info) != chain.roster.info:
            raise IntegrityError("Its info is not the one that its roster names.")

    def _check_ended(self) -> None:
        """Check that a deleted group keeps no more than readers need, unless a purge is pending."""
        if any(self._any(each) for each in (sql.GROUP_MEMBERS, sql.FIND_INFO)):
            raise IntegrityError("It was deleted, but its members or its info were not.")
        if sql.one(self._connection, FIND_PENDING_GROUP, id=self._row.id) is not None:
            return
        kept = set(self._all(sql.AUTHORS_OF_GROUP).scalars())
        for leaf in self._all(sql.KEPT_LEAVES):
            if stored_user_id(roster.parse_member(leaf.member).fingerprint) not in kept:
                raise IntegrityError("It was deleted, but a leaf that nobody needs was not.")
        if not self._any(sql.ANY_AUTHOR_OF_GROUP) and not self._any(sql.ANY_ENTRY_OF_GROUP):
            raise IntegrityError(
                "It was deleted and no container needs it, but its records were not."
            )


def acting_of(connection: Connection, via: Via, author: bytes) -> judge.Acting:
    """Return the group for which an author acted; raise `IntegrityError` unless it is stored (V2)."""
    group_id = stored_user_id(via.group)
    group = sql.one(connection, sql.FIND_GROUP, id=group_id)
    known = _record(connection, group_id, via.version)
    if group is None or group.fingerprint != via.group or known is None or known.hash != via.hash:
        raise IntegrityError("It names a record of a group that is not stored (V2).")
    leaves = memberships.leaves_at(connection, group_id, via.version)
    position = memberships.position_of(leaves, author)
    if position is None:
        raise IntegrityError("The leaf of its author in the group is missing (V2).")
    found = sql.one(connection, sql.ROSTER_AT, group=group_id, number=via.version)
    if found is None or found.epoch != via.epoch:
        raise IntegrityError("It names another epoch than the record of its group (V2).")
    role = roster.parse_member(memberships.salted(leaves[position]).member).role
    head = _record(connection, group_id, group.group_version)
    deleted = head.record.time if head is not None and head.record.tombstone else None
    after = {"group": group_id, "epoch": via.epoch}
    end = connection.execute(END_OF_EPOCH, after).scalar_one_or_none()
    ended = None if end is None else _record(connection, group_id, end)
    return judge.Acting(
        via.group, role, known.record.time, None if ended is None else ended.record.time, deleted
    )


def _record(connection: Connection, group_id: bytes, version: int) -> judge.Known | None:
    row = sql.one(connection, sql.FIND_RECORD, container=group_id, number=version)
    return None if row is None else judge.Known.parse(row.body)
