"""Answers that never end, each of them quick: what a broker can have a client ask for is bounded.

Attack 40 of `catalogue`. No timeout ends what is always answered in time.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, ServerProvider
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import ContainerRecord, Link, parse_record
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import MAX_SKIPPED, Bodies, SignedRecord
from tests.hostile_broker.accomplices import NO_LIST, Mallory
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.catalogue import all_mount
from tests.hostile_broker.protocol import BODIES, FORK, INTEGRITY, VIEW
from tests.hostile_broker.served import instead
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, Story, User

all_mount(__name__, 40, "parser ambiguity and bombs")

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
