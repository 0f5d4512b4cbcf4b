"""Measure large contents: upload, download, random access, and the resumption of an upload.

Each transfer runs in a client process of its own (`large_client`); time is taken from its log-in on. The
floors move the same bytes to and from `floor_server`, in blocks of a chunk's size, as many at a time.
"""

import statistics
import subprocess
import sys
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks import floors
from benchmarks.floors import FloorServer
from benchmarks.large_client import PASSPHRASE, PASSWORD, Done, Task
from benchmarks.memory import Peak
from benchmarks.result import Result, amount, cost, interleaved, rate, seconds_of, share
from benchmarks.small import traffic
from scbroker import FileTrustStore, ServerProvider
from scbroker.crypto.seal import random_bytes
from tests.kit.brokers import BrokerProcess

MIB: Final = 1024 * 1024
_MB: Final = 1_000_000
_SIZE: Final = 1024 * MIB
_QUICK: Final = 128 * MIB
_CHUNK: Final = 8 * MIB
_AT_ONCE: Final = 3
_ROUNDS: Final = 3
_MEMORY_MIB: Final = 200
_KILLED_AT: Final = 0.6
_PATIENCE: Final = 3600.0


@dataclass
class Figures:
    """The seconds and the memory in MiB of all rounds."""

    upload: list[float] = field(default_factory=list)
    download: list[float] = field(default_factory=list)
    raw_upload: list[float] = field(default_factory=list)
    raw_download: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)
    memory: dict[str, list[float | None]] = field(default_factory=dict)


