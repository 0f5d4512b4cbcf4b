"""Open a verified container: its key, parts and type, and the results that callers get.

Spec: docs/spec/container.md, sections 3 to 6.
"""

import contextlib
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from scbroker.client.arguments import moment
from scbroker.client.core.judging import State, open_container_key, open_type
from scbroker.client.core.sealing import OpenPart
from scbroker.client.users.session import Session
from scbroker.crypto.verify import sha256
from scbroker.errors import DecryptionError, IntegrityError
from scbroker.records.canonical import user_id_of
from scbroker.records.container_record import Role, check_segment_hashes
from scbroker.records.judge import verify_author
from scbroker.types import Container, Header, Metadata, SecuredContainer
from scbroker.vocabulary import AccessLevel, Availability, ContainerAccessLevel
from scbroker.wire.containers import MAX_INLINE, ContainerView


@dataclass(frozen=True, slots=True)
class Fetched:
    """A verified state, the view that it was judged from, and the time of the judgement in microseconds."""

    state: State
    view: ContainerView
    time: int

    @property
    def container_id(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.state.container_id)


@dataclass(frozen=True, slots=True)
class Opened(Fetched):
    """A fetched container with its key; None if the reader has no key."""

    container_key: bytes | None

    def part(self, role: Role) -> OpenPart | None:
        """Return a part with its key; None if the part is absent or the reader has no key."""
        part = self.state.record.part(role)
        if part is None or self.container_key is None:
            return None
        return OpenPart.open(self.state.container_id, role, part, self.container_key)


def open_fetched(session: Session, fetched: Fetched) -> Opened:
    """Open the container key with the reader's wrap."""
    state, view = fetched.state, fetched.view
    key = open_container_key(state, view.wrap, session.fingerprint, session.keys.unwrap)
    return Opened(state, view, fetched.time, key)


def read_part(session: Session, opened: Opened, role: Role) -> bytes | None:
    """Return the plaintext of a part that came with the view.

    None if the part is absent, if it is a large content, or if this reader may not read it.
    """
    part = opened.part(role)
    sealed = sealed_part(session, opened, role)
    if part is None or sealed is None:
        return None
    return part.open_segment(0, sealed, sha256(sealed))


def sealed_part(session: Session, fetched: Fetched, role: Role) -> bytes | None:
    """Return a sealed part of the view, verified against the record; None if the view has none.

    Raises `IntegrityError` if the view lacks a part and the reader has Download. A large content never
    comes with a view.
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


def container(
    session: Session,
    opened: Opened,
    content: bytes | None,
    header: Header[Any] | None,
    *,
    asked: Collection[Role] = tuple(Role),
) -> Container[Any]:
    """Return the opened container; `asked` are the parts that the caller wants."""
    state = opened.state
    text = open_type(state, opened.view.type, session.fingerprint)
    return Container(
        **_metadata(session, state, opened.container_key, text),
        headerAvailability=_availability(state, Role.Header, header, hidden=Role.Header in asked),
        contentAvailability=_availability(
            state, Role.Content, content, hidden=Role.Content in asked
        ),
        content=content,
        header=header,
    )


async def secured(
    session: Session, fetched: Fetched, *, asked: Collection[Role] = tuple(Role)
) -> SecuredContainer:
    """Return the container with the sealed parts that were asked for, without opening them.

    The caller gets the signature and the sealed parts themselves, so both are verified here. The signature is
    not covered by the mark's hash: a head that was accepted by its mark may come with any signature.
    """
    state, view = fetched.state, fetched.view
    author = user_id_of(state.record.author)
    chains = await session.directory.at_least({author: 0})
    verify_author(state.signed, state.record, chains[author])
    key = open_fetched(session, fetched).container_key
    text = open_type(state, view.type, session.fingerprint)
    sealed = {role: sealed_part(session, fetched, role) for role in asked}
    return secured_of(session, state, key, text, view.wrap, sealed)


def secured_of(
    session: Session,
    state: State,
    container_key: bytes | None,
    text: str | None,
    wrap: bytes | None,
    sealed: Mapping[Role, bytes | None],
) -> SecuredContainer:
    """Return the container as it is stored, without what the reader's entry does not allow."""
    may_download = _may(session, state, ContainerAccessLevel.Download)
    header, content = (
        sealed.get(role) if may_download else None for role in (Role.Header, Role.Content)
    )
    return SecuredContainer(
        **_metadata(session, state, container_key, text),
        headerAvailability=_availability(state, Role.Header, header, hidden=not may_download),
        contentAvailability=_availability(state, Role.Content, content, hidden=not may_download),
        record=state.signed.body,
        signature=state.signed.signature,
        wrap=wrap,
        sealedHeader=header,
        sealedContent=content,
    )


def _metadata(
    session: Session, state: State, container_key: bytes | None, text: str | None
) -> dict[str, Any]:
    """Return the fields of `Metadata`, which every kind of container has."""
    record, access = state.record, state.governing.access
    length = None
    if record.content is not None and container_key is not None:
        # A member can seal an invalid part key: then only the length is unknown, not the rest.
        with contextlib.suppress(DecryptionError):
            part = OpenPart.open(state.container_id, Role.Content, record.content, container_key)
            length = part.length
    levels = None
    if access.complete and _may(session, state, ContainerAccessLevel.ViewAccess):
        levels = tuple(
            AccessLevel(
                user_id_of(entry.fingerprint),
                ContainerAccessLevel(entry.permissions),
                None if entry.expiresAt is None else moment(entry.expiresAt),
            )
            for fingerprint, entry in access.entries.items()
            if fingerprint not in state.governing.left
        )
    known = Metadata(
        id=uuid.UUID(bytes=state.container_id),
        type=text if _may(session, state, ContainerAccessLevel.ViewType) else None,
        access=levels,
        version=record.version,
        length=length,
        createdAt=moment(state.createdAt),
        createdBy=user_id_of(state.createdBy),
        modifiedAt=moment(record.time),
        modifiedBy=user_id_of(record.author),
    )
    return {name: getattr(known, name) for name in Metadata.__dataclass_fields__}


def _may(session: Session, state: State, right: ContainerAccessLevel) -> bool:
    own = state.governing.access.entries.get(session.fingerprint)
    return own is not None and own.allows(right)


def _availability(state: State, role: Role, found: object, *, hidden: bool) -> Availability:
    """Return whether a result holds a part; `hidden` says that permissions are why it does not."""
    if state.record.part(role) is None:
        return Availability.Absent
    if found is not None:
        return Availability.Available
    return Availability.Hidden if hidden else Availability.NotIncluded
