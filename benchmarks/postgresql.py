"""Measure a broker on PostgreSQL against single statements on the same server.

An operation runs whole, from the client through the broker. Its statement has as many bytes: a create is
compared with one INSERT and its commit, a get with one SELECT by primary key. The server syncs every commit.
The floor of one client is statement, HTTP exchange and cryptography; that of many users is the statement
alone, on as many connections.
"""

import asyncio
import itertools
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks import floors
from benchmarks.crowd import rate_of, together
from benchmarks.floors import FloorServer, own_loop
from benchmarks.result import Result, cost, in_turn, interleaved, rate
from benchmarks.small import CONTENT, HEADER, device, traffic
from benchmarks.statements import Statement, make
from scbroker import ServerProvider
from tests.kit.brokers import BrokerProcess
from tests.kit.engines import PostgresServer

USERS: Final = 8
_SECONDS: Final = 4.0
_RATIO: Final = 1 / 3
_PATIENCE: Final = 60.0
_STATEMENTS: Final = {"create": "an INSERT of asyncpg", "get": "a SELECT of asyncpg"}
_AT_LEAST: Final = {"create": 400, "get": 1300}
_NAMES: Final = {"create": "createContainer", "get": "getContainer"}


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run on the bundled PostgreSQL, with one database for the broker and one for the floor."""
    with PostgresServer(durable=True) as server, FloorServer() as http, ExitStack() as stack:
        url, floor = server.createdatabase(), server.createdatabase()
        broker = stack.enter_context(BrokerProcess(folder / "broker", url))
        found = []
        for job in ("create", "get"):
            once, sent, received = _once(job, device(broker, stack))
            octets = sent if job == "create" else received
            asyncio.run(make(floor, octets))
            parts = {"HTTP": http.http(sent, received), **_cryptography(job)}
            found += [
                _alone(job, once, parts, floor, octets, 20 if quick else 100),
                _together(job, broker, floor, octets, quick=quick),
            ]
        return found


def _cryptography(job: str) -> dict[str, Callable[[], object]]:
    if job == "get":
        return {"unwrap": floors.unwrapping(), "unseal": floors.unsealing(len(CONTENT))}
    return {
        "sign": floors.signing(),
        "verify": floors.verifying(),
        "wrap": floors.wraps(1),
        "seal": floors.sealing(len(CONTENT)),
    }


def _once(job: str, provider: ServerProvider) -> tuple[Callable[[], object], int, int]:
    """Return a client's operation, and the bytes that it sends and receives."""

    def create() -> object:
        return provider.createContainer(CONTENT, HEADER).result(_PATIENCE)

    containers = [provider.createContainer(CONTENT, HEADER).result(_PATIENCE).id for _ in range(16)]
    own = itertools.cycle(containers)

    def get() -> object:
        return provider.getContainer(next(own)).result(_PATIENCE)

    once = create if job == "create" else get
    once()
    with traffic() as counted:
        once()
    return once, counted.sent, counted.received


def _alone(
    job: str, once: Callable[[], object], parts: dict[str, Callable[[], object]],
    floor: str, octets: int, count: int,
) -> Result:  # fmt: skip
    """Measure one client; the statement also runs on an event loop in another thread."""
    with own_loop() as run:
        single = run(Statement.open(floor, octets, job))
        alone = [*parts.values(), lambda: run(single.once())]
        seconds, *least = interleaved([once, *alone], count)
        run(single.close())
    floor_is = " + ".join([*parts, f"{_STATEMENTS[job]} of {octets:,} bytes"])
    name = f"{_NAMES[job]} on PostgreSQL, one client"
    return cost(name, seconds, sum(least), floor_is, at_most=1 / _RATIO)


def _together(job: str, broker: BrokerProcess, floor: str, octets: int, *, quick: bool) -> Result:
    seconds, rounds = (_SECONDS / 2, 1) if quick else (_SECONDS, 3)
    ours, least = in_turn(
        [
            lambda: together(broker, job, USERS, seconds),
            lambda: rate_of("benchmarks.statements", [floor, str(octets)], job, USERS, seconds),
        ],
        rounds,
    )
    return rate(
        f"{_NAMES[job]} on PostgreSQL, {USERS} users at once", ours, "/s", least,
        f"{_STATEMENTS[job]} of {octets:,} bytes, {USERS} at once", at_least=_AT_LEAST[job],
    )  # fmt: skip
