"""Attacks on many containers at once: one lie among truths, and answers that are moved, doubled or left out.

Attacks 21, 40, 64 to 67, 70 to 74, 123 and 124 of attacks.toml. A container that the
broker lies about has its own error and keeps its mark; the others are read and made.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from msgspec.structs import replace

from scbroker import (
    BrokerError,
    Container,
    FileTrustStore,
    NewContainer,
    SecuredContainer,
    ServerProvider,
    WriteOutcome,
)
from scbroker.errors import IntegrityError
from scbroker.records import batch
from scbroker.records.batch import BatchSignature
from scbroker.records.canonical import VERSION, decode_object, encode_object, encode_value
from scbroker.records.container_record import record_hash
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import (
    ContainerList,
    RecordOutcome,
    RecordRequest,
    RecordsAnswer,
    RecordsRequest,
    ViewOutcome,
    ViewsAnswer,
)
from scbroker.wire.problems import ItemProblem, item_problem_of
from tests.hostile_broker.accomplices import Mallory, level, marks, verified_marks
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import (
    FAULT,
    FORK,
    INTEGRITY,
    LIST,
    RECORD,
    RECORDS,
    ROLLBACK,
    VIEWS,
)
from tests.kit.cases import in_one_case
from tests.kit.crypto import SigningKey, labelled_hash
from tests.kit.limits import lower
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, Story, User, signed_together, with_signature


def three(alice: User, *others: User) -> list[Story]:
    return [
        Story(alice).created({alice: OWNER, **dict.fromkeys(others, READER)}, content=b"%d" % n)
        for n in range(3)
    ]


def read(device: ServerProvider, told: list[Story]) -> list[Any]:
    found = device.getContainers([story.uuid for story in told]).result(PATIENCE)
    return [each.content if isinstance(each, Container) else type(each) for each in found]


def made(device: ServerProvider, count: int = 3) -> list[type]:
    items = [NewContainer(b"secret") for _ in range(count)]
    return [type(each) for each in device.createContainers(items).result(PATIENCE)]


def test_another_history_among_true_ones_is_a_fork_also_once_the_device_was_started_again(
    mallory: Mallory, tmp_path: Path, alice: User, bob: User
) -> None:
    told = [Story(alice).created({alice: OWNER, bob: OWNER}) for _ in range(3)]
    for story in told:
        story.tell(alice, story.follow(alice, content=b"true"))
    with mallory.device_of(alice, bob, store=FileTrustStore(tmp_path)) as before:
        assert read(before, told) == [b"true"] * 3
    lie = told[0].twin()
    lie.records.pop()
    mallory.plant(lie, lie.follow(bob, content=b"another"))
    device = mallory.device(alice.ring, FileTrustStore(tmp_path))
    assert read(device, told) == [FORK, b"true", b"true"]
    assert read(device, told[:1]) == [FORK]


COUNTS: dict[str, Callable[[Any], Any]] = {
    "one more": lambda items: [*items, items[-1]],
    "twice": lambda items: items * 2,
}


@pytest.mark.parametrize("lie", COUNTS, ids=str)
def test_more_answers_than_were_asked_for_are_taken_for_none(
    mallory: Mallory, alice: User, lie: str
) -> None:
    told = three(alice)
    device = mallory.device_of(alice)
    before = verified_marks(device)
    count = COUNTS[lie]
    with mallory.lying(VIEWS, lambda a: replace(a, views=count(a.views))), pytest.raises(FAULT):
        read(device, told)
    with mallory.lying(RECORDS, lambda a: replace(a, records=count(a.records))):
        assert made(device) == [FAULT] * 3
    assert verified_marks(device) == before


# Grants and revocations change the access list that the broker serves. A broker that serves another list than
# the newest one, or only a part of it, would have the owner sign what the owner did not ask for.


DONE: Final = SecuredContainer


def shared(alice: User, *others: User, count: int = 2) -> list[Story]:
    grants = {alice: OWNER, **dict.fromkeys(others, READER)}
    return [Story(alice).created(grants) for _ in range(count)]


def grant(device: ServerProvider, told: list[Story], user: User) -> list[Any]:
    ids = [story.uuid for story in told]
    return device.grantAccess(ids, level(user, READER)).result(PATIENCE)


def kinds(found: list[Any]) -> list[type]:
    return [type(each) for each in found]


def names(device: ServerProvider, story: Story) -> set[str]:
    found = device.getContainerMetadata(story.uuid).result(PATIENCE)
    return {str(each.userId) for each in found.access or ()}


Sent = Callable[[], list[RecordRequest]]


@pytest.fixture
def sent(mallory: Mallory) -> Sent:
    """Return every record that clients sent in this test, alone or in a batch."""
    first = len(mallory.heard)

    def records() -> list[RecordRequest]:
        found: list[RecordRequest] = []
        for exchange in mallory.heard[first:]:
            if exchange.name == RECORDS:
                found += exchange.message.records
            elif exchange.name == RECORD:
                found.append(exchange.message)
        return found

    return records


@contextmanager
def refusing(mallory: Mallory, code: str) -> Iterator[list[RecordRequest]]:
    """Refuse every record, alone or in a batch, and keep it; yield the kept records."""
    kept: list[RecordRequest] = []
    problem = ItemProblem(code=code, detail="no")

    def refuse_all(exchange: Exchange) -> None:
        records = exchange.message.records
        kept.extend(records)
        refused = RecordOutcome(receipt=None, problem=problem)
        exchange.invent(RecordsAnswer(records=[refused] * len(records)))

    def refuse(exchange: Exchange) -> None:
        kept.append(exchange.message)
        exchange.fail(BrokerError.conflictError("no"))

    with mallory.meddling(RECORDS, before=refuse_all), mallory.meddling(RECORD, before=refuse):
        yield kept


def test_a_revocation_on_an_older_list_does_not_drop_a_member_whose_addition_was_verified(
    mallory: Mallory, sent: Sent, alice: User, bob: User, carol: User
) -> None:
    told = shared(alice, bob)
    for story in told:
        story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: READER, carol: READER}))
    device = mallory.device_of(alice, bob, carol)
    assert all(names(device, story) == {alice.id, bob.id, carol.id} for story in told)
    for story in told:
        mallory.rewind(story, 1)
    ids = [story.uuid for story in told]
    found = device.revokeAccess(ids, bob.ring.userId).result(PATIENCE)
    assert kinds(found) == [ROLLBACK] * 2
    assert sent() == []


@pytest.mark.sampled
@pytest.mark.parametrize("marked", [False, True], ids=["fresh", "marked"])
def test_the_list_of_another_container_gives_nobody_access(
    mallory: Mallory, sent: Sent, alice: User, bob: User, carol: User, marked: bool
) -> None:
    told = [*shared(alice, count=1), *shared(alice, bob)]
    device = mallory.device_of(alice, bob, carol)
    if marked:
        assert all(names(device, story) for story in told)
    before = marks(device)

    def swap(answer: Any) -> Any:
        return replace(answer, views=[answer.views[n] for n in (1, 0, 2)])

    with mallory.lying(VIEWS, swap):
        found = grant(device, told, carol)
    assert [isinstance(each, BrokerError.untrustedError) for each in found[:2]] == [True, True]
    assert kinds(found[2:]) == [DONE]
    assert len(sent()) == 1
    assert before.items() <= marks(device).items() or marked
    assert names(device, told[0]) == {alice.id}


@pytest.mark.sampled
@pytest.mark.parametrize("count", [1, 3])
def test_after_conflicts_without_end_the_client_stops_and_the_outcome_is_uncertain(
    mallory: Mallory, alice: User, carol: User, count: int
) -> None:
    told = shared(alice, count=count)
    device = mallory.device_of(alice, carol)
    with refusing(mallory, "conflict") as kept:
        found = grant(device, told, carol)
    assert kinds(found) == [BrokerError.conflictError] * count
    assert {each.outcome for each in found} == {WriteOutcome.Uncertain}
    assert len(kept) == 16 * count
    assert kinds(grant(device, told, carol)) == [DONE] * count


def test_a_grant_that_was_stored_and_denied_as_a_conflict_is_found_and_not_made_twice(
    mallory: Mallory, sent: Sent, alice: User, carol: User
) -> None:
    told = shared(alice)
    device = mallory.device_of(alice, carol)
    problem = ItemProblem(code="conflict", detail="no")

    def deny(answer: Any) -> Any:
        denied = replace(answer.records[1], receipt=None, problem=problem)
        return replace(answer, records=[answer.records[0], denied])

    with mallory.lying(RECORDS, deny):
        found = grant(device, told, carol)
    assert [(type(each), each.version) for each in found] == [(DONE, 2), (DONE, 2)]
    assert len(sent()) == 2


@pytest.mark.sampled
@pytest.mark.parametrize("marked", [False, True], ids=["fresh", "marked"])
def test_a_member_whom_the_broker_withholds_from_the_list_is_not_dropped_by_a_grant(
    mallory: Mallory, sent: Sent, alice: User, bob: User, carol: User, marked: bool
) -> None:
    told = shared(alice, bob)
    for story in told:
        story.tell(alice, story.follow(alice, type="governing"))
    device = mallory.device_of(alice, bob, carol)
    if marked:
        assert all(names(device, story) == {alice.id, bob.id} for story in told)
    place = sorted([alice.name, bob.name]).index(bob.name)

    def withhold(answer: Any) -> Any:
        view = answer.views[0].view
        governing = [
            item
            if item.accessList is None
            else replace(
                item,
                accessList=replace(
                    item.accessList,
                    disclosed=[e for e in item.accessList.disclosed if e.position != place],
                ),
            )
            for item in view.governing
        ]
        first = replace(answer.views[0], view=replace(view, governing=governing))
        return replace(answer, views=[first, *answer.views[1:]])

    with mallory.lying(VIEWS, withhold):
        assert kinds(grant(device, told, carol)) == [INTEGRITY, DONE]
    assert len(sent()) == 1
    assert names(device, told[0]) == {alice.id, bob.id}
    assert names(device, told[1]) == {alice.id, bob.id, carol.id}


# Lists of containers: entries that are left out, added, moved, doubled, old or of another type.


Lie = Callable[[ContainerList], ContainerList]


def stories(alice: User, count: int = 3, **options: Any) -> list[Story]:
    """Return containers in the order of a list."""
    told = [Story(alice).created(**options) for _ in range(count)]
    return sorted(told, key=lambda story: story.id)


def entries(device: ServerProvider, **wanted: Any) -> list[Any]:
    """Return the version of each entry of a page, or the class of its error."""
    found = device.listContainers(**wanted).result(PATIENCE).containers
    return [each.version if isinstance(each, Container) else type(each) for each in found]


def those(keep: Callable[[int], bool]) -> Lie:
    return lambda page: replace(
        page, containers=[each for n, each in enumerate(page.containers) if keep(n)]
    )


def with_view_of(story: Story, other: Story) -> Lie:
    """Return a lie that serves another container's view under the id of this one."""

    def lie(page: ContainerList) -> ContainerList:
        views = {item.containerId: item.view for item in page.containers}
        return replace(
            page,
            containers=[
                replace(item, view=views[str(other.uuid)])
                if item.containerId == str(story.uuid)
                else item
                for item in page.containers
            ],
        )

    return lie


