"""Copy a running embedded broker to a folder, with every object that the copied database names; restore it.

The order makes the copy consistent:

1. The backup takes the lock that every removal of objects takes, so removals wait until it ends.
2. `VACUUM INTO` copies the database as of one moment and holds up no writer. A row in the copy names an
   object that was synced before the row was committed, and that was not removed before step 1: objects are
   removed only after a transaction that removed their rows.
3. The objects that the copy names are copied. An object never changes under its name, so a hard link is as
   good. Unreferenced objects are left out: clients repeat their uploads.

The folder:

    manifest.json           written and synced last: without it a folder is not a backup
    broker.sqlite           the database, as of one moment
    objects/<id>/parts/…    every object that a row of it names
    broker.key              if asked for

The manifest has the hash of the database, which has the hashes of each object. This detects damage. It does
not protect against somebody who can write to the folder.

A restore copies everything to a folder inside the data folder and verifies it there; then it is moved into
place, the database last. A broker refuses to start in a data folder where a crash left that inner folder.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import hashlib
import os
import re
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from sqlalchemy import func, select, text

from scbroker.errors import InvalidArgumentError
from scbroker.server.admin import stores
from scbroker.server.admin.check import CHUNKS_AFTER, Progress, Tell, chunk_name, object_problem
from scbroker.server.admin.stores import DATABASE, OBJECTS, Stores
from scbroker.server.admin.users import paged
from scbroker.server.keys import KEY, KEY_CHECK, NEXT_CHECK, hash_of_key, write_synced
from scbroker.server.settings import Settings
from scbroker.server.storage import audit
from scbroker.server.storage import statements as sql
from scbroker.server.storage.blobs import Folder, is_name_of, sync
from scbroker.server.storage.driver import Connection, Row, SqliteConnection
from scbroker.server.storage.tables import chunks
from scbroker.wire.parts import MAX_CHUNK

_MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1
_DATED: Final = "%Y-%m-%dT%H%M%SZ"
_DATED_NAME: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{6}Z")
_LONGEST_MANIFEST: Final = 65_536
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    created_at: str
    database: Sha256
    key: Sha256 | None
    objects: int
    bytes: int
    format: int = _FORMAT


async def backup(
    settings: Settings,
    folder: Path,
    tell: Tell,
    progress: Progress,
    *,
    keep: int | None,
    link: bool,
    with_key: bool,
) -> bool:
    """Make a backup in a new or empty folder; return whether every object was there and undamaged.

    With `keep` the backup is in a new folder in this one, named by the time, and the oldest of more than
    `keep` are removed, unless anything was missing or damaged. With `link` objects become hard links, and
    only their sizes are checked.
    """
    target = folder / datetime.datetime.now(datetime.UTC).strftime(_DATED) if keep else folder
    right = await _backup(settings, target, tell, progress, link=link, with_key=with_key)
    if keep and right:
        _prune(folder, target, keep, tell)
    elif keep:
        tell("No older backup was removed, because this one is damaged.")
    return right


async def _backup(
    settings: Settings, target: Path, tell: Tell, progress: Progress, *, link: bool, with_key: bool
) -> bool:
    _, objects_folder = stores.embedded_paths(settings)
    key = settings.directory / KEY
    if with_key and not key.is_file():
        raise InvalidArgumentError(
            "--with-key needs a broker.key in the data folder: the key is set elsewhere, back it up there."
        )
    _make_empty(target)
    async with stores.open_stores(settings) as (database, _):
        with Folder(objects_folder / await database.read(stores.object_prefix)).keeping():
            values = {"path": str(target / DATABASE)}
            await database.query(lambda c: c.execute(text("VACUUM INTO :path"), values))
            _check_key(target, key.read_bytes() if with_key else None)
            count, size, damaged = _copy_objects(target, objects_folder, tell, progress, link)
        details = {"objects": count, "bytes": size, "withKey": with_key}
        try:
            await Stores(settings, database).act(
                lambda c, key: audit.record(c, key, "backup-made", "broker", details)
            )
        except InvalidArgumentError as error:  # this command has not the broker's key
            tell(f"This backup is not in the audit log. {error}")
    if with_key:
        write_synced(target / KEY, key.read_bytes())
    (target / DATABASE).chmod(0o600)
    sync(target / DATABASE)
    _sync_folders(target)
    manifest = Manifest(
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        database=_hash_of(target / DATABASE),
        key=_hash_of(target / KEY) if with_key else None,
        objects=count,
        bytes=size,
    )
    octets = msgspec.json.format(msgspec.json.encode(manifest)) + b"\n"
    write_synced(target / _MANIFEST, octets)
    sync(target)
    tell(f"Copied the database, {count} objects ({size} bytes): {target}")
    tell(f"The broker's key is {'in it.' if with_key else 'not in it: keep it apart.'}")
    return not damaged


def _prune(folder: Path, newest: Path, keep: int, tell: Tell) -> None:
    """Remove the oldest finished backups beyond `keep`, and unfinished ones that are older than a day."""
    made = sorted(
        each
        for each in folder.iterdir()
        if _DATED_NAME.fullmatch(each.name) and each.is_dir() and not each.is_symlink()
        if each <= newest
    )
    finished = [each for each in made if (each / _MANIFEST).is_file()]
    day_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    cut_off = [
        each for each in made if each not in finished and each.name < day_ago.strftime(_DATED)
    ]
    for old in [*finished[:-keep], *cut_off]:
        (old / _MANIFEST).unlink(missing_ok=True)  # first: a half-removed folder is not a backup
        shutil.rmtree(old)
        tell(f"Removed {old}.")


def _check_key(target: Path, key: bytes | None) -> None:
    """Raise if a key rotation was under way when the database was copied, or if `key` is not its key."""
    names = [KEY_CHECK, NEXT_CHECK]
    with _opened(target) as connection:
        rows = connection.execute(sql.FIND_CHECKS, {"names": names}).all()
    checks = {row.name: bytes(row.value) for row in rows}
    is_right = key is None or hash_of_key(key) == checks[KEY_CHECK]
    if NEXT_CHECK in checks or not is_right:
        (target / DATABASE).unlink()
        raise InvalidArgumentError(
            "The broker's key is being rotated, and no backup was made: complete that with `scbroker admin "
            "rotate-broker-key`, and then back up again."
        )


def _make_empty(target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        empty = not any(target.iterdir())
    except OSError as error:
        raise InvalidArgumentError(f"{target} cannot be used: {error.strerror}.") from None
    if not empty:
        raise InvalidArgumentError(f"{target} is not empty: name a new or empty folder.")


def restore(
    settings: Settings, source: Path, tell: Tell, progress: Progress, *, damaged: bool
) -> None:
    """Copy, verify and move a backup into the data folder, which may contain only the broker's key.

    If anything is damaged or missing, nothing is restored. `damaged` accepts damaged or missing objects;
    each of them is reported.
    """
    directory = settings.directory
    is_new = not directory.exists()
    home = directory.resolve()
    if stores.embedded_paths(settings) != (home / DATABASE, home / OBJECTS):
        raise InvalidArgumentError(
            f"A restore needs the database and the objects at {DATABASE} and {OBJECTS} in the data folder: "
            "unset database_url and object_store_url."
        )
    if directory.is_dir() and {path.name for path in directory.iterdir()} - {KEY}:
        raise InvalidArgumentError(
            f"{directory} is not empty, and nothing was changed: move its files away, or name another "
            "folder with --data-dir."
        )
    manifest = _read_manifest(source)
    new = directory / stores.RESTORING
    new.mkdir(parents=True, mode=0o700)
    try:
        for name, expected in ((DATABASE, manifest.database), (KEY, manifest.key)):
            if expected is None:
                continue
            if (source / name).is_file() and not (source / name).is_symlink():
                shutil.copyfile(source / name, new / name)
                (new / name).chmod(0o600)
                sync(new / name)
            if not (new / name).is_file() or _hash_of(new / name) != expected:
                raise InvalidArgumentError(
                    f"{source / name} is missing or damaged: take another backup."
                )
        _, _, wrong = _copy_objects(new, source / OBJECTS, tell, progress)
        if wrong and not damaged:
            raise InvalidArgumentError(
                f"{wrong} objects of this backup are damaged or missing, and nothing was restored: take "
                "another backup, or --damaged to restore without them."
            )
        stores.mark_restored(new / DATABASE, manifest.created_at)
        sync(new / DATABASE)
        _sync_folders(new)
    except BaseException:
        shutil.rmtree(directory if is_new else new)
        raise
    for name in (OBJECTS, KEY, DATABASE):  # the database last: until it is there, no broker exists
        if (new / name).exists() and not (directory / name).exists():
            (new / name).rename(directory / name)
            sync(directory)
    shutil.rmtree(new)
    sync(directory)
    tell(f"Restored the state of {manifest.created_at} to {directory}.")
    if not (directory / KEY).exists() and not settings.broker_key:
        tell(f"Put the broker's key there as {KEY} before you start it.")


def _read_manifest(folder: Path) -> Manifest:
    """Read a backup's manifest; `InvalidArgumentError` if the folder is not a backup of this format."""
    path = folder / _MANIFEST
    try:
        found = msgspec.json.decode(_read(path, _LONGEST_MANIFEST), type=Manifest)
    except FileNotFoundError:
        raise InvalidArgumentError(
            f"{folder} is not a finished backup: {_MANIFEST} is missing."
        ) from None
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error}") from None
    if found.format != _FORMAT:
        raise InvalidArgumentError(
            f"{folder} was made by a later version: restore it with that version."
        )
    return found


