"""Show groups and their members to the caller."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from scbroker.client.arguments import moment
from scbroker.client.groups.opening import OpenGroup
from scbroker.records.canonical import show_fingerprint, user_id_of
from scbroker.types import Group, GroupMember
from scbroker.vocabulary import GroupRole


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


def members_of(opened: OpenGroup) -> list[GroupMember]:
    """Return the members by fingerprint, without users who have left."""
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
