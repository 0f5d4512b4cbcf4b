"""Hold what all handlers share (`Broker`), what they know of a request (`Call`), and charge users.

Handlers keep no state of their own, so that any number of processes can serve one database.

A user is charged with the sealed bytes of each part that they sent, with each record that they signed and the
access list that came with it, and with the rosters, wraps and infos of groups that they wrote, until the
broker has deleted these; and with each object that they may be uploading. The creator of a container is
charged with one container until it is deleted.

A transaction collects its charges and applies them in its last statements. So a user's row of `usage` is
locked only briefly, and no other lock is taken after it. The row always has the sum of what is stored:
`admin check` verifies this.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import InitVar, dataclass, field
from threading import Lock
from typing import Any, Final, Generic, Literal, TypeGuard, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker import errors
from scbroker.records.canonical import ContainerId, Fingerprint, PartId, UserId
from scbroker.records.key_record import KeyChain
from scbroker.server.capacity import Buffers, Gate, LargeBodies
from scbroker.server.keys import BrokerKeys
from scbroker.server.logs import RequestLog
from scbroker.server.settings import Settings
from scbroker.server.storage import audit
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.blobs import Blobs
from scbroker.server.storage.database import Database
from scbroker.server.storage.driver import Connection, Row
from scbroker.wire.parts import MAX_CHUNK

SECOND: Final = 1_000_000
_CACHED_RECORDS: Final = 10_000  # about 8.5 kB each
_CACHED_SESSIONS: Final = 10_000  # about 1.3 kB each
API_KEY_SECONDS: Final = 5
"""Seconds for which a process on PostgreSQL may accept a revoked API key; on SQLite, none does."""
_REFUSED_NONCES: Final = 10_000  # about 0.2 kB each
CLOCK_BOUND: Final = 30.0
"""Seconds by which this machine's clock may differ from the database's before operators are told."""
SESSION_ENDED: Final = "The session has ended: log in again."
_ASK_FOR_KEY: Final = "ask the broker's operator for another one."
K = TypeVar("K")
V = TypeVar("V")
Access = tuple[ContainerId, UserId]
"""A container, and the user who fetched its header or content."""

FIND_SESSION: Final = (
    sa.select(t.users.c.id, t.users.c.fingerprint, t.users.c.chain_length, t.sessions.c.expires_at)
    .join(t.sessions, t.sessions.c.user_id == t.users.c.id)
    .where(t.sessions.c.token_hash == b("token_hash"), ~t.users.c.deleted, sql.IS_USER)
)
# Add `more` to the counter; if its window has expired, restart it.
COUNT_MORE: Final = sql.change(
    t.guesses,
    t.guesses.c.bucket == b("key"),
    guesses=sa.case((t.guesses.c.ends_at <= b("now"), 0), else_=t.guesses.c.guesses) + b("more"),
    ends_at=sa.case((t.guesses.c.ends_at <= b("now"), b("ends")), else_=t.guesses.c.ends_at),
).returning(t.guesses.c.guesses, t.guesses.c.ends_at)


def now() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000


def not_found(what: str = "container") -> errors.NotFoundError:
    """Return the one error for what does not exist and for what the user has no access to."""
    return errors.NotFoundError(f"No {what} with this id exists, or you have no access to it.")


def is_unexpired(member: Row | None, moment: int) -> TypeGuard[Row]:
    """Return whether a member's row exists, and the member's access has not expired."""
    return member is not None and (member.expires_at is None or member.expires_at > moment)


def check_unexpired(member: Row | None, moment: int, what: str = "container") -> Row:
    """Return the row of a member; raise `NotFoundError` without one, or if its access has expired."""
    if not is_unexpired(member, moment):
        raise not_found(what)
    return member


def add_to_counter(
    connection: Connection,
    bucket: bytes,
    limit: int,
    window: int,
    moment: int,
    *,
    more: int = 1,
    what: str = "Too many attempts",
) -> None:
    """Add `more` to a counter, or restart it if its window (microseconds) has expired.

    Counters are rows under keyed hashes, shared by all processes. Raises `ThrottledError` above the limit;
    the transaction is rolled back then, and nothing is counted.
    """
    ends_at, guesses = moment + window, more
    row = sql.one(connection, COUNT_MORE, key=bucket, more=more, now=moment, ends=ends_at)
    if row is not None:
        ends_at, guesses = row.ends_at, row.guesses
    else:
        new = {"bucket": bucket, "guesses": more, "ends_at": ends_at}
        connection.add(t.guesses, new)
    if guesses > limit:
        wait = (ends_at - moment) // SECOND + 1
        raise errors.ThrottledError(f"{what}: wait {wait} seconds.", retryAfter=wait)


def check_active(user: Row) -> Row:
    """Return the row of an authenticated user; raise if the user was deleted or suspended.

    Either can happen after the session was found. So a writer checks the row again after it has locked it.
    """
    if user.deleted:
        raise errors.NotAuthenticatedError("The account was deleted.")
    if user.suspended_at is not None:
        raise errors.SuspendedError()
    return user


@contextlib.contextmanager
def refusing(
    text: str = "", kind: type[errors.BrokerError] = errors.RejectedError
) -> Iterator[None]:
    """Turn an `IntegrityError` of the block into an error of `kind`, by default with the same message."""
    try:
        yield
    except errors.IntegrityError as error:
        raise kind(text or str(error)) from None


@dataclass(frozen=True, slots=True)
class SessionUser:
    """The user of the session that a request belongs to."""

    id: UserId
    fingerprint: Fingerprint
    chain_length: int
    token_hash: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """A request without its message."""

    application: str
    address: str
    path: Mapping[str, Any]
    """The parameters of the path: 16 bytes for an id, else an int. Empty for an item of a batch."""
    user: SessionUser | None
    now: int = field(default_factory=now)
    """When the handler started, in microseconds since 1970. Handlers read no other clock."""
    api_key_hash: bytes = b""
    via: bytes | None = None
    """The id of the group that the query names."""

    @property
    def session(self) -> SessionUser:
        """The caller's session; only for operations that need one."""
        return cast(SessionUser, self.user)

    @property
    def container_id(self) -> ContainerId:
        return ContainerId(self.path["containerId"])

    @property
    def group_id(self) -> ContainerId:
        return ContainerId(self.path["groupId"])

    @property
    def part_id(self) -> PartId:
        return PartId(self.path["partId"])

    @property
    def user_id(self) -> UserId:
        return UserId(self.path["userId"])

    @property
    def version(self) -> int:
        return cast(int, self.path["version"])

    @property
    def chunk(self) -> int:
        return cast(int, self.path["index"])


