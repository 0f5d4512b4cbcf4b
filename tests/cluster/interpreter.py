"""A Python with Patroni in it, for a user who may not be able to enter the folder of ours.

Where the tests run as root, PostgreSQL and hence Patroni run as `nobody`, and neither the virtual
environment nor the Python that it was made from need be in reach: then both are copied.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.ground import Ground
from tests.engines import give

_PACKAGES: Final = ("patroni", "python-etcd", "psycopg", "psycopg-binary")
"""Patroni, and of what it takes as extras: etcd's client and PostgreSQL's."""
_NEEDLESS: Final = ("site-packages", "test", "tests", "idlelib", "config-*")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python, and what it needs in its environment to find everything."""

    program: Path
    environment: dict[str, str]


def interpreter(ground: Ground) -> Interpreter:
    """A Python that imports Patroni where the processes of this ground run."""
    importlib.metadata.version("patroni")  # `PackageNotFoundError` where it is not installed
    ours = Interpreter(Path(sys.executable), {"PYTHONDONTWRITEBYTECODE": "1"})
    try:
        ground.run(ours.program, "-c", "import patroni", environment=ours.environment)
    except PermissionError:
        return _copied(ground)
    return ours


def _copied(ground: Ground) -> Interpreter:
    home = ground.new_folder("python")
    stdlib = Path(sysconfig.get_path("stdlib"))
    needless = shutil.ignore_patterns(*_NEEDLESS)
    shutil.copytree(stdlib, home / "lib" / stdlib.name, ignore=needless)
    for library in Path(sys.base_prefix, "lib").glob("libpython*.so*"):
        shutil.copy(library, home / "lib")
    program = home / "bin" / stdlib.name
    program.parent.mkdir()
    shutil.copy(Path(sys._base_executable).resolve(), program)  # type: ignore[attr-defined] # of venv's own
    for name in _with_requirements(_PACKAGES):
        _copy_package(name, home / "packages")
    for folder in home.rglob("__pycache__"):
        give(folder, ground.identity)  # what is not compiled yet, is once
    return Interpreter(
        program,
        {
            "LD_LIBRARY_PATH": str(home / "lib"),
            "PYTHONHOME": str(home),
            "PYTHONPATH": str(home / "packages"),
        },
    )


def _with_requirements(names: Iterable[str]) -> set[str]:
    """These packages and what they need, without extras and what is for other systems."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        with suppress(importlib.metadata.PackageNotFoundError):
            lines = importlib.metadata.requires(name) or ()
            needed = [re.split(r"[^\w.-]", line)[0] for line in lines if "extra ==" not in line]
            waiting += [each for each in needed if each not in found]
            found.add(name)
    return found


def _copy_package(name: str, target: Path) -> None:
    for file in importlib.metadata.files(name) or ():
        if file.parts[0] != "..":
            copy = target / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file.locate(), copy)
