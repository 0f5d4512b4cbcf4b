"""Messages about users (registration, sessions, KeyFiles, orders, public keys), and the broker's origin.

Spec: docs/spec/protocol.md, sections 2, 3 and 5.
"""

import ipaddress
import re
import urllib.parse
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from scbroker.crypto.verify import HASH_SIZE, SIGNATURE_SIZE, labelled_hash, sha256
from scbroker.errors import InvalidArgumentError
from scbroker.records.canonical import Bin32, KeyIndex, Row, Time, Uint, decode_object
from scbroker.records.key_record import LABEL as KEY_RECORD_LABEL
from scbroker.wire.codec import Hash, Id, Message, SignedObject, Text

SESSION_LABEL: Final = "session"
ORDER_LABEL: Final = "order"
NONCE_SIZE: Final = 48
DEVICE_PASS_SIZE: Final = 48
MAX_KEY_FILE: Final = 65_536
MAX_REMINDER: Final = 1024
MAX_KEY_USERS: Final = 64
MAX_KEY_RECORDS: Final = 256
MAX_KEY_RECORDS_STORED: Final = 8
MAX_BLOCKED: Final = 1024
NO_DIGEST: Final = bytes(HASH_SIZE)
"""The digest in an order whose action needs no more data."""
_MAX_STATEMENT: Final = 1024
_MAX_ORDER: Final = 1024
_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK: Final = "localhost"
_BASE_PATH: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]+)*/?")
_BRACKETED: Final = re.compile(r"\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\](:[0-9]*)?\Z")
_NAME: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\Z")
# Resolvers disagree about which names that end in a number are IPv4 addresses, so these are refused.
_NUMBER: Final = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)\Z")

Nonce = Annotated[bytes, Meta(min_length=NONCE_SIZE, max_length=NONCE_SIZE)]
DevicePass = Annotated[bytes, Meta(min_length=DEVICE_PASS_SIZE, max_length=DEVICE_PASS_SIZE)]
KeyFileBytes = Annotated[bytes, Meta(min_length=1, max_length=MAX_KEY_FILE)]
Reminder = Annotated[Text, Meta(max_length=MAX_REMINDER)]
Origin = Annotated[str, Meta(min_length=1, max_length=512)]
Action = Literal["store-key-file", "delete-key-file", "delete-user"]


class Registration(Message, frozen=True, kw_only=True):
    is_act: ClassVar[bool] = True
    keyRecords: Annotated[list[SignedObject], Meta(min_length=2, max_length=2)]
    keyFile: KeyFileBytes
    auth: Hash
    reminder: Reminder | None = None
    origin: Origin | None = None
    """The origin for which the client will sign log-ins."""


class Registered(Message, frozen=True, kw_only=True):
    userId: Id


class ChallengeRequest(Message, frozen=True, kw_only=True):
    pass


class Challenge(Message, frozen=True, kw_only=True):
    nonce: Nonce


class Statement(Row, frozen=True):
    """The statement that a log-in signs, built by the client and never taken from a broker (section 3)."""

    origin: Origin
    fingerprint: Bin32
    keyIndex: KeyIndex
    nonce: Nonce


class SessionRequest(Message, frozen=True, kw_only=True):
    statement: Annotated[bytes, Meta(max_length=_MAX_STATEMENT)]
    signature: Annotated[bytes, Meta(min_length=3373, max_length=3373)]


class Session(Message, frozen=True, kw_only=True):
    token: Annotated[str, Meta(min_length=43, max_length=43, pattern="^[A-Za-z0-9_-]{43}$")]
    expiresAt: Time
    devicePass: DevicePass


class KeyFileOpening(Message, frozen=True, kw_only=True):
    auth: Hash
    devicePass: DevicePass | None = None


class KeyFileAnswer(Message, frozen=True, kw_only=True):
    keyFile: KeyFileBytes


class KeyFileState(Message, frozen=True, kw_only=True):
    hash: Hash | None
    generation: Uint


class ReminderAnswer(Message, frozen=True, kw_only=True):
    reminder: Reminder


class KeyRecordsFrom(Message, frozen=True, kw_only=True):
    userId: Id
    from_: Uint = msgspec.field(name="from", default=0)


class KeyRecordsRequest(Message, frozen=True, kw_only=True):
    users: Annotated[list[KeyRecordsFrom], Meta(min_length=1, max_length=MAX_KEY_USERS)]


class UserKeyRecords(Message, frozen=True, kw_only=True):
    userId: Id
    keyRecords: Annotated[list[SignedObject], Meta(max_length=MAX_KEY_RECORDS)]
    deleted: bool


