"""Attacks by people whom the user does not know, with containers below the user's folders.

Attacks 152, 154 and 155 of attacks.toml.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scbroker import AccessLevel, Contacts, Link, ServerProvider
from scbroker.client import arguments
from scbroker.filesystem import ContainerFileSystem
from tests.kit.people import Person, befriend, offer, put, team
from tests.kit.waiting import PATIENCE

OWNER, WRITER = 511, 79


@pytest.fixture
def engine() -> str:
    """SQLite: commands know nothing of the broker's engine."""
    return "sqlite"


@pytest.fixture
def alice(person: Callable[[str], Person]) -> Person:
    return person("Alice")


@pytest.fixture
def session(alice: Person) -> Iterator[ServerProvider]:
    with alice.session() as provider:
        yield provider


@pytest.fixture
def mallory(person: Callable[[str], Person]) -> Person:
    return person("Mallory")


@pytest.fixture
def eve(mallory: Person) -> Iterator[ServerProvider]:
    with mallory.session() as provider:
        yield provider


def renamed(session: ServerProvider, member: ServerProvider, name: str) -> uuid.UUID:
    """Let a member with Upload rename a container of the session's user, and replace its content."""
    own = offer(session, member, "project/notes.txt", WRITER)
    member.updateContainerHeader(own, {"name": name}).result(PATIENCE)
    member.updateContainerContent(own, b"evil").result(PATIENCE)
    return own


def files(folder: Path) -> list[str]:
    found = (each.relative_to(folder) for each in folder.rglob("*") if each.is_file())
    return sorted(str(each) for each in found if each.parts[0] != ".scbroker-mirror")


def test_no_container_that_a_stranger_can_change_is_written_below_a_folder(
    alice: Person, session: ServerProvider, eve: ServerProvider
) -> None:
    put(session, "project/.env", b"mine")
    for name in ("project/.git/config", "project/conftest.py"):
        renamed(session, eve, name)
    done = alice.run("get", "-r", "project/", "-o", "got")
    assert "2 containers" in done.error
    assert "--everyone" in done.error
    done = alice.run("mirror", "mirrored", "--once")
    assert "2 containers" in done.error
    files_ = ContainerFileSystem(provider=session)
    files_.get("project", str(alice.home / "by fsspec"), recursive=True)
    for folder in ("got/project", "mirrored/project", "by fsspec"):
        assert files(alice.home / folder) == [".env"]


def test_no_hidden_file_is_written_that_anybody_else_can_change(
    alice: Person, session: ServerProvider, eve: ServerProvider, mallory: Person
) -> None:
    """Also with --everyone, and also if a contact can."""
    renamed(session, eve, "project/.git/config")
    renamed(session, eve, "project/\u200d.profile")
    put(session, "project/a", b"mine")
    for command in (["get", "-r", "project/", "-o", "got"], ["mirror", "mirrored", "--once"]):
        done = alice.run(*command, "--everyone", status=None)
        assert done.error.count("would make a hidden file") == 1
    everything = ["project/(U+200D).profile", "project/a"]
    assert files(alice.home / "got") == files(alice.home / "mirrored") == everything
    befriend(session, mallory, "Mallory")
    assert "2 containers (such as" in alice.run("get", "-r", "project/", "-o", "known").error
    assert "2 containers" in alice.run("mirror", "too", "--once").error
    assert files(alice.home / "known") == files(alice.home / "too") == ["project/a"]


