"""Kept sessions over a real broker: log in once, and the next start of the program needs no secret."""

import asyncio
import contextlib
import logging
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scbroker import (
    BrokerError,
    FileSessionStore,
    KeychainSessionStore,
    KeyRing,
    MemoryTrustStore,
    ServerProvider,
    SessionStore,
    WriteOutcome,
    keys,
)
from scbroker.client.calls.io_thread import io_thread
from scbroker.client.users.session_store import KeptSessions
from tests.client.conftest import PASSPHRASE, PASSWORD
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider, StartBroker
from tests.kit.keychains import MemoryKeychain, keychain_in_memory
from tests.kit.network import Network, lost, refused
from tests.kit.owners import KEY_FILE, NEW_PASSPHRASE, NEW_PASSWORD, change, ring_of
from tests.kit.waiting import PATIENCE

Start = Callable[[], ServerProvider]
"""A start of the program on one device: a provider without a session, with the device's stores."""


@pytest.fixture
def keychain() -> Iterator[MemoryKeychain]:
    with keychain_in_memory() as found:
        yield found


@pytest.fixture(params=["keychain", "file"])
def store(request: pytest.FixtureRequest, keychain: MemoryKeychain, tmp_path: Path) -> SessionStore:
    """A device's store, of each kind in turn; the keychain is one in memory."""
    del keychain
    kind = KeychainSessionStore if request.param == "keychain" else FileSessionStore
    made: SessionStore = kind(tmp_path / "sessions")
    return made


@pytest.fixture
def start(new_provider: NewProvider, store: SessionStore) -> Start:
    marks = MemoryTrustStore()
    return lambda: new_provider(trustStore=marks, sessionStore=store)


def registered(start: Start) -> ServerProvider:
    provider = start()
    provider.register(PASSWORD, PASSPHRASE, keep=True).result(PATIENCE)
    return provider


def refused_at(provider: ServerProvider, *user: uuid.UUID) -> str:
    """Resuming is refused as it is without a valid session; what the error says."""
    with pytest.raises(BrokerError.notAuthenticatedError) as caught:
        provider.resumeSession(*user).result(PATIENCE)
    with pytest.raises(BrokerError.notAuthenticatedError):
        provider.getUserId().result(PATIENCE)
    return caught.value.message


def kept_by(provider: ServerProvider) -> list[uuid.UUID]:
    return provider.getKeptSessions().result(PATIENCE)


