"""Measure groups: changes of members beside many containers, reading, lists and renewal through a group.

`filling` copies the containers beside which members are added and removed. A client writes all others.
"""

from __future__ import annotations

import itertools
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import floors
from benchmarks.batches import good
from benchmarks.filling import copy_container
from benchmarks.growth import flat
from benchmarks.result import Curve, Result, cost, in_turn, interleaved, rate, seconds_of
from benchmarks.small import CONTENT, HEADER, device
from scbroker import (
    AccessChange,
    AccessLevel,
    ContainerAccessLevel,
    Group,
    MemberRole,
    NewContainer,
    ServerProvider,
)
from scbroker.keys import KeyRing
from tests.kit.brokers import BrokerProcess

_PATIENCE: Final = 3600.0
_OWNER: Final = ContainerAccessLevel.DefaultOwnerPermissions
_WRITER: Final = ContainerAccessLevel.DefaultUserPermissions | ContainerAccessLevel.Upload
_WARM, _COLD = 1.3, 2.5
_TIMES: Final = 20
_EPOCHS: Final = 1_000_000
"""More than the broker takes by default in a day: each removal begins one."""


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run on SQLite."""
    members = 100 if quick else 1000
    rounds = 5 if quick else 15
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(folder / "groups", max_new_epochs=_EPOCHS))
        stage = Stage(broker, members)
        read = reading(stage, rounds)
        lists = listing(stage, 1000 if quick else 10_000, 3)
        renewals = renewing(stage, 128 if quick else 1024, 3)
        judged = judging(stage, 100 if quick else 1000, 3)
        broker.stop()
        return [
            *changing(stage, folder, [1, 100, 1000] if quick else [1, 1000, 100_000], rounds),
            *read,
            *lists,
            renewals,
            judged,
        ]


class Stage:
    """An owner, a member and an outsider at a broker, and as many users as the groups have members."""

    def __init__(self, broker: BrokerProcess, members: int) -> None:
        self.broker = broker
        self.owner, self.member, self.newcomer = (broker.new_user() for _ in range(3))
        self.others = [broker.new_user().userId for _ in range(members - 2)]

    def group(
        self, owner: ServerProvider, members: int, *more: ServerProvider, is_managed: bool = False
    ) -> Group:
        """Return a group of the owner, the member, and others; `more` are devices of users who accept it.

        With `is_managed`, the member is a manager.
        """
        users = [self.member.userId, *self.others][: members - 1]
        roles = [MemberRole(each, "Sharer") for each in users]
        group = owner.createGroup("Team", roles, managers=users[:1] if is_managed else None)
        made = group.result(_PATIENCE)
        for each in more:
            each.acceptGroup(made).result(_PATIENCE)
        return made

    @property
    def size(self) -> int:
        return len(self.others) + 2


def changing(stage: Stage, folder: Path, counts: Sequence[int], rounds: int) -> list[Result]:
    """Measure adding and removing one member beside these numbers of the group's containers.

    Each number has a broker of its own, with a copy of the stage's users.
    """
    with ExitStack() as stack:
        adds, removes = list[Callable[[], float]](), list[Callable[[], float]]()
        for count in counts:
            place = folder / f"beside {count}"
            shutil.copytree(stage.broker.directory, place)
            broker = stack.enter_context(
                BrokerProcess(place, api_key=stage.broker.api_key, max_new_epochs=_EPOCHS)
            )
            owner = device(broker, stack, stage.owner)
            group = stage.group(owner, stage.size)
            real = owner.createContainer(CONTENT, HEADER, _levels(stage.owner, group))
            container = real.result(_PATIENCE).id
            if count > 1:
                broker.stop()
                copy_container(place / "broker.sqlite", container, count - 1)
                broker.start()
                owner = device(broker, stack, stage.owner)
            act, user = partial(_timed, owner, group), stage.newcomer.userId
            adds.append(partial(act, "addGroupMembers", user))
            removes.append(partial(act, "removeGroupMembers", user))
            for measure in (adds[-1], removes[-1]):
                measure()
        # In each round everybody adds, and then everybody removes.
        seconds = in_turn([*adds, *removes], rounds)
    axis, floor_is = "containers of the group", f"beside {counts[0]:,}"
    return [
        flat(
            f"{name}, one of {stage.size:,} members beside {counts[-1]:,} containers", found, counts,
            floor_is, ("Changing a group", axis, line),
        )
        for name, line, found in (
            ("addGroupMembers", "adding a member", seconds[: len(counts)]),
            ("removeGroupMembers", "removing a member", seconds[len(counts) :]),
        )
    ]  # fmt: skip


def _timed(owner: ServerProvider, group: Group, operation: str, user: uuid.UUID) -> float:
    act = getattr(owner, operation)
    return seconds_of(lambda: act(group, user).result(_PATIENCE))


class _Case(NamedTuple):
    """A group through which the member reads a container."""

    members: int
    is_author: bool = False
    """Whether the member has written the container through the group."""
    is_manager: bool = False

    def __str__(self) -> str:
        who = " by a manager" if self.is_manager else ""
        written = ", written through it" if self.is_author else ""
        return f"getContainer{who} through a group of {self.members:,}{written}"


def reading(stage: Stage, rounds: int) -> list[Result]:
    """Measure getContainer through groups of few and of many members, beside an entry of one's own."""
    found, size = list[Result](), stage.size
    warm, cold = list[tuple[float, float]](), list[tuple[float, float]]()
    cases = [_Case(each) for each in sorted({10, 100, size})]
    cases += [_Case(size, is_author=True), _Case(size, is_manager=True)]
    with ExitStack() as stack:
        owner, member = (device(stage.broker, stack, each) for each in (stage.owner, stage.member))
        for case in cases:
            group = stage.group(owner, case.members, member, is_managed=case.is_manager)
            lists = [_levels(stage.owner, each) for each in (group, stage.member.userId)]
            through, direct = _create(owner, lists)
            for container in (through, direct):
                author = member if case.is_author else owner
                author.updateContainerContent(container, CONTENT).result(_PATIENCE)
            for line, points, at_most, (seconds, floor) in (
                ("read before", warm, _WARM, _warm(member, through, direct)),
                ("not read before", cold, _COLD, _cold(stage, through, direct, rounds)),
            ):
                curve = None
                if case == _Case(case.members):
                    points.append((case.members, seconds * 1000))
                    curve = Curve("Reading through a group", "members", line, points)
                found.append(
                    cost(
                        f"{case}, {line}", seconds, floor, "by an own entry", at_most,
                        curve if case == _Case(size) else None,
                    )
                )  # fmt: skip
    return found


