"""`BrokerProvider`: every operation's signature and meaning, once.

Each is declared as two overloads, promise style first, then callback style; `@operation` makes both
of them out of one body, which a subclass gives as `_name`. Every operation raises `BrokerError`s:
what is wrong with the arguments, or a missing session, from the call itself in promise style; all
else through the promise. In callback style everything goes to `errorHandler`; the call itself raises
only where `errorHandler` or `queue` is wrong. Parameters of the interface go by position in its order,
those of this project by name.
"""

from __future__ import annotations

import builtins
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol, Self, TypeVar, overload, runtime_checkable

from scbroker.client.calls.operation import operation, operation_of_forms
from scbroker.client.calls.promise import Promise
from scbroker.client.containers.content_reader import ContentReader
from scbroker.client.parts.content import Progress
from scbroker.errors import BrokerError
from scbroker.keys import KeyRing
from scbroker.types import (
    Container,
    ContainerEvent,
    ContentSource,
    Header,
    NewContainer,
    PublicKey,
    SecuredContainer,
)
from scbroker.vocabulary import AccessLevel, ContainerEventType, KeyType

T = TypeVar("T")
OnError = Callable[[BrokerError], object]


def header_left_out(positional: tuple[object, ...], named: Collection[str]) -> int:
    """Return 1 for `createContainer(content, accessLevels, type)`, 0 for the form with a header.

    A list in second place is the access list if it is empty or holds an AccessLevel; None there is one if a
    type follows it.
    """
    del named
    second, third = (*positional, "", "", "")[1:3]
    if isinstance(second, (list, tuple, set, frozenset)):
        return int(not second or any(isinstance(each, AccessLevel) for each in second))
    return int(second is None and len(positional) == 3 and isinstance(third, str))


def key_ring_first(positional: tuple[object, ...], named: Collection[str]) -> int:
    """Return 1 for `logIn(keyRing, userId)`, 0 for `logIn(userId, password, passphrase)`."""
    return int(isinstance(positional[0], KeyRing) if positional else "keyRing" in named)


