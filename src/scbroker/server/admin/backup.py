"""Copy a running embedded broker to a folder, with every object that the copied database names.

The order makes the copy whole:

1. Removal of objects is locked out: each removal takes the same lock, and waits.
2. `VACUUM INTO` copies the database as of one moment and holds up no writer. A row in the copy names an
   object that was synced before the row was committed, and that was not removed before step 1: objects are
   removed only after a transaction that removed their rows.
3. The objects that the copy names are copied. An object never changes under its name, so a hard link is
   as good. Unreferenced objects are left out: their uploads are repeated.

The folder:

    manifest.json           written and synced last: without it a folder is not a backup
    broker.sqlite           the database, as of one moment
    objects/<id>/parts/…    every object that a row of it names
    broker.key              if asked for

The manifest has the hash of the database, which has the hashes of each object. This detects damage. It does
not protect against somebody who can write to the folder.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import sqlalchemy
from msgspec import Meta
from sqlalchemy import Connection, Row

from scbroker.errors import InvalidArgumentError
from scbroker.server.admin import statements as own
from scbroker.server.admin.check import chunk_name, octets_problem, size_problem
from scbroker.server.admin.findings import Progress, Tell
from scbroker.server.admin.stores import (
    DATABASE,
    OBJECTS,
    embedded_paths,
    object_prefix,
    open_stores,
)
from scbroker.server.settings import Settings
from scbroker.server.storage.blobs import Folder, sync

MANIFEST: Final = "manifest.json"
KEY: Final = "broker.key"
_FORMAT: Final = 1
_PAGE: Final = 500
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    created_at: str
    database: Sha256
    key: Sha256 | None
    objects: int
    bytes: int
    format: int = _FORMAT

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read a backup's manifest; `InvalidArgumentError` if the folder is not a backup of this format."""
        try:
            found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=cls)
        except FileNotFoundError:
            raise InvalidArgumentError(
                f"{folder} is not a finished backup: {MANIFEST} is missing."
            ) from None
        except (OSError, msgspec.MsgspecError) as error:
            raise InvalidArgumentError(f"{folder / MANIFEST} cannot be read: {error}") from None
        if found.format != _FORMAT:
            raise InvalidArgumentError(
                f"{folder} was made by a later version: restore it with that version."
            )
        return found


async def backup(
    settings: Settings, target: Path, tell: Tell, progress: Progress, *, link: bool, with_key: bool
) -> bool:
    """Make a backup in a new or empty folder; return whether every object was there and undamaged.

    With `link` objects become hard links, and only their sizes are checked.
    """
    _, objects_folder = embedded_paths(settings)
    key = settings.directory / KEY
    if with_key and not key.is_file():
        raise InvalidArgumentError(
            "--with-key needs a broker.key in the data folder: the key is set elsewhere, back it up there."
        )
    _make_empty(target)
    async with open_stores(settings) as (database, _):
        with Folder(objects_folder / await database.read(object_prefix)).keeping():
            values = {"path": str(target / DATABASE)}
            await database.query(lambda c: c.execute(own.COPY_DATABASE, values))
            copied = copy_objects(target, objects_folder, tell, progress, link=link)
    if with_key:
        store(target / KEY, key.read_bytes())
    (target / DATABASE).chmod(0o600)
    sync(target / DATABASE)
    sync_folders(target)
    manifest = Manifest(
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        database=hash_of(target / DATABASE),
        key=hash_of(target / KEY) if with_key else None,
        objects=copied.objects,
        bytes=copied.bytes,
    )
    store(target / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
    sync(target)
    tell(f"Copied the database, {copied.objects} objects ({copied.bytes} bytes): {target}")
    tell(
        f"The broker's key is {'' if with_key else 'not '}in it{'.' if with_key else ': keep it apart.'}"
    )
    return not copied.damaged


class Copied(msgspec.Struct):
    """Counts of objects that were copied, of their bytes, and of those that are damaged or missing."""

    objects: int = 0
    bytes: int = 0
    damaged: int = 0


def copy_objects(
    target: Path, source: Path, tell: Tell, progress: Progress, *, link: bool = False
) -> Copied:
    """Copy the objects that the database in the folder `target` names from `source`, and verify them.

    A damaged object is reported and copied all the same.
    """
    copied = Copied()
    with _snapshot(target / DATABASE) as connection:
        total = connection.execute(own.COUNTS["chunks"]).scalar_one()
        prefix = object_prefix(connection)
        (target / OBJECTS / prefix).mkdir(parents=True, mode=0o700)
        for number, row in enumerate(_chunks_of(connection), start=1):
            name = Path(prefix, row.blob)
            problem = _copy(source / name, target / OBJECTS / name, row, copied, link)
            if problem is not None:
                copied.damaged += 1
                tell(f"{chunk_name(row)}: {problem}")
            progress("objects", number, total)
    return copied


def _copy(source: Path, target: Path, row: Row[Any], copied: Copied, link: bool) -> str | None:
    """Copy an object; return what is wrong with it, or None."""
    try:
        if link:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.link(source, target)
            size = target.stat().st_size
            problem = size_problem(size, row)
        else:
            octets = memoryview(source.read_bytes())
            store(target, octets)
            size, problem = len(octets), octets_problem(octets, row)
    except FileNotFoundError:
        return size_problem(None, row)
    copied.objects += 1
    copied.bytes += size
    return problem


@contextlib.contextmanager
def _snapshot(path: Path) -> Iterator[Connection]:
    """Open a copied database; `immutable` keeps SQLite from making files beside it."""
    url = f"sqlite:///file:{path}?mode=ro&immutable=1&uri=true"
    engine = sqlalchemy.create_engine(url, hide_parameters=True)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def _chunks_of(connection: Connection) -> Iterator[Row[Any]]:
    """Yield all rows of chunks, with one page of them in memory."""
    last = {"part": b"", "number": -1}
    while rows := connection.execute(own.CHUNKS_AFTER, {**last, "count": _PAGE}).all():
        yield from rows
        last = {"part": rows[-1].part_id, "number": rows[-1].chunk}


def _make_empty(target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        empty = not any(target.iterdir())
    except OSError as error:
        raise InvalidArgumentError(f"{target} cannot be used: {error.strerror}.") from None
    if not empty:
        raise InvalidArgumentError(f"{target} is not empty: name a new or empty folder.")


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def store(path: Path, octets: bytes | memoryview) -> None:
    """Create a file with these bytes and sync it; its folder is created, but not synced."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(octets)
        file.flush()
        os.fsync(file.fileno())


def sync_folders(root: Path) -> None:
    """Sync a folder and all folders in it."""
    for folder, _, _ in os.walk(root):
        sync(Path(folder))
