"""Attacks on kept sessions: stolen, changed, older, and a broker that makes devices forget.

Attacks 93 to 96 of attacks.toml. A kept session is a file with the sealed KeyRing, and its key in the
keychain or in a second file.
"""

import os
import shutil
import stat
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
)
from scbroker.errors import UnsupportedVersionError
from scbroker.keys import open_session, seal_session
from scbroker.wire.users import Session
from tests.hostile_broker.accomplices import Mallory, records_of
from tests.hostile_broker.accounts import NEW_PASSPHRASE, NEW_PASSWORD, PASSPHRASE, PASSWORD
from tests.hostile_broker.protocol import CHALLENGES, KEYS, ROLLBACK, SESSIONS
from tests.kit.brokers import clock
from tests.kit.keychains import MemoryKeychain, keychain_in_memory
from tests.kit.waiting import PATIENCE

NOT_IN = BrokerError.notAuthenticatedError
DAMAGED = BrokerError.sessionStoreError


@pytest.fixture(autouse=True)
def keychain() -> Iterator[MemoryKeychain]:
    with keychain_in_memory() as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "device"


def at(mallory: Mallory, folder: Path, **options: Any) -> ServerProvider:
    """A start of a program that keeps sessions in this folder, and their keys in the keychain."""
    return mallory.device(sessionStore=KeychainSessionStore(folder), **options)


def kept(mallory: Mallory, folder: Path, **options: Any) -> KeyRing:
    """Register a user and keep the session; return the KeyRing."""
    device = at(mallory, folder, **options)
    device.register(PASSWORD, PASSPHRASE, keep=True).result(PATIENCE)
    ring = device.getKeyRing().result(PATIENCE)
    device.close()
    return ring


def file_in(folder: Path) -> Path:
    [found] = folder.glob("*.session")
    return found


def not_resumed(
    mallory: Mallory,
    device: ServerProvider,
    error: type[BrokerError],
    match: str | None = None,
    *sent: str,
    user: uuid.UUID | None = None,
) -> None:
    """It fails with this error, no session begins, and nothing was sent but this."""
    count = len(mallory.heard)
    with pytest.raises(error, match=match):
        device.resumeSession(user).result(PATIENCE)
    assert mallory.since(count) == list(sent)
    with pytest.raises(NOT_IN):
        device.getUserId().result(PATIENCE)


# Stolen


def test_a_thief_of_the_file_alone_has_nothing(mallory: Mallory, folder: Path) -> None:
    """On a machine of their own there is no key; and any other key opens nothing."""
    ring = kept(mallory, folder)
    stolen = file_in(folder).read_bytes()
    for key in (*ring.signing, *ring.encryption):
        assert not any(bytes(seed) in stolen for seed in key.seeds)
    with keychain_in_memory() as thiefs:
        not_resumed(mallory, at(mallory, folder), NOT_IN, "No session of user")
        entry = (f"scbroker {mallory.origin} {ring.userId}", str(ring.userId))
        thiefs.entries[entry] = "A" * 43 + "="
        not_resumed(mallory, at(mallory, folder), DAMAGED, "damaged")


_ASKED = (CHALLENGES, SESSIONS)
_REFUSED = (
    _ASKED * 2
)  # the client asks once more: an answer that got lost would have used its nonce up


def _entries() -> dict[tuple[str, str], str]:
    import keyring

    found = keyring.get_keyring()
    assert isinstance(found, MemoryKeychain)
    return found.entries


def test_a_copy_of_the_file_from_before_a_log_out_does_not_open_afterwards(
    mallory: Mallory, folder: Path
) -> None:
    """As a backup has it. The key is deleted, and a later log-in makes another one."""
    ring = kept(mallory, folder)
    path, copy = file_in(folder), file_in(folder).read_bytes()
    device = at(mallory, folder)
    device.resumeSession().result(PATIENCE)
    device.logout().result(PATIENCE)
    path.write_bytes(copy)
    path.chmod(0o600)
    not_resumed(mallory, at(mallory, folder), NOT_IN, "No session of user")
    device.logIn(ring, ring.userId, keep=True).result(PATIENCE)
    device.close()
    path.write_bytes(copy)
    not_resumed(mallory, at(mallory, folder), DAMAGED, "damaged")


