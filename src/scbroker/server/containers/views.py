"""Serve containers to their readers.

Spec: docs/spec/protocol.md, section 5; container.md, 4 and 8.

A reader gets what they need to judge the head, and no entry of an access list beyond what they may see.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.crypto.verify import HASH_SIZE
from scbroker.errors import ConflictError, NotFoundError
from scbroker.records.canonical import stored_user_id, user_id_of
from scbroker.records.container_record import (
    ContainerRecord,
    Role,
    bare_body,
    parse_bare,
    parse_record,
)
from scbroker.records.judge import governing_of
from scbroker.records.key_record import Signed
from scbroker.server.broker import Broker, Call, SessionUser, check_unexpired
from scbroker.server.containers.members import StoredList
from scbroker.server.events import log
from scbroker.server.storage import statements as sql
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire import containers as wire
from scbroker.wire.codec import SignedObject
from scbroker.wire.users import KeyChainState

_DELETED: Final = "The container was deleted meanwhile: read it again."
_CHANGED: Final = "The container was changed meanwhile: read it again."
_PAGING: Final = 15 * 60 * 1_000_000
_FEW_VERSIONS: Final = 8
_PAGE_RECORDS: Final = wire.PAGE_BYTES // 3000
"""More records than fit on a page: the signature of each has more than 3,300 bytes."""
Page = tuple[list[wire.GoverningView], set[bytes]]


@dataclass(slots=True)
class Prefetched:
    """Rows that were read for one or several views at once, in the same snapshot."""

    lists: dict[tuple[bytes, int], bytes] = field(default_factory=dict)
    """Stored access lists by container and version."""
    inline: dict[bytes, bytes | None] = field(default_factory=dict)
    """Sealed parts by id."""
    chains: dict[bytes, KeyChainState] = field(default_factory=dict)
    """The numbers of users' key records, by fingerprint."""
    governing: Signed | None = None
    """The governing record in force, if the head is another record."""

    def add_chain(self, fingerprint: bytes, length: int) -> None:
        user_id = str(user_id_of(fingerprint))
        self.chains[fingerprint] = KeyChainState(userId=user_id, sequence=length - 1)


async def view(broker: Broker, call: Call, query: wire.ViewQuery) -> wire.ContainerView:
    """Serve a container from its first record on, or from the version of the reader's mark."""
    since, wanted = query.since, wanted_parts(header=query.header, content=query.content)

    def read(connection: Connection) -> wire.ContainerView:
        return view_of(connection, readable(connection, call), call.session, since, wanted)

    def read_if_few(connection: Connection) -> wire.ContainerView | None:
        container = readable(connection, call)
        if since is None or container.version - since > _FEW_VERSIONS:
            return None
        return view_of(connection, container, call.session, since, wanted)

    answer = await broker.database.query(lambda c: _view_at_once(c, call, since, wanted))
    # Mostly few versions came since the mark. A long history is read beside the event loop.
    if answer is None and since is not None:
        answer = await broker.database.read(read_if_few)
    if answer is None:
        answer = await broker.database.read(read, large=True)
    if (answer.header is not None or answer.content is not None) and not _is_alone(answer):
        log.note_access(broker, call, call.container_id)
    return answer


def _view_at_once(
    connection: Connection, call: Call, since: int | None, wanted: set[Role]
) -> wire.ContainerView | None:
    """Return the view if one statement reads all of it; else None, and it needs a snapshot."""
    values = {"container": call.container_id, "user": call.session.id, "wanted": bool(wanted)}
    container = check_unexpired(sql.one(connection, sql.CONTAINER_AT_ONCE, **values), call.now)
    first_is_in_force = since is None and container.governing_version == 1
    if container.entries is None or not (first_is_in_force or since == container.version):
        return None
    prefetched = Prefetched(lists={(container.id, container.access_version): container.entries})
    if container.governing_body is not None:
        prefetched.governing = Signed(container.governing_body, container.governing_signature)
    prefetched.add_chain(call.session.fingerprint, container.chain_length)
    if container.creator is not None:
        prefetched.add_chain(container.creator, container.creator_chain_length)
    prefetched.inline = {
        container.one: container.one_inline,
        container.other: container.other_inline,
    }
    return view_of(connection, container, call.session, since, wanted, prefetched)


def _is_alone(view: wire.ContainerView) -> bool:
    """Return whether the reader is the only one in the list, so that nobody gets an event of the fetch."""
    access = view.governing[-1].accessList
    return access is not None and len(access.entryHashes) == HASH_SIZE


