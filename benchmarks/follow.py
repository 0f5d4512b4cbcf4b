"""Measure the delay of events to a device that follows its log, alone and beside a thousand others.

The delay is the time from the return of a write on one device to the event on another device of the user.
Both run in this process, which shares the machine with the broker. The floor is a request for one event.
"""

import socket
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.result import Result
from benchmarks.small import device
from scbroker import KeyRing, MemoryTrustStore, ServerProvider
from tests.kit.brokers import BrokerProcess, Wire

_WRITES: Final = 500
_FOLLOWERS: Final = 1_000
_OF_A_USER: Final = 25
_PATIENCE: Final = 60.0
_MIB: Final = 1_048_576


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run on SQLite."""
    writes, count = (_WRITES // 5, _FOLLOWERS // 5) if quick else (_WRITES, _FOLLOWERS)
    limits: dict[str, Any] = {"max_followers": 2 * count, "max_connections": 4 * count}
    with BrokerProcess(folder / "follow", **limits) as broker, ExitStack() as stack:
        writer = device(broker, stack)
        reader = _second(broker, writer, stack)
        floor = statistics.median(_reads(writer) for _ in range(writes))
        alone = delays(writer, reader, writes)
        before = _memory(broker)
        _crowd(broker, count, stack)
        after = _memory(broker)
        crowded = delays(writer, reader, writes)
    floor_is = "a getEvents of one event"
    return [
        *_results("an event to another device", alone, floor, floor_is),
        *_results(f"the same beside {count:,} followers", crowded, floor, floor_is),
        Result(f"memory of {count:,} followers", (after - before) / _MIB, "MiB"),
        Result("memory of one of them", (after - before) / count / 1024, "KiB"),
    ]


def _second(broker: BrokerProcess, writer: ServerProvider, stack: ExitStack) -> ServerProvider:
    """Return another device of the same user."""
    ring: KeyRing = writer.getKeyRing().result(_PATIENCE)
    other = ServerProvider(broker.api_key, broker.url, "follower", trustStore=MemoryTrustStore())
    stack.enter_context(other)
    other.logIn(keyRing=ring, userId=ring.userId).result(_PATIENCE)
    return other


def _reads(provider: ServerProvider) -> float:
    began = time.perf_counter()
    provider.getEvents(startId=1, endId=1).result(_PATIENCE)
    return time.perf_counter() - began


def delays(writer: ServerProvider, reader: ServerProvider, writes: int) -> list[float]:
    """Return the seconds from the return of each write to its event."""
    known = reader.getEvents().result(_PATIENCE)
    found = []
    with reader.followEvents(known[-1].id + 1 if known else 1) as stream:
        for _ in range(writes):
            made = writer.createContainer(b"").result(_PATIENCE)
            written = time.perf_counter()
            event = next(stream)
            found.append(time.perf_counter() - written)
            assert event.containerId == made.id
    return found


def _crowd(broker: BrokerProcess, count: int, stack: ExitStack) -> None:
    """Open `count` waiting requests, of users with a few each."""
    for _ in range(count // _OF_A_USER):
        wire = stack.enter_context(Wire(broker))
        wire.log_in(broker.new_user())
        lines = "".join(f"{key}: {value}\r\n" for key, value in wire.headers().items())
        request = f"GET /v1/events?startId=1&wait=600 HTTP/1.1\r\nHost: x\r\n{lines}\r\n"
        for _ in range(_OF_A_USER):
            connection = socket.create_connection(("127.0.0.1", broker.port), _PATIENCE)
            stack.enter_context(connection)
            connection.sendall(request.encode())
            assert connection.recv(12) == b"HTTP/1.1 200"


def _memory(broker: BrokerProcess) -> int:
    """Return the broker's resident memory in bytes."""
    return int(psutil.Process(broker.pid).memory_info().rss)


def _results(job: str, delays: list[float], floor: float, floor_is: str) -> list[Result]:
    ordered = sorted(delays)
    at = {"median": ordered[len(ordered) // 2], "99th of 100": ordered[len(ordered) * 99 // 100]}
    return [
        Result(f"{job}, {name}", seconds * 1000, "ms", floor * 1000, floor_is, seconds / floor)
        for name, seconds in at.items()
    ]
