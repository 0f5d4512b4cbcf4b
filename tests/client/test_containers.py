"""Containers over a real broker: what goes in comes out, for those who may, and nobody else."""

import datetime as dt
import io
import uuid
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from scbroker import AccessLevel, BrokerError, ContainerAccessLevel, KeyRing, ServerProvider
from scbroker.client.core.sealing import OpenPart
from scbroker.records.container_record import Role, parse_record, wrap_info
from scbroker.records.judge import governing_of
from tests.client.conftest import id_of, refusal
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.fixtures import NewProvider
from tests.kit.waiting import PATIENCE, wait_until

MIB = 1_048_576
HOUR = dt.timedelta(hours=1)
Level = ContainerAccessLevel
OWNER = Level.DefaultOwnerPermissions
BLOCK = bytes(range(256)) * 4096


def pattern(size: int) -> bytes:
    """Bytes of which no two segments are alike."""
    rounds = -(-size // MIB) if size else 0
    return b"".join(BLOCK[:-8] + n.to_bytes(8, "big") for n in range(rounds))[:size]


def share(provider: ServerProvider, *members: tuple[ServerProvider, Level]) -> list[AccessLevel]:
    """An access list of the provider's user as owner, and these members."""
    levels = [AccessLevel(id_of(member), level) for member, level in members]
    return [AccessLevel(id_of(provider), OWNER), *levels]


def as_path(data: bytes, folder: Path) -> Any:
    (folder / "content").write_bytes(data)
    return folder / "content"


SOURCES: list[Callable[[bytes, Path], Any]] = [
    lambda data, _: data,
    lambda data, _: bytearray(data),
    lambda data, _: memoryview(data),
    as_path,
    lambda data, _: io.BytesIO(data),
    lambda data, _: (data[n : n + 700_001] for n in range(0, len(data), 700_001)),
]
SOURCE_NAMES = ["bytes", "bytearray", "memoryview", "path", "file", "iterator"]


@pytest.mark.sampled
@both_engines
@pytest.mark.parametrize("source", SOURCES, ids=SOURCE_NAMES)
@pytest.mark.parametrize("size", [0, 5, 70_000, MIB + 1])
def test_every_kind_of_content_comes_back_byte_for_byte(
    alice: ServerProvider, source: Any, size: int, tmp_path: Path
) -> None:
    made = alice.createContainer(source(pattern(size), tmp_path)).result(PATIENCE)
    assert (made.version, made.length) == (1, size)
    found = alice.getContainer(made.id).result(PATIENCE)
    assert found.content == pattern(size)
    assert found.length == size


@pytest.mark.sampled
@both_engines
@pytest.mark.parametrize(
    "size", [65_535, 65_536, 65_537, MIB - 1, MIB, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 20 * MIB + 3]
)
def test_no_size_at_a_boundary_loses_a_byte(alice: ServerProvider, size: int) -> None:
    data = pattern(size)
    made = alice.createContainer(data).result(PATIENCE)
    assert (alice.getContainerContent(made.id).result(PATIENCE) or b"") == data
    assert (made.sealedContent is None) == (size > 65_536)


def test_a_content_that_fails_while_it_is_read_makes_no_container(alice: ServerProvider) -> None:
    def broken() -> Iterator[bytes]:
        yield pattern(3 * MIB)
        raise LookupError("the disk is gone")

    refusal(alice.createContainer(broken()), BrokerError.invalidArgumentError, "the disk is gone")
    assert alice.getEvents().result(PATIENCE) == []


@pytest.mark.parametrize(
    "args",
    [
        ([AccessLevel(uuid.uuid4())], [AccessLevel(uuid.uuid4())]),
        ([AccessLevel(uuid.uuid4()), "label"],),
        ({"h": 1}, "label"),
        ("header", "label"),
        (AccessLevel(uuid.uuid4()),),
        ([AccessLevel(uuid.uuid4())], None, "label"),
        ([], [AccessLevel(uuid.uuid4())]),
        ([], None, "label"),
    ],
    ids=range(8),
)
def test_arguments_that_fit_neither_form_of_creation_are_refused_and_nothing_is_created(
    alice: ServerProvider, args: tuple[Any, ...]
) -> None:
    """Above all an access list never becomes a header."""
    provider: Any = alice
    with pytest.raises(BrokerError.invalidArgumentError):
        provider.createContainer(b"c", *args)
    assert alice.getEvents().result(PATIENCE) == []


@pytest.mark.process
@both_engines
def test_access_that_has_ended_by_the_brokers_clock_is_refused(
    fresh_broker: BrokerProcess, new_provider: NewProvider
) -> None:
    """A machine whose clock is slow would give access that nobody can use, without a word."""
    fresh_broker.clock_ahead = 150
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=60)
    with Wire(fresh_broker) as wire:  # the server makes a new Date once a second
        wait_until(lambda: parsedate_to_datetime(wire.send("GET", "/").headers["date"]) > soon)
    alice, bob = (new_provider(True, at=fresh_broker) for _ in range(2))
    found = alice.createContainer(b"").result(PATIENCE).id
    end = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=2)
    own, level = AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob), expiresAt=end)
    [refused] = alice.grantAccess([found], level).result(PATIENCE)
    assert isinstance(refused, BrokerError.clockError)
    with pytest.raises(BrokerError.clockError, match="behind the broker's"):
        alice.createContainer(b"", None, [own, level]).result(PATIENCE)
    with pytest.raises(BrokerError.clockError, match="behind the broker's"):
        alice.createLink([found], expiresAt=end).result(PATIENCE)
    assert alice.getLinks().result(PATIENCE) == []
    later = AccessLevel(id_of(bob), expiresAt=end + dt.timedelta(minutes=2))
    [granted] = alice.grantAccess([found], later).result(PATIENCE)
    assert not isinstance(granted, BrokerError)


