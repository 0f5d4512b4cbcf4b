"""Answer reads from copies on disk while the broker is away.

provider = CachedProvider(ServerProvider.fromEnvironment(), "cache")

While the broker is away, each operation belongs to one of four groups: it is answered from the cache, needs
no broker, is sent to the broker all the same, or is refused. An operation is answered by the broker or by the
cache, never by a mixture of them. Guide: docs/guide/offline.md.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import uuid
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, Self, TypeVar

from scbroker import errors
from scbroker.client.arguments import Id, moment
from scbroker.client.cache.copies import USER, Copies, OfflineSession
from scbroker.client.cache.folder import CacheFolder, checked_root
from scbroker.client.cache.refresh import Reach, Refresh
from scbroker.client.calls.operation import Pages, begun, called, mainQueue, operation, ready
from scbroker.client.calls.tasks import all_or_first_error, io_thread
from scbroker.client.http.requests import answered_soon
from scbroker.client.provider import BaseProvider, Work
from scbroker.client.server_provider import ServerProvider
from scbroker.client.users import accounts
from scbroker.client.users.session import Session
from scbroker.keys import KeyRing
from scbroker.types import SecuredContainer

T = TypeVar("T")
GIB: Final = 1_073_741_824
ANSWERED: Final = frozenset(
    {
        "getContainer",
        "getContainerContent",
        "getContainerHeader",
        "getContainerMetadata",
        "getContainers",
        "getGroupMembers",
        "getLinks",
        "getPublicKeys",
        "iterContainers",
        "listContainers",
        "openContainerContent",
        "saveContainerContent",
    }
)
"""Operations that the cache answers while the broker is away."""
AS_EVER: Final = frozenset(
    {
        "clear",
        "followEvents",
        "forgetKeptSession",
        "getCachedAt",
        "getContactCard",
        "getKeptSessions",
        "getKeyRing",
        "getReminder",
        "getUserId",
        "logIn",
        "logout",
        "register",
        "resumeSession",
    }
)
"""Operations that need no broker, or try to reach it. While it is away, all others fail at once."""
_log = logging.getLogger("scbroker")


class _Cached:
    """The cache of one session: its copies, the session that reads them, and what keeps them fresh."""

    def __init__(self, session: Session, folder: CacheFolder, reach: Reach) -> None:
        self.session: Session = session
        self.copies: Copies = Copies(folder, session)
        self.copies.attach()
        self.offline: OfflineSession = OfflineSession(session, self.copies)
        self.reach: Reach = reach
        self.refresh: Refresh = Refresh(session, self.copies, reach)

    async def run(self, *, follow: bool) -> None:
        """Watch the broker and keep the copies fresh, as long as the session lasts."""
        with contextlib.suppress(errors.NotAuthenticatedError):
            async with all_or_first_error() as tasks:
                tasks.create_task(self.reach.watch(self.session))
                tasks.create_task(self.refresh.read())
                if follow:
                    tasks.create_task(self._follow())

    async def _follow(self) -> None:
        try:
            await self.refresh.follow()
        except errors.BrokerError as error:
            _ = self.session.keys.ring  # raises if the session ended
            _log.warning("The cache follows no events any more, and copies what is read: %s", error)


class CachedProvider(BaseProvider):
    """A provider that keeps what it reads in a folder, and answers from there while the broker is away.

    `provider` is the ServerProvider that is used while the broker answers; log in by either of the two.
    `folder` is the path of a folder that this user alone can write. `maxBytes` bounds the folder, for all
    users in it: the least recently used files are removed first, and before them copies of containers of
    others that no program asked for by their ids. They are sealed. With `follow` the provider follows the
    event log, and reads containers of the cache anew after others changed them.

    A `Container` and a `ContainerPage` from the cache have the time `asOf` at which the broker served it.
    Operations that need the broker raise `offlineError` at once while it is away.
    """

    def __init__(
        self,
        provider: ServerProvider,
        folder: str | os.PathLike[str],
        *,
        maxBytes: int = GIB,
        follow: bool = True,
    ) -> None:
        if not isinstance(provider, ServerProvider):
            raise errors.InvalidArgumentError(
                f"provider must be a ServerProvider, not {type(provider).__name__}"
            )
        self._provider: ServerProvider = provider
        self._requests, self._trust_store = provider._requests, provider._trust_store
        self._kept, self._validator = provider._kept, provider._validator
        self._root, self._max = checked_root(folder, maxBytes), maxBytes
        self._follow = bool(follow)
        self._reach: Reach = Reach()
        self._cached: _Cached | None = None
        self._stop: Callable[[], object] = lambda: None
        mainQueue.notice_loop()

    @property
    def awaySince(self) -> dt.datetime | None:
        """Return since when the broker has been away; None if it answered last."""
        return self._reach.away_since

    def close(self) -> None:
        """Forget the session and close the connections; the cache stays on disk."""
        self._stop()
        self._provider.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop()
        await self._provider.__aexit__()

    def __repr__(self) -> str:
        return f"<CachedProvider in {str(self._root)!r} of {self._provider!r}>"

    @operation
    async def getCachedAt(self, containerId: Id) -> dt.datetime | None:
        """Return when the broker served the cache's copy of a container last; None if the cache has none.

        It is the time of what an operation returns while the broker is away, for those that return bytes.

        Raises `notAuthenticatedError` without a session. The broker learns nothing: nothing is sent."""
        cached = self._cache()

        async def work() -> dt.datetime | None:
            copy = await io_thread.in_pool(cached.copies.find, containerId)
            return None if copy is None or copy.denied is not None else moment(copy.time)

        return await cached.session.hold(work())

    @operation
    async def clear(self) -> None:
        """Remove all copies of this user at this broker from the folder.

        The user's own public keys stay, by which a session can begin while the broker is away.

        Raises `notAuthenticatedError` without a session. The broker learns nothing: nothing is sent."""
        cached = self._cache()
        await cached.session.hold(io_thread.in_pool(cached.copies.clear))

    def _session(self) -> Session:
        return self._provider._session()

    def _cache(self) -> _Cached:
        """Return the cache of the provider's session, which is made at the session's first operation."""
        session = self._session()
        cached = self._cached
        if cached is None or cached.session is not session:
            self._stop()
            self._cached = cached = _Cached(session, self._folder(session), self._reach)
            work = cached.run(follow=self._follow)
            running = io_thread.submit("the cache", work, endless=True)
            self._stop = stop = weakref.finalize(self, running.cancel)
            stop.atexit = False
        return cached

    def _folder(self, session: Session) -> CacheFolder:
        origin = session.requests.endpoint.origin
        return CacheFolder(self._root, session.keys.ring, origin, self._max)

    def _perform(self, name: str, body: Callable[..., Any], given: dict[str, Any]) -> Any:
        """Run an operation with the broker or the cache, as the tables above say."""
        if name == "logout":
            return self._log_out(begun(body(self._provider)))
        if name in AS_EVER:
            work = super()._perform(name, body, given)
            return self._noting(begun(work)) if name == "getReminder" else work
        cached = self._cache()

        def offline() -> Any:
            return body(self._provider._with_session(cached.offline), **given)

        if name == "iterContainers":
            return self._pages(body(self._provider, **given), offline())
        if self._reach.is_away:
            if name in ANSWERED:
                return self._from_cache(begun(offline()))
            return self._refused(name)
        online = begun(body(self._provider, **given))
        if name in ANSWERED:
            asked = given.get("containerIds", [given.get("containerId")])
            return self._online_first(cached, online, offline, asked)
        return self._noting(self._changing(cached, name, online, given))

    async def _adopt(self, beginning: Work[tuple[Session, T]]) -> T:
        return await self._provider._adopt(self._noting(beginning))

    async def _begin(self, ring: KeyRing) -> None:
        """Begin a session with a KeyRing; if the broker is away, check it against cached public keys."""

        def prepare() -> tuple[Session, Copies]:
            session = self._session_of(ring)
            return session, Copies(self._folder(session), session)

        session, copies = await io_thread.in_pool(prepare)
        if not copies.folder.has(USER, ring.userId.bytes):
            return await super()._begin(ring)
        try:
            with answered_soon():
                return await super()._begin(ring)
        except errors.UnreachableError:
            await begin(session, OfflineSession(session, copies))
        return await self._provider._adopt(ready((session, None)))

    async def _log_out(self, work: Work[None]) -> None:
        """Log out without waiting for a container that is being refreshed, or for an absent broker."""
        self._stop()
        await called()
        with answered_soon():
            await work

    async def _pages(self, online: Pages[Any], offline: Pages[Any]) -> Pages[Any]:
        """Yield the broker's pages, or those of the cache if the request for the first page gets no answer.

        The cache never continues a list that the broker began: the two may have other containers.
        """
        pages, first = offline, None
        if not self._reach.is_away:
            try:
                with answered_soon():
                    first = await anext(online, None)
                pages = online
            except errors.UnreachableError as error:
                self._reach.lost(error)
        async with contextlib.aclosing(pages):
            if first is not None:
                yield first
            async for page in pages:
                yield page

    async def _online_first(
        self,
        cached: _Cached,
        online: Work[T],
        offline: Callable[[], Work[T]],
        asked: Iterable[uuid.UUID | None],
    ) -> T:
        """Run an operation; if the broker does not answer, run it from the cache.

        If the cache lacks a requested container, the client waits up to a minute for the broker, as without a
        cache.
        """
        await called()
        ids = [each for each in asked if each is not None]
        is_cached = all(cached.copies.has(each, touch=False) for each in ids)
        try:
            with answered_soon() if is_cached else contextlib.nullcontext():
                found = await online
        except errors.UnreachableError as error:
            self._reach.lost(error)
            return await self._from_cache(offline())
        await cached.copies.keep_chains()
        await cached.copies.ask(ids)
        return found

    async def _from_cache(self, offline: Work[T]) -> T:
        await called()
        try:
            return await offline
        except errors.OfflineError:
            self._reach.needed()
            raise

    async def _noting(self, work: Work[T]) -> T:
        """Run work; note whether the broker answered. A broker that is away gets little time to answer."""
        await called()
        try:
            with answered_soon() if self._reach.is_away else contextlib.nullcontext():
                found = await work
        except errors.UnreachableError as error:
            self._reach.lost(error)
            raise
        self._reach.found()
        return found

    async def _refused(self, name: str) -> Any:
        await called()
        self._reach.needed()
        raise errors.OfflineError(
            f"{name} needs the broker, which has been away since {self._reach.away_since}: nothing was sent. "
            "Try again when it is back."
        )

    async def _changing(
        self, cached: _Cached, name: str, change: Work[T], given: dict[str, Any]
    ) -> T:
        """Run an operation that may change containers; have those that it names or returns read again."""
        found = await change
        if name == "deleteUser":
            await io_thread.in_pool(cached.copies.folder.clear)
            return found
        results = found if isinstance(found, list) else [found]
        changed = {each.id for each in results if isinstance(each, SecuredContainer)}
        if isinstance(named := given.get("containerId"), uuid.UUID):
            changed.add(named)
        await cached.copies.ask(changed)
        cached.refresh.changed(changed)
        return found


async def begin(session: Session, offline: OfflineSession) -> None:
    """Begin a session without the broker, by the user's public keys of the cache.

    They are verified as at a log-in, by the user id and the device's mark. The token is requested when the
    broker is back; if the broker refuses the keys then, they were replaced meanwhile.
    """
    try:
        chain = await offline.directory.latest_own()
        accounts.check_published(session.keys.ring, chain)
        session.directory.set_own(chain)
    except accounts.SupersededError:  # proved by the user's own key records, even from a cache
        raise
    except errors.UntrustedError as error:
        raise errors.OfflineError(
            f"The cached keys were refused ({error}), and the broker is away: log in when it is back."
        ) from None
    session.token.had_one = True
