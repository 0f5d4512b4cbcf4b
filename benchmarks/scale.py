"""Compare operations in a small database and in one with a million containers and ten million events.

`python -m benchmarks.scale [--containers N] [--events N] [--users N] [--engine sqlite] [--markdown PAGE]`

Two brokers have a database each on one server: one small, one filled by `population`. They take turns at
every operation, so that other load affects both alike and their ratio counts. A heavy user owns a tenth of
all containers and events, and does the work.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, text

from benchmarks.page import machine, put
from benchmarks.population import Real, Size, on, populate
from benchmarks.result import seconds_of
from benchmarks.scale_jobs import Job, Side, jobs
from benchmarks.sizes import size_table, sizes
from benchmarks.small import CONTENT, HEADER, device
from scbroker import AccessLevel, ContainerAccessLevel
from tests.kit.brokers import BrokerProcess
from tests.kit.engines import PostgresServer

_FEW: Final = Size(1000, 10_000, 100)
_ALIKE: Final = 1.1
_PATIENCE: Final = 3600.0
_OWNER: Final = ContainerAccessLevel.DefaultOwnerPermissions
_SERVER: Final = ("shared_buffers=1GB", "max_wal_size=4GB", "maintenance_work_mem=256MB")


@dataclass
class Measured:
    """The seconds of a job in the small and in the large database."""

    job: str
    few: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)


def measure(sides: Sequence[Side], rounds: int) -> list[Measured]:
    """Run every job `rounds` times on both sides in turn."""
    found = []
    for pair in zip(*(jobs(side) for side in sides), strict=True):
        measured = Measured(pair[0].name)
        for _ in range(rounds):
            for job, seconds in zip(pair, (measured.few, measured.many), strict=True):
                seconds.append(_once(job))
        found.append(measured)
        print(_line(measured), flush=True)
    return found


def _once(job: Job) -> float:
    work = job.prepare()
    return seconds_of(work)


def _line(measured: Measured) -> str:
    few, many = measured.few, measured.many
    ratio = _ratio(measured)
    cells = [_short(each) for part in (few, many) for each in (_at(part, 0.5), _at(part, 0.95))]
    return f"| {measured.job} | {' | '.join(cells)} | {ratio:.2f}x |"


def _ratio(measured: Measured) -> float:
    return statistics.median(measured.many) / statistics.median(measured.few)


def _at(seconds: Sequence[float], share: float) -> float:
    return sorted(seconds)[min(len(seconds) - 1, math.ceil(share * len(seconds)) - 1)]


def _short(seconds: float) -> str:
    return f"{seconds * 1000:,.3g}" if seconds < 1 else f"{seconds * 1000:,.0f}"


def result_table(found: Sequence[Measured], few: Size, many: Size) -> str:
    """Return the slowest operations in milliseconds on both sides, and the range of the other ratios."""
    alike = [_ratio(each) for each in found if _ratio(each) <= _ALIKE]
    small, large = (
        f"{size.containers:,} containers, {size.events:,} events" for size in (few, many)
    )
    return "\n".join(
        [
            f"| ms beside | {small}: p50 | p95 | {large}: p50 | p95 | ratio of p50 |",
            "|---|--:|--:|--:|--:|--:|",
            *(_line(each) for each in found if _ratio(each) > _ALIKE),
            "",
            f"The ratios of the other {len(alike)} operations are {min(alike):.2f} to {max(alike):.2f}.",
        ]
    )


def side(broker: BrokerProcess, size: Size, stack: ExitStack) -> Side:
    """Fill a broker's database, and return the broker with the two users who work on it."""
    owner, reader = broker.new_user(), broker.new_user()
    with ExitStack() as before:
        alice = device(broker, before, owner)
        access = [AccessLevel(owner.userId, _OWNER), AccessLevel(reader.userId)]
        made = alice.createContainer(CONTENT, HEADER, type="letter", accessLevels=access)
        real = Real(owner.userId, reader.userId, made.result(_PATIENCE).id)
    broker.stop()
    began = time.monotonic()

    def said(what: str) -> None:
        print(f"{time.monotonic() - began:7.0f} s: {what}", flush=True)

    on(broker.database_url, lambda connection: populate(connection, real, size, said))
    if not broker.database_url.startswith("sqlite"):
        for settling in (
            "VACUUM (ANALYZE)",
            "CHECKPOINT",
        ):  # what autovacuum would have done by then
            on(broker.database_url, partial(_execute, settling))
    said("filled")
    broker.start()
    return Side(broker, stack, owner, reader, real, size)


def _execute(statement: str, connection: Connection) -> None:
    connection.execute(text(statement))


def smaller(many: Size) -> Size:
    """Return the size of the small database."""
    return Size(min(_FEW.containers, many.containers), min(_FEW.events, many.events),
                min(_FEW.users, many.users))  # fmt: skip


def run(many: Size, folder: Path, engine: str, rounds: int) -> list[Measured]:
    """Print the sizes of the large database's tables, and return the seconds of all operations."""
    few = smaller(many)
    with ExitStack() as stack:
        urls = ["", ""]
        if engine == "postgresql":
            server = stack.enter_context(PostgresServer(durable=True, settings=_SERVER))
            urls = [server.createdatabase(), server.createdatabase()]
        brokers = [
            stack.enter_context(BrokerProcess(folder / name, url))
            for name, url in zip(("few", "many"), urls, strict=True)
        ]
        sides = [
            side(broker, size, stack) for broker, size in zip(brokers, (few, many), strict=True)
        ]
        print(size_table(on(sides[1].broker.database_url, sizes)), flush=True)
        return [*measure(sides, rounds), leaving(sides)]


def leaving(sides: Sequence[Side]) -> Measured:
    """Measure the deletion of the heavy user, once."""
    found = Measured("deleteUser, the heavy user")
    for each, seconds in zip(sides, (found.few, found.many), strict=True):
        seconds.append(seconds_of(each.leave))
    print(_line(found), flush=True)
    return found


def main() -> int:
    options = _options()
    many = Size(options.containers, options.events, options.users)
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        found = run(many, Path(folder), options.engine, options.rounds)
    few = smaller(many)
    where = f"{machine()} {options.rounds} rounds; {many.users:,} users beside the two who work."
    text = f"{where}\n\n{result_table(found, few, many)}"
    print(text)
    if options.markdown:
        put(options.markdown, f"scale on {options.engine}", text)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("--containers", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--engine", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--markdown", type=Path, metavar="FILE",
                        help="put the tables between their comments in this page")  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
