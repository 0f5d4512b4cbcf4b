"""Attacks on contact cards and on the address book.

Attacks 85 to 88 and 149 of attacks.toml.
"""

import msgspec
import pytest

from scbroker import AccessLevel, BrokerError, ContactCard, Contacts, Container, ServerProvider
from tests.hostile_broker.accomplices import Mallory, level, records_of
from tests.hostile_broker.protocol import FORK, INTEGRITY, RECORD, ROLLBACK, SUBSTITUTION
from tests.kit.crypto import labelled_hash
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, Story, User

TYPE = "scbroker.contacts"
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


def test_an_attackers_card_does_not_replace_a_contact_of_the_same_name(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    people = Contacts(mallory.device_of(alice))
    people.add(card_of(mallory, bob), verified=True).result(PATIENCE)
    for name in ("Bob", "bob", "\uff22ob"):
        with pytest.raises(SUBSTITUTION, match=eve.ring.fingerprint):
            people.add(card_of(mallory, eve, name)).result(PATIENCE)
    assert people.get("Bob").result(PATIENCE).userId == bob.ring.userId


def book_of(alice: User) -> Story:
    """Return the container of Alice's book, which only her keys can create."""
    return Story(alice, labelled_hash("own-document", bytes(4), TYPE.encode()))


def test_a_book_that_others_have_access_to_is_refused(
    mallory: Mallory, alice: User, eve: User
) -> None:
    device = mallory.device_of(alice)
    story = book_of(alice).created({alice: OWNER, eve: OWNER}, content=stored(mallory))
    with pytest.raises(INTEGRITY, match="Others have access"):
        names(device)
    device.revokeAccess(story.uuid, eve.ring.userId).result(PATIENCE)
    assert names(device) == []


def test_a_book_that_a_former_member_wrote_is_refused(
    mallory: Mallory, alice: User, eve: User
) -> None:
    """Alice has removed Eve herself: the newest record is Alice's, and the content Eve's."""
    device = mallory.device_of(alice)
    poison = stored(mallory, ("Bob", eve))
    story = book_of(alice).created({alice: OWNER, eve: OWNER}, content=stored(mallory))
    story.tell(eve, story.follow(eve, content=poison))
    device.revokeAccess(story.uuid, eve.ring.userId).result(PATIENCE)
    with pytest.raises(INTEGRITY, match="Another user has written"):
        names(device)
    device.deleteContainer(story.uuid).result(PATIENCE)
    assert names(device) == []


def test_a_container_that_a_member_gives_the_type_of_an_own_document_stays_in_sight_and_in_use(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    """An honest broker refuses the type; Eve's has it stored, and she leaves herself out afterwards."""
    device, hers = mallory.device_of(alice), mallory.device_of(eve)
    story = Story(alice).created({alice: OWNER, eve: OWNER}, content=b"a document")
    Contacts(device).add(card_of(mallory, bob)).result(PATIENCE)
    for type in (TYPE, "scbroker.links", "scbroker.x"):
        with pytest.raises(INVALID, match="your contacts and your links"):
            hers.updateContainerType(story.uuid, type).result(PATIENCE)
        story.send(eve, story.follow(eve, type=type)).expect(400)
    mallory.plant(story, story.follow(eve, type=TYPE))
    mallory.plant(story, story.follow(eve, grants={alice: OWNER}))
    page = device.listContainers().result(PATIENCE).containers
    shown = {each.id: each.isOwnDocument for each in page if isinstance(each, Container)}
    assert (len(shown), shown[story.uuid], sum(shown.values())) == (2, False, 1)
    assert names(device) == ["Bob"]
    device.updateContainerType(story.uuid, "text").result(PATIENCE)
    assert device.getContainer(story.uuid).result(PATIENCE).content == b"a document"


def test_nobody_gets_access_to_a_container_of_the_type_of_an_own_document(
    mallory: Mallory, alice: User, eve: User
) -> None:
    device = mallory.device_of(alice)
    story = Story(alice).created({alice: OWNER}, type="scbroker.x")
    story.send(alice, story.follow(alice, grants={alice: OWNER, eve: OWNER})).expect(400)
    [granted] = device.grantAccess(story.uuid, level(eve)).result(PATIENCE)
    assert isinstance(granted, INVALID)
    with pytest.raises(INVALID, match="your contacts and your links"):
        device.createContainer(None, [level(alice), level(eve)], "scbroker.x").result(PATIENCE)
    assert device.createContainer(None, type="scbroker.x").result(PATIENCE).type == "scbroker.x"


def book_of_two_versions(mallory: Mallory, alice: User, bob: User, eve: User) -> Story:
    """Alice's book names Eve "Bob" first; then Alice has corrected it."""
    wrong, right = stored(mallory, ("Bob", eve)), stored(mallory, ("Bob", bob))
    story = book_of(alice).created({alice: OWNER}, type=TYPE, content=wrong)
    story.tell(alice, story.follow(alice, content=right))
    return story


def test_a_book_that_the_broker_hides_is_neither_empty_nor_joined_with_another(
    mallory: Mallory, alice: User, bob: User, carol: User, eve: User
) -> None:
    """A fresh device begins a new book under the same id. Whoever knows one of the two refuses the other."""
    first = book_of_two_versions(mallory, alice, eve, bob)
    device = mallory.restarted_device_of(alice, first, carol)
    assert names(device) == ["Bob"]
    mallory.query("DELETE FROM members WHERE container_id = ?", first.id)
    with mallory.refused(device, ROLLBACK) as attempt:
        attempt(Contacts(device).list())
        attempt(Contacts(device).add(card_of(mallory, carol, "Carol")))
    second = book_of(alice)
    mallory.plant(second, second.begin({alice: OWNER}, content=stored(mallory, ("Bob", bob))))
    fresh = mallory.device_of(alice)
    assert Contacts(fresh).get("Bob").result(PATIENCE).userId == bob.ring.userId
    with mallory.refused(device, ROLLBACK) as attempt:
        attempt(Contacts(device).list())
    mallory.rewind(first, 2)
    with mallory.refused(fresh, FORK) as attempt:
        attempt(Contacts(fresh).list())


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


def test_a_card_with_the_same_user_id_and_another_fingerprint_is_not_added(
    mallory: Mallory, alice: User, bob: User
) -> None:
    device = mallory.device_of(alice, bob)
    with mallory.refused(device, SUBSTITUTION) as attempt:
        attempt(Contacts(device).add(of_the_same_id(card_of(mallory, bob))))


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


# Limits


def test_an_older_book_is_the_limit_of_a_fresh_device(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    story = book_of_two_versions(mallory, alice, bob, eve)
    mallory.rewind(story, 1)
    found = Contacts(mallory.device_of(alice)).get("Bob").result(PATIENCE)
    assert found.userId == eve.ring.userId
