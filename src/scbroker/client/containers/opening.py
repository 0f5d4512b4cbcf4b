"""Open a verified container: its key, parts and type, and the results that callers get.

Spec: docs/spec/container.md, sections 3 to 6.
"""

import contextlib
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from scbroker.client.arguments import moment
from scbroker.client.core.judging import State, open_container_key, open_type
from scbroker.client.core.sealing import OpenPart
from scbroker.client.groups.opening import OpenGroup
from scbroker.client.http.requests import Query, query_of
from scbroker.client.users.session import Session
from scbroker.crypto.verify import labelled_hash, sha256
from scbroker.errors import DecryptionError, IntegrityError
from scbroker.records.canonical import container_id_of, show_fingerprint, user_id_of, uuid8
from scbroker.records.container_record import (
    OWN_TYPES,
    AccessList,
    ContainerRecord,
    Part,
    Role,
    check_segment_hashes,
)
from scbroker.records.judge import verify_author
from scbroker.types import Container, Header, SecuredContainer
from scbroker.vocabulary import AccessLevel, Availability, ContainerAccessLevel, NamedGroup
from scbroker.wire.containers import MAX_INLINE, ContainerView

_MOST_NUMBERS: Final = 256
"""Most documents of a type that a user can have deleted before the present one."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A verified state, the view that it was judged from, and the time of the judgement in microseconds."""

    state: State
    view: ContainerView
    time: int
    group: OpenGroup | None
    """The group through which the user reads; None if they read by their own entry."""

    @property
    def container_id(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.state.container_id)

    @property
    def query(self) -> Query:
        """Return the query of further requests: it names the group through which the user reads, if any."""
        return query_of(self.view.via)


@dataclass(frozen=True, slots=True)
class Opened(Fetched):
    """A fetched container with its key; None if the reader has no key."""

    container_key: bytes | None
    _parts: dict[Role, OpenPart] = field(default_factory=dict, init=False, repr=False)

    def part(self, role: Role) -> OpenPart | None:
        """Return a part with its key; None if the part is absent or the reader has no key."""
        part = self.state.record.part(role)
        if part is None or self.container_key is None:
            return None
        if role not in self._parts:
            container_id = self.state.container_id
            self._parts[role] = OpenPart.open(container_id, role, part, self.container_key)
        return self._parts[role]

    @property
    def length(self) -> int | None:
        """The number of bytes of the content; None without one, or if its part cannot be opened."""
        # A member can seal an invalid part key: then only the length is unknown, not the rest.
        with contextlib.suppress(DecryptionError):
            if (part := self.part(Role.Content)) is not None:
                return part.length
        return None


def open_fetched(session: Session, fetched: Fetched) -> Opened:
    """Open the container key with the wrap of the reader, or of the group through which they read."""
    state, view, group = fetched.state, fetched.view, fetched.group
    unwrap = session.keys.unwrap if group is None else partial(_unwrap_by, session, group)
    key = open_container_key(state, view.wrap, unwrap)
    return Opened(state, view, fetched.time, group, key)


def _unwrap_by(session: Session, group: OpenGroup, epoch: int, wrap: bytes, info: bytes) -> bytes:
    return session.keys.unwrap_by(group.key(epoch), wrap, info)


def read_part(opened: Opened, role: Role) -> bytes | None:
    """Return the plaintext of a part that came with the view.

    None if the part is absent, if it is a large content, or if this reader may not read it.
    """
    part = opened.part(role)
    sealed = sealed_part(opened, role)
    if part is None or sealed is None:
        return None
    return part.open_segment(0, sealed, sha256(sealed))


