"""Show that operations stay as fast while contents, event logs, stores and histories grow.

The smallest and the largest size have a broker each and are measured in turn. `filling` writes the ballast
rows.
"""

import datetime as dt
import itertools
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks import follow
from benchmarks.filling import copy_container, fill_events, fill_members
from benchmarks.result import Curve, Result, amount, cost, in_turn, seconds_of
from benchmarks.small import CONTENT, HEADER, device
from scbroker import AccessLevel, ContainerAccessLevel, Link, ServerProvider
from scbroker.crypto.seal import random_bytes
from tests.kit.brokers import BrokerProcess
from tests.kit.quotas import set_quota

_FLAT: Final = 1.25
_MIB: Final = 1024 * 1024
_PATIENCE: Final = 3600.0
_OWNER: Final = ContainerAccessLevel.DefaultOwnerPermissions
_RECIPIENTS: Final = 100
_PAGE: Final = 1000
_WRITES: Final = 100
_AWAY_SECONDS: Final = 1.0


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run on SQLite."""
    rounds = 5 if quick else 15
    return [
        revoking(folder / "revoking", 64 * _MIB if quick else 1024 * _MIB, rounds),
        events(folder / "events", [10_000, 100_000] if quick else [10_000, 100_000, 1_000_000], rounds),
        *creating(folder / "creating", [0, 1000, 10_000] if quick else [0, 10_000, 100_000, 1_000_000],
                  rounds),
        listing(folder / "listing", [0, 10_000] if quick else [0, 100_000, 1_000_000], rounds),
        following(folder / "following", [10_000, 100_000] if quick else [10_000, 1_000_000]),
        linking(folder / "linking", [1, 10] if quick else [1, 100], 5),
        *opening(folder / "opening", [1, 10, 100] if quick else [1, 10, 100, 1000, 10_000], rounds),
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
    return flat(
        f"revoking one of {_RECIPIENTS} recipients of {size // _MIB} MiB", seconds,
        [len(CONTENT) / 1024, size / 1024], "of 1 KiB",
        ("Revoking", "KiB of content", f"revoking one of {_RECIPIENTS}"),
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
    return flat(
        f"getEvents, a page of {_PAGE:,} from a log of {lengths[-1]:,}", seconds, lengths,
        f"of {lengths[0]:,}",
        ("Reading a page of events", "events in the log", f"a page of {_PAGE:,}"),
    )  # fmt: skip


def _page_of(reader: ServerProvider, first: int) -> Callable[[], float]:
    def page() -> None:
        found = reader.getEvents(startId=first, endId=first + _PAGE - 1).result(_PATIENCE)
        assert [event.id for event in found] == list(range(first, first + _PAGE))

    page()
    return lambda: seconds_of(page)


def creating(folder: Path, counts: Sequence[int], rounds: int) -> list[Result]:
    """Measure createContainer for users who have these numbers of containers, without and with a quota."""
    with ExitStack() as stack:
        measures, urls = [], []
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
            urls.append(broker.database_url)
        for measure in measures:
            measure()
        free = in_turn(measures, rounds)
        for url in urls:
            set_quota(url, None, bytes=2**50, containers=2**30)
        bounded = in_turn(measures, rounds)
    job, floor_is = f"createContainer beside {counts[-1]:,} others", f"beside {counts[0]:,}"
    axis = "containers of the user before"
    return [
        flat(job, free, counts, floor_is, ("Creating", axis, "without a quota")),
        flat(f"{job}, with a quota", bounded, counts, floor_is, ("Creating", axis, "with a quota")),
    ]


def _several_creates(owner: ServerProvider, count: int = 20) -> Callable[[], float]:
    def creates() -> None:
        for _ in range(count):
            owner.createContainer(CONTENT, HEADER).result(_PATIENCE)

    return lambda: seconds_of(creates) / count


def listing(folder: Path, counts: Sequence[int], rounds: int) -> Result:
    """Measure reading the first container of a type, for users who have these numbers of another type."""
    with ExitStack() as stack:
        measures = []
        for there in counts:
            broker = stack.enter_context(BrokerProcess(folder / str(there)))
            ring = broker.new_user()
            device(broker, stack, ring).createContainer(CONTENT, HEADER, type="kept").result(
                _PATIENCE
            )
            broker.stop()
            fill_members(folder / str(there) / "broker.sqlite", ring.userId, there)
            broker.start()
            measures.append(_first_listed(device(broker, stack, ring)))
        for measure in measures:
            measure()
        seconds = in_turn(measures, 3 * rounds)
    return flat(
        f"listContainers of a type beside {counts[-1]:,} of another", seconds, counts,
        f"beside {counts[0]:,}", ("Listing", "other containers of the user", "a page of a type"),
    )  # fmt: skip


def _first_listed(reader: ServerProvider) -> Callable[[], float]:
    def listed() -> None:
        page = reader.listContainers("kept").result(_PATIENCE)
        assert len(page.containers) == 1

    return lambda: seconds_of(listed)


def following(folder: Path, lengths: Sequence[int]) -> Result:
    """Measure how long an event takes to another device of a user with logs of these lengths."""
    medians = []
    for length in lengths:
        with BrokerProcess(folder / str(length)) as broker, ExitStack() as stack:
            ring = broker.new_user()
            broker.stop()
            fill_events(folder / str(length) / "broker.sqlite", ring.userId, length)
            broker.start()
            writer, reader = (device(broker, stack, ring) for _ in range(2))
            medians.append(statistics.median(follow.delays(writer, reader, _WRITES)))
    return flat(
        f"an event to a device that follows a log of {lengths[-1]:,}", medians, lengths,
        f"of {lengths[0]:,}", ("Following", "events in the log", "delay of an event"),
    )  # fmt: skip


def linking(folder: Path, counts: Sequence[int], rounds: int) -> Result:
    """Measure createLink for users who have these numbers of links."""
    with BrokerProcess(folder) as broker, ExitStack() as stack:
        measures = []
        for count in counts:
            owner = device(broker, stack)
            container = owner.createContainer(CONTENT, HEADER).result(_PATIENCE).id
            for _ in range(count - 1):
                _link(owner, container)
            measures.append(_one_link_more(owner, container))
        seconds = in_turn(measures, rounds)
    return flat(
        f"createLink beside {counts[-1] - 1:,} others", seconds, [each - 1 for each in counts],
        f"beside {counts[0] - 1:,}", ("Links", "links of the user", "createLink"),
    )  # fmt: skip


def _link(owner: ServerProvider, container: uuid.UUID) -> Link:
    expires = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    return owner.createLink(container, expiresAt=expires).result(_PATIENCE)


def _one_link_more(owner: ServerProvider, container: uuid.UUID) -> Callable[[], float]:
    def measure() -> float:
        began = time.perf_counter()
        made = _link(owner, container)
        seconds = time.perf_counter() - began
        owner.revokeLink(made).result(_PATIENCE)
        return seconds

    return measure


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
    job, panel = f"getContainer after {lengths[-1]:,} header updates", "Opening"
    late_job = f"{job}, by a device that read the first version"
    across, floor_is = "updates of the header", f"after {lengths[0]:,}"
    return [
        flat(f"{job}, by a device that never read it", seconds_new, lengths, floor_is,
              (panel, across, "never read before")),
        flat(late_job, seconds_late, lengths, floor_is,
              (panel, across, "read at the first version"), at_most=None),
        amount(f"{late_job}, in seconds", seconds_late[-1], "s", _AWAY_SECONDS),
    ]  # fmt: skip


def _first_get(devices: Iterator[ServerProvider], container: uuid.UUID) -> Callable[[], float]:
    """Return a measurement that uses another device each time."""

    def get() -> float:
        reader = next(devices)
        return seconds_of(lambda: reader.getContainer(container).result(_PATIENCE))

    return get


def flat(
    job: str, seconds: Sequence[float], across: Sequence[float], floor_is: str,
    names: tuple[str, str, str], at_most: float | None = _FLAT,
) -> Result:  # fmt: skip
    """Compare the largest size with the smallest; `names` are those of panel, axis and line."""
    panel, axis, line = names
    points = [(float(x), each * 1000) for x, each in zip(across, seconds, strict=True)]
    curve = Curve(panel, axis, line, points)
    return cost(job, seconds[-1], seconds[0], floor_is, at_most, curve)
