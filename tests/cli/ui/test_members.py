"""Who has access to a container: what the page shows of it, and how it is given and taken."""

from __future__ import annotations

import datetime as dt
from urllib.parse import urlencode

import pytest

from scbroker import ContainerAccessLevel, ServerProvider
from tests.kit.pages import UsersPage
from tests.kit.people import Person, befriend, put


@pytest.mark.long
def test_a_contact_is_shared_with_and_loses_access_again(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    user = befriend(session, bob, "Bob")
    made = put(session, "plan.txt", b"the plan")
    people = f"/containers/{made}/people"
    tomorrow = (dt.datetime.now().astimezone() + dt.timedelta(days=1)).date()
    asked = urlencode({"person": user, "can": "write", "until": tomorrow})
    share = f"/containers/{made}/share?{asked}"
    assert "not verified" in page.get(share).expect(200).words
    done = page.post(share).expect(200).words
    assert "Bob has access until" in done
    [level] = [
        each for each in session.getContainer(made).result().access or () if each.userId == user
    ]
    assert level.permissions == ContainerAccessLevel["Upload"] | level.permissions
    assert level.expiresAt is not None
    assert level.expiresAt.astimezone().date() == tomorrow + dt.timedelta(days=1)  # its midnight
    assert bob.json("ls")[0]["name"] == "plan.txt"
    assert "Bob not verified write" in page.get(people).words
    done = page.post(f"/containers/{made}/revoke?user={user}").expect(200).words
    assert "Bob has no access any more" in done
    assert bob.json("ls") == []


@pytest.mark.long
def test_a_share_that_cannot_be_is_refused_before_anybody_is_asked(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    user = befriend(session, bob, "Bob")
    made = put(session, "plan.txt")
    for changed, status in (
        ({"can": "everything"}, 400),
        ({"person": ""}, 404),
        ({"person": "00000000-0000-8000-8000-000000000000"}, 404),
        ({"person": "Bob"}, 400),
        ({"until": "2020-01-01"}, 400),
        ({"until": "soon"}, 400),
    ):
        query = urlencode({"person": str(user), "can": "read", "until": "", **changed})
        assert page.get(f"/containers/{made}/share?{query}").status == status, changed
