"""Operations on groups that are interrupted, and what users must find afterwards.

    scene, act = Scene(broker, new_provider), ACTS["remove"]
    promise = start(scene.manager, act, scene)          # and then the broker is killed
    was_done = act.is_done(scene)
    promise.result(PATIENCE)
    act.ends(scene, was_done)

All users that look on have seen nothing before, so that no mark of theirs hides half of a change.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    Container,
    Group,
    GroupManager,
    NewContainer,
    Promise,
    SecuredContainer,
    ServerProvider,
)
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.waiting import PATIENCE

OWNER: Final = 511
NAME: Final = "the manager"
CONTENTS: Final = [b"0", b"1", b"2"]


class State(NamedTuple):
    """A group as one of its members reads it."""

    members: frozenset[uuid.UUID]
    managers: frozenset[uuid.UUID]
    epoch: int
    version: int


class Seen(NamedTuple):
    """What a user finds with a device that has seen nothing before."""

    groups: list[State]
    versions: list[int]
    """Those of the containers, which have their contents; of all of them, or of none."""


class Scene:
    """A group of alice, bob and carol with three containers, and dora, who is not a member."""

    def __init__(self, broker: BrokerProcess, new_provider: NewProvider) -> None:
        self._new_provider, self.broker = new_provider, broker
        self.rings = {name: broker.new_user() for name in ("alice", "bob", "carol", "dora")}
        self.alice, self.bob, self.carol, self.dora = (r.userId for r in self.rings.values())
        self.manager = self.device("alice", NAME)
        others = [self.device(name) for name in ("bob", "carol")]
        made = self.manager.createGroup("Team", [self.bob, self.carol]).result(PATIENCE)
        self.group: Group = made
        for each in others:
            each.acceptGroup(made).result(PATIENCE)
        levels = [AccessLevel(self.alice, OWNER), AccessLevel(self.group, OWNER)]
        new = [NewContainer(content, None, levels) for content in CONTENTS]
        boxes = self.manager.createContainers(new).result(PATIENCE)
        self.boxes = [each.id for each in boxes if isinstance(each, SecuredContainer)]
        members = frozenset([self.alice, self.bob, self.carol])
        self.before = State(members, frozenset([self.alice]), 0, 1)

    def device(self, name: str, application: str = "another device") -> ServerProvider:
        """Return a device of a user that has seen nothing."""
        return self._new_provider(self.rings[name], at=self.broker, applicationName=application)

    def look(self, *names: str) -> list[Seen]:
        """Return what each of these users finds."""
        return [self._seen(self.device(name)) for name in names]

    def _seen(self, device: ServerProvider) -> Seen:
        states = list[State]()
        for group in device.getGroups().result(PATIENCE):
            assert isinstance(group, Group), group
            members = device.getGroupMembers(group).result(PATIENCE)
            named = frozenset(each.userId for each in members)
            managers = frozenset(each.userId for each in members if each.isManager)
            states.append(State(named, managers, group.epoch, group.version))
        read = device.getContainers(self.boxes).result(PATIENCE)
        found = [each for each in read if isinstance(each, Container)]
        if not found:
            assert {type(each) for each in read} == {BrokerError.notFoundError}
        assert [each.content for each in found] in ([], CONTENTS)
        return Seen(states, [each.version for each in found])


class Act(NamedTuple):
    """An operation of alice's."""

    call: Callable[[Scene], tuple[Any, ...]]
    """Its name and arguments."""
    is_done: Callable[[Scene], bool]
    """Whether it is done; fails if users see anything but the group before or after it."""
    more: Mapping[str, Any] = {}
    check_end: Callable[[Scene, bool], object] | None = None

    def ends(self, scene: Scene, was_done: bool) -> None:
        """Check the end, after a call that came to its end; `was_done` says whether one before was done."""
        if self.check_end is None:
            assert self.is_done(scene)
        else:
            self.check_end(scene, was_done)


def created(scene: Scene) -> bool:
    bob, carol = scene.look("bob", "carol")
    assert bob == carol
    assert set(bob.groups) == {scene.before}
    return len(bob.groups) > 1


