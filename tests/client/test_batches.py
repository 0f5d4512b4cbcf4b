"""Many containers in one round trip: each made and judged as it would be alone, each with its own outcome."""

import io
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from scbroker import (
    AccessLevel,
    Availability,
    BrokerError,
    Container,
    ContainerAccessLevel,
    ContainerEventType,
    NewContainer,
    SecuredContainer,
    ServerProvider,
    WriteOutcome,
)
from scbroker.records.batch import MAX_SIGNATURE, BatchSignature
from scbroker.records.canonical import decode_object
from scbroker.wire.containers import RecordsAnswer, ViewsAnswer
from scbroker.wire.problems import ItemProblem
from tests.client.conftest import beside, id_of
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network, lying, refused
from tests.kit.waiting import PATIENCE, wait_until

RECORDS = "/v1/batches/records"
VIEWS = "/v1/batches/views"
KEYS = "/v1/key-records"
OWNER = ContainerAccessLevel.DefaultOwnerPermissions
NOBODY = uuid.UUID("00000000-0000-8000-8000-000000000000")
T = TypeVar("T")


@dataclass
class Note:
    title: str


def notes(count: int, *users: ServerProvider, **more: Any) -> list[NewContainer]:
    levels = [AccessLevel(id_of(user), OWNER) for user in users] or None
    return [
        NewContainer(b"%d" % n, {"title": str(n)}, accessLevels=levels, **more)
        for n in range(count)
    ]


def create(provider: ServerProvider, items: list[NewContainer]) -> list[Any]:
    return provider.createContainers(items).result(PATIENCE)


def ids(provider: ServerProvider, items: list[NewContainer]) -> list[uuid.UUID]:
    return [made.id for made in create(provider, items)]


def get(provider: ServerProvider, wanted: list[uuid.UUID]) -> list[Any]:
    return provider.getContainers(wanted).result(PATIENCE)


def contents(found: list[Any]) -> list[Any]:
    """The content of each, or the class of the error in its place."""
    return [each.content if isinstance(each, Container) else type(each) for each in found]


def test_records_of_one_call_are_dated_once_all_contents_are_uploaded(
    alice: ServerProvider,
) -> None:
    """A record that waits for others' uploads would be too old for the broker: its clock allows minutes."""
    made = create(alice, notes(3))
    assert len({each.createdAt for each in made}) == 1


def test_many_are_created_and_read_in_one_request_each_and_stand_in_their_order(
    alice: ServerProvider, bob: ServerProvider, network: Network
) -> None:
    levels = [AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob))]
    alice.getContainers([]).result(PATIENCE)
    items = [
        NewContainer(content=b"%d" % n, customHeaderObject={"title": str(n)}, type=f"t{n}")
        for n in range(3)
    ] + [NewContainer(None, accessLevels=levels), NewContainer(b"", accessLevels=levels)]
    made = create(alice, items)
    assert all(isinstance(each, SecuredContainer) for each in made)
    assert [each.type for each in made] == ["t0", "t1", "t2", None, None]
    found = get(alice, [each.id for each in made])
    assert [each.id for each in found] == [each.id for each in made]
    assert contents(found) == [b"0", b"1", b"2", None, b""]
    assert [each.header and each.header.customHeaderObject for each in found] == [
        {"title": "0"}, {"title": "1"}, {"title": "2"}, None, None,
    ]  # fmt: skip
    assert len(network.those("POST", RECORDS)) == len(network.those("POST", VIEWS)) == 1
    for secured, container in zip(made, found, strict=True):
        assert secured == alice.getSecuredContainer(container.id).result(PATIENCE)
        assert container == alice.getContainer(container.id).result(PATIENCE)
    assert contents(get(bob, [each.id for each in made])) == [
        *[BrokerError.notFoundError] * 3, None, b"",
    ]  # fmt: skip


def test_nothing_is_asked_for_nothing(alice: ServerProvider, network: Network) -> None:
    id_of(alice)
    before = len(network.sent)
    assert create(alice, []) == get(alice, []) == []
    assert alice.grantAccess([], AccessLevel(NOBODY)).result(PATIENCE) == []
    assert len(network.sent) == before


@pytest.mark.sampled
@pytest.mark.parametrize("count, requests", [(30, 1), (31, 2), (64, 2)])
def test_a_call_of_more_than_30_is_sent_in_two_requests(
    alice: ServerProvider, network: Network, count: int, requests: int
) -> None:
    made = ids(alice, notes(count))
    assert len(network.those("POST", RECORDS)) == requests
    assert contents(get(alice, made)) == [b"%d" % n for n in range(count)]
    assert len(network.those("POST", VIEWS)) == requests


def test_what_is_large_makes_more_requests(alice: ServerProvider, network: Network) -> None:
    header = "x" * 250_000
    made = ids(alice, [NewContainer(b"%d" % n, header) for n in range(12)])
    assert len(network.those("POST", RECORDS)) == 3
    found = get(alice, made)
    assert contents(found) == [b"%d" % n for n in range(12)]
    assert all(each.header.customHeaderObject == header for each in found)
    assert len(network.those("POST", VIEWS)) == 2


