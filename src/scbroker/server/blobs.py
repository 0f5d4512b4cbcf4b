"""Chunks of large contents in an object store: a folder by default, S3 and the like by URL.

A chunk is stored before the row that names it and removed after it, so that a row never names
what is not there. A name stands among the doomed ones from before its bytes are stored until a row
names it, and again once that row is gone: whatever a crash leaves over is swept.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import obstore
from obstore.store import LocalStore, ObjectStore, from_url

from scbroker.errors import InvalidArgumentError, OverloadedError

_PREFIX: Final = "parts"
_CHECK: Final = "parts/00/check"
_NAME: Final = re.compile(r"parts/([0-9a-f]{2})/(\1[0-9a-f]{30})-[0-9a-f]{32}")
_PAGE: Final = 500


class Stored(NamedTuple):
    """An object of a chunk, as the store lists it."""

    name: str
    size: int
    modified: datetime

    @property
    def part_id(self) -> bytes:
        return bytes.fromhex(self.name.split("/")[2][:32])


def new_blob_name(part_id: bytes) -> str:
    """A name that was never used: what is stored under a name never changes."""
    name = part_id.hex()
    return f"{_PREFIX}/{name[:2]}/{name}-{os.urandom(16).hex()}"


def path_of(url: str) -> Path:
    """The folder of a file:///… URL, in which a space is %20."""
    return Path(unquote(url.removeprefix("file://")))


def open_blobs(url: str) -> Blobs:
    """The object store of a URL; `InvalidArgumentError` if there is none for it."""
    if url.startswith("file:///"):
        return Folder(path_of(url))
    try:
        return Blobs(from_url(url))
    except Exception as error:
        raise InvalidArgumentError(f"object_store_url cannot be used: {error}") from None


class Blobs:
    """An object store whose put is durable when it returns."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, name: str, data: bytes | memoryview) -> None:
        try:
            await obstore.put_async(self._store, name, data)
        except Exception as error:
            raise OverloadedError("The broker's object store did not take it.", 1) from error

    async def get(self, name: str, start: int, end: int) -> memoryview:
        """The bytes from start to end (exclusive)."""
        try:
            found = await obstore.get_range_async(self._store, name, start=start, end=end)
        except FileNotFoundError as error:
            raise LookupError(f"The object {name} is missing, and a row names it.") from error
        except Exception as error:
            raise OverloadedError("The broker's object store did not give it.", 1) from error
        return memoryview(found)

    async def remove(self, names: list[str]) -> None:
        """Removes what is there of these."""
        for name in names:
            try:
                await obstore.delete_async(self._store, name)
            except FileNotFoundError:
                continue
            except Exception as error:
                raise OverloadedError("The broker's object store did not remove it.", 1) from error

    async def pages(self) -> AsyncIterator[list[Stored]]:
        """All objects of chunks, some hundred at a time, in no order; what else lies there is left out."""
        # In threads: what obstore does on the loop aborts a process that ends soon after.
        listing = partial(obstore.list, self._store, _PREFIX, chunk_size=_PAGE)
        pages = iter(await self._asked(listing))
        while (page := await self._asked(next, pages, None)) is not None:
            found = [Stored(meta["path"], meta["size"], meta["last_modified"]) for meta in page]
            yield [stored for stored in found if _NAME.fullmatch(stored.name)]

    async def size(self, name: str) -> int | None:
        """The size of an object, or None where there is none."""
        try:
            return int((await self._asked(obstore.head, self._store, name))["size"])
        except FileNotFoundError:
            return None

    async def whole(self, name: str) -> memoryview | None:
        """All bytes of an object, or None where there is none."""
        try:
            found = await self._asked(obstore.get, self._store, name)
            return memoryview(await self._asked(found.bytes))
        except FileNotFoundError:
            return None

    async def _asked(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return await asyncio.to_thread(ask, *arguments)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise OverloadedError("The broker's object store did not answer.", 1) from error

    async def check(self) -> None:
        """Raises `OverloadedError` while nothing can be stored or read."""
        await self.put(_CHECK, b"scbroker")
        await self.get(_CHECK, 0, 1)


class Folder(Blobs):
    """A local folder. The store renames into place without syncing: here file and folder are
    synced before the row commits, or an acknowledged create would die with the power."""

    def __init__(self, root: Path) -> None:
        for number in range(256):
            (root / _PREFIX / f"{number:02x}").mkdir(parents=True, exist_ok=True)
        _sync(root / _PREFIX)
        _sync(root)
        self._root = root
        super().__init__(LocalStore(root))

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """Nothing is removed meanwhile, by whatever process; the system ends it with this one."""
        with self._locked(fcntl.LOCK_EX):
            yield

    async def remove(self, names: list[str]) -> None:
        try:
            with self._locked(fcntl.LOCK_SH | fcntl.LOCK_NB):
                await super().remove(names)
        except BlockingIOError:
            raise OverloadedError(
                "A backup is being taken: nothing is removed until it is through.", retryAfter=60
            ) from None

    @contextlib.contextmanager
    def _locked(self, operation: int) -> Iterator[None]:
        descriptor = os.open(self._root / _PREFIX, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, operation)
            yield
        finally:
            os.close(descriptor)

    async def put(self, name: str, data: bytes | memoryview) -> None:
        await super().put(name, data)
        path = self._root / name
        try:
            await asyncio.to_thread(_sync, path, path.parent)
        except OSError as error:
            raise OverloadedError("The broker's disk did not take it.", retryAfter=1) from error


def _sync(*paths: Path) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
