"""Attacks on a page by servers of other users, and by what it keeps or shows too late."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import re
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from scbroker import ContactCard
from scbroker.cli.run import Run
from scbroker.cli.ui import content
from scbroker.cli.ui.page import users_page
from scbroker.cli.ui.session import Session
from scbroker.cli.web.access import Access
from scbroker.cli.web.site import Done
from tests.hostile_broker.catalogue import attack
from tests.kit.answering import answering
from tests.kit.brokers import BrokerProcess
from tests.kit.pages import OperatorsPage, ServedPage, UsersPage
from tests.kit.people import Person, befriend, put, with_access
from tests.kit.waiting import PATIENCE

replaced = attack(156, "server in place of the page")
beside = attack(157, "server beside the page")
kept = attack(158, "secret left in the page")
named = attack(159, "broker that a card names")
later = attack(160, "content replaced after the view")

PASSWORD, PASSPHRASE = "correct Horse 7", "battery Staple 8"
PNG: Final = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def engine() -> str:
    """SQLite: the page knows nothing of the broker's engine."""
    return "sqlite"


@pytest.fixture
def alice(person: Callable[[str], Person]) -> Person:
    return person("Alice")


@pytest.fixture
def page(alice: Person) -> Iterator[UsersPage]:
    """Alice's page, which her browser has entered."""
    with UsersPage(alice) as opened:
        opened.enter().expect(200)
        yield opened


@pytest.fixture
def new_page(stranger: Person) -> Iterator[UsersPage]:
    """The page of somebody who has no profile yet."""
    home = stranger.home
    with UsersPage(
        stranger, "--session-folder", home / "sessions", "--trust-folder", home / "trust"
    ) as opened:
        opened.enter().expect(200)
        yield opened


@pytest.mark.process
@replaced
def test_an_answer_proves_the_secret_of_the_view_which_is_in_nothing_that_is_sent(
    page: UsersPage, broker: BrokerProcess
) -> None:
    proves(page, "/containers")
    [secret] = set(re.findall(r'name="form" value="([^"]*)"', page.get("/containers").text))
    page.request("POST", f"{page.root}/lock", {"form": secret}).expect(303)
    proves(page, "/start", "locked")  # the form for the passphrase as well
    with OperatorsPage(broker) as operators:
        operators.enter().expect(200)
        proves(operators, "/overview")


def proves(page: ServedPage, view: str, state: str = "open") -> None:
    shown = page.get(view).expect(200).text
    [secret] = re.findall(r'data-proof="([^"]{43})"', shown)
    for nonce in ("1", "2"):
        answer = page.get(f"/state?nonce={nonce}", {"Sec-Fetch-Mode": "cors"}).expect(200)
        right = hmac.new(secret.encode(), f"{nonce} {state}".encode(), hashlib.sha256)
        assert (answer.text, answer.headers["x-page-proof"]) == (state, right.hexdigest())
    assert shown.count(secret) == 1  # in no form and no link
    assert secret not in f"{page.cookie}{page.root}{page.code}"
    for path in ("/", "/nothing", "/static/page.js", "/static/nothing"):
        assert secret not in page.request("GET", path).text, path


@beside
def test_a_page_is_not_at_the_address_that_all_servers_share(page: UsersPage) -> None:
    assert page.host.startswith("127.")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", page.port), PATIENCE).close()
    page.get("/containers", {"Host": f"127.0.0.1:{page.port}"}).expect(421)
    page.get("/containers", {"Sec-Fetch-Site": "cross-site"}).expect(403)


@kept
def test_a_lock_drops_what_the_last_act_said() -> None:
    session = Session(None, 60)
    page: Any = users_page(session, Access("127.0.0.1", 1), dt.datetime.now(dt.UTC))
    site = page._app.state.site
    site.keep(Done("letter.txt is renamed.", is_fault=False), site.sessions)
    session.lock()
    assert "letter.txt" not in repr(vars(site))


@kept
def test_no_secret_of_a_form_that_failed_is_in_a_later_view(
    new_page: UsersPage, stranger: Person
) -> None:
    url, key = stranger.broker.url, str(stranger.broker.api_key)
    log_in = {"user": str(stranger.broker.new_user().userId), "passphrase": PASSPHRASE}
    both = {"password": PASSWORD, "password_again": PASSWORD, "passphrase": PASSPHRASE}
    register = {"name": "Carol", "reminder": f"the {PASSPHRASE}", **both}
    forms = {"/log-in": log_in, "/register": {**register, "passphrase_again": PASSPHRASE}}
    for path, fields in forms.items():
        for server in (url, url.replace("://", f"://carol:{PASSWORD}@"), "nothing"):
            refused = new_page.post(path, {**fields, "server": server, "api_key": key})
            assert 'role="alert"' in refused.expect(200).text
            for view in (refused, new_page.get("/log-in"), new_page.get("/register")):
                assert not [each for each in (key, PASSWORD, PASSPHRASE) if each in view.text]


@named
def test_no_secret_goes_to_the_broker_of_a_card_before_its_address_was_shown(
    new_page: UsersPage, stranger: Person
) -> None:
    ring, got = stranger.broker.new_user(), list[str]()
    fields = {"api_key": str(stranger.broker.api_key), "passphrase": PASSPHRASE}
    with answering(404, got=got) as evil:
        card = str(ContactCard(ring.fingerprint, evil, "Carol"))
        asked = new_page.post("/log-in", {"user": card, **fields}).expect(200)
        assert f"The card names the broker {evil}." in asked.words
        assert f'value="{evil}"' in asked.text  # what the person sends again, or corrects
        assert got == []
        new_page.post("/log-in", {"user": card, "server": evil, **fields}).expect(200)
        assert got


@later
def test_an_open_gallery_shows_the_pictures_that_were_listed_or_none(
    page: UsersPage, alice: Person, person: Callable[[str], Person]
) -> None:
    mallory = person("Mallory")
    with alice.session() as session, mallory.session() as attacker:
        befriend(session, mallory, "Mallory")
        levels = with_access(session, mallory.ring.userId, 511)
        header = {"name": "zoo.png", "mediaType": "image/png"}
        made = session.createContainer(PNG, header, levels).result().id
        text = page.get("/containers?show=gallery").expect(200).text
        view = page.get(f"/containers/{made}").expect(200).text
        links = re.findall(
            rf'="{page.root}(/containers/{made}/(?:image|download)[^"]*)"', text + view
        )
        assert len(links) == 3
        for each in links:
            assert page.get(each).expect(200).body == PNG
        attacker.updateContainerContent(made, PNG + b"bomb").result(PATIENCE)
        for each in links:
            assert b"bomb" not in page.get(each).expect(409).body


@later
def test_a_content_that_is_replaced_while_a_view_is_made_is_an_error(alice: Person) -> None:
    with alice.session() as session:
        made = put(session, "zoo.png", PNG)
        shown = session.getContainer(made).result(PATIENCE)
        session.updateContainerContent(made, PNG + b"bomb").result(PATIENCE)
        found = content.preview(cast(Run, SimpleNamespace(session=session)), shown)
        assert found["kind"] == "fault"
        assert "open it again" in str(found["text"])
