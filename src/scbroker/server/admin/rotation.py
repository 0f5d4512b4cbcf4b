"""Replace the broker's key while brokers run. The next call continues an interrupted rotation.

1. The new key exists at every broker: in a file beside the old one, or as a setting.
2. One transaction writes the new key's hash into the database. It waits until all transactions that seal
   under the old key have ended. From its commit on every broker seals under the new key and opens under both.
3. KeyFiles and proofs of passphrases are sealed anew, a page at a time.
4. One transaction makes the new key the one in force. Nothing is sealed under the old one any more.
5. The file of the new key replaces that of the old one.
"""

import asyncio
from functools import partial
from typing import Final

from scbroker.errors import IntegrityError, InvalidArgumentError
from scbroker.server.admin.check import Progress, Tell
from scbroker.server.admin.stores import open_stores, sqlite_file
from scbroker.server.keys import (
    FIRST_KEY,
    KEY,
    KEY_CHECK,
    NEXT_CHECK,
    NEXT_KEY,
    Keys,
    create_key,
    find_keys,
    hash_of_key,
    put_in_place,
    read_key,
)
from scbroker.server.settings import Settings
from scbroker.server.storage import audit
from scbroker.server.storage import statements as sql
from scbroker.server.storage.database import Database
from scbroker.server.storage.driver import Connection
from scbroker.server.users import key_files

SETTLING_SECONDS: Final = 10.0
"""Twice the interval in which each process reads the keys: every process has the new one by then."""
_PAGE: Final = 100


async def rotate(
    settings: Settings, tell: Tell, progress: Progress, *, settling: float = SETTLING_SECONDS
) -> None:
    """Replace the broker's key, or complete an interrupted rotation; `tell` what remains to be done."""
    is_shared = sqlite_file(settings) is None
    async with open_stores(settings) as (database, _):
        keys = await database.read(lambda c: find_keys(c, settings))
        if keys.next is None:
            chosen = _new_key(settings, keys, tell, is_shared=is_shared)
            if chosen is None:
                return
            new = chosen
            await database.write(lambda c: _announce(c, settings, new))
        else:
            new = keys.next
            tell("An interrupted rotation continues.")
        count = await _reseal(database, settings, progress)
        if is_shared:
            await asyncio.sleep(settling)
        await database.write(lambda c: _finish(c, settings, new))
        old = put_in_place(settings, new)
        is_scrubbed = await database.scrub()
    tell(f"The new key is in force; {count} KeyFiles were encrypted under it.")
    if settings.broker_key or settings.broker_key_next:
        tell(
            "Set SCBROKER_BROKER_KEY to the new key at every broker, and remove SCBROKER_BROKER_KEY_NEXT."
        )
    if not is_scrubbed:
        tell(
            "The write-ahead log still has KeyFiles under the old key: the running broker clears it."
        )
    if old is not None:
        tell(
            f"Copy {KEY} to where you keep the key. The old key is in {old}: move it there as well."
        )
    tell(
        "Keep the old key as long as you keep backups from before the rotation, but not beside them."
    )


def _new_key(settings: Settings, keys: Keys, tell: Tell, *, is_shared: bool) -> bytes | None:
    """Return the new key; None if the operator must act first, or if nothing remains to be done."""
    is_setting = bool(settings.broker_key or settings.broker_key_next)
    if is_setting and not settings.broker_key_next:
        raise InvalidArgumentError(
            "The broker's key is a setting: set SCBROKER_BROKER_KEY_NEXT to 64 new hexadecimal digits at "
            "every broker, restart each, and run this command with the same settings."
        )
    path = settings.directory / NEXT_KEY
    new = bytes.fromhex(settings.broker_key_next) if is_setting else read_key(path)
    if new == keys.active and is_setting:
        tell(
            "The new key is in force: set SCBROKER_BROKER_KEY to it at every broker, and remove "
            "SCBROKER_BROKER_KEY_NEXT."
        )
    elif new == keys.active:  # the rotation was interrupted before its last step
        put_in_place(settings, keys.active)
        tell(f"The new key is in force, and in {settings.directory / KEY}.")
    elif new is None:
        new = create_key(path)
        if not is_shared:
            return new
        tell(
            f"{path} has the new key, which is not in force yet. Copy it beside {KEY} of every other "
            "broker of this database, and run this command again."
        )
    else:
        return new
    return None


def _announce(connection: Connection, settings: Settings, new: bytes) -> None:
    """Write the hash of the new key, unless another command has; wait for transactions with the old key."""
    _lock_keys(connection)
    keys = find_keys(connection, settings)
    if keys.next is not None or keys.active == new:
        return
    connection.execute(sql.ADD_CHECK, {"name": NEXT_CHECK, "value": hash_of_key(new)})
    if not keys.is_rotated:
        value = Keys(keys.active, new, keys.first, is_rotated=True).seal(FIRST_KEY, b"", keys.first)
        connection.execute(sql.ADD_CHECK, {"name": FIRST_KEY, "value": value})
    audit.record(connection, keys.active, "broker-key-rotation-started", "broker")


async def _reseal(database: Database, settings: Settings, progress: Progress) -> int:
    """Seal every KeyFile and proof anew; return how many.

    A row that was stored after the announcement is under the new key already: sealing it again is harmless.
    """
    total = await database.read(lambda c: int(c.execute(key_files.COUNT_KEY_FILES).scalar_one()))
    done, last = 0, b""
    while found := await database.write(partial(_reseal_some, settings=settings, last=last)):
        done, last = done + len(found), found[-1]
        progress("KeyFiles", done, total)
    return done


def _reseal_some(connection: Connection, settings: Settings, last: bytes) -> list[bytes]:
    """Seal anew a page of KeyFiles, those of the users after `last`; return the ids of these users."""
    keys = find_keys(connection, settings)
    rows = connection.execute(key_files.KEY_FILES_AFTER, {"last": last, "count": _PAGE}).all()
    for row in rows:
        try:
            key_file, verifier = keys.reseal(row.user_id, row.key_file, row.verifier)
        except IntegrityError:
            continue  # `admin check` reports it; a damaged KeyFile must not end the rotation of the others
        values = {"new_key_file": key_file, "new_verifier": verifier}
        connection.execute(
            key_files.RESEAL_KEY_FILE, {"user": row.user_id, "old": row.key_file, **values}
        )
    return [row.user_id for row in rows]


def _lock_keys(connection: Connection) -> None:
    """Wait for transactions that seal under the current keys, and block new ones; SQLite has one writer only.

    The table is locked and not the row: PostgreSQL grants shared locks of a row again and again while another
    transaction waits for it, so a user who stores KeyFiles all the time could prevent a rotation.
    """
    if connection.dialect.name == "postgresql":
        connection.run("LOCK TABLE checks IN EXCLUSIVE MODE")


def _finish(connection: Connection, settings: Settings, new: bytes) -> None:
    """Put the new key into force, unless another command has done so.

    Another command may even have started a further rotation. If its key were put into force before all
    KeyFiles are sealed under that key, the other KeyFiles could never be opened again.
    """
    _lock_keys(connection)
    keys = find_keys(connection, settings)
    if keys.next != new:
        return
    first = keys.seal(FIRST_KEY, b"", keys.first)
    connection.execute(sql.SET_CHECK, {"check": FIRST_KEY, "value": first})
    connection.execute(sql.SET_CHECK, {"check": KEY_CHECK, "value": hash_of_key(keys.next)})
    connection.execute(sql.DROP_CHECK, {"check": NEXT_CHECK})
    audit.reseal_key(connection, keys.active, keys.next)
    audit.record(connection, keys.next, "broker-key-rotated", "broker")
