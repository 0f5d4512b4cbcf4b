"""Attacks with records that the broker says it refused: it has them, and can use them at any time.

Attack 46 of `catalogue`. The device knows what it sent. It never says that such a change had no effect, and
it knows the change again when it takes effect.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest

from scbroker import BrokerError, SentChange, WriteOutcome
from scbroker.wire.containers import RecordRequest
from tests.hostile_broker.accomplices import Mallory, level
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.catalogue import all_mount
from tests.hostile_broker.protocol import RECORD
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, Story, User

all_mount(__name__, 46, "refused write stored later")

UNCERTAIN: Final = SentChange(2, WriteOutcome.Uncertain)
REFUSALS: Final[list[BrokerError]] = [
    BrokerError.invalidArgumentError("no"),
    BrokerError.rejectedError("no"),
    BrokerError.permissionDeniedError("no"),
    BrokerError.staleKeysError("no"),
    BrokerError.brokerFaultError("no"),
]
each_refusal = pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: error.code)


@contextmanager
def refusing(mallory: Mallory, refusal: BrokerError) -> Iterator[list[RecordRequest]]:
    """Every record is refused and kept; gives those that were kept."""
    kept: list[RecordRequest] = []

    def keep(exchange: Exchange) -> None:
        kept.append(exchange.message)
        exchange.fail(refusal)

    with mallory.meddling(RECORD, before=keep):
        yield kept


def check_uncertain(promise: Any, refusal: BrokerError, story: Story) -> None:
    with pytest.raises(BrokerError) as caught:
        promise.result(PATIENCE)
    assert type(caught.value) is type(refusal)
    assert caught.value.outcome is WriteOutcome.Uncertain
    assert caught.value.containerId == story.uuid


@pytest.mark.sampled
@each_refusal
def test_a_grant_that_was_refused_is_uncertain_and_reported_when_it_takes_effect(
    mallory: Mallory, refusal: BrokerError, alice: User, eve: User, caplog: pytest.LogCaptureFixture
) -> None:
    """Eve has the key at once. The broker stores the grant months later, and Alice's device says so."""
    story = Story(alice).created()
    device = mallory.device_of(alice, eve, store=mallory.new_store())
    both = [level(alice), level(eve, READER)]
    with refusing(mallory, refusal) as kept:
        check_uncertain(device.updateContainerAccessLevels(story.uuid, both), refusal, story)
    wraps = [item.wrap for item in kept[-1].accessList or ()]
    assert len(wraps) == 2, "the broker has a wrap for Eve"
    device = mallory.restarted(device)
    assert len(device.getContainerMetadata(story.uuid).result(PATIENCE).access or ()) == 1
    assert set(device.getSentChanges(story.uuid).result(PATIENCE)) == {UNCERTAIN}
    story.tell(alice, kept[-1])
    with caplog.at_level(logging.WARNING, "scbroker"):
        found = device.getContainerMetadata(story.uuid).result(PATIENCE)
    assert len(found.access or ()) == 2
    assert f"Container {story.uuid}: version 2 is a change that this device sent" in caplog.text
    settled = device.getSentChanges(story.uuid).result(PATIENCE)
    assert settled[-1] == SentChange(2, WriteOutcome.Stored)
    assert {each.outcome for each in settled[:-1]} <= {WriteOutcome.NotStored}


def test_a_deletion_that_was_refused_is_reported_when_it_takes_effect(
    mallory: Mallory, alice: User, caplog: pytest.LogCaptureFixture
) -> None:
    story, refusal = Story(alice).created(), BrokerError.invalidArgumentError("no")
    device = mallory.device_of(alice)
    with refusing(mallory, refusal) as kept:
        check_uncertain(device.deleteContainer(story.uuid), refusal, story)
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"content"
    story.tell(alice, kept[0])
    with caplog.at_level(logging.WARNING, "scbroker"), pytest.raises(BrokerError.deletedError):
        device.getContainer(story.uuid).result(PATIENCE)
    assert "version 2 is a change that this device sent" in caplog.text
    assert device.getSentChanges(story.uuid).result(PATIENCE) == [
        SentChange(2, WriteOutcome.Stored)
    ]


def test_a_refused_change_is_reported_also_if_the_first_reading_after_it_resets_the_mark(
    mallory: Mallory, alice: User, bob: User
) -> None:
    story, refusal = Story(alice).created({alice: OWNER, bob: OWNER}), REFUSALS[0]
    device = mallory.device_of(alice, bob)
    with refusing(mallory, refusal) as kept:
        check_uncertain(device.updateContainerContent(story.uuid, b"2"), refusal, story)
    story.tell(alice, kept[0])
    story.tell(bob, story.follow(bob, content=b"3"))
    heads = device.resetContainerMark(story.uuid).result(PATIENCE)
    device.resetContainerMark(story.uuid, heads.served).result(PATIENCE)
    found = device.getSentChanges(story.uuid).result(PATIENCE)
    assert found == [SentChange(2, WriteOutcome.Stored)]


def test_a_change_of_a_version_that_was_read_past_during_its_upload_does_not_leave(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """Otherwise the broker could show it to whomever it names, and its outcome would stay uncertain."""
    story = Story(alice).created({alice: OWNER, bob: OWNER})
    device = mallory.device_of(alice, bob)

    def large() -> Iterator[bytes]:
        yield bytes(100_000)
        story.tell(bob, story.follow(bob, content=b"2"))
        device.getContainer(story.uuid).result(PATIENCE)
        yield b"end"

    count = len(mallory.heard)
    with pytest.raises(BrokerError.conflictError) as caught:
        device.updateContainerContent(story.uuid, large(), ifVersion=1).result(PATIENCE)
    assert caught.value.outcome is WriteOutcome.NotStored
    assert RECORD not in mallory.since(count)


def test_a_conflict_that_the_broker_invents_about_a_record_that_it_stored_is_a_success(
    mallory: Mallory, alice: User
) -> None:
    """It is also no conflict with oneself: the change is not made twice."""
    story = Story(alice).created()
    device = mallory.device_of(alice)

    def store_and_deny(exchange: Exchange) -> None:
        exchange.fail(BrokerError.conflictError("no"))

    told: list[int] = []
    with mallory.meddling(RECORD, after=store_and_deny), suppress(BrokerError.conflictError):
        changed = device.updateContainerContent(story.uuid, b"new", ifVersion=1).result(PATIENCE)
        told.append(changed.version)
    assert told == [2]
    found = device.getContainer(story.uuid).result(PATIENCE)
    assert (found.version, found.content) == (2, b"new")


@pytest.mark.parametrize(
    "name, path",
    [
        ("deleteKeyFile", "POST /v1/key-file/deletion"),
        ("deleteUser", "POST /v1/users/{userId}/deletion"),
    ],
)
def test_a_refusal_of_an_act_of_the_account_is_uncertain_as_well(
    mallory: Mallory, name: str, path: str
) -> None:
    [alice] = mallory.people(1)
    device = mallory.device_of(alice)
    with (
        mallory.failing(path, BrokerError.invalidArgumentError("no")),
        pytest.raises(BrokerError.invalidArgumentError) as caught,
    ):
        getattr(device, name)().result(PATIENCE)
    assert caught.value.outcome is WriteOutcome.Uncertain
