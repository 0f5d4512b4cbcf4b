"""Reading a container: it is fetched until it is as of now, judged, opened, and its mark is kept.

The decisions are `reading`'s, and what they need is `evidence`'s to fetch.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from scbroker.client.calls.io_thread import io_thread
from scbroker.client.containers.evidence import MANY_VIEWS, collect, since_of
from scbroker.client.core.judging import (
    Mark,
    State,
    open_container_key,
    open_type,
)
from scbroker.client.core.sealing import OpenPart
from scbroker.client.users.session import Session
from scbroker.crypto.verify import sha256
from scbroker.errors import (
    ConflictError,
    DecryptionError,
    DeletedError,
    ForkError,
    IntegrityError,
)
from scbroker.records.container_record import (
    Role,
    check_segment_hashes,
)
from scbroker.records.ids import user_id_of
from scbroker.records.judge import verify_author
from scbroker.types import Container, Header, Metadata, SecuredContainer
from scbroker.vocabulary import AccessLevel, Availability, ContainerAccessLevel
from scbroker.wire.containers import MAX_INLINE, ContainerView

KIND: Final = "container"
_ROUNDS: Final = 5
NO_TOMBSTONE: Final = "The broker says that a container was deleted, and shows no tombstone."


@dataclass(frozen=True, slots=True)
class Fetched:
    """A verified state and the answer that it came with."""

    state: State
    view: ContainerView

    @property
    def container_id(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.state.container_id)


async def fetch(
    session: Session, container_id: uuid.UUID, *, header: bool = False, content: bool = False
) -> Fetched:
    """The container as of now, verified against the rules and against this device's mark."""
    for _ in range(_ROUNDS):
        stored = session.marks.get(KIND, container_id.bytes)
        mark = None if stored is None else Mark.decode(stored)
        try:
            fetched = await _fetch_once(session, container_id, mark, header=header, content=content)
        except ConflictError:  # changed or deleted between two pages of its records
            continue
        if keep_mark(session, stored, fetched.state):
            fetched.state.check_not_deleted()
            return fetched
    raise ConflictError("The container is changed faster than it can be read: try again.")


async def prove_deletion(session: Session, container_id: uuid.UUID) -> NoReturn:
    """After a broker said that a container was deleted: its tombstone proves it, or nothing does."""
    await fetch(session, container_id)
    raise IntegrityError(NO_TOMBSTONE)


def keep_mark(session: Session, stored: bytes | None, state: State) -> bool:
    """Raises the mark to a verified state; False where it was moved since `stored` was read."""
    new = state.mark.encode()
    return new == stored or session.marks.swap(KIND, state.container_id, stored, new)


async def keep_own(session: Session, before: State | None, own: State) -> None:
    """Raises the mark to a record of one's own that was stored after `before`.

    What was seen meanwhile, by whoever shares the marks, has to follow from that record. Raises
    `ConflictError` where that cannot be told, although the record is stored.
    """
    old = None if before is None else before.mark.encode()
    for _ in range(_ROUNDS):
        stored = session.marks.get(KIND, own.container_id)
        if stored is None or stored == old:
            if keep_mark(session, stored, own):
                return
            continue
        seen = Mark.decode(stored)
        if seen.version > own.record.version:
            container_id = uuid.UUID(bytes=own.container_id)
            now_there = await _fetch_once(
                session, container_id, own.mark, header=False, content=False
            )
            if now_there.state.record.version > seen.version:
                with contextlib.suppress(ConflictError, DeletedError):  # it goes on, or ended there
                    await fetch(session, container_id)  # and from what was seen to the same head
                continue
            same = now_there.state.head.hash == seen.hash
        else:
            expected = own if seen.version == own.record.version else before
            same = expected is not None and seen.hash == expected.head.hash
            if same and expected is before and not keep_mark(session, stored, own):
                continue
        if not same:
            raise ForkError("The broker showed another history than that of the change it stored.")
        return
    raise ConflictError("The change is stored; what followed comes faster than it can be read.")


async def _fetch_once(
    session: Session, container_id: uuid.UUID, mark: Mark | None, *, header: bool, content: bool
) -> Fetched:
    query = {name: "1" for name, wanted in (("header", header), ("content", content)) if wanted}
    if (since := since_of(mark)) is not None:
        query["since"] = str(since)
    path = f"/v1/containers/{container_id}"
    try:
        view = await session.call("GET", path, ContainerView, query=query)
    except DeletedError:
        raise IntegrityError(NO_TOMBSTONE) from None
    judged = await collect(session, container_id, mark, view)
    if len(judged.views) > MANY_VIEWS:
        return Fetched(await io_thread.in_pool(judged.state), view)
    return Fetched(judged.state(), view)


@dataclass(frozen=True, slots=True)
class Opened:
    """A fetched container with its key, where the reader has one."""

    fetched: Fetched
    container_key: bytes | None

    @property
    def state(self) -> State:
        return self.fetched.state

    def part(self, role: Role) -> OpenPart | None:
        """A part with its key; None where there is none, or no key for this reader."""
        part = self.state.record.part(role)
        if part is None or self.container_key is None:
            return None
        return OpenPart.open(self.state.container_id, role, part, self.container_key)


def open_fetched(session: Session, fetched: Fetched) -> Opened:
    wrap = fetched.view.wrap
    key = open_container_key(fetched.state, wrap, session.fingerprint, session.keys.unwrap)
    return Opened(fetched, key)


