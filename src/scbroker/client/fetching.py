"""Reading a container: what to ask the broker for, until everything is there that judging needs.

The decisions are `reading`'s; this fetches, and keeps the mark.
"""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass
from typing import Any, Final

from scbroker.client.directory import now
from scbroker.client.reading import Mark, State, judge_view, open_container_key, open_type
from scbroker.client.sealing import OpenPart
from scbroker.client.session import Session
from scbroker.client.transfer import Progress, download
from scbroker.crypto.verify import sha256
from scbroker.errors import ConflictError, IntegrityError, TooLargeError
from scbroker.records.container_record import (
    Role,
    check_segment_hashes,
    parse_record,
)
from scbroker.records.ids import user_id_of
from scbroker.records.key_record import KeyChain, Signed
from scbroker.types import Container, Header, Metadata, SecuredContainer
from scbroker.vocabulary import AccessLevel, ContainerAccessLevel
from scbroker.wire.containers import (
    MAX_INLINE,
    MAX_SKIPPED,
    Bodies,
    ContainerView,
    GoverningPage,
    GoverningView,
)

KIND: Final = "container"
_ROUNDS: Final = 5
_MAX_GOVERNING: Final = 100_000
_MAX_GAP: Final = 10_000_000


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
        fetched = await _fetch_once(session, container_id, mark, header=header, content=content)
        if keep_mark(session, stored, fetched.state):
            fetched.state.check_not_deleted()
            return fetched
    raise ConflictError("The container is changed faster than it can be read: try again.")


def keep_mark(session: Session, stored: bytes | None, state: State) -> bool:
    """Raises the mark to a verified state; False where it was moved since `stored` was read."""
    new = state.mark.encode()
    return new == stored or session.marks.swap(KIND, state.container_id, stored, new)


async def _fetch_once(
    session: Session, container_id: uuid.UUID, mark: Mark | None, *, header: bool, content: bool
) -> Fetched:
    resumed = mark is not None and mark.complete
    query = {name: "1" for name, wanted in (("header", header), ("content", content)) if wanted}
    if mark is not None and resumed:
        query["since"] = str(mark.version)
    view = await session.call("GET", f"/v1/containers/{container_id}", ContainerView, query=query)
    views = await _all_governing(session, container_id, view)
    head = view.head.signed if view.head is not None else None
    bodies = await _bodies(session, container_id, view, views, mark)
    chains = await _chains(session, view, views, head, mark if resumed else None)
    state = judge_view(
        container_id.bytes, session.fingerprint, views, head, bodies, chains, mark, now()
    )
    return Fetched(state, view)


async def _all_governing(
    session: Session, container_id: uuid.UUID, view: ContainerView
) -> list[GoverningView]:
    views = list(view.governing)
    head = view.head or view.governing[-1].record
    while (last := _version(views[-1])) < view.lastGoverning:
        if len(views) > _MAX_GOVERNING:
            raise TooLargeError("The container's access was changed more often than can be judged.")
        to = parse_record(head.body).version if view.head is not None else view.lastGoverning
        page = await session.call(
            "GET",
            f"/v1/containers/{container_id}/governing",
            GoverningPage,
            query={"from": str(last + 1), "to": str(to)},
        )
        if not page.governing or _version(page.governing[0]) <= last:
            raise IntegrityError("The broker withholds governing records.")
        views += page.governing
    return views


def _version(view: GoverningView) -> int:
    return parse_record(view.record.body).version


