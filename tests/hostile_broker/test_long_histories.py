"""Attacks with histories and answers that are too long, and with numbers that leave a device stuck.

Attacks 40, 48, 49 and 176 of attacks.toml. A broker chooses where a page ends, so pages of one record stand
for pages of 2 MiB.
"""

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, ContainerEventType, Head, ServerProvider
from scbroker.client.containers import fetching
from scbroker.client.core.judging import Mark
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import ContainerRecord, Link, parse_record
from scbroker.server.broker import Broker, Call, RecentCache
from scbroker.server.containers import views
from scbroker.server.groups import memberships
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import (
    DEPARTURE_SIZE,
    MAX_GOVERNING,
    MAX_GOVERNING_WITHOUT_DELETE,
    MAX_SKIPPED,
    Bodies,
    GoverningQuery,
    GoverningView,
    SignedRecord,
    ViewQuery,
)
from scbroker.wire.events import Events
from tests.hostile_broker.accomplices import NO_LIST, OPERATIONS, Mallory, level, marks
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import BODIES, EVENTS, FORK, GOVERNING, INTEGRITY, ROLLBACK, VIEW
from tests.hostile_broker.served import instead
from tests.hostile_broker.test_event_log import log_of_five, reads
from tests.kit.beside import beside
from tests.kit.brokers import BrokerProcess, Wire, clock
from tests.kit.groups import SHARER, Group
from tests.kit.limits import lower
from tests.kit.waiting import PATIENCE
from tests.kit.writers import (
    OWNER,
    WRITER,
    Story,
    User,
    authorized,
    chain_of,
    leave,
    renewed,
    session_of,
    store,
    storing,
)

LABELS: Final = OWNER & ~Level.Delete & ~Level.ModifyAccess


def relabelled(alice: User, bob: User, carol: User, count: int) -> Story:
    """A container whose type Bob, who may not delete it, has changed so often."""
    story = Story(alice).created({alice: OWNER, bob: LABELS, carol: NO_LIST})
    for number in range(count):
        story.tell(bob, story.follow(bob, type=str(number)))
    story.tell(alice, story.follow(alice, content=b"last"))
    return story


@contextmanager
def pages_of_one(mallory: Mallory, after: int | None = None) -> Iterator[list[str]]:
    """Every page has one record. After so many pages no more are served. Gives the requests for them."""
    asked: list[str] = []

    def cut(answer: Any) -> Any:
        return replace(answer, governing=answer.governing[:1])

    def withhold(exchange: Exchange) -> None:
        asked.append(exchange.query)
        if after is not None and len(asked) > after:
            exchange.fail(BrokerError.throttledError("later", retryAfter=60.0))

    with (
        mallory.lying(VIEW, cut),
        mallory.meddling(GOVERNING, before=withhold),
        mallory.lying(GOVERNING, cut),
    ):
        yield asked


def mark_of(mallory: Any, story: Story) -> Mark | None:
    stored = marks(mallory).get((fetching.KIND, story.id))
    return None if stored is None else Mark.decode(stored)


