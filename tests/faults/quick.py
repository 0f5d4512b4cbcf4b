"""A broker that is started again in a moment: forked from a process that has imported everything.

Of the second that a start takes, nearly all is Python reading modules. Two hundred starts under load
are to measure what a kill leaves behind, and not that. What runs is `scbroker serve`, all of it.

    python -m tests.faults.quick

is the process that forks: for each line of JSON on its input a broker, for `wait` the end of one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Any

from tests.brokers import BrokerProcess, environment


class QuickBroker(BrokerProcess):
    """A `BrokerProcess` of one worker whose process is forked."""

    def __init__(self, directory: Path, database_url: str = "", **settings: Any) -> None:
        super().__init__(directory, database_url, **settings)
        self._pid = 0
        self._nursery: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        return self._pid

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._nursery is None:
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.quick"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        options = ["serve", "--port", str(self.port), "--data-dir", str(self.directory)]
        order = [options, environment(self.settings), str(self._log_path)]
        self._pid = int(self._ask(json.dumps(order)))
        first = self._line()
        while not first.startswith("scbroker serves http://"):
            if not first:
                raise RuntimeError(f"The broker did not start:\n{self.log}")
            first = self._line()
        self.port = urllib.parse.urlsplit(first.split()[-1]).port or 0

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        status = self._end(signal.SIGTERM) if self._pid else 0
        if self._nursery is not None:
            self._nursery.communicate()
        self._nursery = None
        return status

    def _end(self, number: signal.Signals) -> int:
        os.kill(self._pid, number)
        self._pid = 0
        line = self._ask("wait")
        while not line.startswith("ended"):  # what the broker had still to say
            line = self._line()
        return int(line.split()[1])

    def _ask(self, line: str) -> str:
        assert self._nursery is not None
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(f"{line}\n")
        self._nursery.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self._nursery is not None
        assert self._nursery.stdout is not None
        return self._nursery.stdout.readline().rstrip()


def _import_everything() -> None:
    import uvicorn.lifespan.on
    import uvicorn.loops.auto
    import uvicorn.protocols.http.auto  # noqa: F401 - what uvicorn imports when it begins to serve

    import scbroker.server.commands  # noqa: F401


def _serve(options: list[str], settings: dict[str, str], log: str) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(settings)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
    from scbroker.cli import main

    sys.argv = ["scbroker", *options]
    main()


def _nurse() -> None:
    _import_everything()
    for line in sys.stdin:
        if line == "wait\n":
            _, status = os.wait()
            print("ended", os.waitstatus_to_exitcode(status), flush=True)
            continue
        order: list[Any] = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                _serve(*order)
            finally:
                sys.stdout.flush()
                os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    _nurse()
