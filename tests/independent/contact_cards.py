"""Contact cards: docs/spec/ids.md, 5.1."""

import base64
import ipaddress
import re
from typing import NamedTuple

from tests.independent import encodings as e
from tests.independent.encodings import RefusedError, decodes, labelled_hash, need

PREFIX = "scbroker-contact:"
_UNPRINTABLE = re.compile(
    "[\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]"
)
_ADDRESS = re.compile(
    r"([a-z]+)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]*)?((?:/[^/]*)*)", re.ASCII | re.IGNORECASE
)


class Card(NamedTuple):
    fingerprint: bytes
    server_url: str
    name: str

    @property
    def text(self) -> str:
        data = e.store([self.fingerprint, self.server_url, self.name])
        return PREFIX + _base32(data + _checksum(data))


def parse(text: str) -> Card:
    try:
        return _parse(text)
    except RefusedError as error:
        raise error.of_kind("version" if error.kind == "version" else "invalid") from None


def _parse(text: str) -> Card:
    bare = re.sub("[\\u0009-\\u000d ]", "", text)
    bare = "".join(chr(ord(each) + 32) if "A" <= each <= "Z" else each for each in bare)
    decodes(bare.startswith(PREFIX), "a card begins with its prefix")
    digits = bare.removeprefix(PREFIX)
    decodes(re.fullmatch("[a-z2-7]*", digits) is not None, "base32 without padding")
    decodes(len(digits) % 8 in (0, 2, 4, 5, 7), "whole bytes of base32")
    data = base64.b32decode(digits.upper() + "=" * (-len(digits) % 8))
    need(_base32(data) == digits, "the only base32 of its bytes")
    decodes(len(data) > 5, "a card before its checksum")
    card, checksum = data[:-5], data[-5:]
    need(checksum == _checksum(card), "the checksum of a card")
    need(card[0] < 2, "a card of version 1", "version")
    need(card[0] > 0, "no card of version 0")
    fields = e.array(e.decode(card[1:]), 3)
    found = Card(e.octets(fields[0], 32), e.text(fields[1]), e.text(fields[2]))
    need(len(found.name) <= 64, "a name of at most 64 characters")
    need(found.name.strip() != "", "a name that is not blank")
    need(_UNPRINTABLE.search(found.name) is None, "a printable name")
    _check_address(found.server_url)
    return found


def _check_address(address: str) -> None:
    need(len(address.encode()) <= 255, "an address of at most 255 bytes")
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        raise e.UndecodableError("invalid", "an address of scheme, host, port and path")
    scheme, host, path = parts.groups()
    need(scheme.lower() in ("http", "https"), "an address by http or https")
    need(scheme.lower() != "http" or _is_local(host.lower()), "https to another machine")
    segments = path.split("/")[1:]
    need(not {".", ".."} & set(segments), "no dot segment")
    need(all(re.fullmatch("[A-Za-z0-9._~-]+", each) for each in segments), "segments of a path")


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode("ascii").rstrip("=").lower()


def _checksum(card: bytes) -> bytes:
    return labelled_hash("contact-card", card)[:5]
