"""`scbroker admin api-keys` makes and ends the keys of programs beside a running broker."""

import datetime as dt
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from scbroker.crypto.verify import sha256
from scbroker.errors import ApiKeyError
from scbroker.server import broker as broker_module
from scbroker.server.broker import Broker
from tests.kit.beside import beside
from tests.kit.brokers import Answer, BrokerProcess, Wire, clock
from tests.kit.fixtures import StartBroker
from tests.kit.operators import admin, admin_json, audited
from tests.kit.waiting import wait_until


def created(broker: BrokerProcess, name: str, *options: str) -> uuid.UUID:
    return uuid.UUID(admin(broker, "api-keys", "create", name, *options).expect(0).last)


def id_of(key: uuid.UUID) -> str:
    return sha256(key.bytes).hex()[:8]


def ask(wire: Wire, key: uuid.UUID) -> Answer:
    return wire.call("POST", "/v1/session-challenges", {}, Scbroker_Api_Key=str(key))


def refused(broker: BrokerProcess, wire: Wire, key: uuid.UUID) -> str:
    """The broker refuses the key at once, or on PostgreSQL soon; say why."""
    if broker.engine != "sqlite":
        wait_until(lambda: ask(wire, key).status != 200)
    return str(ask(wire, key).expect(401, "api-key").problem["detail"])


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_on_postgresql_a_key_is_read_again_after_the_documented_time(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, moment = created(broker, f"key {uuid.uuid4()}"), [0.0]
    clocks = SimpleNamespace(monotonic=lambda: moment[0], time_ns=time.time_ns)
    monkeypatch.setattr(broker_module, "time", clocks)

    async def work(found: Broker) -> None:
        await found.admit(sha256(key.bytes), None)
        admin(broker, "api-keys", "revoke", id_of(key)).expect(0)
        await found.admit(sha256(key.bytes), None)
        moment[0] += broker_module.API_KEY_SECONDS
        with pytest.raises(ApiKeyError, match="revoked"):
            await found.admit(sha256(key.bytes), None)

    beside(broker, work)


@pytest.mark.long
def test_the_end_of_a_key_can_be_set_and_removed_but_not_in_the_past(
    broker: BrokerProcess, wire: Wire
) -> None:
    name = f"key {uuid.uuid4()}"
    key = created(broker, name)
    found = admin_json(broker, "api-keys", "expire", name, "2h")
    assert found["expires"] is not None
    past = admin(broker, "api-keys", "expire", name, "2001-01-01").expect(2)
    assert "is in the past" in past.error
    admin(broker, "api-keys", "expire", name, "tomorrow").expect(2)
    assert admin_json(broker, "api-keys", "expire", id_of(key), "never")["expires"] is None
    ask(wire, key).expect(200)


@pytest.mark.long
def test_a_text_that_means_several_keys_ends_none_of_them(
    broker: BrokerProcess, wire: Wire
) -> None:
    """A name that is another key's id: names are chosen by people, ids are not."""
    key = created(broker, f"key {uuid.uuid4()}")
    other = created(broker, id_of(key))
    done = admin(broker, "api-keys", "revoke", id_of(key)).expect(2)
    assert "several" in done.error
    assert id_of(other) in done.error
    for each in (key, other):
        ask(wire, each).expect(200)
    admin(broker, "api-keys", "revoke", id_of(other)).expect(0)
    ask(wire, key).expect(200)


@pytest.mark.process
@pytest.mark.long
def test_a_key_is_shown_once_and_nowhere_else(broker: BrokerProcess) -> None:
    name = f"key {uuid.uuid4()}"
    key = created(broker, name)
    shown = "\n".join(
        [
            *admin(broker, "api-keys", "ls", "--json").expect(0).lines,
            *admin(broker, "audit", "--json").expect(0).lines,
            broker.log,
        ]
    )
    assert name in shown
    for secret in (str(key), key.hex, sha256(key.bytes).hex()):
        assert secret not in shown


@pytest.mark.long
def test_the_last_use_of_a_key_is_known_to_the_minute(start_broker: StartBroker) -> None:
    broker = start_broker()
    unused, used = created(broker, "unused"), created(broker, "used")
    with Wire(broker) as wire:
        ask(wire, used).expect(200)
        ask(wire, uuid.uuid4()).expect(401, "api-key")
    begun = clock()
    broker.stop()
    found = {each["id"]: each["lastUsed"] for each in admin_json(broker, "api-keys", "ls")}
    assert found[id_of(unused)] is None
    last = dt.datetime.fromisoformat(found[id_of(used)])
    assert (last.second, last.microsecond) == (0, 0)
    assert abs(last.timestamp() - begun / 1e6) < 120


@pytest.mark.process
@pytest.mark.long
def test_the_last_key_can_be_revoked_and_no_start_makes_another_one(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    done = admin(broker, "api-keys", "revoke", "from the settings").expect(0)
    assert "No valid API key is left" in done.error
    with Wire(broker) as wire:
        refused(broker, wire, broker.api_key)
        broker.restart()
        assert "revoked" in broker.log
        assert "API_KEY" not in broker.output
        wire.close()
        ask(wire, broker.api_key).expect(401, "api-key")
        broker.stop()
        broker.settings["api_key"] = ""
        broker.start()
        wait_until(lambda: "openapi" in broker.output)
        assert "API_KEY" not in broker.output
        broker.api_key = created(broker, "another")
        wire.close()
        ask(wire, broker.api_key).expect(200)


@pytest.mark.long
def test_a_key_can_be_made_before_the_first_start(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "new")
    broker.settings["api_key"] = ""
    done = admin(broker, "api-keys", "create", "first").expect(0)
    assert f"No broker existed in {broker.directory}" in done.error  # it may be mistyped
    broker.api_key = uuid.UUID(done.last)
    with broker, Wire(broker) as wire:
        ask(wire, broker.api_key).expect(200)
        wait_until(lambda: "openapi" in broker.output)
        assert "API_KEY" not in broker.output
    assert [each["action"] for each in audited(broker)] == ["broker-created", "api-key-created"]
