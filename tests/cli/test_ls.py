"""The commands that list containers and show one."""

import datetime as dt
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from scbroker import AccessLevel, ContainerAccessLevel, ServerProvider
from tests.kit.people import Person, befriend, put, screen
from tests.kit.tables import damage_parts
from tests.kit.waiting import PATIENCE, wait_until

NO_ONE = uuid.UUID(int=7)


def test_a_list_has_name_type_size_members_version_time_and_id(
    alice: Person, session: ServerProvider
) -> None:
    id = put(session, "notes/plan.txt", b"12345", type="note")
    (row,) = alice.json("ls")
    assert row["id"] == str(id)
    assert (row["name"], row["type"], row["length"]) == ("notes/plan.txt", "note", 5)
    assert (row["members"], row["version"], row["error"]) == (["you"], 1, None)
    assert row["createdBy"] == row["access"][0]["userId"] == str(session.getUserId().result())
    assert "Decrypt" in row["permissions"] == row["access"][0]["permissions"]
    cells = alice.run("ls").lines[0].split("\t")
    assert cells[:5] == ["notes/plan.txt", "note", "5", "you", "1"]
    assert cells[6:] == [str(id), "", ""]


@pytest.mark.long
def test_a_terminal_shows_a_table_sorted_by_name_with_short_ids_and_a_pipe_whole_ones(
    alice: Person, session: ServerProvider
) -> None:
    ids = {name: put(session, name, b"x" * 2048) for name in ("b", "a", "C", None)}
    shown = screen(alice, "ls")
    heading, *lines = shown.splitlines()
    assert heading.split() == ["NAME", "TYPE", "SIZE", "PEOPLE", "VERSION", "CHANGED", "ID"]
    assert [line.split()[0] for line in lines] == [f"({ids[None].hex[:8]})", "a", "b", "C"]
    assert "2.0 KiB" in shown
    assert ids["a"].hex[:8] in shown
    assert str(ids["a"]) not in shown
    assert str(ids["a"]) in screen(alice, "ls", "--long")
    listed = alice.json("ls")
    assert [row["id"] for row in listed] == sorted(map(str, ids.values()))
    assert {row["name"] for row in listed} == set(ids)


@pytest.mark.sampled
@pytest.mark.parametrize("sort,first", [("name", "a"), ("changed", "c"), ("size", "b")])
def test_a_list_is_sorted_by_name_last_change_or_size(
    alice: Person, session: ServerProvider, sort: str, first: str
) -> None:
    for name, size in (("b", 9), ("a", 2), ("c", 1)):
        put(session, name, b"x" * size)
    assert alice.json("ls", "--sort", sort)[0]["name"] == first


@pytest.mark.long
def test_a_list_can_be_restricted_to_a_folder_a_type_a_creator_and_to_what_is_shared(
    alice: Person, session: ServerProvider, person: Callable[[str], Person]
) -> None:
    bob = person("Bob")
    bobs = befriend(session, bob, "Bob")
    own = session.getUserId().result()
    put(session, "photos/a.jpg", type="photo")
    put(session, "photos", type="album")
    put(session, "photosynthesis")
    shared = [AccessLevel(own, ContainerAccessLevel.DefaultOwnerPermissions), AccessLevel(bobs)]
    put(session, "plan", accessLevels=shared)
    with bob.session() as other:
        put(other, "of Bob", accessLevels=[AccessLevel(own), AccessLevel(bobs, 511)])
        put(other, "of Bob alone")

    def names(*options: str) -> set[str]:
        return {row["name"] for row in alice.json("ls", *options)}

    assert names("photos") == {"photos", "photos/a.jpg"}
    assert names("photos/") == {"photos/a.jpg"}
    assert names("--type", "photo") == {"photos/a.jpg"}
    assert names("--others") == {"of Bob"}
    assert names("--mine", "--shared") == {"plan"}
    assert names("--shared") == names("--with", "Bob") == {"plan", "of Bob"}
    assert names("--with", str(own), "--with", str(bobs), "--mine") == {"plan"}
    assert "Carol" in alice.run("ls", "--with", "Carol", status=3).error
    assert "fits the other options" in alice.run("ls", "photos", "--with", "Bob", status=3).error
    assert "none below it" in alice.run("ls", "photo/", status=3).error
    assert "exclude each other" in alice.run("ls", "--mine", "--others", status=2).error
    members = {row["name"]: row["members"] for row in alice.json("ls", "--shared")}
    assert members == {"plan": ["you", "Bob"], "of Bob": ["you", "Bob"]}
    assert "Bob" in screen(alice, "ls", "--others", "--long")


