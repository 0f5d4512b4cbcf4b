"""Processes of `scbroker` that start in a moment: forked from one that has imported everything.

Of the second that a start takes, nearly all is Python reading modules, and a test run starts hundreds.
What runs in the fork is the command, all of it, with nothing shared but what was imported. Argon2id alone
costs nothing there, as in the process of the tests.

    python -m tests.kit.nursery FD

is the process that forks. It ends with the test runner, and its brokers with it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import io
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any, Final, cast

import pexpect

from tests.kit import clocks

_ROOT: Final = str(Path(__file__).parents[2])
_SCBROKER: Final = (
    "import sys, scbroker; sys.argv[0] = scbroker.__name__; from scbroker.cli import main; main()"
)
_CHEAP: Final = "from tests.kit.nursery import make_argon2id_cheap; make_argon2id_cheap()"
_LONGEST: Final = 262_144
_ERRORS: Final = "surrogateescape"


class Forked:
    """A process of the nursery, with what `subprocess.Popen` has and brokers need."""

    def __init__(self, nursery: Nursery, pid: int, stdout: IO[str] | None = None) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._nursery = nursery
        self._pidfd = os.pidfd_open(pid)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            ended, _, _ = select.select([self._pidfd], [], [], timeout)
            if not ended:
                raise subprocess.TimeoutExpired("scbroker", timeout or 0.0)
            self.returncode = self._nursery.reap(self.pid)
            os.close(self._pidfd)
        return self.returncode


if TYPE_CHECKING:
    _Spawn = pexpect.spawn[str]
else:
    _Spawn = pexpect.spawn


class ForkedTerminal(_Spawn):
    """A process of the nursery at a pseudo-terminal, as `pexpect.spawn` shows one."""

    def __init__(self, process: Forked, terminal: int, **options: Any) -> None:
        # The echo of a key that is pressed can stand within a character that the program writes.
        super().__init__(cast(str, None), encoding="utf-8", codec_errors="replace", **options)
        self.child_fd, self.pid, self._forked = terminal, process.pid, process
        self.name = f"process {process.pid}"
        self.ptyproc = SimpleNamespace(flag_eof=False)  # where pexpect keeps it
        self.closed = self.terminated = False

    def isalive(self) -> bool:
        return self.wait_for(0)

    def wait_for(self, seconds: float) -> bool:
        """Wait for the end; return whether the process still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._forked.wait(seconds)
            self.exitstatus = status if status >= 0 else None
            self.signalstatus = -status if status < 0 else None
            self.terminated = True
        return not self.terminated

    def kill(self, sig: int) -> None:
        self._forked.send_signal(sig)

    def sendintr(self) -> None:
        self.send("\x03")

    def sendeof(self) -> None:
        self.send("\x04")

    def close(self, force: bool = True) -> None:
        """Close the terminal, which hangs up, and wait for the end; with `force` kill what goes on."""
        if self.closed:
            return
        os.close(self.child_fd)
        self.child_fd, self.closed = -1, True
        if self.wait_for(10) and force:
            self._forked.kill()
            self.wait_for(10)


