"""What the broker can see of a container is what the broker has."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from scbroker import ServerProvider
from tests.kit.brokers import BrokerProcess
from tests.kit.pages import UsersPage
from tests.kit.people import Person, befriend, put, with_access

SECRET = b"the plan that nobody else reads"


@pytest.mark.long
def test_sizes_members_and_sealed_bytes_are_those_of_the_broker(
    page: UsersPage, session: ServerProvider, bob: Person, broker: BrokerProcess
) -> None:
    user = befriend(session, bob, "Bob from the bank")
    made = put(session, "plan.txt", SECRET, type="note", accessLevels=with_access(session, user))
    stored = session.getSecuredContainer(made).result()
    shown = page.get(f"/containers/{made}/broker").expect(200).text
    seen, _, unseen = shown.partition("The broker does not see")
    assert stored.sealedHeader is not None
    assert stored.sealedContent is not None
    for part in (
        str(made),
        "note",
        str(user),
        f"{len(SECRET)} bytes",
        f"{len(stored.sealedHeader):,}",
    ):
        assert part in seen
    assert "plan.txt" not in seen.partition("The broker sees")[2]
    assert "Bob from the bank" not in seen
    for part in ("plan.txt", "Bob from the bank", stored.sealedContent[:32].hex(" ", 2)):
        assert part in unseen
    # The page says it of the real broker: none of its files has what the right side shows.
    with closing(sqlite3.connect(broker.database_url.removeprefix("sqlite:///"))) as database:
        dump = "\n".join(database.iterdump()).encode()
    for secret in (SECRET, b"plan.txt", b"Bob from the bank"):
        assert secret.hex().upper().encode() not in dump.upper()
        assert secret not in dump
    assert made.hex.upper().encode() in dump.upper()


@pytest.mark.long
def test_a_container_without_content_and_header_is_shown_as_such(
    page: UsersPage, session: ServerProvider
) -> None:
    made = session.createContainer(None).result().id
    shown = page.get(f"/containers/{made}/broker").expect(200).words
    assert "Size of the content that none exists" in shown
    assert "Type none Version" in shown
    assert "Header none exists" in shown


@pytest.mark.long
def test_what_permissions_hide_is_not_said_to_be_hidden_from_the_broker(
    session: ServerProvider, bob: Person
) -> None:
    user = befriend(session, bob, "Bob")
    made = put(session, "plan.txt", SECRET, accessLevels=with_access(session, user, 1))
    with UsersPage(bob) as page:
        page.enter().expect(200)
        shown = page.get(f"/containers/{made}/broker").expect(200).words
    assert "all of them; your permissions hide them from you" in shown
    assert "Type none, or your permissions hide it from you" in shown
    assert "Size of the content exactly; your permissions hide it from you" in shown
