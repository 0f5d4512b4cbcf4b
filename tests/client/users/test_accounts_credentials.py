"""Credentials changed and keys rotated over a real broker: who goes on, who does not, what is refused."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, KeyType, Promise, ServerProvider
from scbroker.records.container_record import parse_record
from scbroker.wire.users import KeyFileState
from tests.client.conftest import REMINDER, beside, id_of
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess, clock
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network, lost, lying, overtaken
from tests.kit.owners import (
    KEY_FILE,
    NEW_PASSPHRASE,
    NEW_PASSWORD,
    Owner,
    change,
    is_good,
    new_owner,
    ring_of,
    shared_by,
    token_of,
)
from tests.kit.waiting import PATIENCE


@pytest.fixture
def owner(new_provider: NewProvider) -> Owner:
    return new_owner(new_provider)


def key_index_of(record: bytes) -> int:
    """Of the key that a container's record is signed with."""
    return parse_record(record).keyIndex


def test_a_reminder_that_is_not_given_stays_and_an_empty_one_removes_it(owner: Owner) -> None:
    """By either operation; after the deletion of the KeyFile none is left to stay."""
    alice, secrets = owner.provider, (f"{NEW_PASSWORD} 1", f"{NEW_PASSPHRASE} 1")
    key_file = change(alice, number=1).result(PATIENCE)
    assert alice.getReminder().result(PATIENCE) == REMINDER
    for reminder, expected in (("another", "another"), (None, "another"), ("", ""), (None, "")):
        key_file = change(alice, number=1, reminder=reminder).result(PATIENCE)
        assert alice.getReminder().result(PATIENCE) == expected
    for reminder, expected in (("third", "third"), (None, "third"), ("", ""), (None, "")):
        alice.createOrUpdateKeyFile(key_file, *secrets, reminder).result(PATIENCE)
        assert alice.getReminder().result(PATIENCE) == expected
    change(alice, number=1, reminder="last").result(PATIENCE)
    alice.deleteKeyFile().result(PATIENCE)
    change(alice, number=1).result(PATIENCE)
    assert alice.getReminder().result(PATIENCE) == ""


def test_a_change_ends_the_tokens_of_all_other_sessions_and_who_has_the_key_ring_goes_on(
    alice: ServerProvider, new_provider: NewProvider, broker: BrokerProcess
) -> None:
    others = [new_provider(ring_of(alice)) for _ in range(2)]
    tokens = [token_of(other) for other in others]
    assert all(is_good(token, broker) for token in tokens)
    own, other = token_of(alice), others[0]
    made = other.createContainer(b"before").result(PATIENCE)
    change(alice).result(PATIENCE)
    assert token_of(alice) == own
    assert is_good(own, broker)
    assert not any(is_good(token, broker) for token in tokens)
    assert other.getContainerContent(made.id).result(PATIENCE) == b"before"
    assert other.updateContainerContent(made.id, b"after").result(PATIENCE).version == 2
    assert is_good(token_of(other), broker)


def test_after_a_rotation_every_other_device_is_told_to_log_in_again(
    alice: ServerProvider, new_provider: NewProvider, broker: BrokerProcess
) -> None:
    """By every operation, both with a token that the broker ended and with one that ran out."""
    made = alice.createContainer(b"x").result(PATIENCE)
    other = new_provider(ring_of(alice))
    token, own = token_of(other), token_of(alice)
    key_file = change(alice, compromised=True).result(PATIENCE)
    assert (is_good(token, broker), is_good(own, broker)) == (False, True)
    session: Any = other._current
    attempts: dict[str, Callable[[], Promise[Any]]] = {
        "getContainer": lambda: other.getContainer(made.id),
        "createContainer": lambda: other.createContainer(b"x"),
        "changeCredentials": lambda: change(other),
        "needToSyncAccount": lambda: other.needToSyncAccount(id_of(other), key_file),
        "deleteUser": other.deleteUser,
    }
    for (name, attempt), ran_out in itertools.product(attempts.items(), (False, True)):
        session.token.value, session.token.expires = token, 0.0 if ran_out else clock() / 1e6 + 3600
        with pytest.raises(BrokerError.notAuthenticatedError, match="Log in again") as caught:
            attempt().result(PATIENCE)
        assert caught.value.code == "session", name
    other.logIn(id_of(alice), passphrase=NEW_PASSPHRASE).result(PATIENCE)
    assert other.getContainerContent(made.id).result(PATIENCE) == b"x"


def test_what_was_begun_before_a_rotation_and_is_sent_after_it_is_signed_again(
    alice: ServerProvider,
) -> None:
    rotated: list[bytes] = []

    def content() -> Any:
        yield b"first, "
        rotated.append(change(alice, compromised=True).result(PATIENCE))
        yield b"then"

    made = alice.createContainer(content()).result(PATIENCE)
    assert rotated
    assert key_index_of(made.record) == 1
    assert alice.getContainerContent(made.id).result(PATIENCE) == b"first, then"


