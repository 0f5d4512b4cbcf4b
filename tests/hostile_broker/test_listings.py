"""Attacks through what other users list: types and names of programs, and who fetched what.

Attacks 51 and 58 of `catalogue`.
"""

import pytest

from scbroker import BrokerError
from scbroker.server.broker import Broker, Call
from scbroker.server.containers import views
from scbroker.server.events import log
from scbroker.wire.containers import ViewQuery
from tests.hostile_broker.accomplices import Mallory, level
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import FAULT
from tests.kit.beside import beside
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, Story, User, session_of

UNPRINTABLE = {
    "a line feed at the end": "note\n",
    "C0": "no\x1b[2Jte",
    "C1": "no\x9b2Jte",
    "an override of direction": "no\u202ete",
    "a line separator": "no\u2028te",
}
unprintable = pytest.mark.parametrize("text", UNPRINTABLE.values(), ids=UNPRINTABLE)


@pytest.mark.sampled
@attack(58, "control characters in types")
@unprintable
def test_a_member_gives_a_container_no_type_that_forges_lines_in_listings(
    mallory: Mallory, text: str, alice: User, bob: User
) -> None:
    """Neither with this program, nor with another one at an honest broker, nor past the broker."""
    device, his = mallory.device_of(alice), mallory.device_of(bob)
    story = Story(bob).created({alice: OWNER, bob: OWNER}, type="note")
    count = len(mallory.heard)
    for make in (
        lambda: his.createContainer(b"", accessLevels=[level(bob)], type=text),
        lambda: his.updateContainerType(story.uuid, text),
    ):
        with pytest.raises(BrokerError.invalidArgumentError, match=r"type must be printable"):
            make().result(PATIENCE)
    assert mallory.since(count) == []
    forged = story.follow(bob, type=text)
    mallory.force(story, bob, forged, 400, "invalid")
    mallory.check_refused(device, story, FAULT)


@attack(51, "fetch hidden from the members")
def test_the_list_in_force_decides_who_hears_of_a_fetch(
    mallory: Mallory, monkeypatch: pytest.MonkeyPatch, alice: User, bob: User
) -> None:
    """Bob's device has no mark, and the page that it gets ends at the list that has Bob alone."""
    story = Story(bob).created({bob: OWNER})
    story.tell(bob, story.follow(bob, grants={alice: OWNER, bob: OWNER}))
    monkeypatch.setattr("scbroker.wire.containers.PAGE_BYTES", 1)
    call = Call("tests", "", {"containerId": story.id}, session_of(bob))

    async def read(broker: Broker) -> None:
        view = await views.view(broker, call, ViewQuery(header=1, content=1))
        assert len(view.governing) == 1
        await log.record_accesses(broker)

    beside(mallory.behind, read)
    fetched = [event for event in alice.events() if event.eventType == "Accessed"]
    assert [(event.containerId, event.relatedUserId) for event in fetched] == [
        (str(story.uuid), bob.id)
    ]
