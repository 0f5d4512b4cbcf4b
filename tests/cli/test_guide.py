"""The guides to the command line: people run their blocks, which print what the pages show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pexpect
import pytest

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
