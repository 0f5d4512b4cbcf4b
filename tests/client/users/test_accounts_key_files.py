"""KeyFiles over a real broker: given back, compared, removed, and stored again; and opened without one."""

import uuid
from typing import Any

import pytest

from scbroker import BrokerError, KeyRing, MemoryTrustStore, ServerProvider
from scbroker.client.users.accounts import keep_mark
from scbroker.keys import PassphraseKeys, seal_key_file
from scbroker.wire.users import KeyFileAnswer
from tests.client.conftest import PASSPHRASE, PASSWORD, REMINDER, Account, drop, refusal
from tests.kit.both_engines import both_engines
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network, answered
from tests.kit.owners import (
    KEY_FILE,
    NEW_PASSPHRASE,
    NEW_PASSWORD,
    Owner,
    change,
    new_owner,
    ring_of,
)
from tests.kit.waiting import PATIENCE


@pytest.fixture
def owner(new_provider: NewProvider) -> Owner:
    return new_owner(new_provider)


def test_the_marks_outlive_the_deletion_of_a_key_file(owner: Owner) -> None:
    """An older one, and another one of the same age, take its place no more than before."""
    change(owner.provider).result(PATIENCE)
    owner.provider.deleteKeyFile().result(PATIENCE)
    keys = PassphraseKeys.derive(PASSPHRASE, owner.user_id)
    another = seal_key_file(ring_of(owner.provider), PASSWORD, keys)
    refused = {BrokerError.rollbackError: owner.key_file, BrokerError.forkError: another}
    for error, key_file in refused.items():
        with Network() as network, pytest.raises(BrokerError) as caught:
            owner.provider.createOrUpdateKeyFile(key_file, PASSWORD, PASSPHRASE).result(PATIENCE)
        assert caught.type is error
        assert network.those("PUT", KEY_FILE) == []


@pytest.mark.parametrize("passphrase", [PASSPHRASE, NEW_PASSPHRASE], ids=["its own", "another"])
def test_a_key_file_that_the_password_does_not_open_is_not_stored(
    account: Account, new_provider: NewProvider, passphrase: str
) -> None:
    """A wrong password is one error, whatever the passphrase, and nothing is sent."""
    provider = new_provider(account.ring)
    with Network() as network, pytest.raises(BrokerError.credentialsError) as caught:
        provider.createOrUpdateKeyFile(account.key_file, NEW_PASSWORD, passphrase).result(PATIENCE)
    assert NEW_PASSWORD not in str(caught.value)
    assert network.sent == []


@pytest.mark.long
@both_engines
def test_the_same_bytes_with_another_passphrase_are_secured_under_that_passphrase(
    owner: Owner, new_provider: NewProvider
) -> None:
    """As the next generation: of one generation there is one KeyFile, on every device."""
    alice, user = owner.provider, owner.user_id
    other = new_provider(ring_of(alice))
    made = alice.createContainer(b"x").result(PATIENCE)
    stored = alice.createOrUpdateKeyFile(owner.key_file, PASSWORD, NEW_PASSPHRASE).result(PATIENCE)
    assert stored != owner.key_file
    assert KeyRing.open(stored, user, password=PASSWORD, passphrase=NEW_PASSPHRASE).generation == 2
    assert alice.getReminder().result(PATIENCE) == REMINDER
    for password in (None, PASSWORD):
        fresh = new_provider()
        assert fresh.logIn(user, password, NEW_PASSPHRASE).result(PATIENCE) == stored
        assert fresh.getContainerContent(made.id).result(PATIENCE) == b"x"
    refusal(new_provider().logIn(user, passphrase=PASSPHRASE), BrokerError.credentialsError)
    for device in (alice, other):
        assert device.needToSyncAccount(user, stored).result(PATIENCE) is False
        assert device.needToSyncAccount(user, owner.key_file).result(PATIENCE) is True
        assert device.getContainerContent(made.id).result(PATIENCE) == b"x"
    with pytest.raises(BrokerError.rollbackError, match="give the bytes"):
        alice.createOrUpdateKeyFile(owner.key_file, PASSWORD, PASSPHRASE).result(PATIENCE)
    again = alice.createOrUpdateKeyFile(stored, PASSWORD, PASSPHRASE).result(PATIENCE)
    assert new_provider().logIn(user, PASSWORD, PASSPHRASE).result(PATIENCE) == again
    assert ring_of(alice).generation == 3


