"""Draft a container's next record: its parts, access list, wraps and type, everything but the signature.

Find the keys of the users and groups that container keys are wrapped to. An id does not say whether it is a
user's or a group's: the chain that the broker serves for it proves it. The broker also names the groups of a
list; that is only a hint, which saves a request that would fail.
Spec: docs/spec/container.md, 7 and 9; docs/spec/groups.md, 1, 5 and 7.
"""

import contextlib
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from msgspec.structs import replace

from scbroker import errors
from scbroker.client.containers.change import KEEP, OWNER, Change, Grants, Merge, check_own_type
from scbroker.client.containers.fetching import epoch_of, groups_exist
from scbroker.client.containers.opening import Fetched, Opened
from scbroker.client.core.judging import State, open_type
from scbroker.client.core.sealing import NewAccess, Recipient, make_access, make_type, recipient_of
from scbroker.client.groups.opening import OpenGroup
from scbroker.client.users.session import Session
from scbroker.crypto.seal import KEY_SIZE, random_bytes
from scbroker.records.canonical import MAX_UINT, user_id_of, uuid8
from scbroker.records.container_record import (
    MAX_ENTRIES,
    AccessList,
    ContainerRecord,
    Entry,
    Link,
    Part,
    Role,
    Via,
)
from scbroker.records.judge import Acting, Grant, check_delegation
from scbroker.records.key_record import KnownKey
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.containers import ContainerView, TypeText
from scbroker.wire.rosters import GroupState

MANY_WRAPS: Final = 8
"""More wraps than this are made in the pool: each takes about 0.1 ms of the event loop's time."""


@dataclass(frozen=True, slots=True)
class Holders:
    """The users and groups of a new access list: its grants, the present members, and the known groups."""

    ids: Collection[uuid.UUID]
    members: Collection[uuid.UUID] = ()
    """Those of the list in force, who may have been deleted."""
    groups: Collection[uuid.UUID] = ()
    """Which of them are groups, as far as the caller or the broker says so."""

    @classmethod
    def of(
        cls,
        grants: Mapping[uuid.UUID, Grant],
        members: Collection[uuid.UUID] = (),
        named: Collection[str] = (),
    ) -> Self:
        """Return the users and groups of some grants; `named` are ids that the broker says are groups."""
        given = {each for each, grant in grants.items() if grant.is_group}
        return cls(grants, members, given.union(map(uuid.UUID, named)))


Recipients = Mapping[uuid.UUID, Recipient]


@dataclass(frozen=True, slots=True)
class Draft:
    """A record that is ready to be signed, with the data that is sent with it."""

    record: ContainerRecord
    access: NewAccess | None
    type: TypeText | None
    text: str | None
    """The container's type after this record, as far as its author may see it."""
    length: int | None
    """The number of bytes of the content; None without one, or if its part cannot be opened."""


def draft_first(
    session: Session,
    change: Change,
    container_id: bytes,
    nonce: bytes,
    recipients: Recipients,
    key: KnownKey,
    time: int,
) -> Draft:
    """Return the first record of a new container, for recipients with these keys."""
    container_key = random_bytes(KEY_SIZE)
    text = None if change.type is KEEP else change.type
    salted, digest = make_type(container_id, text)
    grants = change.recipients
    access = make_access(
        container_id, 1, session.fingerprint, digest, container_key, grants, recipients, {}
    )
    commitment = access.governing.keyCommitment
    parts = {
        role: sealed.finish(container_key, commitment) for role, sealed in change.sealed.items()
    }
    record = ContainerRecord(
        containerId=container_id,
        nonce=nonce,
        version=1,
        parent=None,
        author=session.fingerprint,
        keyIndex=key.index,
        time=max(time, key.introduced),
        link=None,
        governing=access.governing,
        header=parts.get(Role.Header),
        content=parts.get(Role.Content),
        tombstone=False,
    )
    content = change.sealed.get(Role.Content)
    length = None if content is None else content.length
    return Draft(record, access, salted, text, length)


