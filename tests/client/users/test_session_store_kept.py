"""Kept sessions over a real broker: log in once, and the next start of the program needs no secret."""

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
    MemoryTrustStore,
    ServerProvider,
    SessionStore,
    WriteOutcome,
    keys,
)
from tests.client.conftest import PASSPHRASE, PASSWORD
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.keychains import MemoryKeychain, keychain_in_memory
from tests.kit.network import Network, refused
from tests.kit.owners import NEW_PASSPHRASE, change, ring_of
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
