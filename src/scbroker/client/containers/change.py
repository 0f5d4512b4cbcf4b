"""What a writer wants to change, and what of it is sealed already.

Sealing needs no container key: new parts are sealed, and large ones sent, before the record is drafted, so
that the record is young when it is sent and a second attempt sends nothing large again.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from scbroker.client.calls.io_thread import io_thread
from scbroker.client.core.sealing import Grant, NewPart
from scbroker.client.parts.content import Content, Progress, Segment
from scbroker.client.parts.uploads import Upload, send, start
from scbroker.client.users.session import Session
from scbroker.crypto.seal import Octets
from scbroker.crypto.verify import sha256
from scbroker.errors import ConflictError, NotFoundError
from scbroker.records.container_record import Part, Role
from scbroker.records.key_record import KeyChain
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.containers import MAX_INLINE


class Keep(enum.Enum):
    """A field that a change leaves as it is."""

    KEEP = enum.auto()


KEEP: Final = Keep.KEEP
OWNER: Final = Grant(int(ContainerAccessLevel.DefaultOwnerPermissions), None)
Grants = Mapping[uuid.UUID, Grant]
Verify = Callable[[], Awaitable[object]]
"""Verify the recipients' keys. Awaited before any of a large content is sent."""


def no_progress(done: int, total: int | None) -> None:
    """Nobody wants to know."""


@dataclass(slots=True)
class Change:
    """What is to change; what is sealed of it already is kept for a second attempt."""

    header: bytes | Keep | None = KEEP
    content: Content | Keep | None = KEEP
    type: str | Keep | None = KEEP
    grants: Grants | Keep = KEEP
    """Empty: the container's creator alone, with owner permissions."""
    delete: bool = False
    progress: Progress = no_progress
    upload: Upload | None = None
    sealed: dict[Role, SealedPart] = field(default_factory=dict)

    def keeps(self, role: Role) -> bool:
        """Whether the container's part of this role stays."""
        return (self.header if role is Role.Header else self.content) is KEEP

    def carries(self, role: Role) -> bool:
        """Return whether this part stays while the other one is replaced: the result then holds both."""
        return self.keeps(role) and not all(self.keeps(each) for each in Role)

    async def begin_upload(self, session: Session, container_id: bytes | None) -> None:
        """Goes on where the same file was cut off before, if it was."""
        content = self.content
        if isinstance(content, Content) and content.identity and (content.total or 0) > MAX_INLINE:
            self.upload = await start(session, content, container_id)

    def end_upload(self) -> None:
        """A record that names what was sealed is sent now."""
        if self.upload is not None:
            self.upload.end()
            self.upload = None

    def close(self) -> None:
        """What was not ended can go on another time."""
        if self.upload is not None:
            self.upload.close()

    def needed(self) -> ContainerAccessLevel:
        """The permissions that its author needs."""
        if self.delete:
            return ContainerAccessLevel.Delete
        needed = ContainerAccessLevel.Upload
        if self.type is not KEEP:
            needed |= ContainerAccessLevel.ModifyType
        if self.grants is not KEEP:
            needed |= ContainerAccessLevel.ModifyAccess
        return needed


@dataclass(slots=True)
class SealedPart:
    """A new part, sealed and, when large, sent ahead of its record.

    Once a record that names it was sent, it belongs to the container key of `sent_under` (the key's
    commitment): whoever was removed since may hold that key (docs/spec/container.md, section 9).
    """

    part: NewPart
    length: int
    hashes: bytes
    inline: bytes | None
    sent_under: bytes | None = None

    def finish(self, container_key: bytes, commitment: bytes) -> Part:
        if self.sent_under not in (None, commitment):
            raise ConflictError("Access was changed meanwhile: read the container again.")
        return self.part.finish(container_key, self.length, self.hashes)


async def seal_parts(
    session: Session,
    change: Change,
    container_id: bytes,
    commitment: bytes | None,
    verify_recipients: Verify,
) -> None:
    """Seals what is new; seals again what was sent under a container key that is not used any more.

    Nothing is sent before the keys of those who are to receive it were verified.
    """
    for role, wanted in ((Role.Header, change.header), (Role.Content, change.content)):
        if wanted is None or wanted is KEEP:
            continue
        old = change.sealed.get(role)
        if old is not None and old.sent_under in (None, commitment):
            continue
        if old is not None and isinstance(wanted, Content) and not wanted.repeatable:
            raise ConflictError(
                "Access was changed meanwhile, and this content can be read only once: give it again."
            )
        if isinstance(wanted, bytes):
            part = NewPart.begin(container_id, role, session.fingerprint)
            change.sealed[role] = _seal_small(part, wanted)
        else:
            change.sealed[role] = await _seal_content(
                session, change, wanted, container_id, verify_recipients
            )


def seal_small(change: Change, container_id: bytes, author: bytes) -> None:
    """Seals, of what is new and not sealed yet, what goes with the record and is at hand."""
    header, content = change.header, change.content
    small = {
        Role.Header: header if isinstance(header, bytes) else None,
        Role.Content: content.small if isinstance(content, Content) else None,
    }
    for role, plaintext in small.items():
        if plaintext is not None and role not in change.sealed:
            part = NewPart.begin(container_id, role, author)
            change.sealed[role] = _seal_small(part, plaintext)


async def keys_of(
    session: Session, users: Collection[uuid.UUID], members: Collection[uuid.UUID] = ()
) -> Mapping[uuid.UUID, KeyChain]:
    """Return the verified current keys of these users; the session's user alone takes no request.

    Deleted users are left out. Raises `NotFoundError` for a deleted user who is not in `members`: the
    entry of a member who was deleted may stay, but a new one must not be made.
    """
    own = {session.userId: session.directory.own}
    if set(users) <= own.keys():
        return own
    found = await session.directory.latest(users)
    chains = {user: chain for user, chain in found.items() if not chain.closed} | own
    for user in users:
        if user not in chains and user not in members:
            raise NotFoundError(f"User {user} was deleted: leave them out of accessLevels.")
    return chains


def _seal_small(part: NewPart, plaintext: Octets) -> SealedPart:
    segment = part.seal_segment(0, True, plaintext)
    return SealedPart(part, len(plaintext), sha256(segment), segment)


async def _seal_content(
    session: Session,
    change: Change,
    content: Content,
    container_id: bytes,
    verify_recipients: Verify,
) -> SealedPart:
    """Small content goes with the record; large content is sent in chunks before it."""
    upload = change.upload or Upload(
        NewPart.begin(container_id, Role.Content, session.fingerprint), b""
    )
    segments = content.segments()
    try:
        return await _seal_segments(session, change, content, upload, segments, verify_recipients)
    finally:
        with contextlib.suppress(ValueError):  # a thread may still be in it: it is the last, then
            segments.close()


async def _seal_segments(
    session: Session,
    change: Change,
    content: Content,
    upload: Upload,
    segments: Iterator[Segment],
    verify_recipients: Verify,
) -> SealedPart:
    run = io_thread.in_own_thread if content.waits else io_thread.in_pool
    first: Segment = await run(next, segments)
    if len(first[0]) <= MAX_INLINE:
        change.progress(len(first[0]), content.total)
        return _seal_small(upload.part, first[0])
    await verify_recipients()
    whole = itertools.chain([first], segments)
    length, hashes = await send(session, upload, content, whole, change.progress)
    return SealedPart(upload.part, length, hashes, None)