@pytest.mark.long
def test_a_list_of_what_a_person_can_access_leaves_out_ended_access_and_hidden_lists(
    alice: Person, session: ServerProvider, person: Callable[[str], Person]
) -> None:
    bob, own = person("Bob"), session.getUserId().result()
    bobs = befriend(session, bob, "Bob")
    owner = AccessLevel(own, ContainerAccessLevel.DefaultOwnerPermissions)
    download = ContainerAccessLevel.Download | ContainerAccessLevel.Decrypt
    end = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=12)
    put(session, "ended", accessLevels=[owner, AccessLevel(bobs, download, end)])
    put(session, "hidden", accessLevels=[owner, AccessLevel(bobs, download)])
    assert len(alice.json("ls", "--with", "Bob")) == 2
    wait_until(lambda: [each["name"] for each in alice.json("ls", "--with", "Bob")] == ["hidden"])
    assert [each["name"] for each in bob.json("ls")] == ["hidden"]
    assert bob.json("ls", "--with", str(own)) == []


@pytest.mark.long
def test_many_members_are_counted_on_a_terminal_and_listed_elsewhere(
    alice: Person, session: ServerProvider
) -> None:
    own = session.getUserId().result()
    others = [AccessLevel(alice.broker.new_user().userId) for _ in range(5)]
    put(session, "all", accessLevels=[*others, AccessLevel(own, 511)])
    shown = screen(alice, "ls")
    assert "3 more" in shown
    named = min(others, key=lambda each: shown.find(each.userId.hex[:8]) % len(shown)).userId
    assert f"you, {named.hex[:8]}," in shown
    assert str(named) not in shown
    assert str(others[0].userId) in screen(alice, "ls", "--long")
    (row,) = alice.json("ls")
    assert len(row["members"]) == 6
    assert row["members"][0] == "you"


def test_the_address_book_is_listed_with_all_and_another_container_of_its_type_always(
    alice: Person, session: ServerProvider, person: Callable[[str], Person]
) -> None:
    bob = person("Bob")
    befriend(session, bob, "Bob")
    put(session, "hidden?", type="scbroker.contacts")
    assert [row["name"] for row in alice.json("ls")] == ["hidden?"]
    assert [row["type"] for row in alice.json("ls", "--all")] == ["scbroker.contacts"] * 2


@pytest.mark.long
def test_a_name_that_would_steer_the_terminal_or_forge_a_line_is_shown_escaped(
    alice: Person, session: ServerProvider
) -> None:
    put(session, "a\x1b]0;owned\x07\n\tb\u202e")
    assert len(alice.run("ls").lines) == 1
    for shown in (screen(alice, "ls"), alice.run("ls").output, alice.run("ls", "--tree").output):
        assert "\x07" not in shown
        assert "\x1b]0" not in shown
        assert "\u202e" not in shown
        assert "\\x1b]0;owned\\x07\\n\\tb\\u202e" in shown.replace("\r\n", "")
    put(session, "x" * 100_000)
    assert max(map(len, screen(alice, "ls").splitlines())) < 200


@pytest.mark.sampled
@pytest.mark.parametrize("header", ["text", 7, [1], {"name": 3}, {"name": ""}, {"title": "x"}])
def test_a_container_whose_header_has_no_name_is_listed_without_one(
    alice: Person, session: ServerProvider, header: Any
) -> None:
    session.createContainer(b"", customHeaderObject=header).result(PATIENCE)
    assert alice.json("ls")[0]["name"] is None


