"""The index of names has always what a list shows, and its rows can be lost."""

import datetime as dt
import logging
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scbroker import AccessLevel, Container, NewContainer, ServerProvider
from scbroker.client.cache import index as module
from scbroker.desk.names import all_containers, containers_named, names_by_id
from tests.client.conftest import id_of
from tests.client.rosters.conftest import accepted, team
from tests.kit import state
from tests.kit.ageing import age, drop_old_events
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network
from tests.kit.people import put
from tests.kit.tables import damage_parts, query
from tests.kit.waiting import PATIENCE

OWNER = 511
HOUR = dt.timedelta(hours=1)
Restart = Callable[[], ServerProvider]


@pytest.fixture
def bob(new_provider: NewProvider) -> ServerProvider:
    """A new user, whose containers are this test's alone, on a device that keeps no index."""
    return new_provider(True)


@pytest.fixture
def restart(new_provider: NewProvider, bob: ServerProvider, tmp_path: Path) -> Restart:
    """Another device of Bob's, with an index; each call starts its program again."""
    ring = bob.getKeyRing().result(PATIENCE)
    return lambda: new_provider(ring, trustStore=tmp_path)


def name_of(found: Container[Any]) -> str | None:
    header: Any = found.header and found.header.customHeaderObject
    return None if header is None else unicodedata.normalize("NFC", header["name"])


def row(found: Any) -> Any:
    """What a list shows of a container, or the kind of its error."""
    if not isinstance(found, Container):
        return type(found), found.containerId
    return (
        found.id, (name_of(found) or "")[:1025], found.type, found.access, found.version, found.length,
        found.createdAt, found.createdBy, found.modifiedAt, found.modifiedBy, found.modifiedVia,
        found.modifierIsMember, found.via, found.contentAvailability, found.headerAvailability,
        found.contentBy, found.headerBy, found.hasHeader,
    )  # fmt: skip


def check(device: ServerProvider, other: ServerProvider) -> None:
    """The device has by its index what another one lists, and finds each by its name."""
    listed = list(other.iterContainers())
    assert list(map(row, all_containers(device))) == list(map(row, listed))
    named = {
        each.id: name for each in listed if isinstance(each, Container) and (name := name_of(each))
    }
    assert dict(names_by_id(device)) == {each: name[:1025] for each, name in named.items()}
    found = containers_named(device, [*named.values(), "nothing"]).found
    assert {each.id: name for name, some in found.items() for each in some} == named


def test_the_index_has_what_a_list_has_after_each_change(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, restart: Restart
) -> None:
    """Half of the time by a program that goes on, and half by one that starts again."""
    device, me = restart(), id_of(bob)
    check(device, bob)
    one, two = put(bob, "one", b"1"), put(bob, None, b"2")
    check(device, bob)
    long, both = put(bob, "n" * 2000), [AccessLevel(id_of(alice), OWNER), AccessLevel(me, 75)]
    theirs, hidden = (put(alice, each, accessLevels=both) for each in ("theirs", "hidden"))
    check(device := restart(), bob)
    bob.updateContainerHeader(one, {"name": "cafe\u0301", "more": 1}).result(PATIENCE)
    alice.updateContainerHeader(theirs, {"name": "renamed"}).result(PATIENCE)
    alice.updateContainer(
        hidden, content=b"longer", accessLevels=[both[0], AccessLevel(me, 3)]
    ).result(PATIENCE)
    check(device, bob)
    bob.updateContainerType(two, "kind").result(PATIENCE)
    bob.grantAccess(one, [AccessLevel(id_of(carol))]).result(PATIENCE)
    carol.leaveContainer(one).result(PATIENCE)
    check(device := restart(), bob)
    alice.revokeAccess(theirs, [me]).result(PATIENCE)
    bob.deleteContainer(long).result(PATIENCE)
    check(device, bob)
    device.leaveContainer(hidden).result(PATIENCE)
    alice.grantAccess(theirs, [AccessLevel(me, 75, dt.datetime.now(dt.UTC) + HOUR)]).result(
        PATIENCE
    )
    check(restart(), bob)
    check(device, bob)


def test_containers_come_and_go_with_a_membership_and_a_role(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, restart: Restart
) -> None:
    """No container has an event for that: the group has one."""
    device = restart()
    put(bob, "own")
    check(device, bob)
    group = team(alice, bob, carol)
    levels = [AccessLevel(id_of(alice), OWNER), AccessLevel(group, OWNER)]
    box, twice = (
        put(alice, "box", accessLevels=levels),
        put(alice, "twice", accessLevels=[*levels, AccessLevel(id_of(bob))]),
    )
    check(device, bob)
    accepted(group, bob, carol)
    check(device, bob)
    carol.updateContainerHeader(box, {"name": "by Carol"}).result(PATIENCE)
    check(device := restart(), bob)
    alice.removeGroupMembers(group, [id_of(carol)]).result(PATIENCE)
    check(device, bob)
    bob.leaveGroup(group).result(PATIENCE)
    check(restart(), bob)
    check(device, bob)
    assert [each.id for each in containers_named(device, ["twice"]).found["twice"]] == [twice]


