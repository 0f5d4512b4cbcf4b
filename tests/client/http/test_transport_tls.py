"""TLS between client and broker: whose certificates are accepted, and what is sent before."""

import asyncio
import datetime as dt
import ssl
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from scbroker import BrokerError, KeyRing, MemoryTrustStore, ServerProvider
from scbroker.client.calls.tasks import io_thread
from scbroker.client.http.requests import ObjectStore
from scbroker.client.http.transport import checked_endpoint
from tests.kit.brokers import BrokerProcess
from tests.kit.tls import DAY, Terminator, certificate
from tests.kit.waiting import PATIENCE

Connect = Callable[..., tuple[ServerProvider, Terminator]]


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    """A provider of a broker behind TLS, and the proxy between them."""
    with ExitStack() as stack:

        def made(pem: Path, trusted: Path | None) -> tuple[ServerProvider, Terminator]:
            terminator = Terminator(pem)
            url = stack.enter_context(terminator.running())
            broker = stack.enter_context(BrokerProcess(tmp_path / "data", origins=url))
            terminator.backend = broker.port
            options: dict[str, Any] = {"trustStore": MemoryTrustStore(), "timeout": PATIENCE}
            if trusted is not None:
                options["ssl"] = ssl.create_default_context(cafile=trusted)
            return stack.enter_context(
                ServerProvider(broker.api_key, url, "tls", **options)
            ), terminator

        yield made


@pytest.mark.long
def test_a_broker_behind_tls_is_used_like_any_other(connect: Connect, tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    provider, terminator = connect(pem, pem)
    provider.register("correct Horse 7", "battery Staple 8").result(PATIENCE)
    content = bytes(300_000)
    container = provider.createContainer(content).result(PATIENCE)
    assert provider.getContainerContent(container.id).result(PATIENCE) == content
    assert terminator.heard


@pytest.mark.long
@pytest.mark.parametrize(
    "name, ends, known, why",
    [
        ("localhost", DAY, False, "self-signed certificate"),
        ("localhost", -DAY, True, "certificate has expired"),
        ("broker.example", DAY, True, "Hostname mismatch"),
    ],
    ids=["unknown", "expired", "of another host"],
)
def test_a_certificate_that_does_not_verify_is_named_and_nothing_is_sent(
    connect: Connect, tmp_path: Path, name: str, ends: dt.timedelta, known: bool, why: str
) -> None:
    pem = certificate(tmp_path, name, ends)
    provider, terminator = connect(pem, pem if known else None)
    ring = KeyRing.generate()
    with pytest.raises(BrokerError.unreachableError, match=rf"certificate .*refused: {why}"):
        provider.logIn(keyRing=ring, userId=ring.userId).result(PATIENCE)
    assert terminator.heard == b""


def test_a_store_that_asks_for_a_certificate_is_shown_the_one_that_is_for_the_broker(
    tmp_path: Path,
) -> None:
    """The limit: whoever has none in `ssl` stays unknown to the store."""
    pem, own = certificate(tmp_path), certificate(tmp_path, "client")
    asking = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(own))
    asking.verify_mode = ssl.CERT_OPTIONAL
    asking.load_cert_chain(pem)
    seen: list[object] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        seen.append(writer.get_extra_info("peercert"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def put(with_certificate: bool) -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=asking)
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        context = ssl.create_default_context(cafile=pem)
        if with_certificate:
            context.load_cert_chain(own)
        endpoint = checked_endpoint(uuid.uuid4(), url, "tls", context, None, PATIENCE, [url])
        store = ObjectStore(endpoint)
        await store.put(URL(f"{url}/it"), memoryview(b"sealed"))
        await store.close()
        server.close()

    for with_certificate in (False, True):
        io_thread.submit("put", put(with_certificate)).result(PATIENCE)
    nobody, somebody = seen
    assert not nobody
    assert isinstance(somebody, dict)
    assert somebody["subject"] == ((("commonName", "client"),),)