def test_the_keys_of_all_recipients_and_of_all_authors_are_asked_for_once(
    alice: ServerProvider,
    bob: ServerProvider,
    carol: ServerProvider,
    network: Network,
    new_provider: NewProvider,
) -> None:
    hers = ids(alice, [*notes(3, alice, bob), *notes(3, alice, bob, carol)])
    his = ids(bob, notes(2, alice, bob))
    before = len(network.those("POST", KEYS))
    assert contents(get(beside(carol, new_provider), hers[3:])) == [b"0", b"1", b"2"]
    assert len(network.those("POST", KEYS)) <= before + 2  # its own when it logs in, and alice's
    assert len(network.those("POST", RECORDS)) == 2
    assert contents(get(alice, [*hers[:1], *his])) == [b"0", b"0", b"1"]


def test_large_contents_files_and_streams_are_sent_ahead_of_their_containers(
    alice: ServerProvider, tmp_path: Path, network: Network
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"p" * 200_000)
    items = [
        NewContainer(b"x" * 70_000),
        NewContainer(path),
        NewContainer(io.BytesIO(b"s" * 100)),
        NewContainer(iter([b"i" * 70_000, b"j" * 70_000])),
        NewContainer(b"small"),
    ]
    made = create(alice, items)
    assert [each.length for each in made] == [70_000, 200_000, 100, 140_000, 5]
    assert len(network.those("POST", RECORDS)) == 1
    assert contents(get(alice, [each.id for each in made])) == [
        b"x" * 70_000, b"p" * 200_000, b"s" * 100, b"i" * 70_000 + b"j" * 70_000, b"small",
    ]  # fmt: skip


