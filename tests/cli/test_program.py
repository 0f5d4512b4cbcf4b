"""The program as a whole: how it starts, its exit statuses, and the options that all commands have."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from scbroker import ContactCard, errors
from scbroker.cli import status_of
from tests.kit.people import Person

_HEAVY = ("aiohttp", "asyncio", "cryptography", "msgspec", "rich", "scbroker.client")


def test_the_program_imports_nothing_heavy_until_a_command_needs_it() -> None:
    loaded = "import scbroker.cli.app, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert "typer" in done.stdout.split()
    assert not set(_HEAVY) & set(done.stdout.split())


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
