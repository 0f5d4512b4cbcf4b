"""Several users with several devices each, at real brokers whose answers can be held up and lost.

For tests that let them all write at once. `Devices` logs users in as they are asked for, starts
operations together, and looks at what the broker keeps; `Post` stands between them and the broker.
"""

import asyncio
import datetime as dt
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

import pytest

from scbroker import BrokerError, ContainerEvent, MemoryTrustStore, Promise, ServerProvider, Stream
from scbroker.client.calls.tasks import io_thread
from scbroker.client.http import requests
from scbroker.client.http.requests import Requests
from scbroker.crypto.seal import Octets
from scbroker.keys import KeyRing
from scbroker.records.container_record import parse_either, parse_record, record_hash
from scbroker.wire.codec import APPLICATION_HEADER, decode
from scbroker.wire.containers import ContainerView, RecordRequest
from tests.kit.brokers import BrokerProcess, clock
from tests.kit.impatience import be_impatient
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE, wait_until

DEVICES_EACH: Final = 3
_SHARING: Final = 2
"""Of each user's devices, this one has the marks of the first: two programs on one machine."""
_IMPATIENT: Final = 0.01
# Of four attempts, the last comes after a broker that ended is back.
_PATIENT: Final = 0.8
Loss = Literal["nothing", "the first answers", "all answers"]


class Post:
    """Carries what writers send; holds it up and loses answers as it is told."""

    def __init__(self) -> None:
        self.arrived = 0
        """Records that were sent in this round, each attempt counted."""
        self.loss: Loss = "nothing"
        self.sent: dict[bytes, tuple[bytes, str]] = {}
        """Each record that was sent, by its hash: its body, and the program that sent it."""
        self.pause = _IMPATIENT
        """Seconds before a request is sent again that nobody answered."""
        self._open = threading.Event()
        self._open.set()
        self._lost: set[tuple[str, bytes | None]] = set()

    @contextmanager
    def told(self, *, held: bool, loss: Loss, patient: bool) -> Iterator[None]:
        """For one round; afterwards it carries everything at once."""
        self.arrived, self.loss, self.pause = 0, loss, _PATIENT if patient else _IMPATIENT
        self._lost.clear()
        if held:
            self._open.clear()
        try:
            yield
        finally:
            self.loss, self.pause = "nothing", _IMPATIENT
            self.release()

    def release(self) -> None:
        """Lets everything through that was held up."""
        self._open.set()

    @contextmanager
    def at_work(self) -> Iterator[Self]:
        honest = Requests._once

        async def once(
            sender: Requests, method: str, url: str, headers: Any, body: Any, *limits: Any
        ) -> Octets:
            if method != "PUT" or "/records/" not in url:
                return await honest(sender, method, url, headers, body, *limits)
            self.arrived += 1
            record = decode(RecordRequest, bytes(body)).record.body
            self.sent[record_hash(record)] = record, headers[APPLICATION_HEADER]
            await asyncio.to_thread(self._open.wait)
            try:
                return await honest(sender, method, url, headers, body, *limits)
            finally:
                if self._loses(url, body):
                    raise BrokerError.unreachableError("The answer was lost.")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Requests, "_once", once)
            be_impatient(patch)
            patch.setattr(requests, "pause_before_retry", lambda *_: self.pause)
            yield self

    def history(self, head: bytes) -> list[bytes]:
        """A record and all before it as they were sent: a broker forgets most of them with a deletion."""
        bodies = [head]
        while (parent := parse_record(bodies[-1]).parent) is not None:
            bodies.append(self.sent[parent][0])
        return bodies[::-1]

    def _loses(self, url: str, body: bytes | None) -> bool:
        if self.loss == "the first answers" and (url, body) not in self._lost:
            self._lost.add((url, body))
            return True
        return self.loss == "all answers"


@dataclass
class Device:
    """A program of one user's, with marks of its own."""

    number: int
    user: int
    broker: BrokerProcess
    provider: ServerProvider

    @property
    def name(self) -> str:
        return self.provider.applicationName


@dataclass
class Outcome:
    """How an operation ended."""

    result: Any = None
    error: BrokerError | None = None

    @property
    def unknown(self) -> bool:
        """Return whether it may have happened or not."""
        return isinstance(self.error, BrokerError.brokerUnavailableError)

    def __str__(self) -> str:
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        if isinstance(self.result, list):
            return f"{len(self.result)} events"
        return "done" if self.result is None else f"done, version {self.result.version}"


Start = Callable[[], Promise[Any]]


