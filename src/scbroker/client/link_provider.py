"""Open links: read containers without an account.

with openLink("https://broker.example/#scbroker-link:...").result() as link:
    page = link.listContainers().result()
"""

from __future__ import annotations

import os
import ssl as ssl_module
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from scbroker import errors
from scbroker.client.arguments import LinkText
from scbroker.client.calls.operation import called, function_operation
from scbroker.client.containers import contents
from scbroker.client.people.links import LinkUrl
from scbroker.client.provider import OPERATIONS
from scbroker.client.server_provider import ServerProvider
from scbroker.client.users import accounts
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import TrustStore

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


async def _opened(provider: LinkProvider, parts: LinkUrl, passphrase: str) -> LinkProvider:
    """Log in as the link's user; close the provider if that fails or if the link opens nothing."""
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
    return await _opened(provider, parts, passphrase)
