# Written by tools/make_stubs.py: change the module, and run it.

from __future__ import annotations

import os
import ssl as ssl_module
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self, TypeVar, Unpack, overload
from urllib.parse import ParseResult, SplitResult

from scbroker.client.calls.operation import Handlers
from scbroker.client.calls.tasks import Promise
from scbroker.client.http.requests import Requests
from scbroker.client.http.transport import Endpoint
from scbroker.client.people.links import LinkUrl
from scbroker.client.provider import BaseProvider
from scbroker.client.users.accounts import Validator, validate_secret
from scbroker.client.users.session import Session
from scbroker.client.users.session_store import SessionStore
from scbroker.client.users.trust_store import TrustStore
from scbroker.types import Link, SecuredContainer

T = TypeVar("T")
_CLOSE_SECONDS: Final = 5.0

class ServerProvider(BaseProvider):
    _is_closed: bool = False
    _endpoint: Endpoint
    _applicationName: str
    def __init__(
        self,
        apiKey: uuid.UUID | str,
        serverUrl: str | SplitResult | ParseResult,
        applicationName: str,
        *,
        trustStore: TrustStore | str | os.PathLike[str] | None = None,
        sessionStore: SessionStore | str | os.PathLike[str] | None = None,
        secretValidator: Validator = validate_secret,
        timeout: float = 120.0,
        ssl: ssl_module.SSLContext | None = None,
        proxy: str | None = None,
        objectStoreOrigins: Iterable[str] = (),
    ) -> None: ...
    @classmethod
    def fromEnvironment(
        cls, environment: Mapping[str, str] | None = None, **options: Any
    ) -> Self: ...
    @property
    def apiKey(self) -> uuid.UUID: ...
    @property
    def serverUrl(self) -> str: ...
    @property
    def applicationName(self) -> str: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...
    def _forget(self) -> None: ...
    def _how_to_begin(self) -> str: ...
    def __repr__(self) -> str: ...
    def _with_session(self, session: Session) -> Self: ...
    @overload
    def getSecuredContainer(self, containerId: uuid.UUID | str) -> Promise[SecuredContainer]: ...
    @overload
    def getSecuredContainer(
        self, containerId: uuid.UUID | str, **handlers: Unpack[Handlers[SecuredContainer]]
    ) -> Self: ...
    ...

def _abandon(requests: Requests) -> None: ...

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
