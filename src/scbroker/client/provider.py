"""The operations of a provider: the signature, the documentation and the body of each.

`@operation` makes a method of each body that serves both call styles: as a promise, and with the keywords of
`Handlers`. The generated `provider.pyi` shows both to type checkers. The steps of a body before its first
`await` run at the call, on the caller's thread: they check the arguments and take the session.

Every operation raises `BrokerError`s. An error's `outcome` says whether the change that failed may have taken
effect: once a signed record was sent, a refusal is only the broker's word. In promise style the call itself
raises for a wrong argument or a missing session, and the promise carries every other error. In callback style
`errorHandler` gets them all; the call raises only if `errorHandler` or `queue` is wrong. The parameters of
the interface can be given by position, in its order; those that this project adds by name only. An id may be
given as a uuid.UUID or as its text, and a `UserRef` as a Contact or a ContactCard as well.
"""

from __future__ import annotations

import abc
import builtins
import logging
import uuid
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from scbroker import errors
from scbroker.cards import ContactCard
from scbroker.client import arguments, events, parts
from scbroker.client.arguments import (
    Changes,
    EventTypes,
    Expiry,
    GroupId,
    Holders,
    Id,
    IdList,
    Ids,
    Kind,
    LevelList,
    Levels,
    LinkId,
    LocalPath,
    Managers,
    Members,
    NewContainers,
    Octets,
    Permissions,
    Progress,
    Reports,
    Roles,
    Starts,
    UserId,
    Users,
    checked_content,
    decode_header,
    encode_header,
    header_left_out,
    key_ring_first,
    no_progress,
)
from scbroker.client.calls.operation import (
    Operations,
    Pages,
    called,
    operation,
    operation_of_forms,
    stream_operation,
)
from scbroker.client.containers import contents, fetching, marks, writing
from scbroker.client.containers.contents import ContentReader
from scbroker.client.containers.writing import OWNER, Change, Grants, Merge, check_own_type
from scbroker.client.http.requests import Requests
from scbroker.client.people import links
from scbroker.client.rosters import operations as groups
from scbroker.client.rosters import writing as group_writing
from scbroker.client.users import accounts
from scbroker.client.users.accounts import Validator
from scbroker.client.users.session import Session
from scbroker.client.users.session_store import KeptSessions
from scbroker.client.users.trust_store import TrustStore
from scbroker.crypto.verify import sha256
from scbroker.keys import KeyRing, check_key_file, checked_secret
from scbroker.records.container_record import Role
from scbroker.types import (
    AccessChange,
    Container,
    ContainerEvent,
    ContainerPage,
    ContentSource,
    Group,
    GroupMember,
    GroupRenewal,
    Head,
    Header,
    Heads,
    Link,
    NewContainer,
    PublicKey,
    SecuredContainer,
    SentChange,
    UnsettledAccess,
    Usage,
)
from scbroker.vocabulary import ContainerAccessLevel, KeyType, holder_of, uuid_of
from scbroker.wire.containers import MAX_BATCH

_log = logging.getLogger("scbroker")
P = ParamSpec("P")
T = TypeVar("T")
Work = Coroutine[Any, Any, T]
if TYPE_CHECKING:  # `default` is new in Python 3.13; type checkers bring typing_extensions
    import typing_extensions

    H = typing_extensions.TypeVar("H", default=Any)
else:
    H = TypeVar("H")


