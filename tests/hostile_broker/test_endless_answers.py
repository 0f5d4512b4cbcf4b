"""Answers that never end, each of them quick: what a broker can have a client ask for is bounded.

Attack 40 of `catalogue`. No timeout ends what is always answered in time.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from msgspec.structs import replace

from scbroker import BrokerError
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import ContainerRecord, Link, parse_record
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire import codec
from scbroker.wire.codec import SignedObject
from scbroker.wire.containers import MAX_SKIPPED, Bodies, ContainerView
from tests.hostile_broker.accomplices import VIEW, altered, cast, device_of, id_of
from tests.hostile_broker.broker import PATIENCE, Exchange, HostileBroker
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.conftest import refused
from tests.kit.writers import OWNER, Story, User

BODIES: Final = "GET /v1/containers/{containerId}/records"
FAR: Final = 2**53 - 1
NO_LIST: Final = Level.Download | Level.Decrypt
_ENOUGH: Final = 5


def head_at(story: Story, signer: User, version: int) -> SignedObject:
    """A record of this version, signed by whoever, that names no parent that there is."""
    forged = story.follow(signer)
    return altered(story, signer, forged, version=version, parent=bytes(32)).record


def bodies(story: Story, head: ContainerRecord, *, governing: bool) -> Iterator[bytes]:
    """What might lead to this head, linked by hashes; if `governing`, each changes the type."""
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
    mallory: HostileBroker,
    story: Story,
    head: SignedObject,
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
        exchange.status, exchange.answer = 200, Bodies(bodies=page)
        exchange.answer_headers = {"content-type": codec.MESSAGE}

    def lie(view: ContainerView) -> ContainerView:
        return replace(view, head=head, skipped=[])

    with mallory.lying(VIEW, lie), mallory.meddling(BODIES, before=answer):
        yield asked


@attack(40, "parser ambiguity and bombs")
@pytest.mark.parametrize("level", [OWNER, NO_LIST], ids=["all", "no list"])
def test_nothing_is_fetched_that_leads_to_a_head_which_no_member_signed(
    mallory: HostileBroker, level: int
) -> None:
    """Not by the broker's own users either: anybody can register."""
    alice, bob, carol, eve = cast(mallory)
    story = Story(bob).created({bob: OWNER, alice: level, carol: Level.Download})
    device = device_of(mallory, alice, bob, carol, eve)
    assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"content"
    strangers = [head_at(story, user, FAR) for user in (eve, carol)]
    garbage = replace(head_at(story, bob, FAR), signature=strangers[0].signature)
    for head in (*strangers, garbage):
        with (
            endless(mallory, story, head) as asked,
            refused(mallory, device, BrokerError.integrityError) as attempt,
        ):
            attempt(device.getContainer(id_of(story)))
            attempt(device.updateContainerContent(id_of(story), b"secret"))
        assert asked == []
    assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"content"


@attack(40, "parser ambiguity and bombs")
def test_a_head_that_a_member_signed_for_a_version_out_of_reach_is_too_far(
    mallory: HostileBroker,
) -> None:
    alice, bob, *_ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: OWNER})
    device = device_of(mallory, alice, bob)
    assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"content"
    head = head_at(story, bob, FAR)
    with endless(mallory, story, head) as asked:
        with refused(mallory, device, BrokerError.tooLargeError) as attempt:
            attempt(device.getContainer(id_of(story)))
            attempt(device.updateContainerContent(id_of(story), b"secret"))
        assert asked == []
    assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"content"


@attack(40, "parser ambiguity and bombs")
def test_governing_records_among_bodies_that_are_not_judged_end_it_at_the_first(
    mallory: HostileBroker,
) -> None:
    """Each would be kept until the end, when it is found that none of them was served as governing."""
    alice, bob, *_ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: OWNER})
    device = device_of(mallory, alice, bob)
    assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"content"
    head = head_at(story, bob, 500_000)
    with endless(mallory, story, head, governing=True) as asked:
        with refused(mallory, device, BrokerError.integrityError) as attempt:
            attempt(device.getContainer(id_of(story)))
        assert asked == [2]


@attack(40, "parser ambiguity and bombs")
def test_pages_of_fewer_bodies_than_there_are_do_not_make_more_requests_of_it(
    mallory: HostileBroker,
) -> None:
    alice, bob, *_ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: OWNER})
    device = device_of(mallory, alice, bob)
    assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"content"
    head = head_at(story, bob, 500_000)
    with endless(mallory, story, head, at_once=1) as asked:
        with refused(mallory, device, BrokerError.forkError) as attempt:
            attempt(device.getContainer(id_of(story)))
        assert asked == [2]
