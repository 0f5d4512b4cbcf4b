"""What a reader is served of a container. Spec: docs/spec/protocol.md, section 5; container.md, 4 and 8.

Enough to judge the head, and no entry of an access list beyond what the reader may see.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.crypto.verify import HASH_SIZE
from scbroker.errors import ConflictError, NotFoundError
from scbroker.records.container_record import (
    ContainerRecord,
    Role,
    bare_body,
    parse_bare,
    parse_record,
)
from scbroker.records.ids import user_id_of
from scbroker.records.judge import governing_of
from scbroker.records.key_record import Signed
from scbroker.server.broker import Broker, Call, SessionUser, now
from scbroker.server.containers.stored_lists import StoredList
from scbroker.server.events import log
from scbroker.server.storage import statements as sql
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import (
    MAX_SKIPPED,
    PAGE_BYTES,
    Bodies,
    BodiesQuery,
    ContainerView,
    GoverningPage,
    GoverningQuery,
    GoverningView,
    ListView,
    TypeText,
    ViewQuery,
)
from scbroker.wire.users import KeyChainState

_UNKNOWN: Final = "There is no container of this id that you have access to."
_DELETED: Final = "The container was deleted meanwhile: read it again."
_PAGING: Final = 15 * 60 * 1_000_000
_LITTLE: Final = 8
_PAGE_RECORDS: Final = PAGE_BYTES // 3000
"""More than go on a page: each has a signature of more than 3,300 bytes."""
Page = tuple[list[GoverningView], set[bytes]]


@dataclass(slots=True)
class Ahead:
    """Rows that were read for several views at once, in the same snapshot."""

    lists: dict[tuple[bytes, int], bytes] = field(default_factory=dict)
    """Stored access lists by container and version."""
    inline: dict[bytes, bytes | None] = field(default_factory=dict)
    """Sealed parts by id."""
    chains: dict[bytes, KeyChainState] = field(default_factory=dict)
    """How far the keys of a user go, by fingerprint."""
    governing: Signed | None = None
    """The governing record in force, where the head is another."""

    def note_chain(self, fingerprint: bytes, length: int) -> None:
        user_id = str(user_id_of(fingerprint))
        self.chains[fingerprint] = KeyChainState(userId=user_id, sequence=length - 1)


async def view(broker: Broker, call: Call, message: None) -> ContainerView:
    """The container as its reader may see it, from the beginning or from the reader's mark."""
    del message
    container_id, user = call.uuid("containerId"), call.session
    query = call.query_as(ViewQuery)
    since, wanted = query.since, wanted_parts(header=query.header, content=query.content)

    def read(connection: Connection) -> ContainerView:
        return view_of(connection, readable(connection, container_id, user), user, since, wanted)

    def read_if_little(connection: Connection) -> ContainerView | None:
        container = readable(connection, container_id, user)
        if since is None or container.version - since > _LITTLE:
            return None
        return view_of(connection, container, user, since, wanted)

    answer = await broker.database.query(
        lambda c: _view_at_once(c, container_id, user, since, wanted)
    )
    # Mostly little came since the mark; a long history must not hold up everybody else.
    if answer is None and since is not None:
        answer = await broker.database.read(read_if_little)
    if answer is None:
        answer = await broker.database.read(read, large=True)
    if (answer.header is not None or answer.content is not None) and not _is_alone(answer):
        log.note_access(broker, call, container_id)
    return answer


def _view_at_once(
    connection: Connection,
    container_id: bytes,
    user: SessionUser,
    since: int | None,
    wanted: set[Role],
) -> ContainerView | None:
    """The view where one statement has all of it. None where it takes more, and so a snapshot."""
    values = {"container": container_id, "user": user.id, "wanted": bool(wanted)}
    container = check_readable(sql.one(connection, sql.CONTAINER_AT_ONCE, **values))
    first_is_in_force = since is None and container.governing_version == 1
    if container.entries is None or not (first_is_in_force or since == container.version):
        return None
    ahead = Ahead(lists={(container_id, container.access_version): container.entries})
    if container.governing_body is not None:
        ahead.governing = Signed(container.governing_body, container.governing_signature)
    ahead.note_chain(user.fingerprint, container.chain_length)
    if container.creator is not None:
        ahead.note_chain(container.creator, container.creator_chain_length)
    ahead.inline = {container.one: container.one_inline, container.other: container.other_inline}
    return view_of(connection, container, user, since, wanted, ahead)


