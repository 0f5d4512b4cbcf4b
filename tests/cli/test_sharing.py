"""The commands that give, take and refuse access, by people with homes of their own."""

import tomllib
import uuid
from collections.abc import Callable
from typing import Any, Final

import pexpect
import pytest

from scbroker import BrokerError, ContactCard, Contacts, Container, ContainerAccessLevel
from scbroker.cli.rights import permissions_of
from scbroker.desk import rights
from scbroker.vocabulary import ContainerAccessLevel as Level
from tests.kit.people import Person, ended
from tests.kit.waiting import PATIENCE

People = Callable[[str], Person]
STRANGER = uuid.UUID("8bc85a1e-7008-81b5-a4a4-91ea171fbdd7")


MISTAKES: Final[list[tuple[list[str], int, str]]] = [
    (["share", "plan"], 2, "No person is named: add the people after the container 'plan', or pass --with"),
    (["share"], 2, "Missing argument"),
    (["share", "plan", "Bbo"], 3, "add the person's card first"),
    (["share", "plan", "memo", "Bob"], 3, "For several containers, use --with PERSON"),
    (["share", "memo", "Bob"], 3, "You have no container named 'memo'"),
    (["share", "-r", "memo/", "Bob"], 3, "no container whose name begins with 'memo/'"),
    (["share", "plan", ""], 3, "No contact is named ''"),
    (["share", "plan", "Bob", "--can", "see"], 2, "--can cannot be 'see': pass one of read, write, manage"),
    (["share", "plan", "Bob", "--can", "Upload"], 2, "also needs Decrypt,ViewAccess"),
    (["share", "plan", "Bob", "--can", ""], 2, "--can cannot be ''"),
    (["share", "plan", "Bob", "--until", "tomorrow"], 2, "--until cannot be 'tomorrow': pass a duration"),
    (["share", "plan", "scbroker-contact:abc"], 2, "missing or mistyped"),
    (["share", "plan", "https://b.example/#scbroker-link:SECRET"], 2, "This is a link"),
    (["share", "https://b.example/#scbroker-link:SECRET", "Bob"], 2, "This is a link"),
    (["share", "plan", str(STRANGER)], 3, f"{STRANGER}"),
    (["revoke", "plan", "Bob"], 3, "Bob has no access to 'plan'"),
    (["revoke", "plan"], 2, "or pass --from PERSON"),
    (["revoke", str(STRANGER), "Bob"], 3, str(STRANGER)),
    (["leave", "plan"], 2, "Pass --yes to confirm"),
    (["leave", "plan", "-y"], 2, "delete it"),
    (["leave", str(STRANGER), "-y"], 3, str(STRANGER)),
    (["unblock", "Bob"], 3, "Bob is not blocked: `scbroker blocked` lists"),
    (["block", str(STRANGER)], 3, str(STRANGER)),
]  # fmt: skip


@pytest.fixture
def alice(person: People) -> Person:
    return person("Alice")


@pytest.fixture
def bob(person: People) -> Person:
    return person("Bob")


@pytest.fixture
def carol(person: People) -> Person:
    return person("Carol")


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
def test_a_container_is_shared_with_a_contact_who_reads_it_and_all_others_keep_theirs(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob, carol)
    [box] = store(alice, "report.pdf")
    shared = alice.json("share", "report.pdf", "Bob")
    assert shared["containerIds"] == [str(box)]
    [entry] = shared["access"]
    assert (entry["userId"], entry["name"], entry["expiresAt"]) == (id_of(bob), "Bob", None)
    assert entry["permissions"] == ["Download", "Decrypt", "ViewAccess", "ViewType"]
    assert content(bob, box) == b"of report.pdf"
    done = alice.run("share", str(box), "Carol", "--can", "owner", "--until", "7d")
    assert done.error.startswith(f"Carol has access to '{box}' until 20")
    assert done.error.endswith(" UTC: owner.\n")
    assert access(alice, box) == {
        id_of(alice): rights.WORDS["owner"],
        id_of(bob): rights.READ,
        id_of(carol): rights.WORDS["owner"],
    }


@pytest.mark.long
def test_several_containers_are_shared_with_several_people_in_one_command(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob, carol)
    boxes = store(alice, "a.txt", "photos/1.jpg", "photos/2.jpg", "photos-of-others.txt")
    done = alice.run("share", "a.txt", "photos/1.jpg", "--with", "Bob", "--with", "Carol")
    assert done.error == "Bob and Carol have access to 'a.txt' and 'photos/1.jpg': read.\n"
    alice.run("share", "-r", "photos", "Carol", "--can", "decrypt, Download")
    members = [access(alice, each) for each in boxes]
    both, only = rights.READ, Level.Decrypt | Level.Download
    assert [each.get(id_of(bob)) for each in members] == [both, both, None, None]
    assert [each.get(id_of(carol)) for each in members] == [both, only, only, None]
    done = alice.run("revoke", "-r", "photos/", "--from", "Carol", "--from", "Bob")
    assert (
        "Carol and Bob have no access to 'photos/1.jpg' and 'photos/2.jpg' any more" in done.error
    )
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
    assert access(alice, box)[id_of(bob)] == rights.WORDS["write"]
    alice.run("share", "plan", "Bob", "--can", "read")
    assert access(alice, box)[id_of(bob)] == rights.READ
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
    assert access(alice, box) == {id_of(alice): rights.WORDS["owner"]}


