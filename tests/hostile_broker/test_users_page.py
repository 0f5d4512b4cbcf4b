"""Attacks on the user's page: by hostile files, by other sites, by servers and users of the same machine.

Attacks 111 to 122 and 156 to 160 of attacks.toml.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import hmac
import re
import socket
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from scbroker import (
    AccessLevel,
    ContactCard,
    Contacts,
    Container,
    MemoryTrustStore,
    NewContainer,
    ServerProvider,
)
from scbroker.cli.command import Run
from scbroker.cli.ui import page as views
from scbroker.cli.ui.container import preview
from scbroker.cli.ui.page import users_page
from scbroker.cli.ui.session import Session
from scbroker.cli.web.access import Access
from scbroker.cli.web.site import Done
from scbroker.desk.names import Entry, all_containers
from tests.kit.answering import answering
from tests.kit.brokers import BrokerProcess
from tests.kit.pages import OperatorsPage, Reply, ServedPage, UsersPage
from tests.kit.people import Person, befriend, put, team, with_access
from tests.kit.waiting import PATIENCE, wait_until

SCRIPT: Final = "<script>fetch('/')</script>"
SVG: Final = f'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)">{SCRIPT}</svg>'.encode()
HTML: Final = f"<!doctype html><img src=x onerror=alert(1)>{SCRIPT}".encode()
PNG: Final = b"\x89PNG\r\n\x1a\n"
CONTENTS: Final = {
    "svg": SVG,
    "html": HTML,
    "html after a byte order mark": b"\xef\xbb\xbf" + HTML,
    "html in UTF-16": HTML.decode().encode("utf-16"),
    "xml": b'<?xml version="1.0"?><?xml-stylesheet href="x.xsl"?>' + SVG,
    "html in a picture": PNG + HTML,
    "html in a PDF": b"%PDF-1.7\n" + HTML,
    "script": b"alert(1)",
}


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
def share(person: Callable[[str], Person], alice: Person) -> Iterator[Callable[..., uuid.UUID]]:
    """Share a container of Mallory's with Alice."""
    with person("Mallory").session() as session:
        own, other = session.getUserId().result(PATIENCE), alice.ring.userId

        def shared(content: bytes, header: object, type: str | None = None) -> uuid.UUID:
            access = [AccessLevel(own), AccessLevel(other)]
            return session.createContainer(content, header, access, type).result(PATIENCE).id

        yield shared


def is_inert(answer: Reply) -> bool:
    """Return whether a browser runs nothing of an answer, and never takes it for another type."""
    headers = answer.headers
    kind, policy = headers["content-type"], headers["content-security-policy"]
    return (
        headers["x-content-type-options"] == "nosniff"
        and re.fullmatch("image/(png|jpeg|gif|webp|avif)|application/pdf", kind) is not None
        and policy.startswith("sandbox; default-src 'none'")
    )


@pytest.mark.long
def test_no_content_is_active_in_the_page(page: UsersPage, share: Callable[..., uuid.UUID]) -> None:
    """Whatever the sender says of its type."""
    header = {"name": "picture.svg", "mediaType": "image/svg+xml"}
    for kind, body in CONTENTS.items():
        id = share(body, header)
        shown = page.get(f"/containers/{id}").expect(200).text
        assert "<script>" not in shown, kind
        assert "<svg" not in shown, kind
        assert "onerror=alert(1)>" not in shown, kind
        for view in ("image", "pdf"):
            answer = page.get(f"/containers/{id}/{view}")
            assert answer.status == 404 or is_inert(answer), (kind, answer.headers)
        saved = page.get(f"/containers/{id}/download").expect(200)
        assert saved.body == body, kind
        assert saved.headers["content-type"] == "application/octet-stream", kind
        assert saved.headers["content-disposition"].startswith("attachment;"), kind
        assert saved.headers["x-content-type-options"] == "nosniff", kind


@pytest.mark.long
@pytest.mark.parametrize("view", ["image", "pdf"])
def test_a_picture_or_pdf_is_shown_without_script_form_and_request(
    page: UsersPage, view: str
) -> None:
    content = {"image": PNG, "pdf": b"%PDF-1.7\n"}[view]
    id = page.upload("x", content)
    answer = page.get(f"/containers/{id}/{view}").expect(200)
    assert is_inert(answer)
    assert "script-src" not in answer.headers["content-security-policy"]


