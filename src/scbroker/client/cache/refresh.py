"""Read cached containers anew after others changed them, so that the cache has the newest while it can.

The client follows the event log. An event is the broker's word: it only decides which containers are
read, and each of them is verified. Containers are read a few at a time with a pause, also after a long
absence. The cache stores the place in the log once all changes up to it were read.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Iterable
from typing import Final

import msgspec

from scbroker import errors
from scbroker.client import events, following
from scbroker.client.cache.copies import Copies, Copy
from scbroker.client.cache.reach import Reach
from scbroker.client.calls import tasks
from scbroker.client.calls.io_thread import io_thread
from scbroker.client.containers import fetching, opening
from scbroker.client.containers.opening import Fetched
from scbroker.client.parts.content import no_progress
from scbroker.client.parts.downloads import Download
from scbroker.client.users.session import Session
from scbroker.records.container_record import Role
from scbroker.vocabulary import ContainerEventType
from scbroker.wire.containers import MAX_INLINE

_AT_ONCE: Final = 16
_PAUSE: Final = 0.2
"""Seconds before each request, in which further events are gathered."""
_RETRY_SECONDS: Final = 10.0
_PLACE: Final = "place"
_log = logging.getLogger("scbroker")


class Refresh:
    """The cached containers that have to be read anew."""

    def __init__(self, session: Session, copies: Copies, reach: Reach) -> None:
        self._session, self._copies, self._reach = session, copies, reach
        self._stale: dict[uuid.UUID, int] = {}
        """The versions that the cache should have; 0 is whatever the broker serves."""
        self._is_stale = asyncio.Event()
        self._next: int | None = None
        """The id of the next event."""

    def changed(self, ids: Iterable[uuid.UUID], version: int = 0) -> None:
        """Read those of these containers anew that the cache has."""
        for container_id in ids:
            if self._copies.has(container_id, touch=False):
                self._stale[container_id] = version
        if self._stale:
            self._is_stale.set()

    async def follow(self) -> None:
        """Follow the event log. Runs as long as the session."""
        stored = await io_thread.in_pool(self._copies.folder.read, _PLACE, b"")
        with contextlib.suppress(msgspec.DecodeError):  # a newer version of this program wrote it
            self._next = None if stored is None else msgspec.msgpack.decode(stored, type=int)
        while True:
            await self._reach.reached()
            try:
                await self._follow_on()
            except errors.EventsExpiredError as error:
                # The dropped events are unknown: read all cached containers anew.
                self.changed(await io_thread.in_pool(self._cached))
                self._next = error.firstId
            except errors.UnreachableError:
                await self._reach.suspect(self._session)
                await asyncio.sleep(_PAUSE)
            except (errors.BrokerUnavailableError, errors.ConflictError):
                await asyncio.sleep(_RETRY_SECONDS)

    async def _follow_on(self) -> None:
        if self._next is None:
            self._next = await events.end_of_log(self._session) + 1
            await self._keep_place()
        began = asyncio.get_running_loop().time()
        found = await following.next_events(self._session, self._next)
        if found:
            self._next = found[-1].id + 1
            for event in found:
                if event.eventType != ContainerEventType.Accessed:
                    # A departure changes access and no version.
                    is_update = event.eventType == ContainerEventType.Updated
                    has_version = is_update and "access" not in event.changes
                    self.changed(
                        [uuid.UUID(event.containerId)], event.version if has_version else 0
                    )
            if not self._stale:
                await self._keep_place()
        else:
            await asyncio.sleep(max(0.0, began + 1 - asyncio.get_running_loop().time()))

    async def read(self) -> None:
        """Read changed containers anew. Runs as long as the session."""
        while True:
            await self._is_stale.wait()
            await asyncio.sleep(_PAUSE)
            await self._reach.reached()
            some = list(self._stale)[:_AT_ONCE]
            try:
                await self._session.hold(self._read(some))
            except errors.UnreachableError:
                await self._reach.suspect(self._session)
                continue
            except errors.BrokerUnavailableError:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            except errors.BrokerError as error:
                # An answer that refuses must not end what asks an absent broker again.
                _ = self._session.keys.ring  # raises if the session ended
                _log.warning("Cached containers could not be read anew: %s", error)
                await asyncio.sleep(_PAUSE)
            for container_id in some:
                del self._stale[container_id]
            if not self._stale:
                self._is_stale.clear()
                await self._keep_place()

    async def _read(self, ids: list[uuid.UUID]) -> None:
        """Read containers with the parts that their copies have; the session's keeper copies them."""
        copies = {}
        for container_id in ids:
            copy = await io_thread.in_pool(self._copies.find, container_id)
            version = self._stale[container_id]
            if copy is not None and (copy.denied or not 0 < version <= copy.version):
                copies[container_id] = copy
        for header, content in ((False, False), (False, True), (True, False), (True, True)):
            some = {
                each: copy
                for each, copy in copies.items()
                if (copy.header, copy.content) == (header, content)
            }
            if not some:
                continue
            whole = {
                each
                for each, copy in some.items()
                if await io_thread.in_pool(self._copies.has_content, each, copy)
            }
            outcomes = await fetching.fetch_many(
                self._session, list(some), header=header, content=content or bool(whole)
            )
            for container_id, outcome in zip(some, outcomes, strict=True):
                if isinstance(outcome, Fetched) and (content or container_id in whole):
                    with tasks.alone(lambda _: None):  # it is read anew when the program reads it
                        await self._download(outcome, some[container_id])

    async def _download(self, fetched: Fetched, before: Copy) -> None:
        """Download a large content whose former version the cache had whole."""
        part = opening.open_fetched(self._session, fetched).part(Role.Content)
        if part is None or part.part.partId == before.part:
            return
        if MAX_INLINE < part.part.paddedLength <= self._copies.folder.largest:
            download = await Download.start(self._session, part)
            await download.run(lambda *_: None, no_progress)

    def _cached(self) -> list[uuid.UUID]:
        """Return the containers that this device has read and that the cache has."""
        found, last = list[uuid.UUID](), b""
        while some := self._session.marks.page(fetching.KIND, last, 1000):
            ids = [uuid.UUID(bytes=last) for last, _ in some]
            found += [each for each in ids if self._copies.has(each, touch=False)]
            last = ids[-1].bytes
        return found

    async def _keep_place(self) -> None:
        place = msgspec.msgpack.encode(self._next)
        await io_thread.in_pool(self._copies.folder.write, _PLACE, b"", place)
