"""`scbroker put`: files, folders and standard input, with real files and a real broker."""

import datetime as dt
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    ContactCard,
    Contacts,
    ContainerAccessLevel,
    ServerProvider,
    errors,
)
from scbroker.cli.commands.putting import Sending, Step
from scbroker.cli.files import find
from scbroker.cli.together import Together, tried
from tests.cli.conftest import Halting
from tests.kit.people import Person, ended, interrupted
from tests.kit.waiting import PATIENCE, wait_until

MIB = 1_048_576
NOON = dt.datetime(2026, 3, 1, 12, 0, 0, 123456, dt.UTC)
WRITER = ContainerAccessLevel.DefaultUserPermissions | ContainerAccessLevel.Upload


def write(home: Path, name: str, content: bytes = b"text", at: dt.datetime = NOON) -> Path:
    """Write a file below a home folder, with a time of its own."""
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    microseconds = (at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    os.utime(path, ns=(microseconds * 1000, microseconds * 1000))
    return path


def id_of(person: Person) -> uuid.UUID:
    return card_of(person).userId


def card_of(person: Person) -> ContactCard:
    return ContactCard.parse(person.json("whoami")["card"])


def share(owner: Person, container: str, *levels: AccessLevel) -> None:
    with owner.session() as session:
        [result] = session.grantAccess(container, levels).result(PATIENCE)
        assert not isinstance(result, Exception)


def found(person: Person, container: str) -> Any:
    with person.session() as session:
        return session.getContainer(container).result(PATIENCE)


def test_a_file_becomes_a_container_with_its_name_time_and_media_type(alice: Person) -> None:
    write(alice.home, "sub/letter.txt", b"Dear Bob")
    [row] = alice.json("put", "sub/letter.txt")
    assert (row["name"], row["status"], row["length"]) == ("letter.txt", "stored", 8)
    container = found(alice, row["id"])
    assert container.content == b"Dear Bob"
    assert container.header.customHeaderObject == {
        "name": "letter.txt",
        "modified": "2026-03-01T12:00:00.123456Z",
        "mediaType": "text/plain",
    }
    assert container.type is None
    assert len(container.access) == 1


@pytest.mark.long
def test_an_equal_file_is_unchanged_and_a_changed_one_is_an_error_that_says_what_to_do(
    alice: Person,
) -> None:
    write(alice.home, "a.txt")
    [first] = alice.json("put", "a.txt")
    [again] = alice.json("put", "a.txt")
    assert again == {**first, "status": "unchanged"}
    write(alice.home, "a.txt", at=NOON + dt.timedelta(seconds=2))
    done = alice.run("put", "a.txt", status=1)
    assert "Your containers named 'a.txt' differ from the files" in done.error
    assert "--update" in done.error
    assert "--name" in done.error
    assert done.output == ""


def test_with_checksum_bytes_decide_whether_a_file_is_stored(alice: Person) -> None:
    """VeraCrypt, for one, keeps the time of a volume that it writes to."""
    for size in (5, 70_000):
        name = f"volume-{size}"
        write(alice.home, name, b"a" * size)
        alice.run("put", name)
        write(alice.home, name, b"b" * size)
        assert alice.json("put", name)[0]["status"] == "unchanged"
        assert "differ" in alice.run("put", name, "--checksum", status=1).error
        assert alice.json("put", name, "-c", "--update")[0]["status"] == "updated"
        write(alice.home, name, b"b" * size, NOON + dt.timedelta(days=1))
        assert alice.json("put", name, "-c")[0]["status"] == "unchanged"
        assert alice.run("cat", name).output.encode() == b"b" * size


@pytest.mark.long
def test_update_writes_content_and_header_into_the_same_container(alice: Person) -> None:
    write(alice.home, "a.txt", b"old")
    [first] = alice.json("put", "a.txt", "--type", "note")
    with alice.session() as session:
        header = session.getContainerHeader(first["id"]).result(PATIENCE)
        assert header is not None
        mine = {**header.customHeaderObject, "mine": 1}
        session.updateContainerHeader(first["id"], mine).result(PATIENCE)
    write(alice.home, "a.txt", b"newer", NOON + dt.timedelta(days=1))
    [second] = alice.json("put", "a.txt", "--update")
    assert (second["id"], second["status"], second["length"]) == (first["id"], "updated", 5)
    container = found(alice, first["id"])
    assert (container.content, container.type) == (b"newer", "note")
    assert container.header.customHeaderObject["modified"].startswith("2026-03-02")
    assert container.header.customHeaderObject["mine"] == 1
    assert alice.json("put", "a.txt", "--update")[0]["status"] == "unchanged"


@pytest.mark.long
def test_a_folder_is_stored_with_the_paths_of_its_files_and_without_links(alice: Person) -> None:
    write(alice.home, "photos/2026/a.jpg", b"jpg")
    write(alice.home, "photos/empty", b"")
    write(alice.home, "photos/large", os.urandom(200_000))
    (alice.home / "photos" / "link").symlink_to("/etc/passwd")
    (alice.home / "photos" / "folder-link").symlink_to("/etc")
    os.mkfifo(alice.home / "photos" / "pipe")
    done = alice.run("put", "-r", "photos")
    names = sorted(line.split("\t")[0] for line in done.lines)
    assert names == ["photos/2026/a.jpg", "photos/empty", "photos/large"]
    for skipped in ("photos/link", "photos/folder-link", "photos/pipe"):
        assert f"'{skipped}' is skipped" in done.error
    assert {row["status"] for row in alice.json("put", "-r", "photos")} == {"unchanged"}


def test_files_that_cannot_be_stored_are_lines_of_errors_and_the_others_are_stored(
    alice: Person,
) -> None:
    write(alice.home, "f/good", b"1")
    write(alice.home, "f/bad:name", b"2")
    write(alice.home, "f/bad:folder/x", b"2")
    alice.home.joinpath("f", os.fsdecode(b"\xff")).write_bytes(b"3")
    done = alice.run("put", "-r", "f", status=2)
    assert [line.split("\t")[0] for line in done.lines] == ["f/good"]
    assert len(done.error.splitlines()) == 3
    assert "f/bad:name" in done.error
    assert "f/bad:folder:" in done.error


@pytest.mark.long
def test_wrong_use_is_an_error_before_anything_is_sent(alice: Person) -> None:
    write(alice.home, "a/x.txt")
    write(alice.home, "b/x.txt")
    os.mkfifo(alice.home / "pipe")
    cases = [
        (("missing",), 3, "'missing' does not exist"),
        (("a",), 2, "--recursive"),
        (("a/x.txt", "b/x.txt"), 2, "would both be named 'x.txt'"),
        (("a/x.txt", "b/x.txt", "--name", "y"), 2, "--name is for one"),
        (("a/x.txt", "--name", "../y"), 2, "'..'"),
        (("a/x.txt", "--type", "t" * 257), 2, "type must have at most 256"),
        (("a/x.txt", "--share", str(uuid.uuid4())), 3, "is not a user of this broker"),
        (("a/x.txt", "b/x.txt", "--into", "y"), 2, "--into takes one file"),
        (("a/x.txt", "--into", "nothing"), 3, "nothing"),
    ]
    for arguments, status, says in cases:
        done = alice.run("put", *arguments, status=status)
        assert (says in done.error, done.output) == (True, ""), (arguments, done)
    with alice.session() as session:
        assert not session.listContainers().result(PATIENCE).containers


def test_files_that_the_broker_refuses_in_one_request_are_lines_of_errors(
    alice: Person, bob: Person
) -> None:
    alice.run("contacts", "add", card_of(bob).text, "--name", "Bob")
    bob.run("block", str(id_of(alice)))
    for name in ("a.txt", "b.txt"):
        write(alice.home, name)
    done = alice.run("put", "a.txt", "b.txt", "--share", "Bob", status=4)
    assert [line.split(":")[0] for line in done.error.splitlines() if "block" in line] == [
        "scbroker",
        "scbroker",
    ], done.error


@pytest.mark.long
def test_share_gives_new_containers_members_and_old_ones_stay_as_they_are(
    alice: Person, bob: Person
) -> None:
    with alice.session() as session:
        Contacts(session).add(card_of(bob), "Bob").result(PATIENCE)
    write(alice.home, "a.txt", b"for Bob")
    done = alice.run("put", "a.txt", "--share", "Bob")
    assert "Bob is not verified" in done.error
    assert found(bob, done.lines[0].split("\t")[3]).content == b"for Bob"
    write(alice.home, "b.txt")
    alice.run("put", "b.txt")
    done = alice.run("put", "a.txt", "b.txt", "--share", str(id_of(bob)))
    assert "--share is for new containers, and 1 existed before" in done.error
    done = alice.run("put", "b.txt", "--share", str(id_of(alice)), status=2)
    assert "--share names you" in done.error


def updating(session: ServerProvider, home: Path, container: Any) -> Any:
    """Return the result of an update from a.txt, as a command makes it that read `container` before."""
    [file] = find([str(home / "a.txt")], None, recursive=False, skipped=print, failed=print)
    with Together() as together:
        return tried(Sending(session, together).send, Step(file, container))


@pytest.mark.long
def test_an_update_that_was_cut_off_is_not_taken_for_complete(
    alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(alice.home, "a.txt", b"old1")
    [row] = alice.json("put", "a.txt")
    write(alice.home, "a.txt", b"new2", NOON + dt.timedelta(days=1))
    cut_off = errors.BrokerFaultError("The broker failed.")

    def fail(*_: Any, **__: Any) -> Any:
        raise cut_off

    with alice.session() as session:
        container = session.getContainer(row["id"]).result(PATIENCE)
        monkeypatch.setattr(session, "updateContainerHeader", fail)
        assert updating(session, alice.home, container) is cut_off
    assert found(alice, row["id"]).content == b"new2"
    assert "--update" in alice.run("put", "a.txt", status=1).error


@pytest.mark.long
def test_an_update_never_overwrites_a_version_that_the_command_has_not_seen(alice: Person) -> None:
    write(alice.home, "a.txt", b"old")
    [row] = alice.json("put", "a.txt")
    with alice.session() as session:
        container = session.getContainer(row["id"]).result(PATIENCE)
        session.updateContainerContent(row["id"], b"elsewhere").result(PATIENCE)
        result = updating(session, alice.home, container)
    assert isinstance(result, errors.ConflictError)
    assert "at version 2, not 1" in result.message
    assert found(alice, row["id"]).content == b"elsewhere"


@pytest.mark.long
def test_an_update_that_others_can_read_is_confirmed_and_names_them(
    alice: Person, bob: Person
) -> None:
    write(alice.home, "a.txt", b"old")
    [row] = alice.json("put", "a.txt")
    share(alice, row["id"], AccessLevel(id_of(bob)))
    write(alice.home, "a.txt", b"new secret")
    done = alice.run("put", "a.txt", "--update", status=2)
    assert "--yes" in done.error
    assert str(id_of(bob)) in done.error
    terminal = alice.at_terminal("put", "a.txt", "--update")
    terminal.expect("write the new versions there")
    terminal.sendline("n")
    ended(terminal, 1)
    assert found(bob, row["id"]).content == b"old"
    alice.run("put", "a.txt", "--update", "--yes")
    assert found(bob, row["id"]).content == b"new secret"


@pytest.mark.long
def test_into_writes_a_version_of_exactly_that_container(alice: Person, bob: Person) -> None:
    with bob.session() as session:
        levels = [AccessLevel(id_of(bob), 511), AccessLevel(id_of(alice), WRITER)]
        plain = session.createContainer(b"1", {"title": "T"}, levels).result(PATIENCE)
        named = session.createContainer(b"1", {"name": "n"}, levels).result(PATIENCE)
    write(alice.home, "x.txt", b"from Alice")
    [row] = alice.json("put", "x.txt", "--into", str(plain.id))
    container = found(bob, row["id"])
    assert container.content == b"from Alice"
    assert container.header.customHeaderObject == {"title": "T"}  # of another program
    assert "created the container" in alice.run("put", "x.txt", "--into", "n", status=2).error
    [row] = alice.json("put", "x.txt", "--into", "n", "--yes")
    assert row["name"] == "n"
    assert row["version"] == 3
    assert found(bob, str(named.id)).header.customHeaderObject["name"] == "n"
    alice.run("put", "-", "--into", str(named.id), stdin=b"piped")
    assert found(bob, str(named.id)).content == b"piped"
    write(alice.home, "f/1")
    write(alice.home, "f/2")
    assert "one file, not 2" in alice.run("put", "-r", "f", "--into", "n", status=2).error


@pytest.mark.long
def test_an_interrupted_put_stops_at_once_and_goes_on_where_it_stopped(
    halted: Person, halting: Halting
) -> None:
    """The answer that is due never comes. The large file has twelve chunks."""
    write(halted.home, "f/small", b"1")
    large = write(halted.home, "f/large", os.urandom(MIB) * 96)
    halting.halt_after(8)
    terminal = halted.at_terminal("put", "-r", "f")
    wait_until(lambda: len(halting.asked) >= halting.last)
    shown = interrupted(terminal)
    assert "the same command goes on" in shown
    assert "Traceback" not in shown
    halting.heal()
    rows = {row["name"]: row["status"] for row in halted.json("put", "-r", "f")}
    assert rows == {"f/small": "unchanged", "f/large": "stored"}
    assert sum(each.startswith(b"PUT ") for each in set(halting.asked[halting.last :])) < 12
    halted.run("get", "f/large", "-o", "copy")
    assert (halted.home / "copy").read_bytes() == large.read_bytes()
