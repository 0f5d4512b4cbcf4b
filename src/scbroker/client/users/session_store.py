"""Store the KeyRings of kept sessions: each sealed in a file, and the key that opens it in another place.

A store has a pair for each user of a broker: the sealed KeyRings and their key. It replaces the pair only if
it is still the expected one, so several programs can use one store. `seal_session` and `open_session` of
`scbroker.keys` define the file.

A crash leaves a pair whole, or the user without one: a new key is stored before the file that it opens, and a
file is removed before its key.

A kept session is removed when the user logs out or is deleted on this device, and when key records that
signing key 0 signed prove that its keys were replaced. A mere refusal by the broker does not remove it:
otherwise a broker could sign out all devices for ever.
"""

import base64
import binascii
import logging
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import filelock

from scbroker import errors
from scbroker.client.calls.tasks import io_thread
from scbroker.client.local_state import make_own_folder, open_own, temporary_file
from scbroker.crypto.seal import KEY_SIZE, random_bytes
from scbroker.crypto.verify import sha256
from scbroker.errors import InvalidArgumentError, SessionStoreError
from scbroker.extras import install
from scbroker.folders import platform_folder
from scbroker.keys import KeyRing, open_session, seal_session
from scbroker.vocabulary import instance_of

_MAX_FILE: Final = 131_072
_LOCK_SECONDS: Final = 30.0
_RECOMMENDED: Final = 1
"""From this priority on, `keyring` recommends a keychain; lower ones keep passwords in plain files."""
_INSTALL: Final = (
    "Keeping a session in the operating system's keychain needs the package keyring: run "
    f"{install('keychain')}, or pass sessionStore= the path of a folder, in which the key is kept in a file."
)


@dataclass(frozen=True, slots=True, repr=False)
class SealedKeys:
    """The sealed KeyRings of a kept session, and the key that opens them: together they are the account."""

    key: bytes
    sealed: bytes

    def __repr__(self) -> str:
        return "SealedKeys(…)"


@runtime_checkable
class SessionStore(Protocol):
    """A place for kept sessions. `origin` is the broker's, such as `https://broker.example:443`.

    Each method raises `SessionStoreError` if the store cannot be used, with what to do about it.
    """

    def check(self) -> None:
        """Raise an error if the store could not keep a session. Called before a log-in with `keep=True`."""
        ...

    def get(self, origin: str, userId: uuid.UUID) -> SealedKeys | None:
        """Return the pair of a user; None without one, or if one half is missing."""
        ...

    def swap(
        self, origin: str, userId: uuid.UUID, expected: SealedKeys | None, new: SealedKeys
    ) -> bool:
        """Replace the pair of a user if it is still the expected one; return whether it was."""
        ...

    def remove(self, origin: str, userId: uuid.UUID, expected: SealedKeys | None = None) -> None:
        """Remove the pair of a user; with `expected`, only if it is still that one."""
        ...

    def users(self, origin: str) -> Sequence[uuid.UUID]:
        """Return the users of a broker for whom a session is kept, in ascending order."""
        ...


class _Folder:
    """Sealed KeyRings in files of a folder; a subclass stores the keys that open them."""

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self._directory = Path(directory).absolute() if directory else None

    @property
    def directory(self) -> Path:
        return self._directory or platform_folder("state", ", or pass another sessionStore")

    def check(self) -> None:
        with self._usable(locked=True):
            pass

    def get(self, origin: str, userId: uuid.UUID) -> SealedKeys | None:
        path = self._path(origin, userId)
        if not os.path.lexists(path):  # a link counts: `open_own` refuses it
            return None
        with self._usable(locked=True):
            return self._read(path, origin, userId)

    def swap(
        self, origin: str, userId: uuid.UUID, expected: SealedKeys | None, new: SealedKeys
    ) -> bool:
        path = self._path(origin, userId)
        with self._usable(locked=True):
            if self._read(path, origin, userId) != expected:
                return False
            if expected is None or new.key != expected.key:
                path.unlink(missing_ok=True)
                self._set_key(origin, userId, new.key)
            with temporary_file(path, new.sealed) as temporary:
                temporary.replace(path)
            return True

    def remove(self, origin: str, userId: uuid.UUID, expected: SealedKeys | None = None) -> None:
        path = self._path(origin, userId)
        if not os.path.lexists(path):  # a link counts: `open_own` refuses it
            return
        with self._usable(locked=True):
            if expected is None or self._read(path, origin, userId) == expected:
                path.unlink(missing_ok=True)
                self._set_key(origin, userId, None)

    def users(self, origin: str) -> Sequence[uuid.UUID]:
        if not os.path.lexists(self.directory):
            return []
        with self._usable():
            names = [path.name for path in self.directory.glob(f"*{_ending(origin)}")]
        ids = (name.removesuffix(_ending(origin)) for name in names)
        return sorted(uuid.UUID(text) for text in ids if re.fullmatch(r"[0-9a-f-]{36}", text))

    def _read(self, path: Path, origin: str, user_id: uuid.UUID) -> SealedKeys | None:
        sealed = _read_own(path, _MAX_FILE)
        key = None if sealed is None else self._get_key(origin, user_id)
        return None if sealed is None or key is None else SealedKeys(key, sealed)

    def _path(self, origin: str, user_id: uuid.UUID) -> Path:
        return self.directory / f"{user_id}{_ending(origin)}"

    @contextmanager
    def _usable(self, *, locked: bool = False) -> Iterator[None]:
        """Use the folder, which is created if it does not exist; with `locked`, alone of all processes."""
        lock = filelock.FileLock(self.directory / "sessions.lock", timeout=_LOCK_SECONDS)
        try:
            make_own_folder(self.directory)
            if not locked:
                yield
                return
            os.close(open_own(Path(lock.lock_file), os.O_CREAT))
            with lock:
                yield
        except filelock.Timeout:
            raise SessionStoreError(
                f"Another process keeps the sessions in {self.directory} locked: end it, or try again."
            ) from None
        except OSError as error:
            raise SessionStoreError(
                f"The kept sessions in {self.directory} cannot be used ({error.strerror}): make the folder "
                "and its files accessible to this user alone, or pass another sessionStore."
            ) from None

    def _get_key(self, origin: str, user_id: uuid.UUID) -> bytes | None:
        raise NotImplementedError

    def _set_key(self, origin: str, user_id: uuid.UUID, key: bytes | None) -> None:
        raise NotImplementedError


