"""An authenticated session: a user's keys, their token at the broker, and this device's marks.

An operation takes the session that is current when it is called and keeps it to its end: a log-out
meanwhile changes nothing for operations under way. `Keys` has the KeyRing, `Token` the broker's token, and
`Session` everything that operations need. Spec: docs/spec/protocol.md, section 3.
"""

import asyncio
import contextlib
import datetime as dt
import os
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Final, Protocol, TypeVar, Unpack

from scbroker import errors
from scbroker.client.calls.operation import called
from scbroker.client.calls.tasks import Shared, check_process
from scbroker.client.groups.directory import GroupDirectory
from scbroker.client.http.requests import Options, Query, Requests
from scbroker.client.local_state import LocalState
from scbroker.client.users.directory import REPLACED, Directory
from scbroker.client.users.trust_store import Marks
from scbroker.crypto.seal import DecryptionKey, Octets
from scbroker.keys import KeyRing
from scbroker.records.canonical import encode_object
from scbroker.records.key_record import KnownKey
from scbroker.vocabulary import KeyType
from scbroker.wire import users as wire
from scbroker.wire.codec import Message

_EARLY_SECONDS: Final = 30.0
_OPENED: Final = 1024
M = TypeVar("M", bound=Message)
T = TypeVar("T")


@contextlib.contextmanager
def log_in_again() -> Iterator[None]:
    """Turn a refused signature into `NotAuthenticatedError`: the keys were valid and are not any more."""
    try:
        yield
    except errors.ChallengeError:
        raise errors.NotAuthenticatedError(REPLACED) from None


class Keys:
    """The KeyRing of a session, and the container keys that were unwrapped with it lately."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring: KeyRing | None = ring
        self._unwrap = lru_cache(_OPENED)(DecryptionKey.unwrap)

    @property
    def is_forgotten(self) -> bool:
        return self._ring is None

    @property
    def ring(self) -> KeyRing:
        """Return the KeyRing; `NotAuthenticatedError` once the session has ended."""
        if self._ring is None:
            raise errors.NotAuthenticatedError("The session was logged out meanwhile.")
        return self._ring

    def unwrap(self, index: int, wrap: bytes, info: bytes) -> bytes:
        """Return the key wrapped to the encryption key of this index."""
        keys = self.ring.encryption
        if index >= len(keys):
            raise errors.IntegrityError(
                "The container is wrapped to a key that this KeyRing does not have."
            )
        return self.unwrap_by(keys[index], wrap, info)

    def unwrap_by(self, key: DecryptionKey, wrap: bytes, info: bytes) -> bytes:
        """Return the key wrapped to a key of the user or of a group; the last 1,024 are cached."""
        # Get the cache before the ring: after a concurrent forget() the key goes to a discarded cache.
        unwrap, _ = self._unwrap, self.ring
        return unwrap(key, wrap, info)

    def replace(self, ring: KeyRing) -> None:
        """Use another KeyRing of the same user, unless the session has ended meanwhile."""
        if self._ring is not None:
            self._ring = ring

    def forget(self) -> None:
        """Drop all keys at once; an operation under way that needs them fails."""
        self._ring = None
        self._unwrap = lru_cache(_OPENED)(DecryptionKey.unwrap)


class Token:
    """The bearer token of a session: requested when one is needed, renewed before it expires."""

    def __init__(self, requests: Requests, keys: Keys) -> None:
        self._requests, self._keys = requests, keys
        self.value: str | None = None
        self.expires: float = 0.0
        """Seconds since 1970."""
        self.device_pass: bytes | None = None
        """The pass that came with the newest token; it tells the broker that a guess is this device's."""
        self.renewal: Shared | None = None
        self.had_one: bool = False
        """Whether the keys were valid before: refused now, they were replaced."""

    async def get(self) -> str:
        """Return a valid token. Callers that need a new one at the same time share one request.

        They share its failure too, so that a broker that does not answer costs its timeout once.
        """
        if self.value is None or time.time() > self.expires - _EARLY_SECONDS:
            if self.renewal is None or self.renewal.is_over:
                self.renewal = Shared(self._renew())
            renewal = self.renewal
            try:
                await renewal.wait()
            finally:
                if renewal.is_over and renewal is self.renewal:
                    self.renewal = None  # drop the task: its error references frames
        return self.value or ""

    def take(self) -> str | None:
        """Return the token, if any, and forget it."""
        value, self.value = self.value, None
        return value

    async def sign(
        self, label: str, kind: Callable[..., wire.Statement | wire.Order], *more: object
    ) -> tuple[bytes, bytes]:
        """Get a nonce, and sign a statement that is built here alone, never bytes from a broker."""
        challenge = await self._requests.call(
            "POST", "/v1/session-challenges", wire.Challenge, message=wire.ChallengeRequest()
        )
        ring, origin = self._keys.ring, self._requests.endpoint.origin
        index = len(ring.signing) - 1  # the latest signing key (ids.md, 4)
        statement = encode_object(kind(origin, ring.rawFingerprint, index, challenge.nonce, *more))
        return statement, ring.signing[index].sign(label, statement)

    async def _renew(self) -> None:
        with log_in_again() if self.had_one else contextlib.nullcontext():
            try:
                await self.request()
            except errors.ChallengeError:  # the nonce was spent by a request whose answer got lost
                await self.request()

    async def request(self) -> None:
        """Get a token for a signed statement."""
        statement, signature = await self.sign(wire.SESSION_LABEL, wire.Statement)
        message = wire.SessionRequest(statement=statement, signature=signature)
        session = await self._requests.call("POST", "/v1/sessions", wire.Session, message=message)
        self.value, self.expires = session.token, session.expiresAt / 1e6
        self.device_pass = session.devicePass
        self.had_one = True


