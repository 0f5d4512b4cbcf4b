"""Share containers that only their members can read, through a broker that cannot.

from scbroker import AccessLevel, ServerProvider

PYTEST_DONT_REWRITE: pytest rewrites the packages of its plugins, and warns if one was imported before.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `X as X` re-exports a name: type checkers do not compute __all__
    from scbroker.cards import ContactCard as ContactCard
    from scbroker.client.cached_provider import CachedProvider as CachedProvider
    from scbroker.client.calls.operation import Stream as Stream
    from scbroker.client.calls.operation import mainQueue as mainQueue
    from scbroker.client.calls.tasks import Promise as Promise
    from scbroker.client.contacts import Contacts as Contacts
    from scbroker.client.containers.contents import ContentReader as ContentReader
    from scbroker.client.provider import BaseProvider as BaseProvider
    from scbroker.client.provider import BrokerProvider as BrokerProvider
    from scbroker.client.server_provider import LinkProvider as LinkProvider
    from scbroker.client.server_provider import ServerProvider as ServerProvider
    from scbroker.client.server_provider import openLink as openLink
    from scbroker.client.users.session_store import FileSessionStore as FileSessionStore
    from scbroker.client.users.session_store import KeychainSessionStore as KeychainSessionStore
    from scbroker.client.users.session_store import SealedKeys as SealedKeys
    from scbroker.client.users.session_store import SessionStore as SessionStore
    from scbroker.client.users.trust_store import FileTrustStore as FileTrustStore
    from scbroker.client.users.trust_store import Marks as Marks
    from scbroker.client.users.trust_store import MemoryTrustStore as MemoryTrustStore
    from scbroker.client.users.trust_store import TrustStore as TrustStore
    from scbroker.errors import BrokerError as BrokerError
    from scbroker.errors import WriteOutcome as WriteOutcome
    from scbroker.keys import KeyFile as KeyFile
    from scbroker.keys import KeyRing as KeyRing
    from scbroker.types import AccessChange as AccessChange
    from scbroker.types import Contact as Contact
    from scbroker.types import Container as Container
    from scbroker.types import ContainerEvent as ContainerEvent
    from scbroker.types import ContainerPage as ContainerPage
    from scbroker.types import Group as Group
    from scbroker.types import GroupMember as GroupMember
    from scbroker.types import GroupRenewal as GroupRenewal
    from scbroker.types import Head as Head
    from scbroker.types import Header as Header
    from scbroker.types import Heads as Heads
    from scbroker.types import Link as Link
    from scbroker.types import NewContainer as NewContainer
    from scbroker.types import PublicKey as PublicKey
    from scbroker.types import SecuredContainer as SecuredContainer
    from scbroker.types import SentChange as SentChange
    from scbroker.types import UnsettledAccess as UnsettledAccess
    from scbroker.types import Usage as Usage
    from scbroker.vocabulary import AccessLevel as AccessLevel
    from scbroker.vocabulary import Availability as Availability
    from scbroker.vocabulary import ContainerAccessLevel as ContainerAccessLevel
    from scbroker.vocabulary import ContainerEventType as ContainerEventType
    from scbroker.vocabulary import GroupManager as GroupManager
    from scbroker.vocabulary import GroupRole as GroupRole
    from scbroker.vocabulary import KeyType as KeyType
    from scbroker.vocabulary import MemberRole as MemberRole

_HOME = {
    "AccessChange": "types",
    "AccessLevel": "vocabulary",
    "Availability": "vocabulary",
    "BaseProvider": "client.provider",
    "BrokerError": "errors",
    "BrokerProvider": "client.provider",
    "CachedProvider": "client.cached_provider",
    "Contact": "types",
    "ContactCard": "cards",
    "Contacts": "client.contacts",
    "Container": "types",
    "ContainerAccessLevel": "vocabulary",
    "ContainerEvent": "types",
    "ContainerEventType": "vocabulary",
    "ContainerPage": "types",
    "ContentReader": "client.containers.contents",
    "FileSessionStore": "client.users.session_store",
    "FileTrustStore": "client.users.trust_store",
    "Group": "types",
    "GroupManager": "vocabulary",
    "GroupMember": "types",
    "GroupRenewal": "types",
    "GroupRole": "vocabulary",
    "Head": "types",
    "Header": "types",
    "Heads": "types",
    "KeyFile": "keys",
    "KeyRing": "keys",
    "KeyType": "vocabulary",
    "KeychainSessionStore": "client.users.session_store",
    "Link": "types",
    "LinkProvider": "client.server_provider",
    "Marks": "client.users.trust_store",
    "MemberRole": "vocabulary",
    "MemoryTrustStore": "client.users.trust_store",
    "NewContainer": "types",
    "Promise": "client.calls.tasks",
    "PublicKey": "types",
    "SealedKeys": "client.users.session_store",
    "SecuredContainer": "types",
    "SentChange": "types",
    "ServerProvider": "client.server_provider",
    "SessionStore": "client.users.session_store",
    "Stream": "client.calls.operation",
    "TrustStore": "client.users.trust_store",
    "UnsettledAccess": "types",
    "Usage": "types",
    "WriteOutcome": "errors",
    "mainQueue": "client.calls.operation",
    "openLink": "client.server_provider",
}

__all__ = list(_HOME)

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