def read_header(session: Session, opened: Opened) -> bytes | None:
    return read_part(session, opened, Role.Header)


def read_part(session: Session, opened: Opened, role: Role) -> bytes | None:
    """A part that came along; None where there is none, or none for this reader, and for a large one."""
    part = opened.part(role)
    sealed = sealed_part(session, opened.fetched, role)
    if part is None or sealed is None:
        return None
    return part.open_segment(0, sealed, sha256(sealed))


def sealed_part(session: Session, fetched: Fetched, role: Role) -> bytes | None:
    """A part as it came with the view, once it is what was signed for; None for who may not have it.

    A part that did not come without Download is rightly hidden; else it is withheld. A large content
    comes by itself.
    """
    part = fetched.state.record.part(role)
    if part is None or (role is Role.Content and part.paddedLength > MAX_INLINE):
        return None
    sealed = fetched.view.header if role is Role.Header else fetched.view.content
    if sealed is not None:
        check_segment_hashes(part, sha256(sealed))
    elif fetched.state.own_entry(session.fingerprint).allows(ContainerAccessLevel.Download):
        raise IntegrityError(f"The broker withholds the container's {role.name.lower()}.")
    return sealed


def metadata(session: Session, opened: Opened) -> Metadata:
    """What a container shows beside content and header."""
    return metadata_of(
        session,
        opened.state,
        opened.container_key,
        open_type(opened.state, opened.fetched.view.type, session.fingerprint),
    )


def metadata_of(
    session: Session, state: State, container_key: bytes | None, text: str | None
) -> Metadata:
    record = state.record
    length = None
    if record.content is not None and container_key is not None:
        # Whoever wrote rubbish keeps nobody from the rest.
        with contextlib.suppress(DecryptionError):
            part = OpenPart.open(state.container_id, Role.Content, record.content, container_key)
            length = part.length
    own = state.governing.access.entries.get(session.fingerprint)
    sees_type = own is not None and own.allows(ContainerAccessLevel.ViewType)
    return Metadata(
        id=uuid.UUID(bytes=state.container_id),
        type=text if sees_type else None,
        access=_access(session, state),
        version=record.version,
        length=length,
        createdAt=moment(state.createdAt),
        createdBy=user_id_of(state.createdBy),
        modifiedAt=moment(record.time),
        modifiedBy=user_id_of(record.author),
    )


def _access(session: Session, state: State) -> tuple[AccessLevel, ...] | None:
    access = state.governing.access
    own = access.entries.get(session.fingerprint)
    if own is None or not own.allows(ContainerAccessLevel.ViewAccess) or not access.complete:
        return None
    return tuple(
        AccessLevel(
            user_id_of(entry.fingerprint),
            ContainerAccessLevel(entry.permissions),
            None if entry.expiresAt is None else moment(entry.expiresAt),
        )
        for entry in access.entries.values()
    )


async def secured(session: Session, fetched: Fetched) -> SecuredContainer:
    """The container as it is kept, without opening content or header.

    What is handed out unopened is verified here: the sealed parts, and the signature once more, since
    a head that a mark proves may have come with any.
    """
    author = user_id_of(fetched.state.record.author)
    chains = await session.directory.at_least({author: 0})
    verify_author(fetched.state.signed, fetched.state.record, chains[author])
    return secured_of(
        session,
        fetched.state,
        open_fetched(session, fetched).container_key,
        open_type(fetched.state, fetched.view.type, session.fingerprint),
        fetched.view.wrap,
        {role: sealed_part(session, fetched, role) for role in Role},
    )


def secured_of(
    session: Session,
    state: State,
    container_key: bytes | None,
    text: str | None,
    wrap: bytes | None,
    sealed: Mapping[Role, bytes | None],
) -> SecuredContainer:
    """Return the container as it is stored, without what the reader's entry does not allow."""
    own = state.governing.access.entries.get(session.fingerprint)
    may_download = own is not None and own.allows(ContainerAccessLevel.Download)
    header, content = (
        sealed.get(role) if may_download else None for role in (Role.Header, Role.Content)
    )
    return SecuredContainer(
        **_fields(metadata_of(session, state, container_key, text)),
        headerAvailability=_availability(state, Role.Header, header, hidden=not may_download),
        contentAvailability=_availability(state, Role.Content, content, hidden=not may_download),
        record=state.signed.body,
        signature=state.signed.signature,
        wrap=wrap,
        sealedHeader=header,
        sealedContent=content,
    )


def container(
    state: State,
    shown: Metadata,
    content: bytes | None,
    header: Header[Any] | None,
    *,
    asked: bool = True,
) -> Container[Any]:
    """Return the opened container; `asked` is False if content and header were not asked for."""
    return Container(
        **_fields(shown),
        headerAvailability=_availability(state, Role.Header, header, hidden=asked),
        contentAvailability=_availability(state, Role.Content, content, hidden=asked),
        content=content,
        header=header,
    )


def _availability(state: State, role: Role, shown: object, *, hidden: bool) -> Availability:
    """Return whether a result holds a part; `hidden` says that permissions are why it does not."""
    if state.record.part(role) is None:
        return Availability.Absent
    if shown is not None:
        return Availability.Available
    return Availability.Hidden if hidden else Availability.NotIncluded


def _fields(shown: Metadata) -> dict[str, Any]:
    return {name: getattr(shown, name) for name in Metadata.__dataclass_fields__}


def moment(microseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)
