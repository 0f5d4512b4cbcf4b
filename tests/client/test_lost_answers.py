"""Answers that get lost on the way: the same bytes are sent again, and everything happens once."""

from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    ContainerAccessLevel,
    ContainerEventType,
    ServerProvider,
)
from scbroker.client.http.requests import Requests
from tests.client.conftest import PASSPHRASE, PASSWORD, id_of
from tests.kit.both_engines import both_engines
from tests.kit.fixtures import NewProvider
from tests.kit.impatience import be_impatient
from tests.kit.waiting import PATIENCE, tick

Request = tuple[str, str, bytes | None]


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The first answer to each request is lost after the broker gave it; notes what was sent.

    Of log-ins, which differ by their nonce, the first answer alone.
    """
    honest, seen = Requests._once, set[Request]()
    sent: list[Request] = []

    async def once(
        self: Requests, method: str, url: str, headers: Any, body: bytes | None, *limits: Any
    ) -> Any:
        known_body = None if body is None else bytes(body)
        request = (method, url, known_body)
        sent.append(request)
        answer = await honest(self, method, url, headers, body, *limits)
        known = (method, url, None if url.endswith("/v1/sessions") else known_body)
        if known not in seen:
            seen.add(known)
            raise BrokerError.unreachableError("lost")
        return answer

    monkeypatch.setattr(Requests, "_once", once)
    be_impatient(monkeypatch)
    return sent


@pytest.mark.long
@both_engines
def test_a_whole_story_succeeds_although_every_first_answer_is_lost(
    lossy: list[Request], new_provider: NewProvider, bob: ServerProvider
) -> None:
    provider = new_provider()
    provider.register(PASSWORD, PASSPHRASE, "a hint").result(PATIENCE)
    user = id_of(provider)
    levels = [
        AccessLevel(user, ContainerAccessLevel.DefaultOwnerPermissions),
        AccessLevel(id_of(bob)),
    ]
    made = provider.createContainer(b"x" * 9_000_000, {"h": 1}, accessLevels=levels)
    container = made.result(PATIENCE).id
    provider.updateContainerHeader(container, {"h": 2}).result(PATIENCE)
    provider.updateContainerContent(container, b"y" * 70_000).result(PATIENCE)
    provider.updateContainerAccessLevels(container, levels).result(PATIENCE)
    provider.updateContainerType(container, "t").result(PATIENCE)
    found = provider.getContainer(container).result(PATIENCE)
    assert (found.version, found.content) == (5, b"y" * 70_000)
    assert bob.getContainerContent(container).result(PATIENCE) == b"y" * 70_000
    changes = [each for each in ContainerEventType if each is not ContainerEventType.Accessed]
    versions = [event.version for event in provider.getEvents(changes).result(PATIENCE)]
    assert versions == [1, 2, 3, 4, 5], "each change happened once"
    provider.deleteContainer(container).result(PATIENCE)
    [deleted] = provider.getEvents(ContainerEventType.Deleted).result(PATIENCE)
    assert deleted.version == 6
    provider.logout().result(PATIENCE)
    provider.logIn(user, passphrase=PASSPHRASE).result(PATIENCE)
    assert len(lossy) > 40


def test_a_log_in_whose_answer_was_lost_asks_for_another_nonce(
    lossy: list[Request], account: Any, new_provider: NewProvider
) -> None:
    """The nonce of the first is spent: the same bytes can only be refused."""
    provider = new_provider()
    provider.logIn(keyRing=account.ring, userId=account.ring.userId).result(PATIENCE)
    statements = [body for method, url, body in lossy if url.endswith("/v1/sessions")]
    assert len(set(statements)) >= 2


@both_engines
def test_a_session_that_ended_at_the_broker_is_renewed_silently(alice: ServerProvider) -> None:
    made = alice.createContainer(b"c").result(PATIENCE)
    session: Any = alice._current
    session.token.value = "x" * 43
    assert alice.getContainerContent(made.id).result(PATIENCE) == b"c"
    session.token.value = "y" * 43
    assert alice.createContainer(b"x" * 3_000_000).result(PATIENCE).length == 3_000_000
    session.token.expires = 0.0
    assert alice.getContainerContent(made.id).result(PATIENCE) == b"c"


def test_operations_at_once_share_one_renewal(alice: ServerProvider) -> None:
    session: Any = alice._current
    session.token.value = "x" * 43
    began: list[int] = []
    honest = session.token.request

    async def begin() -> None:
        began.append(1)
        await tick()
        await honest()

    session.token.request = begin
    for promise in [alice.getEvents() for _ in range(10)]:
        promise.result(PATIENCE)
    assert len(began) == 1