def test_a_name_that_a_stranger_chose_stays_theirs_after_their_access_has_ended(
    alice: Person, session: ServerProvider, eve: ServerProvider, mallory: Person
) -> None:
    """The change of access makes the newest record Alice's, and the content is hers."""
    (folder := alice.home / "t").mkdir()
    ids = {}
    for name in ("a", "b", "c"):
        (folder / name).write_text(name * 5)
        os.utime(folder / name, (1, 1))
        [row] = alice.json("put", f"t/{name}", "--name", f"t/{name}")
        ids[name] = row["id"]
    user = mallory.ring.userId
    session.grantAccess([*ids.values()], AccessLevel(user, WRITER)).result(PATIENCE)
    for name, new in (("a", "t/b"), ("b", "t/a"), ("c", "t/.bashrc")):
        header = eve.getContainerHeader(ids[name]).result(PATIENCE)
        assert header is not None
        renamed = {**header.customHeaderObject, "name": new}
        eve.updateContainerHeader(ids[name], renamed).result(PATIENCE)
    session.revokeAccess([*ids.values()], user).result(PATIENCE)
    assert "3 containers" in alice.run("get", "-r", "t/", "-o", "got", status=3).error
    assert "3 containers" in alice.run("mirror", "mirrored", "--once").error
    assert files(alice.home / "mirrored") == []
    assert "'t/a' and 't/b' differ" in alice.run("put", "-r", "t", status=1).error
    with pytest.raises(PermissionError):
        ContainerFileSystem(provider=session, everyone=True).rm("t/a")
    for name in ("aside/{}", "t/{}"):
        for each, id in ids.items():
            alice.run("mv", id, name.format(each))
    assert {row["status"] for row in alice.json("put", "-r", "t")} == {"unchanged"}
    alice.run("get", "-r", "t/", "-o", "got")
    assert files(alice.home / "got") == ["t/a", "t/b", "t/c"]


def test_a_file_that_is_mirrored_stays_when_a_stranger_can_change_its_container(
    alice: Person, session: ServerProvider, eve: ServerProvider
) -> None:
    own = put(session, "a", b"mine")
    alice.run("mirror", "folder", "--once")
    session.grantAccess([own], [AccessLevel(eve.getUserId().result(PATIENCE), WRITER)]).result(
        PATIENCE
    )
    eve.updateContainerContent(own, b"evil").result(PATIENCE)
    assert "1 container" in alice.run("mirror", "folder", "--once").error
    assert files(alice.home / "folder") == ["a"]
    assert (alice.home / "folder/a").read_bytes() == b"mine"


def test_a_strangers_name_is_written_with_escapes_for_what_nobody_sees(
    alice: Person, session: ServerProvider, eve: ServerProvider
) -> None:
    own = put(session, "f/\u200fmine \u2764\ufe0f.txt")
    hers = offer(eve, session, "f/re\u200eport.txt")
    alice.run("get", "-r", "f/", "--everyone", "-o", "out")
    assert files(alice.home / "out/f") == ["re(U+200E)port.txt", "\u200fmine \u2764\ufe0f.txt"]
    assert alice.run("cat", "f/mine \u2764.txt").output == ""
    alice.run("get", str(hers), str(own), "-o", "single")
    assert files(alice.home / "single") == ["re(U+200E)port.txt", "\u200fmine \u2764\ufe0f.txt"]


def test_members_of_a_group_that_a_stranger_has_made_are_strangers(
    alice: Person, session: ServerProvider, mallory: Person, eve: ServerProvider
) -> None:
    """Who has accepted a group is the broker's word: it can say so of any group that somebody offers."""
    group = team(mallory, "Team", alice)
    levels = [AccessLevel(mallory.ring.userId, OWNER), AccessLevel(group, OWNER)]
    put(eve, "f/a", b"for you", accessLevels=levels)
    put(session, "f/b", b"mine")
    assert "1 container" in alice.run("get", "-r", "f/").error
    assert files(alice.home / "f") == ["b"]
    card = eve.getContactCard("Mallory").result(PATIENCE)
    Contacts(session).add(card).result(PATIENCE)
    alice.run("get", "-r", "f/", "-o", "later")
    assert files(alice.home / "later/f") == ["a", "b"]


def containers_of(link: Link) -> set[uuid.UUID]:
    return set(link.containerIds)


def test_no_container_of_a_stranger_goes_out_in_a_link_or_is_shared_or_deleted(
    alice: Person, session: ServerProvider, eve: ServerProvider, person: Callable[[str], Person]
) -> None:
    befriend(session, person("Bob"), "Bob")
    own = put(session, "photos/a.jpg")
    strangers = [
        offer(eve, session, "photos/holiday.exe", OWNER),
        renamed(session, eve, "photos/b.jpg"),
        offer(eve, session, "photos/read-only"),
    ]
    done = alice.run("link", "-r", "photos/", "--until", "1h")
    assert "3 containers (such as" in done.error
    [link] = session.getLinks().result(PATIENCE)
    assert containers_of(link) == {own}
    done = alice.run("share", "-r", "photos/", "--with", "Bob")
    assert "3 containers (such as" in done.error
    for each in strangers:
        members = session.getContainerMetadata(each).result(PATIENCE).access or ()
        assert len(members) == 2
    for command in ("rm", "leave"):
        assert (
            "3 containers (such as" in alice.run(command, "-r", "photos/", "-y", status=None).error
        )
    for each in strangers:
        assert session.getContainerMetadata(each).result(PATIENCE).id == each


