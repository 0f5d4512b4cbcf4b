"""Attacks on secrets from outside: a stolen database, guesses, questions about who exists, reminders.

Numbers and names are those of attacks.toml. A broker that is honest as yet is asked by strangers, or its
tables are read behind its back.
"""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import asyncpg
import pytest
from msgspec.structs import replace

from scbroker import BrokerError, KeyRing, Promise
from scbroker.keys import PassphraseKeys, _password_key, open_key_file, seal_key_file
from scbroker.server.storage.driver import ServerError
from scbroker.wire.users import KeyFileAnswer, ReminderAnswer
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.accounts import (
    COST,
    NEW_PASSPHRASE,
    PASSPHRASE,
    PASSWORD,
    Account,
    Derivation,
    account,
    of_passphrase,
    row_of,
)
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import DECRYPTION, REMINDER, STATE
from tests.kit.brokers import Answer, BrokerProcess, Wire
from tests.kit.crypto import keyed_hash, random_bytes, stretch
from tests.kit.tables import dump, query
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User, closing, delete_key_file, delete_user, deletion, ordered

CREDENTIALS = BrokerError.credentialsError
pytestmark = pytest.mark.usefixtures("derivations")


@pytest.fixture(scope="module")
def _throttled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path_factory.mktemp("throttled"),
        trusted_proxies="127.0.0.1",
        guesses=3,
        guesses_user=6,
        guesses_address=9,
        reminders_address=4,
    ) as broker:
        yield broker


@pytest.fixture
def broker(_throttled: BrokerProcess) -> BrokerProcess:
    """A broker that lets nobody guess more than three times, with nothing counted as yet."""
    query(_throttled.database_url, "DELETE FROM guesses")
    return _throttled


@pytest.fixture
def stranger(broker: BrokerProcess) -> Iterator[Wire]:
    """Somebody without a session, who can come from any address."""
    with Wire(broker) as wire:
        yield wire


def ask_reminder(wire: Wire, user: uuid.UUID, address: str | None = None) -> Answer:
    return wire.call("GET", f"/v1/users/{user}/reminder", X_Forwarded_For=address)


def stolen(mallory: Mallory) -> list[bytes]:
    """Every value in every row of the database that is bytes."""
    rows = [row for table in dump(mallory.behind.database_url).values() for row in table]
    return sorted({value for row in rows for value in row if isinstance(value, bytes)})


@pytest.mark.long
def test_no_value_of_the_stored_row_logs_in_or_opens_the_key_file(
    mallory: Mallory, broker: BrokerProcess, stranger: Wire
) -> None:
    """A thief who heard `auth` itself gets the sealed KeyFile, and nothing more."""
    alice = account(mallory)
    with Wire(broker) as wire:
        key_file = seal_key_file(alice.ring, PASSWORD, alice.keys)
        wire.register(alice.ring, auth=alice.keys.auth, key_file=key_file).expect(201)
    user = alice.user.bytes
    [row] = query(broker.database_url, "SELECT * FROM key_files WHERE user_id = ?", user)
    [account_row] = query(broker.database_url, "SELECT * FROM users WHERE id = ?", user)
    values = [value for value in (*row, *account_row) if isinstance(value, bytes)]
    hashes = [value for value in values if len(value) == 32]
    assert len(hashes) == 2  # the verifier and the fingerprint
    for number, value in enumerate(hashes):
        answer = stranger.open_key_file(alice.user, value, address=f"203.0.113.{number}")
        answer.expect(401, "credentials")
        with pytest.raises(DECRYPTION):
            open_key_file(key_file, alice.user, PassphraseKeys(value, value), None)
    answer = stranger.open_key_file(alice.user, alice.keys.auth).expect(200)
    assert answer.message(KeyFileAnswer).keyFile == key_file
    heard = PassphraseKeys(alice.keys.auth, alice.keys.auth)
    with pytest.raises(DECRYPTION):
        open_key_file(key_file, alice.user, heard, None)
    forged_log_in(stranger, alice.ring).expect(401, "challenge")


