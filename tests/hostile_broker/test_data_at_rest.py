"""Attacks on what a broker stores: by thieves of the database or of an old key, by users of the machine.

Attacks 44, 55, 59 and 109 of attacks.toml.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from scbroker.errors import IntegrityError
from scbroker.keys import KeyRing, PassphraseKeys, seal_key_file
from scbroker.server.keys import KEY_FILE, VERIFIER
from scbroker.wire.users import KeyFileAnswer
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.accounts import PASSPHRASE, PASSWORD, of_passphrase, row_of
from tests.kit.brokers import BrokerProcess, Wire, clock
from tests.kit.crypto import keyed_hash, open_stored, random_bytes, seal_stored, sha256, stretch
from tests.kit.fixtures import StartBroker
from tests.kit.operators import admin, rotate_to_the_end
from tests.kit.tables import dump, query
from tests.kit.waiting import wait_until
from tests.kit.writers import Story, User, authorized, delete_key_file, ordered, store, storing

pytestmark = pytest.mark.usefixtures("derivations")
_WINDOW: Final = 16
STORED: Final = "SELECT key_file FROM key_files WHERE user_id = ?"


def windows(data: bytes, step: int = 1) -> set[bytes]:
    """Return every run of 16 bytes, or those that begin at each such step."""
    return {data[at : at + _WINDOW] for at in range(0, len(data) - _WINDOW + 1, step)}


def stolen(broker: BrokerProcess) -> list[bytes]:
    """Return what a thief of the database has: the files of SQLite, or the rows of PostgreSQL."""
    if broker.engine == "sqlite":
        file = Path(broker.database_url.removeprefix("sqlite:///"))
        return [path.read_bytes() for path in file.parent.glob(f"{file.name}*")]
    rows = [row for table in dump(broker.database_url).values() for row in table]
    return [value for row in rows for value in row if isinstance(value, bytes)]


def parts_in(data: list[bytes], whole: bytes, step: int = 1) -> set[bytes]:
    """Return the runs of 16 bytes of `whole` that the data contains."""
    return {run for run in windows(whole, step) if any(run in each for each in data)}


@pytest.mark.long
def test_no_byte_of_a_database_without_the_brokers_key_tests_a_guess_at_a_passphrase(
    start_broker: StartBroker,
) -> None:
    """The thief is given even the right passphrase: nothing that it leads to is in the database."""
    broker = start_broker()
    with Wire(broker) as wire:
        ring = broker.new_user()
        user = User(ring, wire.log_in(ring))
        keys = PassphraseKeys.derive(PASSPHRASE, ring.userId)
        files = [seal_key_file(ring, PASSWORD, keys) for _ in range(2)]
        for key_file in files:
            message = storing(user, keyFile=key_file, auth=keys.auth)
            store(user, authorized(user, message)).expect(204)
        data = stolen(broker)
        broker_key = (broker.directory / "broker.key").read_bytes()
        [(stored,)] = query(broker.database_url, STORED, ring.userId.bytes)
        answer = wire.open_key_file(ring.userId, keys.auth).expect(200)
    assert ring.rawFingerprint[:_WINDOW] in parts_in(data, ring.rawFingerprint)  # it is searched
    for key_file in files:
        public = b"\xc4\x20" + ring.rawFingerprint  # as key records have it too
        found = parts_in(data, key_file, 5) - windows(public)
        assert found == set()
        derived = {
            "auth": keys.auth,
            "wrap": keys.wrap,
            "root": stretch(PASSPHRASE.encode(), of_passphrase(ring.userId).salt),
            "the KeyFile's hash": sha256(key_file),
            **{f"the hash of element {n}": sha256(each) for n, each in enumerate(row_of(key_file))},
        }
        hashed = {f"the hash of {name}": sha256(value) for name, value in derived.items()}
        for name, value in (derived | hashed).items():
            assert not any(value in each for each in data), name
    assert answer.message(KeyFileAnswer).keyFile == files[1]
    assert open_stored(broker_key, KEY_FILE, ring.userId.bytes, stored) == files[1]


def test_a_stored_key_file_opens_only_under_this_brokers_key_and_for_its_user(
    mallory: Mallory,
) -> None:
    broker, auth, key_file = mallory.behind, random_bytes(32), random_bytes(500)
    ring, other = (broker.new_user(auth, key_file) for _ in range(2))
    key = (broker.directory / "broker.key").read_bytes()
    user_id = ring.userId.bytes
    [(stored,)] = query(broker.database_url, STORED, user_id)
    [(another,)] = query(broker.database_url, STORED, other.userId.bytes)
    assert open_stored(key, KEY_FILE, user_id, stored) == key_file
    for wrong in (
        (random_bytes(32), KEY_FILE, user_id, stored),
        (key, "verifier", user_id, stored),
        (key, KEY_FILE, other.userId.bytes, stored),
        (key, KEY_FILE, user_id, another),
        (key, KEY_FILE, user_id, stored[:-1]),
        (key, KEY_FILE, user_id, stored[:5]),
        (key, KEY_FILE, user_id, b""),
    ):
        with pytest.raises(IntegrityError):
            open_stored(*wrong)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker on SQLite whose files no other test changes."""
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


