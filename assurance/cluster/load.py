"""Clients at work while brokers or their engines restart."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from scbroker import BrokerError, Promise, ServerProvider
from scbroker.errors import BrokerUnavailableError
from tests.kit.waiting import PATIENCE, wait_until

T = TypeVar("T")
_PAUSE: Final = 0.1
_LARGE: Final = 200_000


@dataclass
class Load:
    """The contents that clients stored and read, and their errors."""

    patient: bool
    """Whether a client retries after `BrokerUnavailableError`."""
    stored: dict[int, tuple[uuid.UUID, list[bytes]]] = field(default_factory=dict)
    """The container of each writer, and its acknowledged contents in order."""
    read: int = 0
    failures: list[BaseException] = field(default_factory=list)
    retried: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def written(self) -> int:
        return sum(len(contents) for _, contents in list(self.stored.values()))

    def wait_for_more(self, operations: int) -> None:
        """Wait until so many more contents were stored, and as many read, or something failed."""
        stored, read = self.written + operations, self.read + operations
        wait_until(lambda: self.failures or (self.written >= stored and self.read >= read))

    def write(self, provider: ServerProvider, number: int) -> None:
        """Update one container again and again."""
        first = _content(number, 0)
        identity = provider.createContainer(first).result(PATIENCE).id
        self.stored[number] = identity, [first]
        while not self.over.is_set():
            content = _content(number, len(self.stored[number][1]))
            self._until_done(partial(provider.updateContainerContent, identity, content))
            self.stored[number][1].append(content)

    def read_all(self, provider: ServerProvider, number: int) -> None:
        """Read what the same user's writer stores: never less than was acknowledged before."""
        wait_until(lambda: number in self.stored or self.over.is_set())
        while not self.over.is_set():
            identity, acknowledged = self.stored[number]
            known = len(acknowledged)
            found = self._until_done(partial(provider.getContainer, identity)).content
            assert found is not None
            assert _count(found) >= known - 1, "an acknowledged content was not there"
            with self._lock:
                self.read += 1

    def _until_done(self, operation: Callable[[], Promise[T]]) -> T:
        while True:
            try:
                return operation().result(PATIENCE)
            except BrokerUnavailableError as error:
                self._again(error)

    def _again(self, error: BrokerError) -> None:
        if not self.patient:
            raise error
        with self._lock:
            self.retried += 1
        time.sleep(_PAUSE)  # about time

    def guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self.failures.append(error)


@contextmanager
def under_load(
    pairs: Sequence[tuple[ServerProvider, ServerProvider]], *, patient: bool
) -> Iterator[Load]:
    """Run a writer and a reader for each pair of sessions of one user, until the block ends."""
    load = Load(patient)
    threads = []
    for number, (writer, reader) in enumerate(pairs):
        threads.append(threading.Thread(target=load.guarded, args=(load.write, writer, number)))
        threads.append(threading.Thread(target=load.guarded, args=(load.read_all, reader, number)))
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.over.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    if load.failures:
        raise load.failures[0]


def _content(number: int, count: int) -> bytes:
    """Return a content; every fourth is large, and goes to the object store."""
    size = _LARGE if count % 4 == 3 else 100
    return f"{number} {count} ".encode().ljust(size, b".")


def _count(content: bytes) -> int:
    return int(content.split(b" ")[1])
