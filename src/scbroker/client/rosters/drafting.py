"""Draft a group's next record with its roster, and judge it as a reader will.

Spec: docs/spec/groups.md, 2, 4 and 8.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec.structs

from scbroker.client.containers.drafting import beyond_own_access
from scbroker.client.core import group_keys
from scbroker.client.core.roster_making import NewRoster, Present, Secret, Texts, make_roster
from scbroker.client.core.sealing import NewAccess, make_access, make_type
from scbroker.client.groups.opening import OpenGroup
from scbroker.client.rosters.planning import Plan
from scbroker.client.users.session import Session
from scbroker.crypto.seal import KEY_SIZE, random_bytes
from scbroker.errors import IntegrityError
from scbroker.records import group as rules
from scbroker.records import roster
from scbroker.records.canonical import group_name_of, uuid8
from scbroker.records.container_record import LABEL, ContainerRecord, Link
from scbroker.records.group import GroupChain, Served
from scbroker.records.judge import Known
from scbroker.records.key_record import KnownKey, Signed
from scbroker.records.roster import Info
from scbroker.wire.containers import RecordRequest, SignedRecord, TypeText


@dataclass(frozen=True, slots=True, repr=False)
class RosterAttempt:
    """A signed record of a group, with the group after it."""

    request: RecordRequest
    known: Known
    chain: GroupChain
    opened: OpenGroup | None
    """None after the tombstone."""
    dropped: tuple[uuid.UUID, ...] = ()
    """Members who were removed because the broker alone says that they were deleted."""

    @property
    def version(self) -> int:
        return self.known.record.version

    @property
    def key_index(self) -> int:
        return self.known.record.keyIndex

    @property
    def hash(self) -> bytes:
        return self.known.hash


@dataclass(frozen=True, slots=True, repr=False)
class _Draft:
    """A record that is ready to be signed, with what is sent beside it."""

    record: ContainerRecord
    access: NewAccess | None = None
    type: TypeText | None = None
    made: NewRoster | None = None


def draft_first(
    session: Session, nonce: bytes, plan: Plan, key: KnownKey, time: int
) -> RosterAttempt:
    """Return the first record of a new group, with a fresh secret."""
    name = group_name_of(session.fingerprint, nonce)
    group_id = uuid8(name)
    secret = Secret(0, group_keys.new_secret(), [])
    made = make_roster(name, 1, session.fingerprint, plan.seats or {}, secret, plan.texts, None)
    text, digest = make_type(group_id.bytes, roster.group_type(made.data))
    access = _access(session, group_id, 1, digest, plan)
    record = ContainerRecord(
        containerId=group_id.bytes,
        nonce=nonce,
        version=1,
        parent=None,
        author=session.fingerprint,
        keyIndex=key.index,
        time=max(time, key.introduced),
        link=None,
        governing=access.governing,
        header=None,
        content=None,
        tombstone=False,
    )
    draft = _Draft(record, access, text, made)
    signed, known = _signed(session, draft)
    chain = _judged(None, draft, known, time)
    opened = OpenGroup(
        group_id=group_id,
        fingerprint=session.fingerprint,
        chain=chain,
        leaves=made.leaves,
        members=made.members,
        left=frozenset(),
        owed=frozenset(),
        deleted=frozenset(),
        unproved=frozenset(),
        accepted=True,
        sealed_info=made.sealed_info,
        wrap=made.own_wrap,
        info=_info(plan, secret),
        secrets={0: secret.secret},
    )
    return RosterAttempt(_request(draft, signed, 0), known, chain, opened)


def draft_next(
    session: Session, group: OpenGroup, plan: Plan, key: KnownKey, time: int
) -> RosterAttempt:
    """Return the record that follows the group as it was read. A new epoch has a fresh secret each time."""
    chain, version = group.chain, group.chain.version + 1
    before = chain.in_force.governing
    secret, made, text, digest = _secret(group, plan), None, None, before.type
    if plan.seats is not None:
        present = Present(chain.roster, group.leaves, group.members, group.sealed_info)
        made = make_roster(
            group.name, version, session.fingerprint, plan.seats, secret, plan.texts, present
        )
        text, digest = make_type(group.group_id.bytes, roster.group_type(made.data))
    access = None
    governing = msgspec.structs.replace(before, type=digest)
    if plan.managers is not None:
        access = _access(session, group.group_id, version, digest, plan)
        governing = access.governing
    record = _following(session, group, key, time, tombstone=False)
    draft = _Draft(msgspec.structs.replace(record, governing=governing), access, text, made)
    signed, known = _signed(session, draft)
    after = _judged(group, draft, known, time)
    opened = replace(group, chain=after)
    if made is not None:
        opened = _after(group, opened, made, plan, secret)
    request = _request(draft, signed, len(group.left))
    return RosterAttempt(request, known, after, opened, plan.dropped)


def draft_tombstone(session: Session, group: OpenGroup, key: KnownKey, time: int) -> RosterAttempt:
    draft = _Draft(_following(session, group, key, time, tombstone=True))
    signed, known = _signed(session, draft)
    chain = _judged(group, draft, known, time)
    return RosterAttempt(_request(draft, signed, 0), known, chain, None)


def _secret(group: OpenGroup, plan: Plan) -> Secret:
    epoch = group.epoch + 1 if plan.rises else group.epoch
    secret = group_keys.new_secret() if plan.rises else group.secrets[epoch]
    return Secret(epoch, secret, [group.secrets.get(each) for each in range(epoch)])


def _info(plan: Plan, secret: Secret) -> Info:
    texts = plan.texts or Texts("", "")
    return Info(texts.name, texts.description, list(secret.earlier))


def _after(
    group: OpenGroup, opened: OpenGroup, made: NewRoster, plan: Plan, secret: Secret
) -> OpenGroup:
    """Return the group with its next roster."""
    kept = {name for name, member in made.members.items() if group.members.get(name) == member}
    return replace(
        opened,
        leaves=made.leaves,
        members=made.members,
        left=group.left & kept,
        owed=frozenset(),
        deleted=group.deleted & kept,
        unproved=group.unproved & kept,
        sealed_info=made.sealed_info,
        wrap=made.own_wrap or group.wrap,
        info=group.info if plan.texts is None else _info(plan, secret),
        secrets={**group.secrets, secret.epoch: secret.secret},
        _keys=dict(group._keys),
    )


def _access(
    session: Session, group_id: uuid.UUID, version: int, digest: bytes, plan: Plan
) -> NewAccess:
    """Return the list of managers. Its container key is wrapped to them and seals nothing (section 2)."""
    return make_access(
        group_id.bytes,
        version,
        session.fingerprint,
        digest,
        random_bytes(KEY_SIZE),
        plan.managers or {},
        plan.recipients,
        {},
    )


def _following(
    session: Session, group: OpenGroup, key: KnownKey, time: int, *, tombstone: bool
) -> ContainerRecord:
    """Return a record after the group's head that governs nothing yet."""
    chain = group.chain
    return ContainerRecord(
        containerId=group.group_id.bytes,
        nonce=None,
        version=chain.version + 1,
        parent=chain.head.hash,
        author=session.fingerprint,
        keyIndex=key.index,
        time=max(time, key.introduced, chain.head.record.time),
        link=Link(chain.in_force.record.version, chain.in_force.known.hash),
        governing=None,
        header=None,
        content=None,
        tombstone=tombstone,
    )


