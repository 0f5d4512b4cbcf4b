"""Encode and parse contact cards: the text by which people hand each other their user ids.

A card names a user by the whole fingerprint, the user's broker and a name. A checksum finds mistyped
characters; nothing in a card is signed or secret. Spec: docs/spec/ids.md, section 5.1.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from scbroker import errors
from scbroker.crypto.verify import labelled_hash
from scbroker.records.canonical import (
    PRINTABLE_PATTERN,
    VERSION,
    Bin32,
    Row,
    check_printable,
    decode_object,
    encode_object,
    parse_fingerprint,
    show_fingerprint,
    user_id_of,
)
from scbroker.spelling import check_new
from scbroker.vocabulary import Person, instance_of
from scbroker.wire.users import checked_address

PREFIX: Final = "scbroker-contact:"
_LINK_MARK: Final = "scbroker-link:"
MAX_NAME: Final = 64
MAX_ADDRESS: Final = 255
_MAX_TEXT: Final = 4096
_MAX_BYTES: Final = 1024
_CHECKSUM: Final = 5
_DAMAGED: Final = "A character of this contact card is missing or mistyped: copy or scan it again."

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern=PRINTABLE_PATTERN)]
Address = Annotated[str, Meta(max_length=MAX_ADDRESS)]


class _CardBytes(Row, frozen=True):
    fingerprint: Bin32
    serverUrl: Address
    name: Name


@dataclass(frozen=True, slots=True, repr=False)
class ContactCard(Person):
    """A file by which other users find a user: fingerprint, broker and name. Everybody may read it.

    `text`, which `str` returns as well, is the card as one line of letters and digits. A card proves nothing
    by itself: compare its fingerprint with the person.

    Raises `invalidArgumentError` for an invalid fingerprint, address or name.
    """

    serverUrl: str
    """The address of the user's broker, with its path."""
    name: str
    """The name that the user has chosen: 1 to 64 printable characters, none of them invisible."""

    def __post_init__(self) -> None:
        fingerprint = parse_fingerprint(self.fingerprint)
        address = checked_address(instance_of("serverUrl", self.serverUrl, "a str", str))
        if not address.isascii() or len(address) > MAX_ADDRESS:
            raise errors.InvalidArgumentError(
                f"serverUrl must have at most {MAX_ADDRESS} characters, all of ASCII: write the host of an "
                "address in other scripts as xn--..."
            )
        check_name("name", self.name)
        for field, value in (
            ("fingerprint", show_fingerprint(fingerprint)),
            ("userId", user_id_of(fingerprint)),
            ("serverUrl", address),
        ):
            object.__setattr__(self, field, value)

    @classmethod
    def parse(cls, text: str) -> ContactCard:
        """Return the card of a text. Ignores upper and lower case, white space and line breaks.

        Raises `invalidArgumentError` for a damaged text and for one that is not a card,
        `unsupportedVersionError` for a card that a newer scbroker made.
        """
        if len(instance_of("text", text, "a str", str)) > _MAX_TEXT:
            raise errors.InvalidArgumentError(
                f"text is too long for a contact card: pass the card alone, at most {_MAX_TEXT} characters."
            )
        bare = re.sub(r"[\t-\r ]", "", text)
        if _LINK_MARK in bare:
            raise errors.InvalidArgumentError(
                "This is a link, not a contact card: openLink and `scbroker open` open it."
            )
        if not bare.isascii() or not bare.lower().startswith(PREFIX):
            raise errors.InvalidArgumentError(
                f"This is not a contact card: a card begins with {PREFIX} and only letters and digits "
                "follow. Copy the whole card."
            )
        card = _checked(_decoded(bare[len(PREFIX) :].upper()))
        try:
            found = decode_object(_CardBytes, card, _MAX_BYTES)
            if found.serverUrl != checked_address(found.serverUrl) or not found.serverUrl.isascii():
                raise errors.InvalidArgumentError("its address is not in its one form")
            check_name("name", found.name)
        except (errors.IntegrityError, errors.InvalidArgumentError):
            raise errors.InvalidArgumentError(
                "A field of this contact card is not valid: ask the person for a new card."
            ) from None
        return cls(show_fingerprint(found.fingerprint), found.serverUrl, found.name)

    @property
    def text(self) -> str:
        """Return the card as text in lower case; in upper case it makes a smaller QR code."""
        card = encode_object(
            _CardBytes(parse_fingerprint(self.fingerprint), self.serverUrl, self.name)
        )
        return PREFIX + _encoded(card + _checksum(card)).lower()

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return (
            f"<ContactCard of {self.name!r}: user {self.userId} at {self.serverUrl}, "
            f"fingerprint {self.fingerprint}>"
        )


def check_name(argument: str, name: str) -> None:
    """Raise `InvalidArgumentError` for a name that a card or an address book cannot have."""
    instance_of(argument, name, "a str", str)
    if not 0 < len(name) <= MAX_NAME:
        raise errors.InvalidArgumentError(
            f"{argument} must have 1 to {MAX_NAME} characters, not {len(name)}"
        )
    check_printable(argument, name)
    check_new(argument, name)


def _encoded(data: bytes) -> str:
    return base64.b32encode(data).decode("ascii").rstrip("=")


def _decoded(digits: str) -> bytes:
    """Decode base32 without padding; refuse any text but the one that `_encoded` writes for these bytes."""
    try:
        data = base64.b32decode(digits + "=" * (-len(digits) % 8))
    except ValueError:
        data = b""
    if _encoded(data) != digits:
        raise errors.InvalidArgumentError(_DAMAGED)
    return data


def _checked(data: bytes) -> bytes:
    """Return a card without its checksum, which every version has; refuse a newer version."""
    card, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
    if not card or checksum != _checksum(card):
        raise errors.InvalidArgumentError(_DAMAGED)
    if card[:1] > VERSION:
        raise errors.UnsupportedVersionError(
            "This contact card was made by a newer scbroker: update."
        )
    return card


def _checksum(card: bytes) -> bytes:
    return labelled_hash("contact-card", card)[:_CHECKSUM]
