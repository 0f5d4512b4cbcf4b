"""Attacks around a change of one's own: what a device sees while it writes has to follow from what it wrote.

Attack 21 of `catalogue`, and of 12 and 19 what a member or the broker can do to the next writer or reader.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from scbroker import BrokerError, ServerProvider
from scbroker.client.containers import fetching
from scbroker.client.core import sealing
from scbroker.crypto.seal import random_bytes
from scbroker.records.judge import Known
from scbroker.wire import codec
from scbroker.wire.containers import ContainerView, RecordReceipt
from tests.hostile_broker.accomplices import RECORD, VIEW, device_of, level, people
from tests.hostile_broker.broker import PATIENCE, Exchange, HostileBroker
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.conftest import refused
from tests.kit.tables import query
from tests.kit.writers import READER, WRITER

FORK = BrokerError.forkError
Work = Callable[[], Awaitable[object]]


def swallow(exchange: Exchange) -> None:
    """Takes a record with the right receipt, and drops it."""
    known = Known.parse(exchange.message.record.body)
    exchange.status = 201
    exchange.answer = RecordReceipt(version=known.record.version, hash=known.hash)
    exchange.answer_headers = {"content-type": codec.MESSAGE}


def read_after_the_next_write(
    monkeypatch: pytest.MonkeyPatch, device: ServerProvider, container: Any
) -> None:
    """What another operation of the same program does as soon as a record was taken."""
    session: Any = device._current
    honest, done = session.call, list[object]()

    async def call(method: str, path: str, *rest: Any, **options: Any) -> Any:
        answer = await honest(method, path, *rest, **options)
        if method == "PUT" and not done:
            done.append(await fetching.fetch(session, container))
        return answer

    monkeypatch.setattr(session, "call", call)


@attack(21, "rollback and fork")
def test_a_fork_that_begins_at_ones_own_write_is_noticed_whatever_was_read_meanwhile(
    mallory: HostileBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alice's change is dropped, and Eve's of the same version is shown to whoever reads."""
    alice, eve = people(mallory, 2)
    hers, device = device_of(mallory, eve), device_of(mallory, alice)
    made = device.createContainer(b"one", accessLevels=[level(alice), level(eve, WRITER)])
    it = made.result(PATIENCE).id
    with mallory.lying(VIEW, lambda view: view) as views:
        device.getContainer(it).result(PATIENCE)
    hers.updateContainerContent(it, b"Eve's").result(PATIENCE)
    old: list[ContainerView] = views[-1:]
    read_after_the_next_write(monkeypatch, device, it)
    with (
        mallory.meddling(RECORD, before=swallow),
        mallory.lying(VIEW, lambda view: old.pop() if old else view),
        pytest.raises(FORK),
    ):
        device.updateContainerContent(it, b"Alice's").result(PATIENCE)


@attack(21, "rollback and fork")
def test_what_followed_ones_own_write_and_was_read_meanwhile_is_no_fork(
    mallory: HostileBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bob goes on from Alice's change before she has noted it."""
    alice, bob = people(mallory, 2)
    his, device = device_of(mallory, bob), device_of(mallory, alice)
    made = device.createContainer(b"one", accessLevels=[level(alice), level(bob, WRITER)])
    it = made.result(PATIENCE).id
    session: Any = device._current
    honest, told = session.call, list[object]()

    async def call(method: str, path: str, *rest: Any, **options: Any) -> Any:
        answer = await honest(method, path, *rest, **options)
        if method == "PUT" and not told:
            told.append(await his.updateContainerContent(it, b"Bob's"))
            told.append(await fetching.fetch(session, it))
            told.append(await his.updateContainerContent(it, b"Bob's second"))
        return answer

    monkeypatch.setattr(session, "call", call)
    assert device.updateContainerHeader(it, "Alice's").result(PATIENCE).version == 2
    found = device.getContainer(it).result(PATIENCE)
    assert (found.version, found.content) == (4, b"Bob's second")


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, device: ServerProvider, once: Work, each: Work
) -> None:
    """Others do `once` as soon as a record was taken, and `each` before every reading from then on."""
    session: Any = device._current
    honest, taken, busy = session.call, list[object](), list[object]()

    async def call(method: str, path: str, *rest: Any, **options: Any) -> Any:
        if method == "GET" and taken and not busy:
            await each()
        answer = await honest(method, path, *rest, **options)
        if method == "PUT" and not taken:
            taken.append(path)
            busy.append(path)
            await once()
            busy.clear()
        return answer

    monkeypatch.setattr(session, "call", call)


