"""A contact card as text: every mistake is found, and every error says what to do."""

import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scbroker import BrokerError, ContactCard, KeyRing
from scbroker.cards import PREFIX

FINGERPRINT = KeyRing.generate().fingerprint
CARD = ContactCard(FINGERPRINT, "https://broker.example/base", "Bob of Öland")
ALPHABET = string.ascii_lowercase + "234567"
INVALID = BrokerError.invalidArgumentError


def test_a_card_is_read_back_from_its_text_in_any_case_and_with_white_space_anywhere() -> None:
    assert ContactCard.parse(CARD.text) == CARD
    assert ContactCard.parse(CARD.text.upper()) == CARD
    folded = "\r\n".join(CARD.text[at : at + 11] for at in range(0, len(CARD.text), 11))
    assert ContactCard.parse(f"\t {folded}\n") == CARD
    assert str(CARD) == CARD.text


def test_every_single_wrong_character_of_a_card_is_noticed() -> None:
    text = CARD.text
    for at in range(len(text)):
        for other in {*ALPHABET, "0", "-", ""} - {text[at]}:
            with pytest.raises(INVALID):
                ContactCard.parse(text[:at] + other + text[at + 1 :])


def test_every_pair_of_exchanged_neighbours_and_every_doubled_character_is_noticed() -> None:
    text = CARD.text
    for at in range(len(text) - 1):
        exchanged = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
        for wrong in {exchanged, text[:at] + text[at] + text[at:]} - {text}:
            with pytest.raises(INVALID):
                ContactCard.parse(wrong)


@pytest.mark.parametrize(
    "text, words",
    [
        (CARD.text[:-1], "missing or mistyped: copy"),
        ("", f"not a contact card: a card begins with {PREFIX}"),
        (
            "https://broker.example/#scbroker-link:AbC",
            "This is a link, not a contact card: openLink",
        ),
        (CARD.text + " " * 4096, "too long for a contact card: pass the card alone"),
        (b"scbroker", "text must be a str, not bytes"),
    ],
)
def test_a_text_that_is_not_a_card_is_an_error_that_says_what_to_do(text: Any, words: str) -> None:
    with pytest.raises(INVALID, match=words):
        ContactCard.parse(text)


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"fingerprint": "ab" * 31}, "64 hexadecimal digits"),
        ({"serverUrl": "http://broker.example"}, "https"),
        ({"serverUrl": "https://bücher.example"}, "xn--"),
        ({"serverUrl": "https://broker.example/" + "a" * 240}, "at most 255"),
        ({"name": ""}, "name must have 1 to 64"),
        ({"name": "a" * 65}, "not 65"),
        ({"name": "\u202ebob"}, "printable"),
        ({"name": "Bob\ufe0f"}, "nobody sees"),
        ({"name": "You"}, "must not be"),
    ],
)
def test_a_card_with_a_wrong_field_is_refused(fields: dict[str, Any], words: str) -> None:
    right = {"fingerprint": FINGERPRINT, "serverUrl": "https://broker.example", "name": "Bob"}
    with pytest.raises(INVALID, match=words):
        ContactCard(**(right | fields))


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.text(min_size=1, max_size=64))
def test_any_fingerprint_and_name_come_back(fingerprint: bytes, name: str) -> None:
    try:
        card = ContactCard(fingerprint.hex(), "https://broker.example:8443/a/b", name)
    except INVALID:
        return
    assert ContactCard.parse(card.text) == card