def test_a_key_that_was_stolen_before_a_log_in_opens_nothing_that_is_kept_afterwards(
    mallory: Mallory, folder: Path
) -> None:
    """A renewal of the kept session, after a change of credentials, does not make a new key."""
    ring, stolen = kept(mallory, folder), dict(_entries())
    device = at(mallory, folder)
    device.logIn(ring, ring.userId, keep=True).result(PATIENCE)
    assert _entries().keys() == stolen.keys()
    with keychain_in_memory() as thiefs:
        thiefs.entries.update(stolen)
        not_resumed(mallory, at(mallory, folder), DAMAGED, "damaged")
    stolen = dict(_entries())
    device.changeCredentials(NEW_PASSWORD, NEW_PASSPHRASE).result(PATIENCE)
    assert _entries() == stolen


# Changed


def test_halves_of_another_user_or_broker_do_not_open(
    mallory: Mallory, folder: Path, tmp_path: Path, keychain: MemoryKeychain
) -> None:
    """An attacker who can write both halves puts Eve's session in Alice's place: its context names Eve."""
    alice, eve = kept(mallory, folder), kept(mallory, tmp_path / "eve")
    file_in(folder).write_bytes(file_in(tmp_path / "eve").read_bytes())
    entries = [
        (f"scbroker {mallory.origin} {ring.userId}", str(ring.userId)) for ring in (alice, eve)
    ]
    not_resumed(mallory, at(mallory, folder), DAMAGED)
    keychain.entries[entries[0]] = keychain.entries[entries[1]]
    not_resumed(mallory, at(mallory, folder), DAMAGED)
    key = os.urandom(32)
    elsewhere = seal_session([alice], key, "https://elsewhere.example")
    with pytest.raises(BrokerError.decryptionError):
        open_session(elsewhere, key, mallory.origin, alice.userId)


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
@pytest.mark.parametrize("name", ["session", "key", "sessions.lock"])
def test_a_planted_file_is_neither_read_nor_changed(
    mallory: Mallory, tmp_path: Path, name: str, kind: str
) -> None:
    folder, victim = tmp_path / "device", tmp_path / "victim"
    device = mallory.device(sessionStore=folder)
    device.register(PASSWORD, PASSPHRASE, keep=True).result(PATIENCE)
    device.close()
    [planted] = [path for path in folder.iterdir() if path.name.endswith(name)]
    planted.rename(victim)
    before = victim.read_bytes()
    if kind == "link":
        planted.symlink_to(victim)
    elif kind == "hard link":
        planted.hardlink_to(victim)
    else:
        os.mkfifo(planted, 0o600)
    not_resumed(mallory, mallory.device(sessionStore=folder), DAMAGED, "this user alone|symbolic")
    assert victim.read_bytes() == before


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702], ids=oct)
def test_a_folder_that_others_can_write_is_refused_before_anything_is_sent(
    mallory: Mallory, folder: Path, mode: int
) -> None:
    """Another user of the machine could plant a session of their own there."""
    kept(mallory, folder)
    folder.chmod(mode)
    not_resumed(mallory, at(mallory, folder), DAMAGED, "chmod go-w")
    with pytest.raises(DAMAGED, match="chmod go-w"):
        at(mallory, folder).getKeptSessions().result(PATIENCE)
    count = len(mallory.heard)
    with pytest.raises(DAMAGED, match="chmod go-w"):
        at(mallory, folder).register(PASSWORD, PASSPHRASE, keep=True).result(PATIENCE)
    assert mallory.since(count) == []


# Older