@pytest.mark.long
@pytest.mark.parametrize("end", ["replaced", "deleted"])
def test_a_key_file_that_was_replaced_or_deleted_is_soon_in_no_file_of_sqlite(
    alone: BrokerProcess, end: str
) -> None:
    """Also for a thief of the broker's key, to whom an old KeyFile shows its time's secrets."""
    ring = alone.new_user(key_file=random_bytes(8_000))
    [(old,)] = query(alone.database_url, STORED, ring.userId.bytes)
    with Wire(alone) as wire:
        user = User(ring, wire.log_in(ring))
        assert parts_in(stolen(alone), old, 32)
        if end == "replaced":
            store(user, authorized(user, storing(user))).expect(204)
        else:
            delete_key_file(user, ordered(user, "delete-key-file")).expect(204)
        wait_until(lambda: not parts_in(stolen(alone), old, 32))


def open_to_others(*paths: Path) -> list[Path]:
    """Return those that other users of the machine can open."""
    return [path for path in paths if path.stat().st_mode & 0o077]


@pytest.mark.long
def test_a_data_folder_that_is_open_to_all_is_closed_and_so_is_every_file_that_a_broker_makes(
    tmp_path: Path,
) -> None:
    """A new Docker volume, or a folder that an administrator made in /srv, is open to all users."""
    folder, database = tmp_path / "data", tmp_path / "database"
    for path in (folder, database):
        path.mkdir()
        path.chmod(0o755)
    broker = BrokerProcess(folder, f"sqlite:///{database / 'it.sqlite'}")
    admin(broker, "api-keys", "create", "first").expect(0)
    with broker, Wire(broker) as wire:
        ring = broker.new_user()
        user = User(ring, wire.log_in(ring))
        Story(user).upload(user, bytes(70_000))
        made = [path for path in (*database.iterdir(), *folder.rglob("*")) if path.name != "stderr"]
        assert {"it.sqlite", "it.sqlite-wal", "broker.key"} < {path.name for path in made}
        assert any("parts" in path.parts and path.is_file() for path in made)
        assert open_to_others(folder, *made) == []


# A thief of a broker's key that was rotated since.


ROTATED: Final = "SELECT key_file, verifier FROM key_files WHERE user_id = ?"


@dataclass
class Theft:
    """A thief has the old key, and a copy of the database from before the rotation."""

    broker: BrokerProcess
    old: bytes
    before: bytes
    """The KeyFile as the copy has it."""
    ring: KeyRing
    auth: bytes
    key_file: bytes

    @property
    def user(self) -> bytes:
        return self.ring.userId.bytes

    @property
    def new(self) -> bytes:
        return (self.broker.directory / "broker.key").read_bytes()


@pytest.fixture
def theft(start_broker: StartBroker) -> Theft:
    """The broker was restarted since: a running one forgets the old key after two minutes."""
    broker = start_broker(trusted_proxies="127.0.0.1", guesses=1)
    auth, key_file = random_bytes(32), random_bytes(500)
    ring = broker.new_user(auth, key_file)
    old = (broker.directory / "broker.key").read_bytes()
    [(before, _)] = query(broker.database_url, ROTATED, ring.userId.bytes)
    rotate_to_the_end(broker)
    broker.restart()
    return Theft(broker, old, before, ring, auth, key_file)


