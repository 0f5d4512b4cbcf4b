"""CachedProvider at real brokers that are stopped and started: what is answered, and what is refused."""

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    CachedProvider,
    Contacts,
    Container,
    ContainerAccessLevel,
    FileTrustStore,
    KeyRing,
    NewContainer,
    ServerProvider,
)
from scbroker.client.cache import copies
from scbroker.client.cache.copies import Copies, Copy
from scbroker.client.http import requests
from tests.client.conftest import PASSPHRASE, PASSWORD, drop, id_of, refusal
from tests.kit.ageing import age, drop_old_events
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.network import HeldAnswer, Network, refused
from tests.kit.waiting import PATIENCE, wait_until

OWNER = ContainerAccessLevel.DefaultOwnerPermissions
READER = ContainerAccessLevel.Download | ContainerAccessLevel.Decrypt
LARGE = bytes(range(256)) * 12_000
NewCache = Callable[..., CachedProvider]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only a refused connection say that the broker is away, not its slowness."""
    monkeypatch.setattr(requests, "_SOON", PATIENCE)


@pytest.fixture
def new_cache(
    fresh_broker: BrokerProcess, new_provider: NewProvider, tmp_path: Path
) -> Iterator[NewCache]:
    """Makes providers with a cache, all in one folder and with one trust store for each user."""
    with ExitStack() as stack:

        def make(ring: KeyRing, **options: Any) -> CachedProvider:
            options = {"trustStore": FileTrustStore(tmp_path / "marks"), **options}
            cached = {key: options.pop(key) for key in ("maxBytes", "follow") if key in options}
            folder = options.pop("folder", tmp_path / "cache")
            provider = new_provider(at=fresh_broker, **options)
            cache = stack.enter_context(CachedProvider(provider, folder, **cached))
            cache.logIn(ring, ring.userId).result(PATIENCE)
            return cache

        yield make


@pytest.fixture
def alice(fresh_broker: BrokerProcess, new_provider: NewProvider) -> ServerProvider:
    """A user at the broker that the test stops, without a cache."""
    return new_provider(True, at=fresh_broker)


@pytest.fixture
def cache(alice: ServerProvider, new_cache: NewCache) -> CachedProvider:
    """The same user on another device, which has a cache."""
    return new_cache(alice.getKeyRing().result(PATIENCE))


def away(broker: BrokerProcess, cache: CachedProvider) -> None:
    """Stop the broker, and wait until the provider knows."""
    broker.stop()
    wait_until(lambda: cache.awaySince is not None)


def back(broker: BrokerProcess, cache: CachedProvider) -> None:
    broker.start()
    wait_until(lambda: cache.awaySince is None)


def asked(network: Network) -> list[str]:
    """Return the paths of the requests that were sent, without those that ask whether the broker is back."""
    probes = {"/v1/session-challenges", "/v1/sessions", "/v1/key-records"}
    return [each.path for each in network.sent if each.path not in probes]


def create(provider: ServerProvider, content: bytes = b"", **more: Any) -> uuid.UUID:
    made: uuid.UUID = provider.createContainer(content, **more).result(PATIENCE).id
    return made


def has_version(copies: Copies, container: uuid.UUID, version: int) -> bool:
    copy = copies.find(container)
    return copy is not None and copy.version == version


def departures_in(copy: Copy | None) -> int:
    lists = [] if copy is None else [item.accessList for item in copy.view.governing]
    return sum(len(each.departures) for each in lists if each is not None)


@pytest.mark.long
def test_a_large_content_is_answered_if_the_cache_has_it_whole(
    alice: ServerProvider, cache: CachedProvider, fresh_broker: BrokerProcess, tmp_path: Path
) -> None:
    whole, part, none = (create(alice, LARGE) for _ in range(3))
    assert cache.getContainerContent(whole).result(PATIENCE) == LARGE
    reader = cache.openContainerContent(part).result(PATIENCE)
    assert reader is not None
    assert reader.readRange(0, 10).result(PATIENCE) == LARGE[:10]
    cache.getContainerMetadata(none).result(PATIENCE)
    away(fresh_broker, cache)
    assert cache.getContainer(whole).result(PATIENCE).content == LARGE
    assert cache.saveContainerContent(whole, tmp_path / "saved").result(PATIENCE) == len(LARGE)
    assert (tmp_path / "saved").read_bytes() == LARGE
    reader = cache.openContainerContent(part).result(PATIENCE)
    assert reader is not None
    assert reader.readRange(5, 5).result(PATIENCE) == LARGE[5:10]
    refusal(reader.readRange(len(LARGE) - 5, 5), BrokerError.offlineError, "part of this content")
    refusal(cache.getContainerContent(none), BrokerError.offlineError, "part of this content")


@pytest.mark.long
def test_a_list_has_the_cached_containers_and_names_the_others(
    alice: ServerProvider, cache: CachedProvider, fresh_broker: BrokerProcess
) -> None:
    made = sorted(create(alice, b"c", customHeaderObject=n, type=f"t{n % 2}") for n in range(10))
    listed = cache.listContainers().result(PATIENCE)
    assert (listed.asOf, len(listed.containers)) == (None, 10)
    unknown = create(alice)
    away(fresh_broker, cache)
    page = cache.listContainers(limit=7).result(PATIENCE)
    rest = cache.listContainers(limit=7, startAfter=page.next).result(PATIENCE)
    entries = [*page.containers, *rest.containers]
    assert [each.id for each in entries if isinstance(each, Container)] == made
    assert unknown not in [*page.leftOut, *rest.leftOut], "nothing is known of it here"
    assert page.asOf == min(
        each.asOf for each in page.containers if isinstance(each, Container) and each.asOf
    )
    assert rest.next is None
    of_type = [each for each in cache.iterContainers("t1") if isinstance(each, Container)]
    assert [each.type for each in of_type if each.asOf] == ["t1"] * 5
    cache.clear().result(PATIENCE)
    page = cache.listContainers().result(PATIENCE)
    assert (list(page.containers), sorted(page.leftOut)) == ([], made)
    assert page.asOf is not None


@pytest.mark.long
def test_a_read_that_the_cache_cannot_answer_is_an_offline_error_at_once(
    alice: ServerProvider, cache: CachedProvider, fresh_broker: BrokerProcess
) -> None:
    made = create(alice, b"content", customHeaderObject={})
    cache.getContainerMetadata(made).result(PATIENCE)
    away(fresh_broker, cache)
    offline_error, stranger = BrokerError.offlineError, uuid.uuid4()
    with Network() as network:
        assert cache.getContainerMetadata(made).result(PATIENCE).length == 7
        refusal(cache.getContainerContent(made), offline_error, "content of container .* not in")
        refusal(cache.getContainerHeader(made), offline_error, "header of container .* not in")
        refusal(cache.getContainer(uuid.uuid4()), offline_error, "not in the cache")
        refusal(cache.getPublicKeys(stranger), offline_error, "keys of user")
    assert asked(network) == []
    assert not any(stranger.bytes in (each.body or b"") for each in network.sent)
    assert [key.active for key in cache.getPublicKeys().result(PATIENCE)] == [True, True]


def test_the_first_read_after_the_broker_went_away_is_tried_twice_and_the_next_not_at_all(
    alice: ServerProvider, new_cache: NewCache, fresh_broker: BrokerProcess
) -> None:
    cache = new_cache(alice.getKeyRing().result(PATIENCE), follow=False)
    made, before = create(alice, b"content"), dt.datetime.now(dt.UTC)
    assert cache.getContainer(made).result(PATIENCE).asOf is None
    fresh_broker.stop()
    with Network() as network:
        for _ in range(2):
            read_at = cache.getContainer(made).result(PATIENCE).asOf
            assert asked(network) == [f"/v1/containers/{made}"] * 2
            assert read_at is not None
            assert before <= read_at <= dt.datetime.now(dt.UTC)
            assert cache.getCachedAt(made).result(PATIENCE) == read_at


@pytest.mark.long
def test_containers_that_others_changed_are_fresh_in_the_cache(
    alice: ServerProvider, cache: CachedProvider, fresh_broker: BrokerProcess
) -> None:
    small, large, other = create(alice, b"1"), create(alice, LARGE), create(alice, b"1")
    cache.getContainers([small, large]).result(PATIENCE)
    alice.updateContainerContent(small, b"2").result(PATIENCE)
    alice.updateContainerContent(large, LARGE[::-1]).result(PATIENCE)
    alice.updateContainerContent(other, b"2").result(PATIENCE)

    def is_fresh() -> bool:
        copies = cache._cache().copies
        found = {each: copies.find(each) for each in (small, large)}
        versions = [copy.version for copy in found.values() if copy is not None]
        copy = found[large]
        return versions == [2, 2] and copy is not None and copies.has_content(large, copy)

    wait_until(is_fresh)
    away(fresh_broker, cache)
    assert cache.getContainerContent(small).result(PATIENCE) == b"2"
    assert cache.getContainerContent(large).result(PATIENCE) == LARGE[::-1]
    refusal(cache.getContainer(other), BrokerError.offlineError)


def test_a_copy_is_refreshed_with_the_header_only_if_it_was_read(
    alice: ServerProvider, cache: CachedProvider
) -> None:
    """The broker tells other members who has read a header."""
    read, unread = (create(alice, customHeaderObject={"name": "n"}) for _ in range(2))
    cache.getContainer(read).result(PATIENCE)
    cache.getContainerMetadata(unread).result(PATIENCE)
    for each in (read, unread):
        alice.updateContainerHeader(each, {"name": "m"}).result(PATIENCE)
    copies = cache._cache().copies
    for each, has_header in ((read, True), (unread, False)):
        wait_until(partial(has_version, copies, each, 2))
        copy = copies.find(each)
        assert copy is not None
        assert (copy.view.header is not None) == has_header


@pytest.mark.long
@pytest.mark.parametrize("follow", [False, True])
def test_a_user_who_left_is_gone_from_the_cached_copy_as_well(
    alice: ServerProvider,
    new_cache: NewCache,
    new_provider: NewProvider,
    fresh_broker: BrokerProcess,
    follow: bool,
) -> None:
    """A departure changes no version: neither a fresh copy nor the version of its event may hide it."""
    bob = new_provider(True, at=fresh_broker)
    cache = new_cache(alice.getKeyRing().result(PATIENCE), follow=follow)
    levels = [AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob))]
    made = create(alice, b"1", accessLevels=levels)
    assert len(cache.getContainer(made).result(PATIENCE).access or ()) == 2
    bob.leaveContainer(made).result(PATIENCE)
    if follow:
        copies = cache._cache().copies
        wait_until(lambda: departures_in(copies.find(made)) == 1)
    else:
        cache.getContainerMetadata(made).result(PATIENCE)
    fresh_broker.stop()
    found = cache.getContainer(made).result(PATIENCE)
    assert found.asOf is not None
    assert [level.userId for level in found.access or ()] == [id_of(alice)]
    assert found.content == b"1"


@pytest.mark.long
def test_a_container_that_the_user_left_is_not_served_from_the_cache(
    alice: ServerProvider,
    new_cache: NewCache,
    new_provider: NewProvider,
    fresh_broker: BrokerProcess,
) -> None:
    """Also if the broker goes away before the cache has asked for the container again."""
    bob = new_provider(True, at=fresh_broker)
    cache = new_cache(alice.getKeyRing().result(PATIENCE), follow=False)
    levels = [AccessLevel(id_of(bob), OWNER), AccessLevel(id_of(alice))]
    made = create(bob, b"1", accessLevels=levels)
    other = create(alice)
    cache.getContainers([made, other]).result(PATIENCE)
    cache._cache().refresh.changed = lambda *_: None  # type: ignore[method-assign] # not in time
    cache.leaveContainer(made).result(PATIENCE)
    fresh_broker.stop()
    for _ in range(2):
        refusal(cache.getContainer(made), BrokerError.notFoundError, "You left")
    page = cache.listContainers().result(PATIENCE)
    assert [each.id for each in page.containers if isinstance(each, Container)] == [other]
    assert list(page.leftOut) == []
    fresh_broker.start()
    wait_until(lambda: cache.awaySince is None)
    bob.grantAccess(made, AccessLevel(id_of(alice))).result(PATIENCE)
    assert cache.getContainerContent(made).result(PATIENCE) == b"1"
    fresh_broker.stop()
    assert cache.getContainer(made).result(PATIENCE).asOf is not None


@pytest.mark.long
def test_a_book_and_links_that_the_cache_lacks_are_an_error_and_not_empty(
    alice: ServerProvider,
    cache: CachedProvider,
    new_provider: NewProvider,
    fresh_broker: BrokerProcess,
) -> None:
    card = new_provider(True, at=fresh_broker).getContactCard("Bob").result(PATIENCE)
    Contacts(alice).add(card).result(PATIENCE)
    made = create(alice, b"1")
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    alice.createLink([made], expiresAt=until).result(PATIENCE)
    cache.getContainer(made).result(PATIENCE)
    away(fresh_broker, cache)
    book = Contacts(cache)
    for promise in (book.list(), book.get("Bob"), book.find("Bob"), cache.getLinks()):
        refusal(promise, BrokerError.offlineError, "is not in the cache")
    back(fresh_broker, cache)
    assert [contact.name for contact in book.list().result(PATIENCE)] == ["Bob"]
    assert len(cache.getLinks().result(PATIENCE)) == 1
    away(fresh_broker, cache)
    assert [contact.name for contact in book.list().result(PATIENCE)] == ["Bob"]
    assert len(cache.getLinks().result(PATIENCE)) == 1


@pytest.fixture
def start(
    alice: ServerProvider, fresh_broker: BrokerProcess, new_provider: NewProvider, tmp_path: Path
) -> Iterator[Callable[[], CachedProvider]]:
    """Starts a program of Alice's, which keeps sessions in files; her first one has logged in."""
    ring = alice.getKeyRing().result(PATIENCE)
    with ExitStack() as stack:

        def begin() -> CachedProvider:
            store = FileTrustStore(tmp_path / "marks")
            provider = new_provider(
                at=fresh_broker, trustStore=store, sessionStore=tmp_path / "kept"
            )
            return stack.enter_context(CachedProvider(provider, tmp_path / "cache"))

        begin().logIn(ring, ring.userId, keep=True).result(PATIENCE)
        yield begin


