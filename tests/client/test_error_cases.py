"""Every class of error, reached through the public interface: how, by whom it is told, what it says.

Most come from an honest broker and an honest client. Where a class can only be reached against a
peer that lies, or with a client that is broken, its case says so under `needs`.
"""

import asyncio
import concurrent.futures
import queue
import re
import resource
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from scbroker import (
    AccessLevel,
    BrokerError,
    CachedProvider,
    FileTrustStore,
    KeyRing,
    MemberRole,
    MemoryTrustStore,
    Promise,
    ServerProvider,
)
from scbroker import errors as e
from scbroker.client.containers import writing
from scbroker.client.users.accounts import keep_mark
from scbroker.crypto.seal import Octets, SigningKey
from scbroker.crypto.verify import SIGNATURE_SIZE
from scbroker.records.container_record import LABEL
from scbroker.records.key_record import parse_key_record
from scbroker.wire.codec import SignedObject
from scbroker.wire.users import KeyFileAnswer, KeyRecords
from tests.client.conftest import PASSPHRASE, PASSWORD, Account, id_of
from tests.client.test_lying_broker import flipped, lying
from tests.kit import state
from tests.kit.ageing import age, drop_old_events
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.network import Go, Network, answered, refused
from tests.kit.operators import admin
from tests.kit.owners import change, shared_by
from tests.kit.quotas import set_quota
from tests.kit.tcp import BadBroker, http
from tests.kit.waiting import PATIENCE
from tests.test_errors import KINDS

CONTENT = b"CANARY " * 30_000
WRONG = "CANARY wrong 1"
Attempt = Callable[..., Any]
"""Calls an operation in whatever style its keywords say."""


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with narrow limits, whose disk is the test's to break."""
    limits: dict[str, Any] = {"max_content": 250_000, "part_grace_seconds": 60, "guesses": 1}
    with BrokerProcess(tmp_path / "narrow", **limits) as broker:
        yield broker


@dataclass(frozen=True)
class Scene:
    """What a case may play with."""

    new_provider: NewProvider
    account: Account
    members: list[KeyRing]
    folder: Path
    request: pytest.FixtureRequest

    def broker(self, name: str) -> BrokerProcess:
        found: BrokerProcess = self.request.getfixturevalue(name)
        return found


Play = Callable[[Scene], AbstractContextManager[Attempt]]
Situation = Callable[[Scene], Iterator[Attempt]]


@dataclass(frozen=True)
class Case:
    """One class of error and one way to it."""

    play: Play
    kind: type[BrokerError]
    code: str
    says: str
    retryable: bool = False
    at_once: bool = False
    """Whether in promise style the call itself raises it."""
    needs: str = ""
    in_callback_style: bool = True

    def __str__(self) -> str:
        return self.play.__name__


CASES: list[Case] = []


def case(
    kind: type[BrokerError], code: str, says: str, **more: Any
) -> Callable[[Situation], Situation]:
    """Adds a situation to the table; it yields the attempt that fails."""

    def add(situation: Situation) -> Situation:
        CASES.append(Case(contextmanager(situation), kind, code, says, **more))
        return situation

    return add


@case(e.InvalidArgumentError, "invalid", "must be bytes", at_once=True)
def content_that_is_text(scene: Scene) -> Iterator[Attempt]:
    alice, text = scene.new_provider(True), cast(bytes, WRONG)
    yield lambda **style: alice.createContainer(text, **style)


@case(
    e.NotAuthenticatedError, "session", "call register, logIn or resumeSession first", at_once=True
)
def no_session(scene: Scene) -> Iterator[Attempt]:
    nobody = scene.new_provider()
    yield nobody.getEvents


@case(e.CredentialsError, "credentials", "Wrong passphrase, unknown user, or no KeyFile")
def a_wrong_passphrase(scene: Scene) -> Iterator[Attempt]:
    nobody, user = scene.new_provider(), scene.broker("broker").new_user().userId
    yield lambda **style: nobody.logIn(user, passphrase=WRONG, **style)


