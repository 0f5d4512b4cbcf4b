"""Make, keep and revoke links: users whose secrets are in a URL.

To the broker, a link's user is an ordinary user. The creator stores the URL and the user's private keys in a
document of their own before the user is registered. So the link can be listed and revoked, whatever step a
crash interrupts. The deletion needs the keys and not the passphrase, because somebody with the link can
change the passphrase, or use up the guesses that the broker allows.

The secrets are in the URL's fragment, which no HTTP client sends to a server; the passphrase of the link's
user is derived from them. Spec: docs/spec/links.md.

A document of the user's own is a container that the user alone has access to, the same on all of the user's
devices. The container's id follows from the user's fingerprint and the document's type, and only the user can
create a container with that id (docs/spec/container.md, 1 and 5). So nothing that others write decides which
container is the document, and two devices that create it at the same moment create the same container: the
second one gets a conflict, and reads the first one's. A document that was deleted is continued under the next
number.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, NamedTuple, Self, TypeVar

import msgspec
from msgspec import Meta

from scbroker import errors
from scbroker.cards import PREFIX as CARD_PREFIX
from scbroker.client.arguments import checked_content
from scbroker.client.containers import fetching, writing
from scbroker.client.containers.fetching import own_nonce
from scbroker.client.containers.writing import OWNER, Change
from scbroker.client.users import accounts
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import MemoryTrustStore
from scbroker.crypto.seal import (
    KEY_SIZE,
    MLKEM_SEED_SIZE,
    DecryptionKey,
    SigningKey,
    derive_key,
    random_bytes,
)
from scbroker.crypto.verify import labelled_hash
from scbroker.errors import IntegrityError, InvalidArgumentError, UnsupportedVersionError
from scbroker.keys import KeyRing, checked_secret
from scbroker.records.canonical import (
    VERSION,
    Bin16,
    Bin32,
    Row,
    check_printable,
    container_id_of,
    decode_object,
    encode_object,
    json_decoder,
    user_id_of,
)
from scbroker.records.container_record import OWN_TYPES
from scbroker.spelling import check_new
from scbroker.types import Container, Link, SecuredContainer
from scbroker.vocabulary import AccessLevel, ContainerAccessLevel, KeyType
from scbroker.wire.users import canonical_origin, checked_address

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


_MARK: Final = "/#scbroker-link:"
_CHECKSUM: Final = 5
"""Bytes of a checksum that finds typing errors. It does not authenticate the link."""
_MAX_URL: Final = 2048
_CODE: Final = re.compile("[A-Za-z0-9_-]+")
_LABEL: Final = "[A-Za-z0-9_-]{1,63}"
_ADDRESS: Final = re.compile(
    rf"https?://(\[[0-9A-Fa-f:.]+\]|{_LABEL}(\.{_LABEL})*)(:[1-9][0-9]{{0,4}})?(/[A-Za-z0-9._~-]+)*"
)


class _LinkBytes(Row, frozen=True):
    secret: Bin32
    fingerprint: Bin32
    apiKey: Bin16
    hasPassword: bool


@dataclass(frozen=True, slots=True, repr=False)
class LinkUrl:
    """The parts of a link's URL. Anybody who has `secret`, and the password if the link has one, can read."""

    serverUrl: str
    apiKey: uuid.UUID
    fingerprint: bytes
    secret: bytes
    hasPassword: bool

    @property
    def userId(self) -> uuid.UUID:
        return user_id_of(self.fingerprint)

    @property
    def text(self) -> str:
        fields = _LinkBytes(self.secret, self.fingerprint, self.apiKey.bytes, self.hasPassword)
        body = encode_object(fields)
        return f"{self.serverUrl}{_MARK}{encode_base64(body + _checksum(self.serverUrl, body))}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a URL strictly; white space around it is ignored. No message repeats a part of the URL.

        Raises `InvalidArgumentError` for a text that is not a link, for a damaged one, and for one whose
        broker is on another machine without https; `UnsupportedVersionError` for a newer format.
        """
        url = text.strip()
        if url.lower().startswith(CARD_PREFIX):
            raise InvalidArgumentError(
                "This is a contact card, not a link: ContactCard.parse and `scbroker card` read it."
            )
        server_url, mark, code = url.partition(_MARK)
        if not mark or len(url) > _MAX_URL:
            raise InvalidArgumentError(
                "link is not a link from createLink, which contains '/#scbroker-link:': copy the whole link"
            )
        data = _decoded(code)
        body, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
        if checksum != _checksum(server_url, body):
            raise _damage()
        if body[:1] != VERSION:
            raise UnsupportedVersionError(
                "The link was made by a newer version of scbroker: update scbroker to open it."
            )
        try:
            fields = decode_object(_LinkBytes, body, _MAX_URL)
        except IntegrityError:
            raise _damage() from None
        if not _ADDRESS.fullmatch(checked_address(server_url)) or server_url.endswith("/"):
            raise _damage()
        api_key = uuid.UUID(bytes=fields.apiKey)
        return cls(server_url, api_key, fields.fingerprint, fields.secret, fields.hasPassword)

    def passphrase(self, password: str | None) -> str:
        """Return the passphrase of the link's user: it needs the password too, if the link has one."""
        extra = b"" if password is None else checked_secret(password, "password")
        return encode_base64(derive_key(self.secret, "link-passphrase", self.fingerprint + extra))

    def __repr__(self) -> str:
        return f"LinkUrl(userId={self.userId})"


