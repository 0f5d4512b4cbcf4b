"""Users of a test's own and what they change, for the tests of accounts."""

import uuid
from dataclasses import dataclass
from typing import Any, Final

from scbroker import AccessLevel, ContainerAccessLevel, KeyRing, Promise, ServerProvider
from tests.client.conftest import PASSPHRASE, PASSWORD, REMINDER, id_of
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.fixtures import NewProvider
from tests.kit.waiting import PATIENCE

NEW_PASSWORD: Final = "another Horse 9"
NEW_PASSPHRASE: Final = "another Staple 10"
OWNER: Final = ContainerAccessLevel.DefaultOwnerPermissions
KEY_FILE: Final = "/v1/key-file"


@dataclass(frozen=True)
class Owner:
    """A user of the test's own who registered with PASSWORD, PASSPHRASE and REMINDER."""

    provider: ServerProvider
    ring: KeyRing
    key_file: bytes

    @property
    def user_id(self) -> uuid.UUID:
        return self.ring.userId


def new_owner(new_provider: NewProvider) -> Owner:
    provider = new_provider()
    key_file = provider.register(PASSWORD, PASSPHRASE, REMINDER).result(PATIENCE)
    return Owner(provider, ring_of(provider), key_file)


def ring_of(provider: ServerProvider) -> KeyRing:
    return provider.getKeyRing().result(PATIENCE)


def change(
    provider: ServerProvider,
    *,
    compromised: bool = False,
    number: int = 0,
    reminder: str | None = None,
) -> Promise[bytes]:
    """To the new secrets, or to numbered ones."""
    more = f" {number}" if number else ""
    return provider.changeCredentials(
        NEW_PASSWORD + more, NEW_PASSPHRASE + more, reminder, compromised=compromised
    )


def token_of(provider: ServerProvider) -> str:
    session: Any = provider._current
    assert isinstance(session.token.value, str)
    return session.token.value


def is_good(token: str, broker: BrokerProcess) -> bool:
    with Wire(broker, token=token) as wire:
        return wire.call("GET", KEY_FILE).status == 200


def shared_by(*members: ServerProvider) -> list[AccessLevel]:
    return [AccessLevel(id_of(member), OWNER) for member in members]
