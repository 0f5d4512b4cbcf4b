"""Create, list, expire and revoke API keys. The database has their hashes only.

A revoked key keeps its row, so that the broker can answer that it was revoked, and never creates a first key
again. `Broker.admit` describes when a running broker starts to refuse the key.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from sqlalchemy import bindparam, insert, select, update

from scbroker.crypto.verify import sha256
from scbroker.errors import InvalidArgumentError, NotFoundError
from scbroker.server.admin.stores import moment, time_of
from scbroker.server.broker import now
from scbroker.server.storage import audit
from scbroker.server.storage import statements as sql
from scbroker.server.storage.driver import Connection, Row
from scbroker.server.storage.notices import notify_brokers
from scbroker.server.storage.tables import api_keys

_ID_DIGITS: Final = 8
_LONGEST_NAME: Final = 256
_ID: Final = re.compile(rf"[0-9a-f]{{{_ID_DIGITS},64}}")
b: Final = bindparam
ALL: Final = select(api_keys).order_by(api_keys.c.created_at, api_keys.c.key_hash)
ADD_API_KEY: Final = insert(api_keys)
SET: Final = update(api_keys).where(api_keys.c.key_hash == b("hash"))


class ApiKey(NamedTuple):
    """An API key as the broker stores it."""

    id: str
    """The first 8 hexadecimal digits of its hash."""
    name: str
    created: dt.datetime
    expires: dt.datetime | None
    last_used: dt.datetime | None
    """Rounded down to the minute, and written up to a minute later."""
    revoked: dt.datetime | None
    state: Literal["valid", "expired", "revoked"]

    @property
    def is_valid(self) -> bool:
        return self.state == "valid"


def all_keys(connection: Connection) -> list[ApiKey]:
    """Return all API keys, the oldest first, also revoked and expired ones."""
    return [_api_key(row, now()) for row in connection.execute(ALL)]


def create(
    connection: Connection,
    broker_key: bytes,
    key: uuid.UUID,
    name: str,
    expires: dt.datetime | None = None,
) -> None:
    """Add an API key; raise `InvalidArgumentError` if a valid one has the name already."""
    if not (0 < len(name) <= _LONGEST_NAME and name.isprintable() and name == name.strip()):
        raise InvalidArgumentError(
            f"The name of an API key must have 1 to {_LONGEST_NAME} printable characters, and no space at "
            f"its ends: {name!r:.80} does not."
        )
    for row in _locked(connection):
        if row.name == name and _is_valid(row, now()):
            raise InvalidArgumentError(
                f"The API key {_id_of(row)} has the name {name!r} already: choose another one, or revoke "
                "that key first."
            )
    _add(connection, broker_key, key, name, expires)


def add_first(connection: Connection, broker_key: bytes, key: uuid.UUID) -> bool:
    """Add an API key if none ever existed; return whether it is stored, also by an earlier attempt."""
    if not _locked(connection):
        _add(connection, broker_key, key, "made at the first start", None)
    return sql.one(connection, sql.FIND_API_KEY, hash=sha256(key.bytes)) is not None


def add_of_settings(connection: Connection, broker_key: bytes, key: uuid.UUID) -> bool:
    """Add the API key of the settings unless it is stored already; return whether it is valid."""
    row = sql.one(connection, sql.FIND_API_KEY, hash=sha256(key.bytes))
    if row is None:
        _add(connection, broker_key, key, "from the settings", None)
    return row is None or _is_valid(row, now())


def expire(
    connection: Connection, broker_key: bytes, text: str, expires: dt.datetime | None
) -> ApiKey:
    """Set when a valid API key expires, None for never; `text` is its name or the start of its hash."""
    row = _find_valid(connection, text)
    values = {"hash": row.key_hash, "expires_at": None if expires is None else moment(expires)}
    connection.execute(SET, values)
    notify_brokers(connection)
    until = "never" if expires is None else expires.isoformat()
    _record(connection, broker_key, "api-key-expiry-set", row, expires=until)
    return _api_key(row, now())._replace(expires=expires)


def revoke(connection: Connection, broker_key: bytes, text: str) -> tuple[ApiKey, bool]:
    """Revoke an API key for ever; return it, and whether another valid one is left."""
    row, revoked_at = _find_valid(connection, text), now()
    connection.execute(SET, {"hash": row.key_hash, "revoked_at": revoked_at})
    notify_brokers(connection)
    is_left = any(_is_valid(each, revoked_at) for each in connection.execute(ALL))
    _record(connection, broker_key, "api-key-revoked", row)
    revoked = _api_key(row, revoked_at)._replace(revoked=time_of(revoked_at), state="revoked")
    return revoked, is_left


def _add(
    connection: Connection,
    broker_key: bytes,
    key: uuid.UUID,
    name: str,
    expires: dt.datetime | None,
) -> None:
    row = {
        "key_hash": sha256(key.bytes),
        "name": name,
        "created_at": now(),
        "expires_at": None if expires is None else moment(expires),
    }
    connection.execute(ADD_API_KEY, row)
    stored = sql.the(connection, sql.FIND_API_KEY, hash=row["key_hash"])
    more = {} if expires is None else {"expires": expires.isoformat()}
    _record(connection, broker_key, "api-key-created", stored, **more)


def _record(
    connection: Connection, broker_key: bytes, action: str, row: Row, **more: object
) -> None:
    audit.record(connection, broker_key, action, _id_of(row), {"name": row.name, **more})


def _locked(connection: Connection) -> Sequence[Row]:
    """Return the rows of all keys. No other command adds or changes one until this transaction ends.

    All changes are serialized by the lock on a row that the audit log locks anyway: locking the rows of keys
    would not keep two commands from adding the same name.
    """
    sql.one(connection, sql.LOCK_CHECK, check=audit.KEY_CHECK)
    return connection.execute(ALL).all()


def _find_valid(connection: Connection, text: str) -> Row:
    """Return the row of the valid API key with this name, or whose hash begins with these digits.

    Raises `NotFoundError` if no key matches, and `InvalidArgumentError` if several valid keys match or the
    only match was revoked or has expired.
    """
    digits = text.lower()
    is_id = _ID.fullmatch(digits) is not None
    meant = [
        row
        for row in _locked(connection)
        if row.name == text or (is_id and row.key_hash.hex().startswith(digits))
    ]
    valid = [row for row in meant if _is_valid(row, now())]
    if len(valid) == 1:
        return valid[0]
    if valid:
        listed = ", ".join(f"{_id_of(row)} ({row.name})" for row in valid)
        raise InvalidArgumentError(
            f"{text!r} matches several API keys: pass the id of one: {listed}."
        )
    if meant:
        ended = "was revoked" if meant[-1].revoked_at is not None else "has expired"
        raise InvalidArgumentError(
            f"The API key {_id_of(meant[-1])} {ended} already: create another one."
        )
    raise NotFoundError(
        f"No API key has the name or id {text!r:.80}: `scbroker admin api-keys ls` lists them."
    )


def _api_key(row: Row, at: int) -> ApiKey:
    return ApiKey(
        id=_id_of(row),
        name=row.name,
        created=time_of(int(row.created_at)),
        expires=time_of(row.expires_at),
        last_used=time_of(row.last_used_at),
        revoked=time_of(row.revoked_at),
        state="valid" if _is_valid(row, at) else "expired" if row.revoked_at is None else "revoked",
    )


def _is_valid(row: Row, at: int) -> bool:
    return row.revoked_at is None and (row.expires_at is None or row.expires_at > at)


def _id_of(row: Row) -> str:
    return bytes(row.key_hash).hex()[:_ID_DIGITS]
