"""Chunks of large contents in an object store: a folder by default, S3 and the like by URL.

A chunk is stored before the row that names it and removed after it, so that a row never names
what is not there. A name stands among the doomed ones from before its bytes are stored until a row
names it, and again once that row is gone: whatever a crash leaves over is swept.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import obstore
from obstore.store import LocalStore, ObjectStore, from_url

from scbroker.errors import InvalidArgumentError, OverloadedError

_PREFIX: Final = "parts"
_CHECK: Final = "parts/00/check"
# The local store writes a name that is new under this one, and renames it when all is there.
_STAGED: Final = "#1"


def new_blob_name(part_id: bytes) -> str:
    """A name that was never used: what is stored under a name never changes."""
    name = part_id.hex()
    return f"{_PREFIX}/{name[:2]}/{name}-{os.urandom(16).hex()}"


def open_blobs(url: str) -> Blobs:
    """The object store of a URL; `InvalidArgumentError` if there is none for it."""
    if url.startswith("file:///"):
        return Folder(Path(url.removeprefix("file://")))
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

    async def put(self, name: str, data: bytes | memoryview) -> None:
        await super().put(name, data)
        path = self._root / name
        try:
            await asyncio.to_thread(_sync, path, path.parent)
        except OSError as error:
            raise OverloadedError("The broker's disk did not take it.", retryAfter=1) from error

    async def remove(self, names: list[str]) -> None:
        """Removes these, and what a broker that was killed had written of them under another name."""
        await super().remove(names)
        staged = [self._root / f"{name}{_STAGED}" for name in names]
        try:
            await asyncio.to_thread(_unlink, staged)
        except OSError as error:
            raise OverloadedError("The broker's disk did not remove it.", 1) from error


def _unlink(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _sync(*paths: Path) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