def draft_next(
    session: Session,
    change: Change,
    opened: Opened,
    grants: Grants | None,
    recipients: Recipients,
    key: KnownKey,
    time: int,
) -> Draft:
    """Return the record that applies a change to the head that was read.

    `grants` are those of `new_grants`. The author acts for the group through which they read, if any.
    """
    state = opened.state
    version = state.record.version + 1
    before = state.governing.governing
    served = opened.view.type
    text = open_type(state, served)
    via = None if opened.group is None else via_at(opened.group, time)
    salted, digest = None, before.type
    if change.type is not KEEP and (served is None or change.type != text):
        text = change.type
        salted, digest = make_type(state.container_id, text)
    access, container_key, governing = None, opened.container_key, None
    if grants is not None:
        container_key = random_bytes(KEY_SIZE)
        access = make_access(
            state.container_id, version, session.fingerprint, digest, container_key, grants, recipients,
            members_of(state), None if via is None else via.group,
        )  # fmt: skip
        governing = access.governing
    elif digest != before.type:
        governing = replace(before, type=digest)
    commitment = (governing or before).keyCommitment
    is_resealed = access is not None
    parts = {
        role: _part(change, role, opened, container_key, commitment, is_resealed=is_resealed)
        for role in Role
    }
    record = ContainerRecord(
        containerId=state.container_id,
        nonce=None,
        version=version,
        parent=state.head.hash,
        author=session.fingerprint,
        keyIndex=key.index,
        time=time_after(opened, key, time),
        link=Link(state.governing.record.version, state.governing.known.hash),
        governing=governing,
        header=parts[Role.Header],
        content=parts[Role.Content],
        tombstone=change.delete,
        via=via,
    )
    content = change.sealed.get(Role.Content)
    length = None if content is None else content.length
    if content is None and record.content is not None:
        # Another member may have sealed an invalid part key. It must not keep the author from other changes.
        with contextlib.suppress(errors.DecryptionError, errors.IntegrityError):
            length = opened.length
    return Draft(record, access, salted, text, length)


def via_at(group: OpenGroup, time: int) -> Via:
    """Return the via of a record that the user makes through a group at this time.

    It names the newest record of the group in its latest epoch. If a manager's clock was ahead, it names an
    older one with the same leaf of the user: a record must not be dated before the one that it names (V5).
    """
    chain, leaf = group.chain, group.members[group.fingerprint]
    named = leaf.version
    for version in reversed(chain.moments):
        moment = chain.moments[version]
        if moment.epoch < group.epoch or version < leaf.version:
            break
        named = version
        if moment.time <= time:
            break
    return Via(chain.name, group.epoch, named, chain.moments[named].hash)


def acting_by(group: OpenGroup, via: Via) -> Acting:
    """Return the user's own membership, without a proof: this device has verified all leaves."""
    chain = group.chain
    since = chain.moments[via.version].time
    return Acting(via.group, group.role, since, chain.end_of(via.epoch), chain.ended)


def new_grants(
    state: State, change: Change, time: int, *, newer_keys: bool = False
) -> Grants | None:
    """Return the grants of the record's access list; None if the record does not change access.

    They are the grants asked for, or those in force if rule 5 demands a renewal: a user without access knows
    the container key, or it is wrapped to a key that its user has replaced (`newer_keys`). Users who have
    left are in neither, unless they are asked for. A record that seals nothing new is never a renewal.
    """
    if change.grants is not KEEP and not change.delete:
        return _asked(state, change.grants, time)
    if not change.may_renew or not (newer_keys or state.governing.needs_renewal(time)):
        return None
    return _present(state, time)


def changes_nothing(state: State, change: Change, time: int) -> bool:
    """Return whether a merge would leave the access list as it is.

    The removal of a user whose entry has expired, or who has left, is a change: they have the container key.
    """
    if not isinstance(change.grants, Merge) or change.grants.remove & members_of(state).keys():
        return False
    present = {user_id_of(each): entry for each, entry in state.governing.present(time).items()}
    return all(_has(present.get(user), grant) for user, grant in change.grants.add.items())


def _has(entry: Entry | None, grant: Grant) -> bool:
    """Return whether an entry gives exactly this access, to this fingerprint if the caller gave one."""
    return (
        entry is not None
        and (entry.permissions, entry.expiresAt) == (grant.permissions, grant.expiresAt)
        and grant.fingerprint in (None, entry.fingerprint)
    )


