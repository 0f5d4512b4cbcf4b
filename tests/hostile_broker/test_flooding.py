"""Attacks by members who make a history, or their own keys, too long for the others to verify.

Attacks 48 and 176 of `catalogue`. The broker is honest here: it is what keeps members from doing this.
"""

from pathlib import Path

import pytest

from scbroker import BrokerError
from scbroker.server.broker import Broker, Call
from scbroker.server.containers import views
from scbroker.server.groups import proofs
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import (
    MAX_GOVERNING,
    MAX_GOVERNING_WITHOUT_DELETE,
    GoverningQuery,
    GoverningView,
    ViewQuery,
)
from tests.hostile_broker.accomplices import Mallory, level
from tests.hostile_broker.catalogue import attack
from tests.kit.beside import beside
from tests.kit.brokers import BrokerProcess, Wire, clock
from tests.kit.groups import SHARER, Group
from tests.kit.waiting import PATIENCE
from tests.kit.writers import (
    OWNER,
    WRITER,
    Story,
    User,
    authorized,
    chain_of,
    renewed,
    session_of,
    store,
    storing,
)

KEEPER = WRITER | Level.ModifyType


def set_governing_bytes(mallory: Mallory, story: Story, size: int) -> None:
    """As if so many bytes of governing records came before."""
    mallory.query("UPDATE containers SET governing_bytes = ? WHERE id = ?", size, story.id)


def governing_bytes(mallory: Mallory, story: Story) -> int:
    [(size,)] = mallory.query("SELECT governing_bytes FROM containers WHERE id = ?", story.id)
    return int(size)


@pytest.mark.long
@attack(48, "history flooded")
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


@attack(48, "history flooded")
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


@pytest.mark.long
@attack(48, "history flooded")
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


@attack(176, "costly proofs of membership")
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
    monkeypatch.setattr(proofs, "_MOST_LEAVES", 4)
    monkeypatch.setattr(proofs, "_trees", proofs.TreeCache())
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
    monkeypatch.setattr(proofs, "_trees", proofs.TreeCache())
    read = beside(mallory.behind, lambda b: b.database.read(lambda c: views.views_of(c, call, two)))
    assert len(read) == 1
