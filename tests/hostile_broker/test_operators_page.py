"""Attacks on the operator's page: by sites in the operator's browser, and by users of the same machine."""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.hostile_broker.catalogue import attack
from tests.kit.brokers import BrokerProcess
from tests.kit.operators import admin, admin_json
from tests.kit.pages import OperatorsPage

reached = attack(110, "operator's page reached by others")
VIEW = "/overview"


@pytest.fixture
def engine() -> str:
    """SQLite: the page knows nothing of the broker's engine."""
    return "sqlite"


@pytest.fixture
def page(broker: BrokerProcess) -> Iterator[OperatorsPage]:
    """A page that the operator's browser has entered."""
    with OperatorsPage(broker) as opened:
        opened.enter().expect(200)
        yield opened


@pytest.mark.long
@reached
@pytest.mark.parametrize("host", ["evil.example:{}", "localhost:{}", "127.0.0.1", "[::1]:{}", None])
def test_a_site_whose_name_leads_to_the_loopback_address_reads_nothing(
    page: OperatorsPage, host: str | None
) -> None:
    """DNS rebinding: the browser takes the page for the attacker's own, and sends the attacker's name."""
    headers = {"Host": host and host.format(page.port)}
    for path in ("/", "/static/page.js", page.root + VIEW):
        refused = page.request("GET", path, headers=headers)
        assert refused.status in (400, 421)  # 400 without any Host, which HTTP/1.1 requires
        assert page.root not in refused.text


@pytest.mark.long
@reached
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_or_port_neither_embeds_nor_reads_a_view(
    page: OperatorsPage, site: str
) -> None:
    page.get(VIEW, {"Sec-Fetch-Site": site}).expect(403)
    page.get(VIEW).expect(200)


@pytest.mark.long
@reached
@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:{}", "null", None])
def test_a_form_of_another_site_changes_nothing(page: OperatorsPage, origin: str | None) -> None:
    """Even if the browser sends cookie and secrets along, and no Sec-Fetch-Site, as old browsers do not."""
    key = _new_key(page, f"shop {uuid.uuid4()}")
    path = f"/api-keys/{key}/revoke"
    form = page.get(path).expect(200).text
    [secret] = re.findall(r'name="form" value="([^"]+)"', form)
    headers = {"Origin": origin and origin.format(page.port + 1), "Sec-Fetch-Site": None}
    page.request("POST", page.root + path, {"form": secret}, headers).expect(403)
    assert _state(page, key) == "valid"


@pytest.mark.long
@reached
@pytest.mark.parametrize("secret", ["", "guessed"])
def test_a_form_without_the_secret_of_the_page_changes_nothing(
    page: OperatorsPage, secret: str
) -> None:
    key = _new_key(page, f"forum {uuid.uuid4()}")
    path = f"/api-keys/{key}/revoke"
    page.request("POST", page.root + path, {"form": secret}).expect(403)
    assert _state(page, key) == "valid"


@pytest.mark.long
@reached
def test_a_cookie_that_another_port_plants_does_not_shut_the_operator_out(
    page: OperatorsPage,
) -> None:
    """The browser sends it as well: cookies of a host belong to all of its ports."""
    page.get(VIEW, {"Cookie": f"{page.cookie}; scbroker-page=planted"}).expect(200)


@reached
def test_no_site_frames_the_page_and_the_page_loads_nothing_from_elsewhere(
    page: OperatorsPage,
) -> None:
    for path in ("/", "/static/page.css", "/nothing", page.root + VIEW):
        headers = page.request("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
    text = page.get(VIEW).text
    assert not re.search(r"(?:src|href|action)=\"(?:https?:)?//", text)
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=", text)


@pytest.mark.long
@reached
def test_another_user_of_the_machine_gets_nothing_without_the_code(page: OperatorsPage) -> None:
    page.cookie = None
    for path in (VIEW, "/users", "/audit", "/api-keys", "/nothing"):
        page.get(path).expect(403)  # although this user would know the secret path
        page.request("GET", path).expect(403)
    for public in (
        page.request("GET", "/"),
        page.request("GET", "/static/nothing"),
        page.request("POST", "/enter", bytes(10_000)),
        page.request("POST", "/static/page.css"),
    ):
        assert page.root not in public.text


@pytest.mark.long
@reached
def test_a_guessed_code_opens_nothing_and_leaves_the_right_one_valid(broker: BrokerProcess) -> None:
    with OperatorsPage(broker) as page:
        for code in ("", "guessed", "é", page.code[:-1], page.code.swapcase()):
            refused = page.request("POST", "/enter", {"code": code}).expect(403)
            assert "set-cookie" not in refused.headers
        page.enter().expect(200)


@pytest.mark.long
@reached
def test_a_stolen_url_opens_nothing_after_the_operator_has_used_it(page: OperatorsPage) -> None:
    page.cookie = None
    refused = page.request("POST", "/enter", {"code": page.code}).expect(403)
    assert "set-cookie" not in refused.headers


@pytest.mark.long
@reached
def test_the_name_of_an_api_key_is_text_on_the_page(page: OperatorsPage) -> None:
    name = f"<script>alert(1)</script><img src=x onerror=alert(2)> {page.port}"
    key = _new_key(page, name)
    # As an earlier version could have stored it.
    with closing(sqlite3.connect(page.broker.database_url.removeprefix("sqlite:///"))) as database:
        found = database.execute(
            "UPDATE api_keys SET name = name || ? WHERE substr(lower(hex(key_hash)), 1, 8) = ?",
            ("\u202egnp\x1b[2J", key),
        )
        assert found.rowcount == 1
        database.commit()
    text = page.get("/api-keys").expect(200).text
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "\\u202egnp\\x1b[2J" in text


@pytest.mark.long
@reached
def test_the_cookie_is_sent_to_no_server_on_another_port(broker: BrokerProcess) -> None:
    """Browsers send cookies of an address to all its ports: this one only below a path that is secret."""
    with OperatorsPage(broker) as page:
        answer = page.request("POST", "/enter", {"code": page.code}).expect(303)
        attributes = [each.strip() for each in answer.headers["set-cookie"].split(";")[1:]]
        assert attributes == [
            f"Path={answer.headers['location'].rpartition('/')[0]}",
            "HttpOnly",
            "SameSite=Strict",
        ]
        assert len(attributes[0]) > len("Path=/") + 40


def _new_key(page: OperatorsPage, name: str) -> str:
    """Create an API key; return its id."""
    admin(page.broker, "api-keys", "create", name).expect(0)
    listed = admin_json(page.broker, "api-keys", "ls")
    [key] = [each["id"] for each in listed if each["name"] == name]
    return str(key)


def _state(page: OperatorsPage, key: str) -> str:
    found = re.search(
        rf'<td class="id">{key}</td>\s*<td><span class="[^"]*">(\w+)<', page.get("/api-keys").text
    )
    assert found is not None
    return found[1]
