"""What the parts of every job cost alone, by the same libraries, with nothing of scbroker around them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import aiohttp

from scbroker.client.io_thread import _new_loop
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

T = TypeVar("T")
_INFO: Final = b"floor"


class FloorServer:
    """A server process that does nothing, and a client thread that asks it."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "benchmarks.floor_server"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{self._process.stdout.readline().strip()}/answer"
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._http: aiohttp.ClientSession = self.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._http.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
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

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Through one hop to another thread, as every operation goes."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def exchange(self, sent: bytes, received: int) -> None:
        """One request with this body, one answer of this size."""
        method = "PUT" if sent else "GET"
        url = f"{self.url}?bytes={received}"
        async with self._http.request(method, url, data=sent or None) as response:
            assert len(await response.read()) == received

    def http(self, sent: int, received: int) -> Callable[[], object]:
        body = bytes(sent)
        return lambda: self.run(self.exchange(body, received))


def commit(folder: Path, size: int) -> Callable[[], object]:
    """One durable transaction of so many bytes in an SQLite of its own."""
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
    """Wrapping a key for so many recipients."""
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


def written(folder: Path, size: int, pieces: int) -> Callable[[], object]:
    """Writing so many pieces to a file and syncing it."""
    data, path = random_bytes(size), folder / "floor.bin"

    def once() -> None:
        with path.open("wb") as file:
            for _ in range(pieces):
                file.write(data)
            file.flush()
            os.fsync(file.fileno())

    return once
