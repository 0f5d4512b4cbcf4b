"""Fetch users' key chains, verify them from the user id on, and compare them with this device's marks.

The client asks by user id, and verifies that the first key of the chain in the answer hashes to that id.
Spec: docs/spec/ids.md, section 4.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from scbroker import errors
from scbroker.client.arguments import moment, now
from scbroker.client.users.trust_store import Marks, raise_to
from scbroker.records.canonical import decoder, show_fingerprint, user_id_of
from scbroker.records.container_record import AccessList
from scbroker.records.key_record import KeyChain, Signed
from scbroker.types import PublicKey
from scbroker.vocabulary import KeyType
from scbroker.wire import users as wire

Call = Callable[..., Awaitable[Any]]
"""A request under the session's token: `Session.call`."""
_KIND: Final = "user"
_CACHED: Final = 20_000
"""Most key records that a session keeps in memory, of about 5.4 kB each."""
REPLACED: Final = (
    "The broker no longer accepts these keys: they were replaced on another device, or the account was "
    "deleted. Log in again."
)
_MOST: Final = 50_000
"""Most key records that one call fetches; more raise `TooLargeError`."""


class _KeysMark(msgspec.Struct, array_like=True, frozen=True):
    fingerprint: bytes
    sequence: int
    hash: bytes


