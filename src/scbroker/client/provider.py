"""Declare every operation of a provider: its signatures, its types and its documentation.

Each operation has two overloads for each of its forms: promise style, then callback style, which adds the
keywords of `Handlers`. `@operation` makes one function of them: it checks the arguments by the declared
types and runs the body, which a subclass gives as `_name`.

Every operation raises `BrokerError`s. An error's `outcome` says whether the change that failed may have taken
effect: once a signed record was sent, a refusal is only the broker's word. In promise style the call itself
raises for a wrong argument or a missing session, and the promise carries every other error. In callback style
`errorHandler` gets them all; the call raises only if `errorHandler` or `queue` is wrong. The parameters of
the interface can be given by position, in its order; those that this project adds by name only. An id may be
given as a uuid.UUID or as its text, and a `UserRef` as a Contact or a ContactCard as well.
"""

from __future__ import annotations

import builtins
import datetime as dt
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack, overload, runtime_checkable

from scbroker.cards import ContactCard
from scbroker.client.arguments import header_left_out, key_ring_first
from scbroker.client.calls.operation import (
    Handlers,
    Promise,
    VoidHandlers,
    operation,
    operation_of_forms,
)
from scbroker.client.calls.stream import EventHandlers, Stream, stream_operation
from scbroker.client.containers.contents import ContentReader
from scbroker.client.parts.content import Progress
from scbroker.errors import BrokerError
from scbroker.keys import KeyRing
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
from scbroker.vocabulary import (
    AccessLevel,
    ContainerAccessLevel,
    ContainerEventType,
    GroupManager,
    GroupRef,
    HolderRef,
    KeyType,
    MemberRole,
    UserRef,
)

if TYPE_CHECKING:  # `default` is new in Python 3.13; type checkers bring typing_extensions
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)


