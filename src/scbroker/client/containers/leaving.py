"""Leave a container: verify it, sign a departure from the list in force, send it.

Nothing is decrypted, so a member without Decrypt or Download can leave. Spec: docs/spec/container.md,
sections 4.1 and 9.
"""

import uuid
from dataclasses import dataclass

from msgspec.structs import replace

from scbroker import errors
from scbroker.client.arguments import now
from scbroker.client.containers import fetching
from scbroker.client.containers.opening import Fetched
from scbroker.client.containers.sending import until_signed
from scbroker.client.core.judging import Mark
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import raise_to
from scbroker.errors import WriteOutcome
from scbroker.records.canonical import encode_object, user_id_of, uuid8
from scbroker.records.container_record import Entry
from scbroker.records.departure import LABEL, Departure
from scbroker.records.key_record import KnownKey, Signed
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import DepartureRequest


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
    if own is None or abandon or not _may_change_access(own):
        return
    able = {name for name, entry in others.items() if _may_change_access(entry)}
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


def _may_change_access(entry: Entry) -> bool:
    return entry.allows(ContainerAccessLevel.ModifyAccess)


def _note(session: Session, container_id: uuid.UUID) -> None:
    """Note in the mark that the broker's lists may lack the container until a view is verified again."""

    def decide(stored: bytes | None) -> bytes | None:
        return None if stored is None else replace(Mark.decode(stored), left=True).encode()

    raise_to(session.marks, fetching.KIND, container_id.bytes, decide)