class KeyRecords(Message, frozen=True, kw_only=True):
    users: Annotated[list[UserKeyRecords], Meta(max_length=MAX_KEY_USERS)]


class KeyChainState(Message, frozen=True, kw_only=True):
    userId: Id
    sequence: Uint


class Usage(Message, frozen=True, kw_only=True):
    """The usage of the session's user, and the quotas; None without one."""

    bytes: Uint
    containers: Uint
    quotaBytes: Uint | None
    quotaContainers: Uint | None


class BlockedUsers(Message, frozen=True, kw_only=True):
    """The users whom the session's user has blocked, ascending."""

    users: Annotated[list[Id], Meta(max_length=MAX_BLOCKED)]


def parse_statement(data: bytes) -> Statement:
    return decode_object(Statement, data, _MAX_STATEMENT)


class Order(Row, frozen=True):
    """A signed order for one action, once, at one broker; the client alone builds it."""

    origin: Origin
    fingerprint: Bin32
    keyIndex: KeyIndex
    nonce: Nonce
    action: Action
    digest: Bin32


class Authorization(Message, frozen=True, kw_only=True):
    order: Annotated[bytes, Meta(max_length=_MAX_ORDER)]
    signature: Annotated[bytes, Meta(min_length=SIGNATURE_SIZE, max_length=SIGNATURE_SIZE)]


class KeyFileStoring(Message, frozen=True, kw_only=True):
    is_act: ClassVar[bool] = True
    keyFile: KeyFileBytes
    generation: Annotated[int, Meta(ge=1, le=2**53 - 1)]
    auth: Hash
    replaces: Hash | None
    authorization: Authorization
    reminder: Reminder | None = None
    keyRecords: Annotated[list[SignedObject], Meta(max_length=MAX_KEY_RECORDS_STORED)] = []
    endOtherSessions: bool = False

    @property
    def digest(self) -> bytes:
        """Return the digest that the order names, over everything but the order itself."""
        reminder, replaces = self.reminder, self.replaces
        return labelled_hash(
            "order-digest",
            sha256(self.keyFile)
            + self.generation.to_bytes(8, "big")
            + self.auth
            + bytes([reminder is not None])
            + sha256((reminder or "").encode())
            + bytes([replaces is not None])
            + (replaces or NO_DIGEST)
            + bytes([self.endOtherSessions])
            + b"".join(labelled_hash(KEY_RECORD_LABEL, item.body) for item in self.keyRecords),
        )


class KeyFileDeletion(Message, frozen=True, kw_only=True):
    is_act: ClassVar[bool] = True
    authorization: Authorization


class UserDeletion(Message, frozen=True, kw_only=True):
    is_act: ClassVar[bool] = True
    keyRecord: SignedObject
    """Closes the user's chain (docs/spec/ids.md, K8)."""
    authorization: Authorization

    @property
    def digest(self) -> bytes:
        """Return the digest that the order names: the hash of the closing record."""
        return labelled_hash(KEY_RECORD_LABEL, self.keyRecord.body)


def parse_order(data: bytes) -> Order:
    return decode_object(Order, data, _MAX_ORDER)


def canonical_origin(url: str) -> str:
    """Return `scheme://host:port`; raise `InvalidArgumentError` unless it is https, or http to a loopback."""
    try:
        if any(char <= " " for char in url):  # urlsplit removes some of these silently
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


def checked_address(url: str) -> str:
    """Return the address of a broker without a slash at its end: an origin, and a path if it is below one.

    Each path of the protocol is appended to it. Query, fragment, escapes and dot segments are refused:
    a proxy could normalize them, and the request would reach another path than the one meant.
    """
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    canonical_origin(f"{scheme}://{authority}")
    if "?" in authority or "#" in authority or not _BASE_PATH.fullmatch(slash + path):
        raise InvalidArgumentError(
            "serverUrl must be an origin and, where the broker is under one, a plain path: letters, "
            "digits and -._~ between single slashes, without '.' and '..', as https://example.org/broker"
        )
    return url.removesuffix("/")


def origin_of(address: str) -> str:
    """Return the canonical origin of an address that `checked_address` returned."""
    return canonical_origin(urllib.parse.urljoin(address, "/"))


def is_this_machine(host: str) -> bool:
    """Return whether a host is a name or an address of this machine, to which http is allowed."""
    try:
        return _canonical_host(host) == _LOOPBACK
    except ValueError:
        return False


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
        # Python versions differ in how they write an IPv4-mapped address, and in whether it is loopback.
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return _LOOPBACK
    return f"[{address}]" if isinstance(address, ipaddress.IPv6Address) else str(address)
