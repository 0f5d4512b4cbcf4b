"""systemd understands the units of deploy/systemd, and they leave a broker little that it could do."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS: Final = ("scbroker.service", "scbroker-backup.service", "scbroker-backup.timer")
# systemd's score from 0 (nothing is possible) to 100; a service without restrictions has 96.
EXPOSURE: Final = {"scbroker.service": 10, "scbroker-backup.service": 10}

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is missing: apt-get install systemd",
)


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_understands_every_line_of_a_unit(unit: str, tmp_path: Path) -> None:
    for name in UNITS:
        text = (FOLDER / name).read_text("utf-8").replace("/opt/scbroker/bin/scbroker", "/bin/true")
        (tmp_path / name).write_text(text)
    done = analyze("verify", "--man=no", "--recursive-errors=no", tmp_path / unit)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("unit, threshold", EXPOSURE.items())
def test_a_service_is_exposed_no_more_than_it_must_be(unit: str, threshold: int) -> None:
    done = analyze("security", "--offline=yes", f"--threshold={threshold}", FOLDER / unit)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "given, run",
    [
        (["serve", "--check"], ["serve", "--check"]),
        (["api-keys", "create", "a b"], ["admin", "api-keys", "create", "a b"]),
        ([], ["admin"]),
    ],
)
def test_the_operators_script_runs_a_command_of_admin_or_a_check_of_the_start(
    tmp_path: Path, given: list[str], run: list[str]
) -> None:
    stub = tmp_path / "systemd-run"
    stub.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    stub.chmod(0o755)
    done = subprocess.run(
        [FOLDER / "scbroker-admin", *given], capture_output=True, text=True, check=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    _, _, passed = done.stdout.partition("\0scbroker-admin\0")
    assert passed.split("\0")[:-1] == run


def test_the_settings_of_the_service_are_settings_of_a_broker(tmp_path: Path) -> None:
    from scbroker.server.settings import load_settings

    config = str(FOLDER / "broker.toml")
    found = load_settings({"SCBROKER_CONFIG": config, "SCBROKER_DATA_DIR": str(tmp_path)})
    assert found.origins == ["https://broker.example:443"]
    names = re.findall(r"SCBROKER_\w+", (FOLDER / "scbroker.service").read_text("utf-8"))
    assert names == ["SCBROKER_CONFIG", "SCBROKER_DATA_DIR"]