def _warm(member: ServerProvider, through: uuid.UUID, direct: uuid.UUID) -> list[float]:
    def get(container: uuid.UUID) -> None:
        member.getContainer(container).result(_PATIENCE)

    return interleaved([partial(get, through), partial(get, direct)], _TIMES)


def _cold(stage: Stage, through: uuid.UUID, direct: uuid.UUID, rounds: int) -> list[float]:
    """Measure on devices that have read neither the container nor the group."""

    def first(container: uuid.UUID) -> float:
        with ExitStack() as own:
            reader = device(stage.broker, own, stage.member)
            return seconds_of(lambda: reader.getContainer(container).result(_PATIENCE))

    return in_turn([partial(first, through), partial(first, direct)], rounds)


def judging(stage: Stage, changes: int, rounds: int) -> Result:
    """Measure how fast a device that knows nothing of a group judges its history."""
    with ExitStack() as stack:
        owner = device(stage.broker, stack, stage.owner)
        group = stage.group(owner, 2)
        for number in range(changes):
            owner.renameGroup(group, f"Team {number}").result(_PATIENCE)

        def first() -> float:
            with ExitStack() as own:
                reader = device(stage.broker, own, stage.member)
                return seconds_of(lambda: reader.getGroupMembers(group).result(_PATIENCE))

        verify = floors.verifying()
        seconds, floor = in_turn([first, partial(_several, verify, changes)], rounds)
    return rate(
        f"getGroupMembers, not read before, after {changes:,} changes", changes / seconds, "records/s",
        changes / floor, "verifying their signatures on one thread",
    )  # fmt: skip


