"""Commands and the library where a system lacks what most have: a home directory, the working folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_streams import shell
from tests.kit.people import Person

HOMELESS = """
import os, pwd, sys
for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
    os.environ.pop(name, None)
def unknown(uid): raise KeyError(uid)
pwd.getpwuid = unknown
"""
"""Like a container that runs under a user id without an entry in /etc/passwd."""


def homeless(code: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HOMELESS + code, *arguments],
        cwd=cwd, env={}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="users of Windows have a profile folder")
def test_a_command_without_a_home_directory_says_what_to_set(tmp_path: Path) -> None:
    program = "from scbroker.cli import main; main()"
    for arguments, instead in (
        (("whoami",), "XDG_CONFIG_HOME"),
        (("serve", "--port", "0"), "SCBROKER_DATA_DIR"),
    ):
        done = homeless(program, *arguments, cwd=tmp_path)
        assert done.returncode != 0
        assert "This user has no home directory: set HOME" in done.stderr, done
        assert instead in done.stderr
        assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no folder that is in use")
def test_a_command_in_a_folder_that_was_removed_says_so_if_it_needs_it(alice: Person) -> None:
    (alice.home / "plan").write_bytes(b"x")
    line = 'mkdir gone; cd gone; rmdir ../gone; "$@" '
    done = shell(alice, f'"$@" put plan; {line} get plan')
    assert done.returncode
    assert b"working folder" in done.stderr
    assert b"Traceback" not in done.stderr
