"""Serve containers to their readers: one, several by their ids, or a page of those that a user has access to.

Spec: docs/spec/protocol.md, section 5; container.md, 4 and 8; groups.md, 12.

A reader gets what they need to judge the head, and no entry of an access list beyond what they may see. In a
batch each container is answered as it would be alone, with a view or a problem of its own.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.crypto.verify import HASH_SIZE
from scbroker.errors import BrokerError, ConflictError, InvalidArgumentError, NotFoundError
from scbroker.records import container_record as grammar
from scbroker.records.canonical import ContainerId, UserId, parse_uuid, stored_user_id, user_id_of
from scbroker.records.container_record import ContainerRecord, Role
from scbroker.records.judge import governing_of
from scbroker.records.key_record import Signed
from scbroker.records.roster import LAST_EPOCH
from scbroker.server import metrics
from scbroker.server.broker import SECOND, Broker, Call, check_unexpired, not_found
from scbroker.server.containers.members import (
    StoredList,
    access_actor_of,
    actor_of,
    chain_state,
    departures_from,
    group_ids_of,
    leaver_of,
)
from scbroker.server.events import log
from scbroker.server.groups import memberships
from scbroker.server.groups.memberships import Group, Proofs, state_of
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire import containers as wire
from scbroker.wire.containers import ViewOutcome, ViewRequest, ViewsAnswer, ViewsRequest
from scbroker.wire.problems import ItemProblem, item_problem_of
from scbroker.wire.rosters import GroupState
from scbroker.wire.users import KeyChainState

_DELETED: Final = "The container was deleted meanwhile: read it again."
_CHANGED: Final = "The container was changed meanwhile: read it again."
_PAGING: Final = 15 * 60 * SECOND
_FEW_VERSIONS: Final = 8
_ANY_INDEX: Final = LAST_EPOCH + 1
_READ_AT_ONCE: Final = 16
"""Containers of a batch whose rows are in memory at once."""
_PAGE_RECORDS: Final = wire.PAGE_BYTES // 3000
"""More records than fit on a page: the signature of each has more than 3,300 bytes."""

Query = wire.ViewQuery | ViewRequest
Asked = tuple[ContainerId, Query]
ViewOrError = wire.ContainerView | BrokerError

_SHORT_LIST: Final = 65_536
GOVERNING_AT: Final = sa.select(sa.func.max(t.records.c.version)).where(
    sql.of(t.records, "container"), t.records.c.governing, t.records.c.version <= b("number")
)
_LIST_IN_FORCE: Final = sql.of_its_container(
    t.access_lists, t.access_lists.c.access_version == t.containers.c.access_version
)
# The access list in force of each container.
LISTS_IN_FORCE: Final = (
    sa.select(t.access_lists).join(t.containers, _LIST_IN_FORCE).where(sql.among(t.containers.c.id))
)
_FROM_LIST_IN_FORCE: Final = sql.of_its_container(
    t.departures, t.departures.c.access_version == t.containers.c.access_version
)
# The departures from the access list in force of each container.
DEPARTURES_IN_FORCE: Final = (
    sa.select(t.departures)
    .join(t.containers, _FROM_LIST_IN_FORCE)
    .where(sql.among(t.containers.c.id))
)
_GOVERNING_HEAD: Final = t.records.alias("governing")
_CREATOR: Final = t.users.alias("creator")
_ONE_PART: Final = t.parts.alias("one_part")
_OTHER_PART: Final = t.parts.alias("other_part")


def _in_force(first: Any) -> Any:
    """Return a subquery for the first part that the head references; it is empty unless `wanted`."""
    found = sa.select(t.parts.c.part_id).where(
        sql.of(t.parts, "container"),
        t.parts.c.committed,
        t.parts.c.replaced_at.is_(None),
        b("wanted", type_=sa.Boolean()),
    )
    return found.order_by(first).limit(1).scalar_subquery()


# Everything that a view of the head may contain: the governing record if it is another one, the access list
# if it is short, the lengths of the reader's and the creator's key chains, and the bytes of inline parts.
CONTAINER_AT_ONCE: Final = (
    sql.with_member(b("container"))
    .add_columns(
        _GOVERNING_HEAD.c.body.label("governing_body"),
        _GOVERNING_HEAD.c.signature.label("governing_signature"),
        t.access_lists.c.entries,
        sa.exists().where(_FROM_LIST_IN_FORCE).label("somebody_left"),
        sa.select(t.users.c.chain_length)
        .where(t.users.c.id == b("user"))
        .scalar_subquery()
        .label("chain_length"),
        _CREATOR.c.fingerprint.label("creator"),
        _CREATOR.c.chain_length.label("creator_chain_length"),
        _ONE_PART.c.part_id.label("one"),
        _ONE_PART.c.inline.label("one_inline"),
        _OTHER_PART.c.part_id.label("other"),
        _OTHER_PART.c.inline.label("other_inline"),
    )
    .outerjoin(_CREATOR, _CREATOR.c.id == t.containers.c.creator_id)
    .outerjoin(_ONE_PART, _ONE_PART.c.part_id == _in_force(t.parts.c.part_id))
    .outerjoin(_OTHER_PART, _OTHER_PART.c.part_id == _in_force(t.parts.c.part_id.desc()))
    .outerjoin(
        _GOVERNING_HEAD,
        sql.of_its_container(
            _GOVERNING_HEAD,
            _GOVERNING_HEAD.c.version == t.containers.c.governing_version,
            t.containers.c.governing_version != t.containers.c.version,
        ),
    )
    .outerjoin(
        t.access_lists,
        sa.and_(_LIST_IN_FORCE, sa.func.length(t.access_lists.c.entries) <= _SHORT_LIST),
    )
    .where(t.containers.c.id == b("container"))
)
CONTAINERS_AND_MEMBER: Final = sql.with_member(t.containers.c.id).where(
    sql.among(t.containers.c.id)
)
# Members whose wrap of the container key is for a key that they have replaced.
MOVED_RECIPIENTS: Final = (
    sa.select(t.users.c.id, t.users.c.chain_length)
    .join(t.members, t.members.c.user_id == t.users.c.id)
    .where(
        sql.of(t.members, "container"),
        t.members.c.wrap.is_not(None),
        t.members.c.key_index < t.users.c.encryption_index,
        ~t.users.c.deleted,
        sql.IS_USER,
    )
    .order_by(t.users.c.id)
)
# Groups with a wrap of the container key, and the epoch that it is for. A deleted group keeps its last epoch.
GROUPS_WITH_WRAP: Final = (
    sa.select(
        t.users.c.id, t.users.c.group_version, t.users.c.encryption_index, t.members.c.key_index
    )
    .join(t.members, t.members.c.user_id == t.users.c.id)
    .where(sql.of(t.members, "container"), t.members.c.wrap.is_not(None), ~sql.IS_USER)
    .order_by(t.users.c.id)
)
# A user's containers in the order of ids. LISTED_OF_TYPE finds only containers whose type the user may see.
# `below` limits the key index of the entry: for a group, to epochs that have ended.
LISTED_CONTAINERS: Final = sql.after(
    t.members.c.container_id, "user", t.LISTED, sql.UNEXPIRED, t.members.c.key_index < b("below")
)
LISTED_OF_TYPE: Final = LISTED_CONTAINERS.where(t.members.c.type == b("type"))


async def view(broker: Broker, call: Call, query: wire.ViewQuery) -> wire.ContainerView:
    """Serve a container from its first record on, or from the version of the reader's mark."""

    at_once = await broker.database.query(lambda c: _view_at_once(c, call, query))
    found: ViewOrError
    if not isinstance(at_once, int):
        found = at_once
    else:
        # Usually few versions follow the mark. A long history is read in a thread, not on the event loop.
        is_long = query.since is None or at_once - query.since > _FEW_VERSIONS
        [found] = await broker.database.read(
            lambda c: views_of(c, call, [(call.container_id, query)]), large=is_long
        )
    if isinstance(found, BrokerError):
        raise found
    _note_access(broker, call, call.container_id, found)
    return found


