"""Show and reset what this device remembers of a container, its mark and sent changes; leave a container.

To leave, the client verifies the container, signs a departure from the list in force, and sends it. Nothing
is decrypted, so a member without Decrypt or Download can leave.
Spec: docs/spec/container.md, sections 4.1, 8 and 9.
"""

import contextlib
import dataclasses
import uuid
from dataclasses import dataclass

from msgspec.structs import replace

from scbroker import errors
from scbroker.client.arguments import moment, now
from scbroker.client.containers import fetching, sending
from scbroker.client.containers.fetching import Fetched
from scbroker.client.containers.sending import until_signed
from scbroker.client.core.judging import Mark
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import raise_to
from scbroker.errors import ConflictError, DeletedError, IntegrityError, NotFoundError, WriteOutcome
from scbroker.records.canonical import encode_object, user_id_of, uuid8
from scbroker.records.container_record import Link
from scbroker.records.departure import LABEL, Departure
from scbroker.records.key_record import KnownKey, Signed
from scbroker.types import Head, Heads, SentChange, UnsettledAccess
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import DepartureRequest


async def reset(session: Session, container_id: uuid.UUID, accept: Head | None) -> Heads:
    """Return the mark's head and the one that the broker serves; make the latter the mark if it is `accept`.

    The served history is verified as on a device without a mark.
    """
    stored, mark = fetching.mark_of(session, container_id.bytes)
    state = (await fetching.fetch_after(session, container_id, None)).state
    served = state.mark
    heads = Heads(None if mark is None else mark.head, served.head)
    if accept is None:
        return heads
    if accept != heads.served:
        raise ConflictError(
            f"The broker now serves version {served.version}, which is not the accepted head: call "
            "resetContainerMark without accept, and compare again."
        )
    # The state was verified from record 1 on, so `follower` is record 1 and not the record after the mark.
    reached = 0 if mark is None else mark.version
    before = state if mark is None else dataclasses.replace(state, follower=None)
    sending.settle(session, before, reached)  # before an accepted head replaces the mark
    if not session.marks.swap(fetching.KIND, container_id.bytes, stored, served.encode()):
        raise ConflictError(
            "The container was read meanwhile: call resetContainerMark without accept, and compare again."
        )
    return heads


async def confirm(
    session: Session, container_id: uuid.UUID, accept: Head | None
) -> UnsettledAccess | None:
    """Return the newest unsettled access (groups.md, 7), or None; settle it if `accept` has its version."""
    fetched = await fetching.fetch(session, container_id, any_keys=True)
    stored, mark = fetching.mark_of(session, container_id.bytes)
    if mark is None or mark.unsettled is None:
        return None
    unsettled = mark.unsettled
    if accept not in (None, Head(unsettled.version, unsettled.hash)):
        raise ConflictError(
            f"Version {unsettled.version} is unsettled, and another one was accepted: call confirmAccess "
            "without accept, and compare again."
        )
    found = await _unsettled(session, fetched, unsettled)
    if accept is not None:
        settled = replace(mark, unsettled=None).encode()
        if not session.marks.swap(fetching.KIND, container_id.bytes, stored, settled):
            raise ConflictError(
                "The container was read meanwhile: call confirmAccess without accept, and compare again."
            )
    return found


async def _unsettled(session: Session, fetched: Fetched, unsettled: Link) -> UnsettledAccess:
    """Read an unsettled change's record, and the access lists before and after it, proved by hashes."""
    record, after = await fetching.governing_at(session, fetched, unsettled)
    before = None
    if record.link is not None:
        _, before = await fetching.governing_at(session, fetched, record.link)
    if record.via is None or before is None:
        raise IntegrityError("An unsettled access was not made through a group.")
    return UnsettledAccess(
        head=Head(unsettled.version, unsettled.hash),
        changedBy=user_id_of(record.author),
        changedVia=uuid8(record.via.group),
        changedAt=moment(record.time),
        before=fetching.shown(session, fetched.state, before),
        after=fetching.shown(session, fetched.state, after),
    )


async def sent_changes(session: Session, container_id: uuid.UUID) -> list[SentChange]:
    """Read the container; return whether changes that were sent without confirmation took effect."""
    with contextlib.suppress(NotFoundError, DeletedError):
        await fetching.fetch(session, container_id)
    _, mark = fetching.mark_of(session, container_id.bytes)
    found = sending.entries(session, container_id.bytes)
    return sending.shown(found, 0 if mark is None else mark.version)


