"""What the views and acts of the operator's page work on."""

from typing import NamedTuple

from scbroker.server.commands import Database, Settings


class Stores(NamedTuple):
    """A broker's database and settings, and its key, under which acts are recorded in the audit log."""

    settings: Settings
    database: Database
    key: bytes