@pytest.mark.long
def test_a_damaged_container_is_a_row_with_the_error_and_the_others_are_listed(
    alice: Person, session: ServerProvider
) -> None:
    spoilt, whole = put(session, "spoilt"), put(session, "whole")
    damage_parts(alice.broker.database_url, spoilt)
    rows = {row["id"]: row for row in alice.json("ls", status=1)}
    assert rows[str(whole)]["error"] is None
    assert rows[str(spoilt)]["code"] == "integrity"
    assert rows[str(spoilt)]["name"] is None
    lines = [line.split("\t") for line in alice.run("ls", status=1).lines]
    assert sorted(bool(line[7]) for line in lines) == [False, True]
    assert "ERROR" in screen(alice, "ls", status=1)
    assert str(spoilt) in alice.run("ls", "--tree", status=1).output
    assert "The header is damaged" in alice.run("info", str(spoilt)).error


def test_a_tree_has_a_branch_for_each_folder(alice: Person, session: ServerProvider) -> None:
    for name in ("a/b/c.txt", "a/d.txt", "e.txt", "a/b/c.txt", None, "/".join("x" * 100)):
        put(session, name, b"12")
    lines = alice.run("ls", "--tree").lines
    words = [line.lstrip("│├└─ ").split("  ")[0] for line in lines]
    assert words.count("a/") == words.count("b/") == 1
    assert words.count("c.txt") == 2
    assert "/".join("x" * 60)[:119] + "…" in words
    assert any(line.startswith("│   ├── b/") or line.startswith("│   └── b/") for line in lines)
    assert "leave out" in alice.run("ls", "--tree", "--json", status=2).error


def test_the_list_of_nothing_is_empty(alice: Person) -> None:
    assert alice.json("ls") == []
    assert alice.run("ls").output == ""


@pytest.mark.long
def test_info_shows_header_members_permissions_and_what_the_broker_sees(
    alice: Person, session: ServerProvider, person: Callable[[str], Person]
) -> None:
    bobs = befriend(session, person("Bob"), "Bob")
    own = session.getUserId().result()
    levels = [AccessLevel(own, 511), AccessLevel(bobs, 75)]
    id = put(session, "plan", b"12345", type="note", accessLevels=levels)
    shown = alice.json("info", "plan")
    assert shown["header"] == {"name": "plan"}
    assert shown["length"] == 5
    assert {each["name"]: each["expiresAt"] for each in shown["access"]} == {
        "you": None,
        "Bob": None,
    }
    assert "Delete" in shown["permissions"]
    assert "the size of content and header (not what is in it)" in shown["brokerSees"]
    fields = dict(line.split("\t") for line in alice.run("info", id.hex[:8]).lines)
    assert json.loads(fields["header"]) == {"name": "plan"}
    assert sorted(fields["access"].split(",")) == ["Bob (read)", "you (owner)"]
    assert fields["createdBy"] == f"you ({own})"
    assert "Bob (read)" in screen(alice, "info", str(id))


@pytest.mark.long
def test_after_a_revocation_only_ls_says_that_something_is_missing(
    alice: Person, bob: Person, session: ServerProvider
) -> None:
    befriend(session, bob, "Bob")
    for name in ("taken", "kept"):
        put(session, name, b"text")
        alice.run("share", name, "Bob")
    bob.run("ls")
    alice.run("revoke", "taken", "Bob")
    listed = bob.run("ls")
    assert [line.split("\t")[0] for line in listed.lines] == ["kept"]
    assert listed.error.count("\n") == 1
    assert "your access has ended, or the broker withholds them" in listed.error
    assert bob.run("cat", "kept").error == ""
    assert len(bob.json("verify")["leftOut"]) == 1


def test_info_of_an_unknown_container_is_an_error_of_status_3(alice: Person) -> None:
    assert "no container named" in alice.run("info", "nothing", status=3).error
    alice.run("info", str(NO_ONE), status=3)


def test_a_deeply_nested_header_is_shown(alice: Person, session: ServerProvider) -> None:
    header: Any = {}
    for _ in range(90):  # the library refuses more than 100 levels
        header = {"a": header}
    id = session.createContainer(b"", customHeaderObject=header).result(PATIENCE).id
    for options in ((), ("--json",)):
        assert '"a"' in alice.run("info", str(id), *options).output