def rotated(mallory: Mallory, folder: Path, marks: MemoryTrustStore) -> tuple[KeyRing, KeyRing]:
    """Keep a session, replace the keys, and put the older file back; the KeyRings before and after."""
    before = kept(mallory, folder, store=marks)
    older = file_in(folder).read_bytes()
    device = at(mallory, folder, store=marks)
    device.resumeSession().result(PATIENCE)
    device.changeCredentials(NEW_PASSWORD, NEW_PASSPHRASE, compromised=True).result(PATIENCE)
    after = device.getKeyRing().result(PATIENCE)
    device.close()
    file_in(folder).write_bytes(older)
    return before, after


def token_of(mallory: Mallory, ring: KeyRing) -> Session:
    """What a broker answers that lets older keys in: the real one refuses them."""
    token = mallory.accomplice(ring).wire.token
    return Session(token=str(token), expiresAt=clock() + 10**10, devicePass=bytes(48))


def test_an_older_file_is_removed_once_signing_key_0_proves_that_its_keys_were_replaced(
    mallory: Mallory, folder: Path
) -> None:
    marks = MemoryTrustStore()
    before, after = rotated(mallory, folder, marks)
    device = at(mallory, folder)
    with mallory.answering(SESSIONS, token_of(mallory, after), 201):
        not_resumed(mallory, device, NOT_IN, "The kept session was removed", *_ASKED, KEYS)
    assert device.getKeptSessions().result(PATIENCE) == []
    assert _entries() == {}
    with mallory.answering(SESSIONS, token_of(mallory, after), 201):
        with pytest.raises(ROLLBACK) as caught:
            device.logIn(before, before.userId).result(PATIENCE)
        assert type(caught.value) is ROLLBACK


# A broker that makes a device forget


def refuses(error: BrokerError) -> Callable[[Mallory], Any]:
    return lambda mallory: mallory.failing(SESSIONS, error)


def tells(error: BrokerError) -> Callable[[Mallory], Any]:
    return lambda mallory: mallory.failing(KEYS, error)


CLAIMS = {
    "refused": refuses(BrokerError.challengeError("Your keys were replaced.")),
    "unknown user": tells(BrokerError.notFoundError("No such user.")),
    "deleted": tells(BrokerError.deletedError("This user was deleted.")),
    "not authenticated": tells(BrokerError.notAuthenticatedError("No.")),
    "wrong credentials": refuses(BrokerError.credentialsError("No.")),
    "rollback": refuses(BrokerError.rollbackError("You are older.")),
    "another version": refuses(UnsupportedVersionError("No.")),
}


def test_an_older_kept_session_is_the_limit_of_a_device_that_lost_its_marks(
    mallory: Mallory, folder: Path
) -> None:
    """If the broker withholds the newer keys; a device that knows them refuses it."""
    marks = MemoryTrustStore()
    before, after = rotated(mallory, folder, marks)
    owner, session = mallory.accomplice(after), token_of(mallory, after)
    older = records_of(owner)[:2]
    with mallory.serving_keys(owner, older), mallory.answering(SESSIONS, session, 201):
        with pytest.raises(BrokerError):
            at(mallory, folder, store=marks).resumeSession().result(PATIENCE)
        device = at(mallory, folder)
        assert device.resumeSession().result(PATIENCE) == before.userId
        assert device.getKeyRing().result(PATIENCE) == before


@pytest.mark.sampled
@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS.keys())
def test_no_claim_of_a_broker_removes_a_kept_session(
    mallory: Mallory, folder: Path, claim: Callable[[Mallory], Any]
) -> None:
    ring = kept(mallory, folder)
    before = file_in(folder).read_bytes()
    device = at(mallory, folder)
    with claim(mallory), pytest.raises(BrokerError):
        device.resumeSession().result(PATIENCE)
    assert device.getKeptSessions().result(PATIENCE) == [ring.userId]
    assert file_in(folder).read_bytes() == before
    assert at(mallory, folder).resumeSession().result(PATIENCE) == ring.userId


