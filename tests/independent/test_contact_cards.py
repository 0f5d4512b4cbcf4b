"""contact_cards.json: docs/spec/ids.md, 5.1."""

from tests.independent import contact_cards
from tests.independent.vectors import Vector, cases, expect, octets


def check(vector: Vector) -> None:
    found = contact_cards.parse(vector["card"])
    if vector["result"] == "valid":
        assert found == (octets(vector["fingerprint"]), vector["serverUrl"], vector["name"])


@cases("contact_cards")
def test_contact_cards_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """Every spelling of a valid card is read alike, and nothing else is a card."""
    expect(vector, lambda: check(vector))


@cases("contact_cards", "valid")
def test_a_card_is_written_in_the_spelling_that_every_reader_takes(vector: Vector) -> None:
    card = contact_cards.parse(vector["card"])
    assert card.text == "".join(vector["card"].split()).lower()
