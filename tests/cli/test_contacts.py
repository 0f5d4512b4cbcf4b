"""The commands of the address book: people are found by name once their fingerprint is known."""

import pytest

from scbroker import ContactCard, KeyRing
from tests.cli.test_sharing import card_of, knows, own_card
from tests.kit.people import Person, ended


def fingerprint_of(who: Person) -> str:
    return own_card(who).fingerprint


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
    ended(asked)
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
        (["add", link], 2, "This is a link, not a contact card"),
        (["add", elsewhere], 2, "The card is of a user of https://other.example"),
        (["add", unknown], 3, "The broker does not know user"),
        (["add", card_of(carol), "--name", "bob"], 1, "pass another name"),
        (["add", card_of(bob), "--name", "B"], 1, "rename that contact instead"),
        (["show", "Bbo"], 3, "Similar names: 'Bob'"),
        (["verify", "Bob"], 2, "pass what the person reads out with --fingerprint"),
    ):
        done = alice.run("contacts", *arguments, status=status)
        assert words in done.error.replace("\n", " "), (arguments, done.error)
        assert done.output == ""
    assert alice.json("contacts", "ls") == before