def view_of(
    connection: Connection,
    container: Row[Any],
    user: SessionUser,
    since: int | None,
    wanted: set[Role],
    prefetched: Prefetched | None = None,
) -> wire.ContainerView:
    """Return what a reader with access is served of a container."""
    prefetched = prefetched or Prefetched()
    first, last = _first_governing(connection, container, since), container.version
    governing, authors = _governing(connection, container, user, first, last, prefetched)
    inline = _inline(connection, container, wanted, prefetched)
    return wire.ContainerView(
        governing=governing,
        lastGoverning=container.governing_version,
        head=_head(container),
        skipped=_skipped(connection, container, since),
        wrap=container.wrap,
        type=_type(container),
        header=inline.get(Role.Header),
        content=inline.get(Role.Content),
        keyChains=_chains(connection, authors, prefetched),
    )


async def governing_page(
    broker: Broker, call: Call, query: wire.GoverningQuery
) -> wire.GoverningPage:
    """Serve a page of governing records, as they were when `to` was the version of the head."""

    def read(connection: Connection) -> wire.GoverningPage:
        container = readable(connection, call)
        if query.to < container.version:
            if container.deleted:
                raise ConflictError(_DELETED)
            # Its author's entry is disclosed as a head's author is: for as long as pages may be asked for.
            after = parse_record(_stored(connection, container, query.to + 1).body)
            if after.time < call.now - _PAGING:
                raise ConflictError(_CHANGED)
        governing, _ = _governing(
            connection, container, call.session, query.from_, query.to, Prefetched()
        )
        return wire.GoverningPage(governing=governing)

    return await broker.database.read(read, large=True)


async def bodies(broker: Broker, call: Call, query: wire.BodiesQuery) -> wire.Bodies:
    """Serve the bodies of consecutive records, for a reader whose mark is many versions old."""

    def read(connection: Connection) -> list[bytes]:
        container = readable(connection, call)
        if container.deleted:
            raise ConflictError(_DELETED)
        rows = _bodies(connection, container, query.from_, sql.LATEST, query.count)
        return [row.body for row in rows]

    return wire.Bodies(bodies=await broker.database.read(read, large=True))


def _bodies(
    connection: Connection, container: Row[Any], first: int, end: int, count: int
) -> Iterable[Row[Any]]:
    values = {"container": container.id, "from": first, "to": end, "count": count}
    return connection.execute(sql.BODIES, values)


def wanted_parts(*, header: object, content: object) -> set[Role]:
    """Return the parts that a request asks for."""
    asked = {Role.Header: header, Role.Content: content}
    return {role for role, wanted in asked.items() if wanted}


def readable(connection: Connection, call: Call) -> Row[Any]:
    """Return the row of a container with that of its reader; raise `NotFoundError` without access."""
    values = {"container": call.container_id, "user": call.session.id}
    return check_unexpired(sql.one(connection, sql.CONTAINER_AND_MEMBER, **values), call.now)


def _first_governing(connection: Connection, container: Row[Any], since: int | None) -> int:
    """Return the version of the governing record that was in force at a mark; 1 without a mark."""
    if since is None:
        return 1
    if since >= container.governing_version:
        return int(container.governing_version)
    values = {"container": container.id, "number": since}
    return int(connection.execute(sql.GOVERNING_AT, values).scalar_one() or 1)


def _governing(
    connection: Connection,
    container: Row[Any],
    user: SessionUser,
    first: int,
    last: int,
    prefetched: Prefetched,
) -> Page:
    """Return a page of governing records with their lists, and the authors whose keys a reader needs.

    A page has about PAGE_BYTES, and at least one record.
    """
    rows: Iterable[Row[Any] | Signed]
    later: set[bytes] = set()
    authors: set[bytes] = set()
    if first == container.governing_version <= last:
        rows = [prefetched.governing or _stored(connection, container, first)]
        records = [parse_bare(row.body) for row in rows]
    else:
        records = []
        for row in sql.governing(connection, container.id, first, last):
            record = parse_bare(row.body)
            if len(records) < _PAGE_RECORDS:
                records.append(record)
            else:  # on a later page, but the authors' entries are disclosed in the lists before it
                later |= {record.author, governing_of(record).accessAuthor}
                authors.add(record.author)
        rows = (_stored(connection, container, record.version) for record in records)
    head = parse_record(_stored(connection, container, min(last, container.version)).body)
    disclosed = _disclosed_users(container, user, records, head, later)
    views, size, last_list = [], 0, 0
    for record, row, names in zip(records, rows, disclosed, strict=True):
        access, version = None, governing_of(record).accessVersion
        if version != last_list:
            last_list = version
            access = _list_view(connection, container.id, version, names, prefetched)
            size += len(access.entryHashes) + 160 * len(access.disclosed)
        body = bare_body(row.body) if container.deleted else row.body
        signed = SignedObject.of(Signed(body, row.signature))
        views.append(wire.GoverningView(record=signed, accessList=access))
        size += len(row.body) + len(row.signature)
        if size > wire.PAGE_BYTES:
            break
    return views, authors | {record.author for record in (*records, head)}


