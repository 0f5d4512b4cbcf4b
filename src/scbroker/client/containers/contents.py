"""Hand out containers and their contents: whole, saved to a file, as a file-like reader, or listed.

A small content came with the view; a large one is downloaded by its segments.

A list verifies each container as a single read does. The broker serves pages of views in the order of
container ids. A request names the next containers after the cursor that this device has verified, with their
versions: the broker then sends only newer records. If a page lacks a container that this device has verified,
the client requests it by its id. Spec: docs/spec/protocol.md, section 5.
"""

from __future__ import annotations

import asyncio
import io
import logging
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from scbroker import errors
from scbroker.client import parts
from scbroker.client.arguments import Progress, moment, no_progress, now
from scbroker.client.calls import tasks
from scbroker.client.calls.tasks import Promise, io_thread
from scbroker.client.containers import fetching
from scbroker.client.containers.fetching import Fetched, Opened, deletion_proved
from scbroker.client.core.judging import Mark, since_of
from scbroker.client.http.requests import check_order
from scbroker.client.parts import Download
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import each_mark
from scbroker.errors import BrokerError
from scbroker.records.container_record import SEGMENT, Role
from scbroker.types import Container, ContainerPage, Header
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire import containers as wire
from scbroker.wire.containers import MAX_BATCH, MAX_INLINE
from scbroker.wire.parts import CHUNK_SEGMENTS
from scbroker.wire.problems import result_of

OpenHeader = Callable[[bytes | None], Header[Any] | None]
_CACHED: Final = 2
"""Segments that a reader keeps in memory: small reads in a row then download none twice."""


