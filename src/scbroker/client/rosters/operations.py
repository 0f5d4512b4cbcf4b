"""The operations of groups, as a provider offers them. Spec: docs/spec/groups.md, 8 to 10."""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Final

from scbroker import errors
from scbroker.client.arguments import Progress, moment, now
from scbroker.client.calls import tasks
from scbroker.client.containers import sending
from scbroker.client.containers.sending import until_signed
from scbroker.client.containers.writing import Change, Swap, update_each
from scbroker.client.groups.opening import OpenGroup, Roll
from scbroker.client.http.requests import check_order
from scbroker.client.rosters import writing
from scbroker.client.rosters.planning import Intents, Wish
from scbroker.client.rosters.writing import settle
from scbroker.client.users.session import Session
from scbroker.errors import BrokerError, ConflictError, NotFoundError, WriteOutcome
from scbroker.records import roster
from scbroker.records.canonical import (
    encode_object,
    parse_fingerprint,
    show_fingerprint,
    user_id_of,
)
from scbroker.records.key_record import Signed
from scbroker.records.roster import DEPARTURE_LABEL, GroupDeparture
from scbroker.spelling import check_new
from scbroker.types import Group, GroupMember, GroupRenewal, Head, Heads, SentChange
from scbroker.vocabulary import GroupManager, GroupRole, MemberRole
from scbroker.wire import containers as wire
from scbroker.wire.codec import SignedObject
from scbroker.wire.groups import GroupDepartureRequest

_AT_ONCE: Final = wire.MAX_BATCH


def checked_creation(
    session: Session,
    name: str,
    members: Sequence[MemberRole],
    description: str,
    managers: Sequence[GroupManager],
) -> Intents:
    """Return the change that creates a group with the session's user as an owner."""
    roster.check_texts(name, description)
    check_new("name", name)
    roles = {session.userId: Wish(GroupRole.Sharer), **_roles(members, "members")}
    listed = _managers(managers)
    listed[session.userId] = Wish(roster.OWNER, listed.get(session.userId, Wish(0)).fingerprint)
    return Intents(add=roles, managers=listed, name=name, description=description)


def checked_addition(members: Sequence[MemberRole]) -> Intents:
    return Intents(add=_roles(members, "members"))


def checked_removal(session: Session, users: Sequence[uuid.UUID]) -> Intents:
    if session.userId in users:
        raise errors.InvalidArgumentError(
            "userIds must not name yourself: leave the group with leaveGroup"
        )
    return Intents(remove=frozenset(users))


def checked_roles(roles: Sequence[MemberRole]) -> Intents:
    wishes = _roles(roles, "roles")
    return Intents(roles={user: wish.value for user, wish in wishes.items()})


def checked_managers(managers: Sequence[GroupManager]) -> Intents:
    """Return the change that replaces the list of managers; one of them must be an owner."""
    if not any(each.owner for each in managers):
        raise errors.InvalidArgumentError(
            "managers must name an owner: GroupManager(user, owner=True)"
        )
    return Intents(managers=_managers(managers))


def checked_texts(name: str | None, description: str | None) -> Intents:
    if name is None and description is None:
        raise errors.InvalidArgumentError("renameGroup needs a name or a description")
    roster.check_texts("Group" if name is None else name, description or "")
    if name is not None:
        check_new("name", name)
    return Intents(name=name, description=description)


async def create(session: Session, intents: Intents) -> Group:
    return group_of(await writing.create(session, intents))


async def change(session: Session, group_id: uuid.UUID, intents: Intents) -> Group:
    return group_of(*await writing.change(session, group_id, intents))


async def groups(session: Session, *, offered: bool) -> list[Group | BrokerError]:
    """Return the groups of the session's user or their errors; without `offered`, the accepted ones."""
    listed = await session.groups.listed()
    wanted = [each.group_id for each in listed if offered or each.accepted]
    found = await session.groups.opened_each(wanted)
    shown: list[Group | BrokerError] = []
    for group_id, outcome in found.items():
        if isinstance(outcome, (errors.NotFoundError, errors.DeletedError)):
            continue  # the user was removed since the list was made
        if isinstance(outcome, BrokerError):
            error = tasks.shown(outcome)
            error.containerId = group_id
            shown.append(error)
        else:
            shown.append(group_of(outcome))
    return shown


async def members(session: Session, group_id: uuid.UUID) -> list[GroupMember]:
    """Return the members by fingerprint, without users who have left."""
    opened = await session.groups.opened(group_id, fresh=True)
    chain = opened.chain
    return [
        GroupMember(
            fingerprint=show_fingerprint(name),
            role=GroupRole(member.role),
            isManager=name in chain.managers,
            isOwner=chain.is_owner(name),
            since=moment(chain.moments[member.version].time),
        )
        for name, member in opened.members.items()
        if name not in opened.left
    ]


