"""Attacks on the user's page by people who share with its user."""

from __future__ import annotations

import asyncio
import re
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scbroker import (
    AccessLevel,
    ContactCard,
    Contacts,
    MemoryTrustStore,
    NewContainer,
    ServerProvider,
)
from scbroker.cli.run import Run
from scbroker.cli.ui import listing
from scbroker.cli.ui.session import Session
from tests.hostile_broker.catalogue import attack
from tests.kit.pages import UsersPage
from tests.kit.people import Person, put, team, with_access
from tests.kit.waiting import PATIENCE

imitated = attack(114, "text of others that acts on the page")
swapped = attack(115, "contact swapped before the click")
flooded = attack(116, "page flooded with events")
filled = attack(121, "list flooded by others")
loaded = attack(122, "picture loaded without a click")

HTML = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"
PNG = b"\x89PNG\r\n\x1a\n"
OTHER = " ".join(["0123"] * 16)


@pytest.fixture
def engine() -> str:
    """SQLite: the page knows nothing of the broker's engine."""
    return "sqlite"


@pytest.fixture
def alice(person: Callable[[str], Person]) -> Person:
    return person("Alice")


@pytest.fixture
def mallory(person: Callable[[str], Person]) -> Person:
    return person("Mallory")


@pytest.fixture
def page(alice: Person) -> Iterator[UsersPage]:
    """Alice's page, which her browser has entered."""
    with UsersPage(alice) as opened:
        opened.enter().expect(200)
        yield opened


@pytest.fixture
def attacker(mallory: Person) -> Iterator[ServerProvider]:
    """Mallory's session, in a program whose name is HTML."""
    provider = ServerProvider(
        mallory.broker.api_key, mallory.broker.url, HTML, trustStore=MemoryTrustStore()
    )
    with provider:
        provider.logIn(mallory.ring, mallory.ring.userId).result(PATIENCE)
        yield provider


@pytest.mark.long
@imitated
def test_nothing_that_others_write_is_markup_on_a_view_of_sharing(
    page: UsersPage, alice: Person, mallory: Person, attacker: ServerProvider
) -> None:
    with alice.session() as session:
        card = ContactCard(mallory.ring.fingerprint, mallory.broker.url, HTML)
        Contacts(session).add(card).result()
    header = {"name": f"{HTML}\u202egnp", HTML: [HTML, {"\u202egnp": "\x1b[2J"}]}
    offered, joined = team(mallory, HTML, alice, accepted=False), team(mallory, f"{HTML}2", alice)
    attacker.renameGroup(joined, description=HTML).result(PATIENCE)
    levels = [*with_access(attacker, alice.ring.userId, 511), AccessLevel(joined, 511)]
    made = (
        attacker.createContainer(b"x", customHeaderObject=header, type=HTML, accessLevels=levels)
        .result()
        .id
    )
    member, contact = f"/containers/{made}", f"/contacts/{mallory.ring.userId}"
    asked = f"{member}/share?person={mallory.ring.userId}&can=read&until="
    views = [
        "/contacts",
        contact,
        f"{contact}/compare",
        f"{contact}/different",
        f"{contact}/rename",
    ]
    views += [f"{member}/{each}" for each in ("people", "link", "history", "broker")]
    views += ["/history", asked, f"{member}/revoke?user={mallory.ring.userId}"]
    views += ["/groups", f"/groups/{offered.id}", f"/groups/{offered.id}/accept"]
    views += [f"/groups/{joined.id}{each}" for each in ("", "/leave", "/renew", "/rename")]
    for path in views:
        text = page.get(path).expect(200).text
        assert "<script>" not in text, path
        assert "<img src=x" not in text, path
        assert "&lt;script&gt;" in text, path
        assert "\u202e" not in text, path
        assert "\x1b" not in text, path


@pytest.mark.long
@imitated
def test_a_name_of_a_quarter_of_a_mebibyte_fills_no_view(
    page: UsersPage, alice: Person, attacker: ServerProvider
) -> None:
    levels = with_access(attacker, alice.ring.userId, 511)
    header = {"name": "n" * 100_000, "k" * 100_000: "v" * 50_000}
    made = attacker.createContainer(b"", customHeaderObject=header, accessLevels=levels).result()
    for view in ("people", "link", "history", "broker"):
        assert len(page.get(f"/containers/{made.id}/{view}").expect(200).text) < 20_000, view