class RecentCache(Generic[K, V]):
    """Values of which the least recently used are dropped beyond a sum of their weights. Threads share it."""

    def __init__(self, most: int, weight: Callable[[V], int] = lambda _: 1) -> None:
        self._most, self._weight = most, weight
        self._values: OrderedDict[K, V] = OrderedDict()
        self._sum = 0
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        """Return a value, which is now the most recently used one."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
            return found

    def keep(self, key: K, value: V) -> None:
        """Add a value, or replace one that weighs less."""
        with self._lock:
            before = self._values.get(key)
            more = self._weight(value) - (0 if before is None else self._weight(before))
            if before is None or more > 0:
                self._values[key] = value
                self._sum += more
            while self._sum > self._most:
                self._sum -= self._weight(self._values.popitem(last=False)[1])


class ChainCache:
    """Verified key chains by user, up to a number of records in all."""

    def __init__(self) -> None:
        self._chains: RecentCache[UserId, KeyChain] = RecentCache(
            _CACHED_RECORDS, lambda chain: len(chain.records)
        )

    def cached(self, user_id: UserId, length: int) -> KeyChain | None:
        """Return the chain of this length if it is cached; to verify one takes milliseconds."""
        known = self._chains.get(user_id)
        return known if known is not None and len(known.records) == length else None

    def get(self, connection: Connection, user_id: UserId, length: int) -> KeyChain:
        """Return the chain of this length, and cache it: only for records that are committed."""
        chain = self.read(connection, user_id, length)
        self._chains.keep(user_id, chain)
        return chain

    def read(self, connection: Connection, user_id: UserId, length: int) -> KeyChain:
        """Return the chain of this length; records that are not cached are read and verified."""
        known = self._chains.get(user_id)
        have = 0 if known is None else len(known.records)
        # The cache may be ahead: the session was read before the user's last key record was added.
        if known is None or have > length:
            return KeyChain.verify(sql.key_chain(connection, user_id, 0, length), now())
        if have == length:
            return known
        return known.extend(sql.key_chain(connection, user_id, have, length - have), now())


class RowCache:
    """Rows of sessions or API keys by the hash of the secret, for as long as the version is the same.

    Every write to SQLite changes the database's version, so that a cached row is never older than the last
    write.
    """

    def __init__(self) -> None:
        self._version: int | None = None
        self._rows: dict[bytes, Row] = {}

    def get(self, version: int | None, secret_hash: bytes) -> Row | None:
        return self._rows.get(secret_hash) if version == self._version else None

    def clear(self) -> None:
        self._rows = {}

    def keep(self, version: int | None, secret_hash: bytes, row: Row) -> None:
        """Cache a row that was read at this version of the database or later."""
        if version is None:
            return
        if version != self._version or len(self._rows) >= _CACHED_SESSIONS:
            self._version, self._rows = version, {}
        self._rows[secret_hash] = row


@dataclass(slots=True)
class Broker:
    """Everything that a handler needs."""

    settings: Settings
    database: Database
    blobs: Blobs
    key: InitVar[bytes]
    origins: frozenset[str]
    keys: BrokerKeys = field(init=False)
    chains: ChainCache = field(default_factory=ChainCache)
    sessions: RowCache = field(default_factory=RowCache)
    api_keys: RowCache = field(default_factory=RowCache)
    api_key_uses: dict[bytes, int] = field(default_factory=dict)
    """The last use of each API key, by its hash, until it is written to the database."""
    refused_nonces: RecentCache[bytes, bool] = field(
        default_factory=lambda: RecentCache(_REFUSED_NONCES)
    )
    """Nonces of claims that this process refused: it refuses them again without verifying a signature.

    They are in memory, so that a stranger cannot make the broker write. A dropped one cost its sender a
    request, and expires within two minutes anyway.
    """
    buffers: Buffers = field(default_factory=lambda: Buffers(MAX_CHUNK))
    gate: Gate = field(init=False)
    large_bodies: LargeBodies = field(init=False)
    sweeping: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Locked by the request that sweeps."""
    unswept: bool = False
    """Whether another request asked for a sweep since the present one started."""
    accesses: dict[Access, str] = field(default_factory=dict)
    """Fetches that are not yet in the event log, with the reader's application."""
    is_scrubbed: bool = False
    """Whether no KeyFile was replaced or deleted since the database last cleared its write-ahead log."""

    def __post_init__(self, key: bytes) -> None:
        limits = self.settings
        log = RequestLog(limits.trusted_proxies, limits.slow_seconds, access_log=limits.access_log)
        self.keys = BrokerKeys(limits, key)
        self.gate = Gate(limits.max_requests, limits.max_connections, limits.max_followers, log)
        self.large_bodies = LargeBodies(self.settings.max_transfers)

    def wake(self, users: Collection[bytes] | None) -> None:
        """Wake the waiting requests of these users; None for all, as after a change of API keys."""
        if users is None:
            self.api_keys.clear()
        self.gate.followers.wake(users)

    async def admit(self, key_hash: bytes, token_hash: bytes | None) -> SessionUser | None:
        """Return the user of a session; None without a token, or if its session is unknown or has expired.

        Raises `ApiKeyError` unless the API key is valid, and notes that it was used. PostgreSQL's database
        has no version: there an API key is read again after API_KEY_SECONDS, and a session each time.
        """
        version = self.database.version()
        of_keys = int(time.monotonic()) // API_KEY_SECONDS if version is None else version
        cached_key = self.api_keys.get(of_keys, key_hash)
        cached = None if token_hash is None else self.sessions.get(version, token_hash)

        def read(connection: Connection) -> tuple[Row | None, Row | None]:
            key = cached_key or sql.one(connection, sql.FIND_API_KEY, hash=key_hash)
            if key is None or token_hash is None:
                return key, None
            return key, cached or sql.one(connection, FIND_SESSION, token_hash=token_hash)

        key, session = cached_key, cached
        if key is None or (session is None and token_hash is not None):
            key, session = await self.database.query(read)
            if key is None:
                raise errors.ApiKeyError()
            self.api_keys.keep(of_keys, key_hash, key)
            if session is not None and token_hash is not None:
                self.sessions.keep(version, token_hash, session)
        moment = now()
        if key.revoked_at is not None:
            raise errors.ApiKeyError(f"This API key was revoked: {_ASK_FOR_KEY}")
        if key.expires_at is not None and key.expires_at <= moment:
            raise errors.ApiKeyError(f"This API key has expired: {_ASK_FOR_KEY}")
        self.api_key_uses[key_hash] = moment
        if session is None or token_hash is None or session.expires_at <= moment:
            return None
        return SessionUser(session.id, session.fingerprint, session.chain_length, token_hash)

    async def chain_of(self, user: SessionUser) -> KeyChain:
        """Return a user's key chain; a long one is not verified on the event loop or in the writer."""
        length = user.chain_length
        if (cached := self.chains.cached(user.id, length)) is not None:
            return cached
        return await self.database.read(lambda c: self.chains.get(c, user.id, length), large=True)

    def record(
        self,
        connection: Connection,
        action: str,
        subject: str,
        details: Mapping[str, object] = {},
        actor: str | None = None,
    ) -> None:
        """Append a row to the audit log; `storage.audit` says what it may contain. Call this last."""
        key = self.keys.at(connection, writing=True).active
        audit.record(connection, key, action, subject, details, actor)

    def keyed(self, name: str, *parts: bytes) -> bytes:
        """Return a hash under the broker's key, which is kept outside the database."""
        return self.keys.keyed(name, *parts)