@pytest.mark.sampled
@pytest.mark.parametrize("way", ["register", "passphrase", "KeyRing"])
def test_a_kept_session_resumes_in_a_later_start_without_a_secret_and_without_argon2(
    start: Start, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = registered(start)
    note, ring = first.createContainer(b"note").result(PATIENCE), ring_of(first)
    if way != "register":
        first.logout().result(PATIENCE)
        assert kept_by(first) == []
    if way == "passphrase":
        first.logIn(ring.userId, passphrase=PASSPHRASE, keep=True).result(PATIENCE)
    if way == "KeyRing":
        first.logIn(ring, ring.userId, keep=True).result(PATIENCE)
    first.close()
    monkeypatch.setattr(keys, "stretch", None)  # a derivation would fail
    later = start()
    assert kept_by(later) == [ring.userId]
    assert later.resumeSession().result(PATIENCE) == ring.userId
    assert ring_of(later) == ring
    assert later.getContainerContent(note.id).result(PATIENCE) == b"note"


@pytest.mark.sampled
def test_a_session_is_not_kept_unless_that_is_asked_for_and_a_kept_one_stays(start: Start) -> None:
    provider = start()
    provider.register(PASSWORD, PASSPHRASE).result(PATIENCE)
    user, ring = provider.getUserId().result(PATIENCE), ring_of(provider)
    assert "log in with keep=True" in refused_at(start())
    provider.logIn(user, passphrase=PASSPHRASE, keep=True).result(PATIENCE)
    provider.logIn(ring, user).result(PATIENCE)
    assert kept_by(start()) == [user]


@pytest.mark.sampled
def test_one_of_several_kept_sessions_is_named_by_its_user(
    start: Start, broker: BrokerProcess
) -> None:
    rings = [broker.new_user() for _ in range(3)]
    for ring in rings:
        start().logIn(ring, ring.userId, keep=True).result(PATIENCE)
    users = sorted(ring.userId for ring in rings)
    later = start()
    assert kept_by(later) == users
    with pytest.raises(BrokerError.invalidArgumentError) as caught:
        later.resumeSession().result(PATIENCE)
    assert all(str(user) in caught.value.message for user in users)
    assert later.resumeSession(str(users[1])).result(PATIENCE) == users[1]
    assert str(stranger := uuid.uuid4()) in refused_at(start(), stranger)


@pytest.mark.process
@pytest.mark.sampled
def test_a_session_is_kept_for_its_broker_alone(
    start: Start, store: SessionStore, start_broker: StartBroker, new_provider: NewProvider
) -> None:
    registered(start)
    elsewhere = new_provider(at=start_broker(), sessionStore=store)
    assert kept_by(elsewhere) == []
    refused_at(elsewhere)


def test_listing_and_forgetting_kept_sessions_sends_nothing(start: Start) -> None:
    user = registered(start).getUserId().result(PATIENCE)
    later = start()
    with Network() as network:
        assert kept_by(later) == [user]
        for _ in range(2):
            nothing: Any = later.forgetKeptSession(user).result(PATIENCE)
            assert nothing is None
        assert kept_by(later) == []
    assert network.sent == []
    refused_at(later)


@pytest.mark.sampled
@pytest.mark.parametrize("end", ["logout", "logout without a broker", "deleteUser"])
def test_a_log_out_and_a_deletion_forget_the_kept_session_of_their_user_alone(
    start: Start, keychain: MemoryKeychain, broker: BrokerProcess, end: str
) -> None:
    other = broker.new_user()
    start().logIn(other, other.userId, keep=True).result(PATIENCE)
    provider = registered(start)
    if end == "deleteUser":
        provider.deleteUser().result(PATIENCE)
    else:
        with Network() as network:
            if end != "logout":
                network.treat("DELETE", "/current", refused(BrokerError.unreachableError("away")))
            provider.logout().result(PATIENCE)
    assert kept_by(start()) == [other.userId]
    assert all(str(other.userId) in service for service, _ in keychain.entries)
    assert start().resumeSession().result(PATIENCE) == other.userId


@pytest.mark.sampled
def test_closing_a_provider_leaves_the_kept_session(start: Start) -> None:
    with registered(start) as provider:
        user = provider.getUserId().result(PATIENCE)
    assert start().resumeSession().result(PATIENCE) == user


@pytest.mark.sampled
def test_after_a_mere_change_of_secrets_kept_sessions_go_on_on_every_device(
    start: Start, new_provider: NewProvider, tmp_path: Path
) -> None:
    """As sessions in memory do. The device of the change keeps the new generation."""
    here, elsewhere = registered(start), FileSessionStore(tmp_path / "elsewhere")
    ring = ring_of(here)
    new_provider(sessionStore=elsewhere).logIn(ring, ring.userId, keep=True).result(PATIENCE)
    key_file = change(here).result(PATIENCE)
    for store in (start, lambda: new_provider(sessionStore=elsewhere)):
        assert store().resumeSession().result(PATIENCE) == ring.userId
    later = start()
    later.resumeSession().result(PATIENCE)
    assert ring_of(later).generation == ring.generation + 1
    later.createOrUpdateKeyFile(key_file, NEW_PASSWORD, f"{PASSPHRASE} 2").result(PATIENCE)
    last = start()
    last.resumeSession().result(PATIENCE)
    assert ring_of(last).generation == ring.generation + 2
    change(last, number=3).result(PATIENCE)


@pytest.mark.sampled
def test_after_a_rotation_the_device_of_the_change_resumes_and_every_other_logs_in_anew(
    start: Start, new_provider: NewProvider, tmp_path: Path
) -> None:
    here, folder = registered(start), tmp_path / "elsewhere"
    ring = ring_of(here)
    new_provider(sessionStore=folder).logIn(ring, ring.userId, keep=True).result(PATIENCE)
    change(here, compromised=True).result(PATIENCE)
    later = start()
    later.resumeSession().result(PATIENCE)
    assert ring_of(later) == ring_of(here)
    other = new_provider(sessionStore=folder)
    assert "log in with the new passphrase and keep=True" in refused_at(other)
    assert kept_by(other) == [ring.userId], "the refusal is the broker's word alone"
    other.logIn(ring.userId, passphrase=NEW_PASSPHRASE, keep=True).result(PATIENCE)
    new_provider(sessionStore=folder).resumeSession().result(PATIENCE)


@pytest.mark.sampled
@pytest.mark.parametrize("arrives", [True, False])
def test_a_rotation_whose_answer_was_lost_leaves_a_session_that_resumes_with_the_published_keys(
    start: Start, arrives: bool
) -> None:
    """The same as when the process ends before it has the answer: nobody needs to know which it was."""
    here = registered(start)
    with Network() as network:
        away = BrokerError.unreachableError("The request was lost.")
        network.treat("PUT", KEY_FILE, lost(9) if arrives else refused(away))
        with pytest.raises(BrokerError.unreachableError):
            change(here, compromised=True).result(PATIENCE)
    later = start()
    later.resumeSession().result(PATIENCE)
    assert len(ring_of(later).signing) == 1 + arrives
    later.createContainer(b"note").result(PATIENCE)
    change(later, compromised=True, number=2).result(PATIENCE)
    last = start()
    last.resumeSession().result(PATIENCE)
    assert ring_of(last) == ring_of(later)
    assert len(ring_of(last).signing) == 2 + arrives


@pytest.mark.sampled
def test_a_session_that_is_not_kept_is_not_kept_by_a_change_of_credentials(start: Start) -> None:
    provider = registered(start)
    provider.forgetKeptSession(provider.getUserId().result(PATIENCE)).result(PATIENCE)
    change(provider, compromised=True).result(PATIENCE)
    assert kept_by(provider) == []


@pytest.mark.sampled
def test_a_log_in_does_not_replace_a_later_key_ring_that_another_program_kept_meanwhile(
    start: Start,
) -> None:
    here = registered(start)
    before = ring_of(here)
    change(here).result(PATIENCE)
    start().logIn(before, before.userId, keep=True).result(PATIENCE)
    later = start()
    later.resumeSession().result(PATIENCE)
    assert ring_of(later).generation == before.generation + 1


@pytest.mark.sampled
def test_a_resumed_session_takes_the_place_of_another_users(
    start: Start, broker: BrokerProcess
) -> None:
    user = registered(start).getUserId().result(PATIENCE)
    provider, other = start(), broker.new_user()
    provider.logIn(other, other.userId).result(PATIENCE)
    provider.resumeSession().result(PATIENCE)
    assert provider.getUserId().result(PATIENCE) == user


def unusable(keychain: MemoryKeychain, monkeypatch: pytest.MonkeyPatch, how: str) -> str:
    """Make the keychain unusable; return what the error has to say."""
    if how == "not installed":
        monkeypatch.setitem(sys.modules, "keyring", None)
        return r"pip install '\./scbroker\[keychain\]'"
    if how == "a file in clear text":
        monkeypatch.setattr(MemoryKeychain, "priority", 0.5)
        return "no usable keychain"

    def locked(_: str) -> None:
        raise RuntimeError("the passphrase is hunter2")

    keychain.before = locked
    return r"keychain failed \(RuntimeError\): unlock it"


@pytest.mark.parametrize("how", ["not installed", "a file in clear text", "locked"])
def test_without_a_usable_keychain_nothing_is_sent_and_the_error_says_what_to_do(
    new_provider: NewProvider,
    keychain: MemoryKeychain,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    how: str,
) -> None:
    provider = new_provider(sessionStore=KeychainSessionStore(tmp_path))
    message, user = unusable(keychain, monkeypatch, how), uuid.uuid4()
    with Network() as network:
        for attempt in (
            provider.register(PASSWORD, PASSPHRASE, keep=True),
            provider.logIn(user, passphrase=PASSPHRASE, keep=True),
        ):
            with pytest.raises(BrokerError.sessionStoreError, match=message) as caught:
                attempt.result(PATIENCE)
            assert "sessionStore= the path of a folder" in caught.value.message
            assert "hunter2" not in caught.value.message
            assert caught.value.outcome is WriteOutcome.NotStored
    assert network.sent == []
    provider.register(PASSWORD, PASSPHRASE).result(PATIENCE)
    provider.logout().result(PATIENCE)


def fails_at(keychain: MemoryKeychain, wanted: str) -> None:
    def fail(access: str) -> None:
        if access == wanted:
            raise OSError("locked meanwhile")

    keychain.before = fail


def test_a_registration_that_cannot_be_kept_is_a_session_all_the_same(
    new_provider: NewProvider, keychain: MemoryKeychain, tmp_path: Path
) -> None:
    """The error says that the user exists: their id must not be lost with the result."""
    provider = new_provider(sessionStore=KeychainSessionStore(tmp_path))
    fails_at(keychain, "set")
    with pytest.raises(BrokerError.sessionStoreError, match="is logged in, but") as caught:
        provider.register(PASSWORD, PASSPHRASE, keep=True).result(PATIENCE)
    assert caught.value.outcome is WriteOutcome.Stored
    assert str(provider.getUserId().result(PATIENCE)) in caught.value.message
    assert provider.getKeyFile(PASSPHRASE).result(PATIENCE)


def test_a_keychain_that_fails_while_keys_are_replaced_is_logged_and_stops_nothing(
    new_provider: NewProvider,
    keychain: MemoryKeychain,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = new_provider(sessionStore=KeychainSessionStore(tmp_path))
    provider.register(PASSWORD, PASSPHRASE, keep=True).result(PATIENCE)
    fails_at(keychain, "get")
    with caplog.at_level(logging.WARNING, "scbroker"):
        change(provider, compromised=True).result(PATIENCE)
    assert "could not be renewed" in caplog.text
    assert len(ring_of(provider).signing) == 2


@pytest.mark.parametrize("end", ["logout", "deleteUser"])
def test_a_session_ends_although_the_kept_one_cannot_be_removed_and_the_error_says_so(
    new_provider: NewProvider, keychain: MemoryKeychain, tmp_path: Path, end: str
) -> None:
    """Its file is gone in any case: without it the key in the keychain opens nothing."""
    provider = new_provider(sessionStore=KeychainSessionStore(tmp_path))
    provider.register(PASSWORD, PASSPHRASE, keep=True).result(PATIENCE)
    fails_at(keychain, "delete")
    with pytest.raises(BrokerError.sessionStoreError) as caught:
        getattr(provider, end)().result(PATIENCE)
    assert (caught.value.outcome is WriteOutcome.Stored) == (end == "deleteUser")
    with pytest.raises(BrokerError.notAuthenticatedError):
        provider.getUserId().result(PATIENCE)
    assert kept_by(provider) == []


def test_an_entry_of_the_keychain_names_broker_and_user_and_nothing_else(
    start: Start, keychain: MemoryKeychain, broker: BrokerProcess, store: SessionStore
) -> None:
    user = registered(start).getUserId().result(PATIENCE)
    names = [(f"scbroker {broker.origin} {user}", str(user))]
    assert list(keychain.entries) == names * isinstance(store, KeychainSessionStore)


def test_a_kept_session_shows_no_secret_in_its_file_or_its_reprs(
    start: Start, store: Any, broker: BrokerProcess
) -> None:
    ring = ring_of(registered(start))
    found = store.get(broker.origin, ring.userId)
    assert found is not None
    assert repr(found) == "SealedKeys(…)"
    for key in (*ring.signing, *ring.encryption):
        for seed in key.seeds:
            assert bytes(seed) not in found.sealed
    assert found.key not in found.sealed


@pytest.mark.sampled
async def test_resuming_works_in_a_coroutine_and_with_handlers(
    start: Start, broker: BrokerProcess
) -> None:
    ring: KeyRing = broker.new_user()
    await start().logIn(ring, ring.userId, keep=True)
    later = start()
    assert await later.resumeSession(userId=ring.userId) == ring.userId
    found: list[uuid.UUID] = []
    done = later.resumeSession(completionHandler=found.append, errorHandler=print)
    assert done is later


@pytest.mark.sampled
async def test_several_programs_that_log_in_and_out_at_once_leave_a_whole_session_or_none(
    store: SessionStore, broker: BrokerProcess
) -> None:
    """Both halves are replaced together, whatever the order."""
    ring = broker.new_user()
    devices = [KeptSessions(store, broker.origin) for _ in range(4)]

    async def use(device: KeptSessions, number: int) -> None:
        for step in range(10):
            if (step + number) % 3:
                await device.keep(ring.next(step + 1, fresh=False))
            else:
                await device.forget(ring.userId)
            if ring.userId in await device.users():
                with contextlib.suppress(BrokerError.notAuthenticatedError):
                    found = await device.find(ring.userId)
                    assert found.rings[0].signing == ring.signing

    async def all_of_them() -> None:
        await asyncio.gather(*(use(device, number) for number, device in enumerate(devices)))

    await asyncio.wrap_future(io_thread.submit("test", all_of_them()))
