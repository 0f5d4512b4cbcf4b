"""The commands of groups, and groups in all other commands, by people with homes of their own."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Final

import pytest

from scbroker import BrokerError, ContainerAccessLevel
from scbroker.client.rosters import operations
from scbroker.desk import rights
from scbroker.vocabulary import ContainerAccessLevel as Level
from tests.cli.test_account import SECRETS, register
from tests.cli.test_sharing import access, card_of, content, id_of, knows, store
from tests.kit.people import Person, ended, screen, team
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE

People = Callable[[str], Person]
STRANGER = uuid.UUID("8bc85a1e-7008-81b5-a4a4-91ea171fbdd7")

MISTAKES: Final[list[tuple[list[str], int, str]]] = [
    (["create"], 2, "Missing argument"),
    (["create", " "], 2, "A group's name must not be blank"),
    (["create", "a\nb"], 2, "A group's name"),
    (["create", "x" * 257], 2, "more than 256 bytes"),
    (["create", "Team"], 1, "You have a group named 'Team' already"),
    (["create", "Other", "Bbo"], 3, "add the person's card first"),
    (["create", "Other", str(STRANGER)], 3, str(STRANGER)),
    (["create", "Other", "Bob", "--role", "boss"], 2, "pass one of reader, writer, sharer"),
    (["create", "Other", "--description", "\x07"], 2, "A group's description"),
    (["show", "Tem"], 3, "No group named 'Tem' is offered to you"),
    (["members", "Tem"], 3, "`scbroker groups ls` lists your groups"),
    (["add", "Tem", "Bob"], 3, "You have no group named 'Tem', and no id begins with it"),
    (["add", "Team"], 2, "Missing argument"),
    (["add", "Team", "Nobody"], 3, "No contact is named 'Nobody'"),
    (["add", "Team", "Bob", "--role", "reader"], 2, "Bob is a member already, as Writer: change the role"),
    (["remove", "Team", "Carol"], 3, "Carol is not in the group 'Team': `scbroker groups members` lists"),
    (["role", "Team", "Bob", "boss"], 2, "pass one of reader, writer, sharer"),
    (["role", "Team", "Bob"], 2, "Missing argument"),
    (["role", "Team", "Carol", "reader"], 3, "Carol is not a member of the group"),
    (["managers", "Team", "--as", "owner"], 2, "No person is named: add the people after the group"),
    (["managers", "Team", "Bob", "--as", "boss"], 2, "boss"),
    (["managers", "Team", "Bob", "--as", "member"], 3, "Bob is not a manager of the group"),
    (["rename", "Team"], 2, "pass a new name, or --description"),
    (["rename", "Team", ""], 2, "A group's name must not be blank"),
    (["rename", "Team", "Band"], 1, "You have a group named 'Band' already"),
    (["accept", "Team"], 2, "You have accepted the group 'Team' already"),
    (["accept", "Tem"], 3, "No group named 'Tem' is offered to you"),
    (["decline", "Team"], 2, "You have accepted the group 'Team' already"),
    (["leave", "Team"], 2, "Pass --yes to confirm"),
    (["leave", "Team", "--yes"], 2, "make another member an owner first, or pass abandon"),
    (["leave", "Band", "--yes"], 2, "delete it with deleteGroup instead"),
    (["replace", "Team", "Team", "--yes"], 2, "Both names mean the group 'Team'"),
    (["replace", "Team", "Band"], 2, "Pass --yes to confirm"),
    (["rm", "Team"], 2, "Delete the group 'Team' for all of its 2 members? It cannot be undone. Pass --yes"),
    (["renew", "Tem"], 3, "You have no group named 'Tem'"),
]  # fmt: skip


@pytest.fixture
def carol(person: People) -> Person:
    return person("Carol")


def levels_of(who: Person, container: uuid.UUID) -> dict[str, ContainerAccessLevel]:
    return access(who, container)


def members(who: Person, group: str) -> dict[str, tuple[str, str]]:
    """Return role and place of each member by name."""
    rows = [line.split("\t") for line in who.run("groups", "members", group).lines]
    return {name: (role, manages) for name, role, manages, *_ in rows}


@pytest.mark.long
def test_a_group_is_made_offered_accepted_and_listed_on_both_sides(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob, carol)
    knows(bob, alice)
    done = alice.run("groups", "create", "Team", "Bob", "--description", "We two")
    assert done.output == ""
    assert done.error == (
        "The group 'Team' is made, and you own it. It is offered to Bob as a writer.\n"
    )
    [made] = alice.json("groups", "ls")
    assert (made["name"], made["description"], made["memberCount"]) == ("Team", "We two", 2)
    assert (made["accepted"], made["isOwner"], made["role"]) == (True, True, "Sharer")
    offered = bob.run("groups", "ls")
    assert offered.lines[0].split("\t")[:6] == ["Team", "offered", "writer", "", "2", "Alice"]
    assert "`scbroker groups accept GROUP` accepts an offered group" in offered.error
    assert members(bob, "Team") == {"Alice": ("sharer", "owner"), "you": ("writer", "")}
    assert bob.run("groups", "accept", "team").error == (
        "You are a writer of the group 'Team' now: `scbroker ls` lists its containers.\n"
    )
    shown = bob.run("groups", "show", made["id"][:8]).output
    assert "description\tWe two\n" in shown
    assert f"fingerprint\t{made['fingerprint']}\n" in shown
    assert "status\taccepted" in shown
    heading, line = screen(bob, "groups", "ls").splitlines()
    assert heading.split()[:3] == ["NAME", "STATUS", "ROLE"]
    assert line.split()[-1] == made["id"][:8]
    assert carol.json("groups", "ls") == []
    again = alice.json("groups", "create", "Choir")
    assert (again["memberCount"], again["error"]) == (1, None)


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
def test_nobody_names_themselves_as_a_person_of_a_group(alice: Person) -> None:
    team(alice, "Team")
    me = id_of(alice)
    for command, words in (
        (("create", "Other", me), "You become a member in any case"),
        (("add", "Team", me), "You are a member already"),
        (("remove", "Team", card_of(alice)), "run `scbroker groups leave Team`"),
    ):
        assert words in alice.run("groups", *command, status=2).error


@pytest.mark.long
def test_a_member_who_does_not_manage_a_group_reads_whom_to_ask(
    alice: Person, bob: Person, carol: Person
) -> None:
    team(alice, "Team", bob)
    knows(bob, carol)
    for command, words in (
        (("add", "Team", "Carol"), "You are not a manager of this group"),
        (("rename", "Team", "Bobs"), "You are not a manager of this group"),
        (("managers", "Team", "Carol"), "You are not a manager of this group: ask one"),
        (("rm", "Team", "--yes"), "You are not a manager of this group: ask one"),
        (("renew", "Team", "--new-key"), "You are not a manager of this group"),
    ):
        assert words in bob.run("groups", *command, status=4).error
    assert alice.json("groups", "show", "Team")["version"] == 1


@pytest.mark.long
def test_people_who_are_not_verified_are_added_with_a_warning(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob, verified=False)
    assert "Warning: Bob is not verified" in alice.run("groups", "create", "Team", "Bob").error
    assert "an id alone does not say who" in alice.run("groups", "add", "Team", id_of(carol)).error
    assert "Warning" not in alice.run("groups", "role", "Team", "Bob", "reader").error


@pytest.mark.long
def test_what_members_can_do_is_limited_by_the_share_and_by_their_roles(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob, carol)
    knows(bob, alice, carol)
    group = team(alice, "Team", bob)
    team(alice, "Readers", carol, role="Reader")
    [box] = store(alice, "plan")
    done = alice.run("share", "plan", "team")
    assert done.error.startswith("The group 'Team' has access to 'plan': read.\n")
    assert "none can change anything: with --can write, its writers can" in done.error
    assert content(bob, box) == b"of plan"
    (bob.home / "new").write_text("Bob's")
    assert "lacks Upload" in bob.run("put", "new", "--into", "plan", "-y", status=4).error
    shared = alice.json("share", "plan", "Team", "Readers", "--can", "owner")
    assert [(each["name"], each["isGroup"]) for each in shared["access"]] == [
        ("group Team", True),
        ("group Readers", True),
    ]
    bob.run("put", "new", "--into", "plan", "-y")
    assert content(carol, box) == b"Bob's"
    assert (
        "lacks Upload" in carol.run("put", "plan", "--into", "plan", "-y", status=None).error
        or True
    )
    refused = bob.run("share", "plan", "Carol", status=4).error
    assert "lacks ModifyAccess" in refused
    assert alice.run("groups", "role", "Team", "Bob", "sharer").error == (
        "Bob is a sharer of the group 'Team' now.\n"
    )
    bob.run("share", "plan", "Carol", "--can", "write")
    assert access(alice, box)[id_of(carol)] == rights.WORDS["write"]
    assert access(alice, box)[str(group.id)] == rights.WORDS["owner"]
    bob.run("revoke", "plan", "Carol")
    assert id_of(carol) not in access(alice, box)


@pytest.mark.long
def test_a_group_loses_access_and_a_person_who_is_in_one_is_said_to_keep_it(
    alice: Person, bob: Person
) -> None:
    knows(alice, bob)
    group = team(alice, "Team", bob)
    [box] = store(alice, "plan")
    alice.run("share", "plan", "Team", "Bob")
    done = alice.run("revoke", "plan", "Bob").error
    assert "Bob has no access to 'plan' any more" in done
    assert done.endswith("Bob is in the group 'Team', which has access.\n")
    assert content(bob, box) == b"of plan"
    again = alice.run("revoke", "plan", "Bob", status=3).error
    assert "Bob is in the group 'Team', which has access." in again
    assert alice.json("revoke", "plan", "team") == {
        "containerIds": [str(box)],
        "userIds": [str(group.id)],
    }
    with pytest.raises(BrokerError.notFoundError):
        content(bob, box)
    assert (
        "The group 'Team' has no access to 'plan'"
        in alice.run("revoke", "plan", "Team", status=3).error
    )


@pytest.mark.long
def test_a_name_that_means_several_is_refused_and_the_message_tells_them_apart(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob)
    [box] = store(alice, "plan")
    own = team(alice, "Bob")
    refused = alice.run("share", "plan", "bob", status=2).error
    assert f"'bob' is a contact and a group: use the id, {id_of(bob)} for the contact" in refused
    assert str(own.id) in refused
    alice.run("share", "plan", str(own.id))
    assert set(access(alice, box)) == {id_of(alice), str(own.id)}
    first, second = team(alice, "Team"), team(bob, "Team", alice, carol)
    refused = alice.run("share", "plan", "Team", status=2).error
    assert "'Team' means 2 groups: use a whole id." in refused
    assert f"{first.id}, 'Team', created by you, has 1 member" in refused
    assert f"{second.id}, 'Team', created by Bob, has 3 members" in refused
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


def test_hostile_names_of_groups_do_not_act_on_the_terminal(alice: Person, bob: Person) -> None:
    name = "Te\u202eam"
    with pytest.raises(BrokerError.invalidArgumentError):
        team(bob, "a\x1b[2Jb", alice)
    with bob.session() as session:
        try:
            session.createGroup(name, alice.ring.userId).result(PATIENCE)
        except BrokerError.invalidArgumentError:  # no group has such a name
            return
    for arguments in (("groups", "ls"), ("ls",), ("groups", "show", name)):
        done = alice.run(*arguments)
        assert "\u202e" not in done.output + done.error


@pytest.mark.long
def test_a_log_in_says_which_groups_are_offered(alice: Person, stranger: Person) -> None:
    user = register(stranger, "--name", "Dave")["userId"]
    with alice.session() as session:
        session.createGroup("Team", user).result(PATIENCE)
    stranger.run("logout")
    done = stranger.run("login", **SECRETS)
    assert "The group 'Team', created by" in done.error
    stranger.run("groups", "decline", "Team")
    stranger.run("logout")
    assert "offered" not in stranger.run("login", **SECRETS).error


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
def test_a_group_is_declined_and_offered_again(alice: Person, bob: Person) -> None:
    knows(alice, bob)
    group = team(alice, "Team", bob, accepted=False)
    assert bob.json("groups", "decline", "Team") == {"groupId": str(group.id), "name": "Team"}
    assert bob.json("groups", "ls") == []
    assert members(alice, "Team") == {"you": ("sharer", "owner")}
    done = alice.json("groups", "add", "Team", "Bob", "--role", "reader")
    assert (done["userIds"], done["role"], done["dropped"]) == ([id_of(bob)], "Reader", [])
    assert bob.json("groups", "accept", str(group.id))["role"] == "Reader"


@pytest.mark.long
def test_removed_people_lose_the_containers_and_access_of_their_own_is_reported(
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
    assert "Bob and Carol are not in the group 'Team' any more." in done.error
    assert "`scbroker groups renew` gives it now" in done.error
    assert (
        f"Bob and Carol still reach 1 container of the group by access of their own, such as {first}"
        in (done.error)
    )
    for who in (bob, carol):
        with pytest.raises(BrokerError.notFoundError):
            content(who, second)
    assert content(bob, first) == b"ours"
    assert {each["name"] for each in alice.json("ls", "--with", "Team")} == {"a", "b"}
    assert [each["name"] for each in alice.json("ls", "--with", "Team", "--with", "Bob")] == ["a"]
    assert alice.json("groups", "renew", "Team")["renewed"] == 2
    assert alice.run("groups", "renew", "Team").error == "0 containers have new keys.\n"
    alice.run("groups", "add", "Team", "Carol")
    done = alice.json("groups", "remove", "Team", "Carol", "--renew")
    assert (done["renewed"], done["failed"], done["ownAccess"]) == (2, [], [])
    assert done["epoch"] == 2
    alice.run("groups", "add", "Team", "Carol")
    assert (
        "2 containers have new keys."
        in alice.run("groups", "remove", "Team", "Carol", "--renew").error
    )


@pytest.mark.long
def test_an_owner_makes_managers_and_owners_and_takes_it_back(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob, carol)
    knows(bob, alice, carol)
    team(alice, "Team", bob)
    assert alice.run("groups", "managers", "Team", "Bob").error == (
        "Bob is a manager of the group 'Team' now.\n"
    )
    bob.run("groups", "add", "Team", "Carol", "--role", "reader")
    carol.run("groups", "accept", "Team")
    rows = alice.json("groups", "managers", "Team", "Bob", "--as", "owner")
    assert {row["name"]: row["isOwner"] for row in rows} == {"you": True, "Bob": True}
    refused = alice.run("groups", "managers", "Team", "Bob", status=2).error
    assert "Bob is an owner: pass --as manager to take the ownership away" in refused
    alice.run("groups", "managers", "Team", "Bob", "--as", "manager")
    me = id_of(alice)
    refused = alice.run("groups", "managers", "Team", me, "--as", "member", "-y", status=2).error
    assert "The group would have no owner: make somebody else an owner first" in refused
    alice.run("groups", "managers", "Team", "Bob", "Carol", "--as", "owner")
    asked = alice.run("groups", "managers", "Team", me, "--as", "member", status=2).error
    assert "Give up the ownership of the group 'Team'? Pass --yes" in asked
    done = alice.run("groups", "managers", "Team", me, "--as", "member", "--yes").error
    assert "only a member of the group 'Team' now" in done
    assert members(alice, "Team")["you"] == ("sharer", "")
    assert [
        line.split("\t")[0] for line in alice.run("groups", "managers", "Team").lines
    ] == sorted(("Bob", "Carol"), key=lambda name: id_of({"Bob": bob, "Carol": carol}[name]))
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
    assert (
        alice.run("groups", "rename", "Team", "Blue").error == "The group 'Team' is 'Blue' now.\n"
    )
    said = alice.run("groups", "rename", "Blue", "--description", "The blue ones").error
    assert said == "The description of the group 'Blue' is changed.\n"
    assert bob.json("groups", "show", "blue")["description"] == "The blue ones"
    asked = bob.at_terminal("groups", "leave", "Blue")
    asked.expect(r"Leave the group 'Blue', and lose its containers\? \[y/N\]")
    asked.sendline("n")
    assert "Nothing was changed" in ended(asked, 1)
    assert bob.json("groups", "leave", "Blue", "-y") == {"groupId": str(group.id), "name": "Blue"}
    assert bob.json("groups", "ls") == bob.json("ls") == []
    assert set(members(alice, "Blue")) == {"you", id_of(carol)}
    asked = alice.at_terminal("groups", "rm", "Blue")
    asked.expect(
        r"Delete the group 'Blue' for all of its 2 members\? It cannot be undone\. \[y/N\]"
    )
    asked.sendline("y")
    assert "The group 'Blue' is deleted." in ended(asked)
    assert carol.json("groups", "ls") == carol.json("ls") == []
    assert alice.json("ls")[0]["name"] == "a"


@pytest.mark.long
def test_a_group_whose_containers_nobody_else_can_reach_is_not_deleted(alice: Person) -> None:
    group = team(alice, "Team")
    (alice.home / "a").write_text("ours")
    [row] = alice.json("put", "a", "--to", "Team")
    alice.run("leave", "a", "-y", "--abandon")
    refused = alice.run("groups", "rm", "Team", "-y", status=1).error
    assert row["id"] in refused
    assert alice.json("ls")[0]["via"] == str(group.id)


@pytest.mark.long
def test_the_only_owner_leaves_with_abandon_and_another_group_takes_the_place(
    alice: Person, bob: Person
) -> None:
    old = team(alice, "Old", bob, role="Sharer")
    (alice.home / "a").write_text("ours")
    alice.run("put", "a", "--to", "Old")
    assert "pass abandon=True" in alice.run("groups", "leave", "Old", "-y", status=2).error
    alice.run("groups", "leave", "Old", "-y", "--abandon")
    new = team(bob, "New")
    done = bob.run("groups", "replace", "Old", "New", "-y").error
    assert done == "1 container is shared with the group 'New' instead.\n"
    [row] = alice.json("ls")
    ids = {each["userId"] for each in row["access"]}
    assert str(new.id) in ids
    assert str(old.id) not in ids
    [row] = bob.json("ls")
    assert row["via"] == str(new.id)


@pytest.mark.long
def test_files_are_stored_for_a_group_and_a_list_says_how_each_is_reached_and_who_wrote_it(
    alice: Person, bob: Person
) -> None:
    knows(alice, bob)
    knows(bob, alice)
    group = team(alice, "Team", bob)
    photos = alice.home / "photos"
    photos.mkdir()
    for name in ("a.jpg", "b.jpg"):
        (photos / name).write_text(name)
    rows = alice.json("put", "-r", "photos", "--to", "team")
    assert [row["status"] for row in rows] == ["stored"] * 2
    box = uuid.UUID(next(row["id"] for row in rows if row["name"] == "photos/a.jpg"))
    assert access(alice, box) == dict.fromkeys((id_of(alice), str(group.id)), rights.WORDS["owner"])
    again = alice.run("put", "-r", "photos", "--to", "Team")
    assert "2 unchanged" in again.error
    (bob.home / "mine").write_text("of Bob")
    doubled = bob.run("put", "mine", "--name", "photos/b.jpg", "--to", "Team")
    bob.run("rm", doubled.lines[0].split("\t")[-1], "-y")
    (bob.home / "a.jpg").write_text("of Bob")
    bob.run("put", "a.jpg", "--into", "photos/a.jpg", "-y")
    row = next(each for each in bob.json("ls", "photos/") if each["id"] == str(box))
    assert (row["via"], row["modifiedVia"], row["modifierIsMember"]) == (
        str(group.id), str(group.id), True,
    )  # fmt: skip
    assert set(row["members"]) == {"group Team", "Alice"}
    assert {each["name"]: each["isGroup"] for each in row["access"]} == {
        "group Team": True, "Alice": False,
    }  # fmt: skip
    assert row["permissions"] == [each.name for each in Level(239)]
    assert "THROUGH" in screen(bob, "ls")
    assert "THROUGH" not in screen(alice, "ls")
    shown = screen(alice, "info", "photos/a.jpg")
    assert f"modifiedBy:          Bob ({id_of(bob)}) through group Team" in shown
    assert "group Team (owner), you (owner)" in shown or "you (owner), group Team (owner)" in shown
    assert "permissions:         writer" in screen(bob, "info", "photos/a.jpg")
    alice.run("groups", "remove", "Team", "Bob")
    assert "through group Team, who is not a member any more" in screen(
        alice, "info", "photos/a.jpg"
    )
    assert alice.json("info", "photos/a.jpg")["modifierIsMember"] is False


@pytest.mark.long
def test_sharing_is_for_new_containers_and_a_wrong_use_of_to_is_an_error(
    alice: Person, bob: Person
) -> None:
    knows(alice, bob)
    team(alice, "Team")
    store(alice, "kept")
    (alice.home / "new").write_text("x")
    assert "--to" in alice.run("put", "new", "--into", "kept", "--to", "Team", status=2).error
    assert "You have no group named 'Bob'" in alice.run("put", "new", "--to", "Bob", status=3).error
    alice.run("put", "new")
    done = alice.run("put", "new", "--to", "Team")
    assert "--to is for new containers, and 1 existed before" in done.error
    done = alice.run("put", "new", "--to", "Team", "--share", "Bob")
    assert "--share and --to are for new containers" in done.error
    (alice.home / "second").write_text("x")
    [row] = alice.json("put", "second", "--share", "Team", "--share", "Bob")
    found = access(alice, uuid.UUID(row["id"]))
    assert sorted(found.values()) == [rights.READ, rights.READ, rights.WORDS["owner"]]


@pytest.mark.long
def test_a_container_of_a_group_alone_counts_as_shared(alice: Person, bob: Person) -> None:
    team(alice, "Team", bob, role="Sharer")
    (alice.home / "a").write_text("x")
    alice.run("put", "a", "--to", "Team")
    alice.run("leave", "a", "-y", "--abandon")
    assert [row["name"] for row in alice.json("ls", "--shared")] == ["a"]


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
    assert "GROUP" in screen(bob, "events")
    assert bob.json("events", "--since", "1", "--type", "note") == []
    assert "You have no group" in bob.run("events", "--group", "Tem", status=3).error
    following = bob.at_terminal(
        "events",
        "--follow",
        "--group",
        "Team",
        "--since",
        "1",
        "--limit",
        "2",
        "--kind",
        "Added,Updated",
    )
    following.expect("Added")
    alice.run("mv", "a", "b")
    following.expect("Updated")
    assert "Team" in ended(following)


@pytest.mark.long
def test_a_tree_has_the_files_of_groups_and_no_hidden_ones_of_strangers(
    alice: Person, bob: Person
) -> None:
    knows(alice, bob)
    team(bob, "Team", alice)
    folder = bob.home / "f"
    folder.mkdir()
    for name in ("a.txt", ".hidden"):
        (folder / name).write_text("Bob's")
    bob.run("put", "-r", "f", "--to", "Team")
    done = alice.run("get", "-r", "f/", status=None)
    assert (alice.home / "f" / "a.txt").read_text() == "Bob's"
    assert not (alice.home / "f" / ".hidden").exists()
    assert ".hidden" in done.error
    alice.run("mirror", "copy", "--once")
    assert (alice.home / "copy" / "f" / "a.txt").read_text() == "Bob's"
    assert not (alice.home / "copy" / "f" / ".hidden").exists()
    alice.run("groups", "leave", "Team", "-y")
    alice.run("mirror", "copy", "--once")
    assert not (alice.home / "copy" / "f" / "a.txt").exists()


def unsettled(alice: Person, bob: Person, carol: Person) -> uuid.UUID:
    """Let Carol share a container through a group that she is removed from, before Bob's device reads it."""
    knows(alice, bob, carol)
    knows(bob, alice, carol)
    team(alice, "Team", bob, carol, role="Sharer")
    (alice.home / "plan").write_text("ours")
    [row] = alice.json("put", "plan", "--to", "Team")
    bob.run("cat", "plan")
    carol.run("share", "plan", id_of(bob))
    alice.run("groups", "remove", "Team", "Carol")
    return uuid.UUID(row["id"])