async def read_views(broker: Broker, call: Call, message: ViewsRequest) -> ViewsAnswer:
    """Return the first of the containers, at least one and about PAGE_BYTES in all."""
    asked = [(ContainerId(parse_uuid(item.containerId).bytes), item) for item in message.views]
    found = await broker.database.read(lambda c: views_of(c, call, asked), large=True)
    answers = (
        outcome_of(broker, call, container_id, result)
        for (container_id, _), result in zip(asked, found, strict=False)
    )
    return ViewsAnswer(views=[ViewOutcome(view=view, problem=problem) for view, problem in answers])


async def list_containers(
    broker: Broker, call: Call, message: wire.ListRequest
) -> wire.ContainerList:
    """Return a page of the containers that the user may read with this `via`, by id, of about PAGE_BYTES."""
    since = {parse_uuid(item.containerId).bytes: item.since for item in message.known}
    limit, header, via = message.limit, int(message.header), message.via
    if via is None and message.stale:
        raise InvalidArgumentError("stale needs a via: name the group in via.")

    def read(connection: Connection) -> tuple[list[ContainerId], Sequence[ViewOrError | None]]:
        ids = _listed(connection, call, message)
        if message.stale:  # for a client that renews them, and reads each before it writes
            return ids, [None] * len(ids[:limit])
        queries = [wire.ViewQuery(since=since.get(each), header=header, via=via) for each in ids]
        return ids, views_of(connection, call, [*zip(ids, queries, strict=True)][:limit])

    ids, found = await broker.database.read(read, large=True)
    listed = []
    for container_id, result in zip(ids, found, strict=False):
        view, problem = outcome_of(broker, call, container_id, result)
        name = str(UUID(bytes=container_id))
        listed.append(wire.ListedContainer(containerId=name, view=view, problem=problem))
    following = listed[-1].containerId if len(listed) < len(ids) else None
    return wire.ContainerList(containers=listed, next=following)


