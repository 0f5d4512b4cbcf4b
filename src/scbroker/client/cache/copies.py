"""Copy what a session has verified into a cache's folder, and answer from the copies without the broker.

Only verified answers are copied, so a broker that lies cannot replace a good copy. A copy of a container is
the served view, cut down to the head and the governing record in force with its access list: the device's
mark proves the earlier records. If entries of a list are hidden from the reader, the mark is not complete and
each reading judges all governing records again (docs/spec/container.md, section 8): then the copy keeps them
all.

A copy is verified again when it is served, as if a broker served it: by the rules of validity, the authors'
key chains and the device's marks. A request that the copies cannot answer fails with `OfflineError`.

Other users decide how many containers a list has, and how large their headers are. So when the folder is
full, copies of containers that others created are evicted first, with their keys and groups, unless a program
has asked for them by id.
"""

import datetime as dt
import re
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, ClassVar, Final, Self, TypeVar, Unpack, cast

import msgspec
from msgspec.structs import replace

from scbroker import errors
from scbroker.client.arguments import moment, now
from scbroker.client.cache.folder import CacheFolder
from scbroker.client.calls.tasks import io_thread
from scbroker.client.containers.fetching import Fetched, groups_named, mark_of
from scbroker.client.http.requests import Options, Query
from scbroker.client.parts import path_of
from scbroker.client.users.session import Keys, Session
from scbroker.crypto.seal import Octets
from scbroker.crypto.verify import HASH_SIZE, sha256
from scbroker.records.canonical import decoder
from scbroker.records.container_record import (
    SEALED_SEGMENT,
    Part,
    Role,
    check_segment_hashes,
    parse_either,
    parse_record,
)
from scbroker.records.key_record import KeyChain
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.codec import Message, SignedObject
from scbroker.wire.containers import MAX_INLINE, ContainerView, GoverningView
from scbroker.wire.groups import (
    GroupMembership,
    GroupOutcome,
    GroupRecord,
    GroupView,
    GroupViews,
    GroupViewsRequest,
)
from scbroker.wire.parts import Transfers
from scbroker.wire.users import KeyChainState, KeyRecords, KeyRecordsRequest, UserKeyRecords

S = TypeVar("S", bound=msgspec.Struct)
_Served = tuple[bytes, frozenset[bytes], bool, bool]
"""A head's hash, the users who have left the access list (which a departure changes, but not the head), and
whether header and content were served."""
_FRESH_SECONDS: Final = 60.0
"""Seconds after a copy was written in which reading the unchanged container again does not write it again."""
_FRESH: Final = 4096
CONTAINER: Final = "container"
USER: Final = "user"
GROUP: Final = "group"
HASHES: Final = "hashes"
SEGMENT: Final = "segment"