def test_a_rotation_publishes_the_next_key_of_each_type_and_retires_the_one_before(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    before = ring_of(alice)
    change(alice, compromised=True).result(PATIENCE)
    after = ring_of(alice)
    assert (len(after.signing), len(after.encryption)) == (2, 2)
    assert (after.signing[0], after.encryption[0]) == (before.signing[0], before.encryption[0])
    for reader in (alice, bob):
        keys = reader.getPublicKeys(before.userId).result(PATIENCE)
        assert [(key.keyType, key.index, key.active) for key in keys] == [
            (KeyType.Signing, 0, False),
            (KeyType.Signing, 1, True),
            (KeyType.Encryption, 0, False),
            (KeyType.Encryption, 1, True),
        ]
        assert [key.key for key in keys] == [key.public for key in after.signing + after.encryption]
        for retired, active in (keys[:2], keys[2:]):
            assert retired.retiredAt is not None
            assert retired.retiredAt > active.createdAt >= retired.createdAt
            assert active.retiredAt is None
            asked = reader.getPublicKeys(before.userId, active.keyType, 1).result(PATIENCE)
            assert asked == [active]
            latest = reader.getLatestActiveSigningKey(before.userId, active.keyType)
            assert latest.result(PATIENCE) == active


@both_engines
def test_containers_of_before_a_rotation_open_and_verify_for_every_member_on_every_device(
    alice: ServerProvider, bob: ServerProvider, new_provider: NewProvider
) -> None:
    members = shared_by(alice, bob)
    made = alice.createContainer(b"x" * 70_000, {"h": 1}, accessLevels=members, type="t")
    container = made.result(PATIENCE).id
    of_bob = bob.createContainer(b"his", accessLevels=members).result(PATIENCE).id
    for member in (alice, bob):
        member.getContainer(container).result(PATIENCE)
    change(alice, compromised=True).result(PATIENCE)
    for device in (alice, bob, new_provider(ring_of(alice)), new_provider(ring_of(bob))):
        found = device.getContainer(container).result(PATIENCE)
        assert (found.content, found.type) == (b"x" * 70_000, "t")
        assert device.getContainerContent(of_bob).result(PATIENCE) == b"his"


def test_of_two_devices_that_change_the_credentials_at_once_one_is_told_of_a_conflict(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    devices = [alice, new_provider(ring_of(alice))]
    changing = [change(device, number=number) for number, device in enumerate(devices, 1)]
    outcomes: list[object] = []
    for promise in changing:
        try:
            outcomes.append(promise.result(PATIENCE))
        except BrokerError as error:
            outcomes.append(type(error))
    assert BrokerError.conflictError in outcomes
    (won,) = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, bytes)]
    assert [ring_of(device).generation for device in devices] == [2 - won, 1 + won]
    found = new_provider().logIn(id_of(alice), passphrase=f"{NEW_PASSPHRASE} {won + 1}")
    assert found.result(PATIENCE) == outcomes[won]


def test_a_change_whose_answer_is_lost_is_made_once(alice: ServerProvider) -> None:
    with Network() as network:
        network.treat("PUT", KEY_FILE, lost(2))
        key_file = change(alice, compromised=True).result(PATIENCE)
    bodies = [each.body for each in network.those("PUT", KEY_FILE)]
    assert (len(bodies), len(set(bodies))) == (3, 1)
    assert ring_of(alice).generation == 2
    assert len(alice.getPublicKeys().result(PATIENCE)) == 4
    assert alice.needToSyncAccount(id_of(alice), key_file).result(PATIENCE) is False
    assert alice.createContainer(b"x").result(PATIENCE).version == 1


STATE_LIES: dict[str, tuple[Callable[[Any], Any], type[BrokerError]]] = {
    "an older generation":
        (lambda state: replace(state, generation=state.generation - 1), BrokerError.rollbackError),
    "a generation of nobody's":
        (lambda state: replace(state, generation=0, hash=None), BrokerError.rollbackError),
    "other bytes of the same generation":
        (lambda state: replace(state, hash=bytes(32)), BrokerError.forkError),
    "a generation that nobody reaches":
        (lambda state: replace(state, generation=2**40), BrokerError.brokerFaultError),
    "the last generation that there is":
        (lambda state: replace(state, generation=2**53 - 1, hash=None), BrokerError.brokerFaultError),
}  # fmt: skip


def test_a_lie_about_the_stored_key_file_is_found_by_all_who_ask_and_nothing_is_stored(
    alice: ServerProvider,
) -> None:
    key_file = change(alice).result(PATIENCE)
    ring = ring_of(alice)
    for lie, error in STATE_LIES.values():
        with lying(lie, (KeyFileState,)) as told, Network() as network:
            for attempt in (
                alice.needToSyncAccount(id_of(alice), key_file),
                change(alice, number=1),
            ):
                with pytest.raises(BrokerError) as caught:
                    attempt.result(PATIENCE)
                assert caught.type is error
            assert len(told) == 2
            assert network.those("PUT", KEY_FILE) == []
    assert ring_of(alice) is ring
    assert alice.needToSyncAccount(ring.userId, key_file).result(PATIENCE) is False


def test_keys_that_another_program_has_read_again_meanwhile_are_no_rollback(
    alice: ServerProvider, new_provider: NewProvider, network: Network, tmp_path: Path
) -> None:
    """Both have one trust store; one reads newer keys while the answer to the other is on its way."""
    one, two = (beside(alice, new_provider, trustStore=tmp_path) for _ in range(2))
    bob = new_provider(True)

    def read_newer() -> None:
        change(bob, compromised=True).result(PATIENCE)
        assert len(two.getPublicKeys(id_of(bob)).result(PATIENCE)) == 4

    network.treat("POST", "/v1/key-records", overtaken(read_newer))
    assert len(one.getPublicKeys(id_of(bob)).result(PATIENCE)) == 4
