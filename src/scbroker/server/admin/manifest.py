"""A backup as it lies in its folder: the database, the objects that it names, and what says it is whole.

    manifest.json      written last: without it a folder is no backup
    broker.sqlite      the database, as of one moment
    objects/parts/…    every object that a row of it names
    broker.key         where it was asked for

The manifest names the database's hash; the database names those of each object's segments. It is against
damage, and no protection from whoever can write there.
"""

from __future__ import annotations

import contextlib
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
from scbroker.server.storage.blobs import sync

MANIFEST: Final = "manifest.json"
DATABASE: Final = "broker.sqlite"
OBJECTS: Final = "objects"
KEY: Final = "broker.key"
_FORMAT: Final = 1
_AT_ONCE: Final = 500
_PIECE: Final = 1_048_576
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    created_at: str
    database: Sha256
    key: Sha256 | None
    objects: int
    bytes: int
    format: int = _FORMAT

    def write(self, folder: Path) -> None:
        path = folder / MANIFEST
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")
        sync(path, folder)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """`InvalidArgumentError` where the folder is no backup of a format that is known."""
        try:
            found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=cls)
        except FileNotFoundError:
            raise InvalidArgumentError(
                f"{folder} is no backup, or one that was not finished: it has no {MANIFEST}."
            ) from None
        except (OSError, msgspec.MsgspecError) as error:
            raise InvalidArgumentError(f"{folder / MANIFEST} cannot be read: {error}") from None
        if found.format != _FORMAT:
            raise InvalidArgumentError(f"{folder} was made by a later version: restore it by that.")
        return found


def hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def snapshot(path: Path) -> Iterator[Connection]:
    """The database of a backup, which nobody writes to, and neither does this."""
    url = f"sqlite:///file:{path}?mode=ro&immutable=1&uri=true"
    engine = sqlalchemy.create_engine(url, hide_parameters=True)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def chunks_of(connection: Connection) -> Iterator[Row[Any]]:
    """All rows of chunks, a page of them in memory."""
    last = {"part": b"", "number": -1}
    while rows := connection.execute(own.CHUNKS_AFTER, {**last, "count": _AT_ONCE}).all():
        yield from rows
        last = {"part": rows[-1].part_id, "number": rows[-1].chunk}


def store(path: Path, octets: bytes | memoryview) -> None:
    """A new file with these bytes, synced. Its folder is not."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(octets)
        file.flush()
        os.fsync(file.fileno())


def copy(source: Path, target: Path) -> None:
    """A new file with the bytes of another, however many; synced."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file, source.open("rb") as octets:
        while piece := octets.read(_PIECE):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def sync_folders(root: Path) -> None:
    """The folder and all folders in it."""
    for folder, _, _ in os.walk(root):
        sync(Path(folder))