def _listed(connection: Connection, call: Call, message: wire.ListRequest) -> list[ContainerId]:
    """Return the ids of a page, and one more if others follow."""
    last = b"" if message.after is None else parse_uuid(message.after).bytes
    values: dict[str, Any] = {
        "now": call.now,
        "last": last,
        "count": message.limit + 1,
        "below": _ANY_INDEX,
    }
    if message.via is None:
        groups = connection.execute(sql.ACCEPTED_GROUPS, {"user": call.session.id}).scalars()
        holders = [call.session.id, *groups]
    else:
        group_id = parse_uuid(message.via).bytes
        holders = [group_id]
        epoch = memberships.check(connection, group_id, call.session.id).epoch
        values["below"] = epoch if message.stale else _ANY_INDEX
    statement = LISTED_CONTAINERS
    if message.type is not None:
        statement, values["type"] = LISTED_OF_TYPE, message.type
    # Read a page for each holder: one statement for all of them would sort all containers of the user.
    pages = [connection.execute(statement, {**values, "user": each}).scalars() for each in holders]
    return sorted(set().union(*pages))[: message.limit + 1]


def outcome_of(
    broker: Broker, call: Call, container_id: ContainerId, result: ViewOrError | None
) -> tuple[wire.ContainerView | None, ItemProblem | None]:
    """Return the view or the problem of one of several containers; record a fetch of its parts."""
    if isinstance(result, BrokerError):
        metrics.count_problem(result)
        return None, item_problem_of(result)
    if result is not None:
        _note_access(broker, call, container_id, result)
    return result, None


def _view_at_once(
    connection: Connection, call: Call, query: wire.ViewQuery
) -> wire.ContainerView | int:
    """Return the view if one statement reads all of it; else the head's version: the caller needs a snapshot.

    The proof that the head's author was a member of a group never changes, so a cached one can be used. If it
    is not cached, or the governing record was made through a group, proofs are read in the snapshot of the
    records.
    """
    since, wanted = query.since, bool(query.header or query.content)
    values = {**_named(call, query.via), "container": call.container_id, "wanted": wanted}
    row = check_unexpired(sql.one(connection, CONTAINER_AT_ONCE, **values), call.now)
    first_is_in_force = since is None and row.governing_version == 1
    is_whole = row.entries is not None and not row.somebody_left
    if not is_whole or not (first_is_in_force or since == row.version):
        return int(row.version)
    answer = _Answer(connection, call)
    head = grammar.parse_either(row.body).record
    governing = head
    if row.governing_body is not None:
        governing = grammar.parse_either(row.governing_body).record
        answer.governing = Signed(row.governing_body, row.governing_signature)
    is_proved = head.via is None or answer.groups.is_known(head.via)
    if governing.via is not None or not is_proved:
        return int(row.version)
    answer.lists[row.id, row.access_version] = row.entries
    answer.departures = {}
    answer.inline = {row.one: row.one_inline, row.other: row.other_inline}
    answer.add_chain(call.session.fingerprint, row.chain_length)
    if row.creator is not None:
        answer.add_chain(row.creator, row.creator_chain_length)
    return _Served(answer, row).view(query)