def test_an_empty_list_has_every_known_container_in_left_out_by_bounded_pages(
    mallory: Mallory, alice: User
) -> None:
    told = stories(alice, 5)
    device = mallory.device_of(alice)
    assert entries(device) == [1] * 5
    mallory.query("DELETE FROM members WHERE user_id = ?", alice.ring.userId.bytes)
    assert left_out(device) == [story.uuid for story in told]


def test_a_device_that_was_restarted_names_them_whatever_the_order_of_its_marks(
    mallory: Mallory, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, mark_entries=0)
    told = stories(alice, 5)
    device = mallory.device_of(alice, store=mallory.new_store())
    for story in reversed(told):
        device.getContainer(story.uuid).result(PATIENCE)
    device = mallory.restarted(device)
    mallory.query("DELETE FROM members WHERE user_id = ?", alice.ring.userId.bytes)
    assert left_out(device) == [story.uuid for story in told]


def left_out(device: ServerProvider) -> list[UUID]:
    """Return the containers that pages of two leave out."""
    left: list[UUID] = []
    after: UUID | None = None
    while True:
        page = device.listContainers(startAfter=after, limit=2).result(PATIENCE)
        assert len(page.leftOut) <= 2
        left += page.leftOut
        if (after := page.next) is None:
            return left


