"""The program as a whole: how it starts, its exit statuses, and the options that all commands have."""

import logging
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest
import typer

from scbroker import ContactCard, ServerProvider, errors
from scbroker.cli import _EXTRAS, status_of
from scbroker.cli.app import _MODULES, program
from scbroker.cli.command import app, command
from scbroker.cli.output import Output
from scbroker.cli.run import Run
from tests.kit.people import Person
from tests.kit.waiting import PATIENCE

_HEAVY = ("aiohttp", "asyncio", "cryptography", "msgspec", "rich", "scbroker.client")


def test_the_program_imports_nothing_heavy_until_a_command_needs_it() -> None:
    loaded = "import scbroker.cli.app, sys; print(*sys.modules)"
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
    assert "scbroker.cli.app" in done.stdout.split()
    slow = {"pydantic", "rich", "segno"}
    if arguments != [
        "whoami"
    ]:  # whether a session is kept is known to the provider, which imports these
        slow |= {"aiohttp", "asyncio", "scbroker.client"}
    assert not slow & set(done.stdout.split())


def test_values_have_the_types_that_the_command_declares(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def show(
        run: Run,
        path: Path,
        texts: list[str],
        paths: Annotated[list[Path] | None, typer.Option("--path")] = None,
        text: str | None = None,
        number: int = 3,
    ) -> None:
        run.out.line({}, str((path, texts, paths, text, number)))

    own = typer.Typer(rich_markup_mode=None)
    command(of=own)(show)
    own(["a", "b", ""], standalone_mode=False)
    options = ["--path", "c", "--path", "d", "--text", "e", "--number", "4"]
    own([*options, "a", "b"], standalone_mode=False)
    plain, full = capsys.readouterr().out.splitlines()
    assert plain == str((Path("a"), ["b", ""], None, None, 3))
    assert full == str((Path("a"), ["b"], [Path("c"), Path("d")], "e", 4))
    with pytest.raises(typer.BadParameter):
        own(["--number", "x", "a", "b"], standalone_mode=False)


def test_the_help_lists_commands_by_panel_and_each_command_has_the_common_options(
    stranger: Person,
) -> None:
    listed = stranger.run("--help").output
    assert listed.index("\nAccount:") < listed.index("  whoami ") < listed.index("\nBroker:")
    for option in ("--profile", "--json", "--quiet"):
        assert option in stranger.run("whoami", "--help").output


def test_the_first_line_of_each_help_fits_into_the_lists_of_commands(stranger: Person) -> None:
    groups = ("admin", "conformance", "contacts", "groups", "key-file", "mark", "profiles")
    for group in ([], *([name] for name in groups)):
        listed = stranger.run(*group, "--help", COLUMNS="80").output
        assert "\n  " in listed
        assert "..." not in listed.replace("[ARGS]...", ""), listed


def _without(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program where a module is not installed."""
    code = f"import sys; sys.modules[{module!r}] = None; from scbroker.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


def _modules_of(extra: str) -> list[str]:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    listed = tomllib.loads(text)["project"]["optional-dependencies"][extra]
    return [re.split(r"[^a-z0-9-]", each)[0].replace("-", "_") for each in listed]


@pytest.mark.sampled
@pytest.mark.parametrize("module", _EXTRAS["server"])
def test_a_broker_without_a_package_of_its_extra_names_the_extra(
    module: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    command = ["admin", "ui"] if module == "jinja2" else ["serve", "--port", "0"]
    done = _without(module, *command, SCBROKER_DATA_DIR=str(folder))
    assert done.returncode == 1
    assert f"needs the Python package {module.replace('_', '-')}" in done.stderr
    assert "`pip install './scbroker[server]'`" in done.stderr
    assert "Traceback" not in done.stderr
    assert not folder.exists()


def test_files_by_path_without_fsspec_name_the_extra() -> None:
    code = "import sys; sys.modules['fsspec'] = None; import scbroker.filesystem"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "run pip install './scbroker[fsspec]'." in done.stderr


@pytest.mark.sampled
@pytest.mark.parametrize("module", ["segno", "typer"])
def test_a_command_of_users_without_a_package_of_its_extra_names_the_extra(
    module: str, tmp_path: Path
) -> None:
    text = ContactCard("ab" * 32, "https://broker.example", "Alice").text
    done = _without(module, "card", text, "--svg", str(tmp_path / "new.svg"))
    assert done.returncode == 1
    assert f"needs the Python package {module}" in done.stderr
    assert "`pip install './scbroker[cli]'`" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_names_of_each_extra_s_packages_are_those_that_it_installs() -> None:
    for extra in ("cli", "server"):
        # A broker runs without uvloop.
        assert set(_EXTRAS[extra]) == set(_modules_of(extra)) - {"uvloop"}


def test_a_package_that_every_installation_has_is_named_if_it_is_missing() -> None:
    done = _without("platformdirs", "whoami")
    assert done.stderr == (
        "scbroker: This command needs the Python package platformdirs, which belongs to scbroker and is "
        "missing: install scbroker again.\n"
    )


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


def test_each_command_is_found_by_its_name() -> None:
    everything = program()
    names = {
        each.name or getattr(each.callback, "__name__", "")
        for each in everything.registered_commands
    }
    names |= {str(each.name) for each in everything.registered_groups}
    assert names == {name for some in _MODULES.values() for name in some}


def test_a_command_starts_alone_and_a_wrong_one_is_compared_with_all(stranger: Person) -> None:
    for name in ("ls", "change-credentials", "key-file", "serve"):
        built = program([name, "--help"])
        assert len(built.registered_commands) + len(built.registered_groups) == 1
        assert f"scbroker {name}" in stranger.run(name, "--help").output.replace("_", "-")
    for wrong in ([], ["--version"], ["lss"]):
        assert program(wrong) is app
    assert "ls" in stranger.run("lss", status=2).error


@pytest.mark.parametrize(
    "arguments,named",
    [
        (["put", "-r", ""], "FILE is empty"),
        (["mirror", ""], "FOLDER is empty"),
        (["login", "--session-folder", ""], "--session-folder must be"),
    ],
)
def test_an_empty_path_is_refused_and_not_the_current_folder(
    stranger: Person, arguments: list[str], named: str
) -> None:
    stranger.environment["SCBROKER_PROFILE"] = "none"
    assert named in stranger.run(*arguments, status=2).error


def test_without_a_profile_the_message_names_the_command_to_run(stranger: Person) -> None:
    assert "run `scbroker register`" in stranger.run("whoami", status=2).error


def test_whoami_shows_the_card_of_the_profile_as_lines_or_json(
    person: Callable[[str], Person],
) -> None:
    alice = person("Alice")
    shown = alice.json("whoami")
    card = ContactCard.parse(shown["card"])
    assert card.name == shown["name"] == "Alice"
    assert f"userId\t{card.userId}" in alice.run("whoami").lines


def test_requests_that_the_end_of_a_command_cuts_off_are_no_warnings(
    person: Callable[[str], Person], capsys: pytest.CaptureFixture[str]
) -> None:
    class Closing(ServerProvider):
        def close(self) -> None:
            logging.getLogger("scbroker.client").warning("A request failed and is sent again")
            super().close()

    alice = person("Alice")
    with Run(None, Output(as_json=False, quiet=False)) as run:
        run.use(Closing(alice.broker.api_key, alice.broker.url, "tests"))
        logging.getLogger("scbroker.client").warning("Slow")
    assert capsys.readouterr().err == "scbroker: Slow\n"
