"""Attacks through DNS on the names of this machine, to which http is allowed.

Attack 52 of `catalogue`. DNS may give any address for a name under `localhost`. The attacker's machine is
127.0.0.2 here, and has the broker's port.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import aiohttp
import pytest

from scbroker import BrokerError, MemoryTrustStore, ServerProvider
from scbroker.crypto.seal import random_bytes
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.catalogue import all_mount
from tests.kit.tcp import BadBroker, http
from tests.kit.waiting import PATIENCE

all_mount(__name__, 52, "a name of this machine elsewhere")
pytestmark = pytest.mark.process

ELSEWHERE = "127.0.0.2"
NAMES = [
    "localhost", "localhost.", "LOCALHOST", "x.localhost", "a.b.localhost.",
    "\u217cocalhost", "x.\uff4cocalhost", "localhost\u3002",
]  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have DNS give the attacker's address for every name; return the names that it is asked for."""
    names: list[str] = []

    async def resolve(_: object, host: str, port: int = 0, *__: int) -> list[dict[str, object]]:
        names.append(host)
        found = {"hostname": host, "host": ELSEWHERE, "port": port, "family": socket.AF_INET}
        return [{**found, "proto": 0, "flags": socket.AI_NUMERICHOST}]

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", resolve)
    return names


@contextmanager
def attacker(port: int) -> Iterator[BadBroker]:
    try:
        server = socket.create_server((ELSEWHERE, port))
    except OSError:
        pytest.skip(f"this machine has no {ELSEWHERE}")
    with BadBroker([http(200)], _server=server) as found:
        yield found


@pytest.mark.parametrize("name", NAMES)
def test_requests_to_a_name_of_this_machine_stay_on_it_whatever_dns_says(
    mallory: Mallory, asked: list[str], name: str
) -> None:
    port = mallory.url.rpartition(":")[2]
    environment = {
        "SCBROKER_API_KEY": str(mallory.behind.api_key),
        "SCBROKER_SERVER_URL": f"http://{name}:{port}",
        "SCBROKER_APPLICATION_NAME": "tests",
    }
    key_file = None
    with (
        attacker(int(port)) as elsewhere,
        ServerProvider.fromEnvironment(environment, trustStore=MemoryTrustStore()) as device,
        suppress(BrokerError),
    ):
        key_file = device.register("Pass word 1", "pass Phrase 1").result(PATIENCE)
        device.createContainer(b"x").result(PATIENCE)
    assert (elsewhere.requests, asked) == ([], [])
    assert key_file is not None


@pytest.mark.parametrize("proxy", ["http://proxy.example:3128", "http://u:p@10.0.0.1", "proxy", ""])
@pytest.mark.parametrize("plain", ["broker", "store"])
def test_a_proxy_on_another_machine_reads_no_plain_http(proxy: str, plain: str) -> None:
    url = "http://127.0.0.1:8400" if plain == "broker" else "https://broker.example"
    stores = ["http://localhost:9000"] if plain == "store" else []
    key = random_bytes(16).hex()
    with pytest.raises(BrokerError.invalidArgumentError, match="proxy must be on this machine"):
        ServerProvider(key, url, "tests", proxy=proxy, objectStoreOrigins=stores)
    ServerProvider(key, url, "tests", proxy="http://u:p@localhost:8080", objectStoreOrigins=stores)
    ServerProvider(key, "https://broker.example", "tests", proxy="http://proxy.example:3128")