def _is_alone(view: ContainerView) -> bool:
    """Whether its reader is the only one in the list, so that nobody is to be told."""
    access = view.governing[-1].accessList
    return access is not None and len(access.entryHashes) == HASH_SIZE


def view_of(
    connection: Connection,
    container: Row[Any],
    user: SessionUser,
    since: int | None,
    wanted: set[Role],
    ahead: Ahead | None = None,
) -> ContainerView:
    """What a reader with access is served of a container."""
    ahead = ahead or Ahead()
    start = _start(connection, container, since)
    last = container.version
    governing, authors = _governing(connection, container, user, start, last, ahead)
    inline = _inline(connection, container, wanted, ahead)
    return ContainerView(
        governing=governing,
        lastGoverning=container.governing_version,
        head=_head(container),
        skipped=_skipped(connection, container, since),
        wrap=container.wrap,
        type=_type(container),
        header=inline.get(Role.Header),
        content=inline.get(Role.Content),
        keyChains=_chains(connection, authors, ahead),
    )


async def governing_page(broker: Broker, call: Call, message: None) -> GoverningPage:
    """Governing records from a version on, as of the head of version `to`."""
    del message
    query = call.query_as(GoverningQuery)

    def read(connection: Connection) -> GoverningPage:
        container = readable(connection, call.uuid("containerId"), call.session)
        if query.to < container.version:
            if container.deleted:
                raise ConflictError(_DELETED)
            # Who authored it is shown as the head's author is: for as long as pages of it may be asked for.
            after = parse_record(_stored(connection, container, query.to + 1).body)
            if after.time < now() - _PAGING:
                raise ConflictError("The container was changed meanwhile: read it again.")
        return GoverningPage(
            governing=_governing(
                connection, container, call.session, query.from_, query.to, Ahead()
            )[0]
        )

    return await broker.database.read(read, large=True)


async def bodies(broker: Broker, call: Call, message: None) -> Bodies:
    """The bodies of records in a row, for a reader whose mark is far back."""
    del message
    query = call.query_as(BodiesQuery)

    def read(connection: Connection) -> list[bytes]:
        container = readable(connection, call.uuid("containerId"), call.session)
        if container.deleted:
            raise ConflictError(_DELETED)
        values = {
            "container": container.id,
            "from": query.from_,
            "to": sql.LATEST,
            "count": query.count,
        }
        return [row.body for row in connection.execute(sql.BODIES, values)]

    return Bodies(bodies=await broker.database.read(read, large=True))


def wanted_parts(*, header: object, content: object) -> set[Role]:
    asked = {Role.Header: header, Role.Content: content}
    return {role for role, wanted in asked.items() if wanted}


def readable(connection: Connection, container_id: bytes, user: SessionUser) -> Row[Any]:
    found = sql.one(connection, sql.CONTAINER_AND_MEMBER, container=container_id, user=user.id)
    return check_readable(found)


def check_readable(found: Row[Any] | None) -> Row[Any]:
    """The row of a container and its reader; `NotFoundError` without one, or with one that ran out."""
    if found is None or (found.expires_at is not None and found.expires_at <= now()):
        raise NotFoundError(_UNKNOWN)
    return found


def _start(connection: Connection, container: Row[Any], since: int | None) -> int:
    """The version of the governing record in force at a mark; the first without one."""
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
    ahead: Ahead,
) -> Page:
    """Governing records with what the reader may see of their lists, and the authors to judge.

    About PAGE_BYTES of them, at least one; the rest is for the next page.
    """
    rows: Iterable[Row[Any] | Signed]
    later: set[bytes] = set()
    authors: set[bytes] = set()
    if first == container.governing_version <= last:
        rows = [ahead.governing or _stored(connection, container, first)]
        records = [parse_bare(row.body) for row in rows]
    else:
        records = []
        for row in sql.governing(connection, container.id, first, last):
            record = parse_bare(row.body)
            if len(records) < _PAGE_RECORDS:
                records.append(record)
            else:  # not of this page: of those only who is to be shown counts
                later |= {record.author, governing_of(record).accessAuthor}
                authors.add(record.author)
        rows = (_stored(connection, container, record.version) for record in records)
    head = parse_record(_stored(connection, container, min(last, container.version)).body)
    shown = _shown(container, user, records, head, later)
    views, size, given = [], 0, 0
    for record, row, names in zip(records, rows, shown, strict=True):
        access, version = None, governing_of(record).accessVersion
        if version != given:
            given = version
            access = _list_view(connection, container.id, version, names, ahead)
            size += len(access.entryHashes) + 160 * len(access.disclosed)
        body = bare_body(row.body) if container.deleted else row.body
        signed = SignedObject.of(Signed(body, row.signature))
        views.append(GoverningView(record=signed, accessList=access))
        size += len(row.body) + len(row.signature)
        if size > PAGE_BYTES:
            break
    return views, authors | {record.author for record in (*records, head)}


