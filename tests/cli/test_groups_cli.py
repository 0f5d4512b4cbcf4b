"""The commands of groups, and groups in all other commands, by people with homes of their own."""

from __future__ import annotations

import uuid
from typing import Final

import pytest

from scbroker import BrokerError
from scbroker.client.rosters import operations
from tests.cli.test_sharing import access, content, id_of, knows, store
from tests.kit.people import Person, ended, team

MISTAKES: Final[list[tuple[list[str], int, str]]] = [
    (["create", " "], 2, "A group's name must not be blank"),
    (["create", "Team"], 1, "You have a group named 'Team' already"),
    (["create", "Other", "Bbo"], 3, "add the person's card first"),
    (["create", "Other", "Bob", "--role", "boss"], 2, "pass one of reader, writer, sharer"),
    (["show", "Tem"], 3, "No group named 'Tem' is offered to you"),
    (["add", "Team", "Bob", "--role", "reader"], 2, "is a member already, as Writer: change the role"),
    (["role", "Team", "Bob", "boss"], 2, "pass one of reader, writer, sharer"),
    (["managers", "Team", "Bob", "--as", "member"], 3, "Bob is not a manager of the group"),
    (["rename", "Team"], 2, "pass a new name, or --description"),
    (["rename", "Team", "Band"], 1, "You have a group named 'Band' already"),
    (["accept", "Team"], 2, "You have accepted the group 'Team' already"),
    (["accept", "Tem"], 3, "No group named 'Tem' is offered to you"),
    (["leave", "Team", "--yes"], 2, "make another member an owner first, or pass abandon"),
    (["replace", "Team", "Team", "--yes"], 2, "Both names mean the group 'Team'"),
    (["rm", "Team"], 2, "Delete the group 'Team' for all of its 2 members? It cannot be undone. Pass --yes"),
]  # fmt: skip


def members(who: Person, group: str) -> dict[str, tuple[str, str]]:
    """Return role and place of each member by name."""
    rows = [line.split("\t") for line in who.run("groups", "members", group).lines]
    return {name: (role, manages) for name, role, manages, *_ in rows}


@pytest.mark.long
def test_a_mistake_is_an_error_that_says_what_to_do_and_changes_nothing(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob, carol)
    team(alice, "Team", bob)
    team(alice, "Band")
    before = alice.json("groups", "ls")
    for arguments, status, words in MISTAKES:
        done = alice.run("groups", *arguments, status=status)
        assert words in " ".join(done.error.split()), (arguments, done.error)
        assert done.output == ""
    assert alice.json("groups", "ls") == before


@pytest.mark.long
def test_a_name_that_means_several_is_refused_and_the_message_tells_them_apart(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob)
    [box] = store(alice, "plan")
    own = team(alice, "Bob")
    refused = alice.run("share", "plan", "bob", status=2).error
    assert id_of(bob) in refused
    assert str(own.id) in refused
    alice.run("share", "plan", str(own.id))
    assert set(access(alice, box)) == {id_of(alice), str(own.id)}
    first, second = team(alice, "Team"), team(bob, "Team", alice, carol)
    refused = alice.run("share", "plan", "Team", status=2).error
    assert f"{first.id}, 'Team', created by you" in refused
    assert f"{second.id}, 'Team', created by Bob" in refused
    (alice.home / "x").write_text("x")
    assert "means 2 groups" in alice.run("put", "x", "--to", "Team", status=2).error
    alice.run("share", "plan", str(second.id))
    assert str(second.id) in access(alice, box)
    third = team(alice, "team")
    assert "means 3 groups" in alice.run("groups", "show", "TEAM", status=2).error
    assert alice.json("groups", "show", "team")["id"] == str(third.id)


