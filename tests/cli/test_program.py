"""The program as a whole: how it starts, its exit statuses, and the options that all commands have."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest
import typer

from scbroker import ContactCard, errors
from scbroker.cli import status_of
from scbroker.cli.command import command
from scbroker.cli.run import Run
from tests.kit.people import Person

_HEAVY = ("aiohttp", "asyncio", "cryptography", "msgspec", "rich", "scbroker.client")


def test_the_program_imports_nothing_heavy_until_a_command_needs_it() -> None:
    loaded = "import scbroker.cli.app, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert "typer" in done.stdout.split()
    assert not set(_HEAVY) & set(done.stdout.split())


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
    slow = {"aiohttp", "asyncio", "pydantic", "rich", "segno", "scbroker.client"}
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
        folder: Annotated[Path, typer.Option(exists=True)] = Path("/"),
    ) -> None:
        run.out.line({}, str((path, texts, paths, text, number, folder)))

    own = typer.Typer(rich_markup_mode=None)
    command(of=own)(show)
    own(["a", "b", ""], standalone_mode=False)
    options = ["--path", "c", "--path", "d", "--text", "e", "--number", "4", "--folder", "/tmp"]
    own([*options, "a", "b"], standalone_mode=False)
    plain, full = capsys.readouterr().out.splitlines()
    assert plain == str((Path("a"), ["b", ""], None, None, 3, Path("/")))
    assert full == str((Path("a"), ["b"], [Path("c"), Path("d")], "e", 4, Path("/tmp")))
    for wrong in (["--number", "x"], ["--folder", "/no such"]):
        with pytest.raises(typer.BadParameter):
            own([*wrong, "a", "b"], standalone_mode=False)


def test_the_help_lists_commands_by_panel_and_each_command_has_the_common_options(
    stranger: Person,
) -> None:
    listed = stranger.run("--help").output
    assert listed.index("\nAccount:") < listed.index("  whoami ") < listed.index("\nBroker:")
    for option in ("--profile", "--json", "--quiet"):
        assert option in stranger.run("whoami", "--help").output


@pytest.mark.parametrize(
    "error,status",
    [
        (errors.InvalidArgumentError(), 2),
        (errors.NotFoundError(), 3),
        (errors.DeletedError(), 3),
        (errors.BlockedError(), 4),
        (errors.CredentialsError(), 4),
        (errors.OfflineError(), 5),
        (errors.ThrottledError(), 5),
        (errors.IntegrityError(), 1),
    ],
)
def test_each_family_of_errors_has_an_exit_status(error: errors.BrokerError, status: int) -> None:
    assert status_of(error) == status


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
