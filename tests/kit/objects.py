"""What a broker has in its object store: a folder, or an S3."""

from __future__ import annotations

from typing import Any

import obstore
from obstore.store import ObjectStore, from_url

from tests.kit.brokers import BrokerProcess


def store_of(broker: BrokerProcess) -> ObjectStore:
    """The object store, as somebody sees it who has the operator's keys."""
    url = str(broker.settings.get("object_store_url") or (broker.directory / "objects").as_uri())
    if not url.startswith("s3:"):
        return from_url(url)
    keys: Any = {name.lower(): value for name, value in broker.variables.items()}
    keys.pop("aws_allow_http")
    return from_url(url, config=keys, client_options={"allow_http": True})


def objects(broker: BrokerProcess) -> dict[str, bytes]:
    """The chunks by their names, without what the broker knows its store by."""
    store = store_of(broker)
    names = [item["path"] for page in obstore.list(store) for item in page]
    return {
        name: obstore.get(store, name).bytes().to_bytes()
        for name in names
        if not name.endswith(("/check", "/owner"))
    }