class Directory:
    """The verified key chains of the users that a session deals with."""

    def __init__(self, call: Call, marks: Marks, user_id: uuid.UUID) -> None:
        self._call, self._marks, self._user_id = call, marks, user_id
        self._chains: dict[uuid.UUID, KeyChain] = {}
        self._deleted: set[uuid.UUID] = set()
        """Users that the broker reports as deleted."""
        self._under_way: dict[uuid.UUID, asyncio.Future[None]] = {}
        """By user: a future that is done when the fetch of the user's chain ends, with success or not."""
        self.changes: int = 0
        """A counter that rises when a chain becomes known or longer, so that others notice it."""
        self.keep: Callable[[KeyChain, bool], object] | None = None
        """Takes each chain once it was verified, and whether its user was deleted."""

    @property
    def own(self) -> KeyChain:
        """Return the chain of the session's user."""
        return self._chains[self._user_id]

    def knows(self, user_id: uuid.UUID) -> bool:
        """Return whether this session has verified the keys of a user with this id."""
        return user_id in self._chains

    def set_own(self, chain: KeyChain) -> None:
        """Keep the chain that the session's user has just published."""
        check_mark(self._marks, chain)
        self._chains[self._user_id] = chain
        self.changes += 1
        self._keep(chain)

    async def latest(self, users: Iterable[uuid.UUID]) -> Mapping[uuid.UUID, KeyChain]:
        """Return the chains of these users as of now; `NotFoundError` if one is unknown.

        A deleted user is in the result only with a closed chain. Without one the deletion is the broker's
        word: the user is left out, so that keys that this device knows are not used as active.
        """
        found = await self._fetch(list(dict.fromkeys(users)))
        return {
            user: chain
            for user, chain in found.items()
            if chain.closed or user not in self._deleted
        }

    async def latest_own(self) -> KeyChain:
        """Return the user's own chain as of now; `NotAuthenticatedError` if they were deleted."""
        chain = (await self.latest([self._user_id])).get(self._user_id)
        if chain is None or chain.closed:
            raise errors.NotAuthenticatedError(REPLACED)
        return chain

    async def at_least(self, states: Mapping[uuid.UUID, int]) -> Mapping[uuid.UUID, KeyChain]:
        """Return the chains of these users, each up to the given sequence at least.

        A chain that another task is fetching is waited for, and fetched again only if it is too short.
        """
        if under_way := {self._under_way[user] for user in states if user in self._under_way}:
            await asyncio.wait(under_way)
        known = {
            user: chain
            for user, sequence in states.items()
            if (chain := self._chains.get(user)) is not None and chain.sequence >= sequence
        }
        unknown = [user for user in states if user not in known]
        if not unknown:
            return known
        done = asyncio.get_running_loop().create_future()
        self._under_way |= dict.fromkeys(unknown, done)
        try:
            return {**known, **await self._fetch(unknown)}
        finally:
            done.set_result(None)
            for user in unknown:
                if self._under_way.get(user) is done:
                    del self._under_way[user]

    async def has_newer_key(self, access: AccessList, stated: Sequence[wire.KeyChainState]) -> bool:
        """Return whether some wrap of a list is for a key that its user has replaced (rule 5).

        `stated` are the chains that, as the broker says, have newer keys. The chains that this session knows
        count as well; they are not fetched again.
        """
        entries = access.entries
        members = {user_id_of(fingerprint) for fingerprint in entries} if stated else set()
        moved = {uuid.UUID(item.userId): item.sequence for item in stated}
        with members_exist():
            found = await self.at_least({user: moved[user] for user in members & moved.keys()})
        for chain in (*self._chains.values(), *found.values()):
            entry = entries.get(chain.fingerprint)
            if entry is None or entry.wrapHash is None or chain.closed:
                continue
            is_newer = chain.latest(KeyType.Encryption).index > entry.keyIndex
            if is_newer and chain.userId not in self._deleted:
                return True
        return False

    async def check_key_indices(self, access: AccessList) -> None:
        """Raise `IntegrityError` if a list names a key that does not exist, by the chains known here.

        Key 0 exists in every chain.
        """
        listed = {
            item.fingerprint: item.keyIndex for item in access.entries.values() if item.keyIndex
        }
        if not listed:
            return
        for fingerprint, chain in (await self.known_with(listed)).items():
            if (KeyType.Encryption, listed[fingerprint]) not in chain.keys:
                raise errors.IntegrityError(
                    f"An access list names encryption key {listed[fingerprint]} of user {chain.userId}, who "
                    "has no such key: have a member with ModifyAccess set the access levels again."
                )

    def known(self, fingerprints: Iterable[bytes]) -> Mapping[bytes, KeyChain]:
        """Return the chains that this session knows of these users, by fingerprint, without a request."""
        wanted, chains = set(fingerprints), self._chains.values()
        return {each.fingerprint: each for each in chains if each.fingerprint in wanted}

    async def known_with(self, listed: Mapping[bytes, int]) -> Mapping[bytes, KeyChain]:
        """Return the chains that this session knows of these users, by fingerprint.

        A chain that lacks the encryption key of the given index is fetched anew: the key may have been
        published since. It is left out if the broker says that its user was deleted.
        """
        known = self.known(listed)
        missing = [
            chain.userId
            for fingerprint, chain in known.items()
            if (KeyType.Encryption, listed[fingerprint]) not in chain.keys
        ]
        if not missing:
            return known
        with members_exist():
            found = await self.latest(missing)
        return {
            name: found.get(chain.userId, chain)
            for name, chain in known.items()
            if chain.userId in found or chain.userId not in missing
        }

    async def public_keys(
        self, user_id: uuid.UUID, kind: KeyType | None, index: int | None
    ) -> list[PublicKey]:
        """Return a user's keys that match; a deleted user has none, or only retired ones."""
        chain = (await self.latest([user_id])).get(user_id)
        if chain is None:
            return []
        return [
            PublicKey(
                userId=chain.userId,
                keyType=key.type,
                index=key.index,
                key=key.public,
                active=key.retired is None,
                createdAt=moment(key.introduced),
                retiredAt=None if key.retired is None else moment(key.retired),
                fingerprint=show_fingerprint(chain.fingerprint),
            )
            for wanted in KeyType
            if kind in (None, wanted)
            for key in chain.of_type(wanted)
            if index in (None, key.index)
        ]

    async def latest_active(self, user_id: uuid.UUID, kind: KeyType) -> PublicKey | None:
        """Return the key to use now; None for an unknown user, or one without an active key."""
        try:
            keys = await self.public_keys(user_id, kind, None)
        except errors.NotFoundError:
            return None
        return max((key for key in keys if key.active), key=lambda key: key.index, default=None)

    async def _fetch(
        self, wanted: list[uuid.UUID], *, again: bool = False
    ) -> dict[uuid.UUID, KeyChain]:
        """Ask for the new records of each user, in as many requests as it takes, and verify them."""
        bases = {user: self._chains.get(user) for user in wanted}
        received: dict[uuid.UUID, list[Signed]] = {user: [] for user in wanted}
        left = wanted
        while left:
            batch = left[: wire.MAX_KEY_USERS]
            asked = [
                wire.KeyRecordsFrom(
                    userId=str(user),
                    from_=len(received[user]) + (len(base.records) if (base := bases[user]) else 0),
                )
                for user in batch
            ]
            message = wire.KeyRecordsRequest(users=asked)
            answer: wire.KeyRecords = await self._call(
                "POST", "/v1/key-records", wire.KeyRecords, message=message
            )
            if [item.userId for item in answer.users] != [str(user) for user in batch]:
                raise errors.BrokerFaultError(
                    "The broker answered for other users than those asked for."
                )
            count, last = 0, 0
            for position, (user, item) in enumerate(zip(batch, answer.users, strict=True)):
                (self._deleted.add if item.deleted else self._deleted.discard)(user)
                received[user].extend(record.signed for record in item.keyRecords)
                if item.keyRecords:
                    count, last = count + len(item.keyRecords), position
                # The first record alone cannot be verified: a chain begins with two.
                if bases[user] is not None or len(received[user]) > 1:
                    bases[user] = _verified_chain(user, bases[user], received[user])
                    received[user] = []
            # A full answer may lack records of the last user for whom it has any.
            left = left[last if count >= wire.MAX_KEY_RECORDS else len(batch) :]
            if sum(len(base.records) for base in bases.values() if base) > _MOST:
                raise errors.TooLargeError(
                    f"These users have more than {_MOST} key records: name fewer users at once."
                )
        try:
            found = {
                user: self._accept(user, bases[user], received[user])
                for user in wanted
                if bases[user] is not None or received[user] or user not in self._deleted
            }
        except errors.RollbackError:
            if again:
                raise
            # Another program may have read newer records while these were on their way.
            return await self._fetch(wanted, again=True)
        self._forget_oldest()
        return found

    def _accept(self, user: uuid.UUID, base: KeyChain | None, records: list[Signed]) -> KeyChain:
        chain = _verified_chain(user, base, records)
        known = self._chains.get(user)
        if known is not None and known.hashes[: len(chain.hashes)] == chain.hashes:
            chain = known  # a concurrent request has fetched a longer chain
        check_mark(self._marks, chain)
        self.changes += known is None or known.sequence != chain.sequence
        self._chains.pop(user, None)  # the dict is ordered by last use
        self._chains[user] = chain
        self._keep(chain)
        return chain

    def keep_all(self) -> None:
        """Pass each chain that the session knows to `keep`."""
        for chain in self._chains.values():
            self._keep(chain)

    def _keep(self, chain: KeyChain) -> None:
        if self.keep is not None:
            self.keep(chain, chain.userId in self._deleted)

    def _forget_oldest(self) -> None:
        """Drop the chains used longest ago until the rest fits; never the user's own."""
        records = sum(len(chain.records) for chain in self._chains.values())
        for user in [name for name in self._chains if name != self._user_id]:
            if records <= _CACHED:
                return
            records -= len(self._chains.pop(user).records)