@pytest.mark.long
def test_a_kept_session_begins_from_the_cache_and_a_log_out_without_the_broker_removes_it(
    alice: ServerProvider, start: Callable[[], CachedProvider], fresh_broker: BrokerProcess
) -> None:
    made = create(alice, b"1")
    first = start()
    first.resumeSession().result(PATIENCE)
    first.getContainer(made).result(PATIENCE)
    fresh_broker.stop()
    later = start()
    assert later.resumeSession().result(PATIENCE) == id_of(alice)
    assert later.getContainerContent(made).result(PATIENCE) == b"1"
    later.logout().result(PATIENCE)
    refusal(start().resumeSession(), BrokerError.notAuthenticatedError, "No session is kept")


@pytest.mark.long
def test_a_change_between_the_first_read_and_the_start_of_following_reaches_the_cache(
    alice: ServerProvider, new_cache: NewCache
) -> None:
    made, held = create(alice, b"1"), HeldAnswer()
    cache = new_cache(alice.getKeyRing().result(PATIENCE))
    with Network() as network:
        network.treat("GET", "/v1/events", held.delay)
        cache.getContainer(made).result(PATIENCE)
        assert held.arrived.wait(PATIENCE)
        alice.updateContainerContent(made, b"2").result(PATIENCE)
        held.release.set()
        wait_until(lambda: version_in(cache, made) == 2)