@pytest.mark.long
def test_a_reading_that_was_cut_off_goes_on_where_it_was_and_the_owner_removes_who_did_it(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """No total bound ends it for good: each reading gets further, and then everything works again."""
    story = relabelled(alice, bob, carol, 6)
    device = mallory.device_of(alice)
    with pages_of_one(mallory, after=3) as asked, pytest.raises(BrokerError.throttledError):
        device.getContainer(story.uuid).result(PATIENCE)
    assert len(asked) == 4
    reached = mark_of(device, story)
    assert reached is not None
    assert (reached.version, reached.partial, reached.complete) == (4, True, True)
    with pages_of_one(mallory) as asked:
        found = device.getContainer(story.uuid).result(PATIENCE)
    assert (found.content, found.type, found.version) == (b"last", "5", 8)
    assert [query.partition("&")[0] for query in asked] == ["from=5", "from=6", "from=7"]
    reached = mark_of(device, story)
    assert reached is not None
    assert (reached.version, reached.partial) == (8, False)
    with pages_of_one(mallory):
        fresh = mallory.device_of(alice)
        fresh.updateContainerAccessLevels(story.uuid).result(PATIENCE)
        fresh.deleteContainer(story.uuid).result(PATIENCE)


def test_a_reader_who_does_not_see_the_list_verifies_the_whole_past_each_time_which_is_the_limit(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    story = relabelled(alice, bob, carol, 2)
    device = mallory.device_of(carol)
    for _ in range(2):
        with pages_of_one(mallory) as asked:
            device.getContainer(story.uuid).result(PATIENCE)
        assert len(asked) == 2


@pytest.mark.long
@pytest.mark.parametrize("reader", ["alice", "carol"])
def test_a_tombstone_that_is_not_verified_yet_moves_no_mark_to_another_history(
    mallory: Mallory, reader: str, alice: User, bob: User, carol: User, eve: User
) -> None:
    """The tombstone is a pretext not to show the records that lead from the mark to the first page's end."""
    story = relabelled(alice, bob, carol, 3)
    device = mallory.device_of({"alice": alice, "carol": carol}[reader], eve)
    device.getContainer(story.uuid).result(PATIENCE)
    before = marks(device)
    other = mallory.rewind(story, 4)
    for changes in ({"content": b"5"}, {"content": b"6"}, {"type": "7"}, {"type": "8"}):
        mallory.plant(other, other.follow(bob, **changes))
    pretext = other.altered(eve, other.follow(alice, tombstone=True), author=eve.name).record
    for head in (pretext, other.follow(bob, tombstone=True).record):
        with (
            mallory.lying(VIEW, instead(head=head)),
            pages_of_one(mallory),
            pytest.raises(BrokerError.untrustedError),
        ):
            device.getContainer(story.uuid).result(PATIENCE)
        assert marks(device) == before
    mallory.rewind(story, 5)
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"last"


def test_authors_with_many_keys_are_judged_a_few_at_a_time(
    mallory: Mallory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question for all of their keys would be too long; that for the keys of a few never is."""
    alice, *others = mallory.people(6)
    story = Story(alice).created({alice: OWNER, **dict.fromkeys(others, LABELS)})
    for number, user in enumerate(others):
        story.tell(user, story.follow(user, type=str(number)))
    device = mallory.device_of(alice)
    lower(monkeypatch, key_records=6)  # each user has two key records
    lower(monkeypatch, piece_signers=3)
    shown: list[str | None] = []
    with suppress(BrokerError.tooLargeError):
        shown.append(device.getContainer(story.uuid).result(PATIENCE).type)
    assert shown == ["4"]


@pytest.mark.long
def test_leavers_with_many_keys_are_judged_a_few_at_a_time(
    mallory: Mallory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else members who leave one list at once could make a container unreadable for its owner."""
    alice, *others = mallory.people(6)
    story = Story(alice).created({alice: OWNER, **dict.fromkeys(others, LABELS)})
    story.tell(others[0], story.follow(others[0], type="1"))
    for user in others:
        leave(story, user).expect(204)
    device = mallory.device_of(alice)
    lower(monkeypatch, key_records=6)  # each user has two key records
    lower(monkeypatch, piece_signers=3)
    found = device.getContainer(story.uuid).result(PATIENCE)
    assert [str(each.userId) for each in found.access or ()] == [alice.id]
    device.deleteContainer(story.uuid).result(PATIENCE)


# Answers that never end, each of them quick: no timeout ends what is always answered in time.


FAR: Final = 2**53 - 1
_ENOUGH: Final = 5


def head_at(story: Story, signer: User, version: int) -> SignedRecord:
    """Return a record of this version, signed by this user, whose parent does not exist."""
    forged = story.follow(signer)
    return story.altered(signer, forged, version=version, parent=bytes(32)).record


def bodies(story: Story, head: ContainerRecord, *, governing: bool) -> Iterator[bytes]:
    """Yield bodies that lead to this head, linked by hashes; if `governing`, each changes the type."""
    record, old = story.head, story.governing
    assert old.governing is not None
    digests = (replace(old.governing, type=n.to_bytes(32)) for n in itertools.count())
    for version in range(story.head.version + 1, head.version):
        link = Link(old.version, story.hash(old))
        record = replace(head, version=version, parent=story.hash(record), link=link)
        if governing:
            record = old = replace(record, governing=next(digests))
        yield encode_object(record)


@contextmanager
def endless(
    mallory: Mallory,
    story: Story,
    head: SignedRecord,
    *,
    at_once: int = MAX_SKIPPED,
    governing: bool = False,
) -> Iterator[list[int]]:
    """The container has this head, and pages of bodies lead to it; gives where they began.

    After a few pages there is no more, so that no test is endless.
    """
    made = bodies(story, parse_record(head.body), governing=governing)
    asked: list[int] = []

    def answer(exchange: Exchange) -> None:
        asked.append(int(exchange.query.partition("from=")[2].partition("&")[0]))
        page = list(itertools.islice(made, at_once if len(asked) < _ENOUGH else 0))
        exchange.invent(Bodies(bodies=page))

    with (
        mallory.lying(VIEW, instead(head=head, skipped=[])),
        mallory.meddling(BODIES, before=answer),
    ):
        yield asked


def read_before(mallory: Mallory, alice: User, bob: User) -> tuple[Story, ServerProvider]:
    """A container of two owners, and a device of Alice's that has read it."""
    story = Story(alice).created({alice: OWNER, bob: OWNER})
    device = mallory.device_of(alice, bob)
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"content"
    return story, device


@pytest.mark.sampled
@pytest.mark.parametrize("level", [OWNER, NO_LIST], ids=["all", "no list"])
def test_nothing_is_fetched_that_leads_to_a_head_which_no_member_signed(
    mallory: Mallory, level: int, alice: User, bob: User, carol: User, eve: User
) -> None:
    """The broker's own users are no members either: anybody can register."""
    story = Story(bob).created({bob: OWNER, alice: level, carol: Level.Download})
    device = mallory.device_of(alice, bob, carol, eve)
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"content"
    strangers = [head_at(story, user, FAR) for user in (eve, carol)]
    garbage = replace(head_at(story, bob, FAR), signature=strangers[0].signature)
    for head in (*strangers, garbage):
        with endless(mallory, story, head) as asked:
            mallory.check_refused(device, story, INTEGRITY)
        assert asked == []
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"content"


def test_a_head_that_a_member_signed_for_a_version_out_of_reach_is_too_far(
    mallory: Mallory, alice: User, bob: User
) -> None:
    story, device = read_before(mallory, alice, bob)
    head = head_at(story, bob, FAR)
    with endless(mallory, story, head) as asked:
        mallory.check_refused(device, story, BrokerError.tooLargeError)
        assert asked == []
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"content"


def test_governing_records_among_bodies_that_are_not_judged_end_it_at_the_first(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """Each would be kept until the end, when it is found that none of them was served as governing."""
    story, device = read_before(mallory, alice, bob)
    head = head_at(story, bob, 500_000)
    with endless(mallory, story, head, governing=True) as asked:
        mallory.check_refused(device, story, INTEGRITY, "getContainer")
        assert asked == [2]


def test_pages_of_fewer_bodies_than_there_are_do_not_make_more_requests_of_it(
    mallory: Mallory, alice: User, bob: User
) -> None:
    story, device = read_before(mallory, alice, bob)
    head = head_at(story, bob, 500_000)
    with endless(mallory, story, head, at_once=1) as asked:
        mallory.check_refused(device, story, FORK, "getContainer")
        assert asked == [2]


# Numbers that no honest broker reaches. The device keeps none that it has not verified. If a broker and a
# member made it verify one, the user can accept the honest history, after looking at both heads.


NEAR: Final = 1_000_000
REFUSALS: Final = BrokerError.eventsExpiredError, INTEGRITY, BrokerError.brokerFaultError


def lying_ends(**fields: Any) -> Any:
    return lambda log: replace(log, **fields)


@pytest.mark.sampled
@pytest.mark.parametrize("known", [False, True], ids=["fresh", "known"])
@pytest.mark.parametrize("far", [NEAR, FAR], ids=["near", "far"])
def test_no_end_of_the_log_that_a_broker_names_once_keeps_a_device_from_an_honest_one(
    mallory: Mallory, known: bool, far: int
) -> None:
    """In filtered answers, in refused ones, and in those that name the next id alone."""
    alice, story = log_of_five(mallory)
    device = mallory.device_of(alice)
    if known:
        assert reads(device) == [1, 2, 3, 4, 5]
    before = marks(device)
    ends = {"firstId": far, "lastId": far, "events": [], "droppedDigest": b"d" * 32}
    attempts: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"eventType": ContainerEventType.Deleted}, {"lastId": far}),
        ({"containerId": story.uuid}, {"lastId": far}),
        ({"containerType": "letter", "startId": 2}, ends),
        ({"startId": 1}, ends),
        ({"startId": 6}, ends),
        ({"startId": far}, {"lastId": far - 1, "events": []}),
        ({}, {"lastId": far}),
        ({}, {"firstId": far, "lastId": far}),
    ]
    for criteria, lie in attempts:
        with mallory.lying(EVENTS, lying_ends(**lie)), suppress(*REFUSALS):
            reads(device, **criteria)
        assert marks(device) == before
    assert reads(device) == [1, 2, 3, 4, 5]
    assert reads(device, eventType=ContainerEventType.Added) == [1]


def test_events_that_a_broker_invented_are_left_by_accepting_the_end_that_an_honest_one_serves(
    mallory: Mallory,
) -> None:
    alice, story = log_of_five(mallory)
    device = mallory.device_of(alice)

    def longer(log: Events) -> Events:
        invented = [replace(log.events[-1], id=number) for number in (6, 7)]
        return replace(log, events=[*log.events, *invented], lastId=7)

    with mallory.lying(EVENTS, longer):
        assert len(reads(device)) == 7
    with mallory.refused(device, ROLLBACK) as attempt:
        error = attempt(device.getEvents())
        attempt(device.getEvents(startId=8))
    assert "resetEventMark" in str(error)
    before = marks(device)
    heads = device.resetEventMark().result(PATIENCE)
    assert heads.stored is not None
    assert (heads.stored.version, heads.served.version) == (7, 5)
    for wrong in (heads.stored, Head(5, bytes(32)), Head(4, heads.served.hash)):
        with pytest.raises(BrokerError.conflictError):
            device.resetEventMark(wrong).result(PATIENCE)
    assert marks(device) == before
    story.tell(alice, story.follow(alice, content=b"6"))  # meanwhile it has grown
    assert device.resetEventMark(accept=heads.served).result(PATIENCE) == heads
    assert reads(device) == [1, 2, 3, 4, 5, 6]


def stuck(mallory: Mallory, alice: User, bob: User) -> tuple[Story, ServerProvider]:
    """A device of Alice's that was fresh when Bob and the broker showed it the last possible version."""
    story = Story(alice).created({alice: OWNER, bob: OWNER})
    device = mallory.device_of(alice, bob)
    with mallory.lying(VIEW, instead(head=head_at(story, bob, FAR))):
        assert device.getContainerMetadata(story.uuid).result(PATIENCE).version == FAR
        for name in ("updateContainerHeader", "deleteContainer"):
            with pytest.raises(BrokerError.tooLargeError, match="resetContainerMark"):
                OPERATIONS[name](device, story.uuid).result(PATIENCE)
    with mallory.refused(device, ROLLBACK) as attempt:
        error = attempt(device.getContainer(story.uuid))
    assert "resetContainerMark" in str(error)
    return story, device


def test_a_head_of_the_last_version_is_left_by_accepting_the_one_that_an_honest_broker_serves(
    mallory: Mallory, alice: User, bob: User
) -> None:
    story, device = stuck(mallory, alice, bob)
    before = marks(device)
    heads = device.resetContainerMark(story.uuid).result(PATIENCE)
    assert heads.stored is not None
    assert heads.stored.version == FAR
    assert heads.served == Head(1, story.hash(story.head))
    assert marks(device) == before, "looking changes nothing"
    accepted = device.resetContainerMark(story.uuid, accept=heads.served).result(PATIENCE)
    assert accepted == heads
    assert marks(device) != before
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"content"
    assert device.updateContainerHeader(story.uuid, "h").result(PATIENCE).version == 2


def test_nothing_is_accepted_but_the_very_head_that_is_served_and_valid(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    story, device = stuck(mallory, alice, bob)
    device.getPublicKeys(eve.ring.userId).result(PATIENCE)
    before = marks(device)
    heads = device.resetContainerMark(story.uuid).result(PATIENCE)
    assert heads.stored is not None
    for wrong in (heads.stored, Head(1, bytes(32)), Head(2, heads.served.hash)):
        with pytest.raises(BrokerError.conflictError):
            device.resetContainerMark(story.uuid, wrong).result(PATIENCE)
    with mallory.lying(VIEW, instead(head=head_at(story, eve, 3))), pytest.raises(INTEGRITY):
        device.resetContainerMark(story.uuid, heads.served).result(PATIENCE)
    assert marks(device) == before


# Acts against other members that an honest broker refuses.


KEEPER = WRITER | Level.ModifyType


def set_governing_bytes(mallory: Mallory, story: Story, size: int) -> None:
    """As if so many bytes of governing records came before."""
    mallory.query("UPDATE containers SET governing_bytes = ? WHERE id = ?", size, story.id)


def governing_bytes(mallory: Mallory, story: Story) -> int:
    [(size,)] = mallory.query("SELECT governing_bytes FROM containers WHERE id = ?", story.id)
    return int(size)


@pytest.mark.long
def test_a_member_without_delete_cannot_use_up_what_the_owner_needs(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """Bob changes the type until he is stopped; the owner still changes access, writes and deletes."""
    story = Story(alice).created({alice: OWNER, bob: KEEPER, carol: OWNER & ~Level.Delete})
    device = mallory.victim(alice, story, marked=True)
    set_governing_bytes(mallory, story, MAX_GOVERNING_WITHOUT_DELETE - 10_000)
    for text in ("one", "two"):
        story.tell(bob, story.follow(bob, type=text))
    assert governing_bytes(mallory, story) <= MAX_GOVERNING_WITHOUT_DELETE
    story.send(bob, story.follow(bob, type="three")).expect(413, "too-large")
    manager = story.follow(carol, grants={alice: OWNER, bob: KEEPER, carol: OWNER & ~Level.Delete})
    story.send(carol, manager).expect(413, "too-large")
    story.tell(bob, story.follow(bob, content=b"what does not govern is not bounded"))
    device.updateContainerType(story.uuid, "of the owner").result(PATIENCE)
    device.updateContainerAccessLevels(story.uuid, [level(alice)]).result(PATIENCE)
    set_governing_bytes(mallory, story, MAX_GOVERNING)
    device.updateContainerContent(story.uuid, b"written").result(PATIENCE)
    with pytest.raises(BrokerError.tooLargeError):
        device.updateContainerType(story.uuid, "too much").result(PATIENCE)
    device.deleteContainer(story.uuid).result(PATIENCE)


def test_the_broker_counts_what_a_reader_verifies(mallory: Mallory, alice: User, bob: User) -> None:
    """Governing records with their signatures, and an entry as its hash and at most 256 bytes."""
    story = Story(alice).created({alice: OWNER, bob: KEEPER})
    story.tell(bob, story.follow(bob, type="one"))
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: WRITER}))
    story.tell(bob, story.follow(bob, content=b"does not govern"))
    views = alice.view(story).governing
    records = sum(len(view.record.body) + len(view.record.signature) for view in views)
    entries = sum(len(view.accessList.disclosed) for view in views if view.accessList is not None)
    assert (len(views), entries) == (3, 4)
    assert governing_bytes(mallory, story) == records + 288 * entries


