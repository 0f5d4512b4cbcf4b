"""Other users' keys: fetched, verified from their userId on, pinned, and checked against marks.

A userId is only ever a question; the answer is a key record chain whose first key hashes to it.
Spec: docs/spec/ids.md, section 4.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from scbroker.client.users.trust_store import Marks, raise_to
from scbroker.errors import (
    BrokerFaultError,
    KeySubstitutionError,
    NotAuthenticatedError,
    TooLargeError,
)
from scbroker.records.ids import user_id_of
from scbroker.records.key_record import KeyChain, Signed
from scbroker.wire import users as wire

if TYPE_CHECKING:
    from scbroker.client.users.session import Session

_KIND: Final = "user"
_CACHED: Final = 20_000
"""Records of key chains that a session keeps, of about 5.4 kB each."""
REPLACED: Final = (
    "The broker no longer accepts these keys: they were replaced on another device, or the account was "
    "deleted. Log in again."
)
_MOST: Final = 50_000
"""Records of key chains that one question may lead to."""


class _KeysMark(msgspec.Struct, array_like=True, frozen=True):
    fingerprint: bytes
    sequence: int
    hash: bytes


class Directory:
    """The verified key chains that a session knows."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._chains: dict[uuid.UUID, KeyChain] = {}
        self._deleted: set[uuid.UUID] = set()
        """Users that the broker reports as deleted."""

    @property
    def own(self) -> KeyChain:
        return self._chains[self._session.userId]

    def set_own(self, chain: KeyChain) -> None:
        """The user's own chain, as it was just published."""
        check_mark(self._session.marks, chain)
        self._chains[self._session.userId] = chain

    async def latest(self, users: Iterable[uuid.UUID]) -> Mapping[uuid.UUID, KeyChain]:
        """Return the chains of these users as of now, or raise.

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
        chain = (await self.latest([self._session.userId])).get(self._session.userId)
        if chain is None or chain.closed:
            raise NotAuthenticatedError(REPLACED)
        return chain

    async def at_least(self, states: Mapping[uuid.UUID, int]) -> Mapping[uuid.UUID, KeyChain]:
        """The chains of these users, each known up to the sequence given at least."""
        known = {user: self._chains.get(user) for user in states}
        enough = {
            user: chain
            for user, chain in known.items()
            if chain is not None and chain.sequence >= states[user]
        }
        return {**enough, **await self._fetch([user for user in states if user not in enough])}

    async def _fetch(self, wanted: list[uuid.UUID]) -> dict[uuid.UUID, KeyChain]:
        """Asks for what is new of each, as often as it takes, and verifies it as it comes."""
        bases = {user: self._chains.get(user) for user in wanted}
        received: dict[uuid.UUID, list[Signed]] = {user: [] for user in wanted}
        for start in range(0, len(wanted), wire.MAX_KEY_USERS):
            batch = wanted[start : start + wire.MAX_KEY_USERS]
            while batch:
                batch = await self._fetch_some(batch, bases, received)
                if sum(len(base.records) for base in bases.values() if base) > _MOST:
                    raise TooLargeError("These users have more key records than can be judged.")
        found = {
            user: self._accept(user, bases[user], received[user])
            for user in wanted
            if bases[user] is not None or received[user] or user not in self._deleted
        }
        self._forget_oldest()
        return found

    async def _fetch_some(
        self,
        batch: list[uuid.UUID],
        bases: dict[uuid.UUID, KeyChain | None],
        received: dict[uuid.UUID, list[Signed]],
    ) -> list[uuid.UUID]:
        """One request; gives the users of whom there may be more than fitted in the answer."""
        asked = [
            wire.KeyRecordsFrom(
                userId=str(user),
                from_=len(received[user]) + (len(base.records) if (base := bases[user]) else 0),
            )
            for user in batch
        ]
        answer = await self._session.call(
            "POST",
            "/v1/key-records",
            wire.KeyRecords,
            message=wire.KeyRecordsRequest(users=asked),
        )
        if [item.userId for item in answer.users] != [str(user) for user in batch]:
            raise BrokerFaultError("The broker answered for other users than those asked for.")
        count, last = 0, 0
        for position, (user, item) in enumerate(zip(batch, answer.users, strict=True)):
            (self._deleted.add if item.deleted else self._deleted.discard)(user)
            received[user].extend(record.signed for record in item.keyRecords)
            if item.keyRecords:
                count, last = count + len(item.keyRecords), position
            base = bases[user]
            # Of the first alone nothing can be said.
            if base is not None or len(received[user]) > 1:
                bases[user] = _extended(user, base, received[user])
                received[user] = []
        return batch[last:] if count >= wire.MAX_KEY_RECORDS else []

    def _accept(self, user: uuid.UUID, base: KeyChain | None, records: list[Signed]) -> KeyChain:
        chain = _extended(user, base, records)
        known = self._chains.get(user)
        if known is not None and known.hashes[: len(chain.hashes)] == chain.hashes:
            chain = known  # another answer, that came earlier, was newer
        check_mark(self._session.marks, chain)
        self._chains.pop(user, None)  # the one that was used last stands last
        self._chains[user] = chain
        return chain

    def _forget_oldest(self) -> None:
        """Keeps as many chains as fit, the user's own always."""
        records = sum(len(chain.records) for chain in self._chains.values())
        for user in [name for name in self._chains if name != self._session.userId]:
            if records <= _CACHED:
                return
            records -= len(self._chains.pop(user).records)


def _extended(user: uuid.UUID, base: KeyChain | None, records: list[Signed]) -> KeyChain:
    return verified_chain(user, records) if base is None else base.extend(records, now())


def verified_chain(user: uuid.UUID, records: list[Signed]) -> KeyChain:
    """A chain from its first record, which has to be the user's."""
    chain = KeyChain.verify(records, now())
    if user_id_of(chain.fingerprint) != user:
        raise KeySubstitutionError(
            f"The broker answered for user {user} with keys of somebody else: do not share with them."
        )
    return chain


def check_mark(marks: Marks, chain: KeyChain) -> None:
    """Raise the mark to this chain; raise if the chain does not extend the one that this device has seen."""

    def decide(stored: bytes | None) -> bytes:
        if stored is not None:
            mark = msgspec.msgpack.decode(stored, type=_KeysMark)
            if mark.fingerprint != chain.fingerprint:
                raise KeySubstitutionError(
                    f"User {chain.userId} had another fingerprint on this device before."
                )
            chain.check_mark(mark.sequence, mark.hash)
        new = _KeysMark(chain.fingerprint, chain.sequence, chain.hashes[-1])
        return msgspec.msgpack.encode(new)

    raise_to(marks, _KIND, chain.userId.bytes, decide)


def now() -> int:
    """The time in microseconds since 1970."""
    return time.time_ns() // 1000
