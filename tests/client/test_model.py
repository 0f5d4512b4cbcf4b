"""Any number of devices write at once, answers get lost, brokers are killed: held against the model.

Each step is drawn before anything is known of how the last one ended, and a failure is kept until
all steps are drawn, so that hypothesis can draw the same steps again. How threads and brokers
interleave is never the same, so every claim holds for each interleaving: see `book`, which has them.

    make test TESTS="tests/client/test_model.py --hypothesis-profile=thorough"     for longer
"""

import datetime as dt
import functools
import itertools
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from scbroker import AccessLevel, BrokerError, ContainerAccessLevel, Promise, SecuredContainer
from tests.client.book import Attempt, Book, Circumstances, Kept
from tests.client.conftest import drop, set_by
from tests.client.model import Change, Field, Grant, Members, Merge, State, farewell
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess
from tests.kit.devices import (
    DEVICES_EACH,
    Device,
    Devices,
    Loss,
    Post,
    kill,
    outcome,
    present_time,
    revive,
)
from tests.kit.fixtures import StartBroker
from tests.kit.waiting import PATIENCE, wait_until

Level = ContainerAccessLevel
USERS: Final = 4
COUNT: Final = USERS * DEVICES_EACH
EVERYDAY: Final = settings(
    max_examples=3,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=set(Phase) - {Phase.shrink, Phase.explain},
)
"""Nothing is shrunk: it takes minutes, and what threads did is not done a second time."""
COSTLY: Final = 1
"""How often in an example a broker ends, or somebody's time: each takes a second."""
SOON: Final = dt.timedelta(minutes=10)
"""How long the access lasts that runs out: then all clocks are set ahead."""
OWNER: Final = Grant(Level.DefaultOwnerPermissions)
READER: Final = Level.Download | Level.Decrypt | Level.ViewAccess
WRITER: Final = READER | Level.Upload
ROLES: Final = [
    *[OWNER.permissions] * 4,
    WRITER,
    WRITER | Level.ModifyType,
    Level.DefaultUserPermissions | Level.Upload | Level.ModifyType,
    WRITER | Level.ModifyAccess,
    READER | Level.ViewType | Level.ReceiveAccessEvents,
    Level.Download | Level.Decrypt,
    Level.ViewAccess | Level.ViewType,
    Level.Delete,
    None,
]
Kind = Literal[
    "header", "content", "type", "access", "grant", "revoke", "alone", "all", "delete", "create", "read",
    "secured", "log",
]  # fmt: skip
MERGES: Final[list[Kind]] = ["grant", "revoke"]
OFTEN: Final[list[Kind]] = ["header", "content", "type", "access", *MERGES, "all", "read", "log"]
SELDOM: Final[list[Kind]] = ["alone", "delete", "create", "secured"]
NEEDED: Final[dict[Kind, Level]] = {
    "type": Level.ModifyType, "access": Level.ModifyAccess, "alone": OWNER.permissions,
    "grant": Level.ModifyAccess, "revoke": Level.ModifyAccess,
    "all": Level.ModifyType | Level.ModifyAccess, "delete": Level.Delete,
    "read": Level.Download | Level.Decrypt, "secured": Level.Download,
}  # fmt: skip


@dataclass(frozen=True)
class Wish:
    """What a device is to do, drawn without a look at what there is."""

    device: int
    kind: Kind
    member: int
    """Whose access it changes, if it does."""
    role: Level | None
    days: int | None
    """How long that access is to last."""
    condition: Literal["none", "right", "stale"]
    elsewhere: bool
    """Whether it goes to another container than those of the other devices."""
    large: bool
    leaves: bool
    """Whether the device logs out while the operation is under way."""
    able: bool
    """Whether the next device that may do it does it, where there is one."""


def _plain(kind: Kind) -> st.SearchStrategy[Wish]:
    """Somebody who may changes one field, without a condition."""
    return st.builds(
        Wish, device=DEVICES, kind=st.just(kind), member=st.just(0), role=st.none(), days=st.none(),
        condition=st.just("none"), elsewhere=st.just(False), large=RARELY, leaves=RARELY,
        able=st.just(True),
    )  # fmt: skip