@pytest.mark.long
def test_a_change_during_the_reading_of_an_earlier_one_reaches_the_cache(
    alice: ServerProvider, new_cache: NewCache
) -> None:
    made, held = create(alice, b"1"), HeldAnswer()
    cache = new_cache(alice.getKeyRing().result(PATIENCE))
    cache.getContainer(made).result(PATIENCE)
    wait_until(lambda: cache._cache().copies.folder.has("place", b""))
    with Network() as network:
        network.treat("POST", "/v1/batches/views", held.hold)
        alice.updateContainerContent(made, b"2").result(PATIENCE)
        assert held.arrived.wait(PATIENCE)
        waits = len(network.those("GET", "/v1/events"))
        alice.updateContainerContent(made, b"3").result(PATIENCE)
        wait_until(lambda: len(network.those("GET", "/v1/events")) > waits)
        held.release.set()
        wait_until(lambda: version_in(cache, made) == 3)


def version_in(cache: CachedProvider, container: uuid.UUID) -> int | None:
    copy = cache._cache().copies.find(container)
    return None if copy is None else copy.version


@pytest.mark.long
def test_a_container_that_was_deleted_is_gone_from_the_cache(
    alice: ServerProvider, cache: CachedProvider, fresh_broker: BrokerProcess
) -> None:
    made = create(alice, LARGE)
    cache.getContainer(made).result(PATIENCE)
    assert files(cache) > 3
    alice.deleteContainer(made).result(PATIENCE)
    # What is left are the user's own keys, and the place in the event log.
    wait_until(lambda: cache.getCachedAt(made).result(PATIENCE) is None and files(cache) == 2)
    away(fresh_broker, cache)
    refusal(cache.getContainer(made), BrokerError.offlineError)


