"""Read the user's containers with their names, and remember those that have not changed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import time
import unicodedata
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import scbroker
from scbroker import errors
from scbroker.cli.run import Run
from scbroker.cli.ui.part import Container
from scbroker.cli.ui.session import Session
from scbroker.desk.names import name_of

Entry = Container | errors.BrokerError
_BATCH: Final = 64
_FIELDS: Final = ("name", "mediaType")
_LONGEST: Final = 1025
"""Characters of a field that are kept: one more than of any name that is not cut when it is shown."""
_RECENT_SECONDS: Final = 60.0


class Shelf:
    """The containers of the session's user.

    The first reading lists them with their headers. Each later one asks the broker which containers exist,
    in which versions, and fetches only the headers that are new: members with ReceiveAccessEvents see each
    fetch.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._reading = asyncio.Lock()
        self.forget()
        session.at_lock.append(self.forget)

    def forget(self) -> None:
        """Drop what was read."""
        self._known: dict[uuid.UUID, Container] = {}
        self._names = dict[uuid.UUID, str]()
        """Names of the user's own containers, as they were read at `_read_at` and stored since."""
        self._claimed = set[str]()
        """Names of containers that are being made."""
        self._read_at = -math.inf

    def known(self, id: uuid.UUID) -> Container | None:
        """Return a container as it was read last; None if it was not read, or is not there any more."""
        return self._known.get(id)

    async def entries(self) -> list[Entry]:
        """Return all containers with their headers, and errors in place of damaged ones."""
        async with self._reading:
            run = self._session.run
            entries = await asyncio.to_thread(_read, run, self._known)
            if self._session.holds(run):  # else the page was locked meanwhile
                readable = [each for each in entries if isinstance(each, scbroker.Container)]
                own = run.people.own_id
                self._known = {each.id: each for each in readable}
                self._names = {
                    each.id: name_of(each) or "" for each in readable if each.createdBy == own
                }
                self._read_at = time.monotonic()
            return entries

    @contextlib.asynccontextmanager
    async def named(self, name: str) -> AsyncIterator[None]:
        """Make a container of this name in the block. Raises `AlreadyExistsError` if the user has one.

        Names that were read in the last minute count: a list before each of a hundred files would take long.
        """
        await self._read_names()
        if name in {*self._names.values(), *self._claimed}:
            raise errors.AlreadyExistsError(
                f"You have a container named {name!r} already: rename or delete it first."
            )
        self._claimed.add(name)
        try:
            yield
            self._names[uuid.uuid4()] = name  # until the next reading
        finally:
            self._claimed.discard(name)

    @contextlib.asynccontextmanager
    async def renamed(self, id: uuid.UUID, name: str) -> AsyncIterator[None]:
        """Give a container this name in the block; raises `AlreadyExistsError` as `named` does."""
        if id not in self._known:  # it was made since the last reading
            self._read_at = -math.inf
        await self._read_names()
        others = {each for of, each in self._names.items() if of != id}
        if name in others | self._claimed:
            raise errors.AlreadyExistsError(
                f"Another container of yours is named {name!r} already: choose another name."
            )
        yield
        if id in self._names:  # it is the user's own
            self._names[id] = name

    async def _read_names(self) -> None:
        if time.monotonic() - self._read_at > _RECENT_SECONDS:
            await self.entries()


def _read(run: Run, known: Mapping[uuid.UUID, Container]) -> list[Entry]:
    """Return all containers with their headers; those that are `known` and unchanged as they are."""
    listed = run.session.iterContainers(headers=not known)
    entries: list[Entry] = list(listed if known else map(_shortened, listed))
    _ = run.people.own_id
    if not known:
        return entries
    new = [
        each.id
        for each in entries
        if isinstance(each, scbroker.Container) and not _is_same(known.get(each.id), each)
    ]
    found: dict[uuid.UUID, Entry] = {}
    for batch in _batches(new):
        results: list[Entry] = run.session.getContainers(batch, content=False).result()
        found.update(zip(batch, map(_shortened, results), strict=True))
    return [
        (found.get(each.id) or known[each.id]) if isinstance(each, scbroker.Container) else each
        for each in entries
    ]


def _batches(ids: list[uuid.UUID]) -> list[list[uuid.UUID]]:
    return [ids[at : at + _BATCH] for at in range(0, len(ids), _BATCH)]


def _shortened(entry: Entry) -> Entry:
    """Return a container with what lists show of its header, in Unicode's NFC.

    Other users choose the size of headers. To normalize a text again costs nothing, the first time
    milliseconds.
    """
    if isinstance(entry, errors.BrokerError) or entry.header is None:
        return entry
    header = entry.header.customHeaderObject
    fields = header if isinstance(header, dict) else {}
    texts = [(name, fields.get(name)) for name in _FIELDS]
    kept = {
        name: unicodedata.normalize("NFC", text[:_LONGEST])
        for name, text in texts
        if isinstance(text, str)
    }
    return dataclasses.replace(entry, header=scbroker.Header(kept))


def _is_same(one: scbroker.Container[Any] | None, other: scbroker.Container[Any]) -> bool:
    return one is not None and (one.version, one.access) == (other.version, other.access)