@pytest.mark.long
def test_a_group_that_is_only_offered_gets_nothing(alice: Person, bob: Person) -> None:
    [box] = store(alice, "plan")
    offered = team(bob, "Team", alice, accepted=False)
    for command in (("share", "plan", "Team"), ("share", "plan", str(offered.id)[:8])):
        refused = alice.run(*command, status=3).error
        assert "You have not accepted the group" in refused
        assert "`scbroker groups accept" in refused
    (alice.home / "a").write_text("x")
    assert "You have not accepted" in alice.run("put", "a", "--to", "Team", status=3).error
    own = team(alice, "Team")  # of the same name: an offer of others cannot get in its way
    alice.run("share", "plan", "Team")
    assert set(access(alice, box)) == {id_of(alice), str(own.id)}


@pytest.mark.long
def test_a_group_with_the_id_of_a_user_as_its_name_gets_nothing_that_is_for_the_user(
    alice: Person, bob: Person, carol: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "check_new", lambda *_: None)  # in Carol's program
    [box] = store(alice, "plan")
    team(carol, id_of(bob), alice)
    alice.run("share", "plan", id_of(bob))
    assert set(access(alice, box)) == {id_of(alice), id_of(bob)}


@pytest.mark.long
def test_offers_are_announced_after_ls_and_login_and_nothing_else_is_said(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(bob, alice)
    assert bob.run("ls").error == ""
    team(alice, "Team", bob, accepted=False)
    said = "The group 'Team', created by Alice, is offered to you: `scbroker groups accept` or"
    assert bob.run("ls").error == f"{said} `decline` it.\n"
    assert bob.run("ls", "--quiet").error == ""
    assert bob.run("ls", "--json").error == ""
    team(carol, "Choir", bob, accepted=False)
    assert bob.run("ls").error.startswith("2 groups are offered to you: `scbroker groups ls`")
    bob.run("groups", "accept", "Team")
    bob.run("groups", "decline", "Choir")
    assert bob.run("ls").error == ""


@pytest.mark.long
def test_removed_people_lose_the_containers_and_keep_access_of_their_own(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob, carol)
    team(alice, "Team", bob, carol)
    (alice.home / "a").write_text("ours")
    (alice.home / "b").write_text("ours too")
    stored = alice.json("put", "a", "b", "--to", "Team")
    first, second = (uuid.UUID(row["id"]) for row in stored)
    alice.run("share", "a", "Bob")
    done = alice.run("groups", "remove", "Team", "Bob", "Carol")
    assert "Bob and Carol are not in the group 'Team' any more" in done.error
    assert "Bob is not in the group" in alice.run("groups", "remove", "Team", "Bob", status=3).error
    for who in (bob, carol):
        with pytest.raises(BrokerError.notFoundError):
            content(who, second)
    assert content(bob, first) == b"ours"
    assert [each["name"] for each in alice.json("ls", "--with", "Team", "--with", "Bob")] == ["a"]
    assert alice.json("groups", "renew", "Team")["renewed"] == 2
    assert alice.json("groups", "renew", "Team")["renewed"] == 0


@pytest.mark.long
def test_an_owner_makes_managers_and_owners_and_takes_it_back(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob, carol)
    knows(bob, alice, carol)
    team(alice, "Team", bob)
    alice.run("groups", "managers", "Team", "Bob")
    bob.run("groups", "add", "Team", "Carol", "--role", "reader")
    carol.run("groups", "accept", "Team")
    assert alice.json("groups", "managers", "Team", "Bob", "--as", "owner")["place"] == "owner"
    assert {each[1] for each in members(alice, "Team").values()} == {"owner", ""}
    refused = alice.run("groups", "managers", "Team", "Bob", status=2).error
    assert "pass --as manager to take the ownership away" in refused
    alice.run("groups", "managers", "Team", "Bob", "--as", "manager")
    give_up = ("groups", "managers", "Team", id_of(alice), "--as", "member")
    assert "would have no owner" in alice.run(*give_up, "--yes", status=2).error
    alice.run("groups", "managers", "Team", "Bob", "Carol", "--as", "owner")
    assert "Pass --yes" in alice.run(*give_up, status=2).error
    alice.run(*give_up, "--yes")
    assert members(alice, "Team")["you"] == ("sharer", "")
    bob.run("groups", "remove", "Team", "Alice")
    assert alice.json("groups", "ls") == []


@pytest.mark.long
def test_a_group_is_renamed_for_all_and_left_and_deleted(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob)
    group = team(alice, "Team", bob, carol)
    (alice.home / "a").write_text("ours")
    alice.run("put", "a", "--to", "Team")
    alice.run("groups", "rename", "Team", "Blue", "--description", "The blue ones")
    assert bob.json("groups", "show", "blue")["description"] == "The blue ones"
    asked = bob.at_terminal("groups", "leave", "Blue")
    asked.expect("Leave the group 'Blue'")
    asked.sendline("n")
    assert "Nothing was changed" in ended(asked, 1)
    assert bob.json("groups", "leave", "Blue", "-y") == {"groupId": str(group.id), "name": "Blue"}
    assert bob.json("groups", "ls") == bob.json("ls") == []
    assert set(members(alice, "Blue")) == {"you", id_of(carol)}
    asked = alice.at_terminal("groups", "rm", "Blue")
    asked.expect("for all of its 2 members")
    asked.sendline("y")
    assert "The group 'Blue' is deleted." in ended(asked)
    assert carol.json("groups", "ls") == carol.json("ls") == []
    assert alice.json("ls")[0]["name"] == "a"


@pytest.mark.long
def test_events_of_groups_are_listed_once_by_time_and_followed(alice: Person, bob: Person) -> None:
    knows(alice, bob)
    group = team(alice, "Team", bob)
    (alice.home / "a").write_text("ours")
    [row] = alice.json("put", "a", "--to", "Team", "--type", "note")
    mine = [each for each in alice.json("events") if each["containerId"] == row["id"]]
    assert [(each["eventType"], each["groupId"]) for each in mine] == [("Added", None)]
    [his] = [each for each in bob.json("events") if each["containerId"] == row["id"]]
    assert (his["eventType"], his["groupId"], his["id"]) == ("Added", str(group.id), 1)
    [of_group] = alice.json("events", "--group", "Team")
    assert (of_group["containerId"], of_group["groupId"]) == (row["id"], str(group.id))
    assert bob.run("events", "--group", "team").lines[0].split("\t")[-1] == "Team"
    assert "You have no group" in bob.run("events", "--group", "Tem", status=3).error
    options = ("--since", "1", "--limit", "2", "--kind", "Added,Updated")
    following = bob.at_terminal("events", "--follow", "--group", "Team", *options)
    following.expect("Added")
    alice.run("mv", "a", "b")
    following.expect("Updated")
    assert "Team" in ended(following)


@pytest.mark.long
def test_an_access_that_a_former_member_gave_is_shown_and_confirmed(
    alice: Person, bob: Person, carol: Person
) -> None:
    """Carol shares a container through a group that she is removed from, before Bob's device reads it."""
    knows(alice, bob, carol)
    knows(bob, alice, carol)
    team(alice, "Team", bob, carol, role="Sharer")
    for who, name in ((alice, "plan"), (bob, "new")):
        (who.home / name).write_text(f"of {who.home.name}")
    [row] = alice.json("put", "plan", "--to", "Team")
    bob.run("cat", "plan")
    carol.run("share", "plan", id_of(bob))
    alice.run("groups", "remove", "Team", "Carol")
    put = ("put", "new", "--into", "plan", "-y")
    assert "`scbroker mark access`" in bob.run(*put, status=1).error
    mark = ("mark", "access", "plan")
    shown = bob.run(*mark).output
    assert f"changedBy\tCarol ({id_of(carol)})\n" in shown
    assert "changedVia\tgroup Team\n" in shown
    found = bob.json(*mark)
    assert len(found["after"]) == len(found["before"]) + 1
    accept = (*mark, "--accept", found["head"])
    wrong = f"{found['head'].split(':')[0]}:{'0' * 64}"
    bob.run(*mark, "--accept", wrong, "--yes", status=1)
    assert "Pass --yes" in bob.run(*accept, status=2).error
    assert "is accepted" in bob.run(*accept, "--yes").error
    assert bob.json(*mark)["head"] is None
    bob.run(*put)
    assert content(alice, uuid.UUID(row["id"])) == b"of home of Bob"