def test_a_broker_that_refuses_the_newer_of_two_key_rings_does_not_prove_that_both_are_older(
    mallory: Mallory, folder: Path
) -> None:
    """After a change whose answer was lost, two are kept. The chain proves that the older one is older."""
    ring = kept(mallory, folder)
    device = at(mallory, folder)
    device.resumeSession().result(PATIENCE)
    with (
        mallory.failing("PUT /v1/key-file", BrokerError.conflictError("Changed meanwhile.")),
        pytest.raises(BrokerError.conflictError),
    ):
        device.changeCredentials(NEW_PASSWORD, NEW_PASSPHRASE, compromised=True).result(PATIENCE)
    store = KeychainSessionStore(folder)
    found = store.get(mallory.origin, ring.userId)
    assert found is not None
    newer = open_session(found.sealed, found.key, mallory.origin, ring.userId)[1]
    # The broker had the request, and carries it out later.
    sent = [each for each in mallory.heard if each.name == "PUT /v1/key-file"][-1]
    alice = mallory.accomplice(ring)
    alice.wire.call("PUT", "/v1/key-file", sent.message).expect(204)
    asked = 0

    def refuse_newer(exchange: Any) -> None:
        nonlocal asked
        asked += 1
        if asked <= 2:
            exchange.fail(BrokerError.challengeError("No."))
        else:
            exchange.invent(token_of(mallory, newer), 201)

    with mallory.meddling(SESSIONS, before=refuse_newer):
        not_resumed(
            mallory, at(mallory, folder), NOT_IN, "The kept session stays", *_REFUSED, *_ASKED, KEYS
        )
    later = at(mallory, folder)
    assert later.resumeSession().result(PATIENCE) == ring.userId
    assert later.getKeyRing().result(PATIENCE) == newer


# Limits


def test_a_thief_of_both_is_the_user_until_the_keys_are_replaced_and_that_is_the_limit(
    mallory: Mallory, folder: Path, tmp_path: Path
) -> None:
    """A log-out takes nothing back. New keys end the log-ins; signing key 0 stays the thief's for ever."""
    ring = kept(mallory, folder)
    device = at(mallory, folder)
    device.resumeSession().result(PATIENCE)
    note = device.createContainer(b"before").result(PATIENCE)
    shutil.copytree(folder, tmp_path / "thief")
    stolen = dict(_entries())
    device.logout().result(PATIENCE)
    with keychain_in_memory() as thiefs:
        thiefs.entries.update(stolen)
        thief = at(mallory, tmp_path / "thief")
        assert thief.resumeSession().result(PATIENCE) == ring.userId
        assert thief.getContainerContent(note.id).result(PATIENCE) == b"before"
    device.logIn(ring.userId, passphrase=PASSPHRASE).result(PATIENCE)
    device.changeCredentials(NEW_PASSWORD, NEW_PASSPHRASE, compromised=True).result(PATIENCE)
    with keychain_in_memory() as thiefs:
        thiefs.entries.update(stolen)
        not_resumed(
            mallory, at(mallory, tmp_path / "thief"), NOT_IN, "could not be resumed", *_REFUSED
        )
    assert device.getKeyRing().result(PATIENCE).signing[0] == ring.signing[0], "the thief has it"


def test_a_thief_of_the_folder_of_a_file_store_is_the_user_and_that_is_its_limit(
    mallory: Mallory, folder: Path, tmp_path: Path
) -> None:
    """Its guide says so; nobody but the user of the machine can read the files."""
    device = mallory.device(sessionStore=folder)
    device.register(PASSWORD, PASSPHRASE, keep=True).result(PATIENCE)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    shutil.copytree(folder, tmp_path / "thief")
    thief = mallory.device(sessionStore=FileSessionStore(tmp_path / "thief"))
    assert thief.resumeSession().result(PATIENCE) == device.getUserId().result(PATIENCE)
