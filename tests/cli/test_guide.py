"""The guides to the command line: people run their blocks, which print what the pages show."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pexpect
import pytest

from scbroker import cli
from scbroker.cli.profiles import Profile
from tests.cli.test_sharing import knows
from tests.kit.brokers import BrokerProcess
from tests.kit.consoles import is_as_shown, same_in_this_run, steps
from tests.kit.people import Person

GUIDE: Final = Path(__file__).parents[2] / "docs" / "guide" / "command-line.md"
GROUPS: Final = GUIDE.with_name("groups.md")
SECRETS: Final = {"password": "A password 1", "passphrase": "A passphrase 1"}


def at_terminal(person: Person, command: str) -> str:
    """Run a command on a terminal that cannot move the cursor, answer its questions, return the output."""
    words = shlex.split(command)[1:]
    if words[0] in ("register", "login"):  # a test machine has no keychain
        words += ["--session-folder", str(person.home / "sessions")]
    child = person.at_terminal(*words, TERM="dumb", NO_COLOR="1", COLUMNS="120", LINES="40")
    output = ""
    while child.expect([r"(password|passphrase|y/N)\]?(?: again)?: $", pexpect.EOF]) == 0:
        assert isinstance(child.match, re.Match)
        output += str(child.before) + str(child.after)
        child.sendline(SECRETS.get(child.match[1], "y"))
    child.close()
    return output + str(child.before)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_commands_of_the_guide_print_what_it_shows(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    people = {name: Person(tmp_path / name, broker) for name in ("alice", "bob")}
    for person in people.values():
        person.environment |= {
            "SCBROKER_SERVER_URL": broker.url, "SCBROKER_API_KEY": str(broker.api_key),
        }  # fmt: skip
    write_files(people["alice"].home)
    real: dict[str, str] = {}
    for step in steps(GUIDE):
        command = step.command
        for shown, found in real.items():
            command = command.replace(shown, found)
        output = at_terminal(people[step.who], command)
        assert is_as_shown(step.output, output), (step, output)
        real |= same_in_this_run(step.output, output, "card", "fingerprint")


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_commands_of_the_guide_to_groups_print_what_it_shows(
    person: Callable[[str], Person],
) -> None:
    people = {name.lower(): person(name) for name in ("Alice", "Bob", "Carol")}
    for one in people.values():
        knows(one, *(other for other in people.values() if other is not one))
    write_files(people["alice"].home)
    for step in steps(GROUPS):
        output = at_terminal(people[step.who], step.command)
        assert is_as_shown(step.output, output), (step, output)


def write_files(home: Path) -> None:
    (home / "photos").mkdir()
    (home / "letter.txt").write_text("Dear Bob\n")
    (home / "photos" / "lake.jpg").write_bytes(bytes(200_000))
    (home / "photos" / "tent.jpg").write_bytes(bytes(3_000))


def test_an_output_that_differs_is_noticed() -> None:
    shown = "name  2 B  47c5156a\n...\n"
    assert is_as_shown(shown, "name 2 B 11111111\nmore\n")
    assert not is_as_shown(shown, "name 3 B 11111111\nmore\n")


def test_the_guide_lists_every_exit_status() -> None:
    table = re.findall(r"^\| (\d+) \|", GUIDE.read_text("utf-8"), re.MULTILINE)
    named = (cli.WRONG_USE, cli.NOT_FOUND, cli.REFUSED, cli.UNAVAILABLE)
    assert list(map(int, table)) == [0, 1, *named, 130]
    assert {status for _, status in cli._STATUS} == set(named)


def test_the_guide_lists_every_key_of_a_profile() -> None:
    section = GUIDE.read_text("utf-8").partition("\n## Profiles\n")[2].partition("\n## ")[0]
    keys = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert keys == [each.name for each in msgspec.structs.fields(Profile)][1:]  # without the name


def test_the_guide_names_the_variables_of_secrets() -> None:
    from scbroker.cli import secrets

    assert 'f"SCBROKER_{what' in inspect.getsource(secrets)
    for what in SECRETS:
        assert f"SCBROKER_{what.upper()}" in GUIDE.read_text("utf-8")
        assert f"--{what}-file" in GUIDE.read_text("utf-8")