class FileSessionStore(_Folder):
    """Kept sessions in a folder, with their keys beside them, in files that only this user can open.

    Anybody who can read the folder, such as a thief of the disk or of a backup, has the KeyRings. Use it on a
    machine that has no keychain and whose disk is encrypted.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        if directory == "":
            raise InvalidArgumentError("directory must be the path of a folder, not an empty path")
        instance_of("directory", directory, "the path of a folder", str, os.PathLike)
        super().__init__(directory)

    def _get_key(self, origin: str, user_id: uuid.UUID) -> bytes | None:
        return _read_own(self._key_path(origin, user_id), 64)

    def _set_key(self, origin: str, user_id: uuid.UUID, key: bytes | None) -> None:
        path = self._key_path(origin, user_id)
        if key is None:
            path.unlink(missing_ok=True)
            return
        with temporary_file(path, key) as temporary:
            temporary.replace(path)

    def _key_path(self, origin: str, user_id: uuid.UUID) -> Path:
        return self._path(origin, user_id).with_suffix(".key")


class KeychainSessionStore(_Folder):
    """Kept sessions in a folder, with their keys in the operating system's keychain.

    The default. The keychain is a Secret Service or KWallet on Linux; nobody has tried those of macOS and
    Windows yet. It needs the package `keyring`, the extra `keychain`. The folder is by default the
    platform's folder for state. Programs that pass different folders share the entry of a user in the
    keychain: a log-out in one of them ends what the others keep for that user.
    """

    def check(self) -> None:
        super().check()
        with _keychain() as keychain:
            keychain.get_password("scbroker", "check")  # unlocks the keychain, or fails

    def _get_key(self, origin: str, user_id: uuid.UUID) -> bytes | None:
        with _keychain() as keychain:
            text = keychain.get_password(*_entry(origin, user_id))
        if text is None:
            return None
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return b""  # a key that opens nothing: reported as a damaged session

    def _set_key(self, origin: str, user_id: uuid.UUID, key: bytes | None) -> None:
        entry = _entry(origin, user_id)
        with _keychain() as keychain:
            if key is not None:
                keychain.set_password(*entry, base64.b64encode(key).decode())
            elif keychain.get_password(*entry) is not None:
                keychain.delete_password(*entry)


def _entry(origin: str, user_id: uuid.UUID) -> tuple[str, str]:
    """Return a keychain entry's service and name. Each user has a service: Windows has one entry for each."""
    return f"scbroker {origin} {user_id}", str(user_id)


@contextmanager
def _keychain() -> Iterator[Any]:
    """Yield the keychain; raise `SessionStoreError` without a usable one, or if it fails."""
    try:
        import keyring
    except ImportError:
        raise SessionStoreError(_INSTALL) from None
    try:
        found = keyring.get_keyring()
        if found.priority >= _RECOMMENDED:
            yield found
            return
        name = type(found).__module__
    except Exception as error:  # each platform's library raises its own errors
        raise SessionStoreError(
            f"The operating system's keychain failed ({type(error).__name__}): unlock it and try again, or "
            "pass sessionStore= the path of a folder, in which the key is kept in a file."
        ) from None
    raise SessionStoreError(
        f"This machine has no usable keychain (keyring found {name}): start one, such as GNOME Keyring or "
        "KWallet, or pass sessionStore= the path of a folder, in which the key is kept in a file."
    )