class Nursery:
    """The process that forks, as the test runner sees it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.nursery", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=_ROOT,
                start_new_session=True,
            )
        atexit.register(self._close)

    def start(
        self,
        options: Sequence[str],
        env: Mapping[str, str],
        cwd: Path | None,
        stderr: IO[bytes],
        stdin: IO[bytes] | None = None,
    ) -> Forked:
        """`scbroker` with these options, a pipe as its standard output; it reads nothing, or a file."""
        ours, theirs = os.pipe()
        try:
            descriptors = [theirs, stderr.fileno(), *([stdin.fileno()] if stdin else [])]
            pid = self._fork(options, env, cwd, descriptors)
        finally:
            os.close(theirs)
        return Forked(self, pid, os.fdopen(ours, encoding="utf-8", errors=_ERRORS, newline=""))

    def start_at_terminal(
        self,
        options: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        size: tuple[int, int],
        timeout: float,
    ) -> ForkedTerminal:
        """`scbroker` with these options at a pseudo-terminal of so many lines and columns."""
        ours, theirs = pty.openpty()
        try:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            pid = self._fork(options, env, cwd, [theirs] * 3)
        finally:
            os.close(theirs)
        return ForkedTerminal(Forked(self, pid), ours, timeout=timeout)

    def _fork(
        self,
        options: Sequence[str],
        env: Mapping[str, str],
        cwd: Path | None,
        descriptors: Sequence[int],
    ) -> int:
        """Have a process made with these as standard output, error and input; return its id."""
        order = json.dumps([list(options), dict(env), str(cwd or Path.cwd())]).encode()
        assert len(order) <= _LONGEST
        with self._lock:
            socket.send_fds(self._link, [order], descriptors)
            return int(self._link.recv(_LONGEST))

    def reap(self, pid: int) -> int:
        """The exit status of a process that has ended."""
        with self._lock:
            self._link.send(json.dumps(pid).encode())
            return int(self._link.recv(_LONGEST))

    def _close(self) -> None:
        self._link.close()
        self._process.wait()


_wanted = False


def want_it() -> None:
    """For tests. What measures a start, or memory, takes processes as an operator has them."""
    global _wanted
    _wanted = True


def is_available() -> bool:
    """Whether there is one: on Linux, and where no coverage is measured, of processes that begin as such."""
    return _wanted and hasattr(os, "pidfd_open") and "COVERAGE_PROCESS_CONFIG" not in os.environ


_nurseries: dict[int, Nursery] = {}


def nursery() -> Nursery:
    """That of this process; it is started when it is first asked for."""
    pid = os.getpid()
    if pid not in _nurseries:
        _nurseries[pid] = Nursery()
    return _nurseries[pid]


def command(*options: str) -> list[str]:
    """The command line `scbroker` with these options, whatever PATH says.

    Tests on a machine without a nursery get Argon2id without its cost as well.
    """
    code = _SCBROKER
    if _wanted and not is_available():
        code = f"import sys; sys.path.append({json.dumps(_ROOT)}); {_CHEAP}; {code}"
    return [sys.executable, "-c", code, *options]


def run(
    options: Sequence[str],
    env: Mapping[str, str],
    timeout: float,
    *,
    stdin: bytes = b"",
    cwd: Path | None = None,
) -> tuple[int, str, str]:
    """Runs `scbroker` with these options to its end; gives exit status, standard output and error.

    Bytes of the output that are no UTF-8 stand as surrogates (`surrogateescape`).
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as stderr:
        given.write(stdin)
        given.seek(0)
        # aiohttp reads SSL_CERT_FILE when it is imported, which the nursery has done already.
        trust = os.environ.get("SSL_CERT_FILE")
        if not is_available() or env.get("SSL_CERT_FILE", trust) != trust:
            done = subprocess.run(
                command(*options), env=env, cwd=cwd, stdin=given, capture_output=True,
                timeout=timeout, check=False,
            )  # fmt: skip
            return done.returncode, done.stdout.decode("utf-8", _ERRORS), done.stderr.decode()
        process = nursery().start(options, env, cwd, stderr, given)
        assert process.stdout is not None
        with process.stdout:
            output = process.stdout.read()
        status = process.wait(timeout)
        stderr.seek(0)
        return status, output, stderr.read().decode()


def make_argon2id_cheap() -> None:
    """Let the commands of this process use the Argon2id of the tests."""
    import scbroker.keys
    from tests.kit import argon2

    vars(scbroker.keys)["stretch"] = argon2.stretch


def _import_everything() -> None:
    # Beside the commands, what they import when they run, and what typer and uvicorn do.
    import aiohttp  # noqa: F401
    import rich.progress
    import rich.table  # noqa: F401
    import typer._adapters  # noqa: F401
    import uvicorn.lifespan.on
    import uvicorn.loops.auto
    import uvicorn.protocols.http.auto
    import uvicorn.protocols.http.h11_impl  # noqa: F401

    import scbroker.cli.admin.page.page
    import scbroker.cli.mirror.mirroring
    import scbroker.cli.profiles
    import scbroker.client.contacts
    import scbroker.client.server_provider
    import scbroker.server.commands  # noqa: F401  # imported for the forks
    from scbroker.cli.app import program

    program()

    make_argon2id_cheap()
    gc.collect()
    gc.freeze()  # the first collection in a fork would copy every page


def _become_scbroker(
    options: list[str], env: dict[str, str], cwd: str, stdout: int, stderr: int, stdin: int = 0
) -> int:
    os.setsid()
    if clock := env.pop("CLOCK", ""):
        clocks.follow(Path(clock))
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    if os.isatty(1):
        fcntl.ioctl(1, termios.TIOCSCTTY, 0)
        cast(io.TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)
    from scbroker.cli import main

    sys.argv = ["scbroker", *options]
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # as a process of its own would print it
        traceback.print_exc()
        return 1
    return 0


def _serve(link: socket.socket) -> None:
    _import_everything()
    children: set[int] = set()
    while True:
        message, descriptors, _, _ = socket.recv_fds(link, _LONGEST, 3)
        if not message:
            break
        order = json.loads(message)
        if isinstance(order, int):
            _, status = os.waitpid(order, 0)
            children.discard(order)
            link.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if pid == 0:
            link.close()
            status = 1
            try:
                status = _become_scbroker(*order, *descriptors)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        for descriptor in descriptors:
            os.close(descriptor)
        children.add(pid)
        link.send(str(pid).encode())
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
