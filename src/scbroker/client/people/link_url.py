"""Make and parse the URL of a link, and derive the passphrase of the link's user from it.

The secrets are in the URL's fragment, which no HTTP client sends to a server. Nothing here does I/O.
Spec: docs/spec/links.md.
"""

import base64
import re
import uuid
from dataclasses import dataclass
from typing import Final, Self

from scbroker.cards import PREFIX as CARD_PREFIX
from scbroker.crypto.seal import derive_key
from scbroker.crypto.verify import labelled_hash
from scbroker.errors import IntegrityError, InvalidArgumentError, UnsupportedVersionError
from scbroker.keys import checked_secret
from scbroker.records.canonical import (
    VERSION,
    Bin16,
    Bin32,
    Row,
    decode_object,
    encode_object,
    user_id_of,
)
from scbroker.wire.users import canonical_origin, checked_address

_MARK: Final = "/#scbroker-link:"
_CHECKSUM: Final = 5
"""Bytes of a checksum that finds typing errors. It does not authenticate the link."""
_MAX_URL: Final = 2048
_CODE: Final = re.compile("[A-Za-z0-9_-]+")
_LABEL: Final = "[A-Za-z0-9_-]{1,63}"
_ADDRESS: Final = re.compile(
    rf"https?://(\[[0-9A-Fa-f:.]+\]|{_LABEL}(\.{_LABEL})*)(:[1-9][0-9]{{0,4}})?(/[A-Za-z0-9._~-]+)*"
)


class _LinkBytes(Row, frozen=True):
    secret: Bin32
    fingerprint: Bin32
    apiKey: Bin16
    hasPassword: bool


@dataclass(frozen=True, slots=True, repr=False)
class LinkUrl:
    """The parts of a link's URL. Anybody who has `secret`, and the password if the link has one, can read."""

    serverUrl: str
    apiKey: uuid.UUID
    fingerprint: bytes
    secret: bytes
    hasPassword: bool

    @property
    def userId(self) -> uuid.UUID:
        return user_id_of(self.fingerprint)

    @property
    def text(self) -> str:
        fields = _LinkBytes(self.secret, self.fingerprint, self.apiKey.bytes, self.hasPassword)
        body = encode_object(fields)
        return f"{self.serverUrl}{_MARK}{encode_base64(body + _checksum(self.serverUrl, body))}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a URL strictly; white space around it is ignored. No message repeats a part of the URL.

        Raises `InvalidArgumentError` for a text that is not a link, for a damaged one, and for one whose
        broker is on another machine without https; `UnsupportedVersionError` for a newer format.
        """
        url = text.strip()
        if url.lower().startswith(CARD_PREFIX):
            raise InvalidArgumentError(
                "This is a contact card, not a link: ContactCard.parse and `scbroker card` read it."
            )
        server_url, mark, code = url.partition(_MARK)
        if not mark or len(url) > _MAX_URL:
            raise InvalidArgumentError(
                "link is not a link from createLink, which contains '/#scbroker-link:': copy the whole link"
            )
        data = _decoded(code)
        body, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
        if checksum != _checksum(server_url, body):
            raise _damage()
        if body[:1] != VERSION:
            raise UnsupportedVersionError(
                "The link was made by a newer version of scbroker: update scbroker to open it."
            )
        try:
            fields = decode_object(_LinkBytes, body, _MAX_URL)
        except IntegrityError:
            raise _damage() from None
        if not _ADDRESS.fullmatch(checked_address(server_url)) or server_url.endswith("/"):
            raise _damage()
        api_key = uuid.UUID(bytes=fields.apiKey)
        return cls(server_url, api_key, fields.fingerprint, fields.secret, fields.hasPassword)

    def passphrase(self, password: str | None) -> str:
        """Return the passphrase of the link's user: it needs the password too, if the link has one."""
        extra = b"" if password is None else checked_secret(password, "password")
        return encode_base64(derive_key(self.secret, "link-passphrase", self.fingerprint + extra))

    def __repr__(self) -> str:
        return f"LinkUrl(userId={self.userId})"


def plain_address(server_url: str) -> str:
    """Return the address of a broker in the form that a link has: ASCII, the scheme in lower case."""
    if _ADDRESS.fullmatch(server_url):
        return server_url
    scheme, _, rest = server_url.partition("://")
    authority, slash, path = rest.partition("/")
    return canonical_origin(f"{scheme}://{authority}") + slash + path


def encode_base64(data: bytes) -> str:
    """Return base64url without padding (RFC 4648, 5)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decoded(code: str) -> bytes:
    """Decode base64url without padding; refuse any other spelling of the same bytes."""
    if _CODE.fullmatch(code) and len(code) % 4 != 1:
        data = base64.urlsafe_b64decode(code + "=" * (-len(code) % 4))
        if encode_base64(data) == code:
            return data
    raise _damage()


def _checksum(server_url: str, body: bytes) -> bytes:
    return labelled_hash("link-checksum", server_url.encode("utf-8", "replace"), body)[:_CHECKSUM]


def _damage() -> InvalidArgumentError:
    return InvalidArgumentError(
        "The link is damaged: characters are missing, added or changed. Copy the whole link again."
    )
