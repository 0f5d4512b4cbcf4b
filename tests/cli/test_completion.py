"""Completion of command lines, in the real shells."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from scbroker import Contacts
from tests.kit.people import Person
from tests.kit.waiting import PATIENCE, wait_until

_PROGRAM = """\
#!{python}
import atexit
import json
import os
from pathlib import Path
from scbroker.cli import main
from scbroker.cli import command as commands
from scbroker.cli.command import Run, command
from scbroker.cli.names import ContainerArgument, PersonArgument

commands.program()

@command()
def probe(run: Run, container: ContainerArgument, person: PersonArgument = "") -> None:
    "Print the arguments."
    print("ARGUMENTS" + json.dumps([container, person]) + "END")

atexit.register(Path.home().joinpath(".answered").touch)
commands._SECONDS = float(os.environ.get("SECONDS", {patience}))
main()
"""
NAMES = ["a file.txt", "tree/leaf one", "ünï"]
HOSTILE = [
    "back\\$(touch pwned)",
    "do$(touch pwned)llar",
    "esc\x1b[2J",
    "exclaim!1",
    "line\nbreak",
    'quo"te;touch pwned',
    "-rf",
    "single'quote",
    "t`touch pwned`",
    "~root",
]


@pytest.fixture
def alice(person: Callable[[str], Person], tmp_path: Path) -> Person:
    """Alice, whose PATH has a program `scbroker` with one command more, which prints its arguments."""
    made = person("Alice")
    program = tmp_path / "bin" / "scbroker"
    program.parent.mkdir()
    program.write_text(_PROGRAM.format(python=sys.executable, patience=PATIENCE))
    program.chmod(0o755)
    made.environment["PATH"] = f"{program.parent}:{made.environment['PATH']}"
    return made


@pytest.fixture
def named(alice: Person) -> Person:
    """Alice with containers of all kinds of names, a contact and a group."""
    with alice.device() as device:
        for name in [*NAMES, *HOSTILE]:
            device.createContainer(b"", {"name": name}).result(PATIENCE)
        card = device.getContactCard("Bob").result(PATIENCE)
        Contacts(device).add(card).result(PATIENCE)
        device.createGroup("a group").result(PATIENCE)
    return alice


def asked(alice: Person, *words: str, **variables: str) -> list[str]:
    """Return the candidates for the last of these words, as fish gets them."""
    line = " ".join(["scbroker", *words])
    asking = {
        "_SCBROKER_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": line,
    }
    done = subprocess.run(
        ["scbroker"], env=alice.environment | asking | variables,
        cwd=alice.home, capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.stderr == ""
    return [each.partition("\t")[0] for each in done.stdout.splitlines() if each]


@pytest.mark.long
def test_commands_options_profiles_and_plain_names_are_completed(named: Person) -> None:
    assert asked(named, "who") == ["whoami"]
    assert asked(named, "whoami", "--js") == ["--json"]
    assert asked(named, "whoami", "--profile", "") == ["default"]
    assert asked(named, "probe", "") == sorted(NAMES)
    assert asked(named, "probe", "'a f") == ["a file.txt"]
    assert asked(named, "probe", "--profile", "default", "a") == ["a file.txt"]
    assert asked(named, "probe", "a", "Bo") == ["Bob"]
    assert asked(named, "mirror", "folder", "") == ["tree/"]
    assert asked(named, "groups", "rm", "") == ["a group"]
    assert asked(named, "share", "plan", "--with", "") == ["Bob", "a group"]
    assert asked(named, "put", "file", "--to", "a") == ["a group"]
    assert asked(named, "groups", "accept", "") == []


def started(alice: Person, shell: str, *options: str) -> pexpect.spawn[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    child = pexpect.spawn(
        shell, list(options), env=alice.environment | {"TERM": "vt100", "PS1": "READY> "},
        cwd=str(alice.home), encoding="utf-8", timeout=PATIENCE, dimensions=(40, 200),
    )  # fmt: skip
    prepare = {"bash": "", "zsh": "autoload -Uz compinit && compinit -u; "}[shell]
    child.sendline(
        f"{prepare}scbroker --show-completion >script; source ./script; PS1='READ''Y> '; echo LOADED"
    )
    child.expect("LOADED\r\n")
    child.expect("READY> ")
    return child


def complete(shell: pexpect.spawn[str], typed: str) -> list[str]:
    """Type a line, let the shell complete it, and return the arguments that the program then gets."""
    answered = Path(str(shell.cwd), ".answered")
    answered.unlink(missing_ok=True)
    shell.send(f"scbroker probe {typed}\t")
    wait_until(answered.exists)
    shell.send("\n")
    shell.expect("ARGUMENTS(.*?)END")
    assert isinstance(shell.match, re.Match)
    found: list[str] = json.loads(shell.match.group(1))
    shell.expect("READY> ")
    return found


@pytest.mark.long
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_shell_inserts_plain_names_and_runs_nothing_of_others(
    shell: str, named: Person
) -> None:
    options = {"bash": ("--norc", "--noprofile", "-i"), "zsh": ("-f", "-i")}[shell]
    with started(named, shell, *options) as child:
        assert complete(child, "a") == ["a file.txt", ""]
        assert complete(child, "tree") == ["tree/leaf one", ""]
        assert complete(child, "ün") == ["ünï", ""]
        assert complete(child, "a B") == ["a", "Bob"]
        for hostile in ("bac", "d", "exc", "quo", "sin", "t\\`"):
            complete(child, hostile)
    assert not (named.home / "pwned").exists()