@pytest.mark.long
def test_a_name_neither_ends_the_header_nor_leaves_the_folder_of_downloads(
    page: UsersPage, share: Callable[..., uuid.UUID]
) -> None:
    harmless = re.compile(r"""attachment; filename="[\w. -]+"; filename\*=UTF-8''[\w.%~-]+""")
    for name in (
        'a"; filename=b.exe', "a\r\nSet-Cookie: x=1", "../../.bashrc", ".bashrc", "CON", "a\u202eb"
    ):  # fmt: skip
        id = share(b"1", {"name": name})
        headers = page.get(f"/containers/{id}/download").expect(200).headers
        found = headers["content-disposition"]
        assert harmless.fullmatch(found), name
        assert "set-cookie" not in headers, name
        assert "%2F" not in found, name
        assert 'filename="."' not in found, name
        assert 'filename="CON"' not in found, name


@pytest.mark.long
def test_control_characters_of_a_text_are_shown_as_escapes(
    page: UsersPage, share: Callable[..., uuid.UUID]
) -> None:
    id = share("pay \u202e001\u202c \x1b[2J".encode(), {"name": "x"})
    shown = page.get(f"/containers/{id}").expect(200).text
    assert "\\u202e001\\u202c \\x1b[2J" in shown
    assert "\x1b" not in shown


FOREIGN: Final[dict[str, dict[str, str | None]]] = {
    "no secret": {"X-Page-Form": ""},
    "a guessed secret": {"X-Page-Form": "guessed"},
    "another site": {"Origin": "https://evil.example", "Sec-Fetch-Site": None},
    "a hidden site": {"Origin": "null", "Sec-Fetch-Site": None},
    "no site": {"Origin": None, "Sec-Fetch-Site": None},
}


@pytest.mark.long
@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_an_upload_that_the_page_has_not_sent_stores_nothing(
    page: UsersPage, headers: dict[str, str | None], alice: Person
) -> None:
    page.call("/upload?name=x", b"1", headers).expect(403)
    assert alice.json("ls") == []


@pytest.mark.long
def test_another_user_of_the_machine_gets_nothing_without_the_cookie(page: UsersPage) -> None:
    id = page.upload("x", PNG)
    page.cookie = None
    for view in ("/containers", "/state", f"/containers/{id}/download", f"/containers/{id}/image"):
        page.get(view).expect(403)
    page.request("POST", page.root + "/upload?name=x", b"1").expect(403)


# By people who share with the page's user.


MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"
OTHER = " ".join(["0123"] * 16)


@pytest.fixture
def mallory(person: Callable[[str], Person]) -> Person:
    return person("Mallory")


@pytest.fixture
def attacker(mallory: Person) -> Iterator[ServerProvider]:
    """Mallory's session, in a program whose name is MARKUP."""
    provider = ServerProvider(
        mallory.broker.api_key, mallory.broker.url, MARKUP, trustStore=MemoryTrustStore()
    )
    with provider:
        provider.logIn(mallory.ring, mallory.ring.userId).result(PATIENCE)
        yield provider


