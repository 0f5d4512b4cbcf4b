"""Links on the page: made, shown with a QR code, and revoked."""

from __future__ import annotations

import datetime as dt
import html
import re

import pytest

from scbroker import BrokerError, ServerProvider, openLink
from tests.kit.pages import UsersPage
from tests.kit.people import damage_links, put


def _day(days: int) -> str:
    return str((dt.datetime.now().astimezone() + dt.timedelta(days=days)).date())


@pytest.mark.long
def test_a_link_with_a_password_is_made_opens_and_is_revoked(
    page: UsersPage, session: ServerProvider
) -> None:
    made = put(session, "plan.txt", b"the plan")
    password = "A password of a link"
    fields = {"until": _day(3), "name": "For the bank", "password": password, "again": password}
    shown = page.post(f"/containers/{made}/link", fields).expect(200)
    assert "Anybody with the link and its password can read until" in shown.words
    assert password not in shown.text
    found = re.search(r"<textarea[^>]*>([^<]+)</textarea>", shown.text)
    assert found is not None
    url = html.unescape(found[1])
    with openLink(url, password).result() as opened:
        assert opened.getContainerContent(made).result() == b"the plan"
    [link] = session.getLinks().result()
    assert "For the bank" in page.get("/links").words
    # The list, and every other view, has no secret of a link.
    assert url.partition("#")[2] not in page.get("/links").text
    assert "For the bank link" in page.get(f"/containers/{made}/people").words
    assert "opens nothing any more" in page.post(f"/links/{link.userId}/revoke").words
    assert session.getLinks().result() == []
    with pytest.raises(BrokerError):
        openLink(url, password).result()


@pytest.mark.long
def test_a_damaged_list_of_links_leaves_the_containers_readable(
    page: UsersPage, session: ServerProvider
) -> None:
    made = put(session, "plan.txt", b"the plan")
    end = dt.datetime.now(dt.UTC) + dt.timedelta(1)
    user = session.createLink(made, expiresAt=end, name="For the bank").result().userId
    damage_links(session)
    assert user.hex[:8] in page.get("/containers").expect(200).words
    assert user.hex[:8] in page.get(f"/containers/{made}/people").expect(200).words
    page.get("/history").expect(200)
    assert "scbroker.links" in page.get("/links").expect(502).words
