"""The commands of links: people without an account list and save what a link opens."""

import json
from typing import Any

import pytest

from scbroker import Link
from tests.cli.test_sharing import card_of, store
from tests.kit.people import Person, ended
from tests.kit.waiting import PATIENCE

PASSWORD = "correct Horse 7"


def links(who: Person) -> list[Link]:
    with who.session() as session:
        return session.getLinks().result(PATIENCE)


@pytest.mark.long
def test_a_link_with_a_password_opens_with_it_alone(alice: Person, stranger: Person) -> None:
    store(alice, "plan")
    made = alice.run("link", "plan", "--until", "12h", SCBROKER_LINK_PASSWORD=PASSWORD)
    [url] = made.lines
    assert "this link and its password" in made.error
    assert url[-20:] not in made.error
    assert stranger.run("open", url, SCBROKER_LINK_PASSWORD=PASSWORD).lines[0].startswith("plan\t7")
    wrong = stranger.run("open", url, status=4, SCBROKER_LINK_PASSWORD="wrong Horse 8")
    assert "The password of the link is wrong, or the link was revoked" in wrong.error
    assert (
        "set SCBROKER_LINK_PASSWORD, pass --password-file"
        in stranger.run("open", url, status=2).error
    )
    file = stranger.home / "password"
    file.write_text(f"{PASSWORD}\n")
    assert "chmod 600" in stranger.run("open", url, "--password-file", file, status=2).error
    file.chmod(0o600)
    assert len(stranger.run("open", url, "--password-file", file).lines) == 1
    plain = alice.run("link", "plan", "--until", "12h").lines[0]
    assert len(stranger.run("open", plain, SCBROKER_LINK_PASSWORD=PASSWORD).lines) == 1


@pytest.mark.long
def test_contents_of_a_link_are_saved_to_a_file_a_folder_or_standard_output(
    alice: Person, stranger: Person
) -> None:
    boxes = store(alice, "photos/1", "photos/2", "../up", "plan")
    ids = [str(each) for each in boxes]
    [url] = alice.run("link", *ids, "--until", "1h").lines
    folder, file = stranger.home / "saved", stranger.home / "file"
    done = stranger.run("open", url, "-o", folder, status=2)
    assert "'../up' cannot be used for a file" in done.error
    assert f"`scbroker open LINK {boxes[2]} --output FILE` names the file" in done.error
    saved = {
        str(each.relative_to(folder)): each.read_bytes()
        for each in folder.rglob("*")
        if each.is_file()
    }
    assert saved == {"photos/1": b"of photos/1", "photos/2": b"of photos/2", "plan": b"of plan"}
    stranger.run("open", "-", "plan", "-o", file, stdin=url.encode())
    assert file.read_bytes() == b"of plan"
    assert (
        "--force overwrites it" in stranger.run("open", url, "photos/1", "-o", file, status=1).error
    )
    stranger.run("open", url, ids[0], "-o", file, "--force")
    assert file.read_bytes() == b"of photos/1"
    assert stranger.run("open", url, "plan", "-o", "-").output == "of plan"
    assert [row["name"] for row in stranger.json("open", url, "plan", ids[2])] == ["../up", "plan"]
    assert "no container named 'memo'" in stranger.run("open", url, "memo", status=3).error


@pytest.mark.long
def test_link_and_password_are_asked_for_without_echo(alice: Person, stranger: Person) -> None:
    store(alice, "plan")
    making = alice.at_terminal("link", "plan", "--until", "2w", "--password", "--qr")
    for _ in range(2):
        making.expect("[pP]assword.*: ")
        making.sendline(PASSWORD)
    making.expect("#scbroker-link:")
    ended(making)
    shown = making.before
    assert shown is not None
    assert PASSWORD not in shown
    assert shown.count("█") > 100
    [kept] = links(alice)
    opening = stranger.at_terminal("open")
    opening.expect("Link: ")
    opening.sendline(kept.url)
    opening.expect("Link password: ")
    opening.sendline(PASSWORD)
    opening.expect("plan")
    assert opening.before is not None
    assert kept.url[-20:] not in opening.before
    assert PASSWORD not in opening.before
    ended(opening)


@pytest.mark.long
def test_links_are_listed_without_their_urls_and_revoked_by_name_user_or_url(
    alice: Person, stranger: Person
) -> None:
    [plan, memo] = store(alice, "plan", "memo")
    for name in ("one", "two", "two"):
        alice.run("link", "plan", "memo", "--until", "2027-06-30", "--name", name)
    rows = alice.json("link")
    assert [row["name"] for row in rows] == ["one", "two", "two"]
    first = rows[0]
    assert first["containers"] == ["plan", "memo"]
    assert first["containerIds"] == [str(plan), str(memo)]
    assert first["expiresAt"] == "2027-07-01T00:00:00Z"
    assert (first["expired"], first["hasPassword"]) == (False, False)
    assert "scbroker-link" not in json.dumps(rows) + alice.run("link").output
    urls = [each.url for each in links(alice)]
    assert alice.run("link", "--show", "one").output == f"{urls[0]}\n"
    assert alice.json("link", "--show", rows[2]["userId"])["url"] == urls[2]
    several = alice.run("link", "--revoke", "two", "--yes", status=2).error
    assert "2 links are named 'two': use the user id of one" in several
    asked = alice.at_terminal("link", "--revoke", "one")
    asked.expect(r"Revoke the link 'one'\? \[y/N\]")
    asked.sendline("y")
    asked.expect("opens nothing any more")
    ended(asked)
    assert alice.json("link", "--revoke", rows[1]["userId"], "--yes")["name"] == "two"
    alice.run("link", "--revoke", urls[2], "--yes")
    assert alice.json("link") == []
    assert "The link was revoked" in stranger.run("open", urls[0], status=3).error
    missing = alice.run("link", "--revoke", urls[0], "--yes", status=3).error
    assert "You have no link like this" in missing
    with alice.session() as session:
        members = session.getContainerMetadata(plan).result(PATIENCE).access
    assert members is not None
    assert len(members) == 1


@pytest.mark.long
def test_a_mistake_with_links_is_an_error_that_says_what_to_do_and_makes_none(
    alice: Person, bob: Person
) -> None:
    store(alice, "plan")
    store(bob, "theirs")
    alice.run("contacts", "add", card_of(bob))
    bob.run("contacts", "add", card_of(alice))
    bob.run("share", "theirs", "Alice")
    until = ("--until", "1d")
    cases: list[tuple[list[Any], int, str]] = [
        (["link", "plan"], 2, "pass CONTAINER and --until"),
        (["link", "theirs", *until], 4, "theirs: A link to container"),
        (["link", "plan", "--until", "2020-01-01"], 2, "is in the past"),
        (
            ["link", "plan", *until, "--password"],
            2,
            "set SCBROKER_LINK_PASSWORD, pass --password-file",
        ),
        (["open", card_of(bob)], 2, "This is a contact card, not a link"),
        (["open"], 2, "Standard input has no link"),
        (["open", "http://127.0.0.1:1/#scbroker-link:AbC"], 2, "The link is damaged"),
        (["link", "--revoke", "plan", "-y"], 3, "You have no link named 'plan': `scbroker link`"),
        (["link", "plan", "--show", "plan"], 2, "exclude each other"),
    ]
    for arguments, status, words in cases:
        done = alice.run(*arguments, status=status)
        assert words in done.error.replace("\n", " "), (arguments, done.error)
        assert done.output == ""
    weak = alice.run("link", "plan", *until, status=2, SCBROKER_LINK_PASSWORD="a").error
    assert "password" in weak
    assert links(alice) == []
