"""What a user reads after a common mistake: what is wrong, and what to do about it."""

import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from scbroker import AccessLevel, BrokerError, Promise, SecuredContainer, ServerProvider
from tests.client.conftest import id_of
from tests.kit.answering import answering
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.impatience import be_impatient
from tests.kit.tcp import BadBroker, hang
from tests.kit.tls import Terminator, certificate
from tests.kit.waiting import PATIENCE

KEY = uuid.UUID("bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb")
TLS_HINT = "If this port expects TLS, use https:// in serverUrl."
CHECK = "check serverUrl, the network, and whether the broker runs."


def message_of(mistake: Callable[[], object], kind: type[BrokerError]) -> str:
    """Return the message of the error that a call or its promise raises."""

    def make() -> None:
        found = mistake()
        if isinstance(found, Promise):
            found.result(PATIENCE)

    with pytest.raises(BrokerError) as caught:
        make()
    assert type(caught.value) is kind
    return str(caught.value)


@pytest.fixture
def made(alice: ServerProvider) -> SecuredContainer:
    return alice.createContainer(b"x" * 100_000).result(PATIENCE)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """The address of a server on this machine that is not the broker that the client expects."""
    with ExitStack() as stack:

        def of(what: str) -> str:
            if what == "web server":
                return stack.enter_context(answering(404))
            if what == "TLS":
                running = Terminator(certificate(tmp_path)).running()
                return stack.enter_context(running).replace("https", "http")
            if what == "http":
                broker = stack.enter_context(BrokerProcess(tmp_path / "data"))
                return broker.url.replace("http", "https")
            if what == "silent":
                return stack.enter_context(BadBroker([hang])).url
            with socket.create_server(("127.0.0.1", 0)) as closed:
                return f"http://127.0.0.1:{closed.getsockname()[1]}"

        yield of


@pytest.mark.sampled
@pytest.mark.parametrize(
    "what, kind, message",
    [
        ("web server", BrokerError.unsupportedVersionError,
         "The server at {0} is not a broker: its answer (status 404) has no version of the protocol. Check "
         "serverUrl. " + TLS_HINT),
        ("TLS", BrokerError.unreachableError,
         "No broker answers at {0} (the connection was closed): " + f"{CHECK} {TLS_HINT}"),
        ("http", BrokerError.unreachableError,
         "The server at {0} does not speak TLS, or no version that this machine allows: check the port of "
         "serverUrl. If the broker is on this machine and has no TLS, use http:// in serverUrl."),
        ("nothing", BrokerError.unreachableError,
         "No broker answers at {0} (connection refused): " + CHECK),
        ("silent", BrokerError.unreachableError,
         "No answer from {0} within 0.5 seconds: check the network, or set a longer timeout."),
    ],
)  # fmt: skip
def test_an_address_without_a_broker_is_named_as_given_with_the_likely_cause(
    address: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    kind: type[BrokerError],
    message: str,
) -> None:
    be_impatient(monkeypatch)
    url = address(what)
    timeout = 0.5 if what == "silent" else PATIENCE
    with ServerProvider(KEY, url, "x", timeout=timeout) as provider:
        assert message_of(lambda: provider.getReminder(KEY), kind) == message.format(url)


@pytest.mark.long
def test_every_id_may_be_text(
    alice: ServerProvider, bob: ServerProvider, new_provider: NewProvider
) -> None:
    me, him = str(id_of(alice)), str(id_of(bob))
    levels = [AccessLevel(me, "DefaultOwnerPermissions"), AccessLevel(him.upper())]
    assert levels[1] == AccessLevel(id_of(bob))
    made = alice.createContainer(b"1", {"h": 1}, accessLevels=levels, type="t").result(PATIENCE)
    box = str(made.id)
    alice.updateContainerContent(box, b"2").result(PATIENCE)
    alice.updateContainerHeader(box, {"h": 2}).result(PATIENCE)
    alice.updateContainerType(box, "u").result(PATIENCE)
    alice.updateContainerAccessLevels(box, levels).result(PATIENCE)
    assert alice.getSentChanges(box).result(PATIENCE) == []
    assert alice.resetContainerMark(box).result(PATIENCE).served.version == 5
    found = bob.getContainer(made.id.hex).result(PATIENCE)
    assert bob.getContainers([box, made.id]).result(PATIENCE) == [found, found]
    assert bob.getContainerMetadata(box).result(PATIENCE).id == made.id
    assert bob.getSecuredContainer(box).result(PATIENCE).version == 5
    assert bob.getContainerContent(box).result(PATIENCE) == b"2"
    assert bob.getContainerHeader(box).result(PATIENCE) == found.header
    assert bob.getEvents(containerId=box).result(PATIENCE)[0].version == 1
    assert len(bob.getPublicKeys(me).result(PATIENCE)) == 2
    assert bob.getLatestActiveSigningKey(me).result(PATIENCE)
    assert bob.getReminder(me).result(PATIENCE) == ""
    ring = alice.getKeyRing().result(PATIENCE)
    new_provider().logIn(keyRing=ring, userId=me).result(PATIENCE)
    alice.updateContainer(box, b"3", accessLevels=levels).result(PATIENCE)
    alice.deleteContainer(box).result(PATIENCE)
    with pytest.raises(BrokerError.deletedError):
        bob.getContainer(box).result(PATIENCE)


def test_an_unknown_host_and_an_object_in_place_of_an_id_are_named(
    alice: ServerProvider, made: SecuredContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_impatient(monkeypatch)
    provider: Any = alice
    invalid = BrokerError.invalidArgumentError
    assert "pass its id" in message_of(lambda: provider.getContainer(made), invalid)
    promise = alice.getUserId()
    assert "await it first" in message_of(lambda: provider.getContainer(promise), invalid)
    with ServerProvider(KEY, "https://broker.invalid", "x") as unknown:
        said = message_of(lambda: unknown.getReminder(KEY), BrokerError.unreachableError)
    assert "host name is unknown" in said
