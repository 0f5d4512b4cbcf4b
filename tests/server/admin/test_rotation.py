"""`scbroker admin rotate-broker-key` beside running brokers, and after it was killed at any step."""

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from scbroker.crypto.at_rest import open_stored
from scbroker.crypto.seal import random_bytes
from scbroker.keys import KeyRing
from scbroker.server import keys
from scbroker.server.admin import rotation, stores
from scbroker.server.keys import KEY_FILE, BrokerKeys
from scbroker.server.settings import Settings
from scbroker.server.storage.blobs import Blobs
from scbroker.server.storage.database import Database
from tests.kit.both_engines import on_sqlite
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.fixtures import StartBroker, Stores
from tests.kit.operators import admin, rotate, settings_of
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User, authorized, stalled, store, storing

_WAITING_FOR_CHECKS: Final = (
    "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'checks'::regclass"
)
KEY_FILES: Final = "SELECT user_id, key_file, verifier FROM key_files"


def key_of(broker: BrokerProcess) -> bytes:
    return (broker.directory / "broker.key").read_bytes()


class Registered:
    """A user, and what opens their KeyFile."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker, self.auth, self.key_file = broker, random_bytes(32), random_bytes(500)
        self.ring: KeyRing = broker.new_user(self.auth, self.key_file)

    def check(self) -> None:
        """The right proof opens the KeyFile, and no other does."""
        with Wire(self.broker) as wire:
            opened = wire.open_key_file(self.ring.userId, self.auth).expect(200).body
            assert self.key_file in opened
            wire.open_key_file(self.ring.userId, random_bytes(32)).expect(401, "credentials")

    def replace(self) -> None:
        """Store another KeyFile under another proof."""
        with Wire(self.broker) as wire:
            user = User(self.ring, wire.log_in(self.ring))
            message = storing(user)
            store(user, authorized(user, message)).expect(204)
        self.auth, self.key_file = message.auth, message.keyFile


class KilledError(Exception):
    """Ends a rotation between two of its steps, as a kill does: each transaction is whole or absent."""


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "_PAGE", 1)


def rotate_and_kill(settings: Settings, writes: int) -> None:
    """Rotate in this process until another write would begin after so many, or the files be replaced."""
    with pytest.MonkeyPatch.context() as patch:
        _kill_after(patch, writes)
        with pytest.raises(KilledError):
            rotate(settings)


def _kill_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    opened, left = stores.open_stores, iter(range(writes))

    @asynccontextmanager
    async def open_stores(settings: Settings) -> AsyncIterator[tuple[Database, Blobs]]:
        async with opened(settings) as (database, objects):
            write = database.write

            async def count(work: Any) -> Any:
                if next(left, None) is None:
                    raise KilledError
                return await write(work)

            monkeypatch.setattr(database, "write", count)
            yield database, objects

    def put_in_place(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr(rotation, "open_stores", open_stores)
    monkeypatch.setattr(rotation, "put_in_place", put_in_place)


# Writes: the announcement, two pages and the empty one after them, the end; then the files.
@pytest.mark.long
@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("writes", range(6))
def test_a_rotation_that_is_killed_at_any_step_locks_nobody_out_and_goes_on(
    fresh_broker: BrokerProcess, writes: int
) -> None:
    old = key_of(fresh_broker)
    users = [Registered(fresh_broker) for _ in range(2)]
    if fresh_broker.engine == "postgresql":
        rotate(settings_of(fresh_broker))
    rotate_and_kill(settings_of(fresh_broker), writes)
    assert (fresh_broker.directory / "broker.key.next").exists()
    for _ in range(2):
        for user in users:
            user.check()
        users[-1].replace()
        users.append(Registered(fresh_broker))
        admin(fresh_broker, "check").expect(0)
        if len(users) == 3:
            fresh_broker.restart()
    if (fresh_broker.directory / "broker.key.next").exists():  # else the restart has ended it
        rotate(settings_of(fresh_broker))
    assert key_of(fresh_broker) != old
    assert not (fresh_broker.directory / "broker.key.next").exists()
    for user in users:
        user.check()
    admin(fresh_broker, "check").expect(0)
    for user_id, key_file, _ in query(fresh_broker.database_url, KEY_FILES):
        open_stored(key_of(fresh_broker), KEY_FILE, user_id, key_file)


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_users_who_store_key_files_all_the_time_cannot_prevent_a_rotation(
    fresh_broker: BrokerProcess,
) -> None:
    """Whoever comes later waits behind the rotation: shared locks of a row would go before it for ever."""
    user, settings = Registered(fresh_broker), settings_of(fresh_broker)
    rotate(settings)
    with ThreadPoolExecutor(3) as pool:
        with stalled(fresh_broker.database_url, "key_files") as wait_for:
            before = pool.submit(user.replace)
            wait_for(1)
            rotating = pool.submit(rotate, settings)
            wait_for(2)
            after = pool.submit(Registered, fresh_broker)
            wait_for(3)
            assert query(fresh_broker.database_url, _WAITING_FOR_CHECKS) == [(2,)]
        for each in (before, rotating, after):
            each.result(PATIENCE)
    user.check()


@pytest.mark.long
@on_sqlite
def test_the_command_rotates_beside_a_broker_and_says_what_to_keep(
    fresh_broker: BrokerProcess,
) -> None:
    user, old = Registered(fresh_broker), key_of(fresh_broker)
    done = admin(fresh_broker, "rotate-broker-key").expect(0)
    assert "Keep the old key" in done.last
    assert key_of(fresh_broker) != old
    [kept] = fresh_broker.directory.glob("broker.key.until-*")
    assert kept.read_bytes() == old, "backups from before need it"
    assert str(kept) in done.lines[-2]
    assert old.hex() not in str(done)
    assert key_of(fresh_broker).hex() not in str(done)
    user.check()


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_on_postgresql_the_first_run_makes_the_key_and_changes_nothing(
    fresh_broker: BrokerProcess,
) -> None:
    """Other machines may have brokers of the same database: each needs the key before it is in force."""
    old = key_of(fresh_broker)
    rows = query(fresh_broker.database_url, "SELECT * FROM checks")
    [told] = rotate(settings_of(fresh_broker))
    assert "broker.key.next" in told
    assert query(fresh_broker.database_url, "SELECT * FROM checks") == rows
    assert key_of(fresh_broker) == old


@pytest.fixture
def two(stores: Stores, tmp_path: Path) -> Iterator[Callable[..., list[BrokerProcess]]]:
    """Two brokers on one PostgreSQL, whose key is a setting."""
    brokers: list[BrokerProcess] = []

    def start(**settings: Any) -> list[BrokerProcess]:
        shared = {"object_store_url": (tmp_path / "objects").as_uri(), **settings}
        for name in ("a", "b"):
            brokers.append(BrokerProcess(tmp_path / name, stores.database_url, **shared))
            brokers[-1].start()
        brokers[1].api_key = brokers[0].api_key
        return brokers

    yield start
    for broker in brokers:
        broker.stop()


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_brokers_with_the_key_as_a_setting_change_over_together(
    two: Callable[..., list[BrokerProcess]],
) -> None:
    old, new = os.urandom(32).hex(), os.urandom(32).hex()
    first, second = two(broker_key=old, broker_key_next=new)
    user = Registered(first)
    assert "SCBROKER_BROKER_KEY" in " ".join(rotate(settings_of(first)))
    assert "is in force" in " ".join(rotate(settings_of(first)))
    for each in (first, second):
        user.broker = each
        user.check()
    second.restart(broker_key=new, broker_key_next="")
    user.check()
    user.replace()
    user.broker = first
    user.check()
    second.stop()
    with pytest.raises(RuntimeError, match="not the one that this database"):
        second.restart(broker_key=old)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_broker_without_the_new_key_says_so_and_serves_everything_else(
    two: Callable[..., list[BrokerProcess]],
) -> None:
    old, new = os.urandom(32).hex(), os.urandom(32).hex()
    first, second = two(broker_key=old)
    user = Registered(first)
    with Wire(second) as wire:
        session = wire.log_in(user.ring)
        rotate_and_kill(settings_of(first, broker_key_next=new), 1)
        session.open_key_file(user.ring.userId, user.auth).expect(503, "overloaded")
        session.call("GET", "/v1/events").expect(200)
    with pytest.raises(RuntimeError, match="the new key is missing"):
        second.restart()
    second.restart(broker_key_next=new)
    user.broker = second
    user.check()


@pytest.mark.long
@on_sqlite
def test_a_backup_is_refused_during_a_rotation_and_has_the_key_that_opens_it_after(
    fresh_broker: BrokerProcess, tmp_path: Path
) -> None:
    rotate_and_kill(settings_of(fresh_broker), 1)
    done = admin(fresh_broker, "backup", tmp_path / "copy").expect(2)
    assert "rotate-broker-key" in done.error
    rotate(settings_of(fresh_broker))
    admin(fresh_broker, "backup", tmp_path / "copy", "--with-key").expect(0)
    assert (tmp_path / "copy" / "broker.key").read_bytes() == key_of(fresh_broker)


def test_a_running_broker_forgets_the_old_key_two_minutes_after_it_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    rows = iter([{"n": b"1"}, {"n": b"2"}])
    monkeypatch.setattr(keys, "_rows", lambda _: next(rows))
    chosen = iter([b"a" * 32, b"b" * 32])
    monkeypatch.setattr(
        keys, "_choose", lambda *_: keys.Keys(key := next(chosen), None, key, is_rotated=True)
    )
    held = BrokerKeys(Settings(data_dir=str(tmp_path)))
    connection: Any = None
    held.at(connection)
    tag = held.keyed("nonce", b"fresh")
    held.at(connection)
    assert held.keyed("nonce", b"fresh") != tag
    assert held.is_keyed(tag, "nonce", b"fresh")
    assert not held.is_keyed(tag[:24], "nonce", b"fresh")
    assert held.is_keyed(tag[:24], "nonce", b"fresh", size=24)
    clock[0] = 120.0
    assert not held.is_keyed(tag, "nonce", b"fresh")


@pytest.mark.process
@pytest.mark.long
@on_sqlite
def test_a_log_in_and_a_device_pass_from_before_a_rotation_are_accepted_right_after_it(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(trusted_proxies="127.0.0.1", guesses=1)
    user = Registered(broker)
    with Wire(broker) as wire:
        old_pass = wire.log_in(user.ring).device_pass
        nonce, another = wire.nonce(), wire.nonce()
        rotate(settings_of(broker))
        wire.call("POST", "/v1/sessions", wire.log_in_request(user.ring, nonce)).expect(201)
        user.check()  # the broker has read the change
        wire.call("POST", "/v1/sessions", wire.log_in_request(user.ring, another)).expect(201)
        for status in (401, 429):
            wire.open_key_file(user.ring.userId, random_bytes(32), None, "192.0.2.1").expect(status)
        wire.open_key_file(user.ring.userId, user.auth, None, "192.0.2.1").expect(429)
        wire.open_key_file(user.ring.userId, user.auth, old_pass, "192.0.2.1").expect(200)
