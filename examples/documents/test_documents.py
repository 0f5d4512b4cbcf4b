"""The service under uvicorn and its client, with a real broker: `scbroker_broker` of the pytest plugin."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import aiohttp.web
import pytest
import uvicorn

from examples.documents.client import Documents, printable
from examples.documents.service import app
from scbroker import BrokerError, ContactCard, ServerProvider
from scbroker.testing import PASSPHRASE, LocalBroker


@pytest.fixture(scope="module")
def account(scbroker_broker: LocalBroker) -> ServerProvider:
    """The service's own user."""
    return scbroker_broker.new_user()


@pytest.fixture(scope="module")
def service(
    scbroker_broker: LocalBroker, account: ServerProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Run the service on a free port; return its address."""
    with pytest.MonkeyPatch.context() as patched, socket.create_server(("127.0.0.1", 0)) as port:
        for name, value in scbroker_broker.environment.items():
            patched.setenv(name, value)
        patched.setenv("SCBROKER_USER_ID", str(account.getUserId().result()))
        patched.setenv("SCBROKER_PASSPHRASE", PASSPHRASE)
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [port]})
        thread.start()
        yield f"http://127.0.0.1:{port.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@contextlib.asynccontextmanager
async def documents_of(provider: ServerProvider, service: str) -> AsyncIterator[Documents]:
    async with aiohttp.ClientSession(service) as http:
        yield Documents(provider, http)


@pytest.mark.long
def test_the_service_lists_a_users_documents_and_can_read_none(
    scbroker_broker: LocalBroker, account: ServerProvider, service: str, tmp_path: Path
) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Bob")
    alice, bob = scbroker_broker.new_user(), scbroker_broker.new_user()

    async def scenario() -> None:
        async with documents_of(alice, service) as mine, documents_of(bob, service) as others:
            await mine.log_in()
            await others.log_in()
            id = await mine.put(letter)
            found = await mine.list()
            assert (found["letter.txt"]["id"], found["letter.txt"]["members"]) == (str(id), 2)
            assert await others.list() == {}

            seen = await account.getContainerMetadata(id)
            assert (seen.version, seen.length) == (1, None)
            assert await account.getContainerContent(id) is None
            assert (await account.getSecuredContainer(id)).wrap is None

    asyncio.run(scenario())


def test_another_users_card_gives_nobody_the_token(
    scbroker_broker: LocalBroker, service: str
) -> None:
    alice, mallory = scbroker_broker.new_user(), scbroker_broker.new_user()

    async def scenario() -> None:
        card = {"card": (await alice.getContactCard("Alice")).text}
        async with aiohttp.ClientSession(service) as http:
            async with http.post("/accounts", json=card) as answer:
                container = (await answer.json())["container"]
            with pytest.raises(BrokerError.notFoundError):
                await mallory.getContainerContent(container)
            for headers in ({}, {"Authorization": "Bearer guessed"}):
                async with http.get("/documents", headers=headers) as answer:
                    assert answer.status == 401
            async with http.post("/accounts", json={"card": "not a card"}) as answer:
                assert answer.status == 422

    asyncio.run(scenario())


@contextlib.asynccontextmanager
async def hostile_service(card: ContactCard, container: str) -> AsyncIterator[str]:
    """Run a service that names this container as that of the token; yield its address."""
    app = aiohttp.web.Application()

    async def service_card(_: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.json_response({"card": card.text})

    async def account(_: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.json_response({"container": container})

    app.router.add_get("/card", service_card)
    app.router.add_post("/accounts", account)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    try:
        site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def test_a_service_that_names_a_document_as_its_token_does_not_get_the_content(
    scbroker_broker: LocalBroker,
) -> None:
    alice, service = scbroker_broker.new_user(), scbroker_broker.new_user()

    async def scenario() -> None:
        secret = (await alice.createContainer(b"Dear Bob", type="document")).id
        for card in (await service.getContactCard("x"), await alice.getContactCard("x")):
            async with (
                hostile_service(card, str(secret)) as address,
                aiohttp.ClientSession(address) as http,
            ):
                with pytest.raises(BrokerError.untrustedError):
                    await Documents(alice, http).log_in()
                assert "Authorization" not in http.headers

    asyncio.run(scenario())


def test_a_name_with_control_characters_is_printed_with_escapes() -> None:
    assert printable("\x1b[2J\u202eünd\n.txt") == "\\x1b[2J\\u202eünd\\n.txt"
