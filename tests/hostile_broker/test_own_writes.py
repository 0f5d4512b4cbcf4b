"""Attacks around a change of one's own: what a device sees while it writes has to follow from what it wrote.

Attacks 21, 46 and 54 of attacks.toml, and of 12 what a member or the broker can do to the next writer or
reader.
"""

import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple

import pytest

from scbroker import (
    BrokerError,
    Promise,
    SecuredContainer,
    SentChange,
    ServerProvider,
    WriteOutcome,
)
from scbroker.client.containers import fetching
from scbroker.records.judge import Known
from scbroker.wire.containers import ContainerView, RecordReceipt, RecordRequest
from tests.hostile_broker.accomplices import OPERATIONS, Mallory, level
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import FORK, INTEGRITY, RECORD, VIEW
from tests.hostile_broker.served import same
from tests.kit.crypto import random_bytes
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, WRITER, Story, User

Work = Callable[[], Awaitable[object]]


def swallow(exchange: Exchange) -> None:
    """Takes a record with the right receipt, and drops it."""
    known = Known.parse(exchange.message.record.body)
    exchange.invent(RecordReceipt(version=known.record.version, hash=known.hash), 201)


class Shared(NamedTuple):
    """A container of Alice's that another user may write to, and the devices of both."""

    device: ServerProvider
    theirs: ServerProvider
    id: uuid.UUID

    async def fetch(self) -> object:
        """Read the container in another operation of Alice's program."""
        return await fetching.fetch(self.device._current, self.id)  # type: ignore[arg-type]

    def meanwhile(
        self, monkeypatch: pytest.MonkeyPatch, once: Work, each: Work | None = None
    ) -> None:
        """Do `once` as soon as Alice's record was stored, and `each` before every later reading."""
        session: Any = self.device._current
        honest, taken, busy = session.call, list[object](), list[object]()

        async def call(method: str, path: str, *rest: Any, **options: Any) -> Any:
            if method == "GET" and taken and not busy and each is not None:
                await each()
            answer = await honest(method, path, *rest, **options)
            if method == "PUT" and not taken:
                taken.append(path)
                busy.append(path)
                await once()
                busy.clear()
            return answer

        monkeypatch.setattr(session, "call", call)


def shared(mallory: Mallory, alice: User, other: User, permissions: int = WRITER) -> Shared:
    device, levels = mallory.device_of(alice), [level(alice), level(other, permissions)]
    made = device.createContainer(b"one", {"h": 1}, accessLevels=levels).result(PATIENCE)
    return Shared(device, mallory.device_of(other), made.id)


def test_a_fork_that_begins_at_ones_own_write_is_noticed_whatever_was_read_meanwhile(
    mallory: Mallory, monkeypatch: pytest.MonkeyPatch, alice: User, eve: User
) -> None:
    """Alice's change is dropped, and Eve's of the same version is shown to every reader."""
    it = shared(mallory, alice, eve)
    with mallory.lying(VIEW, same) as views:
        it.device.getContainer(it.id).result(PATIENCE)
    it.theirs.updateContainerContent(it.id, b"Eve's").result(PATIENCE)
    old: list[ContainerView] = views[-1:]
    it.meanwhile(monkeypatch, it.fetch)
    with (
        mallory.meddling(RECORD, before=swallow),
        mallory.lying(VIEW, lambda view: old.pop() if old else view),
        pytest.raises(FORK),
    ):
        it.device.updateContainerContent(it.id, b"Alice's").result(PATIENCE)


def test_what_followed_ones_own_write_and_was_read_meanwhile_is_no_fork(
    mallory: Mallory, monkeypatch: pytest.MonkeyPatch, alice: User, bob: User
) -> None:
    """Bob goes on from Alice's change before she has noted it."""
    it = shared(mallory, alice, bob)

    async def write_twice_and_read() -> None:
        await it.theirs.updateContainerContent(it.id, b"Bob's")
        await it.fetch()
        await it.theirs.updateContainerContent(it.id, b"Bob's second")

    it.meanwhile(monkeypatch, write_twice_and_read)
    assert it.device.updateContainerHeader(it.id, "Alice's").result(PATIENCE).version == 2
    found = it.device.getContainer(it.id).result(PATIENCE)
    assert (found.version, found.content) == (4, b"Bob's second")


def test_a_member_whom_a_writer_was_made_to_give_no_key_is_told_so(mallory: Mallory) -> None:
    """A container without content would be wrong: a program would go on from that."""
    alice, bob = mallory.people(2)
    device, both = mallory.device_of(alice), [level(alice), level(bob, READER)]
    made = device.createContainer(b"x", accessLevels=both).result(PATIENCE)
    his, gone = bob.ring.userId.bytes, "UPDATE users SET deleted = ? WHERE id = ?"
    mallory.query(gone, True, his)
    device.updateContainerAccessLevels(made.id, both).result(PATIENCE)
    mallory.query(gone, False, his)
    mallory.serve_also(made.id, bob, None, READER)
    reader = mallory.device_of(bob)
    for name in ("getContainer", "getContainerContent", "getContainerHeader"):
        with pytest.raises(INTEGRITY):
            OPERATIONS[name](reader, made.id).result(PATIENCE)


CHANGES: dict[str, Callable[[ServerProvider, uuid.UUID], Promise[SecuredContainer]]] = {
    "header": lambda device, it: device.updateContainerHeader(it),
    "content": lambda device, it: device.updateContainerContent(it),
}


@pytest.mark.sampled
@pytest.mark.parametrize("change", CHANGES)
def test_the_result_of_a_write_has_no_wrap_but_the_one_that_was_signed(
    mallory: Mallory, change: str, alice: User
) -> None:
    """To remove a part a writer needs no key, so that a wrap that does not open stops nobody."""
    device = mallory.device_of(alice)
    made = device.createContainer(b"one", {"h": 1}).result(PATIENCE)
    assert made.wrap is not None
    other = device.createContainer(b"two").result(PATIENCE).wrap
    for forged in (other, made.wrap[:-1] + bytes([made.wrap[-1] ^ 1]), random_bytes(1168)):
        with mallory.editing(VIEW, partial(dict.update, wrap=forged)):
            result = CHANGES[change](device, made.id).result(PATIENCE)
        assert result.wrap in (None, made.wrap)
    result = CHANGES[change](device, made.id).result(PATIENCE)
    stored = device.getSecuredContainer(made.id).result(PATIENCE)
    assert (result.wrap, result.length) == (stored.wrap, stored.length)
    assert (result.wrap, result.length) == (made.wrap, 3 if change == "header" else None)


# Records that the broker says it refused: it has them, and can use them at any time. The device knows what it
# sent. It never says that such a change had no effect, and it knows the change again when it takes effect.


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
