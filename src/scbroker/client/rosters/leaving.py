"""Accept the offer of a group, or leave the group by a signed departure. Spec: docs/spec/groups.md, 9."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from scbroker import errors
from scbroker.client.arguments import now
from scbroker.client.containers.sending import until_signed
from scbroker.client.groups.opening import OpenGroup, Roll
from scbroker.client.users.session import Session
from scbroker.errors import WriteOutcome
from scbroker.records.canonical import encode_object
from scbroker.records.key_record import KnownKey, Signed
from scbroker.records.roster import DEPARTURE_LABEL, GroupDeparture
from scbroker.wire.codec import SignedObject
from scbroker.wire.groups import GroupDepartureRequest


async def accept(session: Session, group_id: uuid.UUID) -> OpenGroup:
    """Verify a group, and tell the broker that the user accepts it."""
    opened = await session.groups.opened(group_id, fresh=True)
    if not opened.accepted:
        await session.send("PUT", f"/v1/groups/{group_id}/acceptance")
        session.groups.note_accepted(group_id)
    return replace(opened, accepted=True)


async def leave(session: Session, group_id: uuid.UUID, *, abandon: bool) -> None:
    """Have the broker store a departure of the session's user.

    A departure that was sent may take effect as long as the leaf stands, also after a refusal.
    """
    leaving = _Leaving(session, group_id, abandon)
    try:
        await until_signed(session, leaving.attempt)
    except errors.BrokerError as error:
        if leaving.sent_for:
            error.outcome, error.containerId = WriteOutcome.Uncertain, group_id
        raise


@dataclass(slots=True)
class _Leaving:
    """A departure on its way to the broker."""

    session: Session
    group_id: uuid.UUID
    abandon: bool
    sent_for: int = 0
    """The version of the user's leaf, if a departure from it was sent."""

    async def attempt(self) -> None:
        session, group_id = self.session, self.group_id
        roll = await session.groups.roll(group_id)
        leaf = roll.members[session.fingerprint].version
        if self.sent_for != leaf:
            self.sent_for = 0  # what was sent is void for every other leaf
        _check_others(roll, abandon=self.abandon)
        key = await session.signing_key()
        request = GroupDepartureRequest(
            departure=SignedObject.of(_departure(session, roll, leaf, key)),
            departures=len(roll.left),
            last=roll.chain.version,
        )
        # Noted first: the broker may store the departure and deny the membership, whatever it answers.
        session.groups.note_departure(group_id, leaf)
        before, self.sent_for = self.sent_for, leaf
        try:
            await session.send("POST", f"/v1/groups/{group_id}/departure", message=request)
        except errors.BrokerError as error:
            if error.outcome is WriteOutcome.NotStored:  # the request has not left this device
                self.sent_for = before
            if isinstance(error, errors.RejectedError):  # the others may have gone meanwhile
                _check_others(await session.groups.roll(group_id), abandon=self.abandon)
            raise


def _departure(session: Session, roll: Roll, leaf: int, key: KnownKey) -> Signed:
    """Sign a departure; readers refuse one that is older than the leaf."""
    since = roll.chain.moments[leaf].time
    departure = GroupDeparture(
        group=roll.name,
        version=leaf,
        fingerprint=session.fingerprint,
        keyIndex=key.index,
        time=max(now(), since, key.introduced),
    )
    body = encode_object(departure)
    return Signed(body, session.keys.ring.signing[key.index].sign(DEPARTURE_LABEL, body))


def _check_others(roll: Roll, *, abandon: bool) -> None:
    """Raise `InvalidArgumentError` for the last member, and for the only owner unless they `abandon` it."""
    others = roll.members.keys() - roll.left - roll.deleted - {roll.fingerprint}
    if not others:
        raise errors.InvalidArgumentError(
            "Nobody else is a member of the group: delete it with deleteGroup instead."
        )
    if abandon or not roll.is_owner:
        return
    if not any(roll.chain.is_owner(name) for name in others):
        raise errors.InvalidArgumentError(
            "You are the only owner of the group: make another member an owner first, or pass abandon=True. "
            "Then nobody can change the managers or delete the group any more."
        )
