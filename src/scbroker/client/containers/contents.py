"""Hand out a container's content: whole, saved to a file, or as a file-like reader.

A small content came with the view; a large one is downloaded by its segments.
"""

from pathlib import Path

from scbroker.client.containers.content_reader import ContentReader
from scbroker.client.containers.fetching import deletion_proved
from scbroker.client.containers.opening import Opened, read_part
from scbroker.client.core.sealing import OpenPart
from scbroker.client.parts import downloads, saving
from scbroker.client.parts.content import Progress
from scbroker.client.parts.downloads import Download
from scbroker.client.users.session import Session
from scbroker.records.container_record import Role
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.containers import MAX_INLINE


async def read(session: Session, opened: Opened, progress: Progress) -> bytes | None:
    """Return the whole content; None if it is absent or this reader may not read it."""
    found = _find(session, opened)
    if isinstance(found, OpenPart):
        async with deletion_proved(session, opened.fetched.container_id):
            return await downloads.whole(session, found, progress)
    if found is not None:
        progress(len(found), len(found))
    return found


async def save(session: Session, opened: Opened, target: Path, progress: Progress) -> int | None:
    """Write the content to a file; return its length in bytes, or None if nothing is written."""
    found = _find(session, opened)
    if found is None:
        return None
    if isinstance(found, OpenPart):
        async with deletion_proved(session, opened.fetched.container_id):
            return await saving.save_large(session, found, target, progress)
    length = await saving.save_small(target, found)
    progress(length, length)
    return length


async def reader(session: Session, opened: Opened) -> ContentReader | None:
    """Return the content as a file-like reader, or None as `read` does."""
    found = _find(session, opened)
    if found is None:
        return None
    container_id, version = opened.fetched.container_id, opened.state.record.version
    if isinstance(found, bytes):
        return ContentReader(session, container_id, version, found)
    async with deletion_proved(session, container_id):
        source = await Download.start(session, found)
    return ContentReader(session, container_id, version, source)


def _find(session: Session, opened: Opened) -> bytes | OpenPart | None:
    """Return the content of the view, or the part of a large content that is still to be downloaded."""
    part = opened.part(Role.Content)
    if part is None:
        return None
    if part.part.paddedLength > MAX_INLINE:
        own = opened.state.own_entry(session.fingerprint)
        return part if own.allows(ContainerAccessLevel.Download) else None
    return read_part(session, opened, Role.Content)