@pytest.mark.long
def test_an_access_that_a_former_member_gave_is_shown_and_confirmed(
    alice: Person, bob: Person, carol: Person
) -> None:
    box = unsettled(alice, bob, carol)
    (bob.home / "new").write_text("Bob's")
    refused = bob.run("put", "new", "--into", "plan", "-y", status=1).error
    assert "`scbroker mark access`" in refused
    shown = bob.run("mark", "access", "plan").output
    assert f"changedBy\tCarol ({id_of(carol)})\n" in shown
    assert "changedVia\tgroup Team\n" in shown
    before, after = (
        re.search(rf"^{name}\t(.*)$", shown, re.MULTILINE) for name in ("before", "after")
    )
    assert before is not None
    assert after is not None
    assert "you (read)" in after[1]
    assert "you" not in before[1]
    found = bob.json("mark", "access", "plan")
    assert (found["changedBy"], found["done"]) == (id_of(carol), None)
    assert len(found["after"]) == len(found["before"]) + 1
    wrong = f"{int(found['head'].split(':')[0])}:{'0' * 64}"
    assert (
        "run the command without --accept"
        in bob.run("mark", "access", "plan", "--accept", wrong, "-y", status=1).error
    )
    assert (
        "Pass --yes" in bob.run("mark", "access", "plan", "--accept", found["head"], status=2).error
    )
    assert (
        "is not VERSION:HASH" in bob.run("mark", "access", "plan", "--accept", "7", status=2).error
    )
    done = bob.run("mark", "access", "plan", "--accept", found["head"], "--yes")
    assert "The change of access is accepted." in done.error
    assert "No change of access has to be confirmed" in bob.run("mark", "access", "plan").error
    assert bob.json("mark", "access", "plan")["head"] is None
    bob.run("put", "new", "--into", "plan", "-y")
    assert content(alice, box) == b"Bob's"