async def accept(session: Session, group_id: uuid.UUID) -> Group:
    """Verify a group, and tell the broker that the user accepts it."""
    opened = await session.groups.opened(group_id, fresh=True)
    if not opened.accepted:
        await session.send("PUT", f"/v1/groups/{group_id}/acceptance")
        session.groups.note_accepted(group_id)
    return group_of(dataclasses.replace(opened, accepted=True))


async def decline(session: Session, group_id: uuid.UUID) -> None:
    roll = await session.groups.roll(group_id)
    if roll.accepted:
        raise errors.InvalidArgumentError("You have accepted this group: leave it with leaveGroup.")
    await leave(session, group_id, abandon=True)


async def remove(
    session: Session,
    group_id: uuid.UUID,
    intents: Intents,
    renew_all: bool,
    progress: Progress | None,
) -> Group:
    """Remove members; with `renew_all`, also give each container of the group a new key."""
    group = await change(session, group_id, intents)
    if not renew_all:
        return group
    with _is_stored(group_id):
        return dataclasses.replace(group, renewal=await _renew(session, group_id, progress))


async def renew(
    session: Session, group_id: uuid.UUID, new_key: bool, progress: Progress | None
) -> GroupRenewal:
    if not new_key:
        return await _renew(session, group_id, progress)
    await writing.change(session, group_id, Intents(new_epoch=True))
    with _is_stored(group_id):
        return await _renew(session, group_id, progress)


@contextlib.contextmanager
def _is_stored(group_id: uuid.UUID) -> Iterator[None]:
    """Mark errors in the block as `Stored`: the change of the group took effect before the renewal failed."""
    try:
        yield
    except BrokerError as error:
        error.outcome, error.containerId = WriteOutcome.Stored, group_id
        raise


async def raise_owed(session: Session, group_id: uuid.UUID) -> None:
    """Begin the epoch that a group owes, if the session's user manages it (3.5)."""
    await writing.change(session, group_id, Intents())


def _roles(given: Sequence[MemberRole], name: str) -> dict[uuid.UUID, Wish]:
    return _wishes(name, ((each.userId, each.role, each.fingerprint) for each in given))


def _managers(given: Sequence[GroupManager]) -> dict[uuid.UUID, Wish]:
    kinds = {True: roster.OWNER, False: roster.MANAGER}
    return _wishes(
        "managers", ((each.userId, kinds[each.owner], each.fingerprint) for each in given)
    )


def _wishes(name: str, given: Iterable[tuple[uuid.UUID, int, str | None]]) -> dict[uuid.UUID, Wish]:
    found: dict[uuid.UUID, Wish] = {}
    for user, value, fingerprint in given:
        if user in found:
            raise errors.InvalidArgumentError(
                f"{name} names user {user} twice: name each user once."
            )
        found[user] = Wish(value, None if fingerprint is None else parse_fingerprint(fingerprint))
    return found


async def _renew(
    session: Session, group_id: uuid.UUID, progress: Progress | None = None
) -> GroupRenewal:
    """Give each container that is wrapped to an earlier epoch of the group a new key."""
    await _read_as(session, group_id, GroupRole.Writer)
    return await _change_each(session, group_id, True, lambda: Change(renews=True), progress)


async def replace_group(
    session: Session, group_id: uuid.UUID, new_group_id: uuid.UUID, progress: Progress | None = None
) -> GroupRenewal:
    """Move the access that a group has to each of its containers to another group."""
    await _read_as(session, group_id, GroupRole.Sharer)
    new = await session.groups.chain(new_group_id, fresh=True)
    if new.ended is not None:
        raise errors.DeletedError("The group that newGroupId names was deleted.")
    swap = Swap({}, frozenset([group_id]), new_group_id, new.name)
    return await _change_each(session, group_id, False, lambda: Change(grants=swap), progress)


async def _read_as(session: Session, group_id: uuid.UUID, role: GroupRole) -> OpenGroup:
    """Read the latest epoch of a group; raise `PermissionDeniedError` for a caller with a lower role."""
    opened = await session.groups.opened(group_id, fresh=True)
    if opened.role < role:
        raise errors.PermissionDeniedError(
            f"Your role in this group is {GroupRole(opened.role).name}, and this needs {role.name}: ask a "
            "manager."
        )
    return opened


async def _change_each(
    session: Session,
    group_id: uuid.UUID,
    stale: bool,
    change: Callable[[], Change],
    progress: Progress | None,
) -> GroupRenewal:
    """Change the containers of two pages at a time; the next page is listed meanwhile."""
    done, failed = 0, list[BrokerError]()

    async def change_some(ids: Sequence[uuid.UUID]) -> None:
        nonlocal done
        outcomes = await update_each(session, {each: change() for each in ids})
        for each, outcome in zip(ids, outcomes, strict=True):
            if isinstance(outcome, errors.DeletedError):
                continue
            if isinstance(outcome, tasks.EVERYTHING):
                raise outcome.fresh()
            if isinstance(outcome, BrokerError):
                error = outcome.fresh()
                error.containerId = each
                failed.append(error)
            else:
                done += 1
        if progress is not None:
            progress(done, None)

    pages = _pages(session, group_id, stale)
    await tasks.a_few_at_once(change_some(ids) async for ids in pages)
    return GroupRenewal(done, sorted(failed, key=lambda error: error.containerId or group_id))