class BrokerProvider(Operations, abc.ABC):
    """A user's session against a broker: a protocol, to type checkers and to `isinstance`.

    All operations but `register`, `logIn`, `resumeSession`, `getKeptSessions`, `forgetKeptSession` and
    `getReminder` raise `notAuthenticatedError` without a session.
    """

    _current: Session | None = None
    _requests: Requests
    _trust_store: TrustStore
    _kept: KeptSessions
    _validator: Validator

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        if cls is not BrokerProvider:
            return NotImplemented
        return True if all(hasattr(other, name) for name in OPERATIONS) else NotImplemented

    @operation
    async def register(
        self, password: str, passphrase: str, reminder: str | None = None, *, keep: bool = False
    ) -> bytes:
        """Create a user with new keys, store the KeyFile on the broker, and log in.

        Returns the encrypted KeyFile. The password encrypts the KeyRing; the passphrase encrypts the
        password. With the passphrase the user can log in from any device. The operator cannot reset it; a
        device that is logged in can (`changeCredentials`). Save the KeyFile: with it, the password logs in
        too. Takes about 0.4 s (Argon2id). `keep=True` keeps the session on this device, as at `logIn`.

        Raises `invalidArgumentError` for a missing or weak secret, for a passphrase that is the password, for
        a reminder that contains one of them, and if the broker takes no log-ins at serverUrl;
        `sessionStoreError` if the session cannot be kept: nothing was sent then, unless `outcome` is Stored.
        The broker learns the public keys, the encrypted KeyFile, a proof of the passphrase, and the reminder
        in clear text."""
        accounts.check_credentials(password, passphrase, reminder, self._validator)
        await called()
        return await self._keeping(
            keep,
            lambda: self._adopt(
                accounts.register(self._requests, self._trust_store, password, passphrase, reminder)
            ),
        )

    @operation_of_forms(
        key_ring_first,
        first="userId password passphrase keep -> bytes",
        second="keyRing userId keep -> None",
    )
    async def logIn(
        self,
        userId: Id,
        password: str | None = None,
        passphrase: str | None = None,
        *,
        keyRing: KeyRing | None = None,
        keep: bool = False,
    ) -> bytes | None:
        """Log in with a user id and the passphrase (the password alone does not log in), or with a KeyRing.

        With `userId` and `passphrase` the client fetches the KeyFile, opens it, and returns its encrypted
        bytes. `password` is optional; a wrong one is an error. With `keyRing` and `userId` only the published
        keys are fetched, which must be those of the KeyRing; nothing is returned. The provider keeps its
        present session until the new one is complete. The trust store keeps a device pass for the user, also
        after a log-out: the broker delays guesses from devices without a pass, but not this device.

        `keep=True` keeps the KeyRing in the provider's `sessionStore`, so that `resumeSession` begins the
        next session without a secret: for devices of one person alone. Without it, a session that is kept
        already stays so.

        Raises `credentialsError` for a wrong or missing passphrase, an unknown user, or a wrong password;
        `invalidArgumentError` for an empty passphrase or password; `decryptionError` for a damaged KeyFile;
        `throttledError` after too many guesses; `rollbackError` for an older KeyFile than this device has
        seen; `sessionStoreError` if the session cannot be kept: nothing was sent then, unless `outcome` is
        Stored.

        The broker learns the user id, a proof of the passphrase, and from the pass which device logs in."""
        if keyRing is not None:
            check_key_ring(keyRing, userId, password, passphrase)
        elif passphrase is None:
            raise errors.CredentialsError(
                "logIn needs the passphrase: the password alone opens nothing."
            )
        else:
            checked_secret(passphrase, "passphrase")
        if password is not None:
            checked_secret(password, "password")
        await called()
        return await self._log_in(userId, password, passphrase or "", keyRing, keep)

    @operation
    async def resumeSession(self, userId: Id | None = None) -> uuid.UUID:
        """Begin a session that `keep=True` kept on this device, and return its user's id.

        Needs no secret and no Argon2id. `userId` may be left out if the sessions of only one user are kept
        for this broker. Like `logIn` with a KeyRing, it verifies that the published keys are those of the
        KeyRing.

        Raises `notAuthenticatedError` if no session is kept, or if the keys were replaced on another device:
        log in with the passphrase and `keep=True`. The kept session is removed only if a signature proves
        the replacement; otherwise it stays, because a broker could claim it falsely. Raises
        `invalidArgumentError` that names the users if several are kept; `sessionStoreError` if the keychain
        is locked or the kept session is damaged.

        The broker learns the user id, and that a device of the user begins a session."""
        await called()
        return await self._resume(userId, self._begin)

    @operation
    async def getKeptSessions(self) -> list[uuid.UUID]:
        """Return the ids of the users whose sessions are kept on this device for this broker, ascending.

        Raises `sessionStoreError` if the store cannot be read. The broker learns nothing: nothing is sent."""
        await called()
        return await self._kept.users()

    @operation
    async def forgetKeptSession(self, userId: Id) -> None:
        """Remove a user's kept session from this device; needs no session and no secret.

        Does nothing if none is kept. The provider's present session stays: `logout` ends it, and removes the
        kept one as well.

        Raises `sessionStoreError` if the store cannot be written. The broker learns nothing: nothing is
        sent."""
        await called()
        return await self._kept.forget(userId)

    @operation
    async def logout(self) -> None:
        """End the session: forget keys and token, and revoke the token at the broker.

        Operations under way keep the session that they began with; it ends after the last of them. A kept
        session of the user is removed from this device; `close` leaves it.

        Raises `notAuthenticatedError` without a session; `sessionStoreError`, after the session has ended, if
        the kept one could not be removed; an unreachable broker is not an error.
        The broker learns that this session ended."""
        session = self._session()
        self._current = None
        await called()
        try:
            await self._kept.forget(session.userId)
        finally:
            await session.close()

    @operation
    async def deleteUser(self) -> None:
        """Delete the session's user and all their data from the broker for ever; it cannot be undone.

        KeyFile, reminder, sessions, events and memberships go, and every container that nobody else has
        access to. The id stays, so that it is never registered again. Containers that others have access to
        stay with the records that the user signed; the user's public keys stay, all retired, as long as such
        a container exists or the tombstone of one that others may be shown. The event logs of others name the
        user and the program that acted, except in events of deleted containers. Only the id is left of a user
        who shared nothing.

        Afterwards the provider has no session, the user's kept session is removed, and the private keys are
        overwritten in memory unless the program itself holds the KeyRing. If the call fails, the session
        stays; called again after a lost answer, it ends the same way.

        Raises `notAuthenticatedError` also if the keys were replaced on another device; `clockError` if this
        machine's clock is minutes off; `sessionStoreError`, with the `outcome` Stored, if the kept session
        could not be removed. The broker learns that the user was deleted, and keeps a signed record
        that says so to others."""
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

        return await session.hold(work())

    @operation
    async def changeCredentials(
        self,
        password: str,
        passphrase: str,
        reminder: str | None = None,
        *,
        compromised: bool = False,
    ) -> bytes:
        """Encrypt the KeyFile under a new password and passphrase, and return its encrypted bytes.

        If `reminder` is None, the stored one stays; an empty one removes it. The client reads a reminder that
        is to stay, and refuses it if it contains one of the new secrets. Takes about 0.4 s (Argon2id).

        The tokens of the user's other sessions end, but a device that has the KeyRing in memory, or keeps its
        session, can log in again. `compromised=True` prevents that: it adds a new signing and a new
        encryption key and retires the old ones, which still open and verify what was made with them; other
        devices log in with the new passphrase. A session that this device keeps goes on with the new keys.
        Content that a member writes from then on does not open with the old keys, unless the broker hides the
        change from that member's device. It does not rescue a KeyRing that leaked, because the user id is
        derived from signing key 0: register a new user and share the containers with it.

        Raises `invalidArgumentError` for a weak secret, a passphrase that is the password, or a reminder that
        contains one of them; `conflictError` if the credentials were changed on another device meanwhile.
        After an `unreachableError` either the old or the new secrets are valid: try the new ones first.
        The broker learns what it learns at `register`, and the new public keys."""
        self._session()  # who has none is told so first
        accounts.check_credentials(password, passphrase, reminder, self._validator)
        secrets = password, passphrase, reminder
        return await self._hold(accounts.change_credentials, self._kept, *secrets, compromised)

    @operation
    async def getKeyRing(self) -> KeyRing:
        """Return the KeyRing of the session.

        Raises `notAuthenticatedError` without a session. The broker learns nothing: nothing is sent."""
        return self._session().keys.ring

    @operation
    async def getUserId(self) -> uuid.UUID:
        """Return the user id of the session.

        Raises `notAuthenticatedError` without a session. The broker learns nothing: nothing is sent."""
        return self._session().userId

    @operation
    async def getContactCard(self, name: str) -> ContactCard:
        """Return the session's own contact card, to hand to other people.

        The card has the user's fingerprint, `serverUrl`, and `name`: how others are to call this user, 1 to
        64 printable characters. Others add it with `Contacts.add`, and can then share containers with the
        user. Everybody who has the card can offer the user containers.

        Raises `invalidArgumentError` for a name that a card cannot have, `notAuthenticatedError` without a
        session. The broker learns nothing: nothing is sent."""
        return ContactCard(self._session().keys.ring.fingerprint, self._requests.endpoint.url, name)

    @operation
    async def getReminder(self, userId: Id | None = None) -> str:
        """Return a user's reminder: by default that of the session's user. Works before log-in.

        Returns "" for an unknown user as for one without a reminder. Everybody who has the API key can read
        every reminder.

        Raises `notAuthenticatedError` without `userId` and without a session; `throttledError` after too many
        requests from this address. The broker learns whose reminder is read, but not by which user."""
        user_id = self._session().userId if userId is None else userId
        await called()
        return await accounts.fetch_reminder(self._requests, user_id)

    @operation
    async def createOrUpdateKeyFile(
        self, keyFileData: Octets, password: str, passphrase: str, reminder: str | None = None
    ) -> bytes:
        """Store a given KeyFile in place of the one on the broker, and return the bytes stored.

        The password must open the KeyFile; this is checked before anything is sent. The passphrase secures it
        on the broker from then on: if it is the one of these bytes, they are stored as they are. If it is
        another one, the KeyRing is sealed anew under both secrets as the next generation: keep the bytes that
        this returns, since the ones given are then older than the stored ones. Sessions go on.

        The KeyFile must hold exactly the published keys and be no older than the one stored last. `reminder`
        is treated as in `changeCredentials`. For a backup, another passphrase, or after `deleteKeyFile`.

        Raises `invalidArgumentError` for bytes that are not this user's KeyFile, a weak new passphrase, or a
        reminder that contains a secret; `credentialsError` if the password does not open the KeyFile, also
        where that is because the KeyFile is damaged; `rollbackError` for an older KeyFile and `forkError` for
        another one of the same generation.

        The broker learns the encrypted KeyFile, a proof of the passphrase, and the reminder in clear text."""
        session, secrets = self._session(), (password, passphrase)
        try:
            check_key_file(keyFileData, session.userId)
        except (errors.IntegrityError, errors.KeySubstitutionError) as error:
            raise errors.InvalidArgumentError(
                f"keyFileData is not this user's KeyFile: {error}"
            ) from None
        checked_secret(password, "password")
        checked_secret(passphrase, "passphrase")
        accounts.check_reminder(reminder, secrets)
        return await session.hold(
            accounts.create_or_update(
                session, self._kept, keyFileData, secrets, reminder, self._validator
            )
        )

    @operation
    async def deleteKeyFile(self) -> None:
        """Delete the session's KeyFile, the passphrase's verifier and the reminder from the broker.

        Nobody can log in with a passphrase until `createOrUpdateKeyFile` or `changeCredentials` stores
        another KeyFile: keep the bytes. The session goes on. Does nothing if no KeyFile is stored.

        Raises `notAuthenticatedError` also if the keys were replaced on another device. The broker learns
        that the user deletes the KeyFile, and forgets it."""
        return await self._hold(accounts.delete)

    @operation
    async def getKeyFile(self, passphrase: str) -> bytes:
        """Return the session's KeyFile, encrypted, as the broker stores it.

        The client verifies that the passphrase opens it, and that this device has not seen a newer KeyFile.

        Raises `credentialsError` for a wrong passphrase or if no KeyFile is stored, `invalidArgumentError`
        for an empty passphrase, `throttledError` after too many guesses. The broker learns a proof of the
        passphrase and no more."""
        checked_secret(passphrase, "passphrase")
        return await self._hold(accounts.fetch, passphrase)

    @operation
    async def needToSyncAccount(self, userId: Id, keyFileData: Octets) -> bool:
        """Return whether the KeyFile on the broker differs from these bytes; True if it keeps none.

        True means that the local copy has to be fetched again: the credentials or keys were changed on
        another device, or the copy is damaged. Any bytes are compared, also empty or damaged ones.

        Raises `invalidArgumentError` if `userId` is not the id of the session's user; `rollbackError` or
        `forkError` if the broker names an older KeyFile than this device has seen, or another of the same
        generation.

        The broker learns that this session asks for the state of its KeyFile. It answers with the SHA-256 of
        the stored KeyFile; the comparison is made here, so it learns nothing of `keyFileData`, nor the
        outcome."""
        session = self._session()
        if userId != session.userId:
            raise errors.InvalidArgumentError(
                "userId must be the session's own: the KeyFile of another user cannot be compared."
            )
        return await session.hold(accounts.differs(session, sha256(keyFileData)))

    @operation_of_forms(
        header_left_out,
        first="content customHeaderObject accessLevels type progress",
        second="content accessLevels type progress",
    )
    async def createContainer(
        self,
        content: ContentSource | None,
        customHeaderObject: object = None,
        accessLevels: LevelList | None = None,
        type: str | None = None,
        *,
        progress: Reports | None = None,
    ) -> SecuredContainer:
        """Encrypt content and header and store them in a new container; the result has its id.

        The parameters go by position in either form: content, accessLevels, type, or content,
        customHeaderObject, accessLevels, type. A list of AccessLevel in second place, the empty list
        included, is the first form: give a header that is an empty list by its name.

        `content` is bytes-like, a `pathlib.Path`, a binary file or an iterator of bytes. Contents of more
        than 64 KiB are encrypted and sent in segments; scbroker's own thread calls `progress(done, total)`
        with numbers of bytes. `customHeaderObject` is anything that JSON can hold, by msgspec or pydantic. If
        `accessLevels` is None or empty, the caller alone gets access, with owner permissions; any other list
        is used exactly, also if it leaves out the caller, which is logged. `type` is a label of at most 256
        bytes.

        Raises `invalidArgumentError` for an argument that cannot be stored; `notFoundError` for an unknown
        user in `accessLevels`; `keySubstitutionError` if the broker serves somebody else's keys for a user.
        If the `outcome` of an error is `Uncertain`, the container may exist, and its members may have the
        key; the error has its id.

        The broker learns the members and their permissions, the type, sizes and times; it learns nothing of
        content and header."""
        session = self._session()
        new = NewContainer(content, customHeaderObject, accessLevels, type)
        change = changed_fields(new, progress, session.userId)
        _warn_of_closed(session, change, "The new container")
        return await session.hold(writing.create(session, change))

    @operation
    async def createContainers(
        self, containers: NewContainers
    ) -> list[SecuredContainer | errors.BrokerError]:
        """Create many containers in few requests; the results are in the order of the items.

        Each is created as by `createContainer`, independently of the others: an item that failed has its
        `BrokerError` as its result. Large contents are sent before their container; an upload that was cut
        off starts again at its beginning.

        Raises `invalidArgumentError` with the position of the wrong item, before anything is sent. If a
        request gets no answer, its error is that of each container that is not stored, with an `outcome` and
        an id of its own. The operation fails as a whole only if no record was sent.

        The broker learns of each what it learns at `createContainer`, and that they were made together."""
        session = self._session()
        changes = [_new(session.userId, number, item) for number, item in enumerate(containers)]
        for number, change in enumerate(changes):
            _warn_of_closed(session, change, f"containers[{number}]")
        return await session.hold(writing.create_each(session, changes))

    @operation
    async def updateContainer(
        self,
        containerId: Id,
        content: ContentSource | None = None,
        customHeaderObject: object = None,
        accessLevels: LevelList | None = None,
        type: str | None = None,
        *,
        ifVersion: int | None = None,
        progress: Reports | None = None,
    ) -> SecuredContainer:
        """Replace content, header, access and type together.

        Warning: an omitted parameter is erased or unshared, not kept. Without `content`, `customHeaderObject`
        or `type` the container has none afterwards; without `accessLevels` (None or empty) its creator alone
        has access, with owner permissions, and everybody else loses it, the caller too unless they are the
        creator. To change one of them, call updateContainerContent, updateContainerHeader,
        updateContainerAccessLevels or updateContainerType.

        Needs Upload, ModifyType and ModifyAccess, and every permission that it gives or takes.

        Raises `permissionDeniedError` without these permissions, before anything is sent;
        `invalidArgumentError` without access levels if the creator was deleted; `conflictError` if the
        container is not at version `ifVersion` any more. After an error whose `outcome` is `Uncertain` the
        change may take effect at any time. The broker learns what it learns at `createContainer`, and records
        the result as a fetch."""
        new = NewContainer(content, customHeaderObject, accessLevels, type)
        return await self._hold(
            writing.update, containerId, changed_fields(new, progress), ifVersion
        )

    @operation
    async def updateContainerHeader(
        self, containerId: Id, customHeaderObject: object = None, *, ifVersion: int | None = None
    ) -> SecuredContainer:
        """Replace the header. Needs Upload.

        Warning: without `customHeaderObject` the header is erased. If another field was changed meanwhile,
        the update is made on top of that change.

        Raises `permissionDeniedError` without Upload, `conflictError` if the header was changed meanwhile.
        After an error whose `outcome` is `Uncertain` the change may take effect at any time.

        The broker learns that the header changed, and its size. The result is that of `getSecuredContainer`,
        with a sealed content of up to 64 KiB: the broker records that as a fetch (`Accessed`)."""
        change = Change(header=encode_header(customHeaderObject))
        return await self._hold(writing.update, containerId, change, ifVersion)

    @operation
    async def updateContainerContent(
        self,
        containerId: Id,
        content: ContentSource | None = None,
        *,
        ifVersion: int | None = None,
        progress: Reports | None = None,
    ) -> SecuredContainer:
        """Replace the content. Needs Upload.

        Warning: without `content` the content is erased. If another field was changed meanwhile, the update
        is made on top of that change.

        Raises `permissionDeniedError` without Upload, `conflictError` if the content was changed meanwhile.
        After an error whose `outcome` is `Uncertain` the change may take effect at any time.

        The broker learns that the content changed, and its size. The result is that of `getSecuredContainer`,
        with the sealed header: the broker records that as a fetch (`Accessed`)."""
        change = Change(content=checked_content(content), progress=progress or no_progress)
        return await self._hold(writing.update, containerId, change, ifVersion)

    @operation
    async def updateContainerAccessLevels(
        self,
        containerId: Id,
        accessLevels: LevelList | None = None,
        *,
        ifVersion: int | None = None,
    ) -> None:
        """Replace the access list. Needs ModifyAccess, and every permission that is given or taken.

        Warning: without `accessLevels` (left out, None or empty) the container's creator alone has access
        afterwards, with owner permissions. Everybody else loses it, the caller too unless they are the
        creator. For anything else name every user, yourself included.

        Makes a new container key: a removed member cannot open anything that is written from now on, but may
        have kept what they could read. Costs one key wrap for each member, whatever the content's size.

        Raises `permissionDeniedError`, before anything is sent, without a permission that this gives or
        takes; `invalidArgumentError` without access levels if the creator was deleted, and for the caller's
        own address book or list of links. After an error whose `outcome` is `Uncertain` the new members may
        have the key, and the list may take effect at any time: make any other change to void it.
        The broker learns the new members and their permissions."""
        change = Change(grants=arguments.checked_grants(accessLevels))
        return await self._hold(writing.append, containerId, change, ifVersion)

    @operation
    async def updateContainersAccessLevels(
        self, changes: Changes
    ) -> list[SecuredContainer | errors.BrokerError]:
        """Change the access lists of many containers in few requests; the results are in their order.

        Each container is changed independently of the others; if the change fails, its result is the
        `BrokerError`. `add` and `remove` of an item work as `grantAccess` and `revokeAccess`. `replace` works
        as `updateContainerAccessLevels`: the result is a `conflictError` if somebody else changed the
        container after the client read it.

        Raises `invalidArgumentError` with the position of the wrong item, also for a container that is named
        twice, before anything is sent. If a request gets no answer, each of its containers that was not
        changed gets the error, with its own `outcome`. The whole operation fails only if no change was sent.

        The broker learns of each container what it learns at `updateContainerAccessLevels`, and that the
        containers were changed together."""
        items = [_access_change(number, item) for number, item in enumerate(changes)]
        return await self._update_each("changes", items)

    @operation
    async def grantAccess(
        self, containerIds: Ids, accessLevels: Levels
    ) -> list[SecuredContainer | errors.BrokerError]:
        """Give users access to containers; all other users keep theirs. Needs ModifyAccess and what is given.

        The given permissions and expiry replace those of a user who has access already. Changes that others
        make at the same time are kept: after a conflict the client reads the new list and adds the users to
        it, in 16 attempts at most. A container whose list has these entries already is not written. The
        results are those of `updateContainersAccessLevels`: a container or its `BrokerError`.

        A result is a `permissionDeniedError` if the caller lacks a permission that is given or taken, a
        `notFoundError` for an unknown user, an `invalidArgumentError` for the caller's own address book or
        list of links, and a `conflictError` if all attempts met a conflict. After an error with the `outcome`
        `Uncertain`, the users may have the container key.

        Raises `invalidArgumentError` for a wrong argument, and for a container or user that is named twice.
        The broker learns the users and their permissions, and that the containers were shared together."""
        merge = Merge(arguments.checked_grants(accessLevels), frozenset())
        return await self._update_each("containerIds", [(each, merge) for each in containerIds])

    @operation
    async def revokeAccess(
        self, containerIds: Ids, userIds: Holders
    ) -> list[SecuredContainer | errors.BrokerError]:
        """Remove users from containers; all other users keep access. Needs ModifyAccess and what is taken.

        Makes a new key for each container: the removed users cannot open anything that is written from now
        on, but may have kept copies of what they could read. A user without access is ignored. Changes that
        others make at the same time are kept, as with `grantAccess`. The results are those of
        `updateContainersAccessLevels`.

        A result is a `permissionDeniedError` if the caller lacks a permission that is taken, an
        `invalidArgumentError` if nobody would have access afterwards (delete the container instead), and a
        `conflictError` if all 16 attempts met a conflict.

        Raises `invalidArgumentError` for a wrong argument, and for a container that is named twice.
        The broker learns the users, and that they were removed from these containers together."""
        merge = Merge({}, frozenset(userIds))
        return await self._update_each("containerIds", [(each, merge) for each in containerIds])

    @operation
    async def createLink(
        self,
        containerIds: Ids,
        permissions: Permissions = ContainerAccessLevel.DefaultUserPermissions,
        expiresAt: Expiry | None = None,
        password: str | None = None,
        *,
        name: str | None = None,
        apiKey: Id | None = None,
    ) -> Link:
        """Make a link: its `url` gives people without an account read access to containers.

        The client registers a user for the link and gives it these permissions until `expiresAt`, which is
        required. Anybody who has the URL, and `password` if one is given, can read until then: the URL is a
        secret. `permissions` must not include Upload, ModifyAccess, ModifyType or Delete. Everybody with the
        link also gets the API key in it: the provider's own, or `apiKey`. `getLinks` returns the link on all
        devices of the caller. The caller needs ModifyAccess and the permissions that the link gives. Takes
        about 0.4 s (Argon2id).

        The link gives access to all of the containers or does not exist: if one of them cannot be shared, the
        client revokes the link and raises the error of this container. If the revocation fails as well,
        `getLinks` still returns the link: revoke it. Nobody has its URL.

        Raises `invalidArgumentError` for a wrong argument, such as permissions that a link cannot have, a
        time that is missing or past, or a weak password; `permissionDeniedError`, `notFoundError` or
        `deletedError`, with its `containerId`, for a container that the caller cannot share, before anything
        is changed; and what `grantAccess` and `createContainer` raise. The broker learns that a user was
        registered and given access by the caller at once, and can conclude that it is a link; it learns
        neither URL nor name."""
        session = self._session()
        arguments.check_named_once("containerIds", containerIds)
        if password is not None:
            accounts.check_new("password", password, self._validator)
        given = containerIds, permissions, expiresAt, password, name, apiKey
        return await session.hold(links.create(BaseProvider._of(session), *given))

    @operation
    async def getLinks(self) -> list[Link]:
        """Return the caller's links with their URLs, oldest first, also those that have expired.

        They are stored in a container of the caller's own, so every device of the caller has them. A link is
        stored before it gives access to anything.

        Raises `integrityError` for a list that scbroker did not write, `unsupportedVersionError` for one of a
        newer version, `rollbackError` if the broker denies the list, and what `getContainer` raises.
        The broker learns that the caller reads the container in which the links are kept."""
        session = self._session()
        return await session.hold(links.stored(BaseProvider._of(session)))

    @operation
    async def revokeLink(self, link: LinkId) -> None:
        """End a link: revoke its access, delete its user, and remove it from `getLinks`.

        `link` is a Link or its `userId`. As with `revokeAccess`, people with the link cannot open anything
        that is written from now on, but may have kept copies of what they could read. Call it for expired
        links too: until then, only the broker keeps their users out. After an error, call it again.

        A container whose access the caller may not change any more is logged: the broker serves nothing to
        the deleted user, and the next change of access removes the entry. It is logged as well if the user
        cannot be deleted because somebody with the link replaced its keys: it has no access any more.

        Raises `notFoundError` if the caller has no such link, and what `revokeAccess` raises.
        The broker learns what it learns at `revokeAccess` and `deleteUser`."""
        session = self._session()
        return await session.hold(links.revoke(BaseProvider._of(session), link))

    @operation
    async def updateContainerType(
        self, containerId: Id, type: str | None = None, *, ifVersion: int | None = None
    ) -> None:
        """Replace the type label. Needs Upload and ModifyType.

        Warning: without `type` the label is erased.

        Raises `permissionDeniedError` without these permissions, `conflictError` if the type was changed
        meanwhile, `invalidArgumentError` for a label of more than 256 bytes. After an error whose `outcome`
        is `Uncertain` the change may take effect at any time. The broker learns the new type."""
        return await self._hold(
            writing.append, containerId, Change(type=arguments.checked_type(type)), ifVersion
        )

    @operation
    async def getContainer(
        self,
        containerId: Id,
        headerType: builtins.type[H] | None = None,
        *,
        progress: Reports | None = None,
    ) -> Container[H]:
        """Return content, header and metadata, each None where the caller's permissions hide it.

        `contentAvailability` and `headerAvailability` distinguish a missing part from a hidden one.
        `headerType` is a type that the header is decoded into and validated against. Before it returns
        anything, the client verifies the signatures, the authors' permissions, that the container is not
        older than this device has seen it, and every byte.

        Raises `notFoundError` without access, `deletedError` after deletion, `invalidArgumentError` if the
        header does not fit `headerType`, an `untrustedError` for anything that its author did not make.

        The broker learns that the caller fetches the container, and when (`Accessed`)."""

        async def use(session: Session, opened: fetching.Opened) -> Container[Any]:
            header = _header(fetching.read_part(opened, Role.Header), headerType)
            content = await contents.read(session, opened, progress or no_progress)
            return fetching.container(session, opened, content, header)

        return await self._read(containerId, use, header=True, content=True)

    @operation
    async def getContainers(
        self,
        containerIds: IdList,
        headerType: builtins.type[H] | None = None,
        *,
        content: bool = True,
        headers: bool = True,
    ) -> list[Container[H] | errors.BrokerError]:
        """Read many containers in few requests; the results are in the order of the ids.

        Each is verified as by `getContainer`, independently of the others: one that cannot be read has its
        `BrokerError` as its result. `headerType` applies to every header. An id may occur twice. With
        `content=False` or `headers=False` that part is not fetched, and its availability is `NotIncluded`.

        Raises `invalidArgumentError` with the position of a wrong id. If a request gets no answer, also one
        for a large content, the operation fails as a whole, as with an `unreachableError`.

        The broker learns of each what it learns at `getContainer`, and that they were read together; without
        contents and headers it records no fetch (`Accessed`)."""
        session, open_header = self._session(), partial(_header, header_type=headerType)
        wanted = {Role.Header: headers, Role.Content: content}
        asked = [role for role, is_wanted in wanted.items() if is_wanted]
        return await session.hold(
            contents.get_each(session, list(containerIds), open_header, asked)
        )

    @operation
    async def listContainers(
        self,
        containerType: str | None = None,
        startAfter: Id | None = None,
        limit: int = 64,
        headers: bool = True,
        headerType: builtins.type[H] | None = None,
    ) -> ContainerPage[H]:
        """Return a page of the containers that the caller has access to, by id, each verified.

        Containers are returned as by `getContainers`, but without content, and with `headers=False` also
        without header. For a container that cannot be verified or opened, the entry is a `BrokerError` whose
        `containerId` names it. Pass `next` as `startAfter` to get the next page; a container that the caller
        can access all the time appears on exactly one page. `containerType` selects the containers that have
        exactly this type and whose type the caller may see. `limit` is at most 64; a page may have fewer.

        A broker can leave out containers that this device never read. If it leaves out one that this device
        has read, the client requests it by its id: a container that is served joins the page, and one that
        the broker denies is in `leftOut`. Then the access has ended, or the broker withholds the container.
        With `containerType` this is not checked, because a device does not remember types.

        Raises `brokerFaultError` for a list out of order, `invalidArgumentError` for a limit out of range.

        The broker learns that the caller lists containers, of which type, and which versions this device has
        read; with `headers`, that it fetches each header, and when (`Accessed`)."""
        wanted = _wanted(containerType, limit, headers, headerType)
        return await self._hold(contents.page, wanted, startAfter)

    @stream_operation
    def iterContainers(
        self,
        containerType: str | None = None,
        startAfter: Id | None = None,
        headers: bool = True,
        headerType: builtins.type[H] | None = None,
    ) -> Pages[Container[H] | errors.BrokerError]:
        """Return a stream of all containers that the caller has access to, by id, each verified.

        The entries are those of `listContainers`. Iterate with `for` or `async for`, or pass `eventHandler`,
        which is called with each entry. The client prefetches a page; memory does not depend on the number of
        containers. The ids of `leftOut` are logged as a warning.

        Raises what `listContainers` raises, while it is iterated over.

        The broker learns what it learns at `listContainers`."""
        session = self._session()
        wanted = _wanted(containerType, MAX_BATCH, headers, headerType)
        return contents.pages(session, wanted, startAfter)

    @operation
    async def getContainerHeader(
        self, containerId: Id, headerType: builtins.type[H] | None = None
    ) -> Header[H] | None:
        """Return the decrypted header; None if the container has none or permissions hide it.

        `headerType` is that of `getContainer`, whose `headerAvailability` tells the two cases apart.

        Raises what `getContainer` raises. The broker learns that the caller fetches the header, and when
        (`Accessed`)."""

        async def use(_: Session, opened: fetching.Opened) -> Header[Any] | None:
            return _header(fetching.read_part(opened, Role.Header), headerType)

        return await self._read(containerId, use, header=True)

    @operation
    async def getContainerContent(
        self, containerId: Id, *, progress: Reports | None = None
    ) -> bytes | None:
        """Return the decrypted content; None if the container has none or permissions hide it.

        The `contentAvailability` of `getContainer` tells the two cases apart.

        Raises what `getContainer` raises. The broker learns that the caller fetches the content, and when
        (`Accessed`)."""
        return await self._read(
            containerId, partial(contents.read, progress=progress or no_progress), content=True
        )

    @operation
    async def saveContainerContent(
        self, containerId: Id, path: LocalPath, *, progress: Reports | None = None
    ) -> int | None:
        """Save the content to a file, in constant memory whatever its size; return its number of bytes.

        The client writes a temporary file in the same folder, readable by its owner alone, and renames it to
        `path` when it is complete and verified; an existing file is replaced. With a `FileTrustStore`, a save
        that was cut off resumes when the same content is saved to the same path again. Returns None and
        writes no file if the container has no content or the caller's permissions hide it.

        Raises `invalidArgumentError` for a path that cannot be written, `tooLargeError` if the content does
        not fit on the disk, and what `getContainer` raises.
        The broker learns which segments of the content are fetched, and when."""
        use = partial(
            contents.save, target=parts.checked_target(path), progress=progress or no_progress
        )
        return await self._read(containerId, use, content=True)

    @operation
    async def openContainerContent(self, containerId: Id) -> ContentReader | None:
        """Return the content as a file to read and seek in; only what is read is fetched.

        The reader verifies what it reads as `getContainer` does. It reads the content as of the opening: once
        that was replaced, it raises `partGoneError` after the broker's grace period. Returns None if the
        container has no content or the caller's permissions hide it.

        Raises what `getContainer` raises. The broker learns which segments are read, and when."""
        return await self._read(containerId, contents.reader, content=True)

    @operation
    async def getContainerMetadata(self, containerId: Id) -> Container[Any]:
        """Return the metadata alone, verified; content and header are None and are not fetched.

        `hasContent` and `hasHeader` tell whether the container has them.

        Raises what `getContainer` raises. The broker learns that the caller reads the metadata, but does not
        record it as `Accessed`."""

        async def use(session: Session, opened: fetching.Opened) -> Container[Any]:
            return fetching.container(session, opened, None, None, asked=())

        return await self._read(containerId, use)

    @operation
    async def deleteContainer(self, containerId: Id) -> None:
        """Delete the container for everybody. Needs Delete; cannot be undone, and the id is never used again.

        The broker removes content, header, type, permissions and wraps, and empties what event logs said of
        the container. It keeps what proves the deletion to the members: the signed tombstone, and the signed
        records that began the container or changed access or type, without their parts: their authors, times
        and hashes, the authors' entries of the access lists, and the members' user ids.

        Raises `permissionDeniedError` without Delete, `notFoundError` without access, `deletedError` if it is
        deleted already. After an error whose `outcome` is `Uncertain` the deletion may take effect at any
        time. The broker learns who deletes the container, and when."""
        return await self._hold(writing.append, containerId, Change(delete=True), None)

    @operation
    async def leaveContainer(self, containerId: Id, *, abandon: bool = False) -> None:
        """Give up the caller's own access to a container, whatever the permissions are.

        The broker serves nothing of the container to the caller from then on, and other members no longer see
        the caller in its `access`. The next member who writes content or header, or changes access, makes a
        new container key without the caller. Until then the caller has the key; a copy of what was read stays
        readable in any case. A member with ModifyAccess can give the caller access again: `blockUser`
        prevents that.

        The only member with ModifyAccess must pass `abandon=True`: nobody can give access afterwards.
        With it, the device also counts a container as left that the broker denies: no list names it any more.

        Raises `invalidArgumentError` for the only member, and for the only one with ModifyAccess without
        `abandon`; `rejectedError` for the only member, if the client cannot know that; `notFoundError`
        without access, also after leaving; `deletedError` after deletion;
        `conflictError` if access was changed during each of 16 attempts. After an error whose `outcome` is
        `Uncertain` the departure may take effect as long as the access list is not changed.
        The broker learns who leaves, and when."""
        return await self._hold(marks.leave, containerId, abandon=abandon)

    @operation
    async def blockUser(self, userId: UserId) -> None:
        """Refuse access to further containers from a user: the broker refuses their grants.

        A blocked user cannot give the caller access, neither to a new container nor to one that the caller
        has left, and gets a `blockedError` that names the caller. Access that the caller has stays: end it
        with `leaveContainer`. The broker enforces this, not cryptography. A blocked person can
        register another user. Blocking a user again changes nothing.

        Raises `notFoundError` for an unknown or deleted user, `invalidArgumentError` for the caller's own id,
        `tooLargeError` for more than 1,024 blocked users. The broker learns who blocks whom."""
        session = self._session()
        accounts.check_other(session, userId)
        return await session.hold(accounts.block(session, userId))

    @operation
    async def unblockUser(self, userId: UserId) -> None:
        """Let a user give the caller access again. A user who is not blocked is ignored.

        Raises `notAuthenticatedError` without a session. The broker learns who is unblocked."""
        return await self._hold(accounts.unblock, userId)

    @operation
    async def getBlockedUsers(self) -> list[uuid.UUID]:
        """Return the users whom the caller has blocked, ascending by id. The list is the broker's word.

        Raises `notAuthenticatedError` without a session. The broker learns that the list is read."""
        return await self._hold(accounts.blocked)

    @operation
    async def createGroup(
        self,
        name: str,
        members: Members | None = None,
        description: str = "",
        *,
        managers: Managers | None = None,
    ) -> Group:
        """Create a group of users who share a key. The caller is its first owner, and a member.

        `members` are users, who become writers, or MemberRoles. The caller is a sharer unless `members` names
        another role. `managers` are further users who manage the group; they become writers unless `members`
        names them. Each user gets an offer, and can use the group after `acceptGroup`. An access list takes
        the group in place of a user: `AccessLevel(group)`.

        Raises `invalidArgumentError` for a name that is blank, of several lines or longer than 256 bytes, for
        a description longer than 4,096 bytes, and for a user who is named twice; `notFoundError` for an
        unknown or deleted user, `keySubstitutionError` if a contact's or card's fingerprint is not the
        user's, `blockedError` if a user has blocked the caller, `tooLargeError` for more than 1,024 members
        or 16 managers, `quotaExceededError`.
        The broker learns members, roles and managers, but not name and description."""
        session = self._session()
        intents = groups.checked_creation(session, name, members or [], description, managers or [])
        return await session.hold(groups.create(session, intents))

    @operation
    async def getGroups(self, *, offered: bool = True) -> list[Group | errors.BrokerError]:
        """Return the groups that the caller is a member of, offered ones included, ascending by id.

        An offered group has `accepted` False; `offered=False` leaves out those, and does not read them.
        Everybody can offer a group, and a long history takes a while to read: cancel the Promise to stop. A
        group that cannot be verified or opened is in the list as its error, with its id in `containerId`.

        Raises `integrityError` if the broker's list leaves out a group of which the caller is a member.
        The broker learns that the groups are read."""
        return await self._hold(groups.groups, offered=offered)

    @operation
    async def getGroupMembers(self, groupId: GroupId) -> list[GroupMember]:
        """Return the members of a group as of now, ascending by fingerprint, without users who have left.

        Raises `notFoundError` if the caller is not a member, `deletedError` after deletion, and an
        `untrustedError` for members whom no manager signed. The broker learns that the group is read."""
        return await self._hold(groups.members, groupId)

    @operation
    async def acceptGroup(self, groupId: GroupId) -> Group:
        """Accept the offer of a group: from now on the caller reads and writes its containers.

        A group that was accepted already stays as it is.

        Raises `notFoundError` if the caller is not a member, `deletedError` after deletion, and an
        `untrustedError` if the group cannot be verified. The broker learns that the caller accepts it."""
        return await self._hold(groups.accept, groupId)

    @operation
    async def declineGroup(self, groupId: GroupId) -> None:
        """Decline the offer of a group. A manager can offer it again.

        Signs a departure, as `leaveGroup` does.

        Raises `invalidArgumentError` for a group that the caller has accepted (leave it instead) and for its
        only member; `notFoundError` if the caller is not a member, `deletedError` after deletion.
        The broker learns who declines, and when."""
        return await self._hold(groups.decline, groupId)

    @operation
    async def leaveGroup(self, groupId: GroupId, *, abandon: bool = False) -> None:
        """Leave a group: give up the membership by a signed departure. Another member must remain.

        From then on the broker serves the caller nothing through the group. The next change by a manager
        replaces the group's key; until then the broker alone keeps the caller out. With `abandon`, the only
        owner may leave: nobody can change the managers or delete the group afterwards.

        Raises `invalidArgumentError` for the only member, and for the only owner without `abandon`;
        `notFoundError` if the caller is not a member, also after leaving; `deletedError` after deletion;
        `conflictError` if the group was changed during each of 16 attempts. After an error whose `outcome` is
        `Uncertain` the departure may take effect as long as the caller's membership is not changed.
        The broker learns who leaves, and when."""
        return await self._hold(groups.leave, groupId, abandon=abandon)

    @operation
    async def addGroupMembers(self, groupId: GroupId, members: Members) -> Group:
        """Add users to a group as writers, or with the role of their MemberRole.

        The caller must be a manager. Each user gets an offer and the group's key, which opens everything that
        the group could ever read. Changes that other managers make at the same time are kept. If a member has
        left, was deleted or replaced a key, this change also replaces the group's key. `dropped` of the
        result names members who were removed because the broker says, without a proof, that they were
        deleted.

        Raises `permissionDeniedError` if the caller is not a manager, `invalidArgumentError` for a member
        with another role, `notFoundError` for an unknown or deleted user, `keySubstitutionError` if a
        contact's or card's fingerprint is not the user's, `blockedError` if a user has blocked the caller,
        `tooLargeError` beyond 1,024 members, `conflictError` if another manager changed the same user or
        after 16 attempts. After an error whose `outcome` is `Uncertain`, the users may have the group's key:
        `renewGroup(newKey=True)` replaces it.
        The broker learns the users and their roles."""
        return await self._hold(groups.change, groupId, groups.checked_addition(members))

    @operation
    async def removeGroupMembers(
        self,
        groupId: GroupId,
        userIds: Users,
        *,
        renew: bool = False,
        progress: Reports | None = None,
    ) -> Group:
        """Remove users from a group and replace its key.

        The caller must be a manager, and an owner to remove a manager. The broker refuses the users at once.
        Each container of the group gets a new key at its next write; until then only the broker keeps the
        users from reading it. With `renew`, all containers get one now: `progress` is that of `renewGroup`,
        and `renewal` of the result is its result. Users may have kept copies of what they could read. A user
        who is not a member is ignored. `dropped` of the result is that of `addGroupMembers`.

        Raises `permissionDeniedError` if the caller is not a manager, or removes a manager without being an
        owner; `invalidArgumentError` for the caller's own id: call leaveGroup; `tooLargeError` in the last
        epoch, `throttledError` after 256 new keys in a day, `conflictError` if another manager changed the
        same user or after 16 attempts. After an error whose `outcome` is `Stored`, the users are removed, and
        containers are left to be renewed. The broker learns the users."""
        session = self._session()
        intents = groups.checked_removal(session, userIds)
        return await session.hold(groups.remove(session, groupId, intents, renew, progress))

    @operation
    async def setGroupRoles(self, groupId: GroupId, roles: Roles) -> Group:
        """Change the roles of these members; all others keep theirs. The caller must be a manager.

        If a role falls, the group's key is replaced. Changes of other managers are kept. `dropped` of the
        result is that of `addGroupMembers`.

        Raises `permissionDeniedError` if the caller is not a manager, `notFoundError` for a user who is not a
        member, `invalidArgumentError` for a user who is named twice, `tooLargeError` in the last epoch,
        `conflictError` if another manager changed the same user or after 16 attempts.
        The broker learns the roles."""
        return await self._hold(groups.change, groupId, groups.checked_roles(roles))

    @operation
    async def setGroupManagers(self, groupId: GroupId, managers: Managers) -> Group:
        """Replace the list of a group's managers. The caller must be an owner.

        `managers` is the whole list: 1 to 16 users or GroupManagers, one of them an owner. A manager who is
        not a member becomes one, as a writer, with an offer. A manager who is left out stays a member.

        Raises `permissionDeniedError` if the caller is not an owner, `invalidArgumentError` for a list
        without an owner and for a user who is named twice, `notFoundError` for an unknown or deleted user,
        `keySubstitutionError` and `blockedError` as `addGroupMembers`, `tooLargeError` for more than 16,
        `conflictError` if another owner changed the managers or after 16 attempts.
        The broker learns the managers."""
        return await self._hold(groups.change, groupId, groups.checked_managers(managers))

    @operation
    async def renameGroup(
        self, groupId: GroupId, name: str | None = None, description: str | None = None
    ) -> Group:
        """Change name or description of a group; None keeps it. The caller must be a manager.

        A manager to whom another manager gave a wrong key repairs the group by passing both: then the key is
        replaced.

        Raises `invalidArgumentError` for a name or description that `createGroup` refuses, and for neither;
        `permissionDeniedError` if the caller is not a manager, `conflictError` if another manager changed the
        same text or after 16 attempts. The broker learns that the group was changed."""
        return await self._hold(groups.change, groupId, groups.checked_texts(name, description))

    @operation
    async def renewGroup(
        self, groupId: GroupId, *, newKey: bool = False, progress: Reports | None = None
    ) -> GroupRenewal:
        """Give each container of a group a new key that former members of the group do not have.

        The caller must be a writer or a sharer. 64 containers are renewed at a time; `progress` gets the
        number of those that are done, and None. A repeated call does what is left. With `newKey`, a manager
        first replaces the group's key. `failed` of the result has the errors of the other containers.

        Raises `permissionDeniedError` for a reader, and with `newKey` for a caller who is not a manager;
        `notFoundError` if the caller is not a member, and what `removeGroupMembers` raises for a new key.
        The broker learns that the containers are renewed together."""
        return await self._hold(groups.renew, groupId, newKey, progress)

    @operation
    async def replaceGroup(
        self, groupId: GroupId, newGroupId: GroupId, *, progress: Reports | None = None
    ) -> GroupRenewal:
        """Replace a group by another one in each of its containers, with the same permissions.

        Use it for a group that nobody can manage any more, or whose key cannot be replaced any more. The
        caller must be a sharer of the old group, and creates the new one first. 64 containers are changed at
        a time; `progress` gets the number of those that are done, and None. A repeated call does what is
        left. `failed` of the result has the errors of the other containers: a `permissionDeniedError` where
        the old group's access lacks ModifyAccess.

        Raises `permissionDeniedError` if the caller is not a sharer of the old group, `notFoundError` if a
        group is unknown, `invalidArgumentError` for the same group twice.
        The broker learns that the group is replaced."""
        if groupId == newGroupId:
            raise errors.InvalidArgumentError("newGroupId must name another group than groupId")
        return await self._hold(groups.replace_group, groupId, newGroupId, progress)

    @operation
    async def deleteGroup(self, groupId: GroupId) -> None:
        """Delete a group for all members. The caller must be an owner. Nobody can undo this.

        The client first removes all other members, then deletes the group; a repeated call does what is left.
        A container to which nobody else has access is deleted with the group if the group could only read or
        write it.

        Raises `permissionDeniedError` if the caller is not an owner, `rejectedError` while a container that
        the group can share or delete has nobody else: give somebody access, or delete it; `deletedError`
        after deletion. The broker learns who deletes the group, and when."""
        return await self._hold(group_writing.delete, groupId)

    @operation
    async def getUsage(self) -> Usage:
        """Return how many bytes and containers the caller is charged with, and the caller's quotas.

        The caller is charged with the encrypted bytes that the caller sent and the records that the caller
        signed, until the broker has deleted them: a replaced content counts until it is swept. A request that
        would exceed a quota gets a `quotaExceededError`. The client cannot verify the numbers.

        Raises `notAuthenticatedError` without a session. The broker learns that the usage is read."""
        return await self._hold(accounts.fetch_usage)

    @operation
    async def getSentChanges(self, containerId: Id) -> Sequence[SentChange]:
        """Return what became of this device's changes whose operation failed after the record was sent.

        An error whose `outcome` is `Uncertain` leaves such a change. The client reads and verifies the
        container. A change is `Stored` if the history contains it, `NotStored` if another record has its
        version, and `Uncertain` as long as the history has not reached its version. Any other update of
        the container decides: it takes that version, unless the change has it already. The device remembers
        the last 32 changes of a container; changes that were confirmed when they were sent are not among
        them. `containerId` may be a group's id.

        Raises what `getContainer` raises, but no `notFoundError` and no `deletedError`: what is known of the
        changes is then returned. The broker learns that the caller reads the metadata."""
        session = self._session()
        known = marks if session.groups.known(containerId) is None else groups
        return await session.hold(known.sent_changes(session, containerId))

    @operation
    async def resetContainerMark(self, containerId: Id, accept: Head | None = None) -> Heads:
        """Show the head verified last and the one served now; only with `accept`, follow the latter.

        For a container that raises a `rollbackError`, `forkError` or `tooLargeError` although you trust the
        broker's present state, as after its operator has restored a backup. Without `accept` nothing changes:
        compare both heads with another member. With `accept=heads.served` the device forgets the history that
        it has verified, and follows the accepted one. Never do this because an error says so: it is what a
        broker that hides changes wants. `containerId` may be a group's id.

        Raises `conflictError` if the broker serves another head than `accept` by now; an `untrustedError` if
        the served history is not valid by itself. The broker learns that the caller reads the metadata as a
        new device does."""
        session = self._session()
        known = marks if session.groups.known(containerId) is None else groups
        return await session.hold(known.reset(session, containerId, accept))

    @operation
    async def confirmAccess(
        self, containerId: Id, accept: Head | None = None
    ) -> UnsettledAccess | None:
        """Show a change of access by a former member of a group, and accept it.

        For a container whose updates raise an `unsettledAccessError`. The author acted for a group, and is
        not in it any more, or has a lower role there. They may have made the change while they were allowed
        to; or they made it afterwards, together with a broker that lies. Without `accept` nothing changes:
        compare `before` and `after`, and ask the author or another member. With
        `accept=found.head` the client writes into the container again. Otherwise set the whole access list
        with updateContainerAccessLevels, which removes what should not be there. None means that nothing has
        to be confirmed.

        Raises `conflictError` if another change than `accept` is the newest one by now, and what
        `getContainer` raises. The broker learns that the caller reads the container's metadata and two of its
        access lists."""
        return await self._hold(marks.confirm, containerId, accept)

    @operation
    async def resetEventMark(
        self, accept: Head | None = None, *, groupId: GroupId | None = None
    ) -> Heads:
        """Show up to which event this device has read, and where the log ends now; accept the latter.

        For a log that raises a `rollbackError` or `forkError` although you trust the broker's present state:
        the user's own, or that of a group. Without `accept` nothing changes. With `accept=heads.served` the
        device forgets which events it has read, and follows the accepted log. The whole log is read both
        times.

        Raises `conflictError` if the log does not contain the accepted end; `integrityError` for a log with
        gaps. The broker learns that the log is read."""
        session = self._session()
        return await session.hold(events.reset_mark(events.Source(session, groupId), accept))

    @operation
    async def getPublicKeys(
        self, userId: UserId | None = None, keyType: Kind | None = None, index: int | None = None
    ) -> Sequence[PublicKey]:
        """Return all public keys that match, verified to be the user's own; by default the session's user.

        `keyType` is a KeyType, its value or its name. The keys of a deleted user are all retired, and kept
        only while others need them to verify records.

        Raises `notFoundError` for an unknown user, `keySubstitutionError` for keys that are not theirs.
        The broker learns whose keys this session asks for."""
        session = self._session()
        if index is not None and index < 0:
            raise errors.InvalidArgumentError(f"index must be 0 or more, not {index}")
        user_id = session.userId if userId is None else userId
        return await session.hold(session.directory.public_keys(user_id, keyType, index))

    @operation
    async def getLatestActiveSigningKey(
        self, userId: UserId, keyType: Kind = KeyType.Signing
    ) -> PublicKey | None:
        """Return the latest active key, also an encryption key; None for an unknown or deleted user.

        `keyType` is a KeyType, its value or its name.

        Raises `keySubstitutionError` for keys that are not theirs. The broker learns whose keys this session
        asks for."""
        session = self._session()
        return await session.hold(session.directory.latest_active(userId, keyType))

    @operation
    async def getEvents(
        self,
        eventType: EventTypes | None = None,
        containerId: Id | None = None,
        containerType: str | None = None,
        startId: int | None = None,
        endId: int | None = None,
        *,
        groupId: GroupId | None = None,
    ) -> Sequence[ContainerEvent]:
        """Return the events of the session's user that match, ascending; both ids are inclusive.

        With `groupId` they are those of a group of which the caller is a member. Containers that the caller
        reaches through a group have their events in the group's log. Each log has ids of its own.

        `eventType` is a ContainerEventType or its name, or several. `containerType` matches an event that
        changed the type by the type before it as well as by the one after. Events are the broker's word: what
        they point to is verified when it is read.

        A broker may drop old events. Without `startId` the result begins with the first event kept: an id
        above 1 tells that others are gone. Once a container is deleted, its earlier events keep their kind
        alone and its `Deleted` event has no type: with `containerType` neither is found.

        Raises `eventsExpiredError`, whose `firstId` is the first event kept, if `startId` was dropped;
        `rollbackError`, `forkError` or `integrityError` if the log contradicts what this device has seen;
        `tooLargeError` for more than a million events. The broker learns that the log is read, and with which
        criteria."""
        session = self._session()
        criteria = events.checked_criteria(eventType, containerId, containerType, startId, endId)
        return await session.hold(events.events(events.Source(session, groupId), criteria))

    @stream_operation
    def followEvents(
        self,
        startId: int | None = None,
        eventType: EventTypes | None = None,
        containerId: Id | None = None,
        containerType: str | None = None,
        *,
        groupStartIds: Starts | None = None,
    ) -> Pages[ContainerEvent]:
        """Return a stream of the user's matching events, each once and in order, as they happen.

        It has the events of the user's own log, and those of the log of each group that the user has
        accepted; these have a `groupId`, and ids of their own. It follows a group from when the user accepts
        it until the membership ends. A container that the user reaches in two ways has its events twice.

        Without `startId` the stream begins behind the end that the log has when the broker first answers.
        It has what this provider changes after the call, unless the first request fails; a change that others
        make before the answer may be missing.
        `startId=last.id + 1` continues after an event that was delivered, also in another process.
        `groupStartIds` has such ids for groups, by group id; the log of another group begins at its end. The
        criteria are those of `getEvents`; the client applies them, and reads every event from the start on.
        The stream has no end of its own: while the broker is unreachable or overloaded, the client tries
        again after growing pauses, and warns in the log.

        With `eventHandler` and `errorHandler` the handlers get the events and the error, one at a time, on
        `queue`; the returned stream then continues until it is closed or fails.

        Raises `eventsExpiredError`, whose `firstId` is the first event kept, if the next event was dropped;
        `rollbackError`, `forkError` or `integrityError` if the log contradicts what this device has read;
        `notAuthenticatedError` when the session ends. The client cannot notice that the broker withholds new
        events until the broker serves a later one. The broker learns how far this device has read the log,
        and when the device is connected."""
        session, group_starts = self._session(), groupStartIds or {}
        for start in (startId, *group_starts.values()):
            events.checked_criteria(None, None, None, start, None)
        wanted = partial(
            events.matches, kinds=eventType, container_id=containerId, container_type=containerType
        )
        return events.follow(session, startId, group_starts, wanted)

    def _session(self) -> Session:
        """Return the current session; `NotAuthenticatedError` without one."""
        session = self._current
        if session is None or session.keys.is_forgotten:
            raise errors.NotAuthenticatedError(self._how_to_begin())
        session.check_process()
        return session

    def _how_to_begin(self) -> str:
        """Return the error message for a missing session; "" for the default message of the error."""
        return ""

    def _hold(
        self, work: Callable[Concatenate[Session, P], Work[T]], *args: P.args, **kwargs: P.kwargs
    ) -> Work[T]:
        """Return work of the current session, which counts as under way until it ends."""
        session = self._session()
        return session.hold(work(session, *args, **kwargs))

    def _update_each(
        self, argument: str, items: Sequence[tuple[uuid.UUID, Grants | Merge]]
    ) -> Work[list[SecuredContainer | errors.BrokerError]]:
        """Change the access of the containers that an argument names; raise if it names one twice."""
        arguments.check_named_once(argument, [container_id for container_id, _ in items])
        changes = {container_id: Change(grants=grants) for container_id, grants in items}
        return self._hold(writing.update_each, changes)

    def _read(
        self,
        containerId: uuid.UUID,
        use: Callable[[Session, fetching.Opened], Work[T]],
        **wanted: Unpack[fetching.Wanted],
    ) -> Work[T]:
        """Fetch and open a container with the wanted parts, and return what `use` makes of it."""

        async def work(session: Session) -> T:
            fetched = await fetching.fetch(session, containerId, **wanted)
            return await use(session, fetching.open_fetched(session, fetched))

        return self._hold(work)

    async def _log_in(
        self,
        user_id: uuid.UUID,
        password: str | None,
        passphrase: str,
        ring: KeyRing | None,
        keep: bool,
    ) -> bytes | None:
        """Begin a session with a KeyRing, or with the KeyFile that the passphrase opens."""
        if ring is not None:
            return await self._keeping(keep, lambda: self._begin(ring))
        return await self._keeping(
            keep,
            lambda: self._adopt(
                accounts.log_in_with_key_file(
                    self._requests, self._trust_store, user_id, password, passphrase
                )
            ),
        )

    def _begin(self, ring: KeyRing) -> Work[None]:
        """Begin a session with a KeyRing, which must have exactly the published keys."""
        return self._adopt(accounts.log_in_with_ring(self._requests, self._trust_store, ring))

    async def _keeping(self, keep: bool, begin: Callable[[], Work[T]]) -> T:
        """Begin a session; with `keep`, store it. The store is checked before anything is sent."""
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
            # Raised in place of the result, although the user is registered or logged in.
            failed = errors.SessionStoreError(
                f"User {ring.userId} is logged in, but the session is not kept. {error}"
            )
            failed.outcome = errors.WriteOutcome.Stored
            raise failed from None
        return result

    def _session_of(self, ring: KeyRing) -> Session:
        """Return a session with these keys, without a request to the broker."""
        return accounts.session_of(self._requests, self._trust_store, ring)

    async def _adopt(self, beginning: Work[tuple[Session, T]]) -> T:
        """Make a new session the current one; the one before is forgotten after its last operation."""
        session, result = await beginning
        session.groups.raise_owed = partial(groups.raise_owed, session)
        before, self._current, self._is_closed = self._current, session, False
        if before is not None:
            before.leave()
        return result

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
                # Only published keys newer than the newest KeyRing's prove that no kept KeyRing is current. A
                # mere refusal by the broker proves nothing, and removes nothing (session_store.py).
                if ring is kept.rings[0]:
                    await self._kept.forget(kept.user_id, kept.found)
                    raise errors.NotAuthenticatedError(
                        f"The keys of user {kept.user_id} were replaced on another device: log in with the "
                        "new passphrase and keep=True. The kept session was removed."
                    ) from None
                refused = error
            except errors.CredentialsError as error:
                refused = error
            except errors.OfflineError:  # the cache may have the public keys of the other KeyRing
                if ring is kept.rings[-1]:
                    raise
        raise errors.NotAuthenticatedError(
            f"The kept session of user {kept.user_id} could not be resumed. {refused} If the keys were "
            "replaced on another device, log in with the new passphrase and keep=True. The kept "
            "session stays."
        )


