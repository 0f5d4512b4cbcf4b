"""Stop one program at one of its requests, as if it were killed there, or kill its broker at that moment.

    for step in steps():
        with Stops("the manager", step) as stops, suppress(BrokerError):
            provider.removeGroupMembers(group, user).result(PATIENCE)
        if not stops.stopped:
            break  # the operation has no request of this number

The program is known by its application name: others reach the broker meanwhile.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

import pytest

from scbroker import BrokerError
from scbroker.client.http.requests import Requests
from scbroker.crypto.seal import Octets
from scbroker.wire.codec import APPLICATION_HEADER
from tests.kit.impatience import be_impatient


class Step(NamedTuple):
    """A moment in an operation: at its request of this number, from 1."""

    number: int
    answered: bool
    """Whether the broker has answered the request, and the answer does not arrive."""

    def __str__(self) -> str:
        return f"{'after' if self.answered else 'before'} request {self.number}"


def steps() -> Iterator[Step]:
    """Yield the steps of an operation; the caller ends with the first one that is not reached."""
    for number in itertools.count(1):
        yield Step(number, answered=False)
        yield Step(number, answered=True)


Act = Callable[[], Awaitable[object]]


class Stops:
    """The requests of a program until it is stopped; from then on none gets through.

    With `act`, that happens instead, and the program sends on: for brokers that are killed and come back.
    """

    def __init__(self, application: str, step: Step, act: Act | None = None) -> None:
        self.application, self.step, self.act = application, step, act
        self.sent = 0
        self.stopped = False
        self._patched = pytest.MonkeyPatch()

    def __enter__(self) -> Self:
        honest, stops = Requests._once, self

        async def once(
            self: Requests, method: str, url: str, headers: Any, body: Any, *limits: Any
        ) -> Octets:
            async def go() -> Octets:
                return await honest(self, method, url, headers, body, *limits)

            if unquote(headers[APPLICATION_HEADER]) != stops.application:
                return await go()
            return await stops.treat(go)

        self._patched.setattr(Requests, "_once", once)
        if self.act is None:
            be_impatient(self._patched)
        return self

    def __exit__(self, *_: object) -> None:
        self._patched.undo()

    async def treat(self, go: Callable[[], Awaitable[Octets]]) -> Octets:
        if self.stopped:
            if self.act is None:
                raise BrokerError.unreachableError("The program was stopped.")
            return await go()
        self.sent += 1
        if self.sent != self.step.number:
            return await go()
        self.stopped = True
        if self.step.answered:
            await go()
        if self.act is not None:
            await self.act()
        raise BrokerError.unreachableError("The program was stopped.")
