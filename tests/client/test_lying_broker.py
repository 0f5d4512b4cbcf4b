"""A broker that lies: every lie about a container or a user's keys is found, and believed by nobody.

The broker is real; what it answers is changed on its way to the reader. After each lie the reader
still reads the truth: nothing of the lie was kept.
"""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import (
    AccessLevel,
    BrokerError,
    ContainerAccessLevel,
    KeyRing,
    MemoryTrustStore,
    ServerProvider,
)
from scbroker.client.http.requests import Requests
from scbroker.client.users.session import Session
from scbroker.crypto.seal import Octets
from scbroker.records.container_record import SEALED_SEGMENT
from scbroker.wire.containers import Bodies, ContainerView, GoverningPage, ListView, SignedRecord
from scbroker.wire.events import Event, Events, details_hash
from scbroker.wire.users import KeyRecords
from tests.client.conftest import id_of, refusal
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.waiting import PATIENCE

Level = ContainerAccessLevel
OWNER = Level.DefaultOwnerPermissions
Lie = Callable[[Any], Any]


@contextmanager
def lying(lie: Lie, about: tuple[type, ...] = (ContainerView,)) -> Iterator[list[object]]:
    """Give every client `lie(answer)` in place of an answer of these kinds."""
    honest, told = Requests.call, []

    async def call(self: Requests, method: str, path: str, answer: Any, **options: Any) -> Any:
        found = await honest(self, method, path, answer, **options)
        if isinstance(found, about):
            told.append(found)
            return lie(found)
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Requests, "call", call)
        yield told


def flipped(data: bytes, position: int = -1) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


def with_record(view: Any, **changes: bytes) -> Any:
    """The view with its newest record changed."""
    if view.head is not None:
        return replace(view, head=replace(view.head, **changes))
    last = view.governing[-1]
    record = replace(last.record, **changes)
    return replace(view, governing=[*view.governing[:-1], replace(last, record=record)])


def newest(view: Any) -> SignedRecord:
    record: SignedRecord = view.head or view.governing[-1].record
    return record


LIES: dict[str, Lie] = {
    "a signature's first half": lambda v: with_record(v, signature=flipped(newest(v).signature, 0)),
    "a signature's second half": lambda v: with_record(v, signature=flipped(newest(v).signature)),
    "a record's body": lambda v: with_record(v, body=flipped(newest(v).body, -40)),
    "a record that is none": lambda v: with_record(v, body=b"\x01\x90"),
    "the wrap": lambda v: replace(v, wrap=flipped(v.wrap)),
    "the wrap withheld": lambda v: replace(v, wrap=None),
    "the type": lambda v: replace(v, type=replace(v.type, type="another")),
    "the type's salt": lambda v: replace(v, type=replace(v.type, salt=bytes(32))),
    "the type withheld": lambda v: replace(v, type=None),
    "the header": lambda v: replace(v, header=flipped(v.header)),
    "the header withheld": lambda v: replace(v, header=None),
    "the header's bytes as content": lambda v: replace(v, content=v.header),
    "the content": lambda v: replace(v, content=flipped(v.content)),
    "the content cut": lambda v: replace(v, content=v.content[:-1]),
    "the content withheld": lambda v: replace(v, content=None),
    "the head withheld": lambda v: replace(v, head=None),
    "an entry hidden": lambda v: hide(v),
    "the list withheld": lambda v: replace(
        v, governing=[replace(v.governing[0], accessList=None), *v.governing[1:]]
    ),
    "governing records withheld": lambda v: replace(
        v, governing=v.governing[-1:], lastGoverning=v.lastGoverning
    ),
    "the last governing record withheld": lambda v: replace(
        v, governing=v.governing[:-1], lastGoverning=v.lastGoverning - 1
    ),
    "a governing record as if it were none": lambda v: replace(
        v, head=v.governing[-1].record, governing=v.governing[:-1], lastGoverning=1
    ),
    "governing records doubled": lambda v: replace(v, governing=v.governing[:1] * 2),
    "no author's keys": lambda v: replace(v, governing=v.governing, keyChains=[]),
}
HARMLESS = {"no author's keys"}


def hide(view: Any) -> Any:
    """Shows one entry fewer of the newest list."""
    shown = view.governing[-1].accessList
    fewer = ListView(entryHashes=shown.entryHashes, disclosed=shown.disclosed[:1])
    last = replace(view.governing[-1], accessList=fewer)
    return replace(view, governing=[*view.governing[:-1], last])