class Keeper(Protocol):
    """Keeps a copy of what a session has verified (`scbroker.client.cache`)."""

    async def keep_containers(self, outcomes: Mapping[uuid.UUID, object]) -> None:
        """Keep containers that were just verified, and note those that the broker denied."""
        ...

    async def keep_part(self, path: str, first: int, octets: Octets) -> None:
        """Keep verified segments of a large content, from the segment `first` on."""
        ...

    async def keep_hashes(self, path: str, hashes: bytes) -> None:
        """Keep the verified hashes of all segments of a large content."""
        ...


class Session:
    """Keys, token and marks of an authenticated user, and the client that sends their requests."""

    is_offline: ClassVar[bool] = False
    """Whether a cache answers the requests in the broker's place."""

    def __init__(
        self, requests: Requests, ring: KeyRing, marks: Marks, state: LocalState | None = None
    ) -> None:
        self.requests = requests
        self.userId: uuid.UUID = ring.userId
        self.fingerprint: bytes = ring.rawFingerprint
        self.keys: Keys = Keys(ring)
        self.token: Token = Token(requests, self.keys)
        self.marks = marks
        self.state = state
        """Where journals of unfinished transfers and the index of names are; None if they are not kept."""
        self.directory: Directory = Directory(self.call, marks, self.userId)
        self.groups: GroupDirectory = GroupDirectory(
            self.call, marks, self.directory, self.fingerprint, self._unwrap
        )
        self.sending: set[bytes] = set()
        """Hashes of records whose operation still runs: it reports their outcome, so no warning is logged."""
        self.keeper: Keeper | None = None
        self._is_replaced = False
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._operations = 0
        self._idle = asyncio.Event()
        self._waits: set[asyncio.Future[Octets]] = set()
        self._beginnings: set[asyncio.Event] = set()
        self.changing_keys: asyncio.Lock = asyncio.Lock()
        """The lock of whatever replaces the KeyFile."""

    def _unwrap(self, index: int, wrap: bytes, info: bytes) -> bytes:
        return self.keys.unwrap(index, wrap, info)

    def check_process(self) -> None:
        """Raise `InvalidArgumentError` in the child of a fork: threads of the parent may hold the locks."""
        check_process(self._process)

    @property
    def journal_secret(self) -> bytes:
        """Return the key that seals the journals of unfinished transfers on this device."""
        return self.keys.ring.signing[0].derive("unfinished-transfers")

    async def signing_key(self) -> KnownKey:
        """Return the published key to sign with; `NotAuthenticatedError` if the KeyRing does not have it."""
        known = self.directory.own.latest(KeyType.Signing)
        if known.index >= len(self.keys.ring.signing):
            async with self.changing_keys:  # a change of keys that is under way may add the key
                pass
        if known.index >= len(self.keys.ring.signing):
            raise errors.NotAuthenticatedError(REPLACED)
        return known

    async def order(
        self, action: wire.Action, digest: bytes = wire.NO_DIGEST
    ) -> wire.Authorization:
        """Sign an order for an action that needs more than a token; it is valid once, for two minutes."""
        order, signature = await self.token.sign(wire.ORDER_LABEL, wire.Order, action, digest)
        return wire.Authorization(order=order, signature=signature)

    async def call(self, method: str, path: str, answer: type[M], **options: Unpack[Options]) -> M:
        """Make a request under the token; return the answer's message."""
        await self._until_begun(options.get("message"))
        return await self._with_token(self.requests.call, method, path, answer, **options)

    async def _until_begun(self, message: Message | None) -> None:
        """Before a change, wait until the streams that were opened earlier know where their logs begin."""
        if message is not None and message.is_act:
            for begun in list(self._beginnings):
                await begun.wait()

    @contextlib.contextmanager
    def beginning(self) -> Iterator[None]:
        """Delay all changes until the block, which reads where a stream of events begins, has ended.

        The broker could store a change first that was called after the stream, and the stream would miss it.
        """
        begun = asyncio.Event()
        self._beginnings.add(begun)
        try:
            yield
        finally:
            self._beginnings.discard(begun)
            begun.set()

    async def send(self, method: str, path: str, **options: Unpack[Options]) -> Octets:
        """Make a request under the token; return the answer's octets."""
        await self._until_begun(options.get("message"))
        return await self._with_token(self.requests.send, method, path, **options)

    async def wait(self, path: str, seconds: float, query: Query) -> Octets:
        """Make a request that waits for an event, under the token; return the answer's octets.

        Raises `NotAuthenticatedError` as soon as the session ends: a log-out waits for operations under way,
        but not for this request.
        """
        waiting = asyncio.ensure_future(
            self._with_token(self.requests.wait, path, seconds, query=query)
        )
        self._waits.add(waiting)
        try:
            _ = self.keys.ring  # raises if the session ended before the request was added
            return await waiting
        except asyncio.CancelledError:
            _ = self.keys.ring
            raise
        finally:
            self._waits.discard(waiting)
            waiting.cancel()

    async def _with_token(
        self, request: Callable[..., Awaitable[T]], *about: Any, **options: Unpack[Options]
    ) -> T:
        """Make a request; make it again with a new token if the broker refuses the first."""
        token = await self.token.get()
        try:
            return await request(*about, token=token, **options)
        except errors.NotAuthenticatedError as refused:
            outcome = refused.outcome
        try:
            if token == self.token.value:
                self.token.value = None
            return await request(*about, token=await self.token.get(), **options)
        except errors.BrokerError as error:
            if outcome is errors.WriteOutcome.Uncertain:  # the first request has left this device
                error.outcome = outcome
            raise

    async def settled(self, outcomes: dict[uuid.UUID, T]) -> dict[uuid.UUID, T]:
        """Return the outcomes of reading containers, once the keeper, if any, has a copy."""
        if self.keeper is not None:
            await self.keeper.keep_containers(outcomes)
        return outcomes

    def as_of(self, container_id: uuid.UUID) -> dt.datetime | None:
        """Return when the broker served the copy of a container; None if it serves the container now."""
        del container_id
        return None

    def hold(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Count an operation as under way until it ends: log-out and replacement wait for it.

        In the body of an operation, the call returns where this is awaited.
        """
        with self._lock:
            self._operations += 1
        return self._release_after(work)

    async def _release_after(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            with contextlib.closing(work):  # closes `work` even if it is cancelled before it starts
                await called()
                return await work
        finally:
            with self._lock:
                self._operations -= 1
            if not self._operations:
                self._idle.set()
                if self._is_replaced:
                    self.forget()

    async def close(self) -> None:
        """Forget the keys once no operation is under way, and revoke the token at the broker."""
        self._idle.clear()
        if self._operations:
            await self._idle.wait()
        token = self.token.take()
        self.forget()
        if token is not None:
            with contextlib.suppress(errors.BrokerError):  # the token expires by itself
                await self.requests.send("DELETE", "/v1/sessions/current", token=token)

    def leave(self) -> None:
        """Forget the keys once no operation is under way; the token expires by itself."""
        with self._lock:
            self._is_replaced = True
            if self._operations:
                return
        self.forget()

    def forget(self) -> None:
        """Drop keys and token at once; an operation under way that needs them fails."""
        self.keys.forget()
        self.groups.forget()
        self.token.take()
        for waiting in list(self._waits):
            waiting.get_loop().call_soon_threadsafe(waiting.cancel)
