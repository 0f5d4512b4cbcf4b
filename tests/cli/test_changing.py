"""`scbroker rm` and `scbroker mv`, with a real broker."""

import uuid
from typing import Any

import pexpect
import pytest

from scbroker import (
    AccessLevel,
    ContactCard,
    Contacts,
    Container,
    ContainerAccessLevel,
    SecuredContainer,
    ServerProvider,
)
from tests.kit.people import Person, ended
from tests.kit.waiting import PATIENCE


def put(session: ServerProvider, header: Any, *levels: AccessLevel) -> uuid.UUID:
    own = session.getUserId().result()
    access = [AccessLevel(own, 511), *levels]
    made: SecuredContainer = session.createContainer(
        b"text", customHeaderObject=header, accessLevels=access
    ).result(PATIENCE)
    return made.id


def listed(session: ServerProvider) -> dict[uuid.UUID, Any]:
    """Return the headers of all containers by id."""
    return {
        each.id: each.header and each.header.customHeaderObject
        for each in session.listContainers().result(PATIENCE).containers
        if isinstance(each, Container)
    }


def card_of(person: Person) -> ContactCard:
    return ContactCard.parse(person.json("whoami")["card"])


@pytest.mark.long
def test_rm_asks_names_who_loses_the_container_and_deletes_it(
    alice: Person, bob: Person, session: ServerProvider
) -> None:
    contact = Contacts(session).add(card_of(bob), "Bob").result(PATIENCE)
    put(session, {"name": "a.txt"}, AccessLevel(contact))
    assert "--yes" in alice.run("rm", "a.txt", status=2).error
    terminal = alice.at_terminal("rm", "a.txt")
    terminal.expect("Delete 'a.txt' for everybody, also for Bob.*undone")
    terminal.sendline("n")
    terminal.expect("Nothing was changed")
    terminal.expect(pexpect.EOF)
    assert len(listed(session)) == 2  # with the address book
    terminal = alice.at_terminal("rm", "a.txt")
    terminal.expect("undone")
    terminal.sendline("y")
    shown = ended(terminal)
    assert len(listed(session)) == 1
    bar, _, after = shown.rpartition("STATUS")
    assert "0/1" in bar  # containers, not bytes
    assert "Deleting" not in after  # the bar does not come back after the table


@pytest.mark.long
def test_rm_of_one_s_own_container_says_so_and_prints_what_is_deleted(
    alice: Person, session: ServerProvider
) -> None:
    first, second = put(session, {"name": "a"}), put(session, None)
    assert "Delete 'a'? It cannot" in alice.run("rm", "a", status=2).error
    rows = alice.json("rm", "a", str(second), "--yes")
    assert {(row["name"], row["status"], row["id"]) for row in rows} == {
        ("a", "deleted", str(first)),
        (None, "deleted", str(second)),
    }
    assert not listed(session)


@pytest.mark.long
def test_rm_of_a_folder_deletes_what_is_below_it_alone(
    alice: Person, session: ServerProvider
) -> None:
    for name in ("f/a", "f/b/c", "f/d", "f/e", "f2/a", "f"):
        put(session, {"name": name})
    assert "4 containers ('f/" in alice.run("rm", "-r", "f/", status=2).error
    assert len(alice.run("rm", "-r", "f", "--yes").lines) == 4
    assert sorted(each["name"] for each in listed(session).values()) == ["f", "f2/a"]


@pytest.mark.long
def test_rm_without_the_permission_is_refused_and_the_others_are_deleted(
    bob: Person, session: ServerProvider
) -> None:
    mine = put(session, {"name": "hers"}, AccessLevel(card_of(bob).userId))
    hidden = ContainerAccessLevel.Download | ContainerAccessLevel.Decrypt
    unseen = put(session, {"name": "unseen"}, AccessLevel(card_of(bob).userId, hidden))
    with bob.session() as his:
        put(his, {"name": "his"})
    done = bob.run("rm", "hers", "his", "--yes", status=4)
    assert done.error.startswith("scbroker: hers: ")
    assert [line.split("\t")[0] for line in done.lines] == ["his"]
    assert "members whom you cannot see" in bob.run("rm", "unseen", status=2).error
    assert set(listed(session)) == {mine, unseen}


def test_rm_of_something_unknown_is_not_found(alice: Person) -> None:
    for arguments in (["missing"], ["-r", "missing/"], [str(uuid.uuid4())]):
        alice.run("rm", *arguments, "--yes", status=3)


def test_mv_changes_the_name_alone(alice: Person, session: ServerProvider) -> None:
    container = put(session, {"name": "a", "mine": [1, {"x": None}]})
    done = alice.json("mv", "a", "b/c.txt")
    assert done == {"id": str(container), "name": "b/c.txt", "version": 2}
    assert listed(session) == {container: {"name": "b/c.txt", "mine": [1, {"x": None}]}}
    assert "'b/c.txt' is 'd' now" in alice.run("mv", "b/c.txt", "d").error


def test_mv_names_a_container_that_has_no_header(alice: Person, session: ServerProvider) -> None:
    container = put(session, None)
    alice.run("mv", str(container), "a")
    assert listed(session) == {container: {"name": "a"}}


@pytest.mark.long
def test_mv_refuses_what_would_lose_or_confuse_something(
    alice: Person, bob: Person, session: ServerProvider
) -> None:
    title = put(session, ["no object"])
    put(session, {"name": "a"}, AccessLevel(card_of(bob).userId))
    put(session, {"name": "taken"})
    cases = [
        ((str(title), "b"), 2, "cannot be renamed"),
        (("a", "taken"), 1, "is named 'taken' already"),
        (("a", "../b"), 2, "'..'"),
        (("a", ""), 2, "empty part"),
        (("a", "b:c"), 2, "':'"),
        (("missing", "b"), 3, "missing"),
        ((str(uuid.uuid4()), "b"), 3, "No container"),
    ]
    for arguments, status, says in cases:
        done = alice.run("mv", *arguments, status=status)
        assert says in done.error, done
    bob.run("mv", "a", "mine", status=4)
    assert sorted(str(each) for each in listed(session).values()) == sorted(
        ["['no object']", "{'name': 'a'}", "{'name': 'taken'}"]
    )