def plain_address(server_url: str) -> str:
    """Return the address of a broker in the form that a link has: ASCII, the scheme in lower case."""
    if _ADDRESS.fullmatch(server_url):
        return server_url
    scheme, _, rest = server_url.partition("://")
    authority, slash, path = rest.partition("/")
    return canonical_origin(f"{scheme}://{authority}") + slash + path


def encode_base64(data: bytes) -> str:
    """Return base64url without padding (RFC 4648, 5)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decoded(code: str) -> bytes:
    """Decode base64url without padding; refuse any other spelling of the same bytes."""
    if _CODE.fullmatch(code) and len(code) % 4 != 1:
        data = base64.urlsafe_b64decode(code + "=" * (-len(code) % 4))
        if encode_base64(data) == code:
            return data
    raise _damage()


def _checksum(server_url: str, body: bytes) -> bytes:
    return labelled_hash("link-checksum", server_url.encode("utf-8", "replace"), body)[:_CHECKSUM]


def _damage() -> InvalidArgumentError:
    return InvalidArgumentError(
        "The link is damaged: characters are missing, added or changed. Copy the whole link again."
    )


_TYPE: Final = "scbroker.links"
_MAX_LINKS: Final = 1000
MAX_CONTAINERS: Final = 256
_MAX_NAME: Final = 64
_MAX_DOCUMENT: Final = 2**24
_KEYS: Final = 3 * KEY_SIZE + MLKEM_SEED_SIZE
_FORBIDDEN: Final = (
    ContainerAccessLevel.Upload
    | ContainerAccessLevel.ModifyAccess
    | ContainerAccessLevel.ModifyType
    | ContainerAccessLevel.Delete
)
_NOT_OURS: Final = (errors.PermissionDeniedError, errors.NotFoundError)
"""Errors of a revocation that a retry cannot mend: the creator may no longer change the container's
access."""
_log = logging.getLogger("scbroker")


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    keys: Annotated[bytes, Meta(min_length=_KEYS, max_length=_KEYS)]
    """The four seeds of the link's user: Ed25519, ML-DSA-65, ML-KEM-768, X25519."""
    containers: tuple[uuid.UUID, ...]
    permissions: Annotated[int, Meta(ge=1, le=511)]
    expiresAt: dt.datetime
    hasPassword: bool
    name: str | None
    createdAt: dt.datetime

    def __repr__(self) -> str:
        return "_Entry(…)"  # no fields: URL and keys would get into error reports


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    links: dict[uuid.UUID, _Entry] = {}