@pytest.mark.long
def test_access_that_ended_meanwhile_ends_in_the_cache_as_well(
    alice: ServerProvider,
    new_cache: NewCache,
    fresh_broker: BrokerProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ring = fresh_broker.new_user()
    made = create(alice, b"content")
    end = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    alice.grantAccess(made, AccessLevel(ring.userId, READER, end)).result(PATIENCE)
    cache = new_cache(ring)
    cache.getContainer(made).result(PATIENCE)
    away(fresh_broker, cache)
    assert cache.getContainer(made).result(PATIENCE).content == b"content"
    monkeypatch.setattr(copies, "now", lambda: int(end.timestamp() * 1e6) + 1)
    refusal(cache.getContainer(made), BrokerError.notFoundError, "Your access ended")


@pytest.mark.long
def test_a_log_out_is_tried_twice_at_a_broker_that_is_away_and_leaves_the_cache_sealed(
    alice: ServerProvider, cache: CachedProvider, fresh_broker: BrokerProcess, tmp_path: Path
) -> None:
    made = create(alice, b"the content of a canary", type="the type of a canary")
    cache.getContainer(made).result(PATIENCE)
    away(fresh_broker, cache)
    with Network() as network:
        cache.logout().result(PATIENCE)
    assert len(network.those("DELETE", "/v1/sessions/current")) == 2
    with pytest.raises(BrokerError.notAuthenticatedError):
        drop(cache.getContainer(made))
    paths = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(paths) >= 2
    for path in paths:
        for secret in (b"canary", made.bytes, str(made).encode()):
            assert secret not in path.read_bytes() + str(path).encode()
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.long
def test_a_deleted_users_cache_is_removed(
    alice: ServerProvider, cache: CachedProvider, tmp_path: Path
) -> None:
    cache.getContainer(create(alice, b"content")).result(PATIENCE)
    assert files(cache) > 1
    cache.deleteUser().result(PATIENCE)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


@pytest.mark.long
def test_several_programs_use_one_folder_and_two_users_do_not_see_each_other(
    alice: ServerProvider, new_cache: NewCache, fresh_broker: BrokerProcess
) -> None:
    ring = alice.getKeyRing().result(PATIENCE)
    one, other = new_cache(ring), new_cache(ring)
    stranger = new_cache(fresh_broker.new_user())
    made = [create(alice, str(number).encode()) for number in range(6)]
    for number, container in enumerate(made):
        (one, other)[number % 2].getContainer(container).result(PATIENCE)
    fresh_broker.stop()
    for cache in (one, other):
        found = [cache.getContainerContent(each).result(PATIENCE) for each in made]
        assert found == [b"0", b"1", b"2", b"3", b"4", b"5"]
    for container in made:
        refusal(stranger.getContainer(container), BrokerError.offlineError)


@pytest.mark.long
def test_a_refused_reading_of_the_cache_does_not_keep_a_broker_away_that_is_back(
    alice: ServerProvider, new_cache: NewCache, fresh_broker: BrokerProcess
) -> None:
    cache = new_cache(alice.getKeyRing().result(PATIENCE), follow=False)
    made = create(alice, b"1")
    cache.getContainer(made).result(PATIENCE)
    with Network() as network:
        refusing = refused(BrokerError.tooLargeError("Too much."))
        network.treat("GET", f"/v1/containers/{made}", refusing)
        network.treat("POST", "/v1/batches/views", refusing)
        cache._cache().refresh.changed([made])
        wait_until(lambda: not cache._cache().refresh._stale)
    fresh_broker.stop()
    assert cache.getContainerContent(made).result(PATIENCE) == b"1"
    back(fresh_broker, cache)
    cache.updateContainerContent(made, b"2").result(PATIENCE)


def files(cache: CachedProvider) -> int:
    """The number of files that the session's user has in the cache."""
    return len(list(cache._cache().copies.folder.path.iterdir()))


@pytest.mark.long
def test_a_stream_of_containers_comes_from_the_cache_if_its_first_page_gets_no_answer(
    alice: ServerProvider, new_cache: NewCache, fresh_broker: BrokerProcess
) -> None:
    cache = new_cache(alice.getKeyRing().result(PATIENCE), follow=False)
    items = [NewContainer(str(number).encode()) for number in range(70)]
    created = alice.createContainers(items).result(PATIENCE)
    made = sorted(each.id for each in created if not isinstance(each, BrokerError))
    online = [each.id for each in cache.iterContainers() if isinstance(each, Container)]
    assert online == made
    fresh_broker.stop()
    assert cache.awaySince is None
    for _ in range(2):  # the first time the provider finds that the broker is away
        found = [each for each in cache.iterContainers() if isinstance(each, Container)]
        assert [each.id for each in found] == made
        assert all(each.asOf is not None for each in found)
    assert cache.awaySince is not None


@pytest.mark.long
def test_after_a_long_absence_every_cached_container_is_read_anew(
    alice: ServerProvider, new_cache: NewCache, fresh_broker: BrokerProcess
) -> None:
    """The broker dropped the events, so that nothing says which containers were changed."""
    ring = alice.getKeyRing().result(PATIENCE)
    cache = new_cache(ring)
    made = [create(alice, b"1") for _ in range(20)]
    cache.getContainers(made[1:]).result(PATIENCE)
    cache.getContainerMetadata(made[0]).result(PATIENCE)
    wait_until(lambda: cache._cache().copies.folder.has("place", b""))
    cache.close()
    for container in made:
        alice.updateContainerContent(container, b"2").result(PATIENCE)
    age(fresh_broker, ring.userId)
    drop_old_events(fresh_broker)
    cache = new_cache(ring)
    cache.getUserId().result(PATIENCE)
    copies = cache._cache().copies
    wait_until(lambda: all(has_version(copies, each, 2) for each in made))
    away(fresh_broker, cache)
    contents = [cache.getContainerContent(each).result(PATIENCE) for each in made[1:]]
    assert contents == [b"2"] * 19
    refusal(cache.getContainerContent(made[0]), BrokerError.offlineError, "content of container")


@pytest.mark.long
def test_keys_that_were_replaced_meanwhile_end_a_session_that_began_without_the_broker(
    alice: ServerProvider, new_cache: NewCache, new_provider: NewProvider, tmp_path: Path,
    fresh_broker: BrokerProcess,
) -> None:  # fmt: skip
    ring = alice.getKeyRing().result(PATIENCE)
    made = create(alice, b"content")
    cache = new_cache(ring)
    cache.getContainer(made).result(PATIENCE)
    cache.close()
    alice.changeCredentials(PASSWORD, PASSPHRASE, compromised=True).result(PATIENCE)
    fresh_broker.stop()
    cache = new_cache(ring)
    assert cache.getContainerContent(made).result(PATIENCE) == b"content"
    back(fresh_broker, cache)
    refusal(cache.createContainer(b""), BrokerError.notAuthenticatedError, "Log in again")
    cache.close()
    # Another program of this device, without a cache, has verified the new keys.
    new_provider(
        alice.getKeyRing().result(PATIENCE),
        at=fresh_broker,
        trustStore=FileTrustStore(tmp_path / "marks"),
    )
    fresh_broker.stop()
    with pytest.raises(BrokerError.offlineError, match="The cached keys were refused"):
        new_cache(ring)


@pytest.mark.long
def test_a_container_that_the_provider_changed_is_fresh_in_the_cache_also_without_events(
    alice: ServerProvider, new_cache: NewCache, fresh_broker: BrokerProcess
) -> None:
    cache = new_cache(alice.getKeyRing().result(PATIENCE), follow=False)
    made, deleted = create(alice, b"1"), create(alice, b"1")
    cache.getContainers([made, deleted]).result(PATIENCE)
    assert cache.updateContainerContent(made, b"2").result(PATIENCE).version == 2
    cache.deleteContainer(deleted).result(PATIENCE)
    copies = cache._cache().copies
    wait_until(lambda: has_version(copies, made, 2))
    wait_until(lambda: copies.find(deleted) is None)
    fresh_broker.stop()
    assert cache.getContainerContent(made).result(PATIENCE) == b"2"


@pytest.mark.long
def test_an_answer_that_refuses_is_an_answer_and_the_broker_is_not_away(
    alice: ServerProvider, new_cache: NewCache
) -> None:
    cache = new_cache(alice.getKeyRing().result(PATIENCE), follow=False)
    made = create(alice, b"content")
    cache.getContainer(made).result(PATIENCE)
    with Network() as network:
        network.treat("GET", str(made), refused(BrokerError.overloadedError(retryAfter=60.0)))
        refusal(cache.getContainer(made), BrokerError.overloadedError)
    assert cache.awaySince is None