def views_of(
    connection: Connection, call: Call, asked: Sequence[Asked]
) -> list[wire.ContainerView | BrokerError]:
    """Return a view or an error for each of the first of these containers, about PAGE_BYTES in all."""
    found: list[wire.ContainerView | BrokerError] = []
    size, answer = 0, _Answer(connection, call)
    groups = answer.groups
    for start in range(0, len(asked), _READ_AT_ONCE):
        some = asked[start : start + _READ_AT_ONCE]
        rows = answer.prefetch(some)
        for container_id, query in some:
            try:
                row = check_unexpired(rows.get((container_id, query.via)), call.now)
                view = _Served(answer, row).view(query)
            except BrokerError as error:
                found.append(error)
                continue
            found.append(view)
            size += _size_of(view)
            if size > wire.PAGE_BYTES or groups.is_spent:
                return found
    return found


def _note_access(
    broker: Broker, call: Call, container_id: ContainerId, view: wire.ContainerView
) -> None:
    """Note a fetch of header or content, unless the reader is the only one with access."""
    if view.header is None and view.content is None:
        return
    last = view.governing[-1]
    # A page may end before the list in force: then others may have got access since.
    is_whole = grammar.parse_either(last.record.body).record.version == view.lastGoverning
    access = last.accessList
    is_alone = access is not None and len(access.entryHashes) == HASH_SIZE and not view.groups
    if not (is_whole and is_alone):
        log.note_access(broker, call, container_id)


async def governing_page(
    broker: Broker, call: Call, query: wire.GoverningQuery
) -> wire.GoverningPage:
    """Serve a page of governing records, as they were when `to` was the version of the head."""

    def read(connection: Connection) -> wire.GoverningPage:
        served = _readable(connection, call, query.via)
        container = served.row
        if query.to < container.version:
            if container.deleted:
                raise ConflictError(_DELETED)
            # The pages disclose the entry of this former head's author: serve them for a limited time only.
            after = grammar.parse_record(served.stored(query.to + 1).body)
            if after.time < call.now - _PAGING:
                raise ConflictError(_CHANGED)
        governing, _ = served.governing(query.from_, query.to)
        return wire.GoverningPage(governing=governing)

    return await broker.database.read(read, large=True)


async def bodies(broker: Broker, call: Call, query: wire.BodiesQuery) -> wire.Bodies:
    """Serve the bodies of consecutive records, for a reader whose mark is many versions old."""

    def read(connection: Connection) -> list[bytes]:
        served = _readable(connection, call, query.via)
        if served.row.deleted:
            raise ConflictError(_DELETED)
        return [row.body for row in served.bodies(query.from_, sql.LATEST, query.count)]

    return wire.Bodies(bodies=await broker.database.read(read, large=True))


def _named(call: Call, via: str | None, *, own: bool = False) -> dict[str, Any]:
    """Return the parameters that say by which entry the user reads.

    Without a `via` it is the user's own entry or, unless `own`, that of a group that the broker chooses.
    """
    if via is not None and parse_uuid(via).bytes == call.session.id:
        raise not_found()  # a user's id in place of a group's
    named = call.session.id if own else None
    if via is not None:
        named = UserId(parse_uuid(via).bytes)
    return {"user": call.session.id, "named": named, "now": call.now}


def _readable(connection: Connection, call: Call, via: str | None) -> "_Served":
    """Return the container that the path names; raise `NotFoundError` without access."""
    values = {**_named(call, via, own=True), "container": call.container_id}
    row = check_unexpired(sql.one(connection, sql.CONTAINER_AND_MEMBER, **values), call.now)
    return _Served(_Answer(connection, call), row)


