"""A container's content as its caller wants it: whole, in a file, or to be read in.

A small one came with the container; a large one is fetched by itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from scbroker.client.containers.content_reader import ContentReader
from scbroker.client.containers.fetching import Opened, prove_deletion, read_part
from scbroker.client.core.sealing import OpenPart
from scbroker.client.parts import downloads, saving
from scbroker.client.parts.content import Progress
from scbroker.client.parts.downloads import Download
from scbroker.client.users.session import Session
from scbroker.errors import DeletedError
from scbroker.records.container_record import Role
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.containers import MAX_INLINE


async def read(session: Session, opened: Opened, progress: Progress) -> bytes | None:
    """The whole content; None where there is none, or none for this reader."""
    found = _find(session, opened)
    if isinstance(found, OpenPart):
        async with _deletion_proved(session, opened):
            return await downloads.whole(session, found, progress)
    if found is not None:
        progress(len(found), len(found))
    return found


async def save(session: Session, opened: Opened, target: Path, progress: Progress) -> int | None:
    """The content in a file; gives its length, or None where none is written."""
    found = _find(session, opened)
    if found is None:
        return None
    if isinstance(found, OpenPart):
        async with _deletion_proved(session, opened):
            return await saving.save_large(session, found, target, progress)
    length = await saving.save_small(target, found)
    progress(length, length)
    return length


async def reader(session: Session, opened: Opened) -> ContentReader | None:
    """The content to be read by range."""
    found = _find(session, opened)
    if found is None:
        return None
    container_id, version = opened.fetched.container_id, opened.state.record.version
    if isinstance(found, bytes):
        return ContentReader(session, container_id, version, found)
    async with _deletion_proved(session, opened):
        source = await Download.start(session, found)
    return ContentReader(session, container_id, version, source)


def _find(session: Session, opened: Opened) -> bytes | OpenPart | None:
    """The content that came along, or the part that is fetched by itself."""
    part = opened.part(Role.Content)
    if part is None:
        return None
    if part.part.paddedLength > MAX_INLINE:
        own = opened.state.own_entry(session.fingerprint)
        return part if own.allows(ContainerAccessLevel.Download) else None
    return read_part(session, opened, Role.Content)


@asynccontextmanager
async def _deletion_proved(session: Session, opened: Opened) -> AsyncIterator[None]:
    """A broker that says that the container was deleted meanwhile has to show the tombstone."""
    try:
        yield
    except DeletedError:
        await prove_deletion(session, opened.fetched.container_id)
