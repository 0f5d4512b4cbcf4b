"""Merge the events of several logs: the user's own, and those of groups."""

from __future__ import annotations

import datetime as dt
import heapq
import uuid
from collections.abc import Iterable, Iterator
from typing import Final

import scbroker  # loads its names when they are used: a command without a session needs few

_RECENT: Final = 1024
"""How many of the latest events are compared to find the same one of another log.

The logs are read at about the same time, so the same event comes from them shortly after one another.
"""


def merged(logs: Iterable[Iterable[scbroker.ContainerEvent]]) -> list[scbroker.ContainerEvent]:
    """Return the events of several logs by time, each once, in the order of each log."""
    found = heapq.merge(*map(_dated, logs), key=lambda each: each[0])
    return list(each_once(event for _, event in found))


def each_once(events: Iterable[scbroker.ContainerEvent]) -> Iterator[scbroker.ContainerEvent]:
    """Yield events, and leave out those that were already yielded from another log.

    A container that the user reaches in two ways has its events in both logs, with the same time.
    """
    recent = dict[object, uuid.UUID | None]()
    for each in events:
        if recent.setdefault(told(each), each.groupId) == each.groupId:
            yield each
        if len(recent) > _RECENT:
            del recent[next(iter(recent))]


def told(event: scbroker.ContainerEvent) -> tuple[object, ...]:
    """Return the fields that are equal if two logs have the same event."""
    return (event.date, event.eventType, event.containerId, event.version, event.relatedUserId)


def _dated(
    log: Iterable[scbroker.ContainerEvent],
) -> Iterator[tuple[dt.datetime, scbroker.ContainerEvent]]:
    """Yield the events of a log, each with the latest time so far, as `heapq.merge` needs a sorted log.

    An event can have an earlier time than the one before it: the broker changes events of deleted containers.
    """
    latest = dt.datetime.min.replace(tzinfo=dt.UTC)
    for each in log:
        latest = max(latest, each.date)
        yield latest, each