class _Answer:
    """Rows that the views of one answer share, read at once in the same snapshot."""

    def __init__(self, connection: Connection, call: Call) -> None:
        self.connection, self.call = connection, call
        self.groups = Proofs(connection, call.session.id)
        self.chains: dict[bytes, KeyChainState] = {}
        """The numbers of users' key records, by fingerprint."""
        self.lists: dict[tuple[bytes, int], bytes] = {}
        """Stored access lists by container and version."""
        self.departures: dict[tuple[bytes, int], list[Signed]] | None = None
        """The departures from the access lists in force, likewise; None if they were not read."""
        self.inline: dict[bytes, bytes | None] = {}
        """Sealed parts that are wanted, by id."""
        self.governing: Signed | None = None
        """The governing record in force of the only container, if the head is another record."""

    def add_chain(self, fingerprint: bytes, length: int) -> None:
        self.chains[fingerprint] = chain_state(stored_user_id(fingerprint), length)

    def prefetch(self, asked: Sequence[Asked]) -> dict[tuple[bytes, str | None], Row]:
        """Read present access lists and wanted parts in place of those before; return the containers' rows.

        They are those to which the reader has access, by id and by the group that the reader named.
        """
        connection, found = self.connection, dict[tuple[bytes, str | None], Row]()
        for via in {query.via for _, query in asked}:
            ids = [container_id for container_id, query in asked if query.via == via]
            rows = connection.execute(
                CONTAINERS_AND_MEMBER, {**_named(self.call, via), "some": ids}
            )
            found |= {(row.id, via): row for row in rows}
        self.lists, self.departures, self.inline = {}, {}, {}
        if found:
            some = {"some": sorted({container_id for container_id, _ in found})}
            for row in connection.execute(LISTS_IN_FORCE, some):
                self.lists[row.container_id, row.access_version] = row.entries
            for row in connection.execute(DEPARTURES_IN_FORCE, some):
                left = self.departures.setdefault((row.container_id, row.access_version), [])
                left.append(Signed(row.body, row.signature))
        wanted: set[bytes] = set()
        for container_id, query in asked:
            if (container_id, query.via) in found:
                wanted |= _parts_to_serve(found[container_id, query.via], query).keys()
        if wanted:
            for row in connection.execute(sql.PARTS_INLINE, {"some": list(wanted)}):
                self.inline[row.part_id] = row.inline
        return found


