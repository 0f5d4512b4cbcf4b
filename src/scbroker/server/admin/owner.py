"""Which database an object store belongs to, so that nobody sweeps it by another.

The database has a number of its own, made at random, and so has an object of the store. It is no secret.
Whatever removes by looking at both compares the two; a broker that starts writes what is not there yet, if
the store shows that it is this database's.
"""

from __future__ import annotations

import os
import re
from typing import Final

from sqlalchemy import Connection

from scbroker.errors import InvalidArgumentError
from scbroker.server.admin import statements as own
from scbroker.server.storage import statements as sql
from scbroker.server.storage.blobs import OWNER, Blobs, Stored
from scbroker.server.storage.database import Database

_CHECK: Final = "objects"
_SIZE: Final = 32
_LINE: Final = re.compile(rb"([0-9a-f]{64})\s*")
_LOOKED_AT: Final = 100
_CHUNKS_FROM: Final = {"part": b"", "number": -1, "count": _LOOKED_AT}
_NAMED: Final = (
    f"The object store belongs to another database (its object {OWNER} says so): name both as the broker "
    "does that serves them. Two brokers need two stores, or prefixes of one."
)
_FULL: Final = (
    "The object store has objects, and none that this database names: name another store, or the "
    "database that these objects are of."
)
_NOT_YET: Final = (
    "The object store does not say which database it belongs to: start the broker of this version once, "
    "while the store answers."
)


async def bind(database: Database, blobs: Blobs) -> None:
    """Makes an object store this database's; `InvalidArgumentError` if it is, or may be, another's."""
    # The object first: whoever wrote it had written the row.
    found = await _owner(blobs)
    known = await database.read(known_owner)
    if found is not None and found == known:
        return
    if found is not None:
        # The database may have been put back to a time before it had its number.
        if known is not None or not await _has_objects_of(database, blobs):
            raise InvalidArgumentError(_NAMED)
        await database.write(lambda connection: _keep(connection, found))
        return
    number = await database.write(lambda connection: _keep(connection, os.urandom(_SIZE)))
    await _check_free(database, blobs, number)
    await blobs.put(OWNER, text_of(number))


async def check_bound(database: Database, blobs: Blobs) -> None:
    """Raises `InvalidArgumentError` unless the two belong together."""
    found = await _owner(blobs)
    known = await database.read(known_owner)
    if found is None:
        raise InvalidArgumentError(_NOT_YET)
    if found != known:
        raise InvalidArgumentError(_NAMED)


def known_owner(connection: Connection) -> bytes | None:
    """The database's number, if it has one."""
    row = sql.one(connection, sql.FIND_CHECK, check=_CHECK)
    return None if row is None else bytes(row.value)


def text_of(number: bytes) -> bytes:
    """The number as the object has it."""
    return number.hex().encode() + b"\n"


async def unnamed(database: Database, page: list[Stored]) -> list[Stored]:
    """Those of some listed objects that no row names. The rows are read after the listing."""

    def read(connection: Connection) -> set[str]:
        some = sorted({stored.part_id for stored in page})
        names = [stored.name for stored in page]
        named = connection.execute(own.BLOBS_OF_PARTS, {"some": some}).scalars()
        doomed = connection.execute(own.DOOMED_OF, {"names": names}).scalars()
        return {*named, *doomed}

    if not page:
        return []
    known = await database.read(read, large=True)
    return [stored for stored in page if stored.name not in known]


async def _owner(blobs: Blobs) -> bytes | None:
    octets = await blobs.whole(OWNER)
    if octets is None:
        return None
    found = _LINE.fullmatch(bytes(octets))
    if found is None:
        raise InvalidArgumentError(f"The object {OWNER} of the object store is damaged.")
    return bytes.fromhex(found[1].decode())


def _keep(connection: Connection, number: bytes) -> bytes:
    """The number that the database has from now on."""
    known = known_owner(connection)
    if known is None:
        connection.execute(sql.ADD_CHECK, {"name": _CHECK, "value": number})
    return known or number


async def _check_free(database: Database, blobs: Blobs, number: bytes) -> None:
    """Raises unless a store that belongs to nobody is empty as the database is, or has its objects."""
    if await _has_objects_of(database, blobs):
        return
    if await database.read(lambda c: c.execute(own.CHUNKS_AFTER, _CHUNKS_FROM).first()):
        raise InvalidArgumentError(
            "The object store has none of the objects that the database names: name the right one. If they "
            f"are lost, put an object {OWNER} there with the line {number.hex()}, and start again."
        )
    async for page in blobs.pages():
        if await unnamed(database, page):
            raise InvalidArgumentError(_FULL)


async def _has_objects_of(database: Database, blobs: Blobs) -> bool:
    """Whether one of the objects is there that the database names: their names were made at random."""
    rows = await database.read(lambda c: c.execute(own.CHUNKS_AFTER, _CHUNKS_FROM).all())
    for row in rows:
        if await blobs.size(row.blob) is not None:
            return True
    return False