def checked_session_store(sessionStore: object) -> SessionStore:
    """Return the argument as a session store: itself, a folder's, or the default store for None."""
    if sessionStore is None:
        return KeychainSessionStore()
    if isinstance(sessionStore, str | os.PathLike) and sessionStore != "":
        return FileSessionStore(sessionStore)
    if isinstance(sessionStore, SessionStore) and not isinstance(sessionStore, type):
        return sessionStore
    given = "an empty path" if sessionStore == "" else type(sessionStore).__name__
    raise InvalidArgumentError(
        "sessionStore must be the path of a folder, a KeychainSessionStore, a FileSessionStore, or an object "
        f"with the methods of SessionStore, not {given}"
    )


def _ending(origin: str) -> str:
    return f".{sha256(origin.encode())[:8].hex()}.session"


def _read_own(path: Path, limit: int) -> bytes | None:
    """Return a file that only this user can access, cut off after `limit` + 1 bytes; None without one."""
    with suppress(FileNotFoundError), os.fdopen(open_own(path), "rb") as file:
        return file.read(limit + 1)
    return None


_log: Final = logging.getLogger("scbroker")


class KeptSession(NamedTuple):
    """A session as it was found in the store: one or two KeyRings, the newer one first."""

    user_id: uuid.UUID
    rings: list[KeyRing]
    found: SealedKeys


class KeptSessions:
    """The sessions of one broker that are kept in a store.

    A store may block: a keychain asks a person to unlock it. So each method runs in the pool.
    """

    def __init__(self, store: SessionStore, origin: str) -> None:
        self._store, self._origin = store, origin

    async def check(self) -> None:
        """Raise `SessionStoreError` if nothing can be kept."""
        await io_thread.in_pool(self._store.check)

    async def users(self) -> list[uuid.UUID]:
        """Return the users whose sessions are kept."""
        return list(await io_thread.in_pool(self._store.users, self._origin))

    async def find(self, user_id: uuid.UUID | None) -> KeptSession:
        """Return the kept session of a user, or the only one; `NotAuthenticatedError` without one."""
        users = await self.users()
        if user_id is None and len(users) > 1:
            raise errors.InvalidArgumentError(
                f"Sessions of several users are kept: pass userId, one of {', '.join(map(str, users))}"
            )
        if user_id is None and users:
            [user_id] = users
        found = None
        if user_id is not None:
            found = await io_thread.in_pool(self._store.get, self._origin, user_id)
        if user_id is None or found is None:
            whose = "" if user_id is None else f" of user {user_id}"
            raise errors.NotAuthenticatedError(
                f"No session{whose} is kept for this broker: log in with keep=True."
            )
        try:
            rings = await io_thread.in_pool(self._opened, user_id, found)
        except errors.UntrustedError:
            raise errors.SessionStoreError(
                f"The kept session of user {user_id} is damaged, or is not of this user and broker: log in "
                "with keep=True, which replaces it."
            ) from None
        return KeptSession(user_id, rings[::-1], found)

    async def keep(self, ring: KeyRing) -> None:
        """Keep a session under a new key, unless a later KeyRing of the user is kept already."""
        await io_thread.in_pool(self._put, [ring], True)

    async def renew(self, *rings: KeyRing) -> None:
        """Replace the KeyRing of a session that is kept; do nothing for one that is not.

        Two KeyRings are kept while the broker is asked to publish the keys of the second: if its answer is
        lost, or the process ends, the next start finds out which of them has the published keys. A failure
        is logged: it must not stop a change of keys.
        """
        try:
            await io_thread.in_pool(self._put, list(rings), False)
        except errors.SessionStoreError as error:
            _log.warning(
                "The kept session of user %s could not be renewed, and may not resume: %s",
                rings[0].userId,
                error,
            )

    async def forget(self, user_id: uuid.UUID, found: SealedKeys | None = None) -> None:
        """Remove the kept session of a user, if any; with `found`, only if it is still that one."""
        await io_thread.in_pool(self._store.remove, self._origin, user_id, found)

    def _put(self, rings: list[KeyRing], anew: bool) -> None:
        user_id, swapped = rings[0].userId, False
        while not swapped:
            found = self._store.get(self._origin, user_id)
            if (found is None and not anew) or self._is_later(found, rings[0]):
                return
            key = random_bytes(KEY_SIZE) if found is None or anew else found.key
            sealed = seal_session(rings, key, self._origin)
            new = SealedKeys(key, sealed)
            swapped = self._store.swap(self._origin, user_id, found, new)

    def _is_later(self, found: SealedKeys | None, ring: KeyRing) -> bool:
        """Return whether another program has kept a later KeyRing meanwhile; a damaged one is not later."""
        try:
            return found is not None and (
                self._opened(ring.userId, found)[0].generation > ring.generation
            )
        except errors.UntrustedError:
            return False

    def _opened(self, user_id: uuid.UUID, found: SealedKeys) -> list[KeyRing]:
        return open_session(found.sealed, found.key, self._origin, user_id)
