"""A backup put back into an empty data folder, once all of it was verified.

What is copied lies in a folder beside its place until all is there and synced; then it is moved, the
database last. A broker refuses to start in a folder where that was cut off.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from scbroker.errors import InvalidArgumentError
from scbroker.server.admin import manifest as m
from scbroker.server.admin import statements as own
from scbroker.server.admin.check import octets_problem
from scbroker.server.admin.findings import named
from scbroker.server.admin.opened import Place, Progress, Tell
from scbroker.server.admin.owner import known_owner, text_of
from scbroker.server.storage.blobs import OWNER, sync

UNFINISHED: Final = "restoring"


def restore(place: Place, source: Path, tell: Tell, progress: Progress, *, damaged: bool) -> None:
    """Verifies a backup, then puts it into the data folder, which has nothing but the broker's key.

    With `damaged` also one of which objects are missing or damaged; each of those is told.
    """
    _check_empty(place)
    found = m.Manifest.read(source)
    wrong = _verify(source, found, tell, progress)
    if wrong and not damaged:
        raise InvalidArgumentError(
            f"{wrong} objects of this backup are damaged or missing, and nothing was restored: take "
            "another backup, or --damaged for what is left of this one."
        )
    new = place.settings.directory / UNFINISHED
    new.mkdir(parents=True, mode=0o700)
    _copy(source, new, found, progress)
    _move(new, place.settings.directory)
    tell(f"Restored the state of {found.created_at} to {place.settings.directory}.")
    if not (place.settings.directory / m.KEY).exists() and not place.settings.broker_key:
        tell(f"Put the broker's key there as {m.KEY} before you start it.")


def _check_empty(place: Place) -> None:
    directory = place.settings.directory
    if place.file.parent != directory.resolve() or place.objects.parent != directory.resolve():
        raise InvalidArgumentError("Database and objects have to be in the data folder.")
    there = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    if there - {m.KEY}:
        raise InvalidArgumentError(
            f"{directory} is not empty, and nothing was changed: move away what is there, or name another "
            "folder with --data-dir."
        )


def _verify(source: Path, found: m.Manifest, tell: Tell, progress: Progress) -> int:
    """How many objects are not as the database names them; raises if the database is not right."""
    for name, expected in ((m.DATABASE, found.database), (m.KEY, found.key)):
        if expected is None:
            continue
        path = source / name
        if not path.is_file() or m.hash_of(path) != expected:
            raise InvalidArgumentError(f"{path} is missing or damaged: take another backup.")
    wrong = 0
    with m.snapshot(source / m.DATABASE) as connection:
        total = connection.execute(own.COUNTS["chunks"]).scalar_one()
        for seen, row in enumerate(m.chunks_of(connection), start=1):
            path = source / m.OBJECTS / row.blob
            octets = memoryview(path.read_bytes()) if path.is_file() else None
            problem = octets_problem(octets, row)
            if problem is not None:
                wrong += 1
                tell(f"{named('content', row.part_id)}: chunk {row.chunk}: {problem}")
            progress("verified", seen, total)
    return wrong


def _copy(source: Path, new: Path, found: m.Manifest, progress: Progress) -> None:
    (new / m.OBJECTS).mkdir(mode=0o700)
    with m.snapshot(source / m.DATABASE) as connection:
        total = connection.execute(own.COUNTS["chunks"]).scalar_one()
        for seen, row in enumerate(m.chunks_of(connection), start=1):
            path = source / m.OBJECTS / row.blob
            if path.is_file():
                m.store(new / m.OBJECTS / row.blob, path.read_bytes())
            progress("restored", seen, total)
        number = known_owner(connection)
    if number is not None:
        m.store(new / m.OBJECTS / OWNER, text_of(number))
    if found.key is not None:
        m.copy(source / m.KEY, new / m.KEY)
    m.copy(source / m.DATABASE, new / m.DATABASE)
    m.sync_folders(new)


def _move(new: Path, directory: Path) -> None:
    """The database last: without it there is no broker here."""
    for name in (m.OBJECTS, m.KEY, m.DATABASE):
        if (new / name).exists() and not (directory / name).exists():
            (new / name).rename(directory / name)
            sync(directory)
    shutil.rmtree(new)
    sync(directory)
