"""`scbroker rm` and `scbroker mv`, with a real broker."""

import uuid
from typing import Any

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
    ended(terminal, 1)
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


def test_mv_changes_the_name_alone(alice: Person, session: ServerProvider) -> None:
    container = put(session, {"name": "a", "mine": [1, {"x": None}]})
    done = alice.json("mv", "a", "b/c.txt")
    assert done == {"id": str(container), "name": "b/c.txt", "version": 2}
    assert listed(session) == {container: {"name": "b/c.txt", "mine": [1, {"x": None}]}}
    assert "'b/c.txt' is 'd' now" in alice.run("mv", "b/c.txt", "d").error


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
        ((str(uuid.uuid4()), "b"), 3, "No container"),
    ]
    for arguments, status, says in cases:
        done = alice.run("mv", *arguments, status=status)
        assert says in done.error, done
    bob.run("mv", "a", "mine", status=4)
    assert sorted(str(each) for each in listed(session).values()) == sorted(
        ["['no object']", "{'name': 'a'}", "{'name': 'taken'}"]
    )
