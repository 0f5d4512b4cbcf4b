"""The image of deploy/docker, built and run by buildah and podman.

Docker's own base image cannot be fetched where the tests run. So the base is made here, of the same packages
of the same Debian.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from scbroker import MemoryTrustStore, ServerProvider
from tests.kit.engines import free_port
from tests.kit.waiting import PATIENCE, wait_until

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = ("buildah", "podman", "crun", "mmdebstrap")
MOST_BYTES: Final = 220_000_000
_PIN: Final = re.compile(
    r"^(\S+==\S+)((?: ;.*?)?) \\\n((?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE
)


def pins(file: str) -> dict[str, set[str]]:
    """The packages of a list with their hashes."""
    text = (ROOT / file).read_text("utf-8")
    return {found[1]: set(found[3].split()) - {"\\"} for found in _PIN.finditer(text)}


def test_what_a_broker_is_installed_from_has_every_package_of_the_extra() -> None:
    """If this fails, run `make lock`: the image and the guide to one machine install nothing else."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {*project["dependencies"], *project["optional-dependencies"]["server"]}
    names = {re.split(r"[^a-z0-9-]", each, maxsplit=1)[0] for each in needed}
    assert names <= {pin.partition("==")[0] for pin in pins("requirements.txt")}


def test_the_image_has_the_packages_that_the_tests_run_with() -> None:
    everything = pins("requirements-dev.txt")
    found = pins("requirements.txt")
    assert len(found) > 40
    assert {name: everything.get(name) for name in found} == found
    assert all(everything.values()), "each has hashes"


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
def store() -> Iterator[list[str]]:
    """The image in a store of the test's own, as options of podman."""
    if reason := _why_not():
        pytest.skip(reason)
    with TemporaryDirectory(prefix="image-") as name:  # podman bounds the length of its paths
        yield from built(Path(name))


def built(folder: Path) -> Iterator[list[str]]:
    wheels, config = folder / "wheels", folder / "pip.conf"
    config.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    download(wheels)
    options = ["--storage-driver=vfs", f"--root={folder}/root", f"--runroot={folder}/run"]
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    run("mmdebstrap", "--variant=minbase", "bookworm", folder / "base.tar", sources)
    run("podman", *options, "import", folder / "base.tar", "localhost/base")
    run(
        "buildah", *options, "build", "--isolation=chroot", "--format=docker", "--network=host",
        "--pull-never", "--build-arg=BASE=localhost/base", f"--secret=id=pip.conf,src={config}",
        f"--volume={wheels}:/wheels:ro", "--volume=/etc/apt:/etc/apt:ro", "--tag=scbroker",
        "--file=deploy/docker/Dockerfile", ROOT,
    )  # fmt: skip
    yield options
    run("podman", *options, "rmi", "--all", "--force")


@pytest.mark.long
def test_the_image_serves_a_user_as_another_user_on_a_read_only_file_system(
    store: list[str],
) -> None:
    inspected = json.loads(podman(*store, "inspect", "scbroker"))[0]
    assert inspected["Size"] < MOST_BYTES
    assert inspected["Config"]["User"] == "65532:65532"
    port, api_key = free_port(), uuid.uuid4()
    url = f"http://127.0.0.1:{port}"
    restricted = [
        "--read-only",
        "--tmpfs=/tmp",
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
    ]
    machine = [
        "--network=host",
        "--cgroups=disabled",
        "--cgroupns=host",
        "--volume=scbroker-test:/data",
        "--ulimit=nofile=4096:4096",  # podman would raise both limits, which needs a right of its own
        "--ulimit=nproc=4096:4096",
    ]
    name = f"scbroker-{port}"
    podman(
        *store, "run", "--detach", f"--name={name}", *restricted, *machine,
        f"--env=SCBROKER_API_KEY={api_key}", "scbroker", "serve", f"--port={port}",
    )  # fmt: skip
    try:
        wait_until(lambda: _is_ready(url))
        trust = MemoryTrustStore()
        with ServerProvider(api_key, url, "tests", trustStore=trust) as provider:
            provider.register("A password 1", "A passphrase 1").result(PATIENCE)
            made = provider.createContainer(bytes(1_000_000)).result(PATIENCE)
            assert provider.getContainerContent(made.id).result(PATIENCE) == bytes(1_000_000)
        checked = podman(*store, "exec", name, "scbroker", "admin", "check")
        assert "nothing is wrong" in checked
        status = podman(
            *store, "exec", name, "python3", "-c", "print(open('/proc/1/status').read())"
        )
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split()[0] == "65532"
        assert int(fields["CapBnd"], 16) == 0
        podman(*store, "stop", name)
        state = json.loads(podman(*store, "inspect", name))[0]["State"]
        assert state["ExitCode"] == 0
    finally:
        podman(*store, "rm", "--force", "--volumes", name)


@pytest.mark.long
def test_the_image_has_no_shell_and_no_package_manager(store: list[str]) -> None:
    container = run("buildah", *store, "from", "--pull-never", "scbroker").strip()
    root = Path(run("buildah", *store, "mount", container).strip())
    try:
        found = {
            path.name
            for folder in ("bin", "sbin", "usr/bin", "usr/sbin")
            for path in (root / folder).glob("*")
        }
        assert "python3" in found
        assert (
            found & {"sh", "bash", "dash", "apt", "apt-get", "dpkg", "perl", "su", "mount", "pip"}
            == set()
        )
        assert not [
            path for path in root.rglob("*") if path.is_file() and path.stat().st_mode & 0o6000
        ]
    finally:
        run("buildah", *store, "rm", container)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health/ready") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def download(wheels: Path) -> None:
    """Fetch the packages of the image, by the package index of this machine."""
    options = ["--requirement=requirements.txt"]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
    ]
    run(*pip, *options, f"--dest={wheels}")


def podman(*arguments: str | Path) -> str:
    """Run podman where it sees control groups of version 2 alone: crun refuses both versions at once."""
    alone = 'umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; exec podman "$@"'
    return run("unshare", "--mount", "sh", "-c", alone, "podman", *arguments)


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
