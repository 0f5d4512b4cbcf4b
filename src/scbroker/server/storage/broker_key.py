"""The broker's key, which keys verifiers, nonces and throttles. It is kept outside the database.

It comes from the settings or from a file in the data folder. The database stores a hash of it, so that a
broker with a lost or wrong key does not start: no passphrase would match, and verifiers stored with the
wrong key would fail once the right one is back.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from scbroker.crypto.verify import equal, keyed_hash
from scbroker.errors import InvalidArgumentError
from scbroker.server.settings import Settings
from scbroker.server.storage import statements as sql
from scbroker.server.storage.blobs import sync

_SIZE: Final = 32
_CHECK: Final = "broker-key"


def provision_key(connection: Connection, settings: Settings) -> None:
    """Create the key of a new database, or check that the key is the one of this database."""
    if sql.one(connection, sql.FIND_CHECK, check=_CHECK) is None:
        key = _from_settings(settings) or _from_file(settings) or _make(_path(settings))
        row = {"name": _CHECK, "value": keyed_hash(key, "key-check")}
        connection.execute(sql.ADD_CHECK, row)
    find_key(connection, settings)


def find_key(connection: Connection, settings: Settings) -> bytes:
    """Return the key; raise `InvalidArgumentError` if it is missing or not the one of this database."""
    key = _from_settings(settings) or _from_file(settings)
    if key is None:
        raise InvalidArgumentError(
            f"The broker's key is missing: restore {_path(settings)}, or set SCBROKER_BROKER_KEY as on "
            "this broker's other machines. Without it no passphrase can be checked."
        )
    stored = sql.the(connection, sql.FIND_CHECK, check=_CHECK).value
    if not equal(keyed_hash(key, "key-check"), stored):
        raise InvalidArgumentError(
            "The broker's key is not the one that this database was used with: restore broker.key, or "
            "set SCBROKER_BROKER_KEY to the right one."
        )
    return key


def _from_settings(settings: Settings) -> bytes | None:
    if not settings.broker_key:
        return None
    try:
        key = bytes.fromhex(settings.broker_key)
    except ValueError:
        key = b""
    if len(key) != _SIZE:
        raise InvalidArgumentError("SCBROKER_BROKER_KEY must be 64 hexadecimal digits.")
    return key


def _path(settings: Settings) -> Path:
    return settings.directory / "broker.key"


def _from_file(settings: Settings) -> bytes | None:
    try:
        key = _path(settings).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidArgumentError(f"{_path(settings)} cannot be read: {error.strerror}.") from None
    if len(key) != _SIZE:
        raise InvalidArgumentError(f"{_path(settings)} is damaged: restore it from a copy.")
    return key


def _make(path: Path) -> bytes:
    """Store a new key durably and return it; if another process was first, return its key."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.urandom(_SIZE))
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileExistsError):
        os.link(temporary, path)
    temporary.unlink()
    sync(path.parent)
    return path.read_bytes()