def _list_view(
    connection: Connection,
    container_id: bytes,
    version: int,
    names: set[bytes] | None,
    ahead: Ahead,
) -> ListView:
    entries = ahead.lists.get((container_id, version))
    if entries is None:
        found = sql.the(connection, sql.FIND_LIST, container=container_id, number=version)
        entries = found.entries
    whole = StoredList.decode(entries)
    return (whole if names is None else whole.only(names)).view


def _shown(
    container: Row[Any],
    user: SessionUser,
    records: Sequence[ContainerRecord],
    head: ContainerRecord,
    later: set[bytes],
) -> list[set[bytes] | None]:
    """For each record, whose entries its list shows; None for all (container.md, section 4).

    Backwards: the author of a record has to be seen in the list before, and who is seen in a list
    has to be seen in those before it. `later` are those whom records after these show.
    """
    if container.permissions & ContainerAccessLevel.ViewAccess and not container.deleted:
        return [None] * len(records)
    names = {head.author} | later
    if not container.deleted:
        names.add(user.fingerprint)
    shown: list[set[bytes] | None] = []
    for record in reversed(records):
        names = names | {governing_of(record).accessAuthor}
        shown.append(names)
        names = names | {record.author}
    return shown[::-1]


def _stored(connection: Connection, container: Row[Any], version: int) -> Row[Any]:
    """Body and signature of a record; the head's came along with the container."""
    if version == container.version:
        return container
    row = sql.one(connection, sql.FIND_RECORD, container=container.id, number=version)
    if row is None:
        raise NotFoundError("The container has no record of this version.")
    return row


def _head(container: Row[Any]) -> SignedObject | None:
    if container.version == container.governing_version:
        return None
    return SignedObject.of(Signed(container.body, container.signature))


def _skipped(connection: Connection, container: Row[Any], since: int | None) -> list[bytes]:
    if since is None or since >= container.version or container.deleted:
        return []
    rows = connection.execute(
        sql.BODIES,
        {
            "container": container.id,
            "from": since,
            "to": container.version,
            "count": MAX_SKIPPED,
        },
    )
    return [row.body for row in rows if not row.governing]


def _type(container: Row[Any]) -> TypeText | None:
    if container.type_salt is None or not container.permissions & ContainerAccessLevel.ViewType:
        return None
    return TypeText(salt=container.type_salt, type=container.type)


def _inline(
    connection: Connection, container: Row[Any], wanted: set[Role], ahead: Ahead
) -> dict[Role, bytes]:
    """The small ones of the parts that are wanted and may be read."""
    parts = parts_to_serve(container, wanted)
    found = {part_id: ahead.inline[part_id] for part_id in parts if part_id in ahead.inline}
    if missing := parts.keys() - found.keys():
        rows = connection.execute(sql.PARTS_INLINE, {"some": list(missing)})
        found |= {row.part_id: row.inline for row in rows}
    return {parts[part_id]: sealed for part_id, sealed in found.items() if sealed is not None}


def parts_to_serve(container: Row[Any], wanted: set[Role]) -> dict[bytes, Role]:
    """The head's parts that are wanted and may be read, by id."""
    if not wanted or not container.permissions & ContainerAccessLevel.Download:
        return {}
    head = parse_record(container.body)
    return {part.partId: role for role in wanted if (part := head.part(role)) is not None}


def _chains(connection: Connection, authors: set[bytes], ahead: Ahead) -> list[KeyChainState]:
    if missing := authors - ahead.chains.keys():
        ids = [user_id_of(author).bytes for author in missing]
        for row in connection.execute(sql.FIND_USERS, {"ids": ids}):
            ahead.note_chain(row.fingerprint, row.chain_length)
    return [ahead.chains[author] for author in sorted(authors) if author in ahead.chains]


def size_of(view: ContainerView) -> int:
    """About as many bytes as the view takes in an answer."""
    shown = [item.accessList for item in view.governing]
    lists = sum(len(item.entryHashes) + 256 * len(item.disclosed) for item in shown if item)
    records = sum(len(item.record.body) + len(item.record.signature) for item in view.governing)
    skipped = sum(map(len, view.skipped))
    return lists + records + skipped + len(view.header or b"") + len(view.content or b"") + 8192
