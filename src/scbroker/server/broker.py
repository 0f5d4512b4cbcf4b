"""The broker's parts in one place, and what each request knows of its caller.

Handlers get a `Broker` and a `Call`; they hold no state of their own, so that any number of
processes can serve one database.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, TypeVar, cast

from sqlalchemy import Connection, Row

from scbroker.crypto.verify import keyed_hash
from scbroker.records.key_record import KeyChain
from scbroker.server.capacity.admission import Gate
from scbroker.server.capacity.large_bodies import Buffers, LargeBodies
from scbroker.server.settings import Settings
from scbroker.server.storage import statements
from scbroker.server.storage.blobs import Blobs
from scbroker.server.storage.database import Database
from scbroker.wire.codec import Message
from scbroker.wire.parts import MAX_CHUNK

_CACHED_RECORDS: Final = 10_000  # about 8.5 kB each
_CACHED_SESSIONS: Final = 10_000  # about 1.3 kB each
M = TypeVar("M", bound=Message)
Access = tuple[bytes, bytes]
"""A container, and who fetched of it."""


@dataclass(frozen=True, slots=True)
class SessionUser:
    """The user whose session a request came with."""

    id: bytes
    fingerprint: bytes
    chain_length: int
    token_hash: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """What a handler knows of a request beside its message. Path and query are parsed already."""

    application: str
    address: str
    path: dict[str, uuid.UUID | int]
    query: Message
    user: SessionUser | None

    @property
    def session(self) -> SessionUser:
        """The caller's session; only for operations of which the table says that they need one."""
        return cast(SessionUser, self.user)

    def query_as(self, _kind: type[M]) -> M:
        """The query, of the kind that the table names for the operation."""
        return cast(M, self.query)

    def uuid(self, name: str) -> bytes:
        return cast(uuid.UUID, self.path[name]).bytes

    def number(self, name: str) -> int:
        return cast(int, self.path[name])


class ChainCache:
    """Verified key chains by user, as long as they were last needed; bounded by their records in all."""

    def __init__(self) -> None:
        self._chains: OrderedDict[bytes, KeyChain] = OrderedDict()
        self._records = 0
        self._lock = Lock()

    def held(self, user_id: bytes, length: int) -> KeyChain | None:
        """The chain of so many records, if it is at hand; else it takes a moment to verify."""
        known = self._chains.get(user_id)
        return known if known is not None and len(known.records) == length else None

    def get(self, connection: Connection, user_id: bytes, length: int) -> KeyChain:
        """The chain of so many records, kept for the next time: for records that were committed."""
        chain = self.look(connection, user_id, length)
        self._keep(user_id, chain)
        return chain

    def look(self, connection: Connection, user_id: bytes, length: int) -> KeyChain:
        """The chain of so many records; what is not known of it is read and verified."""
        known = self._chains.get(user_id)
        have = 0 if known is None else len(known.records)
        if known is not None and have == length:
            return known
        if known is None or have > length:  # a session that is a little behind
            return KeyChain.verify(statements.key_chain(connection, user_id, 0, length), now())
        return known.extend(statements.key_chain(connection, user_id, have, length - have), now())

    def _keep(self, user_id: bytes, chain: KeyChain) -> None:
        with self._lock:
            before = self._chains.get(user_id)
            have = 0 if before is None else len(before.records)
            if have >= len(chain.records):
                return
            self._chains[user_id] = chain
            self._records += len(chain.records) - have
            while self._records > _CACHED_RECORDS:
                _, dropped = self._chains.popitem(last=False)
                self._records -= len(dropped.records)


class SessionCache:
    """Sessions by the hash of their token, as they were found since anything was written.

    Whatever is written gives the database another version, and none of them counts any more.
    """

    def __init__(self) -> None:
        self._version: int | None = None
        self._rows: dict[bytes, Row[Any]] = {}

    def get(self, version: int | None, token_hash: bytes) -> Row[Any] | None:
        return self._rows.get(token_hash) if version == self._version else None

    def keep(self, version: int | None, token_hash: bytes, row: Row[Any]) -> None:
        """As it was at this version, or at a later one."""
        if version is None:
            return
        if version != self._version or len(self._rows) >= _CACHED_SESSIONS:
            self._version, self._rows = version, {}
        self._rows[token_hash] = row


@dataclass(slots=True)
class Broker:
    """Everything that a handler needs."""

    settings: Settings
    database: Database
    blobs: Blobs
    key: bytes
    origins: frozenset[str]
    chains: ChainCache = field(default_factory=ChainCache)
    sessions: SessionCache = field(default_factory=SessionCache)
    buffers: Buffers = field(default_factory=lambda: Buffers(MAX_CHUNK))
    gate: Gate = field(init=False)
    large_bodies: LargeBodies = field(init=False)
    api_keys: set[bytes] = field(default_factory=set)
    """Hashes of API keys that were found lately; forgotten every minute."""
    sweeping: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by a request that sweeps."""
    unswept: bool = False
    """Whether there is something to sweep that came since it began."""
    accesses: dict[Access, str] = field(default_factory=dict)
    """Fetches that are still to be told of, with the reader's application."""

    def __post_init__(self) -> None:
        self.gate = Gate(self.settings.max_requests, self.settings.max_connections)
        self.large_bodies = LargeBodies(self.settings.max_transfers)

    def keyed(self, name: str, *parts: bytes) -> bytes:
        """A hash under the broker's key, which is kept outside the database."""
        return keyed_hash(self.key, name, *parts)


def now() -> int:
    """The time in microseconds since 1970."""
    return time.time_ns() // 1000
