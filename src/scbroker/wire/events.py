"""The event log on the wire. Spec: docs/spec/protocol.md, section 5."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from scbroker.wire.codec import MAX_APPLICATION, Id, Message, Time, Uint
from scbroker.wire.containers import TypeLabel

MAX_PAGE: Final = 1000
Change = Literal["header", "content", "access", "type"]


EventType = Literal["Added", "Updated", "Accessed", "Deleted"]


class EventQuery(Message, frozen=True, kw_only=True):
    """The criteria; None is any. Both ids are inclusive."""

    eventType: list[EventType] = []
    containerId: Id | None = None
    containerType: TypeLabel | None = None
    startId: Uint | None = None
    endId: Uint | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = MAX_PAGE


class Event(Message, frozen=True, kw_only=True):
    id: Uint
    eventType: EventType
    containerId: Id
    containerType: TypeLabel | None
    date: Time
    version: Uint
    relatedUserId: Id | None
    applicationName: Annotated[str, Meta(max_length=MAX_APPLICATION)]
    changes: list[Change]


class Events(Message, frozen=True, kw_only=True):
    events: Annotated[list[Event], Meta(max_length=MAX_PAGE)]
    firstId: Uint
    lastId: Uint
