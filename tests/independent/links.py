"""Links: docs/spec/links.md."""

import base64
import ipaddress
import re
from dataclasses import dataclass

from tests.independent import encodings as e
from tests.independent.encodings import RefusedError, decodes, label, labelled_hash, need
from tests.independent.key_files import secret_octets
from tests.independent.keys import hkdf

MARK = "/#scbroker-link:"
LONGEST = 2048
CHECKSUM = 5
LABEL = "[A-Za-z0-9_-]{1,63}"
ADDRESS = re.compile(
    rf"(https?)://(\[[0-9A-Fa-f:.]+\]|(?:{LABEL}\.)*{LABEL})(?::([1-9][0-9]{{0,4}}))?(/.*)?"
)
NUMBER = re.compile("[0-9]+|0[xX][0-9A-Fa-f]*")
SEGMENTS = re.compile(r"(/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True)
class Link:
    server_url: str
    secret: bytes
    fingerprint: bytes
    api_key: bytes
    has_password: bool


def parse(url: str) -> Link:
    need(len(url) <= LONGEST, "a link of at most 2,048 characters", "invalid")
    server_url, mark, code = url.partition(MARK)
    decodes(bool(mark), "the mark of a link", "invalid")
    data = base64url(code)
    body, checksum = data[:-CHECKSUM], data[-CHECKSUM:]
    need(checksum == checksum_of(server_url, body), "the checksum of a link", "invalid")
    need(body[:1] == b"\x01", "a link of version 1", "version")
    try:
        fields = e.array(e.decode(body[1:]), 4)
        link = Link(
            server_url,
            e.octets(fields[0], 32),
            e.octets(fields[1], 32),
            e.octets(fields[2], 16),
            e.boolean(fields[3]),
        )
    except RefusedError as refused:
        raise refused.of_kind("invalid") from None
    check_address(server_url)
    return link


def base64url(code: str) -> bytes:
    """RFC 4648, 5, without padding."""
    need(re.fullmatch("[A-Za-z0-9_-]*", code) is not None, "base64url without padding", "invalid")
    digits = re.sub("[^A-Za-z0-9_-]", "", code)
    decodes(len(digits) % 4 != 1, "a length that base64 has", "invalid")
    data = base64.urlsafe_b64decode(digits + "=" * (-len(digits) % 4))
    need(text_of(data) == digits, "no bits left over in base64", "invalid")
    return data


def text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def checksum_of(server_url: str, body: bytes) -> bytes:
    return labelled_hash("link-checksum", server_url.encode() + body)[:CHECKSUM]


def url_of(link: Link) -> str:
    body = e.store([link.secret, link.fingerprint, link.api_key, link.has_password])
    return link.server_url + MARK + text_of(body + checksum_of(link.server_url, body))


def check_address(server_url: str) -> None:
    found = ADDRESS.fullmatch(server_url)
    decodes(found is not None, "the address of a broker", "invalid")
    assert found is not None
    scheme, host, path = found[1], found[2], found[4] or ""
    need(int(found[3] or 443) <= 65535, "a port", "invalid")
    need(is_host(host), "a host", "invalid")
    need(scheme == "https" or is_loopback(host), "http to this machine alone", "invalid")
    need(SEGMENTS.fullmatch(path) is not None, "a plain path", "invalid")
    need(not {".", ".."} & set(path.split("/")), "no dot segment", "invalid")


def is_host(host: str) -> bool:
    """Whether brackets have an IPv6 address, and a last label that is a number ends an IPv4 address."""
    try:
        if host.startswith("["):
            ipaddress.IPv6Address(host[1:-1])
        elif NUMBER.fullmatch(host.rpartition(".")[2]):
            ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        found = ipaddress.ip_address(host.strip("[]"))
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return (mapped or found).is_loopback
    except ValueError:
        return False


def passphrase(secret: bytes, fingerprint: bytes, password: str | None) -> str:
    octets = b"" if password is None else secret_octets(password)
    return text_of(hkdf(secret, label("link-passphrase") + fingerprint + octets))