def time_after(fetched: Fetched, key: KnownKey, time: int) -> int:
    """Return `time`, the clock's, or the earliest later time that a record after this state may have."""
    state, group = fetched.state, fetched.group
    after = max(time, key.introduced, state.record.time, state.governing.record.time)
    if group is None:
        return after
    return max(after, group.chain.moments[via_at(group, time).version].time)


def members_of(state: State) -> dict[uuid.UUID, Entry]:
    """Return the entries in force by user or group id. Deleted users and groups among them have no keys."""
    return {user_id_of(name): entry for name, entry in state.governing.access.entries.items()}


async def check_allowed(session: Session, fetched: Fetched, change: Change) -> None:
    """Raise `PermissionDeniedError` for a change that the author's access, or rule 4, does not allow.

    Raises `InvalidArgumentError` if access goes to the creator by default and the creator was deleted, and
    if others would get access to the author's own address book or list of links.
    """
    state, time = fetched.state, fetched.time
    entry = state.entry
    if entry is None or entry.is_expired(time):
        raise errors.PermissionDeniedError("Your access to this container has expired.")
    missing = ContainerAccessLevel(change.needed() & ~entry.permissions)
    if missing:
        raise errors.PermissionDeniedError(f"Your access to this container lacks {missing.name}.")
    present = _present(state, time)
    asked = present if change.grants is KEEP else _asked(state, change.grants, time)
    if change.type is not KEEP:
        check_own_type(session.userId, change.type, asked)
    if change.grants is KEEP:
        return
    if added := asked.keys() - present.keys():
        check_own_type(session.userId, open_type(state, fetched.view.type), added)
    try:
        before = _grants(state.governing.access.unexpired(time))
        left = {user_id_of(fingerprint) for fingerprint in state.governing.left}
        check_delegation(entry, before, asked, complete=True, left=left)
    except errors.IntegrityError as error:
        raise beyond_own_access(error) from None
    if not change.grants:
        creator = user_id_of(state.createdBy)
        try:
            await recipients_of(session, Holders([creator]))
        except errors.NotFoundError:
            raise errors.InvalidArgumentError(
                "accessLevels must name users: by default they name the container's creator, "
                f"user {creator}, who was deleted"
            ) from None


def beyond_own_access(error: errors.IntegrityError) -> errors.PermissionDeniedError:
    """Return the error for a change that a reader would refuse."""
    return errors.PermissionDeniedError(f"This change is beyond your own access: {error}")


def _asked(state: State, grants: Grants | Merge, time: int) -> Grants:
    """Return the whole access list after a change; an empty one gives access to the creator.

    Raises `ClockError` for access that ends before `time`, which is never before the newest record's.
    """
    added = grants.add if isinstance(grants, Merge) else grants
    if any(each.expiresAt is not None and each.expiresAt <= time for each in added.values()):
        raise errors.ClockError(
            "The access would end before the container was changed last: set this machine's clock right, or "
            "choose a later expiresAt."
        )
    if not isinstance(grants, Merge):
        return grants or {user_id_of(state.createdBy): OWNER}
    merged = grants.into(_present(state, time))
    if not merged:
        raise errors.InvalidArgumentError(
            "Nobody would have access to the container: delete it with deleteContainer instead."
        )
    if len(merged) > MAX_ENTRIES:
        raise errors.TooLargeError(
            f"{len(merged)} users would have access to the container: it takes at most {MAX_ENTRIES}."
        )
    return merged


def _present(state: State, time: int) -> Grants:
    """Return the access in force that has not expired, without the users who have left."""
    return _grants(state.governing.present(time))


def _grants(entries: Mapping[bytes, Entry]) -> Grants:
    return {
        user_id_of(fingerprint): Grant(entry.permissions, entry.expiresAt)
        for fingerprint, entry in entries.items()
    }


def _part(
    change: Change,
    role: Role,
    opened: Opened,
    container_key: bytes | None,
    commitment: bytes,
    *,
    is_resealed: bool,
) -> Part | None:
    """Return a part of the next record: none, new, or carried (resealed for a new container key)."""
    if change.delete:
        return None
    if role in change.sealed:
        if container_key is None:
            raise errors.DecryptionError(
                "The container's key does not open, so nothing can be sealed under it: replace the "
                "whole container with updateContainer."
            )
        return change.sealed[role].finish(container_key, commitment)
    part = opened.state.record.part(role) if change.keeps(role) else None
    if part is None or not is_resealed:
        return part
    found = opened.part(role)
    if found is None or container_key is None:
        raise errors.DecryptionError(
            f"The container's {role.name.lower()} does not open and cannot be carried over: replace "
            "it with updateContainer, or delete the container."
        )
    return found.reseal(container_key)