def test_only_a_verified_tombstone_excuses_a_container_that_is_left_out(
    mallory: Mallory, alice: User
) -> None:
    told = stories(alice)
    device = mallory.device_of(alice)
    assert entries(device) == [1, 1, 1]

    def claim(page: ViewsAnswer) -> ViewsAnswer:
        problem = item_problem_of(BrokerError.deletedError())
        return replace(page, views=[ViewOutcome(view=None, problem=problem)])

    with mallory.lying(LIST, those(lambda n: n != 1)), mallory.lying(VIEWS, claim):
        assert entries(device) == [1, INTEGRITY, 1]
    told[1].tell(alice, told[1].follow(alice, tombstone=True))
    assert entries(device) == [1, 1]
    count = len(mallory.heard)
    assert entries(device) == [1, 1]
    assert mallory.since(count) == [LIST], "the proof is remembered"


DISORDER: dict[str, Lie] = {
    "moved": lambda page: replace(page, containers=page.containers[::-1]),
    "doubled": lambda page: replace(page, containers=[page.containers[0], *page.containers]),
    "a next that skips": lambda page: replace(page, next=str(UUID(int=2**128 - 1))),
    "a next that goes back": lambda page: replace(page, next=page.containers[0].containerId),
    "a next of nothing": lambda page: replace(page, containers=[], next=str(UUID(int=2**127))),
}


