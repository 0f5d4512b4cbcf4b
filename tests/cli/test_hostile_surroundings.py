"""Hostile times, terminals and other users of the machine, against the command line."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.kit.people import Person, ended, put
from tests.kit.processes import command

NAME = "O'$(touch pwned)"


@pytest.mark.sampled
@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize("arguments", [["--install-completion"], ["profiles", "use", "x"]])
def test_no_file_or_folder_is_open_to_others_whatever_the_umask(
    arguments: list[str], stranger: Person
) -> None:
    """Another user who could write .bashrc, or the script that it reads, would run commands."""
    # A shell that waits for its child: completion is installed for the shell that runs the program.
    done = subprocess.run(
        ["bash", "-c", 'umask 0; "$@"; exit', "bash", *command(*arguments)],
        env=stranger.environment, cwd=stranger.home, check=False, capture_output=True,
    )  # fmt: skip
    made = list(stranger.home.rglob("*"))
    assert made, done
    assert [each for each in made if each.lstat().st_mode & 0o022 and not each.is_symlink()] == []


@pytest.mark.long
def test_an_error_of_the_system_does_not_print_escape_sequences(stranger: Person) -> None:
    code = (
        "import scbroker.cli.command as a, scbroker.cli as c\n"
        "def fail(): raise OSError(5, 'broken', 'x\\x1b[31m')\n"
        "a.program = lambda _: fail\nc.main()"
    )
    done_raw = subprocess.run(
        [sys.executable, "-c", code],
        env=stranger.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done_raw.returncode == 1
    assert done_raw.stderr == "scbroker: x\\x1b[31m cannot be used: broken.\n"


def test_a_keyfile_is_not_written_to_a_terminal(alice: Person) -> None:
    terminal = alice.at_terminal("key-file", "export", "-")
    terminal.expect("A KeyFile is binary")
    ended(terminal, 2)


@pytest.mark.long
def test_a_command_line_in_a_message_runs_nothing_that_a_card_says(
    alice: Person, person: Callable[[str], Person]
) -> None:
    mallory = person(NAME)
    card = mallory.json("whoami")["card"]
    (alice.home / "scbroker").write_text('#!/bin/sh\nfor each; do echo "$each"; done\n')
    (alice.home / "scbroker").chmod(0o700)
    with alice.session() as session:
        put(session, "plan")
    added = alice.run("contacts", "add", card).error
    shared = alice.run("share", "plan", NAME).error
    for message in (added, shared):
        shell = message[message.index("`") + 1 : message.rindex("`")]
        done = subprocess.run(
            shell, shell=True, cwd=alice.home, env={"PATH": str(alice.home)}, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.stdout.splitlines() == ["contacts", "verify", NAME]