def test_what_is_refused_stands_in_its_place_and_the_others_are_made(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * 70_000
        raise OSError("gone")

    items = notes(2, alice, bob)
    items[1:1] = [NewContainer(b"", accessLevels=[AccessLevel(NOBODY)]), NewContainer(broken())]
    found = create(alice, items)
    assert isinstance(found[1], BrokerError.notFoundError)
    assert isinstance(found[2], BrokerError.invalidArgumentError)
    assert found[1].__traceback__ is None
    assert contents(get(bob, [found[0].id, found[3].id])) == [b"0", b"1"]
    assert len(alice.getEvents(ContainerEventType.Added).result(PATIENCE)) == 2
    with lying(refusing(0, "too-large", "no room"), (RecordsAnswer,)):
        found = create(alice, notes(2))
    assert (type(found[0]), str(found[0])) == (BrokerError.tooLargeError, "no room")
    assert isinstance(found[1], SecuredContainer)


def refusing(position: int, code: str, detail: str = "so", times: int = 99) -> Callable[[Any], Any]:
    """Has the broker say of one record that it was refused."""
    left = [times]

    def lie(answer: RecordsAnswer) -> RecordsAnswer:
        if not left[0]:
            return answer
        left[0] -= 1
        problem = ItemProblem(code=code, detail=detail)
        records = list(answer.records)
        records[position] = replace(records[position], receipt=None, problem=problem)
        return replace(answer, records=records)

    return lie


def test_without_an_answer_each_container_has_an_error_of_its_own_once_records_were_sent(
    alice: ServerProvider, network: Network
) -> None:
    made = ids(alice, notes(2))
    down = BrokerError.unreachableError("No broker answers.")
    network.treat("POST", RECORDS, refused(down))
    network.treat("POST", VIEWS, refused(down))
    failed = create(alice, [*notes(2), NewContainer(b"", accessLevels=[AccessLevel(NOBODY)])])
    assert [type(each) for each in failed] == [type(down)] * 2 + [BrokerError.notFoundError]
    assert [each.outcome for each in failed] == [
        WriteOutcome.Uncertain, WriteOutcome.Uncertain, WriteOutcome.NotStored,
    ]  # fmt: skip
    assert len({each.containerId for each in failed}) == 3
    with pytest.raises(BrokerError.unreachableError):
        get(alice, made)


def test_if_no_record_can_be_sent_the_whole_fails_and_nothing_is_stored(
    alice: ServerProvider, network: Network
) -> None:
    down = BrokerError.unreachableError("No broker answers.", sent=False)
    network.treat("POST", RECORDS, refused(down))
    with pytest.raises(BrokerError.unreachableError) as caught:
        create(alice, notes(2))
    assert caught.value.outcome is WriteOutcome.NotStored


DOWN = {
    "no answer": BrokerError.unreachableError("No broker answers."),
    "no capacity": BrokerError.overloadedError("Too much to do."),
    "logged out": BrokerError.notAuthenticatedError("Log in again."),
}


@pytest.mark.sampled
@pytest.mark.parametrize("why", DOWN)
@pytest.mark.parametrize("end", ["/segments", "/hashes"])
def test_without_an_answer_for_what_comes_by_itself_the_whole_fails_as_well(
    alice: ServerProvider, network: Network, why: str, end: str
) -> None:
    made = ids(alice, [NewContainer(b"x" * 3_000_000), *notes(1)])
    network.treat("GET", end, refused(DOWN[why]))
    with pytest.raises(type(DOWN[why])):
        get(alice, made)


@pytest.mark.parametrize("why", DOWN)
def test_without_an_answer_for_what_is_sent_ahead_the_whole_fails_and_none_is_made(
    alice: ServerProvider, network: Network, why: str
) -> None:
    network.treat("PUT", "/chunks/0", refused(DOWN[why]))
    with pytest.raises(type(DOWN[why])):
        create(alice, [NewContainer(b"x" * 3_000_000), *notes(1)])
    assert not network.those("POST", RECORDS)


def test_a_container_that_changes_between_two_pages_is_read_again(
    alice: ServerProvider, bob: ServerProvider, network: Network
) -> None:
    made = ids(alice, notes(2, alice, bob))
    get(bob, made)
    for number in range(3):
        alice.updateContainerContent(made[0], b"new %d" % number).result(PATIENCE)

    def none(answer: Any) -> Any:
        views = [replace(item, view=replace(item.view, skipped=[])) for item in answer.views]
        return replace(answer, views=views)

    network.treat("GET", "/records", refused(BrokerError.conflictError("It was changed."), 1))
    with lying(none, (ViewsAnswer,)):
        assert contents(get(bob, made)) == [b"new 2", b"1"]
    assert len(network.those("GET", "/records")) > 1


def test_what_cannot_be_read_stands_in_its_place_and_the_others_are_read(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    shared = ids(alice, notes(3, alice, bob))
    [private] = ids(alice, notes(1))
    alice.deleteContainer(shared[1]).result(PATIENCE)
    found = get(bob, [shared[0], NOBODY, shared[1], private, shared[2], shared[0]])
    assert contents(found) == [
        b"0", BrokerError.notFoundError, BrokerError.deletedError, BrokerError.notFoundError, b"2", b"0",
    ]  # fmt: skip
    headers = bob.getContainers([shared[0], shared[2]], Note).result(PATIENCE)
    assert [each.header.customHeaderObject for each in headers if isinstance(each, Container)] == [  # type: ignore[union-attr]
        Note("0"), Note("2"),
    ]  # fmt: skip
    alice.updateContainerHeader(shared[0], {"no": "title"}).result(PATIENCE)
    assert contents(list(bob.getContainers(shared[::2], Note).result(PATIENCE))) == [
        BrokerError.invalidArgumentError,
        b"2",
    ]


@pytest.mark.long
@pytest.mark.parametrize("content", [True, False])
@pytest.mark.parametrize("headers", [True, False])
def test_parts_that_are_not_wanted_are_neither_fetched_nor_returned(
    alice: ServerProvider, bob: ServerProvider, network: Network, content: bool, headers: bool
) -> None:
    levels = [AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob))]
    items = [NewContainer(each, {"h": 1}, levels) for each in (b"small", b"x" * 70_000)]
    items.append(NewContainer(None, None, levels))
    made = ids(alice, items)
    with lying(lambda answer: answer, (ViewsAnswer,)) as answers:
        promise = bob.getContainers(made, content=content, headers=headers)
        small, large, empty = promise.result(PATIENCE)
    served: Any = answers[0]
    view = served.views[0].view
    assert (view.header is not None, view.content is not None) == (headers, content)
    assert bool(network.those("GET", "/segments")) == content
    for each, whole in ((small, b"small"), (large, b"x" * 70_000)):
        assert isinstance(each, Container)
        assert each.content == (whole if content else None)
        assert (each.header is not None) == headers
        available = {True: Availability.Available, False: Availability.NotIncluded}
        assert each.contentAvailability is available[content]
        assert each.headerAvailability is available[headers]
        assert each.length == len(whole)
    assert isinstance(empty, Container)
    assert (empty.contentAvailability, empty.headerAvailability) == (Availability.Absent,) * 2
    bob.getContainerHeader(made[0]).result(PATIENCE)
    # The broker writes these events up to a second later, and one an hour for a reader and container.
    fetched = {made[0], made[1]} if content or headers else {made[0]}

    def accessed() -> list[uuid.UUID]:
        found = alice.getEvents(ContainerEventType.Accessed).result(PATIENCE)
        return [event.containerId for event in found]

    wait_until(lambda: len(accessed()) >= len(fetched))
    assert set(accessed()) == fetched


# One signature for many records (docs/spec/ids.md, 2.7).


def signatures(found: list[SecuredContainer | BrokerError]) -> list[bytes]:
    return [each.signature for each in found if isinstance(each, SecuredContainer)]


def test_the_containers_that_a_request_creates_have_one_signature(alice: ServerProvider) -> None:
    found = signatures(alice.createContainers(notes(130)).result(PATIENCE))
    read = [decode_object(BatchSignature, each, MAX_SIGNATURE) for each in found]
    assert [(each.size, each.index) for each in read] == [
        *((64, n) for n in range(64)), *((64, n) for n in range(64)), (2, 0), (2, 1)
    ]  # fmt: skip
    assert len({each.signature for each in read}) == 3
    assert len({each.salt for each in read}) == 130