@pytest.mark.long
def test_nothing_in_the_database_after_a_rotation_opens_or_tests_a_guess_under_the_old_key(
    theft: Theft,
) -> None:
    """The thief is given even the right proof of the passphrase: nothing stored can be compared with it."""
    verifier = keyed_hash(theft.old, "verifier", theft.user, theft.auth)
    data = stolen(theft.broker)
    [(key_file, sealed)] = query(theft.broker.database_url, ROTATED, theft.user)
    assert any(key_file in each for each in data)  # it is searched
    if theft.broker.engine == "sqlite":
        assert not any(theft.before in each for each in data)
    for secret in (verifier, theft.auth, theft.key_file, theft.old, theft.new):
        assert not any(secret in each for each in data)
    for name, stored in ((KEY_FILE, key_file), (VERIFIER, sealed)):
        open_stored(theft.new, name, theft.user, stored)
        with pytest.raises(IntegrityError):
            open_stored(theft.old, name, theft.user, stored)


@pytest.mark.long
def test_a_nonce_that_a_thief_of_the_old_key_makes_is_refused(theft: Theft) -> None:
    fresh = random_bytes(16) + (clock() + 10**8).to_bytes(8, "big")
    with Wire(theft.broker) as wire:
        for key, status in ((theft.old, 401), (theft.new, 201)):
            nonce = fresh + keyed_hash(key, "nonce", fresh)[:24]
            request = wire.log_in_request(theft.ring, nonce)
            wire.call("POST", "/v1/sessions", request).expect(status)


@pytest.mark.long
def test_a_proof_that_a_thief_of_the_old_key_writes_into_the_database_releases_no_key_file(
    theft: Theft,
) -> None:
    """The broker releases the KeyFile for a proof that matches the stored verifier."""
    own = random_bytes(32)
    verifier = keyed_hash(theft.old, "verifier", theft.user, own)
    for planted in (verifier, seal_stored(theft.old, VERIFIER, theft.user, verifier)):
        statement = "UPDATE key_files SET verifier = ? WHERE user_id = ?"
        query(theft.broker.database_url, statement, planted, theft.user)
        theft.broker.restart(guesses=10)
        with Wire(theft.broker) as wire:
            wire.open_key_file(theft.ring.userId, own).expect(401, "credentials")


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_proof_that_a_thief_of_the_old_key_writes_before_the_next_rotation_is_not_taken_into_it(
    theft: Theft,
) -> None:
    own = random_bytes(32)
    planted = keyed_hash(theft.old, "verifier", theft.user, own)
    query(theft.broker.database_url, "UPDATE key_files SET verifier = ?", planted)
    rotate_to_the_end(theft.broker)
    with Wire(theft.broker) as wire:
        wire.open_key_file(theft.ring.userId, own).expect(401, "credentials")


@pytest.mark.long
def test_a_copy_from_before_the_rotation_opens_under_the_old_key_and_is_the_limit(
    theft: Theft,
) -> None:
    assert open_stored(theft.old, KEY_FILE, theft.user, theft.before) == theft.key_file


# Limits


@pytest.mark.long
def test_an_auth_that_was_heard_opens_the_key_file_until_the_passphrase_is_changed_and_is_the_limit(
    alone: BrokerProcess,
) -> None:
    """Unlike a token it does not expire, and it tests guesses for one Argon2id each."""
    ring = alone.new_user()
    keys = PassphraseKeys.derive(PASSPHRASE, ring.userId)
    with Wire(alone) as wire:
        user = User(ring, wire.log_in(ring))
        store(user, authorized(user, storing(user, auth=keys.auth))).expect(204)
        wire.open_key_file(ring.userId, keys.auth).expect(200)
        store(user, authorized(user, storing(user))).expect(204)
        wire.open_key_file(ring.userId, keys.auth).expect(401, "credentials")