def container_key(provider: ServerProvider, container: uuid.UUID) -> bytes:
    """What a cheating member keeps: the key from the wrap that was made for them."""
    secured = provider.getSecuredContainer(container).result(PATIENCE)
    ring: KeyRing = provider.getKeyRing().result(PATIENCE)
    state = provider._current.marks.get("container", container.bytes)  # type: ignore[union-attr]
    assert state is not None
    governing = governing_of(parse_record(governing_body(provider, container)))
    info = wrap_info(container.bytes, governing, ring.rawFingerprint, 0)
    return ring.encryption[0].unwrap(secured.wrap or b"", info)


def governing_body(provider: ServerProvider, container: uuid.UUID) -> bytes:
    """The last governing record's bytes."""
    from scbroker.client.calls.tasks import io_thread
    from scbroker.wire.containers import ContainerView

    session: Any = provider._current
    view = io_thread.submit(
        "view", session.call("GET", f"/v1/containers/{container}", ContainerView)
    ).result(PATIENCE)
    body: bytes = view.governing[-1].record.body
    return body


def opened(secured: Any, key: bytes) -> bytes:
    record = parse_record(secured.record)
    assert record.content is not None
    part = OpenPart.open(record.containerId, Role.Content, record.content, key)
    from scbroker.crypto.verify import sha256

    return part.open_segment(0, secured.sealedContent, sha256(secured.sealedContent))