async def get_each(
    session: Session, ids: Sequence[uuid.UUID], open_header: OpenHeader, asked: Collection[Role]
) -> list[Container[Any] | BrokerError]:
    """Return each container with the parts in `asked`, or its error, in the order of the ids."""
    with_header, with_content = Role.Header in asked, Role.Content in asked
    found: dict[uuid.UUID, Container[Any] | BrokerError] = {}
    open_one = partial(_opened, session, open_header, asked)

    async def get_some(some: Sequence[uuid.UUID]) -> None:
        fetched = await fetching.fetch_many(session, some, header=with_header, content=with_content)
        outcomes = await tasks.each_in_pool(open_one, fetched)
        for container_id, outcome in zip(some, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                found[container_id] = outcome
                continue
            opened, small = outcome
            with tasks.alone(partial(found.__setitem__, container_id)):
                if small.content is None and with_content:  # absent, or too large for a view
                    content = await read(session, opened, no_progress)
                    if content is not None:
                        small = fetching.container(
                            session, opened, content, small.header, asked=asked
                        )
                found[container_id] = small

    once = list(dict.fromkeys(ids))
    size = tasks.group_size(len(once), MAX_BATCH)
    groups = (once[at : at + size] for at in range(0, len(once), size))
    await tasks.a_few_at_once(get_some(group) for group in groups)
    return [tasks.shown(found[container_id]) for container_id in ids]


def _opened(
    session: Session,
    open_header: OpenHeader | None,
    asked: Collection[Role],
    fetched: Fetched | BrokerError,
) -> tuple[Opened, Container[Any]]:
    """Open a container and the parts of its view that are asked for; raise its error."""
    if isinstance(fetched, BrokerError):
        raise fetched
    opened = fetching.open_fetched(session, fetched)
    header = content = None
    if open_header is not None and Role.Header in asked:
        header = open_header(fetching.read_part(opened, Role.Header))
    if Role.Content in asked:
        content = fetching.read_part(opened, Role.Content)
    return opened, fetching.container(session, opened, content, header, asked=asked)


async def read(session: Session, opened: Opened, progress: Progress) -> bytes | None:
    """Return the whole content; None if it is absent or this reader may not read it."""
    found = _find(session, opened)
    if isinstance(found, Download):
        async with deletion_proved(session, opened.container_id):
            return await parts.whole(found, progress)
    if found is not None:
        progress(len(found), len(found))
    return found


async def save(session: Session, opened: Opened, target: Path, progress: Progress) -> int | None:
    """Write the content to a file; return its length in bytes, or None if nothing is written."""
    found = _find(session, opened)
    if found is None:
        return None
    if isinstance(found, Download):
        async with deletion_proved(session, opened.container_id):
            return await parts.save_large(session, found, target, progress)
    length = await parts.save_small(target, found)
    progress(length, length)
    return length


async def reader(session: Session, opened: Opened) -> ContentReader | None:
    """Return the content as a file-like reader, or None as `read` does."""
    found = _find(session, opened)
    if found is None:
        return None
    container_id, version = opened.container_id, opened.state.record.version
    if isinstance(found, Download) and session.is_offline:
        # Fail now if the cache lacks the content; online, the first read requests it.
        await found.hashes()
    return ContentReader(session, container_id, version, found)


def _find(session: Session, opened: Opened) -> bytes | Download | None:
    """Return the content of the view, or the download of a large content."""
    part = opened.part(Role.Content)
    if part is None:
        return None
    if part.part.paddedLength > MAX_INLINE:
        may_download = opened.state.may(ContainerAccessLevel.Download)
        return Download(session, part, opened.query) if may_download else None
    return fetching.read_part(opened, Role.Content)


class ContentReader(io.RawIOBase):
    """A content as it was when `openContainerContent` opened it, as a seekable binary file.

    Reading downloads the segments of 1 MiB that it touches, and verifies each against the signed hashes. The
    last two are cached, so that small reads in a row download none twice. `read` and `readinto` block on the
    network: in an event loop, await `readRange`. Errors are those of `getContainerContent`.
    Usable with `with`; `close` forgets the content's key. After `logout` nothing more can be read.
    """

    def __init__(
        self, session: Session, containerId: uuid.UUID, version: int, source: Download | bytes
    ) -> None:
        self.containerId: uuid.UUID = containerId
        self.version: int = version
        """The container's version that was opened; later changes are not visible here."""
        self.size: int = len(source) if isinstance(source, bytes) else source.length
        """The content's length in bytes."""
        self._session = session
        self._source: Download | bytes = source
        self._segments: dict[int, memoryview] = {}
        self._position = 0

    def readRange(self, offset: int, length: int) -> Promise[bytes]:
        """Return `length` bytes from `offset` on, fewer only at the content's end.

        The position stays as it is. Raises `invalidArgumentError` for numbers below 0.
        """
        self._check_open()
        numbers: dict[str, object] = {"offset": offset, "length": length}
        for name, number in numbers.items():
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise errors.InvalidArgumentError(
                    f"{name} must be an int of 0 or more, not {number!r:.40}"
                )
        work = self._session.hold(self._range(self._source, offset, length))
        return Promise("readRange", io_thread.submit("readRange", work, self))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check_open()
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}
        if whence not in starts or starts[whence] + offset < 0:
            raise errors.InvalidArgumentError(
                f"seek({offset}, {whence}) does not lead to a position of 0 or more: whence must be "
                "SEEK_SET, SEEK_CUR or SEEK_END"
            )
        self._position = starts[whence] + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        # Override: the base class would read into a buffer of its own and copy that.
        if size is None or size < 0:
            return self.readall()
        found = self.readRange(self._position, size).result()
        self._position += len(found)
        return found

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        found = self.readRange(self._position, len(target)).result()
        target[: len(found)] = found
        self._position += len(found)
        return len(found)

    def readall(self) -> bytes:
        found = self.readRange(self._position, max(0, self.size - self._position)).result()
        self._position += len(found)
        return found

    def close(self) -> None:
        self._source = b""
        self._segments.clear()
        super().close()

    def __repr__(self) -> str:
        return f"<ContentReader of container {self.containerId}, {self.size} bytes>"

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("The reader was closed.")
        if self._session.keys.is_forgotten:
            raise errors.NotAuthenticatedError("The session was logged out meanwhile.")

    async def _range(self, source: Download | bytes, offset: int, length: int) -> bytes:
        end = min(offset + length, self.size)
        if isinstance(source, bytes):
            return source[offset:end]
        pieces = []
        index, last = offset // SEGMENT, (end - 1) // SEGMENT
        try:
            while index <= last and offset < end:
                if (segment := self._segments.get(index)) is not None:
                    found = [segment]
                else:
                    count = min(CHUNK_SEGMENTS, last - index + 1)
                    async with deletion_proved(self._session, self.containerId):
                        found = await source.segments(index, count)
                    self._keep(index + count - 1, found[-1])
                for number, segment in enumerate(found, index):
                    start = number * SEGMENT
                    pieces.append(segment[max(0, offset - start) : end - start])
                index += len(found)
            return b"".join(pieces)
        except MemoryError:
            raise errors.TooLargeError(
                f"A range of {length} bytes does not fit into memory: read less at once."
            ) from None

    def _keep(self, index: int, segment: memoryview) -> None:
        """Cache the last segment that was read, in which the next read may begin."""
        if self.closed:
            return
        self._segments[index] = segment
        while len(self._segments) > _CACHED:
            del self._segments[next(iter(self._segments))]


