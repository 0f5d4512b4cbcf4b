"""Measure the parts of a job alone, by the same libraries, without scbroker around them."""

import asyncio
import io
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

import aiohttp

from scbroker.client.calls.tasks import _new_loop
from scbroker.crypto.seal import (
    KEY_SIZE,
    DecryptionKey,
    SigningKey,
    random_bytes,
    seal,
    unseal,
    wrap_key,
)
from scbroker.crypto.verify import VerifyingKey, sha256
from scbroker.server.storage.blobs import sync

_INFO: Final = b"floor"
_STREAMED: Final = 262_144


@contextmanager
def own_loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Run coroutines on an event loop in another thread, as every operation does."""
    loop = _new_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class FloorServer:
    """The floor server in a process of its own, and an HTTP client in a thread of its own."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "benchmarks.floor_server"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{self._process.stdout.readline().strip()}/answer"
        self._stack = ExitStack()
        self.run = self._stack.enter_context(own_loop())
        self._http: aiohttp.ClientSession = self.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._http.close())
        self._stack.close()
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    async def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=64)
        return aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False,
            read_bufsize=1 << 20,
        )  # fmt: skip

    async def exchange(self, sent: bytes, received: int) -> None:
        """Send one request with this body and read an answer of this size."""
        method = "PUT" if sent else "GET"
        url = f"{self.url}?bytes={received}"
        # A large body that is not a stream would be copied once more.
        body = io.BytesIO(sent) if len(sent) > _STREAMED else sent or None
        async with self._http.request(method, url, data=body) as response:
            assert len(await response.read()) == received

    async def _exchanges(self, count: int, at_once: int, sent: bytes, received: int) -> None:
        numbers = iter(range(count))

        async def one_after_the_other() -> None:
            for _ in numbers:
                await self.exchange(sent, received)

        await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))

    def transfer(
        self, count: int, at_once: int, *, sent: int = 0, received: int = 0
    ) -> Callable[[], object]:
        """Return a job that makes `count` exchanges, `at_once` of them at a time."""
        body = random_bytes(sent)
        return lambda: self.run(self._exchanges(count, at_once, body, received))

    def http(self, sent: int, received: int) -> Callable[[], object]:
        body = bytes(sent)
        return lambda: self.run(self.exchange(body, received))


def commit(folder: Path, size: int) -> Callable[[], object]:
    """Return a job that commits `size` bytes durably to a SQLite database of its own."""
    database = sqlite3.connect(folder / "floor.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE floor (id INTEGER PRIMARY KEY, value BLOB)")
    value = random_bytes(size)

    def once() -> None:
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO floor (value) VALUES (?)", [value])
        database.execute("COMMIT")

    return once


def wraps(count: int) -> Callable[[], object]:
    """Return a job that wraps a key for each of `count` recipients."""
    public = [DecryptionKey.generate().public for _ in range(count)]
    key = random_bytes(KEY_SIZE)
    return lambda: [wrap_key(each, _INFO, key) for each in public]


def unwrapping() -> Callable[[], object]:
    recipient = DecryptionKey.generate()
    wrap = wrap_key(recipient.public, _INFO, random_bytes(KEY_SIZE))
    return lambda: recipient.unwrap(wrap, _INFO)


def signing(size: int = 400) -> Callable[[], object]:
    key, message = SigningKey.generate(), random_bytes(size)
    return lambda: key.sign("floor", message)


def verifying(size: int = 400) -> Callable[[], object]:
    key, message = SigningKey.generate(), random_bytes(size)
    signature, public = key.sign("floor", message), VerifyingKey(key.public)
    return lambda: public.verify("floor", message, signature)


def sealing(size: int) -> Callable[[], object]:
    key, plaintext = random_bytes(KEY_SIZE), random_bytes(size)
    return lambda: seal(key, _INFO, plaintext)


def unsealing(size: int) -> Callable[[], object]:
    key = random_bytes(KEY_SIZE)
    sealed = seal(key, _INFO, random_bytes(size))
    return lambda: unseal(key, _INFO, sealed)


def hashing(size: int) -> Callable[[], object]:
    data = random_bytes(size)
    return lambda: sha256(data)


def read(path: Path, size: int) -> float:
    """Return the seconds of reading a file in blocks of `size` bytes into the same memory."""
    block = bytearray(size)
    began = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(block):
            pass
    return time.perf_counter() - began


def written(folder: Path, size: int, blocks: int) -> float:
    """Return the seconds of writing `blocks` blocks of `size` bytes to a new file and syncing it."""
    data = random_bytes(size)
    with TemporaryDirectory(dir=folder) as inner:
        began = time.perf_counter()
        with (Path(inner) / "file").open("wb", buffering=0) as file:
            for _ in range(blocks):
                file.write(data)
            os.fsync(file.fileno())
        return time.perf_counter() - began


def stored(folder: Path, size: int, files: int) -> float:
    """Return the seconds of writing `files` new files of `size` bytes, syncing each and its folder."""
    data = random_bytes(size)
    with TemporaryDirectory(dir=folder) as inner:
        began = time.perf_counter()
        for number in range(files):
            path = Path(inner) / str(number)
            path.write_bytes(data)
            sync(path, path.parent)
        return time.perf_counter() - began
