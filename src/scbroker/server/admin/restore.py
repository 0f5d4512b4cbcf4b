"""Put a backup into an empty data folder.

Everything is copied to a folder inside the data folder and verified there; then it is moved into place, the
database last. A broker refuses to start in a data folder where a crash left that inner folder.
"""

import shutil
from pathlib import Path
from typing import Final

from scbroker.errors import InvalidArgumentError
from scbroker.server.admin.backup import KEY, Manifest, copy_objects, hash_of, sync_folders
from scbroker.server.admin.findings import Progress, Tell
from scbroker.server.admin.stores import DATABASE, OBJECTS, embedded_paths
from scbroker.server.settings import Settings
from scbroker.server.storage.blobs import sync

UNFINISHED: Final = "restoring"


def restore(
    settings: Settings, source: Path, tell: Tell, progress: Progress, *, damaged: bool
) -> None:
    """Copy, verify and move a backup into the data folder, which may contain only the broker's key.

    If anything is damaged or missing, nothing is restored. `damaged` accepts damaged or missing objects;
    each of them is reported.
    """
    directory = settings.directory
    is_new = not directory.exists()
    _check_empty(settings)
    manifest = Manifest.read(source)
    new = directory / UNFINISHED
    new.mkdir(parents=True, mode=0o700)
    try:
        _copy(source, new, manifest, tell, progress, damaged)
    except BaseException:
        shutil.rmtree(directory if is_new else new)
        raise
    _move(new, directory)
    tell(f"Restored the state of {manifest.created_at} to {directory}.")
    if not (directory / KEY).exists() and not settings.broker_key:
        tell(f"Put the broker's key there as {KEY} before you start it.")


def _check_empty(settings: Settings) -> None:
    directory = settings.directory
    home = directory.resolve()
    if embedded_paths(settings) != (home / DATABASE, home / OBJECTS):
        raise InvalidArgumentError(
            f"A restore needs the database and the objects at {DATABASE} and {OBJECTS} in the data folder: "
            "unset database_url and object_store_url."
        )
    found = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    if found - {KEY}:
        raise InvalidArgumentError(
            f"{directory} is not empty, and nothing was changed: move its files away, or name another "
            "folder with --data-dir."
        )


def _copy(
    source: Path, new: Path, manifest: Manifest, tell: Tell, progress: Progress, damaged: bool
) -> None:
    """Copy a backup, and raise `InvalidArgumentError` if the copy is not what the backup was."""
    for name, expected in ((DATABASE, manifest.database), (KEY, manifest.key)):
        if expected is None:
            continue
        if (source / name).is_file():
            shutil.copyfile(source / name, new / name)
            (new / name).chmod(0o600)
            sync(new / name)
        if not (new / name).is_file() or hash_of(new / name) != expected:
            raise InvalidArgumentError(
                f"{source / name} is missing or damaged: take another backup."
            )
    copied = copy_objects(new, source / OBJECTS, tell, progress)
    if copied.damaged and not damaged:
        raise InvalidArgumentError(
            f"{copied.damaged} objects of this backup are damaged or missing, and nothing was restored: take "
            "another backup, or --damaged to restore without them."
        )
    sync_folders(new)


def _move(new: Path, directory: Path) -> None:
    """Move everything into place; without a database, which comes last, no broker exists here."""
    for name in (OBJECTS, KEY, DATABASE):
        if (new / name).exists() and not (directory / name).exists():
            (new / name).rename(directory / name)
            sync(directory)
    shutil.rmtree(new)
    sync(directory)
