"""Measure `put` and `get` beside a plain script with the library, and beside rclone crypt over WebDAV.

All are processes of their own whose start is part of the time. rclone encrypts on the client as well; its
server is `rclone serve webdav` on a folder, which neither signs nor syncs.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.memory import Peak
from benchmarks.result import Result, amount, rate
from scbroker.crypto.seal import random_bytes
from tests.kit.brokers import BrokerProcess
from tests.kit.people import Person

MIB: Final = 1024 * 1024
_MB: Final = 1_000_000
_FILES, _QUICK_FILES = 10_000, 500
_FILE: Final = 4096
_FOLDERS: Final = 100
_LARGE, _QUICK_LARGE = 4096 * MIB, 256 * MIB
_COPIES: Final = 5
"""The file, the broker's copy, what was got, and the same two of rclone, which are there at the same time."""
_AS_FAST: Final = 0.9
_MEMORY_MIB: Final = 300
_START_SECONDS: Final = 20.0
_POLL: Final = 0.02
_RCLONE: Final = "rclone"


class Done(NamedTuple):
    """The seconds of a process, and its peak of memory in MiB."""

    seconds: float
    memory: float | None


class Stage:
    """A broker, a user with a home folder of their own, and rclone's server."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._broker = stack.enter_context(BrokerProcess(folder / "broker"))
        self._settings: dict[str, str] = {}
        if shutil.which(_RCLONE):
            self._settings = _rclone_settings(stack.enter_context(_web_dav(folder / "webdav")))
        self.new_user("many")

    def new_user(self, name: str) -> None:
        """Go on as another user, who has no containers."""
        person = Person(self.folder / name, self._broker)
        person.join(name)
        self.home, self._environment = person.home, person.environment | self._settings

    def command(self, *options: str | Path) -> Done:
        """Run `scbroker` in the home folder."""
        code = "from scbroker.cli import main; main()"
        return self._timed([sys.executable, "-c", code, *map(str, options), "--quiet"])

    def script(self, job: str, source: str | Path, target: str | Path = "") -> Done:
        """Run the plain script in the home folder."""
        program = str(Path(__file__).with_name("command_line_script.py"))
        return self._timed([sys.executable, program, job, str(source), str(target)])

    def rclone(self, *options: str | Path) -> Done | None:
        """Run rclone in the home folder; None without it."""
        if not shutil.which(_RCLONE):
            return None
        return self._timed([_RCLONE, *map(str, options)])

    def _timed(self, command: Sequence[str]) -> Done:
        memory: float | None = None
        began = time.perf_counter()
        with subprocess.Popen(
            command, env=self._environment, cwd=self.home, stdout=subprocess.DEVNULL
        ) as process:
            peak = Peak(process.pid)
            while process.poll() is None:
                memory = peak.highest() or memory
                time.sleep(_POLL)
        if process.returncode:
            raise RuntimeError(f"{command[:4]} failed: see its output above.")
        return Done(time.perf_counter() - began, memory)


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run each job once on SQLite; `rclone` and room on the disk are needed for parts of it."""
    count, large = (_QUICK_FILES, _QUICK_LARGE) if quick else (_FILES, _LARGE)
    with ExitStack() as stack:
        stage = Stage(folder, stack)
        found = _many(stage, count)
        free = shutil.disk_usage(folder).free
        if free > _COPIES * large:
            return [*found, *_one(stage, large)]
        missing = f"needs {_COPIES * large // MIB} MiB of disk, and {free // MIB} are free"
        return [*found, Result(f"one file of {large // MIB} MiB", None, "MB/s", floor_is=missing)]


def _many(stage: Stage, count: int) -> list[Result]:
    """Measure a folder of small files."""
    home = stage.home
    for name in ("cli", "script"):
        for number in range(count):
            file = home / name / f"{number % _FOLDERS}" / f"{number}.bin"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(random_bytes(_FILE))
    put = stage.command("put", "--recursive", "cli")
    again = stage.command("put", "--recursive", "cli")
    put_script = stage.script("put-many", "script")
    put_rclone = stage.rclone("copy", "cli", "bench:cli")
    get = stage.command("get", "--recursive", "cli/", "--output", "got")
    get_script = stage.script("get-many", "script/", "got")
    get_rclone = stage.rclone("copy", "bench:cli", "got-rclone")
    _check_same(home / "cli", home / "got" / "cli")
    what = f"of {count:,} files of {_FILE // 1024} KiB"

    def each_second(done: Done) -> float:
        return count / done.seconds

    return [
        *_beside(f"`put -r` {what}", "/s", each_second, put, put_script, put_rclone),
        rate(f"`put -r` {what} again, all unchanged", each_second(again), "/s"),
        *_beside(f"`get -r` {what}", "/s", each_second, get, get_script, get_rclone),
    ]