def created_once_by_each_call(scene: Scene, was_done: bool) -> None:
    [bob] = scene.look("bob")
    assert bob.groups == [scene.before] * (3 if was_done else 2)


def added(scene: Scene) -> bool:
    bob, carol, dora = scene.look("bob", "carol", "dora")
    assert bob == carol
    assert bob.versions == [1, 1, 1]
    if bob.groups == [scene.before]:
        assert dora.groups == []
        return False
    after = scene.before._replace(members=scene.before.members | {scene.dora}, version=2)
    assert bob.groups == dora.groups == [after]
    return True


def removed(scene: Scene, versions: Collection[int] = (1,)) -> bool:
    bob, carol = scene.look("bob", "carol")
    assert {*bob.versions} <= {*versions}
    if bob.groups == [scene.before]:
        assert bob == carol == Seen([scene.before], [1, 1, 1])
        return False
    stay = scene.before.members - {scene.carol}
    assert bob.groups == [scene.before._replace(members=stay, epoch=1, version=2)]
    assert carol == Seen([], [])
    return True


def renewed_once(scene: Scene, was_done: bool) -> None:
    del was_done
    assert removed(scene, versions=[2])


def managers_set(scene: Scene) -> bool:
    bob, carol = scene.look("bob", "carol")
    assert bob == carol
    assert bob.versions == [1, 1, 1]
    if bob.groups == [scene.before]:
        return False
    managers = scene.before.managers | {scene.bob}
    assert bob.groups == [scene.before._replace(managers=managers, version=2)]
    return True


def left(scene: Scene) -> bool:
    """The group's records stay as they are: the departure is beside them."""
    alice, bob, carol = scene.look("alice", "bob", "carol")
    assert bob == carol
    assert alice.versions == bob.versions == [1, 1, 1]
    if alice.groups:
        assert alice.groups == bob.groups == [scene.before]
        return False
    stay = scene.before.members - {scene.alice}
    assert bob.groups == [scene.before._replace(members=stay, managers=frozenset())]
    return True


def deleted(scene: Scene) -> bool:
    """Between its two records, alice alone is a member."""
    alice, bob, carol = scene.look("alice", "bob", "carol")
    assert bob == carol
    assert alice.versions == [1, 1, 1]
    if bob.groups:
        assert alice == bob == Seen([scene.before], [1, 1, 1])
        return False
    assert bob == Seen([], [])
    alone = frozenset([scene.alice])
    assert alice.groups in ([], [State(alone, alone, 1, 2)])
    return not alice.groups


ACTS: Final = {
    "create": Act(
        lambda s: ("createGroup", "Team", [s.bob, s.carol]), created, {}, created_once_by_each_call
    ),
    "add": Act(lambda s: ("addGroupMembers", s.group.id, s.dora), added),
    "remove": Act(lambda s: ("removeGroupMembers", s.group.id, s.carol), removed),
    "remove and renew": Act(
        lambda s: ("removeGroupMembers", s.group.id, s.carol), partial(removed, versions=(1, 2)),
        {"renew": True}, renewed_once,
    ),
    "set managers": Act(
        lambda s: (
            "setGroupManagers", s.group.id, [GroupManager(s.alice, owner=True), GroupManager(s.bob)]
        ),
        managers_set,
    ),
    "leave": Act(lambda s: ("leaveGroup", s.group.id), left, {"abandon": True}),
    "delete": Act(lambda s: ("deleteGroup", s.group.id), deleted),
}  # fmt: skip
each_act = pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)


def start(provider: ServerProvider, act: Act, scene: Scene) -> Promise[Any]:
    operation, *arguments = act.call(scene)
    promise: Promise[Any] = getattr(provider, operation)(*arguments, **act.more)
    return promise


def repeat(provider: ServerProvider, act: Act, scene: Scene) -> None:
    """Make the same call again. A group that was deleted or left already is not found any more."""
    try:
        start(provider, act, scene).result(PATIENCE)
    except (BrokerError.deletedError, BrokerError.notFoundError):
        assert act in (ACTS["delete"], ACTS["leave"])
