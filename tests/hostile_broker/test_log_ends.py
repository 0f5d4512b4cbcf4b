"""Lies about where an event log begins and ends, and two logs for two readings at once.

Attack 37 of `catalogue`. A device keeps what it was served, and none of the numbers that come with it;
readings that share its marks agree on one log, whichever ends first.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, FileTrustStore, ServerProvider
from scbroker.client import events
from scbroker.client.users.session import Session
from scbroker.wire.events import Events
from tests.hostile_broker.accomplices import Mallory, marks
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import EVENTS, FAULT, FORK
from tests.hostile_broker.test_event_log import PAGE, Lie, log_of_five, reads, told_otherwise
from tests.kit.waiting import PATIENCE, until

FORKED: Final = told_otherwise(4, version=77)


# Two at once.


class Held:
    """An answer about events that is on its way."""

    def __init__(self) -> None:
        self.arrived, self.release = threading.Event(), threading.Event()


@contextmanager
def held(lie: Lie) -> Iterator[Held]:
    """The next answer about events is `lie(answer)`, and comes when the test lets it."""
    honest, answer_to = Session.call, Held()

    async def call(self: Session, method: str, path: str, answer: Any, **options: Any) -> Any:
        found = await honest(self, method, path, answer, **options)
        if not isinstance(found, Events) or answer_to.arrived.is_set():
            return found
        answer_to.arrived.set()
        await until(answer_to.release.is_set)
        return lie(found)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "call", call)
        yield answer_to
        answer_to.release.set()


def honest(log: Events) -> Events:
    return log


def another(mallory: Mallory, device: ServerProvider, how: str) -> ServerProvider:
    """Return a device that reads at the same time with the same marks: the same program, or another one."""
    if how == "one program":
        return device
    store = device._trust_store
    assert isinstance(store, FileTrustStore)
    return mallory.device(device.getKeyRing().result(PATIENCE), FileTrustStore(store.directory))


@pytest.mark.sampled
@attack(37, "event log changed")
@pytest.mark.parametrize("how", ["one program", "two programs"])
@pytest.mark.parametrize("slow, quick", [(FORKED, honest), (honest, FORKED)])
@pytest.mark.parametrize(
    "known, criteria",
    [(0, {}), (3, {}), (3, {"startId": 4})],
    ids=["fresh", "known in part", "from the next"],
)
def test_of_two_readings_at_once_that_are_told_two_logs_the_later_is_refused(
    mallory: Mallory, tmp_path: Path, how: str, slow: Lie, quick: Lie, known: int,
    criteria: dict[str, Any],
) -> None:  # fmt: skip
    alice, _ = log_of_five(mallory)
    device = mallory.device_of(alice, store=FileTrustStore(tmp_path))
    other = another(mallory, device, how)
    if known:
        assert reads(device, endId=known) == [1, 2, 3]
    with held(slow) as answer:
        first = device.getEvents(**criteria)
        assert answer.arrived.wait(PATIENCE)
        with mallory.lying(EVENTS, quick):
            assert reads(other, **criteria)[-1] == 5
        before = marks(device)
        answer.release.set()
        with pytest.raises(FORK):
            first.result(PATIENCE)
        assert marks(device) == before


@pytest.mark.sampled
@attack(37, "event log changed")
@pytest.mark.parametrize("persistent", [False, True], ids=["once", "persistent"])
def test_a_reading_that_another_overtook_is_told_the_same_log_or_refused(
    mallory: Mallory, persistent: bool
) -> None:
    alice, story = log_of_five(mallory)
    device = mallory.device_of(alice)
    with held(FORKED) as answer:
        first = device.getEvents()
        assert answer.arrived.wait(PATIENCE)
        story.tell(alice, story.follow(alice, content=b"6"))
        assert reads(device) == [1, 2, 3, 4, 5, 6]
        with mallory.lying(EVENTS, FORKED if persistent else honest):
            answer.release.set()
            if persistent:
                with pytest.raises(FORK):
                    first.result(PATIENCE)
            else:
                versions = [event.version for event in first.result(PATIENCE)]
                assert versions == [1, 2, 3, 4, 5, 6], "it was read again"


# What was told.


def told(first: int, last: int) -> Lie:
    return lambda _: Events(events=[], firstId=first, lastId=last, droppedDigest=b"d" * 32)


@attack(49, "device stuck by one answer")
def test_an_end_that_a_refusal_alone_named_is_not_kept(mallory: Mallory, tmp_path: Path) -> None:
    """No number is signed. An honest broker's log is read afterwards, also by a restarted program."""
    alice, _ = log_of_five(mallory)
    device = mallory.device_of(alice, store=FileTrustStore(tmp_path))
    before = marks(device)
    with (
        mallory.lying(EVENTS, told(900, 1000)),
        pytest.raises(BrokerError.eventsExpiredError) as expired,
    ):
        reads(device, startId=1)
    assert expired.value.firstId == 900
    assert marks(device) == before
    assert reads(device) == [1, 2, 3, 4, 5]
    device.close()
    device = mallory.device(alice.ring, FileTrustStore(tmp_path))
    assert reads(device) == [1, 2, 3, 4, 5]


# How much of it.


@pytest.mark.long
@attack(40, "parser ambiguity and bombs")
def test_events_that_are_dropped_as_fast_as_they_are_read_are_too_many_in_the_end(
    mallory: Mallory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million; of five thousand the same is shown."""
    monkeypatch.setattr(events, "_MOST", 5 * PAGE)
    alice, _ = log_of_five(mallory)
    [event, *_], pages = alice.events(), list[int]()

    def dropping(log: Events) -> Events:
        if len(pages) == 10:  # so that no test is endless
            return log
        first = 2 * PAGE * len(pages) + 1
        pages.append(first)
        shown = [replace(event, id=first + n) for n in range(PAGE)]
        digest = log.droppedDigest if first == 1 else b"d" * 32
        return Events(events=shown, firstId=first, lastId=2**31, droppedDigest=digest)

    device = mallory.device_of(alice)
    with mallory.lying(EVENTS, dropping), pytest.raises(BrokerError) as caught:
        reads(device)
    assert (len(pages), type(caught.value)) == (6, BrokerError.tooLargeError)


@attack(40, "parser ambiguity and bombs")
def test_an_event_names_no_more_changes_than_there_are(mallory: Mallory) -> None:
    alice, _ = log_of_five(mallory)
    device = mallory.device_of(alice)

    def many(log: Any) -> None:
        log["events"][1]["changes"] = ["content"] * 5

    with mallory.editing(EVENTS, many), mallory.refused(device, FAULT) as attempt:
        attempt(device.getEvents())
    assert reads(device) == [1, 2, 3, 4, 5]
