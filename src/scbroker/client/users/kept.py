"""Keep the KeyRing of a session on this device, so that a later start of the program needs no secret.

A kept session is removed when the user logs out or is deleted on this device, and when key records that
signing key 0 signed prove that its keys were replaced. A mere refusal by the broker does not remove it:
otherwise a broker could sign out all devices for ever.
"""

import logging
import uuid
from typing import Final

from scbroker import errors
from scbroker.client.calls.io_thread import io_thread
from scbroker.client.users.session_store import SealedKeys, SessionStore
from scbroker.crypto.seal import KEY_SIZE, random_bytes
from scbroker.keys import KeyRing, open_session, seal_session

_log: Final = logging.getLogger("scbroker")


class KeptSession:
    """A session as it was found in the store: one or two KeyRings, the newer one first."""

    def __init__(self, user_id: uuid.UUID, rings: list[KeyRing], found: SealedKeys) -> None:
        self.user_id = user_id
        self.rings = rings
        self.found = found


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

    async def forget(self, user_id: uuid.UUID) -> None:
        """Remove the kept session of a user, if any."""
        await io_thread.in_pool(self._store.remove, self._origin, user_id)

    async def forget_if(self, kept: KeptSession) -> None:
        """Remove a kept session unless another one was kept meanwhile."""
        await io_thread.in_pool(self._store.remove, self._origin, kept.user_id, kept.found)

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