@pytest.mark.long
def test_nobody_shares_with_themselves_or_revokes_their_own_access(alice: Person) -> None:
    [box] = store(alice, "plan")
    me = id_of(alice)
    assert "You have access already" in alice.run("share", "plan", me, status=2).error
    assert "run `scbroker leave`" in alice.run("revoke", "plan", card_of(alice), status=2).error
    assert "Name another person" in alice.run("block", me, status=2).error
    assert access(alice, box) == {me: rights.WORDS["owner"]}


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
    assert (
        "anybody can make a card that says 'Carol'"
        in alice.run("share", "plan", card_of(carol)).error
    )
    dave = person("Dave")
    assert (
        f"an id alone does not say who the user {id_of(dave)} is"
        in alice.run("share", "plan", id_of(dave)).error
    )
    knows(alice, dave)
    alice.run("revoke", "plan", id_of(dave))
    assert "Warning" not in alice.run("share", "plan", card_of(dave)).error
    alice.run("revoke", "plan", "Dave")
    assert alice.run("share", "plan", id_of(dave)).error == "Dave has access to 'plan': read.\n"


@pytest.mark.long
def test_a_revoked_person_cannot_read_and_the_message_says_that_the_key_is_new(
    alice: Person, bob: Person
) -> None:
    knows(alice, bob)
    [box] = store(alice, "plan")
    alice.run("share", "plan", "Bob")
    done = alice.run("revoke", "plan", "Bob")
    assert (
        "Bob has no access to 'plan' any more. A new key keeps Bob from what is written"
        in done.error
    )
    with pytest.raises(BrokerError.notFoundError):
        content(bob, box)
    alice.run("share", "plan", "Bob")
    assert alice.json("revoke", "plan", "Bob") == {
        "containerIds": [str(box)],
        "userIds": [id_of(bob)],
    }


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
    assert f"scbroker: {STRANGER}: " in done.error
    assert "scbroker: theirs: Your access to this container lacks " in done.error
    assert "Carol has access to 'own': read." in done.error
    assert id_of(carol) in access(bob, own[0])
    assert id_of(carol) not in access(bob, theirs[0])
    shared: Any = bob.json("share", *arguments, "--until", "2d", status=3)
    assert shared["containerIds"] == [str(own[0])]
    assert shared["access"][0]["expiresAt"].endswith("Z")


@pytest.mark.long
def test_a_member_shares_no_more_and_for_no_longer_than_their_own_access(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob)
    knows(bob, alice, carol)
    knows(carol, bob)
    [box] = store(alice, "plan")
    alice.run("share", "plan", "Bob", "--can", "manage", "--until", "1d")
    for command, words in (
        (("share", "plan", "Carol"), "beyond your own access"),
        (("share", "plan", "Carol", "--until", "2d"), "beyond your own access"),
        (("share", "plan", "Carol", "--can", "owner", "--until", "1h"), "beyond your own access"),
        (("share", "plan", "Alice", "--can", "read", "--until", "1h"), "beyond your own access"),
        (("revoke", "plan", "Alice"), "beyond your own access"),
    ):  # fmt: skip
        assert words in bob.run(*command, status=4).error
    bob.run("share", "plan", "Carol", "--until", "1h")
    assert " lacks " in carol.run("revoke", "plan", "Bob", status=4).error
    assert set(access(alice, box)) == {id_of(alice), id_of(bob), id_of(carol)}


def test_the_address_book_cannot_be_shared(alice: Person, bob: Person) -> None:
    knows(alice, bob)
    with alice.session() as session:
        [book] = session.listContainers("scbroker.contacts").result(PATIENCE).containers
    assert isinstance(book, Container)
    refused = alice.run("share", str(book.id), "Bob", status=2)
    assert "is for your contacts and your links" in refused.error


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
    asked.expect("You have no access to 'plan' any more")
    asked.expect(pexpect.EOF)
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
    assert "Alice" in refused
    assert id_of(alice) not in refused
    assert alice.json("unblock", "Bob")["name"] == "Bob"
    assert alice.json("blocked") == []
    bob.run("share", "spam", "Alice")
    knows(bob)
    assert alice.run("block", id_of(bob)).error.startswith("Bob cannot share containers with you")


@pytest.mark.long
def test_hostile_names_of_people_and_containers_do_not_act_on_the_terminal(
    alice: Person, bob: Person
) -> None:
    knows(alice, bob)
    store(alice, "a\x1b[2Jb")
    done = alice.run("share", "a\x1b[2Jb", "Bob")
    assert "\x1b" not in done.error
    assert "\x1b" not in alice.run("share", "a\x1b[2Jb", "\x1b[31mBob", status=3).error


def test_the_words_for_permissions_are_read_and_said_back() -> None:
    for word, permissions in rights.WORDS.items():
        assert permissions_of(word.upper()) == permissions
        assert rights.in_words(permissions) == word
        assert not permissions.missing()
    assert rights.in_words(Level.Decrypt | Level.Download) == "Download,Decrypt"
    assert permissions_of(None) is None
