"""The command `mirror`: processes of a person, against a real broker."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scbroker import AccessLevel, Contacts, ServerProvider
from tests.kit.people import Person
from tests.kit.processes import command
from tests.kit.waiting import PATIENCE


@pytest.fixture
def device(alice: Person) -> Iterator[ServerProvider]:
    """Another device of Alice's, which changes her containers."""
    with alice.device() as provider:
        yield provider


@pytest.fixture
def bob(person: Callable[[str], Person]) -> Iterator[ServerProvider]:
    """Somebody who shares containers with Alice."""
    with person("Bob").device() as provider:
        yield provider


def create(device: ServerProvider, name: object, content: bytes | None, **more: Any) -> uuid.UUID:
    created = device.createContainer(content, {"name": name}, **more).result(PATIENCE)
    return uuid.UUID(str(created.id))


def tree(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, without the mirror's own."""
    return {
        str(each.relative_to(folder)): each.read_bytes()
        for each in sorted(folder.rglob("*"))
        if each.is_file() and ".scbroker-mirror" not in each.parts
    }


class Running:
    """A mirror that runs until it is ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def line(self) -> Any:
        """Return the next line of JSON that it prints."""
        return json.loads(self._lines.get(timeout=PATIENCE))

    def expect(self, action: str, path: str) -> Any:
        line = self.line()
        assert (line["action"], line["path"]) == (action, path)
        return line

    def end(self, number: int) -> tuple[int, str]:
        """End it by a signal; return its status and what it wrote to standard error."""
        self.process.send_signal(number)
        assert self.process.stderr is not None
        error = self.process.stderr.read()
        return self.process.wait(PATIENCE), error


@contextlib.contextmanager
def running(alice: Person, *arguments: str) -> Iterator[Running]:
    process = subprocess.Popen(
        command("mirror", *arguments, "--json"),
        env=alice.environment, cwd=alice.home, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            yield Running(process)
        finally:
            process.kill()


@pytest.mark.long
def test_once_makes_the_folder_that_of_the_containers(
    alice: Person, device: ServerProvider
) -> None:
    plan = create(device, "work/plan.txt", b"plan")
    create(device, "big.bin", b"b" * 3_000_000)
    create(device, "empty", b"")
    create(device, "no content", None)
    device.createContainer(b"no name", {"title": "x"}).result(PATIENCE)
    device.createContainer(b"no header").result(PATIENCE)
    done = alice.run("mirror", "folder", "--once")
    folder = alice.home / "folder"
    assert tree(folder) == {"big.bin": b"b" * 3_000_000, "empty": b"", "work/plan.txt": b"plan"}
    assert sorted(done.lines) == ["added big.bin", "added empty", "added work/plan.txt"]
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / "empty").stat().st_mode & 0o077 == 0
    assert alice.run("mirror", "folder", "--once").lines == []
    device.updateContainerContent(plan, b"plan 2").result(PATIENCE)
    assert alice.run("mirror", "folder", "--once").lines == ["updated work/plan.txt"]
    device.updateContainerHeader(plan, {"name": "plan.txt"}).result(PATIENCE)
    assert alice.run("mirror", "folder", "--once").lines == ["renamed work/plan.txt to plan.txt"]
    assert not (folder / "work").exists()
    device.deleteContainer(plan).result(PATIENCE)
    (line,) = alice.run("mirror", "folder", "--once", "--json").lines
    assert json.loads(line) == {
        "action": "removed", "path": "plan.txt", "id": str(plan), "version": None,
        "oldPath": None, "reason": None,
    }  # fmt: skip
    assert set(tree(folder)) == {"big.bin", "empty"}


@pytest.mark.long
def test_changes_appear_as_they_happen_and_ctrl_c_ends_the_mirror(
    alice: Person, device: ServerProvider
) -> None:
    first = create(device, "first", b"1")
    with running(alice, "folder") as mirror:
        mirror.expect("added", "first")
        second = create(device, "second", b"2" * 100_000)
        mirror.expect("added", "second")
        device.updateContainerContent(first, b"one").result(PATIENCE)
        assert mirror.expect("updated", "first")["version"] == 2
        device.updateContainerHeader(first, {"name": "d/first"}).result(PATIENCE)
        assert mirror.expect("renamed", "d/first")["oldPath"] == "first"
        device.deleteContainer(second).result(PATIENCE)
        mirror.expect("removed", "second")
        assert tree(alice.home / "folder") == {"d/first": b"one"}
        refused = alice.run("mirror", "folder", "--once", status=1)
        assert "Another `scbroker mirror`" in refused.error
        status, error = mirror.end(signal.SIGINT)
    assert status == 130
    assert "Traceback" not in error
    assert alice.run("mirror", "folder", "--once").lines == []


@pytest.mark.long
def test_a_name_and_a_type_select_and_another_selection_is_refused(
    alice: Person, device: ServerProvider
) -> None:
    create(device, "photos/a.jpg", b"a", type="photo")
    create(device, "photos/b.txt", b"b")
    create(device, "photo", b"c")
    alice.run("mirror", "below", "photos/", "--once")
    assert tree(alice.home / "below") == {"a.jpg": b"a", "b.txt": b"b"}
    alice.run("mirror", "typed", "--type", "photo", "--once")
    assert tree(alice.home / "typed") == {"photos/a.jpg": b"a"}
    refused = alice.run("mirror", "below", "--once", status=2)
    assert "mirrors other containers (all below 'photos/'" in refused.error
    assert "end with a slash" in alice.run("mirror", "below", "photos", status=2).error
    assert tree(alice.home / "below") == {"a.jpg": b"a", "b.txt": b"b"}


@pytest.mark.long
def test_lost_access_and_deletion_remove_files_unless_told_to_keep_them(
    alice: Person, device: ServerProvider, bob: ServerProvider
) -> None:
    Contacts(device).add(bob.getContactCard("Bob").result(PATIENCE)).result(PATIENCE)
    own = create(device, "own", b"own")
    theirs = bob.createContainer(
        b"theirs", {"name": "theirs"},
        [AccessLevel(alice.ring.userId), AccessLevel(bob.getUserId().result(PATIENCE), 511)],
    ).result(PATIENCE)  # fmt: skip
    for folder in ("plain", "kept"):
        alice.run("mirror", folder, "--once")
    device.deleteContainer(own).result(PATIENCE)
    bob.revokeAccess([theirs.id], [alice.ring.userId]).result(PATIENCE)
    assert sorted(alice.run("mirror", "plain", "--once").lines) == ["removed own", "removed theirs"]
    kept = sorted(alice.run("mirror", "kept", "--once", "--keep").lines)
    assert kept == [f"kept {name}: its container is gone" for name in ("own", "theirs")]
    assert tree(alice.home / "kept") == {"own": b"own", "theirs": b"theirs"}


def test_a_wrong_folder_is_an_error_that_says_why(alice: Person) -> None:
    (alice.home / "file").touch()
    (alice.home / "planted").mkdir()
    (alice.home / "planted/.scbroker-mirror").symlink_to(alice.home)
    assert "not a folder" in alice.run("mirror", "file", "--once", status=2).error
    assert "does not exist" in alice.run("mirror", "no/folder", "--once", status=3).error
    refused = alice.run("mirror", "planted", "--once", status=2)
    assert "links are not followed" in refused.error