def test_renewals_that_one_member_causes_cost_what_the_page_on_security_says(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """255 in four months: what they cost in a container with 2, 100 and 1,024 members."""
    story = Story(alice).created({alice: OWNER, bob: WRITER})
    before = governing_bytes(mallory, story)
    story.tell(alice, story.follow(alice, grants=story.grants, content=b"new", header=b"{}"))
    one = governing_bytes(mallory, story) - before
    with_2, with_100, with_1024 = (
        (one + 288 * (members - 2)) / MAX_GOVERNING_WITHOUT_DELETE for members in (2, 100, 1024)
    )
    shares = [f"{255 * each:.1%}" for each in (with_2, with_100, with_1024)]
    assert shares == ["0.9%", "6.2%", "56.8%"]
    # So many members use up all of it in four months, and in one month.
    assert [math.ceil(1 / 255 / each) for each in (with_1024, with_100)] == [2, 17]
    assert [math.ceil(1 / 64 / each) for each in (with_1024, with_100)] == [8, 64]


def test_a_departure_counts_and_is_never_refused_for_the_bound(
    mallory: Mallory, alice: User, bob: User
) -> None:
    story = Story(alice).created({alice: OWNER, bob: WRITER})
    set_governing_bytes(mallory, story, MAX_GOVERNING)
    leave(story, bob).expect(204)
    assert governing_bytes(mallory, story) == MAX_GOVERNING + DEPARTURE_SIZE


@pytest.mark.long
@pytest.mark.parametrize("changes", [2, 0])
def test_a_user_adds_no_more_keys_in_a_month_than_the_broker_allows(
    tmp_path: Path, changes: int
) -> None:
    """Readers verify the chain of every author, however long it is. A change of keys adds four records, and
    two at once add six."""
    with BrokerProcess(tmp_path, max_key_records=4 * changes + 5) as broker, Wire(broker) as wire:
        ring = broker.new_user()
        alice = User(ring, wire.log_in(ring))
        for _ in range(changes):
            new, records = renewed(alice)
            store(alice, authorized(alice, storing(alice, keyRecords=records))).expect(204)
            alice = new
        ring = alice.ring
        for _ in range(2):
            ring = ring.next(ring.generation + 1, fresh=True)
        records = ring.next_records(chain_of(alice), clock())
        answer = store(alice, authorized(alice, storing(alice, keyRecords=records)))
        assert int(answer.expect(429, "throttled").headers["retry-after"]) > 29 * 86_400
        store(alice, authorized(alice, storing(alice))).expect(204)


def test_a_page_ends_where_its_proofs_of_membership_cost_too_much(
    mallory: Mallory, alice: User, bob: User, carol: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record is made at another version of the group; what is left out comes with the next page."""
    team = Group(alice).created({alice: SHARER, bob: SHARER})
    story = Story(alice).created({alice: OWNER, carol: OWNER, team: OWNER})
    for number in range(6):
        team.tell(alice, team.follow(alice, name=str(number)))
        story.tell(bob, story.follow(bob, type=str(number), via=team))
    whole = carol.view(story).governing
    lower(monkeypatch, group_proof_leaves=4)
    monkeypatch.setattr(memberships, "_trees", RecentCache(100))
    call = Call("tests", "", {"containerId": story.id}, session_of(carol))

    async def pages(broker: Broker) -> list[list[GoverningView]]:
        found = [(await views.view(broker, call, ViewQuery())).governing]
        while (count := sum(map(len, found))) < len(whole):
            query = GoverningQuery(from_=count + 1, to=len(whole))
            found.append((await views.governing_page(broker, call, query)).governing)
        return found

    cut = beside(mallory.behind, pages)
    assert [len(each) for each in cut] == [4, 3]
    assert [each.record for page in cut for each in page] == [each.record for each in whole]
    assert len(beside(mallory.behind, pages)) == 1, "the proofs are in memory now"
    two = [(story.id, ViewQuery())] * 2
    monkeypatch.setattr(memberships, "_trees", RecentCache(100))
    read = beside(mallory.behind, lambda b: b.database.read(lambda c: views.views_of(c, call, two)))
    assert len(read) == 1