async def _pages(
    session: Session, group_id: uuid.UUID, stale: bool
) -> AsyncIterator[list[uuid.UUID]]:
    """Yield the ids of the group's containers, as the broker lists them."""
    after: str | None = None
    while True:
        message = wire.ListRequest(after=after, limit=_AT_ONCE, via=str(group_id), stale=stale)
        answer = await session.call(
            "POST", "/v1/containers/list", wire.ContainerList, message=message
        )
        ids = [item.containerId for item in answer.containers]
        check_order(ids, after, answer.next, _AT_ONCE)
        if ids:
            yield [uuid.UUID(each) for each in ids]
        after = answer.next
        if after is None:
            return


async def leave(session: Session, group_id: uuid.UUID, *, abandon: bool) -> None:
    """Have the broker store a departure of the session's user.

    A departure that was sent may take effect as long as the leaf stands, also after a refusal.
    """
    sent_for = (
        0  # the version of the user's leaf from which a departure was sent; 0 if none was sent
    )

    async def attempt() -> None:
        nonlocal sent_for
        roll = await session.groups.roll(group_id)
        leaf = roll.members[session.fingerprint].version
        if sent_for != leaf:
            sent_for = 0  # a new leaf voids the departure that was sent
        _check_others(roll, abandon=abandon)
        key = await session.signing_key()
        departure = GroupDeparture(
            group=roll.name,
            version=leaf,
            fingerprint=session.fingerprint,
            keyIndex=key.index,
            # Readers refuse a departure that is dated before the leaf.
            time=max(now(), roll.chain.moments[leaf].time, key.introduced),
        )
        body = encode_object(departure)
        signature = session.keys.ring.signing[key.index].sign(DEPARTURE_LABEL, body)
        request = GroupDepartureRequest(
            departure=SignedObject.of(Signed(body, signature)),
            departures=len(roll.left),
            last=roll.chain.version,
        )
        # Noted first: the broker may store the departure and deny the membership, whatever it answers.
        session.groups.note_departure(group_id, leaf)
        before, sent_for = sent_for, leaf
        try:
            await session.send("POST", f"/v1/groups/{group_id}/departure", message=request)
        except errors.BrokerError as error:
            if error.outcome is WriteOutcome.NotStored:  # the request has not left this device
                sent_for = before
            if isinstance(error, errors.RejectedError):  # perhaps all others have left
                _check_others(await session.groups.roll(group_id), abandon=abandon)
            raise

    try:
        await until_signed(session, attempt)
    except errors.BrokerError as error:
        if sent_for:
            error.outcome, error.containerId = WriteOutcome.Uncertain, group_id
        raise


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


async def reset(session: Session, group_id: uuid.UUID, accept: Head | None) -> Heads:
    """Return the mark's head and the one that the broker serves; make the latter the mark if it is `accept`.

    The served history is verified as on a device without a mark; the pinned name stays.
    """
    mark = session.groups.mark_of(group_id)
    chain = await session.groups.served(group_id)
    served = Head(chain.version, chain.head.hash)
    heads = Heads(None if mark is None else mark.head, served)
    if accept is None:
        return heads
    if accept != served:
        raise ConflictError(
            f"The broker now serves version {served.version}, which is not the accepted head: call "
            "resetContainerMark without accept, and compare again."
        )
    settle(session, group_id, chain)
    if not session.groups.accept_head(group_id, chain, mark):
        raise ConflictError(
            "The group was read meanwhile: call resetContainerMark without accept, and compare again."
        )
    return heads


async def sent_changes(session: Session, group_id: uuid.UUID) -> list[SentChange]:
    """Read the group; return whether changes that were sent without confirmation took effect."""
    with contextlib.suppress(NotFoundError):
        settle(session, group_id, await session.groups.chain(group_id, fresh=True))
    mark = session.groups.mark_of(group_id)
    found = sending.entries(session, group_id.bytes)
    return sending.shown(found, 0 if mark is None else mark.version)


def group_of(opened: OpenGroup, dropped: Sequence[uuid.UUID] = ()) -> Group:
    """Return a group; `dropped` are the members whom the broker's word alone has removed."""
    chain = opened.chain
    newest = chain.in_force.record
    return Group(
        id=opened.group_id,
        fingerprint=show_fingerprint(chain.name),
        name=opened.info.name,
        description=opened.info.description,
        role=GroupRole(opened.role),
        isManager=opened.is_manager,
        isOwner=opened.is_owner,
        accepted=opened.accepted,
        memberCount=len(opened.members.keys() - opened.left),
        epoch=opened.epoch,
        version=chain.version,
        createdAt=moment(chain.moments[1].time),
        createdBy=user_id_of(chain.creator),
        modifiedAt=moment(newest.time),
        modifiedBy=user_id_of(newest.author),
        dropped=dropped,
    )
