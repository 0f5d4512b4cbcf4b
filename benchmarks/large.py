"""Measure large contents: upload, download, random access, and the resumption of an upload.

Each transfer runs in a client process of its own (`large_client`); time is taken from its log-in on. The
floors move the same bytes to and from `floor_server`, in blocks of a chunk's size, as many at a time, and do
the same work of the disk: read the file, write and sync each chunk, or write and sync the file.
"""

import statistics
import subprocess
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from benchmarks import floors, large_store
from benchmarks.floors import FloorServer
from benchmarks.large_client import Done
from benchmarks.large_stage import AT_ONCE, CHUNK, MIB, PATIENCE, Stage, finished, is_same
from benchmarks.memory import reuse_memory
from benchmarks.result import Result, amount, cost, interleaved, rate, seconds_of, share
from benchmarks.small import traffic

_MB: Final = 1_000_000
_SIZE: Final = 1024 * MIB
_QUICK: Final = 128 * MIB
_ON_S3: Final = 512 * MIB
"""The object store keeps three copies, and the floor's, in memory."""
_CONTENTS: Final = (1, 4, 16)
"""Numbers of contents that are moved at once. Together they always have the same size."""
_RATIO: Final = 0.85
_RANGE: Final = 2.5
_FIRST_BYTE: Final = 3.0
_UPLOAD: Final = "createContainer"
_DOWNLOAD: Final = "saveContainerContent"
_ROUNDS: Final = 3
_MEMORY_MIB: Final = 200
_PIECES: Final = 20
"""Ranges in each of the rounds."""
_KILLED_AT: Final = 0.6


