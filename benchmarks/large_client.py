"""Upload or download large contents in a process of its own, whose memory peak can be measured.

`python -m benchmarks.large_client TASK` takes a `Task` as JSON. It prints the number of transferred bytes of
a single content as it grows, and at the end a `Done` as JSON.
"""

import sys
import time
import uuid
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from benchmarks.memory import Peak
from benchmarks.small import HEADER, traffic
from scbroker import FileTrustStore, ServerProvider

PASSWORD: Final = "correct Horse 7"
PASSPHRASE: Final = "battery Staple 8"
_PATIENCE: Final = 3600.0


class Task(msgspec.Struct, frozen=True):
    """The user, the job, and the files to read or write, all at once."""

    job: Literal["create", "save"]
    url: str
    api_key: uuid.UUID
    user: uuid.UUID
    store: str
    paths: list[str]
    containers: list[uuid.UUID] = []
    stores: tuple[str, ...] = ()
    """Origins of object stores that the client may use."""


class Done(msgspec.Struct, frozen=True):
    """The cost of a job. `memory` is the peak in MiB above the start; None where it is not counted."""

    seconds: float
    memory: float | None
    sent: int
    containers: list[uuid.UUID]


def main(task: Task) -> Done:
    provider: Any = ServerProvider(
        task.api_key, task.url, "bench", trustStore=FileTrustStore(task.store),
        objectStoreOrigins=task.stores,
    )  # fmt: skip
    with provider:
        provider.logIn(task.user, passphrase=PASSPHRASE).result(_PATIENCE)
        job = _create if task.job == "create" else _save
        peak, began = Peak(), time.perf_counter()
        with traffic() as counted:
            containers = job(provider, task)
        return Done(time.perf_counter() - began, peak.above(), counted.sent, containers)


def _create(provider: Any, task: Task) -> list[uuid.UUID]:
    report = {"progress": _say} if len(task.paths) == 1 else {}
    made = [provider.createContainer(Path(path), HEADER, **report) for path in task.paths]
    return [each.result(_PATIENCE).id for each in made]


def _save(provider: Any, task: Task) -> list[uuid.UUID]:
    pairs = zip(task.containers, map(Path, task.paths), strict=True)
    saving = [(path, provider.saveContainerContent(each, path)) for each, path in pairs]
    for path, promise in saving:
        assert promise.result(_PATIENCE) == path.stat().st_size
    return task.containers


def _say(done: int, total: int | None) -> None:
    del total
    print(done, flush=True)


if __name__ == "__main__":
    print(msgspec.json.encode(main(msgspec.json.decode(sys.argv[1], type=Task))).decode())
