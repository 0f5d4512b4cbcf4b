"""The broker's key: where it is stored, what is sealed under it, and which one is in force in a rotation.

The key authenticates nonces and device passes, keys the counters of the throttle, and seals KeyFiles and the
proofs of passphrases. It is not in the database, which stores a hash of it: a broker with a lost or wrong key
does not start.

A rotation (`admin.rotation`, docs/guide/broker-key.md) replaces the key while brokers run. Two rows of the
table of checks name the key in force and the next one. Every transaction that reads or writes a KeyFile reads
them first, so all processes use the next key from the same commit on. The next key comes from a file or a
setting, never from the database: the old key may be stolen, so nothing sealed under it may contain the new
one.

The hash of a proof cannot be computed anew without the passphrase. So it stays keyed with the database's
first key. From the first rotation on it is stored sealed, so that a rotation can seal it anew.
"""

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scbroker.crypto.at_rest import open_stored, seal_stored
from scbroker.crypto.verify import HASH_SIZE, equal, keyed_hash
from scbroker.errors import IntegrityError, InvalidArgumentError, OverloadedError
from scbroker.server.settings import Settings
from scbroker.server.storage import statements as sql
from scbroker.server.storage.blobs import sync
from scbroker.server.storage.driver import Connection

KEY: Final = "broker.key"
NEXT_KEY: Final = "broker.key.next"
SIZE: Final = 32
KEY_FILE: Final = "stored-key-file"
"""The label of the keys under which KeyFiles are stored."""
VERIFIER: Final = "stored-verifier"
"""The label of the keys under which proofs of passphrases are sealed."""
# Names of rows in the table of checks.
KEY_CHECK: Final = "broker-key"
NEXT_CHECK: Final = "broker-key-next"
FIRST_KEY: Final = "first-broker-key"
"""This row, and that of the audit log's key, are sealed under the broker's key."""
_GRACE_SECONDS: Final = 120.0
"""Seconds for which nonces and passes under a key that was replaced are accepted: the life of a nonce."""

SHARE_CHECK: Final = sql.FIND_CHECK.with_for_update(read=True)


def hash_of_key(key: bytes) -> bytes:
    """Return the hash by which the database recognises a key."""
    return keyed_hash(key, "key-check")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys in force in one transaction."""

    active: bytes
    next: bytes | None
    """The new key during a rotation: this process seals under it from its announcement on."""
    first: bytes
    """The database's first key, under which all proofs of passphrases are hashed."""
    is_rotated: bool
    """Whether a rotation was ever started: from then on proofs are stored sealed."""

    def seal(self, name: str, user_id: bytes, data: bytes) -> bytes:
        return seal_stored(self.next or self.active, name, user_id, data)

    def open(self, name: str, user_id: bytes, stored: bytes) -> bytes:
        """Unseal data; raise `IntegrityError` if it is damaged or sealed under another key."""
        if self.next is not None:
            with contextlib.suppress(IntegrityError):
                return open_stored(self.next, name, user_id, stored)
        return open_stored(self.active, name, user_id, stored)

    def seal_verifier(self, user_id: bytes, verifier: bytes) -> bytes:
        """Return the hash of a proof as the database stores it."""
        return self.seal(VERIFIER, user_id, verifier) if self.is_rotated else verifier

    def open_verifier(self, user_id: bytes, stored: bytes) -> bytes:
        """Return the hash of a proof; raise `IntegrityError` if it is damaged.

        Once the first key is replaced no bare hash is accepted: a thief of that key could compute one.
        """
        if len(stored) == HASH_SIZE and self.first == self.active:
            return stored
        return self.open(VERIFIER, user_id, stored)

    def reseal(self, user_id: bytes, key_file: bytes, verifier: bytes) -> tuple[bytes, bytes]:
        """Return a stored KeyFile and hash of a proof, both sealed anew."""
        opened = self.open(KEY_FILE, user_id, key_file)
        return (
            self.seal(KEY_FILE, user_id, opened),
            self.seal_verifier(user_id, self.open_verifier(user_id, verifier)),
        )


class BrokerKeys:
    """The keys of one process, which it reads again when the database names others."""

    def __init__(self, settings: Settings, key: bytes = b"") -> None:
        self._settings = settings
        self._seen: tuple[dict[str, bytes], Keys] = ({}, Keys(key, None, key, is_rotated=False))
        self._replaced, self._until = b"", 0.0

    @property
    def now(self) -> Keys:
        """The keys that the last transaction read; the background reads them every few seconds."""
        return self._seen[1]

    def at(self, connection: Connection, *, writing: bool = False) -> Keys:
        """Return the keys in force in this transaction; if `writing`, no rotation changes them until its end.

        Raises `OverloadedError` if this process does not have the key of a rotation.
        """
        if writing:
            # Lock by a separate statement: the next one then sees what a rotation has committed.
            sql.the(connection, SHARE_CHECK, check=KEY_CHECK)
        rows = _rows(connection)
        seen, keys = self._seen
        if rows == seen:
            return keys
        # Offer the keys in memory too: since this transaction began, a rotation may have moved the file that
        # has a key.
        known = [key for key in (keys.active, keys.next, self._replaced) if key]
        try:
            found = _choose(rows, self._settings, known)
        except InvalidArgumentError as error:
            text = "This broker process does not have the broker's new key: tell its operator."
            raise OverloadedError(text, retryAfter=5) from error
        if keys.active not in (b"", found.active):
            self._replaced, self._until = keys.active, time.monotonic() + _GRACE_SECONDS
        self._seen = (rows, found)
        return found

    def keyed(self, name: str, *parts: bytes) -> bytes:
        """Return a hash under the key in force."""
        return keyed_hash(self.now.active, name, *parts)

    def is_keyed(self, tag: bytes, name: str, *parts: bytes, size: int = HASH_SIZE) -> bool:
        """Return whether a tag is the first `size` bytes of a hash under a key that is accepted now.

        Processes read a change within seconds of each other: during a rotation each accepts what the others
        have made, and the old key's for two minutes more.
        """
        now = self.now
        accepted = [now.active] if now.next is None else [now.active, now.next]
        if time.monotonic() < self._until:
            accepted.append(self._replaced)
        return any(equal(keyed_hash(key, name, *parts)[:size], tag) for key in accepted)