@dataclass
class Figures:
    """The seconds and the memory in MiB of all rounds."""

    raw_upload: list[float] = field(default_factory=list)
    raw_download: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)
    stored: list[float] = field(default_factory=list)
    uploads: dict[int, list[float]] = field(default_factory=dict)
    """By the number of contents at once."""
    downloads: dict[int, list[float]] = field(default_factory=dict)
    memory: dict[str, list[float | None]] = field(default_factory=dict)


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run on SQLite."""
    with ExitStack() as stack:
        stage = Stage(folder, _QUICK if quick else _SIZE, stack)
        server = stack.enter_context(FloorServer())
        figures = Figures()
        containers: list[uuid.UUID] = []
        for _ in range(_ROUNDS):
            _floors(stage, server, figures)
            for number in _CONTENTS:
                containers += _round(stage, figures, number)
        return [
            *_rates(stage.size, figures),
            *_alone(),
            *_memory(figures),
            *_piece(stage, server, containers[0]),
            _resumed(stage),
            *large_store.run(folder / "store", _QUICK if quick else _ON_S3),
        ]


def _floors(stage: Stage, server: FloorServer, figures: Figures) -> None:
    """Measure each floor once: the same bytes over HTTP, and the same work of the disk."""
    blocks = stage.size // CHUNK
    [file] = stage.files(1)
    figures.read.append(floors.read(file, MIB))
    figures.raw_upload.append(seconds_of(server.transfer(blocks, AT_ONCE, sent=CHUNK)))
    reuse_memory(stage.folder, stage.size)
    figures.stored.append(floors.stored(stage.folder, CHUNK, blocks))
    figures.raw_download.append(seconds_of(server.transfer(blocks, AT_ONCE, received=CHUNK)))
    reuse_memory(stage.folder, stage.size)
    figures.written.append(floors.written(stage.folder, CHUNK, blocks))


def _round(stage: Stage, figures: Figures, number: int) -> list[uuid.UUID]:
    """Upload and download this number of contents at once; return the containers."""
    files = stage.files(number)
    reuse_memory(stage.folder, stage.size)
    made = _measured(stage, stage.create(stage.new_store(), files), _job(_UPLOAD, number), figures)
    figures.uploads.setdefault(number, []).append(made.seconds)
    copies = [file.with_suffix(".copy") for file in files]
    reuse_memory(stage.folder, stage.size)
    saving = stage.save(made.containers, copies)
    saved = _measured(stage, saving, _job(_DOWNLOAD, number), figures)
    figures.downloads.setdefault(number, []).append(saved.seconds)
    for file, copy in zip(files, copies, strict=True):
        if not is_same(file, copy):
            raise RuntimeError("The downloaded bytes differ from the uploaded ones.")
        copy.unlink()
    return made.containers


def _job(name: str, number: int) -> str:
    return name if number == 1 else f"{name}, {number} at once"


def _measured(stage: Stage, client: subprocess.Popen[str], job: str, figures: Figures) -> Done:
    broker = stage.broker_memory
    broker.begin()
    done = finished(client)
    figures.memory.setdefault(f"{job}: client", []).append(done.memory)
    figures.memory.setdefault(f"{job}: broker", []).append(broker.above())
    return done


def _rates(size: int, figures: Figures) -> list[Result]:
    def each_second(*seconds: list[float]) -> float:
        return size / _MB / sum(statistics.median(each) for each in seconds)

    up = each_second(figures.read, figures.raw_upload, figures.stored)
    down = each_second(figures.raw_download, figures.written)
    found = []
    for number in _CONTENTS:
        each = f"{size // MIB // number} MiB"
        name = f"a file of {each}" if number == 1 else f"{number} files of {each} at once"
        found += [
            rate(
                f"createContainer of {name}", each_second(figures.uploads[number]),
                "MB/s", up, "reading, then raw HTTP, then writing and syncing chunks",
                ratio_at_least=_RATIO,
            ),
            rate(
                f"saveContainerContent to {name}",
                each_second(figures.downloads[number]), "MB/s", down,
                "raw HTTP, then writing and syncing", ratio_at_least=_RATIO,
            ),
        ]  # fmt: skip
    return [
        *found,
        rate("raw HTTP upload alone", each_second(figures.raw_upload), "MB/s"),
        rate("raw HTTP download alone", each_second(figures.raw_download), "MB/s"),
        rate("reading a file alone", each_second(figures.read), "MB/s"),
        rate("writing and syncing chunks alone", each_second(figures.stored), "MB/s"),
        rate("writing and syncing one file alone", each_second(figures.written), "MB/s"),
    ]


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


def _piece(stage: Stage, server: FloorServer, container: uuid.UUID) -> list[Result]:
    """Measure reading 1 MiB at offsets all over the content, not aligned to segments."""
    total = stage.size - MIB
    offsets = (int(total * (number * 0.618034 % 1)) for number in count(1))

    def opened() -> Any:
        return stage.own.openContainerContent(container).result(PATIENCE)

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

    def first_byte() -> None:
        with opened() as reader:
            reader.seek(next(offsets))
            assert reader.read(1)

    with opened() as reader:
        found = []
        for name, job, at_most in (
            ("opening, then reading 1 byte at any offset", first_byte, _FIRST_BYTE),
            ("opening, then reading 1 MiB at any offset", both, None),
            ("reading 1 MiB at any offset, opened before", lambda: read(reader), _RANGE),
        ):
            with traffic() as counted:
                job()
            exchange = server.http(0, counted.received)
            seconds, floor = interleaved([job, exchange], _PIECES)
            floor_is = f"one HTTP exchange of {counted.received:,} bytes"
            of = f"{name} of {stage.size // MIB} MiB"
            found.append(cost(of, seconds, floor, floor_is, at_most))
            received = counted.received / MIB
            found.append(amount(f"{name}: received", received, "MiB"))
    return found


def _resumed(stage: Stage) -> Result:
    """Kill an upload, resume it, and compare the bytes sent then with those that had not arrived."""
    store, files, arrived = stage.new_store(), stage.files(1), 0
    with stage.create(store, files) as client:
        assert client.stdout is not None
        for line in client.stdout:
            arrived = int(line)
            if arrived >= _KILLED_AT * stage.size:
                client.kill()
                break
    again = finished(stage.create(store, files))
    return share(
        f"sent again after SIGKILL at {_KILLED_AT:.0%} of the upload", again.sent / MIB, "MiB",
        (stage.size - arrived) / MIB, "what had not arrived when it was killed", 1.05,
    )  # fmt: skip