Resource = Literal["bytes", "containers"]
RESOURCES: Final[tuple[Resource, ...]] = ("bytes", "containers")
UNLIMITED: Final = 2**53
"""The quota, in the tables, of a user without a quota: larger than every number of the protocol."""


class Charges:
    """The changes of users' usage by one transaction. A negative number is a credit."""

    def __init__(self) -> None:
        self._total: Counter[tuple[bytes, Resource]] = Counter()
        self._asked: Counter[tuple[bytes, Resource]] = Counter()
        """The part of `_total` that may be refused because of a quota."""

    def add(
        self, user_id: bytes, *, size: int = 0, containers: int = 0, refusable: bool = True
    ) -> None:
        """Charge a user `size` bytes and a number of containers.

        A charge that is not `refusable` may exceed the quota: that of a deletion, or of data stored before.
        """
        for changes in (self._total, self._asked) if refusable else (self._total,):
            changes[bytes(user_id), "bytes"] += size
            changes[bytes(user_id), "containers"] += containers

    def take(self, other: Charges) -> None:
        """Add the charges of another collection."""
        self._total.update(other._total)
        self._asked.update(other._asked)

    def apply(self, connection: Connection) -> None:
        """Change the usage of these users; raise `QuotaExceededError` if it rises above a quota.

        The caller must let the error end its transaction. Rows are locked in the order of the users' ids.
        """
        for user_id in sorted({user_id for user_id, _ in self._total}):
            values = {f"more_{resource}": self._total[user_id, resource] for resource in RESOURCES}
            if not any(values.values()):
                continue
            row = sql.one(connection, sql.CHARGE, user=user_id, **values)
            if row is None:  # the user's first charge
                connection.add(t.usage, {"user_id": user_id, "bytes": 0, "containers": 0})
                row = sql.the(connection, sql.CHARGE, user=user_id, **values)
            for resource in RESOURCES:
                of = user_id, resource
                _check(row, resource, self._total[of], self._asked[of])


def _check(row: Row, resource: Resource, total: int, asked: int) -> None:
    used, quota = getattr(row, resource), quota_of(row, resource)
    if quota is not None and min(asked, total) > 0 and used > quota:
        raise errors.QuotaExceededError(
            resource=resource, quota=quota, used=max(0, used - total), needed=total
        )


def quota_of(row: Row, resource: Resource) -> int | None:
    """Return the quota in a row of `usage`, or None if it is not set or unlimited."""
    quota: int | None = getattr(row, f"quota_{resource}")
    return None if quota is None or quota >= UNLIMITED else quota
