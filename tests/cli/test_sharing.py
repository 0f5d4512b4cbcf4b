"""The commands that give, take and refuse access, by people with homes of their own."""

import tomllib
import uuid
from collections.abc import Callable
from typing import Final

import pytest

from scbroker import BrokerError, ContactCard, Contacts, ContainerAccessLevel
from scbroker.cli.commands.sharing import permissions_of
from scbroker.desk.people import READ, WORDS, in_words
from scbroker.vocabulary import ContainerAccessLevel as Level
from tests.kit.people import Person, ended
from tests.kit.waiting import PATIENCE

People = Callable[[str], Person]
STRANGER = uuid.UUID("8bc85a1e-7008-81b5-a4a4-91ea171fbdd7")


MISTAKES: Final[list[tuple[list[str], int, str]]] = [
    (["share", "plan"], 2, "No person is named: add the people after the container 'plan', or pass --with"),
    (["share", "plan", "Bbo"], 3, "add the person's card first"),
    (["share", "plan", "memo", "Bob"], 3, "For several containers, use --with PERSON"),
    (["share", "-r", "memo/", "Bob"], 3, "no container whose name begins with 'memo/'"),
    (["share", "plan", "Bob", "--can", "see"], 2, "--can cannot be 'see': pass one of read, write, manage"),
    (["share", "plan", "Bob", "--until", "tomorrow"], 2, "--until cannot be 'tomorrow': pass a duration"),
    (["share", "plan", "https://b.example/#scbroker-link:SECRET"], 2, "This is a link"),
    (["share", "https://b.example/#scbroker-link:SECRET", "Bob"], 2, "This is a link"),
    (["revoke", "plan", "Bob"], 3, "Bob has no access to 'plan'"),
    (["leave", "plan"], 2, "Pass --yes to confirm"),
    (["leave", "plan", "-y"], 2, "delete it"),
]  # fmt: skip


def card_of(who: Person) -> str:
    return own_card(who).text


def id_of(who: Person) -> str:
    return str(own_card(who).userId)


def own_card(who: Person) -> ContactCard:
    """Return what `scbroker whoami` shows, without the time that a command takes."""
    fields = tomllib.loads(who.config.read_text("utf-8"))["profiles"]["default"]
    return ContactCard(fields["fingerprint"], fields["server_url"], fields["card_name"])


def knows(who: Person, *others: Person, verified: bool = True) -> None:
    """Put people into the contacts of another one, under the names of their cards."""
    with who.session() as session:
        for other in others:
            Contacts(session).add(own_card(other), verified=verified).result(PATIENCE)


def store(who: Person, *names: str) -> list[uuid.UUID]:
    """Store a container for each name."""
    with who.session() as session:
        return [
            session.createContainer(b"of " + n.encode(), {"name": n}).result(PATIENCE).id
            for n in names
        ]


def access(who: Person, container: uuid.UUID) -> dict[str, ContainerAccessLevel]:
    """Return the permissions of each member by user id."""
    with who.session() as session:
        levels = session.getContainerMetadata(container).result(PATIENCE).access
    assert levels is not None
    return {str(level.userId): level.permissions for level in levels}


def content(who: Person, container: uuid.UUID) -> bytes | None:
    with who.session() as session:
        return session.getContainerContent(container).result(PATIENCE)


@pytest.mark.long
def test_several_containers_are_shared_with_several_people_in_one_command(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob, carol)
    boxes = store(alice, "a.txt", "photos/1.jpg", "photos/2.jpg", "photos-of-others.txt")
    done = alice.run("share", "a.txt", "photos/1.jpg", "--with", "Bob", "--with", "Carol")
    assert "Bob and Carol have access" in done.error
    alice.run("share", "-r", "photos", "Carol", "--can", "decrypt, Download")
    members = [access(alice, each) for each in boxes]
    both, only = READ, Level.Decrypt | Level.Download
    assert [each.get(id_of(bob)) for each in members] == [both, both, None, None]
    assert [each.get(id_of(carol)) for each in members] == [both, only, only, None]
    alice.run("revoke", "-r", "photos/", "--from", "Carol", "--from", "Bob")
    assert all(len(access(alice, each)) == 1 for each in boxes[1:])
    assert len(access(alice, boxes[0])) == 3


