"""Read cached containers again after others changed them, so that the cache is current in an outage.

The client follows the event log. An event proves nothing: it only decides which containers are read, and each
of them is verified. Containers are read a few at a time with a pause, also after a long absence. The cache
stores the place in the log once all changes up to it were read.

After one request without an answer the broker counts as away, and no operation waits for it any more. A probe
asks the broker after growing pauses, and soon after an operation needed it.
"""

import asyncio
import contextlib
import datetime as dt
import itertools
import logging
import secrets
import uuid
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from scbroker import errors
from scbroker.client import events
from scbroker.client.arguments import moment, no_progress, now
from scbroker.client.cache.copies import Copies, Copy
from scbroker.client.calls import tasks
from scbroker.client.calls.tasks import io_thread
from scbroker.client.containers import fetching
from scbroker.client.containers.fetching import Fetched
from scbroker.client.http.requests import answered_soon
from scbroker.client.parts import Download
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import each_mark
from scbroker.errors import BrokerError, UnreachableError
from scbroker.records.container_record import GROUP_TYPE, Role
from scbroker.vocabulary import ContainerEventType
from scbroker.wire.containers import MAX_INLINE

_FIRST_PAUSE: Final = 0.5
"""Seconds before the first probe of an absent broker, less random jitter; each further pause doubles."""
_LONGEST_PAUSE: Final = 30.0


class Reach:
    """Whether the broker answers. Changed on the I/O thread only, and read on any thread."""

    def __init__(self) -> None:
        self.away_since: dt.datetime | None = None
        """When the broker was found to be away; None if it answered last."""
        self.reached: asyncio.Event = asyncio.Event()
        """Set while the broker answers."""
        self.reached.set()
        self._lost, self._needed = asyncio.Event(), asyncio.Event()

    @property
    def is_away(self) -> bool:
        return self.away_since is not None

    def lost(self, error: UnreachableError) -> None:
        """Note that a request got no answer."""
        if self.is_away:
            return
        _log.warning("The broker is away, and the cache answers in its place: %s", error)
        self.away_since = moment(now())
        self.reached.clear()
        self._lost.set()

    def found(self) -> None:
        """Note that the broker answered."""
        if not self.is_away:
            return
        _log.info("The broker answers again: requests go to it again")
        self.away_since = None
        self._lost.clear()
        self.reached.set()

    def needed(self) -> None:
        """Ask an absent broker soon, because an operation failed without it."""
        self._needed.set()

    async def suspect(self, session: Session) -> None:
        """Ask a broker whose connection was lost; note that it is away if it does not answer."""
        try:
            await _ask(session)
        except UnreachableError as error:
            self.lost(error)

    async def watch(self, session: Session) -> None:
        """Ask the broker whenever it is away, until it answers. Runs as long as the session."""
        while True:
            await self._lost.wait()
            attempt = 0
            while self.is_away:
                attempt += 1
                self._needed.clear()
                pause = min(_FIRST_PAUSE * 2.0 ** min(attempt - 1, 10), _LONGEST_PAUSE)
                pause *= (1 + secrets.randbelow(1001) / 1000) / 2
                try:
                    async with asyncio.timeout(pause):
                        await self._needed.wait()
                        await asyncio.sleep(_FIRST_PAUSE)  # at most two requests a second
                except TimeoutError:
                    pass
                try:
                    await _ask(session)
                except UnreachableError:
                    continue
                self.found()


async def _ask(session: Session) -> None:
    """Probe the broker by a request for the user's own keys; after an offline start it also gets the token.

    Any answer shows that the broker is reachable, also a refusal.
    """
    try:
        with answered_soon():
            await session.directory.latest_own()
    except UnreachableError:
        raise
    except BrokerError as error:
        _ = session.keys.ring  # raises if the session ended
        _log.debug("The broker answers: %s", error)


_AT_ONCE: Final = 16
_PAUSE: Final = 0.2
"""Seconds to wait before each request, so that it covers further events."""
_RETRY_SECONDS: Final = 10.0
_PLACE: Final = "place"
_PLACES: Final = msgspec.msgpack.Decoder(dict[uuid.UUID | None, int | None])
_log = logging.getLogger("scbroker")