async def leave(session: Session, container_id: uuid.UUID, *, abandon: bool) -> None:
    """Have the broker store a departure of the session's user, and note it in the mark.

    A departure that was sent may take effect as long as its list is in force, also after a refusal.
    """
    leaving = _Leaving(session, container_id, abandon)
    try:
        await until_signed(session, leaving.attempt)
    except errors.BrokerError as error:
        if leaving.sent_for is not None:
            error.outcome, error.containerId = WriteOutcome.Uncertain, container_id
        raise
    try:
        _note(session, container_id)
    except errors.BrokerError as error:
        error.outcome, error.containerId = WriteOutcome.Stored, container_id
        raise


@dataclass(slots=True)
class _Leaving:
    """The state of leaving a container, in one or several attempts."""

    session: Session
    container_id: uuid.UUID
    abandon: bool
    sent_for: int | None = None
    """The version of the list from which a departure was sent, while that list is in force; else None."""

    async def attempt(self) -> None:
        session = self.session
        try:
            fetched = await fetching.fetch(session, self.container_id, any_keys=True)
        except errors.NotFoundError:
            # Nothing proves the broker's denial: accept it only after a sent departure, or with `abandon`.
            if self.abandon or self.sent_for is not None:
                _note(session, self.container_id)
            raise
        if fetched.group is not None:
            raise errors.InvalidArgumentError(
                f"You have access to the container through group {fetched.group.group_id} and none of your "
                "own: leave the group with leaveGroup."
            )
        in_force = fetched.state.governing
        if self.sent_for != in_force.governing.accessVersion:
            self.sent_for = None  # a new list voids the departure that was sent
        await _check_others(session, fetched, abandon=self.abandon)
        key = await session.signing_key()
        signed = _departure(session, fetched, key)
        request = DepartureRequest(departure=SignedObject.of(signed), departures=len(in_force.left))
        before, self.sent_for = self.sent_for, in_force.governing.accessVersion
        path = f"/v1/containers/{self.container_id}/departure"
        try:
            async with fetching.deletion_proved(session, self.container_id):
                await session.send("POST", path, message=request)
        except errors.BrokerError as error:
            if error.outcome is WriteOutcome.NotStored:  # the request has not left this device
                self.sent_for = before
            raise


def _departure(session: Session, fetched: Fetched, key: KnownKey) -> Signed:
    """Sign a departure from the list in force, dated not before the list: readers refuse an older one."""
    in_force = fetched.state.governing
    departure = Departure(
        containerId=fetched.state.container_id,
        accessVersion=in_force.governing.accessVersion,
        accessList=in_force.governing.accessList,
        fingerprint=session.fingerprint,
        keyIndex=key.index,
        time=max(now(), in_force.since, key.introduced),
    )
    body = encode_object(departure)
    return Signed(body, session.keys.ring.signing[key.index].sign(LABEL, body))


async def _check_others(session: Session, fetched: Fetched, *, abandon: bool) -> None:
    """Raise `InvalidArgumentError` if afterwards nobody would have access, or nobody could change access.

    Only a reader who may see the whole access list can check this here; the broker refuses the last member.
    """
    state = fetched.state
    if not state.governing.access.complete:
        return
    others = state.governing.present(fetched.time)
    own = others.pop(session.fingerprint, None)
    if not others:
        raise errors.InvalidArgumentError(
            "Nobody else has access to the container: delete it with deleteContainer instead."
        )
    if own is None or abandon or not own.allows(ContainerAccessLevel.ModifyAccess):
        return
    able = {
        name for name, entry in others.items() if entry.allows(ContainerAccessLevel.ModifyAccess)
    }
    groups = able & session.groups.names
    found = await session.groups.chains({uuid8(name): 0 for name in groups})
    chains = await session.directory.latest(map(user_id_of, able - groups))
    if all(chain.closed for chain in chains.values()) and all(
        group.ended is not None for group in found.values()
    ):
        raise errors.InvalidArgumentError(
            "You are the only member with ModifyAccess: give it to another member first, or pass "
            "abandon=True. Then nobody can change access any more."
        )


def _note(session: Session, container_id: uuid.UUID) -> None:
    """Note in the mark that the broker's lists may lack the container until a view is verified again."""

    def decide(stored: bytes | None) -> bytes | None:
        return None if stored is None else replace(Mark.decode(stored), left=True).encode()

    raise_to(session.marks, fetching.KIND, container_id.bytes, decide)
