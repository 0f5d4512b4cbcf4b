# Written by tools/make_stubs.py: change the module, and run it.

from __future__ import annotations

import datetime as dt
import logging
import os
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final, Self, TypeVar, Unpack, overload

from scbroker.client.cache.copies import Copies, OfflineSession
from scbroker.client.cache.folder import CacheFolder
from scbroker.client.cache.refresh import Reach, Refresh
from scbroker.client.calls.operation import Handlers, Pages, VoidHandlers
from scbroker.client.calls.tasks import Promise
from scbroker.client.provider import BaseProvider, Work
from scbroker.client.server_provider import ServerProvider
from scbroker.client.users.session import Session
from scbroker.keys import KeyRing

T = TypeVar("T")
GIB: Final = 1073741824
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
_log = logging.getLogger("scbroker")

class _Cached:
    session: Session
    copies: Copies
    offline: OfflineSession
    reach: Reach
    refresh: Refresh
    def __init__(self, session: Session, folder: CacheFolder, reach: Reach) -> None: ...
    async def run(self, *, follow: bool) -> None: ...
    async def _follow(self) -> None: ...
    ...

class CachedProvider(BaseProvider):
    _provider: ServerProvider
    _reach: Reach
    _cached: _Cached | None
    _stop: Callable[[], object]
    def __init__(
        self,
        provider: ServerProvider,
        folder: str | os.PathLike[str],
        *,
        maxBytes: int = GIB,
        follow: bool = True,
    ) -> None: ...
    @property
    def awaySince(self) -> dt.datetime | None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...
    def __repr__(self) -> str: ...
    @overload
    def getCachedAt(self, containerId: uuid.UUID | str) -> Promise[dt.datetime | None]: ...
    @overload
    def getCachedAt(
        self, containerId: uuid.UUID | str, **handlers: Unpack[Handlers[dt.datetime | None]]
    ) -> Self: ...
    @overload
    def clear(self) -> Promise[None]: ...
    @overload
    def clear(self, **handlers: Unpack[VoidHandlers]) -> Self: ...
    def _session(self) -> Session: ...
    def _cache(self) -> _Cached: ...
    def _folder(self, session: Session) -> CacheFolder: ...
    def _perform(self, name: str, body: Callable[..., Any], given: dict[str, Any]) -> Any: ...
    async def _adopt(self, beginning: Work[tuple[Session, T]]) -> T: ...
    async def _begin(self, ring: KeyRing) -> None: ...
    async def _log_out(self, work: Work[None]) -> None: ...
    async def _pages(self, online: Pages[Any], offline: Pages[Any]) -> Pages[Any]: ...
    async def _online_first(
        self,
        cached: _Cached,
        online: Work[T],
        offline: Callable[[], Work[T]],
        asked: Iterable[uuid.UUID | None],
    ) -> T: ...
    async def _from_cache(self, offline: Work[T]) -> T: ...
    async def _noting(self, work: Work[T]) -> T: ...
    async def _refused(self, name: str) -> Any: ...
    async def _changing(
        self, cached: _Cached, name: str, change: Work[T], given: dict[str, Any]
    ) -> T: ...
    ...

async def begin(session: Session, offline: OfflineSession) -> None: ...