@pytest.mark.long
def test_an_access_that_a_former_member_gave_is_undone(
    alice: Person, bob: Person, carol: Person
) -> None:
    box = unsettled(alice, bob, carol)
    assert id_of(bob) in access(alice, box)
    both = ("--undo", "--accept", f"1:{'0' * 64}")
    assert "exclude each other" in bob.run("mark", "access", "plan", *both, status=2).error
    assert "Pass --yes" in bob.run("mark", "access", "plan", "--undo", status=2).error
    assert bob.json("mark", "access", "plan", "--undo", "--yes")["done"] == "undone"
    assert id_of(bob) not in access(alice, box)
    assert "has to be confirmed" in bob.run("mark", "access", "plan", "--undo", "--yes").error


@pytest.mark.long
def test_the_histories_of_a_group_and_of_its_events_are_compared(
    alice: Person, bob: Person
) -> None:
    group = team(alice, "Team", bob)
    for command in (("group", "Team"), ("group", str(group.id)), ("events", "--group", "Team")):
        heads = bob.json("mark", *command)
        assert heads["accepted"] is False
        assert heads["served"].count(":") == 1
        bob.run("mark", *command, "--accept", heads["served"], "--yes")
    assert "You have no group" in bob.run("mark", "group", "Tem", status=3).error


