"""The object store for chunks of large contents: a folder by default, or S3 and others by URL.

A chunk is stored before the row that references it and deleted after that row, so that no row references
a missing object. Its name is recorded as pending deletion before the chunk is stored, until a row references
it, and again when that row is deleted: whatever a crash leaves behind is swept. No name is used twice, so
the order of concurrent writes does not matter.

The environment configures access to S3: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY and so on.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import math
import os
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote

import obstore
import structlog
from obstore.store import LocalStore, ObjectStore, S3Store, from_url

from scbroker.errors import InvalidArgumentError, OverloadedError
from scbroker.server import metrics
from scbroker.server.logs import measured
from scbroker.server.storage.database import DISK_FULL

_log: Final = structlog.get_logger("scbroker.server")
_REMOTE: Final = ("s3", "gs", "az")
_PREFIX: Final = "parts"
_PAGE: Final = 500
_HEADS: Final = 8
_NAME: Final = re.compile(r"parts/([0-9a-f]{2})/(\1[0-9a-f]{30})-[0-9a-f]{32}(-[0-9]{1,20})?\Z")
_CHECK: Final = "parts/00/check"
_CHECK_SECONDS: Final = 10.0
_SAME_ANSWER: Final = 1.0
# Seconds after a successful put in which `check` does not write.
_WRITABLE_SECONDS: Final = 60.0
_CONNECT: Final = timedelta(seconds=5)
# Time limits of one attempt, and for starting further ones: in all less than the client's two minutes.
_ATTEMPT: Final = timedelta(seconds=30)
_RETRIES: Final[dict[str, Any]] = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=15),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=2),
        "base": 2,
    },
}
# The local store writes a new object under its name with this suffix, and renames it when it is complete.
_STAGED: Final = "#1"
# Seconds after which a failure ends a round of deletions.
_REMOVING: Final = 20.0
# After a failed put, the disk counts as full unless the object and so many bytes more would fit: other chunks
# are being written at the same time.
_SPARE: Final = 64 * 1_048_576


class Stored(NamedTuple):
    """A chunk's object in the store's listing."""

    name: str
    size: int
    modified: datetime

    @property
    def part_id(self) -> bytes:
        return bytes.fromhex(self.name.split("/")[2][:32])


def new_blob_name(part_id: bytes, good_until: int | None = None) -> str:
    """Return a name that was never used before.

    `good_until` is the end of a presigned URL for it, in microseconds since 1970: until then its holder may
    store and replace the object. Without it the object never changes.
    """
    name = part_id.hex()
    ending = "" if good_until is None else f"-{good_until}"
    return f"{_PREFIX}/{name[:2]}/{name}-{os.urandom(16).hex()}{ending}"


def is_name_of(name: str, part_id: bytes) -> bool:
    """Return whether `new_blob_name` can have made the name for this part."""
    match = _NAME.match(name)
    return match is not None and match[2] == part_id.hex()


def good_until(name: str) -> int:
    """Return when the presigned URL for this name expires; 0 if none was made."""
    endings = name.split("-")[2:]
    return int(endings[0]) if endings else 0


def path_of(url: str) -> Path:
    """Return the folder of a percent-encoded file:/// URL."""
    return Path(unquote(url.removeprefix("file://")))


def open_blobs(url: str) -> Blobs:
    """Open the object store of a URL; `InvalidArgumentError` if the URL cannot be used."""
    if url.startswith("file:///"):
        return Folder(path_of(url))
    options: dict[str, Any] = {}
    if url.partition(":")[0] in _REMOTE:
        # obstore ignores this variable as soon as any option is given.
        allow_http = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")
        client = {"connect_timeout": _CONNECT, "timeout": _ATTEMPT, "allow_http": allow_http}
        options = {"client_options": client, "retry_config": _RETRIES}
    try:
        return Blobs(from_url(url, **options))
    except Exception as error:
        why = str(error).partition("\n")[0]
        raise InvalidArgumentError(f"object_store_url cannot be used: {why}") from None


def _failed(action: str) -> OverloadedError:
    return OverloadedError(f"The broker's object store failed ({action}): try again later.", 1)


