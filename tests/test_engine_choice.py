"""Which tests a run takes, and that it says what it leaves out."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.waiting import PATIENCE

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]


def collected(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist"]
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=PATIENCE,
    )


def test_every_test_of_a_broker_is_taken_on_the_engine_that_was_chosen() -> None:
    """Also one that the everyday run takes on another; nothing is started for it."""
    files = ["test_large", "users/test_sessions"]
    run = collected(*(f"tests/server/{file}.py" for file in files), "--long",
                    "--engines", "cluster", "--without", "patroni,haproxy,ceph")  # fmt: skip
    found = [line for line in run.stdout.splitlines() if "::" in line]
    assert all(any(file in line for line in found) for file in files)
    assert all("[cluster" in line or "-cluster" in line for line in found)
    assert run.stdout.splitlines()[-1].endswith("without patroni, haproxy, ceph.")


def test_what_is_left_out_is_counted_in_the_last_line() -> None:
    run = collected("tests/server/storage/test_blobs.py", "tests/server/events/test_following.py",
                    "--engines", "sqlite")  # fmt: skip
    last = run.stdout.splitlines()[-1]
    assert last.startswith("Left out: ")
    assert "about other engines" in last
    assert "start no broker" in last


def test_a_test_runs_on_postgresql_where_there_is_time() -> None:
    def engines(*options: str) -> set[str]:
        lines = collected("tests/server/users/test_sessions.py", *options).stdout.splitlines()
        found = {
            line.rpartition("[")[2].rstrip("]") for line in lines if "::" in line and "[" in line
        }
        return {name for item in found for name in item.split("-")} & {"sqlite", "postgresql"}

    assert engines() == {"sqlite"}
    assert engines("--long") == {"sqlite", "postgresql"}
    assert engines("--engines", "postgresql") == {"postgresql"}


def test_what_cannot_be_had_fails_the_run_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import shutil\nshutil.which = lambda *a, **k: None\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT / 'src'}")
    run = collected("assurance/cluster", "--engines", "cluster", "--without", "ceph")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    last = run.stderr.strip().splitlines()[-1]
    assert "lacks patroni, haproxy" in last
    assert "apt-get install" in last
    assert "ceph" not in last
