"""Attacks by a writer where the clocks of brokers differ, or a clock is set back. Attack 47 of `catalogue`.

The broker is started again with another clock, in place of a second broker on the same database.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scbroker.keys import KeyRing
from scbroker.records.key_record import RETIRED
from scbroker.vocabulary import KeyType
from tests.hostile_broker.catalogue import attack
from tests.kit.brokers import Answer, BrokerProcess, Wire, clock
from tests.kit.writers import (
    MINUTE,
    OWNER,
    WRITER,
    Step,
    Story,
    User,
    authorized,
    chain_of,
    closing,
    delete_user,
    deletion,
    key_records,
    store,
    storing,
)

SECOND = 1_000_000


@contextmanager
def at(broker: BrokerProcess, ring: KeyRing) -> Iterator[User]:
    """The user with a session, as long as the broker has its present clock."""
    with Wire(broker) as wire:
        yield User(ring, wire.log_in(ring))


def change_clock(broker: BrokerProcess, ahead: int) -> None:
    broker.stop()
    broker.clock_ahead = ahead
    broker.start()


def retire(user: User, time: int) -> Answer:
    """The broker's answer to further signing keys and the retirement of the first, dated so."""
    ring = user.ring.next(user.ring.generation + 1, fresh=True)
    steps = Step(KeyType.Signing, 1), Step(KeyType.Signing, 0, RETIRED, time)
    records = key_records(KeyRing(ring.generation, ring.signing, user.ring.encryption),
                          chain_of(user), *steps)  # fmt: skip
    return store(user, authorized(user, storing(user, keyRecords=records)))


@pytest.mark.long
@attack(47, "record after its key's retirement")
def test_brokers_whose_clocks_differ_by_a_minute_take_no_retirement_before_a_record(
    tmp_path: Path,
) -> None:
    """Bob dates a record as late, and its key's retirement as early, as the two brokers allow."""
    with BrokerProcess(tmp_path) as broker:
        alice, bob = broker.new_user(), broker.new_user()
        change_clock(broker, 60)
        with at(broker, alice) as owner, at(broker, bob) as writer:
            story = Story(owner).created({owner: OWNER, writer: WRITER})
            late = story.follow(writer, content=b"late", time=clock() + 60 * SECOND + 299 * SECOND)
            story.tell(writer, late)
        change_clock(broker, 0)
        with at(broker, alice) as owner, at(broker, bob) as writer:
            for ahead in (301, 359, 415):
                retire(writer, clock() + ahead * SECOND).expect(422, "clock")
            retire(writer, clock() + 425 * SECOND).expect(204)
            key = chain_of(writer).keys[KeyType.Signing, 0]
            assert key.is_good_at(story.head.time + MINUTE)
            story.tell(owner, story.follow(owner, tombstone=True, time=story.head.time))


@pytest.mark.long
@attack(47, "record after its key's retirement")
def test_after_a_clock_was_set_back_no_key_is_retired_before_what_it_signed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        bob = broker.new_user()
        change_clock(broker, 15 * 60)
        with at(broker, bob) as writer:
            Story(writer).created(time=clock() + 15 * MINUTE)
        change_clock(broker, 0)
        with at(broker, bob) as writer:
            before = chain_of(writer)
            retire(writer, clock() + 10 * MINUTE).expect(422, "clock")
            delete_user(writer, deletion(writer, closing(writer))).expect(422, "clock")
            assert chain_of(writer).records == before.records
