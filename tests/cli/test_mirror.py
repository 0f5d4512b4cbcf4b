"""The command `mirror`, by a person's process, against a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scbroker import ServerProvider
from tests.kit.people import Person


@pytest.fixture
def engine() -> str:
    """SQLite: the command knows nothing of it."""
    return "sqlite"


@pytest.fixture
def alice(person: Callable[[str], Person]) -> Person:
    return person("Alice")


@pytest.fixture
def device(alice: Person) -> Any:
    """Another device of Alice's, which changes her containers."""
    with alice.device() as provider:
        yield provider


def create(device: ServerProvider, name: str, content: bytes, **more: Any) -> Any:
    return device.createContainer(content, {"name": name}, **more).result(30).id


def tree(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, without the mirror's own."""
    return {
        str(each.relative_to(folder)): each.read_bytes()
        for each in sorted(folder.rglob("*"))
        if each.is_file() and ".scbroker-mirror" not in each.parts
    }


def lines(output: str) -> list[Any]:
    return [json.loads(line) for line in output.splitlines()]


def test_once_makes_the_folder_that_of_the_containers(alice: Person, device: ServerProvider) -> None:
    plan = create(device, "work/plan.txt", b"plan")
    create(device, "big.bin", b"b" * 3_000_000)
    create(device, "empty", b"")
    device.createContainer(b"no name", {"title": "x"}).result(30)
    done = alice.run("mirror", "folder", "--once")
    folder = alice.home / "folder"
    assert tree(folder) == {"big.bin": b"b" * 3_000_000, "empty": b"", "work/plan.txt": b"plan"}
    assert sorted(done.lines) == ["added big.bin", "added empty", "added work/plan.txt"]
    assert alice.run("mirror", "folder", "--once").lines == []
    device.updateContainerContent(plan, b"plan 2").result(30)
    assert alice.run("mirror", "folder", "--once").lines == ["updated work/plan.txt"]
    device.updateContainerHeader(plan, {"name": "plan.txt"}).result(30)
    assert alice.run("mirror", "folder", "--once").lines == ["renamed work/plan.txt to plan.txt"]
    assert not (folder / "work").exists()
    device.deleteContainer(plan).result(30)
    (removed,) = lines(alice.run("mirror", "folder", "--once", "--json").output)
    assert removed == {
        "action": "removed", "path": "plan.txt", "id": str(plan), "version": None,
        "oldPath": None, "reason": None,
    }  # fmt: skip
    assert set(tree(folder)) == {"big.bin", "empty"}
