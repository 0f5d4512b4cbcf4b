"""Contacts on the page: added by their cards, compared by both people, renamed and removed."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest

from scbroker import ContactCard, Contacts, ServerProvider
from scbroker.desk.people import contact_in_text
from tests.kit.pages import UsersPage
from tests.kit.people import Person, befriend, put, with_access


def _blocks(text: str) -> list[str]:
    """Return the fingerprints of the view in the order in which it shows them."""
    lists = re.findall(r'<ol class="fingerprint">(.*?)</ol>', text, re.DOTALL)
    return [" ".join(re.sub("<[^>]*>", " ", each).split()) for each in lists]


@pytest.mark.long
def test_a_card_is_added_and_leads_to_the_comparison(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    card = bob.json("whoami")["card"]
    shown = page.post("/contacts/add", {"card": card, "name": ""}).expect(200).words
    assert "Compare fingerprints with Bob" in shown
    [contact] = Contacts(session).list().result()
    assert contact.name == "Bob"
    assert not contact.verified


@pytest.mark.long
def test_both_people_see_the_same_two_blocks_in_the_same_order(
    page: UsersPage, alice: Person, session: ServerProvider, bob: Person
) -> None:
    of_bob = befriend(session, bob, "Bob")
    with bob.session() as his, UsersPage(bob) as bobs:
        of_alice = befriend(his, alice, "Alice")
        bobs.enter().expect(200)
        hers = _blocks(page.get(f"/contacts/{of_bob}/compare").expect(200).text)
        assert hers == _blocks(bobs.get(f"/contacts/{of_alice}/compare").expect(200).text)
    assert set(hers) == {each.json("whoami")["fingerprint"] for each in (alice, bob)}


@pytest.mark.long
def test_a_contact_is_verified_only_after_both_have_compared(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    path = f"/contacts/{befriend(session, bob, 'Bob')}/compare"
    page.post(path).expect(400)
    assert not Contacts(session).get("Bob").result().verified
    # The contact of this name had another fingerprint when the view was shown.
    other = "0123 " * 15 + "0123"
    refused = page.post(path, {"compared": "yes", "fingerprint": other})
    assert "do not share with this contact" in refused.words
    assert not Contacts(session).get("Bob").result().verified
    assert "Bob is verified" in page.post(path, {"compared": "yes"}).expect(200).words
    assert Contacts(session).get("Bob").result().verified


@pytest.mark.long
def test_a_contact_whose_fingerprint_differs_is_not_verified(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    user = befriend(session, bob, "Bob")
    assert "Do not share" in page.get(f"/contacts/{user}/different").expect(200).words
    assert not Contacts(session).get("Bob").result().verified


@pytest.mark.long
def test_a_contact_is_renamed_and_removed(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    user = befriend(session, bob, "Bob")
    assert "named Robert now" in page.post(f"/contacts/{user}/rename", {"name": "Robert"}).words
    assert "Robert" in page.get(f"/contacts/{user}").words
    page.post(f"/contacts/{user}/rename", {"name": ""}).expect(400)
    assert "not in your contacts any more" in page.post(f"/contacts/{user}/remove").words
    page.get(f"/contacts/{user}").expect(404)


@pytest.mark.long
def test_ones_own_card_is_shown_and_not_added(page: UsersPage, alice: Person) -> None:
    card = alice.json("whoami")["card"]
    assert card in page.get("/contacts").expect(200).text
    refused = page.post("/contacts/add", {"card": card, "name": ""}).expect(400)
    assert "your own card" in refused.words


@pytest.mark.long
def test_a_damaged_card_is_refused(page: UsersPage, bob: Person) -> None:
    card = bob.json("whoami")["card"]
    page.post("/contacts/add", {"card": card[:-1], "name": ""}).expect(400)
    page.post("/contacts/add", {"card": "", "name": ""}).expect(400)


@pytest.mark.long
def test_a_comparison_from_the_question_of_a_share_leads_back_to_the_share(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    made, user = put(session, "plan.txt"), befriend(session, bob, "Bob")
    card = ContactCard(bob.broker.new_user().fingerprint, bob.broker.url, "Ann")
    ann = Contacts(session).add(card).result().userId
    asked = page.get(f"/containers/{made}/share?person={user}&can=read&until=").expect(200).text
    path = f"/contacts/{user}/compare"
    assert f'href="{page.root}{path}?share={made}"' in asked
    back = f"/containers/{made}/people?person={user}"
    shown = page.get(f"{path}?share={made}").expect(200).text
    different = f"/contacts/{user}/different?share={made}"
    for text in (shown, page.get(different).expect(200).text):
        assert f'href="{page.root}{back}"' in text
    assert f'href="{page.root}{different}"' in shown
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', shown))
    answer = page.request("POST", page.root + path, {**hidden, "compared": "yes"}).expect(303)
    assert answer.headers["location"] == page.root + back
    people = page.get(back).expect(200)
    assert "Bob is verified" in people.words
    assert f'<option value="{user}" selected>' in people.text  # and not the first one
    assert f'<option value="{ann}">' in people.text
    # Once verified, the question has no such link.
    asked = page.get(f"/containers/{made}/share?person={user}&can=read&until=").text
    assert "/compare" not in asked


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


@pytest.mark.long
def test_a_contact_named_like_the_pages_own_words_is_quoted_in_a_question(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    user = befriend(session, bob, "The link For Dave")
    made = put(session, "plan.txt", accessLevels=with_access(session, user))
    share = page.get(f"/containers/{made}/share?person={user}&can=read&until=").words
    assert 'Share plan.txt with the contact "The link For Dave"?' in share
    for path in (
        f"/containers/{made}/revoke?user={user}",
        f"/containers/{made}/delete",
        f"/contacts/{user}/rename",
        f"/contacts/{user}/remove",
        f"/contacts/{user}/compare",
    ):
        assert 'the contact "The link For Dave"' in page.get(path).expect(200).words, path


@pytest.mark.parametrize(
    "name",
    ["you", "\uff39\uff2f\uff35", " You", "The link For Dave", "the user x", "Group Team", "A, B"],
)
def test_a_contact_whose_name_reads_like_somebody_else_is_quoted(name: str) -> None:
    assert contact_in_text(name) == f'the contact "{name}"'
    assert contact_in_text("Youssef") == "Youssef"
