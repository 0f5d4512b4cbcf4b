"""Lists that a user asks for: public keys and events."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable
from typing import Final

from scbroker.client.fetching import moment
from scbroker.client.session import Session
from scbroker.errors import BrokerFaultError, InvalidArgumentError, TooLargeError
from scbroker.records.ids import show_fingerprint
from scbroker.records.key_record import KeyChain, KnownKey
from scbroker.types import ContainerEvent, PublicKey
from scbroker.vocabulary import ContainerEventType, KeyType
from scbroker.wire.events import MAX_PAGE, Event, Events

Criteria = dict[str, str | list[str]]
_MAX_ID: Final = 2**53 - 1
_MOST: Final = 1_000_000


def checked_user(userId: object) -> uuid.UUID:
    if not isinstance(userId, uuid.UUID):
        raise InvalidArgumentError("userId is a uuid.UUID.")
    return userId


def checked_key_type(keyType: object) -> KeyType | None:
    if keyType is not None and not isinstance(keyType, KeyType):
        raise InvalidArgumentError("keyType is KeyType.Signing, KeyType.Encryption or None.")
    return keyType


async def public_keys(
    session: Session, user_id: uuid.UUID, kind: KeyType | None, index: int | None
) -> list[PublicKey]:
    chain = (await session.directory.latest([user_id]))[user_id]
    return [
        _public_key(chain, key)
        for wanted in KeyType
        if kind in (None, wanted)
        for key in chain.of_type(wanted)
        if index in (None, key.index)
    ]


def _public_key(chain: KeyChain, key: KnownKey) -> PublicKey:
    return PublicKey(
        userId=chain.userId,
        keyType=key.type,
        index=key.index,
        key=key.public,
        active=key.retired is None,
        createdAt=moment(key.introduced),
        retiredAt=None if key.retired is None else moment(key.retired),
        fingerprint=show_fingerprint(chain.fingerprint),
    )


def checked_criteria(
    eventType: object,
    containerId: object,
    containerType: object,
    startId: object,
    endId: object,
) -> Criteria:
    """The criteria as the query of a request; `InvalidArgumentError` for what is none."""
    criteria: Criteria = {}
    if eventType is not None:
        kinds = [eventType] if isinstance(eventType, ContainerEventType) else eventType
        kinds = list(kinds) if isinstance(kinds, Iterable) else [kinds]
        if not kinds or not all(isinstance(kind, ContainerEventType) for kind in kinds):
            raise InvalidArgumentError("eventType is one or more of ContainerEventType.")
        criteria["eventType"] = [str(kind) for kind in kinds]
    if containerId is not None:
        if not isinstance(containerId, uuid.UUID):
            raise InvalidArgumentError("containerId is a uuid.UUID.")
        criteria["containerId"] = str(containerId)
    if containerType is not None:
        if not isinstance(containerType, str):
            raise InvalidArgumentError("containerType is text.")
        criteria["containerType"] = containerType
    for name, value in (("startId", startId), ("endId", endId)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_ID:
            raise InvalidArgumentError(f"{name} is an event's id, an int of 0 or more.")
        criteria[name] = str(value)
    return criteria


async def events(session: Session, criteria: Criteria) -> list[ContainerEvent]:
    """All events that match, page by page, up to what the log held at the first page."""
    found: list[Event] = []
    query = dict(criteria)
    end = int(str(criteria.get("endId", _MAX_ID)))
    while True:
        page = await session.call("GET", "/v1/events", Events, query=query)
        ids = [event.id for event in page.events]
        first = int(str(query.get("startId", 1)))
        if any(b <= a for a, b in itertools.pairwise(ids)) or (ids and ids[0] < first):
            raise BrokerFaultError("The broker's events are out of order.")
        found += page.events
        end = min(end, page.lastId) if len(found) == len(ids) else end
        if len(found) > _MOST:
            raise TooLargeError(
                f"More than {_MOST} events: ask for a range with startId and endId."
            )
        if len(ids) < MAX_PAGE or ids[-1] >= end:
            return [_event(event) for event in found if event.id <= end]
        query |= {"startId": str(ids[-1] + 1), "endId": str(end)}


def _event(event: Event) -> ContainerEvent:
    return ContainerEvent(
        id=event.id,
        eventType=ContainerEventType(event.eventType),
        containerId=uuid.UUID(event.containerId),
        containerType=event.containerType,
        date=moment(event.date),
        version=event.version,
        relatedUserId=None if event.relatedUserId is None else uuid.UUID(event.relatedUserId),
        applicationName=event.applicationName,
        changes=tuple(event.changes),
    )
