"""An authenticated session: whose it is, their keys, marks, and the token that the broker gave.

An operation takes the session that is current when it is called and keeps it to its end: a log-out
meanwhile changes nothing in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypedDict, TypeVar, Unpack

from scbroker.client.calls.io_thread import io_thread
from scbroker.client.calls.tasks import Shared
from scbroker.client.http.transport import Transport
from scbroker.client.users.directory import REPLACED, Directory
from scbroker.client.users.trust_store import Marks
from scbroker.crypto.seal import Octets
from scbroker.crypto.verify import sha256
from scbroker.errors import BrokerError, ChallengeError, IntegrityError, NotAuthenticatedError
from scbroker.keys import KeyRing
from scbroker.records.canonical import encode_object
from scbroker.records.key_record import KnownKey
from scbroker.vocabulary import KeyType
from scbroker.wire import users as wire
from scbroker.wire.codec import Message
from scbroker.wire.users import NO_DIGEST, ORDER_LABEL, Action, Authorization, Order

_EARLY_SECONDS: Final = 30.0
_OPENED: Final = 1024
M = TypeVar("M", bound=Message)
T = TypeVar("T")


@contextlib.contextmanager
def log_in_again() -> Iterator[None]:
    """What was signed with keys that were good once is refused because they are not any more."""
    try:
        yield
    except ChallengeError:
        raise NotAuthenticatedError(REPLACED) from None


class CallOptions(TypedDict, total=False):
    message: Message | None
    query: Mapping[str, str | list[str]]
    limit: int


class SendOptions(TypedDict, total=False):
    message: Message | None
    octets: Octets | None
    query: Mapping[str, str | list[str]]
    limit: int


class Session:
    """Everything that an operation needs of whoever is logged in."""

    def __init__(
        self, transport: Transport, ring: KeyRing, marks: Marks, folder: Path | None = None
    ) -> None:
        self.transport = transport
        self.folder = folder
        """Where unfinished transfers are remembered, if anywhere."""
        self.ring: KeyRing | None = ring
        self.userId: uuid.UUID = ring.userId
        self.fingerprint: bytes = ring.rawFingerprint
        self.marks = marks
        self.directory: Directory = Directory(self)
        self.device_pass: bytes | None = None
        """The pass that came with the newest token; it tells the broker that a guess is this device's."""
        self._opened: OrderedDict[bytes, bytes] = OrderedDict()
        self._token: str | None = None
        self._expires = 0.0
        self._begun = False
        self._renewal: Shared | None = None
        self._changing: asyncio.Lock | None = None
        self._held = 0
        self._left = False
        self._lock = threading.Lock()
        self._idle: asyncio.Event | None = None
        io_thread.bound(self)

    def after_fork(self) -> None:
        """What was under way belongs to the parent; the token is good in the child as well."""
        self._renewal, self._changing, self._held, self._idle = None, None, 0, None
        self._lock = threading.Lock()

    @property
    def keys(self) -> KeyRing:
        """The KeyRing, until the session is closed."""
        if self.ring is None:
            raise NotAuthenticatedError("The session was logged out meanwhile.")
        return self.ring

    def unwrap(self, index: int, wrap: bytes, info: bytes) -> bytes:
        """The key in a wrap to one of the session's keys; what was opened lately is not opened again."""
        name = sha256(info + wrap)
        with self._lock:  # batches are opened beside the loop
            found = self._opened.get(name)
            if found is not None:
                self._opened.move_to_end(name)
                return found
        keys = self.keys.encryption
        if index >= len(keys):
            raise IntegrityError(
                "The container is wrapped to a key that this KeyRing does not have."
            )
        key = keys[index].unwrap(wrap, info)
        with self._lock:
            if self.ring is not None:  # or it was forgotten meanwhile, with all that it opened
                self._opened[name] = key
            while len(self._opened) > _OPENED:
                self._opened.popitem(last=False)
        return key

    @property
    def journal_secret(self) -> bytes:
        """What seals the journals of unfinished transfers on this device."""
        return self.keys.signing[0].derive("unfinished-transfers")

    async def signing_key(self) -> KnownKey:
        """The key to sign with, as it was published; where the KeyRing lacks it, the session is over."""
        known = self.directory.own.latest(KeyType.Signing)
        if known.index >= len(self.keys.signing):
            async with self.changing_keys():  # its own change, if one is under way, brings it
                pass
        if known.index >= len(self.keys.signing):
            raise NotAuthenticatedError(REPLACED)
        return known

    def hold(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Has a log-out wait until this work, which begins now, has ended."""
        with self._lock:
            self._held += 1
        return self._release_after(work)

    async def _release_after(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        finally:
            with self._lock:
                self._held -= 1
            if self._idle is not None and not self._held:
                self._idle.set()
            if self._left and not self._held:
                self.forget()

    def changing_keys(self) -> asyncio.Lock:
        """Held by whoever replaces the KeyFile: one after the other."""
        if self._changing is None:
            self._changing = asyncio.Lock()
        return self._changing

    def replace_keys(self, ring: KeyRing) -> None:
        """Goes on with another KeyRing of the same user, unless the session was closed meanwhile."""
        if self.ring is not None:
            self.ring = ring

    async def token(self) -> str:
        """A token that is good for now; a new one where the old one has run out.

        One request for it is for all who need it meanwhile, also if it fails: a broker that does not
        answer is waited for once.
        """
        if self._token is None or time.time() > self._expires - _EARLY_SECONDS:
            if self._renewal is None or self._renewal.is_over:
                self._renewal = Shared(self._renew() if self._begun else self._begin())
            renewal = self._renewal
            try:
                await renewal.wait()
            finally:
                if renewal.is_over and renewal is self._renewal:
                    self._renewal = None  # with the frames of what failed
        return self._token or ""

    async def renew(self, token: str) -> str:
        """Another token than one that the broker refused."""
        if token == self._token:
            self._token = None
        return await self.token()

    async def order(self, action: Action, digest: bytes = NO_DIGEST) -> Authorization:
        """A signed order for what a token alone does not do; good once, for two minutes."""
        nonce, index = await self._challenge()
        origin = self.transport.endpoint.origin
        order = encode_object(Order(origin, self.fingerprint, index, nonce, action, digest))
        signature = self.keys.signing[index].sign(ORDER_LABEL, order)
        return Authorization(order=order, signature=signature)

    async def call(
        self, method: str, path: str, answer: type[M], **options: Unpack[CallOptions]
    ) -> M:
        """A request under this session; once more with a new token if the broker asks for it."""
        token = await self.token()
        try:
            return await self.transport.call(method, path, answer, token=token, **options)
        except NotAuthenticatedError:
            token = await self.renew(token)
        return await self.transport.call(method, path, answer, token=token, **options)

    async def send(self, method: str, path: str, **options: Unpack[SendOptions]) -> bytes:
        """The same for octets."""
        token = await self.token()
        try:
            return await self.transport.send(method, path, token=token, **options)
        except NotAuthenticatedError:
            token = await self.renew(token)
        return await self.transport.send(method, path, token=token, **options)

    async def fetch(self, path: str, target: memoryview, query: Mapping[str, str]) -> int:
        """The same for octets into a buffer; gives their number."""
        token = await self.token()
        try:
            return await self.transport.fetch(path, target, token=token, query=dict(query))
        except NotAuthenticatedError:
            token = await self.renew(token)
        return await self.transport.fetch(path, target, token=token, query=dict(query))

    async def _renew(self) -> None:
        """Another session of one that stood once; where the keys are no good any more, it is over."""
        with log_in_again():
            await self._begin()

    async def _begin(self) -> None:
        """A new session; once more where the nonce was spent, as after an answer that got lost."""
        try:
            await self._begin_once()
        except ChallengeError:
            await self._begin_once()

    async def _begin_once(self) -> None:
        """Signs a statement that is built here alone, never what a broker sends."""
        nonce, index = await self._challenge()
        origin = self.transport.endpoint.origin
        statement = encode_object(wire.Statement(origin, self.fingerprint, index, nonce))
        signature = self.keys.signing[index].sign(wire.SESSION_LABEL, statement)
        session = await self.transport.call(
            "POST",
            "/v1/sessions",
            wire.Session,
            message=wire.SessionRequest(statement=statement, signature=signature),
        )
        self._token, self._expires = session.token, session.expiresAt / 1e6
        self.device_pass = session.devicePass
        self._begun = True

    async def _challenge(self) -> tuple[bytes, int]:
        """A fresh nonce, and the key to sign with: the latest, for it alone counts (ids.md, 4)."""
        challenge = await self.transport.call(
            "POST", "/v1/session-challenges", wire.Challenge, message=wire.ChallengeRequest()
        )
        return challenge.nonce, len(self.keys.signing) - 1

    async def close(self) -> None:
        """Once nothing uses the session any more: forgets the keys, and ends it at the broker."""
        self._idle = asyncio.Event()
        if self._held:
            await self._idle.wait()
        token, self._token = self._token, None
        self.forget()
        if token is not None:
            with contextlib.suppress(BrokerError):  # it runs out by itself
                await self.transport.send("DELETE", "/v1/sessions/current", token=token)

    def leave(self) -> None:
        """Forgets the keys once nothing uses the session any more; its token runs out by itself."""
        with self._lock:
            self._left = True
            if self._held:
                return
        self.forget()

    def forget(self) -> None:
        """Drops the keys at once; what is in flight and needs them fails."""
        with self._lock:
            self.ring = None
            self._opened.clear()
        self._token = None
