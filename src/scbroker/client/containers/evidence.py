"""Everything that is to be fetched of a container before it can be judged: pages, bodies, keys of authors.

What a broker can have a reader fetch is bounded, also by one who answers at once and for ever.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scbroker.client.calls.io_thread import io_thread
from scbroker.client.clock import now
from scbroker.client.core.judging import Mark, State, Walk, judge_signed, judge_view
from scbroker.client.users.session import Session
from scbroker.errors import ForkError, IntegrityError, NotFoundError, TooLargeError
from scbroker.records.container_record import parse_bare
from scbroker.records.ids import user_id_of
from scbroker.records.key_record import KeyChain, Signed
from scbroker.wire.containers import (
    MAX_SKIPPED,
    Bodies,
    ContainerView,
    GoverningPage,
    GoverningView,
)

MANY_VIEWS: Final = 32
"""More of them are judged beside the loop."""
_MAX_GOVERNING: Final = 256 * 1_048_576
_MAX_WALK: Final = 1_000_000


def since_of(mark: Mark | None) -> int | None:
    """From which version on a reader with this mark has to be told."""
    return mark.version if mark is not None and mark.complete else None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was served of a container, ready to be judged."""

    container_id: bytes
    reader: bytes
    views: list[GoverningView]
    head: Signed | None
    walk: Walk | None
    chains: dict[bytes, KeyChain]
    mark: Mark | None
    now: int

    def state(self) -> State:
        """What may be believed of it."""
        return judge_view(
            self.container_id, self.reader, self.views, self.head, self.walk, self.chains,
            self.mark, self.now,
        )  # fmt: skip

    def check_signed(self) -> None:
        """Raises unless members signed it, whether or not it follows from the mark."""
        judge_signed(
            self.container_id, self.views, self.head, None, self.chains, self.mark, self.now
        )

    @property
    def last(self) -> bytes:
        """The body of the head, whatever it is."""
        return self.views[-1].record.body if self.head is None else self.head.body


async def collect(
    session: Session, container_id: uuid.UUID, mark: Mark | None, view: ContainerView
) -> Evidence:
    """What a view leaves to be fetched: further pages, and the keys of authors."""
    views = await _all_governing(session, container_id, view)
    head = view.head.signed if view.head is not None else None
    chains = await _chains(session, authors_of(view, views, mark))
    found = Evidence(
        container_id.bytes, session.fingerprint, views, head, None, chains, mark, now()
    )  # fmt: skip
    return dataclasses.replace(found, walk=await _walk(session, found, view.skipped))


async def _all_governing(
    session: Session, container_id: uuid.UUID, view: ContainerView
) -> list[GoverningView]:
    views = list(view.governing)
    to = view.lastGoverning if view.head is None else parse_bare(view.head.body).version
    size = 0
    while (last := _version(views[-1])) < view.lastGoverning:
        page = await session.call(
            "GET",
            f"/v1/containers/{container_id}/governing",
            GoverningPage,
            query={"from": str(last + 1), "to": str(to)},
        )
        if not page.governing or _version(page.governing[-1]) <= last:
            raise IntegrityError("The broker withholds governing records.")
        views += page.governing
        size += sum(_size(item) for item in page.governing)
        if size > _MAX_GOVERNING:
            raise TooLargeError("The container's access was changed more often than can be judged.")
    return views


def _size(view: GoverningView) -> int:
    shown = view.accessList
    lists = 0 if shown is None else len(shown.entryHashes) + 256 * len(shown.disclosed)
    return len(view.record.body) + len(view.record.signature) + lists


def _version(view: GoverningView) -> int:
    return parse_bare(view.record.body).version


async def _walk(session: Session, found: Evidence, skipped: Sequence[bytes]) -> Walk | None:
    """Verify every body from the mark's record to the head, from the view and from further pages.

    None without a mark, if the head is not newer than the mark, or if the head is a tombstone: the broker
    then keeps only the bodies of governing records.
    """
    mark, last = found.mark, parse_bare(found.last)
    head = last.version
    if mark is None or head <= mark.version or last.tombstone:
        return None
    bodies = [item.record.body for item in found.views] + [*skipped, found.last]
    served = {parse_bare(body).version: body for body in bodies}
    walk = Walk(mark, found.views, head, found.now)
    is_checked = False
    while walk.next_version <= head:
        if walk.next_version in served:
            walk.step(served[walk.next_version])
            continue
        if not is_checked:  # whoever signed nothing has nobody ask for more
            await _check_far(found, head - mark.version)
            is_checked = True
        for body in await _page(session, found.container_id, walk.next_version, head):
            walk.step(body)
    return walk


async def _check_far(found: Evidence, distance: int) -> None:
    """Raises unless members signed the head, and it is no further from the mark than is walked."""
    if len(found.views) > MANY_VIEWS:
        await io_thread.in_pool(found.check_signed)
    else:
        found.check_signed()
    if distance > _MAX_WALK:
        raise TooLargeError(
            f"The container was changed more than {_MAX_WALK} times since this device read it: what "
            "leads here from there is more than is fetched. A device that never read it can."
        )


async def _page(session: Session, container_id: bytes, first: int, head: int) -> Sequence[bytes]:
    """The bodies from `first` on, up to the one before the head, which is at hand."""
    count = min(MAX_SKIPPED, head - first)
    page = await session.call(
        "GET",
        f"/v1/containers/{uuid.UUID(bytes=container_id)}/records",
        Bodies,
        query={"from": str(first), "count": str(count)},
    )
    if len(page.bodies) != count or parse_bare(page.bodies[0]).version != first:
        raise ForkError("The broker withholds what leads from the version seen before to this one.")
    return page.bodies


def authors_of(
    view: ContainerView, views: Sequence[GoverningView], mark: Mark | None
) -> dict[uuid.UUID, int]:
    """The authors that have to be judged, and up to where the broker says that their keys go."""
    resumed = since_of(mark) is not None
    judged = [parse_bare(item.record.body) for item in views[1 if resumed else 0 :]]
    if view.head is not None:
        judged.append(parse_bare(view.head.body))
    known = {item.userId: item.sequence for item in view.keyChains}
    authors = {user_id_of(record.author) for record in judged}
    return {user: known.get(str(user), 0) for user in authors}


async def _chains(session: Session, authors: Mapping[uuid.UUID, int]) -> dict[bytes, KeyChain]:
    try:
        chains = await session.directory.at_least(authors)
    except NotFoundError:
        raise IntegrityError("A record is served whose author the broker does not know.") from None
    return {chain.fingerprint: chain for chain in chains.values()}
