"""A group that two managers change and write through while brokers die, as their acknowledged acts leave it.

Each manager adds and removes people of their own: every order of the acts leads to the same members.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from assurance.faults.scenes import Scene
from assurance.people import OWNER
from scbroker import AccessLevel, BrokerError, Group, GroupManager
from scbroker.keys import KeyRing
from tests.kit.waiting import PATIENCE

MANAGERS: Final = 2
_PEOPLE: Final = 3


@dataclass
class Part:
    """A manager, and what this manager alone changes in the group."""

    ring: KeyRing
    people: list[KeyRing]
    """Whom the manager adds and removes."""
    box: uuid.UUID
    """A container that the group alone has access to; the manager writes it."""
    members: set[uuid.UUID]
    """Those of the people who are members now, and the manager."""
    content: bytes = b"0"
    changes: int = 0
    """The number of acknowledged changes of members. Each is one record of the group."""


@dataclass(frozen=True)
class Team:
    """The group, with a part for each manager. Only its manager's thread changes a part."""

    scene: Scene
    group: Group
    parts: list[Part]

    @classmethod
    def of(cls, scene: Scene) -> Team:
        rings = [scene.first.new_user() for _ in range(MANAGERS)]
        devices = [scene.device(ring, "a manager") for ring in rings]
        managers = [GroupManager(ring.userId, owner=True) for ring in rings]
        group = devices[0].createGroup("Team", managers=managers).result(PATIENCE)
        parts = []
        for ring, device in zip(rings, devices, strict=True):
            device.acceptGroup(group).result(PATIENCE)
            made = device.createContainer(b"0", accessLevels=[AccessLevel(group, OWNER)])
            people = [scene.first.new_user() for _ in range(_PEOPLE)]
            parts.append(Part(ring, people, made.result(PATIENCE).id, {ring.userId}))
        return cls(scene, group, parts)

    @property
    def containers(self) -> set[bytes]:
        """The ids of the containers, also of the group's own."""
        return {self.group.id.bytes, *(part.box.bytes for part in self.parts)}

    @property
    def version(self) -> int:
        """The version to which all acknowledged changes have led."""
        return self.group.version + sum(part.changes for part in self.parts)

    def check(self) -> Iterator[str]:
        """Yield what fresh devices find otherwise than it was acknowledged, once nobody acts any more."""
        members = set[uuid.UUID]().union(*(part.members for part in self.parts))
        expected = {part.box: part.content for part in self.parts}
        for ring in [ring for part in self.parts for ring in (part.ring, *part.people)]:
            device = self.scene.device(ring, "a fresh device")
            groups = device.getGroups().result(PATIENCE)
            if ring.userId not in members:
                opened = device.getContainers([*expected]).result(PATIENCE)
                if groups or {*map(type, opened)} != {BrokerError.notFoundError}:
                    yield f"the group: {ring.userId} was removed, and gets {groups}, {opened}"
                continue
            device.acceptGroup(self.group).result(PATIENCE)
            seen = {each.userId for each in device.getGroupMembers(self.group).result(PATIENCE)}
            versions = [each.version for each in groups if isinstance(each, Group)]
            if (seen, versions) != (members, [self.version]):
                yield f"the group: {ring.userId} finds {versions}, {seen}, not {self.version}, {members}"
            found = {each: device.getContainerContent(each).result(PATIENCE) for each in expected}
            if found != expected:
                yield f"the group: {ring.userId} reads {found}, not {expected}"
