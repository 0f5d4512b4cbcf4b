"""Implement the client: a provider is one user's session at a broker, or opens a link without an account.

provider = ServerProvider(apiKey, "https://broker.example", "my program")
provider.register("A password 1", "A passphrase 1").result()

with openLink("https://broker.example/#scbroker-link:...").result() as link:
    page = link.listContainers().result()
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import os
import ssl as ssl_module
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self, TypeVar
from urllib.parse import ParseResult, SplitResult

from scbroker import errors
from scbroker.client.arguments import Id, LinkText
from scbroker.client.calls.operation import called, function_operation, mainQueue, operation
from scbroker.client.calls.tasks import io_thread
from scbroker.client.containers import contents, fetching
from scbroker.client.http.requests import Requests
from scbroker.client.http.transport import Endpoint, checked_endpoint
from scbroker.client.people.links import LinkUrl
from scbroker.client.provider import OPERATIONS, BaseProvider
from scbroker.client.users import accounts
from scbroker.client.users.accounts import Validator, validate_secret
from scbroker.client.users.session import Session
from scbroker.client.users.session_store import KeptSessions, SessionStore, checked_session_store
from scbroker.client.users.trust_store import TrustStore, checked_trust_store
from scbroker.types import SecuredContainer

T = TypeVar("T")
_CLOSE_SECONDS: Final = 5.0


class ServerProvider(BaseProvider):
    """The client: one user's session at a broker, usable as `with` and `async with`.

    `apiKey` comes from the broker's operator, as UUID or text. `serverUrl` is https, or http for a
    broker on this machine; text, or a result of `urllib.parse.urlsplit` or `urlparse`. If the broker is
    below a path, it ends with that, as `https://example.org/broker`. `applicationName` names this program
    in the broker's event log.

    `trustStore` keeps what this device has verified: a TrustStore, or the path of a folder for a
    FileTrustStore (default: one in the platform's state folder). `sessionStore` keeps sessions that begin
    with `keep=True`: a SessionStore, or the path of a folder for a FileSessionStore (default: a
    KeychainSessionStore). `secretValidator` returns what is wrong with
    a password or passphrase, or None. `timeout` is the number of seconds that one request may take, with its
    retries (default: 120; a broker that has answered before is retried for up to a minute of them, one that
    never did for about a second). `ssl` and `proxy` apply to all connections; a proxy for http must be on
    this machine. Large contents go straight to and from the broker's object store if its origin is one of
    `objectStoreOrigins`, as `https://s3.example` (default: none, all goes through the broker).
    """

    _is_closed: bool = False

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
    ) -> None:
        self._endpoint: Endpoint = checked_endpoint(
            apiKey, serverUrl, applicationName, ssl, proxy, timeout, objectStoreOrigins
        )
        self._applicationName: str = applicationName
        self._trust_store = checked_trust_store(trustStore)
        self._kept = KeptSessions(checked_session_store(sessionStore), self._endpoint.origin)
        self._validator = secretValidator
        self._requests = Requests(self._endpoint)
        weakref.finalize(self, _abandon, self._requests).atexit = False
        mainQueue.notice_loop()

    @classmethod
    def fromEnvironment(cls, environment: Mapping[str, str] | None = None, **options: Any) -> Self:
        """Construct from SCBROKER_API_KEY, SCBROKER_SERVER_URL and SCBROKER_APPLICATION_NAME.

        SCBROKER_OBJECT_STORE_ORIGINS gives `objectStoreOrigins`, separated by commas. Without `environment`
        these are the process's variables. Raises `invalidArgumentError` that names those that are not set."""
        # Not as the default: help() would print all variables with the signature, and the secrets in them.
        environment = os.environ if environment is None else environment
        names = ("SCBROKER_API_KEY", "SCBROKER_SERVER_URL", "SCBROKER_APPLICATION_NAME")
        missing = [name for name in names if not environment.get(name)]
        if missing:
            raise errors.InvalidArgumentError(f"Set {', '.join(missing)} in the environment.")
        if stores := environment.get("SCBROKER_OBJECT_STORE_ORIGINS"):
            options.setdefault("objectStoreOrigins", stores.split(","))
        return cls(*(environment[name] for name in names), **options)

    @property
    def apiKey(self) -> uuid.UUID:
        return self._endpoint.apiKey

    @property
    def serverUrl(self) -> str:
        return self._endpoint.url

    @property
    def applicationName(self) -> str:
        return self._applicationName

    def close(self) -> None:
        """Forget the session and close the connections. The provider can be used again.

        A connection on which nothing moves may take longer to close than this waits.
        """
        self._forget()
        closing = io_thread.submit("close", self._requests.close())
        concurrent.futures.wait([closing], _CLOSE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._forget()
        await asyncio.wrap_future(io_thread.submit("close", self._requests.close()))

    def _forget(self) -> None:
        session, self._current, self._is_closed = self._current, None, True
        if session is not None:
            session.forget()

    def _how_to_begin(self) -> str:
        closed = "The provider was closed: call logIn or resumeSession to begin another session."
        return closed if self._is_closed else ""

    def __repr__(self) -> str:
        state = "unauthenticated" if self._current is None else f"user {self._current.userId}"
        return f"<{type(self).__name__} of {self._endpoint.url}, {state}>"

    def _with_session(self, session: Session) -> Self:
        """Return a provider of the same broker whose operations use another session."""
        other = copy.copy(self)
        other._current = session
        return other

    @operation
    async def getSecuredContainer(self, containerId: Id) -> SecuredContainer:
        """Return the container and its metadata, verified, without decrypting content or header.

        `contentAvailability` is `NotIncluded` for a content of more than 64 KiB, whose sealed bytes are not
        in the result: read it with `openContainerContent`.

        Raises `notFoundError` without access, `deletedError` after deletion, an `untrustedError` for
        anything that its author did not make.

        The broker learns that the caller fetches the container, and when (`Accessed`)."""
        session = self._session()

        async def work() -> SecuredContainer:
            fetched = await fetching.fetch(session, containerId, header=True, content=True)
            return await fetching.secured(session, fetched)

        return await session.hold(work())


def _abandon(requests: Requests) -> None:
    """Close the connections of a provider that was dropped without `close`."""
    io_thread.submit("close", requests.close())


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
"""The operations of a BrokerProvider that a link permits; it refuses all others."""


class LinkProvider(ServerProvider):
    """A session of a link's user, from `openLink`: it reads the link's containers, and does nothing else.

    Operations that write or that belong to an account raise `permissionDeniedError` before anything is sent.
    Usable as `with` and `async with`.
    """

    def _how_to_begin(self) -> str:
        return "The link was closed: call openLink to open it again."

    def _perform(self, name: str, body: Callable[..., T], given: dict[str, Any]) -> T:
        # An operation that is new is refused until it is added to READING.
        if name in OPERATIONS - READING:
            raise errors.PermissionDeniedError(
                f"A link gives read access only, and {name} needs an account: use a ServerProvider to "
                "register or log in, and ask a member to give that user access."
            )
        return super()._perform(name, body, given)


async def _logged_in(
    provider: LinkProvider, parts: LinkUrl, passphrase: str
) -> tuple[Session, None]:
    end = provider._requests, provider._trust_store
    try:
        session, _ = await accounts.log_in_with_key_file(*end, parts.userId, None, passphrase)
    except errors.CredentialsError:
        if parts.hasPassword:
            raise errors.CredentialsError(
                "The password of the link is wrong, or the link was revoked: the broker does not say which."
            ) from None
        raise errors.NotFoundError(
            "The link was revoked, or somebody who has it changed its user's passphrase: ask who sent the "
            "link for a new one."
        ) from None
    if session.fingerprint != parts.fingerprint:
        session.forget()
        raise errors.KeySubstitutionError(
            "The broker serves a KeyFile for the link whose fingerprint is not the link's: do not use it."
        )
    return session, None


@function_operation
async def openLink(
    link: LinkText,
    password: str | None = None,
    *,
    applicationName: str = _PROGRAM,
    trustStore: TrustStore | str | os.PathLike[str] | None = None,
    timeout: float = 120.0,  # noqa: ASYNC109 - of one request, as of ServerProvider
    ssl: ssl_module.SSLContext | None = None,
    proxy: str | None = None,
    objectStoreOrigins: Iterable[str] = (),
) -> LinkProvider:
    """Open a link of `createLink`, and return a provider that reads its containers.

    `link` is the URL, or the Link itself. The parameters that are given by name are those of
    `ServerProvider`; marks and a device pass of the link's user are kept in `trustStore`. Takes about
    0.4 s (Argon2id). Close the provider, or use it as `with` or `async with`.

    Raises `invalidArgumentError` for a text that is not a link, a damaged link, one whose broker is on
    another machine without https, and a password for a link that has none; `unsupportedVersionError` for
    a link of a newer version; `credentialsError` for a missing or wrong password, which the broker
    cannot tell from a revoked link; `notFoundError` for a link that was revoked or has expired, or whose
    containers are deleted; `throttledError` after too many guesses; `keySubstitutionError` if the broker
    serves keys that are not those of the link.

    The broker learns that the link is opened, what it learns at `logIn`, and what it learns at
    `listContainers`."""
    parts = LinkUrl.parse(link)
    if parts.hasPassword and password is None:
        raise errors.CredentialsError("The link needs its password: ask who sent the link for it.")
    if password is not None and not parts.hasPassword:
        raise errors.InvalidArgumentError("The link has no password: leave out password.")
    passphrase = parts.passphrase(password)
    provider = LinkProvider(
        parts.apiKey,
        parts.serverUrl,
        applicationName,
        trustStore=trustStore,
        timeout=timeout,
        ssl=ssl,
        proxy=proxy,
        objectStoreOrigins=objectStoreOrigins,
    )
    await called()
    try:
        await provider._adopt(_logged_in(provider, parts, passphrase))
        page = await contents.page(provider._session(), contents.Wanted(None, 1, None), None)
        if not page.containers:
            raise errors.NotFoundError(
                "The link opens no container: it has expired, its access was revoked, or its containers "
                "were deleted. Ask who sent the link for a new one."
            )
    except BaseException:
        await provider.__aexit__()
        raise
    return provider