@pytest.fixture
def shared(alice: ServerProvider, bob: ServerProvider) -> uuid.UUID:
    """A container of alice's and bob's with two governing records and a head that is none."""
    levels = [AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob), OWNER)]
    made = alice.createContainer(b"c", {"h": 1}, accessLevels=levels, type="t").result(PATIENCE)
    alice.updateContainerAccessLevels(made.id, levels).result(PATIENCE)
    alice.updateContainerContent(made.id, b"truth").result(PATIENCE)
    return made.id


@pytest.mark.sampled
@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_fresh_reader_finds_the_lie_and_then_reads_the_truth(
    bob: ServerProvider, shared: uuid.UUID, lie: str
) -> None:
    with lying(LIES[lie]) as told:
        if lie in HARMLESS:
            bob.getContainer(shared).result(PATIENCE)
        else:
            refusal(bob.getContainer(shared), BrokerError.untrustedError)
        assert told
    found = bob.getContainer(shared).result(PATIENCE)
    assert (found.content, found.type, found.version) == (b"truth", "t", 3)


WITH_A_MARK = {
    "nothing that leads from the version seen to this one": lambda v: (
        replace(v, skipped=[]) if isinstance(v, ContainerView) else replace(v, bodies=[])
    ),
    "one body withheld": lambda v: (
        replace(v, skipped=v.skipped[:-1]) if isinstance(v, ContainerView) else replace(v, bodies=[])
    ),
    "a body changed": lambda v: (
        replace(v, skipped=[*v.skipped[:-1], flipped(v.skipped[-1], -40)])
        if isinstance(v, ContainerView)
        else replace(v, bodies=[])
    ),
    "the governing record of the mark withheld": lambda v: (
        replace(v, governing=v.governing[1:]) if isinstance(v, ContainerView) else v
    ),
    "a new governing record among the bodies that are not judged": lambda v: (
        replace(v, governing=v.governing[:1], lastGoverning=1,
                skipped=sorted([*v.skipped, v.governing[-1].record.body]))
        if isinstance(v, ContainerView) else v
    ),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("lie", WITH_A_MARK, ids=str)
@pytest.mark.parametrize("level", [OWNER, Level.Download | Level.Decrypt], ids=["all", "no list"])
def test_a_reader_with_a_mark_finds_what_is_withheld_between(
    alice: ServerProvider, bob: ServerProvider, lie: str, level: Level
) -> None:
    """Also one who does not see the list, whose mark is incomplete (container.md, section 8)."""
    levels = [AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob), level)]
    made = alice.createContainer(b"0", {"h": 1}, accessLevels=levels).result(PATIENCE)
    assert bob.getContainerContent(made.id).result(PATIENCE) == b"0"
    for number in range(1, 4):
        alice.updateContainerContent(made.id, b"%d" % number).result(PATIENCE)
    alice.updateContainerAccessLevels(made.id, levels).result(PATIENCE)
    alice.updateContainerHeader(made.id, {"h": 2}).result(PATIENCE)
    with (
        lying(WITH_A_MARK[lie], (ContainerView, Bodies, GoverningPage)) as told,
        pytest.raises(BrokerError.untrustedError),
    ):
        bob.getContainer(made.id).result(PATIENCE)
    assert told
    found = bob.getContainer(made.id).result(PATIENCE)
    assert (found.content, found.version) == (b"3", 6)


@pytest.mark.parametrize("level", [OWNER, Level.Download | Level.Decrypt], ids=["all", "no list"])
def test_an_older_answer_is_a_rollback_and_another_containers_is_refused(
    alice: ServerProvider, bob: ServerProvider, level: Level
) -> None:
    levels = [AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob), level)]
    made = alice.createContainer(b"old", accessLevels=levels).result(PATIENCE)
    other = alice.createContainer(b"other", accessLevels=levels).result(PATIENCE)
    with lying(lambda view: view) as told:
        bob.getContainer(made.id).result(PATIENCE)
    alice.updateContainerContent(made.id, b"new").result(PATIENCE)
    assert bob.getContainerContent(made.id).result(PATIENCE) == b"new"
    with lying(lambda _: told[0]), pytest.raises(BrokerError.rollbackError):
        bob.getContainer(made.id).result(PATIENCE)
    with lying(lambda _: told[0]), pytest.raises(BrokerError.integrityError):
        bob.getContainer(other.id).result(PATIENCE)
    assert bob.getContainerContent(made.id).result(PATIENCE) == b"new"