_DENIED: Final = (errors.NotFoundError, errors.UnreachableError)
"""Errors that put a container into `leftOut`: the broker denies the container, or the cache lacks it."""
LEFT_OUT: Final = (
    "The broker leaves out containers that this device has read: %d, the first is %s. listContainers names "
    "them in leftOut."
)
_log = logging.getLogger("scbroker")
Entry = Container[Any] | BrokerError


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parameters of a list that are the same for all of its pages."""

    type: str | None
    limit: int
    open_header: OpenHeader | None
    """None if headers are not asked for."""


@dataclass(frozen=True, slots=True)
class _Served:
    """A page as the broker served it, in order and not verified."""

    views: fetching.Views
    known: fetching.StoredMarks
    """The marks that the page was requested with."""
    missing: Sequence[uuid.UUID]
    """Containers of the page's range that have a mark, and that the page does not have."""
    next: uuid.UUID | None


async def page(session: Session, wanted: Wanted, after: uuid.UUID | None) -> ContainerPage[Any]:
    """Return the page after an id: at most `wanted.limit` containers, and those that the broker left out."""
    return await _verified(session, wanted, await _request(session, wanted, after))


async def pages(
    session: Session, wanted: Wanted, after: uuid.UUID | None
) -> AsyncGenerator[Sequence[Entry], None]:
    """Yield the entries of each page; the next page is requested while one is verified."""
    upcoming: asyncio.Task[_Served] | None = _begun(session, wanted, after)
    try:
        while upcoming is not None:
            served = await upcoming
            upcoming = None if served.next is None else _begun(session, wanted, served.next)
            found = await session.hold(_verified(session, wanted, served))
            if found.leftOut and not session.is_offline:
                _log.warning(LEFT_OUT, len(found.leftOut), found.leftOut[0])
            yield found.containers
    finally:
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)


def _begun(session: Session, wanted: Wanted, after: uuid.UUID | None) -> asyncio.Task[_Served]:
    """Start the request of a page."""

    async def request() -> _Served:
        # `hold` counts the request as under way: call it in the task, which may be cancelled before it runs.
        return await session.hold(_request(session, wanted, after))

    return asyncio.create_task(request())


