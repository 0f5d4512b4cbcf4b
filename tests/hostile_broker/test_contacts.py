"""Attacks on contact cards and on the address book.

Attacks 85 to 88 of `catalogue`.
"""

import logging

import msgspec
import pytest
from msgspec.structs import replace

from scbroker import AccessLevel, BrokerError, ContactCard, Contacts, ServerProvider
from scbroker.client.people.contacts import TYPE
from scbroker.wire.containers import ContainerList, ListedContainer
from tests.hostile_broker.accomplices import Mallory, level, records_of
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import LIST, RECORD, ROLLBACK, SUBSTITUTION
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, Story, User

INVALID = BrokerError.invalidArgumentError


def card_of(mallory: Mallory, user: User, name: str = "Bob") -> ContactCard:
    return ContactCard(user.ring.fingerprint, mallory.url, name)


def stored(mallory: Mallory, *people: tuple[str, User]) -> bytes:
    """Return the content of a book with these verified contacts."""
    contacts = [
        {"name": name, "fingerprint": user.name.hex(), "serverUrl": mallory.url,
         "verified": True, "addedAt": 0}
        for name, user in people
    ]  # fmt: skip
    return msgspec.json.encode({"version": 1, "document": {"contacts": contacts}})


def names(device: ServerProvider) -> list[str]:
    return [contact.name for contact in Contacts(device).list().result(PATIENCE)]


@attack(85, "changed contact card")
def test_no_single_changed_character_nor_exchanged_neighbours_pass_for_a_card(
    mallory: Mallory, bob: User
) -> None:
    text = card_of(mallory, bob).text
    changed = {text[:at] + other + text[at + 1 :] for at in range(len(text)) for other in "a7 "}
    changed |= {text[:at] + text[at + 1] + text[at] + text[at + 2 :] for at in range(len(text) - 1)}
    for wrong in changed - {text}:
        if "".join(wrong.split()) != text:
            with pytest.raises(INVALID):
                ContactCard.parse(wrong)


