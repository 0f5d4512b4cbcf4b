"""The stores of kept sessions: two halves that are replaced together, for their owner alone."""

import os
import signal
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
    SealedKeys,
    ServerProvider,
    SessionStore,
)
from scbroker.client.users import session_store
from scbroker.client.users.session_store import checked_session_store
from scbroker.keys import open_session, seal_session
from tests.kit.keychains import MemoryKeychain, keychain_in_memory, run_beside_gnome_keyring

ORIGIN = "https://broker.example"
USER = uuid.UUID(int=5)
ONE = SealedKeys(b"1" * 32, b"one")
TWO = SealedKeys(b"2" * 32, b"two")
RENEWED = SealedKeys(ONE.key, b"renewed")


@pytest.fixture
def keychain() -> Iterator[MemoryKeychain]:
    with keychain_in_memory() as found:
        yield found


@pytest.fixture(params=[KeychainSessionStore, FileSessionStore])
def store(request: pytest.FixtureRequest, keychain: MemoryKeychain, tmp_path: Path) -> Any:
    del keychain
    return request.param(tmp_path / "sessions")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_that_is_forked_while_a_store_is_locked_does_not_keep_it_locked(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keychain that asks the person keeps it locked for long."""
    monkeypatch.setattr(session_store, "_LOCK_SECONDS", 0.2)
    children: list[int] = []
    read = store._get_key

    def read_slowly(*entry: Any) -> Any:
        if not children:
            children.append(child := os.fork())
            if child == 0:
                signal.pause()
                os._exit(0)
        return read(*entry)

    assert store.swap(ORIGIN, USER, None, ONE)
    monkeypatch.setattr(store, "_get_key", read_slowly)
    try:
        assert store.get(ORIGIN, USER) == ONE
        assert store.get(ORIGIN, USER) == ONE
    finally:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)


def test_a_kept_pair_is_replaced_only_if_it_is_the_expected_one(store: Any) -> None:
    assert store.get(ORIGIN, USER) is None
    assert not store.swap(ORIGIN, USER, ONE, TWO)
    assert store.swap(ORIGIN, USER, None, ONE)
    assert not store.swap(ORIGIN, USER, None, TWO)
    assert store.swap(ORIGIN, USER, ONE, RENEWED)
    assert store.get(ORIGIN, USER) == RENEWED
    assert store.swap(ORIGIN, USER, RENEWED, TWO)
    store.remove(ORIGIN, USER, ONE)
    assert store.get(ORIGIN, USER) == TWO
    store.remove(ORIGIN, USER, TWO)
    assert store.get(ORIGIN, USER) is None
    assert store.swap(ORIGIN, USER, None, ONE)
    store.remove(ORIGIN, USER)
    assert store.get(ORIGIN, USER) is None
    store.remove(ORIGIN, USER)


def test_users_and_brokers_are_kept_apart(store: Any, tmp_path: Path) -> None:
    other = uuid.UUID(int=3)
    assert store.users(ORIGIN) == []
    for origin, user in ((ORIGIN, USER), (ORIGIN, other), ("http://localhost:8400", USER)):
        store.swap(origin, user, None, ONE)
    assert store.users(ORIGIN) == [other, USER]
    assert store.users("http://localhost:8400") == [USER]
    store.remove(ORIGIN, USER)
    assert store.users(ORIGIN) == [other]
    assert store.get("http://localhost:8400", USER) == ONE
    (tmp_path / "sessions" / f"notes{session_store._ending(ORIGIN)}").touch()
    assert store.users(ORIGIN) == [other]


class CrashError(BaseException):
    """The process ends here."""


def steps(patched: pytest.MonkeyPatch, keychain: MemoryKeychain, crash_before: int) -> list[str]:
    """Watch every step that changes a half, and crash before the one of this number."""
    taken: list[str] = []

    def step(name: str) -> None:
        if len(taken) == crash_before:
            raise CrashError
        taken.append(name)

    def before(change: str) -> Callable[..., Any]:
        honest = getattr(Path, change)

        def changed(path: Path, *more: Any, **options: Any) -> Any:
            if path.name.endswith((".session", ".key")) or change == "replace":
                step(change)
            return honest(path, *more, **options)

        return changed

    keychain.before = lambda access: step(access) if access != "get" else None
    for change in ("unlink", "replace"):
        patched.setattr(Path, change, before(change))
    return taken


@pytest.mark.parametrize(
    "before, after",
    [(None, ONE), (ONE, RENEWED), (ONE, TWO), (ONE, None)],
    ids=["keep", "renew", "keep anew", "forget"],
)
def test_a_crash_at_any_step_leaves_a_whole_session_or_none_that_can_be_kept_again(
    store: Any, keychain: MemoryKeychain, before: SealedKeys | None, after: SealedKeys | None
) -> None:
    """And a renewal, after which no person is there to log in, leaves the one before or the one after."""

    def change() -> None:
        if after is None:
            store.remove(ORIGIN, USER)
        else:
            store.swap(ORIGIN, USER, before, after)

    crashed, number = True, 0
    while crashed:
        store.remove(ORIGIN, USER)
        if before is not None:
            assert store.swap(ORIGIN, USER, None, before)
        with pytest.MonkeyPatch.context() as patched:
            steps(patched, keychain, number)
            try:
                change()
                crashed = False
            except CrashError:
                number += 1
        keychain.before = lambda _: None
        found = store.get(ORIGIN, USER)
        assert found in (before, after) if after is RENEWED else found in (before, after, None)
        assert store.users(ORIGIN) == ([] if found is None else [USER])
        assert store.swap(ORIGIN, USER, found, TWO)
        assert store.get(ORIGIN, USER) == TWO
    assert number >= 1


def test_files_and_folder_are_for_their_owner_alone(store: Any, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store.swap(ORIGIN, USER, None, ONE)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "sessions").iterdir()]
    assert set(modes) == {0o600}
    assert stat.S_IMODE((tmp_path / "sessions").stat().st_mode) == 0o700


def test_an_entry_of_the_keychain_that_is_not_a_key_opens_nothing_and_is_replaced(
    tmp_path: Path, keychain: MemoryKeychain
) -> None:
    store = KeychainSessionStore(tmp_path)
    store.swap(ORIGIN, USER, None, ONE)
    [entry] = keychain.entries
    for junk in ("", "not base64", "é", "AAAA"):
        keychain.entries[entry] = junk
        found = store.get(ORIGIN, USER)
        assert found is not None
        assert len(found.key) < 32
    assert store.swap(ORIGIN, USER, store.get(ORIGIN, USER), TWO)
    assert store.get(ORIGIN, USER) == TWO


def test_an_argument_names_a_store_or_the_folder_of_one(tmp_path: Path) -> None:
    made = checked_session_store(str(tmp_path))
    assert isinstance(made, FileSessionStore)
    assert made.directory == tmp_path
    assert isinstance(checked_session_store(tmp_path), FileSessionStore)
    assert isinstance(checked_session_store(None), KeychainSessionStore)
    assert checked_session_store(made) is made
    assert isinstance(made, SessionStore)
    for wrong in ("", 3, object(), FileSessionStore):
        with pytest.raises(BrokerError.invalidArgumentError, match=r"^sessionStore must be"):
            ServerProvider(
                uuid.uuid4(),
                "https://broker.example",
                "x",
                sessionStore=wrong,  # type: ignore[arg-type]
            )


def test_a_sealed_session_opens_with_its_key_for_its_user_and_broker_alone() -> None:
    ring, key = KeyRing.generate(), os.urandom(32)
    later = ring.next(2, fresh=True)
    data = seal_session([ring, later], key, ORIGIN)
    assert open_session(data, key, ORIGIN, ring.userId) == [ring, later]
    for wrong in (
        (data, os.urandom(32), ORIGIN, ring.userId),
        (data, b"", ORIGIN, ring.userId),
        (data, key, "https://other.example", ring.userId),
        (data, key, ORIGIN, uuid.uuid4()),
    ):
        with pytest.raises(BrokerError.decryptionError):
            open_session(*wrong)
    mixed = seal_session([ring, KeyRing.generate()], key, ORIGIN)
    with pytest.raises(BrokerError.decryptionError):
        open_session(mixed, key, ORIGIN, ring.userId)


IN_A_KEYCHAIN = """
import sys, uuid
from scbroker import KeychainSessionStore, SealedKeys
import keyring
store, user, origin = KeychainSessionStore(sys.argv[1]), uuid.UUID(int=5), "https://broker.example"
one, two = SealedKeys(bytes(range(32)), b"one"), SealedKeys(bytes(32), b"two")
store.check()
print(type(keyring.get_keyring()).__module__)
print(store.get(origin, user), store.swap(origin, user, None, one), store.get(origin, user) == one)
print(store.swap(origin, user, one, two), KeychainSessionStore(sys.argv[1]).get(origin, user) == two)
store.remove(origin, user)
print(store.get(origin, user), keyring.get_password(f"scbroker {origin} {user}", str(user)))
"""


def test_a_real_keychain_keeps_returns_and_forgets_a_key(tmp_path: Path) -> None:
    done = run_beside_gnome_keyring(tmp_path, IN_A_KEYCHAIN, str(tmp_path / "sessions"))
    assert done.stdout.splitlines() == [
        "keyring.backends.SecretService", "None True True", "True True", "None None",
    ], done.stderr  # fmt: skip
