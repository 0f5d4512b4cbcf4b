"""The address book: names for people whose fingerprints are known, on all devices of one user."""

import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scbroker import (
    AccessChange,
    AccessLevel,
    BrokerError,
    Contact,
    ContactCard,
    Contacts,
    KeyRing,
    KeyType,
    ServerProvider,
)
from scbroker.client import contacts
from scbroker.client.contacts import TYPE, _Entry
from tests.client.conftest import drop, id_of, put_own_document
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network
from tests.kit.waiting import PATIENCE

INVALID = BrokerError.invalidArgumentError
SUBSTITUTED = BrokerError.keySubstitutionError


def card(provider: ServerProvider, name: str = "Bob") -> ContactCard:
    return provider.getContactCard(name).result(PATIENCE)


def names(book: Contacts) -> list[str]:
    return [contact.name for contact in book.list().result(PATIENCE)]


@pytest.fixture
def book(alice: ServerProvider) -> Contacts:
    return Contacts(alice)


def test_the_own_card_is_made_without_a_request_and_leads_others_to_the_user(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    with Network() as network:
        own = card(bob)
        assert network.sent == []
    assert own.userId == id_of(bob)
    assert own.fingerprint == bob.getKeyRing().result(PATIENCE).fingerprint
    assert (own.serverUrl, own.name) == (bob.serverUrl, "Bob")
    made = alice.createContainer(b"for Bob").result(PATIENCE)
    [stored] = alice.grantAccess(made.id, AccessLevel(ContactCard.parse(own.text))).result(PATIENCE)
    assert not isinstance(stored, BrokerError)
    assert bob.getContainerContent(made.id).result(PATIENCE) == b"for Bob"


def test_an_added_contact_is_found_by_name_on_every_device(
    alice: ServerProvider, bob: ServerProvider, book: Contacts, new_provider: NewProvider
) -> None:
    added = book.add(card(bob)).result(PATIENCE)
    assert (added.name, added.userId, added.verified) == ("Bob", id_of(bob), False)
    assert added.serverUrl == alice.serverUrl
    there = Contacts(new_provider(alice.getKeyRing().result(PATIENCE)))
    for name in ("Bob", "bob", " BOB ", "\uff22\uff4f\uff42", "B\u200bob"):
        assert there.get(name).result(PATIENCE) == added
    assert repr(added) == f"<Contact 'Bob': user {added.userId}, not verified>"


def test_a_contact_or_a_card_stands_for_its_user_in_every_operation_on_users(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, book: Contacts
) -> None:
    contact, other = book.add(card(bob)).result(PATIENCE), card(carol, "Carol")
    assert alice.getPublicKeys(contact).result(PATIENCE) == bob.getPublicKeys().result(PATIENCE)
    for each in (contact, other):
        key = alice.getLatestActiveSigningKey(each, KeyType.Encryption).result(PATIENCE)
        assert key is not None
        assert key.userId == each.userId
    levels = [AccessLevel(id_of(alice), 511), AccessLevel(contact), AccessLevel(other)]
    made = alice.createContainer(b"x", levels).result(PATIENCE)

    def members() -> set[uuid.UUID]:
        access = alice.getContainerMetadata(made.id).result(PATIENCE).access
        assert access is not None
        return {level.userId for level in access} - {id_of(alice)}

    assert members() == {contact.userId, other.userId}
    alice.revokeAccess(made.id, [contact, other]).result(PATIENCE)
    assert members() == set()
    alice.updateContainersAccessLevels(
        [AccessChange(made.id, add=[AccessLevel(contact), AccessLevel(other)])]
    ).result(PATIENCE)
    assert members() == {contact.userId, other.userId}
    alice.updateContainersAccessLevels([AccessChange(made.id, remove=[contact, other])]).result(
        PATIENCE
    )
    assert members() == set()
    for name in ("getContainer", "deleteContainer"):
        with pytest.raises(INVALID, match="not Contact: it names a user"):
            getattr(alice, name)(contact)


def test_the_same_card_changes_nothing_and_can_verify(
    bob: ServerProvider, book: Contacts, alice: ServerProvider
) -> None:
    first = book.add(card(bob)).result(PATIENCE)
    version = alice.listContainers(TYPE).result(PATIENCE).containers[0].version  # type: ignore[union-attr] # it can be read
    assert book.add(card(bob, "Robert")).result(PATIENCE) == first
    assert book.add(card(bob), "BOB").result(PATIENCE) == first
    again = alice.listContainers(TYPE).result(PATIENCE).containers[0]
    assert again.version == version  # type: ignore[union-attr] # it can be read
    assert book.add(card(bob), verified=True).result(PATIENCE).verified
    assert book.add(card(bob)).result(PATIENCE).verified
    with pytest.raises(BrokerError.alreadyExistsError, match="in the book as 'Bob': rename"):
        book.add(card(bob), "Robert").result(PATIENCE)
    assert names(book) == ["Bob"]


def test_unknown_and_deleted_users_and_users_of_another_broker_are_errors_that_say_what_to_do(
    bob: ServerProvider, book: Contacts, new_provider: NewProvider
) -> None:
    unknown = ContactCard(KeyRing.generate().fingerprint, bob.serverUrl, "Nobody")
    with pytest.raises(BrokerError.notFoundError, match=r"does not know user .* ask the person"):
        book.add(unknown).result(PATIENCE)
    gone = new_provider(True)
    left = card(gone, "Gone")
    gone.deleteUser().result(PATIENCE)
    with pytest.raises(BrokerError.notFoundError, match="was deleted: ask the person"):
        book.add(left).result(PATIENCE)
    elsewhere = ContactCard(card(bob).fingerprint, "https://broker.example/base", "Bob")
    with pytest.raises(INVALID, match=r"https://broker\.example/base.*provider of that broker"):
        book.add(elsewhere).result(PATIENCE)
    assert names(book) == []


def test_names_that_do_not_exist_are_errors_that_suggest_near_ones(
    bob: ServerProvider, book: Contacts
) -> None:
    with pytest.raises(BrokerError.notFoundError) as caught:
        book.get("Bob").result(PATIENCE)
    assert "Near" not in str(caught.value)
    book.add(card(bob), "Robert").result(PATIENCE)
    for act in (
        lambda: book.get("Rovert"),
        lambda: book.remove("Rovert"),
        lambda: book.rename("Rovert", "x"),
        lambda: book.verify("Rovert", card(bob).fingerprint),
    ):
        with pytest.raises(BrokerError.notFoundError, match="Similar names: 'Robert'"):
            act().result(PATIENCE)


def test_contacts_are_found_by_part_of_the_name_user_id_and_beginning_of_the_fingerprint(
    bob: ServerProvider, carol: ServerProvider, book: Contacts
) -> None:
    him = book.add(card(bob)).result(PATIENCE)
    her = book.add(card(carol, "Carol Böhm")).result(PATIENCE)

    def found(text: str) -> list[Contact]:
        return list(book.find(text).result(PATIENCE))

    assert found("o") == [him, her]
    assert found("BO\u0308HM") == [her]
    for each in (him, her):
        assert found(str(each.userId)) == [each]
        assert found(each.userId.hex.upper()) == [each]
        assert found(each.fingerprint) == [each]
        assert each in found(each.fingerprint[:9])
    assert found("") == found(" ") == found("nobody") == found(him.fingerprint[:3]) == []


def test_a_renamed_contact_stays_verified_and_the_old_name_is_free(
    bob: ServerProvider, carol: ServerProvider, book: Contacts
) -> None:
    book.add(card(bob), verified=True).result(PATIENCE)
    book.add(card(carol, "Carol")).result(PATIENCE)
    with pytest.raises(BrokerError.alreadyExistsError, match="'CAROL'"):
        book.rename("Bob", "CAROL").result(PATIENCE)
    assert book.rename("Bob", "BOB").result(PATIENCE).name == "BOB"
    renamed = book.rename("bob", "Robert").result(PATIENCE)
    assert (renamed.name, renamed.verified) == ("Robert", True)
    assert names(book) == ["Carol", "Robert"]


def test_a_fingerprint_that_was_read_out_verifies_its_contact_alone(
    bob: ServerProvider, carol: ServerProvider, book: Contacts
) -> None:
    book.add(card(bob)).result(PATIENCE)
    with pytest.raises(SUBSTITUTED) as caught:
        book.verify("Bob", card(carol).fingerprint).result(PATIENCE)
    assert card(bob).fingerprint in str(caught.value)
    assert card(carol).fingerprint in str(caught.value)
    with pytest.raises(INVALID, match="compare all of them"):
        drop(book.verify("Bob", card(bob).fingerprint[:20]))
    assert not book.get("Bob").result(PATIENCE).verified
    spoken = card(bob).fingerprint.replace(" ", "-").upper()
    assert book.verify("Bob", spoken).result(PATIENCE).verified
    assert book.get("Bob").result(PATIENCE).verified


def test_a_removed_contact_keeps_their_access_and_can_be_added_again(
    alice: ServerProvider, bob: ServerProvider, book: Contacts
) -> None:
    contact = book.add(card(bob)).result(PATIENCE)
    levels = [AccessLevel(id_of(alice), 511), AccessLevel(contact)]
    made = alice.createContainer(b"x", levels).result(PATIENCE)
    assert book.remove("Bob").result(PATIENCE) is None
    assert repr(book) == f"<Contacts of {alice!r}>"
    assert names(book) == []
    assert bob.getContainerContent(made.id).result(PATIENCE) == b"x"
    book.add(card(bob)).result(PATIENCE)


@pytest.mark.parametrize(
    "act, words",
    [
        (lambda book, _: book.add("card"), "card must be a ContactCard, as ContactCard.parse"),
        (lambda book, bob: book.add(bob, ""), "name must have 1 to 64"),
        (lambda book, bob: book.add(bob, "a\nb"), "name must be printable"),
        (lambda book, bob: book.add(bob, "\u200b"), "at least one visible character"),
        (lambda book, bob: book.add(bob, 7), "name must be a str"),
        (lambda book, _: book.rename("Bob", "a" * 65), "newName must have"),
        (lambda book, _: book.rename("Bob"), "It takes: name, newName"),
        (lambda book, _: book.verify("Bob", "ab"), "64 hexadecimal digits"),
        (lambda book, _: book.get(None), "name must be a str"),
    ],
    ids=range(9),
)
def test_a_wrong_argument_is_refused_by_the_call_itself(
    bob: ServerProvider, book: Contacts, act: Callable[..., Any], words: str
) -> None:
    his = card(bob)
    with Network() as network, pytest.raises(INVALID, match=words):
        act(book, his)
    assert network.sent == []


def entry(name: str, digit: str) -> _Entry:
    return _Entry(name, digit * 64, "https://broker.example", False, 0)


def test_contacts_do_not_exceed_the_most(
    monkeypatch: pytest.MonkeyPatch, bob: ServerProvider, carol: ServerProvider, book: Contacts
) -> None:
    monkeypatch.setattr(contacts, "MAX_CONTACTS", 1)
    book.add(card(bob)).result(PATIENCE)
    with pytest.raises(BrokerError.tooLargeError, match="remove some first"):
        book.add(card(carol, "Carol")).result(PATIENCE)


@pytest.mark.long
def test_a_book_of_the_most_contacts_fits_and_is_used(
    alice: ServerProvider, bob: ServerProvider, book: Contacts
) -> None:
    many = [
        _Entry(f"{number:060d}\N{GRINNING FACE}", f"{number:064x}", "https://b.example/" + "a" * 237, True, 0)
        for number in range(9_999)
    ]  # fmt: skip
    content = msgspec.json.encode({"version": 1, "document": {"contacts": many}})
    put_own_document(alice, TYPE, content)
    book.add(card(bob)).result(PATIENCE)
    assert book.get("Bob").result(PATIENCE).userId == id_of(bob)
    assert len(book.list().result(PATIENCE)) == 10_000


@pytest.mark.sampled
@pytest.mark.parametrize(
    "change",
    [
        {"name": "a\nb"},
        {"name": ""},
        {"name": "a" * 65},
        {"fingerprint": "A" * 64},
        {"fingerprint": "a" * 63},
        {"fingerprint": "a" * 64 + "\n"},
        {"verified": 1},
        {"addedAt": -1},
        {"more": 1},
        {"serverUrl": "a" * 256},
    ],
    ids=str,
)
def test_a_book_with_a_wrong_contact_is_an_error_and_not_overwritten(
    alice: ServerProvider, bob: ServerProvider, book: Contacts, change: dict[str, Any]
) -> None:
    right = msgspec.to_builtins(entry("Carol", "a"))
    content = msgspec.json.encode({"version": 1, "document": {"contacts": [right | change]}})
    made = put_own_document(alice, TYPE, content)
    with pytest.raises(BrokerError.integrityError, match=str(made)):
        book.add(card(bob)).result(PATIENCE)
    assert alice.getContainerContent(made).result(PATIENCE) == content


@pytest.mark.parametrize("twice", [("Bob", "bob", "ab"), ("Bob", "Carol", "aa")])
def test_a_book_with_a_name_or_a_user_twice_is_an_error(
    alice: ServerProvider, book: Contacts, twice: tuple[str, str, str]
) -> None:
    one, other, digits = twice
    both = [msgspec.to_builtins(entry(*each)) for each in zip((one, other), digits, strict=True)]
    content = msgspec.json.encode({"version": 1, "document": {"contacts": both}})
    put_own_document(alice, TYPE, content)
    with pytest.raises(BrokerError.integrityError):
        book.list().result(PATIENCE)
