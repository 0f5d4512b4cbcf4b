"""The operations of groups, as a provider offers them. Spec: docs/spec/groups.md, 8 to 10."""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Iterator, Sequence

from scbroker import errors
from scbroker.client.calls import tasks
from scbroker.client.parts.content import Progress
from scbroker.client.rosters import leaving, renewing, showing, writing
from scbroker.client.rosters.intents import Intents, Wish
from scbroker.client.users.session import Session
from scbroker.errors import BrokerError, WriteOutcome
from scbroker.records import roster
from scbroker.records.canonical import parse_fingerprint
from scbroker.spelling import check_new
from scbroker.types import Group, GroupMember, GroupRenewal
from scbroker.vocabulary import GroupManager, GroupRole, MemberRole


def checked_creation(
    session: Session,
    name: str,
    members: Sequence[MemberRole],
    description: str,
    managers: Sequence[GroupManager],
) -> Intents:
    """Return what creates a group with the session's user as an owner."""
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
    """Return what replaces the list of managers, of whom one has to be an owner."""
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
    return showing.group_of(await writing.create(session, intents))


async def change(session: Session, group_id: uuid.UUID, intents: Intents) -> Group:
    return showing.group_of(*await writing.change(session, group_id, intents))


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
            shown.append(showing.group_of(outcome))
    return shown


async def members(session: Session, group_id: uuid.UUID) -> list[GroupMember]:
    return showing.members_of(await session.groups.opened(group_id, fresh=True))


async def accept(session: Session, group_id: uuid.UUID) -> Group:
    return showing.group_of(await leaving.accept(session, group_id))


async def decline(session: Session, group_id: uuid.UUID) -> None:
    roll = await session.groups.roll(group_id)
    if roll.accepted:
        raise errors.InvalidArgumentError("You have accepted this group: leave it with leaveGroup.")
    await leaving.leave(session, group_id, abandon=True)


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
        return dataclasses.replace(group, renewal=await renewing.renew(session, group_id, progress))


async def renew(
    session: Session, group_id: uuid.UUID, new_key: bool, progress: Progress | None
) -> GroupRenewal:
    if not new_key:
        return await renewing.renew(session, group_id, progress)
    await writing.change(session, group_id, Intents(new_epoch=True))
    with _is_stored(group_id):
        return await renewing.renew(session, group_id, progress)


@contextlib.contextmanager
def _is_stored(group_id: uuid.UUID) -> Iterator[None]:
    """Note in an error of the renewal that the broker has stored the change of the group."""
    try:
        yield
    except BrokerError as error:
        error.outcome, error.containerId = WriteOutcome.Stored, group_id
        raise


async def raise_owed(session: Session, group_id: uuid.UUID) -> None:
    """Begin the epoch that a group owes, if the session's user manages it (3.5)."""
    await writing.change(session, group_id, Intents())


def _roles(given: Sequence[MemberRole], name: str) -> dict[uuid.UUID, Wish]:
    return _each_once(
        [(each.userId, Wish(each.role, _raw(each.fingerprint))) for each in given], name
    )


def _managers(given: Sequence[GroupManager]) -> dict[uuid.UUID, Wish]:
    wishes = [
        (each.userId, Wish(roster.OWNER if each.owner else roster.MANAGER, _raw(each.fingerprint)))
        for each in given
    ]
    return _each_once(wishes, "managers")


def _each_once(wishes: Sequence[tuple[uuid.UUID, Wish]], name: str) -> dict[uuid.UUID, Wish]:
    found: dict[uuid.UUID, Wish] = {}
    for user, wish in wishes:
        if user in found:
            raise errors.InvalidArgumentError(
                f"{name} names user {user} twice: name each user once."
            )
        found[user] = wish
    return found


def _raw(fingerprint: str | None) -> bytes | None:
    return None if fingerprint is None else parse_fingerprint(fingerprint)