@attack(85, "changed contact card")
def test_an_attackers_card_is_the_limit_and_the_fingerprint_that_the_person_reads_out_tells(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    people = Contacts(mallory.device_of(alice))
    forged = ContactCard.parse(card_of(mallory, eve, "Bob").text)
    assert people.add(forged).result(PATIENCE).userId == eve.ring.userId
    with pytest.raises(SUBSTITUTION) as caught:
        people.verify("Bob", bob.ring.fingerprint).result(PATIENCE)
    assert forged.fingerprint in str(caught.value)
    assert not people.get("Bob").result(PATIENCE).verified


@attack(85, "changed contact card")
def test_an_attackers_card_does_not_replace_a_contact_of_the_same_name(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    people = Contacts(mallory.device_of(alice))
    people.add(card_of(mallory, bob), verified=True).result(PATIENCE)
    for name in ("Bob", "bob", "B\u200bob", "\uff22ob"):
        with pytest.raises(SUBSTITUTION, match=eve.ring.fingerprint):
            people.add(card_of(mallory, eve, name)).result(PATIENCE)
    assert people.get("Bob").result(PATIENCE).userId == bob.ring.userId


def check_ignored(
    mallory: Mallory, device: ServerProvider, caplog: pytest.LogCaptureFixture, words: str
) -> None:
    """The book is not read and not written to, and the log says why."""
    caplog.clear()
    count = len(mallory.heard)
    with caplog.at_level(logging.WARNING):
        assert names(device) == []
    assert words in caplog.text
    assert RECORD not in mallory.since(count)


@pytest.mark.sampled
@attack(86, "poisoned address book")
@pytest.mark.parametrize("stays", [True, False], ids=["stays a member", "leaves herself out"])
def test_a_book_that_another_user_made_and_shared_is_ignored(
    mallory: Mallory,
    stays: bool,
    alice: User,
    bob: User,
    eve: User,
    caplog: pytest.LogCaptureFixture,
) -> None:
    device, hers = mallory.device_of(alice), mallory.device_of(eve)
    levels = [level(alice), *([level(eve)] if stays else [])]
    poison = stored(mallory, ("Bob", eve))
    hers.createContainer(poison, accessLevels=levels, type=TYPE).result(PATIENCE)
    check_ignored(mallory, device, caplog, f"user {eve.ring.userId} created it")
    Contacts(device).add(card_of(mallory, bob)).result(PATIENCE)
    assert Contacts(device).get("Bob").result(PATIENCE).userId == bob.ring.userId


@attack(86, "poisoned address book")
def test_a_book_that_others_have_access_to_is_ignored(
    mallory: Mallory, alice: User, eve: User, caplog: pytest.LogCaptureFixture
) -> None:
    device = mallory.device_of(alice)
    Story(alice).created({alice: OWNER, eve: OWNER}, type=TYPE, content=stored(mallory))
    check_ignored(mallory, device, caplog, "others have access to it")


@attack(86, "poisoned address book")
def test_a_book_that_a_former_member_wrote_is_ignored(
    mallory: Mallory, alice: User, eve: User, caplog: pytest.LogCaptureFixture
) -> None:
    """Alice has removed Eve herself: the newest record is Alice's, and the content Eve's."""
    device = mallory.device_of(alice)
    poison = stored(mallory, ("Bob", eve))
    story = Story(alice).created({alice: OWNER, eve: OWNER}, type=TYPE, content=stored(mallory))
    story.tell(eve, story.follow(eve, content=poison))
    device.revokeAccess(story.uuid, eve.ring.userId).result(PATIENCE)
    found = device.getContainer(story.uuid).result(PATIENCE)
    assert (found.content, found.modifiedBy) == (poison, alice.ring.userId)
    check_ignored(mallory, device, caplog, "another user has written it")


@attack(86, "poisoned address book")
def test_a_broken_container_of_the_type_does_not_keep_alice_from_her_book(
    mallory: Mallory, alice: User, bob: User, eve: User, caplog: pytest.LogCaptureFixture
) -> None:
    """Eve can wrap another key for Alice than the one that she uses."""
    device, hers = mallory.device_of(alice), mallory.device_of(eve)
    Contacts(device).add(card_of(mallory, bob)).result(PATIENCE)
    shared = hers.createContainer(stored(mallory), [level(alice)], TYPE).result(PATIENCE).id

    def lie(page: ContainerList) -> ContainerList:
        def broken(item: ListedContainer) -> ListedContainer:
            assert item.view is not None
            wrap = bytes(len(item.view.wrap or b""))
            return replace(item, view=replace(item.view, wrap=wrap))

        return replace(
            page,
            containers=[
                broken(item) if item.containerId == str(shared) else item
                for item in page.containers
            ],
        )

    with mallory.lying(LIST, lie), caplog.at_level(logging.WARNING):
        assert names(device) == ["Bob"]
    assert f"{shared} of type {TYPE} is ignored: it cannot be read" in caplog.text


def book_of_two_versions(mallory: Mallory, alice: User, bob: User, eve: User) -> Story:
    """Alice's book names Eve "Bob" first; then Alice has corrected it."""
    wrong, right = stored(mallory, ("Bob", eve)), stored(mallory, ("Bob", bob))
    story = Story(alice).created({alice: OWNER}, type=TYPE, content=wrong)
    story.tell(alice, story.follow(alice, content=right))
    return story


def roll_back(mallory: Mallory, story: Story) -> None:
    """Serve the first version of the book again, also in lists of its type."""
    mallory.rewind(story, 1)
    mallory.query("UPDATE members SET type = ? WHERE container_id = ?", TYPE, story.id)


@attack(87, "address book rolled back")
def test_an_older_book_is_refused_by_a_device_that_has_read_a_newer_one(
    mallory: Mallory, alice: User, bob: User, carol: User, eve: User
) -> None:
    story = book_of_two_versions(mallory, alice, bob, eve)
    device = mallory.restarted_device_of(alice, story, carol)
    used = Contacts(device)
    assert used.get("Bob").result(PATIENCE).userId == bob.ring.userId
    roll_back(mallory, story)
    for people in (used, Contacts(device)):
        with mallory.refused(device, ROLLBACK) as attempt:
            attempt(people.get("Bob"))
            attempt(people.add(card_of(mallory, carol, "Carol")))


@attack(87, "address book rolled back")
def test_an_older_book_is_the_limit_of_a_fresh_device(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    story = book_of_two_versions(mallory, alice, bob, eve)
    roll_back(mallory, story)
    found = Contacts(mallory.device_of(alice)).get("Bob").result(PATIENCE)
    assert found.userId == eve.ring.userId


@attack(87, "address book rolled back")
def test_a_hidden_book_is_begun_anew_and_both_are_joined_once_it_is_shown_again(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """That the broker withholds the book is the limit; nothing in it is lost or replaced by that."""
    Contacts(mallory.device_of(alice)).add(card_of(mallory, bob), verified=True).result(PATIENCE)
    device = mallory.device_of(alice)
    with mallory.answering(LIST, ContainerList(containers=[], next=None)):
        assert names(device) == []
        Contacts(device).add(card_of(mallory, carol, "Carol")).result(PATIENCE)
    people = Contacts(device)
    shown = [(contact.name, contact.verified) for contact in people.list().result(PATIENCE)]
    assert shown == [("Bob", True), ("Carol", False)]


@attack(88, "other keys for a contact")
def test_no_contact_is_added_if_the_broker_serves_another_users_keys(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    device = mallory.device_of(alice)
    with (
        mallory.serving_keys(bob, records_of(eve)),
        mallory.refused(device, SUBSTITUTION) as attempt,
    ):
        attempt(Contacts(device).add(card_of(mallory, bob)))
    assert names(device) == []


def of_the_same_id(card: ContactCard) -> ContactCard:
    """Return a card of another fingerprint with the same user id, as two users of 2^61 trials have."""
    digits = card.fingerprint
    other = ContactCard(
        digits[:-1] + ("0" if digits[-1] != "0" else "1"), card.serverUrl, card.name
    )
    assert other.userId == card.userId
    assert other.fingerprint != digits
    return other


@attack(88, "other keys for a contact")
def test_a_card_with_the_same_user_id_and_another_fingerprint_is_not_added(
    mallory: Mallory, alice: User, bob: User
) -> None:
    device = mallory.device_of(alice, bob)
    with mallory.refused(device, SUBSTITUTION) as attempt:
        attempt(Contacts(device).add(of_the_same_id(card_of(mallory, bob))))


@attack(88, "other keys for a contact")
def test_nothing_is_encrypted_for_keys_with_the_same_user_id_and_another_fingerprint(
    mallory: Mallory, alice: User, bob: User
) -> None:
    device = mallory.device_of(alice, bob)
    made = device.createContainer(b"secret").result(PATIENCE)
    levels = [level(alice), AccessLevel(of_the_same_id(card_of(mallory, bob)))]
    count = len(mallory.heard)
    with pytest.raises(SUBSTITUTION):
        device.createContainer(b"secret", levels).result(PATIENCE)
    with pytest.raises(SUBSTITUTION):
        device.updateContainerAccessLevels(made.id, levels).result(PATIENCE)
    [result] = device.grantAccess(made.id, levels[1]).result(PATIENCE)
    assert isinstance(result, SUBSTITUTION)
    assert RECORD not in mallory.since(count)


@attack(88, "other keys for a contact")
def test_the_fingerprint_of_a_member_who_has_the_access_already_is_compared_as_well(
    mallory: Mallory, alice: User, bob: User
) -> None:
    device = mallory.device_of(alice, bob)
    card = card_of(mallory, bob)
    made = device.createContainer(b"secret", [level(alice), AccessLevel(bob.id)]).result(PATIENCE)
    count = len(mallory.heard)
    [same] = device.grantAccess(made.id, AccessLevel(card)).result(PATIENCE)
    assert not isinstance(same, BrokerError)
    assert same.version == made.version, "a grant of what a contact has makes no record"
    [result] = device.grantAccess(made.id, AccessLevel(of_the_same_id(card))).result(PATIENCE)
    assert isinstance(result, SUBSTITUTION)
    assert RECORD not in mallory.since(count)
