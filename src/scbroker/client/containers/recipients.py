"""Find the keys of users and groups that container keys are wrapped to, and notice outdated ones.

An id does not say whether it is a user's or a group's: the chain that the broker serves for it proves it. The
broker also names the groups of a list; that is only a hint, which saves a request that would fail.
Spec: docs/spec/container.md, 7 and 9; docs/spec/groups.md, 1, 5 and 7.
"""

import contextlib
import logging
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from scbroker.client.core.sealing import Recipient, recipient_of
from scbroker.client.users.session import Session
from scbroker.errors import IntegrityError, NotFoundError, PermissionDeniedError
from scbroker.records.canonical import MAX_UINT, uuid8
from scbroker.records.container_record import AccessList, Entry
from scbroker.records.judge import Grant
from scbroker.wire.containers import ContainerView
from scbroker.wire.rosters import GroupState

_log = logging.getLogger("scbroker")


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
    except NotFoundError:  # a request for users' keys fails if it names a group
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
            raise NotFoundError(
                f"{kind.capitalize()} {each} was deleted: remove the {kind} from accessLevels."
            )


async def is_outdated(session: Session, access: AccessList, view: ContainerView) -> bool:
    """Return whether some wrap of a list is for a key or an epoch that has been replaced (rule 5).

    The view names users and groups that have newer ones. What this session knows of users counts as well, and
    what this device knows of groups. If a group that the session's user manages owes an epoch, it is raised
    first (groups.md, 3.5).
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
            with contextlib.suppress(NotFoundError, PermissionDeniedError):  # not a manager now
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
        entry.wrapHash is not None and entry.keyIndex < (_epoch_of(session, entry) or 0)
        for entry in access.entries.values()
    )


async def check_indices(session: Session, access: AccessList) -> None:
    """Raise `IntegrityError` if a list names a key or an epoch that does not exist, as far as it is known."""
    await session.directory.check_key_indices(access)
    ahead = [entry for entry in access.entries.values() if _is_ahead(session, entry)]
    if not ahead:
        return
    with groups_exist():
        await session.groups.chains({uuid8(entry.fingerprint): MAX_UINT for entry in ahead})
    for entry in ahead:
        if _is_ahead(session, entry):
            raise IntegrityError(
                f"An access list names epoch {entry.keyIndex} of group {uuid8(entry.fingerprint)}, which "
                "does not exist: have a member with ModifyAccess, who does not act for this group, set the "
                "access levels again."
            )


def _is_ahead(session: Session, entry: Entry) -> bool:
    """Return whether an entry names an epoch after the latest one of a group that this device knows."""
    epoch = _epoch_of(session, entry, whole=True) if entry.keyIndex else None
    return epoch is not None and entry.keyIndex > epoch


def _epoch_of(session: Session, entry: Entry, *, whole: bool = False) -> int | None:
    """Return the latest epoch of the group of an entry, as this device knows it; None for a user.

    It is known from the device's pin, even if this program has not read the group yet. With
    `whole`, None also for a group of which this device may know an old epoch only.
    """
    if session.directory.knows(uuid8(entry.fingerprint)):
        return None
    return session.groups.epoch_of(entry.fingerprint, whole=whole)


@contextlib.contextmanager
def groups_exist() -> Iterator[None]:
    """Raise `IntegrityError` if the broker does not know a group of a container that it served."""
    try:
        yield
    except NotFoundError:
        raise IntegrityError(
            "The broker does not know a group of a container that it served: it contradicts itself."
        ) from None


async def meet_groups(session: Session, named: Collection[str]) -> None:
    """Verify the names of groups that the broker names in lists, so that they can be shown as groups.

    A name whose group cannot be verified is shown as that of a user, and nothing is wrapped to it.
    """
    unknown = [each for each in map(uuid.UUID, named) if session.groups.known(each) is None]
    if unknown:
        for error in await session.groups.meet(unknown):
            _log.warning("A group of a list is refused: %s", error)


def _is_pinned(session: Session, holder: uuid.UUID) -> bool:
    """Return whether this device has pinned a group of this id. Skips the lookup for known users."""
    return not session.directory.knows(holder) and session.groups.known(holder) is not None