def _copy_objects(
    target: Path, source: Path, tell: Tell, progress: Progress, link: bool = False
) -> tuple[int, int, int]:
    """Copy the objects that the database in the folder `target` names from `source`, and verify them.

    A damaged object is reported and copied all the same. Returns how many objects were copied, their bytes,
    and how many are damaged or missing.
    """
    count = octets = damaged = 0
    with _opened(target) as connection:
        total = connection.execute(select(func.count()).select_from(chunks)).scalar_one()
        prefix = stores.object_prefix(connection)
        (target / OBJECTS / prefix).mkdir(parents=True, mode=0o700)
        rows = paged(connection, CHUNKS_AFTER, part_id=b"", chunk=-1)
        for number, row in enumerate(rows, start=1):
            name, size = Path(prefix, str(row.blob)), None
            # Somebody may have edited the backup: no name in it may make this command read or write
            # elsewhere.
            if not is_name_of(str(row.blob), bytes(row.part_id)):
                problem: str | None = "its object has a name that no broker gives."
            elif (source / name).resolve() != source.resolve() / name:
                problem = "its object is behind a symbolic link."
            else:
                size, problem = _copy(source / name, target / OBJECTS / name, row, link)
            if size is not None:
                count, octets = count + 1, octets + size
            if problem is not None:
                damaged += 1
                tell(f"{chunk_name(row)}: {problem}")
            progress("objects", number, total)
    return count, octets, damaged