def test_no_member_gets_more_rights_by_a_name_that_they_give_to_a_container(
    alice: Person, session: ServerProvider, mallory: Person, eve: ServerProvider
) -> None:
    """Mallory is a contact, and the command names her; the whole id shares the container."""
    user = befriend(session, mallory, "Mallory")
    put(session, "team/plan")
    diary = offer(session, eve, "diary", WRITER)
    eve.updateContainerHeader(diary, {"name": "team/diary"}).result(PATIENCE)
    share = ["share", "--with", "Mallory", "--can", "owner"]
    assert "1 container (such as 'team/diary')" in alice.run(*share, "-r", "team/").error
    assert "1 container" in alice.run("link", "-r", "team/", "--until", "1h", "--everyone").error

    def rights() -> int:
        levels = session.getContainerMetadata(diary).result(PATIENCE).access or ()
        [level] = [each for each in levels if each.userId == user]
        return level.permissions

    assert rights() == WRITER
    alice.run(*share, str(diary))
    assert rights() == OWNER


# By members who write a header that nobody can read.


class Spoilt:
    """A header that does not become JSON."""

    def model_dump_json(self) -> str:
        return "{not JSON"


@pytest.fixture
def spoil(
    session: ServerProvider, mallory: Person, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], uuid.UUID]:
    """Make a container of Alice's to which Mallory writes a header that is not JSON."""

    def make() -> uuid.UUID:
        with mallory.session() as hers:
            own = offer(session, hers, "notes.txt", WRITER)
            with monkeypatch.context() as patched:
                for check in ("_check_strict", "_check_comes_back"):  # of her program
                    patched.setattr(arguments, check, lambda *_: None)
                hers.updateContainerHeader(own, Spoilt()).result(PATIENCE)
        return own

    return make


def test_a_command_on_an_id_goes_on_without_a_header(
    alice: Person, session: ServerProvider, mallory: Person, spoil: Callable[[], uuid.UUID]
) -> None:
    user = befriend(session, mallory, "Mallory")
    spoilt = str(spoil())
    done = alice.run("info", spoilt)
    assert "header is damaged" in done.error
    assert "Mallory" in done.output
    assert "header is damaged: name a file" in alice.run("get", spoilt, status=2).error
    alice.run("get", spoilt, "-o", "saved")
    assert (alice.home / "saved").read_bytes() == b"shared"
    alice.run("revoke", spoilt, str(user))
    alice.run("mv", spoilt, "repaired.txt")
    assert alice.run("cat", "repaired.txt").output == "shared"
    for act in (
        lambda: alice.run("rm", str(spoil()), "-y"),
        lambda: ContainerFileSystem(provider=session).rm(f"id:{spoil()}"),
    ):
        act()
    assert len(alice.run("ls").lines) == 1


def test_no_command_fails_by_a_container_that_a_stranger_has_damaged(
    alice: Person, session: ServerProvider, mallory: Person, spoil: Callable[[], uuid.UUID]
) -> None:
    put(session, "photos/a", b"mine")
    spoilt = spoil()
    found = alice.json("verify")
    assert (found["verified"], found["length"], found["ofStrangers"]) == (1, 4, 1), "not even read"
    assert str(spoilt) in alice.run("verify", "--everyone", status=None).error
    commands = (
        ("ls",), ("get", "-r", "photos/", "-f"), ("mirror", "folder", "--once"),
        ("link", "-r", "photos/", "--until", "1h"), ("verify",),
    )  # fmt: skip
    for command in commands:
        done = alice.run(*command)
        assert f"scbroker info {spoilt}" in done.error or command[0] in ("mirror", "verify"), (
            command
        )
    assert str(spoilt) in alice.run("ls").output
    befriend(session, mallory, "Mallory")
    for command in commands:
        done = alice.run(*command, status=None)
        assert done.status, command
        assert str(spoilt) in done.output + done.error, command