async def _request(session: Session, wanted: Wanted, after: uuid.UUID | None) -> _Served:
    """Request a page; name in the request the first marks after the cursor.

    The marks are read before the request, so that a container that this device creates meanwhile does not
    count as missing. If `limit` marks were found, there may be more after them: then a page of all types is
    cut at the last of them, so that at most `limit` containers are missing. Marks have no type, so a page of
    one type has no missing containers.
    """
    known = _marks_after(session, after, wanted.limit)
    last = max(known) if len(known) == wanted.limit else None
    if session.is_offline:
        # A cache cannot list, so each container with a mark is requested by its id.
        if not known and after is None:
            raise errors.OfflineError(
                "The cache has no container, and the broker is away: list again when it is back."
            )
        return _Served({}, {}, list(known), last)
    message = wire.ListRequest(
        after=None if after is None else str(after),
        limit=wanted.limit,
        type=wanted.type,
        header=wanted.open_header is not None,
        known=[
            wire.KnownContainer(containerId=str(each), since=since)
            for each, (_, mark) in known.items()
            if (since := since_of(mark)) is not None
        ],
    )
    answer = await session.call("POST", "/v1/containers/list", wire.ContainerList, message=message)
    views = {
        uuid.UUID(item.containerId): result_of(item.view, item.problem)
        for item in answer.containers
    }
    following = None if answer.next is None else uuid.UUID(answer.next)
    ids = [item.containerId for item in answer.containers]
    check_order(ids, after, answer.next, wanted.limit)
    if wanted.type is not None:
        return _Served(views, known, (), following)
    if last is not None:
        following = last if following is None else min(following, last)
        views = {each: view for each, view in views.items() if each <= following}
    missing = [
        each for each in known if each not in views and (following is None or each <= following)
    ]
    return _Served(views, known, missing, following)


def _marks_after(
    session: Session, after: uuid.UUID | None, count: int
) -> dict[uuid.UUID, tuple[bytes, Mark]]:
    """Return the first marks after an id, by id.

    Leaves out containers that were proved to be deleted, or that the user has left.
    """
    found: dict[uuid.UUID, tuple[bytes, Mark]] = {}
    first = b"" if after is None else after.bytes
    for key, stored in each_mark(session.marks, fetching.KIND, first, size=count):
        mark = Mark.decode(stored)
        if not (mark.deleted or mark.left):
            found[uuid.UUID(bytes=key)] = stored, mark
        if len(found) == count:
            break
    return found


async def _verified(session: Session, wanted: Wanted, served: _Served) -> ContainerPage[Any]:
    """Verify and open the containers of a page; fetch those that the broker left out."""
    fetched = await fetching.judge_listed(session, served.views, served.known)
    again = [each for each in served.views if each not in fetched]
    left = [*again, *served.missing]  # or changed since the page was requested
    header = wanted.open_header is not None
    if left:
        fetched |= zip(left, await fetching.fetch_many(session, left, header=header), strict=True)
    denied = [each for each in served.missing if isinstance(fetched[each], _DENIED)]
    ids = sorted(fetched.keys() - set(denied))

    entries: list[Entry] = []
    outcomes = await tasks.each_in_pool(
        partial(_open, session, wanted), [fetched[each] for each in ids]
    )
    for each, outcome in zip(ids, outcomes, strict=True):
        if isinstance(outcome, errors.DeletedError):
            continue
        if isinstance(outcome, BrokerError):
            outcome = outcome.fresh()
            outcome.containerId = each
        elif session.is_offline and wanted.type is not None and outcome.type != wanted.type:
            continue
        elif each in served.missing and not session.is_offline:
            _log.warning("The broker's list leaves out container %s, which it serves.", each)
        entries.append(outcome)
    # Marks have no type, so a list of one type cannot be checked for missing containers.
    left_out = denied if wanted.type is None else []
    as_of = None  # when the broker served the oldest copy of a page from the cache
    if session.is_offline:
        times = [entry.asOf for entry in entries if isinstance(entry, Container) and entry.asOf]
        as_of = min(times, default=moment(now()))
    return ContainerPage(entries, served.next, left_out, as_of)


def _open(session: Session, wanted: Wanted, fetched: Fetched | BrokerError) -> Container[Any]:
    """Return a container without content; raise its error, or `IntegrityError` for another type."""
    asked = () if wanted.open_header is None else (Role.Header,)
    _, found = _opened(session, wanted.open_header, asked, fetched)
    if wanted.type is not None and found.type != wanted.type and not session.is_offline:
        raise errors.IntegrityError(
            "The broker lists a container of another type than the one that was asked for."
        )
    return found