def _signed(session: Session, draft: _Draft) -> tuple[Signed, Known]:
    known = Known.of(draft.record)
    key = session.keys.ring.signing[draft.record.keyIndex]
    # A record of a group has no parts, so its bare form is the record.
    return Signed(known.bare, key.sign(LABEL, known.bare)), known


def _request(draft: _Draft, signed: Signed, departures: int) -> RecordRequest:
    return RecordRequest(
        record=SignedRecord.of(signed),
        accessList=None if draft.access is None else list(draft.access.entries),
        type=draft.type,
        departures=departures,
        roster=None if draft.made is None else draft.made.request,
    )


def _judged(group: OpenGroup | None, draft: _Draft, known: Known, time: int) -> GroupChain:
    """Judge a record as a member who has read the group before would judge it (C1 to C9)."""
    access, text, made = draft.access, draft.type, draft.made
    served = Served(
        known,
        None if access is None else access.list,
        None if text is None else (text.salt, text.type),
        None if made is None else made.data,
    )
    try:
        before = None if group is None else group.chain
        chain = rules.extend(before, served, time) if before else rules.begin(served, time)
        if made is not None:
            members: Mapping[bytes, roster.Member] = roster.parse_leaves(chain.roster, made.leaves)
        else:
            members = {} if group is None else group.members
        rules.check_roster(chain, members)
        if group is not None:
            rules.check_since((group.chain.roster, group.members), (chain.roster, members))
    except IntegrityError as error:
        raise beyond_own_access(error) from None
    return chain
