"""Groups of the tests of rosters, as their members' devices have them."""

import uuid
from typing import Any

from scbroker import AccessLevel, ContainerAccessLevel, Group, GroupRole, MemberRole, ServerProvider
from tests.client.conftest import id_of
from tests.kit.waiting import PATIENCE

READER, WRITER, SHARER = GroupRole
OWNER = ContainerAccessLevel.DefaultOwnerPermissions


def team(owner: ServerProvider, *members: Any, **options: Any) -> Group:
    """A group of the owner with these members: users as writers, or MemberRoles."""
    given = [m if isinstance(m, MemberRole) else MemberRole(id_of(m)) for m in members]
    made: Group = owner.createGroup("Team", given, **options).result(PATIENCE)
    return made


def accepted(group: Group, *members: ServerProvider) -> Group:
    for member in members:
        member.acceptGroup(group).result(PATIENCE)
    return group


def shared(
    owner: ServerProvider, *groups: Group | uuid.UUID, content: bytes = b"content"
) -> uuid.UUID:
    """A container of the owner that the groups can do everything with."""
    levels = [AccessLevel(each, OWNER) for each in (id_of(owner), *groups)]
    return owner.createContainer(content, {"name": "x"}, levels, "box").result(PATIENCE).id


def roles(provider: ServerProvider, group: Group) -> dict[uuid.UUID, GroupRole]:
    members = provider.getGroupMembers(group).result(PATIENCE)
    return {member.userId: member.role for member in members}


def managers(provider: ServerProvider, group: Group) -> dict[uuid.UUID, bool]:
    """The managers, and whether each is an owner."""
    members = provider.getGroupMembers(group).result(PATIENCE)
    return {member.userId: member.isOwner for member in members if member.isManager}


def seen(provider: ServerProvider, group: Group) -> Group | None:
    """The group as this user's list has it."""
    for each in provider.getGroups().result(PATIENCE):
        assert isinstance(each, Group), each
        if each.id == group.id:
            return each
    return None
