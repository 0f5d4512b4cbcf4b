"""Attacks on the operator's page: by sites in the operator's browser, and by users of the same machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.hostile_broker.catalogue import attack
from tests.kit.brokers import BrokerProcess
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