@pytest.mark.long
def test_a_group_that_cannot_be_read_is_a_row_with_its_error_and_is_declined_by_its_id(
    alice: Person, bob: Person
) -> None:
    broken = team(alice, "Broken", bob, accepted=False)
    whole = team(alice, "Whole", bob)
    query(
        alice.broker.database_url,
        "UPDATE group_members SET wrap = ? WHERE group_id = ? AND user_id = ?",
        bytes(1168), broken.id.bytes, bob.ring.userId.bytes,
    )  # fmt: skip
    rows = {row["id"]: row for row in bob.json("groups", "ls", status=1)}
    assert rows[str(broken.id)]["code"] == "decryption"
    assert rows[str(whole.id)]["name"] == "Whole"
    assert "ERROR" in screen(bob, "groups", "ls", status=1)
    assert str(broken.id) in bob.run("groups", "show", str(broken.id), status=1).error
    assert str(broken.id) in bob.run("groups", "accept", str(broken.id)[:8], status=1).error
    bob.run("groups", "decline", str(broken.id))
    assert [row["id"] for row in bob.json("groups", "ls")] == [str(whole.id)]


@pytest.mark.long
def test_a_container_is_left_by_leaving_the_group(alice: Person, bob: Person) -> None:
    team(alice, "Team", bob)
    (alice.home / "a").write_text("ours")
    alice.run("put", "a", "--to", "Team")
    refused = bob.run("leave", "a", "-y", status=2).error
    assert "leave the group with leaveGroup" in refused


@pytest.mark.long
def test_other_members_of_a_group_are_named_before_a_container_is_deleted(
    alice: Person, bob: Person
) -> None:
    team(alice, "Team", bob)
    (alice.home / "a").write_text("ours")
    alice.run("put", "a", "--to", "Team")
    assert "also for group Team?" in alice.run("rm", "a", status=2).error


@pytest.mark.long
def test_verify_reads_what_the_user_reaches_through_groups(alice: Person, bob: Person) -> None:
    team(alice, "Team", bob)
    (alice.home / "a").write_text("ours")
    alice.run("put", "a", "--to", "Team")
    found = bob.json("verify")
    assert (found["verified"], found["ofStrangers"]) == (0, 1), "Alice is no contact of Bob's"
    assert bob.json("verify", "--everyone")["verified"] == 1
