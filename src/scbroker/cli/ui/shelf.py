"""Read the user's containers with their names, and remember those that have not changed."""

from __future__ import annotations

import asyncio
import dataclasses
import unicodedata
import uuid
from typing import Any, Final

import scbroker
from scbroker import errors
from scbroker.cli.run import Run
from scbroker.cli.ui.part import Container
from scbroker.cli.ui.session import Session

Entry = Container | errors.BrokerError
_BATCH: Final = 64
_FIELDS: Final = ("name", "mediaType")
_LONGEST: Final = 1025
"""Characters of a field that are kept: one more than of any name that is not cut when it is shown."""


class Shelf:
    """The containers of the session's user.

    Each reading asks the broker which containers exist, in which versions, and fetches only the headers that
    are new: members with ReceiveAccessEvents see each fetch.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[uuid.UUID, Container] = {}
        self._reading = asyncio.Lock()
        session.at_lock.append(self.forget)

    def forget(self) -> None:
        """Drop what was read."""
        self._known = {}

    async def entries(self) -> list[Entry]:
        """Return all containers with their headers, and errors in place of damaged ones."""
        async with self._reading:
            return await self._session.do(self._read)

    def _read(self, run: Run) -> list[Entry]:
        known = self._known
        entries: list[Entry] = list(run.session.iterContainers(headers=False))
        new = [
            each.id
            for each in entries
            if isinstance(each, scbroker.Container) and not _is_same(known.get(each.id), each)
        ]
        found: dict[uuid.UUID, Entry] = {}
        for batch in _batches(new):
            results: list[Entry] = run.session.getContainers(batch, content=False).result()
            found.update(zip(batch, map(_shortened, results), strict=True))
        complete: list[Entry] = []
        for each in entries:
            if isinstance(each, scbroker.Container):
                complete.append(found.get(each.id) or known[each.id])
            else:
                complete.append(each)
        if self._known is known:  # else the page was locked meanwhile
            self._known = {
                each.id: each for each in complete if isinstance(each, scbroker.Container)
            }
        return complete


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