INDICES: Final = st.integers(0, 7)
DEVICES: Final = st.integers(0, COUNT - 1)
MEMBERS: Final = st.integers(0, USERS - 1)
ROLE: Final = st.sampled_from(ROLES)
DAYS: Final = st.sampled_from([None, None, None, 1, 2])
RARELY: Final = st.sampled_from([False] * 5 + [True])
WISHES: Final = st.builds(
    Wish, device=DEVICES, kind=st.sampled_from(3 * OFTEN + SELDOM), member=MEMBERS, role=ROLE,
    days=DAYS, condition=st.sampled_from(["none", "none", "none", "right", "stale"]),
    elsewhere=RARELY, large=RARELY, leaves=RARELY, able=st.sampled_from([True, True, False]),
)  # fmt: skip
SEVERAL: Final = st.lists(WISHES, min_size=2, max_size=5)
FIELDS: Final[list[Kind]] = ["header", "content", "type"]
THREE_FIELDS: Final = st.permutations(FIELDS).flatmap(
    lambda kinds: st.tuples(*[_plain(kind) for kind in kinds])
)
PLANS: Final = st.tuples(*[st.tuples(ROLE, DAYS)] * USERS)
Plan = tuple[tuple[Level | None, int | None], ...]


class Only:
    """A promise of one container of several: its error is that of the container."""

    def __init__(self, promise: Promise[list[SecuredContainer | BrokerError]]) -> None:
        self._promise = promise
        self.done = promise.done

    def result(self, timeout: float) -> SecuredContainer:
        [found] = self._promise.result(timeout)
        if isinstance(found, BrokerError):
            raise found
        return found


def kept_until_the_end(step: Callable[..., None]) -> Callable[..., None]:
    """After a failure no further step is done, but all are drawn."""

    @functools.wraps(step)
    def run(self: "Writers", **drawn: Any) -> None:
        if self.failure is not None:
            return
        try:
            step(self, **drawn)
        except Exception as error:
            self.failure = error

    return run


