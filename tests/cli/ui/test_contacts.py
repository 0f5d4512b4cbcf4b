"""Contacts on the page: added by their cards, compared by both people, renamed and removed."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest

from scbroker import Contacts, ServerProvider
from scbroker.desk.people import contact_in_text
from tests.kit.pages import UsersPage
from tests.kit.people import Person, befriend, put


@pytest.mark.long
def test_a_contact_is_verified_only_after_both_have_compared(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    path = f"/contacts/{befriend(session, bob, 'Bob')}/compare"
    both = sorted([session.getKeyRing().result().fingerprint, bob.ring.fingerprint])
    shown = re.findall(r"<code>([0-9a-f ]+)</code>", page.get(path).text)
    assert " ".join(shown) == " ".join(both), "in the same order for both"
    page.post(path).expect(400)
    assert not Contacts(session).get("Bob").result().verified
    assert "Bob is verified" in page.post(path, {"compared": "yes"}).expect(200).words
    assert Contacts(session).get("Bob").result().verified


@pytest.mark.long
def test_a_contact_is_added_by_a_card_renamed_and_removed(page: UsersPage, bob: Person) -> None:
    own = bob.json("whoami")
    user = own["userId"]
    added = page.post("/contacts/add", {"card": own["card"]}).expect(200)
    assert "Bob is in your contacts" in added.words
    assert "named Robert now" in page.post(f"/contacts/{user}/rename", {"name": "Robert"}).words
    assert "Robert" in page.get(f"/contacts/{user}").words
    page.post(f"/contacts/{user}/rename", {"name": ""}).expect(400)
    assert "not in your contacts any more" in page.post(f"/contacts/{user}/remove").words
    page.get(f"/contacts/{user}").expect(404)


@pytest.mark.long
def test_a_comparison_returns_only_to_a_container(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    user, made = befriend(session, bob, "Bob"), put(session, "plan.txt")
    for wrong in (
        "x",
        "//evil.example",
        f"{{{made}}}",
        f"{made}/../..",
        made.hex,
        f"urn:uuid:{made}",
    ):
        query = urlencode({"share": wrong})
        page.get(f"/contacts/{user}/compare?{query}").expect(400)
        page.get(f"/contacts/{user}/different?{query}").expect(400)
        page.post(f"/contacts/{user}/compare", {"compared": "yes", "share": wrong}).expect(400)


@pytest.mark.parametrize(
    "name",
    ["you", "\uff39\uff2f\uff35", " You", "The link For Dave", "the user x", "Group Team", "A, B"],
)
def test_a_contact_whose_name_reads_like_somebody_else_is_quoted(name: str) -> None:
    assert contact_in_text(name) == f'the contact "{name}"'
    assert contact_in_text("Youssef") == "Youssef"