@case(e.SuspendedError, "suspended", "ask the operator")
def a_user_whom_the_operator_has_suspended(scene: Scene) -> Iterator[Attempt]:
    nobody, ring = scene.new_provider(), scene.broker("broker").new_user()
    admin(scene.broker("broker"), "users", "suspend", str(ring.userId)).expect(0)
    yield lambda **style: nobody.logIn(ring, ring.userId, **style)


@case(e.ApiKeyError, "api-key", "ask its operator for a valid one")
def another_brokers_api_key(scene: Scene) -> Iterator[Attempt]:
    url = scene.new_provider().serverUrl
    with ServerProvider(uuid.uuid4(), url, "x", trustStore=MemoryTrustStore()) as stranger:
        yield lambda **style: stranger.getReminder(scene.account.ring.userId, **style)


@case(e.ChallengeError, "challenge", "log in again", needs="a broker that refuses each signature")
def a_log_in_whose_challenges_expired(scene: Scene) -> Iterator[Attempt]:
    nobody = scene.new_provider()
    with Network() as network:
        expired = e.ChallengeError("The challenge expired: log in again.")
        network.treat("POST", "/v1/sessions", refused(expired))
        yield lambda **style: nobody.register(PASSWORD, PASSPHRASE, **style)


@case(e.PermissionDeniedError, "permission", "lacks Upload")
def a_reader_who_writes(scene: Scene) -> Iterator[Attempt]:
    alice, bob = scene.new_provider(True), scene.new_provider(scene.members[0])
    levels = [*shared_by(alice), AccessLevel(id_of(bob))]
    made = alice.createContainer(b"x", accessLevels=levels).result(PATIENCE)
    yield lambda **style: bob.updateContainerContent(made.id, CONTENT, **style)


@case(e.BlockedError, "blocked", "has blocked you: leave the user out")
def a_grant_to_a_user_who_has_blocked_the_author(scene: Scene) -> Iterator[Attempt]:
    alice, bob = scene.new_provider(True), scene.new_provider(scene.members[0])
    bob.blockUser(id_of(alice)).result(PATIENCE)
    levels = [*shared_by(alice), AccessLevel(id_of(bob))]
    yield lambda **style: alice.createContainer(b"x", accessLevels=levels, **style)
    bob.unblockUser(id_of(alice)).result(PATIENCE)


@case(e.NotFoundError, "not-found", "or you have no access to it")
def a_container_of_others(scene: Scene) -> Iterator[Attempt]:
    alice, bob = scene.new_provider(True), scene.new_provider(scene.members[0])
    made = alice.createContainer(b"x").result(PATIENCE)
    yield lambda **style: bob.getContainer(made.id, **style)


@case(e.DeletedError, "deleted", "was deleted")
def a_container_that_was_deleted(scene: Scene) -> Iterator[Attempt]:
    alice = scene.new_provider(True)
    made = alice.createContainer(b"x").result(PATIENCE)
    alice.deleteContainer(made.id).result(PATIENCE)
    yield lambda **style: alice.getContainer(made.id, **style)


@case(e.EventsExpiredError, "events-expired", "no events below 2 any more")
def events_that_were_dropped(scene: Scene) -> Iterator[Attempt]:
    alice, broker = scene.new_provider(True), scene.broker("broker")
    alice.createContainer(b"x").result(PATIENCE)
    alice.getEvents().result(PATIENCE)
    age(broker, id_of(alice))
    drop_old_events(broker)
    yield lambda **style: alice.getEvents(startId=1, **style)


@case(e.ConflictError, "conflict", "at version 2, not 1")
def a_version_that_is_not_the_newest_any_more(scene: Scene) -> Iterator[Attempt]:
    alice = scene.new_provider(True)
    made = alice.createContainer(b"x").result(PATIENCE)
    alice.updateContainerContent(made.id, b"y").result(PATIENCE)
    yield lambda **style: alice.updateContainerContent(made.id, CONTENT, ifVersion=1, **style)


