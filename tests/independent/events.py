"""The digest of an event log: docs/spec/protocol.md, 5."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.independent.encodings import Value, encode, labelled_hash, need

FAULT = "internal"
DETAILS = (
    "containerType", "date", "version", "relatedUserId", "applicationName", "changes",
    "previousContainerType",
)  # fmt: skip


def digest(events: Sequence[Mapping[str, Any]]) -> bytes:
    """d(n) of the first n events of a log."""
    found = bytes(32)
    for event in events:
        kept: list[Value] = [event[name] for name in ("id", "eventType", "containerId")]
        found = labelled_hash("event", found + encode([*kept, details(event)]))
    return found


def details(event: Mapping[str, Any]) -> bytes:
    """details(n)"""
    salt, hashed = event["salt"], event.get("detailsHash")
    need((salt is None) != (hashed is None), "salt or hash, not neither or both", FAULT)
    if hashed is not None:
        need(is_empty(event), "an emptied event says nothing but its hash", FAULT)
        return bytes(hashed)
    return labelled_hash("event-details", salt + encode([event.get(name) for name in DETAILS]))


def is_empty(event: Mapping[str, Any]) -> bool:
    said = [event.get(name) for name in DETAILS if name != "date"]
    return said == [None, 0, None, "", [], None]
