"""Accounts with secrets, what Argon2id is given for them, and log-ins that are turned down.

alice = account(mallory, "rotated")
no_log_in(mallory, alice.user, alice.key_file, ROLLBACK)
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pytest
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from scbroker import BrokerError, KeyRing, Promise, ServerProvider, keys
from scbroker.crypto import seal
from scbroker.keys import MAGIC, PassphraseKeys
from scbroker.wire.users import KeyFileAnswer
from tests.hostile_broker.accomplices import Mallory, marks
from tests.hostile_broker.protocol import OPEN
from tests.kit.crypto import labelled_hash
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, Story, User

PASSWORD: Final = "correct Horse 7"
PASSPHRASE: Final = "battery Staple 8"
NEW_PASSWORD: Final = "another Horse 9"
NEW_PASSPHRASE: Final = "another Staple 10"
COST: Final = {"length": 32, "iterations": 3, "lanes": 4, "memory_cost": 65_536}


@dataclass(frozen=True)
class Derivation:
    """All that Argon2id was given."""

    secret: bytes
    salt: bytes
    cost: dict[str, int]


def watch_derivations(monkeypatch: pytest.MonkeyPatch) -> list[Derivation]:
    """Return the list that every derivation from now on is added to, with the cost that it asks for.

    The derivations themselves are cheap, since dozens at the real cost would take a minute.
    """
    made: list[Derivation] = []

    class Watched:
        def __init__(self, **given: Any) -> None:
            self.given = given

        def derive(self, secret: bytes) -> bytes:
            cost = {name: value for name, value in self.given.items() if name != "salt"}
            made.append(Derivation(secret, self.given["salt"], cost))
            return Argon2id(**{**self.given, "iterations": 1, "lanes": 1, "memory_cost": 8}).derive(
                secret
            )

    monkeypatch.setattr(seal, "Argon2id", Watched)
    monkeypatch.setattr(keys, "stretch", seal.stretch)  # and not what other tests stretched
    return made


def of_passphrase(user: uuid.UUID, passphrase: str = PASSPHRASE) -> Derivation:
    """The one derivation that a passphrase is for."""
    salt = labelled_hash("passphrase-salt", user.bytes)
    return Derivation(passphrase.encode(), salt, COST)


@dataclass(frozen=True)
class Account:
    """A user who registered with PASSWORD and PASSPHRASE: what they had then, and what they have now."""

    ring: KeyRing
    key_file: bytes
    ring_now: KeyRing
    key_file_now: bytes
    alice: User
    bob: User
    stories: list[Story]
    """Containers of Alice and Bob, made before anything was changed."""

    @property
    def user(self) -> uuid.UUID:
        return self.ring.userId

    @property
    def keys(self) -> PassphraseKeys:
        return PassphraseKeys.derive(PASSPHRASE, self.user)


_accounts: dict[tuple[str, str], Account] = {}


def account(mallory: Mallory, afterwards: str = "") -> Account:
    """The same for all tests: as it was registered, or `changed`, `rotated` or another's."""
    if (mallory.url, afterwards) not in _accounts:
        _accounts[mallory.url, afterwards] = _account(mallory, afterwards)
    return _accounts[mallory.url, afterwards]


def _account(mallory: Mallory, afterwards: str) -> Account:
    device = mallory.device()
    first = now = device.register(PASSWORD, PASSPHRASE).result(PATIENCE)
    ring = device.getKeyRing().result(PATIENCE)
    [bob] = mallory.people(1)
    alice = mallory.accomplice(ring)
    stories = [Story(alice).created({alice: OWNER, bob: OWNER}) for _ in range(3)]
    if afterwards in ("changed", "rotated"):
        now = device.changeCredentials(
            NEW_PASSWORD, NEW_PASSPHRASE, compromised=afterwards == "rotated"
        ).result(PATIENCE)
    ring_now = device.getKeyRing().result(PATIENCE)
    return Account(ring, first, ring_now, now, alice, bob, stories)


@contextmanager
def serving(mallory: Mallory, key_file: bytes) -> Iterator[None]:
    """Answers every request for a KeyFile with these bytes, whatever it proves."""
    with mallory.answering(OPEN, KeyFileAnswer(keyFile=key_file)):
        yield


def turned_down(
    mallory: Mallory,
    device: ServerProvider,
    error: type[BrokerError],
    act: Callable[[], Promise[Any]],
    *sent: str,
) -> str:
    """It fails with exactly this error, no mark moved, and nothing was sent but OPEN and this."""
    before, count = marks(device), len(mallory.heard)
    with pytest.raises(BrokerError) as caught:
        act().result(PATIENCE)
    assert type(caught.value) is error, caught.value
    assert mallory.since(count) == [OPEN, *sent]
    assert marks(device) == before
    return str(caught.value)


def no_log_in(
    mallory: Mallory,
    user: uuid.UUID,
    key_file: bytes,
    error: type[BrokerError],
    device: ServerProvider | None = None,
    passphrase: str = PASSPHRASE,
) -> str:
    """A log-in that is given these bytes is turned down before it signs; there is no session then."""
    fresh = device or mallory.device()
    with serving(mallory, key_file):
        told = turned_down(mallory, fresh, error, lambda: fresh.logIn(user, passphrase=passphrase))
    with pytest.raises(BrokerError.notAuthenticatedError):
        fresh.getUserId().result(PATIENCE)
    return told


def only_auth_was_sent(mallory: Mallory, count: int, user: uuid.UUID) -> None:
    """The client sent `auth` to open the KeyFile, and nothing else that the passphrase gives."""
    keys = PassphraseKeys.derive(PASSPHRASE, user)
    root = seal.stretch(PASSPHRASE.encode(), of_passphrase(user).salt)
    assert OPEN in mallory.since(count)
    for exchange in mallory.heard[count:]:
        for secret in (PASSPHRASE.encode(), PASSWORD.encode(), keys.wrap, root):
            assert secret not in exchange.bytes_heard
        assert exchange.name == OPEN or keys.auth not in exchange.bytes_heard
        assert exchange.name != OPEN or exchange.message.auth == keys.auth


def row_of(key_file: bytes) -> list[Any]:
    """Fingerprint, salt, passphrase part, password part."""
    found: list[Any] = msgspec.msgpack.decode(key_file[len(MAGIC) + 1 :])
    return found


def file_of(row: object) -> bytes:
    return MAGIC + b"\1" + msgspec.msgpack.encode(row)