async def _bodies(
    session: Session,
    container_id: uuid.UUID,
    view: ContainerView,
    views: list[GoverningView],
    mark: Mark | None,
) -> dict[int, bytes]:
    """Every body from the mark's version to the head, and what else was served, by version."""
    served = [item.record.body for item in views] + list(view.skipped)
    if view.head is not None:
        served.append(view.head.body)
    bodies = {parse_record(body).version: body for body in served}
    if mark is None:
        return bodies
    head = max(bodies)
    if head - mark.version > _MAX_GAP:
        raise TooLargeError("The container was changed more often than can be judged.")
    missing = mark.version
    while missing <= head:
        if missing in bodies:
            missing += 1
            continue
        query = {"from": str(missing), "count": str(MAX_SKIPPED)}
        path = f"/v1/containers/{container_id}/records"
        page = await session.call("GET", path, Bodies, query=query)
        found = {parse_record(body).version: body for body in page.bodies}
        if missing not in found:
            break  # judging says what is wrong
        bodies = {**found, **bodies}
    return bodies


async def _chains(
    session: Session,
    view: ContainerView,
    views: list[GoverningView],
    head: Signed | None,
    resumed: Mark | None,
) -> dict[bytes, KeyChain]:
    """The key chains of the authors that have to be judged."""
    judged = [parse_record(item.record.body) for item in views[1 if resumed else 0 :]]
    if head is not None:
        judged.append(parse_record(head.body))
    authors = {user_id_of(record.author): record.author for record in judged}
    known = {uuid.UUID(item.userId): item.sequence for item in view.keyChains}
    chains = await session.directory.at_least({user: known.get(user, 0) for user in authors})
    return {chain.fingerprint: chain for chain in chains.values()}


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
    key = open_container_key(fetched.state, wrap, session.fingerprint, session.keys.encryption)
    return Opened(fetched, key)


def read_header(session: Session, opened: Opened) -> bytes | None:
    part = opened.part(Role.Header)
    if part is None:
        return None
    sealed = opened.fetched.view.header
    if sealed is None:
        _check_hidden(session, opened, "header")
        return None
    check_segment_hashes(part.part, sha256(sealed))
    return part.open_segment(0, sealed, sha256(sealed))


async def read_content(session: Session, opened: Opened, progress: Progress) -> bytes | None:
    part = opened.part(Role.Content)
    if part is None:
        return None
    if part.part.paddedLength > MAX_INLINE:
        if not opened.state.own_entry(session.fingerprint).allows(ContainerAccessLevel.Download):
            return None
        return await download(session, part, progress)
    sealed = opened.fetched.view.content
    if sealed is None:
        _check_hidden(session, opened, "content")
        return None
    check_segment_hashes(part.part, sha256(sealed))
    plaintext = part.open_segment(0, sealed, sha256(sealed))
    progress(len(plaintext), part.length)
    return plaintext


def _check_hidden(session: Session, opened: Opened, name: str) -> None:
    """A part that did not come: rightly so without Download, else it is withheld."""
    if opened.state.own_entry(session.fingerprint).allows(ContainerAccessLevel.Download):
        raise IntegrityError(f"The broker withholds the container's {name}.")


def metadata(session: Session, opened: Opened) -> Metadata:
    """What a container shows beside content and header."""
    return metadata_of(
        session,
        opened.state,
        opened.container_key,
        open_type(opened.state, opened.fetched.view.type),
    )


def metadata_of(
    session: Session, state: State, container_key: bytes | None, text: str | None
) -> Metadata:
    record = state.record
    length = None
    if record.content is not None and container_key is not None:
        content = OpenPart.open(state.container_id, Role.Content, record.content, container_key)
        length = content.length
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


def secured(session: Session, fetched: Fetched) -> SecuredContainer:
    """The container as it is kept, without opening content or header."""
    opened = open_fetched(session, fetched)
    shown = metadata(session, opened)
    view, signed = fetched.view, fetched.state.signed
    return SecuredContainer(
        **_fields(shown),
        record=signed.body,
        signature=signed.signature,
        wrap=view.wrap,
        sealedHeader=view.header,
        sealedContent=view.content,
    )


def container(shown: Metadata, content: bytes | None, header: Header[Any] | None) -> Container[Any]:
    return Container(**_fields(shown), content=content, header=header)


def _fields(shown: Metadata) -> dict[str, Any]:
    return {name: getattr(shown, name) for name in Metadata.__dataclass_fields__}


def moment(microseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)
