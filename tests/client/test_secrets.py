"""Nothing secret stands in a repr, a log line, a traceback or an error: canaries all the way."""

import asyncio
import logging
import traceback
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scbroker import BrokerError, ServerProvider, mainQueue
from tests.client.conftest import drop
from tests.kit.fixtures import NewProvider
from tests.kit.waiting import PATIENCE

PASSWORD = "CANARY password 1"
PASSPHRASE = "CANARY passphrase 1"
CONTENT = b"CANARY content"
HEADER = {"CANARY": "CANARY header"}


@pytest.fixture
def everything(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """All that may be shown: what the test adds, and at its end every log line at DEBUG."""
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    yield shown
    shown += [record.getMessage() + (record.exc_text or "") for record in caplog.records]
    text = "\n".join(shown)
    assert "CANARY" not in text
    assert len(text) > 100, "there was something to look at"


def all_of(error: BrokerError) -> str:
    """An error as a tool might report it: its chain, and the locals of our frames; no source lines."""
    found = [type(error).__name__, str(error), repr(error.args), repr(vars(error))]
    if not error.__suppress_context__:
        found.append(repr(error.__context__))
    looked = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if any(frame.f_code.co_name == "_look" for frame in looked):
        ours = [frame for frame in looked if "scbroker/client" in frame.f_code.co_filename]
        found += [repr(value) for frame in ours for value in frame.f_locals.values()]
    return "\n".join(found)


def key_bytes(provider: ServerProvider) -> list[bytes]:
    ring = provider.getKeyRing().result(PATIENCE)
    signing = [bytes(seed) for key in ring.signing for seed in key.seeds]
    return signing + [bytes(seed) for key in ring.encryption for seed in key.seeds]


def test_no_result_of_a_call_shows_a_secret(
    new_provider: NewProvider, everything: list[str]
) -> None:
    """Provider, promises, KeyRing, containers, their parts and the session below."""
    provider = new_provider()
    promise = provider.register(PASSWORD, PASSPHRASE)
    everything += [repr(promise), str(promise)]
    promise.result(PATIENCE)
    made = provider.createContainer(CONTENT, HEADER)
    secured = made.result(PATIENCE)
    found = provider.getContainer(secured.id).result(PATIENCE)
    assert found.content == CONTENT
    ring = provider.getKeyRing().result(PATIENCE)
    objects = [
        provider, made, promise, secured, found, ring, *ring.signing, *ring.encryption,
        provider._current, provider._endpoint, provider._requests,
    ]  # fmt: skip
    everything += [form(each) for each in objects for form in (repr, str, "{}".format)]
    text = "\n".join(everything)
    for seed in key_bytes(provider):
        assert seed.hex() not in text
        assert repr(seed)[2:-1] not in text
    session: Any = provider._current
    assert session.token.value
    assert session.token.value not in text


def test_a_key_ring_is_not_pickled(alice: ServerProvider) -> None:
    import pickle

    with pytest.raises(TypeError, match="KeyFile"):
        pickle.dumps(alice.getKeyRing().result(PATIENCE))


def test_no_error_shows_a_secret(new_provider: NewProvider, everything: list[str]) -> None:
    """Wrong arguments, wrong secrets, wrong types, in both styles, with every frame of ours."""
    provider: Any = new_provider()
    provider.register(PASSWORD, PASSPHRASE).result(PATIENCE)
    user = provider.getUserId().result(PATIENCE)
    made = provider.createContainer(CONTENT, HEADER).result(PATIENCE)
    attempts: list[Callable[[], object]] = [
        lambda: provider.register("CANARY", PASSPHRASE),
        lambda: provider.register(PASSWORD, PASSPHRASE, f"it is {PASSWORD}"),
        lambda: provider.logIn(user, "CANARY wrong 1", PASSPHRASE).result(PATIENCE),
        lambda: provider.logIn(user, passphrase="CANARY wrong 1").result(PATIENCE),
        lambda: provider.logIn(user, PASSWORD),
        lambda: provider.getContainerHeader(made.id, int).result(PATIENCE),
        lambda: provider.getContainer(made.id, uuid.UUID).result(PATIENCE),
        lambda: provider.createContainer("CANARY"),
        lambda: provider.createContainer([CONTENT]),
        lambda: provider.createContainer(CONTENT, {"a": {CONTENT: object()}}),
        lambda: provider.updateContainerContent(uuid.uuid4(), CONTENT).result(PATIENCE),
        lambda: asyncio.run(looked_at(provider.getContainerHeader(made.id, int))),
    ]
    for attempt in attempts:
        with pytest.raises(BrokerError) as caught:
            attempt()
        everything.append(all_of(caught.value))


async def looked_at(promise: Any) -> None:
    await promise


def test_a_failure_that_nobody_looked_at_is_logged_without_secrets(
    new_provider: NewProvider, everything: list[str]
) -> None:
    provider = new_provider()
    provider.register(PASSWORD, PASSPHRASE).result(PATIENCE)
    made = provider.createContainer(CONTENT, HEADER).result(PATIENCE)
    drop(provider.getContainerHeader(made.id, int))
    failed: list[BrokerError] = []
    provider.getContainerHeader(made.id, int, completionHandler=print, errorHandler=failed.append)
    assert mainQueue.run(PATIENCE)
    everything += [repr(error) + str(error) for error in failed]
    everything.append("-" * 100)
    assert len(failed) == 1
