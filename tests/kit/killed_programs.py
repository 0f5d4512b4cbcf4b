"""Programs that send themselves SIGKILL at one of their requests.

    alice = KilledPrograms(tmp_path, broker, ring)
    assert alice.dies(Step(2, answered=True), "removeGroupMembers", group.id, user)

Each is forked from a process that has imported the client, and resumes a kept session: so it has the marks of
the program before it, as the next start of the same program has.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any, Final

from scbroker import ServerProvider
from scbroker.keys import KeyRing
from tests.kit.brokers import BrokerProcess
from tests.kit.stops import Step, Stops
from tests.kit.waiting import PATIENCE

_NAME: Final = "killed"
_FORKING: Final = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload([__name__])


class KilledPrograms:
    """A user's programs on one machine, one after the other."""

    def __init__(self, folder: Path, broker: BrokerProcess, ring: KeyRing) -> None:
        self._address = str(broker.api_key), broker.url
        self._folders: dict[str, Any] = {
            f"{each}Store": str(folder / each) for each in ("trust", "session")
        }
        with self._provider() as provider:
            provider.logIn(ring, ring.userId, keep=True).result(PATIENCE)

    def dies(self, step: Step, operation: str, *arguments: Any, **options: Any) -> bool:
        """Run an operation in a program of its own; return whether it came to this step, and died."""
        given = step, self._address, self._folders, operation, arguments, options
        process = _FORKING.Process(target=_live, args=given)
        process.start()
        process.join(PATIENCE)
        assert process.exitcode in (0, -signal.SIGKILL), f"it ended with {process.exitcode}"
        return process.exitcode != 0

    def lives(self) -> ServerProvider:
        """Return the program after it, which is not killed; the caller closes it."""
        provider = self._provider()
        provider.resumeSession().result(PATIENCE)
        return provider

    def _provider(self) -> ServerProvider:
        return ServerProvider(*self._address, _NAME, **self._folders)


def _live(
    step: Step,
    address: tuple[str, str],
    folders: dict[str, Any],
    operation: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> None:
    async def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with ServerProvider(*address, _NAME, **folders) as provider:
        provider.resumeSession().result(PATIENCE)
        with Stops(_NAME, step, die):
            getattr(provider, operation)(*arguments, **options).result(PATIENCE)
