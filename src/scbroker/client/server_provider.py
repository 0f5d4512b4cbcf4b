"""Implement the session operations over HTTP, and construct providers.

provider = ServerProvider(apiKey, "https://broker.example", "my program")
provider.register("password", "passphrase").result()
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import datetime as dt
import os
import ssl as ssl_module
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar, Unpack, overload
from urllib.parse import ParseResult, SplitResult

from scbroker import errors
from scbroker.cards import ContactCard
from scbroker.client import arguments, events, following
from scbroker.client.arguments import Validator, validate_secret
from scbroker.client.base_provider import BaseProvider, Work
from scbroker.client.calls.io_thread import io_thread
from scbroker.client.calls.main_queue import mainQueue
from scbroker.client.calls.operation import Handlers, Promise, operation
from scbroker.client.calls.stream import Pages
from scbroker.client.containers import fetching, marks, opening
from scbroker.client.http.endpoint import checked_endpoint
from scbroker.client.http.transport import Transport
from scbroker.client.parts.content import Progress
from scbroker.client.people import links
from scbroker.client.rosters import operations as groups
from scbroker.client.rosters import writing
from scbroker.client.users import accounts
from scbroker.client.users.session import Session
from scbroker.client.users.session_store import KeptSessions, SessionStore, checked_session_store
from scbroker.client.users.trust_store import TrustStore, checked_trust_store
from scbroker.crypto.verify import sha256
from scbroker.keys import KeyRing, check_key_file, checked_secret
from scbroker.types import (
    ContainerEvent,
    Group,
    GroupMember,
    GroupRenewal,
    Head,
    Heads,
    Link,
    PublicKey,
    SecuredContainer,
    SentChange,
    UnsettledAccess,
    Usage,
)
from scbroker.vocabulary import (
    ContainerAccessLevel,
    ContainerEventType,
    GroupManager,
    KeyType,
    MemberRole,
)

T = TypeVar("T")
_CLOSE_SECONDS: Final = 5.0


class ServerProvider(BaseProvider):
    """A session against one broker, usable as `with` and `async with`.

    `apiKey` comes from the broker's operator, as UUID or text. `serverUrl` is https, or http for a
    broker on this machine; text, or a result of `urllib.parse.urlsplit` or `urlparse`. If the broker is
    below a path, it ends with that, as `https://example.org/broker`. `applicationName` names this program
    in the broker's event log.

    `trustStore` keeps what this device has verified: a TrustStore, or the path of a folder for a
    FileTrustStore (default: one in the platform's state folder). `sessionStore` keeps sessions that begin
    with `keep=True`: a SessionStore, or the path of a folder for a FileSessionStore (default: a
    KeychainSessionStore). `secretValidator` returns what is wrong with
    a password or passphrase, or None. `timeout` is the number of seconds that one request may take, with its
    retries (default: 120; a broker that has answered before is retried for up to a minute of them, one that
    never did for about a second). `ssl` and `proxy` apply to all connections; a proxy for http must be on
    this machine. Large contents go straight to and from the broker's object store if its origin is one of
    `objectStoreOrigins`, as `https://s3.example` (default: none, all goes through the broker).
    """

    _is_closed: bool = False

    def __init__(
        self,
        apiKey: uuid.UUID | str,
        serverUrl: str | SplitResult | ParseResult,
        applicationName: str,
        *,
        trustStore: TrustStore | str | os.PathLike[str] | None = None,
        sessionStore: SessionStore | str | os.PathLike[str] | None = None,
        secretValidator: Validator = validate_secret,
        timeout: float = 120.0,
        ssl: ssl_module.SSLContext | None = None,
        proxy: str | None = None,
        objectStoreOrigins: Iterable[str] = (),
    ) -> None:
        self._endpoint = checked_endpoint(
            apiKey, serverUrl, applicationName, ssl, proxy, timeout, objectStoreOrigins
        )
        self._applicationName = applicationName
        self._trust_store = checked_trust_store(trustStore)
        self._kept = KeptSessions(checked_session_store(sessionStore), self._endpoint.origin)
        self._validator = secretValidator
        self._transport = Transport(self._endpoint)
        self._finalizer = weakref.finalize(self, _abandon, self._transport)
        self._finalizer.atexit = False
        mainQueue.notice_loop()

    @classmethod
    def fromEnvironment(cls, environment: Mapping[str, str] | None = None, **options: Any) -> Self:
        """Construct from SCBROKER_API_KEY, SCBROKER_SERVER_URL and SCBROKER_APPLICATION_NAME.

        SCBROKER_OBJECT_STORE_ORIGINS gives `objectStoreOrigins`, separated by commas. Without `environment`
        these are the process's variables. Raises `invalidArgumentError` that names those that are not set."""
        # Not as the default: help() would print all variables with the signature, and the secrets in them.
        environment = os.environ if environment is None else environment
        names = ("SCBROKER_API_KEY", "SCBROKER_SERVER_URL", "SCBROKER_APPLICATION_NAME")
        missing = [name for name in names if not environment.get(name)]
        if missing:
            raise errors.InvalidArgumentError(f"Set {', '.join(missing)} in the environment.")
        if stores := environment.get("SCBROKER_OBJECT_STORE_ORIGINS"):
            options.setdefault("objectStoreOrigins", stores.split(","))
        return cls(*(environment[name] for name in names), **options)

    @property
    def apiKey(self) -> uuid.UUID:
        return self._endpoint.apiKey

    @property
    def serverUrl(self) -> str:
        return self._endpoint.url

    @property
    def applicationName(self) -> str:
        return self._applicationName

    def close(self) -> None:
        """Forget the session and close the connections. The provider can be used again.

        A connection on which nothing moves may take longer to close than this waits.
        """
        self._forget()
        closing = io_thread.submit("close", self._transport.close())
        concurrent.futures.wait([closing], _CLOSE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._forget()
        await asyncio.wrap_future(io_thread.submit("close", self._transport.close()))

    def _forget(self) -> None:
        session, self._current, self._is_closed = self._current, None, True
        if session is not None:
            session.forget()

    def _how_to_begin(self) -> str:
        closed = "The provider was closed: call logIn or resumeSession to begin another session."
        return closed if self._is_closed else ""

    def __repr__(self) -> str:
        state = "unauthenticated" if self._current is None else f"user {self._current.userId}"
        return f"<{type(self).__name__} of {self._endpoint.url}, {state}>"

    def _register(
        self, password: str, passphrase: str, reminder: str | None = None, keep: bool = False
    ) -> Work[bytes]:
        arguments.check_credentials(password, passphrase, reminder, self._validator)
        return self._keeping(
            keep,
            lambda: self._adopt(
                accounts.register(
                    self._transport, self._trust_store, password, passphrase, reminder
                )
            ),
        )

    def _logIn(
        self,
        userId: uuid.UUID,
        password: str | None = None,
        passphrase: str | None = None,
        keyRing: KeyRing | None = None,
        keep: bool = False,
    ) -> Work[bytes | None]:
        if keyRing is not None:
            check_key_ring(keyRing, userId, password, passphrase)
            return self._keeping(keep, lambda: self._begin(keyRing))
        if passphrase is None:
            raise errors.CredentialsError(
                "logIn needs the passphrase: the password alone opens nothing."
            )
        checked_secret(passphrase, "passphrase")
        if password is not None:
            checked_secret(password, "password")
        return self._keeping(
            keep,
            lambda: self._adopt(
                accounts.log_in_with_key_file(
                    self._transport, self._trust_store, userId, password, passphrase
                )
            ),
        )

    def _begin(self, ring: KeyRing) -> Work[None]:
        """Begin a session with a KeyRing, which must have exactly the published keys."""
        return self._adopt(accounts.log_in_with_ring(self._transport, self._trust_store, ring))

    async def _keeping(self, keep: bool, begin: Callable[[], Work[T]]) -> T:
        """Begin a session, and keep it with `keep`; the store is checked before anything is sent."""
        if keep:
            await self._kept.check()
        try:
            result = await begin()
        except accounts.SupersededError as error:
            raise errors.RollbackError(error.message) from None
        if not keep:
            return result
        ring = self._session().keys.ring
        try:
            await self._kept.keep(ring)
        except errors.SessionStoreError as error:
            # Raised in place of the result: the user is registered, or logged in, nevertheless.
            failed = errors.SessionStoreError(
                f"User {ring.userId} is logged in, but the session is not kept. {error}"
            )
            failed.outcome = errors.WriteOutcome.Stored
            raise failed from None
        return result

    def _with_session(self, session: Session) -> Self:
        """Return a provider of the same broker whose operations use another session."""
        other = copy.copy(self)
        other._current = session
        return other

    def _session_of(self, ring: KeyRing) -> Session:
        """Return a session with these keys, before anything is requested from the broker."""
        return accounts.session_of(self._transport, self._trust_store, ring)

    async def _adopt(self, beginning: Work[tuple[Session, T]]) -> T:
        """Make a new session the current one; the one before is forgotten after its last operation."""
        session, result = await beginning
        session.groups.raise_owed = partial(groups.raise_owed, session)
        before, self._current, self._is_closed = self._current, session, False
        if before is not None:
            before.leave()
        return result

    def _resumeSession(self, userId: uuid.UUID | None = None) -> Work[uuid.UUID]:
        return self._resume(userId, self._begin)

    async def _resume(
        self, user_id: uuid.UUID | None, begin: Callable[[KeyRing], Work[None]]
    ) -> uuid.UUID:
        """Begin a session with the newest of the kept KeyRings whose keys the broker accepts."""
        kept = await self._kept.find(user_id)
        refused: errors.BrokerError | None = None
        for ring in kept.rings:
            try:
                await begin(ring)
                return kept.user_id
            except accounts.SupersededError as error:
                # Only newer keys than those of the newest KeyRing prove that none of them is published. A
                # refusal is the broker's word alone, and removes nothing: kept.py says why.
                if ring is kept.rings[0]:
                    await self._kept.forget_if(kept)
                    raise errors.NotAuthenticatedError(
                        f"The keys of user {kept.user_id} were replaced on another device: log in with the "
                        "new passphrase and keep=True. The kept session was removed."
                    ) from None
                refused = error
            except errors.CredentialsError as error:
                refused = error
            except errors.OfflineError:  # the cache may have the public keys of the other
                if ring is kept.rings[-1]:
                    raise
        raise errors.NotAuthenticatedError(
            f"The kept session of user {kept.user_id} could not be resumed. {refused} If the keys were "
            "replaced on another device, log in with the new passphrase and keep=True. The kept "
            "session stays."
        )

    def _getKeptSessions(self) -> Work[list[uuid.UUID]]:
        return self._kept.users()

    def _forgetKeptSession(self, userId: uuid.UUID) -> Work[None]:
        return self._kept.forget(userId)

    def _logout(self) -> Work[None]:
        session = self._session()
        self._current = None

        async def work() -> None:
            try:
                await self._kept.forget(session.userId)
            finally:
                await session.close()

        return work()

    def _deleteUser(self) -> Work[None]:
        session = self._session()

        async def work() -> None:
            await accounts.delete_user(session)
            session.forget()
            if self._current is session:
                self._current = None
            try:
                await self._kept.forget(session.userId)
            except errors.SessionStoreError as error:
                error.outcome = errors.WriteOutcome.Stored
                raise

        return session.hold(work())

    def _changeCredentials(
        self, password: str, passphrase: str, reminder: str | None = None, compromised: bool = False
    ) -> Work[bytes]:
        session = self._session()
        arguments.check_credentials(password, passphrase, reminder, self._validator)
        return session.hold(
            accounts.change_credentials(
                session, self._kept, password, passphrase, reminder, compromised
            )
        )

    def _createOrUpdateKeyFile(
        self, keyFileData: bytes, password: str, passphrase: str, reminder: str | None = None
    ) -> Work[bytes]:
        session, secrets = self._session(), (password, passphrase)
        try:
            check_key_file(keyFileData, session.userId)
        except (errors.IntegrityError, errors.KeySubstitutionError) as error:
            raise errors.InvalidArgumentError(
                f"keyFileData is not this user's KeyFile: {error}"
            ) from None
        checked_secret(password, "password")
        checked_secret(passphrase, "passphrase")
        arguments.check_reminder(reminder, secrets)
        return session.hold(
            accounts.create_or_update(
                session, self._kept, keyFileData, secrets, reminder, self._validator
            )
        )

    def _getKeyFile(self, passphrase: str) -> Work[bytes]:
        session = self._session()
        checked_secret(passphrase, "passphrase")
        return session.hold(accounts.fetch(session, passphrase))

    def _deleteKeyFile(self) -> Work[None]:
        session = self._session()
        return session.hold(accounts.delete(session))

    def _needToSyncAccount(self, userId: uuid.UUID, keyFileData: bytes) -> Work[bool]:
        session = self._session()
        if userId != session.userId:
            raise errors.InvalidArgumentError(
                "userId must be the session's own: the KeyFile of another user cannot be compared."
            )
        return session.hold(accounts.differs(session, sha256(keyFileData)))

    def _blockUser(self, userId: uuid.UUID) -> Work[None]:
        session = self._session()
        accounts.check_other(session, userId)
        return session.hold(accounts.block(session, userId))

    def _unblockUser(self, userId: uuid.UUID) -> Work[None]:
        session = self._session()
        return session.hold(accounts.unblock(session, userId))

    def _getBlockedUsers(self) -> Work[list[uuid.UUID]]:
        session = self._session()
        return session.hold(accounts.blocked(session))

    def _createGroup(
        self,
        name: str,
        members: Sequence[MemberRole] | None = None,
        description: str = "",
        managers: Sequence[GroupManager] | None = None,
    ) -> Work[Group]:
        session = self._session()
        intents = groups.checked_creation(session, name, members or [], description, managers or [])
        return session.hold(groups.create(session, intents))

    def _getGroups(self, offered: bool = True) -> Work[list[Group | errors.BrokerError]]:
        session = self._session()
        return session.hold(groups.groups(session, offered=offered))

    def _getGroupMembers(self, groupId: uuid.UUID) -> Work[list[GroupMember]]:
        session = self._session()
        return session.hold(groups.members(session, groupId))

    def _acceptGroup(self, groupId: uuid.UUID) -> Work[Group]:
        session = self._session()
        return session.hold(groups.accept(session, groupId))

    def _declineGroup(self, groupId: uuid.UUID) -> Work[None]:
        session = self._session()
        return session.hold(groups.decline(session, groupId))

    def _leaveGroup(self, groupId: uuid.UUID, abandon: bool = False) -> Work[None]:
        session = self._session()
        return session.hold(groups.leave(session, groupId, abandon=abandon))

    def _addGroupMembers(self, groupId: uuid.UUID, members: Sequence[MemberRole]) -> Work[Group]:
        session = self._session()
        return session.hold(groups.change(session, groupId, groups.checked_addition(members)))

    def _removeGroupMembers(
        self,
        groupId: uuid.UUID,
        userIds: Sequence[uuid.UUID],
        renew: bool = False,
        progress: Progress | None = None,
    ) -> Work[Group]:
        session = self._session()
        intents = groups.checked_removal(session, userIds)
        return session.hold(groups.remove(session, groupId, intents, renew, progress))

    def _setGroupRoles(self, groupId: uuid.UUID, roles: Sequence[MemberRole]) -> Work[Group]:
        session = self._session()
        return session.hold(groups.change(session, groupId, groups.checked_roles(roles)))

    def _setGroupManagers(
        self, groupId: uuid.UUID, managers: Sequence[GroupManager]
    ) -> Work[Group]:
        session = self._session()
        return session.hold(groups.change(session, groupId, groups.checked_managers(managers)))

    def _renameGroup(
        self, groupId: uuid.UUID, name: str | None = None, description: str | None = None
    ) -> Work[Group]:
        session = self._session()
        intents = groups.checked_texts(name, description)
        return session.hold(groups.change(session, groupId, intents))

    def _renewGroup(
        self, groupId: uuid.UUID, newKey: bool = False, progress: Progress | None = None
    ) -> Work[GroupRenewal]:
        session = self._session()
        return session.hold(groups.renew(session, groupId, newKey, progress))

    def _replaceGroup(
        self, groupId: uuid.UUID, newGroupId: uuid.UUID, progress: Progress | None = None
    ) -> Work[GroupRenewal]:
        session = self._session()
        if groupId == newGroupId:
            raise errors.InvalidArgumentError("newGroupId must name another group than groupId")
        return session.hold(groups.replace_group(session, groupId, newGroupId, progress))

    def _deleteGroup(self, groupId: uuid.UUID) -> Work[None]:
        session = self._session()
        return session.hold(writing.delete(session, groupId))

    def _getUsage(self) -> Work[Usage]:
        session = self._session()
        return session.hold(accounts.fetch_usage(session))

    def _getReminder(self, userId: uuid.UUID | None = None) -> Work[str]:
        user_id = self._session().userId if userId is None else userId
        return accounts.fetch_reminder(self._transport, user_id)

    def _createLink(
        self,
        containerIds: Sequence[uuid.UUID],
        permissions: ContainerAccessLevel = ContainerAccessLevel.DefaultUserPermissions,
        expiresAt: dt.datetime | None = None,
        password: str | None = None,
        name: str | None = None,
        apiKey: uuid.UUID | None = None,
    ) -> Work[Link]:
        session = self._session()
        arguments.check_named_once("containerIds", containerIds)
        if password is not None:
            arguments.check_new("password", password, self._validator)
        new = links.checked(containerIds, permissions, expiresAt, password, name, apiKey)
        return session.hold(links.create(session, new))

    def _getLinks(self) -> Work[list[Link]]:
        session = self._session()
        return session.hold(links.stored(session))

    def _revokeLink(self, link: uuid.UUID) -> Work[None]:
        session = self._session()
        return session.hold(links.revoke(session, link))

    @overload
    def getSecuredContainer(self, containerId: uuid.UUID | str) -> Promise[SecuredContainer]: ...
    @overload
    def getSecuredContainer(
        self, containerId: uuid.UUID | str, **handlers: Unpack[Handlers[SecuredContainer]]
    ) -> Self: ...
    @operation
    def getSecuredContainer(self, *args: Any, **kwargs: Any) -> Any:
        """Return the container and its metadata, verified, without decrypting content or header.

        `contentAvailability` is `NotIncluded` for a content of more than 64 KiB, whose sealed bytes are not
        in the result: read it with `openContainerContent`.

        Raises `notFoundError` without access, `deletedError` after deletion, an `untrustedError` for
        anything that its author did not make.

        The broker learns that the caller fetches the container, and when (`Accessed`)."""

    def _getSecuredContainer(self, containerId: uuid.UUID) -> Work[SecuredContainer]:
        session = self._session()

        async def work() -> SecuredContainer:
            fetched = await fetching.fetch(session, containerId, header=True, content=True)
            return await opening.secured(session, fetched)

        return session.hold(work())

    def _getSentChanges(self, containerId: uuid.UUID) -> Work[list[SentChange]]:
        session = self._session()
        known = marks if session.groups.known(containerId) is None else groups
        return session.hold(known.sent_changes(session, containerId))

    def _confirmAccess(
        self, containerId: uuid.UUID, accept: Head | None = None
    ) -> Work[UnsettledAccess | None]:
        session = self._session()
        return session.hold(marks.confirm(session, containerId, accept))

    def _resetContainerMark(
        self, containerId: uuid.UUID, accept: Head | None = None
    ) -> Work[Heads]:
        session = self._session()
        known = marks if session.groups.known(containerId) is None else groups
        return session.hold(known.reset(session, containerId, accept))

    def _resetEventMark(
        self, accept: Head | None = None, groupId: uuid.UUID | None = None
    ) -> Work[Heads]:
        session = self._session()
        return session.hold(events.reset_mark(events.Source(session, groupId), accept))

    def _getContactCard(self, name: str) -> Work[ContactCard]:
        card = ContactCard(self._session().keys.ring.fingerprint, self.serverUrl, name)

        async def work() -> ContactCard:
            return card

        return work()

    def _getPublicKeys(
        self,
        userId: uuid.UUID | None = None,
        keyType: KeyType | None = None,
        index: int | None = None,
    ) -> Work[list[PublicKey]]:
        session = self._session()
        if index is not None and index < 0:
            raise errors.InvalidArgumentError(f"index must be 0 or more, not {index}")
        user_id = session.userId if userId is None else userId
        return session.hold(session.directory.public_keys(user_id, keyType, index))

    def _getLatestActiveSigningKey(
        self, userId: uuid.UUID, keyType: KeyType = KeyType.Signing
    ) -> Work[PublicKey | None]:
        session = self._session()
        return session.hold(session.directory.latest_active(userId, keyType))

    def _getEvents(
        self,
        eventType: list[ContainerEventType] | None = None,
        containerId: uuid.UUID | None = None,
        containerType: str | None = None,
        startId: int | None = None,
        endId: int | None = None,
        groupId: uuid.UUID | None = None,
    ) -> Work[list[ContainerEvent]]:
        session = self._session()
        criteria = events.checked_criteria(eventType, containerId, containerType, startId, endId)
        return session.hold(events.events(events.Source(session, groupId), criteria))

    def _followEvents(
        self,
        startId: int | None = None,
        eventType: list[ContainerEventType] | None = None,
        containerId: uuid.UUID | None = None,
        containerType: str | None = None,
        groupStartIds: Mapping[uuid.UUID, int] | None = None,
    ) -> Pages[ContainerEvent]:
        session, group_starts = self._session(), groupStartIds or {}
        for start in (startId, *group_starts.values()):
            events.checked_criteria(None, None, None, start, None)
        criteria = following.Criteria(eventType, containerId, containerType)
        return following.follow(session, startId, group_starts, criteria)


def check_key_ring(
    keyRing: KeyRing, userId: uuid.UUID, password: str | None, passphrase: str | None
) -> None:
    """Raise `InvalidArgumentError` for a log-in with a KeyRing that is another user's, or with secrets."""
    if password is not None or passphrase is not None:
        raise errors.InvalidArgumentError(
            "logIn takes a KeyRing or secrets, not both: leave out password and passphrase"
        )
    if keyRing.userId != userId:
        raise errors.InvalidArgumentError(
            f"keyRing belongs to user {keyRing.userId}, not to userId {userId}"
        )


def _abandon(transport: Transport) -> None:
    """Close the connections of a provider that was dropped without `close`."""
    io_thread.submit("close", transport.close())
