"""Chunks of large contents in an object store: a folder by default, S3 and the like by URL.

A chunk is stored before the row that names it and removed after it, so that a row never names
what is not there. A name stands among the doomed ones from before its bytes are stored until a row
names it, and again once that row is gone: whatever a crash leaves over is swept.

Where an S3 is and its keys stand in the environment, as AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY and so on. No name is given twice, so that nothing depends on who writes first there.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import math
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import unquote

import obstore
import structlog
from obstore.store import LocalStore, ObjectStore, S3Store, from_url

from scbroker.errors import InvalidArgumentError, OverloadedError

if TYPE_CHECKING:
    from obstore.store import RetryConfig

_log: Final = structlog.get_logger("scbroker.server")
_REMOTE: Final = ("s3", "gs", "az")
_PREFIX: Final = "parts"
_PAGE: Final = 500
_HEADS: Final = 8
_NAME: Final = re.compile(r"parts/([0-9a-f]{2})/(\1[0-9a-f]{30})-[0-9a-f]{32}(-[0-9]{1,20})?\Z")
_CHECK: Final = "parts/00/check"
_CHECK_SECONDS: Final = 10.0
_SAME_ANSWER: Final = 1.0
# Seconds for which a store that took something is believed to take more.
_TAKES: Final = 60.0
_CONNECT: Final = timedelta(seconds=5)
# Of one try, and from the first on until no other is begun: a client waits for two minutes.
_TRY: Final = timedelta(seconds=30)
_TRIES: Final[RetryConfig] = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=15),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=2),
        "base": 2,
    },
}
# The local store writes a name that is new under this one, and renames it when all is there.
_STAGED: Final = "#1"
# Seconds after which a store that fails to remove one thing is asked to remove no other.
_REMOVING: Final = 20.0


class Stored(NamedTuple):
    """An object of a chunk, as the store lists it."""

    name: str
    size: int
    modified: datetime

    @property
    def part_id(self) -> bytes:
        return bytes.fromhex(self.name.split("/")[2][:32])


def new_blob_name(part_id: bytes, good_until: int | None = None) -> str:
    """A name that was never used: what is stored under a name never changes.

    Unless it was handed out, with an address to put to that is good until then: microseconds since 1970.
    """
    name = part_id.hex()
    ending = "" if good_until is None else f"-{good_until}"
    return f"{_PREFIX}/{name[:2]}/{name}-{os.urandom(16).hex()}{ending}"


def is_name_of(name: str, part_id: bytes) -> bool:
    """Whether a name is one that could have been given for this part."""
    match = _NAME.match(name)
    return match is not None and match[2] == part_id.hex()


def good_until(name: str) -> int:
    """How long somebody else may put something there; 0 for never."""
    endings = name.split("-")[2:]
    return int(endings[0]) if endings else 0


def path_of(url: str) -> Path:
    """The folder of a file:///… URL, in which a space is %20."""
    return Path(unquote(url.removeprefix("file://")))


def open_blobs(url: str, patience: timedelta = _TRY) -> Blobs:
    """The object store of a URL, of which an answer is waited for so long.

    `InvalidArgumentError` if there is none for it.
    """
    if url.startswith("file:///"):
        return Folder(path_of(url))
    try:
        store = _opened(url, patience)
    except Exception as error:
        why = str(error).partition("\n")[0]
        raise InvalidArgumentError(f"object_store_url cannot be used: {why}") from None
    return Bucket(store) if isinstance(store, S3Store) else Blobs(store)


def _opened(url: str, patience: timedelta) -> ObjectStore:
    if url.partition(":")[0] not in _REMOTE:
        return from_url(url)
    options: Any = {"connect_timeout": _CONNECT, "timeout": patience, "allow_http": _allows_http()}
    tries: Any = _TRIES | {"retry_timeout": min(patience, _TRIES["retry_timeout"])}
    return from_url(url, client_options=options, retry_config=tries)


def _allows_http() -> bool:
    """The environment's word for it counts no more as soon as any option is set here."""
    return os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")


