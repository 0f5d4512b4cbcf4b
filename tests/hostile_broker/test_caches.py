"""Attacks on the folder in which a CachedProvider keeps sealed containers, and by brokers that go away.

Attacks 97 to 99 and 168 of attacks.toml. While the broker is away, a device has nothing but its marks and
that folder.
"""

import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from scbroker import AccessLevel, BrokerError, CachedProvider, FileTrustStore, MemoryTrustStore
from tests.hostile_broker.accomplices import NO_LIST, Mallory
from tests.hostile_broker.broker import CutError, Exchange
from tests.hostile_broker.protocol import INTEGRITY, VIEW
from tests.kit.impatience import be_impatient
from tests.kit.limits import lower
from tests.kit.waiting import PATIENCE, wait_until
from tests.kit.writers import OWNER, READER, Story, User

OFFLINE: Final = BrokerError.offlineError
NewCache = Callable[..., CachedProvider]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_impatient(monkeypatch)


@pytest.fixture
def new_cache(mallory: Mallory, tmp_path: Path) -> Iterator[NewCache]:
    """A user's device with a cache; all devices have one folder, and each user one file of marks."""
    with ExitStack() as stack:

        def make(user: User, folder: Path = tmp_path / "cache", **options: Any) -> CachedProvider:
            store = options.pop("store", None) or FileTrustStore(tmp_path / "marks")
            device = mallory.device(user.ring, store)
            return stack.enter_context(CachedProvider(device, folder, follow=False, **options))

        yield make


@contextmanager
def away(mallory: Mallory, cache: CachedProvider) -> Iterator[None]:
    """The broker cuts every connection."""

    def cut(_: Exchange) -> None:
        raise CutError

    with mallory.meddling("", before=cut):
        with pytest.raises(BrokerError.unreachableError):
            cache.getContainer(uuid.uuid4()).result(PATIENCE)
        assert cache.awaySince is not None
        yield
    refresh(cache)


def refresh(cache: CachedProvider) -> None:
    """Wait until the device found the broker again."""
    cache._reach.needed()
    wait_until(lambda: cache.awaySince is None)


def path_of(cache: CachedProvider, container: uuid.UUID) -> Path:
    """The file of a container's copy."""
    return cache._cache().copies.folder._path("container", container.bytes)


def flip_first(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


def flip_last(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0" * 100)


def link(path: Path) -> None:
    other = path.parent.parent / "elsewhere"
    path.rename(other)
    path.symlink_to(other)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "change", [flip_first, flip_last, cut_off, empty, append, link], ids=lambda way: way.__name__
)
def test_a_file_of_the_cache_that_was_changed_is_removed_and_not_served(
    mallory: Mallory, alice: User, new_cache: NewCache, change: Callable[[Path], None]
) -> None:
    story = Story(alice).created(content=b"true")
    cache = new_cache(alice)
    cache.getContainer(story.uuid).result(PATIENCE)
    path = path_of(cache, story.uuid)
    change(path)
    with away(mallory, cache):
        with pytest.raises(OFFLINE, match="not in the cache"):
            cache.getContainer(story.uuid).result(PATIENCE)
        assert not path.exists()
        assert not path.is_symlink()
    assert cache.getContainer(story.uuid).result(PATIENCE).content == b"true"


@pytest.mark.long
def test_files_of_the_cache_that_were_swapped_are_removed_and_not_served(
    mallory: Mallory, alice: User, new_cache: NewCache
) -> None:
    one, other = (Story(alice).created(content=text) for text in (b"one", b"other"))
    cache = new_cache(alice)
    cache.getContainers([one.uuid, other.uuid]).result(PATIENCE)
    paths = [path_of(cache, story.uuid) for story in (one, other)]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[::-1], strict=True):
        path.write_bytes(content)
    with away(mallory, cache):
        for story, path in zip((one, other), paths, strict=True):
            with pytest.raises(OFFLINE, match="not in the cache"):
                cache.getContainer(story.uuid).result(PATIENCE)
            assert not path.exists()