@runtime_checkable
class BrokerProvider(Protocol):
    """A user's session against a broker.

    All operations but `register`, `logIn`, `resumeSession`, `getKeptSessions`, `forgetKeptSession` and
    `getReminder` raise `notAuthenticatedError` without a session.
    """

    @overload
    def register(
        self, password: str, passphrase: str, reminder: str | None = None, *, keep: bool = False
    ) -> Promise[bytes]: ...
    @overload
    def register(
        self,
        password: str,
        passphrase: str,
        reminder: str | None = None,
        *,
        keep: bool = False,
        **handlers: Unpack[Handlers[bytes]],
    ) -> Self: ...
    @operation
    def register(self, *args: Any, **kwargs: Any) -> Any:
        """Create a user with new keys, store the KeyFile on the broker, and log in.

        Returns the encrypted KeyFile. The password encrypts the KeyRing; the passphrase encrypts the
        password. With the passphrase the user can log in from any device; nobody can reset it. Takes about
        0.4 s (Argon2id). `keep=True` keeps the session on this device, as at `logIn`.

        Raises `invalidArgumentError` for a missing or weak secret, for a passphrase that is the password, for
        a reminder that contains one of them, and if the broker takes no log-ins at serverUrl;
        `sessionStoreError` if the session cannot be kept: nothing was sent then, unless `outcome` is Stored.
        The broker learns the public keys, the encrypted KeyFile, a proof of the passphrase, and the reminder
        in clear text."""

    @overload
    def logIn(
        self,
        userId: uuid.UUID | str,
        password: str | None = None,
        passphrase: str | None = None,
        *,
        keep: bool = False,
    ) -> Promise[bytes]: ...
    @overload
    def logIn(
        self, keyRing: KeyRing, userId: uuid.UUID | str, *, keep: bool = False
    ) -> Promise[None]: ...
    @overload
    def logIn(
        self,
        userId: uuid.UUID | str,
        password: str | None = None,
        passphrase: str | None = None,
        *,
        keep: bool = False,
        **handlers: Unpack[Handlers[bytes]],
    ) -> Self: ...
    @overload
    def logIn(
        self,
        keyRing: KeyRing,
        userId: uuid.UUID | str,
        *,
        keep: bool = False,
        **handlers: Unpack[VoidHandlers],
    ) -> Self: ...
    @operation_of_forms(key_ring_first)
    def logIn(self, *args: Any, **kwargs: Any) -> Any:
        """Log in with a user id and passphrase, or with a KeyRing.

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

    @overload
    def resumeSession(self, userId: uuid.UUID | str | None = None) -> Promise[uuid.UUID]: ...
    @overload
    def resumeSession(
        self, userId: uuid.UUID | str | None = None, **handlers: Unpack[Handlers[uuid.UUID]]
    ) -> Self: ...
    @operation
    def resumeSession(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def getKeptSessions(self) -> Promise[list[uuid.UUID]]: ...
    @overload
    def getKeptSessions(self, **handlers: Unpack[Handlers[list[uuid.UUID]]]) -> Self: ...
    @operation
    def getKeptSessions(self, *args: Any, **kwargs: Any) -> Any:
        """Return the ids of the users whose sessions are kept on this device for this broker, ascending.

        Raises `sessionStoreError` if the store cannot be read. The broker learns nothing: nothing is sent."""

    @overload
    def forgetKeptSession(self, userId: uuid.UUID | str) -> Promise[None]: ...
    @overload
    def forgetKeptSession(
        self, userId: uuid.UUID | str, **handlers: Unpack[VoidHandlers]
    ) -> Self: ...
    @operation
    def forgetKeptSession(self, *args: Any, **kwargs: Any) -> Any:
        """Remove a user's kept session from this device; needs no session and no secret.

        Does nothing if none is kept. The provider's present session stays: `logout` ends it, and removes the
        kept one as well.

        Raises `sessionStoreError` if the store cannot be written. The broker learns nothing: nothing is
        sent."""

    @overload
    def logout(self) -> Promise[None]: ...
    @overload
    def logout(self, **handlers: Unpack[VoidHandlers]) -> Self: ...
    @operation
    def logout(self, *args: Any, **kwargs: Any) -> Any:
        """End the session: forget keys and token, and revoke the token at the broker.

        Operations under way keep the session that they began with; it ends after the last of them. A kept
        session of the user is removed from this device; `close` leaves it.

        Raises `notAuthenticatedError` without a session; `sessionStoreError`, after the session has ended, if
        the kept one could not be removed; an unreachable broker is not an error.
        The broker learns that this session ended."""

    @overload
    def deleteUser(self) -> Promise[None]: ...
    @overload
    def deleteUser(self, **handlers: Unpack[VoidHandlers]) -> Self: ...
    @operation
    def deleteUser(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def changeCredentials(
        self,
        password: str,
        passphrase: str,
        reminder: str | None = None,
        *,
        compromised: bool = False,
    ) -> Promise[bytes]: ...
    @overload
    def changeCredentials(
        self,
        password: str,
        passphrase: str,
        reminder: str | None = None,
        *,
        compromised: bool = False,
        **handlers: Unpack[Handlers[bytes]],
    ) -> Self: ...
    @operation
    def changeCredentials(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def getKeyRing(self) -> Promise[KeyRing]: ...
    @overload
    def getKeyRing(self, **handlers: Unpack[Handlers[KeyRing]]) -> Self: ...
    @operation
    def getKeyRing(self, *args: Any, **kwargs: Any) -> Any:
        """Return the KeyRing of the session.

        Raises `notAuthenticatedError` without a session. The broker learns nothing: nothing is sent."""

    @overload
    def getUserId(self) -> Promise[uuid.UUID]: ...
    @overload
    def getUserId(self, **handlers: Unpack[Handlers[uuid.UUID]]) -> Self: ...
    @operation
    def getUserId(self, *args: Any, **kwargs: Any) -> Any:
        """Return the user id of the session.

        Raises `notAuthenticatedError` without a session. The broker learns nothing: nothing is sent."""

    @overload
    def getContactCard(self, name: str) -> Promise[ContactCard]: ...
    @overload
    def getContactCard(self, name: str, **handlers: Unpack[Handlers[ContactCard]]) -> Self: ...
    @operation
    def getContactCard(self, *args: Any, **kwargs: Any) -> Any:
        """Return the session's own contact card, to hand to other people.

        The card has the user's fingerprint, `serverUrl`, and `name`: how others are to call this user, 1 to
        64 printable characters. Others add it with `Contacts.add`, and can then share containers with the
        user. Everybody who has the card can offer the user containers.

        Raises `invalidArgumentError` for a name that a card cannot have, `notAuthenticatedError` without a
        session. The broker learns nothing: nothing is sent."""

    @overload
    def getReminder(self, userId: uuid.UUID | str | None = None) -> Promise[str]: ...
    @overload
    def getReminder(
        self, userId: uuid.UUID | str | None = None, **handlers: Unpack[Handlers[str]]
    ) -> Self: ...
    @operation
    def getReminder(self, *args: Any, **kwargs: Any) -> Any:
        """Return a user's reminder: by default that of the session's user. Works before log-in.

        Returns "" for an unknown user as for one without a reminder. Everybody who has the API key can read
        every reminder.

        Raises `notAuthenticatedError` without `userId` and without a session; `throttledError` after too many
        requests from this address. The broker learns whose reminder is read, but not by which user."""

    @overload
    def createOrUpdateKeyFile(
        self, keyFileData: bytes, password: str, passphrase: str, reminder: str | None = None
    ) -> Promise[bytes]: ...
    @overload
    def createOrUpdateKeyFile(
        self,
        keyFileData: bytes,
        password: str,
        passphrase: str,
        reminder: str | None = None,
        **handlers: Unpack[Handlers[bytes]],
    ) -> Self: ...
    @operation
    def createOrUpdateKeyFile(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def deleteKeyFile(self) -> Promise[None]: ...
    @overload
    def deleteKeyFile(self, **handlers: Unpack[VoidHandlers]) -> Self: ...
    @operation
    def deleteKeyFile(self, *args: Any, **kwargs: Any) -> Any:
        """Delete the session's KeyFile, the passphrase's verifier and the reminder from the broker.

        Nobody can log in with a passphrase until `createOrUpdateKeyFile` or `changeCredentials` stores
        another KeyFile: keep the bytes. The session goes on. Does nothing if no KeyFile is stored.

        Raises `notAuthenticatedError` also if the keys were replaced on another device. The broker learns
        that the user deletes the KeyFile, and forgets it."""

    @overload
    def getKeyFile(self, passphrase: str) -> Promise[bytes]: ...
    @overload
    def getKeyFile(self, passphrase: str, **handlers: Unpack[Handlers[bytes]]) -> Self: ...
    @operation
    def getKeyFile(self, *args: Any, **kwargs: Any) -> Any:
        """Return the session's KeyFile, encrypted, as the broker stores it.

        The client verifies that the passphrase opens it, and that this device has not seen a newer KeyFile.

        Raises `credentialsError` for a wrong passphrase or if no KeyFile is stored, `invalidArgumentError`
        for an empty passphrase, `throttledError` after too many guesses. The broker learns a proof of the
        passphrase and no more."""

    @overload
    def needToSyncAccount(self, userId: uuid.UUID | str, keyFileData: bytes) -> Promise[bool]: ...
    @overload
    def needToSyncAccount(
        self, userId: uuid.UUID | str, keyFileData: bytes, **handlers: Unpack[Handlers[bool]]
    ) -> Self: ...
    @operation
    def needToSyncAccount(self, *args: Any, **kwargs: Any) -> Any:
        """Return whether the KeyFile on the broker differs from these bytes; True if it keeps none.

        True means that the local copy has to be fetched again: the credentials or keys were changed on
        another device, or the copy is damaged. Any bytes are compared, also empty or damaged ones.

        Raises `invalidArgumentError` if `userId` is not the id of the session's user; `rollbackError` or
        `forkError` if the broker names an older KeyFile than this device has seen, or another of the same
        generation.

        The broker learns that this session asks for the state of its KeyFile. It answers with the SHA-256 of
        the stored KeyFile; the comparison is made here, so it learns nothing of `keyFileData`, nor the
        outcome."""

    @overload
    def createContainer(
        self,
        content: ContentSource | None,
        customHeaderObject: object = None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        progress: Progress | None = None,
    ) -> Promise[SecuredContainer]: ...
    @overload
    def createContainer(
        self,
        content: ContentSource | None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        progress: Progress | None = None,
    ) -> Promise[SecuredContainer]: ...
    @overload
    def createContainer(
        self,
        content: ContentSource | None,
        customHeaderObject: object = None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[SecuredContainer]],
    ) -> Self: ...
    @overload
    def createContainer(
        self,
        content: ContentSource | None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[SecuredContainer]],
    ) -> Self: ...
    @operation_of_forms(header_left_out)
    def createContainer(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def createContainers(
        self, containers: Iterable[NewContainer]
    ) -> Promise[list[SecuredContainer | BrokerError]]: ...
    @overload
    def createContainers(
        self,
        containers: Iterable[NewContainer],
        **handlers: Unpack[Handlers[list[SecuredContainer | BrokerError]]],
    ) -> Self: ...
    @operation
    def createContainers(self, *args: Any, **kwargs: Any) -> Any:
        """Create many containers in few requests; the results are in the order of the items.

        Each is created as by `createContainer`, independently of the others: an item that failed has its
        `BrokerError` as its result. Large contents are sent before their container; an upload that was cut
        off starts again at its beginning.

        Raises `invalidArgumentError` with the position of the wrong item, before anything is sent. If a
        request gets no answer, its error is that of each container that is not stored, with an `outcome` and
        an id of its own. The operation fails as a whole only if no record was sent.

        The broker learns of each what it learns at `createContainer`, and that they were made together."""

    @overload
    def updateContainer(
        self,
        containerId: uuid.UUID | str,
        content: ContentSource | None = None,
        customHeaderObject: object = None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        ifVersion: int | None = None,
        progress: Progress | None = None,
    ) -> Promise[SecuredContainer]: ...
    @overload
    def updateContainer(
        self,
        containerId: uuid.UUID | str,
        content: ContentSource | None = None,
        customHeaderObject: object = None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        ifVersion: int | None = None,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[SecuredContainer]],
    ) -> Self: ...
    @operation
    def updateContainer(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def updateContainerHeader(
        self,
        containerId: uuid.UUID | str,
        customHeaderObject: object = None,
        *,
        ifVersion: int | None = None,
    ) -> Promise[SecuredContainer]: ...
    @overload
    def updateContainerHeader(
        self,
        containerId: uuid.UUID | str,
        customHeaderObject: object = None,
        *,
        ifVersion: int | None = None,
        **handlers: Unpack[Handlers[SecuredContainer]],
    ) -> Self: ...
    @operation
    def updateContainerHeader(self, *args: Any, **kwargs: Any) -> Any:
        """Replace the header. Needs Upload.

        Warning: without `customHeaderObject` the header is erased. If another field was changed meanwhile,
        the update is made on top of that change.

        Raises `permissionDeniedError` without Upload, `conflictError` if the header was changed meanwhile.
        After an error whose `outcome` is `Uncertain` the change may take effect at any time.

        The broker learns that the header changed, and its size. The result is that of `getSecuredContainer`,
        with a sealed content of up to 64 KiB: the broker records that as a fetch (`Accessed`)."""

    @overload
    def updateContainerContent(
        self,
        containerId: uuid.UUID | str,
        content: ContentSource | None = None,
        *,
        ifVersion: int | None = None,
        progress: Progress | None = None,
    ) -> Promise[SecuredContainer]: ...
    @overload
    def updateContainerContent(
        self,
        containerId: uuid.UUID | str,
        content: ContentSource | None = None,
        *,
        ifVersion: int | None = None,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[SecuredContainer]],
    ) -> Self: ...
    @operation
    def updateContainerContent(self, *args: Any, **kwargs: Any) -> Any:
        """Replace the content. Needs Upload.

        Warning: without `content` the content is erased. If another field was changed meanwhile, the update
        is made on top of that change.

        Raises `permissionDeniedError` without Upload, `conflictError` if the content was changed meanwhile.
        After an error whose `outcome` is `Uncertain` the change may take effect at any time.

        The broker learns that the content changed, and its size. The result is that of `getSecuredContainer`,
        with the sealed header: the broker records that as a fetch (`Accessed`)."""

    @overload
    def updateContainerAccessLevels(
        self,
        containerId: uuid.UUID | str,
        accessLevels: Iterable[AccessLevel] | None = None,
        *,
        ifVersion: int | None = None,
    ) -> Promise[None]: ...
    @overload
    def updateContainerAccessLevels(
        self,
        containerId: uuid.UUID | str,
        accessLevels: Iterable[AccessLevel] | None = None,
        *,
        ifVersion: int | None = None,
        **handlers: Unpack[VoidHandlers],
    ) -> Self: ...
    @operation
    def updateContainerAccessLevels(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def updateContainersAccessLevels(
        self, changes: Iterable[AccessChange]
    ) -> Promise[list[SecuredContainer | BrokerError]]: ...
    @overload
    def updateContainersAccessLevels(
        self,
        changes: Iterable[AccessChange],
        **handlers: Unpack[Handlers[list[SecuredContainer | BrokerError]]],
    ) -> Self: ...
    @operation
    def updateContainersAccessLevels(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def grantAccess(
        self,
        containerIds: uuid.UUID | str | Iterable[uuid.UUID | str],
        accessLevels: AccessLevel | Iterable[AccessLevel],
    ) -> Promise[list[SecuredContainer | BrokerError]]: ...
    @overload
    def grantAccess(
        self,
        containerIds: uuid.UUID | str | Iterable[uuid.UUID | str],
        accessLevels: AccessLevel | Iterable[AccessLevel],
        **handlers: Unpack[Handlers[list[SecuredContainer | BrokerError]]],
    ) -> Self: ...
    @operation
    def grantAccess(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def revokeAccess(
        self,
        containerIds: uuid.UUID | str | Iterable[uuid.UUID | str],
        userIds: HolderRef | Iterable[HolderRef],
    ) -> Promise[list[SecuredContainer | BrokerError]]: ...
    @overload
    def revokeAccess(
        self,
        containerIds: uuid.UUID | str | Iterable[uuid.UUID | str],
        userIds: HolderRef | Iterable[HolderRef],
        **handlers: Unpack[Handlers[list[SecuredContainer | BrokerError]]],
    ) -> Self: ...
    @operation
    def revokeAccess(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def createLink(
        self,
        containerIds: uuid.UUID | str | Iterable[uuid.UUID | str],
        permissions: ContainerAccessLevel | int | str = ContainerAccessLevel.DefaultUserPermissions,
        expiresAt: dt.datetime | None = None,
        password: str | None = None,
        *,
        name: str | None = None,
        apiKey: uuid.UUID | str | None = None,
    ) -> Promise[Link]: ...
    @overload
    def createLink(
        self,
        containerIds: uuid.UUID | str | Iterable[uuid.UUID | str],
        permissions: ContainerAccessLevel | int | str = ContainerAccessLevel.DefaultUserPermissions,
        expiresAt: dt.datetime | None = None,
        password: str | None = None,
        *,
        name: str | None = None,
        apiKey: uuid.UUID | str | None = None,
        **handlers: Unpack[Handlers[Link]],
    ) -> Self: ...
    @operation
    def createLink(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def getLinks(self) -> Promise[list[Link]]: ...
    @overload
    def getLinks(self, **handlers: Unpack[Handlers[list[Link]]]) -> Self: ...
    @operation
    def getLinks(self, *args: Any, **kwargs: Any) -> Any:
        """Return the caller's links with their URLs, oldest first, also those that have expired.

        They are stored in a container of the caller's own, so every device of the caller has them. A link is
        stored before it gives access to anything.

        Raises `integrityError` for a list that scbroker did not write, `unsupportedVersionError` for one of a
        newer version, `rollbackError` if the broker denies the list, and what `getContainer` raises.
        The broker learns that the caller reads the container in which the links are kept."""

    @overload
    def revokeLink(self, link: Link | uuid.UUID | str) -> Promise[None]: ...
    @overload
    def revokeLink(
        self, link: Link | uuid.UUID | str, **handlers: Unpack[VoidHandlers]
    ) -> Self: ...
    @operation
    def revokeLink(self, *args: Any, **kwargs: Any) -> Any:
        """End a link: revoke its access, delete its user, and remove it from `getLinks`.

        `link` is a Link or its `userId`. As with `revokeAccess`, people with the link cannot open anything
        that is written from now on, but may have kept copies of what they could read. Call it for expired
        links too: until then, only the broker keeps their users out. After an error, call it again.

        A container whose access the caller may not change any more is logged: the broker serves nothing to
        the deleted user, and the next change of access removes the entry. It is logged as well if the user
        cannot be deleted because somebody with the link replaced its keys: it has no access any more.

        Raises `notFoundError` if the caller has no such link, and what `revokeAccess` raises.
        The broker learns what it learns at `revokeAccess` and `deleteUser`."""

    @overload
    def updateContainerType(
        self, containerId: uuid.UUID | str, type: str | None = None, *, ifVersion: int | None = None
    ) -> Promise[None]: ...
    @overload
    def updateContainerType(
        self,
        containerId: uuid.UUID | str,
        type: str | None = None,
        *,
        ifVersion: int | None = None,
        **handlers: Unpack[VoidHandlers],
    ) -> Self: ...
    @operation
    def updateContainerType(self, *args: Any, **kwargs: Any) -> Any:
        """Replace the type label. Needs Upload and ModifyType.

        Warning: without `type` the label is erased.

        Raises `permissionDeniedError` without these permissions, `conflictError` if the type was changed
        meanwhile, `invalidArgumentError` for a label of more than 256 bytes. After an error whose `outcome`
        is `Uncertain` the change may take effect at any time. The broker learns the new type."""

    @overload
    def getContainer(
        self,
        containerId: uuid.UUID | str,
        headerType: builtins.type[T] | None = None,
        *,
        progress: Progress | None = None,
    ) -> Promise[Container[T]]: ...
    @overload
    def getContainer(
        self,
        containerId: uuid.UUID | str,
        headerType: builtins.type[T] | None = None,
        *,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[Container[T]]],
    ) -> Self: ...
    @operation
    def getContainer(self, *args: Any, **kwargs: Any) -> Any:
        """Return content, header and metadata, each None where the caller's permissions hide it.

        `contentAvailability` and `headerAvailability` distinguish a missing part from a hidden one.
        `headerType` is a type that the header is decoded into and validated against. Before it returns
        anything, the client verifies the signatures, the authors' permissions, that the container is not
        older than this device has seen it, and every byte.

        Raises `notFoundError` without access, `deletedError` after deletion, `invalidArgumentError` if the
        header does not fit `headerType`, an `untrustedError` for anything that its author did not make.

        The broker learns that the caller fetches the container, and when (`Accessed`)."""

    @overload
    def getContainers(
        self,
        containerIds: Iterable[uuid.UUID | str],
        headerType: builtins.type[T] | None = None,
        *,
        content: bool = True,
        headers: bool = True,
    ) -> Promise[list[Container[T] | BrokerError]]: ...
    @overload
    def getContainers(
        self,
        containerIds: Iterable[uuid.UUID | str],
        headerType: builtins.type[T] | None = None,
        *,
        content: bool = True,
        headers: bool = True,
        **handlers: Unpack[Handlers[list[Container[T] | BrokerError]]],
    ) -> Self: ...
    @operation
    def getContainers(self, *args: Any, **kwargs: Any) -> Any:
        """Read many containers in few requests; the results are in the order of the ids.

        Each is verified as by `getContainer`, independently of the others: one that cannot be read has its
        `BrokerError` as its result. `headerType` applies to every header. An id may occur twice. With
        `content=False` or `headers=False` that part is not fetched, and its availability is `NotIncluded`.

        Raises `invalidArgumentError` with the position of a wrong id. If a request gets no answer, also one
        for a large content, the operation fails as a whole, as with an `unreachableError`.

        The broker learns of each what it learns at `getContainer`, and that they were read together; without
        contents and headers it records no fetch (`Accessed`)."""

    @overload
    def listContainers(
        self,
        containerType: str | None = None,
        startAfter: uuid.UUID | str | None = None,
        limit: int = 64,
        headers: bool = True,
        headerType: builtins.type[T] | None = None,
    ) -> Promise[ContainerPage[T]]: ...
    @overload
    def listContainers(
        self,
        containerType: str | None = None,
        startAfter: uuid.UUID | str | None = None,
        limit: int = 64,
        headers: bool = True,
        headerType: builtins.type[T] | None = None,
        **handlers: Unpack[Handlers[ContainerPage[T]]],
    ) -> Self: ...
    @operation
    def listContainers(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def iterContainers(
        self,
        containerType: str | None = None,
        startAfter: uuid.UUID | str | None = None,
        headers: bool = True,
        headerType: builtins.type[T] | None = None,
    ) -> Stream[Container[T] | BrokerError]: ...
    @overload
    def iterContainers(
        self,
        containerType: str | None = None,
        startAfter: uuid.UUID | str | None = None,
        headers: bool = True,
        headerType: builtins.type[T] | None = None,
        **handlers: Unpack[EventHandlers[Container[T] | BrokerError]],
    ) -> Stream[Container[T] | BrokerError]: ...
    @stream_operation
    def iterContainers(self, *args: Any, **kwargs: Any) -> Any:
        """Return a stream of all containers that the caller has access to, by id, each verified.

        The entries are those of `listContainers`. Iterate with `for` or `async for`, or pass `eventHandler`,
        which is called with each entry. The client prefetches a page; memory does not depend on the number of
        containers. The ids of `leftOut` are logged as a warning.

        Raises what `listContainers` raises, while it is iterated over.

        The broker learns what it learns at `listContainers`."""

    @overload
    def getContainerHeader(
        self, containerId: uuid.UUID | str, headerType: builtins.type[T] | None = None
    ) -> Promise[Header[T] | None]: ...
    @overload
    def getContainerHeader(
        self,
        containerId: uuid.UUID | str,
        headerType: builtins.type[T] | None = None,
        **handlers: Unpack[Handlers[Header[T] | None]],
    ) -> Self: ...
    @operation
    def getContainerHeader(self, *args: Any, **kwargs: Any) -> Any:
        """Return the decrypted header; None if the container has none or permissions hide it.

        `headerType` is that of `getContainer`, whose `headerAvailability` tells the two cases apart.

        Raises what `getContainer` raises. The broker learns that the caller fetches the header, and when
        (`Accessed`)."""

    @overload
    def getContainerContent(
        self, containerId: uuid.UUID | str, *, progress: Progress | None = None
    ) -> Promise[bytes | None]: ...
    @overload
    def getContainerContent(
        self,
        containerId: uuid.UUID | str,
        *,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[bytes | None]],
    ) -> Self: ...
    @operation
    def getContainerContent(self, *args: Any, **kwargs: Any) -> Any:
        """Return the decrypted content; None if the container has none or permissions hide it.

        The `contentAvailability` of `getContainer` tells the two cases apart.

        Raises what `getContainer` raises. The broker learns that the caller fetches the content, and when
        (`Accessed`)."""

    @overload
    def saveContainerContent(
        self,
        containerId: uuid.UUID | str,
        path: os.PathLike[str],
        *,
        progress: Progress | None = None,
    ) -> Promise[int | None]: ...
    @overload
    def saveContainerContent(
        self,
        containerId: uuid.UUID | str,
        path: os.PathLike[str],
        *,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[int | None]],
    ) -> Self: ...
    @operation
    def saveContainerContent(self, *args: Any, **kwargs: Any) -> Any:
        """Save the content to a file, in constant memory whatever its size; return its number of bytes.

        The client writes a temporary file in the same folder, readable by its owner alone, and renames it to
        `path` when it is complete and verified; an existing file is replaced. With a `FileTrustStore`, a save
        that was cut off resumes when the same content is saved to the same path again. Returns None and
        writes no file if the container has no content or the caller's permissions hide it.

        Raises `invalidArgumentError` for a path that cannot be written, `tooLargeError` if the content does
        not fit on the disk, and what `getContainer` raises.
        The broker learns which segments of the content are fetched, and when."""

    @overload
    def openContainerContent(
        self, containerId: uuid.UUID | str
    ) -> Promise[ContentReader | None]: ...
    @overload
    def openContainerContent(
        self, containerId: uuid.UUID | str, **handlers: Unpack[Handlers[ContentReader | None]]
    ) -> Self: ...
    @operation
    def openContainerContent(self, *args: Any, **kwargs: Any) -> Any:
        """Return the content as a file to read and seek in; only what is read is fetched.

        The reader verifies what it reads as `getContainer` does. It reads the content as of the opening: once
        that was replaced, it raises `partGoneError` after the broker's grace period. Returns None if the
        container has no content or the caller's permissions hide it.

        Raises what `getContainer` raises. The broker learns which segments are read, and when."""

    @overload
    def getContainerMetadata(self, containerId: uuid.UUID | str) -> Promise[Container[Any]]: ...
    @overload
    def getContainerMetadata(
        self, containerId: uuid.UUID | str, **handlers: Unpack[Handlers[Container[Any]]]
    ) -> Self: ...
    @operation
    def getContainerMetadata(self, *args: Any, **kwargs: Any) -> Any:
        """Return the metadata alone, verified; content and header are None and are not fetched.

        `hasContent` and `hasHeader` tell whether the container has them.

        Raises what `getContainer` raises. The broker learns that the caller reads the metadata, but does not
        record it as `Accessed`."""

    @overload
    def deleteContainer(self, containerId: uuid.UUID | str) -> Promise[None]: ...
    @overload
    def deleteContainer(
        self, containerId: uuid.UUID | str, **handlers: Unpack[VoidHandlers]
    ) -> Self: ...
    @operation
    def deleteContainer(self, *args: Any, **kwargs: Any) -> Any:
        """Delete the container for everybody. Needs Delete; cannot be undone, and the id is never used again.

        The broker removes content, header, type, permissions and wraps, and empties what event logs said of
        the container. It keeps what proves the deletion to the members: the signed tombstone, and the signed
        records that began the container or changed access or type, without their parts: their authors, times
        and hashes, the authors' entries of the access lists, and the members' user ids.

        Raises `permissionDeniedError` without Delete, `notFoundError` without access, `deletedError` if it is
        deleted already. After an error whose `outcome` is `Uncertain` the deletion may take effect at any
        time. The broker learns who deletes the container, and when."""

    @overload
    def leaveContainer(
        self, containerId: uuid.UUID | str, *, abandon: bool = False
    ) -> Promise[None]: ...
    @overload
    def leaveContainer(
        self,
        containerId: uuid.UUID | str,
        *,
        abandon: bool = False,
        **handlers: Unpack[VoidHandlers],
    ) -> Self: ...
    @operation
    def leaveContainer(self, *args: Any, **kwargs: Any) -> Any:
        """Give up the caller's own access to a container, whatever the permissions are.

        The broker serves nothing of the container to the caller from then on, and other members no longer see
        the caller in its `access`. The next member who writes content or header, or changes access, makes a
        new container key without the caller. Until then the caller has the key; a copy of what was read stays
        readable in any case. A member with ModifyAccess can give the caller access again: `blockUser`
        prevents that.

        The only member with ModifyAccess must pass `abandon=True`: nobody can give access afterwards.

        Raises `invalidArgumentError` for the only member, and for the only one with ModifyAccess without
        `abandon`; `rejectedError` for the only member, if the client cannot know that; `notFoundError`
        without access, also after leaving; `deletedError` after deletion;
        `conflictError` if access was changed during each of 16 attempts. After an error whose `outcome` is
        `Uncertain` the departure may take effect as long as the access list is not changed.
        The broker learns who leaves, and when."""

    @overload
    def blockUser(self, userId: UserRef) -> Promise[None]: ...
    @overload
    def blockUser(self, userId: UserRef, **handlers: Unpack[VoidHandlers]) -> Self: ...
    @operation
    def blockUser(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse access to further containers from a user: the broker refuses their grants.

        A blocked user cannot give the caller access, neither to a new container nor to one that the caller
        has left, and gets a `blockedError` that names the caller. Access that the caller has stays: end it
        with `leaveContainer`. The broker enforces this, not cryptography. A blocked person can
        register another user. Blocking a user again changes nothing.

        Raises `notFoundError` for an unknown or deleted user, `invalidArgumentError` for the caller's own id,
        `tooLargeError` for more than 1,024 blocked users. The broker learns who blocks whom."""

    @overload
    def unblockUser(self, userId: UserRef) -> Promise[None]: ...
    @overload
    def unblockUser(self, userId: UserRef, **handlers: Unpack[VoidHandlers]) -> Self: ...
    @operation
    def unblockUser(self, *args: Any, **kwargs: Any) -> Any:
        """Let a user give the caller access again. A user who is not blocked is ignored.

        Raises `notAuthenticatedError` without a session. The broker learns who is unblocked."""

    @overload
    def getBlockedUsers(self) -> Promise[list[uuid.UUID]]: ...
    @overload
    def getBlockedUsers(self, **handlers: Unpack[Handlers[list[uuid.UUID]]]) -> Self: ...
    @operation
    def getBlockedUsers(self, *args: Any, **kwargs: Any) -> Any:
        """Return the users whom the caller has blocked, ascending by id. The list is the broker's word.

        Raises `notAuthenticatedError` without a session. The broker learns that the list is read."""

    @overload
    def createGroup(
        self,
        name: str,
        members: MemberRole | UserRef | Iterable[MemberRole | UserRef] | None = None,
        description: str = "",
        *,
        managers: Iterable[GroupManager | UserRef] | None = None,
    ) -> Promise[Group]: ...
    @overload
    def createGroup(
        self,
        name: str,
        members: MemberRole | UserRef | Iterable[MemberRole | UserRef] | None = None,
        description: str = "",
        *,
        managers: Iterable[GroupManager | UserRef] | None = None,
        **handlers: Unpack[Handlers[Group]],
    ) -> Self: ...
    @operation
    def createGroup(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def getGroups(self, *, offered: bool = True) -> Promise[list[Group | BrokerError]]: ...
    @overload
    def getGroups(
        self, *, offered: bool = True, **handlers: Unpack[Handlers[list[Group | BrokerError]]]
    ) -> Self: ...
    @operation
    def getGroups(self, *args: Any, **kwargs: Any) -> Any:
        """Return the groups that the caller is a member of, offered ones included, ascending by id.

        An offered group has `accepted` False; `offered=False` leaves out those, and does not read them.
        Everybody can offer a group, and a long history takes a while to read: cancel the Promise to stop. A
        group that cannot be verified or opened is in the list as its error, with its id in `containerId`.

        Raises `integrityError` if the broker's list leaves out a group of which the caller is a member.
        The broker learns that the groups are read."""

    @overload
    def getGroupMembers(self, groupId: GroupRef) -> Promise[list[GroupMember]]: ...
    @overload
    def getGroupMembers(
        self, groupId: GroupRef, **handlers: Unpack[Handlers[list[GroupMember]]]
    ) -> Self: ...
    @operation
    def getGroupMembers(self, *args: Any, **kwargs: Any) -> Any:
        """Return the members of a group as of now, ascending by fingerprint, without users who have left.

        Raises `notFoundError` if the caller is not a member, `deletedError` after deletion, and an
        `untrustedError` for members whom no manager signed. The broker learns that the group is read."""

    @overload
    def acceptGroup(self, groupId: GroupRef) -> Promise[Group]: ...
    @overload
    def acceptGroup(self, groupId: GroupRef, **handlers: Unpack[Handlers[Group]]) -> Self: ...
    @operation
    def acceptGroup(self, *args: Any, **kwargs: Any) -> Any:
        """Accept the offer of a group: from now on the caller reads and writes its containers.

        A group that was accepted already stays as it is.

        Raises `notFoundError` if the caller is not a member, `deletedError` after deletion, and an
        `untrustedError` if the group cannot be verified. The broker learns that the caller accepts it."""

    @overload
    def declineGroup(self, groupId: GroupRef) -> Promise[None]: ...
    @overload
    def declineGroup(self, groupId: GroupRef, **handlers: Unpack[VoidHandlers]) -> Self: ...
    @operation
    def declineGroup(self, *args: Any, **kwargs: Any) -> Any:
        """Decline the offer of a group. A manager can offer it again.

        Signs a departure, as `leaveGroup` does.

        Raises `invalidArgumentError` for a group that the caller has accepted (leave it instead) and for its
        only member; `notFoundError` if the caller is not a member, `deletedError` after deletion.
        The broker learns who declines, and when."""

    @overload
    def leaveGroup(self, groupId: GroupRef, *, abandon: bool = False) -> Promise[None]: ...
    @overload
    def leaveGroup(
        self, groupId: GroupRef, *, abandon: bool = False, **handlers: Unpack[VoidHandlers]
    ) -> Self: ...
    @operation
    def leaveGroup(self, *args: Any, **kwargs: Any) -> Any:
        """Leave a group: give up the membership by a signed departure. Another member must remain.

        From then on the broker serves the caller nothing through the group. The next change by a manager
        replaces the group's key; until then the broker alone keeps the caller out. With `abandon`, the only
        owner may leave: nobody can change the managers or delete the group afterwards.

        Raises `invalidArgumentError` for the only member, and for the only owner without `abandon`;
        `notFoundError` if the caller is not a member, also after leaving; `deletedError` after deletion;
        `conflictError` if the group was changed during each of 16 attempts. After an error whose `outcome` is
        `Uncertain` the departure may take effect as long as the caller's membership is not changed.
        The broker learns who leaves, and when."""

    @overload
    def addGroupMembers(
        self, groupId: GroupRef, members: MemberRole | UserRef | Iterable[MemberRole | UserRef]
    ) -> Promise[Group]: ...
    @overload
    def addGroupMembers(
        self,
        groupId: GroupRef,
        members: MemberRole | UserRef | Iterable[MemberRole | UserRef],
        **handlers: Unpack[Handlers[Group]],
    ) -> Self: ...
    @operation
    def addGroupMembers(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def removeGroupMembers(
        self,
        groupId: GroupRef,
        userIds: UserRef | Iterable[UserRef],
        *,
        renew: bool = False,
        progress: Progress | None = None,
    ) -> Promise[Group]: ...
    @overload
    def removeGroupMembers(
        self,
        groupId: GroupRef,
        userIds: UserRef | Iterable[UserRef],
        *,
        renew: bool = False,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[Group]],
    ) -> Self: ...
    @operation
    def removeGroupMembers(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def setGroupRoles(
        self, groupId: GroupRef, roles: MemberRole | Iterable[MemberRole]
    ) -> Promise[Group]: ...
    @overload
    def setGroupRoles(
        self,
        groupId: GroupRef,
        roles: MemberRole | Iterable[MemberRole],
        **handlers: Unpack[Handlers[Group]],
    ) -> Self: ...
    @operation
    def setGroupRoles(self, *args: Any, **kwargs: Any) -> Any:
        """Change the roles of these members; all others keep theirs. The caller must be a manager.

        If a role falls, the group's key is replaced. Changes of other managers are kept. `dropped` of the
        result is that of `addGroupMembers`.

        Raises `permissionDeniedError` if the caller is not a manager, `notFoundError` for a user who is not a
        member, `invalidArgumentError` for a user who is named twice, `tooLargeError` in the last epoch,
        `conflictError` if another manager changed the same user or after 16 attempts.
        The broker learns the roles."""

    @overload
    def setGroupManagers(
        self, groupId: GroupRef, managers: Iterable[GroupManager | UserRef]
    ) -> Promise[Group]: ...
    @overload
    def setGroupManagers(
        self,
        groupId: GroupRef,
        managers: Iterable[GroupManager | UserRef],
        **handlers: Unpack[Handlers[Group]],
    ) -> Self: ...
    @operation
    def setGroupManagers(self, *args: Any, **kwargs: Any) -> Any:
        """Replace the list of a group's managers. The caller must be an owner.

        `managers` is the whole list: 1 to 16 users or GroupManagers, one of them an owner. A manager who is
        not a member becomes one, as a writer, with an offer. A manager who is left out stays a member.

        Raises `permissionDeniedError` if the caller is not an owner, `invalidArgumentError` for a list
        without an owner and for a user who is named twice, `notFoundError` for an unknown or deleted user,
        `keySubstitutionError` and `blockedError` as `addGroupMembers`, `tooLargeError` for more than 16,
        `conflictError` if another owner changed the managers or after 16 attempts.
        The broker learns the managers."""

    @overload
    def renameGroup(
        self, groupId: GroupRef, name: str | None = None, description: str | None = None
    ) -> Promise[Group]: ...
    @overload
    def renameGroup(
        self,
        groupId: GroupRef,
        name: str | None = None,
        description: str | None = None,
        **handlers: Unpack[Handlers[Group]],
    ) -> Self: ...
    @operation
    def renameGroup(self, *args: Any, **kwargs: Any) -> Any:
        """Change name or description of a group; None keeps it. The caller must be a manager.

        A manager to whom another manager gave a wrong key repairs the group by passing both: then the key is
        replaced.

        Raises `invalidArgumentError` for a name or description that `createGroup` refuses, and for neither;
        `permissionDeniedError` if the caller is not a manager, `conflictError` if another manager changed the
        same text or after 16 attempts. The broker learns that the group was changed."""

    @overload
    def renewGroup(
        self, groupId: GroupRef, *, newKey: bool = False, progress: Progress | None = None
    ) -> Promise[GroupRenewal]: ...
    @overload
    def renewGroup(
        self,
        groupId: GroupRef,
        *,
        newKey: bool = False,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[GroupRenewal]],
    ) -> Self: ...
    @operation
    def renewGroup(self, *args: Any, **kwargs: Any) -> Any:
        """Give each container of a group a new key that former members of the group do not have.

        The caller must be a writer or a sharer. 64 containers are renewed at a time; `progress` gets the
        number of those that are done, and None. A repeated call does what is left. With `newKey`, a manager
        first replaces the group's key. `failed` of the result has the errors of the other containers.

        Raises `permissionDeniedError` for a reader, and with `newKey` for a caller who is not a manager;
        `notFoundError` if the caller is not a member, and what `removeGroupMembers` raises for a new key.
        The broker learns that the containers are renewed together."""

    @overload
    def replaceGroup(
        self, groupId: GroupRef, newGroupId: GroupRef, *, progress: Progress | None = None
    ) -> Promise[GroupRenewal]: ...
    @overload
    def replaceGroup(
        self,
        groupId: GroupRef,
        newGroupId: GroupRef,
        *,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[GroupRenewal]],
    ) -> Self: ...
    @operation
    def replaceGroup(self, *args: Any, **kwargs: Any) -> Any:
        """Replace a group by another one in each of its containers, with the same permissions.

        Use it for a group that nobody can manage any more, or whose key cannot be replaced any more. The
        caller must be a sharer of the old group, and creates the new one first. 64 containers are changed at
        a time; `progress` gets the number of those that are done, and None. A repeated call does what is
        left. `failed` of the result has the errors of the other containers: a `permissionDeniedError` where
        the old group's access lacks ModifyAccess.

        Raises `permissionDeniedError` if the caller is not a sharer of the old group, `notFoundError` if a
        group is unknown, `invalidArgumentError` for the same group twice.
        The broker learns that the group is replaced."""

    @overload
    def deleteGroup(self, groupId: GroupRef) -> Promise[None]: ...
    @overload
    def deleteGroup(self, groupId: GroupRef, **handlers: Unpack[VoidHandlers]) -> Self: ...
    @operation
    def deleteGroup(self, *args: Any, **kwargs: Any) -> Any:
        """Delete a group for all members. The caller must be an owner. Nobody can undo this.

        The client first removes all other members, then deletes the group; a repeated call does what is left.
        A container to which nobody else has access is deleted with the group if the group could only read or
        write it.

        Raises `permissionDeniedError` if the caller is not an owner, `rejectedError` while a container that
        the group can share or delete has nobody else: give somebody access, or delete it; `deletedError`
        after deletion. The broker learns who deletes the group, and when."""

    @overload
    def getUsage(self) -> Promise[Usage]: ...
    @overload
    def getUsage(self, **handlers: Unpack[Handlers[Usage]]) -> Self: ...
    @operation
    def getUsage(self, *args: Any, **kwargs: Any) -> Any:
        """Return how many bytes and containers the caller is charged with, and the caller's quotas.

        The caller is charged with the encrypted bytes that the caller sent and the records that the caller
        signed, until the broker has deleted them: a replaced content counts until it is swept. A request that
        would exceed a quota gets a `quotaExceededError`. The client cannot verify the numbers.

        Raises `notAuthenticatedError` without a session. The broker learns that the usage is read."""

    @overload
    def getSentChanges(self, containerId: uuid.UUID | str) -> Promise[Sequence[SentChange]]: ...
    @overload
    def getSentChanges(
        self, containerId: uuid.UUID | str, **handlers: Unpack[Handlers[Sequence[SentChange]]]
    ) -> Self: ...
    @operation
    def getSentChanges(self, *args: Any, **kwargs: Any) -> Any:
        """Return what became of this device's changes whose operation failed after the record was sent.

        An error whose `outcome` is `Uncertain` leaves such a change. The client reads and verifies the
        container. A change is `Stored` if the history contains it, `NotStored` if another record has its
        version, and `Uncertain` as long as the history has not reached its version. Any other update of
        the container decides: it takes that version, unless the change has it already. The device remembers
        the last 32 changes of a container; changes that were confirmed when they were sent are not among
        them. `containerId` may be a group's id.

        Raises what `getContainer` raises, but no `notFoundError` and no `deletedError`: what is known of the
        changes is then returned. The broker learns that the caller reads the metadata."""

    @overload
    def resetContainerMark(
        self, containerId: uuid.UUID | str, accept: Head | None = None
    ) -> Promise[Heads]: ...
    @overload
    def resetContainerMark(
        self,
        containerId: uuid.UUID | str,
        accept: Head | None = None,
        **handlers: Unpack[Handlers[Heads]],
    ) -> Self: ...
    @operation
    def resetContainerMark(self, *args: Any, **kwargs: Any) -> Any:
        """Show the head that this device has verified last and the one served now; accept the latter.

        For a container that raises a `rollbackError`, `forkError` or `tooLargeError` although you trust the
        broker's present state, as after its operator has restored a backup. Without `accept` nothing changes:
        compare both heads with another member. With `accept=heads.served` the device forgets the history that
        it has verified, and follows the accepted one. Never do this because an error says so: it is what a
        broker that hides changes wants. `containerId` may be a group's id.

        Raises `conflictError` if the broker serves another head than `accept` by now; an `untrustedError` if
        the served history is not valid by itself. The broker learns that the caller reads the metadata as a
        new device does."""

    @overload
    def confirmAccess(
        self, containerId: uuid.UUID | str, accept: Head | None = None
    ) -> Promise[UnsettledAccess | None]: ...
    @overload
    def confirmAccess(
        self,
        containerId: uuid.UUID | str,
        accept: Head | None = None,
        **handlers: Unpack[Handlers[UnsettledAccess | None]],
    ) -> Self: ...
    @operation
    def confirmAccess(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def resetEventMark(
        self, accept: Head | None = None, *, groupId: GroupRef | None = None
    ) -> Promise[Heads]: ...
    @overload
    def resetEventMark(
        self,
        accept: Head | None = None,
        *,
        groupId: GroupRef | None = None,
        **handlers: Unpack[Handlers[Heads]],
    ) -> Self: ...
    @operation
    def resetEventMark(self, *args: Any, **kwargs: Any) -> Any:
        """Show up to which event this device has read, and where the log ends now; accept the latter.

        For a log that raises a `rollbackError` or `forkError` although you trust the broker's present state:
        the user's own, or that of a group. Without `accept` nothing changes. With `accept=heads.served` the
        device forgets which events it has read, and follows the accepted log. The whole log is read both
        times.

        Raises `conflictError` if the log does not contain the accepted end; `integrityError` for a log with
        gaps. The broker learns that the log is read."""

    @overload
    def getPublicKeys(
        self,
        userId: UserRef | None = None,
        keyType: KeyType | int | str | None = None,
        index: int | None = None,
    ) -> Promise[Sequence[PublicKey]]: ...
    @overload
    def getPublicKeys(
        self,
        userId: UserRef | None = None,
        keyType: KeyType | int | str | None = None,
        index: int | None = None,
        **handlers: Unpack[Handlers[Sequence[PublicKey]]],
    ) -> Self: ...
    @operation
    def getPublicKeys(self, *args: Any, **kwargs: Any) -> Any:
        """Return all public keys that match, verified to be the user's own; by default the session's user.

        `keyType` is a KeyType, its value or its name. The keys of a deleted user are all retired, and kept
        only while others need them to verify records.

        Raises `notFoundError` for an unknown user, `keySubstitutionError` for keys that are not theirs.
        The broker learns whose keys this session asks for."""

    @overload
    def getLatestActiveSigningKey(
        self, userId: UserRef, keyType: KeyType | int | str = KeyType.Signing
    ) -> Promise[PublicKey | None]: ...
    @overload
    def getLatestActiveSigningKey(
        self,
        userId: UserRef,
        keyType: KeyType | int | str = KeyType.Signing,
        **handlers: Unpack[Handlers[PublicKey | None]],
    ) -> Self: ...
    @operation
    def getLatestActiveSigningKey(self, *args: Any, **kwargs: Any) -> Any:
        """Return the user's latest active public key of the type; None for an unknown or a deleted user.

        `keyType` is a KeyType, its value or its name.

        Raises `keySubstitutionError` for keys that are not theirs. The broker learns whose keys this session
        asks for."""

    @overload
    def getEvents(
        self,
        eventType: ContainerEventType | str | Iterable[ContainerEventType | str] | None = None,
        containerId: uuid.UUID | str | None = None,
        containerType: str | None = None,
        startId: int | None = None,
        endId: int | None = None,
        *,
        groupId: GroupRef | None = None,
    ) -> Promise[Sequence[ContainerEvent]]: ...
    @overload
    def getEvents(
        self,
        eventType: ContainerEventType | str | Iterable[ContainerEventType | str] | None = None,
        containerId: uuid.UUID | str | None = None,
        containerType: str | None = None,
        startId: int | None = None,
        endId: int | None = None,
        *,
        groupId: GroupRef | None = None,
        **handlers: Unpack[Handlers[Sequence[ContainerEvent]]],
    ) -> Self: ...
    @operation
    def getEvents(self, *args: Any, **kwargs: Any) -> Any:
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

    @overload
    def followEvents(
        self,
        startId: int | None = None,
        eventType: ContainerEventType | str | Iterable[ContainerEventType | str] | None = None,
        containerId: uuid.UUID | str | None = None,
        containerType: str | None = None,
        *,
        groupStartIds: Mapping[uuid.UUID, int] | None = None,
    ) -> Stream[ContainerEvent]: ...
    @overload
    def followEvents(
        self,
        startId: int | None = None,
        eventType: ContainerEventType | str | Iterable[ContainerEventType | str] | None = None,
        containerId: uuid.UUID | str | None = None,
        containerType: str | None = None,
        *,
        groupStartIds: Mapping[uuid.UUID, int] | None = None,
        **handlers: Unpack[EventHandlers[ContainerEvent]],
    ) -> Stream[ContainerEvent]: ...
    @stream_operation
    def followEvents(self, *args: Any, **kwargs: Any) -> Any:
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
