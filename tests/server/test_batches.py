"""Several records, and several views, in one request: each as it would be alone (protocol.md, 5)."""

import uuid
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from scbroker.errors import OverloadedError
from scbroker.server.broker import Call
from scbroker.server.containers.appending import append_records
from scbroker.vocabulary import KeyType
from scbroker.wire.codec import encode
from scbroker.wire.containers import (
    PAGE_BYTES,
    ContainerView,
    RecordOutcome,
    RecordRequest,
    RecordsAnswer,
    RecordsRequest,
    ViewOutcome,
    ViewRequest,
    ViewsAnswer,
    ViewsRequest,
)
from tests.kit.beside import further_broker
from tests.kit.both_engines import on_sqlite
from tests.kit.brokers import Answer, BrokerProcess, clock
from tests.kit.writers import OWNER, READER, Story, User, rotate, session_of, signed_together
from tests.server.conftest import NewUser, Unchanged

RECORDS = "/v1/batches/records"
VIEWS = "/v1/batches/views"


def post(user: User, requests: Sequence[RecordRequest]) -> Answer:
    return user.wire.call("POST", RECORDS, RecordsRequest(records=list(requests)))


def append(user: User, requests: Sequence[RecordRequest]) -> list[RecordOutcome]:
    return post(user, requests).expect(200).message(RecordsAnswer).records


def codes(outcomes: Sequence[RecordOutcome | ViewOutcome]) -> list[str | None]:
    """The code of each problem; None for what was done."""
    for item in outcomes:
        result = item.receipt if isinstance(item, RecordOutcome) else item.view
        assert (result is None) != (item.problem is None)
    return [item.problem.code if item.problem else None for item in outcomes]


def asked(story: Story, since: int | None = None, *, parts: bool = True) -> ViewRequest:
    name = str(uuid.UUID(bytes=story.id))
    return ViewRequest(containerId=name, since=since, header=parts, content=parts)


def view(user: User, requests: Sequence[ViewRequest]) -> list[ViewOutcome]:
    answer = user.wire.call("POST", VIEWS, ViewsRequest(views=list(requests)))
    return answer.expect(200).message(ViewsAnswer).views


def begun(user: User, count: int) -> tuple[list[Story], list[RecordRequest]]:
    stories = [Story(user) for _ in range(count)]
    return stories, [story.begin() for story in stories]


# Records.


@on_sqlite
def test_records_of_one_container_follow_each_other_in_one_batch(new_user: NewUser) -> None:
    alice = new_user()
    story = Story(alice)
    first = supposed(story, story.begin())
    second = supposed(story, story.follow(alice, content=b"2"))
    third = supposed(story, story.follow(alice, type="three"))
    late = replace(second, record=story.sign(alice, replace(story.records[1], time=clock())).record)
    assert codes(append(alice, [first, second, third, late])) == [None, None, None, "conflict"]
    found = alice.view(story, "content=1")
    assert (found.head, found.lastGoverning, found.content) == (None, 3, second.content)


def supposed(story: Story, request: RecordRequest) -> RecordRequest:
    """Has the story go on as if this were taken, which nobody sent yet."""
    record, story.key, story.grants = story._drafts[request.record.body]
    story.records.append(record)
    return request


def test_a_part_id_is_used_once_also_within_a_batch(new_user: NewUser) -> None:
    alice = new_user()
    first, second, third = Story(alice), Story(alice), Story(alice)
    request = first.begin()
    part = first._drafts[request.record.body][0].content
    batch = [
        request,
        replace(second.begin(content=part), content=request.content),
        third.begin(),
        replace(Story(alice).begin(content=part), content=request.content),
    ]
    assert codes(append(alice, batch)) == [None, "rejected", None, "rejected"]
    assert len(alice.events()) == 2


