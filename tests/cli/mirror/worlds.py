"""A real folder, its mirror's record, and containers that exist in memory alone."""

from __future__ import annotations

import datetime as dt
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final
from unittest import mock

from scbroker import errors
from scbroker.cli.files import Folder, write_own
from scbroker.cli.mirror.mirroring import Applying, Change
from scbroker.cli.mirror.plan import Action, Fetch, Forget, Move, Remote, Remove, plan
from scbroker.cli.mirror.state import Selection, State
from scbroker.desk.paths import relative_path

SELECTION: Final = Selection(
    user=uuid.UUID(int=1), broker="http://localhost", name="", type=None, everyone=False
)
_OPERATIONS: Final = (
    "fsync", "ftruncate", "link", "mkdir", "rename", "replace", "rmdir", "unlink", "utime", "write",
)  # fmt: skip
"""The functions of `os` that change something."""


class KilledError(BaseException):
    """The process ended here."""


@dataclass
class Made:
    """A container: its name, its content, and when it was created."""

    name: str
    content: bytes
    created: int
    version: int = 1
    is_own: bool = True


@dataclass
class World:
    """A folder at `path`, with the containers that it should have."""

    path: Path
    containers: dict[uuid.UUID, Made] = field(default_factory=dict)
    failed: set[uuid.UUID] = field(default_factory=set)
    told: list[Change] = field(default_factory=list)
    keep: bool = False

    def make(self, name: str, content: bytes, **more: Any) -> uuid.UUID:
        id = uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {content!r} {len(self.containers)}")
        self.containers[id] = Made(name, content, len(self.containers), **more)
        return id

    def change(self, id: uuid.UUID, **fields: Any) -> None:
        for key, value in fields.items():
            setattr(self.containers[id], key, value)
        self.containers[id].version += 1

    def remotes(self) -> dict[uuid.UUID, Remote]:
        return {
            id: Remote(
                id,
                relative_path(made.name),
                made.version,
                len(made.content),
                made.is_own,
                dt.datetime.fromtimestamp(made.created, dt.UTC),
                dt.datetime.fromtimestamp(1e9 + made.created, dt.UTC),
            )
            for id, made in self.containers.items()
            if id not in self.failed
        }

    def sync(self, *, dry: bool = False, exact: bool = False) -> list[Action]:
        """Compare everything once, as `scbroker mirror --once` does; return the steps."""
        self.told.clear()
        with Folder(self.path) as folder, State(self.path, SELECTION) as state:
            applying = Applying(folder, state, self.told.append, exact=exact)
            files = dict(state.files)
            steps = plan(
                self.remotes(), self.failed, files, applying.look, keep=self.keep, exact=exact
            )
            if dry:
                return steps
            fetches, failures = [], list[errors.BrokerError]()
            for step in steps:
                match step:
                    case Forget():
                        applying.forget(step)
                    case Remove():
                        applying.remove(step)
                    case Move():
                        try:
                            applying.move(step)
                        except errors.BrokerError as error:
                            failures.append(error)
                    case Fetch():
                        source = state.incoming / step.remote.id.hex
                        write_own(source, self.containers[step.remote.id].content)
                        fetches.append((step, source, step.remote.version))
            failures += [error for _, error in applying.place(fetches)]
            if failures:
                raise failures[0]
        return steps

    def record(self) -> dict[uuid.UUID, list[PurePosixPath]]:
        """Return the recorded paths of each container."""
        found: dict[uuid.UUID, list[PurePosixPath]] = {}
        with State(self.path, SELECTION) as state:
            for path, stamps in state.files.items():
                found.setdefault(stamps[-1].container, []).append(path)
        return found

    def files(self) -> dict[str, bytes]:
        """Return the files in the folder, without the mirror's own."""
        return {
            str(each.relative_to(self.path)): each.read_bytes()
            for each in sorted(self.path.rglob("*"))
            if each.is_file() and ".scbroker-mirror" not in each.parts
        }

    def lines(self) -> list[str]:
        return [f"{each.action} {each.path}" for each in self.told]


@contextmanager
def killed_at(number: int) -> Iterator[None]:
    """End the process, as it seems, before its n-th change of the file system."""
    with _before(number, KilledError()):
        yield


@contextmanager
def failing_at(number: int, error: OSError) -> Iterator[None]:
    """Let the n-th change of the file system fail."""
    with _before(number, error):
        yield


@contextmanager
def _before(number: int, error: BaseException) -> Iterator[None]:
    left = [number]

    def wrapped(function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 or (left[0] < 0 and isinstance(error, KilledError)):
                raise error
            return function(*arguments, **options)

        return call

    with mock.patch.multiple(os, **{each: wrapped(getattr(os, each)) for each in _OPERATIONS}):
        yield


__all__ = ["SELECTION", "KilledError", "Made", "World", "errors", "failing_at", "killed_at"]
