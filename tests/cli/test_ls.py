"""The commands that list containers and show one."""

from collections.abc import Callable

import pytest

from scbroker import AccessLevel, ContainerAccessLevel, ServerProvider
from tests.kit.people import Person, befriend, put, screen
from tests.kit.tables import damage_parts


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
    put(session, "a", b"1")
    first = {
        sort: alice.json("ls", "--sort", sort)[0]["name"] for sort in ("name", "changed", "size")
    }
    assert first == {"name": "a", "changed": "a", "size": "notes/plan.txt"}


@pytest.mark.long
def test_a_list_can_be_restricted_to_a_folder_a_type_a_creator_and_to_what_is_shared(
    alice: Person, session: ServerProvider, person: Callable[[str], Person]
) -> None:
    bob = person("Bob")
    bobs = befriend(session, bob, "Bob")
    own = session.getUserId().result()
    [book] = {row["id"] for row in alice.json("ls", "--all")}
    assert session.getContainerMetadata(book).result().isOwnDocument
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

    assert book not in {row["id"] for row in alice.json("ls")}
    assert names("photos") == {"photos", "photos/a.jpg"}
    assert names("photos/") == {"photos/a.jpg"}
    assert names("--type", "photo") == {"photos/a.jpg"}
    assert names("--others") == {"of Bob"}
    assert names("--mine", "--shared") == {"plan"}
    assert names("--shared") == names("--with", "Bob") == {"plan", "of Bob"}
    assert names("--with", str(own), "--with", str(bobs), "--mine") == {"plan"}
    assert "Carol" in alice.run("ls", "--with", "Carol", status=3).error
    assert "that fits the options" in alice.run("ls", "photos", "--with", "Bob", status=3).error
    assert "none below it" in alice.run("ls", "photo/", status=3).error
    members = {row["name"]: row["members"] for row in alice.json("ls", "--shared")}
    assert members == {"plan": ["you", "Bob"], "of Bob": ["you", "Bob"]}
    assert "Bob" in screen(alice, "ls", "--others", "--long")


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
