"""Run other programs at the jobs of `bulk` and `command_line`: rclone crypt, restic, and age plus cp.

All encrypt on the client. Their servers run on this machine, keep files in a folder, and sync nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from benchmarks.memory import Peak, reuse_memory

_START_SECONDS: Final = 20.0
_POLL: Final = 0.02
_PASSWORD: Final = "correct Horse 7"  # of a store that lives as long as the measurement
Command = Sequence[str | Path]


class Done(NamedTuple):
    """The seconds of a process, and its peak of memory in MiB."""

    seconds: float
    memory: float | None


def timed(
    command: Command,
    environment: Mapping[str, str],
    folder: Path,
    *,
    moved: Path | None = None,
    sync: bool = False,
) -> Done:
    """Run a program to its end in a folder, after everything written before has reached the disk.

    `moved` is the file or folder that the program stores or gets, if any. `reuse_memory` prepares as much
    memory twice, for the program and its server. With `sync` the time ends when the disk has everything that
    both wrote; otherwise a program whose server syncs nothing would seem faster than it is.
    """
    if moved is not None:
        reuse_memory(folder, 2 * _size_of(moved))
    os.sync()
    memory: float | None = None
    began = time.perf_counter()
    with subprocess.Popen(
        [str(each) for each in command],
        env=dict(environment),
        cwd=folder,
        stdout=subprocess.DEVNULL,
    ) as process:
        peak = Peak(process.pid)
        while process.poll() is None:
            memory = peak.highest() or memory
            time.sleep(_POLL)
    if process.returncode:
        raise RuntimeError(f"{[str(each) for each in command[:4]]} failed: see its output above.")
    if sync:
        os.sync()
    return Done(time.perf_counter() - began, memory)


def _size_of(moved: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    return sum(each.stat().st_size for each in (moved, *moved.rglob("*")) if each.is_file())


class Peer(ABC):
    """Another program with a server of its own, if it has one, and a folder to work in."""

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        folder.mkdir()
        self.folder = folder
        self.variables: dict[str, str] = {}
        self._start(stack)

    @classmethod
    def is_installed(cls) -> bool:
        return all(map(shutil.which, cls.programs))

    @abstractmethod
    def put(self, source: Path) -> Done:
        """Store a folder."""

    @abstractmethod
    def get(self, source: Path) -> tuple[Done, Path]:
        """Get what `put` stored of a folder; return where it is now as well."""

    def ls(self, source: Path, *, first: bool) -> Done | None:
        """List the stored files of a folder, at first without a cache; None if the program cannot."""
        del source, first
        return None

    def find(self, source: Path, name: str) -> Done | None:
        """Find a file by its name; None if the program cannot."""
        del source, name
        return None

    @abstractmethod
    def _start(self, stack: ExitStack) -> None:
        """Start the server, and make keys and an empty store."""

    def _run(self, *command: str | Path, moved: Path | None = None, sync: bool = False) -> Done:
        return timed(command, self._environment(), self.folder, moved=moved, sync=sync)

    def _environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            **self.variables,
        }


class RcloneCrypt(Peer):
    """rclone, which encrypts each file and its name, over WebDAV."""

    name = "rclone crypt"
    programs = ("rclone",)

    def put(self, source: Path) -> Done:
        return self._run("rclone", "copy", source, f"bench:{source.name}", moved=source, sync=True)

    def get(self, source: Path) -> tuple[Done, Path]:
        target = self.folder / "got" / source.name
        done = self._run("rclone", "copy", f"bench:{source.name}", target, moved=source, sync=True)
        return done, target

    def put_one(self, file: Path) -> Done:
        """Store a file."""
        return self._run("rclone", "copy", file, "bench:one", moved=file)

    def get_one(self, file: Path) -> tuple[Done, Path]:
        """Get what `put_one` stored; return where it is now as well."""
        target = self.folder / "got"
        done = self._run("rclone", "copy", f"bench:one/{file.name}", target, moved=file)
        return done, target / file.name

    def ls(self, source: Path, *, first: bool) -> Done:
        del first  # it keeps no cache
        return self._run("rclone", "lsf", "--recursive", f"bench:{source.name}")

    def find(self, source: Path, name: str) -> Done:
        return self._run("rclone", "lsf", "--recursive", "--include", name, f"bench:{source.name}")

    def _start(self, stack: ExitStack) -> None:
        port = stack.enter_context(_served(self.folder / "server", "webdav"))
        obscured = subprocess.run(
            ["rclone", "obscure", _PASSWORD], check=True, capture_output=True, text=True
        )
        self.variables = {
            "RCLONE_CONFIG": os.devnull,
            "RCLONE_CONFIG_DAV_TYPE": "webdav",
            "RCLONE_CONFIG_DAV_URL": f"http://127.0.0.1:{port}",
            "RCLONE_CONFIG_DAV_VENDOR": "other",
            "RCLONE_CONFIG_BENCH_TYPE": "crypt",
            "RCLONE_CONFIG_BENCH_REMOTE": "dav:",
            "RCLONE_CONFIG_BENCH_PASSWORD": obscured.stdout.strip(),
        }


class Restic(Peer):
    """restic, which packs files into archives, over its REST protocol as rclone serves it."""

    name = "restic"
    programs = ("restic", "rclone")

    def put(self, source: Path) -> Done:
        return self._run("restic", "backup", "--quiet", source, moved=source, sync=True)

    def get(self, source: Path) -> tuple[Done, Path]:
        target = self.folder / "got"
        done = self._run(
            "restic",
            "restore",
            "latest",
            "--quiet",
            "--path",
            source,
            "--target",
            target,
            moved=source,
            sync=True,
        )
        return done, target / source.relative_to("/")

    def ls(self, source: Path, *, first: bool) -> Done:
        cache = ["--no-cache"] if first else []
        return self._run("restic", "ls", "--quiet", *cache, "--path", source, "latest")

    def find(self, source: Path, name: str) -> Done:
        return self._run("restic", "find", "--quiet", "--path", source, name)

    def _start(self, stack: ExitStack) -> None:
        port = stack.enter_context(_served(self.folder / "server", "restic"))
        self.variables = {
            "RESTIC_REPOSITORY": f"rest:http://127.0.0.1:{port}/",
            "RESTIC_PASSWORD": _PASSWORD,
            "RESTIC_CACHE_DIR": str(self.folder / "cache"),
        }
        self._run("restic", "init", "--quiet")


class AgePlusCp(Peer):
    """age for each file, and cp in place of a server: the least that encrypting and moving files takes."""

    name = "age plus cp"
    programs = ("age", "age-keygen")

    def put(self, source: Path) -> Done:
        return self._sh(
            'cd "$1/.." && find "$2" -type d -exec mkdir -p "$3/sealed/{}" \\;'
            ' && find "$2" -type f -exec age -R "$3/recipient" -o "$3/sealed/{}" {} \\;'
            ' && cp -r "$3/sealed/$2" "$3/server/"',
            source,
        )

    def get(self, source: Path) -> tuple[Done, Path]:
        done = self._sh(
            'cp -r "$3/server/$2" "$3/fetched/" && cd "$3/fetched"'
            ' && find "$2" -type d -exec mkdir -p "$3/got/{}" \\;'
            ' && find "$2" -type f -exec age -d -i "$3/key" -o "$3/got/{}" {} \\;',
            source,
        )
        return done, self.folder / "got" / source.name

    def _sh(self, script: str, source: Path) -> Done:
        command = ("sh", "-c", script, "sh", source, source.name, self.folder)
        return self._run(*command, moved=source, sync=True)

    def _start(self, stack: ExitStack) -> None:
        del stack
        for each in ("server", "fetched"):
            (self.folder / each).mkdir()
        key = self.folder / "key"
        subprocess.run(["age-keygen", "-o", str(key)], check=True, capture_output=True)
        done = subprocess.run(["age-keygen", "-y", str(key)], check=True, capture_output=True)
        (self.folder / "recipient").write_bytes(done.stdout)


PEERS: Final[tuple[type[Peer], ...]] = (RcloneCrypt, Restic, AgePlusCp)


def scbroker(*options: str | Path) -> Command:
    """Return the command that runs `scbroker`."""
    return [sys.executable, "-c", "from scbroker.cli import main; main()", *options, "--quiet"]


def script(*options: str | Path) -> Command:
    """Return the command that runs the plain script with the library."""
    return [sys.executable, Path(__file__).with_name("command_line_script.py"), *options]


def check_same(one: Path, other: Path) -> None:
    """Raise unless a folder, or a file, has the same contents as another."""
    files = [one] if one.is_file() else [each for each in one.rglob("*") if each.is_file()]
    for file in files:
        copy = other / file.relative_to(one) if one.is_dir() else other
        with file.open("rb") as left, copy.open("rb") as right:
            while piece := left.read(2**20):
                if piece != right.read(2**20):
                    raise RuntimeError(f"{copy} differs from {file}.")


@contextmanager
def _served(folder: Path, protocol: str) -> Iterator[int]:
    """Let rclone serve a folder; yield the port."""
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    command = ["rclone", "serve", protocol, str(folder), "--addr", f"127.0.0.1:{port}"]
    environment = {**os.environ, "RCLONE_CONFIG": os.devnull}
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment) as server:
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