@runtime_checkable
class BrokerProvider(Protocol):
    """A user's session against a broker."""

    @overload
    def register(
        self,
        password: str,
        passphrase: str,
        reminder: str | None = None,
    ) -> Promise[bytes]: ...

    @overload
    def register(
        self,
        password: str,
        passphrase: str,
        reminder: str | None = None,
        *,
        completionHandler: Callable[[bytes], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def register(self, *args: Any, **kwargs: Any) -> Any:
        """Creates a user with fresh keys, keeps the KeyFile on the broker, and logs in.

        The password encrypts the KeyRing, the passphrase the password: who has the passphrase can log
        in from anywhere, and nobody can reset it. Gives the encrypted KeyFile. Takes about 0.4 s
        (Argon2id). The broker learns the public keys, the sealed KeyFile, and the reminder as it is.

        Raises `invalidArgumentError` for a missing or weak secret, or a reminder that contains one."""

    @overload
    def logIn(
        self,
        userId: uuid.UUID,
        password: str | None = None,
        passphrase: str | None = None,
    ) -> Promise[bytes]: ...

    @overload
    def logIn(
        self,
        keyRing: KeyRing,
        userId: uuid.UUID,
    ) -> Promise[None]: ...

    @overload
    def logIn(
        self,
        userId: uuid.UUID,
        password: str | None = None,
        passphrase: str | None = None,
        *,
        completionHandler: Callable[[bytes], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @overload
    def logIn(
        self,
        keyRing: KeyRing,
        userId: uuid.UUID,
        *,
        completionHandler: Callable[[], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation_of_forms(key_ring_first)
    def logIn(self, *args: Any, **kwargs: Any) -> Any:
        """Logs in, from a user id and passphrase, or with a KeyRing that is there already.

        With `userId` and `passphrase` (the password is optional; where given it has to be right) the
        KeyFile is fetched and opened; gives its encrypted bytes. With `keyRing` and `userId` nothing is
        fetched but the published keys, which have to be those of the KeyRing; gives nothing. A session
        that exists is replaced only when the new one stands.

        The device keeps a pass of the session in its trust store, also after a log-out: guesses of
        strangers delay devices without one, and not this one. The broker learns a proof of the
        passphrase, the user id, and by the pass which of the user's devices logs in.

        Raises `credentialsError` for a wrong or missing passphrase, an unknown user, or a wrong password,
        `invalidArgumentError` for an empty passphrase or password, `decryptionError` for a damaged KeyFile,
        `throttledError` after too many guesses, `rollbackError` when an older KeyFile is served than this
        device has seen."""

    @overload
    def logout(
        self,
    ) -> Promise[None]: ...

    @overload
    def logout(
        self,
        *,
        completionHandler: Callable[[], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def logout(self, *args: Any, **kwargs: Any) -> Any:
        """Ends the session: keys and token are forgotten here, and the token ends at the broker.

        What is under way keeps the session that it began with."""

    @overload
    def deleteUser(
        self,
    ) -> Promise[None]: ...

    @overload
    def deleteUser(
        self,
        *,
        completionHandler: Callable[[], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def deleteUser(self, *args: Any, **kwargs: Any) -> Any:
        """Delete the session's user and all their data from the broker for ever; it cannot be undone.

        KeyFile, reminder, sessions, events and memberships go, and every container that nobody else
        has access to. The id stays, so that it is never registered again. Containers that others have
        access to stay with the records that the user signed; the user's public keys stay as long as such
        a container exists, or the tombstone of one that others may be shown, all of them retired. The event
        logs of others name the user and the program that acted, except in events of deleted containers. Only
        the id is left of a user who shared nothing.

        Afterwards the provider has no session, and the private keys are overwritten in memory unless the
        program itself holds the KeyRing. If the call fails, the session stays; called again after a lost
        answer, it ends the same way.

        Raises `notAuthenticatedError` without a session, or if the keys were replaced on another device;
        `clockError` if this machine's clock is minutes off.

        The broker learns that the user was deleted, and keeps a signed record that says so to others."""

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
        completionHandler: Callable[[bytes], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def changeCredentials(self, *args: Any, **kwargs: Any) -> Any:
        """Encrypts the KeyFile anew under other secrets; gives its encrypted bytes.

        A `reminder` that is not given (None) stays as it is; an empty one removes it. The client reads a
        reminder that is to stay, and refuses it if it contains one of the new secrets.

        The tokens of the user's other sessions end; a device that holds the KeyRing in memory goes on
        with it. `compromised=True` ends that too: it makes a new signing and a new encryption key, the
        next of their index, and retires the old ones, which still open and verify what was made with
        them; other devices log in again with the new passphrase. A KeyRing that leaked is lost all the
        same, since signing key 0 stays what the user id is made of: register anew and grant again. Takes
        about 0.4 s (Argon2id). The broker learns what it learns at `register`, and the new public keys.

        Raises `invalidArgumentError` for a weak secret or a reminder that contains one, `conflictError`
        when the credentials were changed on another device meanwhile. After an `unreachableError` either
        secrets may be in force: try the new ones first."""

    @overload
    def getKeyRing(
        self,
    ) -> Promise[KeyRing]: ...

    @overload
    def getKeyRing(
        self,
        *,
        completionHandler: Callable[[KeyRing], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def getKeyRing(self, *args: Any, **kwargs: Any) -> Any:
        """The KeyRing of the session. Raises `notAuthenticatedError` without one."""

    @overload
    def getUserId(
        self,
    ) -> Promise[uuid.UUID]: ...

    @overload
    def getUserId(
        self,
        *,
        completionHandler: Callable[[uuid.UUID], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def getUserId(self, *args: Any, **kwargs: Any) -> Any:
        """The user id of the session. Raises `notAuthenticatedError` without one."""

    @overload
    def getReminder(
        self,
        userId: uuid.UUID | None = None,
    ) -> Promise[str]: ...

    @overload
    def getReminder(
        self,
        userId: uuid.UUID | None = None,
        *,
        completionHandler: Callable[[str], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def getReminder(self, *args: Any, **kwargs: Any) -> Any:
        """A user's reminder; the session's own user by default. Works before log-in.

        "" for an unknown user as for one without a reminder. Everybody with the API key can read it."""

    @overload
    def createOrUpdateKeyFile(
        self,
        keyFileData: bytes,
        password: str,
        passphrase: str,
        reminder: str | None = None,
    ) -> Promise[bytes]: ...

    @overload
    def createOrUpdateKeyFile(
        self,
        keyFileData: bytes,
        password: str,
        passphrase: str,
        reminder: str | None = None,
        *,
        completionHandler: Callable[[bytes], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def createOrUpdateKeyFile(self, *args: Any, **kwargs: Any) -> Any:
        """Store a KeyFile that is at hand, in place of the one on the broker; return the bytes stored.

        The password must open the KeyFile; this is checked before anything is sent. The passphrase secures
        it on the broker from then on. If it is the passphrase of these bytes, they are stored as they are.
        If it is another one, the KeyRing is sealed anew under both secrets as the next generation: keep the
        bytes that this returns, since the ones given are then older than the stored ones. The secrets
        stored last release and open the KeyFile; sessions go on.

        The KeyFile must hold exactly the published keys and be no older than the one stored last. A
        `reminder` that is not given (None) stays as it is, under the same check as in `changeCredentials`;
        an empty one removes it. For a backup, another passphrase, or after `deleteKeyFile`.

        The broker learns what it learns at `register` of the KeyFile and the reminder.

        Raises `invalidArgumentError` for bytes that are not this user's KeyFile, a weak new passphrase, or
        a reminder that contains a secret; `credentialsError` if the password does not open the KeyFile,
        also where that is because the KeyFile is damaged; `rollbackError` for an older KeyFile and
        `forkError` for another one of the same generation."""

    @overload
    def deleteKeyFile(
        self,
    ) -> Promise[None]: ...

    @overload
    def deleteKeyFile(
        self,
        *,
        completionHandler: Callable[[], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def deleteKeyFile(self, *args: Any, **kwargs: Any) -> Any:
        """Removes the session's KeyFile, the passphrase's verifier and the reminder from the broker.

        From then on nobody logs in with a passphrase until `createOrUpdateKeyFile` or `changeCredentials`
        stores one: keep the bytes. The session goes on. Nothing happens where there is none."""

    @overload
    def getKeyFile(
        self,
        passphrase: str,
    ) -> Promise[bytes]: ...

    @overload
    def getKeyFile(
        self,
        passphrase: str,
        *,
        completionHandler: Callable[[bytes], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def getKeyFile(self, *args: Any, **kwargs: Any) -> Any:
        """The session's KeyFile as the broker keeps it, encrypted; verified to open and to be no older.

        The broker learns a proof of the passphrase and no more. Raises `credentialsError` for a wrong
        passphrase or if no KeyFile is stored, `invalidArgumentError` for an empty passphrase,
        `throttledError` after too many guesses."""

    @overload
    def needToSyncAccount(
        self,
        userId: uuid.UUID,
        keyFileData: bytes,
    ) -> Promise[bool]: ...

    @overload
    def needToSyncAccount(
        self,
        userId: uuid.UUID,
        keyFileData: bytes,
        *,
        completionHandler: Callable[[bool], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def needToSyncAccount(self, *args: Any, **kwargs: Any) -> Any:
        """Return whether the KeyFile on the broker differs from these bytes; True if it keeps none.

        True means that the local copy has to be fetched again: the credentials or keys were changed on
        another device, or the copy is damaged. Any bytes are compared, also empty or damaged ones.

        The broker learns that this session asks for the state of its KeyFile. It answers with the SHA-256
        of the stored KeyFile; the comparison is made here, so the broker learns nothing of
        `keyFileData`, nor the outcome.

        Raises `invalidArgumentError` if `userId` is not the id of the session's user or `keyFileData` is
        not bytes-like, `rollbackError` or `forkError` if the broker names an older KeyFile than this
        device has seen, or another of the same generation."""

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
        completionHandler: Callable[[SecuredContainer], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @overload
    def createContainer(
        self,
        content: ContentSource | None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        progress: Progress | None = None,
        completionHandler: Callable[[SecuredContainer], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation_of_forms(header_left_out)
    def createContainer(self, *args: Any, **kwargs: Any) -> Any:
        """Seals content and header and keeps them in a new container; the result has its id.

        The parameters go by position in either form: content, accessLevels, type, or content,
        customHeaderObject, accessLevels, type. A list of AccessLevel in second place, the empty list
        included, is the first form: a header that is an empty list goes by its name.

        `content` is bytes-like, a `pathlib.Path`, a binary file or an iterator of bytes. Contents of
        more than 64 KiB are sealed and sent piece by piece; `progress(done, total)` is called on
        scbroker's own thread. `customHeaderObject` is anything that JSON holds, by msgspec or pydantic.
        `accessLevels` None or empty: the caller alone, with owner permissions; anything else is
        taken exactly, also without the caller. `type` is a label of at most 256 bytes.

        The broker learns the members and their permissions, the type, sizes and times; of content and
        header nothing. Raises `notFoundError` for an unknown user, `keySubstitutionError` when the
        broker answers with somebody else's keys."""

    @overload
    def createContainers(
        self,
        containers: Iterable[NewContainer],
    ) -> Promise[list[SecuredContainer | BrokerError]]: ...

    @overload
    def createContainers(
        self,
        containers: Iterable[NewContainer],
        *,
        completionHandler: Callable[[list[SecuredContainer | BrokerError]], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def createContainers(self, *args: Any, **kwargs: Any) -> Any:
        """Makes many containers in few requests; the results stand in the order of the items.

        Each is made as `createContainer` makes it, and each by itself: what failed is there as its
        `BrokerError`, and undoes none of the others. Large contents are sent ahead of their container,
        and begin anew where they were cut off.
        The broker learns what it learns of each, and that they were made together.

        Raises `invalidArgumentError`, with the position of the item, before anything is sent. Where a
        request has no answer, as in an `unreachableError`, the operation fails as a whole, and any of
        the containers may be there: `getEvents` tells."""

    @overload
    def updateContainer(
        self,
        containerId: uuid.UUID,
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
        containerId: uuid.UUID,
        content: ContentSource | None = None,
        customHeaderObject: object = None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        ifVersion: int | None = None,
        progress: Progress | None = None,
        completionHandler: Callable[[SecuredContainer], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def updateContainer(self, *args: Any, **kwargs: Any) -> Any:
        """Replaces content, header, access and type together.

        Warning: an omitted parameter is erased or unshared, not kept. Without `content`, `customHeaderObject`
        or `type` the container has none afterwards; without `accessLevels` (None or empty) its creator
        alone has access, with owner permissions, and everybody else loses it, the caller too unless they
        are the creator. To change one of them, call
        updateContainerContent, updateContainerHeader, updateContainerAccessLevels or updateContainerType.

        Needs Upload, ModifyType and ModifyAccess, and every bit that is given or taken: else
        `permissionDeniedError`, before anything is sent. Raises `invalidArgumentError` without access
        levels if the creator was deleted. With `ifVersion`, only if the container is still at
        that version; else `conflictError`."""

    @overload
    def updateContainerHeader(
        self,
        containerId: uuid.UUID,
        customHeaderObject: object = None,
        *,
        ifVersion: int | None = None,
    ) -> Promise[SecuredContainer]: ...

    @overload
    def updateContainerHeader(
        self,
        containerId: uuid.UUID,
        customHeaderObject: object = None,
        *,
        ifVersion: int | None = None,
        completionHandler: Callable[[SecuredContainer], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def updateContainerHeader(self, *args: Any, **kwargs: Any) -> Any:
        """Replaces the header. Needs Upload.

        Warning: without `customHeaderObject` the header is erased.

        The result is what `getSecuredContainer` gives, with the sealed content of up to 64 KiB: the
        broker serves that to the caller, and records it as a fetch (`Accessed`).
        Tried again on top of a change of another field; `conflictError` if the header was changed."""

    @overload
    def updateContainerContent(
        self,
        containerId: uuid.UUID,
        content: ContentSource | None = None,
        *,
        ifVersion: int | None = None,
        progress: Progress | None = None,
    ) -> Promise[SecuredContainer]: ...

    @overload
    def updateContainerContent(
        self,
        containerId: uuid.UUID,
        content: ContentSource | None = None,
        *,
        ifVersion: int | None = None,
        progress: Progress | None = None,
        completionHandler: Callable[[SecuredContainer], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def updateContainerContent(self, *args: Any, **kwargs: Any) -> Any:
        """Replaces the content. Needs Upload.

        Warning: without `content` the content is erased.

        The result is what `getSecuredContainer` gives, with the sealed header: the broker serves that to
        the caller, and records it as a fetch (`Accessed`).
        Tried again on top of a change of another field; `conflictError` if the content was changed."""

    @overload
    def updateContainerAccessLevels(
        self,
        containerId: uuid.UUID,
        accessLevels: Iterable[AccessLevel] | None = None,
        *,
        ifVersion: int | None = None,
    ) -> Promise[None]: ...

    @overload
    def updateContainerAccessLevels(
        self,
        containerId: uuid.UUID,
        accessLevels: Iterable[AccessLevel] | None = None,
        *,
        ifVersion: int | None = None,
        completionHandler: Callable[[], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def updateContainerAccessLevels(self, *args: Any, **kwargs: Any) -> Any:
        """Replaces the access list. Needs ModifyAccess, and every bit that is given or taken.

        Warning: without `accessLevels` (left out, None or empty) the container's creator alone has access
        afterwards, with owner permissions. Everybody else loses it, the caller too unless they are the
        creator. For anything else name every user, yourself included.

        Makes a new container key: who is left out opens nothing that is written from now on. What they
        could read they may have kept. Costs one wrap a member, whatever the content's size.

        Raises `permissionDeniedError`, before anything is sent, without the bits that this gives or
        takes, and `invalidArgumentError` without access levels if the creator was deleted."""

    @overload
    def updateContainerType(
        self,
        containerId: uuid.UUID,
        type: str | None = None,
        *,
        ifVersion: int | None = None,
    ) -> Promise[None]: ...

    @overload
    def updateContainerType(
        self,
        containerId: uuid.UUID,
        type: str | None = None,
        *,
        ifVersion: int | None = None,
        completionHandler: Callable[[], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def updateContainerType(self, *args: Any, **kwargs: Any) -> Any:
        """Replaces the type label. Needs Upload and ModifyType.

        Warning: without `type` the label is erased."""

    @overload
    def getContainer(
        self,
        containerId: uuid.UUID,
        headerType: None = None,
        *,
        progress: Progress | None = None,
    ) -> Promise[Container[Any]]: ...

    @overload
    def getContainer(
        self,
        containerId: uuid.UUID,
        headerType: builtins.type[T],
        *,
        progress: Progress | None = None,
    ) -> Promise[Container[T]]: ...

    @overload
    def getContainer(
        self,
        containerId: uuid.UUID,
        headerType: None = None,
        *,
        progress: Progress | None = None,
        completionHandler: Callable[[Container[Any]], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @overload
    def getContainer(
        self,
        containerId: uuid.UUID,
        headerType: builtins.type[T],
        *,
        progress: Progress | None = None,
        completionHandler: Callable[[Container[T]], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def getContainer(self, *args: Any, **kwargs: Any) -> Any:
        """Content, header and metadata, each None where the caller's permissions hide it.

        `contentAvailability` and `headerAvailability` tell a missing part from a hidden one.
        `headerType` names a type that the header is decoded and validated into. Verified before
        anything is returned: who signed it, that they had the right to, that it is not older than
        this device has seen, and every byte. Raises `notFoundError` without access, `deletedError`
        after deletion, an `untrustedError` for anything that its author did not make."""

    @overload
    def getContainers(
        self,
        containerIds: Iterable[uuid.UUID],
        headerType: None = None,
    ) -> Promise[list[Container[Any] | BrokerError]]: ...

    @overload
    def getContainers(
        self,
        containerIds: Iterable[uuid.UUID],
        headerType: builtins.type[T],
    ) -> Promise[list[Container[T] | BrokerError]]: ...

    @overload
    def getContainers(
        self,
        containerIds: Iterable[uuid.UUID],
        headerType: None = None,
        *,
        completionHandler: Callable[[list[Container[Any] | BrokerError]], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @overload
    def getContainers(
        self,
        containerIds: Iterable[uuid.UUID],
        headerType: builtins.type[T],
        *,
        completionHandler: Callable[[list[Container[T] | BrokerError]], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def getContainers(self, *args: Any, **kwargs: Any) -> Any:
        """Reads many containers in few requests; the results stand in the order of the ids.

        Each is verified as `getContainer` verifies it, and each by itself: what could not be read, or
        must not be believed, is there as its `BrokerError`. `headerType` is that of every header. An id
        may stand there twice. Where a request has no answer, also one for a large content of one of them,
        the operation fails as a whole."""

    @overload
    def getContainerHeader(
        self,
        containerId: uuid.UUID,
        headerType: None = None,
    ) -> Promise[Header[Any] | None]: ...

    @overload
    def getContainerHeader(
        self,
        containerId: uuid.UUID,
        headerType: builtins.type[T],
    ) -> Promise[Header[T] | None]: ...

    @overload
    def getContainerHeader(
        self,
        containerId: uuid.UUID,
        headerType: None = None,
        *,
        completionHandler: Callable[[Header[Any] | None], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @overload
    def getContainerHeader(
        self,
        containerId: uuid.UUID,
        headerType: builtins.type[T],
        *,
        completionHandler: Callable[[Header[T] | None], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def getContainerHeader(self, *args: Any, **kwargs: Any) -> Any:
        """Return the decrypted header. `headerType` as in getContainer.

        None if there is none, and if permissions hide it: `getContainer` tells which."""

    @overload
    def getContainerContent(
        self,
        containerId: uuid.UUID,
        *,
        progress: Progress | None = None,
    ) -> Promise[bytes | None]: ...

    @overload
    def getContainerContent(
        self,
        containerId: uuid.UUID,
        *,
        progress: Progress | None = None,
        completionHandler: Callable[[bytes | None], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def getContainerContent(self, *args: Any, **kwargs: Any) -> Any:
        """Return the decrypted content.

        None if there is none, and if permissions hide it: `getContainer` tells which."""

    @overload
    def saveContainerContent(
        self,
        containerId: uuid.UUID,
        path: os.PathLike[str],
        *,
        progress: Progress | None = None,
    ) -> Promise[int | None]: ...

    @overload
    def saveContainerContent(
        self,
        containerId: uuid.UUID,
        path: os.PathLike[str],
        *,
        progress: Progress | None = None,
        completionHandler: Callable[[int | None], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def saveContainerContent(self, *args: Any, **kwargs: Any) -> Any:
        """Saves the content to a file, in constant memory whatever its size; gives its bytes' number.

        The file is written beside its place, readable by its owner alone, and takes it when it is whole
        and verified; one that was there is replaced. With a trust store in files, what was cut off goes
        on where it was when the same content is saved to the same place again. None, and no file, where
        there is no content or the caller's permissions hide it. The broker learns which parts of the
        content are fetched, and when.

        Raises `invalidArgumentError` for a place that cannot be written, and what `getContainer` raises."""

    @overload
    def openContainerContent(
        self,
        containerId: uuid.UUID,
    ) -> Promise[ContentReader | None]: ...

    @overload
    def openContainerContent(
        self,
        containerId: uuid.UUID,
        *,
        completionHandler: Callable[[ContentReader | None], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def openContainerContent(self, *args: Any, **kwargs: Any) -> Any:
        """The content as a file to read and to seek in, of which no more is fetched than is read.

        What is read is verified as in `getContainer`. It stays the content that it was when it was
        opened: once it has been replaced, reading ends with a `partGoneError` after the broker's grace.
        None where there is no content or the caller's permissions hide it. The broker learns which
        parts of the content are read, and when."""

    @overload
    def getContainerMetadata(
        self,
        containerId: uuid.UUID,
    ) -> Promise[Container[Any]]: ...

    @overload
    def getContainerMetadata(
        self,
        containerId: uuid.UUID,
        *,
        completionHandler: Callable[[Container[Any]], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def getContainerMetadata(self, *args: Any, **kwargs: Any) -> Any:
        """The metadata alone; content and header are None and are not fetched.

        `hasContent` and `hasHeader` tell whether the container has them."""

    @overload
    def deleteContainer(
        self,
        containerId: uuid.UUID,
    ) -> Promise[None]: ...

    @overload
    def deleteContainer(
        self,
        containerId: uuid.UUID,
        *,
        completionHandler: Callable[[], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def deleteContainer(self, *args: Any, **kwargs: Any) -> Any:
        """Delete the container for everybody. Needs Delete; cannot be undone, and the id is never used again.

        The broker removes content, header, type, permissions and wraps, and empties what event logs said of
        the container. It keeps what proves the deletion to the members: the signed tombstone, and the signed
        records that began the container or changed access or type, without their parts: their authors, times
        and hashes, the authors' entries of the access lists, and the members' user ids.

        Raises `permissionDeniedError` without Delete, `notFoundError` without access, `deletedError` if it is
        deleted already. The broker learns who deletes the container, and when."""

    @overload
    def getPublicKeys(
        self,
        userId: uuid.UUID | None = None,
        keyType: KeyType | int | str | None = None,
        index: int | None = None,
    ) -> Promise[Sequence[PublicKey]]: ...

    @overload
    def getPublicKeys(
        self,
        userId: uuid.UUID | None = None,
        keyType: KeyType | int | str | None = None,
        index: int | None = None,
        *,
        completionHandler: Callable[[Sequence[PublicKey]], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def getPublicKeys(self, *args: Any, **kwargs: Any) -> Any:
        """All public keys that match, verified to be the user's own; the session's user by default.

        `keyType` is a KeyType, its value or its name. The keys of a deleted user are all retired, and
        kept only while others need them to verify records.

        Raises `notFoundError` for an unknown user, `keySubstitutionError` for keys that are not theirs."""

    @overload
    def getLatestActiveSigningKey(
        self,
        userId: uuid.UUID,
        keyType: KeyType | int | str = KeyType.Signing,
    ) -> Promise[PublicKey | None]: ...

    @overload
    def getLatestActiveSigningKey(
        self,
        userId: uuid.UUID,
        keyType: KeyType | int | str = KeyType.Signing,
        *,
        completionHandler: Callable[[PublicKey | None], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def getLatestActiveSigningKey(self, *args: Any, **kwargs: Any) -> Any:
        """The user's latest active public key of the type; None for an unknown or a deleted user.

        `keyType` is a KeyType, its value or its name. The broker learns whose keys are asked for.
        Raises `keySubstitutionError` for keys that are not theirs."""

    @overload
    def getEvents(
        self,
        eventType: ContainerEventType | str | Iterable[ContainerEventType | str] | None = None,
        containerId: uuid.UUID | None = None,
        containerType: str | None = None,
        startId: int | None = None,
        endId: int | None = None,
    ) -> Promise[Sequence[ContainerEvent]]: ...

    @overload
    def getEvents(
        self,
        eventType: ContainerEventType | str | Iterable[ContainerEventType | str] | None = None,
        containerId: uuid.UUID | None = None,
        containerType: str | None = None,
        startId: int | None = None,
        endId: int | None = None,
        *,
        completionHandler: Callable[[Sequence[ContainerEvent]], object],
        errorHandler: OnError,
        queue: Executor | None = None,
    ) -> Self: ...

    @operation
    def getEvents(self, *args: Any, **kwargs: Any) -> Any:
        """The session's event log as far as it matches, ascending; both ids are inclusive.

        `eventType` is a ContainerEventType or its name, or several. `containerType` matches an event that
        changed the type by the type before it as well as by the one after.

        A broker may drop old events. Without `startId` the log begins with the first that is kept: an
        id above 1 tells that others are gone. With one that is gone, `eventsExpiredError` names the
        first that is kept, as `firstId`.

        Once a container is deleted, its earlier events keep their kind alone and its `Deleted` event has no
        type: with `containerType` neither is found.

        Events are the broker's word: what they point to is verified when it is read."""