@case(e.StaleKeysError, "stale-keys", "read them again", needs="a broker that withholds new keys")
def a_recipient_whose_newer_keys_are_withheld(scene: Scene) -> Iterator[Attempt]:
    alice, bob = scene.new_provider(True), scene.new_provider(scene.members[0])
    change(alice, compromised=True).result(PATIENCE)
    levels = [AccessLevel(id_of(alice))]

    def withheld(keys: Any) -> Any:
        return replace(keys, users=[replace(u, keyRecords=old(u.keyRecords)) for u in keys.users])

    def old(records: list[SignedObject]) -> list[SignedObject]:
        return [record for record in records if parse_key_record(record.signed).sequence < 2]

    with lying(withheld, (KeyRecords,)):
        yield lambda **style: bob.createContainer(b"CANARY", accessLevels=levels, **style)


@case(e.PartGoneError, "part-gone", "read the container again")
def a_content_that_is_replaced_while_it_is_read(scene: Scene) -> Iterator[Attempt]:
    """Longer than the broker keeps what was replaced, and it swept since."""
    broker = scene.broker("narrow")
    alice = scene.new_provider(broker.new_user(), at=broker)
    made = alice.createContainer(CONTENT).result(PATIENCE)

    async def replaced(go: Go) -> Octets:
        await alice.updateContainerContent(made.id, CONTENT)
        other = await alice.createContainer(b"")
        broker.clock_ahead += 61
        await alice.deleteContainer(other.id)  # and the broker sweeps
        return await go()

    with Network() as network:
        network.treat("GET", "/hashes", replaced)
        yield lambda **style: alice.getContainerContent(made.id, **style)


@case(e.AlreadyExistsError, "exists", "is taken", needs="a random generator that repeats itself")
def a_container_id_that_is_made_twice(scene: Scene) -> Iterator[Attempt]:
    alice = scene.new_provider(True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writing, "random_bytes", lambda size: bytes([7]) * size)
        alice.createContainer(b"first").result(PATIENCE)
        yield lambda **style: alice.createContainer(b"second", **style)


@case(e.TooLargeError, "too-large", "at most 250000 bytes")
def a_content_beyond_the_brokers_limit(scene: Scene) -> Iterator[Attempt]:
    broker = scene.broker("narrow")
    alice = scene.new_provider(broker.new_user(), at=broker)
    yield lambda **style: alice.createContainer(CONTENT * 2, **style)


@case(e.DiskFullError, "disk-full", "No room is left in")
def a_content_beyond_what_this_device_has_room_for(scene: Scene) -> Iterator[Attempt]:
    alice = scene.new_provider(True)
    made = alice.createContainer(CONTENT).result(PATIENCE).id
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        yield lambda **style: alice.saveContainerContent(made, scene.folder / "file", **style)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@case(e.QuotaExceededError, "quota", "left, and this needs")
def a_container_beyond_the_quota(scene: Scene) -> Iterator[Attempt]:
    broker = scene.broker("narrow")
    ring = broker.new_user()
    set_quota(broker.database_url, ring, bytes=1000)
    alice = scene.new_provider(ring, at=broker)
    yield lambda **style: alice.createContainer(b"x", **style)


@case(e.ClockError, "clock", "set the clock right")
def a_clock_that_is_ten_minutes_fast(scene: Scene) -> Iterator[Attempt]:
    alice, honest = scene.new_provider(True), time.time_ns
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: honest() + 600 * 10**9)
        yield lambda **style: alice.createContainer(b"CANARY", **style)


@case(e.RejectedError, "rejected", "signature", needs="a client that signs wrongly")
def a_record_whose_signature_is_broken(scene: Scene) -> Iterator[Attempt]:
    alice, honest = scene.new_provider(True), SigningKey.sign

    def sign(self: SigningKey, name: str, signed: bytes) -> bytes:
        return bytes(SIGNATURE_SIZE) if name == LABEL else honest(self, name, signed)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SigningKey, "sign", sign)
        yield lambda **style: alice.createContainer(b"CANARY", **style)


