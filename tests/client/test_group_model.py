"""Groups and the containers that they reach, changed by several devices, compared with the model.

Operations run alone or two at once, are cut off in the middle, or continue after their broker was killed.
Each step is drawn before the result of the last one is known: see `test_model`.

    make test TESTS="tests/client/test_group_model.py --long --hypothesis-profile=thorough"     for longer
"""

import functools
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from threading import Barrier
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from scbroker import (
    AccessLevel,
    BrokerError,
    Container,
    Group,
    GroupManager,
    GroupRole,
    MemberRole,
    MemoryTrustStore,
    Promise,
    ServerProvider,
    WriteOutcome,
)
from tests.client.group_model import (
    ALLOWED,
    GONE,
    OWNER,
    READER,
    WRITER,
    Box,
    Change,
    Kind,
    Level,
    Refusals,
    Team,
)
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess
from tests.kit.devices import Outcome, outcome
from tests.kit.fixtures import StartBroker
from tests.kit.stops import Step, Stops
from tests.kit.waiting import PATIENCE

USERS: Final = 5
DEVICES_EACH: Final = 2
MOST_TEAMS, MOST_BOXES = 3, 4
TOLD: Final = 40
EVERYDAY: Final = settings(
    max_examples=4,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=set(Phase) - {Phase.shrink, Phase.explain},
)
COSTLY: Final = 1
"""How often in an example a broker ends."""
INDICES: Final = st.integers(0, 7)
PEOPLE: Final = st.integers(0, USERS - 1)
DEVICES: Final = st.integers(0, USERS * DEVICES_EACH - 1)
ROLES: Final = st.sampled_from(list(GroupRole))
LEVELS: Final = st.sampled_from([OWNER, WRITER, READER])
OFTEN: Final[list[Kind]] = ["add", "remove", "role", "rename", "accept"]
SELDOM: Final[list[Kind]] = ["managers", "renew", "delete", "decline", "leave"]


@dataclass(frozen=True)
class Wish:
    """A change that a device is to make to a group, drawn without regard to the group's state."""

    device: int
    change: Change
    able: bool
    """Whether, if the model refuses this device, the next one does it that the model allows."""


MANAGERS: Final = st.dictionaries(PEOPLE, st.booleans(), min_size=1, max_size=3)
CHANGES: Final = st.builds(
    Change,
    kind=st.sampled_from(3 * OFTEN + SELDOM),
    user=PEOPLE,
    role=ROLES,
    managers=MANAGERS,
    name=st.sampled_from(["Red", "Blue", "Green"]),
    abandon=st.booleans(),
)
WISHES: Final = st.builds(
    Wish, device=DEVICES, change=CHANGES, able=st.sampled_from([True, True, False])
)


def kept_until_the_end(step: Callable[..., None]) -> Callable[..., None]:
    """Run no further step after a failure; Hypothesis still draws all of them."""

    @functools.wraps(step)
    def run(self: "Teams", **drawn: Any) -> None:
        if self.failure is not None:
            return
        try:
            step(self, **drawn)
        except Exception as error:
            self.failure = error

    return run


def fits(found: Outcome, refusals: Refusals) -> bool:
    """Return whether an operation ended as the model says."""
    if not refusals:
        return found.error is None
    return isinstance(found.error, refusals)


def said(found: Outcome) -> str:
    return "done" if found.error is None else f"{type(found.error).__name__}: {found.error}"