def test_the_author_of_the_content_stays_when_others_change_the_rest(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    made = alice.createContainer(b"c", accessLevels=share(alice, (bob, Level(511))))
    container = made.result(PATIENCE).id
    bob.updateContainerHeader(container, {"h": 1}).result(PATIENCE)
    bob.revokeAccess(container, [uuid.uuid4()]).result(PATIENCE)
    found = alice.getContainer(container).result(PATIENCE)
    assert (found.contentBy, found.modifiedBy) == (id_of(alice), id_of(bob))
    alice.updateContainerType(container, "t").result(PATIENCE)
    found = alice.getContainerMetadata(container).result(PATIENCE)
    assert (found.headerBy, found.modifiedBy) == (id_of(bob), id_of(alice))
    alice.updateContainerHeader(container).result(PATIENCE)
    assert alice.getContainerMetadata(container).result(PATIENCE).headerBy is None
    bob.updateContainerContent(container, None).result(PATIENCE)
    assert alice.getContainerMetadata(container).result(PATIENCE).contentBy is None
    bob.updateContainerContent(container, b"d").result(PATIENCE)
    assert alice.getContainerMetadata(container).result(PATIENCE).contentBy == id_of(bob)


@pytest.mark.long
def test_a_type_is_changed_by_who_may_although_somebodys_time_is_over(
    ahead: BrokerProcess, new_provider: NewProvider
) -> None:
    alice, bob, carol = (new_provider(True, at=ahead) for _ in range(3))
    ends = dt.datetime.now(dt.UTC) + HOUR
    typist = Level.DefaultUserPermissions | Level.Upload | Level.ModifyType
    levels = [*share(alice, (carol, typist)), AccessLevel(id_of(bob), expiresAt=ends)]
    made = alice.createContainer(b"c", accessLevels=levels).result(PATIENCE)
    before = container_key(carol, made.id)
    ahead.clock_ahead = HOUR.total_seconds()
    carol.updateContainerType(made.id, "note").result(PATIENCE)
    assert alice.getContainerMetadata(made.id).result(PATIENCE).type == "note"
    assert container_key(carol, made.id) == before
    carol.updateContainerContent(made.id, b"d").result(PATIENCE)
    assert container_key(carol, made.id) != before


@both_engines
def test_of_changes_of_the_same_field_at_once_one_succeeds_and_the_rest_conflict(
    alice: ServerProvider,
) -> None:
    made = alice.createContainer(b"c").result(PATIENCE)
    promises = [alice.updateContainerContent(made.id, b"%d" % number) for number in range(4)]
    outcomes: list[object] = []
    for promise in promises:
        try:
            outcomes.append(promise.result(PATIENCE).version)
        except BrokerError.conflictError:
            outcomes.append("conflict")
    assert 2 in outcomes
    won = [number for number, each in enumerate(outcomes) if each != "conflict"]
    assert len(won) + outcomes.count("conflict") == 4
    found = alice.getContainer(made.id).result(PATIENCE)
    assert found.version == 1 + len(won)
    assert found.content in [b"%d" % number for number in won]


def test_if_version_is_a_condition_and_is_not_tried_again(alice: ServerProvider) -> None:
    made = alice.createContainer(b"c").result(PATIENCE)
    alice.updateContainerHeader(made.id, 1, ifVersion=1).result(PATIENCE)
    with pytest.raises(BrokerError.conflictError, match="version 2, not 1"):
        alice.updateContainerContent(made.id, b"d", ifVersion=1).result(PATIENCE)
    assert alice.getContainerContent(made.id).result(PATIENCE) == b"c"


@pytest.mark.long
def test_progress_rises_to_the_whole_and_its_own_failure_harms_nothing(
    alice: ServerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    size = 20 * MIB + 3
    seen: list[tuple[int, int | None]] = []

    def report(done: int, total: int | None) -> None:
        seen.append((done, total))
        raise LookupError("my own")

    made = alice.createContainer(pattern(size), progress=report).result(PATIENCE)
    assert seen == sorted(seen)
    assert seen[-1] == (size, size)
    assert seen.count(seen[-1]) == 1
    seen.clear()
    assert alice.getContainerContent(made.id, progress=report).result(PATIENCE) == pattern(size)
    assert seen == sorted(seen)
    assert seen[-1] == (size, size)
    seen.clear()
    alice.createContainer(iter([b"x" * 100_000]), progress=report).result(PATIENCE)
    assert seen == [(100_000, None)]
    assert {record.getMessage() for record in caplog.records} == {"A progress function failed"}