@pytest.mark.long
def test_permissions_that_a_person_has_are_not_taken_without_being_named(
    alice: Person, bob: Person
) -> None:
    knows(alice, bob)
    [box] = store(alice, "plan")
    alice.run("share", "plan", "Bob", "--can", "write")
    refused = alice.run("share", "plan", "Bob", "--until", "1d", status=2).error
    assert "Bob has more permissions on 'plan' than to read it (write): pass --can" in refused
    assert access(alice, box)[id_of(bob)] == WORDS["write"]
    alice.run("share", "plan", "Bob", "--can", "read")
    assert access(alice, box)[id_of(bob)] == READ
    alice.run("share", "plan", "Bob")


@pytest.mark.long
def test_a_mistake_is_an_error_that_says_what_to_do_and_changes_nothing(
    alice: Person, bob: Person
) -> None:
    knows(alice, bob)
    [box] = store(alice, "plan")
    for arguments, status, words in MISTAKES:
        done = alice.run(*arguments, status=status)
        assert words in done.error.replace("\n", " "), (arguments, done.error)
        assert "SECRET" not in done.error
        assert done.output == ""
    assert access(alice, box) == {id_of(alice): WORDS["owner"]}


@pytest.mark.long
def test_the_first_share_with_somebody_who_is_not_verified_warns_and_says_how_to_verify(
    alice: Person, bob: Person, carol: Person, person: People
) -> None:
    knows(alice, bob, verified=False)
    store(alice, "plan")
    first = alice.run("share", "plan", "Bob").error
    assert "Warning: Bob is not verified" in first
    assert "scbroker contacts verify Bob" in first
    assert "Warning" not in alice.run("share", "plan", "Bob", "--until", "1d").error
    assert "anybody can make a card" in alice.run("share", "plan", card_of(carol)).error
    dave = person("Dave")
    assert "an id alone does not say who" in alice.run("share", "plan", id_of(dave)).error
    knows(alice, dave)
    alice.run("revoke", "plan", id_of(dave))
    assert "Warning" not in alice.run("share", "plan", card_of(dave)).error


@pytest.mark.long
def test_containers_that_cannot_be_shared_are_reported_and_the_others_are_shared(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob, carol)
    knows(bob, carol)
    theirs, own = store(alice, "theirs"), store(bob, "own")
    alice.run("share", "theirs", "Bob")
    arguments = ("theirs", str(STRANGER), "own", "--with", "Carol")
    done = bob.run("share", *arguments, status=3)
    assert f"{STRANGER}: " in done.error
    assert "theirs: Your access to this container lacks " in done.error
    assert id_of(carol) in access(bob, own[0])
    assert id_of(carol) not in access(bob, theirs[0])


@pytest.mark.long
def test_a_member_leaves_after_a_question_and_the_last_who_may_share_only_with_abandon(
    alice: Person, bob: Person
) -> None:
    knows(alice, bob)
    [box, other] = store(alice, "plan", "other")
    alice.run("share", "plan", "other", "--with", "Bob")
    asked = bob.at_terminal("leave", "plan")
    asked.expect(r"Give up your access to 'plan'\? \[y/N\]")
    asked.sendline("n")
    assert "Nothing was changed" in ended(asked, 1)
    asked = bob.at_terminal("leave", "plan")
    asked.expect(r"\[y/N\]")
    asked.sendline("y")
    assert "You have no access to 'plan' any more" in ended(asked)
    assert id_of(bob) not in access(alice, box)
    assert "abandon" in alice.run("leave", "other", "--yes", status=2).error
    left = alice.json("leave", str(STRANGER), "other", "--yes", "--abandon", status=3)
    assert left == {"containerIds": [str(other)]}
    with pytest.raises(BrokerError.notFoundError):
        content(alice, other)


@pytest.mark.long
def test_a_blocked_person_cannot_share_until_unblocked_and_is_listed_by_name(
    alice: Person, bob: Person
) -> None:
    knows(alice, bob)
    knows(bob, alice)
    store(bob, "spam")
    assert alice.json("block", "Bob") == {"userId": id_of(bob), "name": "Bob"}
    assert alice.run("blocked").lines == [f"Bob\t{id_of(bob)}"]
    refused = bob.run("share", "spam", "Alice", status=4).error
    assert f"User {id_of(alice)} has blocked you" in refused
    assert alice.json("unblock", "Bob")["name"] == "Bob"
    assert alice.json("blocked") == []
    bob.run("share", "spam", "Alice")
    knows(bob)
    assert alice.run("block", id_of(bob)).error.startswith("Bob cannot share containers with you")


def test_the_words_for_permissions_are_read_and_said_back() -> None:
    for word, permissions in WORDS.items():
        assert permissions_of(word.upper()) == permissions
        assert in_words(permissions) == word
        assert not permissions.missing()
    assert in_words(Level.Decrypt | Level.Download) == "Download,Decrypt"
    assert permissions_of(None) is None
