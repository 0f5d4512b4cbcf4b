"""Run a real broker for the tests of a program that uses scbroker.

with InProcessBroker() as broker:
    alice = broker.new_user()

`LocalBroker` is the program `scbroker serve` of the extra `server`, as an operator starts it.
`InProcessBroker` is the same broker without a process and a port of its own: it starts sooner and answers
faster. With pytest, take the fixtures `scbroker_broker` and `scbroker_in_process`, which
`scbroker.testing.plugin` defines. This module imports neither the broker nor the client before a test uses
them, because pytest loads it at each start.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from scbroker import ServerProvider

__all__ = ["PASSPHRASE", "PASSWORD", "InProcessBroker", "LocalBroker"]

PASSWORD: Final = "A password 1"  # noqa: S105 # of users that exist in tests alone
"""The password of a user that `new_user` registers without one."""
PASSPHRASE: Final = "A passphrase 1"  # noqa: S105
"""The passphrase of a user that `new_user` registers without one."""
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
_PROGRAM: Final = """
import os, signal, threading

def end_with_the_tests():
    os.read(0, 1)  # returns once the process of the tests has ended, however it did
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end_with_the_tests, daemon=True).start()
from scbroker.cli import main
main()
"""
"""`scbroker serve` as a program that does not outlive the tests."""
_OF_ONE_ADDRESS: Final = dict.fromkeys(
    ("registrations_address", "guesses_address", "reminders_address"), 1_000_000
)
"""Settings that raise the rate limits of an address: all users of all tests share one address."""
_ports: Final = itertools.count(65_535, -1)
"""Ports in the URLs of brokers in this process. Nothing listens there: each only gets another origin."""


class Broker:
    """A broker with a new database in a temporary folder, which runs while its `with` block does.

    At its end its providers are closed, the broker stops, and the folder is removed. `settings` are those of
    a broker, by their names in lower case: `max_content=1_000_000` sets SCBROKER_MAX_CONTENT. SCBROKER_
    variables of the tests' own environment do not reach the broker.
    """

    url: str
    """The broker's address, once it has started."""
    api_key: str
    """The API key of this broker, made at random."""

    def __init__(self, **settings: object) -> None:
        self.url = ""
        self.api_key = str(uuid.uuid4())
        given = {**_OF_ONE_ADDRESS, **settings, "api_key": self.api_key}
        self._variables = {f"SCBROKER_{k.upper()}": str(v) for k, v in given.items()}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Start the broker; `unreachableError` has its output if it does not start."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scbroker-")))
            self.url = self._start(folder, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables that `ServerProvider.fromEnvironment` reads, for programs under test."""
        return {
            "SCBROKER_SERVER_URL": self.url,
            "SCBROKER_API_KEY": self.api_key,
            "SCBROKER_APPLICATION_NAME": "tests",
        }

    def new_provider(self, applicationName: str = "tests", **options: Any) -> ServerProvider:  # noqa: N803
        """Return a provider without a session, as on a new device.

        `options` are those of `ServerProvider`; without a `trustStore` the provider has a
        `MemoryTrustStore`. The provider is closed with the broker, and may be closed before.
        """
        from scbroker import MemoryTrustStore, ServerProvider

        options.setdefault("trustStore", MemoryTrustStore())
        provider = ServerProvider(self.api_key, self.url, applicationName, **options)
        return self._stack.enter_context(provider)

    def new_user(
        self, password: str = PASSWORD, passphrase: str = PASSPHRASE, **options: Any
    ) -> ServerProvider:
        """Register a new user, and return the provider with the user's session.

        Takes about 0.4 s, because the passwords are stretched as for every user (Argon2id). `options` are
        those of `new_provider`. In an event loop, `await` the `register` of a `new_provider` instead.
        """
        provider = self.new_provider(**options)
        provider.register(password, passphrase).result()
        return provider

    def _start(self, folder: Path, stack: ExitStack) -> str:
        """Start the broker with this data folder, have `stack` stop it, and return its address."""
        raise NotImplementedError


class LocalBroker(Broker):
    """The program `scbroker serve`, in a process of its own, on a free port of this machine."""

    def _start(self, folder: Path, stack: ExitStack) -> str:
        """Start `scbroker serve` and return its address."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SCBROKER_")}
        log = folder / "log"
        # -P keeps modules of the tests' folder from replacing those that the broker imports.
        command = [sys.executable, "-P", "-c", _PROGRAM, "serve", "--port", "0", "--data-dir"]
        process = subprocess.Popen(  # noqa: S603 # our own program
            [*command, str(folder)],
            env=inherited | self._variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stack.enter_context(log.open("wb")),
            text=True,
            # Ctrl-C must end the test runner only, which then ends the broker.
            start_new_session=True,
        )
        stack.enter_context(process)
        stack.callback(_end, process)
        patience = threading.Timer(_START_SECONDS, process.kill)
        patience.start()
        # The broker writes only a few lines to standard output, at its start: the pipe never fills.
        first = process.stdout.readline() if process.stdout else ""
        patience.cancel()
        if not first.startswith("scbroker serves "):
            from scbroker import BrokerError

            said = log.read_text("utf-8", "replace").strip().removeprefix("scbroker: ")
            raise BrokerError.unreachableError(f"The broker for the tests did not start. {said}")
        return first.split()[-1]


class InProcessBroker(Broker):
    """A broker in the process of the tests, for the providers of this process.

    It starts in a tenth of a second, once the first has imported the broker. Its `url` leads to it for every
    provider that is made while it runs, also by a program under test. Nothing listens on a port, and limits
    of connections have no effect. Its log goes to `logging`, under the name `scbroker.server`.
    """

    def _start(self, folder: Path, stack: ExitStack) -> str:
        from scbroker.client.http.transport import mounted
        from scbroker.testing.in_process import serving

        url = f"http://in-process.localhost:{next(_ports)}"
        transport = stack.enter_context(serving(self._variables, folder, url))
        stack.enter_context(mounted(url, transport))
        return url


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
        return
    process.kill()
