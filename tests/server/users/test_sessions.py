"""Log-in by challenge, and what a session's token is worth (protocol.md, 3)."""

import pytest

from scbroker.wire import users as u
from tests.kit.brokers import BrokerProcess, Wire, clock
from tests.kit.fixtures import StartBroker
from tests.kit.tables import query
from tests.kit.writers import User, authorized, store, storing
from tests.server.conftest import NewUser, at_once

ASK = {"users": [{"userId": "00000000-0000-8000-8000-000000000000"}]}


def _is_in_session(wire: Wire) -> bool:
    answer = wire.call("POST", "/v1/key-records", ASK)
    if answer.status == 401:
        answer.expect(401, "session")
        return False
    answer.expect(404, "not-found")
    return True


@pytest.mark.long
def test_a_session_lasts_for_its_lifetime(start_broker: StartBroker) -> None:
    broker = start_broker(session_seconds=1000)
    ring = broker.new_user()
    with Wire(broker) as wire:
        begun = clock()
        answer = wire.call("POST", "/v1/sessions", wire.log_in_request(ring)).expect(201)
        session = answer.message(u.Session)
        assert begun <= session.expiresAt - 1000 * 10**6 <= clock()
        wire.token = session.token
        assert _is_in_session(wire)
        query(broker.database_url, "UPDATE sessions SET expires_at = ?", clock() - 1)
        assert not _is_in_session(wire)


def test_a_nonce_is_good_for_one_log_in_also_when_used_by_many_at_once(
    broker: BrokerProcess, wire: Wire
) -> None:
    request = wire.log_in_request(broker.new_user())

    def log_in(_: int) -> int:
        with Wire(broker) as other:
            return other.call("POST", "/v1/sessions", request).status

    assert sorted(at_once(log_in, range(8))) == [201] + [401] * 7


@pytest.mark.long
def test_a_broker_takes_log_ins_and_orders_for_each_of_its_configured_origins_and_no_other(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(origins="https://a.example,https://b.example:8443")
    ring = broker.new_user()
    with Wire(broker) as wire:
        request = wire.log_in_request(ring, origin="https://a.example:443")
        answer = wire.call("POST", "/v1/sessions", request).expect(201)
        wire.token, alice = answer.message(u.Session).token, User(ring, wire)
        for origin, status in (
            ("https://a.example:443", 201),
            ("https://b.example:8443", 201),
            ("https://a.example", 401),
            (broker.origin, 401),
        ):
            request = wire.log_in_request(ring, origin=origin)
            assert wire.call("POST", "/v1/sessions", request).status == status, origin
            message = authorized(alice, storing(alice), origin=origin)
            assert store(alice, message).status == {201: 204}.get(status, status), origin


def test_only_expired_rows_go_a_minute_later(broker: BrokerProcess, new_user: NewUser) -> None:
    """Without waiting for the minute: the same statements in a process of the test's own."""
    import sqlalchemy

    from scbroker.server.users import sessions

    alice, bob = new_user(), new_user()
    url = broker.database_url
    statement = "UPDATE sessions SET expires_at = 1 WHERE user_id = ?"
    query(url, statement, alice.ring.userId.bytes)
    dialect = sqlalchemy.create_engine("sqlite://").dialect
    for forget in (sessions.END_OLD_SESSIONS, sessions.FORGET_NONCES, sessions.FORGET_GUESSES):
        text = str(forget.compile(dialect=dialect))
        query(url, text, clock())
    left = {row[0] for row in query(url, "SELECT user_id FROM sessions")}
    assert alice.ring.userId.bytes not in left
    assert bob.ring.userId.bytes in left