def secrets_of(alice: Account) -> dict[str, bytes]:
    """Every secret on the way from the two secrets to the keys."""
    salt = row_of(alice.key_file)[1]
    return {
        "password": PASSWORD.encode(),
        "passphrase": PASSPHRASE.encode(),
        "root": stretch(PASSPHRASE.encode(), of_passphrase(alice.user).salt),
        "auth": alice.keys.auth,
        "wrap": alice.keys.wrap,
        "password root": stretch(PASSWORD.encode(), salt),
        "password key": _password_key(PASSWORD.encode(), salt, alice.ring.rawFingerprint),
        **{f"seed {n}": bytes(seed) for n, seed in enumerate(alice.ring.signing[0].seeds)},
        **{f"key {n}": bytes(key) for n, key in enumerate(alice.ring.encryption[0].seeds)},
    }


def test_the_verifier_is_no_prefix_of_any_key_and_no_key_stands_in_the_database(
    mallory: Mallory,
) -> None:
    alice, values = account(mallory), stolen(mallory)
    query_row = "SELECT verifier FROM key_files WHERE user_id = ?"
    [(verifier,)] = mallory.query(query_row, alice.user.bytes)
    found = secrets_of(alice)
    assert len({secret[:8] for secret in found.values()}) == len(found)
    for name, secret in found.items():
        assert not any(secret[at : at + 8] in verifier for at in range(len(secret) - 7)), name
        assert not any(secret[:8] in value for value in values), name
    broker_key = (mallory.behind.directory / "broker.key").read_bytes()
    assert verifier == keyed_hash(broker_key, "verifier", alice.user.bytes, alice.keys.auth)
    assert not any(broker_key in value for value in values)


def test_a_stolen_key_file_is_guessed_at_for_one_argon2id_each_and_that_is_the_limit(
    mallory: Mallory, derivations: list[Derivation]
) -> None:
    alice = account(mallory)
    key_file = alice.key_file  # as a device may have it
    derivations.clear()
    with pytest.raises(DECRYPTION):
        KeyRing.open(key_file, alice.user, passphrase="wrong Guess 1")
    assert derivations == [of_passphrase(alice.user, "wrong Guess 1")]
    assert derivations[0].cost == COST
    assert KeyRing.open(key_file, alice.user, passphrase=PASSPHRASE).userId == alice.user


@pytest.fixture
def users(broker: BrokerProcess) -> dict[str, KeyRing]:
    """Users as a stranger may ask for them; none has a reminder."""
    made = {name: KeyRing.generate() for name in ("known", "no KeyFile", "deleted", "unknown")}
    with Wire(broker) as wire:
        for name, ring in made.items():
            if name != "unknown":
                wire.register(ring).expect(201)
        for name, end in (("no KeyFile", delete_key_file), ("deleted", delete_user)):
            user = User(made[name], wire.log_in(made[name]))
            order = ordered(user, "delete-key-file")
            (end(user) if end is delete_user else end(user, order)).expect(204)
            wire.token = None
    return made


def forged_log_in(wire: Wire, ring: KeyRing) -> Answer:
    """A statement in the user's name, signed by somebody else."""
    other = wire.log_in_request(KeyRing.generate())
    request = replace(wire.log_in_request(ring), signature=other.signature)
    return wire.call("POST", "/v1/sessions", request)


def forged_deletion(wire: Wire, ring: KeyRing) -> Answer:
    """An order and a closing record in the user's name, signed by somebody else."""
    user, other = User(ring, wire), KeyRing.generate().signing[0]
    return delete_user(user, deletion(user, closing(user, signed_by=other), signed_by=other))


