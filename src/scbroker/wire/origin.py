"""The canonical spelling of a broker's address. Spec: docs/spec/protocol.md, section 2."""

import ipaddress
import re
import urllib.parse
from typing import Final

from scbroker.errors import InvalidArgumentError

_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK: Final = "localhost"
_BRACKETED: Final = re.compile(r"\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\](:[0-9]*)?\Z")
_NAME: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\Z")
# Resolvers differ in how they read a name that ends in a number as an address.
_NUMBER: Final = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)\Z")


def canonical_origin(url: str) -> str:
    """Return `scheme://host:port`; raise `InvalidArgumentError` unless it is https, or http to a loopback."""
    try:
        if any(char <= " " for char in url):  # urlsplit would drop some of these
            raise ValueError(url)
        parts = urllib.parse.urlsplit(url)
        if "[" in parts.netloc and not _BRACKETED.match(parts.netloc):
            raise ValueError(parts.netloc)
        host, port = _canonical_host(parts.hostname or ""), parts.port
    except ValueError:
        raise InvalidArgumentError(
            "The broker's address is not a URL: use one as https://broker.example."
        ) from None
    if parts.scheme not in _PORTS or not host:
        raise InvalidArgumentError(
            "The broker's address must begin with https:// or http:// and a host."
        )
    if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidArgumentError("The broker's address must be scheme, host and port alone.")
    if parts.scheme == "http" and host != _LOOPBACK:
        raise InvalidArgumentError(
            "The broker's address must be https: http is allowed on this machine only."
        )
    return f"{parts.scheme}://{host}:{_PORTS[parts.scheme] if port is None else port}"


def _canonical_host(host: str) -> str:
    """Return the host in its canonical spelling; raise `ValueError` for an invalid one."""
    if host and ":" not in host:
        host = host.encode("idna").decode("ascii").lower().rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if host and (not _NAME.match(host) or _NUMBER.match(host)):
            raise
        return _LOOPBACK if host == _LOOPBACK or host.endswith(".localhost") else host
    if isinstance(address, ipaddress.IPv6Address):
        # Versions of Python differ in how they write such an address, and whether it is loopback.
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return _LOOPBACK
    return f"[{address}]" if isinstance(address, ipaddress.IPv6Address) else str(address)
