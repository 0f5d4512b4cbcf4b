"""A broker under a path of another site: the client asks below that path, and a proxy takes it off."""

import asyncio
import io
import threading
from collections.abc import Iterator
from typing import Self
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

from scbroker import MemoryTrustStore, ServerProvider
from tests.client.conftest import PASSPHRASE, PASSWORD
from tests.client.test_containers import MIB, pattern
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import StartBroker
from tests.kit.waiting import PATIENCE

_HOP_BY_HOP = ("Transfer-Encoding", "Connection")


class PathProxy:
    """A reverse proxy that serves a broker below `base`, and answers 404 to everything else."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.target = ""
        self.asked: list[str] = []
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)

    @property
    def origin(self) -> str:
        return f"http://localhost:{self._port}"

    def _run(self) -> None:
        application = web.Application(client_max_size=64 * MIB)
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(application)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self._port = runner.addresses[0][1]
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.raw_path)
        if not request.raw_path.startswith(self.base + "/"):
            return web.Response(status=404)
        url = self.target + request.raw_path.removeprefix(self.base)
        headers = {name: value for name, value in request.headers.items() if name != "Host"}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as client,
            client.request(
                request.method, url, data=io.BytesIO(await request.read()), headers=headers
            ) as answer,
        ):
            kept = {name: v for name, v in answer.headers.items() if name not in _HOP_BY_HOP}
            return web.Response(status=answer.status, body=await answer.read(), headers=kept)


@pytest.fixture(params=["/broker", "/a/b-c"])
def proxy(request: pytest.FixtureRequest) -> Iterator[PathProxy]:
    with PathProxy(request.param) as running:
        yield running


@pytest.fixture
def broker(proxy: PathProxy, start_broker: StartBroker) -> BrokerProcess:
    """Knows the proxy's origin, and nothing of the path."""
    started = start_broker(origins=proxy.origin)
    proxy.target = started.url
    return started


def provider_at(broker: BrokerProcess, url: object) -> ServerProvider:
    return ServerProvider(broker.api_key, url, "tests", trustStore=MemoryTrustStore())  # type: ignore[arg-type]


@pytest.mark.long
def test_everything_works_below_a_path_and_nothing_is_asked_above_it(
    proxy: PathProxy, broker: BrokerProcess
) -> None:
    url = proxy.origin + proxy.base
    with provider_at(broker, url) as one, provider_at(broker, urlsplit(f"{url}/")) as other:
        one.register(PASSWORD, PASSPHRASE).result(PATIENCE)
        user = one.getUserId().result(PATIENCE)
        small = one.createContainer(b"small", {"h": 1}, type="t").result(PATIENCE)
        large = one.createContainer(pattern(3 * MIB)).result(PATIENCE)
        other.logIn(user, passphrase=PASSPHRASE).result(PATIENCE)
        assert other.getContainerContent(large.id).result(PATIENCE) == pattern(3 * MIB)
        assert other.getSecuredContainer(small.id).result(PATIENCE) == small
        assert len(other.getEvents(containerType="t").result(PATIENCE)) == 1
        other.logout().result(PATIENCE)
    assert len(proxy.asked) > 10
    assert all(path.startswith(f"{proxy.base}/v1/") for path in proxy.asked)
