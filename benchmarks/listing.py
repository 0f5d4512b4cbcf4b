"""Measure the list of containers: its rate, its memory, and a page beside a million other containers."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks import floors
from benchmarks.filling import fill_members
from benchmarks.floors import FloorServer
from benchmarks.memory import Peak
from benchmarks.result import Result, amount, cost, in_turn, rate, seconds_of
from benchmarks.small import HEADER, device, traffic
from scbroker import KeyRing, NewContainer, ServerProvider
from tests.kit.brokers import BrokerProcess, Wire

_BATCH: Final = 64
_PATIENCE: Final = 120.0
_RATE: Final = 3000
_ROUNDS: Final = 3
_PAGES: Final = 100
_OTHERS: Final = 1_000_000
_MOST_MEMORY: Final = 64.0


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run with one client on SQLite."""
    count = 1_000 if quick else 10_000
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(folder / "listing"))
        server = stack.enter_context(FloorServer())
        ring = broker.new_user()
        known = device(broker, stack, ring)
        few = broker.new_user()
        _create(device(broker, stack, few), count // 10)
        memory_of_few = _memory(broker, stack, few)
        _create(known, count)
        return [
            *_rates(broker, stack, ring, known, server, count),
            amount(f"peak of the client's memory, {count // 10:,} containers", memory_of_few, "MiB"),
            amount(
                f"peak of the client's memory, {count:,} containers",
                _memory(broker, stack, ring), "MiB", _MOST_MEMORY, memory_of_few,
                f"of {count // 10:,}",
            ),
            *_beside_others(broker, ring, _OTHERS // 10 if quick else _OTHERS),
        ]  # fmt: skip


def _create(provider: ServerProvider, count: int) -> None:
    for at in range(0, count, _BATCH):
        new = [NewContainer(None, HEADER, type="kept") for _ in range(min(_BATCH, count - at))]
        provider.createContainers(new).result(_PATIENCE)


def _go_through(provider: ServerProvider) -> int:
    return sum(1 for _ in provider.iterContainers())


def _rates(
    broker: BrokerProcess,
    stack: ExitStack,
    ring: KeyRing,
    known: ServerProvider,
    server: FloorServer,
    count: int,
) -> list[Result]:
    """Measure beside the transfer and the cryptography of as many containers, on one thread each."""
    _go_through(known)
    with traffic() as counted:
        known.listContainers().result(_PATIENCE)
    pages = -(-count // _BATCH)
    transfer = server.transfer(pages, 1, sent=counted.sent, received=counted.received)
    verify, unwrap, unseal = floors.verifying(), floors.unwrapping(), floors.unsealing(64)

    def fresh() -> float:
        provider = device(broker, stack, ring)
        return seconds_of(lambda: _go_through(provider))

    def crypto(*parts: Callable[[], object]) -> float:
        return seconds_of(lambda: [part() for _ in range(count) for part in parts])

    measured = in_turn(
        [
            fresh,
            lambda: seconds_of(lambda: _go_through(known)),
            lambda: seconds_of(transfer) + crypto(verify, unwrap, unseal),
            lambda: seconds_of(transfer) + crypto(unwrap, unseal),
        ],
        _ROUNDS,
    )
    new, old, new_floor, old_floor = (count / seconds for seconds in measured)
    name = f"iterContainers, {count:,} with headers"
    return [
        rate(
            f"{name}, fresh device", new, "/s",
            new_floor, "transfer + verify + unwrap + unseal", at_least=_RATE,
        ),
        rate(
            f"{name}, device with marks", old, "/s",
            old_floor, "transfer + unwrap + unseal", at_least=_RATE,
        ),
    ]  # fmt: skip


def _memory(broker: BrokerProcess, stack: ExitStack, ring: KeyRing) -> float | None:
    """Return the growth of this process while a fresh device goes through its containers."""
    provider = device(broker, stack, ring)
    provider.listContainers().result(_PATIENCE)
    peak = Peak()
    _go_through(provider)
    return peak.above()


def _beside_others(broker: BrokerProcess, ring: KeyRing, others: int) -> list[Result]:
    """Measure a page of a type on the wire before and after memberships are added."""
    request = {"limit": 1, "type": "kept"}

    def page() -> float:
        with Wire(broker).log_in(ring) as wire:
            return min(
                seconds_of(lambda: wire.call("POST", "/v1/containers/list", request).expect(200))
                for _ in range(_PAGES)
            )

    found = []
    alone = page()
    for name, user in (
        ("of other users", None),
        ("of the same user, of another type", ring.userId),
    ):
        broker.stop()
        fill_members(broker.directory / "broker.sqlite", user, others)
        broker.start()
        job = f"a page of a type beside {others:,} more containers {name}"
        found.append(cost(job, page(), alone, "without them", 2.0))
    return found
