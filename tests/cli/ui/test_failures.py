"""The page when something fails: the broker goes away, contents are damaged, containers end, rights lack."""

from __future__ import annotations

import http.client
import re

import pytest

from scbroker import Contacts, ServerProvider
from tests.kit.brokers import BrokerProcess
from tests.kit.objects import damage
from tests.kit.pages import Reply, UsersPage
from tests.kit.people import Person, befriend, put, with_access
from tests.kit.tables import damage_parts

SEGMENT = 1_048_576


def posted(page: UsersPage, path: str, **fields: str) -> Reply:
    """Send a form without opening its view, as somebody who knows the page's secret of forms can."""
    [secret] = set(re.findall(r'name="form" value="([^"]*)"', page.get("/containers").text))
    return page.request("POST", page.root + path, {"form": secret, **fields})


@pytest.mark.long
def test_a_page_says_soon_that_the_broker_went_away_and_goes_on_when_it_is_back(
    page: UsersPage, broker: BrokerProcess
) -> None:
    made = page.upload("letter.txt", b"Dear Bob")
    broker.stop()
    shown = page.get(f"/containers/{made}").expect(503)
    assert "The broker does not answer" in shown.words
    assert "has not answered for 10 seconds" in shown.words  # the library waits for a minute
    assert f'href="{page.root}/containers/{made}">Try again' in shown.text
    broker.start()
    assert "Dear Bob" in page.get(f"/containers/{made}").expect(200).words


@pytest.mark.long
def test_a_download_that_fails_in_the_middle_is_not_whole(
    page: UsersPage, broker: BrokerProcess
) -> None:
    made = page.upload("backup.bin", bytes(10 * SEGMENT))  # in two objects
    damage(broker)
    with pytest.raises(http.client.IncompleteRead) as cut:
        page.get(f"/containers/{made}/download").expect(200)
    assert 0 < len(cut.value.partial) < 10 * SEGMENT
    page.get("/containers").expect(200)
    page.stop()
    assert "Traceback" not in page.log


@pytest.mark.long
def test_every_view_of_a_container_with_a_damaged_header_goes_on_with_the_metadata(
    page: UsersPage, alice: Person, session: ServerProvider
) -> None:
    made = put(session, "plan.txt", bytes(70_000))  # which is not stored beside the header
    damage_parts(alice.broker.database_url, made)
    for view in ("", "/people", "/link", "/history", "/rename"):
        assert made.hex[:8] in page.get(f"/containers/{made}{view}").expect(200).text, view


@pytest.mark.long
@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_container_that_ends_while_its_page_is_open_is_said_to_be_gone(
    page: UsersPage, alice: Person, bob: Person, is_deleted: bool
) -> None:
    with bob.session() as his:
        user = befriend(his, alice, "Alice")
        made = put(his, "plan.txt", b"1", accessLevels=with_access(his, user, 511))
        page.get(f"/containers/{made}").expect(200)
        if is_deleted:
            his.deleteContainer(made).result()
        else:
            his.revokeAccess([made], user).result()
    status, words = (410, "was deleted") if is_deleted else (404, "or you have no access")
    for view in ("", "/people", "/link", "/history", "/broker", "/rename", "/download"):
        shown = page.get(f"/containers/{made}{view}").expect(status)
        assert words in shown.words, view
        assert "Try again" not in shown.words, view
    for act, fields in (("rename", {"name": "x"}), ("delete", {}), ("link", {"until": "7d"})):
        posted(page, f"/containers/{made}/{act}", **fields).expect(status)
    assert "plan.txt" not in page.get("/containers").expect(200).text


@pytest.mark.long
def test_what_the_user_may_not_do_is_refused_and_changes_nothing(
    alice: Person, session: ServerProvider, bob: Person
) -> None:
    made = put(
        session, "plan.txt", accessLevels=with_access(session, befriend(session, bob, "Bob"))
    )
    with UsersPage(bob) as page, bob.session() as his:
        user = str(befriend(his, alice, "Alice"))
        fingerprint = Contacts(his).get("Alice").result().fingerprint
        page.enter().expect(200)
        forms: dict[str, dict[str, str]] = {
            "rename": {"name": "mine"},
            "delete": {},
            "link": {"until": "7d"},
            "revoke": {"user": user},
            "share": {"person": user, "fingerprint": fingerprint, "can": "read"},
        }
        for act, fields in forms.items():
            posted(page, f"/containers/{made}/{act}", **fields).expect(403)
        assert his.getLinks().result() == []
    assert session.getContainer(made).result().version == 1
