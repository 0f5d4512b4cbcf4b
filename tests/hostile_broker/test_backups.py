"""Attacks on an operator by a backup that somebody has edited."""

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.hostile_broker.catalogue import attack
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.operators import admin
from tests.kit.waiting import PATIENCE


@pytest.fixture
def engine() -> str:
    """A backup by command is for an embedded broker."""
    return "sqlite"


def renamed(copy: Path, name: str) -> None:
    """Give the object another name in the database, and the database its hash in the manifest."""
    with closing(sqlite3.connect(copy / "broker.sqlite")) as database:
        database.execute("UPDATE chunks SET blob = ?", (name,))
        database.commit()
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["database"] = hashlib.sha256((copy / "broker.sqlite").read_bytes()).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))


def leave(copy: Path, object: Path) -> None:
    """Name an object that is written four folders above those of the objects, through a link."""
    (folder := object.parents[2] / "a").symlink_to(copy)
    target = folder / "../planted"
    target.write_bytes(object.read_bytes())
    renamed(copy, "a/../../../../planted")


def link(copy: Path, object: Path) -> None:
    """Put a link to a file of the operator's in the place of an object."""
    secret = copy.parent / "secret"
    object.rename(secret)
    object.symlink_to(secret)


def pipe(_: Path, object: Path) -> None:
    object.unlink()
    os.mkfifo(object)


def folder(_: Path, object: Path) -> None:
    object.unlink()
    object.mkdir()


def enlarge(_: Path, object: Path) -> None:
    os.truncate(object, 2**40)


@attack(161, "edited backup")
@pytest.mark.parametrize(
    "edit, said",
    [
        (leave, "a name that no broker gives"),
        (link, "behind a symbolic link"),
        (pipe, "not a regular file"),
        (folder, "cannot be read"),
        (enlarge, "too large"),
    ],
    ids=["name", "link", "pipe", "folder", "size"],
)
def test_a_restore_reads_and_writes_nothing_outside_of_backup_and_data_folder(
    broker: BrokerProcess,
    new_provider: NewProvider,
    tmp_path: Path,
    edit: Callable[[Path, Path], None],
    said: str,
) -> None:
    new_provider(True).createContainer(bytes(70_000)).result(PATIENCE)
    copy, there = tmp_path / "made" / "copy", tmp_path / "new" / "there"
    copy.parent.mkdir()
    there.parent.mkdir()
    admin(broker, "backup", copy).expect(0)
    object = min((copy / "objects").rglob("*-*"))
    edit(copy, object)
    before = {*tmp_path.rglob("*")}
    done = admin(broker, "restore", copy, at=there).expect(2)
    assert said in "".join(done.lines) + done.error
    assert {*tmp_path.rglob("*")} == before
    admin(broker, "restore", copy, "--damaged", at=there).expect(0)
    made = {*tmp_path.rglob("*")} - before
    assert all(each.is_relative_to(there) and each.name != object.name for each in made)
