"""The objects of a broker: in a folder, or in an S3, below a prefix with its database's id."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import obstore
from obstore.store import ObjectStore, from_url

from scbroker.server.storage.blobs import Folder
from tests.kit.brokers import BrokerProcess
from tests.kit.tables import query


def folder_of(broker: BrokerProcess) -> Path:
    """Return the folder of a broker's objects, where it keeps them in its data folder."""
    return broker.directory / "objects" / prefix_of(broker.database_url)


def prefix_of(database_url: str) -> str:
    """Return the prefix of a database's objects."""
    [(value,)] = query(database_url, "SELECT value FROM checks WHERE name = 'objects'")
    return bytes(value).hex()


def store_of(broker: BrokerProcess) -> ObjectStore:
    """Return the database's part of the object store, opened with the operator's keys."""
    url = str(broker.settings.get("object_store_url") or (broker.directory / "objects").as_uri())
    url = f"{url}/{prefix_of(broker.database_url)}"
    if not url.startswith("s3:"):
        return from_url(url)
    keys: Any = {name.lower(): value for name, value in broker.variables.items()}
    keys.pop("aws_allow_http")
    return from_url(url, config=keys, client_options={"allow_http": True})


class SigningFolder(Folder):
    """A folder that gives presigned URLs, as an S3 does. The test puts the objects itself."""

    async def presigned_urls(
        self, method: str, names: Sequence[str], seconds: int
    ) -> Sequence[str]:
        del method, seconds
        return [f"https://store.example/{name}" for name in names]


def objects(broker: BrokerProcess) -> dict[str, bytes]:
    """Return the chunks' objects by their names, without the object that checks the store."""
    store = store_of(broker)
    names = [item["path"] for page in obstore.list(store) for item in page]
    return {
        name: obstore.get(store, name).bytes().to_bytes()
        for name in names
        if not name.endswith("/check")
    }


def damage(broker: BrokerProcess) -> None:
    """Flip a bit at the end of every object: a reader gets the segments before it, and then a failure."""
    store = store_of(broker)
    for name, sealed in objects(broker).items():
        obstore.put(store, name, sealed[:-1] + bytes([sealed[-1] ^ 1]))