def test_a_name_costs_as_many_requests_among_many_containers_as_among_few(
    bob: ServerProvider, restart: Restart
) -> None:
    """And a list of them all costs as many: none is read again, however long its name is."""
    put(bob, "wanted")
    costs = []
    for more in (9, 290):
        new = [NewContainer(b"", {"name": f"file {n}" + "x" * 2000}) for n in range(more)]
        bob.createContainers(new).result(PATIENCE)
        containers_named(restart(), ["wanted"])
        device = restart()
        with Network() as network:
            [found] = containers_named(device, ["wanted"]).found["wanted"]
            assert containers_named(device, ["new"]).found["new"] == []
            assert found.header is not None
            assert len(list(all_containers(device))) > more
        costs.append([(each.method, each.path) for each in network.sent])
    few, many = costs
    assert few == many
    assert len(few) == 7  # three times the groups and the events; one container


def test_a_damaged_container_is_named_and_its_name_is_known_again_when_it_can_be_read(
    broker: BrokerProcess, bob: ServerProvider, restart: Restart
) -> None:
    spoilt = bob.createContainer(None, {"name": "spoilt"}).result(PATIENCE).id
    [sealed] = query(
        broker.database_url,
        "SELECT inline, container_id FROM parts WHERE container_id = ?",
        spoilt.bytes,
    )
    restoring = "UPDATE parts SET inline = ? WHERE container_id = ?"
    damage_parts(broker.database_url, spoilt)
    device = restart()
    assert containers_named(device, ["spoilt"]) == ({"spoilt": []}, [spoilt])
    check(device, bob)
    query(broker.database_url, restoring, *sealed)
    check(device, bob)
    assert len(containers_named(restart(), ["spoilt"]).found["spoilt"]) == 1


def test_access_that_has_ended_by_the_clock_is_in_no_list(
    ahead: BrokerProcess, new_provider: NewProvider, tmp_path: Path
) -> None:
    alice, ring = new_provider(True, at=ahead), ahead.new_user()
    until = dt.datetime.now(dt.UTC) + HOUR
    levels = [AccessLevel(id_of(alice), OWNER), AccessLevel(ring.userId, 75, until)]
    put(alice, "for an hour", accessLevels=levels)
    device = new_provider(ring, at=ahead, trustStore=tmp_path)
    assert len(list(all_containers(device))) == 1
    ahead.clock_ahead = HOUR.total_seconds()
    assert list(all_containers(device)) == []
    assert containers_named(device, ["for an hour"]).found == {"for an hour": []}


def test_all_containers_are_listed_again_after_events_were_dropped(
    broker: BrokerProcess, bob: ServerProvider, restart: Restart
) -> None:
    put(bob, "before")
    device = restart()
    check(device, bob)
    put(bob, "unseen")
    age(broker, id_of(bob))
    put(bob, "kept")
    drop_old_events(broker)
    check(device, bob)
    check(restart(), bob)


@pytest.mark.parametrize("harm", ["DELETE FROM names", "UPDATE names SET sealed = zeroblob(99)"])
@pytest.mark.parametrize("order", ["ASC", "DESC"], ids=["changes", "all"])
def test_no_row_of_the_index_is_missed(
    bob: ServerProvider, restart: Restart, tmp_path: Path, harm: str, order: str
) -> None:
    put(bob, "one")
    check(restart(), bob)
    two = put(bob, "two")
    check(restart(), bob)
    bob.deleteContainer(two).result(PATIENCE)
    assert len(state.read(tmp_path, "SELECT * FROM names")) == 2
    which = f"(SELECT part FROM names ORDER BY length(sealed) {order} LIMIT 1)"
    state.change(tmp_path, f"{harm} WHERE part = {which}")
    check(restart(), bob)


def test_of_too_many_containers_no_index_is_kept(
    bob: ServerProvider, restart: Restart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_BYTES", 300)
    put(bob, "one")
    check(restart(), bob)
    check(restart(), bob)
    assert state.read(tmp_path, "SELECT sealed FROM names") == [(b"",)]


def test_an_index_of_another_version_of_the_program_is_made_again(
    bob: ServerProvider, restart: Restart, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bob, "one")
    monkeypatch.setattr(module, "_LAYOUT", "other")
    monkeypatch.setattr(module, "_ROW", msgspec.msgpack.Decoder(Any))
    monkeypatch.setattr(module, "_row", lambda _: "another row")
    assert len(containers_named(restart(), ["one"]).found["one"]) == 1
    monkeypatch.undo()
    check(restart(), bob)


def test_an_index_that_cannot_be_written_is_not_missed(
    bob: ServerProvider, restart: Restart, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = restart()
    check(device, bob)
    refuse = "BEFORE INSERT ON names BEGIN SELECT RAISE(FAIL, 'no space'); END"
    state.change(tmp_path, f"CREATE TRIGGER refuse {refuse}")
    made = put(bob, "one")
    with caplog.at_level(logging.WARNING):
        [found] = containers_named(device, ["one"]).found["one"]
    assert found.id == made
    assert "The index of names is not kept" in caplog.text
    state.change(tmp_path, "DROP TRIGGER refuse")
    check(device, bob)
    check(restart(), bob)
