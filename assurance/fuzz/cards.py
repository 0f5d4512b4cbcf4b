"""Contact cards: as text, and with the checksum of any bytes. See docs/spec/ids.md, 5.1."""

import base64
from collections.abc import Callable
from typing import Any, Final

from assurance.fuzz import variations as v
from assurance.fuzz.stage import independent
from assurance.fuzz.target import Target, kept
from scbroker.cards import PREFIX, ContactCard
from scbroker.crypto.verify import labelled_hash
from scbroker.errors import InvalidArgumentError, UnsupportedVersionError
from tests.independent import contact_cards
from tests.vectors.files import vectors

_VALID: Final = [vector["card"] for vector in vectors("contact_cards", "valid")]
_NEWER: Final = next(
    vector["card"] for vector in vectors("contact_cards") if vector["id"] == "version 2"
)

_LONGEST: Final = 4000
"""Bytes whose card is longer than a reader takes."""


def _card(data: bytes) -> None:
    _check(data.decode("utf-8", "surrogateescape"))


def _inside(data: bytes) -> None:
    data = data[:_LONGEST]  # base32 of megabytes takes the time that the card would have
    summed = data + labelled_hash("contact-card", data)[:5]
    _check(PREFIX + base64.b32encode(summed).decode().rstrip("="))


def _check(text: str) -> None:
    card = ContactCard.parse(text)
    other = independent(contact_cards.parse, text)
    fields = bytes.fromhex(card.fingerprint), card.serverUrl, card.name
    kept(fields == other, "another card than that of the second implementation")
    kept(ContactCard.parse(card.text) == card, "its own text reads otherwise")
    kept(card.text == other.text, "another text")


def _bytes_of(text: str) -> bytes:
    digits = "".join(text.split()).partition(":")[2].upper()
    return base64.b32decode(digits + "=" * (-len(digits) % 8))[:-5]


def _cards() -> list[bytes]:
    return [_bytes_of(text) for text in _VALID]


def _texts() -> list[bytes]:
    return [text.encode() for text in _VALID]


def _target(
    name: str, run: Callable[[bytes], None], seeds: list[bytes], inputs: Any, bombs: Any
) -> Target:
    newer = _NEWER.encode() if run is _card else _bytes_of(_NEWER)
    refusals = (InvalidArgumentError, UnsupportedVersionError)
    return Target(name, run, refusals, lambda: [*seeds, newer, b""], lambda: inputs(seeds), bombs)


TARGETS: Final = (
    _target("contact-card", _card, _texts(), v.in_words, v.bombs_in_words),
    _target("contact-card-inside", _inside, _cards(), v.in_messagepack,
            lambda: v.bombs_in_messagepack(_cards()[0])),
)  # fmt: skip
