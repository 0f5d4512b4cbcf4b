"""A cache of containers that its user reaches through groups."""

import uuid

import pytest

from scbroker import CachedProvider, Contacts, ServerProvider
from scbroker.filesystem import ContainerFileSystem
from tests.client.conftest import id_of
from tests.client.rosters.conftest import accepted, shared, team
from tests.client.test_offline import LARGE, NewCache, away, back, version_in
from tests.client.test_offline import cache as cache
from tests.client.test_offline import new_cache as new_cache
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.network import HeldAnswer, Network
from tests.kit.waiting import PATIENCE, wait_until


@pytest.fixture
def alice(fresh_broker: BrokerProcess, new_provider: NewProvider) -> ServerProvider:
    """The user of the cache."""
    return new_provider(True, at=fresh_broker)


@pytest.fixture
def owner(fresh_broker: BrokerProcess, new_provider: NewProvider) -> ServerProvider:
    """Who makes groups and shares containers with them."""
    return new_provider(True, at=fresh_broker)


def read(provider: ServerProvider | CachedProvider, box: uuid.UUID) -> bytes | None:
    return provider.getContainerContent(box).result(PATIENCE)


@pytest.mark.long
def test_a_container_of_a_group_is_read_while_the_broker_is_away_also_after_a_restart(
    alice: ServerProvider, owner: ServerProvider, new_cache: NewCache, fresh_broker: BrokerProcess
) -> None:
    group = accepted(team(owner, alice), alice)
    small, large = shared(owner, group), shared(owner, group, content=LARGE)
    alice.updateContainerContent(small, b"written through the group").result(PATIENCE)
    ring = alice.getKeyRing().result(PATIENCE)
    first = new_cache(ring)
    assert read(first, small) == b"written through the group"
    assert read(first, large) == LARGE
    first.close()
    cache = new_cache(ring)
    read(cache, small)
    away(fresh_broker, cache)
    assert read(cache, small) == b"written through the group"
    assert read(cache, large) == LARGE
    found = cache.getContainerMetadata(small).result(PATIENCE)
    assert (found.via, found.modifiedVia, found.modifierIsMember) == (group.id, group.id, True)
    page = cache.listContainers(headers=False).result(PATIENCE)
    assert {each.id for each in page.containers if not isinstance(each, Exception)} == {
        small, large,
    }  # fmt: skip
    members = cache.getGroupMembers(group).result(PATIENCE)
    assert {each.userId for each in members} == {id_of(owner), id_of(alice)}
    cache.close()
    started = new_cache(ring)
    assert started.awaySince is not None
    assert read(started, small) == b"written through the group"


@pytest.mark.long
def test_a_cache_reads_anew_what_others_change_through_a_group_and_the_group_itself(
    alice: ServerProvider, owner: ServerProvider, cache: CachedProvider, fresh_broker: BrokerProcess
) -> None:
    group = accepted(team(owner, alice), alice)
    box = shared(owner, group)
    assert read(cache, box) == b"content"
    owner.renameGroup(group, "Renamed").result(PATIENCE)
    owner.updateContainerContent(box, b"new").result(PATIENCE)
    copies = cache._cache().copies

    def is_fresh() -> bool:
        copy, kept = copies.find(box), copies.group(group.id)
        return bool(copy and copy.version == 2 and kept and kept.version == 2)

    wait_until(is_fresh)
    away(fresh_broker, cache)
    assert read(cache, box) == b"new"
    back(fresh_broker, cache)
    owner.removeGroupMembers(group, id_of(alice)).result(PATIENCE)
    wait_until(lambda: (copy := copies.find(box)) is not None and copy.denied is not None)


@pytest.mark.long
def test_a_change_between_the_first_read_through_a_group_and_its_following_reaches_the_cache(
    alice: ServerProvider, owner: ServerProvider, new_cache: NewCache
) -> None:
    group, held = team(owner, alice), HeldAnswer()
    box = shared(owner, group)
    cache = new_cache(alice.getKeyRing().result(PATIENCE))
    cache.getUserId().result(PATIENCE)
    wait_until(lambda: cache._cache().copies.folder.has("place", b""))
    with Network() as network:
        network.treat("GET", "/v1/events", held.delay)
        cache.acceptGroup(group).result(PATIENCE)
        assert held.arrived.wait(PATIENCE)
        assert read(cache, box) == b"content"
        owner.updateContainerContent(box, b"new").result(PATIENCE)
        held.release.set()
        wait_until(lambda: version_in(cache, box) == 2)


@pytest.mark.long
def test_files_of_a_group_that_a_contact_made_are_shown_if_its_members_made_them(
    alice: ServerProvider, owner: ServerProvider, new_provider: NewProvider,
    fresh_broker: BrokerProcess,
) -> None:  # fmt: skip
    stranger = new_provider(True, at=fresh_broker)
    Contacts(alice).add(owner.getContactCard("Owner").result(PATIENCE)).result(PATIENCE)
    group = accepted(team(owner, alice), alice)
    box = shared(owner, group)
    shared(stranger, group)
    files = ContainerFileSystem(provider=alice)
    assert files.ls("", detail=False) == ["x"]
    assert files.cat("x") == b"content"
    with files.open(f"id:{box}", "wb") as file:
        file.write(b"new")
    assert owner.getContainer(box).result(PATIENCE).modifiedVia == group.id
    assert len(ContainerFileSystem(provider=alice, everyone=True).info("x")["containerIds"]) == 2
