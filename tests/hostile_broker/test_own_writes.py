"""Attacks around a change of one's own: what a device sees while it writes has to follow from what it wrote.

Attack 21 of `catalogue`, and of 12 and 19 what a member or the broker can do to the next writer or reader.
"""

import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from scbroker import Promise, SecuredContainer, ServerProvider
from scbroker.client.containers import fetching
from scbroker.crypto.seal import random_bytes
from scbroker.records.judge import Known
from scbroker.wire.containers import ContainerView, RecordReceipt
from tests.hostile_broker.accomplices import OPERATIONS, Mallory, level
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import FORK, INTEGRITY, RECORD, VIEW
from tests.hostile_broker.served import same
from tests.kit.waiting import PATIENCE
from tests.kit.writers import READER, WRITER, User

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


@attack(21, "rollback and fork")
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


@attack(21, "rollback and fork")
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


@attack(12, "recipient swapped at a rotation")
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
@attack(54, "another wrap after a write")
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