def _one(stage: Stage, size: int) -> list[Result]:
    """Measure one large file."""
    stage.new_user("one")
    home = stage.home
    with (home / "large").open("wb") as file:
        for _ in range(size // MIB):
            file.write(random_bytes(MIB))
    (home / "again").hardlink_to(home / "large")
    put = stage.command("put", "large")
    get = stage.command("get", "large", "--output", "got-large")
    _check_same_file(home / "large", home / "got-large")
    (home / "got-large").unlink()
    stage.command("rm", "large", "--yes")
    put_rclone = stage.rclone("copy", "large", "bench:large")
    get_rclone = stage.rclone("copy", "bench:large", "got-large")
    shutil.rmtree(home / "got-large", ignore_errors=True)
    shutil.rmtree(stage.folder / "webdav", ignore_errors=True)
    put_script = stage.script("put-one", "again")
    get_script = stage.script("get-one", "again", "got-again")
    what = f"of one file of {size // MIB:,} MiB"

    def each_second(done: Done) -> float:
        return size / _MB / done.seconds

    return [
        *_beside(f"`put` {what}", "MB/s", each_second, put, put_script, put_rclone),
        *_beside(f"`get` {what}", "MB/s", each_second, get, get_script, get_rclone),
    ]


def _beside(
    job: str,
    unit: str,
    each_second: Callable[[Done], float],
    own: Done,
    script: Done,
    rclone: Done | None,
) -> list[Result]:
    speed = each_second(own)
    floor_is = "a plain script with the library"
    found = [rate(job, speed, unit, each_second(script), floor_is, ratio_at_least=_AS_FAST)]
    if rclone is None:
        found.append(
            Result(f"{job}, beside rclone", None, unit, floor_is="rclone is not installed")
        )
    else:
        found.append(
            rate(f"{job}, beside rclone", speed, unit, each_second(rclone), "rclone crypt")
        )
    peak = None if rclone is None else rclone.memory
    found.append(
        amount(f"{job}: peak of memory", own.memory, "MiB", _MEMORY_MIB, peak, "rclone crypt")
    )
    return found


def _check_same(one: Path, other: Path) -> None:
    for file in one.rglob("*.bin"):
        _check_same_file(file, other / file.relative_to(one))


def _check_same_file(one: Path, other: Path) -> None:
    with one.open("rb") as left, other.open("rb") as right:
        while piece := left.read(MIB):
            if piece != right.read(MIB):
                raise RuntimeError(f"{other} differs from {one}.")


@contextmanager
def _web_dav(folder: Path) -> Iterator[int]:
    """Serve a folder by WebDAV; yield the port."""
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    command = [_RCLONE, "serve", "webdav", str(folder), "--addr", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(port)
            yield port
        finally:
            server.send_signal(signal.SIGTERM)


def _wait_for(port: int) -> None:
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(_POLL)


def _rclone_settings(port: int) -> dict[str, str]:
    """Return rclone's variables for a remote `bench:` that encrypts what it sends to the server."""
    obscured = subprocess.run(
        [_RCLONE, "obscure", "correct Horse 7"], check=True, capture_output=True, text=True
    )
    return {
        "RCLONE_CONFIG": os.devnull,
        "RCLONE_CONFIG_DAV_TYPE": "webdav",
        "RCLONE_CONFIG_DAV_URL": f"http://127.0.0.1:{port}",
        "RCLONE_CONFIG_DAV_VENDOR": "other",
        "RCLONE_CONFIG_BENCH_TYPE": "crypt",
        "RCLONE_CONFIG_BENCH_REMOTE": "dav:",
        "RCLONE_CONFIG_BENCH_PASSWORD": obscured.stdout.strip(),
    }