def create(
    provider: BaseProvider,
    containers: Sequence[uuid.UUID],
    permissions: ContainerAccessLevel,
    expires_at: dt.datetime | None,
    password: str | None,
    name: str | None,
    api_key: uuid.UUID | None,
) -> Coroutine[Any, Any, Link]:
    """Check the arguments of `createLink`; return the coroutine that makes the link.

    It keeps the link, registers its user, and gives that user access; it undoes all if any of it fails.
    """
    if not 1 <= len(containers) <= MAX_CONTAINERS:
        raise errors.InvalidArgumentError(
            f"containerIds must name 1 to {MAX_CONTAINERS} containers, not {len(containers)}"
        )
    if forbidden := permissions & _FORBIDDEN:
        raise errors.InvalidArgumentError(
            f"permissions of a link cannot have {forbidden.name}: a link gives read access only. To let "
            "somebody change containers, have them register and use grantAccess."
        )
    if expires_at is None:
        raise errors.InvalidArgumentError(
            "expiresAt is missing: every link ends by itself. Pass an aware datetime, such as "
            "datetime.now(UTC) + timedelta(days=7)"
        )
    AccessLevel(uuid.UUID(int=0), permissions, expires_at)  # raises for an invalid access level
    if expires_at <= dt.datetime.now(dt.UTC):
        raise errors.InvalidArgumentError("expiresAt of a link must be in the future.")
    if name is not None:
        check_printable("name", name)
        if not 1 <= len(name) <= _MAX_NAME:
            raise errors.InvalidArgumentError(
                f"name of a link must have 1 to {_MAX_NAME} characters, not {len(name)}"
            )
        check_new("name", name)
    until = expires_at.astimezone(dt.UTC)

    async def work() -> Link:
        await _check_can_share(provider, containers, permissions)
        endpoint = provider._session().requests.endpoint
        ring = KeyRing.generate()
        user_id, secret = ring.userId, random_bytes(KEY_SIZE)
        address, key = plain_address(endpoint.url), api_key or endpoint.apiKey
        url = LinkUrl(address, key, ring.rawFingerprint, secret, password is not None)
        entry = _Entry(
            url.text,
            b"".join((*ring.signing[0].seeds, *ring.encryption[0].seeds)),
            tuple(containers),
            int(permissions),
            until,
            url.hasPassword,
            name,
            dt.datetime.now(dt.UTC),
        )

        def keep(before: _Document) -> _Document:
            if len(before.links) >= _MAX_LINKS:
                raise errors.TooLargeError(
                    f"You have {_MAX_LINKS} links: revoke those that expired or that you do not need any "
                    "more."
                )
            return _Document({**before.links, user_id: entry})

        await _document(provider).change(keep)
        try:
            # The KeyFile's own password is thrown away: only the passphrase opens it.
            thrown_away = encode_base64(random_bytes(KEY_SIZE))
            requests, passphrase = provider._session().requests, url.passphrase(password)
            await accounts.publish(requests, ring, thrown_away, passphrase, None)
            level = AccessLevel(user_id, permissions, until)
            _raise_first(containers, await provider.grantAccess(containers, level))
        except errors.BrokerError:
            await _undo(provider, user_id)
            raise
        return _link(user_id, entry)

    return work()


async def stored(provider: BaseProvider) -> list[Link]:
    """Return the links of the session's user, oldest first."""
    found = await _document(provider).read()
    links = (_link(user_id, entry) for user_id, entry in found.links.items())
    return sorted(links, key=lambda link: link.createdAt)


async def revoke(provider: BaseProvider, user_id: uuid.UUID) -> None:
    """Revoke the access of a link's user, delete the user, then forget the link.

    Each step can be repeated. The user is deleted also if a revocation failed, because that ends what the
    broker serves; the link is forgotten only if no revocation can succeed later.
    """
    document = _document(provider)
    entry = (await document.read()).links.get(user_id)
    if entry is None:
        raise errors.NotFoundError(
            f"You have no link of user {user_id}: getLinks lists your links."
        )
    results = await provider.revokeAccess(entry.containers, user_id)
    signing, encryption = entry.keys[: 2 * KEY_SIZE], entry.keys[2 * KEY_SIZE :]
    signing_key = SigningKey(signing[:KEY_SIZE], signing[KEY_SIZE:])
    decryption_key = DecryptionKey(encryption[:MLKEM_SEED_SIZE], encryption[MLKEM_SEED_SIZE:])
    ring = KeyRing(1, (signing_key,), (decryption_key,))
    is_deleted = await _delete_user(provider._session(), ring)
    for container, result in zip(entry.containers, results, strict=True):
        if isinstance(result, errors.NotFoundError) and not is_deleted:
            # The broker's denial proves nothing, and the holder of the link can still open the container.
            raise errors.RollbackError(
                f"The broker denies container {container} and keeps user {user_id} of the link, whose access "
                "is not revoked: ask its operator, then call revokeLink again."
            )
        if isinstance(result, _NOT_OURS):
            _log.warning(
                "You can no longer change the access to container %s: the deleted user %s of a link "
                "stays in its access list until a member changes its access.",
                container,
                user_id,
            )
    final = (*_NOT_OURS, errors.DeletedError)
    _raise_first(entry.containers, [None if isinstance(each, final) else each for each in results])
    await document.change(
        lambda before: _Document({key: e for key, e in before.links.items() if key != user_id})
    )


