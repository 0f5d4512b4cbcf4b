"""The broker, the user and the files that large contents are measured with."""

import subprocess
import sys
import uuid
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.large_client import PASSPHRASE, PASSWORD, Done, Task
from benchmarks.memory import Peak
from scbroker import FileTrustStore, ServerProvider
from scbroker.crypto.seal import random_bytes
from tests.kit.brokers import BrokerProcess

MIB: Final = 1024 * 1024
CHUNK: Final = 8 * MIB
AT_ONCE: Final = 4
"""As many chunks as a client moves at a time."""
PATIENCE: Final = 3600.0


class Stage:
    """A broker, a user, and files of random bytes. Each job runs in a client process of its own."""

    def __init__(
        self,
        folder: Path,
        size: int,
        stack: ExitStack,
        *,
        stores: tuple[str, ...] = (),
        **broker: Any,
    ) -> None:
        self.folder, self.size, self._stores = folder, size, stores
        self.broker = stack.enter_context(BrokerProcess(folder / "broker", **broker))
        self.broker_memory = Peak(self.broker.pid)
        store = FileTrustStore(folder / "own")
        self.own: Any = stack.enter_context(
            ServerProvider(self.broker.api_key, self.broker.url, "bench", trustStore=store)
        )
        self.own.register(PASSWORD, PASSPHRASE).result(PATIENCE)
        self.user: uuid.UUID = self.own.getUserId().result(PATIENCE)
        self._numbers = count()

    def files(self, number: int) -> list[Path]:
        """Return this number of files of random bytes, which have the content's size together."""
        found = [self.folder / f"content-{number}-{each}" for each in range(number)]
        for path in found:
            if not path.exists():
                with path.open("wb") as file:
                    for _ in range(self.size // MIB // number):
                        file.write(random_bytes(MIB))
        return found

    def new_store(self) -> Path:
        """Return the folder of a new device."""
        return self.folder / f"device-{next(self._numbers)}"

    def create(self, store: Path, files: list[Path]) -> subprocess.Popen[str]:
        return self._client(self._task("create", store, files))

    def save(self, containers: list[uuid.UUID], copies: list[Path]) -> subprocess.Popen[str]:
        """Save over files that are there, so that the client syncs what it writes, as the floor does."""
        for copy in copies:
            copy.touch()
        return self._client(self._task("save", self.new_store(), copies, containers))

    def _task(self, job: Any, store: Path, files: list[Path], containers: Any = ()) -> Task:
        broker, paths = self.broker, list(map(str, files))
        return Task(
            job,
            broker.url,
            broker.api_key,
            self.user,
            str(store),
            paths,
            list(containers),
            self._stores,
        )

    @staticmethod
    def _client(task: Task) -> subprocess.Popen[str]:
        text = msgspec.json.encode(task).decode()
        command = [sys.executable, "-m", "benchmarks.large_client", text]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finished(client: subprocess.Popen[str]) -> Done:
    with client:
        output, _ = client.communicate(timeout=PATIENCE)
    if client.returncode:
        raise RuntimeError("The client process failed: see its output above.")
    return msgspec.json.decode(output.splitlines()[-1], type=Done)


def is_same(one: Path, other: Path) -> bool:
    with one.open("rb") as left, other.open("rb") as right:
        while piece := left.read(MIB):
            if piece != right.read(MIB):
                return False
        return not right.read(1)