@pytest.mark.sampled
@pytest.mark.parametrize("order", [1, -1], ids=["changed first", "new first"])
def test_new_changed_and_deleted_containers_of_one_batch_have_the_members_of_their_own_records(
    new_user: NewUser, order: int
) -> None:
    """Their rows are inserted together, and those of a changed container take the place of older ones."""
    alice, bob, carol = new_user(), new_user(), new_user()
    changed = [Story(alice).created({alice: OWNER, bob: READER}) for _ in range(3)]
    deleted = Story(alice).created({alice: OWNER, bob: READER})
    new = [Story(alice), Story(alice)]
    for_carol = {alice: OWNER, carol: READER}
    batch = [
        ("Updated", changed[0], changed[0].follow(alice, grants=for_carol)),
        ("Updated", changed[1], changed[1].follow(alice, grants=for_carol)),
        ("Added", new[0], new[0].begin({alice: OWNER, bob: READER})),
        ("Deleted", deleted, deleted.follow(alice, tombstone=True)),
        ("Updated", changed[2], changed[2].follow(alice, grants=for_carol)),
        ("Added", new[1], new[1].begin(for_carol)),
    ][::order]
    before = len(alice.events())
    assert codes(append(alice, [request for _, _, request in batch])) == [None] * 6
    told = [(event.eventType, event.containerId) for event in alice.events()[before:]]
    assert told == [(kind, str(story.uuid)) for kind, story, _ in batch]
    stories = [*changed, deleted, *new]
    assert codes(view(bob, [asked(each) for each in stories])) == [
        "not-found", "not-found", "not-found", None, None, "not-found",
    ]  # fmt: skip
    assert codes(view(carol, [asked(each) for each in stories])) == [
        None, None, None, "not-found", "not-found", None,
    ]  # fmt: skip


def test_a_batch_by_a_retired_key_is_refused_and_its_stored_records_have_their_receipts(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice = new_user()
    stored, late = (begun(alice, 2)[1] for _ in range(2))
    first = signed_together(alice, stored)
    receipts = append(alice, first)
    second = signed_together(alice, late)
    rotate(broker.database_url, alice, (KeyType.Signing, 0), signing=1)
    assert codes(append(alice, second)) == ["rejected", "rejected"]
    assert append(alice, first) == receipts
    assert codes(append(alice, [*first, *second])) == [None, None, "rejected", "rejected"]


@on_sqlite
def test_a_batch_has_no_more_access_entries_than_one_record_may_have(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice = new_user()
    request = Story(alice).begin()
    entries = request.accessList or []
    half = replace(request, accessList=entries * 513)
    with unchanged():
        post(alice, [half, half]).expect(413, "too-large")


async def test_a_batch_is_refused_if_key_records_were_added_after_the_session_was_read(
    new_user: NewUser, broker: BrokerProcess
) -> None:
    alice = new_user()
    newer = rotate(broker.database_url, alice, encryption=1)
    stories, requests = begun(newer, 3)
    call = Call("tests", "", {}, session_of(newer))
    async with further_broker(broker.database_url) as here:
        with pytest.raises(OverloadedError, match="try again"):
            await append_records(here, call, RecordsRequest(records=requests))
    newer.wire.call("GET", stories[0].path).expect(404)
    assert codes(append(newer, requests)) == [None] * 3


# Views.


def test_the_views_of_a_batch_are_those_that_come_alone(new_user: NewUser) -> None:
    """Fresh or from a mark, with parts or without, whole lists or a reader's part of them."""
    alice, bob = new_user(), new_user()
    stories = [Story(alice).created({alice: OWNER, bob: 3}, header=b"h") for _ in range(3)]
    stories[1].tell(alice, stories[1].follow(alice, content=b"2"))
    stories[2].tell(alice, stories[2].follow(alice, grants={alice: OWNER, bob: 3 | READER}))
    stories[2].tell(alice, stories[2].follow(alice, header=b"2"))
    for user in (alice, bob):
        wanted = [
            asked(stories[0]), asked(stories[1], since=1), asked(stories[2], since=2, parts=False),
            asked(stories[1]), asked(stories[2]), asked(stories[0], since=1, parts=False),
            asked(stories[0]),
        ]  # fmt: skip
        for item, outcome in zip(wanted, view(user, wanted), strict=True):
            query = f"header={int(item.header)}&content={int(item.content)}"
            if item.since is not None:
                query += f"&since={item.since}"
            path = f"/v1/containers/{item.containerId}?{query}"
            assert outcome.problem is None
            assert outcome.view is not None
            alone = user.wire.call("GET", path).expect(200).message(ContainerView)
            assert replace(outcome.view, keyChains=[]) == replace(alone, keyChains=[])
            named = {each.userId: each.sequence for each in alone.keyChains}
            assert {each.userId: each.sequence for each in outcome.view.keyChains} == named


@on_sqlite
def test_a_broker_answers_for_as_many_as_fit_and_for_one_at_least(new_user: NewUser) -> None:
    alice = new_user()
    large = [Story(alice).created(header=bytes(250_000)) for _ in range(10)]
    wanted = [asked(story) for story in large]
    sizes, left = [], wanted
    while left:
        outcomes = view(alice, left)
        assert outcomes == view(alice, left)
        size = sum(len(encode(item)) for item in outcomes)
        assert size < PAGE_BYTES + 300_000
        sizes.append(len(outcomes))
        left = left[len(outcomes) :]
    assert sum(sizes) == 10
    assert len(sizes) > 1
