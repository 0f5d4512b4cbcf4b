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