@attack(21, "rollback and fork")
def test_a_change_that_is_stored_is_not_said_to_be_somebody_elses_however_busy_others_are(
    mallory: HostileBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = people(mallory, 2)
    his, device = device_of(mallory, bob), device_of(mallory, alice)
    made = device.createContainer(b"one", accessLevels=[level(alice), level(bob, WRITER)])
    it = made.result(PATIENCE).id

    async def write() -> None:
        await his.updateContainerContent(it, b"Bob's")

    async def write_and_read() -> None:
        await write()
        await fetching.fetch(device._current, it)  # type: ignore[arg-type]

    meanwhile(monkeypatch, device, write_and_read, write)
    sent = len(mallory.heard)
    with pytest.raises(BrokerError.conflictError, match="The change is stored"):
        device.updateContainerHeader(it, "Alice's").result(PATIENCE)
    headers = [
        exchange.message.header for exchange in mallory.heard[sent:] if exchange.name == RECORD
    ]
    assert [header is not None for header in headers].count(True) == 1, "it was sent once"
    monkeypatch.undo()
    header = device.getContainerHeader(it).result(PATIENCE)
    assert header is not None
    assert header.customHeaderObject == "Alice's"


@attack(21, "rollback and fork")
def test_a_change_that_is_stored_has_succeeded_although_the_container_is_deleted_behind_it(
    mallory: HostileBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = people(mallory, 2)
    his, device = device_of(mallory, bob), device_of(mallory, alice)
    made = device.createContainer(b"one", accessLevels=[level(alice), level(bob)])
    it, deleted = made.result(PATIENCE).id, list[object]()

    async def write_and_read() -> None:
        await his.updateContainerContent(it, b"Bob's")
        await fetching.fetch(device._current, it)  # type: ignore[arg-type]

    async def delete() -> None:
        if not deleted:
            deleted.append(it)
            await his.deleteContainer(it)

    meanwhile(monkeypatch, device, write_and_read, delete)
    assert device.updateContainerHeader(it, "Alice's").result(PATIENCE).version == 2
    assert deleted
    monkeypatch.undo()
    with pytest.raises(BrokerError.deletedError):
        device.getContainer(it).result(PATIENCE)


@attack(19, "parts spliced")
def test_a_part_key_that_is_rubbish_keeps_nobody_from_the_rest(
    mallory: HostileBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer spoils the content, and with it nothing but the content."""
    alice, eve = people(mallory, 2)
    hers, device = device_of(mallory, eve), device_of(mallory, alice)
    made = device.createContainer(b"x", {"h": 1}, accessLevels=[level(alice), level(eve, WRITER)])
    it = made.result(PATIENCE).id
    with monkeypatch.context() as patched:
        patched.setattr(sealing, "seal_part_key", lambda *_: random_bytes(112))
        hers.updateContainerContent(it, b"spoilt").result(PATIENCE)
    changed = device.updateContainerHeader(it, {"h": 2}).result(PATIENCE)
    assert (changed.version, changed.length) == (3, None)
    header = device.getContainerHeader(it).result(PATIENCE)
    assert header is not None
    assert header.customHeaderObject == {"h": 2}
    with refused(mallory, device, BrokerError.decryptionError) as attempt:
        attempt(device.getContainerContent(it))
    device.updateContainerContent(it, b"mended").result(PATIENCE)
    assert device.getContainerContent(it).result(PATIENCE) == b"mended"


@attack(12, "recipient swapped at a rotation")
def test_a_member_whom_a_writer_was_made_to_give_no_key_is_told_so(mallory: HostileBroker) -> None:
    """And is not shown a container without content: a program would go on from that."""
    alice, bob = people(mallory, 2)
    device, both = device_of(mallory, alice), [level(alice), level(bob, READER)]
    made = device.createContainer(b"x", accessLevels=both).result(PATIENCE)
    url, his = mallory.behind.database_url, bob.ring.userId.bytes
    gone = "UPDATE users SET deleted = ? WHERE id = ?"
    query(url, gone, True, his)
    device.updateContainerAccessLevels(made.id, both).result(PATIENCE)
    query(url, gone, False, his)
    query(
        url,
        "INSERT INTO members (container_id, user_id, permissions, wrap, expires_at, expiry_told)"
        " VALUES (?, ?, ?, NULL, NULL, 0)",
        made.id.bytes, his, int(READER),
    )  # fmt: skip
    reader = device_of(mallory, bob)
    reads: list[Callable[[Any], Any]] = [
        reader.getContainer, reader.getContainerContent, reader.getContainerHeader,
    ]  # fmt: skip
    for read in reads:
        with pytest.raises(BrokerError.integrityError):
            read(made.id).result(PATIENCE)


@attack(5, "own keys replaced")
def test_ones_own_keys_are_not_forgotten_where_the_marks_could_not_be_looked_up(
    mallory: HostileBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    [alice] = people(mallory, 1)
    device = device_of(mallory, alice)
    session: Any = device._current

    def locked(*_: object) -> None:
        raise BrokerError.trustStoreError("The trust store is locked by another process.")

    with monkeypatch.context() as patched:
        patched.setattr(session.marks, "get", locked)
        with pytest.raises(BrokerError.trustStoreError):
            device.getPublicKeys().result(PATIENCE)
    assert device.createContainer(b"x").result(PATIENCE).version == 1