async def recipients_of(session: Session, holders: Holders) -> Recipients:
    """Return the verified current keys of users and groups. Makes no request for the session's user.

    Deleted users are left out. Raises `NotFoundError` for a deleted user or group that is not a member
    already: the entry of one that was deleted may stay, but a new one must not be made.
    """
    found = {session.userId: recipient_of(session.directory.own)}
    others = set(holders.ids) - found.keys()
    if not others:
        return found
    groups = {each for each in others if each in holders.groups or _is_pinned(session, each)}
    try:
        users = await session.directory.latest(others - groups)
    except errors.NotFoundError:  # a request for users' keys fails if it names a group
        unknown = [each for each in others - groups if not session.directory.knows(each)]
        more = await session.groups.among(unknown)
        if not more:
            raise
        groups |= more
        users = await session.directory.latest(others - groups)
    found |= {user: recipient_of(chain) for user, chain in users.items() if not chain.closed}
    chains = await session.groups.chains(dict.fromkeys(groups, MAX_UINT))
    for chain in chains.values():
        # A list keeps a deleted group, under its last key, until somebody removes it (groups.md, 10).
        if chain.ended is None or uuid8(chain.name) in holders.members:
            found[uuid8(chain.name)] = Recipient(
                chain.name, chain.roster.epoch, chain.roster.publicKey
            )
    check_living(holders, found)
    return found


def check_living(holders: Holders, found: Recipients) -> None:
    """Raise `NotFoundError` for a user or group without current keys that is not a member already."""
    for each in holders.ids:
        if each not in found and each not in holders.members:
            kind = "group" if each in holders.groups else "user"
            raise errors.NotFoundError(
                f"{kind.capitalize()} {each} was deleted: remove the {kind} from accessLevels."
            )


async def is_outdated(session: Session, access: AccessList, view: ContainerView) -> bool:
    """Return whether some wrap of a list is for a key or an epoch that has been replaced (rule 5).

    The view names users and groups that have newer ones. The keys of users that this session knows count as
    well, and the groups that this device knows. If a group that the session's user manages owes an epoch, it
    is raised first (groups.md, 3.5).
    """
    await _raise_owed(session, access, view.groupRecipients)
    return await session.directory.has_newer_key(access, view.recipients) or await _has_newer_epoch(
        session, access, view.groupRecipients
    )


async def _raise_owed(session: Session, access: AccessList, stated: Sequence[GroupState]) -> None:
    """Make new keys (epochs) for groups in a list that need one, if the session's user manages them.

    A group needs one if the broker says so, or if the members that this session has read show it.
    """
    if session.groups.raise_owed is None:
        return
    epochs = {uuid.UUID(each.groupId): each.epoch for each in stated if each.owed}
    chains = session.groups.verified
    for name in (name for name, entry in access.entries.items() if entry.wrapHash is not None):
        group_id, known = uuid8(name), chains.get(name)
        is_stated = group_id in epochs and (known is None or known.roster.epoch <= epochs[group_id])
        if is_stated or session.groups.owes(group_id):
            with contextlib.suppress(
                errors.NotFoundError, errors.PermissionDeniedError
            ):  # not a manager now
                await session.groups.raise_owed(group_id)


async def _has_newer_epoch(
    session: Session, access: AccessList, stated: Sequence[GroupState]
) -> bool:
    if stated:
        versions = {uuid.UUID(each.groupId): each.version for each in stated}
        listed = versions.keys() & set(map(uuid8, access.entries))
        with groups_exist():
            await session.groups.chains({each: versions[each] for each in listed})
    return any(
        entry.wrapHash is not None and entry.keyIndex < (epoch_of(session, entry) or 0)
        for entry in access.entries.values()
    )


def _is_pinned(session: Session, holder: uuid.UUID) -> bool:
    """Return whether this device has pinned a group of this id. Skips the lookup for known users."""
    return not session.directory.knows(holder) and session.groups.known(holder) is not None
