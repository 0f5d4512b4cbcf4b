"""Upload or download one large content in a process of its own, whose memory peak can be measured.

`python -m benchmarks.large_client TASK` takes a `Task` as JSON. It prints the number of transferred bytes as
it grows, and at the end a `Done` as JSON.
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
    """The user, the job, and the file to read or write."""

    job: Literal["create", "save"]
    url: str
    api_key: uuid.UUID
    user: uuid.UUID
    store: str
    path: str
    container: uuid.UUID | None = None


class Done(msgspec.Struct, frozen=True):
    """The cost of a job. `memory` is the peak in MiB above the start; None where it is not counted."""

    seconds: float
    memory: float | None
    sent: int
    container: uuid.UUID


def main(task: Task) -> Done:
    provider: Any = ServerProvider(
        task.api_key, task.url, "bench", trustStore=FileTrustStore(task.store)
    )
    with provider:
        provider.logIn(task.user, passphrase=PASSPHRASE).result(_PATIENCE)
        job = _create if task.job == "create" else _save
        peak, began = Peak(), time.perf_counter()
        with traffic() as counted:
            container = job(provider, task)
        return Done(time.perf_counter() - began, peak.above(), counted.sent, container)


def _create(provider: Any, task: Task) -> uuid.UUID:
    made = provider.createContainer(Path(task.path), HEADER, progress=_say)
    found: uuid.UUID = made.result(_PATIENCE).id
    return found


def _save(provider: Any, task: Task) -> uuid.UUID:
    assert task.container is not None
    size = provider.saveContainerContent(task.container, Path(task.path)).result(_PATIENCE)
    assert size == Path(task.path).stat().st_size
    return task.container


def _say(done: int, total: int | None) -> None:
    del total
    print(done, flush=True)


if __name__ == "__main__":
    print(msgspec.json.encode(main(msgspec.json.decode(sys.argv[1], type=Task))).decode())