@pytest.mark.long
def test_nothing_that_others_write_is_markup_on_a_view_of_sharing(
    page: UsersPage, alice: Person, mallory: Person, attacker: ServerProvider
) -> None:
    with alice.session() as session:
        card = ContactCard(mallory.ring.fingerprint, mallory.broker.url, MARKUP)
        Contacts(session).add(card).result()
    header = {"name": f"{MARKUP}\u202egnp", MARKUP: [MARKUP, {"\u202egnp": "\x1b[2J"}]}
    offered, joined = (
        team(mallory, MARKUP, alice, accepted=False),
        team(mallory, f"{MARKUP}2", alice),
    )
    attacker.renameGroup(joined, description=MARKUP).result(PATIENCE)
    levels = [*with_access(attacker, alice.ring.userId, 511), AccessLevel(joined, 511)]
    made = (
        attacker.createContainer(b"x", customHeaderObject=header, type=MARKUP, accessLevels=levels)
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
def test_a_name_of_a_quarter_of_a_mebibyte_fills_no_view(
    page: UsersPage, alice: Person, attacker: ServerProvider
) -> None:
    levels = with_access(attacker, alice.ring.userId, 511)
    header = {"name": "n" * 100_000, "k" * 100_000: "v" * 50_000}
    made = attacker.createContainer(b"", customHeaderObject=header, accessLevels=levels).result()
    for view in ("people", "link", "history", "broker"):
        assert len(page.get(f"/containers/{made.id}/{view}").expect(200).text) < 20_000, view


@pytest.mark.long
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
@pytest.mark.parametrize("show", ["list", "gallery"])
def test_headers_of_a_quarter_of_a_mebibyte_fill_no_list(
    page: UsersPage, alice: Person, attacker: ServerProvider, show: str
) -> None:
    levels = with_access(attacker, alice.ring.userId)
    header = {"name": "n" * 100_000, "mediaType": "m" * 100_000, "k": "v" * 50_000}
    attacker.createContainers([NewContainer(b"", header, levels) for _ in range(4)]).result()
    assert len(page.get(f"/containers?show={show}").expect(200).text) < 20_000


@pytest.mark.long
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
            assert len(asyncio.run(views.read(session))) == 64
            assert sum(times) == 64


@pytest.mark.long
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


# By servers of other users, and by what the page keeps or shows too late.


PASSWORD, PASSPHRASE = "correct Horse 7", "battery Staple 8"


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


def test_a_page_is_not_at_the_address_that_all_servers_share(page: UsersPage) -> None:
    assert page.host.startswith("127.")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", page.port), PATIENCE).close()
    page.get("/containers", {"Host": f"127.0.0.1:{page.port}"}).expect(421)
    page.get("/containers", {"Sec-Fetch-Site": "cross-site"}).expect(403)


def test_a_lock_drops_what_the_last_act_said() -> None:
    session = Session(None, 60)
    page: Any = users_page(session, Access("127.0.0.1", 1), dt.datetime.now(dt.UTC))
    site = page._app.state.site
    site.keep(Done("letter.txt is renamed.", is_fault=False), site.sessions)
    session.lock()
    assert "letter.txt" not in repr(vars(site))


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


def test_a_content_that_is_replaced_while_a_view_is_made_is_an_error(alice: Person) -> None:
    with alice.session() as session:
        made = put(session, "zoo.png", PNG)
        shown = session.getContainer(made).result(PATIENCE)
        session.updateContainerContent(made, PNG + b"bomb").result(PATIENCE)
        found = preview(cast(Run, SimpleNamespace(session=session)), shown)
        assert found["kind"] == "fault"
        assert "open it again" in str(found["text"])


# By somebody who finds the machine, after its user has left it.


BY_SCRIPT = {"Sec-Fetch-Mode": "cors"}


@pytest.fixture
def made(alice: Person) -> uuid.UUID:
    """A container of Alice's: a picture for the page, and too large for the buffers of a connection."""
    with alice.session() as session:
        return put(session, "zoo.png", PNG + bytes(24_000_000))


@pytest.fixture
def locking(alice: Person, made: uuid.UUID) -> Iterator[UsersPage]:
    """Alice's page, which locks itself after four seconds, and which her browser has entered."""
    del made  # before the page: storing it takes seconds
    with UsersPage(alice, "--lock", "0.067") as opened:
        opened.enter().expect(200)
        yield opened


@contextmanager
def standing_still(page: UsersPage, line: str, *headers: str) -> Iterator[socket.socket]:
    """Send a request as the browser does; the caller neither reads the answer nor sends the body."""
    own = [f"Host: {page.host}:{page.port}", f"Origin: {page.origin}", f"Cookie: {page.cookie}"]
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((page.host, page.port))
        connection.sendall("\r\n".join([f"{line} HTTP/1.1", *own, *headers, "", ""]).encode())
        yield connection


def wait_until_locked(page: UsersPage) -> None:
    wait_until(lambda: page.get("/state", BY_SCRIPT).text == "locked")


@pytest.mark.long
def test_a_download_that_is_paused_does_not_keep_the_page_open(
    locking: UsersPage, made: uuid.UUID
) -> None:
    with standing_still(locking, f"GET {locking.root}/containers/{made}/download") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        wait_until_locked(locking)


@pytest.mark.long
def test_a_picture_that_the_browser_loads_is_not_a_use_of_the_page(locking: UsersPage) -> None:
    made = locking.upload("small.png", PNG)
    by_browser = {"Sec-Fetch-Mode": "no-cors"}
    wait_until(lambda: locking.get(f"/containers/{made}/image", by_browser).status != 200)
    assert locking.get("/state", BY_SCRIPT).text == "locked"


def test_a_list_that_is_read_while_the_page_is_locked_is_dropped(
    alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    with alice.session() as provider:
        put(provider, "letter.txt")
        real, session = all_containers, Session(None, 900)
        session._run = cast(Run, SimpleNamespace(session=provider, __exit__=bool))

        def locked_meanwhile(provider: ServerProvider) -> Iterator[Entry]:
            yield from real(provider)
            session.lock()

        monkeypatch.setattr(views, "all_containers", locked_meanwhile)
        [read] = asyncio.run(views.read(session))
        assert isinstance(read, Container)
        assert session.topics == {}
