"""Contact cards and URLs of links: as texts, and with the checksum of any bytes.

See docs/spec/ids.md, 5.1, and docs/spec/links.md, 1.
"""

import base64
from collections.abc import Callable
from typing import Final

from assurance.fuzz import variations as v
from assurance.fuzz.stage import independent
from assurance.fuzz.target import Target, kept
from scbroker.cards import PREFIX, ContactCard
from scbroker.client.people.links import LinkUrl, encode_base64
from scbroker.crypto.verify import labelled_hash
from scbroker.errors import InvalidArgumentError, UnsupportedVersionError
from tests.independent import contact_cards, links
from tests.vectors.files import vectors

_REFUSALS: Final = (InvalidArgumentError, UnsupportedVersionError)
_SERVER: Final = "https://broker.example"
_MARK: Final = "/#scbroker-link:"
_LONGEST: Final = 4000
"""Bytes whose text is longer than a reader takes; to encode megabytes takes longer than to read them."""


def _card(text: str) -> None:
    card = ContactCard.parse(text)
    other = independent(contact_cards.parse, text)
    fields = bytes.fromhex(card.fingerprint), card.serverUrl, card.name
    kept(fields == other, "another card than that of the second implementation")
    kept(ContactCard.parse(card.text) == card, "its own text reads otherwise")
    kept(card.text == other.text, "another text")


def _card_of(data: bytes) -> str:
    summed = data + labelled_hash("contact-card", data)[:5]
    return PREFIX + base64.b32encode(summed).decode().rstrip("=")


def _bytes_of_card(text: str) -> bytes:
    digits = "".join(text.split()).partition(":")[2].upper()
    return base64.b32decode(digits + "=" * (-len(digits) % 8))[:-5]


def _link(text: str) -> None:
    url = text.strip()
    found = LinkUrl.parse(url)
    other = independent(links.parse, url)
    fields = (found.serverUrl, found.secret, found.fingerprint, found.apiKey.bytes)
    kept(links.Link(*fields, found.hasPassword) == other, "another link than the second reader's")
    kept(found.text == url == links.url_of(other), "another URL")


def _link_of(data: bytes) -> str:
    summed = data + labelled_hash("link-checksum", _SERVER.encode(), data)[:5]
    return f"{_SERVER}{_MARK}{encode_base64(summed)}"


def _bytes_of_link(url: str) -> bytes:
    code = url.partition(_MARK)[2]
    return base64.urlsafe_b64decode(code + "=" * (-len(code) % 4))[:-5]


def _targets(
    name: str, check: Callable[[str], None], text_of: Callable[[bytes], str],
    bytes_of: Callable[[str], bytes], valid: list[str], newer: str,
) -> tuple[Target, Target]:  # fmt: skip
    """Return the target of texts, and that of bytes which get a checksum that fits."""
    texts, bodies = [text.encode() for text in valid], list(map(bytes_of, valid))
    more = [newer.encode(), b"", b"\x01"]
    return (
        Target(
            name, lambda data: check(data.decode("utf-8", "surrogateescape")), _REFUSALS,
            lambda: [*texts, *more], lambda: v.in_words(texts), v.bombs_in_words,
        ),
        v.messagepack_target(
            f"{name}-inside", lambda data: check(text_of(data[:_LONGEST])), _REFUSALS, lambda: bodies,
            [bytes_of(newer), b"", b"\x01"],
        ),
    )  # fmt: skip


def _newer(file: str, field: str) -> str:
    return next(str(vector[field]) for vector in vectors(file) if vector["id"] == "version 2")


_CARDS: Final = [vector["card"] for vector in vectors("contact_cards", "valid")]
_URLS: Final = [item["url"] for item in vectors("links", "valid") if item["kind"] == "url"]
TARGETS: Final = (
    *_targets("contact-card", _card, _card_of, _bytes_of_card, _CARDS, _newer("contact_cards", "card")),
    *_targets("link", _link, _link_of, _bytes_of_link, _URLS, _newer("links", "url")),
)  # fmt: skip
