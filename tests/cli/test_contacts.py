"""The commands of the address book: people are found by name once their fingerprint is known."""

from types import SimpleNamespace

import pexpect
import pytest

from scbroker import ContactCard, KeyRing
from scbroker.cli.completion import complete_person
from tests.cli.test_sharing import alice, bob, card_of, carol, id_of, knows, own_card
from tests.kit.people import Person, ended

__all__ = ["alice", "bob", "carol"]


def fingerprint_of(who: Person) -> str:
    return own_card(who).fingerprint


@pytest.mark.long
def test_a_card_is_added_from_an_argument_or_standard_input_and_listed_by_name(
    alice: Person, bob: Person, carol: Person
) -> None:
    added = alice.json("contacts", "add", "-", stdin=card_of(carol).upper().encode() + b"\r\n")
    assert (added["name"], added["userId"], added["verified"]) == ("Carol", id_of(carol), False)
    done = alice.run("contacts", "add", card_of(bob), "--name", "Bobby")
    assert "Bobby is in your contacts, not verified" in done.error
    assert "scbroker contacts verify Bobby" in done.error
    listed = alice.run("contacts", "ls").lines
    assert [line.split("\t")[:3] for line in listed] == [
        ["Bobby", "no", id_of(bob)],
        ["Carol", "no", id_of(carol)],
    ]
    keys = {"name", "userId", "fingerprint", "serverUrl", "verified", "addedAt"}
    assert [set(each) for each in alice.json("contacts", "ls")] == [keys, keys]
    shown = alice.json("contacts", "show", "bobby")
    assert ContactCard.parse(shown["card"]).userId == ContactCard.parse(card_of(bob)).userId
    assert (shown["fingerprint"], shown["verified"]) == (fingerprint_of(bob), False)
    terminal = alice.at_terminal("contacts", "show", "Bobby")
    terminal.expect(pexpect.EOF)
    assert terminal.before is not None
    assert terminal.before.count("█") > 100


@pytest.mark.long
def test_a_contact_is_verified_only_by_the_fingerprint_that_the_person_reads_out(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob, verified=False)
    right, wrong = fingerprint_of(bob), fingerprint_of(carol)
    asked = alice.at_terminal("contacts", "verify", "Bob")
    asked.expect("Call Bob, who runs `scbroker whoami`")
    asked.expect("Fingerprint: ")
    assert asked.before is not None
    assert right[:9] not in asked.before
    asked.sendline(wrong)
    assert "do not share with this contact" in ended(asked, 1)
    for part, status in ((right[:9], 2), ("y", 2), ("", 2), (wrong, 1)):
        alice.run("contacts", "verify", "Bob", "--fingerprint", part, status=status)
        assert alice.json("contacts", "show", "Bob")["verified"] is False
    asked = alice.at_terminal("contacts", "verify", "Bob")
    asked.expect("Fingerprint: ")
    asked.sendline(right.upper().replace(" ", "-"))
    asked.expect("The fingerprint is the same: Bob is verified")
    asked.expect(pexpect.EOF)
    assert alice.json("contacts", "show", "Bob")["verified"] is True
    assert (
        alice.run("contacts", "add", card_of(bob)).error == "Bob is in your contacts, verified.\n"
    )


def test_a_contact_is_renamed_and_stays_verified_and_is_removed(alice: Person, bob: Person) -> None:
    knows(alice, bob)
    assert alice.json("contacts", "rename", "Bob", "Robert")["verified"] is True
    done = alice.run("contacts", "rm", "Robert")
    assert (
        done.error == "Robert is not in your contacts any more, and keeps access to containers.\n"
    )
    assert alice.run("contacts", "ls").output == ""


@pytest.mark.long
def test_a_mistake_with_contacts_is_an_error_that_says_what_to_do_and_changes_nothing(
    alice: Person, bob: Person, carol: Person
) -> None:
    knows(alice, bob)
    elsewhere = ContactCard(KeyRing.generate().fingerprint, "https://other.example", "Eve").text
    unknown = ContactCard(KeyRing.generate().fingerprint, alice.broker.url, "Mallory").text
    link = "https://b.example/#scbroker-link:SECRET"
    before = alice.json("contacts", "ls")
    for arguments, status, words in (
        (["add", card_of(alice)], 2, "This is your own card"),
        (["add", card_of(bob)[:-1]], 2, "missing or mistyped"),
        (["add", link], 2, "This is a link, not a contact card"),
        (["add", "-"], 2, "This is not a contact card"),
        (
            ["add", elsewhere],
            2,
            "The card names a user of https://other.example, and profile default",
        ),
        (["add", unknown], 3, "The broker does not know user"),
        (["add", card_of(carol), "--name", "bob"], 1, "pass another name"),
        (["add", card_of(bob), "--name", "B"], 1, "rename that contact instead"),
        (["add", card_of(carol), "--name", ""], 2, "name must have 1 to 64 characters"),
        (["add", card_of(carol), "--name", "\u200b"], 2, "at least one visible character"),
        (["add", card_of(carol), "--name", "a\x1bb"], 2, "name must"),
        (["show", "Bbo"], 3, "Similar names: 'Bob'"),
        (["show", link], 3, "No contact is named"),
        (["verify", "Bbo", "--fingerprint", "1"], 3, "Similar names: 'Bob'"),
        (["verify", "Bob"], 2, "pass what the person reads out with --fingerprint"),
        (["rename", "Bob", " "], 2, "newName must have"),
        (["rename", "Eve", "Bob"], 3, "No contact is named 'Eve'"),
        (["rm", "Bbo"], 3, "Similar names: 'Bob'"),
        (["ls", "all"], 2, "unexpected extra argument"),
    ):
        done = alice.run("contacts", *arguments, status=status)
        assert words in done.error.replace("\n", " "), (arguments, done.error)
        assert done.output == ""
    assert alice.json("contacts", "ls") == before


def test_without_a_session_the_error_names_the_command_to_run(stranger: Person) -> None:
    assert "run `scbroker register`" in stranger.run("contacts", "ls", status=2).error


def test_names_of_contacts_are_completed(
    alice: Person, bob: Person, carol: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    knows(alice, bob, carol)
    monkeypatch.setenv("HOME", str(alice.home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    context = SimpleNamespace(params={"profile": None})
    assert complete_person(context, "C") == ["Carol"]
    assert complete_person(context, "") == ["Bob", "Carol"]
    assert complete_person(SimpleNamespace(params={"profile": "none"}), "") == []
