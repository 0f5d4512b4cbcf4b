"""Measure creates and gets per second of many users, with broker and clients on one machine.

`python -m benchmarks.crowd URL API_KEY JOB USERS` is one of the client processes. It registers its users,
prints `ready`, reads a number of seconds from its input, works for that long, and prints its rate as JSON.
"""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.result import Result, rate
from benchmarks.small import CONTENT, HEADER
from scbroker import BrokerError, MemoryTrustStore, ServerProvider
from tests.kit.brokers import BrokerProcess

USERS: Final = 32
_SECONDS: Final = 6.0
_OWN: Final = 16
_PATIENCE: Final = 120.0


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run on SQLite. A failed operation fails the run."""
    seconds = _SECONDS / 3 if quick else _SECONDS
    with BrokerProcess(folder / "crowd") as broker:
        creates = together(broker, "create", USERS, seconds)
        gets = together(broker, "get", USERS, seconds)
    return [
        rate(f"createContainer, {USERS} users at once", creates, "/s", at_least=700),
        rate(f"getContainer, {USERS} users at once", gets, "/s", at_least=3000),
    ]


def together(broker: BrokerProcess, job: str, users: int, seconds: float) -> float:
    """Return the operations per second of all users together."""
    return rate_of("benchmarks.crowd", [broker.url, str(broker.api_key)], job, users, seconds)


def rate_of(module: str, arguments: Sequence[str], job: str, at_once: int, seconds: float) -> float:
    """Run the module in one process for each processor, and return their operations per second, added up.

    The protocol is that of `python -m benchmarks.crowd`. All processes start to work at the same time.
    """
    count = min(os.cpu_count() or 1, at_once)
    shares = [at_once // count + (number < at_once % count) for number in range(count)]
    with ExitStack() as stack:
        clients = [
            stack.enter_context(_client(module, [*arguments, job, str(each)])) for each in shares
        ]
        for client in clients:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n"
        for client in clients:
            assert client.stdin is not None
            client.stdin.write(f"{seconds}\n")
            client.stdin.flush()
        done = [json.loads(client.communicate(timeout=_PATIENCE)[0]) for client in clients]
    failed = [failure for each in done for failure in each["failed"]]
    if failed:
        raise RuntimeError(f"{len(failed)} operations failed, one with: {failed[0]}")
    return float(sum(each["rate"] for each in done))


def _client(module: str, arguments: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


class Client:
    """The users of one process, all in one event loop."""

    def __init__(self, url: str, api_key: str, users: int) -> None:
        self._providers = [
            ServerProvider(uuid.UUID(api_key), url, "bench", trustStore=MemoryTrustStore())
            for _ in range(users)
        ]
        self._own: list[list[uuid.UUID]] = []
        self.failed: list[str] = []

    async def prepare(self, job: str) -> None:
        for provider in self._providers:
            await provider.register("correct Horse 7", "battery Staple 8")
        if job == "get":
            self._own = [[await self._made(p) for _ in range(_OWN)] for p in self._providers]

    async def _made(self, provider: ServerProvider) -> uuid.UUID:
        return (await provider.createContainer(CONTENT, HEADER)).id

    async def work(self, job: str, seconds: float) -> float:
        """Let each user repeat the operation, and return the operations per second of all."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        counts = await asyncio.gather(
            *(
                self._repeat(self._once(job, n), began + seconds)
                for n in range(len(self._providers))
            )
        )
        return sum(counts) / (loop.time() - began)

    def _once(self, job: str, number: int) -> Callable[[], Awaitable[Any]]:
        provider = self._providers[number]
        if job == "create":
            return lambda: provider.createContainer(CONTENT, HEADER)
        own = itertools.cycle(self._own[number])
        return lambda: provider.getContainer(next(own))

    async def _repeat(self, once: Callable[[], Awaitable[Any]], until: float) -> int:
        count, loop = 0, asyncio.get_running_loop()
        while loop.time() < until:
            try:
                await once()
            except BrokerError as error:
                self.failed.append(f"{type(error).__name__}: {error}")
            count += 1
        return count


async def wait_for_start() -> float:
    """Print `ready`, wait for a line of input, and return the seconds to work that it names."""
    print("ready", flush=True)
    return float(await asyncio.to_thread(sys.stdin.readline))


async def _main(url: str, api_key: str, job: str, users: str) -> None:
    client = Client(url, api_key, int(users))
    await client.prepare(job)
    seconds = await wait_for_start()
    each_second = await client.work(job, seconds)
    print(json.dumps({"rate": each_second, "failed": client.failed}))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