def _several(once: Callable[[], object], count: int) -> float:
    return seconds_of(lambda: [once() for _ in range(count)])


def listing(stage: Stage, count: int, rounds: int) -> list[Result]:
    """Measure going through a group's containers, beside as many of one's own with as many entries."""
    with ExitStack() as stack:
        owner = device(stage.broker, stack, stage.owner)
        readers = []
        for kind in ("own", "group"):
            ring = stage.broker.new_user()
            levels = [*_levels(stage.owner), AccessLevel(ring.userId)]
            if kind == "group":
                group = owner.createGroup("Listed", [ring.userId]).result(_PATIENCE)
                device(stage.broker, stack, ring).acceptGroup(group).result(_PATIENCE)
                levels = _levels(stage.owner, group)
            _create(owner, [levels] * count)
            readers.append(ring)

        def fresh(ring: KeyRing) -> float:
            with ExitStack() as own:
                return _listed(device(stage.broker, own, ring), count)

        known = [device(stage.broker, stack, ring) for ring in readers]
        for each in known:
            _listed(each, count)
        warm = [partial(_listed, each, count) for each in known]
        measured = in_turn([*(partial(fresh, ring) for ring in readers), *warm], rounds)
    names = ("fresh device", "device with marks")
    return [
        rate(
            f"iterContainers, {count:,} of a group, {name}", count / through, "/s", count / direct,
            "as many by an own entry", ratio_at_least=1 / _WARM,
        )
        for name, direct, through in zip(names, measured[::2], measured[1::2], strict=True)
    ]  # fmt: skip


def _listed(reader: ServerProvider, count: int) -> float:
    found = []
    seconds = seconds_of(lambda: found.append(sum(1 for _ in reader.iterContainers())))
    assert found == [count]
    return seconds


def renewing(stage: Stage, count: int, rounds: int) -> Result:
    """Measure renewGroup, beside changes of access of as many containers by batches."""
    with ExitStack() as stack:
        owner = device(stage.broker, stack, stage.owner)
        group = stage.group(owner, stage.size)
        renewed = _create(owner, [_levels(stage.owner, group)] * count)
        changed = _create(
            owner, [[*_levels(stage.owner), AccessLevel(stage.member.userId)]] * count
        )
        levels = itertools.cycle([_WRITER, _OWNER])

        def renew() -> float:
            owner.removeGroupMembers(group, stage.others[0]).result(_PATIENCE)
            found: list[Any] = []
            seconds = seconds_of(lambda: found.append(owner.renewGroup(group).result(_PATIENCE)))
            assert (found[0].renewed, found[0].failed) == (len(renewed), [])
            owner.addGroupMembers(group, stage.others[0]).result(_PATIENCE)
            return seconds

        def change() -> float:
            access = [*_levels(stage.owner), AccessLevel(stage.member.userId, next(levels))]
            changes = [AccessChange(each, replace=access) for each in changed]
            return seconds_of(
                lambda: good(owner.updateContainersAccessLevels(changes).result(_PATIENCE))
            )

        renewal, floor = in_turn([renew, change], rounds)
    return rate(
        f"renewGroup of {stage.size:,} members, {count:,} containers", count / renewal, "/s", count / floor,
        "updateContainersAccessLevels, 2 entries", ratio_at_least=1 / _WARM,
    )  # fmt: skip


def _levels(owner: KeyRing, *more: Any) -> list[AccessLevel]:
    """Return a list with its owner, and with groups or users who may do everything."""
    return [AccessLevel(owner.userId, _OWNER), *(AccessLevel(each, _OWNER) for each in more)]


def _create(owner: ServerProvider, lists: Sequence[list[AccessLevel]]) -> list[uuid.UUID]:
    """Create a container with each of these lists."""
    made = list[uuid.UUID]()
    new: Iterator[NewContainer] = (NewContainer(CONTENT, HEADER, levels) for levels in lists)
    while some := list(itertools.islice(new, 512)):
        made += [each.id for each in good(owner.createContainers(some).result(_PATIENCE))]
    return made
