"""Messages about the event log, and its digest. Spec: docs/spec/protocol.md, section 5."""

from typing import Annotated, Final, Literal, get_args

from msgspec import Meta

from scbroker.crypto.verify import HASH_SIZE, labelled_hash
from scbroker.records.canonical import Time, Uint, encode_value
from scbroker.wire.codec import MAX_APPLICATION, Hash, Id, Message, Printable
from scbroker.wire.containers import TypeLabel

MAX_PAGE: Final = 1000
MAX_WAIT: Final = 600
"""Seconds that a request may wait for an event."""
HEARTBEAT: Final = b"\xc0"
"""Sent before the page of an answer that waits. It is nil in MessagePack, so no message begins with it."""
NO_EVENTS: Final = bytes(HASH_SIZE)
"""The digest of no events."""
SALT_SIZE: Final = 16
Change = Literal["header", "content", "access", "type"]
_MAX_CHANGES: Final = len(get_args(Change))


EventType = Literal["Added", "Updated", "Accessed", "Deleted"]


class EventQuery(Message, frozen=True, kw_only=True):
    """Criteria for events; None matches any. Both ids are inclusive.

    `wait` is the number of seconds to wait for the event startId. It allows no criterion but startId and
    limit.
    """

    eventType: list[EventType] = []
    containerId: Id | None = None
    containerType: TypeLabel | None = None
    startId: Uint | None = None
    endId: Uint | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = MAX_PAGE
    wait: Annotated[int, Meta(ge=0, le=MAX_WAIT)] = 0
    via: Id | None = None
    """Read the log of this group in place of the user's own."""

    @property
    def follows(self) -> bool:
        """Return whether this asks for all events from an id on, as a request that waits must."""
        criteria = self.eventType, self.containerId, self.containerType, self.endId
        return self.startId is not None and criteria == ([], None, None, None)


EventSalt = Annotated[bytes, Meta(min_length=SALT_SIZE, max_length=SALT_SIZE)]


class Event(Message, frozen=True, kw_only=True, omit_defaults=True):
    id: Uint
    eventType: EventType
    containerId: Id
    containerType: TypeLabel | None
    date: Time
    version: Uint
    relatedUserId: Id | None
    applicationName: Annotated[Printable, Meta(max_length=MAX_APPLICATION)]
    changes: Annotated[list[Change], Meta(max_length=_MAX_CHANGES)]
    salt: EventSalt | None
    """None once the container is deleted: detailsHash then replaces the details and the salt."""
    previousContainerType: TypeLabel | None = None
    detailsHash: Hash | None = None


class Events(Message, frozen=True, kw_only=True):
    events: Annotated[list[Event], Meta(max_length=MAX_PAGE)]
    firstId: Uint
    lastId: Uint
    droppedDigest: Hash = NO_EVENTS
    """The digest of the events 1 to firstId - 1, which the broker has dropped."""


def details_hash(event: Event) -> bytes:
    """Return the hash of an event's fields beside its kind and container.

    The salt keeps anybody without it from finding the fields by hashing guesses.
    """
    if event.detailsHash is not None:
        return event.detailsHash
    return labelled_hash(
        "event-details",
        event.salt or b"",
        encode_value([
            event.containerType, event.date, event.version, event.relatedUserId,
            event.applicationName, event.changes, event.previousContainerType,
        ]),
    )  # fmt: skip


def digest_with(digest: bytes, event: Event) -> bytes:
    """Return the digest of a run of events, from the digest before its last event, and that event.

    It stays the same when the deletion of a container empties events.
    """
    kept = [event.id, event.eventType, event.containerId, details_hash(event)]
    return labelled_hash("event", digest + encode_value(kept))
