"""Make, keep and revoke links: users whose secrets are in a URL.

To the broker, a link's user is an ordinary user. The creator stores the URL and the user's private keys in a
document of their own before the user is registered. So the link can be listed and revoked, whatever step a
crash interrupts. The deletion needs the keys and not the passphrase, because somebody with the link can
change the passphrase, or use up the guesses that the broker allows.

The secrets are in the URL's fragment, which no HTTP client sends to a server; the passphrase of the link's
user is derived from them. Spec: docs/spec/links.md.
"""

from __future__ import annotations

import base64
import datetime as dt
import logging
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import msgspec
from msgspec import Meta

from scbroker import errors
from scbroker.cards import PREFIX as CARD_PREFIX
from scbroker.client.people.own_document import OwnDocument
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
    decode_object,
    encode_object,
    user_id_of,
)
from scbroker.records.container_record import OWN_TYPES
from scbroker.spelling import check_new
from scbroker.types import Container, Link
from scbroker.vocabulary import AccessLevel, ContainerAccessLevel, KeyType
from scbroker.wire.users import canonical_origin, checked_address

if TYPE_CHECKING:
    from scbroker.client.provider import BaseProvider


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


@dataclass(frozen=True, slots=True)
class NewLink:
    """The checked arguments of `createLink`."""

    containers: Sequence[uuid.UUID]
    permissions: ContainerAccessLevel
    expires_at: dt.datetime
    password: str | None
    name: str | None
    api_key: uuid.UUID | None


def checked(
    containers: Sequence[uuid.UUID],
    permissions: ContainerAccessLevel,
    expires_at: dt.datetime | None,
    password: str | None,
    name: str | None,
    api_key: uuid.UUID | None,
) -> NewLink:
    """Return the arguments of `createLink`; `InvalidArgumentError` for invalid ones."""
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
    return NewLink(containers, permissions, expires_at.astimezone(dt.UTC), password, name, api_key)


async def create(provider: BaseProvider, new: NewLink) -> Link:
    """Keep a new link, register its user, and give that user access; undo all if any of it fails."""
    session = provider._session()
    endpoint = session.requests.endpoint
    await _check_can_share(provider, new)
    ring = KeyRing.generate()
    url = LinkUrl(
        plain_address(endpoint.url),
        new.api_key or endpoint.apiKey,
        ring.rawFingerprint,
        random_bytes(KEY_SIZE),
        new.password is not None,
    )
    entry = _Entry(
        url.text,
        _keys_of(ring),
        tuple(new.containers),
        int(new.permissions),
        new.expires_at,
        url.hasPassword,
        new.name,
        dt.datetime.now(dt.UTC),
    )
    await _document(provider).change(partial(_with, ring.userId, entry))
    try:
        passphrase = url.passphrase(new.password)
        # The KeyFile's own password is thrown away: only the passphrase opens it.
        password = encode_base64(random_bytes(KEY_SIZE))
        await accounts.publish(session.requests, ring, password, passphrase, None)
        level = AccessLevel(ring.userId, new.permissions, new.expires_at)
        _raise_first(new.containers, await provider.grantAccess(new.containers, level))
    except errors.BrokerError:
        await _undo(provider, ring.userId)
        raise
    return _link(ring.userId, entry)


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
    is_deleted = await _delete_user(provider._session(), _ring_of(entry.keys))
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
    await document.change(partial(_without, user_id))


async def _check_can_share(provider: BaseProvider, new: NewLink) -> None:
    """Raise the error of the first container whose access the user may not give to a link."""
    user = await provider.getUserId()
    found = await provider.getContainers(new.containers, content=False, headers=False)
    needed = new.permissions | ContainerAccessLevel.ModifyAccess
    for container_id, container in zip(new.containers, found, strict=True):
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


def _with(user_id: uuid.UUID, entry: _Entry, before: _Document) -> _Document:
    if len(before.links) >= _MAX_LINKS:
        raise errors.TooLargeError(
            f"You have {_MAX_LINKS} links: revoke those that expired or that you do not need any more."
        )
    return _Document({**before.links, user_id: entry})


def _without(user_id: uuid.UUID, before: _Document) -> _Document:
    return _Document({user: entry for user, entry in before.links.items() if user != user_id})


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


def _keys_of(ring: KeyRing) -> bytes:
    return b"".join((*ring.signing[0].seeds, *ring.encryption[0].seeds))


def _ring_of(keys: bytes) -> KeyRing:
    signing, encryption = keys[: 2 * KEY_SIZE], keys[2 * KEY_SIZE :]
    return KeyRing(
        1,
        (SigningKey(signing[:KEY_SIZE], signing[KEY_SIZE:]),),
        (DecryptionKey(encryption[:MLKEM_SEED_SIZE], encryption[MLKEM_SEED_SIZE:]),),
    )
