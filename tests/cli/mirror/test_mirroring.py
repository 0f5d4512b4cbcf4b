"""How a mirror follows the broker: in this process, with a real session of a real broker."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scbroker import AccessLevel, Group, MemoryTrustStore, NewContainer, ServerProvider, errors
from scbroker.cli.command import Run
from scbroker.cli.files import Folder
from scbroker.cli.mirror import mirroring
from scbroker.cli.mirror.mirroring import Mirror
from scbroker.cli.mirror.state import Selection, State
from scbroker.cli.output import Output
from scbroker.client import arguments
from tests.kit.people import Person, befriend, with_access
from tests.kit.waiting import PATIENCE


@pytest.fixture
def mirror(
    person: Callable[[str], Person], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mirror]:
    """A mirror of Alice's in `tmp_path / "folder"`."""
    alice = person("Alice")
    monkeypatch.setenv("HOME", str(alice.home))
    for name in ("XDG_CONFIG_HOME", "SCBROKER_SERVER_URL", "SCBROKER_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "folder").mkdir()
    selection = Selection(
        user=alice.ring.userId, broker=alice.broker.url, name="", type=None, everyone=False
    )
    with (
        Run(None, Output(as_json=False, quiet=False)) as run,
        Folder(tmp_path / "folder") as folder,
        State(folder.path, selection) as state,
    ):
        yield Mirror(run, folder, state, selection, keep=False)


def files(tmp_path: Path) -> dict[str, bytes]:
    return {
        each.name: each.read_bytes() for each in (tmp_path / "folder").iterdir() if each.is_file()
    }


def create(mirror: Mirror, name: str, content: bytes = b"") -> uuid.UUID:
    created = mirror._session.createContainer(content, {"name": name}).result(PATIENCE)
    return uuid.UUID(str(created.id))


def test_names_that_differ_in_case_are_two_files_where_the_folder_has_both(
    mirror: Mirror, tmp_path: Path
) -> None:
    names = {name: name.encode() for name in ("Readme", "README", "readme")}
    for name, content in names.items():
        create(mirror, name, content)
    mirror.compare()
    assert files(tmp_path) == names


@pytest.mark.sampled
@pytest.mark.parametrize(
    "error", [errors.EventsExpiredError("gone"), errors.UnreachableError("away")]
)
def test_everything_is_compared_again_after_a_gap_in_the_events_and_after_an_outage(
    error: errors.BrokerError, mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = []

    def ended(_: object) -> None:
        times.append(files(tmp_path))
        create(mirror, f"number {len(times)}")
        if len(times) == 3:
            raise KeyboardInterrupt
        raise error

    monkeypatch.setattr(mirror, "_apply_events", ended)
    monkeypatch.setattr(mirroring, "_FIRST_PAUSE", 0.01)
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(KeyboardInterrupt):
        mirror.follow()
    assert [len(each) for each in times] == [0, 1, 2]
    assert pauses == [0.01, 0.01]


def test_an_error_that_ends_the_events_ends_the_mirror(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = mirror.compare

    def then_log_out() -> None:
        compare()
        mirror._session.logout().result(PATIENCE)

    monkeypatch.setattr(mirror, "compare", then_log_out)
    with pytest.raises(errors.NotAuthenticatedError):
        mirror.follow()


def test_a_container_that_is_deleted_while_it_is_downloaded_is_no_failure(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = create(mirror, "small"), create(mirror, "large", b"x" * 100_000)
    fetch = mirror._fetch

    def delete_first(fetches: Any) -> None:
        for each in (small, large):
            mirror._session.deleteContainer(each).result(PATIENCE)
        fetch(fetches)

    monkeypatch.setattr(mirror, "_fetch", delete_first)
    mirror.compare()
    assert files(tmp_path) == {}
    assert mirror.status == 0


def test_a_content_that_is_larger_than_the_disk_fails_alone(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others choose its size: a full disk would keep all other files from coming."""
    create(mirror, "large", bytes(100_000))
    create(mirror, "small", b"1")
    usage = shutil.disk_usage(tmp_path)._replace(free=99_999)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: usage)
        mirror.compare()
    assert (files(tmp_path), mirror.status) == ({"small": b"1"}, 1)
    mirror.compare()
    assert files(tmp_path).keys() == {"large", "small"}


def test_a_full_disk_ends_a_comparison(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        create(mirror, name, b"1")
    tried = []

    def full(*_: Any, **__: Any) -> None:
        tried.append(1)
        raise errors.DiskFullError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "place", full)
        with pytest.raises(errors.DiskFullError):
            mirror.compare()
    assert files(tmp_path) == {}
    mirror.compare()
    assert files(tmp_path) == {"a": b"1", "b": b"1", "c": b"1"}


def group_of(bob: Person, mirror: Mirror) -> Group:
    """A group of Bob's that is offered to the user of the mirror."""
    with bob.session() as session:
        made: Group = session.createGroup("Team", mirror._selection.user).result(PATIENCE)
    return made


def put_for(bob: Person, group: Group, name: str) -> None:
    with bob.session() as session:
        levels = [AccessLevel(bob.ring.userId, 511), AccessLevel(group, 511)]
        session.createContainer(b"Bob's", {"name": name}, levels).result(PATIENCE)


@pytest.mark.long
def test_the_files_of_a_group_come_once_it_is_accepted_and_go_with_the_membership(
    mirror: Mirror, bob: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group is offered, accepted on another device, written to, and ended, as the mirror follows."""
    befriend(mirror._session, bob, "Bob")
    monkeypatch.setattr(mirroring, "_READ_GROUPS", 0.1)
    refresh, compare, times = mirror._refresh, mirror.compare, list[list[str]]()

    def went_on() -> None:
        times.append(sorted(files(tmp_path)))
        with bob.session() as session:
            if len(times) == 1:
                put_for(bob, group_of(bob, mirror), "first")  # offered: nothing comes
                session.getEvents().result(PATIENCE)
                with ServerProvider(
                    bob.broker.api_key, bob.broker.url, "device", trustStore=MemoryTrustStore()
                ) as device:
                    ring = mirror._session.getKeyRing().result(PATIENCE)
                    device.logIn(ring, ring.userId).result(PATIENCE)
                    [offered] = device.getGroups().result(PATIENCE)
                    assert isinstance(offered, Group)
                    device.acceptGroup(offered).result(PATIENCE)
            elif len(times) == 2:
                [group] = session.getGroups().result(PATIENCE)
                assert isinstance(group, Group)
                put_for(bob, group, "second")
            elif len(times) == 3:
                [group] = session.getGroups().result(PATIENCE)
                assert isinstance(group, Group)
                session.removeGroupMembers(group, mirror._selection.user).result(PATIENCE)
            else:
                raise KeyboardInterrupt

    def compared() -> None:
        compare()
        went_on()

    def refreshed(ids: set[uuid.UUID]) -> None:
        refresh(ids)
        went_on()

    monkeypatch.setattr(mirror, "compare", compared)
    monkeypatch.setattr(mirror, "_refresh", refreshed)
    with pytest.raises(KeyboardInterrupt):
        mirror.follow()
    assert times == [[], ["first"], ["first", "second"], []]


def test_containers_that_strangers_have_damaged_are_asked_for_together(
    mirror: Mirror, person: Callable[[str], Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    with person("Mallory").session() as hers, monkeypatch.context() as patched:
        for check in ("_check_strict", "_check_comes_back"):  # of her program
            patched.setattr(arguments, check, lambda *_: None)
        levels = with_access(hers, mirror._selection.user)
        spoilt = SimpleNamespace(model_dump_json=lambda: "{not JSON")
        hers.createContainers([NewContainer(b"", spoilt, levels)] * 3).result(PATIENCE)
    asked, real = list[int](), mirror._session.getContainers

    def counted(_: object, ids: list[uuid.UUID], **options: Any) -> Any:
        asked.append(len(ids))
        return real(ids, **options)

    monkeypatch.setattr(ServerProvider, "getContainers", counted)
    mirror.compare()
    assert (len(mirror._left_out), asked, mirror.status) == (3, [3], 0)