@pytest.mark.parametrize("lie", DISORDER.values(), ids=DISORDER)
def test_a_list_out_of_order_is_refused_as_a_whole(mallory: Mallory, alice: User, lie: Lie) -> None:
    stories(alice)
    device = mallory.device_of(alice)
    before = marks(device)
    with mallory.lying(LIST, lie):
        with pytest.raises(FAULT):
            device.listContainers().result(PATIENCE)
        with pytest.raises(FAULT):
            list(device.iterContainers())
    assert marks(device) == before


def test_a_page_begins_after_its_cursor_and_has_no_more_than_were_asked_for(
    mallory: Mallory, alice: User
) -> None:
    told = stories(alice)
    device = mallory.device_of(alice)
    pages: list[ContainerList] = []

    def first_again(page: ContainerList) -> ContainerList:
        pages.append(page)
        return pages[0]

    with mallory.lying(LIST, first_again):
        device.listContainers(limit=1).result(PATIENCE)
        with pytest.raises(FAULT):
            device.listContainers(startAfter=told[0].uuid, limit=1).result(PATIENCE)
        with pytest.raises(FAULT):
            list(device.iterContainers(startAfter=told[0].uuid))
    pages.clear()
    with mallory.lying(LIST, first_again):
        assert entries(device) == [1, 1, 1]
        with pytest.raises(FAULT):
            device.listContainers(limit=2).result(PATIENCE)


def test_a_view_of_another_container_is_an_error_in_its_place(
    mallory: Mallory, alice: User
) -> None:
    told = stories(alice)
    device = mallory.device_of(alice)
    with mallory.lying(LIST, with_view_of(told[1], told[2])):
        assert entries(device) == [1, INTEGRITY, 1]
    assert entries(device) == [1, 1, 1]