@dataclass
class Devices:
    """Users, numbered, and their devices; everybody has one more program that only looks on."""

    brokers: Sequence[BrokerProcess]
    post: Post
    _stack: ExitStack = field(default_factory=ExitStack)
    _rings: dict[int, KeyRing] = field(default_factory=dict)
    _devices: dict[int, Device] = field(default_factory=dict)
    _stores: dict[int, MemoryTrustStore] = field(default_factory=dict)
    _onlookers: dict[int, ServerProvider] = field(default_factory=dict)
    _streams: dict[int, tuple[Stream[ContainerEvent], list[ContainerEvent]]] = field(
        default_factory=dict
    )

    def close(self) -> None:
        self._stack.close()

    def followed(self, user: int, count: int) -> list[ContainerEvent]:
        """Return the user's first `count` events, as one stream of the user has delivered them."""
        if user not in self._streams:
            provider = self._log_in(user, self.brokers[0], "a follower")
            self._streams[user] = self._stack.enter_context(provider.followEvents(1)), []
        stream, found = self._streams[user]
        giving_up = threading.Timer(PATIENCE, stream.close)
        giving_up.start()
        while len(found) < count and (event := next(stream, None)) is not None:
            found.append(event)
        giving_up.cancel()
        return found[:count]

    @property
    def users(self) -> list[int]:
        return sorted(self._rings)

    def id_of(self, user: int) -> uuid.UUID:
        return self._ring(user).userId

    def user_of(self, user_id: uuid.UUID | None) -> int | None:
        """The number of a user; None for nobody. `KeyError` for a stranger."""
        if user_id is None:
            return None
        return {ring.userId: user for user, ring in self._rings.items()}[user_id]

    def device(self, number: int) -> Device:
        """The devices of a user are numbered in a row, and use the brokers in turn."""
        if number not in self._devices:
            user = number // DEVICES_EACH
            broker = self.brokers[number % len(self.brokers)]
            shared = number - _SHARING if number % DEVICES_EACH == _SHARING else number
            store = self._stores.setdefault(shared, MemoryTrustStore())
            provider = self._log_in(user, broker, f"device {number}", store)
            self._devices[number] = Device(number, user, broker, provider)
        return self._devices[number]

    def all(self) -> list[Device]:
        return list(self._devices.values())

    def replace(self, number: int) -> None:
        """The user goes on with a new device that has seen nothing."""
        old = self.device(number)
        old.provider.logout().result(PATIENCE)
        del self._devices[number]
        self._stores.pop(number, None)
        self.device(number)

    def fresh(self, user: int) -> ServerProvider:
        return self._log_in(user, self.brokers[-1], "a fresh device")

    def onlooker(self, user: int) -> ServerProvider:
        """A program of the user's that writes nothing and keeps no marks of containers."""
        if user not in self._onlookers:
            self._onlookers[user] = self._log_in(user, self.brokers[-1], "an onlooker")
        return self._onlookers[user]

    def log_in(self, device: Device) -> None:
        ring = self._ring(device.user)
        device.provider.logIn(userId=ring.userId, keyRing=ring).result(PATIENCE)

    def _ring(self, user: int) -> KeyRing:
        if user not in self._rings:
            self._rings[user] = self.brokers[-1].new_user()
        return self._rings[user]

    def _log_in(
        self, user: int, broker: BrokerProcess, name: str, store: MemoryTrustStore | None = None
    ) -> ServerProvider:
        ring, marks = self._ring(user), store or MemoryTrustStore()
        provider = ServerProvider(
            broker.api_key, broker.url, name, trustStore=marks, timeout=PATIENCE
        )
        self._stack.enter_context(provider)
        provider.logIn(userId=ring.userId, keyRing=ring).result(PATIENCE)
        return provider

    # What several do at once.

    def start(self, starts: Sequence[Start]) -> list[Promise[Any]]:
        """Starts operations at the same moment, each from a thread of its own."""
        together = threading.Barrier(len(starts))

        def begin(start: Start) -> Promise[Any]:
            together.wait(PATIENCE)
            return start()

        with ThreadPoolExecutor(len(starts)) as threads:
            return list(threads.map(begin, starts))

    def until_all_have_sent(self, promises: Sequence[Promise[Any]]) -> None:
        """Waits until each of the operations has sent its record, which is held up, or ended."""

        def all_have() -> bool:
            return self.post.arrived + sum(each.done() for each in promises) >= len(promises)

        wait_until(all_have, "not every writer came to send")

    # What the broker keeps.

    def bodies(self, user: int, container: uuid.UUID, since: int) -> dict[int, bytes] | None:
        """The bodies of all records from a version on; None where the user gets nothing."""
        session: Any = self.onlooker(user)._current
        call = session.call(
            "GET", f"/v1/containers/{container}", ContainerView, query={"since": str(since)}
        )
        try:
            view: ContainerView = io_thread.submit("bodies", call).result(PATIENCE)
        except BrokerError.notFoundError:
            return None
        served = [item.record.body for item in view.governing] + list(view.skipped)
        served += [view.head.body] if view.head is not None else []
        if parse_either(served[-1]).record.tombstone:
            served = self.post.history(served[-1])
        found = {parse_record(body).version: body for body in served}
        return {version: body for version, body in sorted(found.items()) if version >= since}

    def log(self, user: int, container: uuid.UUID | None = None) -> Sequence[ContainerEvent]:
        return self.onlooker(user).getEvents(containerId=container).result(PATIENCE)


def present_time() -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=clock())


def outcome(promise: Promise[Any]) -> Outcome:
    try:
        return Outcome(promise.result(PATIENCE))
    except BrokerError as error:
        return Outcome(error=error)


def revive(broker: BrokerProcess) -> None:
    """Starts a broker that an earlier failure left behind dead."""
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", broker.port), PATIENCE).close()
        return
    broker.stop()
    broker.start()


def kill(broker: BrokerProcess) -> None:
    """Ends a broker in the middle of whatever it does; afterwards nothing of it is under way.

    PostgreSQL finishes a commit whose broker is gone: the lock waits for it.
    """
    broker.kill()
    if broker.engine == "postgresql":
        lock = "DO $$ BEGIN LOCK TABLE records IN EXCLUSIVE MODE; END $$"
        query(broker.database_url, lock)
