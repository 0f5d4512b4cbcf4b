"""Completion of command lines, in the real shells."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scbroker import Contacts, errors
from scbroker.cli import completion
from scbroker.cli.completion import SCRIPTS, Line, candidates, split
from tests.kit.people import Person
from tests.kit.waiting import PATIENCE, wait_until

_PROGRAM = """\
#!{python}
import json
import os
from pathlib import Path
from scbroker.cli import completion, main
from scbroker.cli.command import command
from scbroker.cli.names import ContainerArgument
from scbroker.cli.people import PersonArgument
from scbroker.cli.run import Run

@command()
def probe(run: Run, container: ContainerArgument, person: PersonArgument = "") -> None:
    "Print the arguments."
    print("ARGUMENTS" + json.dumps([container, person]) + "END")

def end(status: int) -> None:
    Path.home().joinpath(".answered").touch()
    exit(status)

exit, os._exit = os._exit, end  # completion ends so
completion._SECONDS = float(os.environ.get("SECONDS", {patience}))
main()
"""
NAMES = [
    "a file.txt",
    "back\\slash",
    "back\\$(touch pwned)",
    "colon: 12:30",
    "do$(touch pwned)llar",
    "exclaim!1",
    "g*",
    'quo"te',
    "single'quote",
    "t`touch pwned`",
    "tree/leaf one",
    "ünï",
    "~root",
]
_HIDDEN = ["esc\x1b[2J", "-rf", "line\nbreak"]


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
    """Alice with containers of all kinds of names, and a contact."""
    with alice.device() as device:
        for name in [*NAMES, *_HIDDEN]:
            device.createContainer(b"", {"name": name}).result(PATIENCE)
        card = device.getContactCard("Bob O'Hara").result(PATIENCE)
        Contacts(device).add(card).result(PATIENCE)
        device.createGroup("a group").result(PATIENCE)
    return alice


def asked(alice: Person, *words: str, **variables: str) -> list[str]:
    """Return the candidates for the last of these words."""
    done = subprocess.run(
        ["scbroker", *words], env=alice.environment | {"_SCBROKER_COMPLETE": "zsh"} | variables,
        cwd=alice.home, capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.long
def test_commands_options_profiles_names_and_contacts_are_completed(named: Person) -> None:
    assert asked(named, "who") == ["whoami"]
    assert asked(named, "whoami", "--js") == ["--json"]
    assert asked(named, "whoami", "--profile", "") == ["default"]
    assert asked(named, "whoami", "--profile=de") == ["--profile=default"]
    assert asked(named, "probe", "") == sorted(NAMES)
    assert asked(named, "probe", "a f") == ["a file.txt"]
    assert asked(named, "probe", "--profile", "default", "a") == ["a file.txt"]
    assert asked(named, "probe", "a", "Bo") == ["Bob O'Hara"]
    assert asked(named, "mirror", "folder", "") == ["tree/"]
    assert asked(named, "groups", "rm", "") == ["a group"]
    assert asked(named, "share", "plan", "a") == ["a group"]
    both = ["Bob O'Hara", "a group"]
    assert asked(named, "share", "plan", "--with", "") == both
    assert asked(named, "put", "file", "--to", "a") == ["a group"]
    assert asked(named, "groups", "accept", "") == []
    assert asked(named, "whoami", "") == []


@pytest.mark.long
@pytest.mark.parametrize("profile", ["none", "../x"])
def test_nothing_is_offered_and_nothing_printed_without_the_profile(
    profile: str, named: Person
) -> None:
    assert asked(named, "probe", "--profile", profile, "") == []


@pytest.mark.long
def test_nothing_is_offered_and_nothing_printed_if_the_configuration_is_wrong(
    alice: Person,
) -> None:
    alice.config.write_text("[[[")
    for words in (["probe", ""], ["whoami", "--profile", ""], ["probe", "a", ""]):
        assert asked(alice, *words) == []


@pytest.mark.long
def test_a_broker_that_does_not_answer_costs_two_seconds(alice: Person) -> None:
    assert completion._SECONDS == 2
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = alice.config.read_text().replace(alice.broker.url, f"http://127.0.0.1:{port}")
        alice.config.write_text(text)
        assert asked(alice, "probe", "", SECONDS="0.5") == []


@pytest.mark.long
def test_words_of_the_program_are_completed_without_slow_imports(alice: Person) -> None:
    code = "import os, sys; from scbroker.cli import main; "
    code += "os._exit = lambda _: print(*sys.modules); main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "wh"], env=alice.environment | {"_SCBROKER_COMPLETE": "zsh"},
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    word, modules = done.stdout.splitlines()[:2]
    assert word == "whoami"
    slow = {"aiohttp", "asyncio", "cryptography", "msgspec", "rich", "scbroker.client"}
    assert not slow & set(modules.split())


def test_the_program_answers_nothing_that_a_shell_did_not_ask_for(alice: Person) -> None:
    assert asked(alice, "a", "", _SCBROKER_COMPLETE="complete_zsh") == []
    assert asked(alice, _SCBROKER_COMPLETE="bash") == []


def started(alice: Person, shell: str, *options: str) -> pexpect.spawn[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = alice.home / "script"
    script.write_text(SCRIPTS[shell])
    child = pexpect.spawn(
        shell, list(options), env=alice.environment | {"TERM": "vt100", "PS1": "READY> "},
        cwd=str(alice.home), encoding="utf-8", timeout=PATIENCE, dimensions=(40, 200),
    )  # fmt: skip
    child.sendline(f"source ./{script.name}; PS1='READ''Y> '; echo LOADED")
    child.expect("LOADED\r\n")
    child.expect("READY> ")
    return child


def expect(shell: pexpect.spawn[str], typed: str, expected: list[str]) -> None:
    """Type a line, let the shell complete it, and compare the arguments that the program then gets."""
    answered = Path(str(shell.cwd), ".answered")
    answered.unlink(missing_ok=True)
    shell.send(f"scbroker probe {typed}\t")
    wait_until(answered.exists)
    shell.send("\n")
    shell.expect("ARGUMENTS(.*?)END")
    assert isinstance(shell.match, re.Match)
    assert json.loads(shell.match.group(1)) == expected, typed
    shell.expect("READY> ")


_TYPED = [
    ("t\\`", "t`touch pwned`"),
    ('"do', "do$(touch pwned)llar"),
    ("a", "a file.txt"),
    ("a\\ f", "a file.txt"),
    ('"a f', "a file.txt"),
    ("'a f", "a file.txt"),
    ("do", "do$(touch pwned)llar"),
    ("quo", 'quo"te'),
    ("sin", "single'quote"),
    ("tree/", "tree/leaf one"),
    ("ün", "ünï"),
    ("g", "g*"),
    ("excl", "exclaim!1"),
    ('"excl', "exclaim!1"),
    ('"t\\`', "t`touch pwned`"),
    ("\\~", "~root"),
    ("colon", "colon: 12:30"),
    ("colon:\\ 1", "colon: 12:30"),
    ("'colon: 12:", "colon: 12:30"),
    ("back\\\\\\$", "back\\$(touch pwned)"),
]


@pytest.mark.long
@pytest.mark.parametrize("typed", [_TYPED[:3], pytest.param(_TYPED[3:], marks=pytest.mark.long)])
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_shell_inserts_a_name_so_that_the_program_gets_it_exactly_and_runs_none_of_it(
    shell: str, typed: list[tuple[str, str]], named: Person
) -> None:
    options = {"bash": ("--norc", "--noprofile", "-i"), "zsh": ("-f", "-i")}[shell]
    with started(named, shell, *options) as child:
        for text, name in typed:
            expect(child, text, [name, ""])
        expect(child, "a B", ["a", "Bob O'Hara"])
        (named.home / "zebra").touch()
        expect(child, "zeb", ["zebra", ""])  # files, where no name fits
    assert not (named.home / "pwned").exists()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_offers_the_names(named: Person) -> None:
    def offered(line: str) -> list[str]:
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"{SCRIPTS['fish']}\ncomplete -C $argv[1]", line],
            env=named.environment, cwd=named.home, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.splitlines()

    assert sorted(offered("scbroker probe ")) == sorted(NAMES)
    assert offered("scbroker probe 'a f") == ["a file.txt"]
    assert offered("scbroker whoami --js") == ["--json"]
    assert offered("scbroker probe a Bo") == ["Bob O'Hara"]
    (named.home / "zebra").touch()
    assert "zebra" in offered("scbroker probe zeb")
    assert not (named.home / "pwned").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_installed_once_and_found_by_the_shell(shell: str, alice: Person) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    if shell != "fish":
        (alice.home / f".{shell}rc").write_text("# mine")
    for _ in range(2):
        alice.run("--install-completion", shell)
    if shell == "fish":
        assert (alice.home / ".config/fish/completions/scbroker.fish").exists()
        return
    lines = (alice.home / f".{shell}rc").read_text().splitlines()
    assert lines[0] == "# mine"
    assert len(lines) == 2
    done = subprocess.run(
        [shell, "-i", "-c", "complete -p scbroker" if shell == "bash" else "echo $_comps[scbroker]"],
        env=alice.environment, cwd=alice.home, capture_output=True, text=True, check=True,
        start_new_session=True,
    )  # fmt: skip
    assert "_scbroker_complete" in done.stdout


def test_the_script_of_an_unknown_shell_is_an_error(alice: Person) -> None:
    assert "one of bash, zsh, fish" in alice.run("--show-completion", "tcsh", status=2).error
    assert "one of bash, zsh, fish" in alice.run("--install-completion", "tcsh", status=2).error
    assert alice.run("--show-completion", "zsh").output == SCRIPTS["zsh"]
    (alice.home / ".bashrc").mkdir()
    refused = alice.run("--install-completion", "bash", status=2)
    assert "--show-completion bash" in refused.error


@pytest.mark.parametrize(
    "line,expected",
    [
        ("scbroker ", ([""], "", 0)),
        ("scbroker get a\\ b", (["get", "a b"], "", 0)),
        ("scbroker get 'a b", (["get", "a b"], "'", 0)),
        ('scbroker get "a\\" b" c', (["get", 'a" b', "c"], "", 0)),
        ("scbroker get '' ", (["get", "", ""], "", 0)),
        ("scbroker get a\\", (["get", "a"], "", 0)),
        ("scbroker get 'a\\", (["get", "a\\"], "'", 0)),
        ("scbroker get a:b=c", (["get", "a:b=c"], "", 4)),
        ("scbroker get a\\:b", (["get", "a:b"], "", 0)),
        ("scbroker get a: ", (["get", "a:", ""], "", 0)),
    ],
)
def test_a_line_is_split_as_bash_splits_it(line: str, expected: tuple[list[str], str, int]) -> None:
    assert split(line) == expected


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(
    st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]) | st.sampled_from("`$'\"\\!*~ ")),
    st.sampled_from(["", "'", '"']),
)
def test_what_bash_inserts_means_exactly_the_name(name: str, quote: str) -> None:
    inserted = Line([""], quote, 0).quoted(name)
    done = subprocess.run(
        ["bash", "-c", f"printf '%s' {quote}{inserted}{quote}"],
        capture_output=True, check=True, env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout.decode() == name


@given(st.text())
def test_any_line_is_split(line: str) -> None:
    assert split(f"scbroker {line}").words


@pytest.mark.long
def test_names_read_before_a_failure_or_the_time_limit_are_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing() -> Iterator[str]:
        yield "one"
        raise errors.UnreachableError("away")

    def endless() -> Iterator[str]:
        yield "one"
        threading.Event().wait()

    def many() -> Iterator[str]:
        yield from map(str, range(10**6))

    monkeypatch.setattr(completion, "_SECONDS", 2)
    assert candidates("o", failing) == ["one"]
    assert candidates("", endless) == ["one"]
    assert len(candidates("", many)) == 1000
    assert candidates("x", failing) == []