@case(e.IncompleteUploadError, "incomplete", "upload it first", needs="a way that swallows a chunk")
def a_chunk_that_never_arrived(scene: Scene) -> Iterator[Attempt]:
    alice = scene.new_provider(True)
    with Network() as network:
        network.treat("PUT", "/chunks/0", answered())
        yield lambda **style: alice.createContainer(CONTENT, **style)


@case(e.UnsupportedVersionError, "version", "update the older", needs="a broker of another version")
def a_broker_of_another_protocol(scene: Scene) -> Iterator[Attempt]:
    with BadBroker([http(200, b"", b"Scbroker-Protocol: 2\r\n")]) as bad:
        yield asks(scene, bad.url)


def asks(scene: Scene, url: str) -> Attempt:
    """Reads a reminder from what stands at this address."""
    key, store = scene.new_provider().apiKey, MemoryTrustStore()
    provider = ServerProvider(key, url, "x", trustStore=store, timeout=PATIENCE)
    scene.request.addfinalizer(provider.close)
    return lambda **style: provider.getReminder(scene.account.ring.userId, **style)


@case(e.BrokerFaultError, "internal", "Its log says why", retryable=True)
def a_broker_that_lost_its_files(scene: Scene) -> Iterator[Attempt]:
    broker = scene.broker("narrow")
    alice = scene.new_provider(broker.new_user(), at=broker)
    made = alice.createContainer(CONTENT).result(PATIENCE)
    shutil.rmtree(broker.directory / "objects")
    yield lambda **style: alice.getContainerContent(made.id, **style)


@case(e.UnreachableError, "unreachable", "check serverUrl, the network", retryable=True)
def nobody_at_the_address(scene: Scene) -> Iterator[Attempt]:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    yield asks(scene, url)


@case(e.OfflineError, "offline", "needs the broker, which has been away", retryable=True)
def a_change_through_a_cache_while_the_broker_is_away(scene: Scene) -> Iterator[Attempt]:
    broker = scene.broker("narrow")
    alice = scene.new_provider(broker.new_user(), at=broker)
    with CachedProvider(alice, scene.folder / "cache", follow=False) as cache:
        made = cache.createContainer(b"content").result(PATIENCE).id
        cache.getContainer(made).result(PATIENCE)
        broker.stop()
        cache.getContainer(made).result(PATIENCE)  # notices that the broker is away
        yield lambda **style: cache.deleteContainer(made, **style)


@case(e.ThrottledError, "throttled", r"wait \d+ seconds", retryable=True)
def too_many_guesses(scene: Scene) -> Iterator[Attempt]:
    broker = scene.broker("narrow")
    alice = scene.new_provider(broker.new_user(), at=broker)
    with pytest.raises(BrokerError.credentialsError):
        alice.getKeyFile(WRONG).result(PATIENCE)
    yield lambda **style: alice.getKeyFile(WRONG, **style)


@case(e.OverloadedError, "overloaded", "object store failed", retryable=True)
def a_broker_whose_disk_takes_nothing(scene: Scene) -> Iterator[Attempt]:
    broker = scene.broker("narrow")
    alice = scene.new_provider(broker.new_user(), at=broker)
    shutil.rmtree(broker.directory / "objects", ignore_errors=True)
    (broker.directory / "objects").write_bytes(b"no folder")
    with Network():  # without pauses between the attempts
        yield lambda **style: alice.createContainer(CONTENT, **style)


@case(e.UnsettledAccessError, "unsettled", "confirmAccess")
def a_change_of_access_by_a_member_who_was_removed(scene: Scene) -> Iterator[Attempt]:
    alice, (bob, carol) = scene.new_provider(True), map(scene.new_provider, scene.members)
    group = alice.createGroup("Team", [MemberRole(id_of(bob), "Sharer")]).result(PATIENCE)
    bob.acceptGroup(group).result(PATIENCE)
    levels = [AccessLevel(each, 511) for each in (id_of(alice), id_of(carol), group)]
    box = alice.createContainer(b"x", accessLevels=levels).result(PATIENCE).id
    carol.getContainer(box).result(PATIENCE)
    bob.grantAccess(box, AccessLevel(id_of(bob))).result(PATIENCE)
    alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE)
    yield lambda **style: carol.updateContainerContent(box, b"y", **style)


