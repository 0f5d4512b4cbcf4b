"""Measure large contents on S3: straight between the client and the object store, by presigned URLs.

The store is that of the tests: the Ceph object gateway, with objects in memory. The floor is obstore in this
process. It moves the same file to and from the same store in blocks of a chunk's size, as many at a time.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import obstore
from obstore.store import S3Store

from assurance.cluster.ceph import PACKAGES, ObjectGateway
from assurance.cluster.ground import is_installed
from benchmarks.large_stage import AT_ONCE, CHUNK, Stage, finished, is_same
from benchmarks.memory import reuse_memory
from benchmarks.result import Result, in_turn, rate

_MB: Final = 1_000_000
_RATIO: Final = 0.8
_ROUNDS: Final = 3


def run(folder: Path, size: int) -> list[Result]:
    """Run on SQLite; say what is missing if the object gateway is not installed."""
    amount = f"{size // 2**20} MiB, straight"
    up, down = f"createContainer of {amount} to S3", f"saveContainerContent of {amount} from S3"
    if not is_installed("radosgw"):
        missing = f"not installed: {PACKAGES}"
        return [Result(job, None, "MB/s", None, missing) for job in (up, down)]
    with ExitStack() as stack:
        gateway = stack.enter_context(ObjectGateway())
        stage = Stage(
            folder, size, stack, stores=(gateway.endpoint,),
            object_store_url=gateway.url, variables=gateway.environment,
        )  # fmt: skip
        plain = Plain(gateway.store(gateway.new_bucket()), stage.files(1)[0])
        made = []

        def create() -> float:
            done = finished(stage.create(stage.new_store(), stage.files(1)))
            if done.sent > CHUNK:
                raise RuntimeError("The content went through the broker.")
            made.extend(done.containers)
            return done.seconds

        copy = folder / "copy"

        def save() -> float:
            reuse_memory(folder, size)
            return finished(stage.save(made[-1:], [copy])).seconds

        sent, put = in_turn([create, plain.put], _ROUNDS)

        def get() -> float:
            reuse_memory(folder, size)
            return plain.get(folder / "plain")

        received, got = in_turn([save, get], _ROUNDS)
        if not (is_same(stage.files(1)[0], copy) and is_same(copy, folder / "plain")):
            raise RuntimeError("The downloaded bytes differ from the uploaded ones.")
    each = size / _MB
    floor_is = "obstore, the same blocks and the same store"
    return [
        rate(up, each / sent, "MB/s", each / put, floor_is, ratio_at_least=_RATIO),
        rate(down, each / received, "MB/s", each / got, floor_is, ratio_at_least=_RATIO),
    ]


class Plain:
    """A file in an object store without sealing, one object for each block."""

    def __init__(self, store: S3Store, file: Path) -> None:
        self._store, self._file = store, file
        self._blocks = range(-(-file.stat().st_size // CHUNK))

    def put(self) -> float:
        """Return the seconds of reading the file and storing its blocks."""

        def one(block: int) -> None:
            obstore.put(self._store, str(block), os.pread(descriptor, CHUNK, block * CHUNK))

        descriptor = os.open(self._file, os.O_RDONLY)
        return self._timed(one, lambda: os.close(descriptor))

    def get(self, target: Path) -> float:
        """Return the seconds of getting the blocks, and writing and syncing the file."""

        def one(block: int) -> None:
            os.pwrite(descriptor, obstore.get(self._store, str(block)).bytes(), block * CHUNK)

        def sync() -> None:
            os.fsync(descriptor)
            os.close(descriptor)

        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        return self._timed(one, sync)

    def _timed(self, one: Callable[[int], None], end: Callable[[], None]) -> float:
        began = time.perf_counter()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, self._blocks))
        end()
        return time.perf_counter() - began
