"""Show that operations stay as fast while contents, event logs, stores and histories grow.

The smallest and the largest size have a broker each and are measured in turn. `filling` writes the ballast
rows.
"""

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.filling import copy_container, fill_events
from benchmarks.result import Curve, Result, cost, in_turn, seconds_of
from benchmarks.small import CONTENT, HEADER, device
from scbroker import AccessLevel, ContainerAccessLevel, ServerProvider
from scbroker.crypto.seal import random_bytes
from tests.kit.brokers import BrokerProcess

_FLAT: Final = 1.25
_MIB: Final = 1024 * 1024
_PATIENCE: Final = 3600.0
_OWNER: Final = ContainerAccessLevel.DefaultOwnerPermissions
_RECIPIENTS: Final = 100
_PAGE: Final = 1000


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run on SQLite."""
    rounds = 5 if quick else 15
    return [
        revoking(folder / "revoking", 64 * _MIB if quick else 1024 * _MIB, rounds),
        events(folder / "events", [10_000, 100_000] if quick else [10_000, 100_000, 1_000_000], rounds),
        creating(folder / "creating", [0, 1000, 10_000] if quick else [0, 10_000, 100_000, 1_000_000],
                 rounds),
        *opening(folder / "opening", [1, 10, 100] if quick else [1, 10, 100, 1000], rounds),
    ]  # fmt: skip


def revoking(folder: Path, size: int, rounds: int) -> Result:
    """Measure the removal of one of a hundred recipients, for a small and a large content."""
    folder.mkdir()
    file = folder / "content"
    with file.open("wb") as out:
        for _ in range(size // _MIB):
            out.write(random_bytes(_MIB))
    with BrokerProcess(folder / "broker") as broker, ExitStack() as stack:
        owner = device(broker, stack)
        me = owner.getUserId().result(_PATIENCE)
        readers = [AccessLevel(broker.new_user().userId) for _ in range(_RECIPIENTS - 1)]
        everybody = [AccessLevel(me, _OWNER), *readers]

        def measure(content: Any) -> Callable[[], float]:
            made = owner.createContainer(content, HEADER, accessLevels=everybody)
            container = made.result(_PATIENCE).id

            def revoke() -> float:
                owner.updateContainerAccessLevels(container, everybody).result(_PATIENCE)
                fewer = everybody[:-1]
                return seconds_of(
                    lambda: owner.updateContainerAccessLevels(container, fewer).result(_PATIENCE)
                )

            return revoke

        seconds = in_turn([measure(CONTENT), measure(file)], rounds)
    return _flat(
        f"revoking one of {_RECIPIENTS} recipients of {size // _MIB} MiB", seconds,
        [len(CONTENT) / 1024, size / 1024], "of 1 KiB",
        ("growth-revoking", "KiB of content", f"revoking one of {_RECIPIENTS}"),
    )  # fmt: skip


def events(folder: Path, lengths: Sequence[int], rounds: int) -> Result:
    """Measure reading a page of a thousand events from the middle of logs of these lengths."""
    with ExitStack() as stack:
        measures = []
        for length in lengths:
            broker = stack.enter_context(BrokerProcess(folder / str(length)))
            ring = broker.new_user()
            broker.stop()
            fill_events(folder / str(length) / "broker.sqlite", ring.userId, length)
            broker.start()
            reader = device(broker, stack, ring)
            first = length // 2
            measures.append(_page_of(reader, first))
        seconds = in_turn(measures, 3 * rounds)
    return _flat(
        f"getEvents, a page of {_PAGE:,} from a log of {lengths[-1]:,}", seconds, lengths,
        f"of {lengths[0]:,}",
        ("growth-events", "events in the log", f"a page of {_PAGE:,}"),
    )  # fmt: skip


def _page_of(reader: ServerProvider, first: int) -> Callable[[], float]:
    def page() -> None:
        found = reader.getEvents(startId=first, endId=first + _PAGE - 1).result(_PATIENCE)
        assert [event.id for event in found] == list(range(first, first + _PAGE))

    page()
    return lambda: seconds_of(page)


def creating(folder: Path, counts: Sequence[int], rounds: int) -> Result:
    """Measure createContainer for users who have these numbers of containers."""
    with ExitStack() as stack:
        measures = []
        for there in counts:
            broker = stack.enter_context(BrokerProcess(folder / str(there)))
            ring = broker.new_user()
            owner = device(broker, stack, ring)
            real = owner.createContainer(CONTENT, HEADER).result(_PATIENCE).id
            if there:
                broker.stop()
                copy_container(folder / str(there) / "broker.sqlite", real, there)
                broker.start()
                owner = device(broker, stack, ring)
            measures.append(_several_creates(owner))
        for measure in measures:
            measure()
        seconds = in_turn(measures, rounds)
    return _flat(
        f"createContainer beside {counts[-1]:,} others", seconds, counts, f"beside {counts[0]:,}",
        ("growth-creating", "containers of the user before", "createContainer"),
    )  # fmt: skip


def _several_creates(owner: ServerProvider, count: int = 20) -> Callable[[], float]:
    def creates() -> None:
        for _ in range(count):
            owner.createContainer(CONTENT, HEADER).result(_PATIENCE)

    return lambda: seconds_of(creates) / count


def opening(folder: Path, lengths: Sequence[int], rounds: int) -> list[Result]:
    """Measure getContainer after many updates of the header, on two kinds of devices.

    A new device has no mark of the container. The other kind read version 1 and nothing since, so it has to
    fetch and hash every record in between.
    """
    with BrokerProcess(folder) as broker, ExitStack() as stack:
        ring = broker.new_user()
        owner = device(broker, stack, ring)
        made = [owner.createContainer(CONTENT, HEADER).result(_PATIENCE).id for _ in lengths]
        behind = [device(broker, stack, ring) for _ in range(rounds)]
        for each, container in itertools.product(behind, made):
            each.getContainer(container).result(_PATIENCE)
        for container, length in zip(made, lengths, strict=True):
            for number in range(length):
                header = {**HEADER, "number": number}
                owner.updateContainerHeader(container, header).result(_PATIENCE)
        new = [_first_get((device(broker, stack, ring) for _ in range(rounds)), c) for c in made]
        late = [_first_get(iter(behind), container) for container in made]
        seconds_new, seconds_late = in_turn(new, rounds), in_turn(late, rounds)
    job, plot = f"getContainer after {lengths[-1]:,} header updates", "growth-opening"
    across, floor_is = "updates of the header", f"after {lengths[0]:,}"
    return [
        _flat(f"{job}, by a device that never read it", seconds_new, lengths, floor_is,
              (plot, across, "never read before")),
        _flat(f"{job}, by a device that read the first version", seconds_late, lengths, floor_is,
              (plot, across, "read at the first version"), at_most=None),
    ]  # fmt: skip


def _first_get(devices: Iterator[ServerProvider], container: uuid.UUID) -> Callable[[], float]:
    """Return a measurement that uses another device each time."""

    def get() -> float:
        reader = next(devices)
        return seconds_of(lambda: reader.getContainer(container).result(_PATIENCE))

    return get


def _flat(
    job: str, seconds: Sequence[float], across: Sequence[float], floor_is: str,
    names: tuple[str, str, str], at_most: float | None = _FLAT,
) -> Result:  # fmt: skip
    """Compare the largest size with the smallest; `names` are those of plot, axis and line."""
    plot, axis, line = names
    points = [(float(x), each * 1000) for x, each in zip(across, seconds, strict=True)]
    curve = Curve(plot, axis, line, points)
    return cost(job, seconds[-1], seconds[0], floor_is, at_most, curve)