OPERATIONS: frozenset[str] = frozenset(
    name for name, each in vars(BrokerProvider).items() if hasattr(each, "parameters")
)
"""The names of a provider's operations."""


class BaseProvider(BrokerProvider):
    """Operations over a session that a subclass provides."""

    @classmethod
    def _of(cls, session: Session) -> BaseProvider:
        """Return a provider of one session, even after the program's provider began another one."""
        made = cls()
        made._current = session
        return made


def _header(data: bytes | None, header_type: builtins.type[Any] | None) -> Header[Any] | None:
    if data is None:
        return None
    return Header(decode_header(data, Any if header_type is None else header_type))


def _wanted(
    type: str | None, limit: int, headers: bool, header_type: builtins.type[Any] | None
) -> contents.Wanted:
    """Return the checked parameters of a list."""
    if not 1 <= limit <= MAX_BATCH:
        raise errors.InvalidArgumentError(f"limit must be 1 to {MAX_BATCH}, not {limit}")
    open_header = partial(_header, header_type=header_type) if headers else None
    return contents.Wanted(arguments.checked_type(type), limit, open_header)


def changed_fields(
    new: NewContainer, progress: Progress | None = None, creator: uuid.UUID | None = None
) -> Change:
    """Return a change of all fields. Without access levels, the creator of a new container is the owner."""
    grants = arguments.checked_grants(new.accessLevels)
    type = arguments.checked_type(new.type)
    if creator is not None:
        grants = grants or {creator: OWNER}
        check_own_type(creator, type, grants)
    return Change(
        header=encode_header(new.customHeaderObject),
        content=checked_content(new.content),
        type=type,
        grants=grants,
        progress=progress or no_progress,
    )


