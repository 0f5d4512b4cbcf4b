"""The guide to one machine, walked on a booted copy of this machine.

systemd-nspawn boots the files of this machine below an overlay, which is thrown away at the end, and without
a network. So the commands of the page run as they stand, with three differences: the packages of Debian are
those of this machine, pip takes the packages from a folder, and Caddy signs its certificate itself.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.deploy.test_image import download
from tests.kit.waiting import PATIENCE, wait_until

ROOT: Final = Path(__file__).parents[2]
GUIDE: Final = ROOT / "docs" / "guide" / "deploy-one-machine.md"
PROGRAMS: Final = ("systemd-nspawn", "unshare", "nsenter", "caddy")
SOURCE: Final = "/srv/source"
WHEELS: Final = "/srv/wheels"
# In a mount namespace of its own: the kernel removes the overlay with the last process of the machine.
_BOOT: Final = """
mount -t tmpfs tmpfs "$1"
mkdir "$1/changes" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" "$1/root"
machine="$1/root"
shift
exec systemd-nspawn --directory="$machine" "$@"
"""
_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.long


def commands() -> list[str]:
    """The commands of the page that root runs, without those that install Debian's packages."""
    lines = [
        line for block in _BLOCK.findall(GUIDE.read_text("utf-8")) for line in block.splitlines()
    ]
    found = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
    return [each for each in found if not each.startswith("apt-get ")]


class Machine:
    """A booted copy of this machine; `folder` has what it mounts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.log = folder / "log"

    def __enter__(self) -> "Machine":
        binds = {self._folder / "source": SOURCE, self._folder / "wheels": WHEELS}
        hosts = self._folder / "hosts"
        hosts.write_text("127.0.0.1 localhost broker.example\n")
        (self._folder / "machine").mkdir()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-ec", _BOOT, "boot", self._folder / "machine",
                 "--quiet", "--boot", "--register=no", "--keep-unit", "--private-network",
                 "--link-journal=no", "--console=pipe", f"--machine=scbroker-{os.getpid()}",
                 *(f"--bind={here}:{there}" for here, there in binds.items()),
                 f"--bind-ro={hosts}:/etc/hosts"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            wait_until(self._is_up)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _is_up(self) -> bool:
        assert self._process.poll() is None, self.log.read_text(errors="replace")
        return self.run("systemctl is-system-running", check=False).strip() in (
            "running",
            "degraded",
        )

    def run(self, command: str, *, check: bool = True, **variables: str) -> str:
        """Run a command of root; return what it wrote to standard output."""
        with suppress(IndexError, psutil.NoSuchProcess):
            leader = psutil.Process(self._process.pid).children()[0].pid
            environment = {
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "LANG": "C.UTF-8", "HOME": "/root", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS,
                **variables,
            }  # fmt: skip
            done = subprocess.run(
                ["nsenter", f"--target={leader}", "--all", "--", "/bin/sh", "-c", f"cd {SOURCE}; {command}"],
                env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0 or not check, f"{command}\n{done.stdout}\n{done.stderr}"
            return done.stdout
        return ""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip("apt-get install --no-install-recommends systemd-container caddy")
    if os.geteuid() != 0:
        pytest.skip("only root boots a copy of a machine")
    source, wheels = tmp_path / "source", tmp_path / "wheels"
    for name in ("src", "deploy"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("requirements.txt", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    caddyfile = source / "deploy/proxy/Caddyfile"
    text = caddyfile.read_text("utf-8")
    assert text.count("\n{\n") == 1
    caddyfile.write_text(text.replace("\n{\n", "\n{\n\tlocal_certs\n"))
    download(wheels)
    with Machine(tmp_path) as booted:
        yield booted


def test_the_commands_of_the_guide_lead_to_a_broker_with_tls_and_a_backup(machine: Machine) -> None:
    machine.run("systemctl stop nginx.service", check=False)  # a fresh machine has none
    # Each command runs in a shell of its own: the variable that the page exports is given to each.
    printed = {command: machine.run(command, DOMAIN="broker.example") for command in commands()}
    (api_key,) = [out.strip() for command, out in printed.items() if "api-keys create" in command]
    assert re.fullmatch(r"[0-9a-f-]{36}", api_key)
    assert api_key not in machine.run("journalctl --no-pager")
    program = re.search(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert program
    authority = "/var/lib/caddy/.local/share/caddy/pki/authorities/local/root.crt"
    told = machine.run(
        f"/opt/scbroker/bin/python - <<'END'\n{program[1]}\nEND",
        SCBROKER_SERVER_URL="https://broker.example", SCBROKER_API_KEY=api_key,
        SCBROKER_APPLICATION_NAME="guide", SSL_CERT_FILE=authority, XDG_STATE_HOME="/root/state",
    )  # fmt: skip
    assert told == "b'It works'\n"
    assert "manifest.json" in machine.run("ls /var/backups/scbroker/*")
    assert "nothing is wrong" in machine.run("scbroker-admin check")
    # The restrictions of the unit are in force: the kernel reports them for the process.
    status = machine.run("cat /proc/$(systemctl show --property MainPID --value scbroker)/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"
    assert int(fields["CapBnd"], 16) == int(fields["CapEff"], 16) == 0
    machine.run("systemctl restart scbroker.service")
    assert machine.run("systemctl is-active scbroker.service caddy.service") == "active\nactive\n"
