"""The steps of a mirror when the file system fails, or something comes into their way."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from scbroker import errors
from tests.cli.mirror.worlds import World, failing_at


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A mirror that has an update, an exchange of names, a deletion, a new file and one in the way to do."""
    (tmp_path / "folder").mkdir()
    made = World(tmp_path / "folder")
    ids = {name: made.make(name, name.encode()) for name in ("a", "b", "c", "d/e", "gone")}
    made.sync()
    made.change(ids["a"], content=b"new a")
    made.change(ids["b"], name="c")
    made.change(ids["c"], name="b", content=b"new c")
    made.change(ids["d/e"], name="f/g")
    del made.containers[ids["gone"]]
    (made.path / "mine").write_bytes(b"mine")
    made.make("mine", b"theirs")
    made.make("h/i", b"i")
    return made


EXPECTED = {
    "a": b"new a", "b": b"new c", "c": b"b", "f/g": b"d/e", "h/i": b"i",
    "mine": b"mine", "mine (version 1)": b"theirs",
}  # fmt: skip


def restarted(world: World) -> None:
    world.sync()
    assert world.files() == EXPECTED
    assert world.sync(dry=True) == []
    for id in world.containers:  # the mirror still knows which files it wrote
        world.change(id, content=b"newest")
    world.sync()
    newest = {name: b"newest" for name in EXPECTED if not name.startswith("mine")}
    assert world.files() == newest | {"mine": b"mine", "mine (version 2)": b"newest"}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_a_failure_of_any_operation_is_an_error_and_repaired_by_the_next_run(
    kind: int, world: World
) -> None:
    for number in range(1, 60):
        with contextlib.suppress(errors.BrokerError), failing_at(number, OSError(kind, "failed")):
            world.sync()
        assert world.files()["mine"] == b"mine"
    restarted(world)


def test_a_file_that_comes_into_the_way_at_the_last_moment_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def planted(source: object, name: str, **options: object) -> None:
        if str(name) in ("g", "i"):
            path = world.path / ("f/g" if name == "g" else "h/i")
            path.write_bytes(b"planted")
        link(source, name, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", planted)
    with contextlib.suppress(errors.BrokerError):
        world.sync()
    monkeypatch.undo()
    world.sync()
    files = world.files()
    assert files["f/g"] == files["h/i"] == b"planted"
    assert files["f/g (version 2)"] == b"d/e"
    assert files["h/i (version 1)"] == b"i"


@pytest.mark.parametrize(
    "part", ["n" * 200, "\u00e9" * 100, '"' * 200], ids=["ascii", "two bytes", "quotes"]
)
def test_names_of_the_greatest_length_do_not_damage_the_record(part: str, tmp_path: Path) -> None:
    """Their files get longer paths: with a part of the id, with the version, or with both."""
    world = World(tmp_path)
    name = "/".join([part] * 5 + ["n" * 19])
    assert len(name.encode()) == 1024
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_bytes(b"mine")
    for content in (b"1", b"2"):
        world.make(name, content)
    world.sync()
    assert sorted(world.files().values()) == [b"1", b"2", b"mine"]
    assert sorted(map(len, world.record().values())) == [1, 1]
    assert not world.sync()
    world.containers.clear()
    world.sync()
    assert world.files() == {name: b"mine"}
