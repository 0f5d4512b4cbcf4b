"""Answer a session's requests from the copies of a cache, in the broker's place.

The session verifies these answers like a broker's: by the rules of validity, the authors' key chains and the
device's marks. A request that the copies cannot answer fails with `OfflineError`.
"""

import datetime as dt
import re
import uuid
from collections.abc import Coroutine
from typing import Any, ClassVar, Final, TypeVar, Unpack

from msgspec.structs import replace

from scbroker import errors
from scbroker.client.arguments import moment, now
from scbroker.client.cache.copies import (
    HASHES,
    SEGMENT,
    USER,
    Copies,
    is_whole,
    last_governing,
    segment_key,
)
from scbroker.client.calls.io_thread import io_thread
from scbroker.client.containers.fetching import mark_of
from scbroker.client.http.requests import Options, Query
from scbroker.client.users.session import Keys, Session
from scbroker.crypto.seal import Octets
from scbroker.records.container_record import SEALED_SEGMENT, Role
from scbroker.wire.codec import Message
from scbroker.wire.containers import ContainerView
from scbroker.wire.groups import GroupOutcome, GroupViews, GroupViewsRequest
from scbroker.wire.parts import Transfers
from scbroker.wire.users import KeyRecords, KeyRecordsRequest, UserKeyRecords

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
            raise errors.OfflineError(
                f"Container {container_id} is not in the cache and the broker is away: read it when the "
                "broker is back."
            )
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
                raise errors.OfflineError(
                    f"The {role.name.lower()} of container {container_id} is not in the cache and the broker "
                    "is away: read it when the broker is back."
                )
        for item in view.keyChains:
            if not self._copies.folder.has(USER, uuid.UUID(item.userId).bytes):
                raise errors.OfflineError(
                    f"The cache lacks the keys of user {item.userId}, who wrote container {container_id}, "
                    "and the broker is away: read it when the broker is back."
                )
        self._times[container_id] = copy.time
        header = view.header if "header" in query else None
        return replace(view, header=header, content=view.content if "content" in query else None)

    def _key_records(self, message: KeyRecordsRequest) -> KeyRecords:
        users = []
        for asked in message.users:
            chain = self._copies.chain(uuid.UUID(asked.userId))
            if chain is None:
                raise errors.OfflineError(
                    f"The keys of user {asked.userId} are not in the cache and the broker is away: ask when "
                    "the broker is back."
                )
            records = chain.records[asked.from_ :]
            users.append(
                UserKeyRecords(userId=asked.userId, keyRecords=records, deleted=chain.deleted)
            )
        return KeyRecords(users=users)

    def _groups(self, message: GroupViewsRequest) -> GroupViews:
        outcomes = []
        for asked in message.groups:
            copy = self._copies.group(uuid.UUID(asked.groupId))
            if copy is None or (asked.membership and not copy.has_membership):
                raise errors.OfflineError(
                    f"The cache lacks the present members and keys of group {asked.groupId}, and the broker "
                    "is away: read the group when the broker is back."
                )
            view = copy.view(asked.since, membership=asked.membership)
            outcomes.append(GroupOutcome(view=view, problem=None))
        return GroupViews(groups=outcomes)

    def _segments(self, path: str, query: Query, target: memoryview) -> memoryview:
        """Read segments into a buffer; return the part that was filled."""
        size = 0
        for number in range(
            int(str(query["first"])), int(str(query["first"])) + int(str(query["count"]))
        ):
            segment = self._file(SEGMENT, segment_key(path, number))[:SEALED_SEGMENT]
            target[size : size + len(segment)] = segment
            size += len(segment)
        return target[:size]

    def _file(self, kind: str, key: bytes) -> bytes:
        found = self._copies.folder.read(kind, key)
        if found is None:
            raise errors.OfflineError(
                "The cache does not have all of this content and the broker is away: read it when the broker "
                "is back."
            )
        return found
