"""Attacks by names that look like other names. Attack 153 of `catalogue`."""

from __future__ import annotations

from uuid import uuid4

import pytest

from scbroker import BrokerError, ContactCard, Contacts, KeyRing, ServerProvider
from scbroker.cli.output import harmless, printable
from scbroker.cli.people import _label, holder_of
from scbroker.desk.people import Somebody
from tests.hostile_broker.catalogue import attack
from tests.kit.fixtures import NewProvider
from tests.kit.waiting import PATIENCE

deceiving = attack(153, "name that looks like another one")
INVALID = BrokerError.invalidArgumentError
BLANKS = ["\u034f", "\ufe0f", "\u17b4", "\u3164", "\u115f", "\u2800", "\u200d", "\U000e0041"]


@pytest.fixture
def alice(new_provider: NewProvider) -> ServerProvider:
    return new_provider(True)


@deceiving
def test_no_card_and_no_contact_has_a_name_that_looks_like_another_one(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    mallory = new_provider(True)
    book, digits = Contacts(alice), mallory.getKeyRing().result(PATIENCE).fingerprint
    book.add(new_provider(True).getContactCard("Bob Jones").result(PATIENCE)).result(PATIENCE)
    card = ContactCard(digits, alice.serverUrl, "Mallory")
    for name in [*(f"Bob{each} Jones" for each in BLANKS), "you", "YO\u200bU", "47c5156a"]:
        with pytest.raises(INVALID):
            ContactCard(digits, alice.serverUrl, name)
        with pytest.raises(INVALID):
            book.add(card, name).result(PATIENCE)
    with pytest.raises(BrokerError.keySubstitutionError):
        book.add(card, "\uff22ob  JONES").result(PATIENCE)
    book.add(card).result(PATIENCE)
    with pytest.raises(INVALID):
        book.rename("Mallory", "Bob\u2800Jones").result(PATIENCE)
    assert [each.name for each in book.list().result(PATIENCE)] == ["Bob Jones", "Mallory"]


@deceiving
def test_no_group_and_no_link_gets_a_name_that_looks_like_another_one(
    alice: ServerProvider,
) -> None:
    made = alice.createGroup("Team").result(PATIENCE)
    container = alice.createContainer(b"x").result(PATIENCE)
    for name in ("Te\u034fam", "you", "12345678", "\u3164"):
        for act in (
            lambda name=name: alice.createGroup(name),
            lambda name=name: alice.renameGroup(made, name),
            lambda name=name: alice.createLink(
                container.id, expiresAt=made.createdAt.replace(year=9000), name=name
            ),
        ):
            with pytest.raises(INVALID):
                act().result(PATIENCE)


@deceiving
def test_no_list_and_no_message_shows_a_contact_as_a_group_a_link_or_several_people() -> None:
    fingerprint = KeyRing.generate().fingerprint
    for name in ("group Family", "LINK photos", "the Group 'Family'", "Bob, Carol", 'a, "b'):
        card = ContactCard(fingerprint, "https://broker.example", name)
        assert _label(Somebody(card.userId, "verified", name)) == holder_of(card).name != name
    assert _label(Somebody(uuid4(), "contact", "group Family")) == 'the contact "group Family"'
    assert _label(Somebody(uuid4(), "group", "Family, group Team")) == 'group "Family, group Team"'


@deceiving
def test_tables_and_messages_show_what_nobody_sees() -> None:
    for blank in BLANKS:
        escape = blank.encode("unicode_escape").decode()
        assert printable(f"pl{blank}an") == f"pl{escape}an"


@deceiving
def test_no_name_draws_over_other_rows() -> None:
    assert printable("a" + "\u0308" * 4) == "a" + "\u0308" * 4
    assert printable("a" + "\u0308" * 30 + "b") == "a" + "\u0308" * 4 + "\\u0308" * 26 + "b"
    assert harmless("a" + "\u0308" * 30) == "a" + "\u0308" * 30
