"""Device passes: guesses by strangers do not lock a known device out, and a pass buys few guesses.

Spec: docs/spec/protocol.md, 3 and 5.
"""

import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from scbroker.crypto.seal import random_bytes
from scbroker.keys import KeyRing
from tests.kit.brokers import Answer, BrokerProcess, Wire
from tests.kit.fixtures import StartBroker
from tests.kit.tables import dump, query
from tests.kit.writers import User, authorized, store, storing

# Each limit is another number, so that a count shows which one was reached.
LIMITS: Final = {"guesses": 3, "guesses_user": 5, "guesses_address": 7}
HOME: Final = "203.0.113.1"


@dataclass(frozen=True)
class Scene:
    """A user, what proves the right passphrase, and a device that had a session."""

    broker: BrokerProcess
    wire: Wire
    ring: KeyRing
    auth: bytes

    @property
    def device_pass(self) -> bytes:
        assert self.wire.device_pass is not None
        return self.wire.device_pass

    def another_pass(self, ring: KeyRing | None = None) -> bytes:
        """One more pass, of this user or of another."""
        with Wire(self.broker) as wire:
            found = wire.log_in(ring or self.ring).device_pass
            assert found is not None
            return found

    def guess(
        self,
        device_pass: bytes | None = None,
        *,
        right: bool = False,
        address: str = HOME,
        ring: KeyRing | None = None,
    ) -> Answer:
        auth = self.auth if right else random_bytes(32)
        return self.wire.open_key_file((ring or self.ring).userId, auth, device_pass, address)

    def statuses(self, count: int, device_pass: bytes | None = None, **more: Any) -> list[int]:
        return [self.guess(device_pass, **more).status for _ in range(count)]


@pytest.fixture
def scene(start_broker: StartBroker) -> Iterator[Scene]:
    broker, auth = start_broker(trusted_proxies="127.0.0.1", **LIMITS), random_bytes(32)
    ring = broker.new_user(auth)
    with Wire(broker) as wire:
        yield Scene(broker, wire.log_in(ring), ring, auth)


@pytest.mark.long
def test_guesses_by_strangers_do_not_lock_a_known_device_out(scene: Scene) -> None:
    """From everywhere, and from the device's own address, as behind one NAT."""
    for number in range(20):
        scene.guess(address=f"198.51.100.{number}")
        scene.guess(address=HOME)
        scene.guess(address=HOME, ring=KeyRing.generate())
    assert scene.guess(right=True).expect(429, "throttled").headers["retry-after"]
    assert scene.guess(right=True, address="198.51.100.99").status == 429, "also from elsewhere"
    for _ in range(2 * max(LIMITS.values())):
        scene.guess(scene.device_pass, right=True).expect(200)
    scene.guess(right=True).expect(429, "throttled")


def test_guesses_with_a_pass_are_counted_against_it_and_touch_no_counter_of_strangers(
    scene: Scene,
) -> None:
    one, other = scene.device_pass, scene.another_pass()
    assert scene.statuses(5, one) == [401] * 3 + [429] * 2
    scene.guess(one, right=True).expect(429, "throttled")
    scene.guess(other, right=True).expect(200)
    assert scene.statuses(4) == [401] * 3 + [429]


@pytest.mark.long
def test_guesses_with_all_passes_of_a_user_together_are_bounded(scene: Scene) -> None:
    passes = [scene.another_pass() for _ in range(8)]
    assert [scene.guess(each).status for each in passes] == [401] * 5 + [429] * 3
    scene.guess(scene.device_pass, right=True).expect(429, "throttled")
    scene.guess(right=True).expect(200)


def changed(at: int) -> Callable[[Scene], bytes]:
    def change(scene: Scene) -> bytes:
        found = bytearray(scene.device_pass)
        found[at] ^= 1
        return bytes(found)

    return change


def by_another_key(scene: Scene) -> bytes:
    device_id = random_bytes(16)
    message = b"scbroker/1/device-pass\0" + scene.ring.userId.bytes + device_id
    return device_id + hmac.digest(bytes(32), message, "sha256")


WORTHLESS: dict[str, Callable[[Scene], bytes]] = {
    "another user's": lambda s: s.another_pass(s.broker.new_user()),
    "by another key": by_another_key,
    "a nonce": lambda s: s.wire.nonce(),
    "the first byte of the tag changed": changed(16),
    "the last byte changed": changed(47),
}


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_another_users_pass_counts_as_no_pass_and_is_not_reported(scene: Scene) -> None:
    def told(device_pass: bytes | None) -> list[tuple[Any, ...]]:
        query(scene.broker.database_url, "DELETE FROM guesses")
        shapes = [scene.guess(device_pass).shape for _ in range(4)]
        return [(*rest, body[:40]) for *rest, body in shapes]  # the end names the wait

    for case, make in WORTHLESS.items():
        worthless = make(scene)
        assert told(worthless) == told(None), case
        assert scene.statuses(1, worthless) == [429], f"{case}: both use up the stranger's counter"
        answer = scene.guess(worthless, right=True)
        assert (answer.status, answer.code) == (429, "throttled"), case
        scene.guess(scene.device_pass, right=True).expect(200)


@pytest.mark.process
@pytest.mark.long
def test_a_pass_has_the_form_of_the_specification_and_is_not_stored(scene: Scene) -> None:
    key = (scene.broker.directory / "broker.key").read_bytes()
    passes = {scene.device_pass, *(scene.another_pass() for _ in range(3))}
    assert len(passes) == 4
    for each in passes:
        scene.guess(each).expect(401, "credentials")
        message = b"scbroker/1/device-pass\0" + scene.ring.userId.bytes + each[:16]
        assert each[16:] == hmac.new(key, message, hashlib.sha256).digest()
    kept = repr(dump(scene.broker.database_url)) + scene.broker.log + scene.broker.output
    for each in passes:
        for part in (each[:16], each[16:]):
            assert repr(part)[2:-1] not in kept
            assert part.hex() not in kept


def test_a_pass_of_before_a_change_of_credentials_is_good_after_it(scene: Scene) -> None:
    old = scene.device_pass
    alice = User(scene.ring, scene.wire)
    message = authorized(alice, storing(alice, endOtherSessions=True))
    store(alice, message).expect(204)
    assert scene.statuses(4) == [401] * 3 + [429]
    answer = scene.wire.open_key_file(scene.ring.userId, message.auth, old, HOME)
    answer.expect(200)


def test_an_unknown_user_is_answered_alike_whatever_pass_is_sent(scene: Scene) -> None:
    unknown = KeyRing.generate()
    for device_pass in (None, scene.device_pass, random_bytes(48)):
        scene.guess(device_pass, ring=unknown, address="198.51.100.7").expect(401, "credentials")