@pytest.mark.sampled
@pytest.mark.parametrize(
    "lie",
    [
        lambda path, data: flipped(data) if "/segments" in path else data,
        lambda path, data: data[:-1] if "/segments" in path else data,
        lambda path, data: b"" if "/segments" in path else data,
        lambda path, data: swapped(data) if "/segments" in path else data,
        lambda path, data: flipped(data) if "/hashes" in path else data,
        lambda path, data: data[:-32] if "/hashes" in path else data,
        lambda path, data: b"" if "/hashes" in path else data,
    ],
    ids=["flipped", "cut", "none", "swapped", "a hash", "a hash fewer", "no hashes"],
)
def test_segments_that_were_changed_cut_or_moved_do_not_open(
    alice: ServerProvider, lie: Callable[[str, bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = alice.createContainer(b"x" * 3_000_000).result(PATIENCE)
    honest = Session.send

    async def send(self: Session, method: str, path: str, **options: Any) -> Octets:
        told = lie(path, bytes(await honest(self, method, path, **options)))
        target: memoryview | None = options.get("target")
        if target is None:
            return told
        target[: len(told)] = told
        return target[: len(told)]

    with monkeypatch.context() as patched:
        patched.setattr(Session, "send", send)
        with pytest.raises((BrokerError.untrustedError, BrokerError.brokerFaultError)):
            alice.getContainerContent(made.id).result(PATIENCE)
    assert alice.getContainerContent(made.id).result(PATIENCE) == b"x" * 3_000_000


def swapped(data: bytes) -> bytes:
    size = SEALED_SEGMENT
    return data[size : 2 * size] + data[:size] + data[2 * size :]


def test_keys_of_somebody_else_are_never_shared_with(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    """The broker answers for carol with bob's keys: she would share with whom it likes."""
    with lying(lambda keys: keys, (KeyRecords,)) as told:
        alice.getPublicKeys(id_of(bob)).result(PATIENCE)
    bobs: Any = told[-1]

    def substituted(keys: Any) -> Any:
        users = [replace(user, keyRecords=bobs.users[0].keyRecords) for user in keys.users]
        return replace(keys, users=users)

    with lying(substituted, (KeyRecords,)):
        for attempt in (
            alice.getPublicKeys(id_of(carol)),
            alice.createContainer(b"", accessLevels=[AccessLevel(id_of(carol))]),
        ):
            refusal(attempt, BrokerError.keySubstitutionError)


def test_cut_or_changed_key_records_are_refused(alice: ServerProvider, bob: ServerProvider) -> None:
    def cut(keys: Any) -> Any:
        return replace(keys, users=[replace(u, keyRecords=u.keyRecords[:1]) for u in keys.users])

    def changed(keys: Any) -> Any:
        first, second = keys.users[0].keyRecords
        forged = replace(second, signature=flipped(second.signature))
        return replace(keys, users=[replace(keys.users[0], keyRecords=[first, forged])])

    def of_others(keys: Any) -> Any:
        return replace(keys, users=[replace(keys.users[0], userId=str(uuid.uuid4()))])

    for lie in (cut, changed, of_others):
        with (
            lying(lie, (KeyRecords,)),
            pytest.raises((BrokerError.untrustedError, BrokerError.brokerFaultError)),
        ):
            alice.getPublicKeys(id_of(bob)).result(PATIENCE)
    assert len(alice.getPublicKeys(id_of(bob)).result(PATIENCE)) == 2


@pytest.fixture
def restorable(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of the test's own with all that it keeps in one folder."""
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


@pytest.mark.long
@pytest.mark.parametrize("level", [OWNER, Level.Download | Level.Decrypt], ids=["all", "no list"])
def test_a_broker_restored_from_a_backup_is_a_rollback_and_then_a_fork(
    restorable: BrokerProcess, new_provider: NewProvider, tmp_path: Path, level: Level
) -> None:
    """What was written after the backup was seen; what is written after the restoration differs."""
    broker = restorable
    rings = [broker.new_user(), broker.new_user()]
    alice, bob = (log_in(broker, ring, new_provider) for ring in rings)
    levels = [AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob), level)]
    made = alice.createContainer(b"1", accessLevels=levels).result(PATIENCE)
    backup = tmp_path / "backup"
    broker.stop()
    shutil.copytree(broker.directory, backup)
    broker.start()
    alice.updateContainerContent(made.id, b"2").result(PATIENCE)
    assert bob.getContainerContent(made.id).result(PATIENCE) == b"2"

    broker.stop()
    shutil.rmtree(broker.directory)
    shutil.copytree(backup, broker.directory)
    broker.start()
    for provider in (alice, bob):
        refusal(provider.getContainer(made.id), BrokerError.rollbackError)
    elsewhere = log_in(broker, rings[0], new_provider)
    for _ in range(2):
        elsewhere.updateContainerContent(made.id, b"other").result(PATIENCE)
        for provider in (alice, bob):
            refusal(provider.getContainer(made.id), BrokerError.forkError)
            refusal(provider.updateContainerHeader(made.id, 1), BrokerError.untrustedError)
    fresh = log_in(broker, rings[1], new_provider)
    assert fresh.getContainerContent(made.id).result(PATIENCE) == b"other"


def log_in(broker: BrokerProcess, ring: KeyRing, new_provider: NewProvider) -> ServerProvider:
    """A device of its own, at this broker."""
    provider = new_provider(at=broker, trustStore=MemoryTrustStore())
    provider.logIn(keyRing=ring, userId=ring.userId).result(PATIENCE)
    return provider


def _events(change: Lie) -> Lie:
    """A lie about the events of an answer, as a list that may be changed."""
    return lambda page: replace(page, events=change(list(page.events)))


def emptied(event: Event, details_hash: bytes) -> Event:
    """The event as it stands in a log once its container is deleted."""
    return replace(
        event, containerType=None, version=0, relatedUserId=None, applicationName="", changes=[],
        salt=None, detailsHash=details_hash,
    )  # fmt: skip


LOG_LIES: dict[str, tuple[Lie, type[BrokerError]]] = {
    "one left out": (_events(lambda e: e[:1] + e[2:]), BrokerError.integrityError),
    "the last left out": (_events(lambda e: e[:-1]), BrokerError.integrityError),
    "the first left out": (_events(lambda e: e[1:]), BrokerError.integrityError),
    "one twice": (_events(lambda e: [e[0], *e]), BrokerError.brokerFaultError),
    "two in another order": (_events(lambda e: [e[1], e[0], *e[2:]]), BrokerError.brokerFaultError),
    "two that changed places": (
         _events(lambda e: [replace(e[1], id=e[0].id), replace(e[0], id=e[1].id), *e[2:]]),
         BrokerError.forkError),
    "one with another content":
        (_events(lambda e: [replace(e[0], version=7), *e[1:]]), BrokerError.forkError),
    "one of another container": (
         _events(lambda e: [replace(e[0], containerId=str(uuid.UUID(int=7))), *e[1:]]),
         BrokerError.forkError),
    "one with another content beside the hash of its own": (
        _events(
            lambda e: [replace(e[0], version=7, salt=None, detailsHash=details_hash(e[0])), *e[1:]]
        ),
        BrokerError.brokerFaultError,
    ),
    "one without its content":
        (_events(lambda e: [replace(e[0], salt=None), *e[1:]]), BrokerError.brokerFaultError),
    "one emptied, with another hash":
        (_events(lambda e: [emptied(e[0], bytes(32)), *e[1:]]), BrokerError.forkError),
    "cut short":
        (lambda p: replace(p, events=p.events[:-1], lastId=p.lastId - 1), BrokerError.rollbackError),
    "longer than anybody could list":
        (lambda p: replace(p, lastId=2**53 - 1), BrokerError.integrityError),
    "forgotten": (lambda p: replace(p, events=[], lastId=0), BrokerError.rollbackError),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", LOG_LIES, ids=str)
def test_a_device_that_read_its_event_log_notices_every_change_to_it(
    alice: ServerProvider, shared: uuid.UUID, name: str
) -> None:
    lie, error = LOG_LIES[name]
    truth = alice.getEvents().result(PATIENCE)
    assert len(truth) == 3
    with lying(lie, (Events,)) as told, pytest.raises(error):
        alice.getEvents().result(PATIENCE)
    assert told
    assert alice.getEvents().result(PATIENCE) == truth
    alice.updateContainerHeader(shared, 2).result(PATIENCE)
    assert len(alice.getEvents(startId=4).result(PATIENCE)) == 1
    with lying(lie, (Events,)), pytest.raises(error):
        alice.getEvents().result(PATIENCE)


def test_a_fresh_device_believes_a_changed_event_and_no_gap_which_is_the_limit(
    new_provider: NewProvider, alice: ServerProvider, shared: uuid.UUID
) -> None:
    fresh = new_provider(alice.getKeyRing().result(PATIENCE))
    lie, error = LOG_LIES["one left out"]
    with lying(lie, (Events,)), pytest.raises(error):
        fresh.getEvents().result(PATIENCE)
    lie, _ = LOG_LIES["one with another content"]
    with lying(lie, (Events,)):
        assert fresh.getEvents().result(PATIENCE)[0].version == 7
    refusal(fresh.getEvents(), BrokerError.forkError)
    assert fresh.getContainerMetadata(shared).result(PATIENCE).version == 3
