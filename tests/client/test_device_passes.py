"""Devices under an attack on their user's passphrase: which ones log in, and what they keep for it."""

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scbroker import BrokerError, FileTrustStore, KeyRing, MemoryTrustStore, ServerProvider
from scbroker.wire import codec
from scbroker.wire.users import KeyFileOpening
from tests.client.conftest import PASSPHRASE, PASSWORD, id_of
from tests.kit import state
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.fixtures import NewProvider, StartBroker
from tests.kit.network import Network
from tests.kit.owners import ring_of
from tests.kit.waiting import PATIENCE

GUESSES = 3


@dataclass(frozen=True)
class Scene:
    """A user at a broker with few guesses, and the device that registered them."""

    broker: BrokerProcess
    new_provider: NewProvider
    device: ServerProvider

    @property
    def user(self) -> uuid.UUID:
        return ring_of(self.device).userId

    def provider(self, user: KeyRing | bool = False, **options: Any) -> ServerProvider:
        return self.new_provider(user, at=self.broker, **options)

    def attack(self) -> None:
        """Strangers guess until nobody without a pass is let in, from this very address."""
        with Wire(self.broker) as wire:
            for _ in range(GUESSES):
                wire.open_key_file(self.user, os.urandom(32))
            wire.open_key_file(self.user, os.urandom(32)).expect(429, "throttled")
        with pytest.raises(BrokerError.throttledError):
            self.provider().logIn(self.user, PASSWORD, PASSPHRASE).result(PATIENCE)


@pytest.fixture
def scene(start_broker: StartBroker, new_provider: NewProvider) -> Scene:
    broker = start_broker(guesses=GUESSES)
    device = new_provider(at=broker)
    device.register(PASSWORD, PASSPHRASE).result(PATIENCE)
    return Scene(broker, new_provider, device)


def log_in(provider: ServerProvider, user: uuid.UUID, passphrase: str = PASSPHRASE) -> None:
    provider.logIn(user, passphrase=passphrase).result(PATIENCE)


def by_passphrase(scene: Scene) -> ServerProvider:
    provider = scene.provider()
    log_in(provider, scene.user)
    return provider


def in_a_folder(scene: Scene, folder: Path) -> ServerProvider:
    """A device that keeps its trust store in files; each is another process."""
    return scene.provider(trustStore=FileTrustStore(folder))


KNOWN: dict[str, Callable[[Scene], ServerProvider]] = {
    "registered": lambda scene: scene.device,
    "logged in with the passphrase": by_passphrase,
    "logged in with the KeyRing": lambda scene: scene.provider(ring_of(scene.device)),
}


@pytest.mark.long
@both_engines
@pytest.mark.parametrize("how", KNOWN)
def test_a_device_that_was_in_before_logs_in_while_strangers_guess(scene: Scene, how: str) -> None:
    """Also after a log-out: what it keeps says that it has been in. A new device waits meanwhile."""
    user, device = scene.user, KNOWN[how](scene)
    scene.attack()
    log_in(device, user)
    assert device.getKeyFile(PASSPHRASE).result(PATIENCE)
    device.logout().result(PATIENCE)
    log_in(device, user)
    assert id_of(device) == user
    with pytest.raises(BrokerError.throttledError) as caught:
        log_in(scene.provider(), user)
    assert caught.value.retryAfter


@pytest.mark.long
def test_a_known_device_is_let_in_by_every_later_process_that_has_its_folder(
    scene: Scene, tmp_path: Path
) -> None:
    folder, user = tmp_path / "device", scene.user
    log_in(in_a_folder(scene, folder), user)
    scene.attack()
    for _ in range(2):
        log_in(in_a_folder(scene, folder), user)
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(BrokerError.throttledError):
        log_in(in_a_folder(scene, folder), user)


@pytest.mark.long
@pytest.mark.parametrize("damaged", [b"", bytes(47), bytes(49), bytes(48), "text"], ids=len)
def test_a_damaged_pass_is_as_none_and_the_next_log_in_replaces_it(
    scene: Scene, tmp_path: Path, damaged: bytes | str
) -> None:
    folder, user = tmp_path / "device", scene.user
    log_in(in_a_folder(scene, folder), user)
    state.change(folder, "UPDATE user SET pass = ?", damaged)
    log_in(in_a_folder(scene, folder), user)
    assert state.read(folder, "SELECT pass FROM user") != [(damaged,)]
    scene.attack()
    log_in(in_a_folder(scene, folder), user)


@pytest.mark.long
def test_a_pass_goes_to_the_broker_with_the_request_for_its_users_key_file_and_nowhere_else(
    scene: Scene,
) -> None:
    store = MemoryTrustStore()
    device, user = scene.provider(trustStore=store), scene.user
    log_in(device, user)
    kept = store.read_pass(user)
    assert kept is not None
    with Network() as network:
        with pytest.raises(BrokerError.credentialsError):
            log_in(device, uuid.uuid4())
        log_in(device, user)
        device.getReminder().result(PATIENCE)
        device.createContainer(b"x").result(PATIENCE)
    holding = [each for each in network.sent if kept in (each.body or b"")]
    assert [each.path for each in holding] == [f"/v1/users/{user}/key-file/open"]
    opened = [codec.decode(KeyFileOpening, each.body or b"")
              for each in network.those("POST", "/key-file/open")]  # fmt: skip
    assert [each.devicePass for each in opened] == [None, kept]
    assert store.read_pass(user) not in (kept, None), "each session brings another"
    session: Any = device._current
    for shown in (repr(device), repr(store), repr(session)):
        assert repr(kept)[2:-1] not in shown
        assert kept.hex() not in shown
