"""The program as a whole: how it starts, its exit statuses, and the options that all commands have."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scbroker import errors
from scbroker.cli import status_of
from tests.kit.people import Person
from tests.kit.waiting import PATIENCE

_HEAVY = ("aiohttp", "asyncio", "cryptography", "msgspec", "rich", "scbroker.client")


def test_the_program_imports_nothing_heavy_until_a_command_needs_it() -> None:
    loaded = "import scbroker.cli.command, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert "typer" in done.stdout.split()
    assert not set(_HEAVY) & set(done.stdout.split())


@pytest.mark.sampled
@pytest.mark.parametrize("arguments", [["whoami"], ["whoami", "--help"], ["card", "no card"]])
def test_a_command_without_the_network_imports_no_slow_package(
    person: Callable[[str], Person], arguments: list[str]
) -> None:
    code = "import atexit, sys; from scbroker.cli import main; "
    code += "atexit.register(lambda: print(*sys.modules)); main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=person("Alice").environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "scbroker.cli.command" in done.stdout.split()
    slow = {"pydantic", "rich", "segno"}
    if arguments != [
        "whoami"
    ]:  # whether a session is kept is known to the provider, which imports these
        slow |= {"aiohttp", "asyncio", "scbroker.client"}
    assert not slow & set(done.stdout.split())


def _without(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program where a module is not installed."""
    code = f"import sys; sys.modules[{module!r}] = None; from scbroker.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("module", ["sqlalchemy", "jinja2", "uvicorn"])
def test_a_broker_without_a_package_of_its_extra_names_the_extra(
    module: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    command = ["admin", "ui"] if module == "jinja2" else ["serve", "--port", "0"]
    done = _without(module, *command, SCBROKER_DATA_DIR=str(folder))
    assert done.returncode == 1
    assert f"needs the Python package {module.replace('_', '-')}" in done.stderr
    extras = "cli,server" if module == "jinja2" else "server"
    assert f"`pip install './scbroker[{extras}]'`" in done.stderr
    assert "Traceback" not in done.stderr
    assert not folder.exists()


@pytest.mark.parametrize(
    "error,status",
    [
        (errors.InvalidArgumentError(), 2),
        (errors.NotFoundError(), 3),
        (errors.DeletedError(), 3),
        (errors.BlockedError(), 4),
        (errors.SuspendedError(), 4),
        (errors.CredentialsError(), 4),
        (errors.QuotaExceededError(), 4),
        (errors.OfflineError(), 5),
        (errors.ThrottledError(), 5),
        (errors.IntegrityError(), 1),
    ],
)
def test_each_family_of_errors_has_an_exit_status(error: errors.BrokerError, status: int) -> None:
    assert status_of(error) == status


@pytest.mark.parametrize(
    "arguments,named",
    [
        (["put", "-r", ""], "FILE is empty"),
        (["mirror", ""], "FOLDER is empty"),
        (["login", "--session-folder", ""], "--trust-folder is empty"),
    ],
)
def test_an_empty_path_is_refused_and_not_the_current_folder(
    stranger: Person, arguments: list[str], named: str
) -> None:
    stranger.environment["SCBROKER_PROFILE"] = "none"
    assert named in stranger.run(*arguments, status=2).error