@pytest.mark.long
@imitated
def test_a_contact_who_calls_themselves_you_is_shown_as_a_contact(
    page: UsersPage, alice: Person, mallory: Person, attacker: ServerProvider
) -> None:
    # "You" itself is refused; this one has a Cyrillic letter.
    with alice.session() as session:
        card = ContactCard(mallory.ring.fingerprint, mallory.broker.url, "Y\u043eu")
        Contacts(session).add(card).result()
    made = put(attacker, "plan.txt", accessLevels=with_access(attacker, alice.ring.userId, 511))
    own_marks = {"": 0, "/people": 1, "/history": 0, "/broker": 1}
    for view, count in own_marks.items():
        text = page.get(f"/containers/{made}{view}").expect(200).text
        assert re.search(rf'<a href="[^"]*/contacts/{mallory.ring.userId}">Y\u043eu</a>', text), (
            view
        )
        assert text.count('<strong class="you">') == count, view
    for view in ("/containers", "/containers?show=gallery"):
        text = page.get(view).expect(200).text
        assert re.search(rf'<a href="[^"]*/contacts/{mallory.ring.userId}">Y\u043eu</a>', text), (
            view
        )
        assert '<strong class="you">' not in text, view
        contacts = text.partition('<optgroup label="Contacts">')[2].partition("</optgroup>")[0]
        assert f'value="{mallory.ring.userId}"' in contacts, view


@pytest.mark.long
@swapped
def test_a_click_verifies_only_the_fingerprint_that_was_on_the_screen(
    page: UsersPage, alice: Person, mallory: Person
) -> None:
    """With 2^61 trials an attacker has two cards of one id, and swaps them between the view and the click."""
    user = _befriended(alice, mallory)
    shown = {"compared": "yes", "fingerprint": OTHER}
    page.post(f"/contacts/{user}/compare", shown)
    with alice.session() as session:
        assert not Contacts(session).get("Mallory").result().verified


@pytest.mark.long
@swapped
def test_a_click_shares_only_with_the_contact_that_was_on_the_screen(
    page: UsersPage, alice: Person, mallory: Person
) -> None:
    user = _befriended(alice, mallory)
    with alice.session() as session:
        made = put(session, "plan.txt")
        path = f"/containers/{made}/share?person={user}&can=read&until="
        page.post(path, {"fingerprint": OTHER}).expect(400)
        assert len(session.getContainer(made).result().access or ()) == 1


@pytest.mark.long
@flooded
def test_thousands_of_events_of_others_fill_no_view(
    page: UsersPage, alice: Person, attacker: ServerProvider
) -> None:
    level = AccessLevel(alice.ring.userId)
    for _ in range(4):
        attacker.createContainers(
            [NewContainer(None, accessLevels=[level]) for _ in range(64)]
        ).result()
    assert page.get("/history").expect(200).text.count("<time ") == 200


@pytest.mark.long
@filled
@pytest.mark.parametrize("show", ["list", "gallery"])
def test_headers_of_a_quarter_of_a_mebibyte_fill_no_list(
    page: UsersPage, alice: Person, attacker: ServerProvider, show: str
) -> None:
    levels = with_access(attacker, alice.ring.userId)
    header = {"name": "n" * 100_000, "mediaType": "m" * 100_000, "k": "v" * 50_000}
    attacker.createContainers([NewContainer(b"", header, levels) for _ in range(4)]).result()
    assert len(page.get(f"/containers?show={show}").expect(200).text) < 20_000


@pytest.mark.long
@filled
def test_names_that_take_long_to_normalize_delay_the_list_once(
    alice: Person, attacker: ServerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels, normalize = [AccessLevel(alice.ring.userId)], unicodedata.normalize
    slow, times = "a" + "\u0301" * 511 + "\u0327" * 511, []

    def note(form: Any, text: str) -> str:
        times.append(text == slow)
        return normalize(form, text)

    attacker.createContainers([NewContainer(None, {"name": slow}, levels)] * 64).result(PATIENCE)
    monkeypatch.setattr(unicodedata, "normalize", note)
    with alice.session() as provider:
        session = Session(None, 900)
        session._run = cast(Run, SimpleNamespace(session=provider))
        for _ in range(2):
            assert len(asyncio.run(listing.read(session))) == 64
            assert sum(times) == 64


@pytest.mark.long
@loaded
def test_a_picture_that_a_stranger_has_replaced_is_loaded_by_a_click_alone(
    page: UsersPage, alice: Person, mallory: Person, attacker: ServerProvider
) -> None:
    with alice.session() as session:
        levels = with_access(session, mallory.ring.userId, 511)
        header = {"name": "zoo.png", "mediaType": "image/png"}
        made = session.createContainer(PNG, header, levels).result().id
    picture = f"/containers/{made}/image"
    assert picture in page.get("/containers?show=gallery").expect(200).text
    attacker.updateContainerContent(made, PNG + b"another").result()
    assert picture not in page.get("/containers?show=gallery").expect(200).text


def _befriended(alice: Person, other: Person) -> uuid.UUID:
    with alice.session() as session:
        card = ContactCard(other.ring.fingerprint, other.broker.url, "Mallory")
        Contacts(session).add(card).result()
    return other.ring.userId