class Blobs:
    """An object store whose put is durable when it returns."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._checking = asyncio.Lock()
        self._checked_until = self._takes_until = -math.inf
        self._failure: Exception | None = None

    async def put(self, name: str, data: bytes | memoryview) -> None:
        try:
            # In one request: what is begun in several, a kill leaves where no listing shows it.
            await obstore.put_async(self._store, name, data, use_multipart=False)
            self._takes_until = time.monotonic() + _TAKES
        except Exception as error:
            self._takes_until = -math.inf
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

    async def remove(self, names: list[str]) -> dict[str, bool]:
        """Removes what is there of these; gives of each that was tried whether it is gone.

        One that cannot be removed keeps none of the others; a store that is away is not asked for long.
        """
        tried: dict[str, bool] = {}
        until = time.monotonic() + _REMOVING
        for name in names:
            try:
                await obstore.delete_async(self._store, name)
                tried[name] = True
            except FileNotFoundError:
                tried[name] = True
            except Exception as error:
                # The error itself may have an address in it.
                _log.warning("object not removed", name=name, cause=type(error).__name__)
                tried[name] = False
                if time.monotonic() > until:
                    break
        return tried

    async def size(self, name: str) -> int | None:
        """Bytes of what is stored under a name; None if nothing is. Threads are few, and a store may hang."""
        try:
            return int((await obstore.head_async(self._store, name))["size"])
        except FileNotFoundError:
            return None
        except Exception as error:
            raise OverloadedError("The broker's object store did not answer.", 1) from error

    async def sizes(self, names: Sequence[str]) -> list[int | None]:
        """The same of several, a few at once."""
        found: list[int | None] = []
        for at in range(0, len(names), _HEADS):
            some = names[at : at + _HEADS]
            found += await asyncio.gather(*(self.size(name) for name in some))
        return found

    async def addresses(
        self, method: Literal["GET", "PUT"], names: Sequence[str], seconds: int
    ) -> Sequence[str]:
        """A URL for each name, by which whoever has it may get or put so long; none if the store has none."""
        del method, names, seconds
        return []

    async def pages(self) -> AsyncIterator[list[Stored]]:
        """All objects of chunks, some hundred at a time, in no order; what else lies there is left out."""
        # In threads: what obstore does on the loop aborts a process that ends soon after.
        listing = partial(obstore.list, self._store, _PREFIX, chunk_size=_PAGE)
        pages = iter(await self._asked(listing))
        while (page := await self._asked(next, pages, None)) is not None:
            found = [Stored(meta["path"], meta["size"], meta["last_modified"]) for meta in page]
            yield [stored for stored in found if _NAME.fullmatch(stored.name)]

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
        """Raises `OverloadedError` while nothing can be stored or read.

        Who asks within a second of another has the same answer. It is written where nothing was stored for
        a minute, or the last try failed: a proxy asks twice a second, and some stores keep every version.
        """
        async with self._checking:
            if time.monotonic() >= self._checked_until:
                self._failure = await self._failing()
                self._checked_until = time.monotonic() + _SAME_ANSWER
            failure = self._failure
        if failure is not None:
            raise OverloadedError("The broker's object store does not answer.", 1) from failure

    async def _failing(self) -> Exception | None:
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                if time.monotonic() >= self._takes_until:
                    await self.put(_CHECK, b"scbroker")
                await self._read_or_write_check()
        except (OverloadedError, TimeoutError) as error:
            return error
        return None

    async def _read_or_write_check(self) -> None:
        try:
            await self.get(_CHECK, 0, 1)
        except LookupError:  # of a store that is new, or was put back
            await self.put(_CHECK, b"scbroker")


class Bucket(Blobs):
    """A bucket of an S3. What it acknowledged is durable."""

    def __init__(self, store: S3Store) -> None:
        super().__init__(store)
        self._bucket = store

    async def remove(self, names: list[str]) -> dict[str, bool]:
        """In one request for a thousand names; if that fails for one of them, one after the other."""
        try:
            await obstore.delete_async(self._bucket, names)
        except Exception:
            return await super().remove(names)
        return dict.fromkeys(names, True)

    async def addresses(
        self, method: Literal["GET", "PUT"], names: Sequence[str], seconds: int
    ) -> Sequence[str]:
        try:
            return await obstore.sign_async(self._bucket, method, names, timedelta(seconds=seconds))
        except Exception as error:
            raise OverloadedError("The broker's object store gave no address.", 1) from error


class Folder(Blobs):
    """A local folder. The store renames into place without syncing: here file and folder are
    synced before the row commits, or an acknowledged create would die with the power."""

    def __init__(self, root: Path) -> None:
        for number in range(256):
            (root / _PREFIX / f"{number:02x}").mkdir(parents=True, exist_ok=True)
        sync(root / _PREFIX)
        sync(root)
        self._root = root
        super().__init__(LocalStore(root))

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        """Nothing is removed meanwhile, by whatever process; the system ends it with this one."""
        with self._locked(fcntl.LOCK_EX):
            yield

    async def remove(self, names: list[str]) -> dict[str, bool]:
        """Removes these, and what a broker that was killed had written of them under another name."""
        staged = [self._root / f"{name}{_STAGED}" for name in names]
        try:
            with self._locked(fcntl.LOCK_SH | fcntl.LOCK_NB):
                tried = await super().remove(names)
                await asyncio.to_thread(_unlink, staged)
                return tried
        except BlockingIOError:
            raise OverloadedError(
                "A backup is being taken: nothing is removed until it is through.", retryAfter=60
            ) from None
        except OSError as error:
            raise OverloadedError("The broker's disk did not remove it.", 1) from error

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
            await asyncio.to_thread(sync, path, path.parent)
        except OSError as error:
            self._takes_until = -math.inf
            raise OverloadedError("The broker's disk did not take it.", retryAfter=1) from error


def _unlink(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def sync(*paths: Path) -> None:
    """What is in these files or folders survives a power cut."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