def _list_view(
    connection: Connection,
    container_id: bytes,
    version: int,
    names: set[bytes] | None,
    prefetched: Prefetched,
) -> wire.ListView:
    entries = prefetched.lists.get((container_id, version))
    if entries is None:
        found = sql.the(connection, sql.FIND_LIST, container=container_id, number=version)
        entries = found.entries
    whole = StoredList.decode(entries)
    return (whole if names is None else whole.only(names)).view()


def _disclosed_users(
    container: Row[Any],
    user: SessionUser,
    records: Sequence[ContainerRecord],
    head: ContainerRecord,
    later: set[bytes],
) -> list[set[bytes] | None]:
    """Return for each record the users whose entries its list discloses; None for all (container.md, 4).

    It is computed backwards: the author of a record must be disclosed in the list before it, and a user who
    is disclosed in one list must be disclosed in all earlier ones. `later` are the users whom the records
    after these ones disclose.
    """
    if container.permissions & ContainerAccessLevel.ViewAccess and not container.deleted:
        return [None] * len(records)
    names = {head.author} | later
    if not container.deleted:
        names.add(user.fingerprint)
    disclosed: list[set[bytes] | None] = []
    for record in reversed(records):
        names = names | {governing_of(record).accessAuthor}
        disclosed.append(names)
        names = names | {record.author}
    return disclosed[::-1]


def _stored(connection: Connection, container: Row[Any], version: int) -> Row[Any]:
    """Return a row with body and signature of a record; the container's row has those of the head."""
    if version == container.version:
        return container
    row = sql.one(connection, sql.FIND_RECORD, container=container.id, number=version)
    if row is None:
        raise NotFoundError(f"The container has no record of version {version}.")
    return row


def _head(container: Row[Any]) -> SignedObject | None:
    if container.version == container.governing_version:
        return None
    return SignedObject.of(Signed(container.body, container.signature))


def _skipped(connection: Connection, container: Row[Any], since: int | None) -> list[bytes]:
    if since is None or since >= container.version or container.deleted:
        return []
    rows = _bodies(connection, container, since, container.version, wire.MAX_SKIPPED)
    return [row.body for row in rows if not row.governing]


def _type(container: Row[Any]) -> wire.TypeText | None:
    if container.type_salt is None or not container.permissions & ContainerAccessLevel.ViewType:
        return None
    return wire.TypeText(salt=container.type_salt, type=container.type)


def _inline(
    connection: Connection, container: Row[Any], wanted: set[Role], prefetched: Prefetched
) -> dict[Role, bytes]:
    """Return the wanted parts that are stored inline, as far as the reader may download them."""
    parts = parts_to_serve(container, wanted)
    found = {
        part_id: prefetched.inline[part_id] for part_id in parts if part_id in prefetched.inline
    }
    if missing := parts.keys() - found.keys():
        rows = connection.execute(sql.PARTS_INLINE, {"some": list(missing)})
        found |= {row.part_id: row.inline for row in rows}
    return {parts[part_id]: sealed for part_id, sealed in found.items() if sealed is not None}


def parts_to_serve(container: Row[Any], wanted: set[Role]) -> dict[bytes, Role]:
    """Return the head's parts that are wanted and that the reader may download, by id."""
    if not wanted or not container.permissions & ContainerAccessLevel.Download:
        return {}
    head = parse_record(container.body)
    return {part.partId: role for role in wanted if (part := head.part(role)) is not None}


def _chains(
    connection: Connection, authors: set[bytes], prefetched: Prefetched
) -> list[KeyChainState]:
    if missing := authors - prefetched.chains.keys():
        ids = [stored_user_id(author) for author in missing]
        for row in connection.execute(sql.FIND_USERS, {"ids": ids}):
            prefetched.add_chain(row.fingerprint, row.chain_length)
    return [prefetched.chains[author] for author in sorted(authors) if author in prefetched.chains]


def size_of(view: wire.ContainerView) -> int:
    """Return about how many bytes the view takes in an answer."""
    shown = [item.accessList for item in view.governing]
    lists = sum(len(item.entryHashes) + 256 * len(item.disclosed) for item in shown if item)
    records = sum(len(item.record.body) + len(item.record.signature) for item in view.governing)
    skipped = sum(map(len, view.skipped))
    return lists + records + skipped + len(view.header or b"") + len(view.content or b"") + 8192
