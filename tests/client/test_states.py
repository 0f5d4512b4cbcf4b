"""The two states of a provider, and what each trigger makes of each: the whole table.

A session is replaced only by one that stands; whatever fails leaves everything as it was.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from scbroker import BrokerError, KeyRing, Promise, ServerProvider
from tests.client.calls.test_operation import OPERATIONS, World
from tests.client.conftest import PASSPHRASE, PASSWORD, REMINDER, Account
from tests.kit.brokers import BrokerProcess
from tests.kit.declared import HOMES
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network, refused
from tests.kit.owners import NEW_PASSPHRASE, NEW_PASSWORD, is_good, ring_of, token_of
from tests.kit.waiting import PATIENCE

DOWN = BrokerError.unreachableError("No broker answers.")


@dataclass(frozen=True)
class Stage:
    """A provider in one of its states, and whom a trigger may be about."""

    provider: ServerProvider
    account: Account
    """Another user, who has a KeyFile."""
    stranger: KeyRing
    """Whom no broker knows."""

    @property
    def user(self) -> uuid.UUID:
        return self.account.ring.userId

    def log_in(self, **arguments: Any) -> Promise[Any]:
        """As the other user, unless the arguments say otherwise."""
        promise: Promise[Any] = self.provider.logIn(**{"userId": self.user, **arguments})
        return promise


@dataclass(frozen=True)
class Outcome:
    """What a trigger leads to."""

    state: Literal["same", "none", "new"]
    """The session that there was, or none as before ("same"), none at all, or a new one."""
    gives: Callable[[Any, Stage], bool] = lambda found, _: found is None
    error: type[BrokerError] | None = None
    at_once: bool = False
    """Whether the call itself raises the error, instead of the promise that it gives."""


def fails(error: type[BrokerError], *, at_once: bool = False) -> Outcome:
    return Outcome("same", error=error, at_once=at_once)


@dataclass(frozen=True)
class Trigger:
    """One thing that can happen to a provider, in each of its states."""

    name: str
    act: Callable[[Stage], Any]
    without: Outcome
    within: Outcome
    """Without a session, and in one."""
    broker_answers: bool = True

    def __str__(self) -> str:
        return self.name


def anyhow(
    name: str, act: Callable[[Stage], Any], outcome: Outcome, *, broker_answers: bool = True
) -> Trigger:
    """A trigger that both states take alike."""
    return Trigger(name, act, outcome, outcome, broker_answers)


def of_a_session(
    name: str, act: Callable[[Stage], Any], outcome: Outcome, *, broker_answers: bool = True
) -> Trigger:
    """A trigger that needs a session."""
    missing = fails(BrokerError.notAuthenticatedError, at_once=True)
    return Trigger(name, act, missing, outcome, broker_answers)


def a_key_file(found: Any, _: Stage) -> bool:
    return isinstance(found, bytes) and found.startswith(b"scbroker.keyfile\x01")


def the_stored_one(found: Any, stage: Stage) -> bool:
    return bool(found == stage.account.key_file)


def change(stage: Stage, passphrase: str = NEW_PASSPHRASE) -> Promise[bytes]:
    return stage.provider.changeCredentials(NEW_PASSWORD, passphrase)


def register(
    stage: Stage, password: Any = PASSWORD, passphrase: Any = PASSPHRASE
) -> Promise[bytes]:
    return stage.provider.register(password, passphrase, REMINDER)


UNKNOWN = uuid.UUID("00000000-0000-8000-8000-000000000000")
NO_ARGUMENT = fails(BrokerError.invalidArgumentError, at_once=True)
NO_CREDENTIALS = fails(BrokerError.credentialsError)
TRIGGERS = [
    anyhow("register", register, Outcome("new", a_key_file)),
    anyhow("register without a password", lambda s: register(s, password=""), NO_ARGUMENT),
    anyhow("register with None as password", lambda s: register(s, password=None), NO_ARGUMENT),
    anyhow("register without a passphrase", lambda s: register(s, passphrase=""), NO_ARGUMENT),
    anyhow("register with None as passphrase", lambda s: register(s, passphrase=None), NO_ARGUMENT),
    anyhow("register, no broker", register, fails(type(DOWN)), broker_answers=False),
    anyhow("logIn, right passphrase", lambda s: s.log_in(passphrase=PASSPHRASE),
         Outcome("new", the_stored_one)),
    anyhow("logIn, wrong passphrase", lambda s: s.log_in(passphrase="wrong"), NO_CREDENTIALS),
    anyhow("logIn, wrong password beside the right passphrase",
         lambda s: s.log_in(password=NEW_PASSWORD, passphrase=PASSPHRASE), NO_CREDENTIALS),
    anyhow("logIn, empty passphrase", lambda s: s.log_in(passphrase=""), NO_ARGUMENT),
    anyhow("logIn, empty password beside the right passphrase",
         lambda s: s.log_in(password="", passphrase=PASSPHRASE), NO_ARGUMENT),
    anyhow("logIn, no such user", lambda s: s.log_in(userId=UNKNOWN, passphrase=PASSPHRASE),
         NO_CREDENTIALS),
    anyhow("logIn with the password alone", lambda s: s.log_in(password=PASSWORD),
         fails(BrokerError.credentialsError, at_once=True)),
    anyhow("logIn by KeyRing", lambda s: s.log_in(keyRing=s.account.ring), Outcome("new")),
    anyhow("logIn by a KeyRing that no broker knows",
         lambda s: s.log_in(userId=s.stranger.userId, keyRing=s.stranger), NO_CREDENTIALS),
    anyhow("logIn by another's KeyRing", lambda s: s.log_in(keyRing=s.stranger), NO_ARGUMENT),
    anyhow("logIn by KeyRing, no broker", lambda s: s.log_in(keyRing=s.account.ring), fails(type(DOWN)),
         broker_answers=False),
    of_a_session("logout", lambda s: s.provider.logout(), Outcome("none")),
    of_a_session("logout, no broker", lambda s: s.provider.logout(), Outcome("none"),
         broker_answers=False),
    of_a_session("deleteUser", lambda s: s.provider.deleteUser(), Outcome("none")),
    of_a_session("deleteUser, no broker", lambda s: s.provider.deleteUser(), fails(type(DOWN)),
         broker_answers=False),
    of_a_session("changeCredentials", change, Outcome("same", a_key_file)),
    of_a_session("changeCredentials, weak", lambda s: change(s, "weak"), NO_ARGUMENT),
    of_a_session("changeCredentials, no broker", change, fails(type(DOWN)), broker_answers=False),
    anyhow("close", lambda s: s.provider.close(), Outcome("none")),
    anyhow("the end of a with block", lambda s: s.provider.__exit__(None, None, None), Outcome("none")),
]  # fmt: skip
ENDS_AT_THE_BROKER = {"logout", "deleteUser"}


def trigger_it(trigger: Trigger, stage: Stage, expected: Outcome) -> Any:
    """Does it, finds the error that is expected where it is expected, and gives the result."""
    with Network() as network:
        if not trigger.broker_answers:
            for method in ("GET", "POST", "PUT", "DELETE"):
                network.treat(method, "", refused(DOWN))
        if expected.error is None:
            return result_of(trigger.act(stage))
        if expected.at_once:
            with pytest.raises(BrokerError) as caught:
                trigger.act(stage)
            assert network.sent == []
        else:
            promise = trigger.act(stage)
            with pytest.raises(BrokerError) as caught:
                promise.result(PATIENCE)
    assert caught.type is expected.error
    assert isinstance(caught.value, ValueError) is (caught.type is BrokerError.invalidArgumentError)
    return None


def result_of(begun: Any) -> Any:
    return begun.result(PATIENCE) if isinstance(begun, Promise) else begun


@pytest.mark.sampled
@pytest.mark.parametrize("in_a_session", [False, True], ids=["unauthenticated", "authenticated"])
@pytest.mark.parametrize("trigger", TRIGGERS, ids=str)
def test_each_trigger_leads_from_each_state_to_the_next_and_a_failure_changes_nothing(
    trigger: Trigger,
    in_a_session: bool,
    account: Account,
    new_provider: NewProvider,
    broker: BrokerProcess,
) -> None:
    stage = Stage(new_provider(in_a_session), account, KeyRing.generate())
    provider = stage.provider
    before, session = provider._current, None
    if in_a_session:
        made = provider.createContainer(b"of before").result(PATIENCE)
        session = (ring_of(provider), token_of(provider), made.id)
    expected = trigger.within if in_a_session else trigger.without
    found = trigger_it(trigger, stage, expected)
    if expected.error is None:
        assert expected.gives(found, stage)
    match expected.state:
        case "same":
            assert provider._current is before
        case "none":
            assert provider._current is None
        case "new":
            assert provider._current not in (None, before)
            assert (ring_of(provider).userId == stage.user) is (trigger.name != "register")
    if provider._current is None:
        check_unauthenticated(provider)
    else:
        assert provider.getUserId().result(PATIENCE) == ring_of(provider).userId
    if session is None:
        assert provider._current is None or expected.state == "new"
        return
    ring, token, container = session
    if expected.state == "same":
        assert ring_of(provider).signing is ring.signing
        assert ring_of(provider).generation == ring.generation + (expected.error is None)
        assert token_of(provider) == token
        assert provider.getContainerContent(container).result(PATIENCE) == b"of before"
        assert is_good(token, broker)
    if trigger.name in ENDS_AT_THE_BROKER:
        assert not is_good(token, broker)


def check_unauthenticated(provider: ServerProvider) -> None:
    for asked in (provider.getUserId, provider.getKeyRing, provider.getEvents, provider.logout):
        with pytest.raises(BrokerError.notAuthenticatedError):
            asked()
    assert "unauthenticated" in repr(provider)


def test_who_registered_is_known_by_id_and_key_ring_and_their_key_file_is_on_the_broker(
    new_provider: NewProvider,
) -> None:
    provider = new_provider()
    key_file = provider.register(PASSWORD, PASSPHRASE, REMINDER).result(PATIENCE)
    ring, user = ring_of(provider), provider.getUserId().result(PATIENCE)
    assert (ring.userId, ring.generation) == (user, 1)
    assert provider.getReminder().result(PATIENCE) == REMINDER
    elsewhere = new_provider()
    assert elsewhere.logIn(user, PASSWORD, PASSPHRASE).result(PATIENCE) == key_file
    assert ring_of(elsewhere).signing[0].seeds == ring.signing[0].seeds
    assert ring_of(elsewhere).generation == 1


def test_a_session_that_was_replaced_serves_what_it_had_begun(
    alice: ServerProvider, account: Account, new_provider: NewProvider
) -> None:
    ring = ring_of(alice)
    begun = [alice.createContainer(b"%d" % number * 100_000) for number in range(4)]
    alice.logIn(keyRing=account.ring, userId=account.ring.userId).result(PATIENCE)
    made = [promise.result(PATIENCE) for promise in begun]
    assert {item.createdBy for item in made} == {ring.userId}
    assert ring_of(alice) is account.ring
    again = new_provider(ring)
    assert again.getContainerContent(made[3].id).result(PATIENCE) == b"3" * 100_000


def never_logged_in(_: ServerProvider) -> None:
    """It has had no session."""


WITHOUT_A_SESSION: dict[str, Callable[[ServerProvider], object]] = {
    "never logged in": never_logged_in,
    "logged out": lambda provider: provider.logout().result(PATIENCE),
    "closed": lambda provider: provider.close(),
    "deleted": lambda provider: provider.deleteUser().result(PATIENCE),
}


@pytest.mark.parametrize("how", WITHOUT_A_SESSION)
def test_all_operations_but_six_need_a_session_and_say_so_before_anything_is_sent(
    how: str, new_provider: NewProvider, account: Account, tmp_path: Path
) -> None:
    provider = new_provider(how != "never logged in", sessionStore=tmp_path / "sessions")
    WITHOUT_A_SESSION[how](provider)
    world = World(provider, uuid.uuid4(), account, tmp_path)
    begin = {"register", "logIn", "resumeSession"}
    refused_by: set[str] = set()
    with Network() as network:
        for operation in OPERATIONS:
            if operation.name in begin:
                continue  # two are in the table above, one in users/test_session_store_kept.py
            try:
                result_of(operation.call(world))
            except BrokerError.notAuthenticatedError:
                refused_by.add(operation.name)
    need_none = {"getReminder", "getKeptSessions", "forgetKeptSession"}
    assert HOMES.keys() - refused_by == begin | need_none
    assert [request.path for request in network.sent] == [
        f"/v1/users/{account.ring.userId}/reminder"
    ]