QUESTIONS: dict[str, Callable[[Wire, KeyRing], Answer]] = {
    "log-in": forged_log_in,
    "KeyFile": lambda wire, ring: wire.open_key_file(ring.userId, random_bytes(32)),
    "KeyFile with a pass": lambda wire, ring: wire.open_key_file(
        ring.userId, random_bytes(32), random_bytes(48)
    ),
    "unset reminder": lambda wire, ring: ask_reminder(wire, ring.userId),
    "deletion": forged_deletion,
    "keys without a session": lambda wire, ring: wire.call(
        "POST", "/v1/key-records", {"users": [{"userId": str(ring.userId)}]}
    ),
    "sync without a session": lambda wire, _: wire.call("GET", "/v1/key-file"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_stranger_gets_one_answer_for_every_user_known_or_not(
    stranger: Wire, users: dict[str, KeyRing], question: str
) -> None:
    """The same status, headers and bytes, hence the same length."""
    answers = [QUESTIONS[question](stranger, ring).shape for ring in users.values()]
    assert len(answers) == 4
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0] == (200 if question == "unset reminder" else 401)


def test_a_throttled_stranger_gets_one_answer_for_every_user_known_or_not(
    stranger: Wire, users: dict[str, KeyRing]
) -> None:
    for number, ring in enumerate(users.values()):
        address = f"203.0.113.{number}"
        told = [
            stranger.open_key_file(ring.userId, random_bytes(32), address=address) for _ in range(4)
        ]
        assert [answer.status for answer in told] == [401, 401, 401, 429]
        assert told[-1].code == "throttled"
        assert 1 <= int(told[-1].headers["retry-after"]) <= 901


def test_a_sync_says_nothing_of_any_user_but_the_sessions_own(mallory: Mallory) -> None:
    alice, another = account(mallory), account(mallory, "another")
    device, count = mallory.device(alice.ring), len(mallory.heard)
    for user in (another.user, KeyRing.generate().userId, uuid.uuid4()):
        with pytest.raises(BrokerError.invalidArgumentError, match="session's own"):
            device.needToSyncAccount(user, another.key_file).result(PATIENCE)
    assert mallory.since(count) == []
    assert device.needToSyncAccount(alice.user, alice.key_file).result(PATIENCE) is False
    [asked] = [exchange for exchange in mallory.heard[count:] if exchange.name == STATE]
    assert (asked.path, asked.query, asked.body) == ("/v1/key-file", "", b"")


def test_guesses_are_throttled_by_user_and_by_address_and_a_delay_of_new_devices_is_the_limit(
    broker: BrokerProcess, stranger: Wire
) -> None:
    auth, wrong = random_bytes(32), random_bytes(32)
    victim, others = broker.new_user(auth), [KeyRing.generate() for _ in range(4)]

    def tries(ring: KeyRing, address: str, value: bytes = wrong) -> int:
        return stranger.open_key_file(ring.userId, value, address=address).status

    assert [tries(victim, "203.0.113.1") for _ in range(4)] == [401, 401, 401, 429]
    assert [tries(victim, "203.0.113.2") for _ in range(4)] == [401, 401, 401, 429]
    # From everywhere: not even the right one passes, from an address that never guessed.
    assert [tries(victim, "203.0.113.3", auth) for _ in range(2)] == [429, 429]
    # From one address, for all users together.
    assert [tries(ring, "203.0.113.4") for ring in others[:3] for _ in range(3)] == [401] * 9
    assert tries(others[3], "203.0.113.4") == 429
    assert tries(others[3], "203.0.113.5") == 401


@dataclass(frozen=True)
class Devices:
    """A user, what proves the right passphrase, and passes of devices that had a session."""

    ring: KeyRing
    auth: bytes
    passes: list[bytes]


@pytest.fixture
def devices(broker: BrokerProcess) -> Devices:
    auth = random_bytes(32)
    ring = broker.new_user(auth)
    return Devices(ring, auth, [pass_of(broker, ring) for _ in range(8)])


def pass_of(broker: BrokerProcess, ring: KeyRing) -> bytes:
    with Wire(broker) as wire:
        found = wire.log_in(ring).device_pass
        assert found is not None
        return found


@pytest.mark.long
def test_strangers_who_guess_lock_no_device_out_that_was_in_before(
    stranger: Wire, devices: Devices
) -> None:
    """They guess from many addresses, and at other users from the address that the device has."""
    user = devices.ring.userId
    for number in range(20):
        stranger.open_key_file(user, random_bytes(32), address=f"203.0.113.{number}")
        stranger.open_key_file(uuid.uuid4(), random_bytes(32), address="203.0.113.200")
    stranger.open_key_file(user, devices.auth, address="203.0.113.201").expect(429, "throttled")
    stranger.open_key_file(uuid.uuid4(), random_bytes(32), address="203.0.113.200").expect(
        429, "throttled"
    )
    for _ in range(20):
        answer = stranger.open_key_file(user, devices.auth, devices.passes[0], "203.0.113.200")
        answer.expect(200)


def test_a_pass_that_is_made_up_changed_or_another_users_is_worth_nothing(
    broker: BrokerProcess, stranger: Wire, devices: Devices
) -> None:
    """Each guess with one is a stranger's: three from one address, six in all."""
    good, user = devices.passes[0], devices.ring.userId
    worthless = [
        random_bytes(48),
        pass_of(broker, broker.new_user()),
        good[:16] + random_bytes(32),
        random_bytes(16) + good[16:],
        good[:-1] + bytes([good[-1] ^ 1]),
    ]
    told = [
        stranger.open_key_file(user, random_bytes(32), each, "203.0.113.1").status
        for each in worthless
    ]
    assert told == [401, 401, 401, 429, 429]
    for each in worthless:
        stranger.open_key_file(user, devices.auth, each, "203.0.113.1").expect(429, "throttled")


def test_a_stolen_pass_buys_as_many_guesses_as_an_address_and_collected_ones_as_many_as_a_user(
    stranger: Wire, devices: Devices
) -> None:
    """The address does not matter. A thief of one pass delays the device that it is from, and no other."""
    user = devices.ring.userId

    def tries(which: int, number: int) -> int:
        address = f"203.0.113.{number}"
        return stranger.open_key_file(user, random_bytes(32), devices.passes[which], address).status

    assert [tries(0, number) for number in range(5)] == [401] * 3 + [429] * 2
    stranger.open_key_file(user, devices.auth, devices.passes[1], "203.0.113.9").expect(200)
    assert [tries(which, which) for which in range(1, 8)] == [401] * 3 + [429] * 4


@pytest.mark.process
def test_a_reminder_travels_by_its_own_operation_alone(
    mallory: Mallory, caplog: pytest.LogCaptureFixture
) -> None:
    count, reminder = len(mallory.heard), "a canary of brass"
    device = mallory.device()
    key_file = device.register(PASSWORD, PASSPHRASE, reminder).result(PATIENCE)
    user = device.getUserId().result(PATIENCE)
    made = device.createContainer(b"x", {"h": 1}).result(PATIENCE)
    device.createOrUpdateKeyFile(key_file, PASSWORD, PASSPHRASE, reminder).result(PATIENCE)
    assert device.needToSyncAccount(user, key_file).result(PATIENCE) is False
    for each in (device, mallory.device(mallory.new_user())):
        each.getPublicKeys(user).result(PATIENCE)
        each.getEvents().result(PATIENCE)
    device.getContainer(made.id).result(PATIENCE)
    device.getKeyFile(PASSPHRASE).result(PATIENCE)
    assert mallory.device().getReminder(user).result(PATIENCE) == reminder
    with pytest.raises(CREDENTIALS) as caught:
        device.getKeyFile("wrong Guess 1").result(PATIENCE)

    def those(part: Callable[[Exchange], bytes]) -> list[str]:
        return [e.name for e in mallory.heard[count:] if reminder.encode() in part(e)]

    assert those(lambda e: e.bytes_heard) == ["POST /v1/users", "PUT /v1/key-file"]
    assert those(lambda e: e.answer_body) == [REMINDER]
    shown = mallory.behind.log + mallory.behind.output + caplog.text + repr(device)
    assert reminder not in shown + str(caught.value)


def test_a_fault_of_the_brokers_database_puts_nothing_of_the_request_into_its_log(
    broker: BrokerProcess, stranger: Wire
) -> None:
    ring, auth, key_file = KeyRing.generate(), random_bytes(32), random_bytes(40)
    reminder, url = "a canary of tin", broker.database_url
    query(
        url,
        "CREATE TRIGGER broken BEFORE INSERT ON key_files"
        " BEGIN SELECT RAISE(ABORT, 'the table is broken'); END",
    )
    answer = stranger.register(ring, auth=auth, key_file=key_file, reminder=reminder)
    query(url, "DROP TRIGGER broken")
    answer.expect(500, "internal")
    assert "the table is broken" in broker.log, "the fault itself is logged"
    for shown in (answer.body.decode(), broker.log, broker.output):
        assert reminder not in shown
        for secret in (auth, key_file, key_file[:8]):
            assert repr(secret)[2:-1] not in shown
            assert secret.hex() not in shown


def test_the_other_engine_keeps_what_a_statement_was_given_out_of_its_errors_as_well() -> None:
    error = asyncpg.UniqueViolationError("the key is not unique")
    error.detail = "Key (reminder)=(a canary) already exists."
    assert "a canary" in str(error)
    shown = ServerError(error)
    assert "the key is not unique" in str(shown)
    assert "a canary" not in str(shown) + repr(shown)


def test_reminders_are_throttled_by_address_known_users_or_not(
    broker: BrokerProcess, stranger: Wire
) -> None:
    known, answers = broker.new_user(), []
    for ring in (known, KeyRing.generate(), known, KeyRing.generate(), known, KeyRing.generate()):
        answers.append(ask_reminder(stranger, ring.userId, "203.0.113.7"))
    assert [answer.status for answer in answers] == [200] * 4 + [429] * 2
    assert answers[-1].code == "throttled"
    ask_reminder(stranger, known.userId, "203.0.113.8").expect(200)


SECRETS: Final = ("Caf\u00e9 au lait 1", NEW_PASSPHRASE)
TELLING: dict[str, str] = {
    "the password": f"it is {SECRETS[0]}",
    "the passphrase": f"{SECRETS[1]}, as ever",
    "in capitals": SECRETS[1].upper(),
    "in wide letters": "".join(chr(ord(c) + 0xFEE0) if c > " " else c for c in SECRETS[1]),
    "with the accent apart": "Cafe\u0301 au lait 1",
    "in capitals with the accent apart": "CAFE\u0301 AU LAIT 1",
}


@pytest.mark.parametrize("reminder", TELLING.values(), ids=TELLING)
def test_a_reminder_with_a_secret_in_any_spelling_is_refused_before_anything_is_sent(
    mallory: Mallory, reminder: str
) -> None:
    """The spellings are those that log in as well, for which a secret is one (keyfile.md, 2.1)."""
    alice = account(mallory)
    device, count = mallory.device(alice.ring), len(mallory.heard)
    acts: list[Callable[[], Promise[Any]]] = [
        lambda: mallory.device().register(*SECRETS, reminder),
        lambda: device.changeCredentials(*SECRETS, reminder),
        lambda: device.createOrUpdateKeyFile(alice.key_file, *SECRETS, reminder),
    ]
    for act in acts:
        with pytest.raises(BrokerError.invalidArgumentError, match="contains a secret") as caught:
            act().result(PATIENCE)
        assert reminder not in str(caught.value)
    assert mallory.since(count) == []


@pytest.mark.long
def test_a_reminder_that_stays_does_not_come_to_contain_the_secret_that_is_chosen(
    mallory: Mallory,
) -> None:
    """It was good beside the secrets of before; nobody gave it again, and nobody saw it."""
    alice = account(mallory, "hinted")
    device = mallory.device(alice.ring)
    key_file = device.changeCredentials(PASSWORD, PASSPHRASE, f"as in {SECRETS[1]}").result(
        PATIENCE
    )
    count = len(mallory.heard)
    acts: list[Callable[[], Promise[Any]]] = [
        lambda: device.changeCredentials(*SECRETS),
        lambda: device.createOrUpdateKeyFile(key_file, PASSWORD, SECRETS[1]),
    ]
    for act in acts:
        with pytest.raises(BrokerError.invalidArgumentError, match="contains one of") as caught:
            act().result(PATIENCE)
        assert SECRETS[1] not in str(caught.value)
    assert "PUT /v1/key-file" not in mallory.since(count)
    assert device.getReminder().result(PATIENCE) == f"as in {SECRETS[1]}"


# Limits


def test_who_has_a_session_learns_who_has_public_keys_and_that_is_the_limit(
    mallory: Mallory,
) -> None:
    """A directory is for being asked; an id of 122 bits of a hash is not met with by chance."""
    alice, device = account(mallory), mallory.device(mallory.new_user())
    assert device.getPublicKeys(alice.user).result(PATIENCE)
    with pytest.raises(BrokerError.notFoundError):
        device.getPublicKeys(KeyRing.generate().userId).result(PATIENCE)


def test_a_set_reminder_discloses_that_its_user_exists_and_that_is_the_limit(
    stranger: Wire, users: dict[str, KeyRing]
) -> None:
    hinted = KeyRing.generate()
    stranger.register(hinted, reminder="the horse").expect(201)
    answer = ask_reminder(stranger, hinted.userId).expect(200)
    assert answer.message(ReminderAnswer).reminder == "the horse"
    unset = ask_reminder(stranger, users["known"].userId).expect(200)
    assert unset.message(ReminderAnswer).reminder == ""
