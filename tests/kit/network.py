"""The way between providers and their broker: notes what is sent, and treats some of it badly.

    with Network() as network:
        network.treat("PUT", "/v1/key-file", lost(1))

The broker stays as it is. What a lying broker would answer, the way gives in its place.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import pytest

from scbroker import BrokerError
from scbroker.client.http.requests import Requests
from scbroker.crypto.seal import Octets as Octets
from scbroker.wire import codec
from scbroker.wire.codec import Message
from scbroker.wire.containers import ContainerView
from tests.kit.impatience import be_impatient
from tests.kit.waiting import until


class Request(NamedTuple):
    """A request as it went out."""

    method: str
    path: str
    body: bytes | None


Go = Callable[[], Awaitable[Octets]]
Treatment = Callable[[Go], Awaitable[Octets]]
"""Gives an answer: what `go()` fetches from the broker, or another."""


class Network:
    """All requests of all providers, as long as its `with` block."""

    def __init__(self) -> None:
        self.sent: list[Request] = []
        self._treatments: list[tuple[str, str, Treatment]] = []
        self._patched = pytest.MonkeyPatch()

    def __enter__(self) -> Self:
        honest, network = Requests._once, self

        async def once(
            self: Requests, method: str, url: str, headers: Any, body: Any, *limits: Any
        ) -> Octets:
            path = urlsplit(url).path
            # A chunk's buffer is used again for another.
            network.sent.append(Request(method, path, None if body is None else bytes(body)))

            async def go() -> Octets:
                return await honest(self, method, url, headers, body, *limits)

            for wanted, end, treatment in network._treatments:
                if method == wanted and path.endswith(end):
                    return await treatment(go)
            return await go()

        self._patched.setattr(Requests, "_once", once)
        be_impatient(self._patched)
        return self

    def __exit__(self, *_: object) -> None:
        self._patched.undo()

    def treat(self, method: str, end: str, treatment: Treatment) -> None:
        """Has every request of this method, and with this end of its path, treated so."""
        self._treatments.append((method, end, treatment))

    def those(self, method: str, end: str) -> list[Request]:
        """What was sent of one kind."""
        return [each for each in self.sent if each.method == method and each.path.endswith(end)]


def lost(times: int) -> Treatment:
    """The broker does it, and the first so many answers do not arrive."""
    left = [times]

    async def lose(go: Go) -> Octets:
        answer = await go()
        if left[0]:
            left[0] -= 1
            raise BrokerError.unreachableError("The answer was lost.")
        return answer

    return lose


class HeldAnswer:
    """Delays an exchange until `release` is set: `hold` the broker's answer, `delay` the request."""

    def __init__(self) -> None:
        self.arrived, self.release = threading.Event(), threading.Event()

    async def hold(self, go: Go) -> Octets:
        answer = await go()
        await self._released()
        return answer

    async def delay(self, go: Go) -> Octets:
        await self._released()
        return await go()

    async def _released(self) -> None:
        self.arrived.set()
        await until(self.release.is_set)


def answered(message: Message | bytes = b"") -> Treatment:
    """The broker is not even asked."""
    body = message if isinstance(message, bytes) else codec.encode(message)

    async def answer(go: Go) -> bytes:
        del go
        return body

    return answer


def refused(error: BrokerError, times: int | None = None) -> Treatment:
    """Answer requests with this error: all of them, or as many as `times` says."""
    left = [times]

    async def refuse(go: Go) -> Octets:
        if left[0] == 0:
            return await go()
        if left[0] is not None:
            left[0] -= 1
        raise error.fresh()

    return refuse


def after(act: Callable[[], object]) -> Treatment:
    """The first request arrives when somebody else has done this."""
    left = [act]

    async def treat(go: Go) -> Octets:
        if left:
            await asyncio.to_thread(left.pop())
        return await go()

    return treat


def overtaken(act: Callable[[], object]) -> Treatment:
    """The first answer arrives when somebody else has done this."""
    left = [act]

    async def treat(go: Go) -> Octets:
        answer = await go()
        if left:
            await asyncio.to_thread(left.pop())
        return answer

    return treat


@contextmanager
def lying(
    lie: Callable[[Any], Any], about: tuple[type, ...] = (ContainerView,)
) -> Iterator[list[object]]:
    """Give every client `lie(answer)` in place of an answer of these kinds."""
    honest, told = Requests.call, []

    async def call(self: Requests, method: str, path: str, answer: Any, **options: Any) -> Any:
        found = await honest(self, method, path, answer, **options)
        if isinstance(found, about):
            told.append(found)
            return lie(found)
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Requests, "call", call)
        yield told


def flipped(data: bytes, position: int = -1) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)