class Writers(RuleBasedStateMachine):
    """Users and devices on one or more brokers. Its rules are the claims that `book` checks."""

    def __init__(self, brokers: Sequence[BrokerProcess], post: Post, costly: int) -> None:
        super().__init__()
        for broker in brokers:
            revive(broker)
        self.brokers, self.post, self.costly = brokers, post, costly
        self.devices = Devices(brokers, post)
        self.book = Book(self.devices)
        self.born = present_time()
        self.numbers = itertools.count(1)
        self.failure: Exception | None = None

    @initialize(plan=PLANS, keeper=MEMBERS)
    @kept_until_the_end
    def there_is_a_container(self, plan: Plan, keeper: int) -> None:
        self._create(plan, keeper, 0)

    @rule(plan=PLANS, keeper=MEMBERS, device=DEVICES)
    @kept_until_the_end
    def a_container_is_exactly_as_it_was_created(
        self, plan: Plan, keeper: int, device: int
    ) -> None:
        self._create(plan, keeper, device)

    @rule(wish=WISHES, container=INDICES, empty=RARELY, dead=RARELY)
    @kept_until_the_end
    def an_operation_alone_ends_exactly_as_the_model_says(
        self, wish: Wish, container: int, empty: bool, dead: bool
    ) -> None:
        self.book.begin("one alone")
        kept = self._container(container, dead=dead)
        self._run([self._attempt(wish, kept, set(), empty=empty)])

    @rule(wishes=SEVERAL, container=INDICES)
    @kept_until_the_end
    def operations_at_once_are_as_if_one_came_after_the_other(
        self, wishes: list[Wish], container: int
    ) -> None:
        self.book.begin("several at once")
        self._run(self._attempts(wishes, container))

    @rule(wishes=SEVERAL, container=INDICES)
    @kept_until_the_end
    def of_those_who_saw_the_same_version_nobody_overwrites_another(
        self, wishes: list[Wish], container: int
    ) -> None:
        self.book.begin("several who saw the same version")
        self._run(self._attempts(wishes, container), held=True)

    @rule(wishes=THREE_FIELDS, more=st.lists(WISHES, max_size=1), container=INDICES)
    @kept_until_the_end
    def changes_of_different_fields_at_once_all_succeed(
        self, wishes: tuple[Wish, ...], more: list[Wish], container: int
    ) -> None:
        self.book.begin("three fields at once")
        self._run(self._attempts([*wishes, *more], container), held=True)

    @rule(
        wishes=SEVERAL,
        container=INDICES,
        held=st.booleans(),
        loss=st.sampled_from(["the first answers", "all answers"]),
    )
    @kept_until_the_end
    def a_change_happens_once_although_answers_are_lost(
        self, wishes: list[Wish], container: int, held: bool, loss: Loss
    ) -> None:
        self.book.begin(f"several, and {loss} are lost")
        self._run(self._attempts(wishes, container), held=held, loss=loss)

    @rule(
        wishes=SEVERAL,
        container=INDICES,
        held=st.booleans(),
        killed=st.booleans(),
        which=INDICES,
        progress=st.sampled_from([0, 1, 2, 3, 5, 8]),
        patient=st.booleans(),
    )
    @kept_until_the_end
    def a_change_happens_once_or_not_at_all_although_a_broker_ends(
        self,
        wishes: list[Wish],
        container: int,
        held: bool,
        killed: bool,
        which: int,
        progress: int,
        patient: bool,
    ) -> None:
        if not self._spend():
            return
        end = "kill" if killed else "stop"
        self.book.begin(f"several, and a broker ends by {end}; patient: {patient}")
        attempts = self._attempts(wishes, container)
        broker = self.brokers[which % len(self.brokers)]

        def interruption(promises: Sequence[Promise[Any]]) -> None:
            """End it once so many have sent their record or ended, or all have ended."""

            def is_due() -> bool:
                ended = sum(promise.done() for promise in promises)
                return self.post.arrived + ended >= progress or ended == len(promises)

            wait_until(is_due)
            try:
                kill(broker) if killed else broker.stop()
            finally:
                broker.start()

        self._run(attempts, held=held, ends=broker, interruption=interruption, patient=patient)

    @rule(device=DEVICES, container=INDICES, dead=RARELY)
    @kept_until_the_end
    def whoever_reads_gets_the_newest_version_as_far_as_they_may(
        self, device: int, container: int, dead: bool
    ) -> None:
        self.book.begin("one reads")
        kept = self._container(container, dead=dead)
        self._run([Attempt(self.devices.device(device), "read", kept, None)])

    @rule(device=DEVICES)
    @kept_until_the_end
    def a_list_has_exactly_what_its_user_may_read(self, device: int) -> None:
        self.book.begin(f"device {device} lists")
        self.book.check_list(self.devices.device(device))

    @rule(user=MEMBERS)
    @kept_until_the_end
    def a_log_tells_everything_once_and_in_order(self, user: int) -> None:
        self.book.begin(f"user {user} reads the log")
        self.book.check_log(user)

    @rule(device=DEVICES)
    @kept_until_the_end
    def who_logged_out_has_no_session_until_they_log_in(self, device: int) -> None:
        self.book.begin(f"device {device} logs out and in again")
        found = self.devices.device(device)
        found.provider.logout().result(PATIENCE)
        with pytest.raises(BrokerError.notAuthenticatedError):
            drop(found.provider.getEvents())
        self.devices.log_in(found)

    @rule(device=DEVICES)
    @kept_until_the_end
    def a_user_may_go_on_with_a_device_that_has_seen_nothing(self, device: int) -> None:
        self.book.begin(f"device {device} is replaced")
        self.devices.replace(device)

    @rule(container=INDICES, member=st.integers(1, USERS - 1), role=ROLE)
    @kept_until_the_end
    def whose_time_is_over_is_out(self, container: int, member: int, role: Level | None) -> None:
        kept = self._container(container)
        if role is None or kept.state.deleted or not self._spend():
            return
        self.book.begin("somebody's time runs out")
        members = kept.state.members(present_time())
        owner = min(user for user, grant in members.items() if grant == OWNER)
        self._run_out(kept, owner, (owner + member) % USERS, role)

    @rule(device=DEVICES, container=INDICES, abandon=st.booleans(), stranger=RARELY, dead=RARELY)
    @kept_until_the_end
    def a_member_who_leaves_is_out_and_no_list_has_them_any_more(
        self, device: int, container: int, abandon: bool, stranger: bool, dead: bool
    ) -> None:
        """The others go on: the next one who seals something makes a key without the user who left."""
        kept = self._container(container, dead=dead)
        members = kept.state.members(present_time())
        owners = [user for user, grant in members.items() if grant == OWNER]
        may = [user for user in members if owners != [user]]  # every other rule needs an owner
        numbers = [number % COUNT for number in range(device, device + COUNT)]
        able = [number for number in numbers if number // DEVICES_EACH in may]
        found = self.devices.device((numbers if stranger or not able else able)[0])
        if owners == [found.user] and len(members) > 1:
            return
        self.book.begin(f"{found.name} leaves")
        promise = found.provider.leaveContainer(kept.id, abandon=abandon)
        self.book.leave(found, kept, outcome(promise), abandon=abandon)
        others = [number for number in numbers if number // DEVICES_EACH in owners]
        for number in [*others[:1], found.number]:
            self._run([Attempt(self.devices.device(number), "read", kept, None)])

    @rule(container=INDICES, member=st.integers(1, USERS - 1), role=ROLE)
    @kept_until_the_end
    def a_blocked_owner_lets_in_nobody_who_blocks_and_changes_what_they_have_had(
        self, container: int, member: int, role: Level | None
    ) -> None:
        kept = self._container(container)
        if role is None or kept.state.deleted:
            return
        members = kept.state.members(present_time())
        owner = min(user for user, grant in members.items() if grant == OWNER)
        user = (owner + member) % USERS
        if members.get(user) == OWNER:
            return
        self.book.begin(f"user {user} blocks user {owner}")
        blocking = self.devices.device(user * DEVICES_EACH).provider
        other = self.devices.id_of(owner)
        blocking.blockUser(other).result(PATIENCE)
        change = Change({"access": Merge(user, Grant(role))})
        attempt = Attempt(self.devices.device(owner * DEVICES_EACH), "grant", kept, change)
        if user in members:
            self._run([attempt])
        else:
            with self.post.told(held=False, loss="nothing", patient=False):
                attempt.outcome = outcome(self._start(attempt))
            self.book.note(attempt)
            refused = type(attempt.outcome.error) is BrokerError.blockedError
            self.book.claim(refused, f"it may end with a blockedError alone: {attempt}")
        blocking.unblockUser(other).result(PATIENCE)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self._end()
        finally:
            self.devices.close()

    def _end(self) -> None:
        if self.failure is not None:
            raise self.failure
        self._everybody_agrees()

    def _everybody_agrees(self) -> None:
        """Devices that have seen much, and such as have seen nothing."""
        self.book.begin("everybody reads everything")
        for user in self.devices.users:
            fresh = Device(-1, user, self.brokers[-1], self.devices.fresh(user))
            self.book.check_list(fresh)
            self._read_all(fresh)
            self.book.check_log(user)
        for device in self.devices.all():
            self.book.check_list(device)
            self._read_all(device)

    def _read_all(self, device: Device) -> None:
        for kept in self.book.containers:
            attempt = Attempt(device, "read", kept, None)
            attempt.outcome = outcome(self._start(attempt))
            self.book.note(attempt)
            self.book.judge_read(attempt, [kept.state], Circumstances(present_time()))

    # From what was drawn to what is done.

    def _spend(self) -> bool:
        self.costly -= 1
        return self.costly >= 0

    def _container(self, index: int, *, dead: bool = False) -> Kept:
        found = [kept for kept in self.book.containers if kept.state.deleted == dead]
        found = found or self.book.containers
        return found[index % len(found)]

    def _create(self, plan: Plan, keeper: int, device: int) -> None:
        self.book.begin("one creates")
        members = {
            user: self._grant(role, days)
            for user, (role, days) in enumerate(plan)
            if role is not None
        }
        self._run([self._creation(self.devices.device(device), {**members, keeper: OWNER})])

    def _creation(self, device: Device, members: Members) -> Attempt:
        values: dict[Field, Any] = {**self._values(large=False), "access": members}
        return Attempt(device, "create", None, Change(values))

    def _values(self, *, large: bool) -> dict[Field, Any]:
        """Such as nobody wrote before."""
        number = next(self.numbers)
        return {
            "header": {"h": number},
            "content": (b"content %d " % number) * (7_000 if large else 1),
            "type": f"type {number}",
        }

    def _attempts(self, wishes: Sequence[Wish], container: int) -> list[Attempt]:
        here, there = self._container(container), self._container(container + 1)
        taken: set[int] = set()
        return [self._attempt(wish, there if wish.elsewhere else here, taken) for wish in wishes]

    def _device(self, wish: Wish, state: State, taken: set[int]) -> Device:
        """One that does nothing else at the time."""
        numbers = [number % COUNT for number in range(wish.device, wish.device + COUNT)]
        free = [number for number in numbers if number not in taken]
        able = [number for number in free if self._fits(wish, number // DEVICES_EACH, state)]
        number = (able if able and wish.able else free)[0]
        taken.add(number)
        return self.devices.device(number)

    def _fits(self, wish: Wish, user: int, state: State) -> bool:
        """Return whether it may succeed. Logs are read by few, so that some read the same at once."""
        if wish.kind == "log":
            return user == wish.member // 2
        grant = state.members(present_time()).get(user)
        return grant is not None and grant.allows(NEEDED.get(wish.kind, Level.Upload))

    def _attempt(self, wish: Wish, kept: Kept, taken: set[int], *, empty: bool = False) -> Attempt:
        device = self._device(wish, kept.state, taken)
        if wish.kind == "create":
            return self._creation(device, dict.fromkeys(range(USERS), OWNER))
        if wish.kind == "log":
            return Attempt(device, wish.kind, None, None, leaves=wish.leaves)
        change = None
        if wish.kind not in ("read", "secured"):
            change = self._change(wish, kept.state, empty=empty)
        return Attempt(device, wish.kind, kept, change, leaves=wish.leaves)

    def _change(self, wish: Wish, state: State, *, empty: bool) -> Change:
        if wish.kind == "delete":
            return Change(delete=True)
        version = state.version
        condition = {"none": None, "right": version, "stale": version - 1}[wish.condition]
        if wish.kind == "alone":
            return Change({"access": {state.creator: OWNER}}, condition=condition)
        if wish.kind in MERGES:
            return Change({"access": self._merge(wish, state)})
        values = self._values(large=wish.large)
        if empty:
            values = dict.fromkeys(values)
        values["access"] = self._members(wish, state)
        if wish.kind != "all":
            values = {name: value for name, value in values.items() if name == wish.kind}
        return Change(values, condition=condition)

    def _grant(self, role: Level, days: int | None) -> Grant:
        return Grant(role, None if days is None else self.born + dt.timedelta(days=days))

    def _members(self, wish: Wish, state: State) -> Members:
        """The list with one user's access changed; somebody stays owner for good."""
        members = dict(state.members(present_time()))
        members.pop(wish.member, None)
        if wish.role is not None:
            members[wish.member] = self._grant(wish.role, wish.days)
        if OWNER not in members.values():
            members[wish.member] = OWNER
        return members

    def _merge(self, wish: Wish, state: State) -> Merge:
        """One user's access; who is owner stays so: others may take it from all the rest meanwhile."""
        if state.members(present_time()).get(wish.member) == OWNER:
            return Merge(wish.member, OWNER)
        grants = wish.kind == "grant" and wish.role is not None
        return Merge(
            wish.member, self._grant(wish.role, wish.days) if grants and wish.role else None
        )

    def _run_out(self, kept: Kept, owner: int, user: int, role: Level) -> None:
        began, ends = present_time(), present_time() + SOON
        members = {**kept.state.members(began), user: Grant(role, ends)}
        device = self.devices.device(owner * DEVICES_EACH)
        attempt = Attempt(device, "access", kept, Change({"access": members}))
        attempt.outcome = outcome(self._start(attempt))
        self.book.settle([attempt], Circumstances(began))
        for broker in self.brokers:
            broker.clock_ahead += SOON.total_seconds()
        if attempt.version is not None:
            self.book.tell(user, kept, farewell(kept.state, user))

    def _run(
        self,
        attempts: list[Attempt],
        *,
        held: bool = False,
        loss: Loss = "nothing",
        ends: BrokerProcess | None = None,
        interruption: Callable[[Sequence[Promise[Any]]], None] = lambda _: None,
        patient: bool = False,
    ) -> None:
        """Starts all before it waits for any; then everything has to fit the model."""
        broken = {broker.port for broker in self.brokers if loss == "all answers"}
        broken |= {ends.port} if ends is not None else set()
        given = Circumstances(present_time(), same_seen=held, broken=frozenset(broken))
        with self.post.told(held=held, loss=loss, patient=patient):
            promises = self.devices.start(
                [functools.partial(self._start, attempt) for attempt in attempts]
            )
            leaving = [a.device for a in attempts if a.leaves]
            left = [device.provider.logout() for device in leaving]
            if held:
                self.devices.until_all_have_sent(
                    [p for p, a in zip(promises, attempts, strict=True) if a.change is not None]
                )
                self.post.release()
            interruption(promises)
            for attempt, promise in zip(attempts, promises, strict=True):
                attempt.outcome = outcome(promise)
        for promise in left:
            promise.result(PATIENCE)
        for device in leaving:
            self.devices.log_in(device)
        self.book.settle(attempts, given)

    def _start(self, attempt: Attempt) -> Any:
        provider, change = attempt.device.provider, attempt.change
        if attempt.kind == "log":
            return provider.getEvents()
        if attempt.container is None:
            assert change is not None
            values = self._arguments(attempt.user, change)
            return provider.createContainer(
                values["content"], values["header"],
                accessLevels=values["access"], type=values["type"],
            )  # fmt: skip
        container = attempt.container.id
        if change is None:
            reading = (
                provider.getContainer if attempt.kind == "read" else provider.getSecuredContainer
            )
            return reading(container)
        if change.delete:
            return provider.deleteContainer(container)
        return self._start_update(attempt, container, change)

    def _start_update(self, attempt: Attempt, container: uuid.UUID, change: Change) -> Any:
        provider, condition = attempt.device.provider, change.condition
        assert attempt.container is not None
        if change.merge is not None:
            user, grant = self.devices.id_of(change.merge.user), change.merge.grant
            if grant is None:
                return Only(provider.revokeAccess(container, user))
            level = AccessLevel(user, grant.permissions, grant.ends)
            return Only(provider.grantAccess(container, level))
        values = self._arguments(attempt.container.state.creator, change)
        if attempt.kind == "all":
            return provider.updateContainer(
                container,
                content=values["content"],
                customHeaderObject=values["header"],
                accessLevels=values["access"],
                type=values["type"],
                ifVersion=condition,
            )
        (value,) = values.values()
        updates: dict[str, Callable[..., Promise[Any]]] = {
            "header": provider.updateContainerHeader,
            "content": provider.updateContainerContent,
            "type": provider.updateContainerType,
            "access": provider.updateContainerAccessLevels,
            "alone": provider.updateContainerAccessLevels,
        }
        return updates[attempt.kind](container, value, ifVersion=condition)

    def _arguments(self, creator: int, change: Change) -> dict[str, Any]:
        """The values as an operation takes them; access for the creator alone is None there."""
        values: dict[str, Any] = {str(name): value for name, value in change.values.items()}
        if "access" in values:
            members: Members = values["access"]
            levels = [
                AccessLevel(self.devices.id_of(member), grant.permissions, grant.ends)
                for member, grant in members.items()
            ]
            values["access"] = None if members == {creator: OWNER} else levels
        return values


@pytest.mark.long
@both_engines
def test_whatever_devices_do_at_once_nothing_is_lost_doubled_or_shown_to_strangers(
    start_broker: StartBroker, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL with two brokers, of which one may end while the other goes on."""
    brokers = [start_broker() for _ in range(2 if engine == "postgresql" else 1)]
    set_by(brokers[0], monkeypatch)
    thorough = settings.get_current_profile_name() == "thorough"

    with Post().at_work() as post:

        def machine() -> Writers:
            return Writers(brokers, post, 4 * COSTLY if thorough else COSTLY)

        chosen = settings.get_profile("thorough") if thorough else EVERYDAY
        run_state_machine_as_test(machine, settings=chosen)  # type: ignore[arg-type] # any callable
