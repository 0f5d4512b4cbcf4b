"""Hostile times, terminals and other users of the machine, against the command line."""

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from scbroker import AccessLevel
from scbroker.cli import files, output
from scbroker.folders import make_folder
from tests.kit.fixtures import not_under_coverage
from tests.kit.nursery import command
from tests.kit.people import Person, befriend, interrupted, put
from tests.kit.waiting import PATIENCE

NAME = "O'$(touch pwned)"
LAST = dt.datetime.max.replace(tzinfo=dt.UTC)


@pytest.fixture
def alice(person: Callable[[str], Person]) -> Person:
    return person("Alice")


@pytest.mark.long
def test_an_access_that_ends_in_the_last_hour_of_the_calendar_is_shown_in_the_far_east(
    alice: Person, person: Callable[[str], Person]
) -> None:
    with person("Mallory").session() as hers, alice.session() as session:
        levels = [
            AccessLevel(hers.getUserId().result(), 511),
            AccessLevel(session.getUserId().result(), expiresAt=LAST),
        ]
        id = put(hers, "plan", b"1", accessLevels=levels)
    done = subprocess.run(  # a process that reads TZ at its start
        command("info", str(id)), env=alice.environment | {"TZ": "Asia/Tokyo"}, cwd=alice.home,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "9999-12-31" in done.stdout, done
    assert done.returncode == 0


@pytest.mark.parametrize("seconds,year", [(4 * 10**12, 9999), (-9 * 10**10, 1)])
def test_a_file_of_a_year_that_no_calendar_has_is_of_the_nearest_one(
    seconds: int, year: int
) -> None:
    assert files.time_of(_Status(seconds)).year == year  # type: ignore[arg-type] # has what is read


class _Status:
    def __init__(self, seconds: int) -> None:
        self.st_mtime_ns = seconds * 10**9


def test_times_are_local_as_far_as_the_calendar_goes() -> None:
    assert output.local(LAST) == LAST
    now = dt.datetime.now(dt.UTC)
    assert output.local(now).utcoffset() == now.astimezone().utcoffset()


@pytest.mark.sampled
@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize("arguments", [["--install-completion", "bash"], ["profiles", "use", "x"]])
def test_no_file_or_folder_is_open_to_others_whatever_the_umask(
    arguments: list[str], stranger: Person
) -> None:
    """Another user who could write .bashrc, or the script that it reads, would run commands."""
    code = "import os, sys; os.umask(0); os.execv(sys.argv[1], sys.argv[1:])"
    subprocess.run(
        [sys.executable, "-c", code, *command(*arguments)],
        env=stranger.environment, cwd=stranger.home, check=False, capture_output=True,
    )  # fmt: skip
    made = list(stranger.home.rglob("*"))
    assert made
    assert [each for each in made if each.lstat().st_mode & 0o022 and not each.is_symlink()] == []


def test_folders_above_are_made_for_the_user_alone_and_a_file_is_no_folder(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert [each.stat().st_mode & 0o777 for each in sorted(tmp_path.rglob("*"))] == [0o700] * 3
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file" / "x")


@pytest.mark.long
def test_an_error_of_the_system_does_not_print_escape_sequences(stranger: Person) -> None:
    code = (
        "import scbroker.cli.app as a, scbroker.cli as c\n"
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
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 2


@pytest.mark.long
def test_ctrl_c_at_the_question_for_a_fingerprint_is_status_130(
    alice: Person, person: Callable[[str], Person]
) -> None:
    with alice.session() as session:
        befriend(session, person("Bob"), "Bob")
    terminal = alice.at_terminal("contacts", "verify", "Bob")
    terminal.expect("Fingerprint")
    interrupted(terminal)


def test_a_profile_whose_session_cannot_be_looked_up_is_a_failure_of_the_list(
    alice: Person,
) -> None:
    (alice.home / "sessions").chmod(0o777)
    rows = alice.json("profiles", status=1)
    assert rows[0]["sessionKept"] is None


def test_the_command_that_a_message_names_quotes_the_file(alice: Person) -> None:
    name = "x'; touch pwned; '"
    (alice.home / name).write_text("secret")
    (alice.home / name).chmod(0o644)
    done = alice.run("key-file", "export", "new", "--passphrase-file", name, status=2)
    [_, run, _] = done.error.split("`")
    subprocess.run(run, shell=True, cwd=alice.home, check=True)
    assert not (alice.home / "pwned").exists()
    assert (alice.home / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.long
def test_what_the_broker_denies_is_said_also_with_quiet(
    alice: Person, person: Callable[[str], Person]
) -> None:
    with person("Bob").session() as his, alice.session() as session:
        user = session.getUserId().result()
        levels = [AccessLevel(his.getUserId().result(), 511), AccessLevel(user)]
        id = put(his, "plan", b"1", accessLevels=levels)
        alice.run("verify")
        his.revokeAccess(id, [user]).result(PATIENCE)
    assert f"such as {id}" in alice.run("verify", "--quiet").error


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


@pytest.mark.long
def test_an_error_does_not_repeat_the_secret_of_a_link(alice: Person) -> None:
    url = "https://broker.example/#scbroker-link:SECRET"
    for command_line in (
        ["ls", url],
        ["rm", "-r", url, "--yes"],
        ["get", url],
        ["share", "x", url],
    ):
        done = alice.run(*command_line, status=2 if command_line[0] in ("get", "share") else 3)
        assert "SECRET" not in done.error


@pytest.mark.long
@not_under_coverage
def test_a_link_is_printed_although_its_qr_code_finds_no_room(alice: Person) -> None:
    """The link exists then: the person must be able to revoke it, or to use it."""
    with alice.session() as session:
        put(session, "plan")
    limited = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "
    code = limited + "os.execv(sys.argv[1], sys.argv[1:])"
    [link] = alice.run("link", "plan", "--until", "1h", "--name", "x").lines
    done = subprocess.run(
        [sys.executable, "-c", code, *command("link", "--show", "x", "--svg", "x.svg")],
        env=alice.environment | {"PYTHONDONTWRITEBYTECODE": "1"},  # a module cut off would stay
        cwd=alice.home, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == f"{link}\n", done.stderr
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert not (alice.home / "x.svg").exists()
