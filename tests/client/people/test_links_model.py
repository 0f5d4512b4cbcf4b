"""Links held against a model: whatever is done in whatever order, a link reads exactly while it may.

make test TESTS="tests/client/people/test_links_model.py --hypothesis-profile=thorough"     for longer
"""

import contextlib
import datetime as dt
import itertools
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from scbroker import BrokerError, Link, LinkProvider, MemoryTrustStore, ServerProvider, openLink
from tests.client.people.test_links import Clocks, Crash
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess
from tests.kit.waiting import PATIENCE

BOXES: Final = 3
SOON: Final = 3600.0
"""Seconds until a link expires that is made to expire."""
LATE: Final = 1e8
"""Seconds until the other links expire: the clocks do not come so far."""
EVERYDAY: Final = settings(
    max_examples=4,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=set(Phase) - {Phase.shrink, Phase.explain},
)
PICK: Final = st.integers(0, 7)
DEVICE: Final = st.integers(0, 1)
ALIVE: Final = st.integers(0, 14)
"""Requests that get an answer before the process ends."""


@dataclass
class Known:
    """A link that the creator was given, and the sessions that were opened with it."""

    link: Link
    password: str | None
    guests: list[LinkProvider] = field(default_factory=list)


class Links(RuleBasedStateMachine):
    """One creator with two devices and three containers, and guests who open links.

    Which links there are has no influence on what Hypothesis draws, for after the end of a process it may
    differ with the same draws. So no rule has a precondition about links.
    """

    broker: BrokerProcess
    clocks: Clocks

    def __init__(self) -> None:
        super().__init__()
        self.devices: list[ServerProvider] = []
        self.live: dict[uuid.UUID, Known] = {}
        self.ended: list[Known] = []
        self.contents: dict[uuid.UUID, bytes] = {}
        self.numbers = itertools.count()

    @initialize()
    def begin(self) -> None:
        ring = self.broker.new_user()
        for name in ("one", "two"):
            store = MemoryTrustStore()
            device = ServerProvider(self.broker.api_key, self.broker.url, name, trustStore=store)
            device.logIn(ring, ring.userId).result(PATIENCE)
            self.devices.append(device)
        self.me = ring.userId
        for _ in range(BOXES):
            content = b"%d" % next(self.numbers)
            self.contents[self.devices[0].createContainer(content).result(PATIENCE).id] = content

    def teardown(self) -> None:
        for known in (*self.live.values(), *self.ended):
            for guest in known.guests:
                guest.close()
        for device in self.devices:
            device.close()

    def new(self, number: int, device: int, seconds: float, password: str | None) -> Known:
        """Make a link to some of the containers."""
        boxes = list(self.contents)
        chosen = [box for at, box in enumerate(boxes) if number >> at & 1] or boxes[:1]
        ahead = dt.timedelta(seconds=self.broker.clock_ahead + seconds)
        end = dt.datetime.now(dt.UTC) + ahead
        made = self.devices[device].createLink(chosen, expiresAt=end, password=password)
        return Known(made.result(PATIENCE), password)

    def one(self, number: int) -> Known:
        return list(self.live.values())[number % len(self.live)]

    def end(self, known: Known) -> None:
        self.live.pop(known.link.userId, None)
        self.ended.append(known)

    def enter(self, known: Known) -> LinkProvider:
        store = MemoryTrustStore()
        return openLink(known.link, known.password, trustStore=store).result(PATIENCE)

    # What the creator does.

    @precondition(lambda self: self.contents)
    @rule(number=PICK, device=DEVICE, password=st.sampled_from([None, "Secret 99"]))
    def create(self, number: int, device: int, password: str | None) -> None:
        known = self.new(number, device, LATE, password)
        self.live[known.link.userId] = known

    @precondition(lambda self: self.contents)
    @rule(number=PICK, device=DEVICE, alive=ALIVE)
    def create_and_crash(self, number: int, device: int, alive: int) -> None:
        """What is left of it is listed, and has not been given to anybody: it is revoked."""
        with pytest.MonkeyPatch.context() as patched:
            Crash(alive, patched)
            try:
                known = self.new(number, device, LATE, None)
                self.live[known.link.userId] = known
            except BrokerError:
                pass
        for link in self.devices[device].getLinks().result(PATIENCE):
            if link.userId not in self.live:
                self.devices[1 - device].revokeLink(link).result(PATIENCE)

    @precondition(lambda self: self.contents)
    @rule(number=PICK, device=DEVICE)
    def expire(self, number: int, device: int) -> None:
        known = self.new(number, device, SOON, None)
        self.clocks.set_forward(SOON)
        [found] = [
            link
            for link in self.devices[device].getLinks().result(PATIENCE)
            if link.userId == known.link.userId
        ]
        assert found.expired
        with pytest.raises(BrokerError.notFoundError):
            self.enter(known)
        self.devices[1 - device].revokeLink(found).result(PATIENCE)
        self.end(known)

    @rule(number=PICK, device=DEVICE)
    def revoke(self, number: int, device: int) -> None:
        if not self.live:
            return
        known = self.one(number)
        self.devices[device].revokeLink(known.link.userId).result(PATIENCE)
        self.end(known)

    @rule(number=PICK, device=DEVICE, alive=ALIVE)
    def revoke_and_crash(self, number: int, device: int, alive: int) -> None:
        """The other device completes it, unless it was complete."""
        if not self.live:
            return
        known = self.one(number)
        with pytest.MonkeyPatch.context() as patched:
            Crash(alive, patched)
            with contextlib.suppress(BrokerError):
                self.devices[device].revokeLink(known.link).result(PATIENCE)
        other = self.devices[1 - device]
        if known.link in other.getLinks().result(PATIENCE):
            other.revokeLink(known.link).result(PATIENCE)
        self.end(known)

    @rule(number=PICK)
    def revoke_on_both_devices_at_once(self, number: int) -> None:
        if not self.live:
            return
        known = self.one(number)
        outcomes: list[Any] = []
        for promise in [device.revokeLink(known.link) for device in self.devices]:
            try:
                outcomes.append(promise.result(PATIENCE))
            except BrokerError as error:
                outcomes.append(type(error))
        assert None in outcomes
        assert {None, BrokerError.notFoundError} >= set(outcomes)
        self.end(known)

    @precondition(lambda self: self.contents)
    @rule(number=PICK, device=DEVICE)
    def write(self, number: int, device: int) -> None:
        box = list(self.contents)[number % len(self.contents)]
        self.contents[box] = b"%d" % next(self.numbers)
        self.devices[device].updateContainerContent(box, self.contents[box]).result(PATIENCE)

    @precondition(lambda self: len(self.contents) > 1)
    @rule(number=PICK)
    def delete(self, number: int) -> None:
        box = list(self.contents)[number % len(self.contents)]
        self.devices[0].deleteContainer(box).result(PATIENCE)
        del self.contents[box]

    # What guests do.

    @rule(number=PICK)
    def open(self, number: int) -> None:
        if not self.live:
            return
        known = self.one(number)
        if any(box in self.contents for box in known.link.containerIds):
            known.guests.append(self.enter(known))
        else:
            with pytest.raises(BrokerError.notFoundError):
                self.enter(known)

    @rule(number=PICK)
    def open_an_ended_one(self, number: int) -> None:
        if not self.ended:
            return
        known = self.ended[number % len(self.ended)]
        with pytest.raises(BrokerError) as refused:
            self.enter(known)
        revoked = (
            BrokerError.notFoundError if known.password is None else BrokerError.credentialsError
        )
        assert type(refused.value) is revoked

    @rule()
    def read(self) -> None:
        """Every guest reads what their link names, as it is now, or nothing once the link has ended."""
        for known in (*self.live.values(), *self.ended):
            is_live = known.link.userId in self.live
            for guest in known.guests:
                for box, content in self.contents.items():
                    if is_live and box in known.link.containerIds:
                        assert guest.getContainerContent(box).result(PATIENCE) == content
                    else:
                        with pytest.raises(BrokerError):
                            guest.getContainerContent(box).result(PATIENCE)

    # What always holds.

    @invariant()
    def both_devices_list_the_live_links_and_no_others(self) -> None:
        for device in self.devices:
            listed = device.getLinks().result(PATIENCE)
            assert {link.userId: link for link in listed} == {
                user: known.link for user, known in self.live.items()
            }

    @invariant()
    def the_members_are_the_creator_and_the_live_links(self) -> None:
        for box in self.contents:
            found = self.devices[0].getContainerMetadata(box).result(PATIENCE).access or ()
            named = {u for u, known in self.live.items() if box in known.link.containerIds}
            assert {level.userId for level in found} == named | {self.me}


@pytest.mark.long
@both_engines
def test_a_link_reads_exactly_while_it_may_whatever_is_done_in_whatever_order(
    fresh_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AtBroker(Links):
        pass

    AtBroker.broker, AtBroker.clocks = fresh_broker, Clocks(fresh_broker, monkeypatch)
    thorough = settings.get_current_profile_name() == "thorough"
    chosen = settings.get_profile("thorough") if thorough else EVERYDAY
    run_state_machine_as_test(AtBroker, settings=chosen)
