"""What a mirror does in its folder: examples, and a model with crashes, edits and damage at any time."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import os
import shutil
import tempfile
import uuid
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from scbroker import errors
from scbroker.cli.mirror.plan import Fetch, Remote, Stamp, assign, plan
from scbroker.desk.paths import collision_key
from tests.cli.mirror.worlds import KilledError, World, killed_at

P = PurePosixPath
_NAMES = ("a", "A", "a.txt", "b", "d/a", "d", "D/b", "d/e/f", "a (version 2)", "a (version 2)/x")


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "folder").mkdir()
    return World(tmp_path / "folder")


def test_a_file_that_was_changed_here_stays_and_the_next_version_goes_beside_it(
    world: World,
) -> None:
    one = world.make("a.txt", b"1")
    world.sync()
    (world.path / "a.txt").write_bytes(b"mine")
    assert world.sync() == []
    world.change(one, content=b"2")
    world.sync()
    assert world.files() == {"a.txt": b"mine", "a (version 2).txt": b"2"}
    assert world.lines() == ["kept a.txt", "added a (version 2).txt"]
    world.change(one, content=b"3")
    world.sync()
    assert world.files() == {"a.txt": b"mine", "a (version 3).txt": b"3"}
    (world.path / "a.txt").unlink()
    world.sync()
    assert world.files() == {"a.txt": b"3"}


def test_with_checksum_a_changed_file_of_the_same_size_and_time_gets_the_content_beside_it(
    world: World,
) -> None:
    world.make("a", b"1")
    world.sync()
    status = (world.path / "a").stat()
    (world.path / "a").write_bytes(b"x")
    os.utime(world.path / "a", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert world.sync() == []
    world.sync(exact=True)
    assert world.lines() == ["kept a", "added a (version 1)"]
    assert world.files() == {"a": b"x", "a (version 1)": b"1"}
    assert world.sync(exact=True) == []


def test_files_and_links_that_were_there_before_stay_also_with_the_same_content(
    world: World, tmp_path: Path
) -> None:
    (world.path / "a").write_bytes(b"1")
    (world.path / "b").write_bytes(b"other")
    (tmp_path / "outside").write_bytes(b"3")
    (world.path / "c").symlink_to(tmp_path / "outside")
    one, two, three = world.make("a", b"1"), world.make("b", b"2"), world.make("c", b"3")
    world.sync()
    assert world.sync() == []
    for each in (one, two, three):
        world.change(each, content=b"new")
    world.sync()
    assert (tmp_path / "outside").read_bytes() == b"3"
    names = [f"{name} (version 2)" for name in "abc"]
    assert world.files() == {
        "a": b"1", "b": b"other", "c": b"3", **dict.fromkeys(names, b"new"),
    }  # fmt: skip
    world.containers.clear()
    world.sync()
    assert world.files() == {"a": b"1", "b": b"other", "c": b"3"}


def test_own_containers_come_before_those_of_others_whatever_time_these_claim(world: World) -> None:
    theirs = world.make("a", b"theirs", is_own=False)
    world.containers[theirs].created = 0
    own = world.make("a", b"own")
    world.containers[own].created = 50
    world.sync()
    assert world.files() == {"a": b"own", f"a ({theirs.hex[:8]})": b"theirs"}


def _seen(stamp: Stamp, *_: object) -> Stamp:
    return stamp


def test_the_file_of_a_history_that_was_given_up_is_replaced() -> None:
    """The accepted history can have the same version; it was written at another time."""
    id, then = uuid.UUID(int=7), dt.datetime.fromtimestamp(0, dt.UTC)
    remote = Remote(id, P("a"), 3, 5, True, then, then, changed=2)
    for changed, steps in ((2, []), (0, []), (1, [Fetch(P("a"), remote)])):
        stamp = Stamp(id, 3, 5, 1000, bytes(32), changed=changed)
        assert plan({id: remote}, (), {P("a"): (stamp,)}, partial(_seen, stamp)) == steps


@given(
    st.lists(
        st.tuples(st.sampled_from(_NAMES), st.booleans(), st.integers(0, 3), st.booleans()),
        max_size=12,
    )
)
def test_no_two_paths_collide_on_any_file_system(given: list[tuple[str, bool, int, bool]]) -> None:
    ids = [uuid.UUID(int=number << 64) for number in range(len(given))]  # all short ids are equal
    remotes = {
        id: Remote(
            id, P(name), 1, 1, own, dt.datetime.fromtimestamp(at, dt.UTC), dt.datetime.now(dt.UTC)
        )
        for id, (name, own, at, _) in zip(ids, given, strict=True)
    }
    holders = {id: {P(each[0])} for id, each in zip(ids, given, strict=True) if each[3]}
    places = assign(remotes, holders, [P("b")])
    keys = [collision_key(str(each)) for each in (*places.values(), P("b"))]
    assert len(set(keys)) == len(keys)
    folders = {collision_key(str(above)) for each in places.values() for above in each.parents}
    assert folders.isdisjoint(keys)
    backwards = dict(reversed(remotes.items()))
    assert assign(backwards, holders, [P("b")]) == places


class Mirroring(RuleBasedStateMachine):
    """Containers and files change in any order, and the mirror is killed at any point.

    No file of a person is ever changed; after a comparison the folder is that of the containers.
    """

    names = st.sampled_from(_NAMES)

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.world = World(self.folder)
        self.users: dict[str, bytes] = {}
        """The files that a person made or changed."""
        self.fresh = itertools.count()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def content(self) -> bytes:
        return b"%d" % next(self.fresh)

    @rule(name=names, is_own=st.booleans())
    def make(self, name: str, is_own: bool) -> None:
        self.world.make(name, self.content(), is_own=is_own)

    @precondition(lambda self: self.world.containers)
    @rule(data=st.data(), name=names)
    def rename(self, data: Any, name: str) -> None:
        self.world.change(self.some(data), name=name)

    @precondition(lambda self: self.world.containers)
    @rule(data=st.data())
    def update(self, data: Any) -> None:
        self.world.change(self.some(data), content=self.content())

    @precondition(lambda self: self.world.containers)
    @rule(data=st.data())
    def delete(self, data: Any) -> None:
        id = self.some(data)
        self.world.failed.discard(id)
        del self.world.containers[id]

    @precondition(lambda self: self.world.containers)
    @rule(data=st.data())
    def fail_or_heal(self, data: Any) -> None:
        self.world.failed ^= {self.some(data)}

    def some(self, data: Any) -> uuid.UUID:
        return data.draw(st.sampled_from(sorted(self.world.containers)))  # type: ignore[no-any-return]

    @rule(name=names)
    def write_here(self, name: str) -> None:
        content = self.content()
        with contextlib.suppress(OSError):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(content)
            self.users[name] = content

    @precondition(lambda self: self.world.files())
    @rule(data=st.data())
    def edit_here(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.files())))
        self.users[name] = self.content()
        (self.folder / name).write_bytes(self.users[name])

    @precondition(lambda self: self.world.files())
    @rule(data=st.data())
    def remove_here(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.files())))
        self.users.pop(name, None)
        (self.folder / name).unlink()

    @precondition(lambda self: self.world.files())
    @rule(data=st.data())
    def touch_here(self, data: Any) -> None:
        (self.folder / data.draw(st.sampled_from(sorted(self.world.files())))).touch()

    @rule()
    def lose_the_record(self) -> None:
        shutil.rmtree(self.folder / ".scbroker-mirror", ignore_errors=True)
        self.users |= self.world.files()  # from now on they are nobody's

    @rule(number=st.integers(1, 80))
    def sync_and_be_killed(self, number: int) -> None:
        with contextlib.suppress(KilledError, errors.BrokerError), killed_at(number):
            self.world.sync()
        self.check_users()

    @rule()
    def sync(self) -> None:
        self.world.sync()
        self.check_users()
        files, record = self.world.files(), self.world.record()
        recorded = {str(path) for paths in record.values() for path in paths}
        assert set(files) <= recorded | set(self.users)
        for id, made in self.world.containers.items():
            if id not in self.world.failed:
                (path,) = record.pop(id)
                assert str(path) in self.users or files[str(path)] == made.content
        assert set(record) <= self.world.failed
        assert self.world.sync(dry=True) == []

    def check_users(self) -> None:
        files = self.world.files()
        for name, content in self.users.items():
            assert files.get(name) == content


Mirroring.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)

TestMirroring = Mirroring.TestCase