def test_a_thief_of_the_cache_gets_numbers_sizes_and_times_of_files(
    alice: User, new_cache: NewCache, tmp_path: Path
) -> None:
    story = Story(alice).created(header=b'"canary"', content=b"canary" * 9, type="canary")
    cache = new_cache(alice)
    cache.getContainer(story.uuid).result(PATIENCE)
    sealed = cache._provider.getSecuredContainer(story.uuid).result(PATIENCE)
    secrets = [
        b"canary", story.uuid.bytes, story.uuid.hex.encode(), str(story.uuid).encode(),
        alice.ring.userId.bytes, alice.ring.userId.hex.encode(), str(alice.ring.userId).encode(),
        alice.ring.rawFingerprint, sealed.record, sealed.signature, sealed.sealedHeader,
        sealed.sealedContent,
    ]  # fmt: skip
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    found = list((tmp_path / "cache").rglob("*"))
    assert len(found) >= 3
    for path in found:
        shown = str(path.relative_to(tmp_path)).encode()
        shown += path.read_bytes() if path.is_file() else b""
        for secret in secrets:
            assert secret is not None
            assert secret not in shown


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_write_is_refused(
    alice: User, new_cache: NewCache, tmp_path: Path, mode: int
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(BrokerError.invalidArgumentError, match="nobody else can write"):
        new_cache(alice, folder)


@pytest.mark.long
def test_a_denial_hides_a_copy_and_does_not_destroy_it(
    mallory: Mallory, alice: User, new_cache: NewCache
) -> None:
    story = Story(alice).created(content=b"true")
    cache = new_cache(alice)
    cache.getContainer(story.uuid).result(PATIENCE)
    path = path_of(cache, story.uuid)
    with (
        mallory.failing(VIEW, BrokerError.notFoundError()),
        pytest.raises(BrokerError.notFoundError),
    ):
        cache.getContainer(story.uuid).result(PATIENCE)
    assert path.exists()
    with away(mallory, cache), pytest.raises(BrokerError.notFoundError, match="denied this"):
        cache.getContainer(story.uuid).result(PATIENCE)
    with mallory.failing(VIEW, BrokerError.deletedError()), pytest.raises(INTEGRITY):
        cache.getContainer(story.uuid).result(PATIENCE)
    assert path.exists(), "a deletion without a tombstone"
    cache.getContainer(story.uuid).result(PATIENCE)
    with away(mallory, cache):
        assert cache.getContainer(story.uuid).result(PATIENCE).content == b"true"


def test_containers_of_strangers_in_a_list_displace_no_copy_that_was_asked_for(
    mallory: Mallory, alice: User, bob: User, eve: User, new_cache: NewCache,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Nor one of the user's own containers. The cache keeps what fits of the others."""
    lower(monkeypatch, cache_size=2**20)
    cache, hers = new_cache(alice, maxBytes=2**20), mallory.device_of(eve)
    story = Story(bob).created({bob: OWNER, alice: READER}, content=b"asked for")
    own = cache.createContainer(b"", {"name": "own"}).result(PATIENCE).id
    assert cache.getContainer(story.uuid).result(PATIENCE).content == b"asked for"
    header = {"name": "evil", "more": "x" * 200_000}
    levels = [AccessLevel(eve.ring.userId, OWNER), AccessLevel(alice.ring.userId, NO_LIST)]
    for _ in range(2):
        for _ in range(6):
            hers.createContainer(None, header, accessLevels=levels).result(PATIENCE)
        assert {own, story.uuid} < {getattr(each, "id", None) for each in cache.iterContainers()}
    for each in (own, story.uuid):
        assert cache.getCachedAt(each).result(PATIENCE) is not None
    with away(mallory, cache):
        assert cache.getContainer(story.uuid).result(PATIENCE).content == b"asked for"
        assert cache.getContainerMetadata(own).result(PATIENCE).id == own
        page = cache.listContainers().result(PATIENCE)
        assert len(page.leftOut) > 6


# Limits


@pytest.mark.long
def test_older_files_are_the_limit_of_a_device_that_lost_its_marks(
    mallory: Mallory, alice: User, bob: User, new_cache: NewCache
) -> None:
    """A fresh device at a broker that serves an old state is as badly off: it is told how old it is."""
    story = Story(alice).created({alice: OWNER, bob: NO_LIST}, content=b"1")
    for user in (alice, bob):
        new_cache(user).getContainer(story.uuid).result(PATIENCE)
    story.tell(alice, story.follow(alice, content=b"2"))
    fresh = new_cache(alice, store=MemoryTrustStore())
    with away(mallory, fresh):
        found = fresh.getContainer(story.uuid).result(PATIENCE)
        assert found.asOf is not None
        assert found.content == b"1"


@pytest.mark.long
def test_a_broker_that_stays_away_is_the_limit_and_the_age_of_the_copy_tells(
    mallory: Mallory, alice: User, new_cache: NewCache
) -> None:
    story = Story(alice).created(content=b"1")
    cache = new_cache(alice)
    cache.getContainer(story.uuid).result(PATIENCE)
    known = cache.getCachedAt(story.uuid).result(PATIENCE)
    story.tell(alice, story.follow(alice, content=b"2"))
    with away(mallory, cache):
        found = cache.getContainer(story.uuid).result(PATIENCE)
        assert (found.content, found.asOf) == (b"1", known)
        assert cache.awaySince is not None