def test_a_container_without_access_or_of_another_type_is_an_error_in_its_place(
    mallory: Mallory, alice: User, bob: User
) -> None:
    letter, other = stories(alice, 1, type="letter")[0], stories(alice, 1, type="other")[0]
    device = mallory.device_of(alice, bob)
    mallory.query("UPDATE members SET type = 'letter' WHERE container_id = ?", other.id)
    wanted = sorted([(letter.id, 1), (other.id, INTEGRITY)], key=lambda each: each[0])
    assert entries(device, containerType="letter") == [what for _, what in wanted]
    closed = Story(bob).created({bob: OWNER})
    mallory.serve_also(closed.uuid, alice, None)
    found = device.listContainers().result(PATIENCE).containers
    [error] = [each for each in found if isinstance(each, BrokerError)]
    assert (type(error), error.containerId) == (INTEGRITY, closed.uuid)
    assert len(found) == 3


def test_a_hidden_type_is_not_passed_off_as_the_one_asked_for(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """Bob may not see the type, so his client cannot verify which type the broker lists."""
    story = Story(alice).created({alice: OWNER, bob: READER & ~Level.ViewType}, type="letter")
    device = mallory.device_of(bob, alice)
    mallory.query("UPDATE members SET type = 'letter' WHERE container_id = ?", story.id)
    assert entries(device, containerType="letter") == [INTEGRITY]
    assert entries(device) == [1]


def test_an_older_state_in_a_list_is_refused_and_the_others_are_read(
    mallory: Mallory, alice: User
) -> None:
    told = stories(alice)
    for story in told:
        story.tell(alice, story.follow(alice, type="new"))
    device = mallory.device_of(alice, store=mallory.new_store())
    assert entries(device) == [2, 2, 2]
    before = marks(device)
    mallory.plant(told[1].twin(), told[1].requests[0])
    for _ in range(2):
        assert entries(device) == [2, ROLLBACK, 2]
        assert marks(device) == before
        device = mallory.restarted(device)


def test_a_known_container_is_judged_by_its_mark_although_the_request_did_not_name_it(
    mallory: Mallory, alice: User
) -> None:
    """With a type the request names only the first marks; the broker serves other containers whole."""
    told = stories(alice, 4, type="old")
    for story in told:
        story.tell(alice, story.follow(alice, type="letter"))
    device = mallory.device_of(alice)
    assert entries(device) == [2] * 4
    last = told[-1]
    mallory.plant(last.twin(), last.requests[0])
    mallory.query("UPDATE members SET type = NULL WHERE container_id <> ?", last.id)
    mallory.query("UPDATE members SET type = 'letter' WHERE container_id = ?", last.id)
    assert entries(device, containerType="letter", limit=1) == [ROLLBACK]


# One signature for many records. The tree is hashed here by labels that stand here, so that a change of the
# program's own does not go unnoticed.


def leaf(salt: bytes, digest: bytes) -> bytes:
    return labelled_hash("batch-leaf", salt, digest)


def proof_in(signature: bytes) -> BatchSignature:
    return decode_object(BatchSignature, signature, batch.MAX_SIGNATURE)


def begun(alice: User) -> tuple[list[Story], list[RecordRequest]]:
    stories = [Story(alice) for _ in range(3)]
    return stories, signed_together(alice, [story.begin(content=b"it") for story in stories])


def test_a_broker_stores_no_record_by_the_signature_of_another_one_of_its_batch(
    mallory: Mallory, alice: User
) -> None:
    stories, requests = begun(alice)
    one, two, three = (request.record.signature for request in requests)
    moved = [with_signature(requests[0], two), with_signature(requests[1], one)]
    assert _codes(alice, [*moved, with_signature(requests[2], three)]) == [
        "rejected",
        "rejected",
        None,
    ]
    assert _codes(alice, requests) == [None] * 3
    found = mallory.device_of(alice).getContainers([each.uuid for each in stories]).result(PATIENCE)
    assert all(isinstance(each, Container) for each in found)


@in_one_case("size, levels, index", [(4, 1, 0), (2, 2, 0), (2, 1, 2)])
def test_an_author_cannot_sign_a_path_or_a_position_that_the_batch_does_not_have(
    size: int, levels: int, index: int
) -> None:
    """Otherwise one reader could accept what another one refuses."""
    key, salt, other, digest = SigningKey.generate(), bytes(32), bytes([1]) * 32, bytes([2]) * 32
    root = labelled_hash("batch-node", leaf(salt, digest), other)
    if levels == 2:
        root = labelled_hash("batch-node", other, root)
    signed = key.sign("batch", VERSION + encode_value([size, root]))
    proof = BatchSignature(signed, salt, size, index, other * levels)
    with pytest.raises(IntegrityError):
        batch.verify(key.public, digest, encode_object(proof))


def test_a_batch_that_verified_lets_no_other_signature_of_it_through(
    mallory: Mallory, alice: User
) -> None:
    """A record that a broker stored with it could be read by nobody who did not see the others first."""
    stories, requests = begun(alice)
    proof = proof_in(requests[1].record.signature)
    spoilt = replace(proof, signature=bytes(len(proof.signature)))
    forged = with_signature(requests[1], encode_object(spoilt))
    assert _codes(alice, [requests[0], forged, requests[2]]) == [None, "rejected", None]
    mallory.plant(stories[1], forged)
    device = mallory.device_of(alice)
    found = device.getContainers([each.uuid for each in stories]).result(PATIENCE)
    assert [isinstance(each, Container) for each in found] == [True, False, True]
    assert isinstance(found[1], BrokerError.integrityError)


def test_a_batch_that_verified_for_one_key_does_not_verify_for_another(
    alice: User, bob: User
) -> None:
    requests = signed_together(alice, [Story(alice).begin(), Story(alice).begin()])
    body, signature = requests[0].record.body, requests[0].record.signature
    batch.verify(alice.ring.signing[0].public, record_hash(body), signature)
    with pytest.raises(IntegrityError):
        batch.verify(bob.ring.signing[0].public, record_hash(body), signature)


def test_a_path_tells_nothing_about_a_record_that_a_reader_can_guess(
    mallory: Mallory, alice: User
) -> None:
    """The hash in the path is not that of the guess, under any salt that the reader has."""
    device = mallory.device_of(alice)
    made = device.createContainers([NewContainer(b"1"), NewContainer(b"2")]).result(PATIENCE)
    first, second = (each for each in made if isinstance(each, SecuredContainer))
    guess, proof = record_hash(second.record), proof_in(first.signature)
    assert proof.path == leaf(proof_in(second.signature).salt, guess)
    guesses = [guess, *(leaf(salt, guess) for salt in (b"", bytes(32), proof.salt))]
    assert proof.path not in guesses


def _codes(user: User, requests: list[RecordRequest]) -> list[str | None]:
    answer = user.wire.call("POST", "/v1/batches/records", RecordsRequest(records=requests))
    outcomes = answer.expect(200).message(RecordsAnswer).records
    return [item.problem.code if item.problem else None for item in outcomes]


# Limits


def test_leaving_out_containers_that_a_device_never_read_is_the_limit(
    mallory: Mallory, alice: User
) -> None:
    stories(alice)
    device = mallory.device_of(alice)
    with mallory.lying(LIST, those(lambda n: n != 1)):
        page = device.listContainers().result(PATIENCE)
    assert (len(page.containers), page.leftOut) == (2, [])


def test_a_grant_on_an_older_list_by_a_device_that_never_read_the_container_is_the_limit(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """The list that this device signs has Bob again. A device that read the removal refuses it as a fork."""
    [story] = shared(alice, bob, count=1)
    story.tell(alice, story.follow(alice, grants={alice: OWNER}))
    older_device = mallory.device_of(alice, bob, carol)
    assert names(older_device, story) == {alice.id}
    mallory.rewind(story, 1)
    mallory.query(
        "DELETE FROM access_lists WHERE container_id = ? AND access_version > 1", story.id
    )
    fresh = mallory.device_of(alice, bob, carol)
    assert kinds(grant(fresh, [story], carol)) == [DONE]
    assert names(fresh, story) == {alice.id, bob.id, carol.id}
    mallory.check_refused(older_device, story, FORK)
