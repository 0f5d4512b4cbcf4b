"""A temporary folder with processes that end with it.

Every process of a deployment, and what it starts, has its working directory in the folder. By that they are
found: by the `with` block when it ends, and by a watchdog when the test runner was killed.
"""

import os
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self

import psutil

from tests.kit import waiting
from tests.kit.engines import give, unprivileged
from tests.kit.waiting import PATIENCE

# Debian installs daemons in folders that are not in a user's PATH.
_PATH: Final = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_LOG_TAIL: Final = 8000

# A clean end writes a word first; end of file means that the test runner was killed. Rounds until
# none is left: a process that is not dead yet may start another.
_WATCHDOG: Final = """
read -r word && exit
while
  left=
  for process in /proc/[0-9]*; do
    case "$(readlink "$process/cwd")" in
      "$1"|"$1"/*) left=some; kill -KILL "${process#/proc/}" ;;
    esac
  done
  [ "$left" ]
do
  sleep 0.2
done
rm -rf -- "$1"
"""


class Ground:
    """The folder, and the processes in it; started as root, they run as `nobody`."""

    def __init__(self) -> None:
        self.identity = unprivileged()
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="scbroker-cluster-")).resolve()
        give(self.folder, self.identity)
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "watchdog", self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        end(self.processes())
        for process in self._started:
            process.wait(PATIENCE)
        if self._watchdog is not None:
            self._watchdog.communicate(b"ended\n")
        shutil.rmtree(self.folder)

    def new_folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(parents=True)
        give(folder, self.identity)
        return folder

    def write(self, name: str, text: str) -> Path:
        """Write a file that only the processes can read."""
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)
        give(path, self.identity)
        return path

    def start(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] = {}
    ) -> subprocess.Popen[bytes]:
        """Start a process; its output is in `log(name)`."""
        with (self.folder / f"{name}.log").open("ab") as log:
            # A session of its own: an interrupt at the terminal is for the test runner alone.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=plain_environment() | dict(environment),
                start_new_session=True,
                **self.identity,
            )
        self._started.append(process)
        return process

    def run(self, *command: str | Path) -> str:
        """Run a command to its end; return what it printed."""
        finished = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            cwd=self.folder,
            env=plain_environment(),
            **self.identity,
        )
        if finished.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{finished.stdout}{finished.stderr}")
        return finished.stdout

    def processes(self, folder: Path | None = None) -> list[psutil.Process]:
        """Everything that runs in the folder, or in a folder of it."""
        within, found = folder or self.folder, []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if Path(process.cwd()).is_relative_to(within):
                    found.append(process)
        return found

    def complaint(self, *names: str) -> str:
        """Return the logs of what is not ready."""
        return "\n".join(f"{name} is not ready:\n{self.log(name)}" for name in names)

    def log(self, name: str) -> str:
        try:
            return (self.folder / f"{name}.log").read_text(errors="replace")[-_LOG_TAIL:]
        except FileNotFoundError:
            return ""


class Running(ABC):
    """Something that runs as long as its `with` block; what `_begin` puts onto the stack ends with it."""

    @abstractmethod
    def _begin(self, stack: ExitStack) -> None: ...

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._begin(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def end(processes: Sequence[psutil.Process]) -> None:
    """Send SIGKILL to all of them, and wait until they have ended."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, PATIENCE)


def wait_until(
    condition: Callable[[], bool],
    complaint: Callable[[], str],
    needs: Iterable[subprocess.Popen[bytes]] = (),
) -> None:
    """Wait for a condition; `TimeoutError` with the complaint if it never holds.

    `RuntimeError` as soon as one of the needed processes has ended.
    """
    needed = list(needs)

    def holds() -> bool:
        if condition():
            return True
        if any(process.poll() is not None for process in needed):
            raise RuntimeError(complaint())
        return False

    try:
        waiting.wait_until(holds)
    except AssertionError as error:
        raise TimeoutError(complaint()) from error


def plain_environment() -> dict[str, str]:
    """Return an environment without the caller's variables: the programs would read PGPORT and the like."""
    return {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PATH": _PATH}


def is_installed(program: str) -> bool:
    return shutil.which(program, path=_PATH) is not None
