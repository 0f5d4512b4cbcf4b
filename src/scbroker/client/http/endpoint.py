"""Check where a provider may send requests: to one broker, and to the object stores that its caller allows.

Spec: docs/spec/protocol.md, sections 2 and 6.
"""

from __future__ import annotations

import re
import ssl
import urllib.parse
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scbroker.errors import InvalidArgumentError
from scbroker.vocabulary import instance_of
from scbroker.wire import codec
from scbroker.wire.users import canonical_origin, checked_address, is_this_machine, origin_of

if TYPE_CHECKING:
    from yarl import URL

_PRINTABLE_URL: Final = re.compile(r"https?://[!-~]+\Z")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A broker's address, and how to connect to it. `timeout` is in seconds for each operation."""

    url: str
    apiKey: uuid.UUID
    applicationName: str
    ssl: ssl.SSLContext | None
    proxy: str | None
    timeout: float
    stores: frozenset[str] = frozenset()
    """Origins of the object stores that the caller allows."""

    @property
    def origin(self) -> str:
        """Return the canonical origin, without the path: sessions are bound to the origin alone."""
        return origin_of(self.url)


def checked_endpoint(
    apiKey: object,
    serverUrl: object,
    applicationName: object,
    ssl_context: ssl.SSLContext | None,
    proxy: str | None,
    timeout: object,
    stores: object = (),
) -> Endpoint:
    """Return the endpoint of a provider's arguments; `InvalidArgumentError` names a wrong one."""
    key = _checked_key(apiKey)
    url = _checked_url(serverUrl)
    name = instance_of("applicationName", applicationName, "a str", str)
    codec.check_application(name)
    quoted = urllib.parse.quote(name, safe=" ")
    if len(quoted) > codec.MAX_APPLICATION:
        raise InvalidArgumentError(
            f"applicationName has {len(quoted)} characters once percent-encoded: "
            f"use at most {codec.MAX_APPLICATION}"
        )
    if not isinstance(ssl_context, ssl.SSLContext | None):
        raise InvalidArgumentError(
            f"ssl must be an ssl.SSLContext, not {type(ssl_context).__name__}: "
            "None uses the system's authorities"
        )
    if not isinstance(timeout, (int, float)) or not timeout > 0:
        raise InvalidArgumentError(
            f"timeout must be a number of seconds above 0, not {timeout!r:.40}"
        )
    origins = checked_origins(stores)
    _check_proxy(proxy, [url, *origins])
    return Endpoint(url, key, quoted, ssl_context, proxy, float(timeout), origins)


def _check_proxy(proxy: str | None, addresses: Iterable[str]) -> None:
    """Refuse a proxy on another machine if requests to one of the addresses are not encrypted."""
    plain = [address for address in addresses if address.lower().startswith("http:")]
    if proxy is None or not plain:
        return
    try:
        if is_this_machine(urllib.parse.urlsplit(proxy).hostname or ""):
            return
    except (TypeError, ValueError, AttributeError):
        pass
    raise InvalidArgumentError(
        f"proxy must be on this machine: {plain[0]} is http, so the proxy could read every "
        "request. Leave out proxy, or use https."
    )


def _checked_key(apiKey: object) -> uuid.UUID:
    if isinstance(apiKey, uuid.UUID):
        return apiKey
    try:
        if isinstance(apiKey, str):
            return uuid.UUID(apiKey)
    except ValueError:
        pass
    raise InvalidArgumentError(
        f"apiKey must be a UUID or its text, and this {type(apiKey).__name__} is not: "
        "ask the broker's operator for it"
    )


def _checked_url(serverUrl: object) -> str:
    """Return the address of the broker, without a slash at its end."""
    if isinstance(serverUrl, urllib.parse.SplitResult | urllib.parse.ParseResult):
        return _checked_url(serverUrl.geturl())
    if not isinstance(serverUrl, str):
        raise InvalidArgumentError(
            "serverUrl must be text, as https://broker.example, or what urllib.parse.urlsplit or "
            f"urlparse returned, not {type(serverUrl).__name__}"
        )
    return checked_address(serverUrl)


def checked_origins(origins: object) -> frozenset[str]:
    """Return the canonical origins of allowed object stores; `InvalidArgumentError` names a wrong one."""
    if isinstance(origins, str) or not isinstance(origins, Iterable):
        raise InvalidArgumentError(
            f"objectStoreOrigins must be a list, as ['https://s3.example'], not {type(origins).__name__}"
        )
    return frozenset(_checked_origin(number, origin) for number, origin in enumerate(origins))


def _checked_origin(number: int, origin: object) -> str:
    from yarl import URL

    try:
        if isinstance(origin, str):
            canonical_origin(origin)
            if (found := _origin_of(URL(origin, encoded=True))) is not None:
                return found
    except InvalidArgumentError:
        pass
    raise InvalidArgumentError(
        f"objectStoreOrigins[{number}] must be scheme, host and port, as https://s3.example: "
        "http is allowed on this machine only"
    )


def allowed(presigned_url: str, origins: frozenset[str]) -> URL | None:
    """Return a presigned URL exactly as it will be requested; None if its origin is not allowed."""
    from yarl import URL

    if not _PRINTABLE_URL.match(presigned_url):
        return None
    try:
        url = URL(presigned_url, encoded=True)
        return url if _origin_of(url) in origins else None
    except ValueError:
        return None


def _origin_of(url: URL) -> str | None:
    """Return scheme, host and port, with the host as it is written; None for an invalid origin.

    Names of this machine are not unified here: `localhost` and `127.0.0.1` may lead to different servers.
    """
    try:
        canonical_origin(f"{url.scheme}://{url.raw_authority}")
    except InvalidArgumentError:
        return None
    return f"{url.scheme}://{(url.raw_host or '').lower()}:{url.port}"
