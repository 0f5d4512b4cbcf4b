"""Measure `put` and `get` of one large file beside a plain script with the library, and beside rclone crypt.

All are processes of their own whose start is part of the time. `bulk` measures folders.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.peers import Command, Done, RcloneCrypt, check_same, scbroker, script, timed
from benchmarks.result import Result, amount, rate
from scbroker.crypto.seal import random_bytes
from tests.kit.brokers import BrokerProcess
from tests.kit.people import Person

_MIB: Final = 1024 * 1024
_MB: Final = 1_000_000
_LARGE, _QUICK_LARGE = 4096 * _MIB, 256 * _MIB
_COPIES: Final = 5
"""The file, the broker's copy, what was got, and the same two of rclone, which are there at the same time."""
_AS_FAST: Final = 0.9
_ROUNDS: Final = 2
"""The fastest one counts: whatever is stored first on a fresh disk takes a quarter longer."""
_Round = tuple[Done, Done]
MEMORY_MIB: Final = 300


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run the jobs in turn on SQLite; room on the disk is needed."""
    size = _QUICK_LARGE if quick else _LARGE
    free = shutil.disk_usage(folder).free
    if free <= _COPIES * size:
        missing = f"needs {_COPIES * size // _MIB} MiB of disk, and {free // _MIB} are free"
        return [Result(f"one file of {size // _MIB} MiB", None, "MB/s", floor_is=missing)]
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(folder / "broker"))
        person = Person(folder / "one", broker)
        person.join("one")
        return _one(person, size, stack)


def _one(person: Person, size: int, stack: ExitStack) -> list[Result]:
    home = person.home
    large = home / "large"
    with large.open("wb") as file:
        for _ in range(size // _MIB):
            file.write(random_bytes(_MIB))
    own, plain = list[_Round](), list[_Round]()
    for _ in range(_ROUNDS):
        own.append(
            _in_and_out(
                person, scbroker("put", "large"), scbroker("get", "large", "--output", "got")
            )
        )
        plain.append(
            _in_and_out(person, script("put-one", "large"), script("get-one", "large", "got"))
        )
    (put, get), (put_script, get_script) = _fastest(own), _fastest(plain)
    put_rclone = get_rclone = None
    if RcloneCrypt.is_installed():
        rclone = RcloneCrypt(home / "rclone", stack)
        put_rclone = rclone.put_one(large)
        get_rclone, got = rclone.get_one(large)
        check_same(large, got)
        shutil.rmtree(rclone.folder)
    what = f"of one file of {size // _MIB:,} MiB"

    def each_second(done: Done) -> float:
        return size / _MB / done.seconds

    return [
        *_beside(f"`put` {what}", each_second, put, put_script, put_rclone),
        *_beside(f"`get` {what}", each_second, get, get_script, get_rclone),
    ]


def _in_and_out(person: Person, put: Command, get: Command) -> _Round:
    """Store the file, get it, compare the two, and delete what is stored."""
    home = person.home
    stored, got = (
        timed(each, person.environment, home, moved=home / "large") for each in (put, get)
    )
    check_same(home / "large", home / "got")
    (home / "got").unlink()
    timed(scbroker("rm", "large", "--yes"), person.environment, home)
    return stored, got


def _fastest(rounds: list[_Round]) -> _Round:
    puts, gets = zip(*rounds, strict=True)
    return min(puts, key=_seconds), min(gets, key=_seconds)


def _seconds(done: Done) -> float:
    return done.seconds


def _beside(
    job: str, each_second: Callable[[Done], float], own: Done, script: Done, rclone: Done | None
) -> list[Result]:
    floor_is = "a plain script with the library"
    peers = {RcloneCrypt.name: None if rclone is None else each_second(rclone)}
    memory = {RcloneCrypt.name: None if rclone is None else rclone.memory}
    return [
        rate(
            job, each_second(own), "MB/s", each_second(script), floor_is,
            ratio_at_least=_AS_FAST, peers=peers,
        ),
        amount(f"{job}: peak of memory", own.memory, "MiB", MEMORY_MIB, peers=memory),
    ]  # fmt: skip