async def _check_can_share(
    provider: BaseProvider, containers: Sequence[uuid.UUID], permissions: ContainerAccessLevel
) -> None:
    """Raise the error of the first container whose access the user may not give to a link."""
    user = await provider.getUserId()
    found = await provider.getContainers(containers, content=False, headers=False)
    needed = permissions | ContainerAccessLevel.ModifyAccess
    for container_id, container in zip(containers, found, strict=True):
        if isinstance(container, errors.BrokerError):
            error = container
        elif container.type is not None and container.type.startswith(OWN_TYPES):
            error = errors.InvalidArgumentError(
                f"Container {container_id} has a type for your contacts or your links, {container.type}, and "
                "cannot be shared: leave it out."
            )
        elif missing := needed & ~_permissions(container, user):
            error = errors.PermissionDeniedError(
                f"A link to container {container_id} needs {missing.name}, which you do not have."
            )
        else:
            continue
        error.containerId = container_id
        raise error


def _permissions(container: Container[Any], user: uuid.UUID) -> ContainerAccessLevel:
    """Return an upper bound: the user's permissions if they were in every listed group."""
    found = ContainerAccessLevel(0)
    for level in container.access or ():
        if level.userId == user or level.isGroup:
            found |= level.permissions
    return found


def _raise_first(containers: Sequence[uuid.UUID], results: Sequence[object]) -> None:
    """Raise the first error of the results for these containers, with the container's id."""
    for container, result in zip(containers, results, strict=True):
        if isinstance(result, errors.BrokerError):
            result.containerId = container
            raise result


async def _undo(provider: BaseProvider, user_id: uuid.UUID) -> None:
    """Revoke a link that could not be made. Nobody has its URL, so a failure is only logged."""
    try:
        await revoke(provider, user_id)
    except errors.BrokerError as error:
        _log.warning(
            "A link could not be made, and not be revoked either (%s): call revokeLink for user %s.",
            error,
            user_id,
        )


async def _delete_user(session: Session, ring: KeyRing) -> bool:
    """Delete a link's user, unless that was done before; return whether the user's key chain is closed.

    The deletion fails if somebody with the link has replaced the user's keys.
    """
    try:
        own, _ = await accounts.log_in_with_ring(session.requests, MemoryTrustStore(), ring)
        await accounts.delete_user(own)
        own.forget()
    except (errors.CredentialsError, errors.NotAuthenticatedError, errors.RollbackError):
        pass
    is_deleted = await session.directory.latest_active(ring.userId, KeyType.Signing) is None
    if not is_deleted:
        _log.warning(
            "User %s of a link could not be deleted: somebody with the link replaced its keys, or the broker "
            "keeps it.",
            ring.userId,
        )
    return is_deleted


def _document(provider: BaseProvider) -> OwnDocument[_Document]:
    return OwnDocument(provider, _TYPE, _Document, _MAX_DOCUMENT)


def _link(user_id: uuid.UUID, entry: _Entry) -> Link:
    return Link(
        url=entry.url,
        userId=user_id,
        containerIds=entry.containers,
        permissions=ContainerAccessLevel(entry.permissions),
        expiresAt=entry.expiresAt,
        hasPassword=entry.hasPassword,
        name=entry.name,
        createdAt=entry.createdAt,
    )
