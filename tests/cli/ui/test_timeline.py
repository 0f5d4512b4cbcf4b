"""The history of the account and of a container."""

from __future__ import annotations

import pytest

from scbroker import ServerProvider
from tests.kit.pages import UsersPage
from tests.kit.people import Person, befriend, put, with_access


@pytest.mark.long
def test_the_history_says_who_did_what(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    user = befriend(session, bob, "Bob")
    made = put(session, "plan.txt", b"1", accessLevels=with_access(session, user, 511))
    other = put(session, "other.txt", b"1")
    with bob.session() as his:
        his.updateContainerContent(made, b"2").result()
    shown = page.get(f"/containers/{made}/history").expect(200).words
    assert "Bob not verified changed content" in shown
    assert "You created it" in shown
    assert shown.index("changed content") < shown.index("created it")
    assert other.hex[:8] not in shown
    assert other.hex[:8] in page.get("/history").expect(200).words