class Teams(RuleBasedStateMachine):
    """Users with two devices each, their groups and containers."""

    def __init__(self, broker: BrokerProcess, costly: int) -> None:
        super().__init__()
        self.broker, self.costly = broker, costly
        self.rings = [broker.new_user() for _ in range(USERS)]
        self.users = {ring.userId: number for number, ring in enumerate(self.rings)}
        self.teams: dict[int, Team] = {}
        self.ids: dict[int, UUID] = {}
        self.boxes: dict[UUID, Box] = {}
        self.acted: dict[UUID, set[tuple[int, int, GroupRole]]] = {}
        """Who wrote into a container through which group, and with which role."""
        self.numbers = itertools.count(1)
        self.story: list[str] = []
        self.failure: Exception | None = None
        self._stack = ExitStack()
        self._devices: dict[int, ServerProvider] = {}

    # Steps

    @initialize(owner=PEOPLE, members=st.dictionaries(PEOPLE, ROLES, min_size=2), level=LEVELS)
    @kept_until_the_end
    def there_is_a_group_with_a_container(
        self, owner: int, members: dict[int, GroupRole], level: Level
    ) -> None:
        self._create(owner * DEVICES_EACH, members, {})
        for user in members:
            self._one(user * DEVICES_EACH, 0, Change("accept"))
        self._fill(owner * DEVICES_EACH, {0: level})

    @rule(device=DEVICES, members=st.dictionaries(PEOPLE, ROLES), managers=MANAGERS)
    @kept_until_the_end
    def a_group_is_as_it_was_created(
        self, device: int, members: dict[int, GroupRole], managers: dict[int, bool]
    ) -> None:
        if len(self.teams) < MOST_TEAMS:
            self._create(device, members, managers)

    @rule(device=DEVICES, levels=st.dictionaries(INDICES, LEVELS, min_size=1, max_size=2))
    @kept_until_the_end
    def a_container_names_groups_as_it_names_users(
        self, device: int, levels: dict[int, Level]
    ) -> None:
        chosen = {self._team(number): level for number, level in levels.items()}
        if len(self.boxes) < MOST_BOXES:
            self._fill(device, {n: lv for n, lv in chosen.items() if not self.teams[n].deleted})

    @rule(wish=WISHES, team=INDICES)
    @kept_until_the_end
    def a_change_of_a_group_ends_exactly_as_the_model_says(self, wish: Wish, team: int) -> None:
        number = self._team(team)
        self._one(self._device(wish, self.teams[number]), number, wish.change)

    @rule(first=WISHES, second=WISHES, team=INDICES)
    @kept_until_the_end
    def two_changes_at_once_are_as_if_one_came_after_the_other(
        self, first: Wish, second: Wish, team: int
    ) -> None:
        number = self._team(team)
        one, other = (self._device(wish, self.teams[number]) for wish in (first, second))
        if one == other:
            other = (other + 1) % (USERS * DEVICES_EACH)
        self._two(number, (one, first.change), (other, second.change))

    @rule(wish=WISHES, team=INDICES, number=st.integers(1, 4), answered=st.booleans())
    @kept_until_the_end
    def a_change_that_is_cut_off_has_happened_as_a_whole_or_not_at_all(
        self, wish: Wish, team: int, number: int, answered: bool
    ) -> None:
        chosen = self._team(team)
        self._cut(
            self._device(wish, self.teams[chosen]), chosen, wish.change, Step(number, answered)
        )

    @rule(wish=WISHES, team=INDICES, number=st.integers(1, 2), answered=st.booleans())
    @kept_until_the_end
    def a_change_happens_once_although_the_broker_ends(
        self, wish: Wish, team: int, number: int, answered: bool
    ) -> None:
        self.costly -= 1
        if self.costly < 0:
            return
        chosen = self._team(team)
        device = self._device(wish, self.teams[chosen])

        async def end() -> None:
            self.broker.kill()
            self.broker.start()

        with Stops(self._name(device), Step(number, answered), end):
            self._one(device, chosen, wish.change)

    @rule(device=DEVICES, box=INDICES)
    @kept_until_the_end
    def whoever_reads_gets_the_newest_content_as_far_as_they_may(
        self, device: int, box: int
    ) -> None:
        self._read(device, self._box(box))

    @rule(device=DEVICES, box=INDICES)
    @kept_until_the_end
    def whoever_may_write_writes_by_their_own_entry_or_through_a_group(
        self, device: int, box: int
    ) -> None:
        self._write(device, self._box(box))

    @rule(box=INDICES, team=INDICES, level=st.sampled_from([OWNER, WRITER, READER, None]))
    @kept_until_the_end
    def a_group_is_granted_access_and_loses_it(
        self, box: int, team: int, level: Level | None
    ) -> None:
        self._grant(self._box(box), self._team(team), level)

    @rule(box=INDICES, user=PEOPLE, level=st.sampled_from([WRITER, READER, None]))
    @kept_until_the_end
    def a_user_is_granted_access_beside_that_of_a_group(
        self, box: int, user: int, level: Level | None
    ) -> None:
        self._share(self._box(box), user, level)

    @rule(device=DEVICES)
    @kept_until_the_end
    def the_lists_have_exactly_what_a_user_reaches(self, device: int) -> None:
        self._check_lists(device // DEVICES_EACH, self._at(device))

    @rule(device=DEVICES, seldom=st.integers(0, 3))
    @kept_until_the_end
    def a_user_may_go_on_with_a_device_that_has_seen_nothing(
        self, device: int, seldom: int
    ) -> None:
        if seldom == 3:
            self._note(f"device {device} is replaced")
            self._devices.pop(device, None)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                if self.failure is not None:
                    raise self.failure
                self._everybody_agrees()
        except Exception as error:
            error.add_note("\n".join(self.story[-TOLD:]))
            raise
        finally:
            self._stack.close()

    def _everybody_agrees(self) -> None:
        """Compare what all devices read with the model: devices in use, and fresh ones."""
        self._note("everybody reads everything")
        for user in range(USERS):
            known = [self._devices[n] for n in self._devices if n // DEVICES_EACH == user]
            for device in [self._log_in(user, "fresh"), *known]:
                self._check_lists(user, device)

    # What is done, and what has to come of it

    def _create(
        self, device: int, members: Mapping[int, GroupRole], managers: Mapping[int, bool]
    ) -> None:
        owner, number = device // DEVICES_EACH, len(self.teams)
        listed = {**managers, owner: True}
        roles = {**dict.fromkeys(listed, GroupRole.Writer), owner: GroupRole.Sharer, **members}
        self.teams[number] = Team("Red", roles, listed, frozenset([owner]))
        given = [MemberRole(self._id(user), role) for user, role in members.items()]
        promise = self._at(device).createGroup("Red", given, managers=self._managers(managers))
        self._note(f"device {device} creates group {number}: {self.teams[number]}")
        made = promise.result(PATIENCE)
        self.ids[number] = made.id
        self._check_team(number, made, owner)

    def _fill(self, device: int, levels: Mapping[int, Level]) -> None:
        creator, content = device // DEVICES_EACH, self._content()
        access = [AccessLevel(self._id(creator), OWNER)]
        access += [AccessLevel(self.ids[number], level) for number, level in levels.items()]
        made = self._at(device).createContainer(content, None, access).result(PATIENCE)
        self.boxes[made.id] = Box({creator: OWNER}, dict(levels), content)
        self.acted[made.id] = set()
        self._note(f"device {device} creates container {self._place(made.id)}: {levels}")

    def _one(self, device: int, number: int, change: Change) -> None:
        """A change alone."""
        team = self.teams[number]
        refusals, after = team.after(device // DEVICES_EACH, change)
        found = self._done(device, number, change)
        self._note(f"device {device}: {change} of group {number} -> {said(found)}")
        self._claim(fits(found, refusals), f"it may end with {refusals or 'success'} alone")
        self.teams[number] = after
        if not refusals and isinstance(found.result, Group) and change.kind != "delete":
            self._check_team(number, found.result, device // DEVICES_EACH)

    def _two(self, number: int, one: tuple[int, Change], other: tuple[int, Change]) -> None:
        """Two changes at once. The second of them may also find that the first changed the same."""
        together, team = Barrier(2), self.teams[number]

        def run(act: tuple[int, Change]) -> Outcome:
            together.wait(PATIENCE)
            return self._done(act[0], number, act[1])

        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(run, (one, other)))
        for (device, change), each in zip((one, other), found, strict=True):
            self._note(f"at once, device {device}: {change} of group {number} -> {said(each)}")
        ends = list[Team]()
        for first, second in ((0, 1), (1, 0)):
            acts = (one, other)[first], (one, other)[second]
            ends += self._serial(team, acts, (found[first], found[second]))
        self._claim(bool(ends), "this is not as if one came after the other")
        self._resolve(number, ends)

    def _serial(
        self, team: Team, acts: Sequence[tuple[int, Change]], found: Sequence[Outcome]
    ) -> list[Team]:
        """The groups that two changes in this order can lead to, if each ended as the model allows."""
        (first, change), (second, next_change) = acts
        refusals, between = team.after(first // DEVICES_EACH, change)
        ends = list[Team]()
        if change.kind == "delete" and not refusals:
            # The second may come between the two records of the first, and so prevent that of the tombstone.
            alone = team.alone(first // DEVICES_EACH)
            next_refusals, after = alone.after(second // DEVICES_EACH, next_change)
            is_prevented = isinstance(found[0].error, BrokerError.conflictError)
            if fits(found[1], next_refusals) and (is_prevented or fits(found[0], refusals)):
                ends.append(after if is_prevented else between)
        if not (fits(found[0], refusals) or is_half_done(found[0])):
            return ends
        is_one_user = first // DEVICES_EACH == second // DEVICES_EACH
        if is_one_user and (change.kind, next_change.kind) == ("accept", "decline"):
            # The second device may have read the offer before: it leaves instead.
            late = replace(next_change, kind="leave", abandon=True)
            late_refusals, after = between.after(second // DEVICES_EACH, late)
            if fits(found[1], late_refusals):
                ends.append(after)
        next_refusals, after = between.after(second // DEVICES_EACH, next_change)
        if fits(found[1], next_refusals) or is_half_done(found[1]):
            ends.append(after)
            if change.kind == "renew" and after.owed:
                # The second may come before the containers are renewed: a manager raises the epoch first.
                ends.append(
                    after.after(first // DEVICES_EACH, Change("rename", name=after.name))[1]
                )
        if between != team and isinstance(found[1].error, BrokerError.conflictError):
            ends.append(between)
        return ends

    def _cut(self, device: int, number: int, change: Change, step: Step) -> None:
        """A change of a device that is cut off from the broker in the middle."""
        team, actor = self.teams[number], device // DEVICES_EACH
        self._at(device)
        with Stops(self._name(device), step) as stops:
            found = self._done(device, number, change)
        self._note(f"cut {step}, device {device}: {change} of group {number} -> {said(found)}")
        refusals, after = team.after(actor, change)
        if not stops.stopped:
            self._claim(fits(found, refusals), f"it may end with {refusals or 'success'} alone")
            self.teams[number] = after
            return
        unreachable = isinstance(found.error, BrokerError.unreachableError)
        self._claim(unreachable or fits(found, refusals), "it may end without the broker alone")
        ends = [team, after]
        if change.kind == "delete" and not refusals:
            ends.append(team.alone(actor))
        self._resolve(number, ends)

    def _resolve(self, number: int, ends: Sequence[Team]) -> None:
        """Read the group on fresh devices of all users: all must see the same one of these possible ends.

        Several ends may look the same to all.
        """
        fitting = list(ends)
        for user in range(USERS):
            device = self._log_in(user, "fresh")
            shown = self._shown(number, device)
            fitting = [end for end in fitting if self._expected(end, user) == shown]
            self._claim(bool(fitting), f"user {user} sees {shown}, and nothing of {ends}")
        self.teams[number] = fitting[0]
        managing = [
            u for u in range(USERS) if all(u in e.managers and u in e.members for e in fitting)
        ]
        if managing and len({end.owed for end in fitting}) > 1:
            # Whether the group owes an epoch is seen at the next act of a manager.
            user, change = managing[0], Change("rename", name=fitting[0].name)
            found = self._done(user * DEVICES_EACH, number, change)
            self._note(f"user {user} raises the epoch if group {number} owes one -> {said(found)}")
            self._resolve(number, [end.after(user, change)[1] for end in fitting])

    def _read(self, device: int, box: UUID) -> None:
        user = device // DEVICES_EACH
        refusals = self.boxes[box].refusal(user, READER, self.teams)
        found = outcome(self._at(device).getContainerContent(box))
        self._note(f"device {device} reads container {self._place(box)} -> {said(found)}")
        self._claim(fits(found, refusals), f"it may end with {refusals or 'success'} alone")
        if not refusals:
            self._claim(found.result == self.boxes[box].content, f"it reads {found.result!r}")

    def _write(self, device: int, box: UUID) -> None:
        user, provider, content = device // DEVICES_EACH, self._at(device), self._content()
        refusals = self.boxes[box].refusal(user, WRITER, self.teams)
        found = outcome(provider.updateContainerContent(box, content))
        self._note(f"device {device} writes container {self._place(box)} -> {said(found)}")
        if isinstance(found.error, BrokerError.unsettledAccessError):
            self._settle(provider, box)
            found = outcome(provider.updateContainerContent(box, content))
        self._claim(fits(found, refusals), f"it may end with {refusals or 'success'} alone")
        if refusals:
            return
        kept = self.boxes[box]
        self.boxes[box] = Box(kept.users, kept.groups, content)
        via = found.result.modifiedVia
        if via is not None:
            number = next(n for n, each in self.ids.items() if each == via)
            role = self.teams[number].role_of(user)
            self._claim(role is not None, "a user wrote through a group of others")
            assert role is not None
            self.acted[box].add((number, user, role))
        self._raise_owed(user, kept)

    def _raise_owed(self, user: int, box: Box) -> None:
        """Before a manager's client seals anything new, it raises the epoch that a listed group owes."""
        for number in box.groups:
            team = self.teams[number]
            if team.owed and user in team.managers and user in team.members:
                refusals, after = team.after(user, Change("rename", name=team.name))
                self._claim(refusals == ALLOWED, "a manager may always raise an owed epoch")
                self.teams[number] = after

    def _settle(self, provider: ServerProvider, box: UUID) -> None:
        """Confirm a change of access whose author is not in the group any more, or has a lower role."""
        gone = [
            (number, user)
            for number, user, role in self.acted[box]
            if (now := self.teams[number].members.get(user)) is None or now < role
        ]
        self._claim(bool(gone), "nobody who changed access has lost anything")
        found = provider.confirmAccess(box).result(PATIENCE)
        self._claim(found is not None, "there is nothing to confirm")
        assert found is not None
        provider.confirmAccess(box, found.head).result(PATIENCE)

    def _grant(self, box: UUID, number: int, level: Level | None) -> None:
        """By the creator, who has everything."""
        kept, team = self.boxes[box], self.teams[number]
        found = self._give(box, self.ids[number], level)
        self._note(f"container {self._place(box)}: group {number} gets {level} -> {found!r:.60}")
        if level is not None and team.deleted and number not in kept.groups:
            self._claim(isinstance(found, GONE), "a deleted group is found")
            return
        self._claim(not isinstance(found, BrokerError), "the creator may change access")
        groups = {n: each for n, each in kept.groups.items() if n != number}
        if level is not None:
            groups[number] = level
        self.boxes[box] = Box(kept.users, groups, kept.content)

    def _share(self, box: UUID, user: int, level: Level | None) -> None:
        kept = self.boxes[box]
        if user == self._creator(box):
            return
        found = self._give(box, self._id(user), level)
        self._note(f"container {self._place(box)}: user {user} gets {level} -> {found!r:.60}")
        self._claim(not isinstance(found, BrokerError), "the creator may change access")
        users = {u: each for u, each in kept.users.items() if u != user}
        if level is not None:
            users[user] = level
        self.boxes[box] = Box(users, kept.groups, kept.content)

    def _give(self, box: UUID, holder: UUID, level: Level | None) -> Any:
        """Grant or revoke access to a container; return the container or the error."""
        device = self._at(self._creator(box) * DEVICES_EACH)

        def give() -> Any:
            if level is None:
                return device.revokeAccess(box, holder).result(PATIENCE)
            return device.grantAccess(box, AccessLevel(holder, level)).result(PATIENCE)

        [found] = give()
        if isinstance(found, BrokerError.unsettledAccessError):
            self._settle(device, box)
            [found] = give()
        return found

    # Checks

    def _check_lists(self, user: int, device: ServerProvider) -> None:
        """The groups and containers of a user, as a device lists them."""
        listed = device.getGroups().result(PATIENCE)
        self._claim(all(isinstance(each, Group) for each in listed), f"a group fails: {listed}")
        shown = {number: self._shown(number, device, listed) for number in self.teams}
        expected = {number: self._expected(team, user) for number, team in self.teams.items()}
        self._claim(shown == expected, f"user {user} sees {shown}, not {expected}")
        found = {
            each.id: device.getContainerContent(each.id).result(PATIENCE)
            for each in device.iterContainers()
            if isinstance(each, Container)
        }
        readable = {
            name: box.content for name, box in self.boxes.items() if box.levels(user, self.teams)
        }
        self._claim(found == readable, f"user {user} reads {found}, not {readable}")

    def _shown(self, number: int, device: ServerProvider, listed: Sequence[Any] = ()) -> Any:
        """A group as one of its members reads it, in the words of `_expected`; None if it is not listed."""
        for each in listed or device.getGroups().result(PATIENCE):
            if isinstance(each, Group) and each.id == self.ids[number]:
                members = device.getGroupMembers(each).result(PATIENCE)
                roles = {self.users[member.userId]: member.role for member in members}
                managers = {self.users[m.userId]: m.isOwner for m in members if m.isManager}
                return each.name, each.epoch, each.accepted, roles, managers
        return None

    def _expected(self, team: Team, user: int) -> Any:
        if user not in team.members:
            return None
        managers = {u: owner for u, owner in team.managers.items() if u in team.members}
        return team.name, team.epoch, user in team.accepted, dict(team.members), managers

    def _check_team(self, number: int, found: Group, user: int) -> None:
        """Compare the group that an operation returned with the model."""
        team = self.teams[number]
        given = found.name, found.epoch, found.accepted, found.role, found.memberCount
        role = team.members.get(user)
        expected = team.name, team.epoch, user in team.accepted, role, len(team.members)
        self._claim(given == expected, f"the operation returned {given}, not {expected}")
        managed = found.isManager, found.isOwner
        self._claim(managed == (user in team.managers, bool(team.managers.get(user))), "managers")

    # From what was drawn to what is done

    def _done(self, device: int, number: int, change: Change) -> Outcome:
        """The outcome of a change, also of one whose arguments are refused at once."""
        try:
            return outcome(self._start(device, number, change))
        except BrokerError as error:
            return Outcome(error=error)

    def _start(self, device: int, number: int, change: Change) -> Promise[Any]:
        provider, group = self._at(device), self.ids[number]
        starts: dict[Kind, Callable[[], Promise[Any]]] = {
            "add": lambda: provider.addGroupMembers(
                group, MemberRole(self._id(change.user), change.role)
            ),
            "remove": lambda: provider.removeGroupMembers(group, self._id(change.user)),
            "role": lambda: provider.setGroupRoles(
                group, MemberRole(self._id(change.user), change.role)
            ),
            "managers": lambda: provider.setGroupManagers(group, self._managers(change.managers)),
            "rename": lambda: provider.renameGroup(group, change.name),
            "renew": lambda: provider.renewGroup(group, newKey=True),
            "delete": lambda: provider.deleteGroup(group),
            "accept": lambda: provider.acceptGroup(group),
            "decline": lambda: provider.declineGroup(group),
            "leave": lambda: provider.leaveGroup(group, abandon=change.abandon),
        }
        return starts[change.kind]()

    def _device(self, wish: Wish, team: Team) -> int:
        count = USERS * DEVICES_EACH
        numbers = [number % count for number in range(wish.device, wish.device + count)]
        able = [n for n in numbers if not team.after(n // DEVICES_EACH, wish.change)[0]]
        return (able if able and wish.able else numbers)[0]

    def _at(self, device: int) -> ServerProvider:
        if device not in self._devices:
            self._devices[device] = self._log_in(device // DEVICES_EACH, self._name(device))
        return self._devices[device]

    def _log_in(self, user: int, name: str) -> ServerProvider:
        provider = ServerProvider(
            self.broker.api_key, self.broker.url, name, trustStore=MemoryTrustStore(), timeout=30.0
        )
        self._stack.enter_context(provider)
        ring = self.rings[user]
        provider.logIn(userId=ring.userId, keyRing=ring).result(PATIENCE)
        return provider

    def _name(self, device: int) -> str:
        return f"device {device}"

    def _id(self, user: int) -> UUID:
        return self.rings[user].userId

    def _managers(self, managers: Mapping[int, bool]) -> list[GroupManager]:
        return [GroupManager(self._id(user), owner) for user, owner in managers.items()]

    def _team(self, index: int) -> int:
        """The number of a group, seldom that of a deleted one."""
        living = [number for number, team in self.teams.items() if not team.deleted]
        chosen = living if living and index < 7 else list(self.teams)
        return chosen[index % len(chosen)]

    def _box(self, index: int) -> UUID:
        return list(self.boxes)[index % len(self.boxes)]

    def _place(self, box: UUID) -> int:
        return list(self.boxes).index(box)

    def _creator(self, box: UUID) -> int:
        return next(user for user, level in self.boxes[box].users.items() if level == OWNER)

    def _content(self) -> bytes:
        return b"content %d" % next(self.numbers)

    def _note(self, line: str) -> None:
        self.story.append(line)

    def _claim(self, holds: bool, words: str) -> None:
        if not holds:
            raise AssertionError(words)


def is_half_done(found: Outcome) -> bool:
    """Whether the group was changed and its containers were not renewed: its user left it in between."""
    return found.error is not None and found.error.outcome is WriteOutcome.Stored


@pytest.mark.long
@both_engines
def test_whatever_managers_and_members_do_access_follows_membership(
    start_broker: StartBroker, engine: str
) -> None:
    del engine
    broker = start_broker(max_new_epochs=100_000)
    thorough = settings.get_current_profile_name() == "thorough"

    def machine() -> Teams:
        return Teams(broker, 4 * COSTLY if thorough else COSTLY)

    chosen = settings.get_profile("thorough") if thorough else EVERYDAY
    run_state_machine_as_test(machine, settings=chosen)  # type: ignore[arg-type] # any callable
