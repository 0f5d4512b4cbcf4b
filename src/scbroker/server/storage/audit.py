"""Record acts of operators and users in the table `audit`, which only grows.

The rows are a chain: the `mac` of each is a keyed hash of the row and of the mac before it. Its key is
random, and the database has it only sealed under the broker's key. So somebody who can write to the database,
and does not have the broker's key, can cut the end of the log off, and can change nothing else unnoticed.
docs/guide/controlling-access.md says what `scbroker admin audit verify` proves.
"""

import os
import pwd
import socket
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from scbroker.crypto.at_rest import open_stored, seal_stored
from scbroker.crypto.verify import HASH_SIZE, keyed_hash
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row

KEY_CHECK: Final = "audit-key"
"""The name of the row of `checks` with the sealed key of the chain, and the label of its seal."""
BEFORE_ALL: Final = bytes(HASH_SIZE)
"""Used as the mac before the first row."""
_NOBODY: Final = b""
"""The user id in the seal of the chain's key, which belongs to the broker."""
LAST_AUDIT: Final = sa.select(t.audit).order_by(t.audit.c.id.desc()).limit(1)
LAST_AUDIT_OF: Final = LAST_AUDIT.where(sql.among(t.audit.c.action, "actions"))
AUDIT_AFTER: Final = sql.page(
    sa.select(t.audit).where(t.audit.c.id > sa.bindparam("after_id")), t.audit.c.id
)


def operator() -> str:
    """Return the operating system's user of this process, and the name of this machine."""
    user_id = os.geteuid()
    try:
        name = pwd.getpwuid(user_id).pw_name
    except KeyError:  # no such user, as in a container image
        name = f"uid {user_id}"
    return f"{name}@{socket.gethostname()}"[:256]


def record(
    connection: Connection,
    key: bytes,
    action: str,
    subject: str,
    details: Mapping[str, object] = {},
    actor: str | None = None,
) -> None:
    """Append a row within the transaction of the act; `key` is the broker's key.

    The actor is a user's id, or by default the operator. Call this last: the row of the chain's key is locked
    until the transaction ends, so that rows are appended one after the other, and no other lock may be taken
    behind it. Neither subject nor details may contain a secret or a network address.
    """
    chain_key = _lock_key(connection, key)
    last = sql.one(connection, LAST_AUDIT)
    row = {
        "id": 1 if last is None else last.id + 1,
        "at": time.time_ns() // 1000,
        "actor": actor or operator(),
        "action": action,
        "subject": subject,
        "details": msgspec.json.encode(dict(details)).decode(),
    }
    before = BEFORE_ALL if last is None else bytes(last.mac)
    connection.add(t.audit, {**row, "mac": _mac(chain_key, before, list(row.values()))})


def mac_of(chain_key: bytes, before: bytes, row: Row) -> bytes:
    """Return the mac that a stored row must have; `before` is the mac of the row before it."""
    fields = [row.id, row.at, row.actor, row.action, row.subject, row.details]
    return _mac(chain_key, before, fields)


def find_key(connection: Connection, key: bytes) -> bytes | None:
    """Return the key of the chain, or None if no row was ever recorded.

    Raises `IntegrityError` if it does not open under this key of the broker.
    """
    row = sql.one(connection, sql.FIND_CHECK, check=KEY_CHECK)
    return None if row is None else open_stored(key, KEY_CHECK, _NOBODY, bytes(row.value))


def reseal_key(connection: Connection, key: bytes, new_key: bytes) -> None:
    """Seal the key of the chain under a new key of the broker: the chain stays as it is."""
    sealed = seal_stored(new_key, KEY_CHECK, _NOBODY, _lock_key(connection, key))
    connection.execute(sql.SET_CHECK, {"check": KEY_CHECK, "value": sealed})


def _lock_key(connection: Connection, key: bytes) -> bytes:
    """Lock and return the key of the chain; create it before the first row of the log."""
    row = sql.one(connection, sql.LOCK_CHECK, check=KEY_CHECK)
    if row is not None:
        return open_stored(key, KEY_CHECK, _NOBODY, bytes(row.value))
    new = os.urandom(HASH_SIZE)
    sealed = seal_stored(key, KEY_CHECK, _NOBODY, new)
    # If another transaction creates it at the same time, this one fails and is repeated.
    connection.add(t.checks, {"name": KEY_CHECK, "value": sealed})
    return new


def _mac(chain_key: bytes, before: bytes, fields: list[Any]) -> bytes:
    return keyed_hash(chain_key, "audit", before, msgspec.msgpack.encode(fields))
