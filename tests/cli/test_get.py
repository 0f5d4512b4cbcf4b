"""`scbroker get` and `scbroker cat`, with real files and a real broker."""

import os
import stat
import uuid
from collections.abc import Callable
from typing import Any

import pexpect
import pytest

from scbroker import (
    AccessLevel,
    ContactCard,
    ContainerAccessLevel,
    SecuredContainer,
    ServerProvider,
)
from tests.cli.conftest import Halting
from tests.kit.people import Person, interrupted
from tests.kit.processes import Terminal
from tests.kit.waiting import PATIENCE, wait_until

MIB = 1_048_576
TIME = "2026-03-01T12:00:00.123457Z"
NANOSECONDS = 1_772_366_400_123_457_000


def put(
    session: ServerProvider, name: Any, content: bytes | None = b"text", **header: Any
) -> uuid.UUID:
    made: SecuredContainer = session.createContainer(
        content, customHeaderObject={"name": name, **header}
    ).result(PATIENCE)
    return made.id


def test_a_content_is_saved_under_the_last_part_of_the_name_with_the_files_time(
    alice: Person, session: ServerProvider
) -> None:
    container = put(session, "letters/a.txt", b"Dear Bob", modified=TIME)
    [row] = alice.json("get", "letters/a.txt")
    assert row == {
        "name": "letters/a.txt",
        "status": "saved",
        "id": str(container),
        "length": 8,
        "path": "a.txt",
    }
    saved = alice.home / "a.txt"
    assert saved.read_bytes() == b"Dear Bob"
    assert saved.stat().st_mtime_ns == NANOSECONDS
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600


@pytest.mark.long
def test_an_existing_file_is_kept_without_force_and_an_equal_one_is_unchanged(
    alice: Person, session: ServerProvider
) -> None:
    put(session, "a.txt", b"new", modified=TIME)
    (alice.home / "a.txt").write_text("old")
    done = alice.run("get", "a.txt", status=1)
    assert "--force" in done.error
    assert "--output" in done.error
    assert (alice.home / "a.txt").read_text() == "old"
    assert alice.json("get", "a.txt", "--force")[0]["status"] == "saved"
    assert (alice.home / "a.txt").read_text() == "new"
    assert alice.json("get", "a.txt")[0]["status"] == "unchanged"


def test_a_file_of_the_same_size_and_time_is_written_with_force_and_compared_with_checksum(
    alice: Person,
) -> None:
    for size in (5, 70_000):
        right, wrong = alice.home / f"a{size}", alice.home / f"b{size}"
        right.write_bytes(b"a" * size)
        alice.run("put", right.name)
        wrong.write_bytes(b"b" * size)
        os.utime(wrong, ns=(right.stat().st_mtime_ns,) * 2)
        assert alice.json("get", right.name, "-o", wrong.name)[0]["status"] == "unchanged"
        assert "differs" in alice.run("get", right.name, "-o", wrong.name, "-c", status=1).error
        assert wrong.read_bytes() == b"b" * size
        assert alice.json("get", right.name, "-o", wrong.name, "-f")[0]["status"] == "saved"
        assert wrong.read_bytes() == b"a" * size
        os.utime(wrong)
        again = alice.json("get", right.name, "-o", wrong.name, "--checksum")
        assert again[0]["status"] == "unchanged"


@pytest.mark.long
def test_output_names_a_file_a_folder_or_standard_output(
    alice: Person, session: ServerProvider
) -> None:
    put(session, "a.txt", b"A")
    put(session, "b.txt", b"B")
    assert alice.json("get", "a.txt", "-o", "other")[0]["path"] == "other"
    assert (alice.home / "other").read_bytes() == b"A"
    (alice.home / "folder").mkdir()
    alice.run("get", "a.txt", "-o", "folder")
    assert (alice.home / "folder" / "a.txt").read_bytes() == b"A"
    alice.run("get", "a.txt", "-o", "new/folder/")
    assert (alice.home / "new" / "folder" / "a.txt").read_bytes() == b"A"
    alice.run("get", "a.txt", "b.txt", "-o", "both")
    assert (alice.home / "both" / "b.txt").read_bytes() == b"B"
    assert alice.run("get", "a.txt", "b.txt", "-o", "-").output == "AB"


@pytest.mark.long
def test_wrong_targets_are_errors_that_name_them(alice: Person, session: ServerProvider) -> None:
    put(session, "a.txt")
    put(session, "b.txt")
    (alice.home / "file").write_text("file")
    (alice.home / "folder" / "a.txt").mkdir(parents=True)
    cases = [
        (("a.txt", "-o", "missing/x"), 3, "missing' does not exist"),
        (("a.txt", "b.txt", "-o", "file"), 1, "'file' exists already"),
        (("a.txt", "-o", "/dev/null"), 1, "not a regular file"),
        (("missing",), 3, "missing"),
        (("",), 3, "''"),
    ]
    for arguments, status, says in cases:
        done = alice.run("get", *arguments, status=status)
        assert says in done.error, (arguments, done)