@case(e.IntegrityError, "integrity", "signature", needs="a broker that changes a record")
def a_record_that_was_changed_on_its_way(scene: Scene) -> Iterator[Attempt]:
    alice, bob = scene.new_provider(True), scene.new_provider(scene.members[0])
    made = alice.createContainer(b"x", accessLevels=shared_by(alice, bob)).result(PATIENCE)

    def changed(view: Any) -> Any:
        governing = view.governing[0]
        record = replace(governing.record, signature=flipped(governing.record.signature))
        return replace(view, governing=[replace(governing, record=record)])

    with lying(changed):
        yield lambda **style: bob.getContainer(made.id, **style)


@case(e.RollbackError, "rollback", "older version of this container",
      needs="a broker that serves what was")  # fmt: skip
def a_container_as_it_was(scene: Scene) -> Iterator[Attempt]:
    alice = scene.new_provider(True)
    made = alice.createContainer(b"old").result(PATIENCE)
    with lying(lambda view: view) as told:
        alice.getContainer(made.id).result(PATIENCE)
    alice.updateContainerContent(made.id, b"new").result(PATIENCE)
    with lying(lambda _: told[0]):
        yield lambda **style: alice.getContainer(made.id, **style)


@case(e.ForkError, "fork", "same generation", needs="a broker with another history")
def another_key_file_than_this_device_has_seen(scene: Scene) -> Iterator[Attempt]:
    ring, store = scene.account.ring, MemoryTrustStore()
    keep_mark(store.open(ring.userId, b""), ring, b"1")
    alice = scene.new_provider(ring, trustStore=store)
    key_file = scene.account.key_file
    yield lambda **style: alice.needToSyncAccount(ring.userId, key_file, **style)


@case(e.KeySubstitutionError, "key-substitution", "do not share with them",
      needs="a broker that answers with another's keys")  # fmt: skip
def keys_of_somebody_else(scene: Scene) -> Iterator[Attempt]:
    alice, (bob, carol) = scene.new_provider(True), scene.members
    with lying(lambda keys: keys, (KeyRecords,)) as told:
        alice.getPublicKeys(bob.userId).result(PATIENCE)
    bobs: Any = told[-1]

    def substituted(keys: Any) -> Any:
        users = [replace(user, keyRecords=bobs.users[0].keyRecords) for user in keys.users]
        return replace(keys, users=users)

    levels = [AccessLevel(carol.userId)]
    with lying(substituted, (KeyRecords,)):
        yield lambda **style: alice.createContainer(b"CANARY", accessLevels=levels, **style)


@case(e.DecryptionError, "decryption", "Wrong password or passphrase, or a damaged KeyFile")
def a_key_file_that_was_damaged_at_the_broker(scene: Scene) -> Iterator[Attempt]:
    nobody, user = scene.new_provider(), scene.account.ring.userId
    damaged = scene.account.key_file[:-1] + bytes([scene.account.key_file[-1] ^ 1])
    with Network() as network:
        network.treat("POST", "/key-file/open", answered(KeyFileAnswer(keyFile=damaged)))
        yield lambda **style: nobody.logIn(user, PASSWORD, PASSPHRASE, **style)


@case(e.TrustStoreError, "trust-store", "put the right file back, or restart the program")
def a_trust_store_that_was_damaged(scene: Scene) -> Iterator[Attempt]:
    ring, folder = scene.members[0], scene.folder / "trust"
    alice = scene.new_provider(ring, trustStore=FileTrustStore(folder))
    state.change(folder, "UPDATE entry SET mac = zeroblob(32)")
    yield lambda **style: alice.logIn(keyRing=ring, userId=ring.userId, **style)


