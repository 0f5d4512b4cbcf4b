"""What each operation of a CachedProvider does while the broker is away: none is forgotten."""

import datetime as dt
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    CachedProvider,
    GroupManager,
    MemberRole,
    MemoryTrustStore,
    NewContainer,
    ServerProvider,
    Stream,
    WriteOutcome,
)
from scbroker.client.cached_provider import ANSWERED, AS_EVER
from scbroker.client.provider import OPERATIONS
from scbroker.records.canonical import uuid8
from tests.client.conftest import PASSPHRASE, PASSWORD, drop
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import brokers_by_engine
from tests.kit.impatience import be_impatient
from tests.kit.waiting import PATIENCE, wait_until

LOCAL = {"getContactCard", "getKeptSessions", "getKeyRing", "getUserId"}
"""Nothing is sent, with or without a cache."""
TRIED = {"followEvents", "getReminder", "logIn", "logout", "register", "resumeSession"}
"""Sent nevertheless: they need no session, end it, or wait for the broker by themselves."""
REFUSED = OPERATIONS - ANSWERED - AS_EVER


def test_no_other_operation_is_as_ever_while_the_broker_is_away() -> None:
    assert AS_EVER - {"forgetKeptSession", "clear", "getCachedAt"} == LOCAL | TRIED


@pytest.fixture(scope="module")
def world(
    new_stores: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[CachedProvider, uuid.UUID, Path]]:
    """A provider whose cache has one container, a link to it, and a group, at a broker that was stopped."""
    folder = tmp_path_factory.mktemp("cache")
    with brokers_by_engine(new_stores, tmp_path_factory) as broker_on:
        broker: BrokerProcess = broker_on("sqlite")
        server = ServerProvider(broker.api_key, broker.url, "test", trustStore=MemoryTrustStore())
        with CachedProvider(server, folder / "cache") as cache:
            ring = broker.new_user()
            cache.logIn(ring, ring.userId).result(PATIENCE)
            made = cache.createContainer(b"content", customHeaderObject={}).result(PATIENCE).id
            until = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
            cache.createLink(made, expiresAt=until).result(PATIENCE)
            cache.getLinks().result(PATIENCE)
            cache.getContainer(made).result(PATIENCE)
            cache.getGroupMembers(cache.createGroup("Team").result(PATIENCE)).result(PATIENCE)
            broker.stop()
            wait_until(lambda: cache.awaySince is not None)
            yield cache, made, folder


def arguments(name: str, made: uuid.UUID, folder: Path) -> tuple[Any, ...]:
    """Arguments that an operation takes, for this container."""
    level = AccessLevel(uuid.uuid4())
    others: dict[str, tuple[Any, ...]] = {
        "addGroupMembers": (made, uuid.uuid4()),
        "changeCredentials": (PASSWORD, PASSPHRASE),
        "createContainer": (b"",),
        "createContainers": ([NewContainer(b"")],),
        "createGroup": ("Team",),
        "createOrUpdateKeyFile": (b"", PASSWORD, PASSPHRASE),
        "deleteKeyFile": (),
        "deleteUser": (),
        "getBlockedUsers": (),
        "getUsage": (),
        "getContactCard": ("Alice",),
        "getKeptSessions": (),
        "getKeyRing": (),
        "getLinks": (),
        "getUserId": (),
        "getContainers": ([made],),
        "getEvents": (),
        "getGroups": (),
        "getKeyFile": (PASSPHRASE,),
        "getLatestActiveSigningKey": (uuid.uuid4(),),
        "getPublicKeys": (),
        "grantAccess": (made, level),
        "iterContainers": (),
        "listContainers": (),
        "removeGroupMembers": (made, uuid.uuid4()),
        "replaceGroup": (made, uuid.uuid4()),
        "setGroupManagers": (made, [GroupManager(uuid.uuid4(), owner=True)]),
        "setGroupRoles": (made, MemberRole(uuid.uuid4())),
        "needToSyncAccount": (uuid.uuid4(), b""),
        "resetEventMark": (),
        "revokeAccess": (made, uuid.uuid4()),
        "saveContainerContent": (made, folder / "saved"),
        "updateContainersAccessLevels": ([],),
    }
    return others.get(name, (made,))


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_an_operation_that_needs_the_broker_is_refused_before_anything_is_sent(
    name: str, world: tuple[CachedProvider, uuid.UUID, Path]
) -> None:
    cache, made, folder = world
    with pytest.raises(BrokerError.offlineError, match=f"{name} needs the broker") as raised:
        getattr(cache, name)(*arguments(name, made, folder)).result(PATIENCE)
    assert raised.value.outcome is WriteOutcome.NotStored


@pytest.mark.parametrize("name", sorted(ANSWERED))
def test_a_read_of_a_cached_container_is_answered(
    name: str, world: tuple[CachedProvider, uuid.UUID, Path]
) -> None:
    cache, made, folder = world
    if name == "getGroupMembers":
        [team] = cache._cache().session.groups.names
        made = uuid8(team)
    found = getattr(cache, name)(*arguments(name, made, folder))
    assert (next(found) if isinstance(found, Stream) else found.result(PATIENCE)) is not None


@pytest.mark.parametrize("name", sorted(LOCAL))
def test_an_operation_that_needs_no_broker_works_as_without_a_cache(
    name: str, world: tuple[CachedProvider, uuid.UUID, Path]
) -> None:
    cache, made, folder = world
    assert getattr(cache, name)(*arguments(name, made, folder)).result(PATIENCE) is not None


def test_an_operation_that_needs_no_session_is_sent_all_the_same(
    world: tuple[CachedProvider, uuid.UUID, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    be_impatient(monkeypatch)
    cache = world[0]
    user = cache.getUserId().result(PATIENCE)
    for promise in (
        cache.register(PASSWORD, PASSPHRASE),
        cache.getReminder(user),
        cache.logIn(user, passphrase=PASSPHRASE),
    ):
        with pytest.raises(BrokerError.unreachableError) as raised:
            promise.result(PATIENCE)
        assert not isinstance(raised.value, BrokerError.offlineError)
    with cache.followEvents() as stream:
        assert isinstance(stream, Stream)
    cache.logout().result(PATIENCE)
    with pytest.raises(BrokerError.notAuthenticatedError):
        drop(cache.getUserId())
