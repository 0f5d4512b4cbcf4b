"""Devices of users, as the runs in flips/, faults/ and cluster/ have them."""

from contextlib import ExitStack
from typing import Final

from scbroker import ContainerAccessLevel, KeyRing, MemoryTrustStore, ServerProvider
from tests.kit.brokers import Address
from tests.kit.waiting import PATIENCE

OWNER: Final = ContainerAccessLevel.DefaultOwnerPermissions
READER: Final = ContainerAccessLevel.DefaultUserPermissions


def new_device(
    stack: ExitStack,
    at: Address,
    ring: KeyRing | None = None,
    name: str = "assurance",
    *,
    url: str = "",
    timeout: float = PATIENCE,
) -> ServerProvider:
    """Return a program that has seen nothing yet, with a session if a ring is given. The stack closes it.

    Its requests go to `url` in place of the deployment's own, and are retried for `timeout` seconds.
    """
    store = MemoryTrustStore()
    provider = ServerProvider(at.api_key, url or at.url, name, trustStore=store, timeout=timeout)
    stack.enter_context(provider)
    if ring is not None:
        provider.logIn(userId=ring.userId, keyRing=ring).result(PATIENCE)
    return provider