@contextlib.contextmanager
def members_exist() -> Iterator[None]:
    """Raise `IntegrityError` if the broker does not know a member of a container or group that it served."""
    try:
        yield
    except errors.NotFoundError:
        raise errors.IntegrityError(
            "The broker does not know a member of a container or group that it served: it contradicts itself."
        ) from None


def _verified_chain(user: uuid.UUID, base: KeyChain | None, records: list[Signed]) -> KeyChain:
    """Return a chain with further records; without `base`, a new one, whose first key must hash to `user`."""
    if base is not None:
        return base.extend(records, now())
    chain = KeyChain.verify(records, now())
    if user_id_of(chain.fingerprint) != user:
        raise errors.KeySubstitutionError(
            f"The broker answered for user {user} with keys of somebody else: do not share with them."
        )
    return chain


def check_mark(marks: Marks, chain: KeyChain) -> None:
    """Raise the mark to this chain; raise an error if the chain contradicts what this device has seen."""

    def decide(stored: bytes | None) -> bytes:
        if stored is not None:
            mark: _KeysMark = decoder(_KeysMark).decode(stored)
            if mark.fingerprint != chain.fingerprint:
                raise errors.KeySubstitutionError(
                    f"The broker serves other keys for user {chain.userId} than this device has pinned."
                )
            chain.check_mark(mark.sequence, mark.hash)
        new = _KeysMark(chain.fingerprint, chain.sequence, chain.hashes[-1])
        return msgspec.msgpack.encode(new)

    raise_to(marks, _KIND, chain.userId.bytes, decide)
