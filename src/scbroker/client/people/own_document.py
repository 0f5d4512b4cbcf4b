"""Keep a document in a container that the user alone has access to, the same on all of the user's devices.

The container's id follows from the user's fingerprint and the document's type, and only the user can create a
container with that id (docs/spec/container.md, 1 and 5). So nothing that others write decides which container
is the document, and two devices that create it at the same moment create the same container: the second one
gets a conflict, and reads the first one's. A document that was deleted is continued under the next number.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from scbroker import errors
from scbroker.client.arguments import checked_content
from scbroker.client.containers import fetching, writing
from scbroker.client.containers.change import OWNER, Change, own_nonce
from scbroker.records.canonical import container_id_of, json_decoder
from scbroker.types import Container, SecuredContainer

if TYPE_CHECKING:
    from scbroker.client.provider import BaseProvider

D = TypeVar("D", bound=msgspec.Struct)
T = TypeVar("T")
_ATTEMPTS: Final = 16
_VERSION: Final = 1


class _Format(msgspec.Struct):
    version: int


class _Content(msgspec.Struct, Generic[D], forbid_unknown_fields=True):
    version: Literal[1]
    document: D


class _Stored(NamedTuple, Generic[D]):
    """A document as it was read or written last."""

    fingerprint: bytes
    number: int
    """The number of documents of this type that the user has deleted before."""
    version: int
    """The container's version; 0 if the document is not stored."""
    head: bytes
    """The hash of that version: the user may have accepted another history that has the same version."""
    document: D


class OwnDocument(Generic[D]):
    """A document of one type of Struct, in a container of one container type.

    `read` and `change` run on scbroker's thread, in the body of an operation. `limit` is in bytes of JSON.

    A document that cannot be read is an error, and is never overwritten.
    """

    def __init__(
        self, provider: BaseProvider, container_type: str, kind: type[D], limit: int
    ) -> None:
        self._provider, self._type, self._kind, self._limit = provider, container_type, kind, limit
        self._decoder: msgspec.json.Decoder[_Content[D]] = json_decoder(_Content[kind])  # type: ignore[valid-type] # of this instance
        self._known: _Stored[D] | None = None
        self._lock = asyncio.Lock()

    async def read(self) -> D:
        """Return the document; an empty one if none is stored. Costs one small request if it is unchanged.

        Raises `IntegrityError` or `UnsupportedVersionError` for a document that cannot be read, and
        `RollbackError` if the broker serves an older one, or denies one that this device has read."""
        async with self._lock:
            return (await _until_settled(self._stored)).document

    async def change(self, edit: Callable[[D], D]) -> D:
        """Store what `edit` makes of the document, and return it; nothing is sent if it is the same.

        `edit` is called again if another device changed the document meanwhile: it must be pure, and must
        change nothing in a document that it has made itself. Its errors are raised, and nothing is stored;
        it must not raise a `ConflictError`.

        Raises `ConflictError` if other devices keep changing the document, and what `read` raises."""

        async def attempt() -> D:
            stored = await self._stored()
            after = edit(stored.document)
            if after != stored.document:
                await self._store(stored, after)
            return after

        async with self._lock:
            return await _until_settled(attempt)

    async def _stored(self) -> _Stored[D]:
        """Return the document as of now."""
        fingerprint = self._provider._session().fingerprint
        known = self._known
        if known is None or known.fingerprint != fingerprint:
            known = _Stored(fingerprint, 0, 0, b"", self._kind())
        while True:
            container = self._id(known)
            try:
                found = await self._served(
                    container, self._provider.getContainerMetadata(container)
                )
                if (found.version, self._head(container)) != (known.version, known.head):
                    known = await self._opened(known, found)
                break
            except errors.DeletedError:
                known = _Stored(fingerprint, known.number + 1, 0, b"", self._kind())
            except errors.NotFoundError:
                break  # no document of this number exists yet
        self._known = known
        return known

    def _id(self, stored: _Stored[D]) -> uuid.UUID:
        return container_id_of(stored.fingerprint, own_nonce(self._type, stored.number))

    async def _opened(self, known: _Stored[D], container: Container[Any]) -> _Stored[D]:
        id, user = container.id, self._provider._session().userId
        if (container.length or 0) > self._limit:
            raise errors.IntegrityError(
                f"Container {id} has {container.length} bytes, more than the {self._limit} of a document of "
                f"type {self._type}: it was written by another program. Delete it if you do not need it."
            )
        found = await self._served(id, self._provider.getContainer(id))
        if [level.userId for level in found.access or ()] != [user]:
            raise errors.IntegrityError(
                f"Others have access to container {id}, which is the user's document of type {self._type}: "
                "revoke their access first."
            )
        if found.modifiedBy != user or found.contentBy != user:
            raise errors.IntegrityError(
                f"Another user has written container {id}, which is the user's document of type "
                f"{self._type}: delete it, to begin a new document."
            )
        document = self._decode(id, found.content or b"")
        return known._replace(version=found.version, head=self._head(id), document=document)

    def _head(self, container: uuid.UUID) -> bytes:
        """Return the hash of the newest version that this device has verified."""
        _, mark = fetching.mark_of(self._provider._session(), container.bytes)
        return b"" if mark is None else mark.hash

    async def _served(self, container: uuid.UUID, work: Awaitable[T]) -> T:
        """Return a result; `RollbackError` if the broker denies a document that this device has read.

        Nobody else can end the user's access, so the denial is false. A `NotFoundError` would look as if the
        document lacked an entry. The mark is read before the request: another program may create the document
        just after the answer.
        """
        has_mark = fetching.mark_of(self._provider._session(), container.bytes)[1] is not None
        try:
            return await work
        except errors.NotFoundError:
            if has_mark:
                raise errors.RollbackError(
                    f"The broker denies container {container} of type {self._type}, which is this user's "
                    "alone and was not deleted: ask its operator."
                ) from None
            raise

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

    async def _store(self, stored: _Stored[D], document: D) -> None:
        content = msgspec.json.encode(_Content(_VERSION, document))
        if len(content) > self._limit:
            raise errors.TooLargeError(
                f"The document has {len(content)} bytes, more than {self._limit}: remove entries first."
            )
        if stored.version == 0:
            nonce = own_nonce(self._type, stored.number)
            try:
                written = await self._provider._perform(
                    "createContainer",
                    _create,
                    {"content": content, "type": self._type, "nonce": nonce},
                )
            except errors.AlreadyExistsError as error:  # another device has created it first
                conflict = errors.ConflictError(str(error))
                conflict.outcome = error.outcome
                raise conflict from None
        else:
            container = self._id(stored)
            written = await self._served(
                container,
                self._provider.updateContainerContent(container, content, ifVersion=stored.version),
            )
        head = self._head(self._id(stored))
        self._known = stored._replace(version=written.version, head=head, document=document)


async def _create(
    provider: BaseProvider, content: bytes, type: str, nonce: bytes
) -> SecuredContainer:
    """Create a container for its creator alone, whose id follows from the nonce."""
    session = provider._session()
    change = Change(content=checked_content(content), type=type, grants={session.userId: OWNER})
    change.nonce = nonce
    return await session.hold(writing.create(session, change))


async def _until_settled(work: Callable[[], Awaitable[T]]) -> T:
    """Run work again while other devices change the document, a bounded number of times."""
    for _ in range(_ATTEMPTS):
        try:
            return await work()
        except (errors.ConflictError, errors.DeletedError) as error:
            if error.outcome is not errors.WriteOutcome.NotStored:
                raise
    raise errors.ConflictError("Other devices keep changing the document: try again later.")
