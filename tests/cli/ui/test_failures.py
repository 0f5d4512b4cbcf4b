"""The page when something fails: the broker goes away, contents are damaged, containers end, rights lack."""

from __future__ import annotations

import http.client
import re

import pytest

from scbroker import Contacts, ContainerAccessLevel, ServerProvider
from tests.kit.brokers import BrokerProcess
from tests.kit.objects import damage
from tests.kit.pages import Reply, UsersPage
from tests.kit.people import Person, befriend, put, with_access

WRITE = 75 | ContainerAccessLevel.Upload
SEGMENT = 1_048_576


def posted(page: UsersPage, path: str, **fields: str) -> Reply:
    """Send a form without opening its view, as somebody who knows the page's secret of forms can."""
    [secret] = set(re.findall(r'name="form" value="([^"]*)"', page.get("/containers").text))
    return page.request("POST", page.root + path, {"form": secret, **fields})


@pytest.mark.long
def test_a_page_that_begins_while_the_broker_is_away_opens_once_it_is_back(
    alice: Person, broker: BrokerProcess
) -> None:
    broker.stop()
    with UsersPage(alice) as page:
        first = page.enter().expect(200)
        assert "No broker answers" in first.words
        [secret] = set(re.findall(r'name="form" value="([^"]*)"', first.text))
        resume = ("POST", page.root + "/resume", {"form": secret})
        page.request(*resume).expect(303)
        assert "Try again" in page.get("/start").expect(200).words
        broker.start()
        page.request(*resume).expect(303)
        assert "You have no containers yet" in page.get("/containers").expect(200).words
        # A page that was locked asks for the passphrase.
        page.request("POST", page.root + "/lock", {"form": secret}).expect(303)
        page.request(*resume).expect(303)
        assert "Try again" not in page.get("/start").expect(200).words


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
@pytest.mark.parametrize(
    "permissions, offered, why",
    [
        (75, set[str](), "You may neither rename nor delete"),
        (WRITE, {"rename"}, "You may not delete"),
        (511, {"rename", "delete"}, ""),
    ],
)
def test_only_what_the_user_may_do_is_offered(
    session: ServerProvider, bob: Person, permissions: int, offered: set[str], why: str
) -> None:
    user = befriend(session, bob, "Bob")
    made = put(session, "plan.txt", b"1", accessLevels=with_access(session, user, permissions))
    with UsersPage(bob) as page:
        page.enter().expect(200)
        shown = page.get(f"/containers/{made}").expect(200)
        assert set(re.findall(rf"{made}/(rename|delete)", shown.text)) == offered
        assert why in shown.words
        can_share = permissions == 511
        assert (
            "You may not make a link" in page.get(f"/containers/{made}/link").words
        ) != can_share


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