@case(e.SessionStoreError, "session-store", "log in with keep=True, which replaces it")
def a_kept_session_that_was_damaged(scene: Scene) -> Iterator[Attempt]:
    ring, folder = scene.members[0], scene.folder / "sessions"
    alice = scene.new_provider(sessionStore=folder)
    alice.logIn(ring, ring.userId, keep=True).result(PATIENCE)
    (file,) = folder.glob("*.session")
    file.write_bytes(flipped(file.read_bytes()))
    yield lambda **style: alice.resumeSession(ring.userId, **style)


# In callback style there is no promise to cancel.
@case(e.OperationCancelledError, "cancelled", "was cancelled", in_callback_style=False)
def a_promise_that_was_cancelled(scene: Scene) -> Iterator[Attempt]:
    alice = scene.new_provider(True)

    def cancelled() -> Promise[Any]:
        promise = alice.createContainer(CONTENT)
        assert promise.cancel()
        return promise

    yield cancelled


FAMILIES = {e.BrokerUnavailableError, e.UntrustedError}
"""Nobody raises these themselves: callers catch them, for what stands below."""


@pytest.fixture
def scene(
    new_provider: NewProvider,
    account: Account,
    user_pool: Callable[[int], list[KeyRing]],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Scene:
    return Scene(new_provider, account, user_pool(2), tmp_path, request)


each_case = pytest.mark.parametrize("case", CASES, ids=str)


def test_every_class_of_the_tree_has_a_case_and_families_are_reached_by_their_members() -> None:
    reached = {case.kind for case in CASES}
    assert reached == set(KINDS) - FAMILIES
    for family in FAMILIES:
        assert any(issubclass(kind, family) for kind in reached)


def check(error: object, case: Case) -> None:
    """The class, what it says of itself, and that its message tells no secret."""
    assert type(error) is case.kind
    assert isinstance(error, BrokerError)
    assert isinstance(error, ValueError) is (case.kind is e.InvalidArgumentError)
    assert (error.code, error.retryable) == (case.code, case.retryable)
    assert re.search(case.says, error.message), error.message
    shown = f"{error!r} {error.args} {vars(error)}"
    assert not re.search(f"CANARY|{PASSWORD}|{PASSPHRASE}", shown)
    assert not re.search(r"[\w-]{43}|[0-9a-f]{64}", shown), "neither a token nor a key"
    assert (error.__cause__, error.__context__) == (None, None)


def raised_by(promise: Promise[Any]) -> list[BrokerError]:
    """What a promise raises in a plain script and in an event loop."""

    async def look() -> None:
        await promise

    with pytest.raises(BrokerError) as waited:
        promise.result(PATIENCE)
    with pytest.raises(BrokerError) as awaited:
        asyncio.run(look())
    return [waited.value, awaited.value]


@pytest.mark.sampled
@each_case
def test_the_call_the_promise_and_the_handler_tell_the_same_error(case: Case, scene: Scene) -> None:
    with case.play(scene) as attempt:
        if case.at_once:
            with pytest.raises(BrokerError) as caught:
                attempt()
            check(caught.value, case)
        else:
            for error in raised_by(attempt()):
                check(error, case)
        if case.in_callback_style:
            check(told_to_the_handler(attempt), case)


def told_to_the_handler(attempt: Attempt) -> object:
    """The one call of one handler that an attempt in callback style leads to."""
    told: queue.Queue[tuple[str, object]] = queue.Queue()
    with concurrent.futures.ThreadPoolExecutor(1) as handlers:
        attempt(
            completionHandler=lambda *result: told.put(("completed", result)),
            errorHandler=lambda error: told.put(("failed", error)),
            queue=handlers,
        )
        name, error = told.get(timeout=PATIENCE)
    assert name == "failed"
    assert told.empty()
    return error


@pytest.mark.sampled
@pytest.mark.parametrize("case", [case for case in CASES if case.retryable], ids=str)
def test_an_error_that_asks_to_wait_says_how_long_if_the_broker_did(
    case: Case, scene: Scene
) -> None:
    with case.play(scene) as attempt:
        (error, _) = raised_by(attempt())
    wait = getattr(error, "retryAfter", None)
    assert (wait is not None) is (case.kind in (e.ThrottledError, e.OverloadedError))
    assert wait is None or wait > 0
