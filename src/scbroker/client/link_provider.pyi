# Written by tools/make_stubs.py: change the module, and run it.

from __future__ import annotations

import os
import ssl as ssl_module
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, Unpack, overload

from scbroker.client.calls.operation import Handlers
from scbroker.client.calls.tasks import Promise
from scbroker.client.people.links import LinkUrl
from scbroker.client.server_provider import ServerProvider
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import TrustStore
from scbroker.types import Link

T = TypeVar("T")
_PROGRAM: Final = "scbroker link"
READING: Final = frozenset(
    {
        "followEvents",
        "getContainer",
        "getContainerContent",
        "getContainerHeader",
        "getContainerMetadata",
        "getContainers",
        "getEvents",
        "getLatestActiveSigningKey",
        "getPublicKeys",
        "getSentChanges",
        "getUserId",
        "iterContainers",
        "listContainers",
        "logout",
        "openContainerContent",
        "resetContainerMark",
        "resetEventMark",
        "saveContainerContent",
    }
)

class LinkProvider(ServerProvider):
    def _how_to_begin(self) -> str: ...
    def _perform(self, name: str, body: Callable[..., T], given: dict[str, Any]) -> T: ...
    ...

async def _opened(provider: LinkProvider, parts: LinkUrl, passphrase: str) -> LinkProvider: ...
async def _logged_in(
    provider: LinkProvider, parts: LinkUrl, passphrase: str
) -> tuple[Session, None]: ...
@overload
def openLink(
    link: Link | str,
    password: str | None = None,
    *,
    applicationName: str = "scbroker link",
    trustStore: TrustStore | str | os.PathLike[str] | None = None,
    timeout: float = 120.0,
    ssl: ssl_module.SSLContext | None = None,
    proxy: str | None = None,
    objectStoreOrigins: Iterable[str] = (),
) -> Promise[LinkProvider]: ...
@overload
def openLink(
    link: Link | str,
    password: str | None = None,
    *,
    applicationName: str = "scbroker link",
    trustStore: TrustStore | str | os.PathLike[str] | None = None,
    timeout: float = 120.0,
    ssl: ssl_module.SSLContext | None = None,
    proxy: str | None = None,
    objectStoreOrigins: Iterable[str] = (),
    **handlers: Unpack[Handlers[LinkProvider]],
) -> None: ...