def _copy(source: Path, target: Path, row: Row, link: bool) -> tuple[int | None, str | None]:
    """Copy an object; return its size (None if missing) and its damage in words (None if whole)."""
    try:
        if link:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.link(source, target)
            size = target.stat().st_size
            return size, object_problem(row, size)
        octets = memoryview(_read(source, MAX_CHUNK))
    except FileNotFoundError:
        return None, object_problem(row, None)
    except OSError as error:
        if link:
            raise
        # One unreadable object must not end a restore that accepts damaged ones.
        return None, f"its object cannot be read ({error.strerror})."
    write_synced(target, octets)
    return len(octets), object_problem(row, octets)


def _read(path: Path, most: int) -> bytes:
    """Return a file's bytes; raise OSError if a link, a pipe or too large a file is in its place."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(path, flags | getattr(os, "O_BINARY", 0)), "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if state.st_size > most:
            raise OSError(errno.EFBIG, "it is too large")
        return file.read(most)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[Connection]:
    """Open the database of a backup to read it."""
    # `immutable` keeps SQLite from making files beside the copied database.
    url = f"{(folder / DATABASE).absolute().as_uri()}?mode=ro&immutable=1"
    with contextlib.closing(sqlite3.connect(url, uri=True)) as driver:
        yield SqliteConnection(driver)


def _hash_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folders(root: Path) -> None:
    """Fsync a folder and all folders in it, so that the names of their files survive a power cut."""
    for folder, _, _ in os.walk(root):
        sync(Path(folder))
