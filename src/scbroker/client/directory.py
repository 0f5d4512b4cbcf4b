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

from scbroker.errors import BrokerFaultError, KeySubstitutionError
from scbroker.records.ids import user_id_of
from scbroker.records.key_record import KeyChain, Signed
from scbroker.wire import users as wire

if TYPE_CHECKING:
    from scbroker.client.session import Session

_KIND: Final = "user"
_CACHED: Final = 10_000


class _KeysMark(msgspec.Struct, array_like=True, frozen=True):
    fingerprint: bytes
    sequence: int
    hash: bytes


class Directory:
    """The verified key chains that a session knows."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._chains: dict[uuid.UUID, KeyChain] = {}
        self.deleted: set[uuid.UUID] = set()
        """Users of whom the broker says that they are gone."""

    @property
    def own(self) -> KeyChain:
        return self._chains[self._session.userId]

    def set_own(self, chain: KeyChain) -> None:
        """The user's own chain, as it was just published."""
        check_mark(self._session, chain)
        self._chains[self._session.userId] = chain

    async def latest(self, users: Iterable[uuid.UUID]) -> Mapping[uuid.UUID, KeyChain]:
        """The chains of these users as of now; all of them or an error."""
        wanted = list(dict.fromkeys(users))
        await self._fetch(wanted)
        return {user: self._chains[user] for user in wanted}

    async def at_least(self, states: Mapping[uuid.UUID, int]) -> Mapping[uuid.UUID, KeyChain]:
        """The chains of these users, each known up to the sequence given at least."""
        behind = [
            user
            for user, sequence in states.items()
            if user not in self._chains or self._chains[user].sequence < sequence
        ]
        await self._fetch(behind)
        return {user: self._chains[user] for user in states}

    async def _fetch(self, wanted: list[uuid.UUID]) -> None:
        for start in range(0, len(wanted), wire.MAX_KEY_USERS):
            batch = wanted[start : start + wire.MAX_KEY_USERS]
            while batch:
                batch = await self._fetch_some(batch)

    async def _fetch_some(self, batch: list[uuid.UUID]) -> list[uuid.UUID]:
        """One request; gives the users of whom there may be more than fitted in the answer."""
        asked = [
            wire.KeyRecordsFrom(
                userId=str(user),
                from_=len(self._chains[user].records) if user in self._chains else 0,
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
        received, last = 0, 0
        for position, (user, item) in enumerate(zip(batch, answer.users, strict=True)):
            records = [record.signed for record in item.keyRecords]
            if records:
                received, last = received + len(records), position
            if item.deleted:
                self.deleted.add(user)
            self._accept(user, records)
        return batch[last:] if received >= wire.MAX_KEY_RECORDS else []

    def _accept(self, user: uuid.UUID, records: list[Signed]) -> None:
        known = self._chains.get(user)
        if known is None:
            chain = verified_chain(user, records)
        elif records:
            chain = known.extend(records, now())
        else:
            chain = known
        check_mark(self._session, chain)
        if len(self._chains) > _CACHED:
            own = self.own
            self._chains.clear()
            self._chains[own.userId] = own
        self._chains[user] = chain


def verified_chain(user: uuid.UUID, records: list[Signed]) -> KeyChain:
    """A chain from its first record, which has to be the user's."""
    chain = KeyChain.verify(records, now())
    if user_id_of(chain.fingerprint) != user:
        raise KeySubstitutionError(
            f"The broker answered for user {user} with keys of somebody else: do not share with them."
        )
    return chain


def check_mark(session: Session, chain: KeyChain) -> None:
    """Refuses what this device saw otherwise; raises the mark where it is news."""
    key = chain.userId.bytes
    while True:
        stored = session.marks.get(_KIND, key)
        if stored is not None:
            mark = msgspec.msgpack.decode(stored, type=_KeysMark)
            if mark.fingerprint != chain.fingerprint:
                raise KeySubstitutionError(
                    f"User {chain.userId} had another fingerprint on this device before."
                )
            chain.check_mark(mark.sequence, mark.hash)
            if mark.sequence == chain.sequence:
                return
        mark = _KeysMark(chain.fingerprint, chain.sequence, chain.hashes[-1])
        if session.marks.swap(_KIND, key, stored, msgspec.msgpack.encode(mark)):
            return


def now() -> int:
    """The time in microseconds since 1970."""
    return time.time_ns() // 1000
