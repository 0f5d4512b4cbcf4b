"""The broker's key: what verifiers, nonces and throttles are keyed with, kept outside the database.

From the settings, or from a file in the data folder. The database keeps a check of it, so that a broker
with a lost or foreign key does not start: every passphrase would be wrong, and what it stored meanwhile
would be wrong once the right key is back.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from scbroker.crypto.verify import equal, keyed_hash
from scbroker.errors import InvalidArgumentError
from scbroker.server.settings import Settings
from scbroker.server.storage import statements as sql

_SIZE: Final = 32
_CHECK: Final = "broker-key"


def provision_key(connection: Connection, settings: Settings) -> None:
    """Makes the key where this is a new broker's database; else the key has to be the one it knows."""
    if sql.one(connection, sql.FIND_CHECK, check=_CHECK) is None:
        key = _from_settings(settings) or _from_file(settings) or _make(_path(settings))
        row = {"name": _CHECK, "value": keyed_hash(key, "key-check")}
        connection.execute(sql.ADD_CHECK, row)
    find_key(connection, settings)


def find_key(connection: Connection, settings: Settings) -> bytes:
    """The key; `InvalidArgumentError` where it is missing or not the one that the database knows."""
    key = _from_settings(settings) or _from_file(settings)
    if key is None:
        raise InvalidArgumentError(
            f"The broker's key is missing: restore {_path(settings)}, or set SCBROKER_BROKER_KEY as on "
            "this broker's other machines. Without it no passphrase can be checked."
        )
    if not equal(
        keyed_hash(key, "key-check"), sql.the(connection, sql.FIND_CHECK, check=_CHECK).value
    ):
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
        raise InvalidArgumentError("SCBROKER_BROKER_KEY is 64 hexadecimal digits.")
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
    """A new key in a new file, both synced; whoever was first wins."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.urandom(_SIZE))
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileExistsError):
        os.link(temporary, path)
    temporary.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return path.read_bytes()
