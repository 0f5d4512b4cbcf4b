"""Offer ten times the load that a broker can serve; measure answers, refusals and the recovery.

The load is prepared requests of real clients, sent as bytes: three gets for each create.
"""

import asyncio
import contextlib
import statistics
import time
import urllib.parse
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from benchmarks.memory import Peak
from benchmarks.offering import Crowd, Request, Requests, Tally
from benchmarks.result import Result, amount, rate
from benchmarks.small import CONTENT, HEADER, device, processor_seconds
from scbroker import BrokerError, ServerProvider
from scbroker.client.calls.tasks import _new_loop
from scbroker.client.http import requests
from tests.kit.brokers import BrokerProcess

_CLIENTS: Final = 32
_USERS: Final = 16
_TIMES: Final = 10
_CONNECTIONS: Final = 800
_GETS_EACH: Final = 3
_SECONDS: Final = 8.0
_MOST_CREATES: Final = 500
"""Per second; more than a broker on one machine can store."""
_PATIENCE: Final = 60.0
_PROBES: Final = 10
_LONGEST: Final = 30.0


@dataclass
class Outcome:
    """The measurements of one run."""

    peak: Tally
    load: Tally
    memory: float | None
    """The peak in MiB above an idle broker."""
    recovery: float
    """The seconds from the end of the load until a get is about as fast as before."""
    processor: tuple[float, float]
    """Answers per second of the broker's processor time, before and under the load."""


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run on SQLite."""
    seconds = _SECONDS / 2 if quick else _SECONDS
    with BrokerProcess(folder / "overload") as broker, ExitStack() as stack:
        devices = [device(broker, stack) for _ in range(_USERS)]
        requests = _made(devices, broker, int(_MOST_CREATES * seconds * 1.5))
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            return results(runner.run(_overloaded(broker, requests, seconds)))


async def _overloaded(broker: BrokerProcess, requests: Requests, seconds: float) -> Outcome:
    memory = Peak(broker.pid)
    async with Crowd("127.0.0.1", broker.port, _CONNECTIONS, requests) as crowd:
        normal = statistics.median([(await crowd.one())[1] for _ in range(_PROBES)])
        await crowd.work(_CLIENTS, 1)  # warm
        began = processor_seconds(broker)
        peak = await crowd.work(_CLIENTS, seconds / 2)
        between = processor_seconds(broker)
        load = await crowd.offer(_TIMES * served(peak), seconds)
        ended = processor_seconds(broker)
        recovery = await _recovery(crowd, normal)
        each = answered(peak) / (between - began), answered(load) / (ended - between)
        return Outcome(peak, load, memory.above(), recovery, each)


async def _recovery(crowd: Crowd, normal: float) -> float:
    """Return the seconds until a get takes at most three times as long as normally."""
    began = time.perf_counter()
    while time.perf_counter() < began + _LONGEST:
        answered, took = await crowd.one()
        if answered and took < 3 * normal:
            return time.perf_counter() - began
    raise RuntimeError("The broker did not recover.")


def results(outcome: Outcome) -> list[Result]:
    peak, load = served(outcome.peak), outcome.load
    gets, creates = load.answered[False], load.answered[True]
    offered = (len(gets) + len(creates) + len(load.refused) + load.unsent) / load.seconds
    if outcome.peak.failed or load.failed:
        failed = outcome.peak.failed + load.failed
        raise RuntimeError(f"{len(failed)} requests failed, one with: {failed[0]}")
    found = [
        rate(f"answered, {_CLIENTS} clients at once, one create to {_GETS_EACH} gets", peak, "/s"),
        rate(f"answered at {offered / peak:.1f} times that rate", served(load), "/s", peak,
             f"of {_CLIENTS} clients", ratio_at_least=0.8),
        rate("answered for each second of the broker's processor time", outcome.processor[1], "",
             outcome.processor[0], f"of {_CLIENTS} clients"),
        rate("refused at that rate", len(load.refused) / load.seconds, "/s"),
        rate("not sent, because all connections were waiting", load.unsent / load.seconds, "/s"),
    ]  # fmt: skip
    for name, some in (("get", gets), ("create", creates), ("refusal", load.refused)):
        if some:
            found.append(amount(f"{name}, the median", 1000 * statistics.median(some), "ms"))
            found.append(amount(f"{name}, 99 of 100 within", 1000 * _percentile(some, 99), "ms"))
    return [
        *found,
        amount("peak of memory above the start", outcome.memory, "MiB"),
        amount("time to recover after the load", outcome.recovery, "s"),
    ]


def served(tally: Tally) -> float:
    """Return the answers per second."""
    return answered(tally) / tally.seconds


def answered(tally: Tally) -> int:
    return sum(map(len, tally.answered.values()))


def _percentile(figures: Sequence[float], percent: int) -> float:
    return sorted(figures)[len(figures) * percent // 100]


def _made(devices: Sequence[ServerProvider], broker: BrokerProcess, creates: int) -> Requests:
    """Record requests of real clients: creates that are not sent yet, and gets of known containers."""
    host = f"127.0.0.1:{broker.port}"
    gets: list[Request] = []
    for provider in devices:
        made = provider.createContainer(CONTENT, HEADER).result(_PATIENCE)
        with patch.object(requests.Requests, "_once", _noting(gets, host, once=False)):
            provider.getContainer(made.id).result(_PATIENCE)
    kept: list[Request] = []
    with patch.object(requests.Requests, "_once", _noting(kept, host, once=True)):
        for number in range(creates):
            with contextlib.suppress(_HeldBackError):
                devices[number % len(devices)].createContainer(CONTENT, HEADER).result(_PATIENCE)
    return Requests(gets, kept, _GETS_EACH)


class _HeldBackError(BrokerError):
    """Stops a client whose request was recorded instead of sent."""


def _noting(into: list[Request], host: str, *, once: bool) -> Any:
    send = requests.Requests._once

    async def noting(
        self: requests.Requests,
        method: str,
        url: str,
        headers: dict[str, str],
        body: Any,
        *others: Any,
    ) -> Any:
        parts = urllib.parse.urlsplit(url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        octets = "\r\n".join([*lines, "", ""]).encode() + bytes(body or b"")
        into.append(Request(octets, once))
        if once:
            raise _HeldBackError()
        return await send(self, method, url, headers, body, *others)

    return noting
