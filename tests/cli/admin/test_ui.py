"""`scbroker admin ui`: what its views show of a real broker, and what its forms change there."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from tests.kit.both_engines import on_sqlite
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.fixtures import StartBroker
from tests.kit.operators import admin
from tests.kit.pages import OperatorsPage, Reply


@pytest.fixture
def page(broker: BrokerProcess) -> Iterator[OperatorsPage]:
    with OperatorsPage(broker) as opened:
        opened.enter().expect(200)
        yield opened


def words(reply: Reply) -> str:
    """The text of a view, without tags, each run of spaces as one."""
    return " ".join(re.sub(r"<[^>]*>", " ", reply.text).split())


@pytest.mark.sampled
@on_sqlite
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_page_with_success(broker: BrokerProcess, by: signal.Signals) -> None:
    with OperatorsPage(broker) as page:
        page.enter().expect(200)
        assert page.stop(by) == 0
        assert "Traceback" not in page.log
        with pytest.raises(ConnectionRefusedError):
            page.get("/overview")


@pytest.mark.long
def test_the_overview_shows_the_state_of_the_broker(
    page: OperatorsPage, broker: BrokerProcess, engine: str
) -> None:
    shown = words(page.get("/overview").expect(200))
    assert "Broker ready" in shown
    assert {"sqlite": "SQLite", "postgresql": "PostgreSQL"}.get(engine, "PostgreSQL") in shown
    assert "Clock right" in shown
    assert " free " in shown
    assert broker.url in shown


@pytest.mark.long
@on_sqlite
def test_a_broker_that_is_away_is_said_and_the_database_is_shown_all_the_same(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    broker.stop()
    with OperatorsPage(broker) as page:
        page.enter()
        shown = words(page.get("/overview").expect(200))
        assert "Broker away" in shown
        assert f"No broker answers at {broker.url}" in shown
        assert "SQLite" in shown


@on_sqlite
def test_an_address_that_no_broker_can_have_is_refused_before_the_page_opens(
    broker: BrokerProcess,
) -> None:
    for address in ("broker.example", "http://[::1", "http://"):
        done = admin(broker, "ui", "--no-open", "--url", address).expect(2)
        assert "--url must be an address" in done.error


@pytest.mark.long
def test_users_are_listed_with_what_they_use_and_found_by_the_beginning_of_their_id(
    page: OperatorsPage, broker: BrokerProcess
) -> None:
    user = str(broker.new_user().userId)
    assert user in page.get(f"/users?id={user[:8]}").expect(200).text
    assert user in page.get(f"/users?id={user.upper()}&order=id").expect(200).text
    assert user not in page.get("/users?id=00000000").expect(200).text
    one = page.get(f"/users/{user}").expect(200)
    assert "active" in words(one)


@pytest.mark.long
def test_a_suspended_user_has_no_session_until_they_are_resumed(
    page: OperatorsPage, broker: BrokerProcess
) -> None:
    ring = broker.new_user()
    path = f"/users/{ring.userId}"
    with Wire(broker).log_in(ring) as wire:
        wire.call("GET", "/v1/events").expect(200)
        done = page.post(f"{path}/suspend", {"reason": "does not pay"}).expect(200)
        assert "suspended" in words(done)
        assert "does not pay" in words(page.get(path))
        assert wire.call("GET", "/v1/events").status in (401, 403)
    assert "active" in words(page.post(f"{path}/resume").expect(200))
    with Wire(broker).log_in(ring) as wire:
        wire.call("GET", "/v1/events").expect(200)
    acts = words(page.get("/audit"))
    assert ring.userId.hex[:8] in acts


@pytest.mark.long
def test_a_quota_is_set_and_removed(page: OperatorsPage, broker: BrokerProcess) -> None:
    user = broker.new_user().userId
    path = f"/users/{user}/quota"
    assert "with a quota of unlimited" in words(page.get(path).expect(200))
    shown = words(page.post(path, {"bytes": "10GB", "containers": "5"}).expect(200))
    assert "of 9.3 GiB" in shown
    assert "of 5" in shown
    page.post(path, {"bytes": "default", "containers": "unlimited"}).expect(200)
    assert "of unlimited" in words(page.get(f"/users/{user}"))
    assert "bytes: null" in words(page.get("/audit"))  # as the command shows it


@pytest.mark.long
def test_a_revoked_key_is_shown_as_revoked_and_audited(
    page: OperatorsPage, broker: BrokerProcess
) -> None:
    admin(broker, "api-keys", "create", f"shop on {page.port}").expect(0)
    [row] = [each for each in page.get("/api-keys").text.split("<tr>") if f"on {page.port}" in each]
    [key] = re.findall(r'class="id">(\w+)<', row)
    assert "valid" in row
    page.post(f"/api-keys/{key}/revoke").expect(200)
    [row] = [each for each in page.get("/api-keys").text.split("<tr>") if f"on {page.port}" in each]
    assert "revoked" in row
    page.get(f"/api-keys/{key}/revoke").expect(400)
    assert key in words(page.get("/audit"))


@pytest.mark.long
@on_sqlite
def test_no_view_changes_anything_and_no_act_answers_a_get(
    page: OperatorsPage, broker: BrokerProcess
) -> None:
    user = broker.new_user().userId
    before = words(page.get("/audit"))
    for path in ("suspend", "quota"):
        page.get(f"/users/{user}/{path}").expect(200)
    assert words(page.get("/audit")) == before
    form = page.get(f"/users/{user}/suspend").text
    [secret] = re.findall(r'name="form" value="([^"]*)"', form)
    page.request("POST", f"{page.root}/overview", {"form": secret}).expect(405)


@pytest.mark.long
@on_sqlite
def test_a_form_that_is_too_large_or_not_a_form_is_refused(page: OperatorsPage) -> None:
    path = f"{page.root}/users/00000000-0000-8000-8000-000000000000/suspend"
    page.request("POST", path, b"form=" + bytes(10_000)).expect(413)
    page.request("POST", path, b"form=%ff").expect(400)
    page.request("POST", path, b"&".join(b"f%d=1" % n for n in range(20))).expect(400)
