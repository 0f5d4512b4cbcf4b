"""Share containers that only their members can read, through a broker that cannot.

from scbroker import AccessLevel, ServerProvider
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scbroker.client.base_provider import BaseProvider
    from scbroker.client.calls.main_queue import mainQueue
    from scbroker.client.calls.promise import Promise
    from scbroker.client.containers.contents import ContentReader
    from scbroker.client.provider import BrokerProvider
    from scbroker.client.server_provider import ServerProvider
    from scbroker.client.users.trust_store import (
        FileTrustStore,
        Marks,
        MemoryTrustStore,
        TrustStore,
    )
    from scbroker.errors import BrokerError
    from scbroker.keys import KeyFile, KeyRing
    from scbroker.types import (
        Container,
        ContainerEvent,
        Header,
        NewContainer,
        PublicKey,
        SecuredContainer,
    )
    from scbroker.vocabulary import (
        AccessLevel,
        Availability,
        ContainerAccessLevel,
        ContainerEventType,
        KeyType,
    )

_HOME = {
    "AccessLevel": "vocabulary",
    "Availability": "vocabulary",
    "BaseProvider": "client.base_provider",
    "BrokerError": "errors",
    "BrokerProvider": "client.provider",
    "Container": "types",
    "ContainerAccessLevel": "vocabulary",
    "ContainerEvent": "types",
    "ContainerEventType": "vocabulary",
    "ContentReader": "client.containers.contents",
    "FileTrustStore": "client.users.trust_store",
    "Header": "types",
    "KeyFile": "keys",
    "KeyRing": "keys",
    "KeyType": "vocabulary",
    "Marks": "client.users.trust_store",
    "MemoryTrustStore": "client.users.trust_store",
    "NewContainer": "types",
    "Promise": "client.calls.promise",
    "PublicKey": "types",
    "SecuredContainer": "types",
    "ServerProvider": "client.server_provider",
    "TrustStore": "client.users.trust_store",
    "mainQueue": "client.calls.main_queue",
}

__all__ = [
    "AccessLevel",
    "Availability",
    "BaseProvider",
    "BrokerError",
    "BrokerProvider",
    "Container",
    "ContainerAccessLevel",
    "ContainerEvent",
    "ContainerEventType",
    "ContentReader",
    "FileTrustStore",
    "Header",
    "KeyFile",
    "KeyRing",
    "KeyType",
    "Marks",
    "MemoryTrustStore",
    "NewContainer",
    "Promise",
    "PublicKey",
    "SecuredContainer",
    "ServerProvider",
    "TrustStore",
    "mainQueue",
]

__version__: str
"""The version of the installed package; read when it is first used."""


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used (PEP 562), so that importing the package is quick."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("scbroker")
    elif home := _HOME.get(name):
        value = getattr(importlib.import_module(f"scbroker.{home}"), name)
    else:
        raise AttributeError(f"module 'scbroker' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
