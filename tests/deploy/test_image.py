"""The image of deploy/docker, built and run by buildah and podman.

Docker's own base image cannot be fetched where the tests run. So the base is made here, of the same packages of the
same Debian.
"""

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from scbroker import MemoryTrustStore, ServerProvider
from tests.kit.engines import free_port
from tests.kit.waiting import wait_until

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = ("buildah", "podman", "crun", "mmdebstrap")
MOST_BYTES: Final = 200_000_000
_PIN: Final = re.compile(
    r"^(\S+==\S+)((?: ;.*?)?) \\\n((?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE
)
PATIENCE: Final = 60.0


def pins(file: str) -> dict[str, set[str]]:
    """The packages of a list with their hashes."""
    text = (ROOT / file).read_text("utf-8")
    return {found[1]: set(found[3].split()) - {"\\"} for found in _PIN.finditer(text)}


@pytest.mark.parametrize("file", ["requirements-server.txt", "requirements-build.txt"])
def test_the_image_has_the_packages_that_the_tests_run_with(file: str) -> None:
    everything = pins("requirements.txt")
    found = pins(file)
    assert len(found) > 4
    assert {name: everything.get(name) for name in found} == found


def test_the_build_gets_no_file_but_those_that_it_copies() -> None:
    ignored, *kept = [
        line
        for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line and not line.startswith(("#", "**"))
    ]
    assert ignored == "*"
    dockerfile = (ROOT / "deploy/docker/Dockerfile").read_text("utf-8")
    copied = [
        name
        for names in re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.MULTILINE)
        for name in names.split()
    ]
    assert sorted(kept) == sorted(f"!{name}" for name in copied)


def _why_not() -> str:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"apt-get install --no-install-recommends {' '.join(missing)}"
    return "" if os.geteuid() == 0 else "only root can make a base image here"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The options of buildah and podman for a store of the test's own, removed at the end."""
    if reason := _why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("images")
    options = ["--storage-driver=vfs", f"--root={folder}/root", f"--runroot={folder}/run"]
    yield options
    run("podman", *options, "rm", "--all", "--force")
    run("podman", *options, "rmi", "--all", "--force")


def run(*command: str | Path, check: bool = True) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