class Copy(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A container as the broker served it. Times are in microseconds since 1970."""

    version: int
    time: int
    """When the broker served it last."""
    expires: int | None
    """When the reader's access ends."""
    download: bool
    """Whether the reader has Download."""
    view: ContainerView
    header: bool
    content: bool
    """True if header and small content were read, at this version or before."""
    part: bytes | None = None
    """The id of a content that is too large for the view."""
    denied: int | None = None
    """When the broker denied the container. Nothing proves the denial, so the copy stays, but is not
    served."""

    def lacks(self, role: Role) -> bool:
        """Return whether the view lacks a small part that the reader may read."""
        body = (self.view.head or self.view.governing[-1].record).body
        part = parse_record(body).part(role)
        if part is None or not self.download:
            return False
        if role is Role.Header:
            return self.view.header is None
        return self.view.content is None and part.paddedLength <= MAX_INLINE


class Chain(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A user's key records."""

    records: list[SignedObject]
    deleted: bool


class GroupCopy(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A group as the broker served it."""

    records: list[GroupRecord]
    """All from version 1 on. Each comes only with what it changes of list, type and roster."""
    keyChains: list[KeyChainState]
    membership: GroupMembership | None = None
    version: int = 0
    """The version of the head with which the membership was served."""

    def with_page(self, view: GroupView) -> Self:
        """Return the group with a page of its records; ignore a page that leaves a gap after known ones."""
        first = parse_either(view.records[0].record.body).record.version
        if first > len(self.records) + 1:
            return self
        records = self.records + view.records[len(self.records) - first + 1 :]
        states = {state.userId: state for state in (*self.keyChains, *view.keyChains)}
        found = replace(self, records=records, keyChains=list(states.values()))
        if view.membership is None:
            return found
        return replace(found, membership=view.membership, version=view.last)

    def view(self, since: int, *, membership: bool) -> GroupView:
        """Return the view that a broker would serve."""
        at = min(since, len(self.records))
        first, *more = self.records[at - 1 :]
        until = self.records[:at]
        lists = [each.accessList for each in until if each.accessList is not None]
        made = [each for each in until if each.type is not None]
        if not parse_either(first.record.body).record.tombstone:
            first = replace(first, accessList=lists[-1], type=made[-1].type, roster=made[-1].roster)
        return GroupView(
            records=[first, *more],
            last=len(self.records),
            keyChains=self.keyChains,
            membership=self.membership if membership else None,
        )


class Copies:
    """The copies of a session's user, which implement `scbroker.client.users.session.Keeper`."""

    def __init__(self, folder: CacheFolder, session: Session) -> None:
        self._session = session
        self.folder: CacheFolder = folder
        self._chains: dict[uuid.UUID, tuple[KeyChain, bool]] = {}
        """Verified chains that are still to be written."""
        self._groups: list[tuple[uuid.UUID, GroupView]] = []
        """Verified pages of groups that are still to be written."""
        self._fresh: OrderedDict[uuid.UUID, tuple[_Served, float]] = OrderedDict()
        """What the copies have that were written last, and when."""
        self._lock = threading.Lock()

    def attach(self) -> None:
        """Copy from now on what the session verifies."""
        self._session.keeper = self
        self._session.directory.keep = self._note_chain
        self._session.groups.keep = lambda group_id, view: self._groups.append((group_id, view))
        self._note_chain(self._session.directory.own, False)

    async def keep_containers(self, outcomes: Mapping[uuid.UUID, object]) -> None:
        new = {key: each for key, each in outcomes.items() if not self._is_fresh(key, each)}
        if new or self._chains or self._groups:
            await io_thread.in_pool(self._keep_containers, new)

    async def keep_part(self, path: str, first: int, octets: Octets) -> None:
        view = memoryview(octets)
        sealed = [view[at : at + SEALED_SEGMENT] for at in range(0, len(view), SEALED_SEGMENT)]

        def keep() -> None:
            for number, segment in enumerate(sealed, first):
                self.folder.write(SEGMENT, segment_key(path, number), segment)

        if self.folder.has(HASHES, path.encode()):  # `keep_hashes` skips content that is too large
            await io_thread.in_pool(keep)

    async def keep_hashes(self, path: str, hashes: bytes) -> None:
        if len(hashes) // HASH_SIZE * SEALED_SEGMENT <= self.folder.largest + SEALED_SEGMENT:
            await io_thread.in_pool(self.folder.write, HASHES, path.encode(), hashes)

    async def keep_chains(self) -> None:
        """Write the chains of users and groups that were verified since the last call."""
        if self._chains or self._groups:
            await io_thread.in_pool(self._keep_chains)

    async def ask(self, ids: Iterable[uuid.UUID]) -> None:
        """Mark copies as requested by a program, with the keys and groups that verify them."""
        new = [each for each in ids if not self.folder.is_asked(CONTAINER, each.bytes)]
        if new:
            await io_thread.in_pool(self._ask, new)

    def _ask(self, ids: Iterable[uuid.UUID]) -> None:
        for each in ids:
            if (copy := self.find(each)) is not None:
                self._use(copy.view)
                self.folder.has(CONTAINER, each.bytes)

    def _use(self, view: ContainerView) -> None:
        """Mark the keys and groups that verify a view as requested, so that they are evicted after it."""
        for item in view.keyChains:
            self.folder.has(USER, uuid.UUID(item.userId).bytes)
        for group in groups_named(view):
            self.folder.has(GROUP, group.bytes)

    def find(self, container_id: uuid.UUID) -> Copy | None:
        """Return the copy of a container; None if the cache has none."""
        return _decoded(self.folder.read(CONTAINER, container_id.bytes), Copy)

    def group(self, group_id: uuid.UUID) -> GroupCopy | None:
        return _decoded(self.folder.read(GROUP, group_id.bytes), GroupCopy)

    def has(self, container_id: uuid.UUID, *, touch: bool = True) -> bool:
        return self.folder.has(CONTAINER, container_id.bytes, touch=touch)

    def has_content(self, container_id: uuid.UUID, copy: Copy) -> bool:
        """Return whether the cache has all of a container's large content."""
        files = [] if copy.part is None else self._files(path_of(container_id.bytes, copy.part))
        return len(files) > 1 and all(self.folder.has(*each) for each in files)

    def _files(self, path: str) -> list[tuple[str, bytes]]:
        """Return kind and key of a large content's files: its hashes, and if these are here, its segments."""
        hashes = self.folder.read(HASHES, path.encode()) or b""
        count = len(hashes) // HASH_SIZE
        segments = [(SEGMENT, segment_key(path, number)) for number in range(count)]
        return [(HASHES, path.encode()), *segments]

    def _remove_content(self, container_id: uuid.UUID, copy: Copy | None) -> None:
        if copy is not None and copy.part is not None:
            for each in self._files(path_of(container_id.bytes, copy.part)):
                self.folder.remove(*each)

    def clear(self) -> None:
        self._fresh.clear()
        self.folder.clear()
        self._session.groups.forget()  # so that groups are fetched again, and copied again
        self._session.directory.keep_all()
        self._keep_chains()

    def _note_chain(self, chain: KeyChain, deleted: bool) -> None:
        self._chains[chain.userId] = chain, deleted

    def _keep_chains(self) -> None:
        chains, self._chains = self._chains, {}
        groups, self._groups = self._groups, []
        for user, (chain, deleted) in chains.items():
            records = [SignedObject.of(signed) for signed in chain.records]
            self._write(USER, user, Chain(records, deleted))
        with self._lock:
            # Write a group once, after merging its pages. Skip a large one: any user can offer a membership
            # in a group with a long history.
            for group in dict.fromkeys(group for group, _ in groups):
                copy = self.group(group) or GroupCopy([], [])
                for view in (view for each, view in groups if each == group):
                    copy = copy.with_page(view)
                is_member = copy.membership is not None and copy.membership.accepted
                if copy.records and len(msgspec.msgpack.encode(copy)) <= self.folder.largest:
                    self._write(GROUP, group, copy, asked=is_member)
                for item in copy.keyChains if is_member else ():
                    self.folder.has(USER, uuid.UUID(item.userId).bytes)

    def _keep_containers(self, outcomes: Mapping[uuid.UUID, object]) -> None:
        # Chains first: after a crash a copy of a container without its author's keys would be useless.
        self._keep_chains()
        self.folder.has(USER, self._session.userId.bytes)  # keeps the user's own keys from eviction
        with self._lock:
            for container_id, outcome in outcomes.items():
                if isinstance(outcome, Fetched):
                    self._keep(container_id, outcome)
                elif isinstance(outcome, errors.DeletedError):  # the tombstone was verified
                    self._remove(container_id)
                elif isinstance(outcome, errors.NotFoundError):
                    self._deny(container_id)

    def _keep(self, container_id: uuid.UUID, fetched: Fetched) -> None:
        served, view, state = fetched.view, _cut(fetched), fetched.state
        _, mark = mark_of(self._session, container_id.bytes)
        if view is None or (mark is not None and mark.version > state.record.version):
            return  # it cannot be served, or a concurrent read verified a newer version
        is_own = state.createdBy == self._session.fingerprint
        is_asked = is_own or self.folder.is_asked(CONTAINER, container_id.bytes)
        if is_asked:  # then keys and groups must not be evicted before the container
            self._use(served)
        before = self.find(container_id)
        content = state.record.part(Role.Content)
        if before is not None:
            view = replace(
                view,
                header=view.header or _same(state.record.part(Role.Header), before.view.header),
                content=view.content or _same(content, before.view.content),
            )
        copy = Copy(
            version=state.record.version,
            time=fetched.time,
            expires=state.own_entry.expiresAt,
            download=state.own_entry.allows(ContainerAccessLevel.Download),
            view=view,
            header=served.header is not None or (before is not None and before.header),
            content=served.content is not None or (before is not None and before.content),
            part=content.partId if content and content.paddedLength > MAX_INLINE else None,
        )
        if before is not None and before.part != copy.part:
            self._remove_content(container_id, before)
        self._write(CONTAINER, container_id, copy, asked=is_asked)
        self._fresh[container_id] = _served(fetched), time.monotonic()
        while len(self._fresh) > _FRESH:
            self._fresh.popitem(last=False)

    def _is_fresh(self, container_id: uuid.UUID, outcome: object) -> bool:
        """Return whether the copy is less than a minute old and has everything that was served now."""
        if (fresh := self._fresh.get(container_id)) is None or not isinstance(outcome, Fetched):
            return False
        (*known, has_header, has_content), when = fresh
        *found, header, content = _served(outcome)
        has_all = has_header >= header and has_content >= content
        return has_all and known == found and time.monotonic() < when + _FRESH_SECONDS

    def _deny(self, container_id: uuid.UUID) -> None:
        self._fresh.pop(container_id, None)
        copy = self.find(container_id)
        if copy is not None and copy.denied is None:
            self._write(CONTAINER, container_id, replace(copy, denied=now()))

    def _remove(self, container_id: uuid.UUID) -> None:
        self._fresh.pop(container_id, None)
        self._remove_content(container_id, self.find(container_id))
        self.folder.remove(CONTAINER, container_id.bytes)

    def _write(self, kind: str, key: uuid.UUID, copy: object, *, asked: bool = False) -> None:
        """Write a copy, marked as requested by a program if the earlier copy was."""
        asked = asked or self.folder.is_asked(kind, key.bytes)
        self.folder.write(kind, key.bytes, msgspec.msgpack.encode(copy), asked=asked)


def _served(fetched: Fetched) -> _Served:
    view, state = fetched.view, fetched.state
    return (
        state.head.hash,
        state.governing.left,
        view.header is not None,
        view.content is not None,
    )


def segment_key(path: str, number: int) -> bytes:
    return f"{path}/{number}".encode()


def _decoded(data: bytes | None, kind: type[S]) -> S | None:
    """Return the content of a file; None without a file, or if another version of this program wrote it."""
    try:
        return None if data is None else decoder(cast(Any, kind)).decode(data)
    except msgspec.DecodeError:
        return None


def _same(part: Part | None, sealed: bytes | None) -> bytes | None:
    """Return the earlier copy's sealed part if its hash matches the new record's part; else None."""
    if part is None or sealed is None:
        return None
    try:
        check_segment_hashes(part, sha256(sealed))
    except errors.IntegrityError:
        return None
    return sealed


def _cut(fetched: Fetched) -> ContainerView | None:
    """Return the view as the cache stores it; None if the cache alone could not verify it.

    With a complete mark, only the governing record in force is stored: the mark proves the earlier ones. If
    the broker hides entries from the reader, all governing records are needed. None also if the view ends
    before the record in force, as the first page of a long history does.
    """
    view, governing = fetched.view, fetched.view.governing
    if _version(governing[-1]) != fetched.state.governing.record.version:
        return None
    if fetched.state.mark.complete:
        governing = [last_governing(governing)]
    elif not is_whole(view):
        return None
    return replace(
        view, governing=governing, skipped=[], recipients=[], groupChains=[], groupRecipients=[]
    )


def last_governing(governing: list[GoverningView]) -> GoverningView:
    """Return the governing record in force with its list, which an earlier record may have brought."""
    lists = [item.accessList for item in governing if item.accessList is not None]
    return replace(governing[-1], accessList=lists[-1])


def is_whole(view: ContainerView) -> bool:
    """Return whether a view has all governing records, from the first one on."""
    return [_version(view.governing[n]) for n in (0, -1)] == [1, view.lastGoverning]


def _version(view: GoverningView) -> int:
    return parse_either(view.record.body).record.version


M = TypeVar("M", bound=Message)
T = TypeVar("T")
_VIEW: Final = re.compile(r"/v1/containers/([0-9a-f-]{36})")
_PART: Final = re.compile(r"(/v1/containers/[0-9a-f-]{36}/parts/[0-9a-f-]{36})/(\w+)")


class OfflineSession(Session):
    """A session whose requests the cache answers. It ends with the session that it was made from."""

    is_offline: ClassVar[bool] = True

    def __init__(self, online: Session, copies: Copies) -> None:
        super().__init__(online.requests, online.keys.ring, online.marks, online.state)
        self.keys: Keys = online.keys
        self._online, self._copies = online, copies
        self._times: dict[uuid.UUID, int] = {}

    async def call(self, method: str, path: str, answer: type[M], **options: Unpack[Options]) -> M:
        """Answer a request from the copies."""
        del method
        query = options.get("query") or {}
        message = options.get("message")
        found: Message | None = None
        if match := _VIEW.fullmatch(path):
            found = await io_thread.in_pool(self._view, uuid.UUID(match[1]), query)
        elif isinstance(message, KeyRecordsRequest):
            found = await io_thread.in_pool(self._key_records, message)
        elif isinstance(message, GroupViewsRequest):
            found = await io_thread.in_pool(self._groups, message)
        elif (match := _PART.fullmatch(path)) and match[2] == "transfers":
            found = Transfers(transfers=[], seconds=0)  # no URLs: `send` returns the segments
        if not isinstance(found, answer):
            raise errors.OfflineError
        return found

    async def send(self, method: str, path: str, **options: Unpack[Options]) -> Octets:
        """Return the hashes or the sealed segments of a content that is in the cache."""
        del method
        match = _PART.fullmatch(path)
        query, target = options.get("query") or {}, options.get("target")
        if match is not None and match[2] == "hashes":
            return await io_thread.in_pool(self._file, HASHES, match[1].encode())
        if match is not None and match[2] == "segments" and target is not None:
            return await io_thread.in_pool(self._segments, match[1], query, target)
        raise errors.OfflineError

    async def settled(self, outcomes: dict[uuid.UUID, T]) -> dict[uuid.UUID, T]:
        """Return the outcomes; a copy that was refused counts as missing from the cache."""
        for container_id, outcome in outcomes.items():
            if isinstance(outcome, errors.UntrustedError):
                refused: Any = errors.OfflineError(
                    f"The cached copy of container {container_id} was refused ({outcome}) and the broker is "
                    "away: read it again when the broker is back."
                )
                outcomes[container_id] = refused
        return outcomes

    def as_of(self, container_id: uuid.UUID) -> dt.datetime | None:
        """Return when the broker served the copy that was read last."""
        found = self._times.get(container_id)
        return None if found is None else moment(found)

    def hold(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Count an operation as under way in the session that this one was made from."""
        return self._online.hold(work)

    def _view(self, container_id: uuid.UUID, query: Query) -> ContainerView:
        copy = self._copies.find(container_id)
        if copy is None:
            raise _missing(f"Container {container_id} is")
        if copy.denied is not None:
            raise errors.NotFoundError(
                f"The broker denied this container on {moment(copy.denied)}, before it went away."
            )
        _, mark = mark_of(self, container_id.bytes)
        if mark is not None and mark.left:
            raise errors.NotFoundError("You left this container.")
        if copy.expires is not None and copy.expires <= now():
            raise errors.NotFoundError(f"Your access ended on {moment(copy.expires)}.")
        view, since = copy.view, query.get("since")
        is_known = since == str(copy.version)
        if is_known:
            view = replace(view, governing=[last_governing(view.governing)])
        if not is_known and (since is not None or not is_whole(view)):
            raise errors.OfflineError(
                f"The cached copy of container {container_id} is version {copy.version}, which does not fit "
                "what this device has verified of it, and the broker is away: read it again when it is back."
            )
        for role in Role:
            if role.name.lower() in query and copy.lacks(role):
                raise _missing(f"The {role.name.lower()} of container {container_id} is")
        for item in view.keyChains:
            if not self._copies.folder.has(USER, uuid.UUID(item.userId).bytes):
                raise _missing(f"The keys of user {item.userId}, who wrote {container_id}, are")
        self._times[container_id] = copy.time
        header = view.header if "header" in query else None
        return replace(view, header=header, content=view.content if "content" in query else None)

    def _key_records(self, message: KeyRecordsRequest) -> KeyRecords:
        users = []
        for asked in message.users:
            stored = self._copies.folder.read(USER, uuid.UUID(asked.userId).bytes)
            chain = _decoded(stored, Chain)
            if chain is None:
                raise _missing(f"The keys of user {asked.userId} are")
            records = chain.records[asked.from_ :]
            users.append(
                UserKeyRecords(userId=asked.userId, keyRecords=records, deleted=chain.deleted)
            )
        return KeyRecords(users=users)

    def _groups(self, message: GroupViewsRequest) -> GroupViews:
        outcomes = []
        for asked in message.groups:
            copy = self._copies.group(uuid.UUID(asked.groupId))
            # The membership has to be as of the group's head.
            if copy is None or (asked.membership and copy.version != len(copy.records)):
                raise _missing(f"The present members and keys of group {asked.groupId} are")
            view = copy.view(asked.since, membership=asked.membership)
            outcomes.append(GroupOutcome(view=view, problem=None))
        return GroupViews(groups=outcomes)

    def _segments(self, path: str, query: Query, target: memoryview) -> memoryview:
        """Read segments into a buffer; return the part that was filled."""
        size, first = 0, int(str(query["first"]))
        for number in range(first, first + int(str(query["count"]))):
            segment = self._file(SEGMENT, segment_key(path, number))[:SEALED_SEGMENT]
            target[size : size + len(segment)] = segment
            size += len(segment)
        return target[:size]

    def _file(self, kind: str, key: bytes) -> bytes:
        found = self._copies.folder.read(kind, key)
        if found is None:
            raise _missing("A part of this content is")
        return found


def _missing(what: str) -> errors.OfflineError:
    return errors.OfflineError(
        f"{what} not in the cache, and the broker is away: read it when the broker is back."
    )
