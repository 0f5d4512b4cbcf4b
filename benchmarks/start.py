"""Measure the import, the start of a broker, and the memory of an idle one."""

import http.client
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.memory import resident
from benchmarks.result import Result, amount, in_turn, seconds_of
from tests.kit.brokers import BrokerProcess

_IMPORT: Final = 0.25
_START: Final = 2.0
_IDLE_MIB: Final = 120
_POLL: Final = 0.005
_SETTLED: Final = 2.0
_SERVER_ONLY: Final = (
    "alembic", "asyncpg", "httptools", "keyring", "obstore", "prometheus_client", "rich", "sqlalchemy",
    "starlette", "structlog", "typer", "uvicorn", "uvloop",
)  # fmt: skip
_LIBRARIES: Final = (
    "import alembic, httptools, obstore, sqlalchemy, starlette.applications, uvicorn"
)


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run each job in a process of its own; its start is part of the time."""
    rounds = 3 if quick else 7
    return [*_imports(rounds), *_starts(folder, rounds), *_idle(folder)]


def _imports(rounds: int) -> list[Result]:
    package, provider = "import scbroker", "from scbroker import ServerProvider"
    jobs = [_program(""), _program(package), _program(provider)]
    for job in jobs:  # once, to compile the modules
        job()
    nothing, first, second = in_turn([partial(seconds_of, job) for job in jobs], rounds)
    floor_is = "an interpreter that imports nothing"
    loaded = _loaded(provider)
    return [
        amount(f"`{package}`", first, "s", _IMPORT, nothing, floor_is),
        amount(f"`{provider}`", second, "s", _IMPORT, nothing, floor_is),
        amount("libraries of the broker that a client's import loads", len(loaded), "libraries", 0),
    ]


def _program(code: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-c", code], check=True)


def _loaded(code: str) -> list[str]:
    """Return the libraries of the broker that an import loads."""
    code = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return [name for name in _SERVER_ONLY if name in done.stdout.split()]


def _starts(folder: Path, rounds: int) -> list[Result]:
    numbers = count()
    known = folder / "known"
    measures = [
        lambda: seconds_of(_program(_LIBRARIES)),
        lambda: _start(folder / f"fresh-{next(numbers)}"),
        lambda: _start(known),
    ]
    _start(known)
    libraries, fresh, again = in_turn(measures, rounds)
    floor_is = "an interpreter that imports the broker's libraries"
    return [
        amount("`scbroker serve` until ready, fresh data folder", fresh, "s", _START, libraries, floor_is),
        amount("`scbroker serve` until ready, existing data folder", again, "s", _START, libraries,
               floor_is),
    ]  # fmt: skip


def _start(folder: Path) -> float:
    """Return the seconds from the start of the process to the first answer that it is ready."""
    broker, began = BrokerProcess(folder), time.perf_counter()
    with broker:
        while not _is_ready(broker.port):
            time.sleep(_POLL)
        return time.perf_counter() - began


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _idle(folder: Path) -> list[Result]:
    with BrokerProcess(folder / "idle") as broker:
        while not _is_ready(broker.port):
            time.sleep(_POLL)
        time.sleep(_SETTLED)
        whole, own = resident(broker.pid)
    return [
        amount("an idle broker's resident memory", whole, "MiB", _IDLE_MIB),
        amount("an idle broker's share of memory (PSS)", own, "MiB"),
    ]