class _Served:
    """A container as it is served to a reader with access."""

    def __init__(self, answer: _Answer, row: Row) -> None:
        """`row` has the columns of the container, its head and the reader's access."""
        self.answer, self.row = answer, row
        self.connection, self.groups = answer.connection, answer.groups
        self.reader: bytes = row.through or answer.call.session.fingerprint
        """The name in the entry that serves the reader: the reader's fingerprint, or that of a group."""
        if row.through is not None:
            group = Group(stored_user_id(row.through), row.group_version, row.encryption_index)
            self.groups.add(group, is_managed=row.managing > 0)

    def view(self, query: Query) -> wire.ContainerView:
        row, since = self.row, query.since
        governing, authors = self.governing(self._first_governing(since), row.version)
        head = wire.SignedRecord.of(Signed(row.body, row.signature))
        record = grammar.parse_either(row.body).record
        has_head, skipped = row.version != row.governing_version, self._skipped(since)
        proof = None
        if has_head and record.via is not None:
            proof = self.groups.of(record.via, record.author)
        parts = _parts_to_serve(row, query)
        inline = {role: self.answer.inline.get(part_id) for part_id, role in parts.items()}
        shows_type = row.type_salt is not None and row.permissions & ContainerAccessLevel.ViewType
        # The groups that the answer's vias name, and the one whose entry gives the reader access.
        bodies = [*(item.record.body for item in governing), *skipped, row.body]
        vias = (grammar.parse_either(body).record.via for body in bodies)
        named = {via.group for via in vias if via} | ({row.through} if row.through else set())
        return wire.ContainerView(
            governing=governing,
            lastGoverning=row.governing_version,
            head=head if has_head else None,
            skipped=skipped,
            wrap=row.wrap,
            type=wire.TypeText(salt=row.type_salt, type=row.type) if shows_type else None,
            header=inline.get(Role.Header),
            content=inline.get(Role.Content),
            keyChains=self._chains(authors),
            recipients=self._moved_recipients() if query.recipients else [],
            via=None if row.through is None else str(user_id_of(row.through)),
            headMembership=proof,
            groupChains=self.groups.states(set(map(stored_user_id, named))),
            groups=self._disclosed_groups(governing),
            groupRecipients=self._moved_groups() if query.recipients else [],
        )

    def _disclosed_groups(self, governing: Sequence[wire.GoverningView]) -> list[str]:
        """Return which of the disclosed names of the list in force are groups."""
        stored = group_ids_of(self.row)
        if not stored:
            return []
        shown = [item.accessList for item in governing if item.accessList is not None]
        last = grammar.parse_either(governing[-1].record.body).record
        if governing_of(last).accessVersion != self.row.access_version or not shown:
            return []
        names = (grammar.parse_entry(item.entry).fingerprint for item in shown[-1].disclosed)
        disclosed = set(map(stored_user_id, names)) & {*stored}
        return [str(UUID(bytes=each)) for each in sorted(disclosed)]

    def _moved_groups(self) -> list[GroupState]:
        """Return groups whose wrap is of an older epoch, or that the reader manages and that owe an epoch."""
        row = self.row
        if row.groups is None or row.deleted or not row.permissions & ContainerAccessLevel.Upload:
            return []
        rows = self.connection.execute(GROUPS_WITH_WRAP, {"container": row.id}).all()
        owing = self.groups.owing([each.id for each in rows])
        return [
            state_of(each, owed=each.id in owing)
            for each in rows
            if each.key_index < each.encryption_index or each.id in owing
        ]

    def _first_governing(self, since: int | None) -> int:
        """Return the version of the governing record that was in force at a mark; 1 without a mark."""
        if since is None:
            return 1
        if since >= self.row.governing_version:
            return int(self.row.governing_version)
        values = {"container": self.row.id, "number": since}
        return int(self.connection.execute(GOVERNING_AT, values).scalar_one() or 1)

    def governing(self, first: int, last: int) -> tuple[list[wire.GoverningView], set[bytes]]:
        """Return a page of governing records with their lists, and the signers whose keys a reader needs.

        A page has about PAGE_BYTES, and at least one record. It also ends where proofs of membership cost
        too much.
        """
        container = self.row
        rows: Iterable[Row | Signed]
        later: set[bytes] = set()
        authors: set[bytes] = set()
        if first == container.governing_version <= last:
            rows = [self.answer.governing or self.stored(first)]
            records = [grammar.parse_either(row.body).record for row in rows]
        else:
            records = []
            for row in sql.governing(self.connection, container.id, first, last):
                record = grammar.parse_either(row.body).record
                if len(records) < _PAGE_RECORDS:
                    records.append(record)
                else:  # on a later page; but this page's lists disclose the author's entry too
                    later |= {actor_of(record), access_actor_of(record)}
                    authors.add(record.author)
            rows = (self.stored(record.version) for record in records)
        head = grammar.parse_record(self.stored(min(last, container.version)).body)
        disclosed = self._disclosed_users(records, head, later)
        views, size, last_list = [], 0, 0
        for record, row, names in zip(records, rows, disclosed, strict=True):
            access, version = None, governing_of(record).accessVersion
            if version != last_list:
                last_list = version
                access = self._list_view(version, names)
                size += _size_of_list(access)
                authors |= {leaver_of(item.signed) for item in access.departures}
            body = grammar.parse_either(row.body).bare if container.deleted else row.body
            proof = standing = None
            if record.via is not None:
                proof = self.groups.of(record.via, record.author)
                if record.changes_access:
                    standing = self.groups.standing(record.via, record.author)
            signed = wire.SignedRecord.of(Signed(body, row.signature))
            views.append(
                wire.GoverningView(
                    record=signed, accessList=access, membership=proof, standing=standing
                )
            )
            size += len(row.body) + len(row.signature)
            if size > wire.PAGE_BYTES or self.groups.is_spent:
                break
        return views, authors | {record.author for record in (*records, head)}

    def _list_view(self, version: int, names: set[bytes] | None) -> wire.ListView:
        entries = self.answer.lists.get((self.row.id, version))
        if entries is None:
            values = {"container": self.row.id, "number": version}
            entries = sql.the(self.connection, sql.FIND_LIST, **values).entries
        known = self.answer.departures
        if known is not None and version == self.row.access_version:
            left = known.get((self.row.id, version), [])
        else:
            left = departures_from(self.connection, self.row.id, version)
        whole = StoredList.decode(entries)
        shown = whole if names is None else whole.only(names)
        return shown.view({leaver_of(signed): signed for signed in left})

    def _disclosed_users(
        self, records: Sequence[ContainerRecord], head: ContainerRecord, later: set[bytes]
    ) -> list[set[bytes] | None]:
        """Return for each record the names whose entries its list discloses; None for all (container.md, 4).

        It is computed backwards: the author of a record, or the group for which they acted, must be disclosed
        in the list before it, and a name that is disclosed in one list must be disclosed in all earlier ones.
        `later` are the names that the records after these ones disclose.
        """
        container = self.row
        if container.permissions & ContainerAccessLevel.ViewAccess and not container.deleted:
            return [None] * len(records)
        names = {actor_of(head)} | later
        if not container.deleted:
            names.add(self.reader)
        disclosed: list[set[bytes] | None] = []
        for record in reversed(records):
            names = names | {access_actor_of(record)}
            disclosed.append(names)
            names = names | {actor_of(record)}
        return disclosed[::-1]

    def stored(self, version: int) -> Row:
        """Return a row with body and signature of a record; the container's row has those of the head."""
        if version == self.row.version:
            return self.row
        values = {"container": self.row.id, "number": version}
        row = sql.one(self.connection, sql.FIND_RECORD, **values)
        if row is None:
            raise NotFoundError(f"The container has no record of version {version}.")
        return row

    def bodies(self, first: int, end: int, count: int) -> Iterable[Row]:
        values = {"container": self.row.id, "from": first, "to": end, "count": count}
        return self.connection.execute(sql.BODIES, values)

    def _skipped(self, since: int | None) -> list[bytes]:
        if since is None or since >= self.row.version or self.row.deleted:
            return []
        rows = self.bodies(since, self.row.version, wire.MAX_SKIPPED)
        return [row.body for row in rows if not row.governing]

    def _chains(self, authors: set[bytes]) -> list[KeyChainState]:
        known = self.answer.chains
        if missing := authors - known.keys():
            ids = [stored_user_id(author) for author in missing]
            for row in self.connection.execute(sql.FIND_USERS, {"ids": ids}):
                self.answer.add_chain(row.fingerprint, row.chain_length)
        return [known[author] for author in sorted(authors) if author in known]

    def _moved_recipients(self) -> list[KeyChainState]:
        """Return the chains of members with a newer key than the one that their wrap is for (rule 5)."""
        if self.row.deleted or not self.row.permissions & ContainerAccessLevel.Upload:
            return []
        rows = self.connection.execute(MOVED_RECIPIENTS, {"container": self.row.id})
        return [chain_state(row.id, row.chain_length) for row in rows]


def _parts_to_serve(container: Row, query: Query) -> dict[bytes, Role]:
    """Return the head's parts that are wanted and that the reader may download, by id."""
    asked = {Role.Header: query.header, Role.Content: query.content}
    wanted = [role for role in asked if asked[role]]
    if not wanted or not container.permissions & ContainerAccessLevel.Download:
        return {}
    head = grammar.parse_record(container.body)
    return {part.partId: role for role in wanted if (part := head.part(role)) is not None}


def _size_of_list(served: wire.ListView) -> int:
    """Return about how many bytes a list with its departures takes in an answer."""
    departures = wire.DEPARTURE_SIZE * len(served.departures)
    return len(served.entryHashes) + 256 * len(served.disclosed) + departures


def _size_of(view: wire.ContainerView) -> int:
    """Return about how many bytes the view takes in an answer."""
    shown = [item.accessList for item in view.governing]
    lists = sum(_size_of_list(item) for item in shown if item)
    records = sum(len(item.record.body) + len(item.record.signature) for item in view.governing)
    skipped = sum(map(len, view.skipped))
    return lists + records + skipped + len(view.header or b"") + len(view.content or b"") + 8192