def test_of_own_containers_with_one_name_the_newest_is_read_and_it_is_said(
    alice: Person, session: ServerProvider
) -> None:
    """Programs that store a name at once make a container each."""
    put(session, "d/a", b"older")
    newest = put(session, "d/a", b"newer")
    said = f"The newest is used, {newest}"
    for arguments in (["cat", "d/a"], ["info", "d/a"], ["get", "d/a"], ["get", "-r", "d"]):
        assert said in alice.run(*arguments).error
    assert alice.run("cat", "d/a").output == "newer"
    assert [(alice.home / each).read_bytes() for each in ("a", "d/a")] == [b"newer", b"newer"]
    (alice.home / "d/a").write_bytes(b"newest of all")
    assert said in alice.run("put", "-r", "d", "--update").error
    assert alice.run("cat", str(newest)).output == "newest of all"
    assert "2 containers are named 'd/a': use an id" in alice.run("rm", "d/a", status=2).error


def test_a_container_that_somebody_shares_never_takes_the_place_of_one_s_own(
    alice: Person, session: ServerProvider, person: Callable[[str], Person]
) -> None:
    put(session, "f/a.txt", b"mine")
    with person("Mallory").session() as hers:
        levels = [AccessLevel(session.getUserId().result())]
        for _ in range(3):  # ids are random: one of them comes first
            hers.createContainer(b"evil", {"name": "f/a.txt"}, levels).result(PATIENCE)
            hers.createContainer(b"evil", {"name": "f/b.txt"}, levels).result(PATIENCE)
    done = alice.run("get", "-r", "f/", "--everyone", status=1)
    assert len(done.lines) == 1
    assert (alice.home / "f" / "a.txt").read_bytes() == b"mine"
    assert not (alice.home / "f" / "b.txt").exists()


@pytest.mark.long
def test_contents_that_are_missing_or_hidden_are_errors_of_their_own(
    alice: Person, session: ServerProvider, person: Callable[[str], Person]
) -> None:
    bob = person("Bob")
    reader = ContactCard.parse(bob.json("whoami")["card"]).userId
    empty = put(session, "f/none", None)
    put(session, "f/empty", b"")
    hidden = put(session, "f/hidden", b"secret")
    levels = [AccessLevel(reader, ContainerAccessLevel.Download)]
    session.grantAccess([hidden, empty], levels).result(PATIENCE)
    done = alice.run("get", "-r", "f/", status=3)
    assert "f/none: The container has no content." in done.error
    assert sorted(line.split("\t")[0] for line in done.lines) == ["f/empty", "f/hidden"]
    assert (alice.home / "f" / "empty").read_bytes() == b""
    done = bob.run("get", str(hidden), "-o", "x", status=4)
    assert "hide the content" in done.error
    assert not (bob.home / "x").exists()
    assert "hide the content" in bob.run("cat", str(hidden), status=4).error
    assert "no content" in alice.run("cat", "f/none", status=3).error


def shown(terminal: Terminal) -> str:
    terminal.expect(pexpect.EOF)
    terminal.close()
    return terminal.before or ""


@pytest.mark.long
def test_cat_shows_plain_text_on_a_terminal_and_nothing_that_could_steer_it(
    alice: Person, session: ServerProvider
) -> None:
    put(session, "good", "Grüße 👩\u200d💻,\ttab\r\nend\n".encode())
    text = shown(alice.at_terminal("cat", "good"))
    assert "Grüße 👩\u200d💻,\ttab" in text
    for number, content in enumerate(
        [b"a\x1b[2Jb", b"\xff\xfe", b"a\rb", b"a\x00", "a\u202eb".encode(), b"x\xc3", b"a\x9bb"]
    ):
        put(session, f"bad{number}", content)
        terminal = alice.at_terminal("cat", f"bad{number}")
        text = shown(terminal)
        assert "not plain text" in text, content
        assert terminal.exitstatus == 2
        assert "\x1b[2J" not in text


@pytest.mark.long
def test_an_interrupted_get_stops_at_once_and_goes_on_where_it_stopped(
    halted: Person, halting: Halting
) -> None:
    """The answer that is due never comes. The content has twelve chunks, and its segments' hashes."""
    content = os.urandom(MIB) * 96
    with halted.session() as session:
        put(session, "large", content)
    halting.halt_after(8)
    terminal = halted.at_terminal("get", "large")
    wait_until(lambda: len(halting.asked) >= halting.last)
    assert "Traceback" not in interrupted(terminal)
    assert not (halted.home / "large").exists()
    [part] = halted.home.glob(".*.part")
    before = part.stat().st_ino
    halting.heal()
    halted.run("get", "large")
    assert len(set(halting.asked[halting.last :])) < 13
    assert (halted.home / "large").read_bytes() == content
    assert (halted.home / "large").stat().st_ino == before
    assert not list(halted.home.glob(".*.part"))
