"""Check a container: its chain of records, access lists, members and parts."""

import functools
from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.crypto.verify import sha256
from scbroker.errors import IntegrityError
from scbroker.records.canonical import stored_user_id
from scbroker.records.container_record import (
    AccessList,
    Part,
    Role,
    bare_body,
    type_hash,
    wrap_hash,
)
from scbroker.records.judge import (
    InForce,
    Known,
    check_list,
    governing_of,
    judge_first,
    judge_next,
    verify_author,
)
from scbroker.records.key_record import Signed
from scbroker.server.admin import statements as own
from scbroker.server.admin.findings import Findings, named
from scbroker.server.broker import ChainCache, now
from scbroker.server.containers.members import StoredList
from scbroker.server.containers.storing import check_sealed
from scbroker.server.storage import statements as sql

_PAGE: Final = 256
_PURGED: Final = (sql.MEMBERS, own.PARTS_OF, sql.LIST_VERSIONS, own.AUTHORS_OF)


class ContainerCheck:
    """The check of one container, in one transaction."""

    def __init__(
        self, connection: Connection, row: Row[Any], chains: ChainCache, findings: Findings
    ) -> None:
        self._connection, self._row, self._chains = connection, row, chains
        self._findings = findings
        self.name: str = named("container", row.id)
        self.records: int = 0
        self._authors: set[bytes] = set()
        self._disclosed: set[bytes] = set()

    def run(self) -> None:
        """Raise `IntegrityError` for a fault of the chain; report faults of the rest."""
        head, force = self._judge_all()
        if head is None or force is None:
            self._check_purged()
            return
        self._check_row(head, force)
        with self._findings.of(self.name):
            self._check_authors()
        with self._findings.of(self.name):
            if self._row.deleted:
                self._check_emptied()
            else:
                self._check_type(force)
                self._check_members(force.access)
        with self._findings.of(self.name):
            self._check_parts(head)

    def _judge_all(self) -> tuple[Known | None, InForce | None]:
        """Verify every record after the one before it: signature, hash chain, rules, list.

        A deleted container has only its governing records and the tombstone, each linked to the one before.
        """
        parent: Known | None = None
        force: InForce | None = None
        lists: set[int] = set()
        for row in self._rows():
            expected = 1 if parent is None else parent.record.version + 1
            if not self._row.deleted and row.version != expected:
                raise IntegrityError(f"Version {expected} is missing.")
            if self._is_pending_deletion(row):
                continue
            if row.version != expected:
                parent = None
            try:
                known = self._known(row)
                access = self._list_of(known)
                if access is not None:
                    lists.add(row.version)
                    self._disclosed |= {stored_user_id(name) for name in access.entries}
                force = self._judged(known, force, access, parent)
            except IntegrityError as error:
                raise IntegrityError(f"version {row.version}: {error}") from None
            parent = known
            self.records += 1
        if parent is not None and set(self._all(sql.LIST_VERSIONS).scalars()) != lists:
            raise IntegrityError("It has access lists that no record names.")
        return parent, force

    def _is_pending_deletion(self, row: Row[Any]) -> bool:
        """Return whether the pending purge of a deleted container still has to remove this record."""
        if not self._row.deleted or row.governing or row.version == self._row.version:
            return False
        if not self._is_purging:
            raise IntegrityError(f"Version {row.version} outlived the deletion.")
        return True

    @functools.cached_property
    def _is_purging(self) -> bool:
        return self._all(sql.FIND_PURGE).first() is not None

    def _rows(self) -> Iterator[Row[Any]]:
        first = 0
        while True:
            rows = self._all(own.RECORDS_FROM, **{"from": first, "count": _PAGE}).all()
            yield from rows
            if len(rows) < _PAGE:
                return
            first = rows[-1].version + 1

    def _all(self, statement: Any, **values: object) -> Any:
        return self._connection.execute(statement, {"container": self._row.id, **values})

    def _known(self, row: Row[Any]) -> Known:
        known = Known.parse_bare(row.body) if self._row.deleted else Known.parse(row.body)
        record = known.record
        if self._row.deleted and not self._is_purging and row.body != bare_body(row.body):
            raise IntegrityError("Its parts outlived the deletion.")
        if (record.containerId, record.version) != (self._row.id, row.version):
            raise IntegrityError("It is another container's, or another version.")
        if (record.governing is not None) != row.governing:
            raise IntegrityError("Its row says wrongly whether it is a governing record.")
        author = stored_user_id(record.author)
        self._authors.add(author)
        user = sql.one(self._connection, sql.FIND_USER, id=author)
        if user is None:
            raise IntegrityError("Its author does not exist.")
        chain = self._chains.get(self._connection, author, user.chain_length)
        verify_author(Signed(row.body, row.signature), record, chain)
        return known

    def _list_of(self, known: Known) -> AccessList | None:
        if not known.record.changes_access:
            return None
        found = sql.one(
            self._connection, sql.FIND_LIST, container=self._row.id, number=known.record.version
        )
        if found is None:
            raise IntegrityError("Its access list is missing.")
        access = StoredList.decode(found.entries).verified()
        check_list(known.record, access)
        if not self._row.deleted and not access.complete:
            raise IntegrityError("Its access list lacks entries.")
        return access

    def _judged(
        self, known: Known, force: InForce | None, access: AccessList | None, parent: Known | None
    ) -> InForce:
        if force is None:
            if access is None:
                raise IntegrityError("The first record has no access list (rule 1).")
            return judge_first(known, access, now())
        return judge_next(known, force, access, parent, now())

    def _check_purged(self) -> None:
        """Check that nothing remains of a container that was deleted together with its last user."""
        if not self._row.deleted:
            raise IntegrityError("Its records are missing.")
        if any(self._all(what).first() for what in _PURGED):
            raise IntegrityError(
                "It was deleted with its last user, but some of its rows were not."
            )

    def _check_row(self, head: Known, force: InForce) -> None:
        row, record = self._row, head.record
        governing = force.governing
        found = (row.version, row.governing_version, row.access_version, row.deleted)
        if found != (
            record.version,
            force.record.version,
            governing.accessVersion,
            record.tombstone,
        ):
            raise IntegrityError("Its row does not agree with its records.")

    def _check_authors(self) -> None:
        """Check that `authors` names all signers of its records except the creator, whom its row names."""
        named = set(self._all(own.AUTHORS_OF).scalars())
        needed = self._authors - {self._row.creator_id}
        if named != needed and not (self._is_purging and named > needed):
            raise IntegrityError(
                "The table of authors does not name the users who signed its records."
            )

    def _check_type(self, force: InForce) -> None:
        row = self._row
        salt = row.type_salt or b""
        if type_hash(row.id, salt, row.type) != governing_of(force.record).type:
            raise IntegrityError("Its type is not the one that its records name.")

    def _check_members(self, access: AccessList) -> None:
        """Check that each member who was not deleted has a row that agrees with the access list."""
        rows = {row.user_id: row for row in self._all(sql.MEMBERS)}
        for fingerprint, entry in access.entries.items():
            user_id = stored_user_id(fingerprint)
            row = rows.pop(user_id, None)
            if row is None:
                user = sql.one(self._connection, sql.FIND_USER, id=user_id)
                if user is None or not user.deleted:
                    raise IntegrityError("A member of its access list is missing.")
                continue
            if (row.permissions, row.expires_at) != (entry.permissions, entry.expiresAt):
                raise IntegrityError("A member has other rights than its access list says.")
            if (None if row.wrap is None else wrap_hash(row.wrap)) != entry.wrapHash:
                raise IntegrityError("A member's wrap is not the one that its access list names.")
        if rows:
            raise IntegrityError("It has members whom its access list does not name.")

    def _check_emptied(self) -> None:
        """Check that only what proves the deletion is kept, unless a purge is pending."""
        kept = (row.permissions or row.expires_at or row.wrap for row in self._all(sql.MEMBERS))
        if any(kept):
            raise IntegrityError("It was deleted, but its members' rights or wraps were not.")
        if (self._row.type, self._row.type_salt) != (None, None):
            raise IntegrityError("It was deleted, but its type was not.")
        if self._is_purging:
            return
        if not self._disclosed <= self._authors:
            raise IntegrityError("It was deleted, but entries of its access lists were not.")
        if self._all(sql.ACCESSES_TO, count=1).first() is not None:
            raise IntegrityError("It was deleted, but the records of its fetches were not.")
        if self._all(own.ANY_EVENT_WITH_DETAILS, deletion=self._row.version).first() is not None:
            raise IntegrityError("It was deleted, but details in its events were not.")

    def _check_parts(self, head: Known) -> None:
        """Check that the parts of the head record are stored with the signed segments, and no others."""
        named_parts = [part for role in Role if (part := head.record.part(role)) is not None]
        rows = {row.part_id: row for row in self._all(own.PARTS_OF)}
        for part in named_parts:
            row = rows.pop(part.partId, None)
            if row is None:
                raise IntegrityError("A part that its record names is missing.")
            self._check_part(part, row)
        if rows:
            raise IntegrityError("It has parts that its record does not name.")

    def _check_part(self, part: Part, row: Row[Any]) -> None:
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
