"""Records that their author may not make: one row for each, with who has what and what Bob signs.

An honest broker refuses each of them. Then it is stored behind the broker's back, and the programs of all
others who read the container refuse it as well, whether or not they have read the container before.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from scbroker import BrokerError
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import RecordRequest
from tests.hostile_broker.accomplices import (
    HOUR,
    MANAGER,
    NO_LIST,
    WRITES,
    Cast,
    Mallory,
    fresh_and_marked,
)
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import CLOCK, INTEGRITY
from tests.kit.brokers import clock
from tests.kit.writers import MINUTE, OWNER, READER, WRITER, Grant, Grants, Story

TYPIST: Final = WRITER | Level.ModifyType
With = Callable[[Cast], Grants]
Forge = Callable[[Story, Cast], RecordRequest]


class Row(NamedTuple):
    given: With
    forge: Forge
    refusal: tuple[int, str]
    """The answer of an honest broker."""
    error: type[BrokerError] = INTEGRITY


FORBIDDEN: Final = 403, "permission"
REJECTED: Final = 422, "rejected"


def bob_has(rights: int, end: int | None = None) -> With:
    """Bob's access ends so long from now."""
    return lambda who: {who.alice: OWNER, who.bob: Grant(rights, end and clock() + end)}


def beside_bob(rights: int, carols: int, end: int | None = None) -> With:
    """Carol has access as well, which may end; once it has, there is a reason for a renewal."""
    return lambda who: {**bob_has(rights)(who), who.carol: Grant(carols, end and clock() + end)}


def does(ahead: int = 0, **changes: Any) -> Forge:
    """Bob signs this."""
    return lambda story, who: story.follow(who.bob, time=clock() + ahead, **changes)


def gives(given: With, ahead: int = 0, **changes: Any) -> Forge:
    """Bob changes access to this."""
    return lambda story, who: does(ahead, grants=given(who), **changes)(story, who)


def prolongs(of: str, rights: int, by: int | None) -> Forge:
    """Bob gives access that ends so much later than his own, or never."""

    def forge(story: Story, who: Cast) -> RecordRequest:
        own = story.grants[who.bob]
        later = Grant(rights, by and (own.expires_at or 0) + by)
        grants: Grants = {who.alice: OWNER, who.bob: own, getattr(who, of): later}
        return story.follow(who.bob, grants=grants)

    return forge


READS, WRITES_ONLY, MANAGES = beside_bob(READER, NO_LIST), bob_has(WRITER), bob_has(MANAGER)
HOURLY, SOON = bob_has(MANAGER, HOUR), beside_bob(WRITER, READER, 5 * MINUTE)
RENEWS: Final = {held: beside_bob(held, READER, -MINUTE) for held in (WRITER, MANAGER, TYPIST)}
YEARS: Final = 70 * 365 * 24 * HOUR


def shortens(rights: int) -> Forge:
    return gives(lambda who: {who.alice: Grant(OWNER, clock() + MINUTE), who.bob: rights})


ROWS: Final[dict[str, Row]] = {
    "a reader writes in their own name": Row(READS, does(content=b"forged"), FORBIDDEN),
    "a reader writes in the owner's name": Row(
        READS, lambda story, who: story.altered(who.bob, story.follow(who.alice, content=b"x")), FORBIDDEN
    ),
    "a reader writes a header": Row(READS, does(header=b'"forged"'), FORBIDDEN),
    "a reader writes nothing": Row(READS, does(content=None), FORBIDDEN),
    "a reader deletes": Row(READS, does(tombstone=True), FORBIDDEN),
    "a writer deletes": Row(WRITES_ONLY, does(tombstone=True), FORBIDDEN),
    "a writer becomes a manager": Row(WRITES_ONLY, gives(MANAGES), REJECTED),
    "a writer shares": Row(WRITES_ONLY, gives(beside_bob(WRITER, READER)), REJECTED),
    "a writer takes the owner out": Row(WRITES_ONLY, gives(lambda who: {who.bob: WRITER}), REJECTED),
    "a writer renews without a reason": Row(WRITES_ONLY, gives(WRITES_ONLY), REJECTED),
    "a manager takes one right more": Row(MANAGES, gives(bob_has(MANAGER | Level.Delete)), REJECTED),
    "a manager gives what they have not": Row(
        MANAGES, gives(beside_bob(MANAGER, READER | Level.Delete)), REJECTED
    ),
    "a manager takes the owner out": Row(MANAGES, gives(lambda who: {who.bob: MANAGER}), REJECTED),
    "a manager takes a right from the owner": Row(
        MANAGES, gives(lambda who: {who.alice: OWNER & ~Level.Delete, who.bob: MANAGER}), REJECTED
    ),
    "a manager prolongs their access": Row(HOURLY, prolongs("bob", MANAGER, HOUR), REJECTED),
    "a manager takes access for ever": Row(HOURLY, prolongs("bob", MANAGER, None), REJECTED),
    "a manager gives access for longer": Row(HOURLY, prolongs("carol", READER, HOUR), REJECTED),
    "a manager gives access for ever": Row(HOURLY, prolongs("carol", READER, None), REJECTED),
    "a writer ends the owner's access": Row(RENEWS[WRITER], shortens(WRITER), REJECTED),
    "a manager ends the owner's access": Row(RENEWS[MANAGER], shortens(MANAGER), REJECTED),
    "a type in a change of content": Row(
        RENEWS[WRITER], does(content=b"x", type="forged"), FORBIDDEN
    ),
    "a type in a change of access": Row(RENEWS[MANAGER], gives(MANAGES, type="forged"), FORBIDDEN),
    "a type in a renewal": Row(RENEWS[TYPIST], gives(bob_has(TYPIST), type="forged"), REJECTED),
    "an expired writer writes": Row(
        bob_has(WRITER, -MINUTE), does(content=b"forged"), (404, "not-found")
    ),
    "a removal that is dated years ahead": Row(SOON, gives(WRITES_ONLY, YEARS), (422, "clock"), CLOCK),
    "a removal that is dated ahead": Row(SOON, gives(WRITES_ONLY, 16 * MINUTE), (422, "clock"), CLOCK),
    "a content that is dated ahead": Row(
        SOON, does(16 * MINUTE, content=b"forged"), (422, "clock"), CLOCK
    ),
}  # fmt: skip


@pytest.mark.sampled
@attack(8, "reader writes")
@attack(9, "self-escalation")
@attack(14, "expired grant")
@attack(15, "split view by the sender")
@attack(38, "deleted container brought back")
@pytest.mark.parametrize("row", ROWS)
@fresh_and_marked
def test_no_record_is_taken_that_its_author_may_not_make(
    mallory: Mallory, row: str, marked: bool, who: Cast
) -> None:
    given, forge, refusal, error = ROWS[row]
    now = clock()
    story = Story(who.alice).created(given(who), time=now - 2 * MINUTE, type="t")
    devices = [
        mallory.victim(user, story, marked=marked)
        for user in (who.alice, who.carol)
        if (grant := story.grants.get(user)) and (grant.expires_at or now) >= now
    ]
    mallory.force(story, who.bob, forge(story, who), *refusal)
    for device in devices:
        mallory.check_refused(device, story, error, "getContainer", *WRITES)