def find_keys(connection: Connection, settings: Settings) -> Keys:
    """Return the keys; raise `InvalidArgumentError` if one is missing or not the one of this database."""
    return _choose(_rows(connection), settings)


def _rows(connection: Connection) -> dict[str, bytes]:
    names = [KEY_CHECK, NEXT_CHECK, FIRST_KEY]
    found = connection.execute(sql.FIND_CHECKS, {"names": names})
    return {row.name: bytes(row.value) for row in found}


def _choose(rows: dict[str, bytes], settings: Settings, known: Sequence[bytes] = ()) -> Keys:
    """Return the keys that the database names, out of the configured and the known ones."""
    own = [*configured_keys(settings), *known]
    if not own:
        raise InvalidArgumentError(
            f"The broker's key is missing: restore {settings.directory / KEY}, or set SCBROKER_BROKER_KEY as "
            "on this broker's other machines. Without it no passphrase can be checked and no KeyFile opens."
        )
    active = _named(rows[KEY_CHECK], own)
    coming = _named(rows[NEXT_CHECK], own) if NEXT_CHECK in rows else None
    if active is None:
        raise InvalidArgumentError(
            "The broker's key is not the one that this database was used with: restore broker.key, or "
            "set SCBROKER_BROKER_KEY to the right one."
        )
    if coming is None and NEXT_CHECK in rows:
        raise InvalidArgumentError(
            "The broker's key is being rotated, and the new key is missing: restore "
            f"{settings.directory / NEXT_KEY}, or set SCBROKER_BROKER_KEY_NEXT as on this broker's other "
            "machines."
        )
    keys = Keys(active, coming, active, is_rotated=FIRST_KEY in rows)
    if not keys.is_rotated:
        return keys
    try:
        first = keys.open(FIRST_KEY, b"", rows[FIRST_KEY])
    except IntegrityError:
        raise InvalidArgumentError(
            "The database's first key does not open: it is damaged. Restore a backup."
        ) from None
    return Keys(active, coming, first, is_rotated=True)


def _named(check: bytes, own: list[bytes]) -> bytes | None:
    return next((key for key in own if equal(hash_of_key(key), check)), None)


def configured_keys(settings: Settings) -> list[bytes]:
    """Return the keys from the settings, or from the files; `InvalidArgumentError` for a damaged one."""
    given = (
        ("SCBROKER_BROKER_KEY", settings.broker_key, KEY),
        ("SCBROKER_BROKER_KEY_NEXT", settings.broker_key_next, NEXT_KEY),
    )
    found = (
        _parsed(name, text) if text else read_key(settings.directory / file)
        for name, text, file in given
    )
    return [key for key in found if key is not None]


def _parsed(name: str, text: str) -> bytes:
    with contextlib.suppress(ValueError):
        key = bytes.fromhex(text)
        if len(key) == SIZE:
            return key
    raise InvalidArgumentError(f"{name} must be 64 hexadecimal digits.")


def read_key(path: Path) -> bytes | None:
    """Return the key in a file, or None if the file does not exist."""
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error.strerror}.") from None
    if len(key) != SIZE:
        raise InvalidArgumentError(f"{path} is damaged: restore it from a copy.")
    return key


def create_key(path: Path) -> bytes:
    """Store a new key durably and return it; if another process was first, return its key."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        write_synced(temporary, os.urandom(SIZE))
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
        temporary.unlink()
        sync(path.parent)
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be written: {error.strerror}.") from None


def put_in_place(settings: Settings, active: bytes) -> Path | None:
    """Replace broker.key with broker.key.next if this is the key in force.

    Returns the new name of the replaced file: backups from before the rotation open under that key alone.
    """
    path, following = settings.directory / KEY, settings.directory / NEXT_KEY
    if settings.broker_key or settings.broker_key_next or read_key(following) != active:
        return None
    old = path.with_name(f"{KEY}.until-{time.strftime('%Y-%m-%dT%H%M%SZ', time.gmtime())}")
    try:
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            os.link(path, old)
        following.replace(path)
        sync(path.parent)
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be written: {error.strerror}.") from None
    return old if old.exists() else None


def write_synced(path: Path, octets: bytes | memoryview) -> None:
    """Create a file with these bytes and sync it; its folder is created, but not synced."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(octets)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:  # as on a full disk
        error.filename = str(path)
        raise
