"""Measure the processor time of commands that name a container, or list all, among few and many containers.

The time is that of the command's process, whatever else the machine does. The first command on a device reads
all containers; it is not part of a figure.
"""

import resource
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.growth import flat
from benchmarks.peers import scbroker
from benchmarks.result import Result, amount, in_turn
from scbroker import NewContainer
from tests.kit.brokers import BrokerProcess
from tests.kit.people import Person

_AS_MUCH: Final = 1.5
_LIST_SECONDS: Final = 1.0
_BATCH: Final = 500
_PATIENCE: Final = 600.0
_NAME: Final = "folder 3/file 3.txt"
_numbers: Final = count()


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run on SQLite, with a user for each number of containers."""
    counts = [10, 1000] if quick else [10, 1000, 10_000, 50_000]
    rounds = 3 if quick else 5
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(folder / "broker"))
        people = [_person(folder / str(each), broker, each) for each in counts]
        return [
            _flat("info", people, counts, rounds, lambda _: ["info", _NAME]),
            _flat("put", people, counts, rounds, _new_file),
            *_listing(people, counts, rounds),
        ]


def _person(home: Path, broker: BrokerProcess, containers: int) -> Person:
    person = Person(home, broker)
    person.join("me")
    with person.session() as session:
        for at in range(0, containers, _BATCH):
            some = range(at, min(at + _BATCH, containers))
            new = [NewContainer(b"x" * 20, {"name": f"folder {n % 20}/file {n}.txt"}) for n in some]
            for made in session.createContainers(new).result(_PATIENCE):
                assert not isinstance(made, Exception), made
    _seconds(person, ["ls"])
    return person


def _new_file(person: Person) -> list[str]:
    name = f"new {next(_numbers)}"
    (person.home / name).write_text(name, "utf-8")
    return ["put", name]


def _flat(
    command: str,
    people: Sequence[Person],
    counts: Sequence[int],
    rounds: int,
    arguments: Callable[[Person], list[str]],
) -> Result:
    measures = [partial(_timed, each, arguments) for each in people]
    seconds = in_turn(measures, rounds)
    job = f"`{command} NAME` among {counts[-1]:,} containers, processor time"
    panel = ("Names", "containers of the user", f"scbroker {command} NAME")
    return flat(job, seconds, counts, f"among {counts[0]:,}", panel, _AS_MUCH)


def _listing(people: Sequence[Person], counts: Sequence[int], rounds: int) -> list[Result]:
    return [
        amount(
            f"`ls` of {each:,} containers, processor time",
            in_turn([partial(_seconds, person, ["ls"])], rounds)[0],
            "s",
            _LIST_SECONDS,
        )
        for person, each in zip(people, counts, strict=True)
        if each in (1000, 10_000)
    ]


def _timed(person: Person, arguments: Callable[[Person], list[str]]) -> float:
    return _seconds(person, arguments(person))


def _seconds(person: Person, arguments: list[str]) -> float:
    """Return the seconds of processor time that a command took, in the program and in the system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [str(each) for each in scbroker(*arguments)],
        env=person.environment, cwd=person.home, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