def sealed_part(fetched: Fetched, role: Role) -> bytes | None:
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
    elif fetched.state.own_entry.allows(ContainerAccessLevel.Download):
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
    state, record = opened.state, opened.state.record
    text = open_type(state, opened.view.type)
    return Container(
        **_metadata(session, state, opened.group, opened.length, text),
        headerAvailability=_availability(record.header, header, hidden=Role.Header in asked),
        contentAvailability=_availability(record.content, content, hidden=Role.Content in asked),
        content=content,
        header=header,
        contentBy=None if record.content is None else user_id_of(record.content.author),
        headerBy=None if record.header is None else user_id_of(record.header.author),
        asOf=session.as_of(opened.container_id),
        isOwnDocument=is_own_document(session.fingerprint, text, opened.container_id),
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
    verify_author(state.head, state.signed.signature, chains[author])
    length = open_fetched(session, fetched).length
    text = open_type(state, view.type)
    sealed = {role: sealed_part(fetched, role) for role in asked}
    return secured_of(session, state, fetched.group, length, text, view.wrap, sealed)


def secured_of(
    session: Session,
    state: State,
    group: OpenGroup | None,
    length: int | None,
    text: str | None,
    wrap: bytes | None,
    sealed: Mapping[Role, bytes | None],
) -> SecuredContainer:
    """Return the container as it is stored, without what the reader's entry does not allow.

    `group` is the one through which the user reads; `length` that of the content, for a reader with the
    container key.
    """
    record, may_download = state.record, state.may(ContainerAccessLevel.Download)
    header, content = (
        sealed.get(role) if may_download else None for role in (Role.Header, Role.Content)
    )
    return SecuredContainer(
        **_metadata(session, state, group, length, text),
        headerAvailability=_availability(record.header, header, hidden=not may_download),
        contentAvailability=_availability(record.content, content, hidden=not may_download),
        record=state.signed.body,
        signature=state.signed.signature,
        wrap=wrap,
        sealedHeader=header,
        sealedContent=content,
    )


def _metadata(
    session: Session, state: State, group: OpenGroup | None, length: int | None, text: str | None
) -> dict[str, Any]:
    """Return the fields of `Metadata`, which every kind of container has."""
    record = state.record
    return {
        "id": uuid.UUID(bytes=state.container_id),
        "type": text if state.may(ContainerAccessLevel.ViewType) else None,
        "access": shown(session, state, state.governing.access),
        "version": record.version,
        "length": length,
        "createdAt": moment(state.createdAt),
        "createdBy": user_id_of(state.createdBy),
        "modifiedAt": moment(record.time),
        "modifiedBy": user_id_of(record.author),
        "modifiedVia": None if record.via is None else uuid8(record.via.group),
        "modifierIsMember": _is_member(session, record, group),
        "via": None if group is None else group.group_id,
    }


def shown(session: Session, state: State, access: AccessList) -> tuple[AccessLevel, ...] | None:
    """Return a list for the caller, without users who have left; None if the reader may not see all of it.

    A name that this device has verified as a group's is shown as one; any other as a user's.
    """
    if not access.complete or not state.may(ContainerAccessLevel.ViewAccess):
        return None
    left = state.governing.left if access is state.governing.access else frozenset[bytes]()
    return tuple(
        AccessLevel(
            NamedGroup(uuid8(name), show_fingerprint(name))
            if name in session.groups.names
            else user_id_of(name),
            ContainerAccessLevel(entry.permissions),
            None if entry.expiresAt is None else moment(entry.expiresAt),
        )
        for name, entry in access.entries.items()
        if name not in left
    )


def _is_member(session: Session, record: ContainerRecord, group: OpenGroup | None) -> bool | None:
    """Return whether a record's author still is a member of the group they acted for; None if not known.

    Nobody loses a membership within an epoch. Once the epoch has ended, only members know the others.
    """
    via = record.via
    chain = None if via is None else session.groups.verified.get(via.group)
    if via is None or chain is None:
        return None
    if group is not None and group.chain.name == via.group:
        return record.author in group.members.keys() - group.left
    return True if chain.roster.epoch == via.epoch and chain.ended is None else None


def _availability(part: Part | None, found: object, *, hidden: bool) -> Availability:
    """Return whether a result has a part; with `hidden`, a missing one is due to the reader's permissions."""
    if part is None:
        return Availability.Absent
    if found is not None:
        return Availability.Available
    return Availability.Hidden if hidden else Availability.NotIncluded


def own_nonce(type: str, number: int) -> bytes:
    """Return the nonce of the user's own document of a type after so many deletions (container.md, 5)."""
    return labelled_hash("own-document", number.to_bytes(4, "big"), type.encode())


def is_own_document(fingerprint: bytes, type: str | None, container_id: uuid.UUID) -> bool:
    """Return whether a container is a document of the user's own, which no other user can have created."""
    return (type or "").startswith(OWN_TYPES) and any(
        container_id_of(fingerprint, own_nonce(type or "", number)) == container_id
        for number in range(_MOST_NUMBERS)
    )
