"""Keep a document in a container that the user alone has access to, the same on all of the user's devices.

A device finds the container by its type, because a fresh device knows nothing else of it. Anybody may share a
container of that type with the user, so the client uses one only if this user created it, alone has access to
it, and wrote it. Two devices may create one at the same moment: the entries of both are then moved into the
one with the lowest id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from scbroker import errors
from scbroker.client.calls.io_thread import io_thread
from scbroker.client.calls.operation import Promise
from scbroker.client.provider import BrokerProvider
from scbroker.records.canonical import json_decoder
from scbroker.types import Container

D = TypeVar("D", bound=msgspec.Struct)
T = TypeVar("T")
Merge = Callable[[D, D], D]
_log = logging.getLogger("scbroker")
_ATTEMPTS: Final = 16
_VERSION: Final = 1
# Errors that the broker alone can cause, and no stranger who shares a broken container.
_OF_THE_BROKER: Final = (
    errors.RollbackError,
    errors.ForkError,
    errors.BrokerFaultError,
    errors.BrokerUnavailableError,
)


class _Format(msgspec.Struct):
    version: int


class _Content(msgspec.Struct, Generic[D], forbid_unknown_fields=True):
    version: Literal[1]
    document: D


class _Stored(NamedTuple, Generic[D]):
    """A document as it was read or written last."""

    user: uuid.UUID
    id: uuid.UUID
    version: int
    document: D


class OwnDocument(Generic[D]):
    """A document of one type of Struct, in a container of one container type.

    `merge` returns a document with the entries of both; where they contradict, that of the first stays.
    `read` and `change` run on scbroker's thread, in the body of an operation. `limit` is in bytes of JSON.

    A document that cannot be read is an error, and is never overwritten.
    """

    def __init__(
        self,
        provider: BrokerProvider,
        container_type: str,
        kind: type[D],
        merge: Merge[D],
        limit: int,
    ) -> None:
        self._provider, self._type, self._kind = provider, container_type, kind
        self._merge, self._limit = merge, limit
        self._decoder: msgspec.json.Decoder[_Content[D]] = json_decoder(_Content[kind])  # type: ignore[valid-type] # of this instance
        self._known: _Stored[D] | None = None
        self._lock = asyncio.Lock()
        io_thread.bound(self)

    def after_fork(self) -> None:
        """Replace the lock: a task of the parent process may hold it."""
        self._lock = asyncio.Lock()

    async def read(self) -> D:
        """Return the document; an empty one if none is stored. Costs one small request if it is unchanged.

        Raises `IntegrityError` or `UnsupportedVersionError` for a document that cannot be read, and
        `RollbackError` if the broker serves an older one, or denies one that this object has read."""
        async with self._lock:
            stored = await _until_settled(self._stored)
        return self._document(stored)

    async def change(self, edit: Callable[[D], D]) -> D:
        """Store what `edit` makes of the document, and return it; nothing is sent if it is the same.

        `edit` is called again if another device changed the document meanwhile: it must be pure, and must
        change nothing in a document that it has made itself. Its errors are raised, and nothing is stored;
        it must not raise a `ConflictError`.

        Raises `ConflictError` if other devices keep changing the document, and what `read` raises."""

        async def attempt() -> D:
            stored = await self._stored()
            before = self._document(stored)
            after = edit(before)
            if after != before:
                await self._store(stored, after)
            return after

        async with self._lock:
            return await _until_settled(attempt)

    def _document(self, stored: _Stored[D] | None) -> D:
        return self._kind() if stored is None else stored.document

    async def _stored(self) -> _Stored[D] | None:
        """Return the document as of now; None if no container has it."""
        user, known = await self._provider.getUserId(), self._known
        if known is None or known.user != user:
            return await self._find(user)
        try:
            found = await self._served(known.id, self._provider.getContainerMetadata(known.id))
        except errors.DeletedError:  # another device merged it with one that has a lower id
            return await self._find(user)
        if found.version != known.version:
            self._known = await self._opened(user, found)
        return self._known or await self._find(user)

    async def _find(self, user: uuid.UUID) -> _Stored[D] | None:
        """Look for the document among the containers of its type; merge those made at the same moment."""
        self._known = None
        kept: _Stored[D] | None = None
        candidates, is_whole = await self._candidates(user)
        for item in candidates:
            if not (item.hasContent or item.hasHeader):  # emptied by `_joined`
                await self._delete(item.id)
            elif (found := await self._opened(user, item)) is not None:
                kept = found if kept is None else await self._joined(kept, found)
        if kept is None and not is_whole:
            raise errors.OfflineError(
                f"The cache has no container of type {self._type} and the broker is away: try again when it "
                "is back."
            )
        self._known = kept
        return kept

    async def _candidates(self, user: uuid.UUID) -> tuple[list[Container[Any]], bool]:
        """Return the user's own containers of the type, ascending by id, and whether these are all.

        A cache lists what it has: that it has none does not say that none exists.
        """
        own = list[Container[Any]]()
        is_whole = True
        start: uuid.UUID | None = None
        while True:
            page = await self._provider.listContainers(self._type, start, headers=False)
            for item in page.containers:  # of those of strangers nothing is kept: they may be many
                if isinstance(item, _OF_THE_BROKER):
                    raise item
                if isinstance(item, errors.BrokerError):
                    self._warn(item.containerId, f"it cannot be read ({item.code})")
                elif self._is_own(user, item):
                    own.append(item)
            is_whole = is_whole and page.asOf is None
            start = page.next
            if start is None:
                break
        return own, is_whole

    def _is_own(self, user: uuid.UUID, item: Container[Any]) -> bool:
        """Return whether only the user can have made and changed the container; log why not."""
        if item.type != self._type:
            self._warn(item.id, "it has another type now")
        elif item.createdBy != user:
            self._warn(item.id, f"user {item.createdBy} created it")
        elif item.access is None or [level.userId for level in item.access] != [user]:
            self._warn(item.id, "others have access to it: revoke their access to use it again")
        elif item.modifiedBy != user or item.contentBy not in (user, None):
            self._warn(item.id, "another user has written it")
        else:
            return True
        return False

    def _warn(self, container: uuid.UUID | None, why: str) -> None:
        _log.warning("Container %s of type %s is ignored: %s", container, self._type, why)

    async def _opened(self, user: uuid.UUID, known: Container[Any]) -> _Stored[D] | None:
        """Return the document of a container; None if it is not the user's own, or was merged."""
        if (known.length or 0) > self._limit:
            raise errors.IntegrityError(
                f"Container {known.id} of type {self._type} has {known.length} bytes, more than the "
                f"{self._limit} of such a document: it was written by another program. Delete it if you do "
                "not need it."
            )
        found = await self._served(known.id, self._provider.getContainer(known.id))
        if found.content is None or not self._is_own(user, found):
            return None
        return _Stored(user, found.id, found.version, self._decode(found.id, found.content))

    async def _served(self, container: uuid.UUID, promise: Promise[T]) -> T:
        """Return a result; `RollbackError` if the broker denies the user's own container.

        Nobody else could end the access. A `NotFoundError` would look as if the document lacked an entry.
        """
        try:
            return await promise
        except errors.NotFoundError:
            raise errors.RollbackError(
                f"The broker denies container {container} of type {self._type}, which is this user's alone "
                "and was not deleted: ask its operator."
            ) from None

    def _decode(self, container: uuid.UUID, content: bytes) -> D:
        try:
            if msgspec.json.decode(content, type=_Format).version > _VERSION:
                raise errors.UnsupportedVersionError(
                    f"Container {container} of type {self._type} was written by a newer scbroker: update."
                )
            found = self._decoder.decode(content)
            if msgspec.json.encode(found) == content:
                return found.document
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        raise errors.IntegrityError(
            f"Container {container} of type {self._type} is not a document that scbroker wrote. It is not "
            "changed: find out which program wrote it, and delete it if you do not need it."
        )

    async def _store(self, stored: _Stored[D] | None, document: D) -> _Stored[D] | None:
        content = msgspec.json.encode(_Content(_VERSION, document))
        if len(content) > self._limit:
            raise errors.TooLargeError(
                f"The document has {len(content)} bytes, more than {self._limit}: remove entries first."
            )
        if stored is None:
            user = await self._provider.getUserId()
            await self._provider.createContainer(content, type=self._type)
            return await self._find(user)  # another device may have created one since
        written = await self._served(
            stored.id,
            self._provider.updateContainerContent(stored.id, content, ifVersion=stored.version),
        )
        self._known = stored._replace(version=written.version, document=document)
        return self._known

    async def _joined(self, kept: _Stored[D], other: _Stored[D]) -> _Stored[D]:
        """Move the entries of `other` into `kept`, and delete `other`.

        It is emptied before it is deleted: a deletion has no `ifVersion`, and would lose an entry that
        another device adds at that moment. An emptied container is nobody's document.
        """
        document = self._merge(kept.document, other.document)
        if document != kept.document:
            kept = await self._store(kept, document) or kept
            self._known = None  # if `other` was changed meanwhile, both are looked for again
        await self._provider.updateContainerContent(other.id, None, ifVersion=other.version)
        await self._delete(other.id)
        return kept

    async def _delete(self, container: uuid.UUID) -> None:
        with contextlib.suppress(errors.DeletedError):  # by another device
            await self._provider.deleteContainer(container)


async def _until_settled(work: Callable[[], Awaitable[T]]) -> T:
    """Run work again while other devices change the document, a bounded number of times."""
    for _ in range(_ATTEMPTS):
        try:
            return await work()
        except (errors.ConflictError, errors.DeletedError) as error:
            if error.outcome is not errors.WriteOutcome.NotStored:
                raise
    raise errors.ConflictError("Other devices keep changing the document: try again later.")
