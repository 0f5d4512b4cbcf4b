"""URLs of links: as text, and with the checksum of any bytes. See docs/spec/links.md, 1."""

import base64
from collections.abc import Callable
from typing import Any, Final

from assurance.fuzz import variations as v
from assurance.fuzz.stage import independent
from assurance.fuzz.target import Target, kept
from scbroker.client.people.link_url import LinkUrl, encode_base64
from scbroker.crypto.verify import labelled_hash
from scbroker.errors import InvalidArgumentError, UnsupportedVersionError
from tests.independent import links
from tests.vectors.files import vectors

_SERVER: Final = "https://broker.example"
_URLS: Final = [item["url"] for item in vectors("links", "valid") if item["kind"] == "url"]
_NEWER: Final = next(item["url"] for item in vectors("links") if item["id"] == "version 2")
_LONGEST: Final = 4000
"""Bytes whose URL is longer than a reader takes."""


def _link(data: bytes) -> None:
    _check(data.decode("utf-8", "surrogateescape").strip())


def _inside(data: bytes) -> None:
    data = data[:_LONGEST]
    summed = data + labelled_hash("link-checksum", _SERVER.encode(), data)[:5]
    _check(f"{_SERVER}/#scbroker-link:{encode_base64(summed)}")


def _check(url: str) -> None:
    found = LinkUrl.parse(url)
    other = independent(links.parse, url)
    fields = (found.serverUrl, found.secret, found.fingerprint, found.apiKey.bytes)
    kept(links.Link(*fields, found.hasPassword) == other, "another link than the second reader's")
    kept(found.text == url == links.url_of(other), "another URL")


def _bytes_of(url: str) -> bytes:
    code = url.partition("/#scbroker-link:")[2]
    return base64.urlsafe_b64decode(code + "=" * (-len(code) % 4))[:-5]


def _target(
    name: str,
    run: Callable[[bytes], None],
    seeds: list[bytes],
    newer: bytes,
    inputs: Any,
    bombs: Any,
) -> Target:
    refusals = (InvalidArgumentError, UnsupportedVersionError)
    return Target(
        name, run, refusals, lambda: [*seeds, newer, b"", b"\x01"], lambda: inputs(seeds), bombs
    )


_TEXTS: Final = [url.encode() for url in _URLS]
_BODIES: Final = [_bytes_of(url) for url in _URLS[:2]]
TARGETS: Final = (
    _target("link", _link, _TEXTS, _NEWER.encode(), v.in_words, v.bombs_in_words),
    _target("link-inside", _inside, _BODIES, _bytes_of(_NEWER), v.in_messagepack,
            lambda: v.bombs_in_messagepack(_BODIES[0])),
)  # fmt: skip