class Stage:
    """A broker, a floor server, a user, and a file of random bytes."""

    def __init__(self, folder: Path, size: int, stack: ExitStack) -> None:
        self.folder, self.size = folder, size
        self.broker = stack.enter_context(BrokerProcess(folder / "broker"))
        self.broker_memory = Peak(self.broker.pid)
        self.server = stack.enter_context(FloorServer())
        store = FileTrustStore(folder / "own")
        self.own: Any = stack.enter_context(
            ServerProvider(self.broker.api_key, self.broker.url, "bench", trustStore=store)
        )
        self.own.register(PASSWORD, PASSPHRASE).result(_PATIENCE)
        self.user: uuid.UUID = self.own.getUserId().result(_PATIENCE)
        self.file, self.copy = folder / "content", folder / "copy"
        with self.file.open("wb") as file:
            for _ in range(size // MIB):
                file.write(random_bytes(MIB))
        self._numbers = count()

    def new_store(self) -> Path:
        """Return the folder of a new device."""
        return self.folder / f"device-{next(self._numbers)}"

    def create(self, store: Path) -> subprocess.Popen[str]:
        return self._client(self._task("create", store, self.file))

    def save(self, container: uuid.UUID) -> subprocess.Popen[str]:
        self.copy.unlink(missing_ok=True)
        return self._client(self._task("save", self.new_store(), self.copy, container))

    def _task(self, job: Any, store: Path, path: Path, container: Any = None) -> Task:
        broker = self.broker
        return Task(job, broker.url, broker.api_key, self.user, str(store), str(path), container)

    @staticmethod
    def _client(task: Task) -> subprocess.Popen[str]:
        text = msgspec.json.encode(task).decode()
        command = [sys.executable, "-m", "benchmarks.large_client", text]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run on SQLite."""
    with ExitStack() as stack:
        stage = Stage(folder, _QUICK if quick else _SIZE, stack)
        figures = Figures()
        containers = [_round(stage, figures) for _ in range(_ROUNDS)]
        return [
            *_rates(stage.size, figures),
            *_alone(),
            *_memory(figures),
            *_piece(stage, containers[-1]),
            _resumed(stage),
        ]


def _round(stage: Stage, figures: Figures) -> uuid.UUID:
    """Measure each transfer once, and each floor before it; return the container."""
    pieces, server = stage.size // _CHUNK, stage.server
    write = floors.written(stage.folder, _CHUNK, pieces)
    figures.raw_upload.append(seconds_of(server.transfer(pieces, _AT_ONCE, sent=_CHUNK)))
    figures.written.append(seconds_of(write))
    done = _measured(stage, stage.create(stage.new_store()), "createContainer", figures)
    figures.upload.append(done.seconds)
    figures.raw_download.append(seconds_of(server.transfer(pieces, _AT_ONCE, received=_CHUNK)))
    saved = _measured(stage, stage.save(done.container), "saveContainerContent", figures)
    figures.download.append(saved.seconds)
    if not _same(stage.file, stage.copy):
        raise RuntimeError("The downloaded bytes differ from the uploaded ones.")
    return done.container


def _measured(stage: Stage, client: subprocess.Popen[str], job: str, figures: Figures) -> Done:
    broker = stage.broker_memory
    broker.begin()
    done = _finished(client)
    figures.memory.setdefault(f"{job}: client", []).append(done.memory)
    figures.memory.setdefault(f"{job}: broker", []).append(broker.above())
    return done


def _finished(client: subprocess.Popen[str]) -> Done:
    with client:
        output, _ = client.communicate(timeout=_PATIENCE)
    if client.returncode:
        raise RuntimeError("The client process failed: see its output above.")
    return msgspec.json.decode(output.splitlines()[-1], type=Done)


def _same(one: Path, other: Path) -> bool:
    with one.open("rb") as left, other.open("rb") as right:
        while piece := left.read(MIB):
            if piece != right.read(MIB):
                return False
        return not right.read(1)


def _rates(size: int, figures: Figures) -> list[Result]:
    def each_second(*seconds: list[float]) -> float:
        return size / _MB / sum(statistics.median(each) for each in seconds)

    name = f"{size // MIB} MiB"
    raw_down = each_second(figures.raw_download)
    return [
        rate(
            f"createContainer of a file of {name}", each_second(figures.upload), "MB/s",
            each_second(figures.raw_upload, figures.written),
            "raw HTTP, then writing and syncing", ratio_at_least=0.5,
        ),
        rate(
            f"saveContainerContent of {name} to a file", each_second(figures.download), "MB/s",
            raw_down, "raw HTTP, nothing written", ratio_at_least=0.6,
        ),
        rate("raw HTTP upload alone", each_second(figures.raw_upload), "MB/s"),
        rate("writing and syncing alone", each_second(figures.written), "MB/s"),
        rate(
            "raw HTTP download, then writing and syncing",
            each_second(figures.raw_download, figures.written), "MB/s",
        ),
    ]  # fmt: skip


def _alone() -> list[Result]:
    jobs = {
        "SHA-256 alone": floors.hashing(MIB),
        "Cobblestone alone, sealing segments of 1 MiB": floors.sealing(MIB),
        "Cobblestone alone, unsealing segments of 1 MiB": floors.unsealing(MIB),
    }
    seconds = interleaved(list(jobs.values()), 32)
    return [rate(name, MIB / _MB / each, "MB/s") for name, each in zip(jobs, seconds, strict=True)]


def _memory(figures: Figures) -> list[Result]:
    found = []
    for name, peaks in figures.memory.items():
        known = [peak for peak in peaks if peak is not None]
        job = f"peak of memory above the start, {name}"
        found.append(amount(job, max(known, default=None), "MiB", _MEMORY_MIB))
    return found


def _piece(stage: Stage, container: uuid.UUID) -> list[Result]:
    """Measure reading 1 MiB at offsets all over the content, not aligned to segments."""
    total = stage.size - MIB
    offsets = (int(total * (number * 0.618034 % 1)) for number in count(1))

    def opened() -> Any:
        return stage.own.openContainerContent(container).result(_PATIENCE)

    def read(reader: Any) -> None:
        reader.seek(next(offsets))
        left = MIB
        while left:  # a raw file may return less than asked for
            piece = reader.read(left)
            assert piece
            left -= len(piece)

    def both() -> None:
        with opened() as reader:
            read(reader)

    with opened() as reader:
        found = []
        for name, job in (
            ("opening, then reading 1 MiB at any offset", both),
            ("reading 1 MiB at any offset, opened before", lambda: read(reader)),
        ):
            with traffic() as counted:
                job()
            exchange = stage.server.http(0, counted.received)
            seconds, floor = interleaved([job, exchange], 5)
            floor_is = f"one HTTP exchange of {counted.received:,} bytes"
            found.append(cost(f"{name} of {stage.size // MIB} MiB", seconds, floor, floor_is))
            received = counted.received / MIB
            found.append(amount(f"{name}: received", received, "MiB", floor=1, floor_is="1 MiB"))
    return found


def _resumed(stage: Stage) -> Result:
    """Kill an upload, resume it, and compare the bytes sent then with those that had not arrived."""
    store, arrived = stage.new_store(), 0
    with stage.create(store) as client:
        assert client.stdout is not None
        for line in client.stdout:
            arrived = int(line)
            if arrived >= _KILLED_AT * stage.size:
                client.kill()
                break
    again = _finished(stage.create(store))
    return share(
        f"sent again after SIGKILL at {_KILLED_AT:.0%} of the upload", again.sent / MIB, "MiB",
        (stage.size - arrived) / MIB, "what had not arrived when it was killed", 1.05,
    )  # fmt: skip