@contextlib.contextmanager
def _asking(action: str, purpose: str) -> Iterator[None]:
    """Measure a request to the store; raise failures as `OverloadedError`, except a missing object."""
    try:
        with measured("store", action):
            yield
    except FileNotFoundError:
        raise
    except Exception as error:
        metrics.STORE_FAILURES.labels(action).inc()
        raise _failed(purpose) from error


class Blobs:
    """An object store whose put is durable when it returns. What an S3 has acknowledged is durable."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._checking = asyncio.Lock()
        self._checked_until = self._writable_until = -math.inf
        self._failure: Exception | None = None

    async def put(self, name: str, data: bytes | memoryview) -> None:
        """Store an object; it is durable when this returns."""
        try:
            with measured("store", "put"):
                await self._put(name, data)
        except Exception as error:
            metrics.STORE_FAILURES.labels("put").inc()
            self._writable_until = -math.inf
            raise _failed("storing a chunk") from error
        self._writable_until = time.monotonic() + _WRITABLE_SECONDS

    async def _put(self, name: str, data: bytes | memoryview) -> None:
        # No multipart upload: no listing shows the parts that an interrupted one leaves behind.
        await obstore.put_async(self._store, name, data, use_multipart=False)

    async def get(self, name: str, start: int, end: int) -> memoryview:
        """Return the bytes from start to end (exclusive)."""
        try:
            with _asking("get", "reading a chunk"):
                return await self._get(name, start, end)
        except FileNotFoundError as error:
            raise LookupError(f"The object {name} is missing, but a row references it.") from error

    async def _get(self, name: str, start: int, end: int) -> memoryview:
        return memoryview(await obstore.get_range_async(self._store, name, start=start, end=end))

    async def whole(self, name: str) -> memoryview | None:
        """Return all bytes of an object, or None if there is none."""
        with contextlib.suppress(FileNotFoundError), _asking("get", "reading an object"):
            found = await obstore.get_async(self._store, name)
            return memoryview(await found.bytes_async())
        return None

    async def remove(self, names: list[str]) -> dict[str, bool]:
        """Delete objects; return for each attempted name whether no object is left.

        A failure does not keep the others from being deleted, but ends the round after `_REMOVING` seconds.
        """
        if isinstance(self._store, S3Store):  # one request for all; if it fails, one by one
            with contextlib.suppress(Exception), measured("store", "delete"):
                await obstore.delete_async(self._store, names)
                return dict.fromkeys(names, True)
        tried: dict[str, bool] = {}
        until = time.monotonic() + _REMOVING
        for name in names:
            try:
                with measured("store", "delete"):
                    await obstore.delete_async(self._store, name)
                tried[name] = True
            except FileNotFoundError:
                tried[name] = True
            except Exception as error:
                metrics.STORE_FAILURES.labels("delete").inc()
                # Not the error itself: it may contain a URL.
                _log.warning("object not deleted", name=name, cause=type(error).__name__)
                tried[name] = False
                if time.monotonic() > until:
                    break
        return tried

    async def size(self, name: str) -> int | None:
        """Return the size of an object in bytes, or None if there is none."""
        with contextlib.suppress(FileNotFoundError), _asking("head", "asking for a size"):
            return int((await obstore.head_async(self._store, name))["size"])
        return None

    async def sizes(self, names: Sequence[str]) -> list[int | None]:
        """Return the sizes of several objects, a few requests at a time."""
        found: list[int | None] = []
        for at in range(0, len(names), _HEADS):
            some = names[at : at + _HEADS]
            found += await asyncio.gather(*(self.size(name) for name in some))
        return found

    async def presigned_urls(
        self, method: Literal["GET", "PUT"], names: Sequence[str], seconds: int
    ) -> Sequence[str]:
        """Return a URL for each name, valid for so many seconds; none if the store cannot sign URLs."""
        if not isinstance(self._store, S3Store):
            return []
        with _asking("sign", "signing URLs"):
            return await obstore.sign_async(self._store, method, names, timedelta(seconds=seconds))

    async def pages(self) -> AsyncIterator[list[Stored]]:
        """Yield the objects of all chunks, some hundred at a time and in no order; skip other objects."""
        # In threads: a process that ends soon after obstore listed on the event loop aborts.
        with _asking("list", "listing objects"):
            listed = await asyncio.to_thread(obstore.list, self._store, _PREFIX, chunk_size=_PAGE)
            pages = iter(listed)
            while (page := await asyncio.to_thread(next, pages, None)) is not None:
                found = [Stored(meta["path"], meta["size"], meta["last_modified"]) for meta in page]
                yield [stored for stored in found if _NAME.fullmatch(stored.name)]

    async def check(self) -> None:
        """Raise `OverloadedError` while objects cannot be stored or read.

        The result is reused for a second. An object is written only if nothing was stored for a minute or
        the last attempt failed: a proxy checks twice a second, and some stores keep every version.
        """
        async with self._checking:
            if time.monotonic() >= self._checked_until:
                self._failure = None
                try:
                    async with asyncio.timeout(_CHECK_SECONDS):
                        if time.monotonic() >= self._writable_until:
                            await self.put(_CHECK, b"scbroker")
                        try:
                            await self.get(_CHECK, 0, 1)
                        except LookupError:  # the store is new, or was restored
                            await self.put(_CHECK, b"scbroker")
                except (OverloadedError, TimeoutError) as error:
                    self._failure = error
                self._checked_until = time.monotonic() + _SAME_ANSWER
            if self._failure is not None:
                text = "The broker's object store is not available."
                raise OverloadedError(text, retryAfter=1) from self._failure


class Folder(Blobs):
    """A local folder.

    obstore renames a complete file without fsync. `put` syncs file and folder before a row references them:
    otherwise a power cut could lose an acknowledged chunk.
    """

    def __init__(self, root: Path) -> None:
        for number in range(256):
            (root / _PREFIX / f"{number:02x}").mkdir(parents=True, exist_ok=True)
        sync(root / _PREFIX)
        sync(root)
        self._root = root
        super().__init__(LocalStore(root))

    async def put(self, name: str, data: bytes | memoryview) -> None:
        try:
            await super().put(name, data)
        except OverloadedError as error:
            if await asyncio.to_thread(self._is_full, len(data)):
                raise OverloadedError(DISK_FULL, retryAfter=1) from error
            raise

    def _is_full(self, size: int) -> bool:
        """Return whether a failed put of this size may have found no space on the disk."""
        try:
            state = os.statvfs(self._root)
        except OSError:  # the folder is gone, or its disk
            return False
        return state.f_bavail * state.f_frsize < size + _SPARE

    def keeping(self) -> contextlib.AbstractContextManager[None]:
        """Keep all processes from deleting objects; the system releases the lock if this process ends."""
        return self._locked(fcntl.LOCK_EX)

    async def remove(self, names: list[str]) -> dict[str, bool]:
        """Delete objects, and the incomplete files that a killed broker left of them."""
        try:
            with self._locked(fcntl.LOCK_SH | fcntl.LOCK_NB):
                tried = await super().remove(names)
                for name in names:
                    (self._root / f"{name}{_STAGED}").unlink(missing_ok=True)
                return tried
        except BlockingIOError:
            raise OverloadedError(
                "A backup is running: objects are deleted when it is complete.", retryAfter=60
            ) from None
        except OSError as error:
            raise OverloadedError("The broker's disk failed (deleting objects).", 1) from error

    @contextlib.contextmanager
    def _locked(self, operation: int) -> Iterator[None]:
        descriptor = os.open(self._root / _PREFIX, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, operation)
            yield
        finally:
            os.close(descriptor)

    async def _get(self, name: str, start: int, end: int) -> memoryview:
        # obstore would fill the memory with zeros first.
        return await asyncio.to_thread(_read, self._root / name, start, end)

    async def _put(self, name: str, data: bytes | memoryview) -> None:
        await super()._put(name, data)
        path = self._root / name
        await asyncio.to_thread(sync, path, path.parent)


def _read(path: Path, start: int, end: int) -> memoryview:
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        found = file.read(end - start)
    if len(found) < end - start:
        raise OSError(f"{path} has fewer than {end} bytes")
    return memoryview(found)


def sync(*paths: Path) -> None:
    """Sync files or folders, so that their contents survive a power cut."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
