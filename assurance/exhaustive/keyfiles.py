"""Let a broker answer two devices of one user with every KeyFile that was ever made, in every order.

The code under test is `client.users.accounts`. The session and cryptography are stubs: a KeyFile is its
generation and a number. The broker reports and serves any KeyFile, and accepts a new one or claims to
refuse it. No device may use an older KeyFile than one that it used before, or a second one of the same
generation.
"""

import itertools
import time
import uuid
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from unittest import mock

from assurance.exhaustive.chains import Count
from scbroker.client.users import accounts
from scbroker.client.users.trust_store import MemoryTrustStore
from scbroker.crypto.verify import sha256
from scbroker.errors import BrokerError, ConflictError
from scbroker.wire import users as wire

_USER: Final = uuid.UUID(int=0)
_DEVICES: Final = 2


class KeyFile(NamedTuple):
    generation: int
    number: int

    @property
    def data(self) -> bytes:
        return f"{self.generation} {self.number}".encode()


@dataclass(frozen=True)
class Situation:
    """All KeyFiles that were ever sealed, and the newest one that each device used."""

    made: tuple[KeyFile, ...]
    used: tuple[KeyFile, ...]


class _Ring(SimpleNamespace):
    generation: int

    def next(self, generation: int, *, fresh: bool) -> "_Ring":
        del fresh
        return _Ring(generation=generation)

    def check_chain(self, chain: object) -> None:
        del chain

    def next_records(self, chain: object, moment: int) -> list[object]:
        del chain, moment
        return []


def _ignore(*_: object) -> None:
    """Stand in for what the device keeps in memory alone."""


class _Chain:
    def extend(self, records: object, moment: int) -> None:
        del records, moment


class _Stub:
    """What `accounts` needs of a session: the device's mark, and a broker's dishonest answers."""

    userId = _USER  # noqa: N815 - a name of Session
    changing_keys = nullcontext()
    token = SimpleNamespace(device_pass=None)

    def __init__(self, used: KeyFile, reported: KeyFile, *, is_accepted: bool = True) -> None:
        self.reported, self.is_accepted, self.sent = reported, is_accepted, b""
        self.marks = MemoryTrustStore().open(_USER, b"")
        ring: Any = _Ring(generation=used.generation)
        accounts.keep_mark(self.marks, ring, used.data)
        self.keys = SimpleNamespace(ring=ring, replace=_ignore)
        self.directory = SimpleNamespace(latest_own=self._chain, set_own=_ignore)
        self.requests = self

    async def _chain(self) -> _Chain:
        return _Chain()

    async def call(self, *request: object, **_: object) -> object:
        if request[-1] is wire.KeyFileState:
            digest = sha256(self.reported.data)
            return wire.KeyFileState(generation=self.reported.generation, hash=digest)
        return wire.KeyFileAnswer(keyFile=self.reported.data)

    async def order(self, *_: object) -> wire.Authorization:
        return wire.Authorization(order=b"", signature=b"")

    async def send(self, *_: object, message: wire.KeyFileStoring) -> None:
        self.sent = message.keyFile
        if not self.is_accepted:
            raise ConflictError("The KeyFile was replaced meanwhile.")


@contextmanager
def _without_cryptography(numbers: Iterator[int]) -> Iterator[None]:
    async def in_pool(work: Any, *arguments: Any) -> Any:
        return work(*arguments)

    def seal(ring: _Ring, *_: object) -> bytes:
        return KeyFile(ring.generation, next(numbers)).data

    def unseal(data: bytes, *_: object) -> _Ring:
        return _Ring(generation=parsed(data).generation)

    derive = SimpleNamespace(derive=lambda *_: SimpleNamespace(auth=bytes(32)))
    with ExitStack() as patches:
        for name, value in (
            ("seal_key_file", seal),
            ("open_key_file", unseal),
            ("PassphraseKeys", derive),
            ("io_thread", SimpleNamespace(in_pool=in_pool)),
        ):
            patches.enter_context(mock.patch.object(accounts, name, value))
        yield


def parsed(data: bytes) -> KeyFile:
    return KeyFile(*map(int, data.split()))


def _run(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("a stub waits")


def search(length: int) -> Count:
    """Try all orders of `length` changes and fetches; raise `AssertionError` where a device goes back."""
    count, started = Count(), time.monotonic()  # about time
    first = KeyFile(1, 0)
    layer = {Situation((first,), (first,) * _DEVICES)}
    seen = set(layer)
    for _ in range(length):
        layer = {after for before in layer for after in _next(count, before)} - seen
        seen |= layer
    count.worlds, count.seconds = len(seen), time.monotonic() - started  # about time
    return count


class _NothingKept:
    """Stands for the device's kept sessions: there are none."""

    async def renew(self, *rings: object) -> None:
        pass


def _next(count: Count, before: Situation) -> Iterator[Situation]:
    for device, reported in itertools.product(range(_DEVICES), before.made):
        for is_accepted in (True, False):
            stub = _Stub(before.used[device], reported, is_accepted=is_accepted)
            yield _step(count, before, device, stub, changes=True)
        yield _step(count, before, device, _Stub(before.used[device], reported), changes=False)


def _step(count: Count, before: Situation, device: int, stub: _Stub, *, changes: bool) -> Situation:
    count.acts += 1
    session: Any = stub
    kept: Any = _NothingKept()
    with _without_cryptography(itertools.count(len(before.made))), suppress(BrokerError):
        if changes:
            _run(accounts.change_credentials(session, kept, "a", "b", "", compromised=False))
        else:
            _run(accounts.fetch(session, "b"))
    mark = accounts._mark(stub.marks)
    assert mark is not None
    made = (*before.made, parsed(stub.sent)) if stub.sent else before.made
    [now] = [each for each in made if sha256(each.data) == mark.hash]
    old = before.used[device]
    assert now == old or now.generation > old.generation, (before, stub.reported)
    if stub.sent:
        assert made[-1].generation > old.generation, (before, stub.reported)
    count.accepted += now != old
    used = tuple(now if n == device else each for n, each in enumerate(before.used))
    return replace(before, made=made, used=used)