def _warn_of_closed(session: Session, change: Change, what: str) -> None:
    """Warn if the creator of a new container will not be able to open it, which may be a mistake.

    Creators open it by an entry of their own or, without one, through a group.
    """
    creator, grants = session.userId, change.recipients
    named = [creator] if creator in grants else filter(session.groups.has_own, grants)
    if not any(grants[each].permissions & ContainerAccessLevel.Decrypt for each in named):
        _log.warning(
            "%s will not open for its creator: accessLevels gives user %s no Decrypt. Include "
            "AccessLevel(userId, ContainerAccessLevel.DefaultOwnerPermissions) for yourself.",
            what,
            creator,
        )


def _new(creator: uuid.UUID, number: int, item: NewContainer) -> Change:
    """Return the change that creates one item of a batch; its position is in every error."""
    try:
        return changed_fields(arguments.checked_fields(NewContainer, item), creator=creator)
    except errors.InvalidArgumentError as error:
        raise errors.InvalidArgumentError(f"containers[{number}]: {error}") from None


def _access_change(number: int, item: AccessChange) -> tuple[uuid.UUID, Grants | Merge]:
    """Return the container and the change of one item of a batch; every error names the item's position."""
    try:
        checked = arguments.checked_fields(AccessChange, item)
        return uuid_of("containerId", checked.containerId), _grants(checked)
    except errors.InvalidArgumentError as error:
        raise errors.InvalidArgumentError(f"changes[{number}]: {error}") from None


def _grants(item: AccessChange) -> Grants | Merge:
    add, remove = list(item.add), frozenset(holder_of("remove", each) for each in item.remove)
    if item.replace is not None:
        if add or remove:
            raise errors.InvalidArgumentError(
                "replace names the whole access list: pass it without add and remove"
            )
        return arguments.checked_grants(item.replace, "replace")
    grants = arguments.checked_grants(add, "add")
    if both := remove & grants.keys():
        raise errors.InvalidArgumentError(
            f"add and remove both name {min(both)}: name each user or group in one of them"
        )
    return Merge(grants, remove)


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