def test_another_passphrase_is_chosen_as_carefully_as_a_first_one(
    account: Account, new_provider: NewProvider
) -> None:
    provider = new_provider(account.ring)
    with Network() as network:
        storing = provider.createOrUpdateKeyFile(account.key_file, PASSWORD, "short")
        refusal(storing, BrokerError.invalidArgumentError, "too weak")
        storing = provider.createOrUpdateKeyFile(account.key_file, PASSWORD, PASSWORD)
        refusal(storing, BrokerError.invalidArgumentError, "must differ")
    assert network.sent == []


@pytest.fixture(scope="module")
def strangers_file() -> bytes:
    keys = PassphraseKeys(b"a" * 32, b"w" * 32)
    return seal_key_file(KeyRing.generate(), PASSWORD, keys)


def test_an_older_another_or_a_strangers_key_file_is_not_given(
    account: Account, new_provider: NewProvider, strangers_file: bytes
) -> None:
    """The first two by a mark of this device's: what the broker serves is what it always had."""
    ring = account.ring
    marks = {
        BrokerError.rollbackError: (ring.next(2, fresh=False), b"2"),
        BrokerError.forkError: (ring, b"1"),
    }
    for error, seen in marks.items():
        store = MemoryTrustStore()
        keep_mark(store.open(ring.userId, b""), *seen)
        with pytest.raises(BrokerError) as caught:
            new_provider(ring, trustStore=store).getKeyFile(PASSPHRASE).result(PATIENCE)
        assert caught.type is error
    served = {BrokerError.keySubstitutionError: strangers_file, BrokerError.integrityError: b"x"}
    for error, data in served.items():
        provider = new_provider(ring)
        with Network() as network:
            network.treat("POST", "/key-file/open", answered(KeyFileAnswer(keyFile=data)))
            with pytest.raises(BrokerError) as caught:
                provider.getKeyFile(PASSPHRASE).result(PATIENCE)
        assert caught.type is error


def test_only_the_sessions_own_key_file_can_be_compared(
    account: Account, alice: ServerProvider
) -> None:
    wrong: dict[Any, str] = {
        account.ring.userId: "session's own",
        uuid.uuid4(): "session's own",
        str(account.ring.userId): "session's own",
        "me": "userId is not a UUID",
        None: "must be a uuid.UUID or its text, not NoneType",
    }
    for user, message in wrong.items():
        with pytest.raises(BrokerError.invalidArgumentError, match=message):
            drop(alice.needToSyncAccount(user, account.key_file))


def test_a_local_key_file_opens_with_a_secret_whole_and_for_its_user_only(account: Account) -> None:
    data, user = account.key_file, account.ring.userId
    wrong: list[tuple[type[BrokerError], Any, Any, dict[str, Any]]] = [
        (BrokerError.invalidArgumentError, data, user, {}),
        (BrokerError.invalidArgumentError, data, user, {"password": ""}),
        (BrokerError.invalidArgumentError, data.hex(), user, {"password": PASSWORD}),
        (BrokerError.invalidArgumentError, data, "user", {"password": PASSWORD}),
        (BrokerError.keySubstitutionError, data, str(uuid.uuid4()), {"password": PASSWORD}),
        (BrokerError.integrityError, b"", user, {"password": PASSWORD}),
        (BrokerError.integrityError, data[:-1], user, {"password": PASSWORD}),
        (BrokerError.integrityError, data + b"\0", user, {"password": PASSWORD}),
        (
            BrokerError.decryptionError,
            data[:-1] + bytes([data[-1] ^ 1]),
            user,
            {"password": PASSWORD},
        ),
        (
            BrokerError.decryptionError,
            data[:-1] + bytes([data[-1] ^ 1]),
            user,
            {"passphrase": PASSPHRASE},
        ),
        (BrokerError.keySubstitutionError, data, uuid.uuid4(), {"password": PASSWORD}),
    ]
    for error, given, whose, secrets in wrong:
        with pytest.raises(BrokerError) as caught:
            KeyRing.open(given, whose, **secrets)
        assert caught.type is error, (len(given), secrets)