class Refresh:
    """The cached containers that have to be read anew."""

    def __init__(self, session: Session, copies: Copies, reach: Reach) -> None:
        self._session, self._copies, self._reach = session, copies, reach
        self._stale: dict[uuid.UUID, int] = {}
        """By container: the version that the copy must reach; 0 means read it in any case."""
        self._changed = set[uuid.UUID]()
        """Containers marked as stale since `read` last chose which ones to read: these stay stale."""
        self._is_stale = asyncio.Event()
        self._places: dict[uuid.UUID | None, int | None] = {}
        """The ids of the next events, as `events.Logs` has them."""

    def changed(self, ids: Iterable[uuid.UUID], version: int = 0) -> None:
        """Mark containers as stale. `_next` drops those that still have no copy after a pause."""
        for container_id in ids:
            before = self._stale.pop(container_id, version)
            self._stale[container_id] = max(before, version) if before and version else 0
            self._changed.add(container_id)
        if self._stale:
            self._is_stale.set()

    async def follow(self) -> None:
        """Follow the event logs. Runs as long as the session."""
        stored = await io_thread.in_pool(self._copies.folder.read, _PLACE, b"")
        with contextlib.suppress(msgspec.DecodeError):  # another version wrote it: start anew
            self._places = {} if stored is None else _PLACES.decode(stored)
        logs = events.Logs(self._session, self._places, self._begun)
        try:
            while True:
                await self._reach.reached.wait()
                try:
                    await self._follow_on(logs)
                except errors.EventsExpiredError as error:
                    # The dropped events are unknown: read all cached containers anew.
                    self.changed(await io_thread.in_pool(self._cached))
                    logs.places[error.containerId] = error.firstId
                except errors.UnreachableError:
                    await self._reach.suspect(self._session)
                    await asyncio.sleep(_PAUSE)
                except (errors.BrokerUnavailableError, errors.ConflictError):
                    await asyncio.sleep(_RETRY_SECONDS)
        finally:
            await logs.close()

    async def _follow_on(self, logs: events.Logs) -> None:
        await logs.begin()
        if self._places != logs.places:
            self._places = dict(logs.places)
            await self._keep_place()
        source, found = await logs.next()
        groups = set[uuid.UUID]()
        for event in found:
            if event.containerType == GROUP_TYPE:
                groups.add(uuid.UUID(event.containerId))
            elif event.eventType != ContainerEventType.Accessed:
                # A member who leaves changes access without a new version: 0 has the copy read in any case.
                is_update = event.eventType == ContainerEventType.Updated
                has_version = is_update and "access" not in event.changes
                self.changed([uuid.UUID(event.containerId)], event.version if has_version else 0)
        try:
            for group in groups:
                try:
                    await self._session.groups.opened(group, fresh=True)
                except (errors.NotFoundError, errors.DeletedError):  # the membership has ended
                    self.changed(await io_thread.in_pool(self._cached, {str(group)}))
                except errors.UntrustedError as error:
                    _log.warning("Group %s could not be read anew: %s", group, error)
        except errors.BrokerError:
            logs.places[source.group] = found[0].id  # reads these events again next time
            raise
        self._places = dict(logs.places)
        await self._keep_place()

    async def _begun(self, logs: set[uuid.UUID | None]) -> None:
        """Mark the containers read through these groups as stale; None, the user's own log, means all."""
        via = None if None in logs else {str(group) for group in logs}
        self.changed(await io_thread.in_pool(self._cached, via))

    async def read(self) -> None:
        """Read changed containers anew. Runs as long as the session."""
        while True:
            await self._is_stale.wait()
            await asyncio.sleep(_PAUSE)
            await self._reach.reached.wait()
            some = self._next()
            self._changed.clear()
            try:
                await self._session.hold(self._read(some))
            except errors.UnreachableError:
                await self._reach.suspect(self._session)
                continue
            except errors.BrokerError as error:
                if error.retryable:
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                # An error would end the task group, and with it the probes of an absent broker.
                _ = self._session.keys.ring  # raises if the session ended
                _log.warning("Cached containers could not be read anew: %s", error)
                await asyncio.sleep(_PAUSE)
            for container_id in some:
                if container_id not in self._changed:
                    del self._stale[container_id]
            if not self._stale:
                self._is_stale.clear()
            await self._keep_place()

    def _next(self) -> list[uuid.UUID]:
        """Return the next stale containers, at most 16; strike out those on the way that have no copy."""
        some = list[uuid.UUID]()
        for container_id in list(self._stale):
            if not self._copies.has(container_id, touch=False):
                del self._stale[container_id]
            elif len(some) < _AT_ONCE:
                some.append(container_id)
            else:
                break
        return some

    async def _read(self, ids: list[uuid.UUID]) -> None:
        """Read containers, with the parts that were read before; the session's keeper stores them."""
        copies: dict[uuid.UUID, tuple[Copy, bool]] = {}
        for container_id in ids:
            copy = await io_thread.in_pool(self._copies.find, container_id)
            version = self._stale[container_id]
            if copy is not None and (copy.denied or not 0 < version <= copy.version):
                is_whole = await io_thread.in_pool(self._copies.has_content, container_id, copy)
                copies[container_id] = copy, copy.content or is_whole
        # A header that nobody here has read is not asked for: the broker tells other members who read one.
        for wanted in itertools.product((False, True), repeat=2):
            some = [
                each
                for each, (copy, has_content) in copies.items()
                if (copy.header, has_content) == wanted
            ]
            header, content = wanted
            outcomes = await fetching.fetch_many(
                self._session, some, header=header, content=content
            )
            for container_id, outcome in zip(some, outcomes, strict=True):
                if content and isinstance(outcome, Fetched):
                    with tasks.alone(lambda _: None):  # an error only leaves the cache incomplete
                        await self._download(outcome, copies[container_id][0])

    async def _download(self, fetched: Fetched, before: Copy) -> None:
        """Download a large content that replaces one in the cache."""
        opened = fetching.open_fetched(self._session, fetched)
        part = opened.part(Role.Content)
        if part is None or part.part.partId == before.part:
            return
        if MAX_INLINE < part.part.paddedLength <= self._copies.folder.largest:
            await Download(self._session, part, opened.query).run(lambda *_: None, no_progress)

    def _cached(self, via: Collection[str] | None = None) -> list[uuid.UUID]:
        """Return the containers that this device has read and the cache has.

        With `via`, return only those whose copy was read through one of these groups.
        """
        ids = (uuid.UUID(bytes=key) for key, _ in each_mark(self._session.marks, fetching.KIND))
        found = [each for each in ids if self._copies.has(each, touch=False)]
        if via is None:
            return found
        copies = ((each, self._copies.find(each)) for each in found)
        return [each for each, copy in copies if copy is not None and copy.view.via in via]

    async def _keep_place(self) -> None:
        """Store the places in the logs once nothing is stale: after a crash, later events are read again."""
        if self._stale:
            return
        place = msgspec.msgpack.encode(self._places)
        await io_thread.in_pool(self._copies.folder.write, _PLACE, b"", place)
