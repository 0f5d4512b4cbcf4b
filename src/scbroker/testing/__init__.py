"""Run a real broker for the tests of a program that uses scbroker.

with LocalBroker() as broker:
    alice = broker.new_user()

With pytest, take the fixture `scbroker_broker`, which `scbroker.testing.plugin` defines. The broker is the
program `scbroker serve` of the extra `server`, as an operator starts it. This module imports neither the
broker nor the client before a test uses them, because pytest loads it at each start.
"""

from __future__ import annotations

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

__all__ = ["PASSPHRASE", "PASSWORD", "LocalBroker"]

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
"""The limits of an address, which all users of all tests share."""


class LocalBroker:
    """A broker on a free port of this machine, with a new database in a temporary folder.

    It runs while its `with` block does. Then its providers are closed, the process ends, and the folder is
    removed. `settings` are those of a broker, by their names in lower case: `max_content=1_000_000` sets
    SCBROKER_MAX_CONTENT. SCBROKER_ variables of the tests' own environment do not reach the broker.
    """

    url: str
    """The broker's address, once it has started."""
    api_key: str
    """The API key of this broker, made at random."""

    def __init__(self, **settings: object) -> None:
        self.url = ""
        self.api_key = str(uuid.uuid4())
        self._settings = {**_OF_ONE_ADDRESS, **settings, "api_key": self.api_key}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Start the broker; `unreachableError` says what it wrote if it does not start."""
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
        """Start `scbroker serve` and return its address."""
        variables = {k: v for k, v in os.environ.items() if not k.startswith("SCBROKER_")}
        variables |= {f"SCBROKER_{k.upper()}": str(v) for k, v in self._settings.items()}
        log = folder / "log"
        # -P keeps modules of the tests' folder from replacing those that the broker imports.
        command = [sys.executable, "-P", "-c", _PROGRAM, "serve", "--port", "0", "--data-dir"]
        process = subprocess.Popen(  # noqa: S603 # our own program
            [*command, str(folder)],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stack.enter_context(log.open("wb")),
            text=True,
            # Ctrl-C is for the test runner, which then ends the broker.
            start_new_session=True,
        )
        stack.enter_context(process)
        stack.callback(_end, process)
        patience = threading.Timer(_START_SECONDS, process.kill)
        patience.start()
        # The broker greets in a few lines and writes nothing else there: the pipe never fills.
        first = process.stdout.readline() if process.stdout else ""
        patience.cancel()
        if not first.startswith("scbroker serves "):
            from scbroker import BrokerError

            said = log.read_text("utf-8", "replace").strip().removeprefix("scbroker: ")
            raise BrokerError.unreachableError(f"The broker for the tests did not start. {said}")
        return first.split()[-1]


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
        return
    process.kill()
