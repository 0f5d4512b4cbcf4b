"""Run `scbroker` in processes of its own: by forks of one that has imported it, where that is possible.

A start takes a second, nearly all of it to import modules, and a test run starts hundreds.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import multiprocessing
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from multiprocessing import forkserver, reduction
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from pexpect import fdpexpect

from tests.kit import program

_ROOT: Final = str(Path(__file__).parents[2])
_SCBROKER: Final = (
    "import sys, scbroker; sys.argv[0] = scbroker.__name__; from scbroker.cli import main; main()"
)
_ERRORS: Final = "surrogateescape"
_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [  # beside the commands, what they import when they run, and what typer and uvicorn do
        __name__, "tests.kit.argon2", "aiohttp", "rich.progress", "rich.table", "typer._adapters",
        "uvicorn.lifespan.on", "uvicorn.loops.auto", "uvicorn.protocols.http.auto",
        "uvicorn.protocols.http.h11_impl", "scbroker.cli.admin.page.page", "scbroker.cli.command",
        "scbroker.cli.mirror.mirroring", "scbroker.cli.profiles", "scbroker.client.contacts",
        "scbroker.client.server_provider", "scbroker.server.commands",
    ]
)  # fmt: skip
_wanted = False


def want_forks() -> None:
    """For tests. What measures a start, or memory, takes processes as an operator has them."""
    global _wanted
    _wanted = True
    atexit.register(_kill_all)  # multiprocessing would wait for them


def _kill_all() -> None:
    for each in multiprocessing.active_children():
        each.kill()


def _are_possible() -> bool:
    """Whether there are forks: not where coverage is measured, of processes that begin as such."""
    return _wanted and "COVERAGE_PROCESS_CONFIG" not in os.environ


def command(*options: str) -> list[str]:
    """The command line `scbroker` with these options, whatever PATH says.

    Tests that have no forks get Argon2id without its cost as well.
    """
    if _wanted and not _are_possible():
        return _command(options)
    return [sys.executable, "-c", _SCBROKER, *options]


def _command(options: Sequence[str]) -> list[str]:
    """The command line of `program`."""
    code = f"from tests.kit import program; program.main(is_cheap={_wanted})"
    return [sys.executable, "-c", f"import sys; sys.path.append({_ROOT!r}); {code}", *options]


class Forked:
    """A fork, with what `subprocess.Popen` has and the tests use."""

    def __init__(self, process: ForkServerProcess, stdout: IO[str] | None) -> None:
        self._process, self.stdout = process, stdout
        self.pid = cast(int, process.pid)

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("scbroker", timeout or 0.0)
        return self.returncode


Process = subprocess.Popen[str] | Forked


def start(
    options: Sequence[str],
    env: Mapping[str, str],
    cwd: Path | None,
    stderr: IO[bytes],
    stdin: IO[bytes] | None = None,
    *,
    under: Sequence[str] | None = None,
) -> Process:
    """`scbroker` with these options, a pipe as its standard output; it reads nothing, or a file.

    With `under`, it is no fork, and is started by this command if it is not empty.
    """
    # aiohttp reads SSL_CERT_FILE when it is imported, which forks have done already.
    trust = os.environ.get("SSL_CERT_FILE")
    forks = under is None and _are_possible() and env.get("SSL_CERT_FILE", trust) == trust
    ours, theirs = os.pipe()
    stdout = os.fdopen(ours, encoding="utf-8", errors=_ERRORS, newline="")
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, theirs)
        reads = stdin or stack.enter_context(Path(os.devnull).open("rb"))
        if forks:
            return Forked(
                _fork(options, env, cwd, [reads.fileno(), theirs, stderr.fileno()]), stdout
            )
        process = subprocess.Popen(
            [*(under or ()), *_command(options)], env=env, cwd=cwd, stdin=reads, stdout=theirs,
            stderr=stderr, text=True, start_new_session=True,
        )  # fmt: skip
        process.stdout = stdout
        return process


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
        process = start(options, env, cwd, stderr, given)
        assert process.stdout is not None
        with process.stdout:
            output = process.stdout.read()
        status = process.wait(timeout)
        stderr.seek(0)
        return status, output, stderr.read().decode()


if TYPE_CHECKING:
    _Descriptor = fdpexpect.fdspawn[str]
else:
    _Descriptor = fdpexpect.fdspawn


class Terminal(_Descriptor):
    """`scbroker` at a pseudo-terminal of so many lines and columns."""

    def __init__(
        self,
        options: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        size: tuple[int, int],
        timeout: float,
    ) -> None:
        ours, theirs = pty.openpty()
        self.exitstatus: int | None = None
        try:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            self._process: Process
            if _are_possible():
                self._process = Forked(_fork(options, env, cwd, [theirs] * 3), None)
            else:
                self._process = subprocess.Popen(
                    _command(options), env=env, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs,
                    text=True, start_new_session=True,
                )  # fmt: skip
        finally:
            os.close(theirs)
        # The echo of a key that is pressed can stand within a character that the program writes.
        super().__init__(ours, timeout=timeout, encoding="utf-8", codec_errors="replace")

    def kill(self, number: int) -> None:
        self._process.send_signal(number)

    def sendintr(self) -> None:
        self.send("\x03")

    def sendeof(self) -> None:
        self.send("\x04")

    def close(self) -> None:
        """Close the terminal, which hangs up, and wait for the end; kill what goes on."""
        if self.closed:
            return
        super().close()
        try:
            self.exitstatus = self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Inherited:
    """A file descriptor that a fork gets."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _inherited, (reduction.DupFd(self.number),)


def _inherited(sent: Any) -> _Inherited:
    return _Inherited(sent.detach())


def _fork(
    options: Sequence[str], env: Mapping[str, str], cwd: Path | None, descriptors: Sequence[int]
) -> ForkServerProcess:
    """Start a process with these as standard input, output and error."""
    with contextlib.chdir(_ROOT):  # where the server finds the modules of the tests
        forkserver.ensure_running()
    given = [_Inherited(each) for each in descriptors]
    process = _FORKS.Process(
        target=_be_scbroker, args=(options, dict(env), cwd or Path.cwd(), given)
    )
    process.start()
    return process


def _be_scbroker(
    options: Sequence[str], env: Mapping[str, str], cwd: Path, given: Sequence[_Inherited]
) -> None:
    gc.freeze()  # the first collection in a fork would copy every page
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for number, each in enumerate(given):
        os.dup2(each.number, number)
    for each in given:
        os.close(each.number)
    sys.stdin = os.fdopen(0)  # multiprocessing has closed it
    if os.isatty(1):
        cast(TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)
    threading.Thread(target=_end_with_the_tests, daemon=True).start()
    sys.argv = ["", *options]
    program.main(is_cheap=True)


def _end_with_the_tests() -> None:
    tests = multiprocessing.parent_process()
    assert tests is not None
    tests.join()
    os.kill(os.getpid(), signal.SIGKILL)
