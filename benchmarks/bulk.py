"""Measure a folder of many small files and a folder of photos, in and out, beside other programs.

The library, the command line and each peer do the same job after another, with the same files on the same
disk, and are processes of their own whose start is part of the time. The time ends when the disk has
everything that was written, whether a server syncs it or not. Then the small files are listed and
searched, by a device that has read none of them and by the same device again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.command_line import MEMORY_MIB
from benchmarks.peers import (
    PEERS,
    AgePlusCp,
    Command,
    Done,
    Peer,
    check_same,
    scbroker,
    script,
    timed,
)
from benchmarks.result import Result, amount, rate
from scbroker.crypto.seal import random_bytes
from tests.kit.brokers import BrokerProcess
from tests.kit.people import Person

_MB: Final = 1_000_000
_MIB: Final = 1024 * 1024
_FOLDERS: Final = 100
_TYPE: Final = "receipt"
_TYPED: Final = 100
_AS_FAST, _AS_FAST_AS_LIBRARY = 1.0, 0.9
_COPIES: Final = 10
"""Copies of a folder that are on the disk at the same time, at most."""


class Files(NamedTuple):
    """A folder of files of one size."""

    name: str
    what: str
    number: int
    size: int
    unit: str
    """The unit of its rates: files or megabytes a second."""

    def rate(self, done: Done) -> float:
        amount = self.number if self.unit == "/s" else self.number * self.size / _MB
        return amount / done.seconds

    def make(self, folder: Path) -> Path:
        """Write the files, with random contents, into folders of equal size."""
        top = folder / self.name
        for each in range(self.number):
            file = top / f"{each % _FOLDERS}" / f"{each}.bin"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(random_bytes(self.size))
        return top


class User:
    """A user with two devices: one puts and gets, and one has read nothing yet."""

    def __init__(self, folder: Path, broker: BrokerProcess, name: str) -> None:
        self.first, self.second = (
            Person(folder / name, broker),
            Person(folder / f"{name}-2", broker),
        )
        self.first.join(name)
        self.second.join(name, self.first.ring)

    def transfer(self, command: Command, moved: Path) -> Done:
        """Run a program that puts or gets the files of a folder."""
        return timed(command, self.first.environment, self.first.home, moved=moved, sync=True)

    def read(self, command: Command) -> Done:
        """Run a program that lists, on the other device."""
        return timed(command, self.second.environment, self.second.home)


class Stage:
    """A broker, a user of the library, a user of the command line, and the peers."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        broker = stack.enter_context(BrokerProcess(folder / "broker"))
        self.library = User(folder, broker, "library")
        self.command = User(folder, broker, "command")
        self.peers: dict[str, Peer | None] = {
            each.name: each(folder / each.name.replace(" ", "-"), stack)
            if each.is_installed()
            else None
            for each in PEERS
        }

    def each_peer(self, job: Callable[[Peer], Done | None]) -> dict[str, Done | None]:
        """Return what a job took each peer; None for those that are not installed or cannot do it."""
        return {name: None if peer is None else job(peer) for name, peer in self.peers.items()}


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run each job once on SQLite; parts of it need the other programs, and room on the disk."""
    small, large = (500, 20) if quick else (10_000, 500)
    files = Files("files", f"{small:,} files of 4 KiB", small, 4096, "/s")
    photos = Files("photos", f"{large} files of 4 MiB", large, 4 * _MIB, "MB/s")
    needed = _COPIES * sum(each.number * each.size for each in (files, photos))
    if (free := shutil.disk_usage(folder).free) <= needed:
        missing = f"needs {needed // _MIB} MiB of disk, and {free // _MIB} are free"
        return [Result("folders", None, "MB/s", floor_is=missing)]
    with ExitStack() as stack:
        stage = Stage(folder, stack)
        # The photos first: `put` and `get` list all containers of the user.
        photo_rows = in_and_out(stage, photos)
        file_rows = in_and_out(stage, files)
        return [*file_rows, *photo_rows, *lists(stage, files, files.number + photos.number)]


def in_and_out(stage: Stage, files: Files) -> list[Result]:
    """Store a folder and get it, by all in turn."""
    source = files.make(stage.folder)
    library, command = stage.library, stage.command
    put_library = library.transfer(script("put-many", source), source)
    put = command.transfer(scbroker("put", "--recursive", source), source)
    put_peers = stage.each_peer(lambda peer: peer.put(source))
    again = command.transfer(scbroker("put", "--recursive", source), source)
    again_peers = stage.each_peer(lambda p: None if isinstance(p, AgePlusCp) else p.put(source))
    get_library = library.transfer(script("get-many", files.name, "got"), source)
    getting = scbroker("get", "--recursive", f"{files.name}/", "--output", "got")
    get = command.transfer(getting, source)
    for user in (library, command):
        _check_and_remove(source, user.first.home / "got" / files.name)
    get_peers = stage.each_peer(lambda peer: _got(peer, source))
    what = files.what
    return [
        _rate(files, f"library: {what} in", put_library, put_peers),
        _rate(files, f"`put -r` of {what}", put, put_peers),
        _beside_library(files, f"`put -r` of {what}", put, put_library),
        _memory(f"`put -r` of {what}", put, put_peers),
        _again(f"`put -r` of {what} again, all unchanged", files.number, again, again_peers),
        _rate(files, f"library: {what} out", get_library, get_peers),
        _rate(files, f"`get -r` of {what}", get, get_peers),
        _beside_library(files, f"`get -r` of {what}", get, get_library),
        _memory(f"`get -r` of {what}", get, get_peers),
    ]  # fmt: skip


def lists(stage: Stage, files: Files, number: int) -> list[Result]:
    """List and search all containers: so many, and a few of another type. Peers list the small files."""
    library, command = stage.library, stage.command
    typed = Files("typed", "", _TYPED, 100, "/s").make(stage.folder)
    library.transfer(script("put-many", typed, _TYPE), typed)
    command.transfer(scbroker("put", "--recursive", "--type", _TYPE, typed), typed)
    middle = files.number // 2
    file = f"{middle % _FOLDERS}/{middle}.bin"
    name, source = f"{files.name}/{file}", stage.folder / files.name
    jobs: list[tuple[str, Command, Command, Callable[[Peer], Done | None] | None]] = [
        ("a list, by a device that has read none", script("list"), scbroker("ls"),
         lambda peer: peer.ls(source, first=True)),
        ("a list again", script("list"), scbroker("ls"),
         lambda peer: peer.ls(source, first=False)),
        ("a search by name, 1 found", script("find", name), scbroker("ls", name),
         lambda peer: peer.find(source, Path(file).name)),
        (f"a search by type, {_TYPED} found", script("list-type", _TYPE),
         scbroker("ls", "--type", _TYPE), None),
    ]  # fmt: skip
    found = []
    for job, by_library, by_command, by_peer in jobs:
        job = f"{job}, of {number + _TYPED:,}"
        peers = {} if by_peer is None else _without_age(stage.each_peer(by_peer))
        seconds = {name: None if done is None else done.seconds for name, done in peers.items()}
        for how, user, program in (("library", library, by_library), ("`ls`", command, by_command)):
            taken = user.read(program).seconds
            found.append(amount(f"{how}: {job}", taken, "s", peers=seconds))
    return found


def against_peers(job: str, figure: float, unit: str, peers: Mapping[str, float | None]) -> Result:
    """Return a rate whose floor is the faster of the peers that have a server."""
    servers = {
        name: found for name, found in peers.items() if found is not None and name != AgePlusCp.name
    }
    if not servers:
        missing = "not installed: " + ", ".join(name for name in peers if name != AgePlusCp.name)
        return Result(
            job, figure, unit, None, missing, None, f">= {_AS_FAST:.2g}x", peers=dict(peers)
        )
    fastest = max(servers, key=servers.__getitem__)
    return rate(job, figure, unit, servers[fastest], fastest, ratio_at_least=_AS_FAST, peers=peers)


def _rate(files: Files, job: str, own: Done, peers: Mapping[str, Done | None]) -> Result:
    return against_peers(job, files.rate(own), files.unit, _rates(files, peers))


def _again(job: str, number: int, own: Done, peers: Mapping[str, Done | None]) -> Result:
    """Return the rate of files: no megabytes are moved."""
    others = {
        name: None if done is None else number / done.seconds
        for name, done in _without_age(peers).items()
    }
    return rate(job, number / own.seconds, "/s", peers=others)


def _beside_library(files: Files, job: str, own: Done, library: Done) -> Result:
    return rate(
        f"{job}, beside the library", files.rate(own), files.unit, files.rate(library),
        "a plain script with the library", ratio_at_least=_AS_FAST_AS_LIBRARY,
    )  # fmt: skip


def _memory(job: str, own: Done, peers: Mapping[str, Done | None]) -> Result:
    found = {
        name: None if done is None else done.memory for name, done in _without_age(peers).items()
    }
    return amount(f"{job}: peak of memory", own.memory, "MiB", MEMORY_MIB, peers=found)


def _rates(files: Files, peers: Mapping[str, Done | None]) -> dict[str, float | None]:
    return {name: None if done is None else files.rate(done) for name, done in peers.items()}


def _without_age(peers: Mapping[str, Done | None]) -> dict[str, Done | None]:
    """Leave out age: it has no store that could be compared or searched, and one process for each file."""
    return {name: done for name, done in peers.items() if name != AgePlusCp.name}


def _got(peer: Peer, source: Path) -> Done:
    done, target = peer.get(source)
    _check_and_remove(source, target)
    return done


def _check_and_remove(source: Path, copy: Path) -> None:
    check_same(source, copy)
    shutil.rmtree(copy)
